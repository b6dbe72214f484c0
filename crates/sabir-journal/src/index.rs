//! Lists the tasks of a folder by reading the journals themselves.
//!
//! There is no index file, because it could disagree with the journals. Only the first and the last record of each journal
//! are read. The last one is searched backwards from the end of the file: it is the frame whose length reaches exactly to
//! the end and whose checksum matches. If there is none within reach (a torn or damaged end, or a large last record), the
//! heads of all frames are read instead.

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
    /// The summary of the task, or the reason why its journal cannot be read.
    pub summary: Result<TaskSummary, JournalError>,
}

/// A summary of a task, from its first and last record.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSummary {
    /// The task, by its `started` record.
    pub id: TaskId,
    /// The user's first words, in full.
    pub prompt: String,
    /// The model's name as the user gave it.
    pub model: String,
    /// The protocol in which calls are written.
    pub protocol: ToolProtocol,
    /// The folder in which the task works.
    pub workspace: String,
    /// The time of the first record, in milliseconds since 1970.
    pub started_at: u64,
    /// The time of the last record, in milliseconds since 1970.
    pub last_at: u64,
    /// The outcome; `None` while the task runs, and if it was interrupted.
    pub ended: Option<TaskOutcome>,
    /// The origin of a forked or imported task.
    pub from: Option<TaskOrigin>,
}

/// The distance from the end of a journal within which its last record is searched, in bytes.
const TAIL_BYTES: u64 = 16 << 10;

/// Lists every journal of a folder: the latest start first, unreadable ones at the end. A folder that does not exist has no
/// journals.
///
/// # Errors
/// [`JournalError::Io`] if the folder itself cannot be read.
pub fn list_journals(folder: &Path) -> Result<Vec<JournalListing>, JournalError> {
    let with_summary = |id| {
        let summary = journal_path(folder, &id).and_then(|path| summarize_journal(&path));
        JournalListing { id, summary }
    };
    let mut listed: Vec<_> = list_task_ids(folder)?
        .into_iter()
        .map(with_summary)
        .collect();
    listed.sort_by(|a, b| {
        let started = |listed: &JournalListing| {
            listed
                .summary
                .as_ref()
                .ok()
                .map(|summary| summary.started_at)
        };
        started(b).cmp(&started(a)).then_with(|| a.id.cmp(&b.id))
    });
    Ok(listed)
}

/// Lists the ids of the tasks that have a journal in a folder, sorted, without reading the journals.
///
/// # Errors
/// [`JournalError::Io`] if the folder cannot be read; a folder that does not exist has no journals.
pub fn list_task_ids(folder: &Path) -> Result<Vec<TaskId>, JournalError> {
    let fail = |error| JournalError::io_error("list", folder)(error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(
            entry
                .map_err(fail)?
                .file_name()
                .to_str()
                .and_then(task_id_from_file_name),
        );
    }
    names.sort();
    Ok(names)
}

/// Counts the records in the journal of a task, by reading the heads of all frames.
///
/// # Errors
/// The errors of [`read_journal`](crate::read_journal), except that records of an unknown kind are counted.
pub fn count_records(folder: &Path, id: &TaskId) -> Result<u64, JournalError> {
    let path = journal_path(folder, id)?;
    let file = open_journal_file(id, &path)?;
    let size = file
        .metadata()
        .map_err(JournalError::io_error("read", &path))?
        .len();
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
    let empty = || JournalError::Empty {
        path: path.to_path_buf(),
    };
    if read_header(&mut input, path)?.is_some() {
        return Err(empty());
    }
    let first = read_entry_at(&mut input, HEADER.len() as u64, path, 1)?.ok_or_else(empty)?;
    let Record::Started(start) = first.record else {
        return Err(empty());
    };
    let last = match find_last_frame(input.get_ref(), size).map_err(fail)? {
        Some(byte) => read_entry_at(&mut input, byte, path, 0)?,
        None => {
            input
                .seek(SeekFrom::Start(HEADER.len() as u64))
                .map_err(fail)?;
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

/// Finds the offset of the frame that ends with the file; `None` if there is none within `TAIL_BYTES`.
fn find_last_frame(file: &File, size: u64) -> std::io::Result<Option<u64>> {
    let from = size.saturating_sub(TAIL_BYTES).max(HEADER.len() as u64);
    let mut tail = vec![0; usize::try_from(size.saturating_sub(from)).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    // A payload could contain bytes that look like a frame, but not one whose length and checksum match up to the very end
    // of the file, save by a chance of one in 2^32. The cheap test for the start of a payload comes first.
    let begins = (0..tail.len()).rev().find(|at| {
        let Some((bytes, payload)) = tail
            .get(*at..)
            .and_then(|rest| rest.split_at_checked(HEAD_BYTES))
        else {
            return false;
        };
        payload.starts_with(PAYLOAD_START)
            && FrameHeader::parse(bytes)
                .is_some_and(|head| head.length == payload.len() && head.matches_payload(payload))
    });
    Ok(begins.map(|at| from + at as u64))
}

/// Counts the frames that are whole by their heads, and returns that number and the offset of the last one. `input` must be positioned after the first line.
fn walk_frames(
    input: &mut BufReader<File>,
    size: u64,
    path: &Path,
) -> Result<(u64, u64), JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let mut records = 0;
    let mut last = 0;
    let mut next = HEADER.len() as u64;
    let mut bytes = [0; HEAD_BYTES];
    while next + (HEAD_BYTES as u64) < size {
        input.read_exact(&mut bytes).map_err(fail)?;
        let Some(head) = FrameHeader::parse(&bytes).filter(|head| head.is_possible()) else {
            break;
        };
        let end = next + (HEAD_BYTES + head.length) as u64;
        if end > size {
            break;
        }
        records += 1;
        last = next;
        next = end;
        input
            .seek_relative(i64::try_from(head.length).unwrap_or(i64::MAX))
            .map_err(fail)?;
    }
    Ok((records, last))
}

/// Reads the entry whose frame begins at this offset; `None` if there is no whole frame.
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
    frame::decode_payload(&payload)
        .map(Some)
        .map_err(|error| JournalError::unknown_record(path, number, &error))
}
