//! The command line of a task's end: limits, and the conditions for its completion.

use clap::Args;
use sabir_session::config::{parse_duration, parse_token_count};
use sabir_session::{CompletionSpec, LimitSpec, ResultForm, RetryLimits};

use crate::exit::CommandError;

/// The limits of a task and the conditions for its completion.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits and completion")]
pub(crate) struct CompletionFlags {
    /// End the task after this many turns, counted since it was started or resumed.
    #[arg(long)]
    pub(crate) max_turns: Option<u32>,
    /// End the task when it has read and written this many tokens since it was started or resumed: `200000`, `500k`, `2M`. The turn
    /// that reaches the limit is finished.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<String>,
    /// End the task when it has cost this many US dollars since it was started or resumed:
    /// `5`, `0.25`. The turn that reaches the limit is finished. The model's prices must be known.
    #[arg(long, value_name = "USD")]
    pub(crate) max_cost: Option<String>,
    /// End the task after this time: `90`, `90s`, `15m`, `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_time: Option<String>,
    /// Retry a request that failed before its answer began up to this many times (4).
    #[arg(long, value_name = "COUNT")]
    pub(crate) retries: Option<u32>,
    /// End the task after this many retries without a complete answer between them (60).
    #[arg(long, value_name = "COUNT")]
    pub(crate) retry_budget: Option<u32>,
    /// Complete the task only if this command succeeds. It runs in the folder, in the sandbox,
    /// whenever the model says that the task is done. If it fails, the model gets its output. An
    /// empty command disables the one of the configuration.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Option<String>,
    /// Complete the task only if all todos of the model are done.
    #[arg(long)]
    pub(crate) require_todos: bool,
    /// Complete the task even if calls were denied and nothing replaced them. Otherwise such a task ends with exit code 5.
    #[arg(long)]
    pub(crate) allow_denied: bool,
    /// The form of the result if nobody is asked: `call`, or `answer`, which also accepts a plain answer from a model that has
    /// changed nothing. By default `answer` with native calls.
    #[arg(long, value_name = "call|answer")]
    pub(crate) completion: Option<ResultForm>,
}

impl CompletionFlags {
    /// Returns the conditions of a completion with these flags.
    pub(crate) fn completion_spec(&self) -> CompletionSpec {
        CompletionSpec {
            check: self.check.clone(),
            require_todos: self.require_todos,
            allow_denied: self.allow_denied,
            form: self.completion,
            review: None,
        }
    }

    /// Returns the limits of a session with these flags.
    pub(crate) fn limit_spec(&self) -> Result<LimitSpec, CommandError> {
        let cost = self.max_cost.as_deref().map(str::parse).transpose();
        let time = self.max_time.as_deref().map(parse_duration).transpose()?;
        let tokens = self
            .max_tokens
            .as_deref()
            .map(parse_token_count)
            .transpose();
        Ok(LimitSpec {
            max_turns: self.max_turns,
            max_tokens: tokens
                .map_err(|error| CommandError::usage(format!("--max-tokens: {error}")))?,
            max_cost: cost.map_err(|error| CommandError::usage(format!("--max-cost: {error}")))?,
            max_seconds: time.map(|time| time.as_secs()),
            retries: RetryLimits {
                per_request: self.retries,
                budget: self.retry_budget,
            },
        })
    }
}
