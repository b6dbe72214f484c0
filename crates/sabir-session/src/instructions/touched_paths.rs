//! Remembers the paths that the calls of a task read and write, because rules may be limited to some of them.

use std::collections::BTreeSet;
use std::path::Path;

use sabir_policy::Access;
use sabir_workspace::{EntryKind, Workspace};

use super::sources::FOREIGN_FOLDERS;

/// The most paths and folders that are remembered. Later ones let no further rules join.
const MAX_PATHS: usize = 4096;
const MAX_FOLDERS: usize = 100;

/// The paths that a task has touched.
#[derive(Debug, Clone, Default)]
pub(super) struct TouchedPaths {
    /// The paths, relative to the workspace.
    paths: BTreeSet<String>,
    /// The folders of these paths below the workspace, from the outer to the inner one.
    folders: BTreeSet<String>,
    /// The rules that a resumed task was told of, by their paths.
    told: BTreeSet<String>,
}

impl TouchedPaths {
    /// Creates the paths of a task that was told of these rules.
    pub(super) fn of_told_rules(told: &[String]) -> Self {
        let mut touched = Self {
            told: told.iter().cloned().collect(),
            ..Self::default()
        };
        for name in told {
            touched.add_folders(name);
        }
        touched
    }

    /// Adds the paths of an access; returns true if there was a new one.
    pub(super) fn add_access(&mut self, access: &Access, workspace: &Workspace) -> bool {
        match access {
            Access::Read {
                path,
                outside: false,
            }
            | Access::Write { path, .. } => {
                let Ok(path) = workspace.parse_path(path) else {
                    return false;
                };
                let found = workspace.metadata(&path);
                let is_folder = found.is_ok_and(|found| found.kind == EntryKind::Folder);
                self.add_path(&path.to_string(), is_folder)
            }
            // Not `any`, which would stop at the first new one.
            Access::Several(all) => all
                .iter()
                .fold(false, |new, one| self.add_access(one, workspace) | new),
            _ => false,
        }
    }

    fn add_path(&mut self, path: &str, is_folder: bool) -> bool {
        // A full list lets no more rules join, and forgets none.
        if self.paths.len() >= MAX_PATHS || !self.paths.insert(path.to_owned()) {
            return false;
        }
        self.add_folders(path);
        if is_folder {
            self.add_folder(path);
        }
        true
    }

    fn add_folders(&mut self, path: &str) {
        let above = Path::new(path).ancestors().skip(1);
        for folder in above.filter_map(Path::to_str) {
            self.add_folder(folder);
        }
    }

    fn add_folder(&mut self, folder: &str) {
        let is_foreign = folder
            .split('/')
            .any(|name| FOREIGN_FOLDERS.contains(&name));
        // Rules in hidden folders are those of a convention, which has its own place in the order.
        let is_below = !folder.is_empty() && folder != "." && !folder.starts_with(['/', '.']);
        if is_below && !is_foreign && self.folders.len() < MAX_FOLDERS {
            self.folders.insert(folder.to_owned());
        }
    }

    /// Returns the folders below the workspace, an outer one before those in it.
    pub(super) fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().map(String::as_str)
    }

    /// Returns the paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Returns true if the task was told of this rule before it was resumed.
    pub(super) fn was_told(&self, rule: &str) -> bool {
        self.told.contains(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_paths_are_remembered() {
        let folder = tempfile::TempDir::new().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let mut touched = TouchedPaths::default();
        let mut read = |path: &str, outside: bool| {
            let access = Access::Read {
                path: path.to_owned(),
                outside,
            };
            touched.add_access(&Access::Several(vec![access]), &workspace)
        };
        assert!(read("a/b/c.rs", false) && !read("a/b/c.rs", false));
        assert!(read("node_modules/x/y.js", false) && read("top.rs", false) && read("d", false));
        assert!(!read("/etc/passwd", true) && !read("../x", false));
        let folders: Vec<_> = touched.folders().collect();
        assert_eq!(folders, ["a", "a/b", "d"]);
        let told = TouchedPaths::of_told_rules(&["a/AGENTS.md".to_owned(), "/x/y.md".to_owned()]);
        assert_eq!(told.folders().collect::<Vec<_>>(), ["a"]);
    }
}
