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

use crate::event::{ArgForm, Event, EventSink};
use crate::fault::{Fault, FaultKind, Span, SpanOrigin};
use crate::small_name_set::SmallNameSet;

use balance::{BalanceScanner, GuardBytes, ScanStop, UNGUARDED};
use decode::StringDecoder;
use fence::FencePhase;
pub(crate) use string::SURROGATE_HINT;
use string::{EscapeState, PIECE, SpecialMask};

/// The longest source text of a key and what stands between it and its value, in bytes.
const HEAD_CAP: usize = 64 * 1024;

/// Reads the JSON text of one call's arguments and emits `ArgStart`, `ArgDelta`, `ArgEnd` and faults for it.
#[derive(Debug)]
pub struct ArgumentScanner {
    index: u32,
    origin: SpanOrigin,
    guard: GuardBytes,
    state: ScannerState,
    /// Of the next piece's first byte.
    offset: usize,
    /// What stands before a value, until it starts.
    head: Option<Box<PendingKey>>,
    /// The keys seen.
    keys: SmallNameSet,
    strings: StringDecoder,
    /// Finds the end of whatever is passed on as its source text.
    balance: BalanceScanner,
}

/// What stands before a value.
#[derive(Debug, Default)]
struct PendingKey {
    /// Source text from where the rest would begin.
    source: String,
    /// There was more of it than may be kept.
    over: bool,
    key: String,
}

/// What [`ArgumentScanner::finish`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOutcome {
    /// One whole JSON object (or no text at all, or `null`: no arguments).
    Complete,
    /// The text ended inside the object: the call must be cut.
    Incomplete,
    /// The text can never be an object of arguments; a fault has been emitted.
    Broken,
}

/// How far [`ArgumentScanner::read_value`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanProgress {
    /// All of the text was taken.
    More,
    /// The value ended before this byte.
    Ended(usize),
    /// A guarded byte stands here, outside of strings; it was not taken.
    Guard(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScannerState {
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
    Fenced(FencePhase, u32),
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
            origin: SpanOrigin::Arguments,
            guard: UNGUARDED,
            state: ScannerState::Start,
            offset: 0,
            head: None,
            keys: SmallNameSet::default(),
            strings: StringDecoder::default(),
            balance: BalanceScanner::at_value(),
        }
    }

    /// A scanner for a value that stands in the assistant text, where positions count. Use [`Self::read_value`].
    pub(crate) fn embedded_in_text(index: u32, guard: GuardBytes) -> Self {
        Self { origin: SpanOrigin::Text, guard, ..Self::new(index) }
    }

    /// Takes the value as an object that is not strict, whatever it holds.
    pub(crate) fn begin_lenient(&mut self, offset: usize, out: &mut dyn EventSink) {
        self.offset = offset;
        self.balance = BalanceScanner::at_value();
        self.begin_rest(0, out);
    }

    /// Takes the next piece.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn EventSink) {
        // Nearly all of a stream is the inside of strings. What else there may be stands apart, so that it costs nothing here.
        if !self.take_chunk(chunk, out) {
            self.read_piece(chunk, 0, false, out);
        }
        self.offset = self.offset.saturating_add(chunk.len());
    }

    /// Takes a whole chunk that is nothing but a piece of a string value. False: look closer, nothing was taken.
    #[inline(always)]
    pub(crate) fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        if !matches!(self.state, ScannerState::Text(_)) || chunk.is_empty() {
            return false;
        }
        if chunk.len() > PIECE {
            return self.take_long(chunk, out);
        }
        let marks = SpecialMask::from_piece(chunk.as_bytes());
        if marks.is_empty() && self.strings.escape == EscapeState::None {
            out.push_event(Event::ArgDelta { index: self.index, text: chunk });
            return true;
        }
        self.take_escaped(chunk, marks, out)
    }

    /// Takes a piece of a text in which the value stands, with the offset of its first byte. With `pass` that byte is no
    /// guarded one.
    pub(crate) fn read_value(&mut self, piece: (&str, usize), pass: bool, out: &mut dyn EventSink) -> ScanProgress {
        let (text, offset) = piece;
        self.offset = offset;
        let at = self.read_piece(text, 0, pass, out);
        if self.has_ended() {
            return ScanProgress::Ended(at);
        }
        if at < text.len() { ScanProgress::Guard(at) } else { ScanProgress::More }
    }

    /// The value is given up at that offset: closes the argument that is open. Returns what is missing of the value;
    /// `None`: a fault has told what is wrong with it.
    pub(crate) fn abandon_value(&mut self, at: usize, out: &mut dyn EventSink) -> Option<&'static str> {
        let missing = match self.state {
            ScannerState::Skip | ScannerState::Broken => None,
            ScannerState::Source | ScannerState::Rest => Some("a closing bracket"),
            _ => Some("`}`"),
        };
        if matches!(
            self.state,
            ScannerState::Text(_) | ScannerState::Source | ScannerState::Rest | ScannerState::Fenced(..)
        ) {
            out.push_event(Event::ArgEnd { index: self.index, lead: "", at });
        }
        self.state = ScannerState::Broken;
        missing
    }

    /// Whether the arguments, or a value among them, must begin next.
    pub(crate) fn wants_value(&self) -> bool {
        matches!(self.state, ScannerState::Start | ScannerState::Value)
    }

    /// Whether the text so far is whole. Nothing may be pushed afterwards.
    pub fn finish(&mut self, out: &mut dyn EventSink) -> ScanOutcome {
        match self.state {
            ScannerState::Start | ScannerState::End => ScanOutcome::Complete,
            ScannerState::Null(_) => {
                self.report_malformed(0, "the arguments are no JSON object", out);
                ScanOutcome::Broken
            }
            ScannerState::Skip | ScannerState::Broken => ScanOutcome::Broken,
            _ => ScanOutcome::Incomplete,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, ScannerState::End | ScannerState::Broken)
    }

    /// Reads a piece that may hold anything, up to a guarded byte or, inside a longer text, the end of the value.
    #[inline(never)]
    fn read_piece(&mut self, chunk: &str, from: usize, pass: bool, out: &mut dyn EventSink) -> usize {
        let mut at = from;
        while let Some(&byte) = chunk.as_bytes().get(at) {
            let pass = pass && at == from;
            if self.has_ended() && (self.state == ScannerState::Broken || self.origin == SpanOrigin::Text) {
                break;
            }
            let next = match self.state {
                ScannerState::Key | ScannerState::Text(_) if self.strings.escape != EscapeState::None => {
                    self.read_escape(byte, at, out)
                }
                ScannerState::Key | ScannerState::Text(_) => self.read_string(chunk, at, out),
                ScannerState::Source | ScannerState::Rest | ScannerState::Skip => {
                    let (next, guarded) = self.read_source(chunk, at, pass, out);
                    if guarded {
                        at = next;
                        break;
                    }
                    next
                }
                ScannerState::Fenced(fence, ticks) => self.read_fence(chunk, at, (fence, ticks), out),
                _ if self.guard.contains(&byte) && !pass => break,
                _ => self.read_token(byte, at, out),
            };
            self.remember_source(chunk.get(at..next).unwrap_or_default());
            at = next;
        }
        // Before an escape that is broken off.
        self.emit_decoded("", out);
        at
    }

    /// Keeps the source of what may turn out to be the rest.
    fn remember_source(&mut self, source: &str) {
        if !matches!(self.state, ScannerState::FirstKey | ScannerState::Key | ScannerState::Colon | ScannerState::Value)
            || source.is_empty()
        {
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
    fn take_key(&mut self, at: usize, out: &mut dyn EventSink) -> (String, String) {
        let Some(head) = self.head.take() else { return Default::default() };
        if head.over {
            let message = format!("the key of an argument is longer than {HEAD_CAP} bytes");
            self.emit_fault(Fault::error(FaultKind::Limit, self.span_at(at), message), out);
            return Default::default();
        }
        (head.source, head.key)
    }

    /// One byte between values: punctuation, white space, or the first byte of something.
    fn read_token(&mut self, byte: u8, at: usize, out: &mut dyn EventSink) -> usize {
        let next = at + 1;
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !matches!(self.state, ScannerState::Null(_)) {
            return next;
        }
        self.state = match (self.state, byte) {
            (ScannerState::Start, b'{') => ScannerState::FirstKey,
            (ScannerState::Start, b'`') => return self.begin_fence(at, out),
            (ScannerState::Start, b'n') => ScannerState::Null(1),
            (ScannerState::Start, b'"') => {
                self.open_argument(ArgForm::String, next, out);
                ScannerState::Text(true)
            }
            (ScannerState::Null(1), b'u') => ScannerState::Null(2),
            (ScannerState::Null(2), b'l') => ScannerState::Null(3),
            (ScannerState::Null(3), b'l') => ScannerState::End,
            (ScannerState::FirstKey, b'}') | (ScannerState::Comma, b'}') => ScannerState::End,
            (ScannerState::FirstKey | ScannerState::NextKey, b'"') => ScannerState::Key,
            (ScannerState::FirstKey | ScannerState::NextKey, _) => return self.begin_rest(at, out),
            (ScannerState::Colon, b':') => ScannerState::Value,
            (ScannerState::Comma, b',') => ScannerState::NextKey,
            (ScannerState::Value, _) => return self.begin_value(byte, at, out),
            (state, _) => return self.report_unexpected((state, byte), at, out),
        };
        next
    }

    fn begin_value(&mut self, byte: u8, at: usize, out: &mut dyn EventSink) -> usize {
        match byte {
            b'"' => {
                self.open_argument(ArgForm::String, at + 1, out);
                self.state = ScannerState::Text(false);
                at + 1
            }
            b'{' | b'[' | b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.open_argument(ArgForm::Json, at, out);
                self.balance = BalanceScanner::at_value();
                self.state = ScannerState::Source;
                at
            }
            b',' | b'}' | b']' => {
                self.report_malformed(
                    at,
                    &format!("a value was expected after `:`, found {}", describe_byte(byte)),
                    out,
                );
                self.skip_value(BalanceScanner::inside_brackets(1, true));
                at
            }
            _ => self.begin_rest(at, out),
        }
    }

    /// What cannot be read in any way. The text is followed to the object's end, which may matter to what stands behind it.
    fn report_unexpected(&mut self, (state, byte): (ScannerState, u8), at: usize, out: &mut dyn EventSink) -> usize {
        self.report_malformed(at, &format!("{}, found {}", expected_text(state), describe_byte(byte)), out);
        match state {
            ScannerState::Start => self.skip_value(BalanceScanner::at_value()),
            ScannerState::Null(_) => self.skip_value(BalanceScanner::inside_brackets(0, false)),
            ScannerState::End => self.state = ScannerState::Broken,
            _ => self.skip_value(BalanceScanner::inside_brackets(1, false)),
        }
        at
    }

    fn skip_value(&mut self, balance: BalanceScanner) {
        self.balance = balance;
        self.state = ScannerState::Skip;
    }

    /// Strict reading stops here: begins the argument that holds the rest of the object.
    fn begin_rest(&mut self, at: usize, out: &mut dyn EventSink) -> usize {
        let (head, _) = self.take_key(at, out);
        let start = (self.offset + at).saturating_sub(head.len());
        out.push_event(Event::ArgStart { index: self.index, name: "", form: ArgForm::Json, at: start });
        if !head.is_empty() {
            out.push_event(Event::ArgDelta { index: self.index, text: &head });
        }
        if self.state != ScannerState::Start {
            self.balance = BalanceScanner::inside_brackets(1, true);
        }
        self.state = ScannerState::Rest;
        at
    }

    fn open_argument(&mut self, form: ArgForm, at: usize, out: &mut dyn EventSink) {
        let (_, key) = self.take_key(at, out);
        let at = self.offset + at;
        if !self.keys.insert(&key) {
            let message = format!("the argument `{key}` is given twice");
            let fault = Fault::error(FaultKind::DoubledArgument, Span::new(at, at), message);
            self.emit_fault(fault.in_argument(key.as_str()).with_hint("give it once"), out);
        }
        out.push_event(Event::ArgStart { index: self.index, name: &key, form, at });
    }

    fn close_argument(&mut self, at: usize, out: &mut dyn EventSink) {
        out.push_event(Event::ArgEnd { index: self.index, lead: "", at: self.offset + at });
    }

    /// Source text that is passed on or over, up to its end, the chunk's, or a guarded byte (`true`).
    fn read_source(&mut self, chunk: &str, from: usize, pass: bool, out: &mut dyn EventSink) -> (usize, bool) {
        let stop = self.balance.scan(chunk.as_bytes(), from, self.guard, pass);
        let to = match stop {
            ScanStop::End(at) | ScanStop::Guard(at) => at,
            ScanStop::More => chunk.len(),
        };
        if let Some(text) = chunk.get(from..to).filter(|text| !text.is_empty() && self.state != ScannerState::Skip) {
            out.push_event(Event::ArgDelta { index: self.index, text });
        }
        if let ScanStop::End(_) = stop {
            if self.state != ScannerState::Skip {
                self.close_argument(to, out);
            }
            self.state = match self.state {
                ScannerState::Source => ScannerState::Comma,
                ScannerState::Rest => ScannerState::End,
                _ => ScannerState::Broken,
            };
        }
        (to, matches!(stop, ScanStop::Guard(_)))
    }

    fn emit_warning(&mut self, fault: Fault, out: &mut dyn EventSink) {
        // What was decoded before the mistake goes out before the fault, however the text was cut into chunks.
        self.emit_decoded("", out);
        self.emit_fault(fault, out);
    }

    fn report_malformed(&self, at: usize, message: &str, out: &mut dyn EventSink) {
        let message = format!("the arguments are no valid JSON: {message}");
        let fault = Fault::error(FaultKind::MalformedJson, self.span_at(at), message);
        self.emit_fault(fault.with_hint("write one JSON object, for example {\"path\": \"a.txt\"}"), out);
    }

    fn span_at(&self, at: usize) -> Span {
        Span::new(self.offset + at, self.offset + at + 1)
    }

    fn emit_fault(&self, fault: Fault, out: &mut dyn EventSink) {
        let fault = Fault { origin: self.origin, ..fault.in_call(self.index) };
        out.push_event(Event::Fault(&fault));
    }
}

fn expected_text(state: ScannerState) -> &'static str {
    match state {
        ScannerState::Start | ScannerState::Null(_) => "an object `{…}` was expected",
        ScannerState::Colon => "`:` was expected after the key",
        ScannerState::Comma => "`,` or `}` was expected after the value",
        ScannerState::End => "nothing was expected after the arguments",
        _ => "a key in double quotes or `}` was expected",
    }
}

/// A byte in words.
fn describe_byte(byte: u8) -> String {
    match byte {
        b'`' => "a backtick".to_owned(),
        _ if byte.is_ascii_graphic() => format!("`{}`", char::from(byte)),
        _ if byte.is_ascii() => "a control character".to_owned(),
        _ => "a character outside of ASCII".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgumentScanner, ScanOutcome, ScanProgress};
    use crate::event::{Event, EventSink};
    use crate::{DraftResponse, SpanOrigin};

    /// Scans `text` in chunks of `size` bytes (at character boundaries) and writes what came out in one line.
    fn scan(text: &str, size: usize) -> String {
        let mut draft = DraftResponse::default();
        draft.push_event(Event::CallStart { index: 0, id: None, name: "f", dialect: None, at: 0, name_at: 0 });
        let mut scanner = ArgumentScanner::new(0);
        let mut from = 0;
        while from < text.len() {
            let to = text.ceil_char_boundary((from + size).min(text.len()));
            scanner.push(text.get(from..to).unwrap(), &mut draft);
            from = to;
        }
        let whole = scanner.finish(&mut draft);
        let mut line = String::new();
        for argument in &draft.call_by_index(0).unwrap().arguments {
            line += &format!("{}:{:?}={}", argument.name, argument.form, argument.text.escape_debug());
            line += if argument.partial { "… " } else { " " };
        }
        for fault in &draft.faults {
            line += &format!("{}@{} ", fault.kind.name(), fault.span.start);
        }
        line + match whole {
            ScanOutcome::Complete => "whole",
            ScanOutcome::Incomplete => "cut",
            ScanOutcome::Broken => "broken",
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
                let mut draft = DraftResponse::default();
                draft.push_event(Event::CallStart { index: 0, id: None, name: "f", dialect: None, at: 0, name_at: 0 });
                let mut scanner = ArgumentScanner::embedded_in_text(0, *b"<<");
                let (mut from, mut end) = (0, None);
                while from < text.len() && end.is_none() {
                    let to = (from + size).min(text.len());
                    if let ScanProgress::Ended(at) =
                        scanner.read_value((text.get(from..to).unwrap(), 10 + from), false, &mut draft)
                    {
                        end = Some(from + at);
                    }
                    from = to;
                }
                assert_eq!(end, marked.find('|'), "in chunks of {size}: {marked}");
                let places: String = draft.faults.iter().map(|fault| format!("{} ", fault.span.start)).collect();
                assert_eq!(places, faults, "in chunks of {size}: {marked}");
                assert!(draft.faults.iter().all(|fault| fault.origin == SpanOrigin::Text));
            }
        }
    }
}
