//! Carries a choice of a split answer to a decoder of its own.

use sabir_call::OpaqueState;
use serde_json::{Map, Value, json};

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
}

impl<'a> ChoiceChunk<'a> {
    /// Reads a chunk from state; `None` if it is other state.
    pub fn from_state(state: &'a OpaqueState) -> Option<Self> {
        let kind = state.data.get("type")?.as_str()?;
        let is_choice = state.wire == NAME && kind.strip_prefix(DETAIL_PREFIX) == Some("choice");
        Some(Self {
            index: state.data.get("index").filter(|_| is_choice)?.as_u64()?,
            chunk: state.data.get("chunk")?,
        })
    }

    /// Builds the data of the state.
    pub(crate) fn state_data(index: u64, chunk: &Map<String, Value>) -> Value {
        json!({"type": format!("{DETAIL_PREFIX}choice"), "index": index, "chunk": chunk})
    }
}
