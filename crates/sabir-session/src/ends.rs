//! How a task ends, by options and configuration: its limits, and what must hold before it is completed.

use sabir_agent::{Arguments, Conditions, Limits, OpenTodos, SubtaskLimits};
use serde_json::json;

use crate::config::{LimitKeys, SubtaskKeys};
use crate::spec::{CompletionSpec, LimitSpec};

/// The tool that runs the check, and how long it may take: what that tool gives a command at most.
const TOOL: &str = "execute_command";
const SECONDS: u64 = 600;

/// The limits.
pub(crate) fn limits(flags: &LimitSpec, keys: &LimitKeys) -> Limits {
    Limits {
        turns: flags.max_turns.or(keys.max_turns),
        tokens: flags.max_tokens.or(keys.max_tokens),
        cost: flags.max_cost.or(keys.max_cost),
        subtasks: subtasks(&keys.subtasks),
        ..Limits::default()
    }
}

fn subtasks(keys: &SubtaskKeys) -> SubtaskLimits {
    let usual = SubtaskLimits::default();
    SubtaskLimits {
        depth: keys.depth.unwrap_or(usual.depth),
        at_once: keys.at_once.unwrap_or(usual.at_once),
        most: keys.most.unwrap_or(usual.most),
    }
}

/// The conditions of a completion. The check is the user's own command: only he can give it, here or in his configuration.
pub(crate) fn conditions(flags: &CompletionSpec, keys: &LimitKeys) -> Conditions {
    let required = flags.require_todos || keys.completion.todos == Some(true);
    let check = flags.check.as_ref().or(keys.completion.check.as_ref()).filter(|check| !check.trim().is_empty());
    let arguments =
        |check| Arguments::from_iter([("command".to_owned(), json!(check)), ("timeout".to_owned(), json!(SECONDS))]);
    Conditions {
        todos: if required { OpenTodos::Refused } else { OpenTodos::Allowed },
        check: check.map(|check| (TOOL.to_owned(), arguments(check))),
    }
}
