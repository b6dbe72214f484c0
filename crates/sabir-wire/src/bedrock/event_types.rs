//! The members of Bedrock events and whole responses that the decoder reads.

use std::borrow::Cow;

use sabir_call::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientObject, LenientText};

/// An event of the stream, or a whole response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventBody<'a> {
    #[serde(default)]
    pub(super) content_block_index: LenientCount,
    #[serde(borrow, default)]
    pub(super) start: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: LenientObject<BlockDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) stop_reason: LenientText<'a>,
    #[serde(default)]
    pub(super) usage: LenientObject<TokenCounts>,
    #[serde(borrow, default)]
    pub(super) output: LenientObject<ConverseOutput<'a>>,
    /// The base64 payload of an InvokeModelWithResponseStream event.
    #[serde(borrow, default)]
    pub(super) bytes: LenientText<'a>,
}

/// The delta of a block.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: LenientObject<ToolUse<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: LenientObject<ReasoningContent<'a>>,
}

/// A call, in a start, a delta or a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use_id: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) name: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
}

/// Reasoning in both of its forms: a delta, and the content of a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningContent<'a> {
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) signature: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) redacted_content: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: Option<&'a RawValue>,
}

/// The start of a block, or a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStart<'a> {
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: LenientObject<ToolUse<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: LenientObject<ReasoningContent<'a>>,
}

/// The output of a whole response.
#[derive(Deserialize)]
pub(super) struct ConverseOutput<'a> {
    #[serde(borrow, default)]
    pub(super) message: LenientObject<OutputMessage<'a>>,
}

/// The message of a whole response.
#[derive(Deserialize)]
pub(super) struct OutputMessage<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
}

/// Token counts as the provider splits them: cached input is not part of `input_tokens`.
#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenCounts {
    #[serde(default)]
    pub(super) input_tokens: LenientCount,
    #[serde(default)]
    pub(super) output_tokens: LenientCount,
    #[serde(default)]
    pub(super) cache_read_input_tokens: LenientCount,
    #[serde(default)]
    pub(super) cache_write_input_tokens: LenientCount,
}

impl TokenCounts {
    /// Converts the counts to the common form, in which the input includes the cached part.
    pub(super) fn to_usage(self) -> Usage {
        let read = self.cache_read_input_tokens.0;
        let written = self.cache_write_input_tokens.0;
        let cached = read
            .unwrap_or_default()
            .saturating_add(written.unwrap_or_default());
        let input = self
            .input_tokens
            .0
            .map(|plain| plain.saturating_add(cached));
        Usage {
            input,
            output: self.output_tokens.0,
            cache_read: read,
            cache_write: written,
            reasoning: None,
        }
    }
}

/// Returns the text of arguments: the content of a string, or any other value as written.
pub(super) fn argument_text(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<LenientText<'_>>(raw.get()) {
        Ok(LenientText(Some(text))) => text,
        _ => Cow::Borrowed(raw.get()),
    }
}
