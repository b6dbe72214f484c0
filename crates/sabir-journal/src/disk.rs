//! Defines the file system operations that a journal needs, so that a simulated disk can replace the real one.
//!
//! The trait promises no more than a file system does: written bytes may be lost, in part and out of order, until they are
//! synced, and so may a name until its folder is synced. [`SystemDisk`] is the real disk. Appending and recovery use files
//! through this trait only; the read-only modules and the journal writer use `std::fs` directly.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A file system: folders and the names in them.
pub trait Disk: Send + Sync {
    /// Returns true if something exists at this path.
    fn exists(&self, path: &Path) -> bool;

    /// Creates one folder, with mode 0700.
    ///
    /// # Errors
    /// The error of the system; `AlreadyExists` if the path is taken.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Syncs a folder, so that the names in it survive a power cut.
    ///
    /// # Errors
    /// The error of the system.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Creates a file for reading and writing, with mode 0600.
    ///
    /// # Errors
    /// The error of the system; `AlreadyExists` if the path is taken.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// The error of the system; `NotFound` if there is no such file.
    fn open_file(&self, path: &Path, purpose: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// The error of the system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// The access with which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// An open file. All offsets are bytes from its beginning; there is no current position.
pub trait DiskFile: Send {
    /// Locks the file until this value is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another opener holds the lock.
    fn try_lock(&self) -> Result<(), TryLockError>;

    /// Releases the lock.
    fn unlock(&self);

    /// Returns the id of the process that has locked the file; `None` if none has, or the system does not tell.
    fn lock_owner(&self) -> Option<u32> {
        None
    }

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn byte_length(&self) -> io::Result<u64>;

    /// Returns true if the file still has a name. The contents of a file without one are lost when it is closed.
    ///
    /// # Errors
    /// The error of the system.
    fn is_named(&self) -> io::Result<bool>;

    /// Returns the length of the file in bytes if this path leads to it; `None` if it leads to another file or does not exist.
    ///
    /// # Errors
    /// The error of the system.
    fn length_at(&self, path: &Path) -> io::Result<Option<u64>>;

    /// Reads some bytes and returns their number; 0 only at the end of the file.
    ///
    /// # Errors
    /// The error of the system.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all bytes. After an error, any part of them may have been written.
    ///
    /// # Errors
    /// The error of the system.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// The error of the system.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Syncs the bytes, so that they survive a power cut. After an error, it is unknown which bytes do.
    ///
    /// # Errors
    /// The error of the system.
    fn sync_data(&self) -> io::Result<()>;

    /// Syncs the bytes as [`sync_data`](Self::sync_data) does, and the file's metadata too.
    ///
    /// # Errors
    /// The error of the system.
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
        // The mode is set at creation: before a later chmod, others could enter.
        DirBuilder::new().mode(0o700).create(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // The parent of a relative path of one part is the empty path.
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        // fsync(2) of a file does not sync the entry for it in its folder; that needs a descriptor
        // of the folder, for which reading access is enough.
        File::open(folder).and_then(|folder| folder.sync_all())
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            // O_EXCL: of two processes that create the same task, one gets `AlreadyExists`.
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(SystemFile::new(file)?))
    }

    fn open_file(&self, path: &Path, purpose: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(purpose == OpenMode::Write)
            .open(path)?;
        Ok(Box::new(SystemFile::new(file)?))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// A file of this machine.
#[derive(Debug)]
struct SystemFile {
    file: File,
    identity: FileIdentity,
}

/// The device and the inode of a file, which together identify it as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn from_metadata(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

impl SystemFile {
    fn new(file: File) -> io::Result<Self> {
        let identity = FileIdentity::from_metadata(&file.metadata()?);
        Ok(Self { file, identity })
    }
}

impl DiskFile for SystemFile {
    fn try_lock(&self) -> Result<(), TryLockError> {
        self.file.try_lock()
    }

    fn unlock(&self) {
        let _ = self.file.unlock();
    }

    fn lock_owner(&self) -> Option<u32> {
        crate::lock_owner::find_lock_owner(&self.file)
    }

    fn byte_length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_named(&self) -> io::Result<bool> {
        // A removed file has no links and lives on until its last descriptor is closed.
        Ok(self.file.metadata()?.nlink() > 0)
    }

    fn length_at(&self, path: &Path) -> io::Result<Option<u64>> {
        match std::fs::metadata(path) {
            Ok(found) => {
                let is_same = FileIdentity::from_metadata(&found) == self.identity;
                Ok(is_same.then_some(found.len()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// A sequential reader over a file, with its own position. It does not use the position of the file, so several readers of one file do not
/// interfere.
pub(crate) struct DiskFileReader<'a> {
    file: &'a dyn DiskFile,
    at: u64,
}

impl<'a> DiskFileReader<'a> {
    /// Makes a reader whose first byte is at this offset.
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
            SeekFrom::End(by) => self
                .file
                .byte_length()?
                .checked_add_signed(by)
                .ok_or_else(outside)?,
        };
        Ok(self.at)
    }
}
