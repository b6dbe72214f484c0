//! Notices changes of files without reading them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::conventions::folder_reader::is_absent;

/// A path with the metadata that its file had, to notice when the file appears, changes or goes away.
#[derive(Debug, Clone)]
pub(super) struct WatchedPath {
    /// The path.
    pub(super) path: PathBuf,
    state: PathState,
}

/// What was at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    /// A file or a folder.
    Present(FileStamp),
    /// Nothing, not even a link.
    Absent,
    /// A link that leads nowhere, or something below a folder that may not be entered.
    Unreachable,
}

/// The metadata that changes with a file, and with a folder when a name in it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    size_bytes: u64,
    /// The time of the last status change, in seconds and nanoseconds since 1970.
    changed_seconds: i64,
    changed_nanoseconds: i64,
}

impl WatchedPath {
    /// Looks at a path. Must be called before the file is read, so that a change in between is noticed.
    pub(super) fn new(path: PathBuf) -> Self {
        let state = match FileStamp::of_path(&path) {
            Some(stamp) => PathState::Present(stamp),
            None if is_absent(&path) => PathState::Absent,
            None => PathState::Unreachable,
        };
        Self { path, state }
    }

    /// Returns true if there was a file or a folder.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, PathState::Present(_))
    }

    /// Returns true if there was nothing, not even a link.
    pub(super) fn is_absent(&self) -> bool {
        self.state == PathState::Absent
    }

    /// Returns true if the file has changed.
    fn has_changed(&self) -> bool {
        match self.state {
            PathState::Present(stamp) => FileStamp::of_path(&self.path) != Some(stamp),
            PathState::Absent => !is_absent(&self.path),
            PathState::Unreachable => {
                FileStamp::of_path(&self.path).is_some() || is_absent(&self.path)
            }
        }
    }
}

impl FileStamp {
    fn of_path(path: &Path) -> Option<Self> {
        let known = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: known.ino(),
            size_bytes: known.size(),
            changed_seconds: known.ctime(),
            changed_nanoseconds: known.ctime_nsec(),
        })
    }

    /// Returns true if each later change gets another time. File systems count in ticks of the kernel, or in seconds, and a change in
    /// the same tick as the last one does not show.
    fn is_settled(&self, now: SystemTime) -> bool {
        let tick = match self.changed_nanoseconds {
            // Probably a file system that counts in seconds; FAT does so in steps of two.
            0 => Duration::from_secs(3),
            _ => Duration::from_millis(100),
        };
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH);
        let (Ok(now), Ok(seconds), Ok(nanoseconds)) = (
            since_epoch,
            u64::try_from(self.changed_seconds),
            u32::try_from(self.changed_nanoseconds),
        ) else {
            return false;
        };
        now > Duration::new(seconds, nanoseconds) + tick
    }
}

/// Notices changes of many files, most of which do not exist: one look at a folder shows that none of them has appeared in it.
#[derive(Debug)]
pub(super) struct WatchedPaths {
    /// The files that exist, and the links that lead nowhere.
    existing: Vec<WatchedPath>,
    /// The files that do not exist, by the folder in which they would appear.
    missing: Vec<MissingFiles>,
}

/// Files that do not exist, and the folder that changes when one of them appears.
#[derive(Debug, Default)]
struct MissingFiles {
    /// The nearest folder above them that exists.
    folder: PathBuf,
    /// The folder's metadata, if each change of it shows; otherwise each file has to be looked for.
    stamp: Option<FileStamp>,
    files: Vec<PathBuf>,
}

impl WatchedPaths {
    /// Watches these paths.
    pub(super) fn new(paths: Vec<WatchedPath>) -> Self {
        let (missing, existing) = paths
            .into_iter()
            .partition::<Vec<_>, _>(WatchedPath::is_absent);
        let missing = MissingFiles {
            files: missing.into_iter().map(|watched| watched.path).collect(),
            ..MissingFiles::default()
        };
        Self {
            existing,
            missing: vec![missing],
        }
    }

    /// Returns true if a file has appeared, changed or gone away. The paths have to be watched anew then.
    pub(super) fn have_changed(&mut self, now: SystemTime) -> bool {
        if self.existing.iter().any(WatchedPath::has_changed) {
            return true;
        }
        let has_changed = |missing: &mut MissingFiles| {
            missing.stamp.is_none() || FileStamp::of_path(&missing.folder) != missing.stamp
        };
        let files = self
            .missing
            .extract_if(.., has_changed)
            .flat_map(|missing| missing.files)
            .collect();
        // The folders are looked at first: a file that appears afterwards changes its folder once more.
        for mut missing in MissingFiles::group_by_folder(files) {
            if !missing.files.iter().all(|path| is_absent(path)) {
                return true;
            }
            missing.stamp = missing.stamp.filter(|stamp| stamp.is_settled(now));
            self.missing.push(missing);
        }
        false
    }
}

impl MissingFiles {
    /// Groups files by the folder in which they would appear, and looks at each folder once.
    fn group_by_folder(files: Vec<PathBuf>) -> Vec<Self> {
        let mut looked_at = BTreeMap::new();
        let mut groups: Vec<Self> = Vec::new();
        for file in files {
            let mut look = |folder: &Path| {
                looked_at
                    .entry(folder.to_path_buf())
                    .or_insert_with(|| WatchedPath::new(folder.to_path_buf()))
                    .state
            };
            // A link that leads nowhere ends the search: its target may appear anywhere.
            let nearest = file.ancestors().skip(1).find_map(|folder| {
                let state = look(folder);
                (state != PathState::Absent).then_some((folder, state))
            });
            let (folder, stamp) = match nearest {
                Some((folder, PathState::Present(stamp))) => (folder, Some(stamp)),
                _ => (Path::new(""), None),
            };
            match groups.iter_mut().find(|group| group.folder == folder) {
                Some(group) => group.files.push(file),
                None => groups.push(Self {
                    folder: folder.to_path_buf(),
                    stamp,
                    files: vec![file],
                }),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time at which all changes of the test are settled.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    fn watch(folder: &Path, names: &[&str]) -> WatchedPaths {
        let paths = names.iter().map(|name| WatchedPath::new(folder.join(name)));
        WatchedPaths::new(paths.collect())
    }

    #[test]
    fn files_that_appear_are_noticed_at_any_depth() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        let mut watched = watch(root, &["a.md", "b/c/d.md", "b/e.md"]);
        assert!(!watched.have_changed(later()));
        assert!(!watched.have_changed(later()));
        // Other names, and the folders on the way to a file, are no change.
        std::fs::write(root.join("other"), "").unwrap();
        assert!(!watched.have_changed(later()));
        std::fs::create_dir(root.join("b")).unwrap();
        assert!(!watched.have_changed(later()));
        std::fs::create_dir(root.join("b/c")).unwrap();
        assert!(!watched.have_changed(later()));
        std::fs::write(root.join("b/c/d.md"), "").unwrap();
        assert!(watched.have_changed(later()));
    }

    #[test]
    fn a_link_that_appears_is_noticed_and_so_is_its_target() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        let mut watched = watch(root, &["a.md"]);
        assert!(!watched.have_changed(later()));
        std::os::unix::fs::symlink("target", root.join("a.md")).unwrap();
        assert!(watched.have_changed(later()));
        let mut watched = watch(root, &["a.md"]);
        assert!(!watched.have_changed(later()));
        std::fs::write(root.join("target"), "").unwrap();
        assert!(watched.have_changed(later()));
    }

    #[test]
    fn files_below_a_link_that_leads_nowhere_are_noticed() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("target")).unwrap();
        std::os::unix::fs::symlink("target/deep", root.join("link")).unwrap();
        let mut watched = watch(root, &["link/a.md", "link/b/c.md"]);
        assert!(!watched.have_changed(later()));
        assert!(!watched.have_changed(later()));
        std::fs::create_dir(root.join("target/deep")).unwrap();
        assert!(!watched.have_changed(later()));
        assert!(!watched.have_changed(later()));
        std::fs::rename(root.join("target/deep"), root.join("target/gone")).unwrap();
        assert!(!watched.have_changed(later()));
        std::fs::write(root.join("target/gone/a.md"), "").unwrap();
        assert!(!watched.have_changed(later()));
        std::fs::rename(root.join("target/gone"), root.join("target/deep")).unwrap();
        assert!(watched.have_changed(later()));
    }

    #[test]
    fn a_link_that_leads_nowhere_may_go_away() {
        let folder = tempfile::TempDir::new().unwrap();
        let link = folder.path().join("a.md");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let mut watched = watch(folder.path(), &["a.md"]);
        assert!(!watched.have_changed(later()));
        std::fs::remove_file(&link).unwrap();
        assert!(watched.have_changed(later()));
    }

    #[test]
    fn a_folder_that_has_just_changed_is_not_relied_on() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        let mut watched = watch(root, &["a.md"]);
        // Both changes may get the same time, so the folder's metadata need not show the second one.
        std::fs::write(root.join("other"), "").unwrap();
        let now = SystemTime::now();
        assert!(!watched.have_changed(now));
        assert!(
            watched
                .missing
                .iter()
                .all(|missing| missing.stamp.is_none())
        );
        std::fs::write(root.join("a.md"), "").unwrap();
        assert!(watched.have_changed(now));
    }

    #[test]
    fn files_that_change_or_go_away_are_noticed() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("a.md");
        std::fs::write(&file, "one").unwrap();
        let mut watched = watch(folder.path(), &["a.md"]);
        assert!(!watched.have_changed(later()));
        std::fs::write(&file, "three").unwrap();
        assert!(watched.have_changed(later()));
        let mut watched = watch(folder.path(), &["a.md"]);
        std::fs::remove_file(&file).unwrap();
        assert!(watched.have_changed(later()));
    }
}
