//! Removes folders without waiting for the file system to free each of them in turn.
//!
//! Some file systems (ext4 with `discard`) tell the device about each freed block at once, which takes up to some milliseconds for each
//! folder, while the folder above is locked. A folder that is still open only loses its name; its blocks are freed when the
//! last handle is closed. So the handles are closed at the end, by several threads, when the supervisor has reported the end of the
//! command.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags, open};

use crate::platform;

/// The number of threads that close handles.
const MAX_THREADS: usize = 12;

/// Folders without a name. Dropping them frees their blocks.
#[derive(Debug, Default)]
pub(crate) struct RemovedFolders {
    handles: Vec<OwnedFd>,
}

impl RemovedFolders {
    /// Removes an empty folder. Fails as [`fs::remove_dir`] does.
    pub(super) fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let handle = open_handle(path);
        fs::remove_dir(path)?;
        self.handles.extend(handle);
        Ok(())
    }

    /// Keeps a folder open that is about to be removed.
    pub(super) fn hold_folder(&mut self, path: &Path) {
        self.handles.extend(open_handle(path));
    }
}

impl Drop for RemovedFolders {
    fn drop(&mut self) {
        let mut handles = std::mem::take(&mut self.handles);
        let share = handles.len().div_ceil(MAX_THREADS).max(1);
        thread::scope(|scope| {
            // The last share is closed by this thread.
            while handles.len() > share {
                let part = handles.split_off(handles.len().saturating_sub(share));
                let closer = thread::Builder::new().stack_size(64 << 10);
                // Without a thread the part is dropped, and so closed, right here.
                let _ = closer.spawn_scoped(scope, move || drop(part));
            }
            drop(handles);
        });
    }
}

/// Opens a handle that keeps a folder when its name is removed; `None` if that cannot be done.
fn open_handle(path: &Path) -> Option<OwnedFd> {
    let flags = platform::FOLDER_HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_gone_at_once() {
        let top = tempfile::tempdir().unwrap();
        let mut removed = RemovedFolders::default();
        for name in 0..40 {
            let path = top.path().join(name.to_string());
            fs::create_dir(&path).unwrap();
            removed.remove_folder(&path).unwrap();
            assert!(!path.exists());
            // The name is free.
            fs::write(&path, "").unwrap();
        }
        let full = top.path().join("full");
        fs::create_dir_all(full.join("x")).unwrap();
        assert!(removed.remove_folder(&full).is_err());
        drop(removed);
        assert!(full.join("x").exists());
    }
}
