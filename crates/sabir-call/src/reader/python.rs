//! Parses calls in Python syntax: `[f(a="x", b=1), g()]`.
//!
//! Supported: a list of calls, or a sequence of calls without a list, separated by a line feed, `,`
//! or `;`; a closing marker, or none; names with dots and dashes; arguments as `name=value` and as
//! `**{"name": value}`; all literals of `reader/python/literal.rs`.
//!
//! Unsupported: arguments without a name, calls as values, operators. They produce an error fault,
//! and the region ends with the call that has one: the text after it is skipped, because a string
//! with an extra quote would make calls out of its content (`reader/python/skip.rs`).
//! Grammar as implemented, white space between all tokens:
//!
//! ```text
//! region   = "[" (call ("," call)* ","?)? "]" close | call (sep call)* close
//! sep      = line feed | "," | ";"
//! call     = name "(" (argument ("," argument)* ","?)? ")"
//! argument = name "=" value | "**" "{" (string+ ":" value ("," string+ ":" value)* ","?)? "}"
//! ```
//!
//! A call is closed by its `)` only together with the text after it: the separator, or the `]` and
//! the marker.

mod arguments;
pub(super) mod bracket_stack;
pub(super) mod given_arguments;
#[cfg(test)]
pub(super) mod harness;
pub(super) mod literal;
pub(super) mod number;
pub(super) mod skip;
#[cfg(test)]
mod tests;
pub(super) mod text;
pub(super) mod word_buffer;

use crate::dialect::grammar::PythonCalls;
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::call::missing_last_close;
use super::region::{RegionParser, RegionProgress, StepOutcome, TextView, run_steps};
use given_arguments::GivenArguments;
use literal::{LiteralNotation, LiteralReader};
use skip::RegionSkipper;
use text::starts_with_marker;
use word_buffer::{WORD_CAP, WordBuffer, WordEnd, describe_found, is_name_byte, whitespace_len};

/// The method name for calling a tool.
pub(super) const METHOD: &str = ".call";

/// A region parser for calls in Python syntax.
#[derive(Debug)]
pub(super) struct PythonRegionParser {
    /// The marker after the calls; `""` if there is none.
    close: &'static str,
    dialect: &'static str,
    state: PythonState,
    /// True if a tool may be called as `f.call(…)`.
    methods: bool,
    /// True if the calls are in a list.
    list: bool,
    /// The offset at which the first call begins, until it is open.
    at: Option<usize>,
    /// The index of the next call.
    next: u32,
    call: CallInProgress,
    word: WordBuffer,
    literal: LiteralReader,
    /// The skipper for the text after a mistake.
    skip: Option<Box<RegionSkipper>>,
    /// True if other text stands where a call should begin, and nothing tells where it ends.
    is_lost: bool,
}

/// The call that is being read.
#[derive(Debug, Default)]
struct CallInProgress {
    open: bool,
    index: u32,
    /// The offset just past its last word or its `)`.
    end: usize,
    given: GivenArguments,
    /// True inside `**{…}`.
    spread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PythonState {
    /// Before all calls.
    Start,
    /// Before a call or the end of all calls.
    Item,
    /// Inside a tool's name.
    Name,
    /// After a tool's name.
    Paren,
    /// Before an argument or the end of the call.
    Argument,
    /// Inside an argument's name.
    ArgumentName,
    /// After an argument's name.
    Equals,
    /// After `**`.
    Spread,
    /// In `**{`, before a name or the end.
    Key,
    /// Inside such a name.
    KeyText,
    /// After such a name.
    Colon,
    /// Inside a value.
    Value,
    /// After a value.
    Comma,
    /// After a call's `)`.
    Closed,
    /// After the list, before the marker.
    Tail,
    /// After a mistake.
    Skip,
}

impl PythonRegionParser {
    /// Creates a parser whose first call begins at that offset and has that index.
    pub(super) fn new(grammar: PythonCalls, dialect: &'static str, index: u32, at: usize) -> Self {
        Self {
            close: grammar.close,
            dialect,
            state: PythonState::Start,
            methods: false,
            list: false,
            at: Some(at),
            next: index,
            call: CallInProgress::default(),
            word: WordBuffer::default(),
            literal: LiteralReader::new(LiteralNotation::Python),
            skip: None,
            is_lost: false,
        }
    }

    /// Creates a parser for calls after a marker, without a list, possibly called as methods.
    pub(super) fn with_methods(dialect: &'static str, index: u32, at: usize) -> Self {
        Self {
            methods: true,
            ..Self::new(
                PythonCalls {
                    open: "",
                    close: "",
                    list: true,
                },
                dialect,
                index,
                at,
            )
        }
    }

    fn parse_step(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        match self.state {
            PythonState::Skip => return self.skip_rest(view, from, out),
            PythonState::Value | PythonState::KeyText => return self.read_value(view, from, out),
            PythonState::Name => return self.read_name(view, from, PythonState::Paren, out),
            PythonState::ArgumentName => {
                return self.read_name(view, from, PythonState::Equals, out);
            }
            PythonState::Closed => return self.after_call(view, from, out),
            _ => {}
        }
        let at = from + whitespace_len(rest_from(view, from));
        let Some(&byte) = rest_from(view, at).as_bytes().first() else {
            return StepOutcome::Wait(at);
        };
        match self.state {
            PythonState::Start => {
                self.list = byte == b'[';
                self.state = PythonState::Item;
                StepOutcome::To(at + usize::from(self.list))
            }
            PythonState::Item => self.begin_item(view, at, out),
            PythonState::Paren if byte == b'(' => self.begin_call(view, at, out),
            PythonState::Paren => {
                self.report_unexpected(view, at, "`(` was expected behind the tool's name", out)
            }
            PythonState::Tail => self.read_tail(view, at, out),
            _ => self.parse_arguments(view, at, out),
        }
    }

    /// Processes the start of a call, or the end of all calls.
    fn begin_item(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let text = rest_from(view, at);
        let byte = text.as_bytes().first().copied().unwrap_or_default();
        if self.list && byte == b']' {
            return self.end_list(view, at + 1, out);
        }
        if !self.list && !self.close.is_empty() {
            match starts_with_marker(text, self.close) {
                None => return StepOutcome::Wait(at),
                Some(true) => return StepOutcome::Over(at + self.close.len()),
                Some(false) => {}
            }
        }
        // Without a list and a marker only the shape of the text tells whether another call
        // follows.
        let loose = !self.list && self.close.is_empty() && self.at.is_none();
        if loose {
            match starts_call(text) {
                None if !view.last => return StepOutcome::Wait(at),
                Some(true) => {}
                _ => return StepOutcome::Over(at),
            }
        }
        if !is_name_byte(byte) {
            return self.report_unexpected(view, at, "a call was expected", out);
        }
        self.word.clear();
        self.state = PythonState::Name;
        StepOutcome::To(at)
    }

    /// Reads the name of a tool or an argument, then continues in the given state.
    fn read_name(
        &mut self,
        view: TextView<'_>,
        from: usize,
        behind: PythonState,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let (taken, end) = self.word.take_word(rest_from(view, from), is_name_byte);
        let at = from + taken;
        match end {
            WordEnd::Open => StepOutcome::Wait(at),
            WordEnd::TooLong => self.report_long_name(view, at, out),
            WordEnd::Here => {
                self.call.end = view.offset + at;
                self.state = behind;
                StepOutcome::To(at)
            }
        }
    }

    fn begin_call(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let index = self.next;
        let name = self.word.as_str();
        let end = self.call.end;
        let name_at = end.saturating_sub(name.len());
        let name = name
            .strip_suffix(METHOD)
            .filter(|_| self.methods)
            .unwrap_or(name);
        let start = self.at.take().unwrap_or_else(|| {
            let sure = if self.close.is_empty() {
                Certainty::Likely
            } else {
                Certainty::Certain
            };
            let span = Span::new(name_at, view.offset + at + 1);
            let rule = "another call behind the first";
            out.push_event(Event::Mark(MarkupSpan {
                role: MarkupRole::Call,
                dialect: Some(self.dialect),
                span,
                sure,
                rule,
            }));
            name_at
        });
        out.push_event(Event::CallStart {
            index,
            id: None,
            name,
            dialect: Some(self.dialect),
            at: start,
            name_at,
        });
        self.next = self.next.saturating_add(1);
        self.call.given.clear();
        self.call.open = true;
        self.call.index = index;
        self.call.spread = false;
        self.literal.begin_call();
        self.state = PythonState::Argument;
        StepOutcome::To(at + 1)
    }

    /// Processes the text after a call's `)`.
    fn after_call(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let text = rest_from(view, from);
        // Without a list, a line feed separates calls and must not be skipped.
        let spaces = text
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let at = from
            + if self.list {
                whitespace_len(text)
            } else {
                spaces
            };
        let text = rest_from(view, at);
        let Some(&byte) = text.as_bytes().first() else {
            return StepOutcome::Wait(at);
        };
        match byte {
            b',' => {}
            b']' if self.list => return self.end_list(view, at + 1, out),
            b'\n' | b'\r' | b';' if !self.list => {}
            _ if self.list => {
                return self.report_unexpected(
                    view,
                    at,
                    "`,` or `]` was expected behind the call",
                    out,
                );
            }
            // Another special token follows the calls of Llama; it is not part of the region.
            b'<' if self.methods && text == "<" && !view.last => return StepOutcome::Wait(at),
            b'<' if self.methods && text.starts_with("<|") => {
                self.end_call(self.call.end, out);
                return StepOutcome::Over(at);
            }
            _ if self.close.is_empty() => {
                return self.report_unexpected(
                    view,
                    at,
                    "a new line was expected behind the call",
                    out,
                );
            }
            _ => return self.read_tail(view, at, out),
        }
        self.end_call(self.call.end, out);
        self.state = PythonState::Item;
        StepOutcome::To(at + 1)
    }

    fn end_list(&mut self, view: TextView<'_>, at: usize, out: &mut dyn EventSink) -> StepOutcome {
        if self.close.is_empty() {
            self.end_call(view.offset + at, out);
            return StepOutcome::Over(at);
        }
        self.state = PythonState::Tail;
        StepOutcome::To(at)
    }

    /// Processes the closing marker after all calls.
    fn read_tail(&mut self, view: TextView<'_>, at: usize, out: &mut dyn EventSink) -> StepOutcome {
        let close = self.close;
        match starts_with_marker(rest_from(view, at), close) {
            None => StepOutcome::Wait(at),
            Some(true) => {
                self.end_call(view.offset + at + close.len(), out);
                StepOutcome::Over(at + close.len())
            }
            Some(false) => self.report_unexpected(
                view,
                at,
                &format!("`{close}` was expected behind the calls"),
                out,
            ),
        }
    }

    fn end_call(&mut self, at: usize, out: &mut dyn EventSink) {
        if std::mem::take(&mut self.call.open) {
            out.push_event(Event::CallEnd {
                index: self.call.index,
                at,
            });
        }
    }

    /// Skips text after a mistake.
    fn skip_rest(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let (taken, over) = self
            .skip
            .as_mut()
            .map_or((0, true), |skip| skip.skip_text(rest_from(view, from)));
        let at = from + taken;
        if !over {
            return StepOutcome::Wait(at);
        }
        self.end_call(view.offset + at, out);
        StepOutcome::Over(at)
    }

    /// Reports unexpected text.
    fn report_unexpected(
        &mut self,
        view: TextView<'_>,
        at: usize,
        expected: &str,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let (found, len) = describe_found(rest_from(view, at));
        let message = format!("{expected}, {found}");
        let span = Span::new(view.offset + at, view.offset + at + len);
        let hint = "write the tool's name and behind it, in parentheses, each argument as its name, `=` and its value; nothing else";
        self.report_and_skip(
            Fault::error(FaultKind::StrayText, span, message).with_hint(hint),
            view,
            at,
            out,
        )
    }

    fn report_long_name(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let end = view.offset + at;
        let span = Span::new(end.saturating_sub(self.word.len()), end);
        let message = format!("a name is longer than {WORD_CAP} bytes");
        self.report_and_skip(Fault::error(FaultKind::Limit, span, message), view, at, out)
    }

    /// Reports a mistake and skips the rest.
    fn report_and_skip(
        &mut self,
        fault: Fault,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let fault = if self.call.open {
            fault.in_call(self.call.index)
        } else {
            fault
        };
        out.push_event(Event::Fault(&fault));
        self.give_up(view.offset, at, out)
    }

    /// Skips the rest after a mistake.
    fn give_up(&mut self, offset: usize, at: usize, out: &mut dyn EventSink) -> StepOutcome {
        // The open brackets: the list, the call, `**{`, and those of the value.
        let inside = self.call.open && self.state != PythonState::Closed;
        let inner = if inside {
            1 + usize::from(self.call.spread) + self.literal.depth()
        } else {
            0
        };
        let depth = usize::from(self.list) + inner;
        // Without a marker or an open bracket nothing would tell where to stop skipping.
        if self.close.is_empty() && (!self.call.open || depth == 0) {
            self.is_lost = !self.call.open;
            self.end_call(offset + at, out);
            return StepOutcome::Over(at);
        }
        let word = self.state == PythonState::Equals || self.literal.in_word();
        self.skip = Some(Box::new(RegionSkipper::new(self.close, depth, word)));
        self.state = PythonState::Skip;
        StepOutcome::To(at)
    }
}

impl RegionParser for PythonRegionParser {
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress {
        run_steps(|at| self.parse_step(view, at, out))
    }

    #[inline]
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        self.state == PythonState::Value && self.literal.take_chunk(self.call.index, chunk, out)
    }

    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        let bare = !self.list && self.close.is_empty();
        // A bare call without a list has no other end than the end of the text.
        if bare && why == Truncation::Ended && self.state == PythonState::Closed {
            self.end_call(self.call.end, out);
        } else if std::mem::take(&mut self.call.open) {
            out.push_event(Event::CallCut {
                index: self.call.index,
                why,
                at,
            });
        } else if !bare && self.skip.is_none() {
            // The calls before are whole, but more of them may have been meant.
            let close = if self.list { "]" } else { self.close };
            let message = format!("the message ends among the calls, before `{close}`");
            let fault = Fault::error(FaultKind::CutCall, Span::new(at, at), message);
            out.push_event(Event::Fault(
                &fault.with_hint(format!("write the calls that are missing, and `{close}`")),
            ));
        }
    }

    fn close_whole_call(&mut self, out: &mut dyn EventSink) -> bool {
        let close = match self.state {
            PythonState::Closed if self.list => "]",
            PythonState::Closed | PythonState::Tail => self.close,
            _ => return false,
        };
        if !self.call.open || self.skip.is_some() || close.is_empty() {
            return false;
        }
        let end = self.call.end;
        let fault = missing_last_close(self.call.index, close, end);
        out.push_event(Event::Fault(&fault));
        self.end_call(end, out);
        true
    }

    fn next_index(&self) -> u32 {
        self.next
    }

    fn was_skipped(&self) -> bool {
        self.skip.is_some() || self.is_lost
    }

    fn close_marker(&self) -> &'static str {
        self.close
    }
}

fn rest_from(view: TextView<'_>, at: usize) -> &str {
    view.text.get(at..).unwrap_or_default()
}

/// Checks whether a call starts here: a name followed by a bracket. `None` means that more text is
/// needed.
fn starts_call(text: &str) -> Option<bool> {
    let name = text.bytes().take_while(|byte| is_name_byte(*byte)).count();
    match text.as_bytes().get(name) {
        _ if name > WORD_CAP => Some(false),
        None => None,
        Some(byte) => Some(name > 0 && *byte == b'('),
    }
}
