//! Replacing a file as a whole: it holds the old content or the new, never a part, whatever happens in between.
//!
//! The new content goes to a temporary file in the same folder (another folder may be another disk), is synced, is renamed over
//! the old name, and the folder is synced. The folders on the way are opened one by one from the workspace's handle, and none
//! may be a link, so what was judged is what is written.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{Version, Workspace, read_whole};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// The start of the names of temporary files; the process id and a number follow.
pub(crate) const TEMP_START: &str = ".sabir-tmp-";
const MAX_SWEPT: usize = 4096;
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// What a write takes for granted about the file it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: write whatever is there.
    Any,
    /// That there is no such file. Checked by the kernel in the moment of the rename.
    Missing,
    /// That the file is still this version. Checked right before the rename; a change within those microseconds is lost, as no
    /// file system offers to compare and rename at once.
    Version(Version),
}

impl Workspace {
    /// Writes a whole file, and its missing folders, and returns the version written. The mode is kept, the owner too where the
    /// system allows; a file with more than one name is split from the others, and extended attributes are lost.
    ///
    /// # Errors
    /// [`WorkspaceError::Exists`], [`Stale`](WorkspaceError::Stale) and [`Missing`](WorkspaceError::Missing) when the
    /// expectation fails; [`LinkPassed`](WorkspaceError::LinkPassed) when the path is not the [resolved](Self::resolve) one;
    /// [`LinkLeaves`](WorkspaceError::LinkLeaves), [`NotAFile`](WorkspaceError::NotAFile) and
    /// [`NotAFolder`](WorkspaceError::NotAFolder); [`Io`](WorkspaceError::Io) for anything else, such as a full disk. After an
    /// error the old content is untouched and no temporary file is left. Only an error of the last step, the sync of the
    /// folder, comes after the rename: then the new content is in place, and may be lost with the power.
    pub fn write(&self, path: &WorkPath, bytes: &[u8], expect: Expect) -> Result<Version, WorkspaceError> {
        let real = self.resolve(path)?;
        if real != *path {
            return Err(WorkspaceError::LinkPassed { path: path.to_string(), real: real.to_string() });
        }
        let Some(name) = path.as_path().file_name() else {
            return Err(WorkspaceError::NotAFile { path: path.to_string(), found: "a folder" });
        };
        let fail = |error: Errno| WorkspaceError::from_io("write", path, error.into());
        let folder = self.open_parents(path).map_err(fail)?;
        self.sweep(path, folder.as_fd());
        let old = stat(folder.as_fd(), name).map_err(fail)?;
        match old.map(|old| FileType::from_raw_mode(old.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            // A link since a moment ago.
            Some(FileType::Symlink) => return Err(WorkspaceError::Stale { path: path.to_string() }),
            Some(FileType::Directory) => {
                return Err(WorkspaceError::NotAFile { path: path.to_string(), found: "a folder" });
            }
            Some(_) => return Err(WorkspaceError::NotAFile { path: path.to_string(), found: "something special" }),
        }
        let mut temp = TempFile::create(folder.as_fd(), old.as_ref()).map_err(fail)?;
        temp.fill(bytes, old.as_ref()).map_err(|error| WorkspaceError::from_io("write", path, error))?;
        check(folder.as_fd(), name, path, expect)?;
        temp.rename(name, expect).map_err(|error| match error {
            Errno::EXIST => WorkspaceError::Exists { path: path.to_string() },
            error => fail(error),
        })?;
        rustix::fs::fsync(&folder).map_err(fail)?;
        read_version(&temp.file, bytes).map_err(|error| WorkspaceError::from_io("read", path, error))
    }

    /// Opens the folder that holds the path, and makes what is missing on the way.
    fn open_parents(&self, path: &WorkPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(self.dir().as_fd(), ".", flags, Mode::empty())?;
        for name in path.as_path().parent().into_iter().flat_map(|parent| parent.iter()) {
            let below = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    rustix::fs::fsync(&folder)?;
                    rustix::fs::openat(&folder, name, flags, Mode::empty())?
                }
                opened => opened?,
            };
            folder = below;
        }
        Ok(folder)
    }

    /// Removes temporary files of processes that are gone, once for each folder. What cannot be removed is left: it harms nobody.
    pub(crate) fn sweep(&self, path: &WorkPath, folder: BorrowedFd<'_>) {
        let parent = path.as_path().parent().unwrap_or(path.as_path()).to_path_buf();
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT {
            swept.clear();
        }
        if !swept.insert(parent) {
            return;
        }
        drop(swept);
        let Ok(entries) = rustix::fs::Dir::read_from(folder) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_ok_and(is_left_over) {
                let _ = rustix::fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
            }
        }
    }
}

/// A file that is removed unless it was renamed.
struct TempFile<'a> {
    folder: BorrowedFd<'a>,
    name: String,
    file: File,
    renamed: bool,
}

impl<'a> TempFile<'a> {
    fn create(folder: BorrowedFd<'a>, old: Option<&Stat>) -> Result<Self, Errno> {
        // Closed to others until it has the mode of the file it replaces; a new file gets what the umask leaves.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let number = NEXT_TEMP.fetch_add(1, Ordering::Relaxed);
            let name = format!("{TEMP_START}{}-{number}", std::process::id());
            match rustix::fs::openat(folder, &name, flags, mode) {
                Err(Errno::EXIST) => {}
                opened => return Ok(Self { folder, name, file: opened?.into(), renamed: false }),
            }
        }
    }

    fn fill(&mut self, bytes: &[u8], old: Option<&Stat>) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if let Some(old) = old {
            // Only root may give files away, and for anyone else the file is already theirs or cannot be.
            let _ = rustix::fs::fchown(&self.file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
            // Set-user-id and set-group-id do not pass to new content, as with any write.
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old.st_mode & 0o1777))?;
        }
        self.file.sync_all()
    }

    fn rename(&mut self, name: &OsStr, expect: Expect) -> Result<(), Errno> {
        let plain = || rustix::fs::renameat(self.folder, &self.name, self.folder, name);
        match expect {
            Expect::Any | Expect::Version(_) => plain()?,
            Expect::Missing => {
                let kept = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, kept) {
                    // Some network file systems do not know the flag; the check before has to do there.
                    Err(Errno::INVAL | Errno::NOSYS) => plain()?,
                    renamed => renamed?,
                }
            }
        }
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

fn check(folder: BorrowedFd<'_>, name: &OsStr, path: &WorkPath, expect: Expect) -> Result<(), WorkspaceError> {
    let fail = |error: io::Error| WorkspaceError::from_io("write", path, error);
    match expect {
        Expect::Any => Ok(()),
        Expect::Missing => match stat(folder, name).map_err(|error| fail(error.into()))? {
            Some(_) => Err(WorkspaceError::Exists { path: path.to_string() }),
            None => Ok(()),
        },
        Expect::Version(version) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(|error| fail(error.into()))?;
            let found = read_whole(&File::from(file), 0).map_err(fail)?;
            if found.version == version { Ok(()) } else { Err(WorkspaceError::Stale { path: path.to_string() }) }
        }
    }
}

fn stat(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_version(file: &File, bytes: &[u8]) -> io::Result<Version> {
    if bytes.len() as u64 <= super::HASHED_BYTES {
        Ok(Version::of(bytes))
    } else {
        Ok(Version::of_large(&file.metadata()?))
    }
}

fn is_left_over(name: &str) -> bool {
    let owner = name.strip_prefix(TEMP_START).and_then(|rest| rest.split_once('-')).map(|(owner, _)| owner.parse());
    let Some(Ok(owner)) = owner else { return false };
    Pid::from_raw(owner).is_some_and(|owner| test_kill_process(owner) == Err(Errno::SRCH))
}
