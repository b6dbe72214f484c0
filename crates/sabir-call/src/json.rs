//! The arguments of a native call, streamed: a resumable scanner over the JSON text of one object.
//!
//! Supported: one object, or no text, or `null` (both mean no arguments). String values are decoded as they arrive,
//! every other value is passed on as its source text, which the gates parse. A top-level string (doubly encoded
//! arguments) is delivered as one `String` argument with an empty name. Raw control characters in strings are taken as
//! they stand, with a warning; a lone surrogate becomes U+FFFD, with a warning.
//!
//! Unsupported: comments, single quotes, bare words as keys. They end in a `malformed_json` fault.
//!
//! Grammar as implemented, `ws` between all tokens: `{ (string : value (, string : value)*)? }`, where `value` is a
//! string, a run without `,}]` and white space, or a balanced run of `{…}` and `[…]` whose strings are skipped. Each byte
//! is looked at a bounded number of times; what is kept between two pushes is the current key, the keys seen, and at most a
//! broken-off escape.

use std::collections::HashSet;

use crate::event::{ArgForm, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::lanes::{LANES, below, first, lanes};

/// Reads the JSON text of one call's arguments and emits `ArgStart`, `ArgDelta`, `ArgEnd` and faults for it.
#[derive(Debug)]
pub struct ArgumentScanner {
    index: u32,
    state: State,
    /// Bytes taken in earlier pushes.
    offset: usize,
    key: String,
    keys: HashSet<String>,
    escape: Escape,
    /// Decoded text that has not gone out yet; empty between pushes.
    decoded: String,
    warned: bool,
}

/// What [`ArgumentScanner::finish`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// One whole JSON object (or no text at all, or `null`: no arguments).
    Yes,
    /// The text ended inside the object: the call must be cut.
    No,
    /// The text can never be an object of arguments; a fault has been emitted.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// Inside the literal `null`, so many bytes in.
    Null(u8),
    /// After `{`.
    FirstKey,
    /// After `,`.
    NextKey,
    /// Inside a key.
    Key,
    /// After a key.
    Colon,
    /// After `:`.
    Value,
    /// Inside a string value; `true`: it is the whole text (double encoding).
    Text(bool),
    /// Inside a number or a word.
    Scalar,
    /// Inside an object or array of that depth.
    Nested(u32),
    /// Inside a string of a nested value; `true`: after a backslash.
    NestedText(u32, bool),
    /// After a value.
    Comma,
    /// After the object.
    End,
    /// Beyond hope.
    Broken,
}

/// A string escape that may be broken off between two pushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// After the backslash.
    Open,
    /// After `\u`, inside its four digits: digits read, their value, the high surrogate before them.
    Unicode(u8, u16, u16),
    /// After a high surrogate.
    High(u16),
    /// After a high surrogate and a backslash.
    HighOpen(u16),
}

impl ArgumentScanner {
    /// A scanner for the call of that index.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            state: State::Start,
            offset: 0,
            key: String::new(),
            keys: HashSet::new(),
            escape: Escape::None,
            decoded: String::new(),
            warned: false,
        }
    }

    /// Takes the next piece.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn Sink) {
        // Nearly all of a stream is the inside of strings. What else there may be stands apart, so that it costs nothing here.
        let inside = matches!(self.state, State::Text(_)) && self.escape == Escape::None && !chunk.is_empty();
        let plain = if inside { plain_end(chunk.as_bytes(), 0) } else { 0 };
        if inside && plain == chunk.len() {
            out.event(Event::ArgDelta { index: self.index, text: chunk });
        } else {
            let at = if inside { self.string(chunk, 0, plain, out) } else { 0 };
            if at < chunk.len() || self.escape != Escape::None {
                self.read(chunk, at, out);
            }
        }
        self.offset = self.offset.saturating_add(chunk.len());
    }

    /// Reads a piece that may hold anything.
    #[inline(never)]
    fn read(&mut self, chunk: &str, from: usize, out: &mut dyn Sink) {
        let mut at = from;
        while let Some(&byte) = chunk.as_bytes().get(at) {
            at = match self.state {
                State::Broken => break,
                State::Key | State::Text(_) if self.escape != Escape::None => self.escaped(byte, at, out),
                State::Key | State::Text(_) => self.string(chunk, at, at, out),
                State::Scalar | State::Nested(_) | State::NestedText(..) => self.source(chunk, at, out),
                _ => self.token(byte, at, out),
            };
        }
        // Before an escape that is broken off.
        self.deliver("", out);
    }

    /// Whether the text so far is whole. Nothing may be pushed afterwards.
    pub fn finish(&mut self, out: &mut dyn Sink) -> Whole {
        match self.state {
            State::Start | State::End | State::Null(4) => Whole::Yes,
            State::Null(_) => {
                self.broken(0, "the arguments are no JSON object", out);
                Whole::Broken
            }
            State::Broken => Whole::Broken,
            _ => Whole::No,
        }
    }

    /// One byte between values: punctuation, white space, or the first byte of something.
    fn token(&mut self, byte: u8, at: usize, out: &mut dyn Sink) -> usize {
        let next = at + 1;
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !matches!(self.state, State::Null(1..=3)) {
            return next;
        }
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::FirstKey,
            (State::Start, b'n') => State::Null(1),
            (State::Start, b'"') => {
                self.key.clear();
                self.open(ArgForm::String, next, out);
                State::Text(true)
            }
            (State::Null(1), b'u') => State::Null(2),
            (State::Null(2), b'l') => State::Null(3),
            (State::Null(3), b'l') => State::Null(4),
            (State::FirstKey, b'}') | (State::Comma, b'}') => State::End,
            (State::FirstKey | State::NextKey, b'"') => {
                self.key.clear();
                State::Key
            }
            (State::Colon, b':') => State::Value,
            (State::Comma, b',') => State::NextKey,
            (State::Value, _) => return self.value(byte, at, out),
            (state, _) => {
                self.broken(at, expectation(state), out);
                State::Broken
            }
        };
        next
    }

    fn value(&mut self, byte: u8, at: usize, out: &mut dyn Sink) -> usize {
        match byte {
            b'"' => {
                self.open(ArgForm::String, at + 1, out);
                self.state = State::Text(false);
                at + 1
            }
            b'{' | b'[' => {
                self.open(ArgForm::Json, at, out);
                self.state = State::Nested(0);
                at
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.open(ArgForm::Json, at, out);
                self.state = State::Scalar;
                at
            }
            _ => {
                self.broken(at, "a value was expected after `:`", out);
                self.state = State::Broken;
                at + 1
            }
        }
    }

    fn open(&mut self, form: ArgForm, at: usize, out: &mut dyn Sink) {
        let at = self.offset + at;
        if !self.keys.insert(self.key.clone()) {
            let fault = Fault::error(
                FaultKind::DoubledArgument,
                Span::new(at, at),
                format!("the argument `{}` is given twice", self.key),
            );
            let fault = fault.in_call(self.index).in_argument(self.key.clone()).in_arguments_text();
            out.event(Event::Fault(&fault.hint("give it once")));
        }
        out.event(Event::ArgStart { index: self.index, name: &self.key, form, at });
    }

    fn close(&mut self, at: usize, out: &mut dyn Sink) {
        out.event(Event::ArgEnd { index: self.index, lead: "", at: self.offset + at });
    }

    /// The source text of a value that is no string, up to its end or the chunk's.
    fn source(&mut self, chunk: &str, from: usize, out: &mut dyn Sink) -> usize {
        let bytes = chunk.as_bytes();
        let (mut at, mut end) = (from, None);
        loop {
            if let State::NestedText(_, false) = self.state {
                at = plain_end(bytes, at);
            }
            let Some(&byte) = bytes.get(at) else { break };
            self.state = match (self.state, byte) {
                (State::NestedText(depth, true), _) => State::NestedText(depth, false),
                (State::NestedText(depth, false), b'\\') => State::NestedText(depth, true),
                (State::NestedText(depth, false), b'"') => State::Nested(depth),
                (State::Nested(depth), b'"') => State::NestedText(depth, false),
                (State::Nested(depth), b'{' | b'[') => State::Nested(depth.saturating_add(1)),
                (State::Nested(0 | 1), b'}' | b']') => {
                    end = Some(at + 1);
                    break;
                }
                (State::Nested(depth), b'}' | b']') => State::Nested(depth - 1),
                (State::Scalar, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') => {
                    end = Some(at);
                    break;
                }
                (state, _) => state,
            };
            at += 1;
        }
        let to = end.unwrap_or(chunk.len());
        if let Some(text) = chunk.get(from..to).filter(|text| !text.is_empty()) {
            out.event(Event::ArgDelta { index: self.index, text });
        }
        if end.is_some() {
            self.close(to, out);
            self.state = State::Comma;
        }
        to
    }

    /// A key or a string value, up to its end, the chunk's, or an escape that is more than one letter.
    ///
    /// The text is known to be plain up to `known`.
    #[inline(never)]
    fn string(&mut self, chunk: &str, from: usize, known: usize, out: &mut dyn Sink) -> usize {
        let bytes = chunk.as_bytes();
        let (mut run, mut at) = (from, known);
        loop {
            at = plain_end(bytes, at);
            let text = chunk.get(run..at).unwrap_or_default();
            match bytes.get(at) {
                None => {
                    self.deliver(text, out);
                    return at;
                }
                Some(b'"') => {
                    self.deliver(text, out);
                    self.end_string(at, out);
                    return at + 1;
                }
                Some(b'\\') => {
                    self.decoded.push_str(text);
                    let Some(c) = bytes.get(at + 1).copied().and_then(unescape) else {
                        self.escape = Escape::Open;
                        return at + 1;
                    };
                    self.decoded.push(c);
                    at += 2;
                    run = at;
                }
                Some(_) => {
                    self.decoded.push_str(text);
                    self.warn(at, "a raw control character in a string; JSON wants it escaped", out);
                    self.decoded.push_str(chunk.get(at..=at).unwrap_or_default());
                    at += 1;
                    run = at;
                }
            }
        }
    }

    /// Hands on what has been decoded, and `tail` behind it.
    #[inline]
    fn deliver(&mut self, tail: &str, out: &mut dyn Sink) {
        if self.decoded.is_empty() && self.state != State::Key {
            if !tail.is_empty() {
                out.event(Event::ArgDelta { index: self.index, text: tail });
            }
            return;
        }
        self.decoded.push_str(tail);
        if self.state == State::Key {
            self.key.push_str(&self.decoded);
        } else {
            out.event(Event::ArgDelta { index: self.index, text: &self.decoded });
        }
        self.decoded.clear();
    }

    fn end_string(&mut self, at: usize, out: &mut dyn Sink) {
        self.state = match self.state {
            State::Key => State::Colon,
            State::Text(top) => {
                self.close(at, out);
                if top { State::End } else { State::Comma }
            }
            state => state,
        };
    }

    /// One byte of an escape. Returns where to go on: at the same byte where it does not belong to the escape.
    fn escaped(&mut self, byte: u8, at: usize, out: &mut dyn Sink) -> usize {
        let next = at + 1;
        self.escape = match (self.escape, byte) {
            (Escape::Open, b'u') => Escape::Unicode(0, 0, 0),
            (Escape::HighOpen(high), b'u') => Escape::Unicode(0, 0, high),
            (Escape::High(high), b'\\') => Escape::HighOpen(high),
            (Escape::High(_), _) => {
                self.lone(at, out);
                self.escape = Escape::None;
                return at;
            }
            (Escape::HighOpen(_), _) => {
                self.lone(at, out);
                self.escape = Escape::Open;
                return at;
            }
            (Escape::Unicode(count, value, high), _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok()).unwrap_or(0);
                let value = value.wrapping_shl(4) | digit;
                if count == 3 { self.unit(value, high, at, out) } else { Escape::Unicode(count + 1, value, high) }
            }
            (Escape::Open, _) => match unescape(byte) {
                Some(c) => {
                    self.decoded.push(c);
                    Escape::None
                }
                None => return self.bad_escape(at, out),
            },
            _ => return self.bad_escape(at, out),
        };
        next
    }

    /// A whole UTF-16 unit, perhaps after a high surrogate (0: none).
    fn unit(&mut self, value: u16, high: u16, at: usize, out: &mut dyn Sink) -> Escape {
        if high != 0 {
            if let Some(Ok(c)) = char::decode_utf16([high, value]).next() {
                self.decoded.push(c);
                return Escape::None;
            }
            self.lone(at, out);
        }
        match char::decode_utf16([value]).next() {
            Some(Ok(c)) => self.decoded.push(c),
            _ if value < 0xdc00 => return Escape::High(value),
            _ => self.lone(at, out),
        }
        Escape::None
    }

    fn lone(&mut self, at: usize, out: &mut dyn Sink) {
        self.warn(at, "a lone surrogate escape, which no text can hold; read as U+FFFD", out);
        self.decoded.push(char::REPLACEMENT_CHARACTER);
    }

    fn bad_escape(&mut self, at: usize, out: &mut dyn Sink) -> usize {
        self.deliver("", out);
        self.broken(at, "no such escape in a JSON string", out);
        self.escape = Escape::None;
        self.state = State::Broken;
        at + 1
    }

    fn warn(&mut self, at: usize, message: &str, out: &mut dyn Sink) {
        if !self.warned {
            self.warned = true;
            // What was decoded before the mistake goes out before the fault, however the text was cut into chunks.
            self.deliver("", out);
            let span = Span::new(self.offset + at, self.offset + at + 1);
            let fault = Fault::warning(FaultKind::MalformedJson, span, message);
            out.event(Event::Fault(&fault.in_call(self.index).in_arguments_text()));
        }
    }

    fn broken(&mut self, at: usize, message: &str, out: &mut dyn Sink) {
        let span = Span::new(self.offset + at, self.offset + at + 1);
        let message = format!("the arguments are no valid JSON: {message}");
        let fault = Fault::error(FaultKind::MalformedJson, span, message).in_call(self.index).in_arguments_text();
        out.event(Event::Fault(&fault.hint("write one JSON object, for example {\"path\": \"a.txt\"}")));
    }
}

/// Where the plain text from `from` on ends: at a quote, a backslash, a control character, or with the text.
fn plain_end(bytes: &[u8], from: usize) -> usize {
    let special = |word: u64| lanes(word, b'"') | lanes(word, b'\\') | below(word, 0x20);
    let mut at = from;
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((word, after)) = rest.split_first_chunk() {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + first(marks);
        }
        (at, rest) = (at + LANES, after);
    }
    if rest.is_empty() {
        return at;
    }
    // Less than a register is left. Zeros stand in the lanes behind it, which count as special and so end it.
    let word = match bytes.last_chunk() {
        Some(word) => u64::from_le_bytes(*word).unbounded_shr(64 - 8 * rest.len() as u32),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    at + first(special(word))
}

/// What a letter behind a backslash stands for; 0: nothing, or more than the letter.
#[expect(clippy::indexing_slicing, reason = "in a constant, where a wrong index does not compile")]
const LETTERS: [u8; 256] = {
    let mut letters = [0; 256];
    letters[b'n' as usize] = b'\n';
    letters[b't' as usize] = b'\t';
    letters[b'r' as usize] = b'\r';
    letters[b'b' as usize] = 8;
    letters[b'f' as usize] = 12;
    letters[b'"' as usize] = b'"';
    letters[b'\\' as usize] = b'\\';
    letters[b'/' as usize] = b'/';
    letters
};

/// A table and no `match`, because a jump would be foreseen wrongly every other time.
fn unescape(letter: u8) -> Option<char> {
    LETTERS.get(usize::from(letter)).filter(|c| **c != 0).map(|c| char::from(*c))
}

fn expectation(state: State) -> &'static str {
    match state {
        State::Start | State::Null(_) => "an object `{…}` was expected",
        State::FirstKey => "a key in double quotes or `}` was expected",
        State::NextKey => "a key in double quotes was expected after `,`",
        State::Colon => "`:` was expected after the key",
        State::Comma => "`,` or `}` was expected after the value",
        State::End => "text follows the closing `}`",
        _ => "unexpected text",
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgumentScanner, Whole};
    use crate::Draft;
    use crate::event::{Event, Sink};

    /// Scans `text` in chunks of `size` bytes (at character boundaries) and writes what came out in one line.
    fn scan(text: &str, size: usize) -> String {
        let mut draft = Draft::default();
        draft.event(Event::CallStart { index: 0, id: None, name: "f", dialect: None, at: 0, name_at: 0 });
        let mut scanner = ArgumentScanner::new(0);
        let mut from = 0;
        while from < text.len() {
            let to = text.ceil_char_boundary((from + size).min(text.len()));
            scanner.push(text.get(from..to).unwrap(), &mut draft);
            from = to;
        }
        let whole = scanner.finish(&mut draft);
        let mut line = String::new();
        for argument in &draft.call(0).unwrap().arguments {
            line += &format!("{}:{:?}={}", argument.name, argument.form, argument.text.escape_debug());
            line += if argument.partial { "… " } else { " " };
        }
        for fault in &draft.faults {
            line += &format!("{}@{} ", fault.kind.name(), fault.span.start);
        }
        line + match whole {
            Whole::Yes => "whole",
            Whole::No => "cut",
            Whole::Broken => "broken",
        }
    }

    fn check(text: &str, expected: &str) {
        for size in [1, 2, 3, 5, 7, 16, 64, 1000] {
            assert_eq!(scan(text, size), expected, "in chunks of {size}: {text}");
        }
    }

    #[test]
    fn values_of_every_kind() {
        check("", "whole");
        check(" null ", "whole");
        check("{}", "whole");
        check(
            r#"{"a": "x", "b": 10, "c": [1, {"d": "]}"}], "e": null}"#,
            r#"a:String=x b:Json=10 c:Json=[1, {\"d\": \"]}\"}] e:Json=null whole"#,
        );
        check("{\"n\":-1.5e3}", "n:Json=-1.5e3 whole");
        check("\"{\\\"a\\\": 1}\"", ":String={\\\"a\\\": 1} whole");
    }

    #[test]
    fn strings_are_decoded_exactly() {
        check(
            r#"{"a": "l1\nl2\t\"q\" \\ \/ \u00e9 \ud83c\udf0d é🌍"}"#,
            "a:String=l1\\nl2\\t\\\"q\\\" \\\\ / é 🌍 é🌍 whole",
        );
        check(r#"{"k\u0065y": ""}"#, "key:String= whole");
        check(r#"{"a": "x\ud83cy"}"#, "a:String=x\u{fffd}y malformed_json@14 whole");
        check(r#"{"a": "\ud83c\ud83c\udf0d"}"#, "a:String=\u{fffd}🌍 malformed_json@18 whole");
        check(r#"{"a": "\udf0d"}"#, "a:String=\u{fffd} malformed_json@12 whole");
        check("{\"a\": \"x\ny\"}", "a:String=x\\ny malformed_json@8 whole");
    }

    #[test]
    fn what_is_cut_is_never_whole() {
        let text = r#"{"path": "a\u00e9", "n": [1, "]"], "t": true}"#;
        for end in 1..text.len() {
            let cut = text.get(..end).unwrap();
            assert!(scan(cut, 3).ends_with("cut"), "{cut}");
        }
        check("nul", "malformed_json@3 broken");
    }

    #[test]
    fn broken_text_is_a_fault_with_its_place() {
        check("{'a': 1}", "malformed_json@1 broken");
        check("{\"a\" 1}", "malformed_json@5 broken");
        check("{\"a\": 1,}", "a:Json=1 malformed_json@8 broken");
        check("{\"a\": 1} x", "a:Json=1 malformed_json@9 broken");
        check("{\"a\": \"ab\\qc\"}", "a:String=ab… malformed_json@10 broken");
        check("{\"a\": }", "malformed_json@6 broken");
        check("[1]", "malformed_json@0 broken");
        check("{\"a\": 1, \"a\": 2}", "a:Json=1 a:Json=2 doubled_argument@14 whole");
    }
}
