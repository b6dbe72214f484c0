//! Finds the program file that a name leads to, as a shell does, and records what identifies it.
//!
//! The result is not a handle: a later run looks the name up again. Comparing two results shows
//! whether it still leads to the same program.

use std::fs::{Metadata, metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program as it was found. Equal values mean the same file in the same state, provided that its
/// times are true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutableFile {
    /// The real path, with links followed.
    pub path: PathBuf,
    /// The device and inode.
    pub file: (u64, u64),
    /// The size in bytes.
    pub size_bytes: u64,
    /// The times of the last change of its content and of its metadata: seconds and nanoseconds
    /// since 1970.
    pub changed: [(i64, i64); 2],
}

impl ExecutableFile {
    /// Finds the program that a name means: a path, relative to `folder`, or a name to search in
    /// the folders of `search`, separated by `:`. Returns `None` if there is no such program.
    #[must_use]
    pub fn find_in_path(name: &str, search: &str, folder: &Path) -> Option<Self> {
        if name.contains('/') {
            return Self::at_path(&folder.join(name));
        }
        // An empty entry of a search path is the current folder.
        let mut places = search.split(':').map(|place| folder.join(place).join(name));
        places.find_map(|path| Self::at_path(&path))
    }

    fn at_path(path: &Path) -> Option<Self> {
        let found: Metadata = metadata(path).ok()?;
        if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
            return None;
        }
        Some(Self {
            path: path.canonicalize().ok()?,
            file: (found.dev(), found.ino()),
            size_bytes: found.size(),
            changed: [
                (found.mtime(), found.mtime_nsec()),
                (found.ctime(), found.ctime_nsec()),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, set_permissions, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_first_of_the_search_path_is_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let make = |name: &str, mode| {
            write(at(name), "#!/bin/sh\n").unwrap();
            set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        ["a", "b"]
            .iter()
            .for_each(|folder| create_dir(at(folder)).unwrap());
        make("b/x", 0o755);
        make("a/x", 0o644);
        let search = format!("{}:{}", at("a").display(), at("b").display());
        let find = |name: &str| ExecutableFile::find_in_path(name, &search, root.path());
        let path = |name: &str| {
            find(name).map(|program| {
                program
                    .path
                    .strip_prefix(root.path().canonicalize().unwrap())
                    .unwrap()
                    .to_owned()
            })
        };
        assert_eq!(path("x"), Some("b/x".into()), "what cannot be run is none");
        assert_eq!((path("./a/x"), path("y"), path("")), (None, None, None));
        let before = find("x");
        make("a/x", 0o755);
        assert_ne!(find("x"), before, "a program in front of it");
        std::fs::remove_file(at("a/x")).unwrap();
        symlink("../b/x", at("a/x")).unwrap();
        assert_eq!(find("x"), before, "a link to the same program");
    }
}
