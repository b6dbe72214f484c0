//! Shows the records of a journal: the command `log`. Secrets are redacted here too, since journals of earlier versions contain them.

use std::io::{self, Write};

use sabir_agent::{
    MessageAuthor, Record, SubtaskEnd, TaskId, TaskOrigin, TaskOutcome, TaskStart, UsageTotals,
};
use sabir_call::{Cost, Image, MessagePart, Usage, redact};
use sabir_journal::JournalEntry;
use serde::Serialize;

use crate::error::ToolboxError;
use crate::report::{ReportFormat, write_redacted_line};
use crate::text::{count_noun, json_variant_name, usage_text};

/// The maximum length of a call's arguments in a log, in characters.
const MAX_ARGUMENT_CHARS: usize = 200;

/// A range of records, counted from 1; both ends are part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRange {
    /// The first record.
    pub first: u64,
    /// The last record.
    pub last: u64,
}

impl Default for RecordRange {
    /// All records.
    fn default() -> Self {
        Self {
            first: 1,
            last: u64::MAX,
        }
    }
}

impl RecordRange {
    /// Parses a range: `3..7`, `3..`, `..7` or `5`.
    ///
    /// # Errors
    /// The text has another form, or the range is empty.
    pub fn parse(text: &str) -> Result<Self, ToolboxError> {
        let number = |text: &str, missing: u64| {
            if text.is_empty() {
                Some(missing)
            } else {
                text.parse().ok()
            }
        };
        // A single number is the range from itself to itself.
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (number(first, 1), number(last, u64::MAX)) {
            (Some(first), Some(last)) if 0 < first && first <= last && !text.is_empty() => {
                Ok(Self { first, last })
            }
            _ => Err(ToolboxError::RecordRange(text.to_owned())),
        }
    }

    /// Returns true for a record of the range.
    pub fn contains(self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

/// Renders records as a live task shows them, for the text of a log.
///
/// The texts of a journal come from models and tools. [`clean_text`](Self::clean_text) is called before a text is split into lines,
/// so that a character that a terminal takes for a line break cannot escape the indentation.
pub trait RecordRenderer {
    /// Renders a record. It gets every record in order, because later ones refer to earlier ones.
    fn render_record(&mut self, record: &Record) -> String;

    /// Cleans a text for the output.
    fn clean_text(&self, text: &str) -> String;
}

/// Writes the records of a task as they come.
pub struct LogWriter<'r> {
    renderer: &'r mut dyn RecordRenderer,
    format: ReportFormat,
    range: RecordRange,
    /// The number of the last record seen.
    number: u64,
}

impl<'r> LogWriter<'r> {
    /// Creates a writer of the records in this range. As JSON, each record is a line of its own; see [`LogReport`] for one
    /// object.
    pub fn new(
        renderer: &'r mut dyn RecordRenderer,
        format: ReportFormat,
        range: RecordRange,
    ) -> Self {
        Self {
            renderer,
            format,
            range,
            number: 0,
        }
    }

    /// Writes the next record, if it is in the range.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn write_entry(&mut self, entry: &JournalEntry, out: &mut dyn Write) -> io::Result<()> {
        self.number += 1;
        let wanted = self.range.contains(self.number);
        if self.format != ReportFormat::Text {
            return if wanted {
                write_redacted_line(entry, out)
            } else {
                Ok(())
            };
        }
        // Records outside the range are rendered too: the renderer learns the calls from the
        // answers.
        let mut text = self.renderer.render_record(&entry.record);
        text.push_str(&self.renderer.clean_text(&record_details(&entry.record)));
        if !wanted {
            return Ok(());
        }
        // Redacted last, so that a secret is found even where parts of the text came together late.
        let text = number_lines(self.number, &text);
        out.write_all(redact::redact_text(&text).as_bytes())?;
        // A follower sees each record at once.
        out.flush()
    }

    /// Returns true if no later record is in the range.
    pub fn is_past_range(&self) -> bool {
        self.number >= self.range.last
    }
}

/// The report of `log` as one JSON object.
#[derive(Debug, Serialize)]
pub struct LogReport<'a> {
    /// The id of the task.
    pub task: &'a TaskId,
    /// The records in the range.
    pub records: Vec<&'a JournalEntry>,
    /// The reported tokens of the whole task.
    pub usage: Usage,
    /// Estimates for answers without reported tokens.
    pub estimate: Usage,
    /// The cost of the whole task.
    pub cost: Cost,
}

impl<'a> LogReport<'a> {
    /// Collects the records in the range, and the totals of all records.
    pub fn new(task: &'a TaskId, entries: &'a [JournalEntry], range: RecordRange) -> Self {
        let totals = sum_usage(entries);
        Self {
            task,
            records: (1..)
                .zip(entries)
                .filter(|(number, _)| range.contains(*number))
                .map(|(_, entry)| entry)
                .collect(),
            usage: totals.usage,
            estimate: totals.estimate,
            cost: totals.cost,
        }
    }

    /// Writes the object on one line.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_redacted_line(self, out)
    }
}

/// Adds up the usage and cost of all records.
pub fn sum_usage(entries: &[JournalEntry]) -> UsageTotals {
    let mut totals = UsageTotals::default();
    for entry in entries {
        totals.add_record(&entry.record);
    }
    totals
}

/// Puts the number of a record before the first line of its text and indents the others.
fn number_lines(number: u64, text: &str) -> String {
    let head =
        std::iter::once(format!("{number:>4}  ")).chain(std::iter::repeat("      ".to_owned()));
    let lines = text
        // A live task puts blank lines between events, which a numbered list does not need.
        .trim_matches('\n')
        .lines()
        .map(|line| format!("{line}\n"));
    // `zip` ends with the lines; the heads never end.
    head.zip(lines).map(|(head, line)| head + &line).collect()
}

/// Renders the parts of a record that a live task shows as deltas, which a journal does not have.
fn record_details(record: &Record) -> String {
    match record {
        Record::Started(start) => {
            let folder = if start.workspace.is_empty() {
                "a folder that is not known"
            } else {
                &start.workspace
            };
            format!("in {folder}\n{}> {}\n", origin_line(start), start.prompt)
        }
        Record::Said {
            by: MessageAuthor::User,
            text,
            images,
            ..
        } => {
            format!("> {}\n", with_image_notes(text, images))
        }
        Record::Answered(answered) => {
            // Thoughts and opaque state are left out: the log shows what the model said and did.
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
                json_variant_name(verdict),
                json_variant_name(by)
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
        Record::Ended {
            outcome, message, ..
        } => {
            format!("ended ({}): {message}\n", json_variant_name(outcome))
        }
        _ => String::new(),
    }
}

/// Appends a line about each picture to the words of a message.
fn with_image_notes(text: &str, images: &[Image]) -> String {
    let notes = images.iter().map(|image| {
        // Base64 has four characters for three bytes.
        let size = count_noun(image.data.len() / 4 * 3, "byte");
        format!("[a picture: {}, {size}]", image.media_type)
    });
    let text = Some(text.to_owned()).filter(|text| !text.is_empty());
    text.into_iter().chain(notes).collect::<Vec<_>>().join("\n")
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
        format!("ended: {}", json_variant_name(&outcome))
    };
    let turns = count_noun(turns as usize, "turn");
    format!(
        "  subtask {task} {how}; {turns}, {}\n",
        usage_text(&UsageTotals {
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
    // Arguments may hold whole files; the JSON forms of the log have all of them.
    match text.char_indices().nth(MAX_ARGUMENT_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Renders the usage of one record; empty if it has none.
fn usage_line(record: &Record) -> String {
    let mut totals = UsageTotals::default();
    totals.add_record(record);
    // A record without usage gets no line, rather than one of question marks.
    if totals == UsageTotals::default() {
        String::new()
    } else {
        format!("  {}\n", usage_text(&totals))
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordRange, number_lines};

    #[test]
    fn record_ranges_are_parsed() {
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
            let expected = expected.map(|(first, last)| RecordRange { first, last });
            assert_eq!(RecordRange::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn record_numbers_precede_the_first_line() {
        assert_eq!(number_lines(7, "\na\n b\n"), "   7  a\n       b\n");
        assert_eq!(number_lines(7, ""), "");
    }
}
