//! The disk under a journal: the few things that it asks of a file system, so that a simulated one can stand there.
//!
//! The decision is that the trait is as narrow as the promises of a file system are: bytes that were written may be lost, in part
//! and out of order, until they were synced, and so may a name until its folder was. [`SystemDisk`] is the real one and the only
//! place in this crate, but for the listing of a folder, that touches files.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Folders and the names in them.
pub trait Disk: Send + Sync {
    /// Whether there is something of that name.
    fn exists(&self, path: &Path) -> bool;

    /// Makes one folder that only its owner can look into.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` where there is one.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder survive a power cut.
    ///
    /// # Errors
    /// What the system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes a file that only its owner can open, for reading and writing.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` where there is one.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// What the system says; `NotFound` where there is none.
    fn open_file(&self, path: &Path, purpose: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading alone.
    Read,
    /// Reading and writing.
    Write,
}

/// An open file. All offsets are bytes from its beginning; nothing in here has a position.
pub trait DiskFile: Send {
    /// Keeps every other opener from locking it, for as long as this one lives.
    ///
    /// # Errors
    /// `WouldBlock` where another one has the lock.
    fn try_lock(&self) -> Result<(), TryLockError>;

    /// Gives the lock back.
    fn unlock(&self);

    /// The process that has locked it; `None` where none has, or the system does not tell.
    fn lock_owner(&self) -> Option<u32> {
        None
    }

    /// How long it is.
    ///
    /// # Errors
    /// What the system says.
    fn byte_length(&self) -> io::Result<u64>;

    /// Whether it still has a name: what is written to a file without one is gone when it is closed.
    ///
    /// # Errors
    /// What the system says.
    fn is_named(&self) -> io::Result<bool>;

    /// Reads some bytes; none only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all of the bytes. After an error any part of them may be there.
    ///
    /// # Errors
    /// What the system says.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Cuts it off, or makes it longer with zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes its bytes survive a power cut. After an error nobody knows which of them do.
    ///
    /// # Errors
    /// What the system says.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`sync_data`](Self::sync_data), with all that is known of the file beside its bytes.
    ///
    /// # Errors
    /// What the system says.
    fn sync_all(&self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder).and_then(|folder| folder.sync_all())
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn open_file(&self, path: &Path, purpose: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(purpose == OpenMode::Write).open(path)?))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

impl DiskFile for File {
    fn try_lock(&self) -> Result<(), TryLockError> {
        Self::try_lock(self)
    }

    fn unlock(&self) {
        let _ = Self::unlock(self);
    }

    fn lock_owner(&self) -> Option<u32> {
        crate::lock_owner::find_lock_owner(self)
    }

    fn byte_length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        Self::sync_all(self)
    }
}

/// A file that is read from a place on.
pub(crate) struct DiskFileReader<'a> {
    file: &'a dyn DiskFile,
    at: u64,
}

impl<'a> DiskFileReader<'a> {
    pub(crate) fn starting_at(file: &'a dyn DiskFile, at: u64) -> Self {
        Self { file, at }
    }
}

impl Read for DiskFileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for DiskFileReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let outside = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(outside)?,
            SeekFrom::End(by) => self.file.byte_length()?.checked_add_signed(by).ok_or_else(outside)?,
        };
        Ok(self.at)
    }
}
