//! Events in a comparable form: owned, with adjacent deltas merged.

use sabir_call::{DraftResponse, DraftState, Event, EventSink};
use sabir_wire::{BodyEnd, DecodeReport, ResponseDecoder, Wire};
use serde_json::Value;

/// Collects events as JSON values and merges adjacent deltas.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Merged {
    pub(crate) events: Vec<Value>,
    pub(crate) draft: DraftResponse,
}

impl EventSink for Merged {
    fn push_event(&mut self, event: Event<'_>) {
        self.draft.push_event(event);
        let value = serde_json::to_value(event).unwrap();
        let same = |a: &Value, b: &Value| a["event"] == b["event"] && a["index"] == b["index"];
        if let (
            Event::Text { text } | Event::Thought { text } | Event::ArgDelta { text, .. },
            Some(last),
        ) = (event, self.events.last_mut())
        {
            assert!(!text.is_empty(), "a delta is never empty");
            if same(last, &value) {
                let joined = format!("{}{text}", last["text"].as_str().unwrap());
                last["text"] = Value::from(joined);
                return;
            }
        }
        self.events.push(value);
    }
}

/// Decodes pieces of a body.
pub(crate) fn decode<'a>(
    wire: Wire,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    how: BodyEnd,
) -> (Merged, DecodeReport) {
    let mut merged = Merged::default();
    let mut decoder = ResponseDecoder::new(wire);
    for piece in pieces {
        decoder.push(piece, &mut merged);
    }
    let report = decoder.finish(how, &mut merged);
    check_contract(&merged);
    (merged, report)
}

/// Decodes a body in one piece that ended cleanly.
pub(crate) fn decode_all(wire: Wire, body: &str) -> (Merged, DecodeReport) {
    decode(wire, [body.as_bytes()], BodyEnd::Clean)
}

/// Returns the calls that would run: closed, and not stopped by a fault.
pub(crate) fn runnable(draft: &DraftResponse) -> Vec<(String, Value)> {
    let closed = draft
        .calls()
        .filter(|call| call.state == DraftState::Closed);
    let sound = closed.filter(|call| draft.errors_of(call.index).next().is_none());
    sound
        .map(|call| {
            let value = |argument: &sabir_call::DraftArgument| match argument.form {
                sabir_call::ArgumentEncoding::Json => serde_json::from_str(&argument.text).unwrap(),
                _ => Value::from(argument.text.as_str()),
            };
            let arguments = call
                .arguments
                .iter()
                .map(|argument| (argument.name.clone(), value(argument)));
            (call.name.clone(), Value::Object(arguments.collect()))
        })
        .collect()
}

/// Checks that each call has one start and one end, that indexes count from 0, and that nothing is
/// outside.
fn check_contract(merged: &Merged) {
    let mut open = Vec::new();
    let mut next = 0;
    for event in &merged.events {
        let index = event["index"].as_u64();
        match event["event"].as_str().unwrap() {
            "call_start" => {
                assert_eq!(index, Some(next), "indexes count up");
                next += 1;
                open.push(index);
            }
            "call_end" | "call_cut" => {
                assert!(open.contains(&index), "{event} closes no open call");
                open.retain(|known| *known != index);
            }
            "arg_start" | "arg_delta" | "arg_end" => {
                assert!(open.contains(&index), "{event} outside of a call")
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "a call was neither ended nor cut");
}
