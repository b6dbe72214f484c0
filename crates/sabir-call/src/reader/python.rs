//! Calls as Python writes them: `[f(a="x", b=1), g()]`.
//!
//! Supported: a list of calls, or calls without a list, one behind another with a line feed, `,` or `;` between them; a
//! marker behind them, or none; names with dots and dashes; arguments as `name=value` and as `**{"name": value}`; every
//! literal (`reader/python/literal.rs`).
//!
//! Unsupported: arguments without a name, calls as values, operators. They end in an error fault, and with the call that
//! has one the region ends: what follows is passed over, because a string with a quote too many would make calls out of
//! its content (`reader/python/skip.rs`).
//!
//! Grammar as implemented, white space between all tokens:
//!
//! ```text
//! region   = "[" (call ("," call)* ","?)? "]" close | call (sep call)* close
//! sep      = line feed | "," | ";"
//! call     = name "(" (argument ("," argument)* ","?)? ")"
//! argument = name "=" value | "**" "{" (string+ ":" value ("," string+ ":" value)* ","?)? "}"
//! ```
//!
//! A call is closed by its `)` only together with what follows: the separator, or the `]` and the marker.

mod arguments;
pub(super) mod given;
#[cfg(test)]
pub(super) mod harness;
pub(super) mod literal;
pub(super) mod nest;
pub(super) mod number;
pub(super) mod skip;
#[cfg(test)]
mod tests;
pub(super) mod text;
pub(super) mod word;

use crate::dialect::grammar::PythonCalls;
use crate::event::{Certainty, Cut, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::region::{Next, Region, Taken, View, drive};
use given::Given;
use literal::{Literal, Notation};
use skip::Skip;
use text::starts;
use word::{WORD_CAP, Word, WordEnd, blank, found, in_name};

/// What stands behind the name of a tool that is called as a method.
pub(super) const METHOD: &str = ".call";

/// Reads calls as Python writes them.
#[derive(Debug)]
pub(super) struct Python {
    /// The marker behind the calls; `""`: there is none.
    close: &'static str,
    dialect: &'static str,
    state: State,
    /// A tool may be called as `f.call(…)`.
    methods: bool,
    /// The calls stand in a list.
    list: bool,
    /// Where the first call begins, until it is open.
    at: Option<usize>,
    /// The index of the next call.
    next: u32,
    call: Call,
    word: Word,
    literal: Literal,
    /// Behind a mistake.
    skip: Option<Box<Skip>>,
}

/// The call that is being read.
#[derive(Debug, Default)]
struct Call {
    open: bool,
    index: u32,
    /// Offset just past its `)`.
    end: usize,
    given: Given,
    /// Inside `**{…}`.
    spread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before everything.
    Start,
    /// A call or the end of all calls must follow.
    Item,
    /// Inside a tool's name.
    Name,
    /// Behind a tool's name.
    Paren,
    /// An argument or the end of the call must follow.
    Argument,
    /// Inside an argument's name.
    ArgumentName,
    /// Behind an argument's name.
    Equals,
    /// Behind `**`.
    Spread,
    /// In `**{`: a name or the end must follow.
    Key,
    /// Inside such a name.
    KeyText,
    /// Behind it.
    Colon,
    /// Inside a value.
    Value,
    /// Behind a value.
    Comma,
    /// Behind a call's `)`.
    Closed,
    /// Behind the list: the marker must follow.
    Tail,
    /// Behind a mistake.
    Skip,
}

impl Python {
    /// A machine whose first call begins at that offset and has that index.
    pub(super) fn new(grammar: PythonCalls, dialect: &'static str, index: u32, at: usize) -> Self {
        Self {
            close: grammar.close,
            dialect,
            state: State::Start,
            methods: false,
            list: false,
            at: Some(at),
            next: index,
            call: Call::default(),
            word: Word::default(),
            literal: Literal::new(Notation::Python),
            skip: None,
        }
    }

    /// Calls behind a marker, without a list, perhaps as methods.
    pub(super) fn methods(dialect: &'static str, index: u32, at: usize) -> Self {
        Self { methods: true, ..Self::new(PythonCalls { open: "", close: "" }, dialect, index, at) }
    }

    fn turn(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        match self.state {
            State::Skip => return self.pass(view, from, out),
            State::Value | State::KeyText => return self.value(view, from, out),
            State::Name => return self.name(view, from, State::Paren, out),
            State::ArgumentName => return self.name(view, from, State::Equals, out),
            State::Closed => return self.closed(view, from, out),
            _ => {}
        }
        let at = from + blank(rest(view, from));
        let Some(&byte) = rest(view, at).as_bytes().first() else { return Next::Wait(at) };
        match self.state {
            State::Start => {
                self.list = byte == b'[';
                self.state = State::Item;
                Next::To(at + usize::from(self.list))
            }
            State::Item => self.item(view, at, out),
            State::Paren if byte == b'(' => self.begin_call(view, at, out),
            State::Paren => self.wrong(view, at, "`(` was expected behind the tool's name", out),
            State::Tail => self.tail(view, at, out),
            _ => self.inside(view, at, out),
        }
    }

    /// Between calls.
    fn item(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let text = rest(view, at);
        let byte = text.as_bytes().first().copied().unwrap_or_default();
        if self.list && byte == b']' {
            return self.end_list(view, at + 1, out);
        }
        if !self.list && !self.close.is_empty() {
            match starts(text, self.close) {
                None => return Next::Wait(at),
                Some(true) => return Next::Over(at + self.close.len()),
                Some(false) => {}
            }
        }
        let loose = !self.list && self.close.is_empty() && self.at.is_none();
        if loose {
            match another(text) {
                None if !view.last => return Next::Wait(at),
                Some(true) => {}
                _ => return Next::Over(at),
            }
        }
        if !in_name(byte) {
            return self.wrong(view, at, "a call was expected", out);
        }
        self.word.clear();
        self.state = State::Name;
        Next::To(at)
    }

    /// Inside the name of a tool or an argument, behind which the machine goes on in that state.
    fn name(&mut self, view: View<'_>, from: usize, behind: State, out: &mut dyn Sink) -> Next {
        let (taken, end) = self.word.take(rest(view, from), in_name);
        let at = from + taken;
        match end {
            WordEnd::Open => Next::Wait(at),
            WordEnd::TooLong => self.too_long(view, at, out),
            WordEnd::Here => {
                self.call.end = view.offset + at;
                self.state = behind;
                Next::To(at)
            }
        }
    }

    fn begin_call(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let (index, name, end) = (self.next, self.word.as_str(), self.call.end);
        let name_at = end.saturating_sub(name.len());
        let name = name.strip_suffix(METHOD).filter(|_| self.methods).unwrap_or(name);
        let start = self.at.take().unwrap_or_else(|| {
            let sure = if self.close.is_empty() { Certainty::Likely } else { Certainty::Certain };
            let span = Span::new(name_at, view.offset + at + 1);
            let rule = "another call behind the first";
            out.event(Event::Mark(Mark { role: MarkRole::Call, dialect: Some(self.dialect), span, sure, rule }));
            name_at
        });
        out.event(Event::CallStart { index, id: None, name, dialect: Some(self.dialect), at: start, name_at });
        self.next = self.next.saturating_add(1);
        self.call.given.clear();
        self.call.open = true;
        self.call.index = index;
        self.call.spread = false;
        self.literal.begin_call();
        self.state = State::Argument;
        Next::To(at + 1)
    }

    /// Behind a call's `)`.
    fn closed(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let text = rest(view, from);
        let spaces = text.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let at = from + if self.list { blank(text) } else { spaces };
        let text = rest(view, at);
        let Some(&byte) = text.as_bytes().first() else { return Next::Wait(at) };
        match byte {
            b',' => {}
            b']' if self.list => return self.end_list(view, at + 1, out),
            b'\n' | b'\r' | b';' if !self.list => {}
            _ if self.list => return self.wrong(view, at, "`,` or `]` was expected behind the call", out),
            b'<' if self.methods && text == "<" && !view.last => return Next::Wait(at),
            b'<' if self.methods && text.starts_with("<|") => {
                self.end_call(self.call.end, out);
                return Next::Over(at);
            }
            _ if self.close.is_empty() => {
                return self.wrong(view, at, "a new line was expected behind the call", out);
            }
            _ => return self.tail(view, at, out),
        }
        self.end_call(self.call.end, out);
        self.state = State::Item;
        Next::To(at + 1)
    }

    fn end_list(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        if self.close.is_empty() {
            self.end_call(view.offset + at, out);
            return Next::Over(at);
        }
        self.state = State::Tail;
        Next::To(at)
    }

    /// Behind all calls: the marker.
    fn tail(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let close = self.close;
        match starts(rest(view, at), close) {
            None => Next::Wait(at),
            Some(true) => {
                self.end_call(view.offset + at + close.len(), out);
                Next::Over(at + close.len())
            }
            Some(false) => self.wrong(view, at, &format!("`{close}` was expected behind the calls"), out),
        }
    }

    fn end_call(&mut self, at: usize, out: &mut dyn Sink) {
        if std::mem::take(&mut self.call.open) {
            out.event(Event::CallEnd { index: self.call.index, at });
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
        let hint = "write the tool's name and behind it, in parentheses, each argument as its name, `=` and its value; nothing else";
        self.report(Fault::error(FaultKind::StrayText, span, message).hint(hint), view, at, out)
    }

    fn too_long(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let end = view.offset + at;
        let span = Span::new(end.saturating_sub(self.word.len()), end);
        let message = format!("a name is longer than {WORD_CAP} bytes");
        self.report(Fault::error(FaultKind::Limit, span, message), view, at, out)
    }

    /// Reports a mistake and passes over the rest.
    fn report(&mut self, fault: Fault, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let fault = if self.call.open { fault.in_call(self.call.index) } else { fault };
        out.event(Event::Fault(&fault));
        self.give_up(view.offset, at, out)
    }

    /// Passes over the rest behind a mistake.
    fn give_up(&mut self, offset: usize, at: usize, out: &mut dyn Sink) -> Next {
        // What is open: the list, the call, `**{` and the value's own brackets.
        let inside = self.call.open && self.state != State::Closed;
        let inner = if inside { 1 + usize::from(self.call.spread) + self.literal.depth() } else { 0 };
        let depth = usize::from(self.list) + inner;
        if self.close.is_empty() && (!self.call.open || depth == 0) {
            self.end_call(offset + at, out);
            return Next::Over(at);
        }
        let word = self.state == State::Equals || self.literal.in_word();
        self.skip = Some(Box::new(Skip::new(self.close, depth, word)));
        self.state = State::Skip;
        Next::To(at)
    }
}

impl Region for Python {
    fn read(&mut self, view: View<'_>, out: &mut dyn Sink) -> Taken {
        drive(|at| self.turn(view, at, out))
    }

    #[inline]
    fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        self.state == State::Value && self.literal.take(self.call.index, chunk, out)
    }

    fn cut(&mut self, why: Cut, at: usize, out: &mut dyn Sink) {
        let bare = !self.list && self.close.is_empty();
        if bare && why == Cut::Ended && self.state == State::Closed {
            self.end_call(self.call.end, out);
        } else if std::mem::take(&mut self.call.open) {
            out.event(Event::CallCut { index: self.call.index, why, at });
        }
    }

    fn next_index(&self) -> u32 {
        self.next
    }
}

fn rest(view: View<'_>, at: usize) -> &str {
    view.text.get(at..).unwrap_or_default()
}

/// Whether another call starts here: a name with its bracket. `None`: it may, when more has come.
fn another(text: &str) -> Option<bool> {
    let name = text.bytes().take_while(|byte| in_name(*byte)).count();
    match text.as_bytes().get(name) {
        _ if name > WORD_CAP => Some(false),
        None => None,
        Some(byte) => Some(name > 0 && *byte == b'('),
    }
}
