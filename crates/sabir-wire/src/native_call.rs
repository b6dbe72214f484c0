//! Tracks one native call while it arrives: its name, its arguments, its end.
//!
//! Shared by all wires: `CallStart` waits for the name, arguments go through one JSON scanner, and
//! a call ends only if its end was *seen* and its JSON is complete. The wires decide which delta
//! belongs to which call.
//!
//! How a call ends:
//!
//! | end seen | argument text | event |
//! | --- | --- | --- |
//! | yes | one whole object, or `null` | `CallEnd` |
//! | yes | none at all | `CallEnd`, but only after the provider moved on or stopped for another reason than its limit |
//! | yes | unfinished | `CallCut` once the stop reason is known, which tells the cause |
//! | yes | can never be an object | a fault of severity `error`, then `CallEnd`: the checks reject it |
//! | no | any | `CallCut` |
//! | any, after an unreadable event | any | `CallCut(Broken)`: a piece may be missing |

use sabir_call::json::{ArgumentScanner, ScanOutcome};
use sabir_call::{Event, EventSink, Fault, FaultKind, Span, StopReason, Truncation};

/// The maximum number of calls of one response; further ones are dropped with a fault.
pub(crate) const MAX_CALLS: usize = 512;

/// The maximum number of bytes of arguments that are held while the name is missing.
const MAX_HELD: usize = 1 << 20;

/// One call.
///
/// It emits at most one `CallStart`, and then exactly one `CallEnd` or `CallCut` by the end of the
/// body. The wires never emit events of calls themselves.
#[derive(Debug)]
pub(crate) struct NativeCall {
    /// The provider's label for the call's deltas.
    ///
    /// It is never a position: Mistral leaves it out, some gateways count from 1, and others use
    /// one label for several calls.
    pub(crate) label: Option<u64>,
    /// The provider's id; may be empty.
    ///
    /// Gemini and Ollama often leave it out, or repeat it in a later turn, so the history makes it
    /// unique later.
    pub(crate) id: String,
    /// The name; empty until it is known.
    pub(crate) name: String,
    /// The stage of the call.
    state: NativeCallState,
    /// The call's index and the scanner of its arguments, once it has started.
    started: Option<(u32, ArgumentScanner)>,
    /// Arguments that arrived before the name.
    held: String,
    /// The bytes of argument text so far.
    length: usize,
    /// The progress of the argument text towards one complete value.
    balance: JsonBalance,
    /// True if a piece may be missing, or the provider contradicted itself.
    damaged: bool,
}

/// The maximum number of bytes of a name that comes in pieces.
const MAX_NAME: usize = 1024;

/// The stage of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NativeCallState {
    /// The end was not seen; deltas may follow.
    Open,
    /// The end was seen. Without arguments, or with unfinished ones, the stop reason decides.
    Waiting(ScanOutcome),
    /// `CallEnd` or `CallCut` was emitted.
    Closed,
}

impl NativeCall {
    /// Creates a call of which at most label and id are known.
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

    /// Returns true while deltas may still belong to the call.
    pub(crate) fn is_open(&self) -> bool {
        self.state == NativeCallState::Open
    }

    /// Returns true if the arguments are one complete object, so that nothing can follow them.
    pub(crate) fn is_whole(&self) -> bool {
        self.balance == JsonBalance::Whole
    }

    /// Returns true if any argument text except white space has arrived.
    pub(crate) fn has_arguments(&self) -> bool {
        self.balance != JsonBalance::Before
    }

    /// Notes that a piece may be missing: the call will be truncated.
    pub(crate) fn mark_damaged(&mut self) {
        self.damaged = true;
    }

    /// Reports that the provider contradicted the arguments it sent before: the call will not run.
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

    /// Sets the name, and starts the call if it had none.
    ///
    /// `next` is the index for the next call that starts. Another name for a started call is a
    /// fault and changes nothing: clients may have shown the first one already.
    pub(crate) fn set_name(&mut self, name: &str, next: &mut u32, out: &mut dyn EventSink) {
        // Some servers repeat the name in every delta.
        if name.is_empty() || name == self.name {
            return;
        }
        if let Some((index, _)) = &self.started {
            let message = format!(
                "the provider changed the name of the call from `{}` to `{name}`",
                self.name
            );
            out.push_event(Event::Fault(
                &Fault::error(FaultKind::Provider, Span::default(), message).in_call(*index),
            ));
            return;
        }
        self.name = name.to_owned();
        self.emit_start(next, out);
    }

    /// Adds a piece of the name. The call starts with its first argument text or its end, before
    /// which further pieces may come.
    ///
    /// Some servers split the name over several deltas, others repeat it in each, or send all of it
    /// so far.
    pub(crate) fn push_name(&mut self, piece: &str, next: &mut u32, out: &mut dyn EventSink) {
        // After arguments a name is whole: nothing else would tell that no piece follows.
        if self.started.is_some() || self.has_arguments() {
            return self.set_name(piece, next, out);
        }
        if piece.starts_with(self.name.as_str()) {
            self.name.clear();
        }
        if self.name.len() + piece.len() <= MAX_NAME {
            self.name.push_str(piece);
        } else {
            self.damaged = true;
        }
    }

    /// Starts the call if its name is known.
    pub(crate) fn start_if_named(&mut self, next: &mut u32, out: &mut dyn EventSink) {
        if self.started.is_none() && !self.name.is_empty() {
            self.emit_start(next, out);
        }
    }

    /// Emits `CallStart` and takes the next index.
    fn emit_start(&mut self, next: &mut u32, out: &mut dyn EventSink) {
        // Indexes are given in the order of the starts, not of the labels, so they count from 0
        // without gaps.
        let index = *next;
        *next += 1;
        let id = Some(self.id.as_str()).filter(|id| !id.is_empty());
        out.push_event(Event::CallStart {
            index,
            id,
            name: &self.name,
            dialect: None,
            at: 0,
            name_at: 0,
        });
        let mut scanner = ArgumentScanner::new(index);
        // Arguments that came before the name follow the start at once.
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            scanner.push(&held, out);
        }
        self.started = Some((index, scanner));
    }

    /// Adds a piece of the argument text.
    ///
    /// Ignores text for a call that is not open.
    pub(crate) fn push_arguments(&mut self, text: &str, out: &mut dyn EventSink) {
        if text.is_empty() || !self.is_open() {
            return;
        }
        // The balance is tracked even before the start, because the wires use it to match deltas.
        self.balance.scan_text(text);
        self.length += text.len();
        match &mut self.started {
            Some((_, scanner)) => scanner.push(text, out),
            None if self.held.len() + text.len() <= MAX_HELD => self.held.push_str(text),
            None => {
                self.damaged = true;
                let message = format!(
                    "more than {MAX_HELD} bytes of arguments came before the name of their call"
                );
                out.push_event(Event::Fault(&Fault::error(
                    FaultKind::Limit,
                    Span::default(),
                    message,
                )));
                // Report it only once: leaving the open state makes further pieces return early,
                // and the call is truncated.
                self.state = NativeCallState::Waiting(ScanOutcome::Incomplete);
            }
        }
    }

    /// Notes that the provider marked the end of the call.
    ///
    /// The mark is not sufficient: some providers mark the end of a call that their output limit cut. The JSON text must be complete as
    /// well.
    pub(crate) fn mark_end_seen(&mut self, next: &mut u32, out: &mut dyn EventSink) {
        if !self.is_open() {
            return;
        }
        let index = self.ensure_started(next, out);
        // Even a complete JSON text proves nothing if a piece in its middle may be missing.
        if self.damaged {
            self.truncate_call(Truncation::Broken, next, out);
        // No arguments may mean an empty call or a cut one. What the provider does next decides.
        } else if !self.has_arguments() {
            self.state = NativeCallState::Waiting(ScanOutcome::Complete);
        } else {
            let whole = self
                .started
                .as_mut()
                .map_or(ScanOutcome::Incomplete, |(_, scanner)| scanner.finish(out));
            // The cause is not known yet: the stop reason tells whether the limit cut the call.
            if whole == ScanOutcome::Incomplete {
                self.state = NativeCallState::Waiting(ScanOutcome::Incomplete);
            } else {
                self.emit_end(index, out);
            }
        }
    }

    /// Notes that the provider began something else, which confirms that an ended call without arguments is empty.
    pub(crate) fn confirm_empty(&mut self, out: &mut dyn EventSink) {
        if self.state == NativeCallState::Waiting(ScanOutcome::Complete) {
            self.finish_empty(out);
        }
    }

    /// Applies the stop reason, which decides calls that wait for it.
    ///
    /// Open and closed calls do not change, since a reason may come before the last deltas.
    pub(crate) fn apply_stop_reason(
        &mut self,
        reason: StopReason,
        next: &mut u32,
        out: &mut dyn EventSink,
    ) {
        let why = if reason == StopReason::Length {
            Truncation::Limit
        } else {
            Truncation::Ended
        };
        match self.state {
            NativeCallState::Waiting(ScanOutcome::Complete) if why == Truncation::Ended => {
                self.finish_empty(out)
            }
            NativeCallState::Waiting(_) => self.truncate_call(why, next, out),
            NativeCallState::Open | NativeCallState::Closed => {}
        }
    }

    /// Closes the call as truncated unless it is closed already.
    pub(crate) fn truncate_call(
        &mut self,
        why: Truncation,
        next: &mut u32,
        out: &mut dyn EventSink,
    ) {
        if self.state != NativeCallState::Closed {
            let index = self.ensure_started(next, out);
            self.state = NativeCallState::Closed;
            out.push_event(Event::CallCut {
                index,
                why,
                at: self.length,
            });
        }
    }

    /// Starts a call that has not started, and returns its index. A call whose name never came starts as
    /// a nameless one, with a fault.
    fn ensure_started(&mut self, next: &mut u32, out: &mut dyn EventSink) -> u32 {
        let was_missing = self.started.is_none() && self.name.is_empty();
        if self.started.is_none() {
            self.emit_start(next, out);
        }
        let index = self.started.as_ref().map_or(0, |(index, _)| *index);
        if was_missing {
            let fault = Fault::error(
                FaultKind::MissingName,
                Span::default(),
                "the call has no name",
            )
            .in_call(index)
            .with_hint("name the tool to call");
            out.push_event(Event::Fault(&fault));
        }
        index
    }

    /// Ends a call without arguments.
    fn finish_empty(&mut self, out: &mut dyn EventSink) {
        if let Some((index, scanner)) = &mut self.started {
            let index = *index;
            scanner.finish(out);
            self.emit_end(index, out);
        }
    }

    /// Emits `CallEnd`.
    fn emit_end(&mut self, index: u32, out: &mut dyn EventSink) {
        self.state = NativeCallState::Closed;
        // The offset counts the argument text, since a native call has no source text.
        out.push_event(Event::CallEnd {
            index,
            at: self.length,
        });
    }
}

/// Detects the end of one JSON value, by brackets and strings only; the scanner checks validity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JsonBalance {
    /// At most white space.
    #[default]
    Before,
    /// Inside an object or a list at this depth.
    Inside(u32),
    /// Inside a string at this depth.
    Quoted(u32),
    /// After a backslash in a string at this depth.
    Escaped(u32),
    /// Inside something that is neither an object nor a list.
    Bare,
    /// The outer object or list was closed.
    Whole,
}

impl JsonBalance {
    /// Follows the next piece of the text, which may be cut anywhere.
    fn scan_text(&mut self, text: &str) {
        for byte in text.bytes() {
            *self = match (*self, byte) {
                (Self::Before, b' ' | b'\t' | b'\n' | b'\r') => Self::Before,
                (Self::Before, b'{' | b'[') => Self::Inside(1),
                // `null` or a quoted text: its end shows only by the provider's mark.
                (Self::Before, _) => Self::Bare,
                (Self::Inside(depth), b'{' | b'[') => Self::Inside(depth.saturating_add(1)),
                (Self::Inside(1), b'}' | b']') => Self::Whole,
                // Depth 1 was handled above, so this cannot underflow. The kind of bracket is not
                // compared.
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
