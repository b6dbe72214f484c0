//! The members of Responses events and bodies that the decoder reads; any of them may be missing.

use std::borrow::Cow;

use sabir_call::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientList, LenientObject, LenientText};

/// The type of the state that announces an item with its id, for clients of the same wire. It is no
/// item of the API.
pub(crate) const ITEM_START: &str = "sabir.item_start";

/// The type of the state with the annotations and log probabilities of a text, for clients of the same
/// wire. It is no item of the API either.
pub(crate) const TEXT_DETAILS: &str = "sabir.text_details";

/// An event of the stream.
#[derive(Deserialize)]
pub(super) struct EventEnvelope<'a> {
    /// The `type`, such as `response.output_text.delta`. New ones appear often and are skipped.
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    /// In events about the response as a whole. It is read only in the final ones.
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    /// In `response.output_item.added` and `….done`.
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    /// The label of the item.
    #[serde(default)]
    pub(super) output_index: LenientCount,
    /// The id of the item. Copilot sends another one with each event.
    #[serde(borrow, default)]
    pub(super) item_id: LenientText<'a>,
    /// The part of a message.
    #[serde(default)]
    pub(super) content_index: LenientCount,
    /// The part of a reasoning summary.
    #[serde(default)]
    pub(super) summary_index: LenientCount,
    /// A piece of text or of arguments.
    #[serde(borrow, default)]
    pub(super) delta: LenientText<'a>,
    /// In the `done` event of a text: all of it.
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    /// In the `done` event of a part: all of it.
    #[serde(borrow, default)]
    pub(super) part: LenientObject<ItemPart<'a>>,
    /// In the `done` event of arguments: the whole arguments.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    /// In the `done` event of a custom tool's input: all of it.
    #[serde(borrow, default)]
    pub(super) input: LenientText<'a>,
}

/// An item of the output.
#[derive(Deserialize, Default)]
pub(super) struct OutputItem<'a> {
    /// The `type`: `message`, `reasoning`, `function_call`, `custom_tool_call`, or one of many
    /// others.
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    /// The item's own id.
    #[serde(borrow, default)]
    pub(super) id: LenientText<'a>,
    /// The call's id, which its result must name.
    #[serde(borrow, default)]
    pub(super) call_id: LenientText<'a>,
    /// `in_progress`, `completed` or `incomplete`.
    #[serde(borrow, default)]
    pub(super) status: LenientText<'a>,
    /// The tool's name.
    #[serde(borrow, default)]
    pub(super) name: LenientText<'a>,
    /// The tool's namespace, if it has one.
    #[serde(borrow, default)]
    pub(super) namespace: LenientText<'a>,
    /// The JSON text of a function's arguments; empty when the item is added.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    /// The text of a custom tool's input.
    #[serde(borrow, default)]
    pub(super) input: LenientText<'a>,
    /// The parts of a message, or the text of open models' reasoning.
    #[serde(borrow, default)]
    pub(super) content: LenientList<ItemPart<'a>>,
    /// The readable summary of reasoning.
    #[serde(borrow, default)]
    pub(super) summary: LenientList<ItemPart<'a>>,
    /// The `phase` of a message, which must go back with it.
    #[serde(borrow, default)]
    pub(super) phase: LenientText<'a>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
pub(super) struct ItemPart<'a> {
    /// The `type`: `output_text`, `refusal`, `summary_text` or `reasoning_text`.
    #[serde(rename = "type", borrow, default)]
    kind: LenientText<'a>,
    /// The text, except of a refusal.
    #[serde(borrow, default)]
    text: LenientText<'a>,
    /// The text of a refusal.
    #[serde(borrow, default)]
    refusal: LenientText<'a>,
}

/// A whole response: a body that is not streamed, or the end of a stream.
#[derive(Deserialize, Default)]
pub(super) struct FinalResponse<'a> {
    /// `response`; it tells a body of this wire from an error.
    #[serde(borrow, default)]
    pub(super) object: LenientText<'a>,
    /// `completed`, `incomplete`, `failed` or `cancelled`.
    #[serde(borrow, default)]
    pub(super) status: LenientText<'a>,
    /// All items. In a stream they repeat what came before, and some servers send them only here.
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    /// The counts of the whole response.
    #[serde(default)]
    pub(super) usage: LenientObject<TokenCounts>,
    /// The reason of an incomplete response.
    #[serde(borrow, default)]
    pub(super) incomplete_details: LenientObject<IncompleteDetails<'a>>,
    /// The error of a failed response: `{"code": …, "message": …}`.
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// The details of an incomplete response.
#[derive(Deserialize)]
pub(super) struct IncompleteDetails<'a> {
    /// `max_output_tokens` or `content_filter`.
    #[serde(borrow, default)]
    pub(super) reason: LenientText<'a>,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct TokenCounts {
    /// Input, with the cached part.
    #[serde(default)]
    input_tokens: LenientCount,
    /// Output, with reasoning.
    #[serde(default)]
    output_tokens: LenientCount,
    /// The part of the input that was cached.
    #[serde(default)]
    input_tokens_details: LenientObject<InputDetails>,
    /// The part of the output that was reasoning.
    #[serde(default)]
    output_tokens_details: LenientObject<OutputDetails>,
}

/// The details of input counts.
#[derive(Deserialize)]
struct InputDetails {
    /// Input that was read from the cache.
    #[serde(default)]
    cached_tokens: LenientCount,
    /// Input that was written to the cache. Few servers report it.
    #[serde(default)]
    cache_write_tokens: LenientCount,
}

/// The details of output counts.
#[derive(Deserialize)]
struct OutputDetails {
    /// Output that was reasoning.
    #[serde(default)]
    reasoning_tokens: LenientCount,
}

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// Text of a message.
    Text,
    /// A refusal in a message.
    Refusal,
    /// The summary of reasoning.
    Summary,
    /// Reasoning itself, which open models show.
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

/// The names under which xAI reports the steps of its `x_search` tool.
const X_SEARCHES: [&str; 4] = [
    "x_keyword_search",
    "x_semantic_search",
    "x_thread_fetch",
    "x_user_search",
];

/// The beginning of the ids of these steps.
const X_SEARCH_ID: &str = "xs_call_";

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
        match self.kind.as_str() {
            "function_call" => true,
            "custom_tool_call" => !self.is_server_search(),
            _ => false,
        }
    }

    /// Returns true for a search on X that xAI runs itself. It has the type of a client's custom tool, and differs only in its id or name.
    fn is_server_search(&self) -> bool {
        let call_id = self.call_id.as_str();
        let is_search = X_SEARCHES.contains(&self.name.as_str()) && !call_id.starts_with("call_");
        is_search || call_id.starts_with(X_SEARCH_ID)
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

/// Removes reasoning items without plain or encrypted content: the provider stores no answers, so it does not know them.
pub(crate) fn drop_unusable_reasoning(items: &mut Vec<Value>) {
    items.retain(|item| {
        item.get("type").is_none_or(|kind| kind != "reasoning") || must_be_resent(item)
    });
}

/// Returns true if a reasoning item holds content that the model must see again.
pub(super) fn must_be_resent(item: &Value) -> bool {
    let full = |key: &str| match item.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    };
    full("encrypted_content") || full("content")
}
