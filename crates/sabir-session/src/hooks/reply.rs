//! Reads the answer of a hook: its exit code, and the JSON or the text that it printed.

use serde::Deserialize;
use serde_json::Value;

use super::event::HookEvent;

/// The exit code that blocks.
const BLOCKING_EXIT: i32 = 2;
/// The most bytes of a text of a hook that go to the model or the user.
pub(super) const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The end of a hook, with what it printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HookOutput {
    /// The exit code; `None` if it was ended from outside.
    pub(super) exit_code: Option<i32>,
    /// The beginning of its standard output.
    pub(super) output: String,
    /// The beginning of its standard error.
    pub(super) errors: String,
}

/// The meaning of a hook's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HookReply {
    /// The reason why it blocks what the event is about.
    pub(super) block: Option<String>,
    /// The reason why the user is to be asked first.
    pub(super) ask: Option<String>,
    /// The arguments that it wants a call to have instead.
    pub(super) wanted_input: Option<Value>,
    /// The reason why the task is to stop.
    pub(super) stop: Option<String>,
    /// A text for the model.
    pub(super) context: Option<String>,
    /// A text for the user.
    pub(super) message: Option<String>,
    /// The reason why it failed without blocking.
    pub(super) failure: Option<String>,
}

/// The JSON that a hook prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PrintedReply {
    #[serde(rename = "continue")]
    continues: Option<bool>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    hook_specific_output: SpecificReply,
}

/// The part of the JSON that belongs to one event.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpecificReply {
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Value>,
    additional_context: Option<String>,
}

impl HookReply {
    /// Reads the answer of a hook. `blocks_on_failure`: any failure blocks.
    pub(super) fn of_output(
        event: HookEvent,
        output: &HookOutput,
        blocks_on_failure: bool,
    ) -> Self {
        let errors = limit_text(&output.errors);
        match output.exit_code {
            Some(0) => Self::of_text(event, &output.output),
            // JSON is not looked at here: the exit code alone says what the hook wants.
            Some(BLOCKING_EXIT) => Self {
                block: Some(or_else(errors, || limit_text(&output.output))),
                ..Self::default()
            },
            code => {
                let how = match code {
                    Some(code) => format!("it ended with exit code {code}"),
                    None => "it did not end by itself".to_owned(),
                };
                let reason = match errors.is_empty() {
                    true => how,
                    false => format!("{how}: {errors}"),
                };
                if blocks_on_failure {
                    return Self {
                        block: Some(reason),
                        ..Self::default()
                    };
                }
                Self {
                    failure: Some(reason),
                    ..Self::default()
                }
            }
        }
    }

    fn of_text(event: HookEvent, text: &str) -> Self {
        let text = text.trim();
        // A hook that prints braces by chance must not fail: what is no JSON is text.
        let printed = text
            .starts_with('{')
            .then(|| serde_json::from_str::<PrintedReply>(text));
        let printed = match printed {
            Some(Ok(printed)) => printed,
            Some(Err(_)) | None => {
                // Elsewhere such a text is the hook's own log.
                let is_for_model = event.prints_context() && !text.is_empty();
                return Self {
                    context: is_for_model.then(|| limit_text(text)),
                    ..Self::default()
                };
            }
        };
        let specific = printed.hook_specific_output;
        let reason = || {
            let given = specific
                .permission_decision_reason
                .as_deref()
                .or(printed.reason.as_deref());
            limit_text(given.unwrap_or_default())
        };
        let permission = specific.permission_decision.as_deref();
        // Both ways of saying it, the old one and the new one; `allow` and `approve` are not even looked at.
        let is_blocked = matches!(permission, Some("deny"))
            || matches!(printed.decision.as_deref(), Some("block" | "deny"));
        // `defer` leaves the call to something that is not there, which is no permission either.
        let is_asked = !is_blocked && matches!(permission, Some("ask" | "defer"));
        Self {
            block: is_blocked.then(reason),
            ask: is_asked.then(reason),
            wanted_input: specific.updated_input.clone(),
            stop: (printed.continues == Some(false))
                .then(|| limit_text(printed.stop_reason.as_deref().unwrap_or_default())),
            context: specific.additional_context.as_deref().map(limit_text),
            message: printed.system_message.as_deref().map(limit_text),
            failure: None,
        }
    }
}

/// Returns the beginning of a text of a hook, and says what is left out.
fn limit_text(text: &str) -> String {
    let text = text.trim();
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n[{} bytes are left out here]", text.len() - end)
}

fn or_else(text: String, other: impl FnOnce() -> String) -> String {
    match text.is_empty() {
        true => other(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(event: HookEvent, code: i32, output: &str, errors: &str) -> HookReply {
        let output = HookOutput {
            exit_code: Some(code),
            output: output.to_owned(),
            errors: errors.to_owned(),
        };
        HookReply::of_output(event, &output, false)
    }

    #[test]
    fn exit_codes_and_json_decide() {
        use HookEvent::{PostToolUse, PreToolUse, UserPromptSubmit};
        let no = |reason: &str| Some(reason.to_owned());
        assert_eq!(reply(PreToolUse, 2, "", " no ").block, no("no"));
        assert_eq!(reply(PreToolUse, 2, "printed", "").block, no("printed"));
        assert_eq!(reply(PreToolUse, 0, "text", ""), HookReply::default());
        assert_eq!(reply(UserPromptSubmit, 0, "text", "").context, no("text"));
        let failed = reply(PreToolUse, 1, "", "oops");
        assert_eq!(failed.block, None);
        assert_eq!(failed.failure, no("it ended with exit code 1: oops"));
        let deny = r#"{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "why"}}"#;
        assert_eq!(reply(PreToolUse, 0, deny, "").block, no("why"));
        let ask = r#"{"hookSpecificOutput": {"permissionDecision": "ask"}}"#;
        assert_eq!(reply(PreToolUse, 0, ask, "").ask, no(""));
        let old = r#"{"decision": "block", "reason": "tests"}"#;
        assert_eq!(reply(PostToolUse, 0, old, "").block, no("tests"));
        // A permission changes nothing.
        for allow in [
            r#"{"decision": "approve"}"#,
            r#"{"hookSpecificOutput": {"permissionDecision": "allow"}}"#,
            "{}",
            "{broken",
        ] {
            assert_eq!(
                reply(PreToolUse, 0, allow, ""),
                HookReply::default(),
                "{allow}"
            );
        }
        let stop = r#"{"continue": false, "stopReason": "enough", "systemMessage": "hello"}"#;
        let stopped = reply(PostToolUse, 0, stop, "");
        assert_eq!(stopped.stop, no("enough"));
        assert_eq!(stopped.message, no("hello"));
        let long = "x".repeat(MAX_TEXT_BYTES + 5);
        let kept = reply(UserPromptSubmit, 0, &long, "").context.unwrap();
        assert!(kept.ends_with("[5 bytes are left out here]"));
    }

    #[test]
    fn a_failure_blocks_where_the_hook_says_so() {
        for exit_code in [Some(1), None] {
            let output = HookOutput {
                exit_code,
                ..HookOutput::default()
            };
            let reply = HookReply::of_output(HookEvent::PreToolUse, &output, true);
            assert!(reply.block.is_some(), "{exit_code:?}");
        }
    }
}
