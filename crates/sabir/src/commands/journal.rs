//! Implements `log`: shows the records of a journal. Secrets are redacted here too, since journals
//! of earlier versions contain them.

use std::time::Duration;

use sabir_agent::{
    Record, SubtaskEnd, TaskEvent, TaskId, TaskOrigin, TaskOutcome, TaskStart, UsageTotals,
};
use sabir_call::redact;
use sabir_journal::{JournalEntry, JournalTail};
use serde_json::json;

use crate::cli::{LogArguments, OutputFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::event_renderer::EventRenderer;
use crate::output::{cost_text, print};
use crate::surroundings;
use sabir_session::pictures;

/// The interval at which a followed journal is read.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum length of a call's arguments in a log, in characters.
const MAX_ARGUMENT_CHARS: usize = 200;

/// Reads the entries of a task, given its id or the beginning of it. Reports damage of the journal
/// on standard error.
pub(crate) fn read_entries(name: &str) -> Result<(TaskId, Vec<JournalEntry>), CommandError> {
    let folder = surroundings::tasks_folder()?;
    let id = sabir_session::find_task(&folder, name)?;
    let (entries, recovery) = sabir_journal::read_journal(&folder, &id)
        .map_err(|error| CommandError::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::write_stderr(&print::sanitize_text(&format!("sabir: {recovery}\n")));
    }
    Ok((id, entries))
}

/// Returns the start record of the task.
pub(crate) fn task_start<'a>(
    id: &TaskId,
    entries: &'a [JournalEntry],
) -> Result<&'a TaskStart, CommandError> {
    match entries.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => Ok(start),
        _ => Err(CommandError::usage(format!(
            "the journal of {id} does not begin with the start of a task"
        ))),
    }
}

/// Runs `sabir log`.
pub(crate) fn run_log(arguments: &LogArguments) -> Result<ExitStatus, CommandError> {
    let (first, last) = arguments
        .records
        .as_deref()
        .map_or(Ok((1, u64::MAX)), parse_range)?;
    let mut printer = LogPrinter {
        renderer: EventRenderer::default(),
        output: arguments.output,
        first,
        last,
        number: 0,
    };
    if arguments.follow {
        return follow_log(&arguments.task, printer);
    }
    let (id, entries) = read_entries(&arguments.task)?;
    let mut totals = UsageTotals::default();
    entries
        .iter()
        .for_each(|entry| totals.add_record(&entry.record));
    if arguments.output == OutputFormat::Json {
        let entries: Vec<_> = (1..)
            .zip(&entries)
            .filter(|(number, _)| (first..=last).contains(number))
            .collect();
        print::print_redacted_json(&json!({
            "task": id, "records": entries.iter().map(|(_, entry)| entry).collect::<Vec<_>>(),
            "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        }));
        return Ok(ExitStatus::Completed);
    }
    entries.iter().for_each(|entry| printer.print_entry(entry));
    if arguments.output == OutputFormat::Text {
        print::write_stdout(&format!("in all: {}\n", cost_text::usage_text(&totals)));
    }
    Ok(ExitStatus::Completed)
}

/// Prints the records and those that follow, until no process works on the task any more.
fn follow_log(name: &str, mut printer: LogPrinter) -> Result<ExitStatus, CommandError> {
    if printer.output == OutputFormat::Json {
        return Err(CommandError::usage(
            "one object cannot be followed: give --output text or --output events",
        ));
    }
    let folder = surroundings::tasks_folder()?;
    let fail = |error: sabir_journal::JournalError| CommandError::usage(error.to_string());
    let mut tail =
        JournalTail::open(&folder, &sabir_session::find_task(&folder, name)?).map_err(fail)?;
    loop {
        // The lock is checked before the journal is read, so that the last records are not missed.
        let works = tail.lock_owner().is_some();
        tail.read_new_entries()
            .map_err(fail)?
            .iter()
            .for_each(|entry| printer.print_entry(entry));
        if !works || printer.number >= printer.last {
            return Ok(ExitStatus::Completed);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// Parses a range of records: `3..7`, `3..`, `..7` or `5`.
fn parse_range(text: &str) -> Result<(u64, u64), CommandError> {
    let wrong = || {
        CommandError::usage(format!(
            "`{text}` is no range of records: write `3..7`, `3..`, `..7` or `5`, counted from 1"
        ))
    };
    let number = |text: &str, missing: u64| {
        if text.is_empty() {
            Some(missing)
        } else {
            text.parse().ok()
        }
    };
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (number(first, 1), number(last, u64::MAX)) {
        (Some(first), Some(last)) if 0 < first && first <= last && !text.is_empty() => {
            Ok((first, last))
        }
        _ => Err(wrong()),
    }
}

/// Prints records as text or JSON lines.
struct LogPrinter {
    renderer: EventRenderer,
    output: OutputFormat,
    first: u64,
    last: u64,
    /// The number of the last record seen.
    number: u64,
}

impl LogPrinter {
    fn print_entry(&mut self, entry: &JournalEntry) {
        self.number += 1;
        let wanted = (self.first..=self.last).contains(&self.number);
        if self.output != OutputFormat::Text {
            if wanted {
                print::print_redacted_json(entry);
            }
            return;
        }
        // The renderer must see every record, because it learns the calls from the answers.
        let mut text = self.renderer.render_event(TaskEvent::Record(&entry.record));
        text.push_str(&record_details(&entry.record));
        if wanted {
            print::write_stdout(&redact::redact_text(&number_lines(self.number, &text)));
        }
    }
}

/// Puts the number of a record before the first line of its text and indents the others.
fn number_lines(number: u64, text: &str) -> String {
    let head =
        std::iter::once(format!("{number:>4}  ")).chain(std::iter::repeat("      ".to_owned()));
    let lines = text
        .trim_matches('\n')
        .lines()
        .map(|line| format!("{line}\n"));
    head.zip(lines).map(|(head, line)| head + &line).collect()
}

/// Renders the parts of a record that a live task shows as deltas, which a journal does not have.
fn record_details(record: &Record) -> String {
    use sabir_call::MessagePart;
    let text = match record {
        Record::Started(start) => {
            let folder = if start.workspace.is_empty() {
                "a folder that is not known"
            } else {
                &start.workspace
            };
            format!("in {folder}\n{}> {}\n", origin_line(start), start.prompt)
        }
        Record::Said {
            by: sabir_agent::MessageAuthor::User,
            text,
            images,
            ..
        } => {
            format!("> {}\n", pictures::with_image_notes(text, images))
        }
        Record::Answered(answered) => {
            let parts = answered.parts.iter().filter_map(|part| match part {
                MessagePart::Text { text } => Some(format!("{}\n", text.trim_end())),
                MessagePart::Call(call) => Some(format!(
                    "● {} {}\n",
                    call.name,
                    short_arguments(&call.arguments)
                )),
                _ => None,
            });
            parts.chain([usage_line(record)]).collect()
        }
        Record::Failed(_) => usage_line(record),
        Record::Judged {
            verdict,
            by,
            reason,
            ..
        } => {
            format!(
                "  {} by the {}: {reason}\n",
                json_word(verdict),
                json_word(by)
            )
        }
        Record::Running { call, .. } => format!("  running {call}\n"),
        Record::Subtask {
            task, ended: None, ..
        } => format!("  subtask {task} begins\n"),
        Record::Subtask {
            task,
            ended: Some(end),
            ..
        } => subtask_line(task, end),
        Record::Ended { outcome, message } => {
            format!("ended ({}): {message}\n", json_word(outcome))
        }
        _ => String::new(),
    };
    print::sanitize_text(&text)
}

/// Describes the end of a subtask and its usage.
pub(crate) fn subtask_line(task: &TaskId, end: &SubtaskEnd) -> String {
    let SubtaskEnd {
        outcome,
        turns,
        usage,
        estimate,
        cost,
    } = *end;
    let how = if outcome == TaskOutcome::Completed {
        "is completed".to_owned()
    } else {
        format!("ended: {}", json_word(&outcome))
    };
    let turns = print::count_noun(turns as usize, "turn");
    format!(
        "  subtask {task} {how}; {turns}, {}\n",
        cost_text::usage_text(&UsageTotals {
            usage,
            estimate,
            cost
        })
    )
}

/// Describes the origin of a task; empty for most.
fn origin_line(start: &TaskStart) -> String {
    match &start.from {
        Some(TaskOrigin::Fork { task, record }) => format!("forked from {task}, record {record}\n"),
        Some(TaskOrigin::Import {
            program,
            source,
            notes,
        }) => {
            let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
            format!("imported from {program}: {source}\n{notes}")
        }
        Some(TaskOrigin::Subtask { task, call, .. }) => {
            format!("subtask of {task}, for its call {call}\n")
        }
        _ => String::new(),
    }
}

/// Renders arguments on one line, cut to [`MAX_ARGUMENT_CHARS`].
fn short_arguments(arguments: &serde_json::Map<String, serde_json::Value>) -> String {
    let text = serde_json::to_string(arguments).unwrap_or_default();
    match text.char_indices().nth(MAX_ARGUMENT_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Renders the usage of one record; empty if it has none.
fn usage_line(record: &Record) -> String {
    let mut totals = UsageTotals::default();
    totals.add_record(record);
    if totals == UsageTotals::default() {
        String::new()
    } else {
        format!("  {}\n", cost_text::usage_text(&totals))
    }
}

/// Returns the JSON name of an outcome, a verdict or a decision maker.
pub(crate) fn json_word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{number_lines, parse_range};

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
            assert_eq!(parse_range(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_stand_before_the_first_line() {
        assert_eq!(number_lines(7, "\na\n b\n"), "   7  a\n       b\n");
        assert_eq!(number_lines(7, ""), "");
    }
}
