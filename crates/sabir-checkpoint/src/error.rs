//! Defines the errors of checkpoints.

use std::io;
use std::path::{Path, PathBuf};

use sabir_workspace::WorkspaceError;

/// An error while a checkpoint is taken, found or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store, or the workspace folder as a whole, could not be read or written: a full disk, a
    /// missing permission.
    #[error("could not {action} `{}`: {source}", path.display())]
    Io {
        /// The verb: `read`, `write`, `lock` and so on.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The store was written by another version of this program.
    #[error("`{}` has a format that this version does not know; use the version that wrote it, or delete its folder", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The caller cancelled the operation. Nothing partial is left.
    #[error("the checkpoint was cancelled")]
    Cancelled,
    /// No checkpoint of that task is kept here.
    #[error("no checkpoint of the task {task} is kept for this folder")]
    NoTask {
        /// The task.
        task: String,
    },
    /// The task has no call of that number.
    #[error("the task {task} has no changing call {number}; its last one is {last}")]
    NoCall {
        /// The task.
        task: String,
        /// The requested number.
        number: u32,
        /// The greatest number that exists.
        last: u32,
    },
    /// The checkpoint was removed to keep the store small.
    #[error(
        "the checkpoints of the task {task} up to call {through} were removed to keep the store under its cap"
    )]
    Pruned {
        /// The task.
        task: String,
        /// The last call whose checkpoint was removed.
        through: u32,
    },
    /// The task has changed nothing, or too few times, or its changes are undone already.
    #[error(
        "the task {task} has no changing call left to undo, or not so many; `sabir checkpoints` lists them"
    )]
    NothingToUndo {
        /// The task.
        task: String,
    },
    /// The files have changed since the plan was made.
    #[error(
        "the files changed since the plan was shown, so nothing was done; look at the plan again"
    )]
    Stale,
    /// The path is in no checkpoint since that call.
    #[error("`{}` is in no checkpoint since that call", path.display())]
    UnknownPath {
        /// The path in the workspace.
        path: PathBuf,
    },
    /// An object is missing from the store, or does not match its id.
    #[error("the store of checkpoints is damaged: the content {object} is missing or wrong")]
    Damaged {
        /// The id of the object, in hexadecimal digits.
        object: String,
    },
    /// A path is not a valid path of the workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl CheckpointError {
    /// Returns a function for `map_err` that adds the action and the path to an I/O error.
    pub(super) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path: path.clone(),
            source,
        }
    }
}
