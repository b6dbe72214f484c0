//! Builds the messages that the SDK reads, and uses the names of Claude Code for calls of tools
//! that it also has.

use std::collections::BTreeSet;

use sabir_session::agent::{AssistantTurn, TaskOutcome};
use sabir_session::call::{Call, CallResult, MessagePart, StopReason, ToolResultStatus, Usage};
use sabir_session::{SubtaskLabel, TaskEnd};
use serde_json::{Map, Value, json};

/// A tool with the same meaning: Sabir's name, Claude Code's, and the arguments with other names there.
type ToolMapping = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The tools with the same meaning. Tools that edit are not among them, as their arguments differ.
const TOOL_MAPPINGS: [ToolMapping; 7] = [
    ("read_file", "Read", &[("path", "file_path")]),
    ("write_to_file", "Write", &[("path", "file_path")]),
    (
        "execute_command",
        "Bash",
        &[("background", "run_in_background")],
    ),
    (
        "search_files",
        "Grep",
        &[("regex", "pattern"), ("file_pattern", "glob")],
    ),
    ("list_files", "LS", &[]),
    ("fetch_url", "WebFetch", &[]),
    (
        "new_task",
        "Task",
        &[("message", "prompt"), ("mode", "subagent_type")],
    ),
];

/// The name and the arguments of a call, as the program gets them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedCall {
    pub(crate) name: String,
    pub(crate) input: Value,
}

/// Names calls as Claude Code does. It knows the MCP servers of the session.
#[derive(Debug, Default)]
pub(crate) struct CallNames {
    /// The names of the servers.
    pub(crate) servers: BTreeSet<String>,
}

impl CallNames {
    /// Names a call. Arguments keep their values; a tool without a counterpart keeps its name.
    pub(crate) fn name_call(&self, call: &Call) -> NamedCall {
        let Some((_, name, arguments)) = TOOL_MAPPINGS.iter().find(|(own, _, _)| *own == call.name)
        else {
            let server = call.name.split_once("__").map(|(server, _)| server);
            let is_server = server.is_some_and(|server| self.servers.contains(server));
            return NamedCall {
                name: match is_server {
                    true => format!("mcp__{}", call.name),
                    false => call.name.clone(),
                },
                input: Value::Object(call.arguments.clone()),
            };
        };
        let renamed = call.arguments.iter().map(|(argument, value)| {
            let other = arguments.iter().find(|(own, _)| own == argument);
            let name = other.map_or(argument.as_str(), |(_, other)| other);
            (name.to_owned(), value.clone())
        });
        NamedCall {
            name: (*name).to_owned(),
            input: Value::Object(Map::from_iter(renamed)),
        }
    }
}

/// Returns tokens in the form of the Messages API.
pub(crate) fn usage_json(usage: &Usage) -> Value {
    let input = usage.input.unwrap_or(0);
    // There the input is counted without what came from the cache.
    let cached = usage.cache_read.unwrap_or(0) + usage.cache_write.unwrap_or(0);
    json!({
        "input_tokens": input.saturating_sub(cached),
        "output_tokens": usage.output.unwrap_or(0),
        "cache_read_input_tokens": usage.cache_read.unwrap_or(0),
        "cache_creation_input_tokens": usage.cache_write.unwrap_or(0),
    })
}

/// Returns the id of the subtask that a message comes from; null for the task itself.
pub(crate) fn parent_id(subtask: Option<&SubtaskLabel>) -> Value {
    subtask.map_or(Value::Null, |subtask| json!(subtask.task))
}

/// Returns the stop reason in the words of the Messages API.
pub(crate) fn stop_reason(stop: Option<StopReason>) -> &'static str {
    match stop {
        Some(StopReason::Calls) => "tool_use",
        Some(StopReason::Length) => "max_tokens",
        Some(StopReason::Refused) => "refusal",
        _ => "end_turn",
    }
}

/// Builds the message for an answer of the model.
pub(crate) fn assistant_message(
    turn: &AssistantTurn,
    model: &str,
    names: &CallNames,
    subtask: Option<&SubtaskLabel>,
) -> Value {
    let block = |part: &MessagePart| match part {
        MessagePart::Text { text } => Some(json!({"type": "text", "text": text})),
        MessagePart::Thought { text, .. } => {
            Some(json!({"type": "thinking", "thinking": text, "signature": ""}))
        }
        MessagePart::Call(call) => {
            let NamedCall { name, input } = names.name_call(call);
            Some(json!({"type": "tool_use", "id": call.id, "name": name, "input": input}))
        }
        _ => None,
    };
    let content: Vec<_> = turn.parts.iter().filter_map(block).collect();
    json!({
        "type": "assistant",
        "message": {
            "id": format!("msg_{}", turn.turn), "type": "message", "role": "assistant", "model": model,
            "content": content, "stop_reason": stop_reason(turn.stop), "stop_sequence": null,
            "usage": usage_json(&turn.usage),
        },
        "parent_tool_use_id": parent_id(subtask),
    })
}

/// Builds the message for the result of a call.
pub(crate) fn result_message(result: &CallResult, subtask: Option<&SubtaskLabel>) -> Value {
    let mut content = vec![json!({"type": "text", "text": result.content})];
    content.extend(result.images.iter().map(|image| {
        let source = json!({"type": "base64", "media_type": image.media_type, "data": image.data});
        json!({"type": "image", "source": source})
    }));
    let block = json!({
        "type": "tool_result", "tool_use_id": result.id, "content": content,
        "is_error": result.ending != ToolResultStatus::Done,
    });
    json!({
        "type": "user", "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": parent_id(subtask),
    })
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnResult {
    /// `success`, or the kind of error.
    pub(crate) subtype: &'static str,
    /// The result, or the reason why there is none.
    pub(crate) text: String,
    /// The stop reason of the last answer.
    pub(crate) stop: &'static str,
}

impl TurnResult {
    /// Creates the result of a turn that ended with the task.
    pub(crate) fn from_task_end(end: &TaskEnd) -> Self {
        Self {
            subtype: match end.outcome {
                TaskOutcome::Completed => "success",
                TaskOutcome::Limit => "error_max_turns",
                _ => "error_during_execution",
            },
            text: end.message.clone(),
            stop: "end_turn",
        }
    }

    /// Creates the result of a turn that failed.
    pub(crate) fn failed(text: String) -> Self {
        Self {
            subtype: "error_during_execution",
            text,
            stop: "end_turn",
        }
    }
}

#[cfg(test)]
mod tests {
    use sabir_session::call::CallId;

    use super::*;

    #[test]
    fn calls_have_the_names_that_programs_know() {
        let names = CallNames {
            servers: BTreeSet::from(["notes".to_owned()]),
        };
        let call = |name: &str, arguments: Value| {
            let call = Call {
                id: CallId::new("1"),
                name: name.to_owned(),
                arguments: arguments.as_object().cloned().unwrap(),
                dialect: None,
            };
            let named = names.name_call(&call);
            (named.name, named.input)
        };
        assert_eq!(
            call("read_file", json!({"path": "a", "start_line": 3})),
            (
                "Read".to_owned(),
                json!({"file_path": "a", "start_line": 3})
            )
        );
        assert_eq!(
            call("execute_command", json!({"command": "ls"})),
            ("Bash".to_owned(), json!({"command": "ls"}))
        );
        assert_eq!(
            call("apply_patch", json!({"patch": "x"})),
            ("apply_patch".to_owned(), json!({"patch": "x"}))
        );
        assert_eq!(call("notes__add", json!({})).0, "mcp__notes__add");
        assert_eq!(call("other__add", json!({})).0, "other__add");
    }
}
