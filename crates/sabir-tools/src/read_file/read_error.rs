//! Defines the failures of `read_file`.

use sabir_workspace::WorkPath;

use crate::blocking::WorkerError;
use crate::file_error::FileError;
use crate::loaded_image::ImageLoadError;
use crate::text::{count_bytes, count_noun};

/// A failure to read one file, or all files of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The call names too many files.
    #[error("That is {}; read at most {max} at a time.", count_noun(*count, "file"))]
    TooManyFiles {
        /// The number of files.
        count: usize,
        /// The number that is allowed.
        max: usize,
    },
    /// The line numbers are not a range.
    #[error(
        "Lines {first} to {last} are not lines: start_line is at least 1, end_line at least start_line."
    )]
    InvalidRange {
        /// The first line as the model gave it.
        first: usize,
        /// The last line as the model gave it.
        last: usize,
    },
    /// The path leads to a folder.
    #[error("`{path}` is a folder. Use list_files for it.")]
    Folder {
        /// The folder.
        path: WorkPath,
    },
    /// The file is a picture that no model can be shown.
    #[error(
        "`{path}` is an image ({format}, {}), and cannot be shown: {reason}. Use execute_command to look into it, or to make \
         another one of it.",
        count_bytes(*size_bytes)
    )]
    UnusableImage {
        /// The file.
        path: WorkPath,
        /// The name of its format.
        format: &'static str,
        /// Its size.
        size_bytes: u64,
        /// The problem.
        reason: ImageLoadError,
    },
    /// Other pictures of the call took the room.
    #[error(
        "`{path}` is an image ({format}, {}), for which there was no room. Read it by itself.",
        count_bytes(*size_bytes)
    )]
    NoRoomForPicture {
        /// The file.
        path: WorkPath,
        /// The name of its format.
        format: &'static str,
        /// Its size.
        size_bytes: u64,
    },
    /// The file is a PDF.
    #[error(
        "`{path}` is a PDF ({}), which read_file cannot show. Use execute_command with `pdftotext -layout FILE -`.",
        count_bytes(*size_bytes)
    )]
    Pdf {
        /// The file.
        path: WorkPath,
        /// Its size.
        size_bytes: u64,
    },
    /// The file is not text.
    #[error(
        "`{path}` is a binary file ({}), which read_file cannot show. Use execute_command, with `file` or `xxd` for \
         instance.",
        count_bytes(*size_bytes)
    )]
    Binary {
        /// The file.
        path: WorkPath,
        /// Its size.
        size_bytes: u64,
    },
    /// The file ends before the first wanted line.
    #[error(
        "`{path}` has {}, so there is no line {first}. Give a smaller start_line.",
        count_noun(*total, "line")
    )]
    NoSuchLine {
        /// The file.
        path: WorkPath,
        /// The first wanted line.
        first: usize,
        /// The number of lines of the file.
        total: usize,
    },
    /// Other files of the call took the room.
    #[error(
        "`{path}` has {}, for which there was no room. Read it by itself.",
        count_noun(*total, "line")
    )]
    NoRoomForText {
        /// The file.
        path: WorkPath,
        /// The number of lines of the file.
        total: usize,
    },
    /// The path or the file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}
