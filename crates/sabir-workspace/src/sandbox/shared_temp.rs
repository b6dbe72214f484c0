//! Manages the private temporary folder that all commands of a task share, so that one command can
//! read what another wrote to `/tmp`.
//!
//! The agent creates it when the first command runs, holds a lock on it, and removes it in the end.
//! If the agent is killed, the supervisor of a running command finds the lock free and removes the
//! folder; and creating such a folder first removes all those that nobody holds a lock on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::getuid;

use super::{environment, make_private, random_path};

/// The prefix of the folder names.
const START: &str = "sabir-task-";
/// The number of attempts if a cleanup comes between creating and locking.
const TRIES: u32 = 16;

/// The shared folder, created on first use.
#[derive(Debug, Default)]
pub(super) struct SharedTempDir(Mutex<Option<LockedDir>>);

/// A folder with its lock.
#[derive(Debug)]
struct LockedDir {
    path: PathBuf,
    _lock: File,
}

impl SharedTempDir {
    /// Returns the folder, created below `temporary` if there is none.
    pub(super) fn get_or_create(&self, temporary: &Path) -> io::Result<PathBuf> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(LockedDir { path, .. }) = held.as_ref().filter(|held| held.path.is_dir()) {
            return Ok(path.clone());
        }
        remove_unlocked(temporary);
        let made = create_locked(temporary)?;
        let path = made.path.clone();
        *held = Some(made);
        Ok(path)
    }
}

impl Drop for LockedDir {
    fn drop(&mut self) {
        environment::remove_folder(&self.path);
    }
}

fn create_locked(temporary: &Path) -> io::Result<LockedDir> {
    for _ in 0..TRIES {
        let path = random_path(temporary, START);
        make_private(&path)?;
        if let Ok(lock) = open_folder(&path)
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            // A cleanup may have removed the folder before the lock was taken; then another name is
            // tried.
            && lock.metadata()?.nlink() > 0
        {
            return Ok(LockedDir { path, _lock: lock });
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

/// Removes the folder if nobody holds its lock.
pub(super) fn remove_if_unlocked(path: &Path) {
    if let Ok(lock) = open_folder(path)
        && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        environment::remove_folder(path);
    }
}

fn remove_unlocked(temporary: &Path) {
    let user = getuid().as_raw();
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(START));
        if ours
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == user)
        {
            remove_if_unlocked(&entry.path());
        }
    }
}

/// Opens a folder, and nothing else.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_folder_lives_as_long_as_its_handle() {
        let temporary = tempfile::tempdir().unwrap();
        let deserted = temporary.path().join(format!("{START}0"));
        let strange = temporary.path().join("sabir-other");
        fs::create_dir(&deserted).unwrap();
        fs::create_dir(&strange).unwrap();
        let one = SharedTempDir::default();
        let other = SharedTempDir::default();
        let path = one.get_or_create(temporary.path()).unwrap();
        fs::write(path.join("x"), "").unwrap();
        assert_eq!(one.get_or_create(temporary.path()).unwrap(), path);
        assert_ne!(other.get_or_create(temporary.path()).unwrap(), path);
        remove_if_unlocked(&path);
        assert!(path.join("x").exists() && !deserted.exists() && strange.exists());
        drop((one, other));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }
}
