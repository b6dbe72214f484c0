//! Finds out which of many paths exist, with few system calls.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
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
    let mut counts: HashMap<&Path, usize> = HashMap::new();
    for parent in paths.iter().filter_map(|path| path.parent()) {
        *counts.entry(parent).or_default() += 1;
    }
    let listed: HashMap<&Path, HashSet<OsString>> = counts
        .into_iter()
        .filter(|(_, count)| *count >= MANY_PATHS)
        .filter_map(|(folder, _)| Some((folder, entry_names(folder)?)))
        .collect();
    let may_exist = |path: &Path| {
        let mut below = path;
        while let Some(folder) = below.parent() {
            if let (Some(names), Some(name)) = (listed.get(folder), below.file_name())
                && !names.contains(&name.to_ascii_lowercase())
            {
                return false;
            }
            below = folder;
        }
        true
    };
    paths
        .iter()
        .filter(|path| may_exist(path) && path.symlink_metadata().is_ok())
        .collect()
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
