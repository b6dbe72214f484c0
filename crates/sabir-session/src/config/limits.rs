//! When a task stops, what may fill its context, and how far its subtasks go.

use sabir_call::Dollars;
use serde::Deserialize;

/// When to stop, and what may fill the context.
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

/// Whether there are subtasks, and how far they go.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SubtaskKeys {
    pub(crate) offered: Option<bool>,
    pub(crate) at_once: Option<usize>,
    pub(crate) depth: Option<u32>,
    pub(crate) most: Option<u32>,
}

/// What must hold before a task is completed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompletionKeys {
    pub(crate) check: Option<String>,
    pub(crate) todos: Option<bool>,
}

impl LimitKeys {
    /// Finds what cannot be meant.
    pub(super) fn check_limits(&self) -> Result<(), String> {
        if self.compact_at.is_some_and(|percent| !(10..=95).contains(&percent)) {
            return Err("compact_at: give a percentage of the context from 10 to 95".to_owned());
        }
        if self.subtasks.at_once == Some(0) {
            return Err("[subtasks] at_once: give 1 or more; offered = false switches subtasks off".to_owned());
        }
        Ok(())
    }
}
