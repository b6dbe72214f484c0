//! Writes a whole journal from existing records, for forked and imported tasks.
//!
//! The journal is written to a temporary file and renamed once all of it is on disk, so an incomplete one never exists
//! under the final name.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sabir_agent::TaskId;

use crate::disk::SystemDisk;
use crate::error::JournalError;
use crate::frame::{self, FormatVersion, FrameChain, FrameError, JournalEntry};
use crate::journal::{journal_path, make_folder, sync_folder};

/// Writes the journal of a new task with these entries, keeping the time of each, and creates the folder if missing.
/// Returns the path of the journal.
///
/// # Errors
/// [`JournalError::Name`], [`Exists`](JournalError::Exists), [`UnwritableRecord`](JournalError::UnwritableRecord) or [`Io`](JournalError::Io).
/// No journal is left behind then.
pub fn write_journal(
    folder: &Path,
    id: &TaskId,
    entries: &[JournalEntry],
) -> Result<PathBuf, JournalError> {
    let path = journal_path(folder, id)?;
    make_folder(&SystemDisk, folder)?;
    if path.exists() {
        return Err(JournalError::Exists {
            id: id.to_string(),
            path,
        });
    }
    // The leading dot and the suffix keep the temporary file out of the list of journals.
    let part = folder.join(format!(".{id}.part"));
    let written = write_entries(&part, entries)
        // Synced before it is renamed: otherwise the name could survive a power cut and the bytes
        // not.
        .and_then(|()| std::fs::rename(&part, &path).map_err(JournalError::io_error("name", &path)))
        .and_then(|()| sync_folder(&SystemDisk, folder));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.map(|()| path)
}

fn write_entries(part: &Path, entries: &[JournalEntry]) -> Result<(), JournalError> {
    let fail = |error| JournalError::io_error("write", part)(error);
    let file = OpenOptions::new()
        .write(true)
        // A file left by a crash is overwritten: it never became a journal.
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(part)
        .map_err(fail)?;
    let mut output = BufWriter::new(&file);
    let mut chain = FrameChain::new(FormatVersion::CURRENT);
    output.write_all(chain.version.header()).map_err(fail)?;
    let mut frame = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        let unfit = |error: FrameError| JournalError::UnwritableRecord {
            number,
            reason: error.to_string(),
        };
        let head =
            frame::encode_frame(&mut frame, chain, entry.at, &entry.record).map_err(unfit)?;
        chain = chain.advanced_by(head);
        output.write_all(&frame).map_err(fail)?;
    }
    output.flush().map_err(fail)?;
    drop(output);
    file.sync_all().map_err(fail)
}
