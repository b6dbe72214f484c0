//! One value of a call, converted to JSON while it comes.
//!
//! Supported: strings, numbers, `True`, `False`, `None` and their JSON names, lists, maps, tuples; one string behind another
//! makes one string, as in Python. A string that is a whole argument goes out decoded (form `String`); everything else goes
//! out as JSON source text (form `Json`) without white space: other quotes become double ones, tuples become lists,
//! trailing commas vanish, keys become strings. Escapes that Python does not know keep their backslash.
//!
//! Unsupported: names, calls and operators as values, sets, bytes, formatted strings, comments. They end in an error fault,
//! and so does `(1)`, which Python reads as 1 where a tuple was perhaps meant. `\N{…}` stays as it stands. Looser than Python:
//! a line may end inside a string with single quotes, with a warning, because models forget to escape it.
//!
//! Grammar as implemented, white space between all tokens:
//!
//! ```text
//! python: value  = string+ | number | word | "[" (value ("," value)* ","?)? "]" | "(" … ")" | "{" (pair ("," pair)* ","?)? "}"
//!         pair   = (string+ | number | word) ":" value
//!         string = ("r" | "u")? (' … ' | " … " | ''' … ''' | """ … """)
//! gemma:  value  = string | number | word | "[" … "]" | "{" (pair ("," pair)* ","?)? "}"
//!         pair   = (name | string) ":" value
//!         string = quote … quote | " … "
//! ```
//!
//! Depth is counted in a stack of bits of a fixed size, so memory is bounded; a converted text lives as long as one read.

mod string;

use crate::dialect::grammar::GemmaCalls;
use crate::event::{ArgForm, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::super::region::View;
use super::nest::{Bracket, LEVELS, Nest};
use super::number::{Number, Took};
use super::text::{Quote, Special, escape_json};
use super::word::{WORD_CAP, Word, WordEnd, blank, found, in_name, in_word};

/// So much room is made for text at once, in bytes.
const LONGEST: usize = 128;

const HINT: &str = "write values as literals: \"text\", 1, True, None, [1, 2], {\"key\": 1}";

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum Notation {
    Python,
    /// Gemma's.
    Gemma(&'static GemmaCalls),
}

/// Where a value stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::reader) struct Scope<'w> {
    pub(in crate::reader) view: View<'w>,
    /// The call, and the argument's name.
    pub(in crate::reader) index: u32,
    pub(in crate::reader) name: &'w str,
}

/// How far a value was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum Reached {
    /// So far; more text must come.
    More(usize),
    /// To its end.
    End(usize),
    /// To a mistake, for which a fault went out.
    Wrong(usize),
}

/// Reads one value, or the name of an argument where that is quoted.
#[derive(Debug)]
pub(in crate::reader) struct Literal {
    notation: Notation,
    state: State,
    nest: Nest,
    quote: Quote,
    /// A word so far, or the name of an argument.
    word: Word,
    /// Text that has not gone out yet; empty between reads.
    text: String,
    /// Offset just past the last string.
    end: usize,
    /// A lone surrogate in the call has been told.
    lone: bool,
    /// A raw line feed in the call has been told.
    lined: bool,
}

/// What a string is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The name of an argument.
    Name,
    /// A whole argument.
    Argument,
    /// A key of a map inside an argument.
    Key,
    /// A value inside an argument.
    Element,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A string must start.
    Name,
    /// A value must start.
    Value,
    /// In brackets, before an item or their end; `true`: the first one.
    Item(bool),
    Colon,
    /// Behind an item.
    After,
    Text(Role),
    /// Behind a string, which another one may continue.
    AfterText(Role),
    Number(Role, Number),
    /// In a literal or the prefix of a string.
    Word(Role),
    /// In a bare key.
    Key,
}

enum Next {
    To(usize),
    Wait(usize),
    End(usize),
    Wrong(usize),
}

impl Literal {
    pub(in crate::reader) fn new(notation: Notation) -> Self {
        Self {
            notation,
            state: State::Value,
            nest: Nest::new(),
            quote: Quote::Json,
            word: Word::default(),
            text: String::new(),
            end: 0,
            lone: false,
            lined: false,
        }
    }

    /// A call begins.
    pub(in crate::reader) fn begin_call(&mut self) {
        (self.lone, self.lined) = (false, false);
    }

    /// A value is to be read next.
    pub(in crate::reader) fn begin_value(&mut self) {
        self.state = State::Value;
        self.word.free();
        self.nest.clear();
    }

    /// The quoted name of an argument is to be read next.
    pub(in crate::reader) fn begin_name(&mut self) {
        self.state = State::Name;
        self.nest.clear();
        self.word.clear();
    }

    /// The name that was read.
    pub(in crate::reader) fn name(&self) -> &str {
        self.word.as_str()
    }

    /// How many brackets are open.
    pub(in crate::reader) fn depth(&self) -> usize {
        self.nest.depth()
    }

    /// Whether the last thing read is a word.
    pub(in crate::reader) fn in_word(&self) -> bool {
        matches!(self.state, State::Word(_))
    }

    /// The hot path: takes a whole chunk that is nothing but a piece of a string.
    #[inline]
    pub(in crate::reader) fn take(&mut self, index: u32, chunk: &str, out: &mut dyn Sink) -> bool {
        let State::Text(role) = self.state else { return false };
        if role == Role::Name || chunk.is_empty() {
            return false;
        }
        let plain = Special::new(self.quote, role != Role::Argument).find(chunk.as_bytes(), 0) == chunk.len();
        if plain {
            out.event(Event::ArgDelta { index, text: chunk });
        }
        plain
    }

    /// Goes on from that byte of the view.
    pub(in crate::reader) fn read(&mut self, scope: Scope<'_>, from: usize, out: &mut dyn Sink) -> Reached {
        let mut at = from;
        if let State::Text(_) = self.state {
            // Mostly no longer than what it is made of.
            self.text.reserve_exact(scope.rest(from).len().min(LONGEST));
        }
        let reached = loop {
            let next = match self.state {
                State::Text(role) => self.string(scope, at, role, out),
                State::Number(role, number) => self.number(scope, at, (role, number), out),
                State::Word(role) => self.word(scope, at, role, out),
                State::Key => self.bare_key(scope, at, out),
                _ => self.token(scope, at, out),
            };
            match next {
                Next::To(next) => at = next,
                Next::Wait(at) => break Reached::More(at),
                Next::End(at) => break Reached::End(at),
                Next::Wrong(at) => break Reached::Wrong(at),
            }
        };
        self.flush(scope, out);
        reached
    }

    /// Between strings, numbers and words.
    fn token(&mut self, scope: Scope<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let at = from + blank(scope.rest(from));
        let rest = scope.rest(at);
        let Some(&byte) = rest.as_bytes().first() else { return Next::Wait(at) };
        match (self.state, self.nest.inner()) {
            (State::Item(_) | State::After, Some(inner)) if byte == inner.close() => self.close(scope, at, inner, out),
            (State::Item(first), Some(inner)) => {
                if !first {
                    self.text.push(',');
                }
                self.state = if inner == Bracket::Map { State::Key } else { State::Value };
                if inner == Bracket::Map { self.key(scope, at, out) } else { self.value(scope, at, out) }
            }
            (State::After, inner) if byte == b',' => {
                if inner == Some(Bracket::Group) {
                    self.nest.turn(Bracket::Tuple);
                }
                self.state = State::Item(false);
                Next::To(at + 1)
            }
            (State::Colon, _) if byte == b':' => {
                self.text.push(':');
                self.state = State::Value;
                Next::To(at + 1)
            }
            (State::AfterText(role), _) => self.after_text(scope, at, role, out),
            (State::Name, _) => match self.opening(rest) {
                None => Next::Wait(at),
                Some(Some((quote, len))) => self.open_string(scope, at, (Role::Name, quote, len), out),
                Some(None) => self.unexpected(scope, at, "a name in quotes was expected", out),
            },
            (State::Value, _) => self.value(scope, at, out),
            (State::Colon, _) => self.unexpected(scope, at, "`:` was expected behind the key", out),
            (_, inner) => {
                let close = char::from(inner.map_or(b')', Bracket::close));
                self.unexpected(scope, at, &format!("`,` or `{close}` was expected"), out)
            }
        }
    }

    /// The first byte of a value.
    fn value(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let rest = scope.rest(at);
        let role = if self.nest.depth() == 0 { Role::Argument } else { Role::Element };
        match self.opening(rest) {
            None => return self.wait_at(State::Value, at),
            Some(Some((quote, len))) => return self.open_string(scope, at, (role, quote, len), out),
            Some(None) => {}
        }
        let bracket = match rest.as_bytes().first().copied().unwrap_or_default() {
            b'[' => Bracket::List,
            b'{' => Bracket::Map,
            b'(' if self.notation == Notation::Python => Bracket::Group,
            byte => return self.scalar(scope, at, (byte, role), out),
        };
        if !self.nest.open(bracket) {
            let message = format!("the value is nested deeper than {LEVELS} levels");
            self.fault(
                scope,
                Fault::error(FaultKind::Limit, scope.span(at, 1), message).hint("write a flatter value"),
                out,
            );
            return Next::Wrong(at);
        }
        self.start(scope, (ArgForm::Json, at), role, out);
        self.text.push(if bracket == Bracket::Map { '{' } else { '[' });
        self.state = State::Item(true);
        Next::To(at + 1)
    }

    /// The first byte of a number or a word.
    fn scalar(&mut self, scope: Scope<'_>, at: usize, (byte, role): (u8, Role), out: &mut dyn Sink) -> Next {
        if Number::starts(byte) {
            self.start(scope, (ArgForm::Json, at), role, out);
            if role == Role::Key {
                self.text.push('"');
            }
            self.state = State::Number(role, Number::Start);
            return Next::To(at);
        }
        if in_word(byte) {
            self.word.clear();
            self.state = State::Word(role);
            return Next::To(at);
        }
        let expected = if role == Role::Key { "a key was expected" } else { "a value was expected" };
        self.unexpected(scope, at, expected, out)
    }

    /// The first byte of a key.
    fn key(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let rest = scope.rest(at);
        let byte = rest.as_bytes().first().copied().unwrap_or_default();
        match self.opening(rest) {
            // The comma before it went out already.
            None => self.wait_at(State::Item(true), at),
            Some(Some((quote, len))) => self.open_string(scope, at, (Role::Key, quote, len), out),
            Some(None) if self.notation == Notation::Python => self.scalar(scope, at, (byte, Role::Key), out),
            Some(None) if in_name(byte) => {
                self.word.clear();
                self.state = State::Key;
                Next::To(at)
            }
            Some(None) => self.unexpected(scope, at, "a key was expected", out),
        }
    }

    fn wait_at(&mut self, state: State, at: usize) -> Next {
        self.state = state;
        Next::Wait(at)
    }

    fn bare_key(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let (taken, end) = self.word.take(scope.rest(at), in_name);
        let at = at + taken;
        match end {
            WordEnd::Open => Next::Wait(at),
            WordEnd::TooLong => self.too_long(scope, at, out),
            WordEnd::Here => {
                self.text.push('"');
                escape_json(self.word.as_str(), &mut self.text);
                self.text.push('"');
                self.state = State::Colon;
                Next::To(at)
            }
        }
    }

    fn close(&mut self, scope: Scope<'_>, at: usize, inner: Bracket, out: &mut dyn Sink) -> Next {
        if inner == Bracket::Group && self.state == State::After {
            let message = "brackets around one value: a tuple has a comma, and a plain value no brackets";
            let hint = "write a list as `[1]`, or the value alone";
            self.fault(scope, Fault::error(FaultKind::MalformedJson, scope.span(at, 1), message).hint(hint), out);
        }
        self.text.push(if inner == Bracket::Map { '}' } else { ']' });
        self.nest.close();
        self.ended(scope, at + 1, out)
    }

    /// A value that is no string ended before that byte.
    fn ended(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        self.state = State::After;
        if self.nest.depth() > 0 {
            return Next::To(at);
        }
        self.end_argument(scope, scope.view.offset + at, out);
        Next::End(at)
    }

    fn number(
        &mut self,
        scope: Scope<'_>,
        from: usize,
        (role, mut number): (Role, Number),
        out: &mut dyn Sink,
    ) -> Next {
        for (at, byte) in scope.rest(from).bytes().enumerate().map(|(at, byte)| (from + at, byte)) {
            match number.take(byte, &mut self.text) {
                Took::Yes => {}
                Took::End if role == Role::Key => {
                    self.text.push('"');
                    self.state = State::Colon;
                    return Next::To(at);
                }
                Took::End => return self.ended(scope, at, out),
                Took::Wrong => return self.unexpected(scope, at, "this is no number that can be read", out),
            }
        }
        self.state = State::Number(role, number);
        Next::Wait(scope.view.text.len())
    }

    fn word(&mut self, scope: Scope<'_>, from: usize, role: Role, out: &mut dyn Sink) -> Next {
        let (taken, end) = self.word.take(scope.rest(from), in_word);
        let at = from + taken;
        match end {
            WordEnd::Open => return Next::Wait(at),
            WordEnd::TooLong => return self.too_long(scope, at, out),
            WordEnd::Here => {}
        }
        let rest = scope.rest(at);
        if self.notation == Notation::Python && rest.starts_with(['"', '\'']) {
            return self.prefixed(scope, at, role, out);
        }
        let literal = match self.word.as_str() {
            "True" | "true" => "true",
            "False" | "false" => "false",
            "None" | "null" => "null",
            _ => return self.unknown_word(scope, at, out),
        };
        if role == Role::Argument {
            let (Scope { index, name, .. }, at) = (scope, self.word_span(scope, at).start);
            out.event(Event::ArgStart { index, name, form: ArgForm::Json, at });
        }
        let quote = if role == Role::Key { "\"" } else { "" };
        self.text.extend([quote, literal, quote]);
        if role == Role::Key {
            self.state = State::Colon;
            return Next::To(at);
        }
        self.ended(scope, at, out)
    }

    fn unknown_word(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let word = self.word.as_str();
        let (message, hint) = if scope.rest(at).starts_with('(') {
            (format!("a call of `{word}` stands as a value"), "call one tool at a time, and write its values out")
        } else {
            (format!("a value was expected, found the word `{word}`"), "put strings in quotes")
        };
        let span = self.word_span(scope, at);
        self.fault(scope, Fault::error(FaultKind::MalformedJson, span, message).hint(hint), out);
        Next::Wrong(at)
    }

    fn too_long(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let message = format!("a word is longer than {WORD_CAP} bytes");
        let span = self.word_span(scope, at);
        self.fault(scope, Fault::error(FaultKind::Limit, span, message).hint("put strings in quotes"), out);
        Next::Wrong(at)
    }

    /// Where the word stands that ends before that byte.
    fn word_span(&self, scope: Scope<'_>, at: usize) -> Span {
        let end = scope.view.offset + at;
        Span::new(end.saturating_sub(self.word.len()), end)
    }

    /// Opens the argument, if the value is a whole one.
    fn start(&mut self, scope: Scope<'_>, (form, at): (ArgForm, usize), role: Role, out: &mut dyn Sink) {
        if role == Role::Argument {
            let (Scope { index, name, .. }, at) = (scope, scope.view.offset + at);
            out.event(Event::ArgStart { index, name, form, at });
        }
    }

    fn end_argument(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) {
        self.flush(scope, out);
        out.event(Event::ArgEnd { index: scope.index, lead: "", at });
    }

    fn flush(&mut self, scope: Scope<'_>, out: &mut dyn Sink) {
        if !self.text.is_empty() {
            out.event(Event::ArgDelta { index: scope.index, text: &self.text });
            self.text.clear();
        }
    }

    /// Something else stands there than what was expected.
    fn unexpected(&mut self, scope: Scope<'_>, at: usize, expected: &str, out: &mut dyn Sink) -> Next {
        let (found, len) = found(scope.rest(at));
        let message = format!("in `{}`: {expected}, {found}", scope.name);
        let span = scope.span(at, len);
        self.fault(scope, Fault::error(FaultKind::MalformedJson, span, message).hint(HINT), out);
        Next::Wrong(at)
    }

    fn fault(&mut self, scope: Scope<'_>, fault: Fault, out: &mut dyn Sink) {
        // What was read before the mistake goes out before the fault, however the text was cut into chunks.
        self.flush(scope, out);
        out.event(Event::Fault(&fault.in_call(scope.index)));
    }
}

impl<'w> Scope<'w> {
    fn rest(self, at: usize) -> &'w str {
        self.view.text.get(at..).unwrap_or_default()
    }

    fn span(self, at: usize, len: usize) -> Span {
        let start = self.view.offset + at;
        Span::new(start, start + len)
    }
}
