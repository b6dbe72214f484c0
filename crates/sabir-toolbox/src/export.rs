//! Writes a task as a document: the command `export`. Known secret formats are redacted before anything else is done to a text.

use std::io::{self, Write};

use sabir_agent::{MessageAuthor, Record, TaskOrigin, TaskOutcome, TaskStart};
use sabir_call::{MessagePart, redact};
use sabir_journal::JournalEntry;
use serde_json::{Value, json};

use crate::task_log::{subtask_line, sum_usage};
use crate::text::{json_variant_name, usage_text};
use crate::timestamps;

mod html;
mod markdown;

/// The format of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// Markdown.
    #[default]
    Markdown,
    /// One JSON object with all records.
    Json,
    /// One file for a browser.
    Html,
}

impl ExportFormat {
    /// Returns the format of files with this extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "md" | "markdown" => Some(Self::Markdown),
            "json" => Some(Self::Json),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

/// Renders a task whose first record is `start`. The document is safe to show as it is: no text in it can become markup.
pub fn render_task(start: &TaskStart, entries: &[JournalEntry], format: ExportFormat) -> String {
    match format {
        // Redacted as a whole: no field that a later version adds can be forgotten.
        ExportFormat::Json => {
            redact::redact_json(&format!("{:#}\n", to_json(start, entries))).into_owned()
        }
        ExportFormat::Markdown => markdown::render_markdown(&build_document(start, entries)),
        ExportFormat::Html => html::render_html(&build_document(start, entries)),
    }
}

/// Writes a task as [`render_task`] renders it.
///
/// # Errors
/// The error of the writer.
pub fn write_task(
    start: &TaskStart,
    entries: &[JournalEntry],
    format: ExportFormat,
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(render_task(start, entries, format).as_bytes())
}

/// A task in the form that all document formats are rendered from.
struct ExportDocument {
    /// The first line of the prompt.
    title: String,
    /// Facts about the task: names and values.
    facts: Vec<(&'static str, String)>,
    sections: Vec<DocumentSection>,
}

/// A section of the document, made of one record.
struct DocumentSection {
    /// The number of the record, counted from 1.
    number: u64,
    /// The time of the record as text.
    at: String,
    title: String,
    pieces: Vec<SectionPiece>,
}

/// A piece of a section and its style.
enum SectionPiece {
    /// Text of the model, which is usually Markdown.
    Markdown(String),
    /// Verbatim text: arguments, results, messages of the user.
    Exact {
        /// The label; empty if the section's title suffices.
        label: String,
        text: String,
    },
    /// A remark by Sabir on one line.
    Note(String),
}

/// Returns the outcome and message of a task that has ended.
fn final_outcome(entries: &[JournalEntry]) -> Option<(TaskOutcome, &str)> {
    match entries.last().map(|entry| &entry.record) {
        Some(Record::Ended {
            outcome, message, ..
        }) => Some((*outcome, message)),
        _ => None,
    }
}

/// Converts the task into one JSON object, in the form described in `docs/journal.md`.
fn to_json(start: &TaskStart, entries: &[JournalEntry]) -> Value {
    let numbered = |(number, entry): (u64, &JournalEntry)| {
        let mut record = json!({"number": number});
        // The fields follow the number, in the form that the journal has.
        if let (Some(record), Ok(Value::Object(fields))) =
            (record.as_object_mut(), serde_json::to_value(entry))
        {
            record.extend(fields);
        }
        record
    };
    let totals = sum_usage(entries);
    let ended = final_outcome(entries);
    json!({
        "format": "sabir task", "version": 1, "task": start,
        "started_at": entries.first().map(|entry| entry.at), "last_at": entries.last().map(|entry| entry.at),
        "outcome": ended.map(|(outcome, _)| outcome), "message": ended.map(|(_, message)| message),
        "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        "records": (1..).zip(entries).map(numbered).collect::<Vec<_>>(),
    })
}

/// Builds the document of a task, with secrets redacted.
fn build_document(start: &TaskStart, entries: &[JournalEntry]) -> ExportDocument {
    let clean = |text: &str| redact::redact_text(text).into_owned();
    let mut facts = vec![
        ("Task", start.task.to_string()),
        ("Model", clean(&start.model)),
        ("Protocol", start.protocol.name().to_owned()),
        ("Folder", clean(&start.workspace)),
        (
            "Begun",
            entries
                .first()
                .map(|entry| timestamps::format_timestamp(entry.at))
                .unwrap_or_default(),
        ),
        (
            "Ended",
            final_outcome(entries).map_or_else(
                || "not yet".to_owned(),
                |(outcome, _)| json_variant_name(&outcome),
            ),
        ),
        ("In all", usage_text(&sum_usage(entries))),
    ];
    match &start.from {
        Some(TaskOrigin::Fork { task, record }) => {
            facts.push(("Forked from", format!("{task}, record {record}")))
        }
        Some(TaskOrigin::Import {
            program,
            source,
            notes,
        }) => {
            facts.push(("Imported from", clean(&format!("{program}: {source}"))));
            facts.extend(notes.iter().map(|note| ("Note", clean(note))));
        }
        Some(TaskOrigin::Subtask { task, call, .. }) => {
            facts.push(("Subtask of", format!("{task}, for its call {call}")))
        }
        _ => {}
    }
    // An imported task may lack its folder, and an empty journal its times.
    facts.retain(|(_, value)| !value.is_empty());
    // Redacted before it is cut: half a secret is no longer recognised.
    let title: String = clean(&start.prompt)
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(80)
        .collect();
    let sections = (1..)
        .zip(entries)
        .filter_map(|(number, entry)| build_section(number, entry))
        .collect();
    ExportDocument {
        title,
        facts,
        sections,
    }
}

/// Builds the section of a record; `None` if the records around it say the same.
fn build_section(number: u64, entry: &JournalEntry) -> Option<DocumentSection> {
    let exact = |label: &str, text: &str| SectionPiece::Exact {
        label: label.to_owned(),
        text: redact::redact_text(text).into_owned(),
    };
    let (title, pieces) =
        match &entry.record {
            Record::Started(start) => ("User".to_owned(), vec![exact("", &start.prompt)]),
            Record::Said {
                by: MessageAuthor::User,
                text,
                images,
                ..
            } => {
                let words = (!text.is_empty()).then(|| exact("", text)).into_iter();
                let shown = images.iter().map(|image| {
                    SectionPiece::Note(image_note(&image.media_type, image.data.len()))
                });
                ("User".to_owned(), words.chain(shown).collect())
            }
            Record::Said {
                by: MessageAuthor::Sabir,
                text,
                ..
            } => ("Told to the model".to_owned(), vec![exact("", text)]),
            Record::Answered(answered) => {
                let mut pieces: Vec<_> = answered.parts.iter().map(build_piece).collect();
                // A refused call does not run, so the reason goes with the answer.
                for check in answered.checks.iter().filter(|check| !check.passed) {
                    pieces.push(exact(
                        &format!("refused: {}", check.call),
                        &check.feedback_text(),
                    ));
                }
                (format!("Model, turn {}", answered.turn), pieces)
            }
            Record::Failed(failed) => (
                "The model did not answer".to_owned(),
                vec![exact("", &failed.message)],
            ),
            Record::Judged {
                call,
                verdict,
                by,
                reason,
            } => {
                let verdict = json_variant_name(verdict);
                let by = json_variant_name(by);
                let note = redact::redact_text(&format!("{call}: {verdict} by the {by}: {reason}"))
                    .into_owned();
                (
                    "Judgement".to_owned(),
                    vec![SectionPiece::Note(one_line(&note))],
                )
            }
            // The result says that the call ran, and the end of a subtask that it began.
            Record::Running { .. } | Record::Subtask { ended: None, .. } => return None,
            Record::Subtask {
                task,
                ended: Some(end),
                ..
            } => {
                let words = subtask_line(task, end);
                (
                    format!("Subtask {task}"),
                    vec![SectionPiece::Note(one_line(&format!(
                        "{words} (`sabir export {task}` writes it)"
                    )))],
                )
            }
            Record::Result(result) => {
                let ending = json_variant_name(&result.ending);
                let mut pieces = vec![exact("", &result.content)];
                pieces.extend(result.images.iter().map(|image| {
                    SectionPiece::Note(image_note(&image.media_type, image.data.len()))
                }));
                (
                    format!("Result of {} ({ending})", one_line(&result.name)),
                    pieces,
                )
            }
            Record::Ended {
                outcome, message, ..
            } => (
                format!("Ended: {}", json_variant_name(outcome)),
                vec![exact("", message)],
            ),
            // Records of later versions are shown raw, because the document would otherwise look
            // complete without them.
            other => {
                let text = serde_json::to_string_pretty(other).unwrap_or_default();
                let title = if matches!(other, Record::Context(_)) {
                    "Context"
                } else {
                    "Another record"
                };
                (
                    title.to_owned(),
                    vec![exact("json", &redact::redact_json(&text))],
                )
            }
        };
    Some(DocumentSection {
        number,
        at: timestamps::format_timestamp(entry.at),
        title,
        pieces,
    })
}

/// Builds the piece of a section for a part of an answer.
fn build_piece(part: &MessagePart) -> SectionPiece {
    let clean = |text: &str| redact::redact_text(text).into_owned();
    match part {
        MessagePart::Text { text } => SectionPiece::Markdown(clean(text)),
        MessagePart::Thought { text, .. } => SectionPiece::Exact {
            label: "thought".to_owned(),
            text: clean(text),
        },
        MessagePart::Call(call) => {
            // Indented for people: the exact spelling is in the JSON export.
            let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
            let label = one_line(&format!("call {} ({})", call.name, call.id));
            SectionPiece::Exact {
                label,
                text: redact::redact_json(&arguments).into_owned(),
            }
        }
        MessagePart::Image(image) => {
            SectionPiece::Note(image_note(&image.media_type, image.data.len()))
        }
        MessagePart::ImageUrl { url } => {
            SectionPiece::Note(one_line(&clean(&format!("a picture at {url}"))))
        }
        // Only its provider can use the state, which may be large.
        MessagePart::Opaque(opaque) => SectionPiece::Note(one_line(&format!(
            "state of the provider ({})",
            opaque.wire
        ))),
        other => {
            let text = serde_json::to_string_pretty(other).unwrap_or_default();
            SectionPiece::Exact {
                label: "another part".to_owned(),
                text: redact::redact_json(&text).into_owned(),
            }
        }
    }
}

/// Describes a picture; its size follows from the number of base64 characters.
fn image_note(media_type: &str, characters: usize) -> String {
    one_line(&format!(
        "a picture ({media_type}, {} bytes); the JSON export has it",
        characters / 4 * 3
    ))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
