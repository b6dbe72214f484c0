//! Passes members of an answer that events cannot express to a client of the same wire.
//!
//! Log probabilities, annotations, audio, the fingerprint of the system, a server's own members: the
//! decoder collects what it does not read of a chunk, and the encoder writes it into the chunk that
//! brings the same content.

use serde_json::{Map, Value, json};

use crate::response_decoder::DETAIL_PREFIX;
use crate::unknown_members::unknown_members;

/// The members that events carry, of a chunk or a whole completion.
const CHUNK_MEMBERS: [&str; 7] = [
    "id", "object", "created", "model", "choices", "usage", "error",
];

/// The members that events carry, of a choice.
const CHOICE_MEMBERS: [&str; 4] = ["index", "delta", "message", "finish_reason"];

/// The members that events carry, of a delta or a message.
const MESSAGE_MEMBERS: [&str; 7] = [
    "role",
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "tool_calls",
    "function_call",
];

/// The member with a refusal, which comes in pieces.
pub(crate) const REFUSAL: &str = "refusal";

/// The member with the calls.
pub(crate) const CALLS: &str = "tool_calls";

/// The members that events carry, of a call.
const CALL_MEMBERS: [&str; 5] = ["index", "id", "type", "function", "custom"];

/// The counts that events carry.
const USAGE_MEMBERS: [&str; 3] = ["prompt_tokens", "completion_tokens", "total_tokens"];

/// The details of a chunk, or of several.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AnswerDetails {
    /// Members of the chunk, which later chunks repeat.
    pub(crate) chunk: Map<String, Value>,
    /// Members of the choice.
    pub(crate) choice: Map<String, Value>,
    /// Members of the delta or the message. Those of calls are in `tool_calls`, with the provider's `id` and `index`. The client's calls
    /// have other indexes if some were found in the text or left out.
    pub(crate) message: Map<String, Value>,
    /// Members of the counts.
    pub(crate) usage: Map<String, Value>,
    /// The member with the thoughts, if it is not the usual one.
    pub(crate) thought_member: Option<String>,
}

impl AnswerDetails {
    /// Collects the details of a chunk. `choice` is the index of the choice that is read.
    pub(crate) fn from_chunk(chunk: &Value, choice: Option<u64>) -> Self {
        let mut details = Self {
            chunk: unknown_members(chunk, &CHUNK_MEMBERS),
            usage: unknown_members(chunk.get("usage").unwrap_or(&Value::Null), &USAGE_MEMBERS),
            ..Self::default()
        };
        let label = |choice: &Value| {
            choice
                .get("index")
                .and_then(Value::as_u64)
                .unwrap_or_default()
        };
        let found = chunk
            .get("choices")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|found| choice.is_none_or(|choice| label(found) == choice));
        let Some(found) = found else {
            return details;
        };
        details.choice = unknown_members(found, &CHOICE_MEMBERS);
        let message = ["delta", "message"]
            .iter()
            .find_map(|key| found.get(*key).filter(|message| message.is_object()));
        let Some(message) = message else {
            return details;
        };
        details.message = unknown_members(message, &MESSAGE_MEMBERS);
        let is_text = |key: &str| message.get(key).is_some_and(Value::is_string);
        if is_text("reasoning") && !is_text("reasoning_content") {
            details.thought_member = Some("reasoning".to_owned());
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let calls: Vec<Value> = (0_u64..)
            .zip(calls.into_iter().flatten())
            .filter_map(|(position, call)| {
                let mut rest = unknown_members(call, &CALL_MEMBERS);
                let index = call
                    .get("index")
                    .and_then(Value::as_u64)
                    .unwrap_or(position);
                (!rest.is_empty()).then(|| {
                    rest.insert("index".to_owned(), index.into());
                    let id = call.get("id").filter(|id| id.is_string());
                    rest.extend(id.map(|id| ("id".to_owned(), id.clone())));
                    Value::Object(rest)
                })
            })
            .collect();
        if !calls.is_empty() {
            details.message.insert(CALLS.to_owned(), calls.into());
        }
        details
    }

    /// Writes the details as state of this wire.
    pub(crate) fn to_state(&self) -> Value {
        json!({
            "type": format!("{DETAIL_PREFIX}chunk"), "chunk": self.chunk, "choice": self.choice, "message": self.message,
            "usage": self.usage, "thought_member": self.thought_member,
        })
    }

    /// Reads the details from state; `None` if it is other state.
    pub(crate) fn from_state(state: &Value) -> Option<Self> {
        let kind = state.get("type")?.as_str()?.strip_prefix(DETAIL_PREFIX)?;
        let object = |key: &str| {
            let object = state.get(key).and_then(Value::as_object);
            object.cloned().unwrap_or_default()
        };
        (kind == "chunk").then(|| Self {
            chunk: object("chunk"),
            choice: object("choice"),
            message: object("message"),
            usage: object("usage"),
            thought_member: state
                .get("thought_member")
                .and_then(Value::as_str)
                .map(str::to_owned),
        })
    }

    /// Takes the members of the calls, with the ids of the calls. Drops those of a call without an id, which cannot be identified.
    pub(crate) fn take_call_members(&mut self) -> Vec<(String, Map<String, Value>)> {
        let Some(Value::Array(calls)) = self.message.remove(CALLS) else {
            return Vec::new();
        };
        calls
            .into_iter()
            .filter_map(|call| {
                let Value::Object(mut members) = call else {
                    return None;
                };
                members.remove("index");
                match members.remove("id")? {
                    Value::String(id) if !id.is_empty() => Some((id, members)),
                    _ => None,
                }
            })
            .collect()
    }

    /// Completes the ids of calls that later chunks identify only by their index.
    pub(crate) fn add_call_ids<'c>(&mut self, id_of: impl Fn(u64) -> Option<&'c str>) {
        let calls = self.message.get_mut(CALLS).and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
            let index = call.get("index").and_then(Value::as_u64);
            if !call.contains_key("id")
                && let Some(id) = index.and_then(&id_of)
            {
                call.insert("id".to_owned(), id.into());
            }
        }
    }

    /// Adds the details of a later chunk.
    pub(crate) fn add(&mut self, later: Self) {
        // Servers repeat them in each chunk, lists as well.
        self.chunk.extend(later.chunk);
        merge_members(&mut self.choice, later.choice);
        merge_members(&mut self.message, later.message);
        self.usage.extend(later.usage);
        if later.thought_member.is_some() {
            self.thought_member = later.thought_member;
        }
    }
}

/// Merges the members of a later object: lists continue, objects are merged, other values replace
/// the earlier ones.
pub(crate) fn merge_members(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (Some(Value::Object(members)), Value::Object(more)) => merge_members(members, more),
            (Some(Value::String(text)), Value::String(more)) if key == REFUSAL => {
                text.push_str(&more)
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
