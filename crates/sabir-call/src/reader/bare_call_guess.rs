//! Finds calls without any marker: JSON or a Python list, bare or in a code fence, recognized only
//! by shape and position.
//!
//! Supported: `{…}` or `[…]` at the start of a line or after a thought, if it names a declared tool
//! and nothing follows it to the end of the message; JSON in a code fence under the same
//! conditions. The text is held until that is known, up to [`HOLD_CAP`] bytes; most of it is
//! released at its first word. Text that turns out to be no call is emitted as text. If the dialect
//! was chosen by name, a bare call may appear anywhere, and begins as soon as its tool is known.
//!
//! Unsupported on purpose: single quotes around JSON names; and unless the dialect was chosen,
//! calls in the middle of a message, missing required arguments, and objects that name a tool
//! without arguments. Accepting those would run calls that prose merely shows.

use crate::dialect::grammar::PythonCalls;
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::payload::{JsonRegionParser, RegionMarkers};
use super::python::PythonRegionParser;
use super::region::{AnyRegionParser, RegionParser, RegionProgress, TextView};
use super::vocabulary::Vocabulary;
use super::{CallReader, ReaderState, ReaderStep, TextWindow};

/// The maximum length of held text, in bytes.
/// Larger calls need a marker: holding more would delay a long answer that merely begins with a
/// bracket.
const HOLD_CAP: usize = 1024 * 1024;
/// The maximum length of a name, in bytes.
const NAME_CAP: usize = 128;
/// The info strings of fences that may contain calls.
const LANGUAGES: [&str; 5] = ["", "json", "JSON", "tool_call", "tool_calls"];
/// The keys of a call's name.
const NAMES: [&str; 5] = ["name", "tool_name", "tool", "function_name", "function"];
/// The keys that may come before a call's name.
const BEFORE: [&str; 8] = [
    "type",
    "id",
    "tool_call_id",
    "call_id",
    "index",
    "thought",
    "tool_calls",
    "calls",
];

/// Text that may be calls.
#[derive(Debug)]
pub(super) struct BareCallGuess {
    held: String,
    /// The offset of the first held byte.
    offset: usize,
    /// The dialect for JSON calls, if they may be guessed.
    json: Option<&'static str>,
    /// The dialect for Python lists, if they may be guessed.
    python: Option<&'static str>,
    /// True if the dialect was chosen by name.
    chosen: bool,
    state: GuessPhase,
    /// The number of backticks of the enclosing fence.
    fence: usize,
    /// The start and end of the calls in `held`.
    body: (usize, usize),
    scan: BracketScan,
}

/// The position within the guessed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuessPhase {
    /// In the backticks of a fence.
    Fence,
    /// In the word after the backticks.
    Language,
    /// Before the first bracket.
    Start,
    /// In the brackets.
    Body,
    /// After the brackets.
    After,
    /// In the backticks that close the fence.
    Closing(usize),
    /// After the fence.
    End,
}

/// The facts known about the brackets so far.
#[derive(Debug, Default)]
struct BracketScan {
    /// True for a Python list.
    python: bool,
    depth: u32,
    /// The open string: its quote, whether it is triple-quoted, and whether a backslash precedes.
    quote: Option<(u8, bool, bool)>,
    /// The number of quotes in a row, for Python's triple quotes.
    quotes: u8,
    /// The last string or word.
    word: String,
    /// The last key.
    key: String,
    /// The depth at which the current arguments began.
    arguments: Option<u32>,
    /// True once a declared tool was named.
    named: bool,
    /// True once there was a key for arguments.
    argued: bool,
}

/// The verdict after one byte.
enum ByteVerdict {
    Continue,
    /// The text is not a call.
    Text,
    /// The brackets are closed.
    Closed,
}

impl BareCallGuess {
    /// Begins a guess at the start of `rest`, which has that offset. `first` is true at the start of a line or message; inside a line only
    /// a chosen dialect is guessed.
    pub(super) fn try_begin(
        rest: &str,
        offset: usize,
        first: bool,
        vocabulary: &Vocabulary,
    ) -> Option<Self> {
        let chosen = vocabulary.bare_anywhere;
        let place = first || chosen;
        let json = vocabulary.bare_json.filter(|_| place);
        let python = vocabulary.bare_python.filter(|_| place);
        let state = match rest.as_bytes().first()? {
            b'`' if first && json.is_some() => GuessPhase::Fence,
            b'{' if json.is_some() => GuessPhase::Start,
            b'[' if json.or(python).is_some() && rest.as_bytes().get(1).is_none_or(opens_list) => {
                GuessPhase::Start
            }
            _ => return None,
        };
        Some(Self {
            held: String::new(),
            offset,
            json,
            python,
            chosen,
            state,
            fence: 0,
            body: (0, 0),
            scan: BracketScan::default(),
        })
    }

    /// Processes one character, which is at `at` in the held text.
    fn push_char(&mut self, c: char, at: usize, vocabulary: &Vocabulary) -> ByteVerdict {
        // Only ASCII has a meaning here; any letter represents the rest.
        let byte = u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'x');
        let blank = byte.is_ascii_whitespace();
        match self.state {
            GuessPhase::Fence if byte == b'`' => self.fence += 1,
            // One or two backticks are inline code.
            GuessPhase::Fence if self.fence < 3 => return ByteVerdict::Text,
            GuessPhase::Fence | GuessPhase::Language => {
                self.state = GuessPhase::Language;
                let language = self.held.get(self.fence..at).unwrap_or_default().trim();
                match byte {
                    // Any other info string means that the fence shows code.
                    b'\n' if LANGUAGES.contains(&language) => self.state = GuessPhase::Start,
                    b'\n' => return ByteVerdict::Text,
                    _ if language.len() > NAME_CAP || byte == b'`' => return ByteVerdict::Text,
                    _ => {}
                }
            }
            GuessPhase::Start if blank => {}
            GuessPhase::Start if byte != b'[' && (byte != b'{' || self.json.is_none()) => {
                return ByteVerdict::Text;
            }
            GuessPhase::Start => {
                self.body.0 = at;
                self.state = GuessPhase::Body;
                return self.push_body_char(c, byte, at, vocabulary);
            }
            GuessPhase::Body => return self.push_body_char(c, byte, at, vocabulary),
            GuessPhase::After if blank => {}
            GuessPhase::After if self.fence > 0 && byte == b'`' => {
                self.state = GuessPhase::Closing(1)
            }
            // Llama 3 separates several calls by semicolons; commas are tolerated too.
            GuessPhase::After if self.fence == 0 && matches!(byte, b';' | b',') => {}
            GuessPhase::After
                if self.fence == 0 && !self.scan.python && matches!(byte, b'{' | b'[') =>
            {
                self.state = GuessPhase::Body;
                self.scan = BracketScan::default();
                return self.push_body_char(c, byte, at, vocabulary);
            }
            GuessPhase::Closing(count) if byte == b'`' => {
                self.state = GuessPhase::Closing(count + 1)
            }
            GuessPhase::Closing(count) if count >= self.fence && blank => {
                self.state = GuessPhase::End
            }
            GuessPhase::End if blank => {}
            GuessPhase::After | GuessPhase::Closing(_) | GuessPhase::End => {
                return ByteVerdict::Text;
            }
        }
        ByteVerdict::Continue
    }

    /// Processes a character inside the brackets, represented by `byte`.
    fn push_body_char(
        &mut self,
        c: char,
        byte: u8,
        at: usize,
        vocabulary: &Vocabulary,
    ) -> ByteVerdict {
        // A Python list in a fence is an example.
        let list = self.held.as_bytes().get(self.body.0) == Some(&b'[');
        let json = self.json.is_some();
        let python = self.python.is_some() && self.fence == 0 && list;
        let verdict = self.scan.push_char(c, byte, json, python, vocabulary);
        if matches!(verdict, ByteVerdict::Closed) {
            // An object that names a tool but has no arguments is too common in examples.
            if !self.chosen && !self.scan.python && !self.scan.argued {
                return ByteVerdict::Text;
            }
            self.body.1 = at + 1;
            self.state = GuessPhase::After;
        }
        verdict
    }

    /// Creates the region parser for the held text.
    fn region_parser(&self, index: u32) -> Option<AnyRegionParser> {
        let sure = self.guess_certainty();
        let at = self.offset + self.body.0;
        if self.scan.python {
            let table = PythonCalls {
                open: "",
                close: "",
                list: true,
            };
            return Some(AnyRegionParser::Python(Box::new(PythonRegionParser::new(
                table,
                self.python?,
                index,
                at,
            ))));
        }
        let markers = RegionMarkers {
            dialect: self.json?,
            close: "",
            stop: false,
            open_ended: false,
            named_by_key: false,
            sure,
        };
        Some(AnyRegionParser::Json(Box::new(
            JsonRegionParser::for_calls(markers, index, at),
        )))
    }

    /// Returns true if the enclosing fence is closed.
    fn is_fenced(&self) -> bool {
        matches!(self.state, GuessPhase::End)
            || matches!(self.state, GuessPhase::Closing(count) if count >= self.fence)
    }

    /// Returns the markup event that explains why the text was taken for calls.
    fn call_markup(&self, rule: &'static str) -> MarkupSpan<'static> {
        let at = self.offset + self.body.0;
        let dialect = if self.scan.python {
            self.python
        } else {
            self.json
        };
        MarkupSpan {
            role: MarkupRole::Call,
            dialect,
            span: Span::new(at, at + 1),
            sure: self.guess_certainty(),
            rule,
        }
    }

    /// Returns the certainty for the event: a bare call is the requested form in a chosen dialect, and a guess in a fence.
    fn guess_certainty(&self) -> Certainty {
        if self.chosen && self.fence == 0 {
            Certainty::Certain
        } else {
            Certainty::Guess
        }
    }

    /// Returns the text of the calls, and its offset.
    fn call_text(&self) -> (&str, usize) {
        let closed = matches!(
            self.state,
            GuessPhase::After | GuessPhase::Closing(_) | GuessPhase::End
        );
        let end = if closed { self.body.1 } else { self.held.len() };
        (
            self.held.get(self.body.0..end).unwrap_or_default(),
            self.offset + self.body.0,
        )
    }

    /// Returns true if the held text ends right behind the name of a declared tool.
    fn is_cut_after_name(&self, vocabulary: &Vocabulary) -> bool {
        let scan = &self.scan;
        let is_list = self.held.as_bytes().get(self.body.0) == Some(&b'[');
        let can_be_call = match scan.key.as_str() {
            "" => self.python.is_some() && self.chosen && is_list && scan.depth == 1,
            key => self.json.is_some() && NAMES.contains(&key),
        };
        self.state == GuessPhase::Body
            && self.fence == 0
            && !scan.named
            && can_be_call
            && vocabulary.is_tool_name(&scan.word)
    }

    /// Parses the calls on trial and returns true if all of them could run.
    fn has_runnable_calls(&self, index: u32, why: Truncation, vocabulary: &Vocabulary) -> bool {
        let mut trial = GuessValidator {
            vocabulary,
            open: None,
            calls: false,
            good: true,
        };
        let Some(mut region) = self.region_parser(index) else {
            return false;
        };
        self.parse_calls(&mut region, why, &mut trial);
        trial.end_call(false);
        trial.calls && trial.good
    }

    /// Parses all held calls, as the end of the text.
    fn parse_calls(&self, region: &mut AnyRegionParser, why: Truncation, out: &mut dyn EventSink) {
        let (text, offset) = self.call_text();
        if let RegionProgress::More(taken) = region.parse_view(
            TextView {
                text,
                offset,
                last: true,
            },
            out,
        ) {
            region.cut_region(why, offset + taken, out);
        }
    }
}

/// An event sink that checks calls one after the other, and stores only the argument names of the
/// current call.
struct GuessValidator<'v> {
    vocabulary: &'v Vocabulary,
    /// The open call's name and arguments.
    open: Option<(String, Vec<String>)>,
    /// True once there was a call.
    calls: bool,
    /// True while every call could run.
    good: bool,
}

impl GuessValidator<'_> {
    /// Checks a call that has ended, properly or not.
    fn end_call(&mut self, closed: bool) {
        let Some((name, given)) = self.open.take() else {
            return;
        };
        let tool = self
            .vocabulary
            .resolve_tool(&name)
            .and_then(|at| self.vocabulary.tool_at(at));
        self.good &= match tool {
            // A misspelt tool still counts: the checks reject it with a hint.
            None => self.vocabulary.is_tool_name(&name),
            Some(tool) => {
                let nameless = given.iter().any(String::is_empty);
                // Required arguments are the strongest sign of a call: an object that only
                // describes a tool seldom has all of them. A cut or unread call is left to the
                // checks.
                !closed || nameless || tool.is_satisfied_by(given.iter().map(String::as_str))
            }
        };
    }
}

impl EventSink for GuessValidator<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::CallStart { name, .. } => {
                self.end_call(false);
                self.calls = true;
                // After the first bad call the verdict is certain, so nothing more is stored.
                self.open = self.good.then(|| (name.to_owned(), Vec::new()));
            }
            Event::ArgStart { name, .. } => {
                if let Some((_, given)) = &mut self.open {
                    given.push(name.to_owned());
                }
            }
            Event::CallEnd { .. } => self.end_call(true),
            Event::CallCut { .. } => self.end_call(false),
            _ => {}
        }
    }
}

impl BracketScan {
    /// Processes a character of the calls, represented by `byte`. `json` and `python` are the notations that are possible here.
    fn push_char(
        &mut self,
        c: char,
        byte: u8,
        json: bool,
        python: bool,
        vocabulary: &Vocabulary,
    ) -> ByteVerdict {
        if let Some((quote, triple, escaped)) = self.quote {
            return self.push_quoted_char(c, byte, quote, triple, escaped);
        }
        if !matches!(byte, b'"' | b'\'') {
            self.quotes = 0;
        }
        match byte {
            b'"' => return self.open_string(byte),
            b'\'' if self.python => return self.open_string(byte),
            b'{' | b'[' => {
                // Inside the arguments, names and keys have no meaning for the scan.
                if byte == b'{' && self.arguments.is_none() && is_arguments_key(&self.key) {
                    self.arguments = Some(self.depth);
                }
                self.depth += 1;
                self.word.clear();
            }
            b'}' | b']' => {
                if let ByteVerdict::Text = self.end_value(vocabulary) {
                    return ByteVerdict::Text;
                }
                self.depth = self.depth.saturating_sub(1);
                self.arguments = self.arguments.filter(|depth| *depth < self.depth);
                if self.depth == 0 {
                    return if self.named {
                        ByteVerdict::Closed
                    } else {
                        ByteVerdict::Text
                    };
                }
            }
            b':' if !self.python && self.arguments.is_none() => {
                self.key = std::mem::take(&mut self.word);
                let arguments = is_arguments_key(&self.key);
                self.argued |= arguments;
                let key = self.key.as_str();
                // A call's object has few known keys before its name, so most other JSON is
                // released early.
                if !self.named && !arguments && !NAMES.contains(&key) && !BEFORE.contains(&key) {
                    return ByteVerdict::Text;
                }
            }
            b',' => return self.end_value(vocabulary),
            b'(' if self.depth == 1 && !self.named => {
                self.python = true;
                self.named = python && vocabulary.is_tool_name(&self.word);
                if !self.named {
                    return ByteVerdict::Text;
                }
                self.depth += 1;
            }
            b'(' if self.python => self.depth += 1,
            b')' if self.python => self.depth = self.depth.saturating_sub(1),
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                if self.word.len() < NAME_CAP {
                    self.word.push(c);
                }
                // A bare word inside the brackets begins a Python call, or it is prose.
                let word = self
                    .word
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
                let prose = self.depth == 1 && !(python && word);
                // No number or literal is that long, so it is text at any depth.
                if !self.named && (prose || self.word.len() >= NAME_CAP) {
                    return ByteVerdict::Text;
                }
            }
        }
        if json || self.python || self.depth <= 1 {
            ByteVerdict::Continue
        } else {
            ByteVerdict::Text
        }
    }

    /// Begins a string, or turns two quotes into the beginning of a triple-quoted one.
    fn open_string(&mut self, quote: u8) -> ByteVerdict {
        // The third quote in a row opens a triple-quoted string.
        let triple = self.python && self.quotes == 2;
        self.quotes = u8::from(!triple);
        self.quote = Some((quote, triple, false));
        self.word.clear();
        ByteVerdict::Continue
    }

    /// Processes a character inside a string, represented by `byte`. Strings are tracked only because brackets in them have no meaning.
    fn push_quoted_char(
        &mut self,
        c: char,
        byte: u8,
        quote: u8,
        triple: bool,
        escaped: bool,
    ) -> ByteVerdict {
        let closes = byte == quote && !escaped;
        self.quotes = if closes { self.quotes + 1 } else { 0 };
        if closes && (!triple || self.quotes == 3) {
            self.quote = None;
            // An empty string may be the first two of three quotes.
            self.quotes = if triple || self.quotes != 2 { 0 } else { 2 };
            return ByteVerdict::Continue;
        }
        if !closes && self.word.len() < NAME_CAP {
            self.word.push(c);
        }
        self.quote = Some((quote, triple, byte == b'\\' && !escaped));
        ByteVerdict::Continue
    }

    /// Processes the end of a value at any depth.
    fn end_value(&mut self, vocabulary: &Vocabulary) -> ByteVerdict {
        let key = std::mem::take(&mut self.key);
        let word = std::mem::take(&mut self.word);
        if self.python
            || self.arguments.is_some()
            || !NAMES.contains(&key.as_str())
            || word.is_empty()
        {
            return ByteVerdict::Continue;
        }
        self.named = vocabulary.is_tool_name(&word);
        if self.named {
            ByteVerdict::Continue
        } else {
            ByteVerdict::Text
        }
    }
}

/// Returns true if `[` followed by this byte may begin calls.
fn opens_list(byte: &u8) -> bool {
    byte.is_ascii_whitespace()
        || byte.is_ascii_alphabetic()
        || matches!(byte, b'_' | b'{' | b'[' | b'"' | 0x80..)
}

/// Returns true for the keys under which providers and frameworks put the arguments of a call.
fn is_arguments_key(key: &str) -> bool {
    matches!(
        key,
        "arguments" | "parameters" | "args" | "input" | "tool_input" | "params" | "kwargs"
    )
}

impl CallReader {
    /// Continues a guess.
    pub(super) fn read_guess(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Guess(guess) = &mut self.state else {
            return ReaderStep::To(from);
        };
        let rest = window.text_from(from);
        for (at, c) in rest.char_indices() {
            let place = guess.held.len();
            if c == '<' && matches!(guess.state, GuessPhase::After | GuessPhase::End) {
                // End-of-turn tokens after the calls are not text.
                match self
                    .vocabulary
                    .markers
                    .token_length(rest.get(at..).unwrap_or_default(), window.last)
                {
                    Some(0) => {}
                    Some(len) => {
                        guess
                            .held
                            .push_str(rest.get(at..at + len).unwrap_or_default());
                        return ReaderStep::To(from + at + len);
                    }
                    None => return ReaderStep::Wait(from + at),
                }
            }
            guess.held.push(c);
            let named = guess.scan.named;
            let verdict = guess.push_char(c, place, &self.vocabulary);
            let next = from + at + c.len_utf8();
            if matches!(verdict, ByteVerdict::Text) && place > 0 {
                // The byte that rules out a call may itself begin one, so it is not consumed.
                guess.held.truncate(place);
                self.abandon_guess(out);
                return ReaderStep::To(from + at);
            }
            // Released, not cut: without the end of the message this never was a call.
            if guess.held.len() >= HOLD_CAP {
                self.abandon_guess(out);
                return ReaderStep::To(next);
            }
            if guess.chosen && guess.fence == 0 && guess.scan.named && !named {
                return self.commit_guess(next, out);
            }
        }
        ReaderStep::To(window.text.len())
    }

    /// Begins the calls before the end of the text: the tool is known and the dialect was chosen.
    fn commit_guess(&mut self, next: usize, out: &mut dyn EventSink) -> ReaderStep {
        let ReaderState::Guess(guess) = &self.state else {
            return ReaderStep::To(next);
        };
        let Some(mut region) = guess.region_parser(self.diagnostics.calls) else {
            return ReaderStep::To(next);
        };
        out.push_event(Event::Mark(
            guess.call_markup("calls without a marker, in the dialect that was chosen"),
        ));
        self.note_words_before_bare_call();
        let ReaderState::Guess(guess) = &self.state else {
            return ReaderStep::To(next);
        };
        let (text, offset) = guess.call_text();
        match region.parse_view(
            TextView {
                text,
                offset,
                last: false,
            },
            out,
        ) {
            RegionProgress::More(taken) if taken == text.len() => {
                self.blank.release_memory();
                self.state = ReaderState::Region(region);
            }
            RegionProgress::More(_) | RegionProgress::Over(_) => {
                self.diagnostics.calls = region.next_index();
                self.state = ReaderState::Gap;
            }
        }
        ReaderStep::To(next)
    }

    /// Gives up the guess: the held text is prose.
    fn abandon_guess(&mut self, out: &mut dyn EventSink) {
        if let ReaderState::Guess(guess) = std::mem::replace(&mut self.state, ReaderState::Prose) {
            self.release_guess(&guess, out);
        }
    }

    /// Emits the held text as prose. If it named a tool, it is marked as a mention, so that `sabir
    /// explain` can say why nothing ran.
    fn release_guess(&mut self, guess: &BareCallGuess, out: &mut dyn EventSink) {
        self.prose.read_text(&guess.held);
        self.emit_prose(&guess.held, out);
        if guess.scan.named {
            self.diagnostics.shown |= guess.body.1 > guess.body.0;
            self.diagnostics.note_mark(
                MarkupRole::Mention,
                guess.offset,
                guess.held.len(),
                "like a call, but in the middle of a message",
            );
            self.diagnostics.emit_notes(out);
        }
    }

    /// Ends the text. If the held text is calls, they are emitted.
    pub(super) fn end_guess(
        &mut self,
        guess: BareCallGuess,
        why: Truncation,
        out: &mut dyn EventSink,
    ) {
        let index = self.diagnostics.calls;
        // An open fence may show more than calls. If calls are in two places, only the last could
        // run, so none does.
        let open = guess.fence > 0 && !guess.is_fenced();
        // An earlier bare call was released because text followed it, so it was only shown.
        let scattered = std::mem::take(&mut self.diagnostics.shown);
        let calls =
            guess.scan.named && !open && guess.has_runnable_calls(index, why, &self.vocabulary);
        let region = guess.region_parser(index).filter(|_| calls && !scattered);
        let Some(mut region) = region else {
            let span = Span::new(guess.offset, guess.offset + guess.held.len());
            self.release_guess(&guess, out);
            if guess.is_cut_after_name(&self.vocabulary) {
                let message = "the message ends behind the name of a call, before its arguments";
                let fault = Fault::error(FaultKind::CutCall, span, message);
                out.push_event(Event::Fault(
                    &fault.with_hint("write the whole call again and close it"),
                ));
            }
            if calls && scattered {
                let message = "calls without a marker are in two places, and only one of them can be the end of the message";
                let fault = Fault::error(FaultKind::StrayText, span, message);
                out.push_event(Event::Fault(
                    &fault.with_hint("write all calls in one list at the end of the message"),
                ));
            }
            return;
        };
        self.blank.clear();
        self.note_words_before_bare_call();
        out.push_event(Event::Mark(guess.call_markup(
            "calls without a marker: a declared tool with what it requires, and nothing behind",
        )));
        guess.parse_calls(&mut region, why, out);
        self.diagnostics.calls = region.next_index();
    }
}
