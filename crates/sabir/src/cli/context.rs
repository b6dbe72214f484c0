//! The command line of `sabir context`.

use clap::Args;

use super::ReportFormat;

#[derive(Debug, Args)]
pub(crate) struct ContextArguments {
    /// Also show what a compaction would leave out now, and what the model would read instead.
    #[arg(long, conflicts_with_all = ["compact", "undo"])]
    pub(crate) preview: bool,
    /// Compact the context now, with one summary by the model.
    #[arg(long, conflicts_with = "undo")]
    pub(crate) compact: bool,
    /// With --compact: use one line for each call instead of asking the model.
    #[arg(long, requires = "compact")]
    pub(crate) plain: bool,
    /// Undo the last compaction: the model sees again what it saw before.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Show the rules, commands, skills and servers of this folder, with their order and sizes, instead of a task.
    #[arg(long, conflicts_with_all = ["compact", "undo", "preview", "task"])]
    pub(crate) folder: bool,
    /// The model, if not the task's own.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task, as in `sabir log`; by default the newest one of this folder.
    pub(crate) task: Option<String>,
}
