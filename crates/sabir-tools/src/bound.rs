//! What calls depend on beside their arguments: an approval holds as long as this is as it was shown.
//!
//! A write depends on the files that it replaces: where their paths lead and what they hold. A command that is not known to only
//! read depends on its folder, its environment, the programs that it names, and the files of the workspace that it names or that
//! such a program is known to follow (`make` its Makefile). Not on what those read in turn: that would be the whole machine.

use std::collections::HashSet;
use std::path::Path;

use sabir_agent::Bound;
use sabir_policy::{Facts, Named, named};
use sabir_workspace::{Program, Version, Workspace, WorkspaceError};

use crate::Settings;
use crate::facts::is_clean;
use crate::ground::Ground;

/// Files and programs that are looked at for one call. The rest of a longer line is not bound.
const MAX_THINGS: usize = 256;

/// Files that programs follow without being told.
const FOLLOWED: &[(&[&str], &[&str])] = &[
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["npm", "pnpm", "yarn", "npx", "bun"], &["package.json", ".npmrc"]),
    (&["cargo"], &["Cargo.toml", "build.rs", ".cargo/config.toml", ".cargo/config"]),
    (&["go"], &["go.mod"]),
    (&["python", "python3", "pytest", "pip", "uv"], &["pyproject.toml", "setup.py", "conftest.py"]),
    (&["docker", "podman"], &["Dockerfile", "compose.yaml", "docker-compose.yml"]),
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
pub(crate) fn of_writes<'a>(ground: &Ground, paths: impl IntoIterator<Item = &'a str>) -> Bound {
    let mut bound = Bound::default();
    for path in paths {
        bound.hold(format!("`{path}`"), state(ground.workspace(), path));
    }
    bound
}

/// What running a command line depends on.
pub(crate) fn of_command(settings: &Settings, command: &str) -> Bound {
    let Settings { workspace, environment, .. } = settings;
    let root = workspace.root();
    let search = environment.iter().rev().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path.as_str());
    let facts = Facts {
        clean_path: is_clean(search, root),
        root: root.to_str().map(|root| root.trim_end_matches('/').to_owned()).unwrap_or_default(),
        ..Facts::default()
    };
    let mut things = Things { bound: Bound::default(), seen: HashSet::new(), workspace, search };
    let commands = named(command, &facts);
    if commands.is_empty() {
        return things.bound;
    }
    commands.iter().for_each(|command| things.command(command));
    let Things { mut bound, .. } = things;
    bound.hold("the workspace folder", folder(root));
    bound.hold("the environment", hash(environment));
    bound
}

/// What identifies a folder.
fn folder(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().map(|found| (found.dev(), found.ino()));
    format!("{path:?}: {found:?}")
}

fn hash(environment: &[(String, String)]) -> String {
    let mut bytes = Vec::new();
    for (name, value) in environment {
        for text in [name, value] {
            bytes.extend(text.len().to_le_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    Version::of(&bytes).to_string()
}

/// What has been found so far.
struct Things<'a> {
    bound: Bound,
    /// What has been looked at, found or not.
    seen: HashSet<String>,
    workspace: &'a Workspace,
    search: &'a str,
}

impl Things<'_> {
    fn command(&mut self, command: &Named) {
        let folder = command.folder.as_deref().unwrap_or(".");
        if let Some(program) = &command.program {
            let from = self.workspace.root().join(folder);
            let thing = format!("the program `{program}`");
            if self.take(&format!("{folder}: {thing}"))
                && let Some(found) = Program::find(program, self.search, &from)
            {
                self.bound.hold(thing, format!("{found:?}"));
            }
            self.file(folder, program);
            let name = program.rsplit('/').next().unwrap_or_default();
            let followed = FOLLOWED.iter().filter(|(programs, _)| programs.contains(&name));
            followed.flat_map(|(_, files)| *files).for_each(|file| self.file(folder, file));
        }
        command.operands.iter().for_each(|operand| self.file(folder, operand));
    }

    /// Holds a file of the workspace, if there is one.
    fn file(&mut self, folder: &str, name: &str) {
        let path = if folder == "." || name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") };
        if self.take(&path)
            && let Ok(state) = version(self.workspace, &path)
        {
            self.bound.hold(format!("`{path}`"), state);
        }
    }

    /// Whether that is still to be looked at.
    fn take(&mut self, thing: &str) -> bool {
        self.seen.len() < MAX_THINGS && self.seen.insert(thing.to_owned())
    }
}

/// Where a path leads, and what is there.
fn state(workspace: &Workspace, path: &str) -> String {
    version(workspace, path).unwrap_or_else(|error| error.to_string())
}

fn version(workspace: &Workspace, path: &str) -> Result<String, WorkspaceError> {
    let real = workspace.resolve(&workspace.path(path)?)?;
    let found = workspace.read(&real, 0)?;
    Ok(format!("{real}: {:?}", found.version))
}
