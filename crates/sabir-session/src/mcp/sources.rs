//! Finds the servers of a session, and decides which of them may be started.

use std::path::{Path, PathBuf};

use sabir_mcp::{McpServerSpec, UnsetVariable, parse_server_file};
use serde::Serialize;

use super::store::{McpStore, TrustedServer, read_store};
use crate::config::{self, Config};

/// The files of a repository that define servers, in the order of precedence.
const PROJECT_FILES: [&str; 4] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".roo/mcp.json",
];

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
            // The user's own choice of a server with the same name is no mistake.
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
        });
    }

    /// Reads a file of servers. A file that does not exist has none.
    fn push_file(
        &mut self,
        path: &Path,
        source: &ServerSource,
        launch: impl Fn(&McpServerSpec) -> LaunchState,
    ) {
        if !path.exists() {
            return;
        }
        let shown = source.describe();
        let text = match config::read_text(path) {
            Ok(text) => text,
            Err(error) => return self.problems.push(format!("{shown}: {error}")),
        };
        match parse_server_file(&text) {
            Ok(parsed) => {
                let problems = parsed.problems.into_iter();
                self.problems
                    .extend(problems.map(|problem| format!("{shown}: {problem}")));
                for spec in parsed.servers {
                    let launch = launch(&spec);
                    self.push(spec, source.clone(), launch);
                }
            }
            Err(error) => self.problems.push(format!("{shown}: {error}")),
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
    let keys = config.mcp_keys();
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
        list.push_file(&path, &source, |_| LaunchState::Allowed);
    }
    if keys.reads_project_files() {
        let store = read_store(&config.environment);
        if let Err(error) = &store {
            list.problems
                .push(format!("{error}; no server of a repository is trusted"));
        }
        let store = store.unwrap_or_default();
        for file in PROJECT_FILES {
            let path = root.join(file);
            let source = ServerSource::Project(path.clone());
            list.push_file(&path, &source, |spec| project_launch(&store, root, spec));
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

/// Returns the permission to start a server of a repository.
fn project_launch(store: &McpStore, root: &Path, spec: &McpServerSpec) -> LaunchState {
    let trusted = store.trusted.get(root).and_then(|all| all.get(&spec.name));
    match trusted {
        None => LaunchState::Untrusted,
        Some(trusted) if *trusted == TrustedServer::of_spec(spec) => LaunchState::Allowed,
        Some(trusted) => LaunchState::Changed {
            before: trusted.launch.clone(),
        },
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
