//! What the events of OpenAI Responses look like; no member is there for certain.

use std::borrow::Cow;

use sabir_call::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::loose::{Count, List, Maybe, Text};

/// An event of the stream.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) output_index: Count,
    #[serde(borrow, default)]
    pub(super) item_id: Text<'a>,
    #[serde(default)]
    pub(super) content_index: Count,
    #[serde(default)]
    pub(super) summary_index: Count,
    #[serde(borrow, default)]
    pub(super) delta: Text<'a>,
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) part: Maybe<Piece<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Text<'a>,
}

/// An item of the output.
#[derive(Deserialize, Default)]
pub(super) struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) call_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) namespace: Text<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Text<'a>,
    #[serde(borrow, default)]
    pub(super) content: List<Piece<'a>>,
    #[serde(borrow, default)]
    pub(super) summary: List<Piece<'a>>,
    #[serde(borrow, default)]
    pub(super) phase: Text<'a>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
}

/// A response as a whole: the body that was not streamed, or what ends a stream.
#[derive(Deserialize, Default)]
pub(super) struct Over<'a> {
    #[serde(borrow, default)]
    pub(super) object: Text<'a>,
    #[serde(borrow, default)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Maybe<Tokens>,
    #[serde(borrow, default)]
    pub(super) incomplete_details: Maybe<Details<'a>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// Why a response is incomplete.
#[derive(Deserialize)]
pub(super) struct Details<'a> {
    #[serde(borrow, default)]
    pub(super) reason: Text<'a>,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct Tokens {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    input_tokens_details: Maybe<InputDetails>,
    #[serde(default)]
    output_tokens_details: Maybe<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    cache_write_tokens: Count,
}

#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Count,
}

/// What words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Text,
    Refusal,
    Summary,
    Reasoning,
}

impl Way {
    /// Whether they are reasoning.
    pub(super) fn is_thought(self) -> bool {
        matches!(self, Self::Summary | Self::Reasoning)
    }

    /// The type of the items that hold such words.
    pub(super) fn item(self) -> &'static str {
        if self.is_thought() { "reasoning" } else { "message" }
    }

    /// The number of the part that an event names.
    pub(super) fn index(self, event: &Envelope<'_>) -> u64 {
        let index = if self == Self::Summary { event.summary_index } else { event.content_index };
        index.0.unwrap_or_default()
    }
}

impl<'a> Item<'a> {
    /// An item of which nothing but the type and the id is known.
    pub(super) fn of_kind(kind: &'a str, id: &'a str) -> Self {
        let text = |text| Text(Some(Cow::Borrowed(text)));
        Self { kind: text(kind), id: text(id), ..Self::default() }
    }

    /// Whether it is a call that the client answers with a result.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind.as_str(), "function_call" | "custom_tool_call")
    }

    /// Whether the provider says that its end is missing.
    pub(super) fn is_incomplete(&self) -> bool {
        self.status.as_str() == "incomplete"
    }
}

impl Piece<'_> {
    /// Its words, and what they are.
    pub(super) fn words(&self) -> Option<(Way, &str)> {
        Some(match self.kind.as_str() {
            "output_text" | "text" => (Way::Text, self.text.as_str()),
            "refusal" => (Way::Refusal, self.refusal.as_str()),
            "summary_text" => (Way::Summary, self.text.as_str()),
            "reasoning_text" => (Way::Reasoning, self.text.as_str()),
            _ => return None,
        })
    }
}

impl Tokens {
    /// The same in our words.
    pub(super) fn usage(&self) -> Usage {
        let (read, written) = (self.input_tokens_details.0.as_ref(), self.output_tokens_details.0.as_ref());
        Usage {
            input: self.input_tokens.0,
            output: self.output_tokens.0,
            cache_read: read.and_then(|details| details.cached_tokens.0),
            cache_write: read.and_then(|details| details.cache_write_tokens.0),
            reasoning: written.and_then(|details| details.reasoning_tokens.0),
        }
    }
}

/// Whether a reasoning item holds anything that a model must see again.
pub(super) fn must_go_back(item: &Value) -> bool {
    let full = |key: &str| match item.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    };
    full("encrypted_content") || full("content")
}
