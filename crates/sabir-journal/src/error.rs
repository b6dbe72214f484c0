//! Why a journal cannot be used, with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a journal cannot be created, opened or read. After any of these the file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The task's name could not be the name of a file.
    #[error("`{id}` is no task: the name of a task has 1 to 128 letters, digits and `-`")]
    Name {
        /// The name.
        id: String,
    },
    /// There is no such journal.
    #[error("there is no task `{id}`: {path:?} does not exist")]
    Missing {
        /// The task.
        id: String,
        /// Where its journal would be.
        path: PathBuf,
    },
    /// There is a journal of that name already.
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
        /// The process, where the system tells.
        holder: Option<u32>,
        /// Its journal.
        path: PathBuf,
    },
    /// The file does not begin like a journal.
    #[error("{path:?} is no journal of Sabir, or its first line is damaged; it was left as it is")]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal has a later format.
    #[error("{path:?} was written by a newer Sabir (format {version}); use that one, the file was left as it is")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u64,
    },
    /// A record is whole, and yet this version cannot read it.
    #[error(
        "record {number} of {path:?} is unknown to this version of Sabir ({reason}); use the one that wrote it, the file was left as it is"
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The record, counted from 1.
        number: u64,
        /// What the reader says.
        reason: String,
    },
    /// A record is too large or too deep to be read back.
    #[error("record {number} cannot be written: {reason}")]
    Unfit {
        /// The record, counted from 1.
        number: u64,
        /// Why, in words.
        reason: String,
    },
    /// The journal holds no start of a task: it ended before the first record.
    #[error("{path:?} holds no task: it ended before the task was written down; it can be removed")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not {action} {path:?}: {source}")]
    Io {
        /// The verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Who works on a task, in words.
fn describe_lock_owner(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}

impl JournalError {
    /// For `map_err`: what was done, to which file.
    pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}
