//! Combines the spec and the configuration into the limits of a task and the conditions of its completion.

use sabir_agent::{
    CallArguments, CompletionConditions, CompletionForm, OpenTodos, SubtaskLimits, TaskLimits,
    UnresolvedDenials,
};
use serde_json::json;

use crate::config::{LimitConfig, SubtaskConfig};
use crate::spec::{CompletionSpec, LimitSpec, ResultForm};

/// The tool that runs the check.
const CHECK_TOOL: &str = "execute_command";
/// The time limit of the check, in seconds: the longest that the tool allows.
const CHECK_SECONDS: u64 = 600;

/// Returns the limits of a task. The spec overrides the configuration.
pub(crate) fn task_limits(flags: &LimitSpec, keys: &LimitConfig) -> TaskLimits {
    TaskLimits {
        turns: flags.max_turns.or(keys.max_turns),
        tokens: flags.max_tokens.or(keys.max_tokens),
        cost: flags.max_cost.or(keys.max_cost),
        subtasks: subtask_limits(&keys.subtasks),
        ..TaskLimits::default()
    }
}

fn subtask_limits(keys: &SubtaskConfig) -> SubtaskLimits {
    let usual = SubtaskLimits::default();
    SubtaskLimits {
        depth: keys.depth.unwrap_or(usual.depth),
        max_concurrent: keys.at_once.unwrap_or(usual.max_concurrent),
        max_total: keys.most.unwrap_or(usual.max_total),
    }
}

/// Returns the conditions of a completion.
///
/// The check runs without a question. That is safe because only the user can set it, in the spec or in their configuration; a
/// repository or a recording cannot.
pub(crate) fn completion_conditions(
    flags: &CompletionSpec,
    keys: &LimitConfig,
) -> CompletionConditions {
    let required = flags.require_todos || keys.completion.todos == Some(true);
    let check = flags
        .check
        .as_ref()
        .or(keys.completion.check.as_ref())
        .filter(|check| !check.trim().is_empty());
    let arguments = |check| {
        CallArguments::from_iter([
            ("command".to_owned(), json!(check)),
            ("timeout".to_owned(), json!(CHECK_SECONDS)),
        ])
    };
    CompletionConditions {
        open_todos: if required {
            OpenTodos::Refused
        } else {
            OpenTodos::Allowed
        },
        review: flags.review.or(keys.completion.review).unwrap_or(true),
        check: check.map(|check| (CHECK_TOOL.to_owned(), arguments(check))),
        denials: if flags.allow_denied || keys.completion.allow_denied == Some(true) {
            UnresolvedDenials::Accepted
        } else {
            UnresolvedDenials::EndDenied
        },
        form: match flags.form.or(keys.completion.by) {
            Some(ResultForm::Call) => CompletionForm::Call,
            Some(ResultForm::Answer) => CompletionForm::Answer,
            None => CompletionForm::ByProtocol,
        },
    }
}
