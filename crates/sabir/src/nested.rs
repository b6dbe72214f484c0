//! What people see of a subtask: its records, each line under its name.
//!
//! Several subtasks are shown on one screen, so nothing of them is shown in pieces: what they write, and what their commands print,
//! is in their journals.

use sabir_agent::{Outcome, Record, Start, TaskEvent, TaskId};
use sabir_call::Part;
use serde_json::Value;

use crate::screen::Painter;

/// How much of an argument or of words stands on a line, in characters.
const SHOWN: usize = 80;

/// How one subtask is shown.
#[derive(Debug)]
pub(crate) struct Nested {
    /// The mode and the end of its name.
    name: String,
    /// How far below the task that the user began; its children are 1.
    depth: u32,
    painter: Painter,
}

impl Nested {
    pub(crate) fn new(task: &TaskId, mode: &str, depth: u32) -> Self {
        Self { name: short(task, mode), depth, painter: Painter::default() }
    }

    /// What stands before its question.
    pub(crate) fn asks(&self) -> String {
        self.under("asks:")
    }

    /// The lines about an event; empty for most.
    pub(crate) fn lines(&mut self, event: TaskEvent<'_>) -> String {
        let TaskEvent::Record(record) = event else { return String::new() };
        // The painter has to see every record: it knows calls by their answers.
        let painted = self.painter.paint(event);
        match record {
            Record::Started(Start { prompt, .. }) => self.under(&format!("begins: {}", brief(prompt))),
            Record::Answered(answered) => {
                let parts = answered.parts.iter().filter_map(|part| match part {
                    Part::Text { text } if !text.trim().is_empty() => Some(brief(text.trim())),
                    Part::Call(call) => Some(format!("● {} {}", call.name, subject(&call.arguments)).trim_end().into()),
                    _ => None,
                });
                let parts: Vec<String> = parts.collect();
                self.under(&format!("{}\n{painted}", parts.join("\n")))
            }
            Record::Ended { outcome: Outcome::Completed, .. } => self.under("is completed"),
            Record::Ended { message, .. } => self.under(&format!("has ended: {}", brief(message))),
            _ => self.under(&painted),
        }
    }

    /// Each line of a text, indented and with the name before it.
    fn under(&self, text: &str) -> String {
        let indent = "  ".repeat(usize::try_from(self.depth).unwrap_or(1));
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| format!("{indent}[{}] {line}\n", self.name)).collect()
    }
}

/// The mode of a subtask and the end of its name.
pub(crate) fn short(task: &TaskId, mode: &str) -> String {
    let name = task.as_str();
    let end = name.char_indices().rev().nth(3).and_then(|(at, _)| name.get(at..)).unwrap_or(name);
    format!("{mode} {end}")
}

/// The first argument that says what a call is about.
fn subject(arguments: &serde_json::Map<String, Value>) -> String {
    let names = ["path", "command", "regex", "url", "message", "question"];
    let found = names.iter().find_map(|name| arguments.get(*name).and_then(Value::as_str));
    found.map(brief).unwrap_or_default()
}

/// The first line of a text, or the beginning of it.
fn brief(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.char_indices().nth(SHOWN).and_then(|(at, _)| line.get(..at));
    match cut {
        Some(cut) => format!("{cut}…"),
        None if line.len() < text.trim_end().len() => format!("{line} …"),
        None => line.to_owned(),
    }
}
