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
    /// The label of the block. Deltas and ends refer to it.
    #[serde(default)]
    pub(super) content_block_index: LenientCount,
    /// In `contentBlockStart`: the block, kept as text because server blocks go back unchanged.
    #[serde(borrow, default)]
    pub(super) start: Option<&'a RawValue>,
    /// In `contentBlockDelta`.
    #[serde(borrow, default)]
    pub(super) delta: LenientObject<BlockDelta<'a>>,
    /// In `messageStop`, and in a whole response.
    #[serde(borrow, default)]
    pub(super) stop_reason: LenientText<'a>,
    /// In `metadata`, and in a whole response.
    #[serde(default)]
    pub(super) usage: LenientObject<TokenCounts>,
    /// In a whole response: `{"message": {"role": …, "content": […]}}`.
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
    /// A piece of text.
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    /// A piece of a call: only `input` is in it.
    #[serde(borrow, default)]
    pub(super) tool_use: LenientObject<ToolUse<'a>>,
    /// A list of pieces of a server tool's result.
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    /// A piece of reasoning, of its signature, or of encrypted reasoning.
    #[serde(borrow, default)]
    pub(super) reasoning_content: LenientObject<ReasoningContent<'a>>,
}

/// A call, in a start, a delta or a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    /// `server_tool_use` for a call that the provider runs itself; otherwise missing.
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: LenientText<'a>,
    /// The call's id, which its result must name.
    #[serde(borrow, default)]
    pub(super) tool_use_id: LenientText<'a>,
    /// The tool's name.
    #[serde(borrow, default)]
    pub(super) name: LenientText<'a>,
    /// The arguments: a string with a piece of JSON text in a delta, an object in a whole block.
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
}

/// Reasoning in both of its forms: a delta, and the content of a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningContent<'a> {
    /// A piece of reasoning.
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    /// The signature of the reasoning, which must go back unchanged.
    #[serde(borrow, default)]
    pub(super) signature: LenientText<'a>,
    /// A piece of encrypted reasoning, in base64.
    #[serde(borrow, default)]
    pub(super) redacted_content: LenientText<'a>,
    /// In a whole block: `{"text": …, "signature": …}`.
    #[serde(borrow, default)]
    pub(super) reasoning_text: Option<&'a RawValue>,
}

/// The start of a block, or a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStart<'a> {
    /// In a whole block of text.
    #[serde(borrow, default)]
    pub(super) text: LenientText<'a>,
    /// The start of a call, or a whole one.
    #[serde(borrow, default)]
    pub(super) tool_use: LenientObject<ToolUse<'a>>,
    /// The start of a server tool's result, or a whole one.
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    /// In a whole block of reasoning.
    #[serde(borrow, default)]
    pub(super) reasoning_content: LenientObject<ReasoningContent<'a>>,
}

/// The output of a whole response.
#[derive(Deserialize)]
pub(super) struct ConverseOutput<'a> {
    /// The only message of the response.
    #[serde(borrow, default)]
    pub(super) message: LenientObject<OutputMessage<'a>>,
}

/// The message of a whole response.
#[derive(Deserialize)]
pub(super) struct OutputMessage<'a> {
    /// The list of its blocks. Each is read on its own, so that an odd one spoils no other.
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
}

/// Token counts as the provider splits them: cached input is not part of `input_tokens`.
#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenCounts {
    /// Input that was neither read from the cache nor written to it.
    #[serde(default)]
    pub(super) input_tokens: LenientCount,
    /// All output.
    #[serde(default)]
    pub(super) output_tokens: LenientCount,
    /// Input that was read from the cache.
    #[serde(default)]
    pub(super) cache_read_input_tokens: LenientCount,
    /// Input that was written to the cache.
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
