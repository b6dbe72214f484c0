//! Calls in Gemma's own notation: `call:f{k:<|"|>v<|"|>, n:3}` between markers.
//!
//! Supported: text between quote markers, which is raw up to the next one; numbers, `true`, `false`, `null`, lists and maps
//! with bare keys (`reader/python/literal.rs`). Because models slip, strings and names may also be quoted as JSON does, and
//! the word `call:` may be missing or stand behind a colon, and so may the comma behind a string be missing. Several calls
//! between two markers are read one after another. Where other markup stands in the place of the closing marker, the call
//! is whole, and a warning says so.
//!
//! Unsupported: a quote marker inside a string between quote markers; strings without quotes. A mistake ends in an error
//! fault, and what follows is passed over up to the closing marker.
//!
//! Grammar as implemented, white space between all tokens:
//!
//! ```text
//! region   = call call* close
//! call     = "call:"? name "{" (argument ("," argument)* ","?)? "}"
//! argument = (name | string) ":" value
//! ```

#[cfg(test)]
mod tests;

use crate::dialect::grammar::GemmaCalls;
use crate::event::{Certainty, Cut, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::python::given::Given;
use super::python::literal::{Literal, Notation, Reached, Scope};
use super::python::skip::Skip;
use super::python::text::starts;
use super::python::word::{WORD_CAP, Word, WordEnd, blank, found, in_name};
use super::region::{Next, Region, Taken, View, drive};

/// What stands before a tool's name.
const CALL: &str = "call:";

/// Reads calls in Gemma's notation.
#[derive(Debug)]
pub(super) struct Gemma {
    grammar: &'static GemmaCalls,
    /// Without the markers around the call.
    bare: bool,
    dialect: &'static str,
    state: State,
    /// Where the first call begins, until it is open.
    at: Option<usize>,
    /// The index of the next call.
    next: u32,
    /// A call is open: the one before the next.
    open: bool,
    /// Offset just past the last word or call.
    end: usize,
    given: Given,
    word: Word,
    literal: Literal,
    /// Behind a mistake.
    skip: Option<Box<Skip>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a call.
    Start,
    /// Inside a tool's name.
    Name,
    /// Behind a tool's name.
    Brace,
    /// An argument or the end of the call must follow.
    Argument,
    /// Inside a bare name.
    ArgumentName,
    /// Inside a quoted name.
    Quoted,
    /// Behind a name; `true`: a quoted one.
    Colon(bool),
    /// Inside a value.
    Value,
    /// Behind a value; `true`: a string between markers.
    Comma(bool),
    /// Behind a call's `}`.
    Closed,
    /// Behind a mistake.
    Skip,
}

impl Gemma {
    /// A machine whose first call begins at that offset and has that index.
    pub(super) fn new(
        (grammar, bare): (&'static GemmaCalls, bool),
        dialect: &'static str,
        index: u32,
        at: usize,
    ) -> Self {
        Self {
            grammar,
            bare,
            dialect,
            state: State::Start,
            at: Some(at),
            next: index,
            open: false,
            end: 0,
            given: Given::default(),
            word: Word::default(),
            literal: Literal::new(Notation::Gemma(grammar)),
            skip: None,
        }
    }

    fn turn(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        match self.state {
            State::Skip => return self.pass(view, from, out),
            State::Value | State::Quoted => return self.value(view, from, out),
            State::Name | State::ArgumentName => return self.name(view, from, out),
            _ => {}
        }
        let at = from + blank(rest(view, from));
        let Some(&byte) = rest(view, at).as_bytes().first() else { return Next::Wait(at) };
        self.state = match (self.state, byte) {
            (State::Start, _) if in_name(byte) => {
                self.word.clear();
                self.state = State::Name;
                return Next::To(at);
            }
            (State::Start, b':') => return Next::To(at + 1),
            (State::Start, _) => return self.wrong(view, at, "`call:` and a name were expected", out),
            (State::Brace, b'{') => return self.begin_call(view, at, out),
            (State::Brace, _) => return self.wrong(view, at, "`{` was expected behind the tool's name", out),
            (State::Argument | State::Comma(_), b'}') => {
                self.end = view.offset + at + 1;
                if self.close().is_empty() {
                    self.end_call(self.end, out);
                    return Next::Over(at + 1);
                }
                State::Closed
            }
            (State::Comma(true), _) if in_name(byte) => return self.begin_name(at, byte),
            (State::Argument, _) => return self.begin_name(at, byte),
            (State::Colon(quoted), b':') => return self.begin_value(view, at, quoted, out),
            (State::Colon(_), _) => return self.wrong(view, at, "`:` was expected behind the name", out),
            (State::Comma(_), b',') => State::Argument,
            (State::Closed, _) => return self.closed(view, at, out),
            _ => return self.wrong(view, at, "`,` or `}` was expected behind the value", out),
        };
        Next::To(at + 1)
    }

    /// Inside a name that has no quotes.
    fn name(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let tool = self.state == State::Name;
        let (taken, end) = self.word.take(rest(view, from), |byte| in_name(byte) || (tool && byte == b':'));
        let at = from + taken;
        match end {
            WordEnd::Open => return Next::Wait(at),
            WordEnd::TooLong => {
                let span = Span::new((view.offset + at).saturating_sub(self.word.len()), view.offset + at);
                let message = format!("a name is longer than {WORD_CAP} bytes");
                return self.report(Fault::error(FaultKind::Limit, span, message), view, at, out);
            }
            WordEnd::Here => {}
        }
        self.end = view.offset + at;
        self.state = if tool { State::Brace } else { State::Colon(false) };
        if tool && matches!(self.word.as_str(), CALL | "") {
            return self.wrong(view, at, "a name was expected behind `call:`", out);
        }
        Next::To(at)
    }

    fn begin_call(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let word_at = self.end.saturating_sub(self.word.len());
        let name = self.word.as_str();
        let (name, name_at) = name.strip_prefix(CALL).map_or((name, word_at), |name| (name, word_at + CALL.len()));
        let start = self.at.take().unwrap_or_else(|| {
            let span = Span::new(word_at, view.offset + at + 1);
            let (sure, rule) = (Certainty::Certain, "another call behind the first");
            out.event(Event::Mark(Mark { role: MarkRole::Call, dialect: Some(self.dialect), span, sure, rule }));
            word_at
        });
        let index = self.next;
        out.event(Event::CallStart { index, id: None, name, dialect: Some(self.dialect), at: start, name_at });
        self.next = index.saturating_add(1);
        self.open = true;
        self.given.clear();
        self.literal.begin_call();
        self.state = State::Argument;
        Next::To(at + 1)
    }

    /// The first byte of an argument's name.
    fn begin_name(&mut self, at: usize, byte: u8) -> Next {
        if in_name(byte) {
            self.word.clear();
            self.state = State::ArgumentName;
        } else {
            self.literal.begin_name();
            self.state = State::Quoted;
        }
        Next::To(at)
    }

    /// The name of an argument is known, and its value begins behind that byte.
    fn begin_value(&mut self, view: View<'_>, at: usize, quoted: bool, out: &mut dyn Sink) -> Next {
        let span = Span::new(view.offset + at, view.offset + at + 1);
        let name = if quoted { self.literal.name() } else { self.word.as_str() };
        if !self.given.add(name, self.index(), span, out) {
            return self.give_up(view, at, out);
        }
        self.word.free();
        self.literal.begin_value();
        self.state = State::Value;
        Next::To(at + 1)
    }

    /// Inside a value or a quoted name.
    fn value(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let scope = Scope { view, index: self.index(), name: self.given.last() };
        match self.literal.read(scope, from, out) {
            Reached::More(at) => Next::Wait(at),
            Reached::Wrong(at) => self.give_up(view, at, out),
            Reached::End(at) => {
                let text = view.text.get(..at).is_some_and(|text| text.ends_with(self.grammar.quote));
                self.state = if self.state == State::Quoted { State::Colon(true) } else { State::Comma(text) };
                Next::To(at)
            }
        }
    }

    /// Behind a call's `}`: the marker, or another call.
    fn closed(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let (text, close) = (rest(view, at), self.close());
        match (starts(text, close), starts(text, CALL)) {
            (Some(true), _) => {
                self.end_call(view.offset + at + close.len(), out);
                Next::Over(at + close.len())
            }
            (_, Some(true)) => {
                self.end_call(self.end, out);
                self.state = State::Start;
                Next::To(at)
            }
            (Some(false), Some(false)) if other_markup(text) => {
                let span = Span::new(self.end, self.end);
                let fault = Fault::warning(FaultKind::WrongClose, span, format!("`{close}` is missing"));
                out.event(Event::Fault(&fault.in_call(self.index()).hint("close each call")));
                self.end_call(self.end, out);
                Next::Over(at)
            }
            (Some(false), Some(false)) if !view.last && text == "<" => Next::Wait(at),
            (Some(false), Some(false)) => self.wrong(view, at, &format!("`{close}` was expected behind the call"), out),
            _ => Next::Wait(at),
        }
    }

    fn end_call(&mut self, at: usize, out: &mut dyn Sink) {
        if std::mem::take(&mut self.open) {
            out.event(Event::CallEnd { index: self.index(), at });
        }
    }

    /// Behind a mistake.
    fn pass(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let (taken, over) = self.skip.as_mut().map_or((0, true), |skip| skip.read(rest(view, from)));
        let at = from + taken;
        if !over {
            return Next::Wait(at);
        }
        self.end_call(view.offset + at, out);
        Next::Over(at)
    }

    /// Something else stands there than what was expected.
    fn wrong(&mut self, view: View<'_>, at: usize, expected: &str, out: &mut dyn Sink) -> Next {
        let (found, len) = found(rest(view, at));
        let message = format!("{expected}, {found}");
        let span = Span::new(view.offset + at, view.offset + at + len);
        let GemmaCalls { open, quote, .. } = self.grammar;
        let (open, close) = (if self.bare { "" } else { open }, self.close());
        let hint = format!(
            "write `{open}call:`, the tool's name, the arguments in braces with each text between `{quote}`, and `{close}`"
        );
        self.report(Fault::error(FaultKind::StrayText, span, message).hint(hint), view, at, out)
    }

    /// Reports a mistake and passes over the rest.
    fn report(&mut self, fault: Fault, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let fault = if self.open { fault.in_call(self.index()) } else { fault };
        out.event(Event::Fault(&fault));
        self.give_up(view, at, out)
    }

    fn give_up(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        if self.close().is_empty() {
            self.end_call(view.offset + at, out);
            return Next::Over(at);
        }
        self.state = State::Skip;
        self.skip = Some(Box::new(Skip::new(self.close(), 0, false)));
        Next::To(at)
    }

    fn close(&self) -> &'static str {
        if self.bare { "" } else { self.grammar.close }
    }

    /// The index of the call that is open.
    fn index(&self) -> u32 {
        self.next.saturating_sub(1)
    }
}

impl Region for Gemma {
    fn read(&mut self, view: View<'_>, out: &mut dyn Sink) -> Taken {
        drive(|at| self.turn(view, at, out))
    }

    #[inline]
    fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        self.state == State::Value && self.literal.take(self.index(), chunk, out)
    }

    fn cut(&mut self, why: Cut, at: usize, out: &mut dyn Sink) {
        if std::mem::take(&mut self.open) {
            out.event(Event::CallCut { index: self.index(), why, at });
        }
    }

    fn next_index(&self) -> u32 {
        self.next
    }
}

/// Whether a tag or a special token starts here.
fn other_markup(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('<') && chars.next().is_some_and(|c| c.is_alphabetic() || matches!(c, '|' | '/'))
}

fn rest(view: View<'_>, at: usize) -> &str {
    view.text.get(at..).unwrap_or_default()
}
