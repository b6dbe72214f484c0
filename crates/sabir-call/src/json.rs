//! Scans the JSON text of a call's arguments as a stream and emits them as events.
//!
//! Supported: one object, or no text, or `null` (both mean no arguments), either as the whole text
//! of a native call or as a value inside a longer text. String values are decoded as they arrive.
//! Every other value is emitted as its source text, which the checks parse. A top-level string
//! (doubly encoded arguments) becomes one `String` argument with an empty name. Raw control
//! characters in strings are kept, with a warning. A lone surrogate, which UTF-8 cannot represent,
//! becomes U+FFFD, with a fault.
//!
//! Strict reading stops where a key or value should start but does not (single quotes, a bare key,
//! a comma before the closing bracket). The rest of the object is then emitted unchanged as one
//! last argument with an empty name and form `Json`. It reaches from the argument that could not be
//! read (or from the object's `{` if that was the first one) to the object's closing bracket
//! inclusive, which is found by counting brackets and strings alone (`json/balance.rs`). The checks
//! repair or reject that rest. A native call's text in a code fence is emitted whole in the same
//! way (`json/fence.rs`), and so is one that begins with `<`: it may be a call in tags.
//!
//! Unsupported: a missing colon, comma or value, unknown escapes, anything but an object, and text
//! after the object of a native call. These produce a `malformed_json` fault.
//!
//! Grammar as implemented, with `ws` between all tokens: `{ (string : value (, string : value)*)?
//! }`, where `value` is a string, a word, or a balanced run of `{…}` and `[…]` whose strings are
//! skipped; `rest = (, value)* }` with `value` balanced in the same way. Each byte is examined a
//! bounded number of times. Between two pushes the scanner keeps the source of the current key (at
//! most 64 KiB), the names of the keys so far, and at most one partial escape.

pub(crate) mod balance;
mod decode;
mod fence;
mod string;

use crate::event::{ArgumentEncoding, Event, EventSink};
use crate::fault::{Fault, FaultKind, Span, SpanOrigin};
use crate::small_name_set::SmallNameSet;

use balance::{BalanceScanner, GuardBytes, ScanStop, UNGUARDED};
use decode::StringDecoder;
use fence::FencePhase;
pub(crate) use string::SURROGATE_HINT;
use string::{EscapeState, PIECE, SpecialMask};

/// The maximum source length of a key and the text up to its value, in bytes.
const HEAD_CAP: usize = 64 * 1024;

/// Scans the JSON text of one call's arguments and emits `ArgStart`, `ArgDelta`, `ArgEnd` and
/// faults.
#[derive(Debug)]
pub struct ArgumentScanner {
    index: u32,
    origin: SpanOrigin,
    guard: GuardBytes,
    state: ScannerState,
    /// The offset of the next piece's first byte.
    offset: usize,
    /// The key and its source, until the value starts.
    head: Option<Box<PendingKey>>,
    /// The keys so far.
    keys: SmallNameSet,
    strings: StringDecoder,
    /// Finds the end of values that are emitted as source text.
    balance: BalanceScanner,
}

/// A key whose value has not started yet.
#[derive(Debug, Default)]
struct PendingKey {
    /// The source text from the position where a lenient rest would begin.
    source: String,
    /// True if the source exceeded its limit and was truncated.
    over: bool,
    key: String,
}

/// The result of [`ArgumentScanner::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOutcome {
    /// The text is one complete JSON object, or empty, or `null` (no arguments).
    Complete,
    /// The text ended inside the object: the call must be cut.
    Incomplete,
    /// The text can never be an object of arguments; a fault has been emitted.
    Broken,
}

/// The result of [`ArgumentScanner::read_value`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanProgress {
    /// All of the text was consumed; more is needed.
    More,
    /// The value ended before this byte.
    Ended(usize),
    /// A guarded byte was found at this position, outside of strings; it was not consumed.
    Guard(usize),
}

/// The position in the grammar of the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScannerState {
    /// Before the object.
    Start,
    /// Inside the literal `null`, with the number of letters read.
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
    /// Inside a string value; `true` if it is the whole text (double encoding).
    Text(bool),
    /// Inside a value that is emitted as its source text.
    Source,
    /// Inside the rest of an object that is not strict JSON; `true` if it begins with a backslash, as in JSON inside a
    /// string.
    Rest(bool),
    /// Inside a code fence around the whole text, with its number of opening backticks.
    Fenced(FencePhase, u32),
    /// Inside tags instead of the object: the whole text, in a native call.
    Markup,
    /// After a value.
    Comma,
    /// After the object.
    End,
    /// Inside text that is skipped because a fault was already emitted for it.
    Skip,
    /// After an unrecoverable error.
    Broken,
}

impl ArgumentScanner {
    /// Creates a scanner for the whole argument text of the native call with that index.
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

    /// Creates a scanner for a value inside the assistant text, with positions in that text. Use [`Self::read_value`].
    pub(crate) fn embedded_in_text(index: u32, guard: GuardBytes) -> Self {
        Self {
            origin: SpanOrigin::Text,
            guard,
            ..Self::new(index)
        }
    }

    /// Starts reading the value as an object that is not strict JSON.
    pub(crate) fn begin_lenient(&mut self, offset: usize, out: &mut dyn EventSink) {
        self.offset = offset;
        self.balance = BalanceScanner::at_value();
        self.begin_rest(0, out);
    }

    /// Scans the next piece.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn EventSink) {
        // Nearly all of a stream is the inside of strings, so that case is inlined and everything
        // else is kept out of line.
        if !self.take_chunk(chunk, out) {
            self.read_piece(chunk, 0, false, out);
        }
        self.offset = self.offset.saturating_add(chunk.len());
    }

    /// Consumes a whole chunk that lies inside a string value. Returns false, with nothing
    /// consumed, if the chunk needs `read_piece`.
    #[inline(always)]
    pub(crate) fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        // An empty chunk must not produce an event: deltas are never empty.
        if !matches!(self.state, ScannerState::Text(_)) || chunk.is_empty() {
            return false;
        }
        if chunk.len() > PIECE {
            return self.take_long(chunk, out);
        }
        let marks = SpecialMask::from_piece(chunk.as_bytes());
        // Neither a quote, a backslash nor a control character: the chunk is its own decoded text.
        if marks.is_empty() && self.strings.escape == EscapeState::None {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text: chunk,
            });
            return true;
        }
        self.take_escaped(chunk, marks, out)
    }

    /// Scans a piece of a text that contains the value, with the offset of the piece's first byte.
    /// If `pass` is set, that byte does not count as guarded.
    pub(crate) fn read_value(
        &mut self,
        text: &str,
        offset: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> ScanProgress {
        self.offset = offset;
        let at = self.read_piece(text, 0, pass, out);
        if self.has_ended() {
            return ScanProgress::Ended(at);
        }
        if at < text.len() {
            ScanProgress::Guard(at)
        } else {
            ScanProgress::More
        }
    }

    /// Gives up the value at that offset and closes the open argument. Returns the missing closer,
    /// or `None` if a fault has already described the problem.
    pub(crate) fn abandon_value(
        &mut self,
        at: usize,
        out: &mut dyn EventSink,
    ) -> Option<&'static str> {
        let missing = match self.state {
            // A fault was already emitted in these states.
            ScannerState::Skip | ScannerState::Broken => None,
            ScannerState::Source | ScannerState::Rest(_) => Some("a closing bracket"),
            _ => Some("`}`"),
        };
        if matches!(
            self.state,
            ScannerState::Text(_)
                | ScannerState::Source
                | ScannerState::Rest(_)
                | ScannerState::Fenced(..)
                | ScannerState::Markup
        ) {
            out.push_event(Event::ArgEnd {
                index: self.index,
                lead: "",
                at,
            });
        }
        self.state = ScannerState::Broken;
        missing
    }

    /// Returns true if the text can never be an object of arguments.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == ScannerState::Broken
    }

    /// Returns true inside keys and values that are written as in JSON inside a string.
    pub(crate) fn is_escaped(&self) -> bool {
        self.state == ScannerState::Rest(true)
    }

    /// Returns true if the arguments, or a value among them, must begin next.
    pub(crate) fn wants_value(&self) -> bool {
        matches!(self.state, ScannerState::Start | ScannerState::Value)
    }

    /// Ends the text and reports whether it was complete. Nothing may be pushed afterwards.
    pub fn finish(&mut self, out: &mut dyn EventSink) -> ScanOutcome {
        match self.state {
            // No text at all means no arguments: several providers send that for tools without any.
            ScannerState::Start | ScannerState::End => ScanOutcome::Complete,
            // The checks find out whether the tags are one whole call.
            ScannerState::Markup => {
                self.close_argument(0, out);
                self.state = ScannerState::End;
                ScanOutcome::Complete
            }
            ScannerState::Null(_) => {
                self.report_malformed(0, "the arguments are not JSON object", out);
                ScanOutcome::Broken
            }
            ScannerState::Skip | ScannerState::Broken => ScanOutcome::Broken,
            _ => ScanOutcome::Incomplete,
        }
    }

    /// Returns true if no byte after this one belongs to the arguments.
    fn has_ended(&self) -> bool {
        matches!(self.state, ScannerState::End | ScannerState::Broken)
    }

    /// Scans a piece with any content, up to a guarded byte or, inside a longer text, the end of
    /// the value.
    #[inline(never)]
    fn read_piece(
        &mut self,
        chunk: &str,
        from: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> usize {
        let mut at = from;
        while let Some(&byte) = chunk.as_bytes().get(at) {
            let pass = pass && at == from;
            // Embedded in text, the bytes after the value belong to the caller. A native call has
            // nothing after it, so there the scanner reads on to report what follows.
            if self.has_ended()
                && (self.state == ScannerState::Broken || self.origin == SpanOrigin::Text)
            {
                break;
            }
            let next = match self.state {
                ScannerState::Key | ScannerState::Text(_)
                    if self.strings.escape != EscapeState::None =>
                {
                    self.read_escape(byte, at, out)
                }
                ScannerState::Key | ScannerState::Text(_) => self.read_string(chunk, at, out),
                ScannerState::Source | ScannerState::Rest(_) | ScannerState::Skip => {
                    let (next, guarded) = self.read_source(chunk, at, pass, out);
                    if guarded {
                        at = next;
                        break;
                    }
                    next
                }
                ScannerState::Fenced(..) => self.read_fence(chunk, at, out),
                ScannerState::Markup => self.read_markup(chunk, at, out),
                // Strings are matched above, so a guarded byte inside one never stops the scan.
                _ if self.guard.contains(&byte) && !pass => break,
                _ => self.read_token(byte, at, out),
            };
            self.remember_source(chunk.get(at..next).unwrap_or_default());
            at = next;
        }
        // Decoded text that precedes a partial escape must not wait for the next chunk.
        self.emit_decoded("", out);
        at
    }

    /// Records source text that may turn out to be part of a lenient rest.
    fn remember_source(&mut self, source: &str) {
        // In these states the rest of the object may still turn out not to be strict, and such a
        // rest starts before the key.
        if !matches!(
            self.state,
            ScannerState::FirstKey | ScannerState::Key | ScannerState::Colon | ScannerState::Value
        ) || source.is_empty()
        {
            return;
        }
        let head = self.head.get_or_insert_default();
        if !head.over {
            // Truncated, not dropped: a key that is too long is reported when its value starts.
            let room = source
                .floor_char_boundary(HEAD_CAP.saturating_sub(head.source.len()).min(source.len()));
            head.source.push_str(source.get(..room).unwrap_or_default());
            head.over = room < source.len();
        }
    }

    /// Takes the pending key, and reports one that was too long. Returns its recorded source and the key.
    fn take_key(&mut self, at: usize, out: &mut dyn EventSink) -> (String, String) {
        let Some(head) = self.head.take() else {
            return Default::default();
        };
        if head.over {
            let message = format!("the key of an argument is longer than {HEAD_CAP} bytes");
            self.emit_fault(
                Fault::error(FaultKind::Limit, self.span_at(at), message),
                out,
            );
            return Default::default();
        }
        (head.source, head.key)
    }

    /// Reads one byte between values: punctuation, white space, or the first byte of a value.
    fn read_token(&mut self, byte: u8, at: usize, out: &mut dyn EventSink) -> usize {
        let next = at + 1;
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
            && !matches!(self.state, ScannerState::Null(_))
        {
            return next;
        }
        self.state = match (self.state, byte) {
            (ScannerState::Start, b'{') => ScannerState::FirstKey,
            (ScannerState::Start, b'`') => return self.begin_fence(at, out),
            (ScannerState::Start, b'<') if self.origin == SpanOrigin::Arguments => {
                out.push_event(Event::ArgStart {
                    index: self.index,
                    name: "",
                    form: ArgumentEncoding::Json,
                    at: self.offset + at,
                });
                self.state = ScannerState::Markup;
                return at;
            }
            (ScannerState::Start, b'n') => ScannerState::Null(1),
            (ScannerState::Start, b'"') => {
                self.open_argument(ArgumentEncoding::String, next, out);
                ScannerState::Text(true)
            }
            (ScannerState::Null(1), b'u') => ScannerState::Null(2),
            (ScannerState::Null(2), b'l') => ScannerState::Null(3),
            (ScannerState::Null(3), b'l') => ScannerState::End,
            // Not after `NextKey`: a brace after a comma means a trailing comma, which is not
            // strict JSON.
            (ScannerState::FirstKey, b'}') | (ScannerState::Comma, b'}') => ScannerState::End,
            (ScannerState::FirstKey | ScannerState::NextKey, b'"') => ScannerState::Key,
            // A bare or single-quoted key, or a trailing comma: the object is lenient from here on.
            (ScannerState::FirstKey | ScannerState::NextKey, _) => {
                let next = self.begin_rest(at, out);
                self.state = ScannerState::Rest(byte == b'\\');
                return next;
            }
            (ScannerState::Colon, b':') => ScannerState::Value,
            (ScannerState::Comma, b',') => ScannerState::NextKey,
            (ScannerState::Value, _) => return self.begin_value(byte, at, out),
            (state, _) => return self.report_unexpected(state, byte, at, out),
        };
        next
    }

    /// Emits the rest of a text in tags as its source.
    fn read_markup(&mut self, chunk: &str, from: usize, out: &mut dyn EventSink) -> usize {
        if let Some(text) = chunk.get(from..).filter(|text| !text.is_empty()) {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text,
            });
        }
        chunk.len()
    }

    /// Begins the value of a key by its first byte. Returns the position from which the value is
    /// read.
    fn begin_value(&mut self, byte: u8, at: usize, out: &mut dyn EventSink) -> usize {
        match byte {
            b'"' => {
                self.open_argument(ArgumentEncoding::String, at + 1, out);
                self.state = ScannerState::Text(false);
                at + 1
            }
            // Any letter may start a word here (`true`, but also `None` or `NaN`): the checks
            // decide the source text.
            b'{' | b'[' | b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.open_argument(ArgumentEncoding::Json, at, out);
                self.balance = BalanceScanner::at_value();
                self.state = ScannerState::Source;
                at
            }
            b',' | b'}' | b']' => {
                self.report_malformed(
                    at,
                    &format!(
                        "a value was expected after `:`, found {}",
                        describe_byte(byte)
                    ),
                    out,
                );
                // The bracket belongs to the object, so it is not consumed: the skip must see it to
                // find the end.
                self.skip_value(BalanceScanner::inside_brackets(1, true));
                at
            }
            _ => self.begin_rest(at, out),
        }
    }

    /// Reports text that even a lenient parser cannot read, and skips to the end of the object, since text after it may matter.
    fn report_unexpected(
        &mut self,
        state: ScannerState,
        byte: u8,
        at: usize,
        out: &mut dyn EventSink,
    ) -> usize {
        self.report_malformed(
            at,
            &format!("{}, found {}", expected_text(state), describe_byte(byte)),
            out,
        );
        match state {
            ScannerState::Start => self.skip_value(BalanceScanner::at_value()),
            ScannerState::Null(_) => self.skip_value(BalanceScanner::inside_brackets(0, false)),
            ScannerState::End => self.state = ScannerState::Broken,
            _ => self.skip_value(BalanceScanner::inside_brackets(1, false)),
        }
        at
    }

    /// Skips to the end of the object without emitting anything: a fault was already emitted.
    fn skip_value(&mut self, balance: BalanceScanner) {
        self.balance = balance;
        self.state = ScannerState::Skip;
    }

    /// Ends strict reading: begins the argument that holds the rest of the object.
    fn begin_rest(&mut self, at: usize, out: &mut dyn EventSink) -> usize {
        let (head, _) = self.take_key(at, out);
        let start = (self.offset + at).saturating_sub(head.len());
        out.push_event(Event::ArgStart {
            index: self.index,
            name: "",
            form: ArgumentEncoding::Json,
            at: start,
        });
        if !head.is_empty() {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text: &head,
            });
        }
        // In `Start` the bracket itself has not been read yet, so the balance starts outside of it.
        if self.state != ScannerState::Start {
            self.balance = BalanceScanner::inside_brackets(1, true);
        }
        self.state = ScannerState::Rest(false);
        at
    }

    /// Emits the start of an argument. A duplicate key is a fault, and both values are emitted, for the checks.
    fn open_argument(&mut self, form: ArgumentEncoding, at: usize, out: &mut dyn EventSink) {
        let (_, key) = self.take_key(at, out);
        let at = self.offset + at;
        if !self.keys.insert(&key) {
            let message = format!("the argument `{key}` is given twice");
            let fault = Fault::error(FaultKind::DoubledArgument, Span::new(at, at), message);
            self.emit_fault(
                fault.in_argument(key.as_str()).with_hint("give it once"),
                out,
            );
        }
        out.push_event(Event::ArgStart {
            index: self.index,
            name: &key,
            form,
            at,
        });
    }

    /// Emits the end of an argument. JSON values have no wrapper newlines, so `lead` is empty.
    fn close_argument(&mut self, at: usize, out: &mut dyn EventSink) {
        out.push_event(Event::ArgEnd {
            index: self.index,
            lead: "",
            at: self.offset + at,
        });
    }

    /// Reads source text that is emitted or skipped, up to its end, the chunk's end, or a guarded
    /// byte (then `true`).
    fn read_source(
        &mut self,
        chunk: &str,
        from: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> (usize, bool) {
        let stop = self.balance.scan(chunk.as_bytes(), from, self.guard, pass);
        let to = match stop {
            ScanStop::End(at) | ScanStop::Guard(at) => at,
            ScanStop::More => chunk.len(),
        };
        if let Some(text) = chunk
            .get(from..to)
            .filter(|text| !text.is_empty() && self.state != ScannerState::Skip)
        {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text,
            });
        }
        if let ScanStop::End(_) = stop {
            if self.state != ScannerState::Skip {
                self.close_argument(to, out);
            }
            self.state = match self.state {
                ScannerState::Source => ScannerState::Comma,
                // The rest includes the object's own closing bracket, so the object ends with it.
                ScannerState::Rest(_) => ScannerState::End,
                _ => ScannerState::Broken,
            };
        }
        (to, matches!(stop, ScanStop::Guard(_)))
    }

    /// Emits a fault about a string that is being decoded.
    fn emit_warning(&mut self, fault: Fault, out: &mut dyn EventSink) {
        // Text decoded before the mistake must precede the fault, or the order would depend on the
        // chunks.
        self.emit_decoded("", out);
        self.emit_fault(fault, out);
    }

    /// Emits the error of a text that is neither strict JSON nor repairable.
    fn report_malformed(&self, at: usize, message: &str, out: &mut dyn EventSink) {
        let message = format!("the arguments are not valid JSON: {message}");
        let fault = Fault::error(FaultKind::MalformedJson, self.span_at(at), message);
        self.emit_fault(
            fault.with_hint("write one JSON object, for example {\"path\": \"a.txt\"}"),
            out,
        );
    }

    /// Returns the span of one byte of the current piece.
    fn span_at(&self, at: usize) -> Span {
        Span::new(self.offset + at, self.offset + at + 1)
    }

    /// Emits a fault of this call. Its origin is the text to which its span refers: the argument text of a native call, or the assistant
    /// text.
    fn emit_fault(&self, fault: Fault, out: &mut dyn EventSink) {
        let fault = Fault {
            origin: self.origin,
            ..fault.in_call(self.index)
        };
        out.push_event(Event::Fault(&fault));
    }
}

/// Describes what may come next, for messages.
fn expected_text(state: ScannerState) -> &'static str {
    match state {
        ScannerState::Start | ScannerState::Null(_) => "an object `{…}` was expected",
        ScannerState::Colon => "`:` was expected after the key",
        ScannerState::Comma => "`,` or `}` was expected after the value",
        ScannerState::End => "nothing was expected after the arguments",
        _ => "a key in double quotes or `}` was expected",
    }
}

/// Describes a byte for a message.
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

    /// Scans `text` in chunks of `size` bytes (at character boundaries) and renders the events in
    /// one line.
    fn scan(text: &str, size: usize) -> String {
        let mut draft = DraftResponse::default();
        draft.push_event(Event::CallStart {
            index: 0,
            id: None,
            name: "f",
            dialect: None,
            at: 0,
            name_at: 0,
        });
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
            line += &format!(
                "{}:{:?}={}",
                argument.name,
                argument.form,
                argument.text.escape_debug()
            );
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
        check(
            r#"{"a": "x\ud83cy"}"#,
            "a:String=x\u{fffd}y malformed_json@14 whole",
        );
        check(
            r#"{"a": "\ud83c\ud83c\udf0d"}"#,
            "a:String=\u{fffd}🌍 malformed_json@18 whole",
        );
        check(
            r#"{"a": "\udf0d"}"#,
            "a:String=\u{fffd} malformed_json@12 whole",
        );
        check(
            "{\"a\": \"x\ny\"}",
            "a:String=x\\ny control_character@8 whole",
        );
    }

    #[test]
    fn truncated_text_is_never_complete() {
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
        check(
            "{\"a\": \"ab\\qc\"}",
            "a:String=ab\\\\qc malformed_json@10 whole",
        );
        check(
            "{\"a\": \"\\u12x\\d\"}",
            "a:String=\\\\u12x\\\\d malformed_json@11 whole",
        );
        check("{\"a\": }", "malformed_json@6 broken");
        check("{\"a\": 1 \"b\": 2}", "a:Json=1 malformed_json@8 broken");
        check("[1]", "malformed_json@0 broken");
        check("nix", "malformed_json@1 broken");
        check(
            "{\"a\": 1, \"a\": 2}",
            "a:Json=1 a:Json=2 doubled_argument@14 whole",
        );
    }

    #[test]
    fn lenient_json_is_left_to_the_checks() {
        check("{'a': 1}", ":Json={\\'a\\': 1} whole");
        check(" { a: [1]}\n", ":Json={ a: [1]} whole");
        check("{\"a\": 1, }", "a:Json=1 :Json=} whole");
        check(
            "{\"a\": 1, 'b': '}'} ",
            "a:Json=1 :Json=\\'b\\': \\'}\\'} whole",
        );
        check(
            "{\"a\": \"x\", \"\\u0062\" : 'it', c: 1}",
            "a:String=x :Json=\\\"\\\\u0062\\\" : \\'it\\', c: 1} whole",
        );
        check(
            "{\"a\": {'b': \"}\", 'c': ['}', 1,]}, \"d\": True}",
            "a:Json={\\'b\\': \\\"}\\\", \\'c\\': [\\'}\\', 1,]} d:Json=True whole",
        );
        check("{'a': 1} x", ":Json={\\'a\\': 1} malformed_json@9 broken");
        check("{'a': '}", ":Json={\\'a\\': \\'}… cut");
        check("{\"a\": 1, 'b': {}", "a:Json=1 :Json=\\'b\\': {}… cut");
        check(" <a><b>{</b></a>\n", ":Json=<a><b>{</b></a>\\n whole");
    }

    #[test]
    fn fenced_arguments_are_left_to_the_checks() {
        check(
            "```json\n{\"a\": \"`}\"}\n```\n",
            ":Json=```json\\n{\\\"a\\\": \\\"`}\\\"}\\n``` whole",
        );
        check("````{}````", ":Json=````{}```` whole");
        check("```\n{'a': 1}\n``", ":Json=```\\n{\\'a\\': 1}\\n``… cut");
        check("```json\n{\"a\": 1", ":Json=```json\\n{\\\"a\\\": 1… cut");
        check("```{}``` x", ":Json=```{}``` malformed_json@9 broken");
        check("``{}``", ":Json=`` malformed_json@2 broken");
        check("```{} x```", ":Json=```{}  malformed_json@6 broken");
        check("```[1]```", ":Json=``` malformed_json@3 broken");
    }

    #[test]
    fn keys_have_a_length_limit() {
        let long = "é".repeat(40_000);
        for size in [1, 7, 1000, 100_000] {
            assert_eq!(
                scan(&format!("{{\"{long}\": \"x\", \"b\": 1}}"), size),
                ":String=x b:Json=1 limit@80006 whole"
            );
            assert_eq!(
                scan(&format!("{{\"{long}\": 'x'}}"), size),
                ":Json=\\'x\\'} limit@80005 whole"
            );
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

    // A `|` marks the end of the value; a text without it must not end.
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
                draft.push_event(Event::CallStart {
                    index: 0,
                    id: None,
                    name: "f",
                    dialect: None,
                    at: 0,
                    name_at: 0,
                });
                let mut scanner = ArgumentScanner::embedded_in_text(0, *b"<<");
                let mut from = 0;
                let mut end = None;
                while from < text.len() && end.is_none() {
                    let to = (from + size).min(text.len());
                    if let ScanProgress::Ended(at) = scanner.read_value(
                        text.get(from..to).unwrap(),
                        10 + from,
                        false,
                        &mut draft,
                    ) {
                        end = Some(from + at);
                    }
                    from = to;
                }
                assert_eq!(end, marked.find('|'), "in chunks of {size}: {marked}");
                let places: String = draft
                    .faults
                    .iter()
                    .map(|fault| format!("{} ", fault.span.start))
                    .collect();
                assert_eq!(places, faults, "in chunks of {size}: {marked}");
                assert!(
                    draft
                        .faults
                        .iter()
                        .all(|fault| fault.origin == SpanOrigin::Text)
                );
            }
        }
    }
}
