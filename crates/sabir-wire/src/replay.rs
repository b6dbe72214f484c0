//! Replays a finished draft as events: for scripts, recordings, and responses that were held back.

use sabir_call::{DraftCall, DraftPart, DraftResponse, DraftState, Event, EventSink, Usage};

/// Replays a draft as the events that would build it, with deltas of at most `size` bytes (never
/// split inside a character; 0 means undivided). A call that is still open stays open. Faults come
/// last.
///
/// The events build an equal draft again, so an encoder cannot tell a replay from a stream.
/// `Source` and `Mark` events are not part of a draft and do not come back.
pub fn replay_draft(draft: &DraftResponse, size: usize, sink: &mut dyn EventSink) {
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => {
                split_text(text, size).for_each(|text| sink.push_event(Event::Text { text }))
            }
            DraftPart::Thought(text) => {
                split_text(text, size).for_each(|text| sink.push_event(Event::Thought { text }))
            }
            DraftPart::Opaque(opaque) => sink.push_event(Event::Opaque(opaque)),
            DraftPart::Call(call) => replay_call(call, size, sink),
        }
    }
    // Usage and the stop reason come after all parts, as in a real stream.
    if draft.usage != Usage::default() {
        sink.push_event(Event::Usage(draft.usage));
    }
    if let Some((reason, raw)) = &draft.stop {
        sink.push_event(Event::Stop {
            reason: *reason,
            raw,
        });
    }
    for fault in &draft.faults {
        sink.push_event(Event::Fault(fault));
    }
}

/// Replays one call with the offsets that it had.
fn replay_call(call: &DraftCall, size: usize, sink: &mut dyn EventSink) {
    let index = call.index;
    let id = call.id.as_deref();
    let dialect = call.dialect.as_deref();
    let at = call.span.start;
    let name_at = call.name_span.start;
    sink.push_event(Event::CallStart {
        index,
        id,
        name: &call.name,
        dialect,
        at,
        name_at,
    });
    for argument in &call.arguments {
        let at = argument.span.start;
        sink.push_event(Event::ArgStart {
            index,
            name: &argument.name,
            form: argument.form,
            at,
        });
        split_text(&argument.text, size)
            .for_each(|text| sink.push_event(Event::ArgDelta { index, text }));
        if !argument.partial {
            sink.push_event(Event::ArgEnd {
                index,
                // The draft's text already includes the line feed that a raw value may begin with.
                lead: "",
                at: argument.span.end,
            });
        }
    }
    match call.state {
        DraftState::Closed => sink.push_event(Event::CallEnd {
            index,
            at: call.span.end,
        }),
        DraftState::Cut(why) => sink.push_event(Event::CallCut {
            index,
            why,
            at: call.span.end,
        }),
        DraftState::Open => {}
    }
}

/// Splits a text into pieces of at most `size` bytes; a longer character stays whole. 0 means one
/// piece.
pub fn split_text(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let limit = if size == 0 {
            rest.len()
        } else {
            size.min(rest.len())
        };
        // The end moves back to the start of a character, but past the first one, so the loop ends.
        let end = (0..=limit)
            .rev()
            .find(|end| rest.is_char_boundary(*end))
            .unwrap_or_default()
            .max(first);
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use sabir_call::{ArgumentEncoding, StopReason};

    use super::*;

    #[test]
    fn a_replayed_draft_is_equal() {
        let mut draft = DraftResponse::default();
        draft.push_event(Event::Thought { text: "hm" });
        draft.push_event(Event::Text {
            text: "ü€😀 words"
        });
        draft.push_event(Event::CallStart {
            index: 0,
            id: Some("c"),
            name: "f",
            dialect: None,
            at: 0,
            name_at: 0,
        });
        draft.push_event(Event::ArgStart {
            index: 0,
            name: "a",
            form: ArgumentEncoding::String,
            at: 6,
        });
        draft.push_event(Event::ArgDelta {
            index: 0,
            text: "text",
        });
        draft.push_event(Event::ArgEnd {
            index: 0,
            lead: "\n",
            at: 10,
        });
        draft.push_event(Event::CallEnd { index: 0, at: 12 });
        draft.push_event(Event::Stop {
            reason: StopReason::Calls,
            raw: "tool_calls",
        });
        for size in [0, 1, 2, 3, 100] {
            let mut again = DraftResponse::default();
            replay_draft(&draft, size, &mut again);
            assert_eq!(again, draft, "pieces of {size}");
        }
    }
}
