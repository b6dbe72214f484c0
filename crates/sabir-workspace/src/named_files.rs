//! Finds files by their names in the whole workspace, ignored folders included, so that a sandbox can
//! show files with secrets empty to commands that only read.

use std::path::{Path, PathBuf};

use crate::files::Workspace;

/// The folders of installed packages and build output, and git's own files. They are
/// large, and people keep no secrets there.
const SKIPPED: [&str; 6] = [
    ".git",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
];
/// The maximum number of visited entries, and of found files, nearest to the top
/// first.
const MAX_ENTRIES: usize = 50_000;
const MAX_FOUND: usize = 500;

impl Workspace {
    /// Returns the absolute paths of files whose path, relative to the workspace, is a match; a link
    /// is replaced by the file that it leads to. Folders of packages, builds and git are skipped, and
    /// the number of files is limited, so this adds to a decision and cannot replace it. Blocks.
    #[must_use]
    pub fn list_files_named(&self, is_match: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
        let root = self.root();
        let mut found = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        let mut looked = 0;
        // Level by level, so that the limits leave out the deepest files.
        while !folders.is_empty() {
            let mut deeper = Vec::new();
            for folder in folders {
                for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                    looked += 1;
                    if looked > MAX_ENTRIES || found.len() >= MAX_FOUND {
                        return found;
                    }
                    let Ok(kind) = entry.file_type() else {
                        continue;
                    };
                    let path = entry.path();
                    if kind.is_dir() {
                        let name = entry.file_name();
                        if !SKIPPED.iter().any(|skipped| name == *skipped) {
                            deeper.push(path);
                        }
                        continue;
                    }
                    let real = kind
                        .is_symlink()
                        .then(|| path.canonicalize().ok())
                        .flatten();
                    let names_match = |path: &Path| {
                        let inside = path.strip_prefix(root).unwrap_or(path);
                        is_match(&inside.to_string_lossy())
                    };
                    if names_match(&path) || real.as_deref().is_some_and(names_match) {
                        found.push(real.unwrap_or(path));
                    }
                }
            }
            folders = deeper;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in [".env", "a/b/.env", "node_modules/x/.env", "a/env"] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink("a/env", root.join("c.env")).unwrap();
        let workspace = Workspace::open(&root).unwrap();
        let mut found = workspace.list_files_named(&|path| path.ends_with(".env"));
        found.sort();
        let expected = [".env", "a/b/.env", "a/env"].map(|path| root.join(path));
        assert_eq!(found, expected);
    }
}
