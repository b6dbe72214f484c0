//! Passes content that events cannot express to a client of the same wire: citations, the
//! boundaries of text blocks, and further members of the message and its usage.

use sabir_call::OpaqueState;
use serde_json::{Map, Value, json};

use super::NAME;
use crate::response_decoder::DETAIL_PREFIX;
use crate::unknown_members::unknown_members;

/// The members of a message that events carry.
const MESSAGE_MEMBERS: [&str; 7] = [
    "id",
    "type",
    "role",
    "model",
    "content",
    "stop_reason",
    "usage",
];

/// The members of a `message_delta` event that events carry.
const DELTA_EVENT_MEMBERS: [&str; 3] = ["type", "delta", "usage"];

/// The counts that events carry.
const USAGE_MEMBERS: [&str; 4] = [
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
];

/// A detail of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerDetail {
    /// A block of text begins.
    TextStart,
    /// A delta of the open text block, such as `citations_delta`.
    TextDelta(Value),
    /// Members of the message.
    Message(Map<String, Value>),
    /// Members of the `message_delta` event.
    End(Map<String, Value>),
    /// Members of the counts.
    Usage(Map<String, Value>),
}

impl AnswerDetail {
    /// Returns the details of an event, as state of this wire.
    pub(crate) fn from_event(data: &str) -> Vec<OpaqueState> {
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        let mut details = Vec::new();
        match type_of(&event) {
            "message_start" | "message" => {
                let message = event.get("message").unwrap_or(&event);
                details.push(Self::Message(unknown_members(message, &MESSAGE_MEMBERS)));
                details.push(Self::Usage(unknown_members(
                    message.get("usage").unwrap_or(&Value::Null),
                    &USAGE_MEMBERS,
                )));
            }
            "content_block_start" if event.get("content_block").map(type_of) == Some("text") => {
                details.push(Self::TextStart);
            }
            // Other unknown deltas belong to blocks that are kept whole.
            "content_block_delta" => details.extend(
                event
                    .get("delta")
                    .filter(|delta| type_of(delta) == "citations_delta")
                    .map(|delta| Self::TextDelta(delta.clone())),
            ),
            "message_delta" => {
                details.push(Self::Message(unknown_members(
                    event.get("delta").unwrap_or(&Value::Null),
                    &MESSAGE_MEMBERS,
                )));
                details.push(Self::End(unknown_members(&event, &DELTA_EVENT_MEMBERS)));
                details.push(Self::Usage(unknown_members(
                    event.get("usage").unwrap_or(&Value::Null),
                    &USAGE_MEMBERS,
                )));
            }
            _ => {}
        }
        details.iter().filter_map(Self::to_state).collect()
    }

    /// Writes the detail as state; `None` if there is nothing in it.
    fn to_state(&self) -> Option<OpaqueState> {
        let (kind, value) = match self {
            Self::TextStart => ("text_start", Value::Null),
            Self::TextDelta(delta) => ("text_delta", delta.clone()),
            Self::Message(members) | Self::End(members) | Self::Usage(members)
                if members.is_empty() =>
            {
                return None;
            }
            Self::Message(members) => ("message", json!(members)),
            Self::End(members) => ("end", json!(members)),
            Self::Usage(members) => ("usage", json!(members)),
        };
        Some(OpaqueState {
            wire: NAME.to_owned(),
            origin: None,
            data: json!({"type": format!("{DETAIL_PREFIX}{kind}"), "value": value}),
        })
    }

    /// Reads a detail from state; `None` if it is other state.
    pub(crate) fn from_state(state: &Value) -> Option<Self> {
        let kind = state.get("type")?.as_str()?.strip_prefix(DETAIL_PREFIX)?;
        let value = state.get("value").cloned().unwrap_or_default();
        let members = value.as_object().cloned().unwrap_or_default();
        Some(match kind {
            "text_start" => Self::TextStart,
            "text_delta" => Self::TextDelta(value),
            "message" => Self::Message(members),
            "end" => Self::End(members),
            "usage" => Self::Usage(members),
            _ => return None,
        })
    }
}

/// Returns the `type` of a value; empty if it has none.
fn type_of(value: &Value) -> &str {
    value
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
