//! What calls depend on beside their arguments: an approval holds as long as this is as it was shown.
//!
//! A write depends on the files that it replaces: where their paths lead and what they hold. A command that is not known to only
//! read depends on its folder, its environment, the programs that it names, and the files of the workspace that it names or that
//! such a program is known to follow (`make` its Makefile). Not on what those read in turn: that would be the whole machine.

use std::collections::HashSet;
use std::path::Path;

use sabir_agent::Preconditions;
use sabir_policy::{CommandDependencies, CommandFacts, command_dependencies};
use sabir_workspace::{ExecutableFile, FileVersion, Workspace, WorkspaceError};

use crate::ToolSettings;
use crate::command_facts::is_clean_search_path;
use crate::file_tracker::FileTracker;

/// Files and programs that are looked at for one call. The rest of a longer line is not bound.
const MAX_THINGS: usize = 256;

/// Files that programs follow without being told.
const PROGRAM_FILES: &[(&[&str], &[&str])] = &[
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (
        &["npm", "pnpm", "yarn", "npx", "bun"],
        &["package.json", ".npmrc"],
    ),
    (
        &["cargo"],
        &[
            "Cargo.toml",
            "build.rs",
            ".cargo/config.toml",
            ".cargo/config",
        ],
    ),
    (&["go"], &["go.mod"]),
    (
        &["python", "python3", "pytest", "pip", "uv"],
        &["pyproject.toml", "setup.py", "conftest.py"],
    ),
    (
        &["docker", "podman"],
        &["Dockerfile", "compose.yaml", "docker-compose.yml"],
    ),
    (
        &["git"],
        &[
            ".git/config",
            ".gitattributes",
            ".gitmodules",
            ".git/hooks/pre-commit",
            ".git/hooks/prepare-commit-msg",
            ".git/hooks/commit-msg",
            ".git/hooks/post-commit",
            ".git/hooks/post-checkout",
            ".git/hooks/post-merge",
            ".git/hooks/post-rewrite",
            ".git/hooks/pre-merge-commit",
            ".git/hooks/pre-rebase",
            ".git/hooks/pre-push",
            ".git/hooks/post-index-change",
        ],
    ),
];

/// What writing to these paths depends on.
pub(crate) fn write_preconditions<'a>(
    ground: &FileTracker,
    paths: impl IntoIterator<Item = &'a str>,
) -> Preconditions {
    let mut bound = Preconditions::default();
    for path in paths {
        bound.insert(format!("`{path}`"), file_state(ground.workspace(), path));
    }
    bound
}

/// What running a command line depends on.
pub(crate) fn command_preconditions(settings: &ToolSettings, command: &str) -> Preconditions {
    let ToolSettings {
        workspace,
        environment,
        ..
    } = settings;
    let root = workspace.root();
    let search = environment
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, path)| path.as_str());
    let facts = CommandFacts {
        clean_path: is_clean_search_path(search, root),
        root: root
            .to_str()
            .map(|root| root.trim_end_matches('/').to_owned())
            .unwrap_or_default(),
        ..CommandFacts::default()
    };
    let mut things = PreconditionCollector {
        bound: Preconditions::default(),
        seen: HashSet::new(),
        workspace,
        search,
    };
    let commands = command_dependencies(command, &facts);
    if commands.is_empty() {
        return things.bound;
    }
    commands
        .iter()
        .for_each(|command| things.add_command(command));
    let PreconditionCollector { mut bound, .. } = things;
    bound.insert("the workspace folder", folder_identity(root));
    bound.insert("the environment", hash_environment(environment));
    bound
}

/// What identifies a folder.
fn folder_identity(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().map(|found| (found.dev(), found.ino()));
    format!("{path:?}: {found:?}")
}

fn hash_environment(environment: &[(String, String)]) -> String {
    let mut bytes = Vec::new();
    for (name, value) in environment {
        for text in [name, value] {
            bytes.extend(text.len().to_le_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    FileVersion::of_content(&bytes).to_string()
}

/// What has been found so far.
struct PreconditionCollector<'a> {
    bound: Preconditions,
    /// What has been looked at, found or not.
    seen: HashSet<String>,
    workspace: &'a Workspace,
    search: &'a str,
}

impl PreconditionCollector<'_> {
    fn add_command(&mut self, command: &CommandDependencies) {
        let folder = command.folder.as_deref().unwrap_or(".");
        if let Some(program) = &command.program {
            let from = self.workspace.root().join(folder);
            let thing = format!("the program `{program}`");
            if self.is_new(&format!("{folder}: {thing}"))
                && let Some(found) = ExecutableFile::find_in_path(program, self.search, &from)
            {
                self.bound.insert(thing, format!("{found:?}"));
            }
            self.add_file(folder, program);
            let name = program.rsplit('/').next().unwrap_or_default();
            let followed = PROGRAM_FILES
                .iter()
                .filter(|(programs, _)| programs.contains(&name));
            followed
                .flat_map(|(_, files)| *files)
                .for_each(|file| self.add_file(folder, file));
        }
        command
            .operands
            .iter()
            .for_each(|operand| self.add_file(folder, operand));
    }

    /// Holds a file of the workspace, if there is one.
    fn add_file(&mut self, folder: &str, name: &str) {
        let path = if folder == "." || name.starts_with('/') {
            name.to_owned()
        } else {
            format!("{folder}/{name}")
        };
        if self.is_new(&path)
            && let Ok(state) = file_version(self.workspace, &path)
        {
            self.bound.insert(format!("`{path}`"), state);
        }
    }

    /// Whether that is still to be looked at.
    fn is_new(&mut self, thing: &str) -> bool {
        self.seen.len() < MAX_THINGS && self.seen.insert(thing.to_owned())
    }
}

/// Where a path leads, and what is there.
fn file_state(workspace: &Workspace, path: &str) -> String {
    file_version(workspace, path).unwrap_or_else(|error| error.to_string())
}

fn file_version(workspace: &Workspace, path: &str) -> Result<String, WorkspaceError> {
    let real = workspace.resolve_links(&workspace.parse_path(path)?)?;
    let found = workspace.read_file(&real, 0)?;
    Ok(format!("{real}: {:?}", found.version))
}
