//! Converts one value of a call to JSON as a stream.
//!
//! Supported: strings, numbers, `True`, `False`, `None` and their JSON names, lists, maps, tuples;
//! adjacent strings are concatenated as in Python. A string that is a whole argument is emitted
//! decoded (form `String`). Everything else is emitted as JSON source text (form `Json`) without
//! white space: quotes become double quotes, tuples become lists, trailing commas are dropped, keys
//! become strings. Escapes that Python does not define keep their backslash.
//!
//! Unsupported: names, calls and operators as values, sets, bytes, formatted strings, comments.
//! They produce an error fault, and so does `(1)`, which Python reads as 1 but may be meant as a
//! tuple. `\N{…}` is kept unchanged. Unlike in Python, a line may end inside a single-quoted
//! string, with a warning, because models forget to escape it.
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
//! Brackets are kept in a stack of bits with a fixed size, so memory is bounded. Converted text is
//! kept for the duration of one read only.

mod string;

use crate::dialect::grammar::GemmaCalls;
use crate::event::{ArgumentEncoding, Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};

use super::super::region::TextView;
use super::bracket_stack::{BracketKind, BracketStack, LEVELS};
use super::number::{NumberState, NumberStep};
use super::text::{QuoteStyle, SpecialBytes, escape_json};
use super::word_buffer::{
    WORD_CAP, WordBuffer, WordEnd, describe_found, is_name_byte, is_word_byte, whitespace_len,
};

/// The maximum buffer size reserved at once, in bytes.
const LONGEST: usize = 128;

/// The hint for most faults about values.
const HINT: &str = "write values as literals: \"text\", 1, True, None, [1, 2], {\"key\": 1}";

/// The notation of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum LiteralNotation {
    Python,
    /// Gemma's notation.
    Gemma(&'static GemmaCalls),
}

/// The context of a value.
#[derive(Debug, Clone, Copy)]
pub(in crate::reader) struct ValueScope<'w> {
    pub(in crate::reader) view: TextView<'w>,
    /// The index of the call.
    pub(in crate::reader) index: u32,
    /// The name of the argument.
    pub(in crate::reader) name: &'w str,
}

/// The progress within a value, with a position in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum LiteralProgress {
    /// Everything was read; more text is needed.
    More(usize),
    /// The value ended.
    End(usize),
    /// A mistake was found and reported.
    Wrong(usize),
}

/// A streaming parser for one value, or for a quoted argument name.
#[derive(Debug)]
pub(in crate::reader) struct LiteralReader {
    notation: LiteralNotation,
    state: LiteralState,
    nest: BracketStack,
    quote: QuoteStyle,
    /// The current word, or the name of an argument.
    word: WordBuffer,
    /// Converted text that has not been emitted; empty between reads.
    text: String,
    /// The offset of the last string's closing quote.
    end: usize,
    /// True if a lone surrogate in the call was reported.
    lone: bool,
    /// True if a raw line feed in the call was reported.
    lined: bool,
}

/// The role of a string or scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringRole {
    /// The name of an argument.
    Name,
    /// A whole argument.
    Argument,
    /// A key of a map inside an argument.
    Key,
    /// A value inside an argument.
    Element,
}

/// The opening quote of a string.
#[derive(Debug, Clone, Copy)]
struct StringStart {
    role: StringRole,
    quote: QuoteStyle,
    /// The length of the quote, in bytes.
    len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiteralState {
    /// Before a string that is a name.
    Name,
    /// Before a value.
    Value,
    /// In brackets, before an item or their end; `true` for the first item.
    Item(bool),
    Colon,
    /// After an item.
    After,
    Text(StringRole),
    /// After a string, which another string may continue.
    AfterText(StringRole),
    Number(StringRole, NumberState),
    /// In a literal or the prefix of a string.
    Word(StringRole),
    /// In a bare key.
    Key,
}

enum LiteralStep {
    To(usize),
    Wait(usize),
    End(usize),
    Wrong(usize),
}

impl LiteralReader {
    pub(in crate::reader) fn new(notation: LiteralNotation) -> Self {
        Self {
            notation,
            state: LiteralState::Value,
            nest: BracketStack::new(),
            quote: QuoteStyle::Json,
            word: WordBuffer::default(),
            text: String::new(),
            end: 0,
            lone: false,
            lined: false,
        }
    }

    /// Prepares for a new call.
    pub(in crate::reader) fn begin_call(&mut self) {
        self.lone = false;
        self.lined = false;
    }

    /// Prepares for a value.
    pub(in crate::reader) fn begin_value(&mut self) {
        self.state = LiteralState::Value;
        // The name is known to the caller by now, and the value may be long.
        self.word.release_memory();
        self.nest.clear();
    }

    /// Prepares for the quoted name of an argument.
    pub(in crate::reader) fn begin_name(&mut self) {
        self.state = LiteralState::Name;
        self.nest.clear();
        self.word.clear();
    }

    /// Returns the name that was read.
    pub(in crate::reader) fn name(&self) -> &str {
        self.word.as_str()
    }

    /// Returns the number of open brackets.
    pub(in crate::reader) fn depth(&self) -> usize {
        self.nest.depth()
    }

    /// Returns true if a word is being read.
    pub(in crate::reader) fn in_word(&self) -> bool {
        matches!(self.state, LiteralState::Word(_))
    }

    /// Consumes a whole chunk that lies inside a string. Returns false if the chunk needs a closer
    /// look. This is the hot path.
    #[inline]
    pub(in crate::reader) fn take_chunk(
        &mut self,
        index: u32,
        chunk: &str,
        out: &mut dyn EventSink,
    ) -> bool {
        let LiteralState::Text(role) = self.state else {
            return false;
        };
        if role == StringRole::Name || chunk.is_empty() {
            return false;
        }
        let plain = SpecialBytes::new(self.quote, role != StringRole::Argument)
            .find_first(chunk.as_bytes(), 0)
            == chunk.len();
        if plain {
            out.push_event(Event::ArgDelta { index, text: chunk });
        }
        plain
    }

    /// Continues at that position of the view.
    pub(in crate::reader) fn read_value(
        &mut self,
        scope: ValueScope<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> LiteralProgress {
        let mut at = from;
        if let LiteralState::Text(_) = self.state {
            // Converted text is rarely longer than its source.
            self.text
                .reserve_exact(scope.rest_from(from).len().min(LONGEST));
        }
        let reached = loop {
            let next = match self.state {
                // Tokens that can be split between chunks keep their progress in the state.
                LiteralState::Text(role) => self.read_string(scope, at, role, out),
                LiteralState::Number(..) => self.read_number(scope, at, out),
                LiteralState::Word(role) => self.read_word(scope, at, role, out),
                LiteralState::Key => self.bare_key(scope, at, out),
                _ => self.read_token(scope, at, out),
            };
            match next {
                LiteralStep::To(next) => at = next,
                LiteralStep::Wait(at) => break LiteralProgress::More(at),
                LiteralStep::End(at) => break LiteralProgress::End(at),
                LiteralStep::Wrong(at) => break LiteralProgress::Wrong(at),
            }
        };
        self.flush_text(scope, out);
        reached
    }

    /// Processes a byte between strings, numbers and words.
    fn read_token(
        &mut self,
        scope: ValueScope<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let at = from + whitespace_len(scope.rest_from(from));
        let rest = scope.rest_from(at);
        let Some(&byte) = rest.as_bytes().first() else {
            return LiteralStep::Wait(at);
        };
        match (self.state, self.nest.inner_bracket()) {
            (LiteralState::Item(_) | LiteralState::After, Some(inner))
                if byte == inner.closing_byte() =>
            {
                self.close_bracket(scope, at, inner, out)
            }
            (LiteralState::Item(first), Some(inner)) => {
                if !first {
                    self.text.push(',');
                }
                self.state = if inner == BracketKind::Map {
                    LiteralState::Key
                } else {
                    LiteralState::Value
                };
                if inner == BracketKind::Map {
                    self.start_key(scope, at, out)
                } else {
                    self.start_value(scope, at, out)
                }
            }
            (LiteralState::After, inner) if byte == b',' => {
                // A comma makes a tuple out of the group.
                if inner == Some(BracketKind::Group) {
                    self.nest.replace_inner(BracketKind::Tuple);
                }
                self.state = LiteralState::Item(false);
                LiteralStep::To(at + 1)
            }
            (LiteralState::Colon, _) if byte == b':' => {
                self.text.push(':');
                self.state = LiteralState::Value;
                LiteralStep::To(at + 1)
            }
            (LiteralState::AfterText(role), _) => self.after_text(scope, at, role, out),
            (LiteralState::Name, _) => match self.detect_quote(rest) {
                None => LiteralStep::Wait(at),
                Some(Some((quote, len))) => self.open_string(
                    scope,
                    at,
                    StringStart {
                        role: StringRole::Name,
                        quote,
                        len,
                    },
                    out,
                ),
                Some(None) => {
                    self.report_unexpected(scope, at, "a name in quotes was expected", out)
                }
            },
            (LiteralState::Value, _) => self.start_value(scope, at, out),
            (LiteralState::Colon, _) => {
                self.report_unexpected(scope, at, "`:` was expected behind the key", out)
            }
            (_, inner) => {
                let close = char::from(inner.map_or(b')', BracketKind::closing_byte));
                self.report_unexpected(scope, at, &format!("`,` or `{close}` was expected"), out)
            }
        }
    }

    /// Processes the first byte of a value.
    fn start_value(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let rest = scope.rest_from(at);
        let role = if self.nest.depth() == 0 {
            StringRole::Argument
        } else {
            StringRole::Element
        };
        match self.detect_quote(rest) {
            None => return self.wait_at(LiteralState::Value, at),
            Some(Some((quote, len))) => {
                return self.open_string(scope, at, StringStart { role, quote, len }, out);
            }
            Some(None) => {}
        }
        let bracket = match rest.as_bytes().first().copied().unwrap_or_default() {
            b'[' => BracketKind::List,
            b'{' => BracketKind::Map,
            b'(' if self.notation == LiteralNotation::Python => BracketKind::Group,
            _ => return self.start_scalar(scope, at, role, out),
        };
        if !self.nest.push_bracket(bracket) {
            let message = format!("the value is nested deeper than {LEVELS} levels");
            self.emit_fault(
                scope,
                Fault::error(FaultKind::Limit, scope.span_at(at, 1), message)
                    .with_hint("write a flatter value"),
                out,
            );
            return LiteralStep::Wrong(at);
        }
        if role == StringRole::Argument {
            out.push_event(scope.argument_start(ArgumentEncoding::Json, at));
        }
        self.text.push(if bracket == BracketKind::Map {
            '{'
        } else {
            '['
        });
        self.state = LiteralState::Item(true);
        LiteralStep::To(at + 1)
    }

    /// Processes the first byte of a number or a word.
    fn start_scalar(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let byte = scope
            .rest_from(at)
            .as_bytes()
            .first()
            .copied()
            .unwrap_or_default();
        if NumberState::can_start(byte) {
            if role == StringRole::Argument {
                out.push_event(scope.argument_start(ArgumentEncoding::Json, at));
            }
            // JSON keys must be strings, so a number as a key is quoted.
            if role == StringRole::Key {
                self.text.push('"');
            }
            self.state = LiteralState::Number(role, NumberState::Start);
            return LiteralStep::To(at);
        }
        if is_word_byte(byte) {
            self.word.clear();
            self.state = LiteralState::Word(role);
            return LiteralStep::To(at);
        }
        let expected = if role == StringRole::Key {
            "a key was expected"
        } else {
            "a value was expected"
        };
        self.report_unexpected(scope, at, expected, out)
    }

    /// Processes the first byte of a key.
    fn start_key(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let rest = scope.rest_from(at);
        let byte = rest.as_bytes().first().copied().unwrap_or_default();
        match self.detect_quote(rest) {
            // The comma before this key was already emitted; state `Item(true)` prevents a second
            // one.
            None => self.wait_at(LiteralState::Item(true), at),
            Some(Some((quote, len))) => self.open_string(
                scope,
                at,
                StringStart {
                    role: StringRole::Key,
                    quote,
                    len,
                },
                out,
            ),
            Some(None) if self.notation == LiteralNotation::Python => {
                self.start_scalar(scope, at, StringRole::Key, out)
            }
            Some(None) if is_name_byte(byte) => {
                self.word.clear();
                self.state = LiteralState::Key;
                LiteralStep::To(at)
            }
            Some(None) => self.report_unexpected(scope, at, "a key was expected", out),
        }
    }

    fn wait_at(&mut self, state: LiteralState, at: usize) -> LiteralStep {
        self.state = state;
        LiteralStep::Wait(at)
    }

    fn bare_key(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let (taken, end) = self.word.take_word(scope.rest_from(at), is_name_byte);
        let at = at + taken;
        match end {
            WordEnd::Open => LiteralStep::Wait(at),
            WordEnd::TooLong => self.report_long_word(scope, at, out),
            WordEnd::Here => {
                self.text.push('"');
                escape_json(self.word.as_str(), &mut self.text);
                self.text.push('"');
                self.state = LiteralState::Colon;
                LiteralStep::To(at)
            }
        }
    }

    fn close_bracket(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        inner: BracketKind,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        if inner == BracketKind::Group && self.state == LiteralState::After {
            let message =
                "brackets around one value: a tuple has a comma, and a plain value no brackets";
            let hint = "write a list as `[1]`, or the value alone";
            self.emit_fault(
                scope,
                Fault::error(FaultKind::MalformedJson, scope.span_at(at, 1), message)
                    .with_hint(hint),
                out,
            );
        }
        self.text
            .push(if inner == BracketKind::Map { '}' } else { ']' });
        self.nest.pop_bracket();
        self.end_value(scope, at + 1, out)
    }

    /// Ends a value that is not a string, before that byte.
    fn end_value(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        self.state = LiteralState::After;
        if self.nest.depth() > 0 {
            return LiteralStep::To(at);
        }
        self.end_argument(scope, scope.view.offset + at, out);
        LiteralStep::End(at)
    }

    fn read_number(
        &mut self,
        scope: ValueScope<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let LiteralState::Number(role, mut number) = self.state else {
            return LiteralStep::Wait(from);
        };
        for (at, byte) in scope
            .rest_from(from)
            .bytes()
            .enumerate()
            .map(|(at, byte)| (from + at, byte))
        {
            match number.push_byte(byte, &mut self.text) {
                NumberStep::Yes => {}
                NumberStep::End if role == StringRole::Key => {
                    self.text.push('"');
                    self.state = LiteralState::Colon;
                    return LiteralStep::To(at);
                }
                NumberStep::End => return self.end_value(scope, at, out),
                NumberStep::Wrong => {
                    return self.report_unexpected(
                        scope,
                        at,
                        "this is not a number that can be read",
                        out,
                    );
                }
            }
        }
        self.state = LiteralState::Number(role, number);
        LiteralStep::Wait(scope.view.text.len())
    }

    fn read_word(
        &mut self,
        scope: ValueScope<'_>,
        from: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let (taken, end) = self.word.take_word(scope.rest_from(from), is_word_byte);
        let at = from + taken;
        match end {
            WordEnd::Open => return LiteralStep::Wait(at),
            WordEnd::TooLong => return self.report_long_word(scope, at, out),
            WordEnd::Here => {}
        }
        let rest = scope.rest_from(at);
        // The word is a string prefix such as `r`.
        if self.notation == LiteralNotation::Python && rest.starts_with(['"', '\'']) {
            return self.open_prefixed_string(scope, at, role, out);
        }
        let literal = match self.word.as_str() {
            // Models mix the names of Python and JSON.
            "True" | "true" => "true",
            "False" | "false" => "false",
            "None" | "null" => "null",
            _ => return self.report_unknown_word(scope, at, out),
        };
        if role == StringRole::Argument {
            let ValueScope { index, name, .. } = scope;
            let at = self.word_span(scope, at).start;
            out.push_event(Event::ArgStart {
                index,
                name,
                form: ArgumentEncoding::Json,
                at,
            });
        }
        let quote = if role == StringRole::Key { "\"" } else { "" };
        self.text.extend([quote, literal, quote]);
        if role == StringRole::Key {
            self.state = LiteralState::Colon;
            return LiteralStep::To(at);
        }
        self.end_value(scope, at, out)
    }

    fn report_unknown_word(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let word = self.word.as_str();
        let (message, hint) = if scope.rest_from(at).starts_with('(') {
            (
                format!("a call of `{word}` is used as a value"),
                "call one tool at a time, and write its values out",
            )
        } else {
            (
                format!("a value was expected, found the word `{word}`"),
                "put strings in quotes",
            )
        };
        let span = self.word_span(scope, at);
        self.emit_fault(
            scope,
            Fault::error(FaultKind::MalformedJson, span, message).with_hint(hint),
            out,
        );
        LiteralStep::Wrong(at)
    }

    fn report_long_word(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let message = format!("a word is longer than {WORD_CAP} bytes");
        let span = self.word_span(scope, at);
        self.emit_fault(
            scope,
            Fault::error(FaultKind::Limit, span, message).with_hint("put strings in quotes"),
            out,
        );
        LiteralStep::Wrong(at)
    }

    /// Returns the span of the word that ends before that byte.
    fn word_span(&self, scope: ValueScope<'_>, at: usize) -> Span {
        let end = scope.view.offset + at;
        Span::new(end.saturating_sub(self.word.len()), end)
    }

    fn end_argument(&mut self, scope: ValueScope<'_>, at: usize, out: &mut dyn EventSink) {
        self.flush_text(scope, out);
        out.push_event(Event::ArgEnd {
            index: scope.index,
            lead: "",
            at,
        });
    }

    fn flush_text(&mut self, scope: ValueScope<'_>, out: &mut dyn EventSink) {
        if !self.text.is_empty() {
            out.push_event(Event::ArgDelta {
                index: scope.index,
                text: &self.text,
            });
            self.text.clear();
        }
    }

    /// Reports unexpected text.
    fn report_unexpected(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        expected: &str,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let (found, len) = describe_found(scope.rest_from(at));
        let message = format!("in `{}`: {expected}, {found}", scope.name);
        let span = scope.span_at(at, len);
        self.emit_fault(
            scope,
            Fault::error(FaultKind::MalformedJson, span, message).with_hint(HINT),
            out,
        );
        LiteralStep::Wrong(at)
    }

    fn emit_fault(&mut self, scope: ValueScope<'_>, fault: Fault, out: &mut dyn EventSink) {
        // Text converted before the mistake must precede the fault, or the order would depend on
        // the chunks.
        self.flush_text(scope, out);
        out.push_event(Event::Fault(&fault.in_call(scope.index)));
    }
}

impl<'w> ValueScope<'w> {
    /// Creates the event for the start of the argument at that position of the view.
    fn argument_start(self, form: ArgumentEncoding, at: usize) -> Event<'w> {
        Event::ArgStart {
            index: self.index,
            name: self.name,
            form,
            at: self.view.offset + at,
        }
    }

    fn rest_from(self, at: usize) -> &'w str {
        self.view.text.get(at..).unwrap_or_default()
    }

    fn span_at(self, at: usize, len: usize) -> Span {
        let start = self.view.offset + at;
        Span::new(start, start + len)
    }
}
