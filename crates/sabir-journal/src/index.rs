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

use crate::disk::{Disk, OpenMode, SystemDisk};
use crate::error::JournalError;
use crate::frame::{self, FormatVersion, FrameHeader, HEADER_BYTES, JournalEntry, PAYLOAD_START};
use crate::journal::{journal_path, open_journal_file, task_id_from_file_name};
use crate::recovery::{HeaderLine, read_header, scan_journal};

/// A journal in a folder.
#[derive(Debug)]
pub struct JournalListing {
    /// The task's id, from the name of the file.
    pub id: TaskId,
    /// The summary of the task, or the reason why its journal cannot be read.
    pub summary: Result<TaskSummary, JournalError>,
}

/// A summary of a task, from its first and last record.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSummary {
    /// The task's id, from its `started` record.
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
        HeaderLine::Torn(_) => Ok(0),
        HeaderLine::Whole(version) => Ok(walk_frames(&mut input, size, version, &path)?.0),
    }
}

/// Reads the first and the last record of a journal. Damage between them is not noticed.
fn summarize_journal(path: &Path) -> Result<TaskSummary, JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let file = File::open(path).map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let mut input = BufReader::new(file);
    let empty = || JournalError::Empty {
        path: path.to_path_buf(),
    };
    let HeaderLine::Whole(version) = read_header(&mut input, path)? else {
        return Err(empty());
    };
    let Some(first) = read_entry_at(&mut input, HEADER_BYTES as u64, version, path, 1)? else {
        // Either no record was written, or the first is damaged; a damaged journal must not count
        // as empty.
        let file = SystemDisk.open_file(path, OpenMode::Read).map_err(fail)?;
        scan_journal(file.as_ref(), path)?;
        return Err(empty());
    };
    // Every task begins with this record, so a journal without it holds no task that could resume.
    let Record::Started(start) = first.record else {
        return Err(empty());
    };
    let last = match find_last_frame(input.get_ref(), size, version).map_err(fail)? {
        Some(byte) => read_entry_at(&mut input, byte, version, path, 0)?,
        None => {
            input
                .seek(SeekFrom::Start(HEADER_BYTES as u64))
                .map_err(fail)?;
            let (records, byte) = walk_frames(&mut input, size, version, path)?;
            read_entry_at(&mut input, byte, version, path, records)?
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
            // Only as the last record: a task that was resumed after its end has records behind it.
            Record::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }),
        from: start.from,
    })
}

/// Finds the offset of the frame that ends with the file; `None` if there is none within `TAIL_BYTES`.
fn find_last_frame(file: &File, size: u64, version: FormatVersion) -> std::io::Result<Option<u64>> {
    let from = size.saturating_sub(TAIL_BYTES).max(HEADER_BYTES as u64);
    let mut tail = vec![0; usize::try_from(size.saturating_sub(from)).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    // A payload could contain bytes that look like a frame, but their length and checksum match the
    // end of the file only with a chance of one in 2^32. The cheap test for the start of a payload
    // comes first. The search runs backwards, because the last frame is usually short.
    let begins = (0..tail.len()).rev().find(|at| {
        let Some((bytes, payload)) = tail
            .get(*at..)
            .and_then(|rest| rest.split_at_checked(version.head_bytes()))
        else {
            return false;
        };
        payload.starts_with(PAYLOAD_START)
            && FrameHeader::parse(bytes, version)
                .is_some_and(|head| head.length == payload.len() && head.matches_payload(payload))
    });
    Ok(begins.map(|at| from + at as u64))
}

/// Counts the frames that are whole by their heads, and returns that number and the offset of the last one. `input` must be positioned after the first line.
fn walk_frames(
    input: &mut BufReader<File>,
    size: u64,
    version: FormatVersion,
    path: &Path,
) -> Result<(u64, u64), JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let mut records = 0;
    let mut last = 0;
    let mut next = HEADER_BYTES as u64;
    let mut bytes = vec![0; version.head_bytes()];
    // Strictly less: every payload has at least one byte. Checksums are left out, since they would
    // mean reading the whole file.
    while next + (version.head_bytes() as u64) < size {
        input.read_exact(&mut bytes).map_err(fail)?;
        let Some(head) = FrameHeader::parse(&bytes, version).filter(|head| head.is_possible())
        else {
            break;
        };
        let end = next + (version.head_bytes() + head.length) as u64;
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
    version: FormatVersion,
    path: &Path,
    number: u64,
) -> Result<Option<JournalEntry>, JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let mut payload = Vec::new();
    input.seek(SeekFrom::Start(byte)).map_err(fail)?;
    if frame::read_frame(input, &mut payload, version)
        .map_err(fail)?
        .is_none()
    {
        return Ok(None);
    }
    frame::decode_payload(&payload)
        .map(Some)
        .map_err(|error| JournalError::unknown_record(path, number, &error))
}
