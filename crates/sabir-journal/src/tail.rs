//! Follows a journal that another process writes.
//!
//! It is read without a lock, because even a short lock could make a resume of the task fail.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sabir_agent::TaskId;

use crate::error::JournalError;
use crate::frame::{self, FrameChain, HEADER_BYTES, JournalEntry};
use crate::journal::{journal_path, open_journal_file};
use crate::lock_owner;
use crate::recovery::{HeaderLine, read_header};

/// A reader that returns the records of a journal as they are written.
#[derive(Debug)]
pub struct JournalTail {
    file: File,
    path: PathBuf,
    /// The offset in bytes of the next frame; 0 until the first line is complete.
    next: u64,
    /// The chain before the next frame; `None` until the first line is complete.
    chain: Option<FrameChain>,
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
        Ok(Self {
            file,
            path,
            next: 0,
            chain: None,
            records: 0,
        })
    }

    /// Returns the records that were written since the last call. A record that is just being written is left for the next
    /// call; records behind damaged bytes are never returned.
    ///
    /// # Errors
    /// The errors of [`read_journal`](crate::read_journal).
    pub fn read_new_entries(&mut self) -> Result<Vec<JournalEntry>, JournalError> {
        let fail = |error| JournalError::io_error("read", &self.path)(error);
        let mut input = BufReader::new(&self.file);
        input.seek(SeekFrom::Start(self.next)).map_err(fail)?;
        let mut chain = match self.chain {
            Some(chain) => chain,
            None => {
                let HeaderLine::Whole(version) = read_header(&mut input, &self.path)? else {
                    return Ok(Vec::new());
                };
                self.next = HEADER_BYTES as u64;
                FrameChain::new(version)
            }
        };
        let mut entries = Vec::new();
        let mut payload = Vec::new();
        // A frame that is just being written is too short or has a wrong checksum. The offset stays
        // before it, so the next call reads it again.
        while let Some(head) = chain.read_next(&mut input, &mut payload).map_err(fail)? {
            let number = self.records + 1;
            let unknown = |error| JournalError::unknown_record(&self.path, number, &error);
            entries.push(frame::decode_payload(&payload).map_err(unknown)?);
            self.records = number;
            self.next += (chain.version.head_bytes() + head.length) as u64;
        }
        self.chain = Some(chain);
        Ok(entries)
    }

    /// Returns the id of the process that works on the task; `None` if none does, or the system does not tell.
    #[must_use]
    pub fn lock_owner(&self) -> Option<u32> {
        lock_owner::find_lock_owner(&self.file)
    }
}
