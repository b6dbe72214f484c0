//! The tasks of a folder, read from the journals themselves.
//!
//! There is no file that lists them, since that could disagree. Of each journal the first record is read, and the last, which is looked
//! for from the end of the file: it is the frame whose length leads to that very end, with a checksum that fits. Only where the end
//! is torn or damaged, or the last record is a large one, the heads of all frames are read.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sabir_agent::{Record, TaskId, TaskOrigin, TaskOutcome};
use sabir_call::ToolProtocol;

use crate::error::JournalError;
use crate::frame::{self, FrameHeader, HEAD_BYTES, HEADER, JournalEntry, PAYLOAD_START};
use crate::journal::{journal_path, open_journal_file, task_id_from_file_name};
use crate::recovery::{next_payload, read_header};

/// A journal in a folder.
#[derive(Debug)]
pub struct JournalListing {
    /// The task, by the name of the file.
    pub id: TaskId,
    /// What it is about, or why its journal cannot be read.
    pub summary: Result<TaskSummary, JournalError>,
}

/// What a task is about.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSummary {
    /// The task, by its own start.
    pub id: TaskId,
    /// The user's first words, in full.
    pub prompt: String,
    /// The model's name as the user gave it.
    pub model: String,
    /// How calls are spelled.
    pub protocol: ToolProtocol,
    /// The folder in which it works.
    pub workspace: String,
    /// When it began, in milliseconds since 1970.
    pub started_at: u64,
    /// When the last record was written, in milliseconds since 1970.
    pub last_at: u64,
    /// How it ended; `None` while it runs, and when it was interrupted.
    pub ended: Option<TaskOutcome>,
    /// Where it comes from, if it is a fork or was imported.
    pub from: Option<TaskOrigin>,
}

/// How far from the end of a journal its last record is looked for, in bytes.
const TAIL_BYTES: u64 = 16 << 10;

/// Every journal of a folder, the latest start first, those that cannot be read at the end. A folder that does not exist holds none.
///
/// # Errors
/// [`JournalError::Io`] when the folder itself cannot be read.
pub fn list_journals(folder: &Path) -> Result<Vec<JournalListing>, JournalError> {
    let with_summary = |id| {
        let summary = journal_path(folder, &id).and_then(|path| summarize_journal(&path));
        JournalListing { id, summary }
    };
    let mut listed: Vec<_> = list_task_ids(folder)?.into_iter().map(with_summary).collect();
    listed.sort_by(|a, b| {
        let started = |listed: &JournalListing| listed.summary.as_ref().ok().map(|summary| summary.started_at);
        started(b).cmp(&started(a)).then_with(|| a.id.cmp(&b.id))
    });
    Ok(listed)
}

/// The tasks that have a journal in a folder, sorted; the journals themselves are not read.
///
/// # Errors
/// [`JournalError::Io`] when the folder cannot be read; one that does not exist holds none.
pub fn list_task_ids(folder: &Path) -> Result<Vec<TaskId>, JournalError> {
    let fail = |error| JournalError::io_error("list", folder)(error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(fail)?.file_name().to_str().and_then(task_id_from_file_name));
    }
    names.sort();
    Ok(names)
}

/// How many records the journal of a task holds. The heads of all frames are read.
///
/// # Errors
/// Those of [`read_journal`](crate::read_journal), but that records of an unknown kind are counted.
pub fn count_records(folder: &Path, id: &TaskId) -> Result<u64, JournalError> {
    let path = journal_path(folder, id)?;
    let file = open_journal_file(id, &path)?;
    let size = file.metadata().map_err(JournalError::io_error("read", &path))?.len();
    let mut input = BufReader::new(file);
    match read_header(&mut input, &path)? {
        Some(_) => Ok(0),
        None => Ok(walk_frames(&mut input, size, &path)?.0),
    }
}

fn summarize_journal(path: &Path) -> Result<TaskSummary, JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let file = File::open(path).map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let mut input = BufReader::new(file);
    let empty = || JournalError::Empty { path: path.to_path_buf() };
    if read_header(&mut input, path)?.is_some() {
        return Err(empty());
    }
    let first = read_entry_at(&mut input, HEADER.len() as u64, path, 1)?.ok_or_else(empty)?;
    let Record::Started(start) = first.record else { return Err(empty()) };
    let last = match find_last_frame(input.get_ref(), size).map_err(fail)? {
        Some(byte) => read_entry_at(&mut input, byte, path, 0)?,
        None => {
            input.seek(SeekFrom::Start(HEADER.len() as u64)).map_err(fail)?;
            let (records, byte) = walk_frames(&mut input, size, path)?;
            read_entry_at(&mut input, byte, path, records)?
        }
    };
    Ok(TaskSummary {
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
        from: start.from,
    })
}

/// Where the frame begins that ends with the file; `None` where none does, or it begins too far away.
fn find_last_frame(file: &File, size: u64) -> std::io::Result<Option<u64>> {
    let from = size.saturating_sub(TAIL_BYTES).max(HEADER.len() as u64);
    let mut tail = vec![0; usize::try_from(size.saturating_sub(from)).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    let begins = (0..tail.len()).rev().find(|at| {
        let Some((bytes, payload)) = tail.get(*at..).and_then(|rest| rest.split_at_checked(HEAD_BYTES)) else {
            return false;
        };
        payload.starts_with(PAYLOAD_START)
            && FrameHeader::parse(bytes)
                .is_some_and(|head| head.length == payload.len() && head.matches_payload(payload))
    });
    Ok(begins.map(|at| from + at as u64))
}

/// How many frames are whole by their heads, and where the last of them begins. The input stands behind the first line.
fn walk_frames(input: &mut BufReader<File>, size: u64, path: &Path) -> Result<(u64, u64), JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let (mut records, mut last, mut next) = (0, 0, HEADER.len() as u64);
    let mut bytes = [0; HEAD_BYTES];
    while next + (HEAD_BYTES as u64) < size {
        input.read_exact(&mut bytes).map_err(fail)?;
        let Some(head) = FrameHeader::parse(&bytes).filter(|head| head.is_possible()) else { break };
        let end = next + (HEAD_BYTES + head.length) as u64;
        if end > size {
            break;
        }
        (records, last, next) = (records + 1, next, end);
        input.seek_relative(i64::try_from(head.length).unwrap_or(i64::MAX)).map_err(fail)?;
    }
    Ok((records, last))
}

/// The entry whose frame begins at that byte; `None` where no whole frame is.
fn read_entry_at(
    input: &mut BufReader<File>,
    byte: u64,
    path: &Path,
    number: u64,
) -> Result<Option<JournalEntry>, JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let mut payload = Vec::new();
    input.seek(SeekFrom::Start(byte)).map_err(fail)?;
    if !next_payload(input, &mut payload).map_err(fail)? {
        return Ok(None);
    }
    let unknown = |reason| JournalError::Unknown { path: path.to_path_buf(), number, reason };
    frame::decode_payload(&payload).map(Some).map_err(unknown)
}
