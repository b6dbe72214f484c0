//! Temporary names: where new content is made ready, and old content waits until a change is sure.
//!
//! A temporary file stands in the folder of the file it is for, because another folder may be another disk. It goes when its
//! owner in this process goes; what a killed process left goes with the next write in that folder ([`Workspace::sweep_temp_files`]).

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

/// The start of the names of temporary files; the process id and a number follow.
pub const TEMP_START: &str = ".sabir-tmp-";
const MAX_SWEPT: usize = 4096;
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// A temporary name in a folder, and whatever stands there: it is removed in the end, unless it is the only copy of something.
#[derive(Debug)]
pub(super) struct TempFile {
    pub(super) folder: Arc<OwnedFd>,
    pub(super) name: String,
    /// Whether what stands there now is a file of the user's.
    pub(super) precious: bool,
}

impl TempFile {
    /// A name that nothing has yet.
    pub(super) fn reserve_name(folder: &Arc<OwnedFd>) -> Self {
        let number = NEXT_TEMP.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMP_START}{}-{number}", std::process::id());
        Self { folder: Arc::clone(folder), name, precious: false }
    }

    /// An empty file; closed to others until it has the mode of the file it is to replace. A new file gets what the umask leaves.
    pub(super) fn create(folder: &Arc<OwnedFd>, closed: bool) -> Result<(Self, File), Errno> {
        let mode = Mode::from_raw_mode(if closed { 0o600 } else { 0o666 });
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let mut temp = Self::reserve_name(folder);
            match rustix::fs::openat(folder, &temp.name, flags, mode) {
                Ok(file) => return Ok((temp, file.into())),
                // Left by a process that had the same number; it is not ours to remove here.
                Err(Errno::EXIST) => temp.precious = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// A file with that content and those attributes, safe on the disk, and the version it is.
    pub(super) fn create_with(
        folder: &Arc<OwnedFd>,
        bytes: &[u8],
        attributes: Option<&FileAttributes>,
    ) -> std::io::Result<(Self, FileVersion)> {
        let (temp, mut file) = Self::create(folder, attributes.is_some())?;
        file.write_all(bytes)?;
        if let Some(attributes) = attributes {
            attributes.apply_to(&file)?;
        }
        file.sync_all()?;
        // Neither is changed by the rename to come.
        let large = bytes.len() as u64 > HASHED_BYTES;
        let version = if large { FileVersion::of_large(&file.metadata()?) } else { FileVersion::of_content(bytes) };
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
    /// Removes temporary files of processes that are gone, once for each folder. What cannot be removed is left: it harms nobody.
    pub fn sweep_temp_files(&self, parent: &Path, folder: BorrowedFd<'_>) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT {
            swept.clear();
        }
        if !swept.insert(parent.to_path_buf()) {
            return;
        }
        drop(swept);
        let Ok(entries) = rustix::fs::Dir::read_from(folder.as_fd()) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_ok_and(is_left_over) {
                let _ = rustix::fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
            }
        }
    }
}

fn is_left_over(name: &str) -> bool {
    let owner = name.strip_prefix(TEMP_START).and_then(|rest| rest.split_once('-')).map(|(owner, _)| owner.parse());
    let Some(Ok(owner)) = owner else { return false };
    Pid::from_raw(owner).is_some_and(|owner| test_kill_process(owner) == Err(Errno::SRCH))
}
