//! The arguments of a call, streamed: a resumable scanner over the JSON text of one object.
//!
//! Supported: one object, or no text, or `null` (both mean no arguments); as the whole text of a native call, or as a value
//! inside a longer text. String values are decoded as they arrive, every other value is passed on as its source text,
//! which the gates parse. A top-level string (doubly encoded arguments) is delivered as one `String` argument with an
//! empty name. Raw control characters in strings are taken as they stand, with a warning; a lone surrogate, which no text can
//! hold, is shown as U+FFFD, with a fault.
//!
//! Where strict reading stops at a place where a key or a value should start (single quotes, a bare key, a comma before
//! the closing bracket), the rest of the object is passed on as it stands, as one last argument with an empty name and
//! form `Json`: from the argument that could not be read (from the object's `{` where that was the first one) to the
//! object's closing bracket inclusive, which is found by brackets and strings alone (`json/balance.rs`). The gates repair
//! or reject that rest. A native call's text that stands in a code fence is passed on whole in the same way
//! (`json/fence.rs`).
//!
//! Unsupported: a missing colon, comma or value, unknown escapes, anything but an object, and text behind the object of a
//! native call. They end in a `malformed_json` fault.
//!
//! Grammar as implemented, `ws` between all tokens: `{ (string : value (, string : value)*)? }`, where `value` is a
//! string, a word, or a balanced run of `{…}` and `[…]` whose strings are skipped; `rest = (, value)* }` with `value` as
//! balanced as that. Each byte is looked at a bounded number of times; what is kept between two pushes is the source of
//! the current key (at most 64 KiB), the keys seen, and at most a broken-off escape.

pub(crate) mod balance;
mod decode;
mod fence;
mod string;

use crate::event::{ArgForm, Event, Sink};
use crate::fault::{Fault, FaultKind, Origin, Span};
use crate::names::Names;

use balance::{Balance, Guard, Stop, UNGUARDED};
use decode::Strings;
use fence::Fence;
pub(crate) use string::WHOLE;
use string::{Escape, Marks, PIECE};

/// The longest source text of a key and what stands between it and its value, in bytes.
const HEAD_CAP: usize = 64 * 1024;

/// Reads the JSON text of one call's arguments and emits `ArgStart`, `ArgDelta`, `ArgEnd` and faults for it.
#[derive(Debug)]
pub struct ArgumentScanner {
    index: u32,
    origin: Origin,
    guard: Guard,
    state: State,
    /// Of the next piece's first byte.
    offset: usize,
    /// What stands before a value, until it starts.
    head: Option<Box<Lead>>,
    /// The keys seen.
    keys: Names,
    strings: Strings,
    /// Finds the end of whatever is passed on as its source text.
    balance: Balance,
}

/// What stands before a value.
#[derive(Debug, Default)]
struct Lead {
    /// Source text from where the rest would begin.
    source: String,
    /// There was more of it than may be kept.
    over: bool,
    key: String,
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

/// How far [`ArgumentScanner::read_value`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// All of the text was taken.
    More,
    /// The value ended before this byte.
    Ended(usize),
    /// A guarded byte stands here, outside of strings; it was not taken.
    Guard(usize),
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
    /// Inside a value that is passed on as its source text.
    Source,
    /// Inside the rest of an object that is not strict.
    Rest,
    /// Inside a fence around the whole text, which opened with so many backticks.
    Fenced(Fence, u32),
    /// After a value.
    Comma,
    /// After the object.
    End,
    /// Inside something that is passed over, because a fault says what is wrong.
    Skip,
    /// Beyond hope.
    Broken,
}

impl ArgumentScanner {
    /// A scanner for the whole argument text of the native call of that index.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            origin: Origin::Arguments,
            guard: UNGUARDED,
            state: State::Start,
            offset: 0,
            head: None,
            keys: Names::default(),
            strings: Strings::default(),
            balance: Balance::value(),
        }
    }

    /// A scanner for a value that stands in the assistant text, where positions count. Use [`Self::read_value`].
    pub(crate) fn embedded(index: u32, guard: Guard) -> Self {
        Self { origin: Origin::Text, guard, ..Self::new(index) }
    }

    /// Takes the value as an object that is not strict, whatever it holds.
    pub(crate) fn relax(&mut self, offset: usize, out: &mut dyn Sink) {
        self.offset = offset;
        self.balance = Balance::value();
        self.rest(0, out);
    }

    /// Takes the next piece.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn Sink) {
        // Nearly all of a stream is the inside of strings. What else there may be stands apart, so that it costs nothing here.
        if !self.take(chunk, out) {
            self.read(chunk, 0, false, out);
        }
        self.offset = self.offset.saturating_add(chunk.len());
    }

    /// Takes a whole chunk that is nothing but a piece of a string value. False: look closer, nothing was taken.
    #[inline(always)]
    pub(crate) fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        if !matches!(self.state, State::Text(_)) || chunk.is_empty() {
            return false;
        }
        if chunk.len() > PIECE {
            return self.take_long(chunk, out);
        }
        let marks = Marks::of(chunk.as_bytes());
        if marks.none() && self.strings.escape == Escape::None {
            out.event(Event::ArgDelta { index: self.index, text: chunk });
            return true;
        }
        self.take_escaped(chunk, marks, out)
    }

    /// Takes a piece of a text in which the value stands, with the offset of its first byte. With `pass` that byte is no
    /// guarded one.
    pub(crate) fn read_value(&mut self, piece: (&str, usize), pass: bool, out: &mut dyn Sink) -> Read {
        let (text, offset) = piece;
        self.offset = offset;
        let at = self.read(text, 0, pass, out);
        if self.ended() {
            return Read::Ended(at);
        }
        if at < text.len() { Read::Guard(at) } else { Read::More }
    }

    /// The value is given up at that offset: closes the argument that is open. Returns what is missing of the value;
    /// `None`: a fault has told what is wrong with it.
    pub(crate) fn abandon(&mut self, at: usize, out: &mut dyn Sink) -> Option<&'static str> {
        let missing = match self.state {
            State::Skip | State::Broken => None,
            State::Source | State::Rest => Some("a closing bracket"),
            _ => Some("`}`"),
        };
        if matches!(self.state, State::Text(_) | State::Source | State::Rest | State::Fenced(..)) {
            out.event(Event::ArgEnd { index: self.index, lead: "", at });
        }
        self.state = State::Broken;
        missing
    }

    /// Whether the arguments, or a value among them, must begin next.
    pub(crate) fn wants_value(&self) -> bool {
        matches!(self.state, State::Start | State::Value)
    }

    /// Whether the text so far is whole. Nothing may be pushed afterwards.
    pub fn finish(&mut self, out: &mut dyn Sink) -> Whole {
        match self.state {
            State::Start | State::End => Whole::Yes,
            State::Null(_) => {
                self.broken(0, "the arguments are no JSON object", out);
                Whole::Broken
            }
            State::Skip | State::Broken => Whole::Broken,
            _ => Whole::No,
        }
    }

    fn ended(&self) -> bool {
        matches!(self.state, State::End | State::Broken)
    }

    /// Reads a piece that may hold anything, up to a guarded byte or, inside a longer text, the end of the value.
    #[inline(never)]
    fn read(&mut self, chunk: &str, from: usize, pass: bool, out: &mut dyn Sink) -> usize {
        let mut at = from;
        while let Some(&byte) = chunk.as_bytes().get(at) {
            let pass = pass && at == from;
            if self.ended() && (self.state == State::Broken || self.origin == Origin::Text) {
                break;
            }
            let next = match self.state {
                State::Key | State::Text(_) if self.strings.escape != Escape::None => self.escaped(byte, at, out),
                State::Key | State::Text(_) => self.string(chunk, at, out),
                State::Source | State::Rest | State::Skip => {
                    let (next, guarded) = self.source(chunk, at, pass, out);
                    if guarded {
                        at = next;
                        break;
                    }
                    next
                }
                State::Fenced(fence, ticks) => self.fenced(chunk, at, (fence, ticks), out),
                _ if self.guard.contains(&byte) && !pass => break,
                _ => self.token(byte, at, out),
            };
            self.remember(chunk.get(at..next).unwrap_or_default());
            at = next;
        }
        // Before an escape that is broken off.
        self.deliver("", out);
        at
    }

    /// Keeps the source of what may turn out to be the rest.
    fn remember(&mut self, source: &str) {
        if !matches!(self.state, State::FirstKey | State::Key | State::Colon | State::Value) || source.is_empty() {
            return;
        }
        let head = self.head.get_or_insert_default();
        if !head.over {
            let room = source.floor_char_boundary(HEAD_CAP.saturating_sub(head.source.len()).min(source.len()));
            head.source.push_str(source.get(..room).unwrap_or_default());
            head.over = room < source.len();
        }
    }

    /// Forgets the head; one that was too long is told. Returns what was kept of its source, and the key.
    fn behead(&mut self, at: usize, out: &mut dyn Sink) -> (String, String) {
        let Some(head) = self.head.take() else { return Default::default() };
        if head.over {
            let message = format!("the key of an argument is longer than {HEAD_CAP} bytes");
            self.tell(Fault::error(FaultKind::Limit, self.span(at), message), out);
            return Default::default();
        }
        (head.source, head.key)
    }

    /// One byte between values: punctuation, white space, or the first byte of something.
    fn token(&mut self, byte: u8, at: usize, out: &mut dyn Sink) -> usize {
        let next = at + 1;
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !matches!(self.state, State::Null(_)) {
            return next;
        }
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::FirstKey,
            (State::Start, b'`') => return self.begin_fence(at, out),
            (State::Start, b'n') => State::Null(1),
            (State::Start, b'"') => {
                self.open(ArgForm::String, next, out);
                State::Text(true)
            }
            (State::Null(1), b'u') => State::Null(2),
            (State::Null(2), b'l') => State::Null(3),
            (State::Null(3), b'l') => State::End,
            (State::FirstKey, b'}') | (State::Comma, b'}') => State::End,
            (State::FirstKey | State::NextKey, b'"') => State::Key,
            (State::FirstKey | State::NextKey, _) => return self.rest(at, out),
            (State::Colon, b':') => State::Value,
            (State::Comma, b',') => State::NextKey,
            (State::Value, _) => return self.value(byte, at, out),
            (state, _) => return self.unexpected((state, byte), at, out),
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
            b'{' | b'[' | b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.open(ArgForm::Json, at, out);
                self.balance = Balance::value();
                self.state = State::Source;
                at
            }
            b',' | b'}' | b']' => {
                self.broken(at, &format!("a value was expected after `:`, found {}", shown(byte)), out);
                self.skip(Balance::inside(1, true));
                at
            }
            _ => self.rest(at, out),
        }
    }

    /// What cannot be read in any way. The text is followed to the object's end, which may matter to what stands behind it.
    fn unexpected(&mut self, (state, byte): (State, u8), at: usize, out: &mut dyn Sink) -> usize {
        self.broken(at, &format!("{}, found {}", expectation(state), shown(byte)), out);
        match state {
            State::Start => self.skip(Balance::value()),
            State::Null(_) => self.skip(Balance::inside(0, false)),
            State::End => self.state = State::Broken,
            _ => self.skip(Balance::inside(1, false)),
        }
        at
    }

    fn skip(&mut self, balance: Balance) {
        self.balance = balance;
        self.state = State::Skip;
    }

    /// Strict reading stops here: begins the argument that holds the rest of the object.
    fn rest(&mut self, at: usize, out: &mut dyn Sink) -> usize {
        let (head, _) = self.behead(at, out);
        let start = (self.offset + at).saturating_sub(head.len());
        out.event(Event::ArgStart { index: self.index, name: "", form: ArgForm::Json, at: start });
        if !head.is_empty() {
            out.event(Event::ArgDelta { index: self.index, text: &head });
        }
        if self.state != State::Start {
            self.balance = Balance::inside(1, true);
        }
        self.state = State::Rest;
        at
    }

    fn open(&mut self, form: ArgForm, at: usize, out: &mut dyn Sink) {
        let (_, key) = self.behead(at, out);
        let at = self.offset + at;
        if !self.keys.insert(&key) {
            let message = format!("the argument `{key}` is given twice");
            let fault = Fault::error(FaultKind::DoubledArgument, Span::new(at, at), message);
            self.tell(fault.in_argument(key.as_str()).hint("give it once"), out);
        }
        out.event(Event::ArgStart { index: self.index, name: &key, form, at });
    }

    fn close(&mut self, at: usize, out: &mut dyn Sink) {
        out.event(Event::ArgEnd { index: self.index, lead: "", at: self.offset + at });
    }

    /// Source text that is passed on or over, up to its end, the chunk's, or a guarded byte (`true`).
    fn source(&mut self, chunk: &str, from: usize, pass: bool, out: &mut dyn Sink) -> (usize, bool) {
        let stop = self.balance.scan(chunk.as_bytes(), from, self.guard, pass);
        let to = match stop {
            Stop::End(at) | Stop::Guard(at) => at,
            Stop::More => chunk.len(),
        };
        if let Some(text) = chunk.get(from..to).filter(|text| !text.is_empty() && self.state != State::Skip) {
            out.event(Event::ArgDelta { index: self.index, text });
        }
        if let Stop::End(_) = stop {
            if self.state != State::Skip {
                self.close(to, out);
            }
            self.state = match self.state {
                State::Source => State::Comma,
                State::Rest => State::End,
                _ => State::Broken,
            };
        }
        (to, matches!(stop, Stop::Guard(_)))
    }

    fn warn(&mut self, fault: Fault, out: &mut dyn Sink) {
        // What was decoded before the mistake goes out before the fault, however the text was cut into chunks.
        self.deliver("", out);
        self.tell(fault, out);
    }

    fn broken(&self, at: usize, message: &str, out: &mut dyn Sink) {
        let message = format!("the arguments are no valid JSON: {message}");
        let fault = Fault::error(FaultKind::MalformedJson, self.span(at), message);
        self.tell(fault.hint("write one JSON object, for example {\"path\": \"a.txt\"}"), out);
    }

    fn span(&self, at: usize) -> Span {
        Span::new(self.offset + at, self.offset + at + 1)
    }

    fn tell(&self, fault: Fault, out: &mut dyn Sink) {
        let fault = Fault { origin: self.origin, ..fault.in_call(self.index) };
        out.event(Event::Fault(&fault));
    }
}

fn expectation(state: State) -> &'static str {
    match state {
        State::Start | State::Null(_) => "an object `{…}` was expected",
        State::Colon => "`:` was expected after the key",
        State::Comma => "`,` or `}` was expected after the value",
        State::End => "nothing was expected after the arguments",
        _ => "a key in double quotes or `}` was expected",
    }
}

/// A byte in words.
fn shown(byte: u8) -> String {
    match byte {
        b'`' => "a backtick".to_owned(),
        _ if byte.is_ascii_graphic() => format!("`{}`", char::from(byte)),
        _ if byte.is_ascii() => "a control character".to_owned(),
        _ => "a character outside of ASCII".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgumentScanner, Read, Whole};
    use crate::event::{Event, Sink};
    use crate::{Draft, Origin};

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
        check("{\"a\": \"x\ny\"}", "a:String=x\\ny control_character@8 whole");
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
        check("{\"a\" 1}", "malformed_json@5 broken");
        check("{\"a\": 1} x", "a:Json=1 malformed_json@9 broken");
        check("{\"a\": \"ab\\qc\"}", "a:String=ab\\\\qc malformed_json@10 whole");
        check("{\"a\": \"\\u12x\\d\"}", "a:String=\\\\u12x\\\\d malformed_json@11 whole");
        check("{\"a\": }", "malformed_json@6 broken");
        check("{\"a\": 1 \"b\": 2}", "a:Json=1 malformed_json@8 broken");
        check("[1]", "malformed_json@0 broken");
        check("nix", "malformed_json@1 broken");
        check("{\"a\": 1, \"a\": 2}", "a:Json=1 a:Json=2 doubled_argument@14 whole");
    }

    #[test]
    fn what_is_not_strict_is_left_to_the_gates() {
        check("{'a': 1}", ":Json={\\'a\\': 1} whole");
        check(" { a: [1]}\n", ":Json={ a: [1]} whole");
        check("{\"a\": 1, }", "a:Json=1 :Json=} whole");
        check("{\"a\": 1, 'b': '}'} ", "a:Json=1 :Json=\\'b\\': \\'}\\'} whole");
        check("{\"a\": \"x\", \"\\u0062\" : 'it', c: 1}", "a:String=x :Json=\\\"\\\\u0062\\\" : \\'it\\', c: 1} whole");
        check(
            "{\"a\": {'b': \"}\", 'c': ['}', 1,]}, \"d\": True}",
            "a:Json={\\'b\\': \\\"}\\\", \\'c\\': [\\'}\\', 1,]} d:Json=True whole",
        );
        check("{'a': 1} x", ":Json={\\'a\\': 1} malformed_json@9 broken");
        check("{'a': '}", ":Json={\\'a\\': \\'}… cut");
        check("{\"a\": 1, 'b': {}", "a:Json=1 :Json=\\'b\\': {}… cut");
    }

    #[test]
    fn a_fence_is_left_to_the_gates() {
        check("```json\n{\"a\": \"`}\"}\n```\n", ":Json=```json\\n{\\\"a\\\": \\\"`}\\\"}\\n``` whole");
        check("````{}````", ":Json=````{}```` whole");
        check("```\n{'a': 1}\n``", ":Json=```\\n{\\'a\\': 1}\\n``… cut");
        check("```json\n{\"a\": 1", ":Json=```json\\n{\\\"a\\\": 1… cut");
        check("```{}``` x", ":Json=```{}``` malformed_json@9 broken");
        check("``{}``", ":Json=`` malformed_json@2 broken");
        check("```{} x```", ":Json=```{}  malformed_json@6 broken");
        check("```[1]```", ":Json=``` malformed_json@3 broken");
    }

    #[test]
    fn a_key_is_short() {
        let long = "é".repeat(40_000);
        for size in [1, 7, 1000, 100_000] {
            assert_eq!(scan(&format!("{{\"{long}\": \"x\", \"b\": 1}}"), size), ":String=x b:Json=1 limit@80006 whole");
            assert_eq!(scan(&format!("{{\"{long}\": 'x'}}"), size), ":Json=\\'x\\'} limit@80005 whole");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_split_of_any_text(text in "[{}\\[\\]\"'`,:a\\\\ud8cé\\n1 ]{0,40}|\\{\"a\":\"[\\\\\"ud8nbé\\n]{0,80}\"\\}?") {
            let whole = scan(&text, 1000);
            for size in [1, 2, 3, 7, 16, 65] {
                proptest::prop_assert_eq!(scan(&text, size), whole.as_str(), "in chunks of {}: {}", size, &text);
            }
        }
    }

    /// `|` stands where the value must end; a text without it must not.
    #[test]
    fn a_value_ends_inside_a_longer_text() {
        for (marked, faults) in [
            ("{\"a\": \"}\", 'b': 1}| {", ""),
            (" null|, \"x\"", ""),
            ("\"{}\"|}", ""),
            ("{\"a\": 'x'", ""),
            ("|}", "10 "),
            ("[1, \"]\"]|]", "10 "),
            ("'a}'|}", "10 "),
            ("12|}", "10 "),
            ("{\"a\" 1, {}}|}", "15 "),
        ] {
            let text = marked.replace('|', "");
            for size in 1..=text.len() {
                let mut draft = Draft::default();
                draft.event(Event::CallStart { index: 0, id: None, name: "f", dialect: None, at: 0, name_at: 0 });
                let mut scanner = ArgumentScanner::embedded(0, *b"<<");
                let (mut from, mut end) = (0, None);
                while from < text.len() && end.is_none() {
                    let to = (from + size).min(text.len());
                    if let Read::Ended(at) =
                        scanner.read_value((text.get(from..to).unwrap(), 10 + from), false, &mut draft)
                    {
                        end = Some(from + at);
                    }
                    from = to;
                }
                assert_eq!(end, marked.find('|'), "in chunks of {size}: {marked}");
                let places: String = draft.faults.iter().map(|fault| format!("{} ", fault.span.start)).collect();
                assert_eq!(places, faults, "in chunks of {size}: {marked}");
                assert!(draft.faults.iter().all(|fault| fault.origin == Origin::Text));
            }
        }
    }
}
