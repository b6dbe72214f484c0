//! Manages temporary files: the place where new content is prepared, and where old content waits
//! until a change is final.
//!
//! A temporary file is in the folder of the file it is for, because another folder may be on
//! another file system. It is removed with its owner in this process; leftovers of a killed process
//! are removed with the next write in that folder ([`Workspace::sweep_temp_files`]).

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::attributes::FileAttributes;
use super::{FileVersion, HASHED_BYTES, Workspace};

/// The prefix of the names of temporary files; the process id and a number follow.
pub const TEMP_START: &str = ".sabir-tmp-";
const MAX_SWEPT: usize = 4096;
// Shared by all threads; together with the process id no name is used twice in one run.
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// A temporary name and the file under it, which is removed in the end unless it is the only copy
/// of something.
#[derive(Debug)]
pub(super) struct TempFile {
    pub(super) folder: Arc<OwnedFd>,
    pub(super) name: String,
    /// True if the file under this name is the user's and must not be removed.
    pub(super) precious: bool,
}

impl TempFile {
    /// Returns a name that no file has yet.
    pub(super) fn reserve_name(folder: &Arc<OwnedFd>) -> Self {
        let number = NEXT_TEMP.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMP_START}{}-{number}", std::process::id());
        Self {
            folder: Arc::clone(folder),
            name,
            precious: false,
        }
    }

    /// Creates an empty file. `closed` keeps others from reading it until it has the mode of the
    /// file it replaces; otherwise the umask decides.
    pub(super) fn create(folder: &Arc<OwnedFd>, closed: bool) -> Result<(Self, File), Errno> {
        let mode = Mode::from_raw_mode(if closed { 0o600 } else { 0o666 });
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let mut temp = Self::reserve_name(folder);
            match rustix::fs::openat(folder, &temp.name, flags, mode) {
                Ok(file) => return Ok((temp, file.into())),
                // Left over from a process with the same id; it is not removed here.
                Err(Errno::EXIST) => temp.precious = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates a file with this content and these attributes, synced to disk, and returns its
    /// version.
    pub(super) fn create_with(
        folder: &Arc<OwnedFd>,
        bytes: &[u8],
        attributes: Option<&FileAttributes>,
    ) -> std::io::Result<(Self, FileVersion)> {
        let (temp, mut file) = Self::create(folder, attributes.is_some())?;
        // The order is content, attributes, sync, rename, so that a name always has a complete,
        // readable file, even after a power cut.
        file.write_all(bytes)?;
        if let Some(attributes) = attributes {
            attributes.apply_to(&file)?;
        }
        file.sync_all()?;
        // The rename to come changes none of the numbers in a version.
        let large = bytes.len() as u64 > HASHED_BYTES;
        let version = if large {
            FileVersion::of_large(&file.metadata()?)
        } else {
            FileVersion::of_content(bytes)
        };
        Ok((temp, version))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.precious {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

impl Workspace {
    /// Removes temporary files of processes that have ended, once per folder. Files that cannot be
    /// removed are left, since they do no harm.
    pub fn sweep_temp_files(&self, parent: &Path, folder: BorrowedFd<'_>) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT {
            swept.clear();
            // A bounded set: forgetting it only costs another sweep.
        }
        if !swept.insert(parent.to_path_buf()) {
            return;
        }
        drop(swept);
        let Ok(entries) = rustix::fs::Dir::read_from(folder.as_fd()) else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_ok_and(is_left_over) {
                let _ = rustix::fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
            }
        }
    }
}

fn is_left_over(name: &str) -> bool {
    let owner = name
        .strip_prefix(TEMP_START)
        .and_then(|rest| rest.split_once('-'))
        .map(|(owner, _)| owner.parse());
    let Some(Ok(owner)) = owner else { return false };
    // ESRCH alone proves that the owner is gone; EPERM means that it runs as another user. A reused
    // process id keeps a leftover longer, which does no harm.
    Pid::from_raw(owner).is_some_and(|owner| test_kill_process(owner) == Err(Errno::SRCH))
}
