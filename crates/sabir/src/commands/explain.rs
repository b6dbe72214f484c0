//! Implements `explain`: shows how a text was parsed, marker by marker.
//!
//! A [`TextNote`] is a piece of the text and its role. Mark events become notes directly. The
//! pieces of a call are derived from the positions in its events: the text between two values is
//! the markup that closes one and opens the other.

use std::collections::BTreeMap;

use sabir_call::{
    ArgForm, Certainty, DraftCall, Event, Fault, MarkupRole, MarkupSpan, Severity, Span, Truncation,
};
use sabir_check::{CallState, CheckedCall};
use serde_json::{Value, json};

use crate::cli::{CheckArguments, ReportFormat};
use crate::commands::parse::{self, CallRecognition, ParsedText, RecognitionTracker};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

/// A piece of the text and its role.
#[derive(Debug)]
struct TextNote {
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
    argument: Option<(String, ArgForm, usize)>,
}

/// Collects notes from events.
#[derive(Debug, Default)]
struct NoteCollector {
    notes: Vec<TextNote>,
    recognised: RecognitionTracker,
    calls: BTreeMap<u32, CallInProgress>,
}

impl NoteCollector {
    /// Adds the notes that follow from an event.
    fn note_event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(mark) => {
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
                self.note_piece(
                    index,
                    at,
                    PieceRole::End,
                    "the markup behind the last value",
                );
                self.calls.remove(&index);
            }
            Event::CallCut { index, why, at } => {
                self.note_value(index, at, false);
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
        self.notes.push(TextNote {
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
        if at >= to && !name.is_empty() {
            self.note_piece(index, at, PieceRole::Open, "the markup before a name");
            self.add_note(
                index,
                Span::new(at, at + name.len()),
                PieceRole::Name,
                "the tool's name stands here",
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
            ArgForm::Raw => "text as it stands, whose type the tool's schema says",
            ArgForm::String => "a string, with its escapes decoded",
            ArgForm::Json => "a JSON value",
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
        running.to = running.to.max(span.end);
        let dialect = running.dialect.clone();
        let sure = running.sure;
        self.notes.push(TextNote {
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
    fn into_sorted(self, source: &str) -> Vec<TextNote> {
        let mut notes = self.notes;
        notes.retain_mut(|note| {
            let text = source
                .get(note.span.start..note.span.end)
                .unwrap_or_default();
            if !matches!(
                note.role,
                PieceRole::Open | PieceRole::Argument(_) | PieceRole::End | PieceRole::Cut
            ) {
                return true;
            }
            let start = note.span.start + text.len() - text.trim_start().len();
            note.span = Span::new(start, start + text.trim().len());
            !text.trim().is_empty() || matches!(note.role, PieceRole::End | PieceRole::Cut)
        });
        notes.sort_by_key(|note| note.span.start);
        notes
    }
}

/// Counts lines and columns as diagnostics do, in one pass over the text.
struct PositionCursor<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'s> PositionCursor<'s> {
    fn new(source: &'s str) -> Self {
        Self {
            source,
            at: 0,
            line: 1,
            column: 1,
        }
    }

    /// Returns the line and column of an offset, which must not be smaller than the previous one.
    fn locate(&mut self, offset: usize) -> (usize, usize) {
        let rest = self.source.get(self.at..).unwrap_or_default();
        let mut letters = rest.chars().peekable();
        while self.at < offset {
            let Some(c) = letters.next() else { break };
            self.at += c.len_utf8();
            // CR LF is one line break.
            let pair = c == '\r' && letters.peek() == Some(&'\n');
            if c == '\n' || (c == '\r' && !pair) {
                (self.line, self.column) = (self.line + 1, 1);
            } else {
                self.column += usize::from(!pair);
            }
        }
        (self.line, self.column)
    }
}

/// Runs `sabir explain`.
pub(crate) fn run_explain(arguments: &CheckArguments) -> Result<ExitStatus, CommandError> {
    let recognised = RecognitionTracker::new(&arguments.listening.dialect);
    let mut notes = NoteCollector {
        recognised,
        ..NoteCollector::default()
    };
    let reading = parse::read_input(&arguments.listening, false, &mut |event| {
        notes.note_event(event)
    })?;
    let notes = notes.into_sorted(&reading.source);
    match arguments.output {
        ReportFormat::Json => print::print_json(&to_json(&reading, &notes)),
        ReportFormat::Text => {
            print::write_stdout(&print::sanitize_text(&render_text(&reading, &notes)))
        }
    }
    Ok(reading.exit_status())
}

/// Returns the dialects found, in text order, each with its number of calls.
fn found_dialects(reading: &ParsedText, notes: &[TextNote]) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for dialect in notes.iter().filter_map(|note| note.dialect.as_ref()) {
        if found.iter().all(|(known, _)| known != dialect) {
            let calls = reading
                .draft
                .calls()
                .filter(|call| call.dialect.as_ref() == Some(dialect))
                .count();
            found.push((dialect.clone(), calls));
        }
    }
    found
}

fn render_text(reading: &ParsedText, notes: &[TextNote]) -> String {
    let found: Vec<_> = found_dialects(reading, notes)
        .iter()
        .map(|(name, calls)| format!("{name} ({})", print::count_noun(*calls, "call")))
        .collect();
    let found = if found.is_empty() {
        "none; all of it is text".to_owned()
    } else {
        found.join(", ")
    };
    let mut text = format!("listened for: {}; found: {found}\n", reading.selection);
    let mut places = PositionCursor::new(&reading.source);
    for note in notes {
        let (line, column) = places.locate(note.span.start);
        let place = format!("{line}:{column}");
        let dialect = note
            .dialect
            .as_ref()
            .map(|dialect| format!("{dialect}, "))
            .unwrap_or_default();
        let source = print::quote_short(
            reading
                .source
                .get(note.span.start..note.span.end)
                .unwrap_or_default(),
        );
        text.push_str(&format!(
            "{place:>7}  {source}\n         {} [{dialect}{}]: {}\n",
            note.describe_role(),
            certainty_word(note.sure),
            note.rule
        ));
    }
    // The checks keep the order of the calls.
    for (call, checked) in reading.draft.calls().zip(&reading.checked) {
        text.push_str(&call_verdict(reading, call, checked));
    }
    if !reading.loose_faults.is_empty() {
        text.push_str("\nof no call:\n");
        reading
            .loose_faults
            .iter()
            .for_each(|fault| text.push_str(&fault.render_diagnostic(&reading.source)));
    }
    text
}

/// Renders a checked call: its content, the verdict, repairs and faults.
fn call_verdict(reading: &ParsedText, call: &DraftCall, checked: &CheckedCall) -> String {
    let spelling = call.dialect.as_deref().unwrap_or("native");
    let mut text = format!(
        "\n{}: {}",
        u64::from(checked.index) + 1,
        parse::render_call(checked, spelling)
    );
    if let Some(CallRecognition { sure, rule }) = reading.recognitions.recognition_of(checked.index)
    {
        text.push_str(&format!("  recognised: {}, {rule}\n", certainty_word(sure)));
    }
    let errors = checked
        .faults
        .iter()
        .filter(|fault| fault.severity == Severity::Error)
        .count();
    text.push_str(&match checked.state {
        CallState::Complete => "  the gates: passed, it would run\n".to_owned(),
        CallState::Rejected if errors == 1 => {
            "  the gates: stopped by a fault, it would not run\n".to_owned()
        }
        CallState::Rejected => {
            format!("  the gates: stopped by {errors} faults, it would not run\n")
        }
        CallState::Cut => "  the gates: cut, it would never run\n".to_owned(),
    });
    checked
        .faults
        .iter()
        .for_each(|fault| text.push_str(&fault.render_diagnostic(&reading.source)));
    text
}

fn to_json(reading: &ParsedText, notes: &[TextNote]) -> Value {
    let mut places = PositionCursor::new(&reading.source);
    let marks: Vec<_> = notes
        .iter()
        .map(|note| {
            let (line, column) = places.locate(note.span.start);
            json!({
                "line": line, "column": column, "span": note.span,
                "source": reading.source.get(note.span.start..note.span.end),
                "role": note.role_name(), "argument": note.argument_name(), "call": note.call, "dialect": note.dialect,
                "sure": note.sure, "rule": note.rule,
            })
        })
        .collect();
    let described = |fault: &Fault| parse::fault_json(fault, &reading.source);
    let calls: Vec<_> = reading
        .draft
        .calls()
        .zip(&reading.checked)
        .map(|(call, checked)| {
            json!({
                "call": checked.index, "name": checked.name, "dialect": call.dialect, "state": checked.state,
                "arguments": checked.arguments, "span": call.span,
                "how": reading.recognitions.recognition_of(checked.index), "repairs": checked.repairs,
                "faults": checked.faults.iter().map(described).collect::<Vec<_>>(),
            })
        })
        .collect();
    let found = found_dialects(reading, notes);
    json!({
        "dialect": reading.selection,
        "found": found.iter().map(|(name, calls)| json!({"dialect": name, "calls": calls})).collect::<Vec<_>>(),
        "marks": marks, "calls": calls,
        "faults": reading.all_faults().iter().map(described).collect::<Vec<_>>(),
        "feedback": reading.model_feedback(),
    })
}

// The names and descriptions below are part of the output format.
impl TextNote {
    fn role_name(&self) -> &'static str {
        match self.role {
            PieceRole::Mark(MarkupRole::Call) => "call",
            PieceRole::Mark(MarkupRole::Wrapper) => "wrapper",
            PieceRole::Mark(MarkupRole::Thought) => "thought",
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
            PieceRole::Mark(MarkupRole::Wrapper) => "stands around calls".to_owned(),
            PieceRole::Mark(MarkupRole::Thought) => "opens or closes a thought".to_owned(),
            PieceRole::Mark(MarkupRole::Mention) => "only mentions a call".to_owned(),
            PieceRole::Mark(MarkupRole::Content) => {
                "is content, although it looks like an end".to_owned()
            }
            PieceRole::Open => "opens the call's name".to_owned(),
            PieceRole::Name => "names the tool".to_owned(),
            PieceRole::Argument(name) => format!("opens the argument `{name}`"),
            PieceRole::Value(name, true) => format!("is the value of `{name}`"),
            PieceRole::Value(name, false) => format!("is what there is of the value of `{name}`"),
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

#[cfg(test)]
mod tests {
    use sabir_call::{Fault, FaultKind, Span};

    use super::PositionCursor;

    #[test]
    fn places_are_those_of_faults() {
        for source in ["", "a", "a\nb\r\nc\rd\n\n\r\r\né🌍x\u{2028}y", "\r\n\r\n\r"] {
            let mut places = PositionCursor::new(source);
            for (at, _) in source.char_indices().chain([(source.len(), ' ')]) {
                let fault = Fault::error(FaultKind::Limit, Span::new(at, at), "");
                let place = fault.position_in(source);
                assert_eq!(
                    places.locate(at),
                    (place.line, place.column),
                    "{source:?} at {at}"
                );
            }
        }
    }
}
