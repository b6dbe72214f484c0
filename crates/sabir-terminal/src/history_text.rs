//! Renders the last exchange of a task, for a user who resumes it.

use std::path::PathBuf;

use sabir_session::agent::{MessageAuthor, Record, TaskOutcome, control};
use sabir_session::call::{MessagePart, redact};
use sabir_session::{JournalEntry, short_name};

use crate::print;

/// The maximum number of lines of a message that are shown.
const MAX_LINES: usize = 12;

/// The state in which a task was left.
#[derive(Debug)]
pub struct LastExchange {
    /// The last message and its answer, for the user. The text is foreign.
    pub text: String,
    /// The folder of the task.
    pub folder: PathBuf,
    /// True if the task was completed, so that it needs a message to continue.
    pub is_completed: bool,
}

impl LastExchange {
    /// Finds it in the records of a task.
    pub fn of_entries(entries: &[JournalEntry]) -> Self {
        let folder = match entries.first().map(|entry| &entry.record) {
            Some(Record::Started(start)) => PathBuf::from(&start.workspace),
            _ => PathBuf::from("."),
        };
        let is_completed = matches!(
            entries.last().map(|entry| &entry.record),
            Some(Record::Ended {
                outcome: TaskOutcome::Completed,
                ..
            })
        );
        Self {
            text: last_exchange_text(entries),
            folder,
            is_completed,
        }
    }
}

/// Renders the user's last message and the model's answer. The text is foreign.
pub fn last_exchange_text(entries: &[JournalEntry]) -> String {
    let mut title = String::new();
    let mut said = None;
    let mut answered = None;
    for entry in entries {
        match &entry.record {
            Record::Started(start) => {
                let prompt = start.prompt.lines().next().unwrap_or_default();
                title = format!("task {} ({prompt})\n", short_name(&start.task));
                said = Some(start.prompt.clone());
            }
            Record::Said {
                by: MessageAuthor::User,
                text,
                ..
            } => {
                said = Some(text.clone());
                answered = None;
            }
            Record::Answered(turn) => answered = answer_text(&turn.parts).or(answered),
            _ => {}
        }
    }
    let part = |who: &str, text: Option<String>| {
        let text = text.filter(|text| !text.trim().is_empty())?;
        Some(format!(
            "{who}:\n{}\n",
            print::indent_lines(&shorten(&text))
        ))
    };
    let you = part("you", said).unwrap_or_default();
    let model = part("model", answered).unwrap_or_default();
    redact::redact_text(&format!("{title}{you}{model}")).into_owned()
}

/// Returns the text of an answer with its result; `None` if it holds calls of tools only.
fn answer_text(parts: &[MessagePart]) -> Option<String> {
    let texts = parts.iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(text.as_str()),
        MessagePart::Call(call) if call.name == control::COMPLETION_TOOL => call
            .arguments
            .get("result")
            .and_then(|result| result.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    (!text.trim().is_empty()).then_some(text)
}

/// Returns the last lines of a text, with a sign for those before.
fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    let left = lines.len().saturating_sub(MAX_LINES);
    let shown = lines.get(left..).unwrap_or_default().join("\n");
    if left == 0 {
        shown
    } else {
        format!("({} before)\n{shown}", print::count_noun(left, "line"))
    }
}
