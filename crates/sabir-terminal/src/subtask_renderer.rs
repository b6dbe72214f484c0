//! Renders the records of a subtask as lines that start with its name.
//!
//! Several subtasks share one screen, so nothing of them is streamed: their text and the output of
//! their commands appear only in their journals.

use sabir_session::agent::{Record, TaskEvent, TaskId, TaskOutcome, TaskStart};
use sabir_session::call::MessagePart;
use serde_json::Value;

use crate::event_renderer::EventRenderer;

/// The maximum length of an argument or a text on a line, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Renders the events of one subtask.
#[derive(Debug)]
pub struct SubtaskRenderer {
    /// The mode of the subtask and the last four characters of its id.
    name: String,
    /// The depth below the main task, whose children have depth 1.
    depth: u32,
    renderer: EventRenderer,
}

impl SubtaskRenderer {
    /// Creates the renderer of a subtask at that depth.
    pub fn new(task: &TaskId, mode: &str, depth: u32) -> Self {
        Self {
            name: short_name(task, mode),
            depth,
            renderer: EventRenderer::default(),
        }
    }

    /// Returns the line shown before a question of the subtask.
    pub fn question_prefix(&self) -> String {
        self.prefix_lines("asks:")
    }

    /// Returns the lines to show for an event; empty for most events.
    pub fn render_lines(&mut self, event: TaskEvent<'_>) -> String {
        let TaskEvent::Record(record) = event else {
            return String::new();
        };
        // The renderer must see every record, because it learns the calls from the answers.
        let painted = self.renderer.render_event(event);
        match record {
            Record::Started(TaskStart { prompt, .. }) => {
                self.prefix_lines(&format!("begins: {}", first_line(prompt)))
            }
            // The answer is complete here, unlike in the main task, where its text was streamed.
            Record::Answered(answered) => {
                let parts = answered.parts.iter().filter_map(|part| match part {
                    MessagePart::Text { text } if !text.trim().is_empty() => {
                        Some(first_line(text.trim()))
                    }
                    MessagePart::Call(call) => Some(
                        format!("● {} {}", call.name, call_subject(&call.arguments))
                            .trim_end()
                            .into(),
                    ),
                    _ => None,
                });
                let parts: Vec<String> = parts.collect();
                self.prefix_lines(&format!("{}\n{painted}", parts.join("\n")))
            }
            Record::Ended {
                outcome: TaskOutcome::Completed,
                ..
            } => self.prefix_lines("is completed"),
            Record::Ended { message, .. } => {
                self.prefix_lines(&format!("has ended: {}", first_line(message)))
            }
            _ => self.prefix_lines(&painted),
        }
    }

    /// Prefixes every non-empty line of a text with an indent and the name.
    fn prefix_lines(&self, text: &str) -> String {
        let indent = "  ".repeat(usize::try_from(self.depth).unwrap_or(1));
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| format!("{indent}[{}] {line}\n", self.name))
            .collect()
    }
}

/// Returns the mode of a subtask and the last four characters of its id.
pub fn short_name(task: &TaskId, mode: &str) -> String {
    // The beginning of an id is a time (UUID version 7), the same for subtasks that start together.
    let name = task.as_str();
    let end = name
        .char_indices()
        .rev()
        .nth(3)
        .and_then(|(at, _)| name.get(at..))
        .unwrap_or(name);
    format!("{mode} {end}")
}

/// Returns the argument that best describes a call, cut to one line.
fn call_subject(arguments: &serde_json::Map<String, Value>) -> String {
    let names = ["path", "command", "regex", "url", "message", "question"];
    let found = names
        .iter()
        .find_map(|name| arguments.get(*name).and_then(Value::as_str));
    found.map(first_line).unwrap_or_default()
}

/// Returns the first line of a text, cut to [`MAX_SHOWN_CHARS`].
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line
        .char_indices()
        .nth(MAX_SHOWN_CHARS)
        .and_then(|(at, _)| line.get(..at));
    match cut {
        Some(cut) => format!("{cut}…"),
        None if line.len() < text.trim_end().len() => format!("{line} …"),
        None => line.to_owned(),
    }
}
