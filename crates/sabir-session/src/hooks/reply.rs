//! Reads the answer of a hook: its exit code, and the JSON or the text that it printed.

use sabir_call::redact;
use serde_json::Value;

use super::event::HookEvent;
use crate::custom_commands::clean_foreign_text;

/// The exit code that blocks.
const BLOCKING_EXIT: i32 = 2;
/// The most bytes of a text of a hook that go to the model or the user.
pub(super) const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The end of a hook, with its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HookOutput {
    /// The exit code; `None` if it was ended from outside.
    pub(super) exit_code: Option<i32>,
    /// The beginning of its standard output.
    pub(super) output: String,
    /// The beginning of its standard error.
    pub(super) errors: String,
    /// True if the end of its standard output was dropped.
    pub(super) is_cut: bool,
}

/// The meaning of a hook's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HookReply {
    /// The reason why it blocks.
    pub(super) block: Option<String>,
    /// The reason why the user must be asked first.
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

impl HookReply {
    /// Reads the answer of a hook. `blocks_on_failure`: any failure blocks.
    pub(super) fn from_output(
        event: HookEvent,
        output: &HookOutput,
        blocks_on_failure: bool,
    ) -> Self {
        let errors = limit_text(&output.errors);
        match output.exit_code {
            Some(0) => Self::of_text(event, output),
            // The JSON is ignored here: the exit code alone decides.
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

    fn of_text(event: HookEvent, output: &HookOutput) -> Self {
        let text = output.output.trim();
        let Some(printed) = find_object(text) else {
            // What was meant as an answer and cannot be read could be a refusal.
            if looks_like_answer(text) {
                let why = match output.is_cut {
                    true => "its JSON is too long to be read",
                    false => "its JSON cannot be read",
                };
                return Self::of_unreadable(event, why);
            }
            // Elsewhere such a text is the hook's own log.
            let is_for_model = event.prints_context() && !text.is_empty();
            return Self {
                context: is_for_model.then(|| limit_text(text)),
                ..Self::default()
            };
        };
        let specific = printed.get("hookSpecificOutput");
        let specific = |key: &str| specific.and_then(|all| all.get(key));
        let own = |key: &str| printed.get(key).filter(|value| !value.is_null());
        // A reason of another type is still a reason.
        let words = |value: &Value| match value {
            Value::String(text) => limit_text(text),
            Value::Null => String::new(),
            other => limit_text(&other.to_string()),
        };
        let given = specific("permissionDecisionReason").or(own("reason"));
        let reason = || given.map(words).unwrap_or_default();
        // Reads the current and the deprecated field. Any value that is not a known permission
        // refuses.
        let is_blocked = [specific("permissionDecision"), own("decision")]
            .into_iter()
            .flatten()
            .any(|decision| {
                !matches!(
                    decision.as_str(),
                    Some("allow" | "approve" | "ask" | "defer" | "")
                )
            });
        // `defer` leaves the call to something that is not there, which is not a permission either.
        let permission = specific("permissionDecision").and_then(Value::as_str);
        let is_asked = !is_blocked && matches!(permission, Some("ask" | "defer"));
        Self {
            block: is_blocked.then(reason),
            ask: is_asked.then(reason),
            wanted_input: specific("updatedInput")
                .filter(|wanted| !wanted.is_null())
                .cloned(),
            stop: (own("continue") == Some(&Value::Bool(false)))
                .then(|| own("stopReason").map(words).unwrap_or_default()),
            context: specific("additionalContext")
                .map(words)
                .filter(|text| !text.is_empty()),
            message: own("systemMessage").map(words),
            failure: None,
        }
    }

    /// Returns the reply to an answer that cannot be read: what the event is about does not pass, where it could be refused.
    fn of_unreadable(event: HookEvent, why: &str) -> Self {
        let reason = Some(why.to_owned());
        match event {
            HookEvent::PreToolUse | HookEvent::UserPromptSubmit => Self {
                block: reason,
                ..Self::default()
            },
            _ => Self {
                failure: reason,
                ..Self::default()
            },
        }
    }

    /// Redacts secrets in the texts of the reply, and escapes special tokens, hidden characters and control characters. This happens after
    /// the JSON is parsed, because redacting the JSON could break it.
    pub(super) fn redacted(self) -> Self {
        let clean =
            |text: Option<String>| text.map(|text| clean_foreign_text(&redact::redact_text(&text)));
        Self {
            block: clean(self.block),
            ask: clean(self.ask),
            wanted_input: self.wanted_input,
            stop: clean(self.stop),
            context: clean(self.context),
            message: clean(self.message),
            failure: clean(self.failure),
        }
    }
}

/// Finds the JSON object in the output of a hook, which may have other lines around it.
fn find_object(text: &str) -> Option<Value> {
    let whole = text.get(text.find('{')?..=text.rfind('}')?)?;
    let own_line = || {
        text.lines()
            .map(str::trim)
            .find(|line| line.starts_with('{') && line.ends_with('}'))
    };
    [Some(whole), own_line()]
        .into_iter()
        .flatten()
        .find_map(|part| serde_json::from_str::<Value>(part).ok())
        .filter(Value::is_object)
}

/// Returns true if a text was meant as an answer in JSON: it begins as an object, or has a key of one.
fn looks_like_answer(text: &str) -> bool {
    text.starts_with('{')
        || [
            "\"decision\"",
            "\"permissionDecision\"",
            "\"hookSpecificOutput\"",
        ]
        .iter()
        .any(|key| text.contains(key))
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
            is_cut: false,
        };
        HookReply::from_output(event, &output, false)
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
        ] {
            assert_eq!(
                reply(PreToolUse, 0, allow, ""),
                HookReply::default(),
                "{allow}"
            );
        }
        // What cannot be read could be a refusal.
        for unread in ["{broken", r#"{"decision": "block", "reason": "no"#] {
            assert!(reply(PreToolUse, 0, unread, "").block.is_some(), "{unread}");
            assert!(reply(PostToolUse, 0, unread, "").failure.is_some());
        }
        for refusal in [
            r#"{"decision": "block", "reason": 5}"#,
            r#"{"decision": true}"#,
            "checked\n{\"decision\": \"block\", \"reason\": \"5\"}\ndone",
        ] {
            assert!(
                reply(PreToolUse, 0, refusal, "").block.is_some(),
                "{refusal}"
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
            let reply = HookReply::from_output(HookEvent::PreToolUse, &output, true);
            assert!(reply.block.is_some(), "{exit_code:?}");
        }
    }
}
