//! Defines the failures that the file tools share.

use sabir_edit::{NotText, UnmappableCharacter};
use sabir_workspace::{WorkPath, WorkspaceError};

use crate::editor::EditorFailure;
use crate::missing_path::MissingPath;
use crate::text::{MAX_FILE_BYTES, count_bytes};

/// A failure to read or write a file for the model. The `Display` text is the tool's result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The path does not exist.
    #[error("{0}")]
    Missing(Box<MissingPath>),
    /// An edit needs a file that does not exist.
    #[error("{0} To make a new file use write_to_file.")]
    NothingToEdit(Box<FileError>),
    /// The file is not the version that the model knows, and the change is not shown: it is too
    /// long, or the old content is not known any more.
    #[error(
        "`{path}` changed on disk since you last read or wrote it, so nothing was written. Read it again, and redo the change on \
         what it holds now."
    )]
    Stale {
        /// The path inside the workspace.
        path: String,
    },
    /// The file is not the version that the model knows. The message shows the difference.
    #[error(
        "`{path}` changed on disk since you last read or wrote it, so nothing was written. What changed:\n{diff}\n[You know \
         it now: redo the change on what the file holds.]"
    )]
    Changed {
        /// The file.
        path: WorkPath,
        /// The difference between the known and the present content.
        diff: String,
    },
    /// Unsaved text would be lost, since the editor takes none.
    #[error(
        "`{path}` has changes in the user's editor that are not saved, and the editor takes no text from here, so nothing was \
         written. Ask the user to save or discard them."
    )]
    UnsavedOnly {
        /// The file.
        path: WorkPath,
    },
    /// Unsaved text would be deleted.
    #[error(
        "`{path}` has changes in the user's editor that are not saved, so it was not deleted. Ask the user to save or discard them."
    )]
    UnsavedDeletion {
        /// The file.
        path: WorkPath,
    },
    /// One of several files has unsaved text, and the editor cannot change all of them or none.
    #[error(
        "`{path}` has changes in the user's editor that are not saved, so it cannot be changed together with other files, and nothing \
         was written. Change it in a call of its own."
    )]
    UnsavedAmongOthers {
        /// The file.
        path: WorkPath,
    },
    /// The editor did not change unsaved text.
    #[error(
        "`{path}` has changes in the user's editor that are not saved, and the editor did not take the new text: {error}. Ask the \
         user to save or discard their changes."
    )]
    EditorFailed {
        /// The file.
        path: WorkPath,
        /// The reason.
        #[source]
        error: EditorFailure,
    },
    /// The path of a write leads elsewhere than when the call was checked.
    #[error(
        "`{path}` now leads to `{now}`, and to `{approved}` when the call was approved. Nothing was written. Name the \
         file by its real path."
    )]
    Redirected {
        /// The path as the model wrote it.
        path: String,
        /// The file that it leads to now.
        now: WorkPath,
        /// The file that it led to when the call was checked.
        approved: WorkPath,
    },
    /// The file is larger than the tools edit.
    #[error(
        "`{path}` has {}, and files up to {} can be edited. Use execute_command.",
        count_bytes(*size_bytes),
        count_bytes(MAX_FILE_BYTES as u64)
    )]
    TooLarge {
        /// The file.
        path: WorkPath,
        /// Its size.
        size_bytes: u64,
    },
    /// The file is not text, so parts of it cannot be edited.
    #[error("`{path}` cannot be edited: {reason}. Use execute_command.")]
    Binary {
        /// The file.
        path: WorkPath,
        /// The evidence.
        reason: NotText,
    },
    /// The new content has a character that the encoding of the file does not have.
    #[error(
        "`{path}`: {reason}. Nothing was written. Use characters that it has, or first convert the file to UTF-8 with \
         execute_command (`iconv`)."
    )]
    Unencodable {
        /// The file.
        path: WorkPath,
        /// The character and the encoding.
        reason: UnmappableCharacter,
    },
    /// Any other error of the workspace.
    #[error("{0}.")]
    Workspace(WorkspaceError),
}
