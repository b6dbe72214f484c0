//! `export`: a task as a document. What has the shape of a secret is left out before anything else is done to a text.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sabir_agent::{Origin, Outcome, Record, Speaker, Start, Totals};
use sabir_call::{Part, redact};
use sabir_journal::Entry;
use serde_json::{Value, json};

use crate::cli::{ExportArguments, ExportForm};
use crate::exit::{Exit, Failure};
use crate::{journal, print, spent, time};

mod html;
mod markdown;

/// A task, ready to be written.
struct Document {
    /// The first line of the user's first words.
    title: String,
    /// What is known of the task: names and values.
    facts: Vec<(&'static str, String)>,
    sections: Vec<Section>,
}

/// What one record tells.
struct Section {
    /// The record, counted from 1.
    number: u64,
    /// When, in words.
    at: String,
    title: String,
    pieces: Vec<Piece>,
}

/// A text by how it is to be shown.
enum Piece {
    /// A model's words, which are Markdown more often than not.
    Words(String),
    /// What is exactly so: arguments, results, a user's words.
    Exact {
        /// What it is; empty where the section's title says so.
        label: String,
        text: String,
    },
    /// A remark of Sabir's on one line.
    Note(String),
}

/// `sabir export`.
pub(crate) fn export(arguments: &ExportArguments) -> Result<Exit, Failure> {
    let form = form(arguments)?;
    let (id, entries) = journal::entries(&arguments.task)?;
    let start = journal::start(&id, &entries)?;
    let text = match form {
        ExportForm::Json => redact::json(&format!("{:#}\n", object(start, &entries))).into_owned(),
        ExportForm::Md => markdown::write(&document(start, &entries)),
        ExportForm::Html => html::write(&document(start, &entries)),
    };
    match &arguments.output {
        Some(path) => save(path, &text)?,
        None => print::out(&text),
    }
    Ok(Exit::Completed)
}

fn form(arguments: &ExportArguments) -> Result<ExportForm, Failure> {
    let ending = arguments.output.as_deref().and_then(Path::extension).and_then(|ending| ending.to_str());
    match (arguments.to, ending) {
        (Some(form), _) => Ok(form),
        (None, Some("md" | "markdown") | None) => Ok(ExportForm::Md),
        (None, Some("json")) => Ok(ExportForm::Json),
        (None, Some("html" | "htm")) => Ok(ExportForm::Html),
        (None, Some(other)) => Err(Failure::usage(format!("`.{other}` says no format: give --to md, json or html"))),
    }
}

/// Writes a new file, for its user alone: a task is nobody else's business until he says so.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    let fail = |error: std::io::Error| {
        Failure::usage(format!(
            "{} cannot be written: {error}; give a new file in a folder that is there",
            path.display()
        ))
    };
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // Half a document would look like a whole one.
        let _ = std::fs::remove_file(path);
        fail(error)
    })
}

fn ended(entries: &[Entry]) -> Option<(Outcome, &str)> {
    match entries.last().map(|entry| &entry.record) {
        Some(Record::Ended { outcome, message }) => Some((*outcome, message)),
        _ => None,
    }
}

fn totals(entries: &[Entry]) -> Totals {
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.note(&entry.record));
    totals
}

/// The task as one JSON object, `docs/journal.md` says of what.
fn object(start: &Start, entries: &[Entry]) -> Value {
    let numbered = |(number, entry): (u64, &Entry)| {
        let mut record = json!({"number": number});
        if let (Some(record), Ok(Value::Object(fields))) = (record.as_object_mut(), serde_json::to_value(entry)) {
            record.extend(fields);
        }
        record
    };
    let (totals, ended) = (totals(entries), ended(entries));
    json!({
        "format": "sabir task", "version": 1, "task": start,
        "started_at": entries.first().map(|entry| entry.at), "last_at": entries.last().map(|entry| entry.at),
        "outcome": ended.map(|(outcome, _)| outcome), "message": ended.map(|(_, message)| message),
        "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        "records": (1..).zip(entries).map(numbered).collect::<Vec<_>>(),
    })
}

fn document(start: &Start, entries: &[Entry]) -> Document {
    let clean = |text: &str| redact::text(text).into_owned();
    let mut facts = vec![
        ("Task", start.task.to_string()),
        ("Model", clean(&start.model)),
        ("Protocol", start.protocol.name().to_owned()),
        ("Folder", clean(&start.workspace)),
        ("Begun", entries.first().map(|entry| time::written(entry.at)).unwrap_or_default()),
        ("Ended", ended(entries).map_or_else(|| "not yet".to_owned(), |(outcome, _)| journal::word(&outcome))),
        ("In all", spent::words(&totals(entries))),
    ];
    match &start.from {
        Some(Origin::Fork { task, record }) => facts.push(("Forked from", format!("{task}, record {record}"))),
        Some(Origin::Import { program, source, notes }) => {
            facts.push(("Imported from", clean(&format!("{program}: {source}"))));
            facts.extend(notes.iter().map(|note| ("Note", clean(note))));
        }
        Some(Origin::Subtask { task, call, .. }) => facts.push(("Subtask of", format!("{task}, for its call {call}"))),
        _ => {}
    }
    facts.retain(|(_, value)| !value.is_empty());
    let title: String = clean(&start.prompt).lines().next().unwrap_or_default().chars().take(80).collect();
    let sections = (1..).zip(entries).filter_map(|(number, entry)| section(number, entry)).collect();
    Document { title, facts, sections }
}

/// What a document shows of a record; nothing where the records around it say as much.
fn section(number: u64, entry: &Entry) -> Option<Section> {
    let exact =
        |label: &str, text: &str| Piece::Exact { label: label.to_owned(), text: redact::text(text).into_owned() };
    let (title, pieces) = match &entry.record {
        Record::Started(start) => ("User".to_owned(), vec![exact("", &start.prompt)]),
        Record::Said { by: Speaker::User, text, images, .. } => {
            let words = (!text.is_empty()).then(|| exact("", text)).into_iter();
            let shown = images.iter().map(|image| Piece::Note(picture(&image.media_type, image.data.len())));
            ("User".to_owned(), words.chain(shown).collect())
        }
        Record::Said { by: Speaker::Sabir, text, .. } => ("Told to the model".to_owned(), vec![exact("", text)]),
        Record::Answered(answered) => {
            let mut pieces: Vec<_> = answered.parts.iter().map(piece).collect();
            for check in answered.checks.iter().filter(|check| !check.passed) {
                pieces.push(exact(&format!("refused: {}", check.call), &check.words()));
            }
            (format!("Model, turn {}", answered.turn), pieces)
        }
        Record::Failed(failed) => ("The model did not answer".to_owned(), vec![exact("", &failed.message)]),
        Record::Judged { call, verdict, by, reason } => {
            let (verdict, by) = (journal::word(verdict), journal::word(by));
            let note = redact::text(&format!("{call}: {verdict} by the {by}: {reason}")).into_owned();
            ("Judgement".to_owned(), vec![Piece::Note(one_line(&note))])
        }
        Record::Running { .. } | Record::Subtask { ended: None, .. } => return None,
        Record::Subtask { task, ended: Some(end), .. } => {
            let words = journal::subtask(task, end);
            (
                format!("Subtask {task}"),
                vec![Piece::Note(one_line(&format!("{words} (`sabir export {task}` writes it)")))],
            )
        }
        Record::Result(result) => {
            let ending = journal::word(&result.ending);
            let mut pieces = vec![exact("", &result.content)];
            pieces.extend(result.images.iter().map(|image| Piece::Note(picture(&image.media_type, image.data.len()))));
            (format!("Result of {} ({ending})", one_line(&result.name)), pieces)
        }
        Record::Ended { outcome, message } => (format!("Ended: {}", journal::word(outcome)), vec![exact("", message)]),
        other => {
            let text = serde_json::to_string_pretty(other).unwrap_or_default();
            let title = if matches!(other, Record::Context(_)) { "Context" } else { "Another record" };
            (title.to_owned(), vec![exact("json", &redact::json(&text))])
        }
    };
    Some(Section { number, at: time::written(entry.at), title, pieces })
}

fn piece(part: &Part) -> Piece {
    let clean = |text: &str| redact::text(text).into_owned();
    match part {
        Part::Text { text } => Piece::Words(clean(text)),
        Part::Thought { text, .. } => Piece::Exact { label: "thought".to_owned(), text: clean(text) },
        Part::Call(call) => {
            let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
            let label = one_line(&format!("call {} ({})", call.name, call.id));
            Piece::Exact { label, text: redact::json(&arguments).into_owned() }
        }
        Part::Image(image) => Piece::Note(picture(&image.media_type, image.data.len())),
        Part::ImageUrl { url } => Piece::Note(one_line(&clean(&format!("a picture at {url}")))),
        Part::Opaque(opaque) => Piece::Note(one_line(&format!("state of the provider ({})", opaque.wire))),
        other => {
            let text = serde_json::to_string_pretty(other).unwrap_or_default();
            Piece::Exact { label: "another part".to_owned(), text: redact::json(&text).into_owned() }
        }
    }
}

fn picture(media_type: &str, characters: usize) -> String {
    one_line(&format!("a picture ({media_type}, {} bytes); the JSON export has it", characters / 4 * 3))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
