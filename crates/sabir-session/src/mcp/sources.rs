//! Finds the servers of a session, and decides which of them may be started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_mcp::{McpServerSpec, McpTransport, UnsetVariable, parse_server_file};
use sabir_workspace::Workspace;
use serde::Serialize;

use super::store::{McpStore, TrustedServer, read_store};
use crate::config::{self, Config};
use crate::conventions::folder_reader::read_text_start;
use crate::hooks::{UnpinnableCommand, find_launch_files};

/// The files of a repository that define servers, in the order of precedence.
const PROJECT_FILES: [&str; 4] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".roo/mcp.json",
];

/// The most bytes of such a file.
const MAX_PROJECT_BYTES: usize = 1 << 20;

/// The place that a server was configured in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "source", content = "file")]
pub enum ServerSource {
    /// The spec of the session.
    Session,
    /// The user's configuration.
    Configuration,
    /// A file of another program that the configuration names.
    Import(PathBuf),
    /// A file of the repository.
    Project(PathBuf),
}

/// The permission to start a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "launch_state")]
pub enum LaunchState {
    /// It may be started.
    Allowed,
    /// It belongs to a repository, and is not trusted.
    Untrusted,
    /// It belongs to a repository, and differs from the server that was trusted.
    Changed {
        /// The server that was trusted, in words.
        before: String,
        /// The files of the repository which it starts or reads, and which differ.
        files: Vec<String>,
    },
    /// It cannot be started.
    Unusable {
        /// The reason.
        reason: String,
    },
}

/// A configured server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundServer {
    /// The server, with its variables.
    pub spec: McpServerSpec,
    /// The place that it was configured in.
    pub source: ServerSource,
    /// The permission to start it.
    pub launch: LaunchState,
    /// The files of the repository that the server's command line names or that it reads at its
    /// start, each with a text that identifies its content. Empty for a server in the user's
    /// configuration.
    pub files: BTreeMap<String, String>,
}

/// The configured servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerList {
    /// The servers. Of several with one name the first is here; a server of a repository comes after the user's.
    pub servers: Vec<FoundServer>,
    /// The mistakes in files, each as a sentence.
    pub problems: Vec<String>,
}

impl ServerList {
    /// Adds a server, unless there is one of its name.
    fn push(&mut self, spec: McpServerSpec, source: ServerSource, launch: LaunchState) {
        if let Some(known) = self
            .servers
            .iter()
            .find(|known| known.spec.name == spec.name)
        {
            // The user's own choice of a server with the same name is not a mistake.
            if matches!(source, ServerSource::Project(_)) && known.spec.transport != spec.transport
            {
                self.problems.push(format!(
                    "the server `{}` of {} is not used: another has its name",
                    spec.name,
                    source.describe()
                ));
            }
            return;
        }
        self.servers.push(FoundServer {
            spec,
            source,
            launch,
            files: BTreeMap::new(),
        });
    }

    /// Reads a configuration file of the user. A missing file has no servers.
    fn push_user_file(&mut self, path: &Path, source: &ServerSource) {
        if !path.exists() {
            return;
        }
        match config::read_text(path) {
            Ok(text) => self.push_text(&text, source),
            Err(error) => self.push_problem(source, &error),
        }
    }

    /// Reads a file of the repository with the checks of its other conventions: it may be a link out of the folder, an endless pipe, or
    /// very large.
    fn push_project_file(&mut self, workspace: &Workspace, file: &str, source: &ServerSource) {
        let path = match workspace.parse_path(file) {
            Ok(path) => path,
            Err(error) => return self.push_problem(source, &error),
        };
        match read_text_start(workspace, &path, MAX_PROJECT_BYTES) {
            Ok(start) if start.size > MAX_PROJECT_BYTES as u64 => {
                self.push_problem(source, &"it is too large");
            }
            Ok(start) => self.push_text(&start.text, source),
            Err(error) if error.is_missing() => {}
            Err(error) => self.push_problem(source, &error),
        }
    }

    fn push_problem(&mut self, source: &ServerSource, problem: &dyn std::fmt::Display) {
        self.problems
            .push(format!("{}: {problem}", source.describe()));
    }

    fn push_text(&mut self, text: &str, source: &ServerSource) {
        match parse_server_file(text) {
            Ok(parsed) => {
                for problem in parsed.problems {
                    self.push_problem(source, &problem);
                }
                for spec in parsed.servers {
                    self.push(spec, source.clone(), LaunchState::Allowed);
                }
            }
            Err(error) => self.push_problem(source, &error),
        }
    }
}

impl ServerSource {
    /// Describes the place for the user.
    pub fn describe(&self) -> String {
        match self {
            Self::Session => "this session".to_owned(),
            Self::Configuration => "config.toml".to_owned(),
            Self::Import(path) => path.display().to_string(),
            Self::Project(path) => path.display().to_string(),
        }
    }

    /// Returns the scope of approvals: approvals for a server of a repository hold in that repository only.
    pub(super) fn scope(&self, root: &Path) -> String {
        match self {
            Self::Project(_) => root.display().to_string(),
            _ => "user".to_owned(),
        }
    }
}

/// Finds the servers of a session in the folder `root`: those of the spec, then the user's, then the repository's.
pub fn find_servers(session: &[McpServerSpec], config: &Config, root: &Path) -> ServerList {
    let mut list = ServerList::default();
    for spec in session {
        list.push(spec.clone(), ServerSource::Session, LaunchState::Allowed);
    }
    let keys = config.mcp_config();
    for spec in keys.specs() {
        list.push(spec, ServerSource::Configuration, LaunchState::Allowed);
    }
    for file in &keys.import {
        let home = config.environment.home_folder.as_deref();
        let path = match (file.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(file),
        };
        if !path.exists() {
            list.problems
                .push(format!("{} does not exist", path.display()));
        }
        let source = ServerSource::Import(path.clone());
        list.push_user_file(&path, &source);
    }
    if keys.reads_project_files() {
        let store = read_store(&config.environment);
        if let Err(error) = &store {
            list.problems
                .push(format!("{error}; no server of a repository is trusted"));
        }
        let store = store.unwrap_or_default();
        match Workspace::open(root) {
            Ok(workspace) => push_project_files(&mut list, &workspace, &store, config),
            Err(error) => list.problems.push(error.to_string()),
        }
    }
    for server in &mut list.servers {
        if server.launch == LaunchState::Allowed
            && let Err(error) = expand_spec(&server.spec, config, root)
        {
            server.launch = LaunchState::Unusable {
                reason: error.to_string(),
            };
        }
    }
    list
}

/// Adds the servers of a repository, with the permission to start each.
fn push_project_files(
    list: &mut ServerList,
    workspace: &Workspace,
    store: &McpStore,
    config: &Config,
) {
    let root = workspace.root();
    for file in PROJECT_FILES {
        let source = ServerSource::Project(root.join(file));
        list.push_project_file(workspace, file, &source);
    }
    // After all were read: of several servers with one name, only the first starts anything.
    for server in &mut list.servers {
        if matches!(server.source, ServerSource::Project(_)) {
            match started_files(&server.spec, config, workspace) {
                Ok(files) => {
                    server.files = files;
                    server.launch = project_launch(store, root, server);
                }
                Err(error) => {
                    let reason =
                        format!("a change of what it starts would not be noticed: {error}");
                    server.launch = LaunchState::Unusable { reason };
                }
            }
        }
    }
}

/// Returns the permission to start a server of a repository.
fn project_launch(store: &McpStore, root: &Path, server: &FoundServer) -> LaunchState {
    let name = &server.spec.name;
    let trusted = store.trusted.get(root).and_then(|all| all.get(name));
    let now = TrustedServer::from_server(server);
    match trusted {
        None => LaunchState::Untrusted,
        Some(trusted) if *trusted == now => LaunchState::Allowed,
        Some(trusted) => LaunchState::Changed {
            before: trusted.launch.clone(),
            files: trusted.changed_files(&now),
        },
    }
}

/// Returns the files of the repository that a server of it starts or reads at the start.
fn started_files(
    spec: &McpServerSpec,
    config: &Config,
    workspace: &Workspace,
) -> Result<BTreeMap<String, String>, UnpinnableCommand> {
    // Undefined variables make a server unusable, but its other words are examined all the same.
    let expanded = expand_spec(spec, config, workspace.root());
    let spec = expanded.as_ref().unwrap_or(spec);
    let McpTransport::Stdio { command, args, env } = &spec.transport else {
        return Ok(BTreeMap::new());
    };
    let words: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
    let mut environment = config.environment.command_variables();
    environment.extend(env.clone());
    let own_values: Vec<String> = env.values().cloned().collect();
    find_launch_files(workspace, &words, &environment, &own_values)
}

impl LaunchState {
    /// Describes the changes of a server since it was trusted; `now` is what starts it today.
    /// `None` if nothing changed.
    pub fn describe_change(&self, now: &str) -> Option<String> {
        let Self::Changed { before, files } = self else {
            return None;
        };
        let files = files.join(", ");
        Some(match (before == now, files.is_empty()) {
            (true, false) => format!("it starts or reads {files}, which differs"),
            (true, true) => "the values of its variables differ".to_owned(),
            (false, true) => format!("it was `{before}`"),
            (false, false) => {
                format!("it was `{before}`, and {files} differs")
            }
        })
    }
}

/// Replaces the variables of a server.
pub(super) fn expand_spec(
    spec: &McpServerSpec,
    config: &Config,
    root: &Path,
) -> Result<McpServerSpec, UnsetVariable> {
    let environment = &config.environment;
    let variable = |name: &str| match name {
        "workspaceFolder" => Some(root.display().to_string()),
        "userHome" => environment
            .home_folder
            .as_ref()
            .map(|home| home.display().to_string()),
        name => environment.variable(name).map(str::to_owned),
    };
    spec.expand(&variable)
}
