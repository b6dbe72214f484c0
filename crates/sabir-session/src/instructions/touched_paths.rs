//! Remembers the paths that the calls of a task read and write, because rules may be limited to some of them.

use std::collections::BTreeSet;
use std::path::Path;

use sabir_policy::Access;
use sabir_workspace::{EntryKind, WorkPath, Workspace};

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
    /// The rules that the model of a resumed task has received, by their paths.
    sent: BTreeSet<String>,
}

/// The kinds of paths that were touched for the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewPaths {
    /// True if there was a path.
    pub(super) has_path: bool,
    /// True if there was a folder below the workspace, whose rules may join.
    pub(super) has_folder: bool,
}

impl NewPaths {
    /// Combines two sets of touched paths.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            has_path: self.has_path || other.has_path,
            has_folder: self.has_folder || other.has_folder,
        }
    }
}

impl TouchedPaths {
    /// Creates the paths of a task whose model has received these rules.
    pub(super) fn from_sent_instructions(sent: &[String]) -> Self {
        let mut touched = Self {
            sent: sent.iter().cloned().collect(),
            ..Self::default()
        };
        for name in sent {
            touched.add_folders(name);
        }
        touched
    }

    /// Adds the paths of an access; returns which of them are new.
    pub(super) fn add_access(&mut self, access: &Access, workspace: &Workspace) -> NewPaths {
        match access {
            Access::Read {
                path,
                outside: false,
            }
            | Access::Write { path, .. } => {
                let Ok(path) = workspace.parse_path(path) else {
                    return NewPaths::default();
                };
                self.add_path(&path, workspace)
            }
            Access::Several(all) => all.iter().fold(NewPaths::default(), |new, one| {
                new.or(self.add_access(one, workspace))
            }),
            _ => NewPaths::default(),
        }
    }

    fn add_path(&mut self, path: &WorkPath, workspace: &Workspace) -> NewPaths {
        let name = path.to_string();
        // A full list lets no more rules join, and forgets none.
        if self.paths.len() >= MAX_PATHS || !self.paths.insert(name.clone()) {
            return NewPaths::default();
        }
        let known = self.folders.len();
        self.add_folders(&name);
        // Most paths are files, which one system call detects. Only the workspace knows whether a
        // folder is hidden.
        let is_folder = workspace.root().join(path.as_path()).is_dir()
            && workspace
                .metadata(path)
                .is_ok_and(|found| found.kind == EntryKind::Folder);
        if is_folder {
            self.add_folder(&name);
        }
        NewPaths {
            has_path: true,
            has_folder: self.folders.len() > known,
        }
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

    /// Returns true if the model received this rule before the task was resumed.
    pub(super) fn was_sent(&self, rule: &str) -> bool {
        self.sent.contains(rule)
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
        let old = NewPaths::default();
        let new = |has_folder| NewPaths {
            has_path: true,
            has_folder,
        };
        assert_eq!(read("a/b/c.rs", false), new(true));
        assert_eq!(read("a/b/c.rs", false), old);
        assert_eq!(read("a/b/d.rs", false), new(false));
        assert_eq!(read("node_modules/x/y.js", false), new(false));
        assert_eq!(read("top.rs", false), new(false));
        assert_eq!(read("d", false), new(true));
        assert_eq!(read("/etc/passwd", true), old);
        assert_eq!(read("../x", false), old);
        let folders: Vec<_> = touched.folders().collect();
        assert_eq!(folders, ["a", "a/b", "d"]);
        let sent =
            TouchedPaths::from_sent_instructions(&["a/AGENTS.md".to_owned(), "/x/y.md".to_owned()]);
        assert_eq!(sent.folders().collect::<Vec<_>>(), ["a"]);
    }
}
