//! Configured limits of a task, of its context and of its subtasks, and the conditions of its completion.

use sabir_call::Dollars;
use serde::Deserialize;

/// The keys at the top of the file that limit a task and its context.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LimitKeys {
    pub(crate) max_turns: Option<u32>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_cost: Option<Dollars>,
    pub(crate) ask_timeout: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) compact_at: Option<u8>,
    pub(crate) instructions: Option<bool>,
    pub(crate) place: Option<bool>,
    pub(crate) completion: CompletionKeys,
    pub(crate) subtasks: SubtaskKeys,
}

/// The table `[subtasks]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SubtaskKeys {
    pub(crate) offered: Option<bool>,
    pub(crate) at_once: Option<usize>,
    pub(crate) depth: Option<u32>,
    pub(crate) most: Option<u32>,
}

/// The table `[completion]`: conditions for the completion of a task.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompletionKeys {
    pub(crate) check: Option<String>,
    pub(crate) todos: Option<bool>,
}

impl LimitKeys {
    /// Checks the values that have a range.
    pub(super) fn check_limits(&self) -> Result<(), String> {
        // Below 10 % compaction would run all the time; above 95 % the next response might not fit.
        if self
            .compact_at
            .is_some_and(|percent| !(10..=95).contains(&percent))
        {
            return Err("compact_at: give a percentage of the context from 10 to 95".to_owned());
        }
        if self.subtasks.at_once == Some(0) {
            return Err(
                "[subtasks] at_once: give 1 or more; offered = false switches subtasks off"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
