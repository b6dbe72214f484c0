//! Splits an answer with several choices into chunks of one choice each, for a decoder of each choice.

use sabir_call::{Event, EventSink, OpaqueState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lenient::LenientCount;
use crate::response_decoder::{DETAIL_PREFIX, ResponseState};
use crate::wire::Wire;

/// The names of the members for several choices in requests and answers of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChoiceMembers {
    /// The path of the number of choices in a request, with dots between its members.
    pub count: &'static str,
    /// The member of an answer with the list of choices.
    pub list: &'static str,
}

/// A chunk with one choice of an answer with several
/// ([`ResponseDecoder::with_choices`](crate::ResponseDecoder::with_choices)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceChunk<'a> {
    /// The wire of the chunk.
    pub wire: Wire,
    /// The index of the choice.
    pub index: u64,
    /// The chunk, which has only this choice.
    pub chunk: &'a Value,
    /// The end of the prompt that each choice continues.
    pub prefill: &'a str,
    /// True if a last call without its closing markup is accepted.
    pub closes_last_call: bool,
}

impl<'a> ChoiceChunk<'a> {
    /// Reads a chunk from opaque state; `None` if the state is of another kind.
    pub fn from_state(state: &'a OpaqueState) -> Option<Self> {
        let data = &state.data;
        let kind = data.get("type")?.as_str()?;
        let is_choice = kind.strip_prefix(DETAIL_PREFIX) == Some("choice");
        let wire = [Wire::OpenAiChat, Wire::Gemini]
            .into_iter()
            .find(|wire| wire.name() == state.wire)?;
        Some(Self {
            wire,
            index: data.get("index").filter(|_| is_choice)?.as_u64()?,
            chunk: data.get("chunk")?,
            prefill: data.get("prefill")?.as_str()?,
            closes_last_call: data.get("closes_last_call")?.as_bool()?,
        })
    }

    /// Returns the number of bytes of all texts in the choice.
    pub fn output_bytes(&self) -> usize {
        let choices = self.wire.choice_members();
        let choice = choices.and_then(|members| self.chunk.get(members.list)?.get(0));
        let parts =
            ["delta", "message", "content"].map(|part| choice.and_then(|choice| choice.get(part)));
        parts.into_iter().flatten().map(text_bytes).sum()
    }

    /// Builds the data of the opaque state.
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

/// The choices of an answer that is split.
#[derive(Debug, Default)]
pub(crate) struct SplitChoices {
    /// The choices that have begun.
    known: Vec<SplitChoice>,
}

/// A choice of an answer that is split.
#[derive(Debug)]
struct SplitChoice {
    /// The index of the choice.
    label: u64,
    /// True if the end of the choice was read.
    is_finished: bool,
}

/// A chunk to split.
pub(crate) struct SplitChunk {
    /// The wire of the chunk.
    pub(crate) wire: Wire,
    /// The choices of the chunk.
    pub(crate) choices: Vec<Value>,
    /// The index of a choice without one; `None` if it is the position in the chunk.
    pub(crate) usual_label: Option<u64>,
    /// An object with further members, which the chunk of each choice gets.
    pub(crate) shared: Value,
}

/// A function that reads the choice with this index in the answer, and removes the members that belong to all choices.
/// It returns true if the choice ends here.
type ReadChoice<'f> = &'f mut dyn FnMut(usize, &mut Value, &mut dyn EventSink) -> bool;

impl SplitChoices {
    /// Emits each choice of a chunk as a chunk of its own, after `read` has processed it.
    pub(crate) fn split_chunk(
        &mut self,
        state: &mut ResponseState,
        chunk: SplitChunk,
        read: ReadChoice<'_>,
        out: &mut dyn EventSink,
    ) {
        let SplitChunk {
            wire,
            choices,
            usual_label,
            mut shared,
        } = chunk;
        let mut seen: Vec<u64> = Vec::new();
        for (position, mut choice) in (0_u64..).zip(choices) {
            let index = choice.get("index").map(LenientCount::deserialize);
            let index = index.and_then(|index| index.ok()?.0).or(usual_label);
            let label = index
                .filter(|label| !seen.contains(label))
                .unwrap_or(position);
            // The choice is in the chunk twice, or there are more than requested.
            let at = self.choice_index(label, state.choices);
            let Some(at) = at.filter(|_| !seen.contains(&label)) else {
                state.status.skipped += 1;
                continue;
            };
            seen.push(label);
            // The decoder of a choice reads the only choice of its chunks.
            if let Some(members) = choice.as_object_mut() {
                members.shift_remove("index");
            }
            let is_finished = read(at, &mut choice, out);
            if let Some(known) = self.known.get_mut(at) {
                known.is_finished |= is_finished;
            }
            let list = wire.choice_members().map(|members| members.list);
            if let (Some(list), Some(members)) = (list, shared.as_object_mut()) {
                members.insert(list.to_owned(), Value::Array(vec![choice]));
            }
            let piece = ChoiceChunk {
                wire,
                index: label,
                chunk: &shared,
                prefill: &state.prefill,
                closes_last_call: state.closes_last_call,
            };
            out.push_event(Event::Opaque(&OpaqueState {
                wire: wire.name().to_owned(),
                origin: None,
                data: piece.to_data(),
            }));
        }
        let finished = self.known.iter().filter(|known| known.is_finished).count();
        state.status.ended |= u32::try_from(finished) == Ok(state.choices);
        state.has_finished_choices = finished > 0 && finished == self.known.len();
    }

    /// Returns the index of a choice among those that have begun; `None` if it is one more than were
    /// requested.
    fn choice_index(&mut self, label: u64, requested: u32) -> Option<usize> {
        let known = self.known.iter().position(|known| known.label == label);
        let index = known.unwrap_or(self.known.len());
        if index >= usize::try_from(requested).unwrap_or(usize::MAX) {
            return None;
        }
        if known.is_none() {
            self.known.push(SplitChoice {
                label,
                is_finished: false,
            });
        }
        Some(index)
    }
}

/// Returns the number of bytes of all strings in a value.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        _ => 0,
    }
}
