//! A finished draft as events once more: for scripts, recordings, and answers that were held back.

use sabir_call::{Draft, DraftCall, DraftPart, DraftState, Event, Sink, Usage};

/// Plays a draft as the events that would build it, with deltas of at most `size` bytes (never inside a character;
/// 0: undivided). A call that is still open is left open. Faults come last.
pub fn play(draft: &Draft, size: usize, sink: &mut dyn Sink) {
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => pieces(text, size).for_each(|text| sink.event(Event::Text { text })),
            DraftPart::Thought(text) => pieces(text, size).for_each(|text| sink.event(Event::Thought { text })),
            DraftPart::Opaque(opaque) => sink.event(Event::Opaque(opaque)),
            DraftPart::Call(call) => play_call(call, size, sink),
        }
    }
    if draft.usage != Usage::default() {
        sink.event(Event::Usage(draft.usage));
    }
    if let Some((reason, raw)) = &draft.stop {
        sink.event(Event::Stop { reason: *reason, raw });
    }
    for fault in &draft.faults {
        sink.event(Event::Fault(fault));
    }
}

fn play_call(call: &DraftCall, size: usize, sink: &mut dyn Sink) {
    let index = call.index;
    let (id, dialect) = (call.id.as_deref(), call.dialect.as_deref());
    let (at, name_at) = (call.span.start, call.name_span.start);
    sink.event(Event::CallStart { index, id, name: &call.name, dialect, at, name_at });
    for argument in &call.arguments {
        let at = argument.span.start;
        sink.event(Event::ArgStart { index, name: &argument.name, form: argument.form, at });
        pieces(&argument.text, size).for_each(|text| sink.event(Event::ArgDelta { index, text }));
        if !argument.partial {
            sink.event(Event::ArgEnd { index, lead: "", at: argument.span.end });
        }
    }
    match call.state {
        DraftState::Closed => sink.event(Event::CallEnd { index, at: call.span.end }),
        DraftState::Cut(why) => sink.event(Event::CallCut { index, why, at: call.span.end }),
        DraftState::Open => {}
    }
}

/// A text in pieces of at most `size` bytes; a character that is longer stays whole. 0: in one piece.
pub fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let limit = if size == 0 { rest.len() } else { size.min(rest.len()) };
        let end = (0..=limit).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or_default().max(first);
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use sabir_call::{ArgForm, StopReason};

    use super::*;

    #[test]
    fn a_played_draft_builds_itself() {
        let mut draft = Draft::default();
        draft.event(Event::Thought { text: "hm" });
        draft.event(Event::Text { text: "ü€😀 words" });
        draft.event(Event::CallStart { index: 0, id: Some("c"), name: "f", dialect: None, at: 0, name_at: 0 });
        draft.event(Event::ArgStart { index: 0, name: "a", form: ArgForm::String, at: 6 });
        draft.event(Event::ArgDelta { index: 0, text: "text" });
        draft.event(Event::ArgEnd { index: 0, lead: "\n", at: 10 });
        draft.event(Event::CallEnd { index: 0, at: 12 });
        draft.event(Event::Stop { reason: StopReason::Calls, raw: "tool_calls" });
        for size in [0, 1, 2, 3, 100] {
            let mut again = Draft::default();
            play(&draft, size, &mut again);
            assert_eq!(again, draft, "pieces of {size}");
        }
    }
}
