//! The command line of how a task ends: limits, and what must hold before it is completed.

use clap::Args;

/// How a task ends.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EndFlags {
    /// End the task after so many turns, counted from its start or its resume.
    #[arg(long)]
    pub(crate) max_turns: Option<u32>,
    /// End the task when it has taken so many tokens, those that are read and those that are written, counted from its start or its
    /// resume: `200000`, `500k`, `2M`. The turn that reaches the limit is finished.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<String>,
    /// End the task when it has cost so many US dollars, counted from its start or its resume: `5`, `0.25`. The turn that
    /// reaches the limit is finished. The model's prices must be known.
    #[arg(long, value_name = "USD")]
    pub(crate) max_cost: Option<String>,
    /// End the task after so much time: `90`, `90s`, `15m`, `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_time: Option<String>,
    /// Complete the task only when this command succeeds. It is run in the folder, in the sandbox, whenever the model says that the
    /// task is done; what it prints goes back to the model if it fails. An empty one switches off that of the configuration.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Option<String>,
    /// Complete the task only when no todo of the model's is left.
    #[arg(long)]
    pub(crate) require_todos: bool,
}
