//! Creates the faults for JSON calls.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};
// In all of these, `offset` is a position in the assistant text.

pub(super) fn malformed_json(offset: usize, message: &str) -> Fault {
    let message = format!("the call is not valid JSON: {message}");
    Fault::error(
        FaultKind::MalformedJson,
        Span::new(offset, offset + 1),
        message,
    )
}

pub(super) fn trailing_comma(offset: usize) -> Fault {
    let message = "there is a comma before a closing bracket";
    let fault = Fault::warning(
        FaultKind::TrailingComma,
        Span::new(offset, offset + 1),
        message,
    );
    fault.with_hint("leave out the comma before the closing bracket")
}

pub(super) fn extra_comma(offset: usize) -> Fault {
    let message = "there is more than one comma between two calls";
    Fault::warning(
        FaultKind::TrailingComma,
        Span::new(offset, offset + 1),
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
pub(super) fn report_missing_json(offset: usize, out: &mut dyn EventSink) {
    let message = "a call was opened, and no JSON follows";
    let fault = Fault::error(FaultKind::MalformedJson, Span::new(offset, offset), message);
    out.push_event(Event::Fault(&fault.with_hint(
        "write one JSON object with the tool's name and its arguments",
    )));
}
