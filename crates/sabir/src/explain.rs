//! `explain`: how a text was understood, marker by marker.
//!
//! A [`Note`] is a piece of the text and what it was taken for. Marks are notes already; the pieces of a call are made out
//! from its positions: what stands between two values is the markup that ends the one and opens the other.

use std::collections::BTreeMap;

use sabir_call::{ArgForm, Certainty, Cut, DraftCall, Event, Fault, Mark, MarkRole, Severity, Span};
use sabir_check::{CallState, Checked};
use serde_json::{Value, json};

use crate::cli::{CheckArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::parse::{self, How, Reading, Recognised};
use crate::print;

/// A piece of the text, and what it was taken for.
#[derive(Debug)]
struct Note {
    span: Span,
    taken: Taken,
    /// The call that it belongs to.
    call: Option<u32>,
    dialect: Option<String>,
    sure: Certainty,
    rule: &'static str,
}

/// What a piece was taken for.
#[derive(Debug)]
enum Taken {
    Mark(MarkRole),
    /// The markup between the call's mark, or its beginning, and its name.
    Open,
    /// The name of a tool that does not stand in the call's marker.
    Name,
    /// The markup before the value of this argument.
    Argument(String),
    /// That value; `false`: it has no end.
    Value(String, bool),
    End,
    Cut,
}

/// A call that is being read.
#[derive(Debug)]
struct Running {
    dialect: Option<String>,
    sure: Certainty,
    /// Where the piece that was noted last ends.
    to: usize,
    argument: Option<(String, ArgForm, usize)>,
}

/// Makes notes of events.
#[derive(Debug, Default)]
struct Notes {
    notes: Vec<Note>,
    recognised: Recognised,
    calls: BTreeMap<u32, Running>,
}

impl Notes {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(mark) => {
                self.recognised.event(event);
                self.mark(mark);
            }
            Event::CallStart { index, name, dialect, at, name_at, .. } => {
                self.recognised.event(event);
                self.start(index, dialect, at);
                self.name(index, name, name_at);
            }
            Event::ArgStart { index, name, form, at } => {
                self.piece(index, at, Taken::Argument(name.to_owned()), "the markup before a value");
                if let Some(running) = self.calls.get_mut(&index) {
                    running.argument = Some((name.to_owned(), form, at));
                }
            }
            Event::ArgEnd { index, at, .. } => self.value(index, at, true),
            Event::CallEnd { index, at } => {
                self.piece(index, at, Taken::End, "the markup behind the last value");
                self.calls.remove(&index);
            }
            Event::CallCut { index, why, at } => {
                self.value(index, at, false);
                let rule = match why {
                    Cut::Limit => "the output limit was reached here",
                    Cut::Broken => "the stream broke here",
                    Cut::Cancelled => "it was cancelled here",
                    Cut::Ended => "the text ends before the call does",
                };
                self.piece(index, at, Taken::Cut, rule);
                self.calls.remove(&index);
            }
            _ => {}
        }
    }

    fn mark(&mut self, mark: Mark<'_>) {
        let Mark { role, dialect, span, sure, rule } = mark;
        let dialect = dialect.map(str::to_owned);
        self.notes.push(Note { span, taken: Taken::Mark(role), call: None, dialect, sure, rule });
    }

    /// A call begins. The last note is its mark, as the contract has it, or a marker around it, or there is none.
    fn start(&mut self, index: u32, dialect: Option<&str>, at: usize) {
        let sure = self.recognised.of(index).map_or(Certainty::Certain, |how| how.sure);
        let mut to = at;
        if let Some(mark) = self.notes.last_mut() {
            to = to.max(mark.span.end);
            if matches!(mark.taken, Taken::Mark(MarkRole::Call)) {
                mark.call = Some(index);
            }
        }
        self.calls.insert(index, Running { dialect: dialect.map(str::to_owned), sure, to, argument: None });
    }

    /// The tool's name, where it stands behind the call's mark.
    fn name(&mut self, index: u32, name: &str, at: usize) {
        let to = self.calls.get(&index).map_or(at, |running| running.to);
        if at >= to && !name.is_empty() {
            self.piece(index, at, Taken::Open, "the markup before a name");
            self.add(index, Span::new(at, at + name.len()), Taken::Name, "the tool's name stands here");
        }
    }

    fn value(&mut self, index: u32, at: usize, whole: bool) {
        let argument = self.calls.get_mut(&index).and_then(|running| running.argument.take());
        let Some((name, form, from)) = argument else { return };
        let rule = match form {
            ArgForm::Raw => "text as it stands, whose type the tool's schema says",
            ArgForm::String => "a string, with its escapes decoded",
            ArgForm::Json => "a JSON value",
        };
        self.add(index, Span::new(from, at), Taken::Value(name, whole), rule);
    }

    /// Whatever stands between the last note of the call and `to`.
    fn piece(&mut self, index: u32, to: usize, taken: Taken, rule: &'static str) {
        let from = self.calls.get(&index).map_or(to, |running| running.to.min(to));
        self.add(index, Span::new(from, to), taken, rule);
    }

    fn add(&mut self, index: u32, span: Span, taken: Taken, rule: &'static str) {
        let Some(running) = self.calls.get_mut(&index) else { return };
        running.to = running.to.max(span.end);
        let (dialect, sure) = (running.dialect.clone(), running.sure);
        self.notes.push(Note { span, taken, call: Some(index), dialect, sure, rule });
    }

    /// The notes in the order of the text, without white space around them; pieces of nothing else are left out.
    fn sorted(self, source: &str) -> Vec<Note> {
        let mut notes = self.notes;
        notes.retain_mut(|note| {
            let text = source.get(note.span.start..note.span.end).unwrap_or_default();
            if !matches!(note.taken, Taken::Open | Taken::Argument(_) | Taken::End | Taken::Cut) {
                return true;
            }
            let start = note.span.start + text.len() - text.trim_start().len();
            note.span = Span::new(start, start + text.trim().len());
            !text.trim().is_empty() || matches!(note.taken, Taken::End | Taken::Cut)
        });
        notes.sort_by_key(|note| note.span.start);
        notes
    }
}

/// Counts lines and columns as [`Fault::place`] does, in one walk over the text.
struct Places<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'s> Places<'s> {
    fn new(source: &'s str) -> Self {
        Self { source, at: 0, line: 1, column: 1 }
    }

    /// Line and column of an offset, which must not lie before the last one.
    fn of(&mut self, offset: usize) -> (usize, usize) {
        let rest = self.source.get(self.at..).unwrap_or_default();
        let mut letters = rest.chars().peekable();
        while self.at < offset {
            let Some(c) = letters.next() else { break };
            self.at += c.len_utf8();
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

/// `sabir explain`.
pub(crate) fn explain(arguments: &CheckArguments) -> Result<Exit, Failure> {
    let recognised = Recognised::new(&arguments.listening.dialect);
    let mut notes = Notes { recognised, ..Notes::default() };
    let reading = parse::listen(&arguments.listening, false, &mut |event| notes.event(event))?;
    let notes = notes.sorted(&reading.source);
    match arguments.output {
        Whole::Json => print::json(&in_json(&reading, &notes)),
        Whole::Text => print::out(&print::visible(&in_words(&reading, &notes))),
    }
    Ok(reading.exit())
}

/// The dialects that were found, in the order of the text, with how many calls each has.
fn found(reading: &Reading, notes: &[Note]) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for dialect in notes.iter().filter_map(|note| note.dialect.as_ref()) {
        if found.iter().all(|(known, _)| known != dialect) {
            let calls = reading.draft.calls().filter(|call| call.dialect.as_ref() == Some(dialect)).count();
            found.push((dialect.clone(), calls));
        }
    }
    found
}

fn in_words(reading: &Reading, notes: &[Note]) -> String {
    let found: Vec<_> = found(reading, notes)
        .iter()
        .map(|(name, calls)| format!("{name} ({})", print::counted(*calls, "call")))
        .collect();
    let found = if found.is_empty() { "none; all of it is text".to_owned() } else { found.join(", ") };
    let mut text = format!("listened for: {}; found: {found}\n", reading.selection);
    let mut places = Places::new(&reading.source);
    for note in notes {
        let (line, column) = places.of(note.span.start);
        let place = format!("{line}:{column}");
        let dialect = note.dialect.as_ref().map(|dialect| format!("{dialect}, ")).unwrap_or_default();
        let source = print::quoted(reading.source.get(note.span.start..note.span.end).unwrap_or_default());
        text.push_str(&format!(
            "{place:>7}  {source}\n         {} [{dialect}{}]: {}\n",
            note.words(),
            word(note.sure),
            note.rule
        ));
    }
    // The gates keep the order of the calls.
    for (call, checked) in reading.draft.calls().zip(&reading.checked) {
        text.push_str(&verdict(reading, call, checked));
    }
    if !reading.loose.is_empty() {
        text.push_str("\nof no call:\n");
        reading.loose.iter().for_each(|fault| text.push_str(&fault.diagnostic(&reading.source)));
    }
    text
}

/// A call after the gates: what was read, the verdict, repairs and faults.
fn verdict(reading: &Reading, call: &DraftCall, checked: &Checked) -> String {
    let spelling = call.dialect.as_deref().unwrap_or("native");
    let mut text = format!("\n{}: {}", u64::from(checked.index) + 1, parse::call_in_words(checked, spelling));
    if let Some(How { sure, rule }) = reading.how.of(checked.index) {
        text.push_str(&format!("  recognised: {}, {rule}\n", word(sure)));
    }
    let errors = checked.faults.iter().filter(|fault| fault.severity == Severity::Error).count();
    text.push_str(&match checked.state {
        CallState::Complete => "  the gates: passed, it would run\n".to_owned(),
        CallState::Rejected if errors == 1 => "  the gates: stopped by a fault, it would not run\n".to_owned(),
        CallState::Rejected => format!("  the gates: stopped by {errors} faults, it would not run\n"),
        CallState::Cut => "  the gates: cut, it would never run\n".to_owned(),
    });
    checked.faults.iter().for_each(|fault| text.push_str(&fault.diagnostic(&reading.source)));
    text
}

fn in_json(reading: &Reading, notes: &[Note]) -> Value {
    let mut places = Places::new(&reading.source);
    let marks: Vec<_> = notes
        .iter()
        .map(|note| {
            let (line, column) = places.of(note.span.start);
            json!({
                "line": line, "column": column, "span": note.span,
                "source": reading.source.get(note.span.start..note.span.end),
                "role": note.role(), "argument": note.argument(), "call": note.call, "dialect": note.dialect,
                "sure": note.sure, "rule": note.rule,
            })
        })
        .collect();
    let described = |fault: &Fault| parse::describe(fault, &reading.source);
    let calls: Vec<_> = reading
        .draft
        .calls()
        .zip(&reading.checked)
        .map(|(call, checked)| {
            json!({
                "call": checked.index, "name": checked.name, "dialect": call.dialect, "state": checked.state,
                "arguments": checked.arguments, "span": call.span,
                "how": reading.how.of(checked.index), "repairs": checked.repairs,
                "faults": checked.faults.iter().map(described).collect::<Vec<_>>(),
            })
        })
        .collect();
    let found = found(reading, notes);
    json!({
        "dialect": reading.selection,
        "found": found.iter().map(|(name, calls)| json!({"dialect": name, "calls": calls})).collect::<Vec<_>>(),
        "marks": marks, "calls": calls,
        "faults": reading.faults().iter().map(described).collect::<Vec<_>>(),
        "feedback": reading.feedback(),
    })
}

impl Note {
    fn role(&self) -> &'static str {
        match self.taken {
            Taken::Mark(MarkRole::Call) => "call",
            Taken::Mark(MarkRole::Wrapper) => "wrapper",
            Taken::Mark(MarkRole::Thought) => "thought",
            Taken::Mark(MarkRole::Mention) => "mention",
            Taken::Mark(MarkRole::Content) => "content",
            Taken::Open => "open",
            Taken::Name => "name",
            Taken::Argument(_) => "argument",
            Taken::Value(..) => "value",
            Taken::End => "end",
            Taken::Cut => "cut",
        }
    }

    fn argument(&self) -> Option<&str> {
        match &self.taken {
            Taken::Argument(name) | Taken::Value(name, _) => Some(name),
            _ => None,
        }
    }

    fn words(&self) -> String {
        match &self.taken {
            Taken::Mark(MarkRole::Call) => "opens a call".to_owned(),
            Taken::Mark(MarkRole::Wrapper) => "stands around calls".to_owned(),
            Taken::Mark(MarkRole::Thought) => "opens or closes a thought".to_owned(),
            Taken::Mark(MarkRole::Mention) => "only mentions a call".to_owned(),
            Taken::Mark(MarkRole::Content) => "is content, although it looks like an end".to_owned(),
            Taken::Open => "opens the call's name".to_owned(),
            Taken::Name => "names the tool".to_owned(),
            Taken::Argument(name) => format!("opens the argument `{name}`"),
            Taken::Value(name, true) => format!("is the value of `{name}`"),
            Taken::Value(name, false) => format!("is what there is of the value of `{name}`"),
            Taken::End => "closes the call".to_owned(),
            Taken::Cut => "cuts the call".to_owned(),
        }
    }
}

fn word(sure: Certainty) -> &'static str {
    match sure {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::Guess => "guess",
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::{Fault, FaultKind, Span};

    use super::Places;

    #[test]
    fn places_are_those_of_faults() {
        for source in ["", "a", "a\nb\r\nc\rd\n\n\r\r\né🌍x\u{2028}y", "\r\n\r\n\r"] {
            let mut places = Places::new(source);
            for (at, _) in source.char_indices().chain([(source.len(), ' ')]) {
                let fault = Fault::error(FaultKind::Limit, Span::new(at, at), "");
                let place = fault.place(source);
                assert_eq!(places.of(at), (place.line, place.column), "{source:?} at {at}");
            }
        }
    }
}
