//! Passes members of an answer that events cannot express to a client of the same wire.
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

/// The member of a candidate with the probabilities of its tokens.
const PROBABILITIES: &str = "logprobsResult";

/// The member of a candidate with the sources of its text.
const GROUNDING: &str = "groundingMetadata";

/// Other members of a candidate with lists of sources.
const SOURCES: [&str; 2] = ["citationMetadata", "urlContextMetadata"];

/// The list of sources in the grounding.
const CHUNKS: &str = "groundingChunks";

/// The list of supported passages in the grounding.
const SUPPORTS: &str = "groundingSupports";

/// The list of a passage's sources, by their numbers in the list of sources.
const CHUNK_NUMBERS: &str = "groundingChunkIndices";

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

    /// Removes the details that have the same value as in an earlier chunk from those of a later one,
    /// and remembers the others.
    pub(super) fn retain_changes(&mut self, later: &mut Self) {
        let groups = [
            (&mut self.chunk, &mut later.chunk),
            (&mut self.candidate, &mut later.candidate),
            (&mut self.usage, &mut later.usage),
        ];
        for (known, later) in groups {
            // The probabilities of two tokens may be equal.
            later.retain(|key, value| key == PROBABILITIES || known.get(key) != Some(value));
            let news = later.iter().filter(|(key, _)| *key != PROBABILITIES);
            known.extend(news.map(|(key, value)| (key.clone(), value.clone())));
        }
    }

    /// Adds the details of a later chunk.
    pub(super) fn add(&mut self, later: Self) {
        merge_members(&mut self.chunk, later.chunk);
        for (key, value) in later.candidate {
            let earlier = self.candidate.get_mut(&key).and_then(Value::as_object_mut);
            match (earlier, value) {
                (Some(earlier), Value::Object(later)) if key == PROBABILITIES => {
                    append_lists(earlier, later);
                }
                (Some(earlier), Value::Object(later)) if key == GROUNDING => {
                    merge_grounding(earlier, later);
                }
                (Some(earlier), Value::Object(later)) if SOURCES.contains(&key.as_str()) => {
                    continue_lists(earlier, later);
                }
                (Some(earlier), Value::Object(later)) => merge_members(earlier, later),
                (_, value) => {
                    self.candidate.insert(key, value);
                }
            }
        }
        self.usage.extend(later.usage);
    }
}

/// Merges the members of a later object: objects are merged, other values replace the earlier ones. Each chunk has all ratings known by
/// then.
fn merge_members(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(members)), Value::Object(more)) => merge_members(members, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Appends the lists of a later object, which describe the tokens of its own chunk. Equal items are different tokens.
fn append_lists(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Merges lists of sources: a later list that begins with the earlier one replaces it, another one
/// continues it.
fn continue_lists(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => {
                if more.starts_with(items) {
                    *items = more;
                } else {
                    items.extend(more);
                }
            }
            (Some(Value::Object(members)), Value::Object(more)) => merge_members(members, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Merges grounding. If the later sources continue the earlier ones, the source indexes in the later supports are shifted.
fn merge_grounding(into: &mut Map<String, Value>, mut later: Map<String, Value>) {
    let earlier = list_of(into, CHUNKS);
    let count = earlier.len();
    let more = list_of(&later, CHUNKS);
    if count > 0 && !more.is_empty() && !more.starts_with(earlier) {
        let supports = later.get_mut(SUPPORTS).and_then(Value::as_array_mut);
        for support in supports.into_iter().flatten() {
            let numbers = support.get_mut(CHUNK_NUMBERS).and_then(Value::as_array_mut);
            for number in numbers.into_iter().flatten() {
                if let Some(old) = number.as_u64() {
                    *number = old.saturating_add(count as u64).into();
                }
            }
        }
    }
    continue_lists(into, later);
}

/// Returns the items of a list; none if there is no list.
fn list_of<'v>(members: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    members
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
