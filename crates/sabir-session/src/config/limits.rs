//! Configured limits of a task, of its context and of its subtasks, and the conditions of its completion.

use sabir_call::Dollars;
use serde::Deserialize;

use crate::spec::ResultForm;

/// The keys at the top of the file that limit a task and its context.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LimitConfig {
    /// The most turns of a run; `None` for no limit.
    pub(crate) max_turns: Option<u32>,
    /// The most tokens of a run, read and written together.
    pub(crate) max_tokens: Option<u64>,
    /// The most money of a run, in US dollars. It needs known prices.
    pub(crate) max_cost: Option<Dollars>,
    /// The time after which an unanswered approval is denied, such as `5m`.
    pub(crate) ask_timeout: Option<String>,
    /// The size of the model's context window, in tokens.
    pub(crate) context_window: Option<u64>,
    /// The share of the window at which the context is compacted, in percent.
    pub(crate) compact_at: Option<u8>,
    /// False: the model gets no instruction files.
    pub(crate) instructions: Option<bool>,
    /// False: the model gets no facts about the date, the branch and the folder.
    pub(crate) place: Option<bool>,
    /// The table `[completion]`.
    pub(crate) completion: CompletionConfig,
    /// The table `[subtasks]`.
    pub(crate) subtasks: SubtaskConfig,
}

/// The table `[subtasks]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SubtaskConfig {
    /// True: every task is offered the tool that starts subtasks.
    pub(crate) offered: Option<bool>,
    /// The most subtasks of one task that work at the same time.
    pub(crate) at_once: Option<usize>,
    /// The most levels of subtasks below the user's task; 0 for none.
    pub(crate) depth: Option<u32>,
    /// The most subtasks that a task may start in all.
    pub(crate) most: Option<u32>,
    /// True: the user is asked before the result of a subtask goes to its parent.
    pub(crate) review: Option<bool>,
}

/// The table `[completion]`: conditions for the completion of a task.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompletionConfig {
    /// The shell command that must succeed; an empty one is none.
    pub(crate) check: Option<String>,
    /// True: a completion is refused while a todo is open.
    pub(crate) todos: Option<bool>,
    /// True: a result is accepted even if calls were denied and not replaced by later ones.
    pub(crate) allow_denied: Option<bool>,
    /// The form of a result in a task without a conversation: `call` or `answer`.
    pub(crate) by: Option<ResultForm>,
    /// False: a completion is accepted without asking the user.
    pub(crate) review: Option<bool>,
}

/// A limit outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    /// The threshold of compaction would compact all the time, or too late.
    #[error("compact_at: give a percentage of the context from 10 to 95")]
    CompactAt,
    /// No subtask could ever run.
    #[error("[subtasks] at_once: give 1 or more; offered = false switches subtasks off")]
    NoSubtaskAtOnce,
}

impl LimitError {
    /// Returns the path of the key.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::CompactAt => &["compact_at"],
            Self::NoSubtaskAtOnce => &["subtasks", "at_once"],
        }
    }
}

impl LimitConfig {
    /// Finds values outside their range.
    pub(super) fn find_problems(&self) -> Vec<LimitError> {
        let mut problems = Vec::new();
        // Below 10 % compaction would run all the time; above 95 % the next response might not fit.
        if self
            .compact_at
            .is_some_and(|percent| !(10..=95).contains(&percent))
        {
            problems.push(LimitError::CompactAt);
        }
        if self.subtasks.at_once == Some(0) {
            problems.push(LimitError::NoSubtaskAtOnce);
        }
        problems
    }

    /// Returns true if models get instruction files.
    pub(crate) fn sends_instructions(&self) -> bool {
        self.instructions.unwrap_or(true)
    }

    /// Returns true if models get facts about the date, the branch and the folder.
    pub(crate) fn sends_environment(&self) -> bool {
        self.place.unwrap_or(true)
    }

    /// Returns the share of the window at which the context is compacted, in percent.
    pub(crate) fn compaction_threshold(&self) -> u8 {
        self.compact_at
            .unwrap_or(sabir_agent::DEFAULT_THRESHOLD_PERCENT)
    }
}
