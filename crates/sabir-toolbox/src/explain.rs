//! Explains how a text was parsed, marker by marker: the command `explain`.
//!
//! A note is a piece of the text and its role. Mark events become notes directly. The pieces of a call are derived from the
//! positions in its events: the text between two values is the markup that closes one and opens the other.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sabir_call::{
    ArgumentEncoding, Certainty, DraftCall, Event, MarkupRole, MarkupSpan, Severity, SourceLines,
    Span, Truncation,
};
use sabir_check::{CallState, CheckedCall, Repair};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::parse::{
    CallRecognition, FaultReport, ParseOptions, ParsedText, parse_text, render_call,
};
use crate::recognition::RecognitionTracker;
use crate::report::Report;
use crate::text::{count_noun, quote_short};

/// A piece of the text and its role.
#[derive(Debug)]
struct TextPiece {
    /// The byte range in the text.
    span: Span,
    role: PieceRole,
    /// The index of the call that it belongs to.
    call: Option<u32>,
    dialect: Option<String>,
    sure: Certainty,
    rule: &'static str,
}

/// The role of a piece.
#[derive(Debug)]
enum PieceRole {
    /// A marker of a dialect.
    Mark(MarkupRole),
    /// The markup between the call's marker, or its beginning, and its name.
    Open,
    /// The name of a tool, if it is not part of the call's marker.
    Name,
    /// The markup before the value of this argument.
    Argument(String),
    /// The value of this argument; `false` if it was cut.
    Value(String, bool),
    End,
    Cut,
}

/// A call whose events are arriving.
#[derive(Debug)]
struct CallInProgress {
    dialect: Option<String>,
    sure: Certainty,
    /// The end offset of the last noted piece.
    to: usize,
    argument: Option<(String, ArgumentEncoding, usize)>,
}

/// Collects notes from events.
#[derive(Debug)]
struct PieceCollector {
    notes: Vec<TextPiece>,
    recognised: RecognitionTracker,
    calls: BTreeMap<u32, CallInProgress>,
}

impl PieceCollector {
    /// Adds the notes that follow from an event.
    fn note_event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(mark) => {
                // A mark comes before the start of its call, so that the call can take it over.
                self.recognised.note_event(event);
                self.note_mark(mark);
            }
            Event::CallStart {
                index,
                name,
                dialect,
                at,
                name_at,
                ..
            } => {
                self.recognised.note_event(event);
                self.start_call(index, dialect, at);
                self.note_name(index, name, name_at);
            }
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => {
                self.note_piece(
                    index,
                    at,
                    PieceRole::Argument(name.to_owned()),
                    "the markup before a value",
                );
                if let Some(running) = self.calls.get_mut(&index) {
                    running.argument = Some((name.to_owned(), form, at));
                }
            }
            Event::ArgEnd { index, at, .. } => self.note_value(index, at, true),
            Event::CallEnd { index, at } => {
                self.note_piece(index, at, PieceRole::End, "the markup after the last value");
                self.calls.remove(&index);
            }
            Event::CallCut { index, why, at } => {
                self.note_value(index, at, false);
                // The value so far was noted above: a cut call shows the part that was written.
                let rule = match why {
                    Truncation::Limit => "the output limit was reached here",
                    Truncation::Broken => "the stream broke here",
                    Truncation::Cancelled => "it was cancelled here",
                    Truncation::Ended => "the text ends before the call does",
                };
                self.note_piece(index, at, PieceRole::Cut, rule);
                self.calls.remove(&index);
            }
            _ => {}
        }
    }

    fn note_mark(&mut self, mark: MarkupSpan<'_>) {
        let MarkupSpan {
            role,
            dialect,
            span,
            sure,
            rule,
        } = mark;
        let dialect = dialect.map(str::to_owned);
        self.notes.push(TextPiece {
            span,
            role: PieceRole::Mark(role),
            call: None,
            dialect,
            sure,
            rule,
        });
    }

    /// Begins a call. The last note is its marker, or a wrapper around it, or the call has no
    /// marker at all.
    fn start_call(&mut self, index: u32, dialect: Option<&str>, at: usize) {
        let sure = self
            .recognised
            .recognition_of(index)
            .map_or(Certainty::Certain, |how| how.sure);
        let mut to = at;
        if let Some(mark) = self.notes.last_mut() {
            to = to.max(mark.span.end);
            if matches!(mark.role, PieceRole::Mark(MarkupRole::Call)) {
                mark.call = Some(index);
            }
        }
        self.calls.insert(
            index,
            CallInProgress {
                dialect: dialect.map(str::to_owned),
                sure,
                to,
                argument: None,
            },
        );
    }

    /// Adds a note for the tool's name, if it comes after the call's marker.
    fn note_name(&mut self, index: u32, name: &str, at: usize) {
        let to = self.calls.get(&index).map_or(at, |running| running.to);
        // In some dialects the marker holds the name, which must not be noted twice.
        if at >= to && !name.is_empty() {
            self.note_piece(index, at, PieceRole::Open, "the markup before a name");
            self.add_note(
                index,
                Span::new(at, at + name.len()),
                PieceRole::Name,
                "the tool's name is here",
            );
        }
    }

    /// Adds a note for the value of the current argument, which ends at `at`.
    fn note_value(&mut self, index: u32, at: usize, whole: bool) {
        let argument = self
            .calls
            .get_mut(&index)
            .and_then(|running| running.argument.take());
        let Some((name, form, from)) = argument else {
            return;
        };
        let rule = match form {
            ArgumentEncoding::Raw => "text as written, whose type the tool's schema determines",
            ArgumentEncoding::String => "a string, with its escapes decoded",
            ArgumentEncoding::Json => "a JSON value",
        };
        self.add_note(
            index,
            Span::new(from, at),
            PieceRole::Value(name, whole),
            rule,
        );
    }

    /// Adds a note for the text between the last note of the call and `to`.
    fn note_piece(&mut self, index: u32, to: usize, taken: PieceRole, rule: &'static str) {
        let from = self
            .calls
            .get(&index)
            .map_or(to, |running| running.to.min(to));
        self.add_note(index, Span::new(from, to), taken, rule);
    }

    /// Adds a note to a call that is being read.
    fn add_note(&mut self, index: u32, span: Span, taken: PieceRole, rule: &'static str) {
        let Some(running) = self.calls.get_mut(&index) else {
            return;
        };
        // Events of one call arrive in text order, but a marker may end after the call's first
        // position.
        running.to = running.to.max(span.end);
        let dialect = running.dialect.clone();
        let sure = running.sure;
        self.notes.push(TextPiece {
            span,
            role: taken,
            call: Some(index),
            dialect,
            sure,
            rule,
        });
    }

    /// Returns the notes in text order. Markup is trimmed of white space and left out if nothing
    /// else remains.
    fn into_sorted(self, source: &str) -> Vec<TextPiece> {
        let mut notes = self.notes;
        notes.retain_mut(|note| {
            let text = source
                .get(note.span.start..note.span.end)
                .unwrap_or_default();
            // Names and values are kept exactly, blanks included; only markup is trimmed.
            if !matches!(
                note.role,
                PieceRole::Open | PieceRole::Argument(_) | PieceRole::End | PieceRole::Cut
            ) {
                return true;
            }
            // Blanks between pieces belong to no piece; trimming moves both ends of the span.
            let start = note.span.start + text.len() - text.trim_start().len();
            note.span = Span::new(start, start + text.trim().len());
            !text.trim().is_empty() || matches!(note.role, PieceRole::End | PieceRole::Cut)
        });
        // Calls may interleave, so the notes do not come in text order.
        notes.sort_by_key(|note| note.span.start);
        notes
    }
}

/// Parses a text and explains how each piece of it was understood.
pub fn explain_text(input: &[u8], options: &ParseOptions<'_>) -> ExplainedText {
    let mut notes = PieceCollector {
        notes: Vec::new(),
        recognised: RecognitionTracker::new(options.dialect.is_some()),
        calls: BTreeMap::new(),
    };
    let parsed = parse_text(input, options, &mut |event: Event<'_>| {
        notes.note_event(event)
    });
    let notes = notes.into_sorted(&parsed.source);
    ExplainedText { parsed, notes }
}

/// A parsed text and the roles of its pieces.
#[derive(Debug)]
pub struct ExplainedText {
    /// The text and the results of parsing and checking it.
    pub parsed: ParsedText,
    notes: Vec<TextPiece>,
}

impl ExplainedText {
    /// Returns the report of `explain`.
    pub fn report(&self) -> ExplainReport<'_> {
        let parsed = &self.parsed;
        let mut lines = SourceLines::new(&parsed.source);
        let marks = self
            .notes
            .iter()
            .map(|note| PieceReport::new(note, &parsed.source, &mut lines))
            .collect();
        let calls = self
            .calls()
            .map(|(call, checked)| ExplainedCall {
                call: checked.index,
                name: &checked.name,
                dialect: call.dialect.as_deref(),
                state: checked.state,
                arguments: &checked.arguments,
                span: call.span,
                how: parsed.recognition_of(checked.index),
                repairs: &checked.repairs,
                faults: checked
                    .faults
                    .iter()
                    .map(|fault| FaultReport::new(fault, &mut lines))
                    .collect(),
            })
            .collect();
        ExplainReport {
            dialect: parsed.selection,
            found: self.found_dialects(),
            marks,
            calls,
            faults: parsed.fault_reports(),
            feedback: parsed.feedback.as_deref(),
            explained: self,
        }
    }

    /// Iterates over the calls as written and as checked; the checks keep the order of the calls.
    fn calls(&self) -> impl Iterator<Item = (&DraftCall, &CheckedCall)> {
        self.parsed.draft.calls().zip(&self.parsed.checked)
    }

    /// Returns the dialects found, in text order, each with its number of calls.
    fn found_dialects(&self) -> Vec<FoundDialect<'_>> {
        let mut found: Vec<FoundDialect<'_>> = Vec::new();
        for dialect in self.notes.iter().filter_map(|note| note.dialect.as_deref()) {
            // A few dialects at most: a linear search keeps their order without a second structure.
            if found.iter().any(|known| known.dialect == dialect) {
                continue;
            }
            let calls = self
                .parsed
                .draft
                .calls()
                .filter(|call| call.dialect.as_deref() == Some(dialect))
                .count();
            found.push(FoundDialect { dialect, calls });
        }
        found
    }

    /// Renders a checked call: its content, the verdict, repairs and faults.
    fn render_verdict(&self, call: &DraftCall, checked: &CheckedCall) -> String {
        let spelling = call.dialect.as_deref().unwrap_or("native");
        let mut text = format!(
            "\n{}: {}",
            // People count from 1. The sum cannot overflow in the wider type.
            u64::from(checked.index) + 1,
            render_call(checked, spelling)
        );
        if let Some(CallRecognition { sure, rule }) = self.parsed.recognition_of(checked.index) {
            text.push_str(&format!("  recognised: {}, {rule}\n", certainty_word(sure)));
        }
        let errors = checked
            .faults
            .iter()
            .filter(|fault| fault.severity == Severity::Error)
            .count();
        text.push_str(&match checked.state {
            CallState::Complete => "  the checks: passed, it would run\n".to_owned(),
            CallState::Rejected if errors == 1 => {
                "  the checks: stopped by a fault, it would not run\n".to_owned()
            }
            CallState::Rejected => {
                format!("  the checks: stopped by {errors} faults, it would not run\n")
            }
            CallState::Cut => "  the checks: cut, it would never run\n".to_owned(),
        });
        for fault in &checked.faults {
            text.push_str(&fault.render_diagnostic(&self.parsed.source));
        }
        text
    }
}

/// The report of `explain`.
#[derive(Debug, Serialize)]
pub struct ExplainReport<'a> {
    /// The selection: `auto`, or the name of a dialect.
    pub dialect: &'a str,
    /// The dialects found, in text order.
    pub found: Vec<FoundDialect<'a>>,
    /// The pieces of the text that are markup or belong to a call, in text order.
    pub marks: Vec<PieceReport<'a>>,
    /// The calls.
    pub calls: Vec<ExplainedCall<'a>>,
    /// All faults in text order.
    pub faults: Vec<FaultReport>,
    /// The feedback that the model would receive.
    pub feedback: Option<&'a str>,
    #[serde(skip)]
    explained: &'a ExplainedText,
}

/// A dialect found in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundDialect<'a> {
    /// The name of the dialect.
    pub dialect: &'a str,
    /// The number of calls in it.
    pub calls: usize,
}

/// A piece of the text and its role.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PieceReport<'a> {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The position in bytes.
    pub span: Span,
    /// The text of the piece; `None` if the span does not fall on characters.
    pub source: Option<&'a str>,
    /// The name of the role.
    pub role: &'static str,
    /// The name of the argument that the piece opens or is the value of.
    pub argument: Option<&'a str>,
    /// The index of the call that the piece belongs to.
    pub call: Option<u32>,
    /// The dialect.
    pub dialect: Option<&'a str>,
    /// The certainty of the reader.
    pub sure: Certainty,
    /// The rule that applied.
    pub rule: &'static str,
}

impl<'a> PieceReport<'a> {
    /// Creates the report of a note. The notes must come in text order.
    fn new(note: &'a TextPiece, source: &'a str, lines: &mut SourceLines<'_>) -> Self {
        let place = lines.position_at(note.span.start);
        Self {
            line: place.line,
            column: place.column,
            span: note.span,
            source: source.get(note.span.start..note.span.end),
            role: note.role_name(),
            argument: note.argument_name(),
            call: note.call,
            dialect: note.dialect.as_deref(),
            sure: note.sure,
            rule: note.rule,
        }
    }
}

/// A call with the verdict of the checks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedCall<'a> {
    /// The index of the call.
    pub call: u32,
    /// The tool's name, after any repair.
    pub name: &'a str,
    /// The dialect in which it was written.
    pub dialect: Option<&'a str>,
    /// The verdict of the checks.
    pub state: CallState,
    /// The typed arguments.
    pub arguments: &'a Map<String, Value>,
    /// The position in bytes.
    pub span: Span,
    /// The way in which it was recognised.
    pub how: Option<CallRecognition>,
    /// The repairs that were applied.
    pub repairs: &'a [Repair],
    /// The faults and warnings of this call.
    pub faults: Vec<FaultReport>,
}

impl Report for ExplainReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let parsed = &self.explained.parsed;
        let found: Vec<_> = self
            .found
            .iter()
            .map(|found| format!("{} ({})", found.dialect, count_noun(found.calls, "call")))
            .collect();
        let found = if found.is_empty() {
            "none; all of it is text".to_owned()
        } else {
            found.join(", ")
        };
        writeln!(out, "listened for: {}; found: {found}", self.dialect)?;
        for (note, mark) in self.explained.notes.iter().zip(&self.marks) {
            let place = format!("{}:{}", mark.line, mark.column);
            let dialect = mark
                .dialect
                .map(|dialect| format!("{dialect}, "))
                .unwrap_or_default();
            writeln!(
                out,
                "{place:>7}  {}\n         {} [{dialect}{}]: {}",
                quote_short(mark.source.unwrap_or_default()),
                note.describe_role(),
                certainty_word(mark.sure),
                mark.rule
            )?;
        }
        for (call, checked) in self.explained.calls() {
            out.write_all(self.explained.render_verdict(call, checked).as_bytes())?;
        }
        if !parsed.loose_faults.is_empty() {
            out.write_all(b"\nof no call:\n")?;
        }
        for fault in &parsed.loose_faults {
            out.write_all(fault.render_diagnostic(&parsed.source).as_bytes())?;
        }
        Ok(())
    }
}

// The names and descriptions below are part of the output format.
impl TextPiece {
    fn role_name(&self) -> &'static str {
        match self.role {
            PieceRole::Mark(MarkupRole::Call) => "call",
            PieceRole::Mark(MarkupRole::Wrapper) => "wrapper",
            PieceRole::Mark(
                MarkupRole::Thought | MarkupRole::ThoughtEnd | MarkupRole::PromptedThought,
            ) => "thought",
            PieceRole::Mark(MarkupRole::Mention) => "mention",
            PieceRole::Mark(MarkupRole::Content) => "content",
            PieceRole::Open => "open",
            PieceRole::Name => "name",
            PieceRole::Argument(_) => "argument",
            PieceRole::Value(..) => "value",
            PieceRole::End => "end",
            PieceRole::Cut => "cut",
        }
    }

    fn argument_name(&self) -> Option<&str> {
        match &self.role {
            PieceRole::Argument(name) | PieceRole::Value(name, _) => Some(name),
            _ => None,
        }
    }

    fn describe_role(&self) -> String {
        match &self.role {
            PieceRole::Mark(MarkupRole::Call) => "opens a call".to_owned(),
            PieceRole::Mark(MarkupRole::Wrapper) => "surrounds calls".to_owned(),
            PieceRole::Mark(MarkupRole::Thought | MarkupRole::ThoughtEnd) => {
                "opens or closes a thought".to_owned()
            }
            PieceRole::Mark(MarkupRole::PromptedThought) => {
                "closes a thought that the prompt opened".to_owned()
            }
            PieceRole::Mark(MarkupRole::Mention) => "only mentions a call".to_owned(),
            PieceRole::Mark(MarkupRole::Content) => {
                "is content, although it looks like an end".to_owned()
            }
            PieceRole::Open => "opens the call's name".to_owned(),
            PieceRole::Name => "names the tool".to_owned(),
            PieceRole::Argument(name) if name.is_empty() => {
                "opens arguments that the checks read".to_owned()
            }
            PieceRole::Value(name, true) if name.is_empty() => {
                "has arguments that the checks read".to_owned()
            }
            PieceRole::Value(name, false) if name.is_empty() => {
                "is the received part of arguments that the checks read".to_owned()
            }
            PieceRole::Argument(name) => format!("opens the argument `{name}`"),
            PieceRole::Value(name, true) => format!("is the value of `{name}`"),
            PieceRole::Value(name, false) => {
                format!("is the received part of the value of `{name}`")
            }
            PieceRole::End => "closes the call".to_owned(),
            PieceRole::Cut => "cuts the call".to_owned(),
        }
    }
}

fn certainty_word(sure: Certainty) -> &'static str {
    match sure {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::Guess => "guess",
    }
}
