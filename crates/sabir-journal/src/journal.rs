//! Creates, opens, locks and appends to the journal of one task.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sabir_agent::{Record, RecordStore, StoreError, TaskId};

use crate::disk::{Disk, DiskFile, DiskFileReader, OpenMode, SystemDisk};
use crate::error::JournalError;
use crate::frame::{self, FormatVersion, FrameChain, FrameHeader, HEADER_BYTES, JournalEntry};
use crate::recovery::{RecoveryReport, scan_journal};

/// The end of every journal's file name; the rest of the name is the task's id.
const FILE_SUFFIX: &str = ".journal";
/// The longest task id. File systems allow names of 255 bytes; this leaves room for every suffix that is added.
const MAX_NAME_BYTES: usize = 128;
/// The largest buffer that is kept for the next record; a larger one is freed after use.
const MAX_BUFFER_BYTES: usize = 1 << 20;
/// The most copies of damaged ends that one journal keeps beside it.
const MAX_DAMAGED_COPIES: u32 = 1000;
/// The number of bytes of a damaged end that are copied at a time.
const COPY_CHUNK_BYTES: u64 = 64 << 10;

/// A failure to write one frame. The text becomes a part of the [`StoreError`] that the task reports.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("could not examine it: {0}")]
    Inspect(io::Error),
    #[error("it was removed, so later records would be lost")]
    Removed,
    #[error("it was moved, or another file was put in its place, so later records would be lost")]
    Replaced,
    #[error("somebody else has changed it: it has {found} bytes instead of {expected}, or others")]
    Changed { found: u64, expected: u64 },
    #[error("{0}; the records before are safe")]
    Undone(io::Error),
    #[error("{write}, and the written part could not be removed ({undo})")]
    PartLeft { write: io::Error, undo: io::Error },
    #[error("could not sync it: {0}")]
    Sync(io::Error),
}

impl WriteError {
    /// Returns true if the state of the file is unknown from now on, so that no later append may succeed.
    fn is_permanent(&self) -> bool {
        !matches!(self, Self::Inspect(_) | Self::Undone(_))
    }
}

/// The records of one task on disk, open for appending.
///
/// While this value exists, no other process can open the journal. The kernel holds the lock and releases it when the
/// process ends, so a crash leaves no stale lock behind.
pub struct Journal {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    clock: Box<dyn Fn() -> u64 + Send>,
    /// The offset in bytes at which the last whole frame ends.
    valid_bytes: u64,
    /// The last whole frame's head, or the first line, and its offset: they must still be there at the next append.
    last_head: (u64, Vec<u8>),
    /// The end of the chain of frames.
    chain: FrameChain,
    /// The error text that every further append returns, once one failure was permanent.
    failure: Option<String>,
    buffer: Vec<u8>,
}

impl Journal {
    /// Creates the journal of a new task, and its folder if missing. `clock` returns milliseconds since 1970.
    ///
    /// # Errors
    /// [`JournalError::Name`], [`Exists`](JournalError::Exists) or [`Io`](JournalError::Io).
    pub fn create(
        folder: &Path,
        id: &TaskId,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Self, JournalError> {
        Self::create_on(&SystemDisk, folder, id, clock)
    }

    /// Does what [`create`](Self::create) does, on the given disk.
    ///
    /// # Errors
    /// The same as for [`create`](Self::create).
    pub fn create_on(
        disk: &dyn Disk,
        folder: &Path,
        id: &TaskId,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Self, JournalError> {
        let path = journal_path(folder, id)?;
        make_folder(disk, folder)?;
        let file = match disk.create_file(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(JournalError::Exists {
                    id: id.to_string(),
                    path,
                });
            }
            opened => opened.map_err(JournalError::io_error("create", &path))?,
        };
        // Another process can open the file between its creation and this lock; then that process
        // locks it.
        lock_journal(file.as_ref(), id, &path)?;
        let mut journal = Self {
            file,
            path,
            clock: Box::new(clock),
            valid_bytes: 0,
            last_head: (0, Vec::new()),
            chain: FrameChain::new(FormatVersion::CURRENT),
            failure: None,
            buffer: Vec::new(),
        };
        if let Err(error) = journal
            .write_header()
            .and_then(|()| sync_folder(disk, folder))
        {
            // Otherwise an empty journal would occupy the name, and a second attempt would fail.
            let _ = disk.remove_file(&journal.path);
            return Err(error);
        }
        Ok(journal)
    }

    /// Opens the journal of an existing task for appending, and returns all its whole records.
    ///
    /// A torn end is removed. A damaged end is copied to a file beside the journal, and then replaced by a [`Damaged`](Record::Damaged)
    /// record, which is the last of the returned ones.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`Locked`](JournalError::Locked), [`Newer`](JournalError::Newer),
    /// [`Unknown`](JournalError::Unknown), [`NotAJournal`](JournalError::NotAJournal),
    /// [`DamagedStart`](JournalError::DamagedStart), [`Name`](JournalError::Name) or [`Io`](JournalError::Io). The file is then
    /// unchanged, or as damaged as before.
    pub fn open(
        folder: &Path,
        id: &TaskId,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<(Self, Vec<JournalEntry>, RecoveryReport), JournalError> {
        Self::open_on(&SystemDisk, folder, id, clock)
    }

    /// Does what [`open`](Self::open) does, on the given disk.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn open_on(
        disk: &dyn Disk,
        folder: &Path,
        id: &TaskId,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<(Self, Vec<JournalEntry>, RecoveryReport), JournalError> {
        let path = journal_path(folder, id)?;
        let file = open_journal_on(disk, OpenMode::Write, id, &path)?;
        lock_journal(file.as_ref(), id, &path)?;
        // Locked before it is read: another process could otherwise append between the scan and the
        // cut.
        let scan = scan_journal(file.as_ref(), &path)?;
        let mut recovery = scan.recovery;
        // The copy of a damaged end, and its name, must be on disk before the original bytes are
        // overwritten.
        if recovery.damaged_bytes > 0 {
            recovery.saved_path = Some(save_damaged_tail(
                disk,
                file.as_ref(),
                scan.valid_bytes,
                &path,
            )?);
            sync_folder(disk, folder)?;
        }
        let mut journal = Self {
            file,
            path,
            clock: Box::new(clock),
            valid_bytes: scan.valid_bytes,
            last_head: (0, Vec::new()),
            chain: scan.chain,
            failure: None,
            buffer: Vec::new(),
        };
        // The process that created the journal died before its first line was complete.
        if journal.valid_bytes == 0 {
            journal.write_header()?;
        } else if recovery.torn_bytes > 0 {
            journal
                .file
                .set_length(journal.valid_bytes)
                .map_err(JournalError::io_error("shorten", &journal.path))?;
        }
        journal
            .rewrite_last_frame(scan.last_frame_offset)
            .map_err(JournalError::io_error("write", &journal.path))?;
        journal
            .file
            .sync_data()
            .map_err(JournalError::io_error("sync", &journal.path))?;
        let mut entries = scan.entries;
        if recovery.damaged_bytes > 0 {
            entries.push(journal.replace_damaged_end(&recovery)?);
        }
        Ok((journal, entries, recovery))
    }

    /// Returns the path of the journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes and syncs the first line of the file.
    fn write_header(&mut self) -> Result<(), JournalError> {
        let header = self.chain.version.header();
        self.file
            .write_all_at(header, 0)
            .map_err(JournalError::io_error("write", &self.path))?;
        self.file
            .sync_all()
            .map_err(JournalError::io_error("sync", &self.path))?;
        self.valid_bytes = HEADER_BYTES as u64;
        self.last_head = (0, header.to_vec());
        Ok(())
    }

    /// Replaces a damaged end by a record of the damage, and returns that record.
    ///
    /// Without the record, the next process would find an intact journal that ends at a call without a result, and run the call, although
    /// it may have run already.
    fn replace_damaged_end(
        &mut self,
        recovery: &RecoveryReport,
    ) -> Result<JournalEntry, JournalError> {
        let saved_as = recovery.saved_path.as_deref().and_then(Path::file_name);
        let entry = JournalEntry {
            at: (self.clock)(),
            record: Record::Damaged {
                bytes: recovery.damaged_bytes,
                saved_as: saved_as.map(|name| name.to_string_lossy().into_owned()),
            },
        };
        let head = frame::encode_frame(&mut self.buffer, self.chain, entry.at, &entry.record)
            .map_err(|error| JournalError::UnwritableRecord {
                number: 0,
                reason: error.to_string(),
            })?;
        self.overwrite_damaged_end()
            .map_err(JournalError::io_error("write", &self.path))?;
        self.note_appended(head);
        Ok(entry)
    }

    /// Writes the frame in the buffer over a damaged end, so that a crash at any point leaves either the frame or an end that
    /// is still recognized as damaged, never one that looks torn: a torn end would let open calls run.
    fn overwrite_damaged_end(&self) -> io::Result<()> {
        let head_bytes = self.chain.version.head_bytes();
        let (head, payload) = self
            .buffer
            .split_at_checked(head_bytes)
            .ok_or(ErrorKind::InvalidData)?;
        // No append ever writes this length, so the bytes are damage until the real head replaces
        // it.
        self.file
            .write_all_at(&vec![0xff; head_bytes], self.valid_bytes)?;
        self.file.sync_data()?;
        self.file
            .write_all_at(payload, self.valid_bytes + head_bytes as u64)?;
        self.file
            .set_length(self.valid_bytes + self.buffer.len() as u64)?;
        self.file.sync_data()?;
        self.file.write_all_at(head, self.valid_bytes)?;
        self.file.sync_data()
    }

    /// Updates the state after the frame in the buffer was written and synced.
    fn note_appended(&mut self, head: FrameHeader) {
        let bytes = self.buffer.get(..self.chain.version.head_bytes());
        self.last_head = (self.valid_bytes, bytes.unwrap_or_default().to_vec());
        self.valid_bytes += self.buffer.len() as u64;
        self.chain = self.chain.advanced_by(head);
    }

    /// Writes the last frame once more, unchanged.
    ///
    /// The frame may be only in the page cache, if the previous process was killed between write and sync, or its sync failed. The kernel
    /// then considers the pages clean, so a sync alone would not write them, and a power cut would leave a hole before all later frames.
    fn rewrite_last_frame(&mut self, from_byte: u64) -> io::Result<()> {
        self.buffer.clear();
        let last = DiskFileReader::starting_at(self.file.as_ref(), from_byte);
        last.take(self.valid_bytes.saturating_sub(from_byte))
            .read_to_end(&mut self.buffer)?;
        let head = self.buffer.len().min(self.chain.version.head_bytes());
        self.last_head = (
            from_byte,
            self.buffer.get(..head).unwrap_or_default().to_vec(),
        );
        self.file.write_all_at(&self.buffer, from_byte)
    }

    /// Checks that the file is still the one that this process wrote, with the same name, length and last frame. The lock stops only
    /// processes that request it.
    fn check_unchanged(&self) -> Result<(), WriteError> {
        // A removed file accepts bytes without an error, and they are lost with the last
        // descriptor. A file that the path leads to has a name.
        let length = self.file.length_at(&self.path);
        let Some(found) = length.map_err(WriteError::Inspect)? else {
            return Err(match self.file.is_named().map_err(WriteError::Inspect)? {
                true => WriteError::Replaced,
                false => WriteError::Removed,
            });
        };
        if found == self.valid_bytes && self.has_last_head().map_err(WriteError::Inspect)? {
            return Ok(());
        }
        Err(WriteError::Changed {
            found,
            expected: self.valid_bytes,
        })
    }

    /// Returns true if the head of the last frame is in the file as it was written.
    fn has_last_head(&self) -> io::Result<bool> {
        let (from_byte, expected) = &self.last_head;
        let mut found = vec![0; expected.len()];
        let mut reader = DiskFileReader::starting_at(self.file.as_ref(), *from_byte);
        match reader.read_exact(&mut found) {
            Ok(()) => Ok(found == *expected),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Appends the frame in the buffer and syncs it.
    fn write_frame(&mut self, head: FrameHeader) -> Result<(), WriteError> {
        self.check_unchanged()?;
        if let Err(write) = self.file.write_all_at(&self.buffer, self.valid_bytes) {
            // Part of the frame may have been written and must be removed: a later, shorter frame
            // would not cover it, and the rest would look like damage.
            return Err(match self.file.set_length(self.valid_bytes) {
                Ok(()) => WriteError::Undone(write),
                Err(undo) => WriteError::PartLeft { write, undo },
            });
        }
        // After a failed sync the kernel may have dropped the pages, and a second sync would
        // succeed without them. That is why this error is permanent.
        self.file.sync_data().map_err(WriteError::Sync)?;
        // Only after the sync: until then the frame is not acknowledged, and the next one may
        // replace it.
        self.note_appended(head);
        Ok(())
    }
}

impl RecordStore for Journal {
    /// Writes one whole frame and syncs it. After a failed write, such as on a full disk, the file is unchanged and a later
    /// append may succeed; after a failed sync, or when the file was removed, replaced or changed, every later append fails too.
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let path = self.path.clone();
        let fail = |reason: &str| {
            StoreError(format!(
                "the journal {path:?} could not take a record: {reason}"
            ))
        };
        if let Some(reason) = &self.failure {
            return Err(fail(reason));
        }
        let head = frame::encode_frame(&mut self.buffer, self.chain, (self.clock)(), record)
            .map_err(|error| fail(&error.to_string()))?;
        let written = self.write_frame(head);
        // One record with images must not keep its memory for the rest of the task.
        if self.buffer.capacity() > MAX_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        written.map_err(|error| {
            let reason = error.to_string();
            let reported = fail(&reason);
            if error.is_permanent() {
                // From now on nothing is acknowledged that a reader may not find again.
                self.failure = Some(reason);
            }
            reported
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing the file is not enough: between fork and exec a child process holds a copy of the
        // descriptor, and with it the lock.
        self.file.unlock();
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .field("good_bytes", &self.valid_bytes)
            .field("broken", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Reads a journal without locking or changing it, for `sabir log`. While its task runs, a record that is just being
/// written looks torn.
///
/// # Errors
/// The errors of [`Journal::open`] except [`Locked`](JournalError::Locked).
pub fn read_journal(
    folder: &Path,
    id: &TaskId,
) -> Result<(Vec<JournalEntry>, RecoveryReport), JournalError> {
    read_journal_on(&SystemDisk, folder, id)
}

/// Does what [`read_journal`] does, on the given disk.
///
/// # Errors
/// The same as for [`read_journal`].
pub fn read_journal_on(
    disk: &dyn Disk,
    folder: &Path,
    id: &TaskId,
) -> Result<(Vec<JournalEntry>, RecoveryReport), JournalError> {
    let path = journal_path(folder, id)?;
    let file = open_journal_on(disk, OpenMode::Read, id, &path)?;
    let scan = scan_journal(file.as_ref(), &path)?;
    Ok((scan.entries, scan.recovery))
}

/// Returns the id of the task whose journal has this file name; `None` if it is not the name of a journal.
pub(crate) fn task_id_from_file_name(name: &str) -> Option<TaskId> {
    name.strip_suffix(FILE_SUFFIX)
        .filter(|id| is_valid_task_id(id))
        .map(TaskId::new)
}

/// Returns the path of a task's journal.
///
/// # Errors
/// `JournalError::Name` if the id cannot be a file name.
pub(crate) fn journal_path(folder: &Path, id: &TaskId) -> Result<PathBuf, JournalError> {
    // The id becomes a part of a path, so it must not contain `/` or `..`.
    if !is_valid_task_id(id.as_str()) {
        return Err(JournalError::Name {
            id: id.as_str().chars().take(MAX_NAME_BYTES).collect(),
        });
    }
    Ok(folder.join(format!("{id}{FILE_SUFFIX}")))
}

/// Returns true for 1 to 128 ASCII letters, digits and `-`: no separator and no dot, so the id
/// cannot lead out of the folder.
fn is_valid_task_id(id: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Opens an existing journal for reading.
pub(crate) fn open_journal_file(id: &TaskId, path: &Path) -> Result<File, JournalError> {
    File::open(path).map_err(map_open_error(id, path))
}

fn open_journal_on(
    disk: &dyn Disk,
    purpose: OpenMode,
    id: &TaskId,
    path: &Path,
) -> Result<Box<dyn DiskFile>, JournalError> {
    disk.open_file(path, purpose)
        .map_err(map_open_error(id, path))
}

fn map_open_error(id: &TaskId, path: &Path) -> impl Fn(std::io::Error) -> JournalError {
    move |error| match error.kind() {
        ErrorKind::NotFound => JournalError::Missing {
            id: id.to_string(),
            path: path.to_path_buf(),
        },
        _ => JournalError::io_error("open", path)(error),
    }
}

/// Takes the lock without waiting. Another process may work on a task for hours, so waiting would
/// look like a hang.
fn lock_journal(file: &dyn DiskFile, id: &TaskId, path: &Path) -> Result<(), JournalError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::Locked {
            id: id.to_string(),
            holder: file.lock_owner(),
            path: path.to_path_buf(),
        },
        TryLockError::Error(error) => JournalError::io_error("lock", path)(error),
    })
}

/// Creates the folder and its missing parents, syncing each before the next is created.
pub(crate) fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<(), JournalError> {
    let missing: Vec<_> = folder
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && !disk.exists(part))
        .collect();
    for part in missing.into_iter().rev() {
        match disk.create_folder(part) {
            // Another process may have created the same folder since it was found missing.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(JournalError::io_error("create", part)(error));
            }
            _ => {}
        }
        if let Some(above) = part.parent() {
            sync_folder(disk, above)?;
        }
    }
    Ok(())
}

/// Syncs a folder, so that the names in it survive a power cut.
pub(crate) fn sync_folder(disk: &dyn Disk, folder: &Path) -> Result<(), JournalError> {
    disk.sync_folder(folder)
        .map_err(JournalError::io_error("sync", folder))
}

/// Copies the end of a journal to a new file beside it, synced, and returns the path of the copy.
fn save_damaged_tail(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    from_byte: u64,
    path: &Path,
) -> Result<PathBuf, JournalError> {
    for number in 1..=MAX_DAMAGED_COPIES {
        let mut name = path.as_os_str().to_owned();
        name.push(".damaged");
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let kept = PathBuf::from(name);
        let copy = match disk.create_file(&kept) {
            // An earlier copy is never overwritten: it may be the only one of its bytes.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            opened => opened.map_err(JournalError::io_error("create", &kept))?,
        };
        return copy_from(file, from_byte, copy.as_ref())
            .map(|()| kept.clone())
            .map_err(|error| {
                // An incomplete copy is useless, and the journal itself still has all the bytes.
                let _ = disk.remove_file(&kept);
                JournalError::io_error("keep the damaged end in", &kept)(error)
            });
    }
    let full = io::Error::other(format!(
        "there are {MAX_DAMAGED_COPIES} damaged ends beside it already"
    ));
    Err(JournalError::io_error("recover", path)(full))
}

/// Copies the bytes from an offset to the end, in pieces, and syncs the copy.
fn copy_from(file: &dyn DiskFile, from_byte: u64, copy: &dyn DiskFile) -> io::Result<()> {
    let mut from = DiskFileReader::starting_at(file, from_byte);
    let mut at = 0;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let bytes = from
            .by_ref()
            .take(COPY_CHUNK_BYTES)
            .read_to_end(&mut buffer)?;
        if bytes == 0 {
            return copy.sync_all();
        }
        copy.write_all_at(&buffer, at)?;
        at += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use sabir_agent::MessageAuthor;

    use super::*;

    fn on(device: &str) -> Journal {
        let path = PathBuf::from(device);
        Journal {
            file: SystemDisk.open_file(&path, OpenMode::Write).unwrap(),
            path,
            clock: Box::new(|| 1),
            valid_bytes: 0,
            last_head: (0, Vec::new()),
            chain: FrameChain::new(FormatVersion::CURRENT),
            failure: None,
            buffer: Vec::new(),
        }
    }

    fn append(journal: &mut Journal) -> String {
        let said = Record::Said {
            by: MessageAuthor::User,
            text: "x".to_owned(),
            images: Vec::new(),
            when: sabir_agent::DeliveryTime::Next,
        };
        journal.append(&said).unwrap_err().to_string()
    }

    #[test]
    fn a_sync_that_fails_ends_the_journal() {
        // Writing to /dev/null succeeds, syncing it is not supported.
        let mut journal = on("/dev/null");
        let said = append(&mut journal);
        assert!(said.contains("could not sync it"), "{said}");
        assert_eq!(append(&mut journal), said);
        assert_eq!(journal.valid_bytes, 0);
    }

    #[test]
    fn a_write_that_cannot_be_taken_back_ends_the_journal() {
        let mut journal = on("/dev/full");
        let said = append(&mut journal);
        assert!(
            said.contains("and the written part could not be removed"),
            "{said}"
        );
        assert_eq!(append(&mut journal), said);
    }
}
