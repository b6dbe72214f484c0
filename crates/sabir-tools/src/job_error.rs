//! Defines the failures of the tools that read and stop jobs.

use sabir_workspace::OutputError;

use crate::blocking::WorkerError;
use crate::text::capitalize_first;

/// A failure to read the output of a command, or to stop a job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// Arguments that need the number of an output came without it.
    #[error(
        "Give output, the number of the output to read. Without arguments, all outputs are listed."
    )]
    NoNumber,
    /// A search was limited to some lines.
    #[error("Search goes through all lines: give it without start_line and end_line.")]
    SearchWithRange,
    /// The line numbers are not a range.
    #[error(
        "Lines {first} to {last} are not lines: start_line is at least 1, end_line at least start_line."
    )]
    InvalidRange {
        /// The first line.
        first: u64,
        /// The last line.
        last: u64,
    },
    /// The output ends before the first wanted line.
    #[error("Output {number} has {lines}, so there is no line {first}. Give a smaller start_line.")]
    NoSuchLine {
        /// The number of the output.
        number: u32,
        /// The first wanted line.
        first: u64,
        /// The number of lines of the output, with its noun.
        lines: String,
    },
    /// No job has this number.
    #[error("There is no job {number}. read_command_output without arguments lists all jobs.")]
    NoSuchJob {
        /// The number as the model gave it.
        number: u32,
    },
    /// Any other error of the job manager.
    #[error("{}.", capitalize_first(&.0.to_string()))]
    Output(#[from] OutputError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}
