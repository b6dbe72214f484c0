//! Following a journal that somebody else writes.
//!
//! It is read without a lock: a lock, however short, could keep the task itself from being resumed.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sabir_agent::TaskId;

use crate::error::JournalError;
use crate::frame::{self, HEAD_BYTES, HEADER, JournalEntry};
use crate::journal::{journal_path, open_journal_file};
use crate::lock_owner;
use crate::recovery::{next_payload, read_header};

/// A journal, read as far as it has been written.
#[derive(Debug)]
pub struct JournalTail {
    file: File,
    path: PathBuf,
    /// Where the next frame begins; 0 before the first line is whole.
    next: u64,
    records: u64,
}

impl JournalTail {
    /// Opens the journal of a task.
    ///
    /// # Errors
    /// [`JournalError::Name`], [`Missing`](JournalError::Missing) or [`Io`](JournalError::Io).
    pub fn open(folder: &Path, id: &TaskId) -> Result<Self, JournalError> {
        let path = journal_path(folder, id)?;
        let file = open_journal_file(id, &path)?;
        Ok(Self { file, path, next: 0, records: 0 })
    }

    /// The records that have come since the last time. One that is being written right now, and whatever is behind a damage, is
    /// not among them.
    ///
    /// # Errors
    /// Those of [`read_journal`](crate::read_journal).
    pub fn read_new_entries(&mut self) -> Result<Vec<JournalEntry>, JournalError> {
        let fail = |error| JournalError::io_error("read", &self.path)(error);
        let mut input = BufReader::new(&self.file);
        input.seek(SeekFrom::Start(self.next)).map_err(fail)?;
        if self.next == 0 {
            if read_header(&mut input, &self.path)?.is_some() {
                return Ok(Vec::new());
            }
            self.next = HEADER.len() as u64;
        }
        let (mut entries, mut payload) = (Vec::new(), Vec::new());
        while next_payload(&mut input, &mut payload).map_err(fail)? {
            let number = self.records + 1;
            let unknown = |reason| JournalError::Unknown { path: self.path.clone(), number, reason };
            entries.push(frame::decode_payload(&payload).map_err(unknown)?);
            (self.records, self.next) = (number, self.next + (HEAD_BYTES + payload.len()) as u64);
        }
        Ok(entries)
    }

    /// The process that works on the task; `None` where none does, or the system does not tell.
    #[must_use]
    pub fn lock_owner(&self) -> Option<u32> {
        lock_owner::find_lock_owner(&self.file)
    }
}
