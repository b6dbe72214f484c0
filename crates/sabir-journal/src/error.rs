//! Errors of a journal, each with advice about what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::frame::FrameError;

/// An error in creating, opening or reading a journal. The file is unchanged after any of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The task's id cannot be a part of a file name.
    #[error("`{id}` is not a task: the name of a task has 1 to 128 letters, digits and `-`")]
    Name {
        /// The id, shortened.
        id: String,
    },
    /// There is no such journal.
    #[error("there is no task `{id}`: {path:?} does not exist")]
    Missing {
        /// The task.
        id: String,
        /// The path at which its journal was expected.
        path: PathBuf,
    },
    /// A journal of that name exists already.
    #[error("there is a task `{id}` already, in {path:?}")]
    Exists {
        /// The task.
        id: String,
        /// Its journal.
        path: PathBuf,
    },
    /// Another process works on the task.
    #[error("the task `{id}` is in use by {}, which has {path:?} open; end that one first", describe_lock_owner(*holder))]
    Locked {
        /// The task.
        id: String,
        /// The id of that process, if the system tells.
        holder: Option<u32>,
        /// Its journal.
        path: PathBuf,
    },
    /// The file does not begin like a journal.
    #[error(
        "{path:?} is not a journal of Sabir, or its first line is damaged; it was left as it is"
    )]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The first record, which describes the task, is damaged.
    #[error(
        "the first record of {path:?} is damaged, so the task can neither be read nor continued; the file was left as it is"
    )]
    DamagedStart {
        /// The file.
        path: PathBuf,
    },
    /// The journal has a later format.
    #[error(
        "{path:?} was written by a newer Sabir (format {version}); use that one, the file was left as it is"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u64,
    },
    /// A record is undamaged, but this version cannot read it.
    #[error(
        "record {number} of {path:?} is unknown to this version of Sabir ({reason}); use the one that wrote it, the file was left as it is"
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The record, counted from 1.
        number: u64,
        /// The reader's error text.
        reason: String,
    },
    /// A record is too large or too deep to be read back.
    #[error("record {number} cannot be written: {reason}")]
    UnwritableRecord {
        /// The record, counted from 1.
        number: u64,
        /// The reason, in words.
        reason: String,
    },
    /// The journal has no records.
    #[error("{path:?} holds no task: it ends before its first record; it can be removed")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("could not {action} {path:?}: {source}")]
    Io {
        /// The verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Describes the process that holds the lock.
fn describe_lock_owner(holder: Option<u32>) -> String {
    holder.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
}

impl JournalError {
    /// Returns a function for `map_err` that adds the action and the path to an I/O error.
    pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    /// Makes the error of a record that cannot be decoded; `number` counts from 1, and 0 means unknown.
    pub(crate) fn unknown_record(path: &Path, number: u64, error: &FrameError) -> Self {
        Self::Unknown {
            path: path.to_path_buf(),
            number,
            reason: error.to_string(),
        }
    }
}
