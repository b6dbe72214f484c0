//! The command line of journals: log, list, fork, export and import.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CheckArguments, OutputFormat, TaskOptions};

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// The output format. `events` prints the records unchanged, one per line.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Print only these records: `3..7`, `3..`, `..7` or `5`.
    #[arg(long, value_name = "RANGE")]
    pub(crate) records: Option<String>,
    /// Keep printing new records while a process works on the task.
    #[arg(long)]
    pub(crate) follow: bool,
    /// The task: the beginning or the end of its id, `@N` as `sabir tasks` counts, or words of its
    /// first message. By default the newest one of this folder.
    pub(crate) task: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TasksArguments {
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Show subtasks below their parents. By default they are only counted.
    #[arg(long)]
    pub(crate) all: bool,
    /// List the tasks of all folders. By default those of this folder, or of the nearest one above it with tasks.
    #[arg(long, short)]
    pub(crate) everywhere: bool,
    /// List the tasks of this folder instead of the current one.
    #[arg(long, short = 'C', conflicts_with = "everywhere")]
    pub(crate) folder: Option<PathBuf>,
    /// List only tasks whose first message contains all of these words, in any order and case.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// The output format; without it the new task continues interactively.
    #[arg(long, value_enum)]
    pub(crate) output: Option<OutputFormat>,
    /// First restore the files that calls after record N changed, from the checkpoints of the other task.
    #[arg(long)]
    pub(crate) restore: bool,
    /// The other task's name, or the beginning of it, and the number of its records to take, as
    /// `sabir log` counts them.
    #[arg(value_name = "TASK[@N]")]
    pub(crate) from: String,
    /// A message to the model before it continues.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The format; by default that of FILE's extension, else Markdown.
    #[arg(long, value_enum)]
    pub(crate) to: Option<ExportFormat>,
    /// A new file, instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The task: the beginning or the end of its id, `@N` as `sabir tasks` counts, or words of its
    /// first message. By default the newest one of this folder.
    pub(crate) task: Option<String>,
}

/// The format in which a task is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Markdown.
    Md,
    /// One JSON object with all records.
    Json,
    /// One HTML file for a browser.
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The output format of the report.
    #[arg(long, value_enum, default_value_t = super::ReportFormat::Text)]
    pub(crate) output: super::ReportFormat,
    /// The folder of a task of Cline or Roo Code, a file in it, or a `.jsonl` file of Claude Code;
    /// or `settings`, to import settings of other programs into your configuration: MCP servers,
    /// rules and the model. First shows what would be written.
    pub(crate) path: PathBuf,
    /// With `settings`: the programs (claude-code, codex, gemini, opencode, cline, roo); by default all of them.
    pub(crate) programs: Vec<String>,
    /// With `settings`: write them without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckTaskArguments {
    #[command(flatten)]
    pub(crate) check: CheckArguments,
    /// Print the faults of the calls in this task instead: its name, or the beginning of it.
    #[arg(long, value_name = "TASK", conflicts_with_all = ["dialect", "no_repair", "one", "tools", "chunk"])]
    pub(crate) task: Option<String>,
}
