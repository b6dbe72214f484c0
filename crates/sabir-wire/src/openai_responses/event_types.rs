//! The members of Responses events and bodies that the decoder reads; any of them may be missing.

use std::borrow::Cow;

use sabir_call::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientList, LenientObject, LenientText};

/// An event of the stream.
#[derive(Deserialize)]
pub(super) struct EventEnvelope<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) output_index: LenientCount,
    #[serde(borrow, default)]
    pub(super) item_id: LenientText<'a>,
    #[serde(default)]
    pub(super) content_index: LenientCount,
    #[serde(default)]
    pub(super) summary_index: LenientCount,
    #[serde(borrow, default)]
    pub(super) delta: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) part: LenientObject<ItemPart<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: LenientText<'a>,
}

/// An item of the output.
#[derive(Deserialize, Default)]
pub(super) struct OutputItem<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) id: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) call_id: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) status: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) name: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) namespace: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) content: LenientList<ItemPart<'a>>,
    #[serde(borrow, default)]
    pub(super) summary: LenientList<ItemPart<'a>>,
    #[serde(borrow, default)]
    pub(super) phase: LenientText<'a>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
pub(super) struct ItemPart<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: LenientText<'a>,
    #[serde(borrow, default)]
    text: LenientText<'a>,
    #[serde(borrow, default)]
    refusal: LenientText<'a>,
}

/// A whole response: a body that is not streamed, or the end of a stream.
#[derive(Deserialize, Default)]
pub(super) struct FinalResponse<'a> {
    #[serde(borrow, default)]
    pub(super) object: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) status: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: LenientObject<TokenCounts>,
    #[serde(borrow, default)]
    pub(super) incomplete_details: LenientObject<IncompleteDetails<'a>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// The details of an incomplete response.
#[derive(Deserialize)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow, default)]
    pub(super) reason: LenientText<'a>,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct TokenCounts {
    #[serde(default)]
    input_tokens: LenientCount,
    #[serde(default)]
    output_tokens: LenientCount,
    #[serde(default)]
    input_tokens_details: LenientObject<InputDetails>,
    #[serde(default)]
    output_tokens_details: LenientObject<OutputDetails>,
}

/// The details of input counts.
#[derive(Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: LenientCount,
    #[serde(default)]
    cache_write_tokens: LenientCount,
}

/// The details of output counts.
#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: LenientCount,
}

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Refusal,
    Summary,
    Reasoning,
}

impl TextKind {
    /// Returns true for reasoning.
    pub(super) fn is_thought(self) -> bool {
        matches!(self, Self::Summary | Self::Reasoning)
    }

    /// Returns the type of the items that hold such text.
    pub(super) fn item_type(self) -> &'static str {
        if self.is_thought() {
            "reasoning"
        } else {
            "message"
        }
    }

    /// Returns the index of the part that an event names.
    pub(super) fn part_index(self, event: &EventEnvelope<'_>) -> u64 {
        let index = if self == Self::Summary {
            event.summary_index
        } else {
            event.content_index
        };
        index.0.unwrap_or_default()
    }
}

impl<'a> OutputItem<'a> {
    /// Creates an item of which only the type and the id are known.
    pub(super) fn of_kind(kind: &'a str, id: &'a str) -> Self {
        let text = |text| LenientText(Some(Cow::Borrowed(text)));
        Self {
            kind: text(kind),
            id: text(id),
            ..Self::default()
        }
    }

    /// Returns true for a call that the client answers with a result.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind.as_str(), "function_call" | "custom_tool_call")
    }

    /// Returns true if the provider says that the end of the item is missing.
    pub(super) fn is_incomplete(&self) -> bool {
        self.status.as_str() == "incomplete"
    }
}

impl ItemPart<'_> {
    /// Returns the kind and the text of the part.
    pub(super) fn kind_and_text(&self) -> Option<(TextKind, &str)> {
        Some(match self.kind.as_str() {
            "output_text" | "text" => (TextKind::Text, self.text.as_str()),
            "refusal" => (TextKind::Refusal, self.refusal.as_str()),
            "summary_text" => (TextKind::Summary, self.text.as_str()),
            "reasoning_text" => (TextKind::Reasoning, self.text.as_str()),
            _ => return None,
        })
    }
}

impl TokenCounts {
    /// Converts the counts to the common form.
    pub(super) fn to_usage(&self) -> Usage {
        let read = self.input_tokens_details.0.as_ref();
        let written = self.output_tokens_details.0.as_ref();
        Usage {
            input: self.input_tokens.0,
            output: self.output_tokens.0,
            cache_read: read.and_then(|details| details.cached_tokens.0),
            cache_write: read.and_then(|details| details.cache_write_tokens.0),
            reasoning: written.and_then(|details| details.reasoning_tokens.0),
        }
    }
}

/// Returns true if a reasoning item holds content that the model must see again.
pub(super) fn must_go_back(item: &Value) -> bool {
    let full = |key: &str| match item.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    };
    full("encrypted_content") || full("content")
}
