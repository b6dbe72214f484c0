//! The command line of journals: what is shown, forked, exported and imported.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CheckArguments, OutputFormat, TaskOptions};

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// How to print it. `events` prints the records as they are, one a line.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Only these records: `3..7`, `3..`, `..7` or `5`.
    #[arg(long, value_name = "RANGE")]
    pub(crate) records: Option<String>,
    /// Go on with what comes, as long as a process works on the task.
    #[arg(long)]
    pub(crate) follow: bool,
    /// The task's name, or the beginning of it.
    pub(crate) task: String,
}

#[derive(Debug, Args)]
pub(crate) struct TasksArguments {
    /// How to print them.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Show subtasks below the tasks that began them, which are counted otherwise.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only tasks whose first words hold all of these, in any order and case.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// How to print it; without it the new task goes on interactively.
    #[arg(long, value_enum)]
    pub(crate) output: Option<OutputFormat>,
    /// First bring back what calls after record N changed, by the checkpoints of the other task.
    #[arg(long)]
    pub(crate) restore: bool,
    /// The other task's name, or the beginning of it, and how many of its records are taken, as `sabir log` counts them.
    #[arg(value_name = "TASK[@N]")]
    pub(crate) from: String,
    /// What to tell the model before it goes on.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The format; without it the ending of FILE says it, else it is Markdown.
    #[arg(long, value_enum)]
    pub(crate) to: Option<ExportFormat>,
    /// A new file, in place of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The task's name, or the beginning of it.
    pub(crate) task: String,
}

/// What a task is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Markdown.
    Md,
    /// One object with all records.
    Json,
    /// One file for a browser.
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// How to print what was made of it.
    #[arg(long, value_enum, default_value_t = super::ReportFormat::Text)]
    pub(crate) output: super::ReportFormat,
    /// The folder of a task of Cline's or Roo Code's, a file in it, or a `.jsonl` file of Claude Code's.
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct JudgeArguments {
    #[command(flatten)]
    pub(crate) check: CheckArguments,
    /// Print what was wrong with the calls of this task instead: its name, or the beginning of it.
    #[arg(long, value_name = "TASK", conflicts_with_all = ["dialect", "no_repair", "one", "tools", "chunk"])]
    pub(crate) task: Option<String>,
}
