//! Carries the members of an answer that events have no place for to a client of the same wire.
//!
//! Grounding and citations, ratings, log probabilities, further counts: the decoder collects what it
//! does not read of a chunk, and the encoder writes it into the next chunk.

use serde_json::{Map, Value, json};

use crate::response_decoder::DETAIL_PREFIX;
use crate::unknown_members::unknown_members;

/// The members that events carry, of a chunk.
const CHUNK_MEMBERS: [&str; 5] = [
    "candidates",
    "usageMetadata",
    "modelVersion",
    "responseId",
    "error",
];

/// The members that events carry, of a candidate.
const CANDIDATE_MEMBERS: [&str; 3] = ["content", "finishReason", "index"];

/// The counts that events carry. That of tool results is part of the input.
const USAGE_MEMBERS: [&str; 6] = [
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
];

/// The details of a chunk, or of several.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AnswerDetails {
    /// Members of the chunk.
    pub(super) chunk: Map<String, Value>,
    /// Members of the candidate.
    pub(super) candidate: Map<String, Value>,
    /// Members of the counts.
    pub(super) usage: Map<String, Value>,
}

impl AnswerDetails {
    /// Collects the details of a chunk. `candidate` is the index of the candidate that is read.
    pub(super) fn from_chunk(chunk: &Value, candidate: Option<u64>) -> Self {
        let candidates = chunk.get("candidates").and_then(Value::as_array);
        let label = |found: &Value| found.get("index").and_then(Value::as_u64).unwrap_or(0);
        let found = candidates
            .into_iter()
            .flatten()
            .find(|found| candidate.is_none_or(|candidate| label(found) == candidate));
        Self {
            chunk: unknown_members(chunk, &CHUNK_MEMBERS),
            candidate: unknown_members(found.unwrap_or(&Value::Null), &CANDIDATE_MEMBERS),
            usage: unknown_members(
                chunk.get("usageMetadata").unwrap_or(&Value::Null),
                &USAGE_MEMBERS,
            ),
        }
    }

    /// Returns true if there is nothing that a chunk must be written with.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.candidate.is_empty()
    }

    /// Writes the details as state of this wire.
    pub(super) fn to_state(&self) -> Value {
        json!({
            "type": format!("{DETAIL_PREFIX}chunk"), "chunk": self.chunk,
            "candidate": self.candidate, "usage": self.usage,
        })
    }

    /// Reads the details from state; `None` if it is other state.
    pub(super) fn from_state(state: &Value) -> Option<Self> {
        let kind = state.get("type")?.as_str()?.strip_prefix(DETAIL_PREFIX)?;
        let object = |key: &str| {
            let object = state.get(key).and_then(Value::as_object);
            object.cloned().unwrap_or_default()
        };
        (kind == "chunk").then(|| Self {
            chunk: object("chunk"),
            candidate: object("candidate"),
            usage: object("usage"),
        })
    }

    /// Adds the details of a later chunk.
    pub(super) fn add(&mut self, later: Self) {
        merge_members(&mut self.chunk, later.chunk);
        merge_members(&mut self.candidate, later.candidate);
        self.usage.extend(later.usage);
    }
}

/// Merges the members of a later object: lists get the items that they do not have yet, since some are
/// repeated in each chunk; objects are merged, other values replace the earlier ones.
fn merge_members(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => {
                for item in more {
                    if !items.contains(&item) {
                        items.push(item);
                    }
                }
            }
            (Some(Value::Object(members)), Value::Object(more)) => merge_members(members, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
