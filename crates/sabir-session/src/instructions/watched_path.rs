//! Notices changes of a file without reading it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path with the metadata that its file had, to notice when the file appears, changes or goes away.
#[derive(Debug, Clone)]
pub(super) struct WatchedPath {
    /// The path.
    pub(super) path: PathBuf,
    /// The metadata of the file; `None` if there was none.
    stamp: Option<FileStamp>,
}

/// The metadata that changes with a file: its inode, its size, and the seconds and nanoseconds of its last status change.
type FileStamp = (u64, u64, i64, i64);

impl WatchedPath {
    /// Looks at a path. Must be called before the file is read, so that a change in between is noticed.
    pub(super) fn new(path: PathBuf) -> Self {
        let stamp = file_stamp(&path);
        Self { path, stamp }
    }

    /// Returns true if there was a file or a folder.
    pub(super) fn is_present(&self) -> bool {
        self.stamp.is_some()
    }

    /// Returns true if the file has changed.
    pub(super) fn has_changed(&self) -> bool {
        file_stamp(&self.path) != self.stamp
    }
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let known = std::fs::metadata(path).ok()?;
    Some((known.ino(), known.size(), known.ctime(), known.ctime_nsec()))
}
