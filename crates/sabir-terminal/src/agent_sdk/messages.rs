//! Builds the messages that the Claude Agent SDK reads, and names calls as Claude Code does where it has the same tool.

use sabir_session::agent::{AssistantTurn, TaskOutcome};
use sabir_session::call::{Call, CallResult, MessagePart, StopReason, ToolResultStatus, Usage};
use sabir_session::{SubtaskLabel, TaskEnd};
use serde_json::{Map, Value, json};

/// Tools with the same meaning: Sabir's name, Claude Code's, and the arguments that have other names there.
const SAME_TOOLS: [(&str, &str, &[(&str, &str)]); 3] = [
    ("read_file", "Read", &[("path", "file_path")]),
    (
        "write_to_file",
        "Write",
        &[("path", "file_path"), ("content", "content")],
    ),
    ("execute_command", "Bash", &[("command", "command")]),
];

/// The name and the input of a call, as the SDK's program gets them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedCall {
    pub(super) name: String,
    pub(super) input: Value,
}

/// Names a call. Arguments keep their values; a tool without a counterpart keeps its name.
pub(super) fn name_call(call: &Call) -> NamedCall {
    let same = SAME_TOOLS.iter().find(|(own, _, _)| *own == call.name);
    let Some((_, name, arguments)) = same else {
        return NamedCall {
            name: call.name.clone(),
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

/// Returns tokens in the form of the Messages API.
pub(super) fn usage_json(usage: &Usage) -> Value {
    let input = usage.input.unwrap_or(0);
    let cached = usage.cache_read.unwrap_or(0) + usage.cache_write.unwrap_or(0);
    json!({
        "input_tokens": input.saturating_sub(cached),
        "output_tokens": usage.output.unwrap_or(0),
        "cache_read_input_tokens": usage.cache_read.unwrap_or(0),
        "cache_creation_input_tokens": usage.cache_write.unwrap_or(0),
    })
}

/// Returns the call of the parent that a subtask belongs to; null for the task itself.
pub(super) fn parent_id(subtask: Option<&SubtaskLabel>) -> Value {
    subtask.map_or(Value::Null, |subtask| json!(subtask.task))
}

/// Builds the message for an answer of the model.
pub(super) fn assistant_message(
    turn: &AssistantTurn,
    model: &str,
    subtask: Option<&SubtaskLabel>,
) -> Value {
    let content: Vec<_> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Text { text } => Some(json!({"type": "text", "text": text})),
            MessagePart::Thought { text, .. } => {
                Some(json!({"type": "thinking", "thinking": text, "signature": ""}))
            }
            MessagePart::Call(call) => {
                let NamedCall { name, input } = name_call(call);
                Some(json!({"type": "tool_use", "id": call.id, "name": name, "input": input}))
            }
            _ => None,
        })
        .collect();
    let stop = match turn.stop {
        Some(StopReason::Calls) => "tool_use",
        Some(StopReason::Length) => "max_tokens",
        Some(StopReason::Refused) => "refusal",
        _ => "end_turn",
    };
    json!({
        "type": "assistant",
        "message": {
            "id": format!("msg_{}", turn.turn), "type": "message", "role": "assistant", "model": model,
            "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage_json(&turn.usage),
        },
        "parent_tool_use_id": parent_id(subtask),
    })
}

/// Builds the message for the result of a call.
pub(super) fn result_message(result: &CallResult, subtask: Option<&SubtaskLabel>) -> Value {
    let mut content = vec![json!({"type": "text", "text": result.content})];
    content.extend(result.images.iter().map(|image| {
        let source =
            json!({"type": "base64", "media_type": image.media_type, "data": image.data});
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

/// The end of a turn: the words of the result, and whether it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnResult {
    pub(super) subtype: &'static str,
    pub(super) text: String,
    pub(super) stop: &'static str,
}

/// Returns the result of a turn that ended with an end of the task.
pub(super) fn end_result(end: &TaskEnd) -> TurnResult {
    let subtype = match end.outcome {
        TaskOutcome::Completed => "success",
        TaskOutcome::Limit => "error_max_turns",
        _ => "error_during_execution",
    };
    TurnResult {
        subtype,
        text: end.message.clone(),
        stop: "end_turn",
    }
}

#[cfg(test)]
mod tests {
    use sabir_session::call::CallId;

    use super::*;

    #[test]
    fn calls_have_the_names_that_programs_know() {
        let call = |name: &str, arguments: Value| {
            let call = Call {
                id: CallId::new("1"),
                name: name.to_owned(),
                arguments: arguments.as_object().cloned().unwrap(),
                dialect: None,
            };
            let named = name_call(&call);
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
    }
}
