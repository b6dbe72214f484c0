//! How a task ends, by options and configuration: its limits, and what must hold before it is completed.

use sabir_agent::{Arguments, Conditions, Limits, OpenTodos, SubtaskLimits};
use serde_json::json;

use crate::cli::EndFlags;
use crate::config::{LimitKeys, SubtaskKeys};
use crate::exit::Failure;

/// The tool that runs the check, and how long it may take: what that tool gives a command at most.
const TOOL: &str = "execute_command";
const SECONDS: u64 = 600;

/// The limits.
pub(crate) fn limits(flags: &EndFlags, keys: &LimitKeys) -> Result<Limits, Failure> {
    let cost = flags.max_cost.as_deref().map(str::parse).transpose();
    let cost = cost.map_err(|error| Failure::usage(format!("--max-cost: {error}")))?;
    Ok(Limits {
        turns: flags.max_turns.or(keys.max_turns),
        tokens: flags.max_tokens.as_deref().map(tokens).transpose()?.or(keys.max_tokens),
        cost: cost.or(keys.max_cost),
        subtasks: subtasks(&keys.subtasks),
        ..Limits::default()
    })
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
pub(crate) fn conditions(flags: &EndFlags, keys: &LimitKeys) -> Conditions {
    let required = flags.require_todos || keys.completion.todos == Some(true);
    let check = flags.check.as_ref().or(keys.completion.check.as_ref()).filter(|check| !check.trim().is_empty());
    let arguments =
        |check| Arguments::from_iter([("command".to_owned(), json!(check)), ("timeout".to_owned(), json!(SECONDS))]);
    Conditions {
        todos: if required { OpenTodos::Refused } else { OpenTodos::Allowed },
        check: check.map(|check| (TOOL.to_owned(), arguments(check))),
    }
}

/// `200000`, `500k` or `2M`.
fn tokens(text: &str) -> Result<u64, Failure> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit)).filter(|count| *count > 0);
    count.ok_or_else(|| {
        Failure::usage(format!("--max-tokens: `{text}` is no number of tokens: write 200000, 500k or 2M"))
    })
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn tokens_are_counted_in_thousands_too() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(tokens(text).ok(), expected, "{text}");
        check("200000", Some(200_000));
        check("500k", Some(500_000));
        check("2M", Some(2_000_000));
        for wrong in ["", "0", "k", "-1", "1.5k", "2g", "99999999999999999999", "99999999999999999M"] {
            check(wrong, None);
        }
    }
}
