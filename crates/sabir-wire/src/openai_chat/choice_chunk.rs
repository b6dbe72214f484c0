//! Carries a choice of a split answer to a decoder of its own.

use sabir_call::OpaqueState;
use serde_json::{Value, json};

use super::NAME;
use crate::response_decoder::DETAIL_PREFIX;

/// A chunk with one choice of an answer with several
/// ([`ResponseDecoder::with_choices`](crate::ResponseDecoder::with_choices)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceChunk<'a> {
    /// The index of the choice.
    pub index: u64,
    /// The chunk, whose only choice it is.
    pub chunk: &'a Value,
    /// The end of the prompt that each choice continues.
    pub prefill: &'a str,
    /// True if a last call without its closing markup is accepted.
    pub closes_last_call: bool,
}

impl<'a> ChoiceChunk<'a> {
    /// Reads a chunk from state; `None` if it is other state.
    pub fn from_state(state: &'a OpaqueState) -> Option<Self> {
        let data = &state.data;
        let kind = data.get("type")?.as_str()?;
        let is_choice = state.wire == NAME && kind.strip_prefix(DETAIL_PREFIX) == Some("choice");
        Some(Self {
            index: data.get("index").filter(|_| is_choice)?.as_u64()?,
            chunk: data.get("chunk")?,
            prefill: data.get("prefill")?.as_str()?,
            closes_last_call: data.get("closes_last_call")?.as_bool()?,
        })
    }

    /// Returns the bytes of the texts in the choice.
    pub fn output_bytes(&self) -> usize {
        let choice = self.chunk.get("choices").and_then(|choices| choices.get(0));
        let parts = ["delta", "message"].map(|part| choice.and_then(|choice| choice.get(part)));
        parts.into_iter().flatten().map(text_bytes).sum()
    }

    /// Builds the data of the state.
    pub(crate) fn to_data(self) -> Value {
        json!({
            "type": format!("{DETAIL_PREFIX}choice"),
            "index": self.index,
            "chunk": self.chunk,
            "prefill": self.prefill,
            "closes_last_call": self.closes_last_call,
        })
    }
}

/// Returns the bytes of all strings in a value.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        _ => 0,
    }
}
