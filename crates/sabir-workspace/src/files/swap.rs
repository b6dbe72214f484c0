//! One change of a name, which can be taken back.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::attributes::Attributes;
use super::change::stat;
use super::temp::Temp;
use super::{Expect, Version};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// How often a name that comes and goes is tried again, where whatever is there may be replaced.
const MAX_TRIES: usize = 16;

/// A file that is to change: its name, and the temporary name that holds its new content, and later its old file.
#[derive(Debug)]
pub(super) struct Swap<'a> {
    pub(super) path: &'a WorkPath,
    pub(super) name: &'a OsStr,
    pub(super) expect: Expect,
    pub(super) temp: Temp,
    /// What is written; nothing when the file is deleted.
    pub(super) version: Option<Version>,
    pub(super) done: Done,
}

/// How far a change has come.
#[derive(Debug)]
pub(super) enum Done {
    /// Not yet, or no longer.
    Nothing,
    /// A file is where none was: this one.
    Created(Box<Stat>),
    /// The new file, this one, has the name, and the old one the temporary name.
    Replaced(Box<Stat>),
    /// As before, on a file system that cannot exchange names: what is kept is a copy of the old file.
    Copied(Temp),
    /// The old file has the temporary name.
    Deleted,
}

impl Swap<'_> {
    /// Gives the name to the new file, or takes it from the old one. `checked` is the file that it has to be.
    pub(super) fn make(&mut self, checked: Option<&Stat>) -> Result<(), WorkspaceError> {
        if self.version.is_none() {
            return self.remove(checked);
        }
        for _ in 0..MAX_TRIES {
            if self.expect != Expect::Missing {
                match self.exchange(checked) {
                    Err(Trouble::System(Errno::NOENT)) if self.expect == Expect::Any => {}
                    result => return result.map_err(|trouble| self.explain(trouble)),
                }
            }
            match self.create() {
                Err(Errno::EXIST) if self.expect == Expect::Any => {}
                Err(Errno::EXIST) => return Err(WorkspaceError::Exists { path: self.path.to_string() }),
                result => return result.map_err(|error| self.explain(error.into())),
            }
        }
        Err(WorkspaceError::Stale { path: self.path.to_string() })
    }

    /// The change is sure: the old file is no longer needed.
    pub(super) fn settle(&mut self) {
        self.temp.precious = false;
        if let Done::Copied(copy) = &mut self.done {
            copy.precious = false;
        }
    }

    /// Takes the change back. Says which file could not be, and where its old content is.
    pub(super) fn undo(&mut self) -> Option<String> {
        let (folder, temp) = (&self.temp.folder, &self.temp.name);
        let (undone, kept) = match std::mem::replace(&mut self.done, Done::Nothing) {
            Done::Nothing => (Ok(()), None),
            Done::Created(ours) => (self.uncreate(&ours), None),
            Done::Replaced(ours) => (self.exchange_back(&ours), Some(temp.clone())),
            Done::Deleted => (self.rename_to_free(temp.as_ref(), self.name), Some(temp.clone())),
            Done::Copied(mut copy) => {
                let undone = rustix::fs::renameat(folder, &copy.name, folder, self.name);
                copy.precious = undone.is_err();
                (undone, Some(copy.name.clone()))
            }
        };
        let Err(error) = undone else {
            self.temp.precious = false;
            return None;
        };
        let kept = kept.map(|kept| format!(", its old content is in `{}` beside it", self.rescue(kept)));
        Some(format!("`{}` ({error}{})", self.path, kept.unwrap_or_default()))
    }

    /// Gives what cannot be put back a name that no later write takes for litter, where the disk still does that much.
    fn rescue(&self, kept: String) -> String {
        let name = format!("{}.sabir-old", self.name.to_string_lossy());
        if self.rename_to_free(kept.as_ref(), name.as_ref()).is_ok() { name } else { kept }
    }

    fn exchange(&mut self, checked: Option<&Stat>) -> Result<(), Trouble> {
        let folder = &self.temp.folder;
        let ours = Box::new(stat(folder, &self.temp.name)?.ok_or(Errno::NOENT)?);
        match rustix::fs::renameat_with(folder, &self.temp.name, folder, self.name, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return self.copy_and_replace(checked),
            Err(error) => return Err(error.into()),
        }
        (self.temp.precious, self.done) = (true, Done::Replaced(ours));
        self.verify(checked)
    }

    /// For file systems that cannot exchange names, as some network ones.
    fn copy_and_replace(&mut self, checked: Option<&Stat>) -> Result<(), Trouble> {
        let folder = &self.temp.folder;
        let before = stat(folder, self.name)?.ok_or(Errno::NOENT)?;
        if !is_wanted(&before, checked) {
            return Err(Trouble::Changed);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut old: File = rustix::fs::openat(folder, self.name, flags, Mode::empty())?.into();
        let (mut copy, mut into) = Temp::create(folder, true)?;
        io::copy(&mut old, &mut into).map_err(system)?;
        Attributes::of(&before, Some(std::os::fd::AsFd::as_fd(&old))).give(&into).map_err(system)?;
        into.sync_all().map_err(system)?;
        if !stat(folder, self.name)?.is_some_and(|now| same(&now, &before)) {
            return Err(Trouble::Changed);
        }
        rustix::fs::renameat(folder, &self.temp.name, folder, self.name)?;
        copy.precious = true;
        self.done = Done::Copied(copy);
        Ok(())
    }

    fn create(&mut self) -> Result<(), Errno> {
        let ours = stat(&self.temp.folder, &self.temp.name)?.ok_or(Errno::NOENT)?;
        self.rename_to_free(self.temp.name.as_ref(), self.name)?;
        self.done = Done::Created(Box::new(ours));
        Ok(())
    }

    fn remove(&mut self, checked: Option<&Stat>) -> Result<(), WorkspaceError> {
        self.rename_to_free(self.name, self.temp.name.as_ref()).map_err(|error| self.explain(error.into()))?;
        (self.temp.precious, self.done) = (true, Done::Deleted);
        self.verify(checked).map_err(|trouble| self.explain(trouble))
    }

    /// Whether what was taken away is what was to be; a link or folder that came in between is put back by whoever gets the
    /// error.
    fn verify(&self, checked: Option<&Stat>) -> Result<(), Trouble> {
        let taken = stat(&self.temp.folder, &self.temp.name)?.ok_or(Errno::NOENT)?;
        if is_wanted(&taken, checked) { Ok(()) } else { Err(Trouble::Changed) }
    }

    /// Removes the file that was made, unless another has its name by now.
    fn uncreate(&self, ours: &Stat) -> Result<(), Errno> {
        match stat(&self.temp.folder, self.name)? {
            Some(found) if is(&found, ours) => rustix::fs::unlinkat(&self.temp.folder, self.name, AtFlags::empty()),
            _ => Ok(()),
        }
    }

    /// Gives the old file its name again, unless something else has it by now: that is someone's, and is not taken away.
    fn exchange_back(&self, ours: &Stat) -> Result<(), Errno> {
        let (folder, temp) = (&self.temp.folder, &self.temp.name);
        match stat(folder, self.name)? {
            None => self.rename_to_free(temp.as_ref(), self.name),
            Some(found) if is(&found, ours) => {
                rustix::fs::renameat_with(folder, temp, folder, self.name, RenameFlags::EXCHANGE)
            }
            Some(_) => Err(Errno::EXIST),
        }
    }

    fn rename_to_free(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let folder = &self.temp.folder;
        match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // Some network file systems do not know the flag; a look has to do there.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match stat(folder, to)? {
                Some(_) => Err(Errno::EXIST),
                None => rustix::fs::renameat(folder, from, folder, to),
            },
            renamed => renamed,
        }
    }

    fn explain(&self, trouble: Trouble) -> WorkspaceError {
        match trouble {
            Trouble::Changed => WorkspaceError::Stale { path: self.path.to_string() },
            Trouble::System(error) => {
                let action = if self.version.is_some() { "write" } else { "delete" };
                WorkspaceError::from_io(action, self.path, error.into())
            }
        }
    }
}

/// Why a name could not be changed.
enum Trouble {
    Changed,
    System(Errno),
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

fn system(error: io::Error) -> Trouble {
    Trouble::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Whether it is the same file.
fn is(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// A regular file, and the one that was checked, if one was.
fn is_wanted(found: &Stat, checked: Option<&Stat>) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && checked.is_none_or(|checked| same(found, checked))
}

/// Whether it is the same file, and not written to in between. A rename changes neither.
fn same(one: &Stat, other: &Stat) -> bool {
    let written = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    is(one, other) && written(one) == written(other)
}
