//! Finds out which of many paths exist, with few system calls.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The number of paths in a folder from which on listing it takes less time than asking for each.
const MANY_PATHS: usize = 8;
/// The number of entries from which on a folder takes too long to list.
const MAX_ENTRIES: usize = 1000;

/// Returns the paths that exist, in their order. A dangling link exists.
///
/// A folder that many of them lie in, such as the home folder with its hundreds of possible secrets,
/// is listed once instead.
pub(super) fn existing_paths(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let mut folders = FolderListings::default();
    for parent in paths.iter().filter_map(|path| path.parent()) {
        *folders.counts.entry(parent.as_os_str()).or_default() += 1;
    }
    paths
        .iter()
        .filter(|path| folders.may_hold(path) && path.symlink_metadata().is_ok())
        .collect()
}

/// The folders of many paths, each listed at most once. The keys are texts, because a path takes
/// long to hash.
#[derive(Default)]
struct FolderListings<'p> {
    /// The number of paths in each folder.
    counts: HashMap<&'p OsStr, usize>,
    known: HashMap<&'p OsStr, KnownFolder>,
}

/// The knowledge about a folder.
enum KnownFolder {
    /// It does not exist.
    Missing,
    /// It has these names, in lower case.
    Listed(HashSet<OsString>),
    /// It was not listed.
    Unknown,
}

impl<'p> FolderListings<'p> {
    /// Returns false if the path is certain not to exist.
    fn may_hold(&mut self, path: &'p Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return true;
        };
        if !self.known.contains_key(folder.as_os_str()) {
            let found = self.inspect_folder(folder);
            self.known.insert(folder.as_os_str(), found);
        }
        match self.known.get(folder.as_os_str()) {
            Some(KnownFolder::Missing) => false,
            Some(KnownFolder::Listed(names)) => names.contains(&name.to_ascii_lowercase()),
            Some(KnownFolder::Unknown) | None => true,
        }
    }

    fn inspect_folder(&mut self, folder: &'p Path) -> KnownFolder {
        if !self.may_hold(folder) {
            return KnownFolder::Missing;
        }
        let count = self.counts.get(folder.as_os_str()).copied();
        if count.unwrap_or_default() < MANY_PATHS {
            return KnownFolder::Unknown;
        }
        entry_names(folder).map_or(KnownFolder::Unknown, KnownFolder::Listed)
    }
}

/// Returns the names in a folder in lower case, since a file system may ignore case; `None` if they
/// cannot be listed, or are too many.
fn entry_names(folder: &Path) -> Option<HashSet<OsString>> {
    let mut names = HashSet::new();
    for entry in folder.read_dir().ok()? {
        if names.len() == MAX_ENTRIES {
            return None;
        }
        names.insert(entry.ok()?.file_name().to_ascii_lowercase());
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_existing_paths_are_found_with_and_without_a_listing() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".config/gcloud")).unwrap();
        std::fs::write(home.path().join(".netrc"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", home.path().join(".ssh")).unwrap();
        let present = [".netrc", ".ssh", ".config/gcloud", ".config"];
        for missing in [0, 2 * MANY_PATHS] {
            let absent = (0..missing).map(|number| home.path().join(format!(".absent{number}")));
            let deep = home.path().join(".absent/store");
            let all: Vec<PathBuf> = present
                .map(|name| home.path().join(name))
                .into_iter()
                .chain(absent)
                .chain([deep])
                .collect();
            assert_eq!(existing_paths(&all), all[..4].iter().collect::<Vec<_>>());
        }
        for number in 0..=MAX_ENTRIES {
            std::fs::write(home.path().join(format!("{number}")), "").unwrap();
        }
        let all: Vec<PathBuf> = (0..20)
            .map(|number| home.path().join(number.to_string()))
            .collect();
        assert_eq!(existing_paths(&all).len(), 20);
    }
}
