//! One native call while it comes: its name, its arguments, its end.
//!
//! What all wires share: `CallStart` waits for the name, arguments go through the one JSON scanner, and a call ends only
//! when its end was *seen* and its JSON is whole. The wires decide which delta belongs to which call.
//!
//! How a call ends:
//!
//! | end seen | argument text | event |
//! | --- | --- | --- |
//! | yes | one whole object, or `null` | `CallEnd` |
//! | yes | none at all | `CallEnd`, but only once the provider went on or stopped for another reason than its limit |
//! | yes | unfinished | `CallCut` as soon as the stop reason is known, to say why |
//! | yes | can never be an object | a fault of severity `error`, then `CallEnd`: the gates reject it |
//! | no | any | `CallCut` |
//! | any, after an unreadable event | any | `CallCut(Broken)`: a piece may be missing |

use sabir_call::json::{ArgumentScanner, ScanOutcome};
use sabir_call::{Event, EventSink, Fault, FaultKind, Span, StopReason, Truncation};

/// The most calls of one response; further ones are dropped with a fault.
pub(crate) const MAX_CALLS: usize = 512;

/// The most bytes of arguments that wait for a name.
const MAX_HELD: usize = 1 << 20;

/// One call.
#[derive(Debug)]
pub(crate) struct NativeCall {
    /// The provider's label for deltas.
    pub(crate) label: Option<u64>,
    /// The provider's id; may be empty.
    pub(crate) id: String,
    /// The name; empty until it is known.
    pub(crate) name: String,
    state: NativeCallState,
    /// Known once the call has started.
    started: Option<(u32, ArgumentScanner)>,
    /// Arguments that came before the name.
    held: String,
    /// Bytes of argument text so far.
    length: usize,
    balance: JsonBalance,
    /// A piece may be missing, or the provider contradicted itself.
    damaged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NativeCallState {
    Open,
    /// The end was seen; without arguments, or with unfinished ones, the stop reason decides.
    Waiting(ScanOutcome),
    Closed,
}

impl NativeCall {
    /// A call of which nothing but label and id may be known.
    pub(crate) fn new(label: Option<u64>, id: &str) -> Self {
        Self {
            label,
            id: id.to_owned(),
            name: String::new(),
            state: NativeCallState::Open,
            started: None,
            held: String::new(),
            length: 0,
            balance: JsonBalance::default(),
            damaged: false,
        }
    }

    /// Whether deltas may still belong to it.
    pub(crate) fn is_open(&self) -> bool {
        self.state == NativeCallState::Open
    }

    /// Whether its arguments are one whole object, so that nothing can follow them.
    pub(crate) fn is_whole(&self) -> bool {
        self.balance == JsonBalance::Whole
    }

    /// Whether any argument text but white space has come.
    pub(crate) fn has_arguments(&self) -> bool {
        self.balance != JsonBalance::Before
    }

    /// Notes that a piece of it may be missing: it will be cut.
    pub(crate) fn mark_damaged(&mut self) {
        self.damaged = true;
    }

    /// Notes that the provider said something else of its arguments before: it will not run.
    pub(crate) fn mark_contradicted(&mut self, out: &mut dyn EventSink) {
        self.damaged = true;
        let message = "the provider contradicts the arguments that it sent before";
        let fault = Fault::error(FaultKind::Provider, Span::default(), message);
        let index = self.started.as_ref().map(|(index, _)| *index);
        out.push_event(Event::Fault(&match index {
            Some(index) => fault.in_call(index),
            None => fault,
        }));
    }

    /// Takes the name, and starts the call if it was the first.
    pub(crate) fn set_name(&mut self, name: &str, next: &mut u32, out: &mut dyn EventSink) {
        if name.is_empty() || name == self.name {
            return;
        }
        if let Some((index, _)) = &self.started {
            let message = format!("the provider changed the name of the call from `{}` to `{name}`", self.name);
            out.push_event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message).in_call(*index)));
            return;
        }
        self.name = name.to_owned();
        self.emit_start(next, out);
    }

    fn emit_start(&mut self, next: &mut u32, out: &mut dyn EventSink) {
        let index = *next;
        *next += 1;
        let id = Some(self.id.as_str()).filter(|id| !id.is_empty());
        out.push_event(Event::CallStart { index, id, name: &self.name, dialect: None, at: 0, name_at: 0 });
        let mut scanner = ArgumentScanner::new(index);
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            scanner.push(&held, out);
        }
        self.started = Some((index, scanner));
    }

    /// Takes a piece of the argument text.
    pub(crate) fn push_arguments(&mut self, text: &str, out: &mut dyn EventSink) {
        if text.is_empty() || !self.is_open() {
            return;
        }
        self.balance.scan_text(text);
        self.length += text.len();
        match &mut self.started {
            Some((_, scanner)) => scanner.push(text, out),
            None if self.held.len() + text.len() <= MAX_HELD => self.held.push_str(text),
            None => {
                self.damaged = true;
                let message = format!("more than {MAX_HELD} bytes of arguments came before the name of their call");
                out.push_event(Event::Fault(&Fault::error(FaultKind::Limit, Span::default(), message)));
                // Once is enough: what is too much is never held, and the call is cut.
                self.state = NativeCallState::Waiting(ScanOutcome::Incomplete);
            }
        }
    }

    /// The provider has marked the end of the call.
    pub(crate) fn mark_end_seen(&mut self, next: &mut u32, out: &mut dyn EventSink) {
        if !self.is_open() {
            return;
        }
        let index = self.ensure_started(next, out);
        if self.damaged {
            self.truncate_call(Truncation::Broken, next, out);
        } else if !self.has_arguments() {
            self.state = NativeCallState::Waiting(ScanOutcome::Complete);
        } else {
            let whole = self.started.as_mut().map_or(ScanOutcome::Incomplete, |(_, scanner)| scanner.finish(out));
            if whole == ScanOutcome::Incomplete {
                self.state = NativeCallState::Waiting(ScanOutcome::Incomplete);
            } else {
                self.emit_end(index, out);
            }
        }
    }

    /// The provider has begun something after a call whose end was seen: that it has no arguments was no accident.
    pub(crate) fn confirm_empty(&mut self, out: &mut dyn EventSink) {
        if self.state == NativeCallState::Waiting(ScanOutcome::Complete) {
            self.finish_empty(out);
        }
    }

    /// The stop reason is known.
    pub(crate) fn apply_stop_reason(&mut self, reason: StopReason, next: &mut u32, out: &mut dyn EventSink) {
        let why = if reason == StopReason::Length { Truncation::Limit } else { Truncation::Ended };
        match self.state {
            NativeCallState::Waiting(ScanOutcome::Complete) if why == Truncation::Ended => self.finish_empty(out),
            NativeCallState::Waiting(_) => self.truncate_call(why, next, out),
            NativeCallState::Open | NativeCallState::Closed => {}
        }
    }

    /// Nothing more will come for it.
    pub(crate) fn truncate_call(&mut self, why: Truncation, next: &mut u32, out: &mut dyn EventSink) {
        if self.state != NativeCallState::Closed {
            let index = self.ensure_started(next, out);
            self.state = NativeCallState::Closed;
            out.push_event(Event::CallCut { index, why, at: self.length });
        }
    }

    /// A call whose name never came starts nameless, with a fault.
    fn ensure_started(&mut self, next: &mut u32, out: &mut dyn EventSink) -> u32 {
        if self.started.is_none() {
            self.emit_start(next, out);
            let index = *next - 1;
            let fault = Fault::error(FaultKind::MissingName, Span::default(), "the call has no name")
                .in_call(index)
                .with_hint("name the tool that is to be called");
            out.push_event(Event::Fault(&fault));
        }
        self.started.as_ref().map_or(0, |(index, _)| *index)
    }

    fn finish_empty(&mut self, out: &mut dyn EventSink) {
        if let Some((index, scanner)) = &mut self.started {
            let index = *index;
            scanner.finish(out);
            self.emit_end(index, out);
        }
    }

    fn emit_end(&mut self, index: u32, out: &mut dyn EventSink) {
        self.state = NativeCallState::Closed;
        out.push_event(Event::CallEnd { index, at: self.length });
    }
}

/// Whether a JSON text is one whole value yet. Follows brackets and strings only; validity is the scanner's business.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JsonBalance {
    /// White space at most.
    #[default]
    Before,
    /// Inside an object or a list, so deep.
    Inside(u32),
    /// Inside a string, so deep.
    Quoted(u32),
    /// Behind a backslash in a string, so deep.
    Escaped(u32),
    /// Inside something that is neither an object nor a list.
    Bare,
    /// The outer object or list was closed.
    Whole,
}

impl JsonBalance {
    fn scan_text(&mut self, text: &str) {
        for byte in text.bytes() {
            *self = match (*self, byte) {
                (Self::Before, b' ' | b'\t' | b'\n' | b'\r') => Self::Before,
                (Self::Before, b'{' | b'[') => Self::Inside(1),
                (Self::Before, _) => Self::Bare,
                (Self::Inside(depth), b'{' | b'[') => Self::Inside(depth.saturating_add(1)),
                (Self::Inside(1), b'}' | b']') => Self::Whole,
                (Self::Inside(depth), b'}' | b']') => Self::Inside(depth - 1),
                (Self::Inside(depth), b'"') => Self::Quoted(depth),
                (Self::Quoted(depth), b'"') => Self::Inside(depth),
                (Self::Quoted(depth), b'\\') => Self::Escaped(depth),
                (Self::Escaped(depth), _) => Self::Quoted(depth),
                (state, _) => state,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wholeness_follows_brackets_and_strings() {
        let check = |text: &str, expected: JsonBalance| {
            let mut balance = JsonBalance::default();
            for byte in text.chars() {
                balance.scan_text(&byte.to_string());
            }
            assert_eq!(balance, expected, "{text}");
        };
        check("  ", JsonBalance::Before);
        check("null", JsonBalance::Bare);
        check(r#"{"a":"}\"}","b":[{}]"#, JsonBalance::Inside(1));
        check(r#" {"a":"}\"}","b":[{}]} "#, JsonBalance::Whole);
        check(r#"{"a":"\"#, JsonBalance::Escaped(1));
    }
}
