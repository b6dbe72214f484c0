//! What can go wrong with checkpoints, as data with sentences.

use std::io;
use std::path::{Path, PathBuf};

use sabir_workspace::WorkspaceError;

/// Why a checkpoint could not be taken, found or gone back to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store, or the workspace folder as a whole, could not be read or written: a full disk, a missing permission.
    #[error("could not {action} `{}`: {source}", path.display())]
    Io {
        /// The verb: `read`, `write`, `lock`…
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The store was written by another version of this program.
    #[error("`{}` has a format that this version does not know; use the version that wrote it, or delete its folder", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// Whoever asked for it does not want it any more. Nothing half is left.
    #[error("the checkpoint was cancelled")]
    Cancelled,
    /// No checkpoint of that task is kept here.
    #[error("no checkpoint of the task {task} is kept for this folder")]
    NoTask {
        /// The task.
        task: String,
    },
    /// The task has no such call.
    #[error("the task {task} has no changing call {number}; its last one is {last}")]
    NoCall {
        /// The task.
        task: String,
        /// What was asked for.
        number: u32,
        /// The greatest number there is.
        last: u32,
    },
    /// The checkpoint was there, and was removed to keep the store small.
    #[error("the checkpoints of the task {task} up to call {through} were removed to keep the store under its cap")]
    Pruned {
        /// The task.
        task: String,
        /// The last call whose checkpoint was removed.
        through: u32,
    },
    /// The task has changed nothing, or not so often, or what it changed has been gone back on.
    #[error("the task {task} has no changing call left to go back on, or not so many; `sabir checkpoints` lists them")]
    NothingToUndo {
        /// The task.
        task: String,
    },
    /// The files are no longer what the plan saw.
    #[error("the files changed since the plan was shown, so nothing was done; look at it once more")]
    Stale,
    /// A path is not known at that call.
    #[error("`{}` is in no checkpoint since that call", path.display())]
    UnknownPath {
        /// The path in the workspace.
        path: PathBuf,
    },
    /// What the store should hold is not there, or is not what was put in.
    #[error("the store of checkpoints is damaged: the content {object} is missing or wrong")]
    Damaged {
        /// The object, in hexadecimal digits.
        object: String,
    },
    /// A path is no path of the workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl CheckpointError {
    /// For `map_err`: the action and the file are known before the error is.
    pub(super) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path: path.clone(), source }
    }
}
