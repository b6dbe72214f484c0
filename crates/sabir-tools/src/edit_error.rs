//! Defines the failures of the tools that change files.

use std::fmt;

use sabir_edit::EditFault;
use sabir_workspace::WorkPath;

use crate::blocking::WorkerError;
use crate::file_error::FileError;

/// The number of faults that a failure shows.
const MAX_FAULTS: usize = 10;

/// A failure to change files. The `Display` text is the tool's result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    /// The edit of one file does not fit the file, or is malformed.
    #[error("Nothing was changed in `{path}`:{faults}")]
    Faulty {
        /// The file.
        path: WorkPath,
        /// All faults of the edit.
        faults: FaultList,
    },
    /// The edit leaves the file as it is.
    #[error("`{path}` holds exactly that already; nothing was written.")]
    NoEffect {
        /// The file.
        path: WorkPath,
    },
    /// The patch is malformed.
    #[error("The patch was not applied:{0}")]
    MalformedPatch(FaultList),
    /// Sections of the patch cannot be applied, one failure each.
    #[error("The patch was not applied, and no file was changed:\n{}", join_lines(.0))]
    Patch(Vec<PatchError>),
    /// The files could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// A failure of one section of a patch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// A file to add exists.
    #[error(
        "`{path}` exists already, so it cannot be added. Use `*** Update File`, or write_to_file for the whole of it."
    )]
    AddedExists {
        /// The file.
        path: WorkPath,
    },
    /// Something exists where a file would be moved to.
    #[error("`{to}` exists already, so `{path}` cannot be moved there.")]
    MovedOnto {
        /// The file to move.
        path: WorkPath,
        /// The path that is taken.
        to: WorkPath,
    },
    /// The hunks do not fit the file.
    #[error("`{path}`:{faults}")]
    Faulty {
        /// The file.
        path: WorkPath,
        /// All faults of the section.
        faults: FaultList,
    },
    /// The section leaves the file as it is.
    #[error("`{path}` holds exactly that already; nothing was written.")]
    NoEffect {
        /// The file.
        path: WorkPath,
    },
    /// Two sections change the same file, perhaps by different paths.
    #[error("`{path}` is changed twice. Put all changes of a file under one `*** Update File`.")]
    ChangedTwice {
        /// The file.
        path: WorkPath,
    },
    /// The parser knows an action that this tool does not.
    #[error("`{path}`: this kind of change is not known.")]
    UnknownAction {
        /// The path as the model wrote it.
        path: String,
    },
    /// The file could not be read, or may not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The faults of one edit. Displays each on a line, with the lines of the text that help.
#[derive(Debug)]
pub(crate) struct FaultList(pub(crate) Vec<EditFault>);

impl fmt::Display for FaultList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(MAX_FAULTS)
            .try_for_each(|fault| write!(f, "\n{fault}"))?;
        match self.0.len().checked_sub(MAX_FAULTS) {
            Some(more @ 1..) => write!(f, "\n[{more} more of the kind.]"),
            _ => Ok(()),
        }
    }
}

/// Joins failures, one per line.
fn join_lines(errors: &[PatchError]) -> String {
    let lines: Vec<_> = errors.iter().map(PatchError::to_string).collect();
    lines.join("\n")
}
