//! Creates the faults for JSON calls.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};
// `place` is an offset in the assistant text in all of these.

pub(super) fn malformed_json(place: usize, message: &str) -> Fault {
    let message = format!("the call is not valid JSON: {message}");
    Fault::error(
        FaultKind::MalformedJson,
        Span::new(place, place + 1),
        message,
    )
}

pub(super) fn trailing_comma(place: usize) -> Fault {
    let message = "there is a comma before a closing bracket";
    let fault = Fault::warning(
        FaultKind::TrailingComma,
        Span::new(place, place + 1),
        message,
    );
    fault.with_hint("leave out the comma before the closing bracket")
}

pub(super) fn extra_comma(place: usize) -> Fault {
    let message = "there is more than one comma between two calls";
    Fault::warning(
        FaultKind::TrailingComma,
        Span::new(place, place + 1),
        message,
    )
    .with_hint("write one comma between two calls")
}

pub(super) fn single_quotes(span: Span) -> Fault {
    let fault = Fault::warning(
        FaultKind::SingleQuotes,
        span,
        "a string of the call is in single quotes",
    );
    fault.with_hint("write strings in double quotes")
}

/// Reports a call that was opened without any JSON after it.
pub(super) fn report_missing_json(place: usize, out: &mut dyn EventSink) {
    let message = "a call was opened, and no JSON follows";
    let fault = Fault::error(FaultKind::MalformedJson, Span::new(place, place), message);
    out.push_event(Event::Fault(&fault.with_hint(
        "write one JSON object with the tool's name and its arguments",
    )));
}
