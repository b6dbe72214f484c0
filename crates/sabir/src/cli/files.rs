//! The command line of what becomes of files: edits, and going back.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ReportFormat;

/// Which calls of which task.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The folder in which the task worked.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, or the beginning of it; without it the newest task of this folder. A number of up to three digits alone
    /// is N.
    pub(crate) task: Option<String>,
    /// How many of its last changing calls.
    pub(crate) count: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    pub(crate) history: HistoryArguments,
    #[command(flatten)]
    pub(crate) consent: ConsentFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// The folder in which the task worked.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) consent: ConsentFlags,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, or the beginning of it, and the number of a call, as `sabir checkpoints` lists them; without a task the
    /// newest one of this folder: `@3`.
    #[arg(value_name = "TASK@N")]
    pub(crate) call: String,
    /// Files and folders, from the folder in which the task worked; without any, all that was changed since.
    pub(crate) paths: Vec<String>,
}

/// What may be done without asking.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConsentFlags {
    /// Do it without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Go over files that somebody else has changed since. What they hold now is in the checkpoint that is taken first.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EditArguments {
    /// The file. For a patch, it may be the folder that its paths begin in. A missing file is made where the edit makes one.
    pub(crate) file: PathBuf,
    /// The format of the edit. Without it the text tells, but for whole files.
    #[arg(long, value_enum)]
    pub(crate) format: Option<EditFormat>,
    /// Write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// How an edit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EditFormat {
    /// Blocks between `------- SEARCH` and `+++++++ REPLACE`, or `<<<<<<< SEARCH` and `>>>>>>> REPLACE`.
    SearchReplace,
    /// `*** Begin Patch`.
    ApplyPatch,
    /// A JSON object with `old_string` and `new_string`.
    StringReplace,
    /// The whole new content.
    WholeFile,
}
