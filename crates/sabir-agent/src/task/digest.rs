//! Digests: describe messages without a model, by the files that were used, the user's messages,
//! and one line for each call.

use std::collections::HashMap;

use sabir_call::{Call, CallId, CallResult, Message, MessagePart, Role, ToolResultStatus};
use serde_json::Value;

use crate::context::fragment::truncate_text;
use crate::context::summary::{MAX_SUMMARY_BYTES, status_word};
use crate::control;

/// The most bytes of one later message of the user.
const USER_TEXT_CAP: usize = 8 * 1024;
/// The most bytes of all later messages of the user.
const USER_TEXTS_CAP: usize = 32 * 1024;
/// The most files of a kind that are named, the newest ones.
const MAX_FILES: usize = 100;

/// Names the files that these messages read and changed; empty if there are none.
pub(super) fn render_files(messages: &[Message], readers: &[String]) -> String {
    let results = results_by_call(messages);
    let mut read = Vec::new();
    let mut changed = Vec::new();
    for call in messages.iter().flat_map(Message::calls) {
        let done = results
            .get(&call.id)
            .is_some_and(|result| result.ending == ToolResultStatus::Done);
        let reads = readers.contains(&call.name);
        for path in call_paths(call).into_iter().filter(|_| done) {
            // Contents that were read before a change are out of date.
            read.retain(|known| *known != path);
            if !reads {
                changed.retain(|known| *known != path);
            }
            let list = if reads { &mut read } else { &mut changed };
            list.push(path);
        }
    }
    let line = |what: &str, mut paths: Vec<String>| {
        let left_out = paths.len().saturating_sub(MAX_FILES);
        let more = if left_out > 0 {
            format!(" (and {left_out} before these)")
        } else {
            String::new()
        };
        let named = paths.split_off(left_out).join(", ");
        if named.is_empty() {
            String::new()
        } else {
            format!("{what}: {named}{more}\n")
        }
    };
    let lines = line("Looked at, and not changed by you since", read) + &line("Changed", changed);
    if lines.is_empty() {
        lines
    } else {
        format!("Files so far; read again what you need, it may have changed since:\n{lines}")
    }
}

/// Says that images are no longer shown; empty if there were none.
pub(super) fn render_image_note(messages: &[Message]) -> String {
    let count = |part: &MessagePart| match part {
        MessagePart::Image(_) | MessagePart::ImageUrl { .. } => 1,
        MessagePart::Result(result) => result.images.len(),
        _ => 0,
    };
    match messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(count)
        .sum()
    {
        0_usize => String::new(),
        count => format!(
            "Pictures that were shown so far and are left out here: {count}. Read the file again, or ask the user, where you need one."
        ),
    }
}

/// Lists the user's messages after the first, except those that stay; empty if there are none.
pub(super) fn render_user_texts(said: &[String], gone: &[Message], stays: &[Message]) -> String {
    let stays = |words: &str| {
        stays
            .iter()
            .flat_map(|message| &message.parts)
            .any(|part| matches!(part, MessagePart::Text { text } if text == words))
    };
    let own = said.iter().filter(|words| !stays(words)).cloned();
    let all: Vec<String> = followup_answers(gone).into_iter().chain(own).collect();
    let mut kept = Vec::new();
    let mut room = USER_TEXTS_CAP;
    // From the newest, so that the oldest are those that do not fit.
    for words in all.iter().rev() {
        let short = truncate_text(words, USER_TEXT_CAP.min(room));
        if short.trim().is_empty() {
            break;
        }
        room -= short.len();
        kept.push(if short.len() < words.len() {
            format!("- {short} […]")
        } else {
            format!("- {short}")
        });
    }
    if kept.is_empty() {
        return String::new();
    }
    let left_out = all.len() - kept.len();
    kept.extend(
        (left_out > 0).then(|| format!("[{left_out} earlier messages of the user are left out]")),
    );
    kept.reverse();
    format!(
        "What the user said later, in this order:\n{}",
        kept.join("\n")
    )
}

/// Lists each call and each remark on a line, after the lines of an earlier digest. The oldest
/// lines are dropped if they do not fit.
pub(super) fn render_call_lines(earlier: &str, messages: &[Message]) -> String {
    let results = results_by_call(messages);
    let mut text = String::new();
    for part in messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .flat_map(|message| &message.parts)
    {
        match part {
            MessagePart::Text { text: words } if !words.trim().is_empty() => {
                text.push_str(&format!("- said: {}\n", first_line(words, 200)));
            }
            MessagePart::Call(call) => {
                let outcome = results.get(&call.id).map_or_else(String::new, |result| {
                    format!(
                        ": {}, {}",
                        status_word(result.ending),
                        first_line(&result.content, 100)
                    )
                });
                text.push_str(&format!(
                    "- {} {}{outcome}\n",
                    call.name,
                    first_line(&call_subject(call), 120)
                ));
            }
            _ => {}
        }
    }
    let all = if earlier.trim().is_empty() {
        text
    } else {
        format!("{}\n{text}", earlier.trim_end())
    };
    let over = all.len().saturating_sub(MAX_SUMMARY_BYTES);
    if over == 0 {
        return all;
    }
    let from = all.get(all.ceil_char_boundary(over)..).unwrap_or_default();
    format!(
        "[what came first is left out]\n{}",
        from.split_once('\n').map_or("", |(_, rest)| rest)
    )
}

/// Returns the user's answers to the questions of the model.
fn followup_answers(messages: &[Message]) -> Vec<String> {
    let calls = messages.iter().flat_map(Message::calls);
    let calls: HashMap<&CallId, &Call> = calls.map(|call| (&call.id, call)).collect();
    let results = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            MessagePart::Result(result) if result.ending == ToolResultStatus::Done => Some(result),
            _ => None,
        });
    let asked = |result: &&CallResult| {
        matches!(
            result.name.as_str(),
            control::FOLLOWUP_TOOL | control::COMPLETION_TOOL
        )
    };
    let words = |result: &CallResult| {
        let question = calls
            .get(&result.id)
            .map(|call| first_line(&call_subject(call), 300))
            .unwrap_or_default();
        format!("(to `{question}`) {}", result.content)
    };
    results.filter(asked).map(words).collect()
}

fn results_by_call(messages: &[Message]) -> HashMap<&CallId, &CallResult> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        MessagePart::Result(result) => Some((&result.id, result)),
        _ => None,
    });
    results.collect()
}

/// Returns the subject of a call: its path or command, else the first text among its arguments.
fn call_subject(call: &Call) -> String {
    let named = ["path", "command", "regex", "url", "question", "result"]
        .iter()
        .find_map(|name| call.arguments.get(*name));
    let text = named
        .and_then(Value::as_str)
        .or_else(|| call.arguments.values().find_map(Value::as_str));
    text.unwrap_or_default().to_owned()
}

/// Returns the paths of the files that a call names.
pub fn call_paths(call: &Call) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut paths: Vec<String> = call
        .arguments
        .get("path")
        .and_then(text)
        .into_iter()
        .collect();
    let more = call.arguments.get("more_paths").and_then(Value::as_array);
    paths.extend(more.into_iter().flatten().filter_map(text));
    let patch = call
        .arguments
        .values()
        .filter_map(Value::as_str)
        .flat_map(str::lines);
    let named = patch.filter_map(|line| {
        let rest = line.strip_prefix("*** ")?;
        ["Add File: ", "Update File: ", "Delete File: "]
            .iter()
            .find_map(|word| rest.strip_prefix(word))
    });
    if call.name == "apply_patch" {
        paths.extend(named.map(str::to_owned));
    }
    paths
}

/// Returns the first line of a text, at most `cap` bytes of it.
fn first_line(text: &str, cap: usize) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    let short = first
        .get(..first.floor_char_boundary(cap))
        .unwrap_or_default();
    if short.len() < text.trim().len() {
        format!("{short} …")
    } else {
        short.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(
        id: &str,
        name: &str,
        arguments: Value,
        ending: ToolResultStatus,
        content: &str,
    ) -> [Message; 2] {
        let id = CallId::new(id);
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let call = Call {
            id: id.clone(),
            name: name.to_owned(),
            arguments,
            dialect: None,
        };
        let result = CallResult {
            id,
            name: name.to_owned(),
            ending,
            content: content.to_owned(),
            images: Vec::new(),
        };
        [
            Message {
                role: Role::Assistant,
                parts: vec![MessagePart::Call(call)],
            },
            Message {
                role: Role::User,
                parts: vec![MessagePart::Result(result)],
            },
        ]
    }

    fn messages() -> Vec<Message> {
        let patch = "*** Begin Patch\n*** Update File: c.rs\n@@\n-a\n+b\n*** End Patch";
        [
            turn(
                "1",
                "read_file",
                json!({"path": "a.rs", "more_paths": ["b.rs"]}),
                ToolResultStatus::Done,
                "1 | x\n2 | y",
            ),
            turn(
                "2",
                "apply_patch",
                json!({"patch": patch}),
                ToolResultStatus::Done,
                "Applied.",
            ),
            turn(
                "3",
                "write_to_file",
                json!({"path": "d.rs", "content": "x"}),
                ToolResultStatus::Denied,
                "The user said no.",
            ),
            turn(
                "4",
                "ask_followup_question",
                json!({"question": "Which?"}),
                ToolResultStatus::Done,
                "The first.",
            ),
            turn(
                "5",
                "read_file",
                json!({"path": "a.rs"}),
                ToolResultStatus::Done,
                "1 | x",
            ),
        ]
        .concat()
    }

    #[test]
    fn files_are_named_once_and_only_where_something_happened() {
        let text = render_files(&messages(), &["read_file".to_owned()]);
        assert!(
            text.ends_with(
                "\nLooked at, and not changed by you since: b.rs, a.rs\nChanged: c.rs\n"
            ),
            "{text}"
        );
        let written = turn(
            "6",
            "write_to_file",
            json!({"path": "a.rs", "content": "x"}),
            ToolResultStatus::Done,
            "Written.",
        );
        let text = render_files(
            &[messages(), written.to_vec()].concat(),
            &["read_file".to_owned()],
        );
        assert!(
            text.ends_with(" since: b.rs\nChanged: c.rs, a.rs\n"),
            "{text}"
        );
        assert_eq!(render_files(&[Message::user("x")], &[]), "");
    }

    #[test]
    fn user_texts_are_rendered_unless_their_messages_stay() {
        let check = |said: &[&str], stays: &[Message], expected: &str| {
            let said: Vec<_> = said.iter().map(|text| (*text).to_owned()).collect();
            let text = render_user_texts(&said, &messages(), stays);
            assert_eq!(text.split_once('\n').map_or("", |(_, rest)| rest), expected);
        };
        check(
            &["one", "two"],
            &[Message::user("two")],
            "- (to `Which?`) The first.\n- one",
        );
        let long = "x".repeat(9000);
        let text = render_user_texts(&vec![long; 9], &[], &[]);
        assert!(
            text.len() < USER_TEXTS_CAP + 400
                && text.contains("[5 earlier messages of the user are left out]"),
            "{}",
            text.len()
        );
    }

    #[test]
    fn a_digest_has_a_line_for_each_call_and_drops_the_oldest() {
        let text = render_call_lines("", &messages());
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(
            text.starts_with("- read_file a.rs: done, 1 | x …\n"),
            "{text}"
        );
        assert!(
            text.contains("- write_to_file d.rs: denied, The user said no.\n"),
            "{text}"
        );
        let again = render_call_lines(&"- old\n".repeat(10_000), &messages());
        assert!(
            again.len() <= MAX_SUMMARY_BYTES + 40
                && again.starts_with("[what came first")
                && again.ends_with("1 | x\n")
        );
    }
}
