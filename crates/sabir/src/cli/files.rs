//! The command line of changes to files: edits, undo and restore.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ReportFormat;

/// Arguments that select calls of a task.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The folder in which the task worked.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, or the beginning of it; by default the newest task of this folder. A single number of up to three digits is
    /// N.
    pub(crate) task: Option<String>,
    /// The number of the last changing calls.
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
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, or the beginning of it, and the number of a call, as `sabir checkpoints`
    /// lists them; without a task the newest one of this folder: `@3`.
    #[arg(value_name = "TASK@N")]
    pub(crate) call: String,
    /// Files and folders, relative to the folder in which the task worked; by default everything that has changed since.
    pub(crate) paths: Vec<String>,
}

/// Flags that skip questions.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConsentFlags {
    /// Do it without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Overwrite files that others have changed since. Their current content is kept in the checkpoint that is taken first.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EditArguments {
    /// The file. For a patch, it may be the folder that its paths are relative to. A missing file
    /// is created if the edit creates one.
    pub(crate) file: PathBuf,
    /// The format of the edit. By default it is recognized by the text, except for whole files.
    #[arg(long, value_enum)]
    pub(crate) format: Option<EditFormat>,
    /// Write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// The format of an edit.
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
