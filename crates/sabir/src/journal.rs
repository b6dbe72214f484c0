//! `log`: what a journal says. Secrets leave here as well: journals of earlier versions hold them.

use std::time::Duration;

use sabir_agent::{Origin, Outcome, Record, Start, SubtaskEnd, TaskEvent, TaskId, Totals};
use sabir_call::redact;
use sabir_journal::{Entry, Tail};
use serde_json::json;

use crate::cli::{LogArguments, Output};
use crate::exit::{Exit, Failure};
use crate::screen::Painter;
use crate::surroundings;
use crate::{print, spent};
use sabir_session::pictures;

/// How often a journal that is followed is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// Arguments of a call that a log shows, in characters.
const SHOWN: usize = 200;

/// The entries of a task, by its name or the beginning of it. What is wrong with the journal is said on standard error.
pub(crate) fn entries(name: &str) -> Result<(TaskId, Vec<Entry>), Failure> {
    let folder = surroundings::tasks_folder()?;
    let id = sabir_session::find_task(&folder, name)?;
    let (entries, recovery) = sabir_journal::read(&folder, &id).map_err(|error| Failure::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::err(&print::visible(&format!("sabir: {recovery}\n")));
    }
    Ok((id, entries))
}

/// How the task of these entries began.
pub(crate) fn start<'a>(id: &TaskId, entries: &'a [Entry]) -> Result<&'a Start, Failure> {
    match entries.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => Ok(start),
        _ => Err(Failure::usage(format!("the journal of {id} does not begin with the start of a task"))),
    }
}

/// `sabir log`.
pub(crate) fn log(arguments: &LogArguments) -> Result<Exit, Failure> {
    let (first, last) = arguments.records.as_deref().map_or(Ok((1, u64::MAX)), range)?;
    let mut printer = Printer { painter: Painter::default(), output: arguments.output, first, last, number: 0 };
    if arguments.follow {
        return follow(&arguments.task, printer);
    }
    let (id, entries) = entries(&arguments.task)?;
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.note(&entry.record));
    if arguments.output == Output::Json {
        let entries: Vec<_> = (1..).zip(&entries).filter(|(number, _)| (first..=last).contains(number)).collect();
        print::redacted(&json!({
            "task": id, "records": entries.iter().map(|(_, entry)| entry).collect::<Vec<_>>(),
            "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        }));
        return Ok(Exit::Completed);
    }
    entries.iter().for_each(|entry| printer.print(entry));
    if arguments.output == Output::Text {
        print::out(&format!("in all: {}\n", spent::words(&totals)));
    }
    Ok(Exit::Completed)
}

/// Prints what is there and what comes, until nobody works on the task any more.
fn follow(name: &str, mut printer: Printer) -> Result<Exit, Failure> {
    if printer.output == Output::Json {
        return Err(Failure::usage("one object cannot be followed: give --output text or --output events"));
    }
    let folder = surroundings::tasks_folder()?;
    let fail = |error: sabir_journal::JournalError| Failure::usage(error.to_string());
    let mut tail = Tail::open(&folder, &sabir_session::find_task(&folder, name)?).map_err(fail)?;
    loop {
        // Asked before the journal is read, so that what was written last is not missed.
        let works = tail.holder().is_some();
        tail.read().map_err(fail)?.iter().for_each(|entry| printer.print(entry));
        if !works || printer.number >= printer.last {
            return Ok(Exit::Completed);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The first and the last number of `3..7`, `3..`, `..7` or `5`.
fn range(text: &str) -> Result<(u64, u64), Failure> {
    let wrong = || {
        Failure::usage(format!("`{text}` is no range of records: write `3..7`, `3..`, `..7` or `5`, counted from 1"))
    };
    let number = |text: &str, missing: u64| if text.is_empty() { Some(missing) } else { text.parse().ok() };
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (number(first, 1), number(last, u64::MAX)) {
        (Some(first), Some(last)) if 0 < first && first <= last && !text.is_empty() => Ok((first, last)),
        _ => Err(wrong()),
    }
}

/// Records as text or lines, each with its number.
struct Printer {
    painter: Painter,
    output: Output,
    first: u64,
    last: u64,
    /// That of the last record that came.
    number: u64,
}

impl Printer {
    fn print(&mut self, entry: &Entry) {
        self.number += 1;
        let wanted = (self.first..=self.last).contains(&self.number);
        if self.output != Output::Text {
            if wanted {
                print::redacted(entry);
            }
            return;
        }
        // The painter has to see every record: it knows calls by their answers.
        let mut text = self.painter.paint(TaskEvent::Record(&entry.record));
        text.push_str(&words(&entry.record));
        if wanted {
            print::out(&redact::text(&numbered(self.number, &text)));
        }
    }
}

/// The text of a record, with its number before the first line.
fn numbered(number: u64, text: &str) -> String {
    let head = std::iter::once(format!("{number:>4}  ")).chain(std::iter::repeat("      ".to_owned()));
    let lines = text.trim_matches('\n').lines().map(|line| format!("{line}\n"));
    head.zip(lines).map(|(head, line)| head + &line).collect()
}

/// What a log says beyond what a live task shows, whose deltas are gone.
fn words(record: &Record) -> String {
    use sabir_call::Part;
    let text = match record {
        Record::Started(start) => {
            let folder = if start.workspace.is_empty() { "a folder that is not known" } else { &start.workspace };
            format!("in {folder}\n{}> {}\n", origin(start), start.prompt)
        }
        Record::Said { by: sabir_agent::Speaker::User, text, images, .. } => {
            format!("> {}\n", pictures::beside(text, images))
        }
        Record::Answered(answered) => {
            let parts = answered.parts.iter().filter_map(|part| match part {
                Part::Text { text } => Some(format!("{}\n", text.trim_end())),
                Part::Call(call) => Some(format!("● {} {}\n", call.name, brief(&call.arguments))),
                _ => None,
            });
            parts.chain([told(record)]).collect()
        }
        Record::Failed(_) => told(record),
        Record::Judged { verdict, by, reason, .. } => {
            format!("  {} by the {}: {reason}\n", word(verdict), word(by))
        }
        Record::Running { call, .. } => format!("  running {call}\n"),
        Record::Subtask { task, ended: None, .. } => format!("  subtask {task} begins\n"),
        Record::Subtask { task, ended: Some(end), .. } => subtask(task, end),
        Record::Ended { outcome, message } => format!("ended ({}): {message}\n", word(outcome)),
        _ => String::new(),
    };
    print::visible(&text)
}

/// How a subtask ended, and what it took.
pub(crate) fn subtask(task: &TaskId, end: &SubtaskEnd) -> String {
    let SubtaskEnd { outcome, turns, usage, estimate, cost } = *end;
    let how =
        if outcome == Outcome::Completed { "is completed".to_owned() } else { format!("ended: {}", word(&outcome)) };
    let turns = print::counted(turns as usize, "turn");
    format!("  subtask {task} {how}; {turns}, {}\n", spent::words(&Totals { usage, estimate, cost }))
}

/// Where a task comes from, as a line; nothing for most.
fn origin(start: &Start) -> String {
    match &start.from {
        Some(Origin::Fork { task, record }) => format!("forked from {task}, record {record}\n"),
        Some(Origin::Import { program, source, notes }) => {
            let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
            format!("imported from {program}: {source}\n{notes}")
        }
        Some(Origin::Subtask { task, call, .. }) => format!("subtask of {task}, for its call {call}\n"),
        _ => String::new(),
    }
}

/// Arguments on one line, the rest of long ones left out.
fn brief(arguments: &serde_json::Map<String, serde_json::Value>) -> String {
    let text = serde_json::to_string(arguments).unwrap_or_default();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// What one answer took.
fn told(record: &Record) -> String {
    let mut totals = Totals::default();
    totals.note(record);
    if totals == Totals::default() { String::new() } else { format!("  {}\n", spent::words(&totals)) }
}

/// An outcome, a verdict or a judge as JSON writes it.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{numbered, range};

    #[test]
    fn ranges() {
        for (text, expected) in [
            ("5", Some((5, 5))),
            ("3..7", Some((3, 7))),
            ("3..", Some((3, u64::MAX))),
            ("..7", Some((1, 7))),
            ("..", Some((1, u64::MAX))),
            ("", None),
            ("0", None),
            ("0..2", None),
            ("7..3", None),
            ("a..b", None),
            ("-1", None),
        ] {
            assert_eq!(range(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_stand_before_the_first_line() {
        assert_eq!(numbered(7, "\na\n b\n"), "   7  a\n       b\n");
        assert_eq!(numbered(7, ""), "");
    }
}
