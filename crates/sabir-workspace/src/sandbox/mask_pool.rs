//! Keeps the empty folders of masks for the next command.
//!
//! Some file systems (ext4 with `discard`) tell the device about each freed block at once, so each folder that is removed costs
//! milliseconds, and the next folder that is made waits for that. Renaming one costs some microseconds and frees nothing. So the
//! folders move between the workspace and a pool on the same file system.
//!
//! The pool is never in a folder that the command may write, so nobody but the user can put
//! anything in these folders; each is checked nevertheless before it is moved. If there is no pool,
//! or it has too few folders, the missing masks are created in place and removed afterwards.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, flock, fstat, openat,
    renameat_with, statat,
};
use rustix::io::Errno;
use rustix::process::getuid;

use super::masks::{FOLDER_MODE, MOVING_MODE, is_mask_itself};
use crate::platform::{self, RawDir};

const BUFFER_BYTES: usize = 4 << 10;
/// The maximum number of folders that a pool keeps.
const MAX_FOLDERS: usize = 64;

/// Folders that can become masks.
#[derive(Debug)]
pub(super) struct MaskPool {
    folder: OwnedFd,
    /// The names of those that are left.
    names: Vec<OsString>,
}

impl MaskPool {
    /// Opens the pool at a path, and creates it if it is missing; `None` if it cannot be used, because commands could write in it, for
    /// instance. `top` is the workspace.
    pub(super) fn open_for(path: &Path, writable: &[PathBuf], top: impl AsFd) -> Option<Self> {
        // A command could fill a folder that becomes a mask.
        let is_safe = |path: &Path| !writable.iter().any(|folder| path.starts_with(folder));
        if !is_safe(path) {
            return None;
        }
        if !path.is_dir() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(path).ok()?;
        }
        if !is_safe(&path.canonicalize().ok()?) {
            return None;
        }
        let folder = open_folder(CWD, path.as_os_str()).ok()?;
        let found = fstat(&folder).ok()?;
        let is_private = found.st_uid == getuid().as_raw() && found.st_mode & 0o077 == 0;
        if !is_private || fstat(top).ok()?.st_dev != found.st_dev {
            return None;
        }
        // Until the handle is closed, no other command moves folders, so the list of names stays
        // valid.
        flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
        let names = list_names(&folder).ok()?;
        Some(Self { folder, names })
    }

    /// Moves a folder to a path where nothing exists. Returns false if none is left.
    ///
    /// # Errors
    /// If the path exists.
    pub(super) fn place_folder(&mut self, path: &Path) -> io::Result<bool> {
        while let Some(name) = self.names.pop() {
            let Ok(spare) = open_folder(&self.folder, &name) else {
                continue;
            };
            // A folder with any content is not a mask, and stays where it is.
            if !is_empty_mask(&spare) {
                continue;
            }
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(&self.folder, &name, CWD, path, flags) {
                Ok(()) => {
                    // If this fails, the mode is still one of a mask.
                    let _ = fchmod(&spare, platform::to_mode(FOLDER_MODE));
                    return Ok(true);
                }
                Err(Errno::EXIST) => {
                    self.names.push(name);
                    return Err(Errno::EXIST.into());
                }
                // The workspace is on another mount, or its file system cannot rename like this.
                Err(_) => self.names.clear(),
            }
        }
        Ok(false)
    }

    /// Moves a mask into the pool. Returns false if that is not possible, and then it is where it was.
    pub(super) fn take_folder(&mut self, path: &Path) -> bool {
        if self.names.len() >= MAX_FOLDERS {
            return false;
        }
        let Ok(mask) = open_folder(CWD, path.as_os_str()) else {
            return false;
        };
        let Ok(found) = fstat(&mask) else {
            return false;
        };
        if found.st_uid != getuid().as_raw() || !is_empty_mask(&mask) {
            return false;
        }
        // Only a folder that can be written can move into another one.
        if fchmod(&mask, platform::to_mode(MOVING_MODE)).is_err() {
            return false;
        }
        // No two folders that exist have the same number.
        let name = OsString::from(found.st_ino.to_string());
        if renameat_with(CWD, path, &self.folder, &name, RenameFlags::NOREPLACE).is_err() {
            return false;
        }
        // Another program may have exchanged it or put something there a moment ago.
        let moved = statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        if moved.is_ok_and(|moved| is_same(&moved, &found)) && is_empty_mask(&mask) {
            self.names.push(name);
            return true;
        }
        let _ = renameat_with(&self.folder, &name, CWD, path, RenameFlags::NOREPLACE);
        false
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn open_folder(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Returns true if an open folder has the mode of a mask, and nothing in it.
fn is_empty_mask(folder: &OwnedFd) -> bool {
    is_mask_itself(folder) && list_names(folder).is_ok_and(|names| names.is_empty())
}

fn list_names(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    // It may have been read before.
    rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    struct PoolFolders {
        _folder: tempfile::TempDir,
        top: PathBuf,
        pool: PathBuf,
    }

    fn new_folders() -> PoolFolders {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let top = real.join("top");
        fs::create_dir(&top).unwrap();
        PoolFolders {
            _folder: folder,
            top,
            pool: real.join("data/masks"),
        }
    }

    impl PoolFolders {
        fn open(&self) -> Option<MaskPool> {
            let write = std::slice::from_ref(&self.top);
            MaskPool::open_for(&self.pool, write, File::open(&self.top).unwrap())
        }

        fn put_mask(&self, name: &str) -> PathBuf {
            let path = self.top.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(FOLDER_MODE)).unwrap();
            path
        }
    }

    #[test]
    fn folders_move_into_the_pool_and_back() {
        let folders = new_folders();
        let mask = folders.put_mask(".vscode");
        let number = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&mask).unwrap());
        let mut pool = folders.open().unwrap();
        assert!(pool.take_folder(&mask) && !mask.exists());
        assert!(folders.open().is_none(), "the pool is in use");
        drop(pool);
        let mut next = folders.open().unwrap();
        assert!(next.place_folder(&folders.top.join(".idea")).unwrap());
        let found = fs::metadata(folders.top.join(".idea")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&found), number);
        assert_eq!(found.permissions().mode() & 0o7777, FOLDER_MODE);
        assert!(!next.place_folder(&folders.top.join(".zed")).unwrap());
    }

    #[test]
    fn nothing_is_replaced_and_nothing_with_content_moves() {
        let folders = new_folders();
        let mask = folders.put_mask(".vscode");
        let mut pool = folders.open().unwrap();
        assert!(pool.take_folder(&mask));
        fs::write(folders.top.join("AGENTS.md"), "mine").unwrap();
        let placed = pool.place_folder(&folders.top.join("AGENTS.md"));
        assert_eq!(placed.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        // A file that appears in the pool keeps its folder from becoming a mask.
        let spare = fs::read_dir(&folders.pool)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        fs::write(spare.path().join("tasks.json"), "{}").unwrap();
        assert!(!pool.place_folder(&folders.top.join(".idea")).unwrap());
        assert!(spare.path().join("tasks.json").exists());
        let used = folders.put_mask(".zed");
        fs::set_permissions(&used, Permissions::from_mode(0o755)).unwrap();
        assert!(!pool.take_folder(&used), "not a mask");
        fs::write(used.join("x"), "").unwrap();
        fs::set_permissions(&used, Permissions::from_mode(FOLDER_MODE)).unwrap();
        assert!(!pool.take_folder(&used), "not empty");
        assert!(used.join("x").exists());
    }

    #[test]
    fn a_pool_that_others_can_reach_is_not_used() {
        let folders = new_folders();
        drop(folders.open().unwrap());
        let inside = folders.top.join("masks");
        let write = std::slice::from_ref(&folders.top);
        let top = || File::open(&folders.top).unwrap();
        assert!(MaskPool::open_for(&inside, write, top()).is_none());
        assert!(!inside.exists());
        let link = folders.pool.with_file_name("link");
        std::os::unix::fs::symlink(&folders.top, &link).unwrap();
        assert!(MaskPool::open_for(&link, write, top()).is_none());
        fs::set_permissions(&folders.pool, Permissions::from_mode(0o777)).unwrap();
        assert!(folders.open().is_none());
    }
}
