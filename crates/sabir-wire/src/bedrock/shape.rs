//! Amazon Bedrock: what stands in events and whole answers, as far as it is read.

use std::borrow::Cow;

use sabir_call::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::loose::{Count, Maybe, Text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    #[serde(default)]
    pub(super) content_block_index: Count,
    #[serde(borrow, default)]
    pub(super) start: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Maybe<Delta<'a>>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Text<'a>,
    #[serde(default)]
    pub(super) usage: Maybe<Tokens>,
    #[serde(borrow, default)]
    pub(super) output: Maybe<Output<'a>>,
    /// Of InvokeModelWithResponseStream.
    #[serde(borrow, default)]
    pub(super) bytes: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: Maybe<ToolUse<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Maybe<Reasoning<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
}

/// Reasoning in both of its forms: a delta, and the inside of a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reasoning<'a> {
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Text<'a>,
    #[serde(borrow, default)]
    pub(super) redacted_content: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: Option<&'a RawValue>,
}

/// A start, or a whole block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Start<'a> {
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: Maybe<ToolUse<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Maybe<Reasoning<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Output<'a> {
    #[serde(borrow, default)]
    pub(super) message: Maybe<Inner<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Inner<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
}

/// Token counts as the provider splits them: input that came from the cache, or went there, is not in the first one.
#[derive(Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tokens {
    #[serde(default)]
    pub(super) input_tokens: Count,
    #[serde(default)]
    pub(super) output_tokens: Count,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Count,
    #[serde(default)]
    pub(super) cache_write_input_tokens: Count,
}

impl Tokens {
    pub(super) fn usage(self) -> Usage {
        let (read, written) = (self.cache_read_input_tokens.0, self.cache_write_input_tokens.0);
        let cached = read.unwrap_or_default().saturating_add(written.unwrap_or_default());
        let input = self.input_tokens.0.map(|plain| plain.saturating_add(cached));
        Usage { input, output: self.output_tokens.0, cache_read: read, cache_write: written, reasoning: None }
    }
}

/// The text of arguments: a string's content, or anything else as it is written.
pub(super) fn arguments(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(Text(Some(text))) => text,
        _ => Cow::Borrowed(raw.get()),
    }
}
