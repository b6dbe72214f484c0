//! The tasks of a folder, read from the journals themselves.
//!
//! There is no file that lists them, since that could disagree. Of each journal the heads of the frames are read, and the first and
//! last payload; the rest is skipped.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use sabir_agent::{Outcome, Record, TaskId};
use sabir_call::Protocol;

use crate::error::JournalError;
use crate::frame::{self, Entry, HEAD_BYTES, HEADER, Head};
use crate::journal::task_of;
use crate::recovery::{next_payload, read_header};

/// A journal in a folder.
#[derive(Debug)]
pub struct Listed {
    /// The task, by the name of the file.
    pub id: TaskId,
    /// What it is about, or why its journal cannot be read.
    pub summary: Result<Summary, JournalError>,
}

/// What a task is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The task, by its own start.
    pub id: TaskId,
    /// The user's first words, in full.
    pub prompt: String,
    /// The model's name as the user gave it.
    pub model: String,
    /// How calls are spelled.
    pub protocol: Protocol,
    /// The folder in which it works.
    pub workspace: String,
    /// When it began, in milliseconds since 1970.
    pub started_at: u64,
    /// When the last record was written, in milliseconds since 1970.
    pub last_at: u64,
    /// How it ended; `None` while it runs, and when it was interrupted.
    pub ended: Option<Outcome>,
    /// How many records there are.
    pub records: u64,
}

/// Every journal of a folder, the latest start first, those that cannot be read at the end. A folder that does not exist holds none.
///
/// # Errors
/// [`JournalError::Io`] when the folder itself cannot be read.
pub fn list(folder: &Path) -> Result<Vec<Listed>, JournalError> {
    let fail = |error| JournalError::io("list", folder)(error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut listed = Vec::new();
    for entry in entries {
        let name = entry.map_err(fail)?.file_name();
        if let Some(id) = name.to_str().and_then(task_of) {
            listed.push(Listed { id, summary: summarise(&folder.join(name)) });
        }
    }
    listed.sort_by(|a, b| {
        let started = |listed: &Listed| listed.summary.as_ref().ok().map(|summary| summary.started_at);
        started(b).cmp(&started(a)).then_with(|| a.id.cmp(&b.id))
    });
    Ok(listed)
}

fn summarise(path: &Path) -> Result<Summary, JournalError> {
    let fail = |error| JournalError::io("read", path)(error);
    let file = File::open(path).map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let mut input = BufReader::new(file);
    let empty = || JournalError::Empty { path: path.to_path_buf() };
    if read_header(&mut input, path)?.is_some() {
        return Err(empty());
    }
    let (mut records, mut last, mut next) = (0, 0, HEADER.len() as u64);
    let mut bytes = [0; HEAD_BYTES];
    while next + (HEAD_BYTES as u64) < size {
        input.read_exact(&mut bytes).map_err(fail)?;
        let Some(head) = Head::read(&bytes).filter(|head| head.is_possible()) else { break };
        let end = next + (HEAD_BYTES + head.length) as u64;
        if end > size {
            break;
        }
        (records, last, next) = (records + 1, next, end);
        input.seek_relative(i64::try_from(head.length).unwrap_or(i64::MAX)).map_err(fail)?;
    }
    let first = entry_at(&mut input, HEADER.len() as u64, path, 1)?.ok_or_else(empty)?;
    let Record::Started(start) = first.record else { return Err(empty()) };
    let last = entry_at(&mut input, last, path, records)?;
    Ok(Summary {
        id: start.task,
        prompt: start.prompt,
        model: start.model,
        protocol: start.protocol,
        workspace: start.workspace,
        started_at: first.at,
        last_at: last.as_ref().map_or(first.at, |last| last.at),
        ended: last.and_then(|last| match last.record {
            Record::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }),
        records,
    })
}

/// The entry whose frame begins at that byte; `None` where no whole frame is.
fn entry_at(input: &mut BufReader<File>, byte: u64, path: &Path, number: u64) -> Result<Option<Entry>, JournalError> {
    let fail = |error| JournalError::io("read", path)(error);
    let mut payload = Vec::new();
    input.seek(SeekFrom::Start(byte)).map_err(fail)?;
    if !next_payload(input, &mut payload).map_err(fail)? {
        return Ok(None);
    }
    let unknown = |reason| JournalError::Unknown { path: path.to_path_buf(), number, reason };
    frame::decode(&payload).map(Some).map_err(unknown)
}
