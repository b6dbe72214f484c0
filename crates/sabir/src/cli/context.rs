//! The command line of `sabir context`.

use std::path::PathBuf;

use clap::Args;

use super::ReportFormat;

#[derive(Debug, Args)]
pub(crate) struct ContextArguments {
    /// Show as well what a compaction now would leave out, and what the model would read instead.
    #[arg(long, conflicts_with_all = ["compact", "undo"])]
    pub(crate) preview: bool,
    /// Compact the context now. The model is asked for a summary, once.
    #[arg(long, conflicts_with = "undo")]
    pub(crate) compact: bool,
    /// With --compact: without a model, a line for each call.
    #[arg(long, requires = "compact")]
    pub(crate) plain: bool,
    /// Go back on the last compaction: the model sees again what it saw.
    #[arg(long)]
    pub(crate) undo: bool,
    /// The model, if it is to be another than the task's.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, or the beginning of it.
    pub(crate) task: String,
}
