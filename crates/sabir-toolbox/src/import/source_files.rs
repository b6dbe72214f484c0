//! Reads the files of another program's history: the only module of the crate that opens files itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::ImportError;
use super::record_builder::ImportNotes;

/// Returns the path with links resolved, or as it is if that is not possible.
pub(super) fn resolve_path(path: &Path) -> PathBuf {
    // A path that does not exist is reported later, in the user's spelling.
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads a text file, replacing and noting invalid UTF-8.
pub(super) fn read_text_lossy(path: &Path, notes: &mut ImportNotes) -> Result<String, ImportError> {
    let bytes = fs::read(path).map_err(|error| ImportError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.add_count("bytes that are not UTF-8, which were replaced: files", 1);
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// Reads a file with one JSON value.
pub(super) fn read_json(path: &Path, notes: &mut ImportNotes) -> Result<Value, ImportError> {
    serde_json::from_str(&read_text_lossy(path, notes)?).map_err(|error| ImportError::NotJson {
        path: path.to_owned(),
        error,
    })
}

/// Returns the modification time of a file in milliseconds since 1970, for a history without times; 0 if it is not known.
pub(super) fn modified_at(path: &Path, notes: &mut ImportNotes) -> u64 {
    notes.add_count(
        "histories without times, which begin when the file was written",
        1,
    );
    // Some file systems have no modification time; a time before 1970 counts as none.
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
