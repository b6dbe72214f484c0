//! Swaps one file for another under a name, in a way that can be undone.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::attributes::FileAttributes;
use super::change::stat_entry;
use super::temp::TempFile;
use super::{FileVersion, WritePrecondition};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// The number of attempts for a name that appears and disappears, if any content may be replaced.
const MAX_TRIES: usize = 16;

/// A pending change of one file: its name, and the temporary name that holds the new content and
/// later the old file.
#[derive(Debug)]
pub(super) struct FileSwap<'a> {
    pub(super) path: &'a WorkPath,
    pub(super) name: &'a OsStr,
    pub(super) expect: WritePrecondition,
    pub(super) temp: TempFile,
    /// The version to write; `None` if the file is deleted.
    pub(super) version: Option<FileVersion>,
    pub(super) done: SwapState,
}

/// The progress of a change.
#[derive(Debug)]
pub(super) enum SwapState {
    /// Nothing was done, or it was undone.
    Nothing,
    /// The file was created where none was; this is its metadata.
    Created(Box<Stat>),
    /// The new file (with this metadata) has the name, and the old one the temporary name.
    Replaced(Box<Stat>),
    /// The new file has the name, on a file system that cannot exchange names: this is a copy of
    /// the old file.
    Copied(TempFile),
    /// The old file has the temporary name.
    Deleted,
}

impl FileSwap<'_> {
    /// Gives the name to the new file, or takes it from the old one. `checked` is the file that
    /// must have it now.
    pub(super) fn apply_swap(&mut self, checked: Option<&Stat>) -> Result<(), WorkspaceError> {
        if self.version.is_none() {
            return self.remove_old(checked);
        }
        for _ in 0..MAX_TRIES {
            if self.expect != WritePrecondition::Missing {
                match self.exchange_names(checked) {
                    Err(SwapError::System(Errno::NOENT))
                        if self.expect == WritePrecondition::Any => {}
                    result => return result.map_err(|trouble| self.workspace_error(trouble)),
                }
            }
            // With `Any`, the file may appear and disappear between the two attempts, so both are
            // retried.
            match self.create_new() {
                Err(Errno::EXIST) if self.expect == WritePrecondition::Any => {}
                Err(Errno::EXIST) => {
                    return Err(WorkspaceError::Exists {
                        path: self.path.to_string(),
                    });
                }
                result => return result.map_err(|error| self.workspace_error(error.into())),
            }
        }
        Err(WorkspaceError::Stale {
            path: self.path.to_string(),
        })
    }

    /// Releases the old file, once the change is final.
    pub(super) fn discard_old(&mut self) {
        self.temp.precious = false;
        if let SwapState::Copied(copy) = &mut self.done {
            copy.precious = false;
        }
    }

    /// Undoes the change. If that fails, returns the file, the error, and where its old content is.
    pub(super) fn roll_back(&mut self) -> Option<String> {
        let folder = &self.temp.folder;
        let temp = &self.temp.name;
        let (undone, kept) = match std::mem::replace(&mut self.done, SwapState::Nothing) {
            SwapState::Nothing => (Ok(()), None),
            SwapState::Created(ours) => (self.remove_created(&ours), None),
            // Exchanged, not rewritten, so that the old file returns as the same inode, with its
            // hard links.
            SwapState::Replaced(ours) => (self.exchange_back(&ours), Some(temp.clone())),
            SwapState::Deleted => (
                self.rename_to_free(temp.as_ref(), self.name),
                Some(temp.clone()),
            ),
            SwapState::Copied(mut copy) => {
                let undone = rustix::fs::renameat(folder, &copy.name, folder, self.name);
                copy.precious = undone.is_err();
                (undone, Some(copy.name.clone()))
            }
        };
        let Err(error) = undone else {
            self.temp.precious = false;
            return None;
        };
        let kept = kept.map(|kept| {
            format!(
                ", its old content is in `{}` beside it",
                self.rename_leftover(kept)
            )
        });
        Some(format!(
            "`{}` ({error}{})",
            self.path,
            kept.unwrap_or_default()
        ))
    }

    /// Gives a file that could not be restored a name that no later cleanup removes, if that is
    /// still possible.
    fn rename_leftover(&self, kept: String) -> String {
        let name = format!("{}.sabir-old", self.name.to_string_lossy());
        if self.rename_to_free(kept.as_ref(), name.as_ref()).is_ok() {
            name
        } else {
            kept
        }
    }

    fn exchange_names(&mut self, checked: Option<&Stat>) -> Result<(), SwapError> {
        let folder = &self.temp.folder;
        // Taken before the exchange: an undo compares with it, so that it removes only our own
        // file.
        let ours = Box::new(stat_entry(folder, &self.temp.name)?.ok_or(Errno::NOENT)?);
        match rustix::fs::renameat_with(
            folder,
            &self.temp.name,
            folder,
            self.name,
            RenameFlags::EXCHANGE,
        ) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return self.copy_and_replace(checked);
            }
            Err(error) => return Err(error.into()),
        }
        // From here on the temporary name holds the user's file.
        self.temp.precious = true;
        self.done = SwapState::Replaced(ours);
        self.verify_replaced(checked)
    }

    /// Replaces the file on file systems that cannot exchange names, such as some network ones,
    /// after copying the old one.
    fn copy_and_replace(&mut self, checked: Option<&Stat>) -> Result<(), SwapError> {
        let folder = &self.temp.folder;
        let before = stat_entry(folder, self.name)?.ok_or(Errno::NOENT)?;
        if !is_expected(&before, checked) {
            return Err(SwapError::Changed);
        }
        // Nonblocking, because the name may have become a FIFO, and opening one would wait for a
        // writer.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut old: File = rustix::fs::openat(folder, self.name, flags, Mode::empty())?.into();
        let (mut copy, mut into) = TempFile::create(folder, true)?;
        io::copy(&mut old, &mut into).map_err(system_error)?;
        FileAttributes::from_stat(&before, Some(std::os::fd::AsFd::as_fd(&old)))
            .apply_to(&into)
            .map_err(system_error)?;
        into.sync_all().map_err(system_error)?;
        // Without an exchange, this check right before the rename is the best that can be done.
        if !stat_entry(folder, self.name)?.is_some_and(|now| is_unchanged(&now, &before)) {
            return Err(SwapError::Changed);
        }
        rustix::fs::renameat(folder, &self.temp.name, folder, self.name)?;
        copy.precious = true;
        self.done = SwapState::Copied(copy);
        Ok(())
    }

    fn create_new(&mut self) -> Result<(), Errno> {
        let ours = stat_entry(&self.temp.folder, &self.temp.name)?.ok_or(Errno::NOENT)?;
        self.rename_to_free(self.temp.name.as_ref(), self.name)?;
        self.done = SwapState::Created(Box::new(ours));
        Ok(())
    }

    fn remove_old(&mut self, checked: Option<&Stat>) -> Result<(), WorkspaceError> {
        self.rename_to_free(self.name, self.temp.name.as_ref())
            .map_err(|error| self.workspace_error(error.into()))?;
        self.temp.precious = true;
        self.done = SwapState::Deleted;
        self.verify_replaced(checked)
            .map_err(|trouble| self.workspace_error(trouble))
    }

    /// Checks that the replaced file is the expected one. If a link or folder came in between, the
    /// error makes the caller undo the change.
    fn verify_replaced(&self, checked: Option<&Stat>) -> Result<(), SwapError> {
        let taken = stat_entry(&self.temp.folder, &self.temp.name)?.ok_or(Errno::NOENT)?;
        if is_expected(&taken, checked) {
            Ok(())
        } else {
            Err(SwapError::Changed)
        }
    }

    /// Removes the created file, unless another file has its name by now.
    fn remove_created(&self, ours: &Stat) -> Result<(), Errno> {
        match stat_entry(&self.temp.folder, self.name)? {
            Some(found) if is_same_inode(&found, ours) => {
                // Between check and removal another file could still take the name; no system call
                // closes that gap.
                rustix::fs::unlinkat(&self.temp.folder, self.name, AtFlags::empty())
            }
            _ => Ok(()),
        }
    }

    /// Gives the old file its name back, unless another program's file has the name by now; that
    /// file stays.
    fn exchange_back(&self, ours: &Stat) -> Result<(), Errno> {
        let folder = &self.temp.folder;
        let temp = &self.temp.name;
        match stat_entry(folder, self.name)? {
            None => self.rename_to_free(temp.as_ref(), self.name),
            Some(found) if is_same_inode(&found, ours) => {
                let exchange = || {
                    rustix::fs::renameat_with(
                        folder,
                        temp,
                        folder,
                        self.name,
                        RenameFlags::EXCHANGE,
                    )
                };
                exchange()?;
                let taken = stat_entry(folder, temp)?;
                if taken.is_some_and(|taken| is_same_inode(&taken, ours)) {
                    return Ok(());
                }
                // Between check and exchange another writer replaced our file and expects its own
                // under this name, so it is exchanged back. The temporary name then holds the old
                // file, or one that was created meanwhile; the caller keeps either.
                exchange()?;
                Err(Errno::EXIST)
            }
            Some(_) => Err(Errno::EXIST),
        }
    }

    fn rename_to_free(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let folder = &self.temp.folder;
        match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // Some network file systems do not know the flag; a check before the rename has to do
            // there.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match stat_entry(folder, to)? {
                Some(_) => Err(Errno::EXIST),
                None => rustix::fs::renameat(folder, from, folder, to),
            },
            renamed => renamed,
        }
    }

    fn workspace_error(&self, trouble: SwapError) -> WorkspaceError {
        match trouble {
            SwapError::Changed => WorkspaceError::Stale {
                path: self.path.to_string(),
            },
            SwapError::System(error) => {
                let action = if self.version.is_some() {
                    "write"
                } else {
                    "delete"
                };
                WorkspaceError::from_io(action, self.path, error.into())
            }
        }
    }
}

/// The reason that a name could not be changed.
enum SwapError {
    Changed,
    System(Errno),
}

impl From<Errno> for SwapError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

fn system_error(error: io::Error) -> SwapError {
    SwapError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns true for the same file.
fn is_same_inode(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Returns true for a regular file that is the checked one, if one was checked.
fn is_expected(found: &Stat, checked: Option<&Stat>) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && checked.is_none_or(|checked| is_unchanged(found, checked))
}

/// Returns true for the same file without a write in between. A rename changes neither.
fn is_unchanged(one: &Stat, other: &Stat) -> bool {
    let written = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    is_same_inode(one, other) && written(one) == written(other)
}
