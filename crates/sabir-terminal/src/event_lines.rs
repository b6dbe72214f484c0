//! Prints the events of a task as JSON, one object per line (`--output events`).
//!
//! Lines end up in files and logs, so secrets are redacted. A text that is streamed in pieces
//! (answer, reasoning, arguments, command output) is redacted as a whole: a piece that ends in the
//! possible start of a secret is held back until the next piece, or the end of the text, shows what
//! it is.
//!
//! Small deltas are merged, so that the JSON around them does not outweigh their text. The limit is
//! a number of bytes and never a time, so the same answer always makes the same lines.
//!
//! Each subtask has lines of its own, which name it. They are printed as they come: a program can
//! tell them apart, and may answer open questions of several tasks by their call ids.

use sabir_session::agent::{Record, TaskEvent, TaskId, TransientEvent};
use sabir_session::call::redact::Redactor;
use sabir_session::call::{CallId, Event};
use serde::Serialize;

/// The minimum length of a printed delta in bytes, unless its text ends or another event follows.
const MIN_DELTA_BYTES: usize = 96;

/// Prints the events of one task as lines.
#[derive(Debug, Default)]
pub struct EventLinePrinter {
    /// The streamed texts that have not ended, each with its redactor.
    open_texts: Vec<(StreamedText, Redactor)>,
    /// A delta that is still too short for a line.
    pending_delta: Option<(StreamedText, String)>,
    /// The subtask whose events are printed; `None` for the main task.
    subtask: Option<TaskId>,
}

/// An event in its printed form.
#[derive(Debug, Serialize)]
pub struct EventLine<'a> {
    #[serde(flatten)]
    /// The event, whose fields appear at the top level.
    pub event: TaskEvent<'a>,
    /// The subtask that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<&'a TaskId>,
}

/// A text that is streamed in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StreamedText {
    /// The text of the answer.
    Answer,
    /// The reasoning of the model.
    Thoughts,
    /// The arguments of the call with that index, one after the other.
    Argument(u32),
    /// The output of the command that a call runs.
    Output(CallId),
}

impl EventLinePrinter {
    /// Creates a printer for the main task (`None`) or for a subtask.
    pub fn new(subtask: Option<TaskId>) -> Self {
        Self {
            subtask,
            ..Self::default()
        }
    }

    /// Passes the lines of an event to `write`, or holds the event back until its line is complete.
    pub fn push_event(&mut self, event: TaskEvent<'_>, write: &mut dyn FnMut(&EventLine<'_>)) {
        let subtask = self.subtask.take();
        self.emit_lines(event, &mut |event| {
            write(&EventLine::for_subtask(event, subtask.as_ref()));
        });
        self.subtask = subtask;
    }

    /// Passes to `line` the events to print for an event, redacted and merged.
    fn emit_lines(&mut self, event: TaskEvent<'_>, line: &mut dyn FnMut(TaskEvent<'_>)) {
        // The raw text would repeat the deltas.
        if matches!(
            event,
            TaskEvent::Transient(TransientEvent::Delta(Event::Source { .. }))
        ) {
            return;
        }
        let Self {
            open_texts: open,
            pending_delta: held,
            ..
        } = self;
        let line = &mut |event: TaskEvent<'_>| coalesce_deltas(held, event, line);
        // Texts that end with this event are flushed first, so that events are printed in order.
        for (text, mut redactor) in open.extract_if(.., |(text, _)| text.ends_with(&event)) {
            text.emit_piece(&redactor.finish_text(), line);
        }
        // The seal depends on the machine and the folder. Without it, the same task prints the same
        // events everywhere.
        if let TaskEvent::Record(Record::Running { call, .. }) = event {
            return line(TaskEvent::Record(&Record::Running {
                call: call.clone(),
                seal: None,
            }));
        }
        let Some((text, piece)) = StreamedText::from_event(&event) else {
            return line(event);
        };
        let at = open
            .iter()
            .position(|(open, _)| *open == text)
            .unwrap_or_else(|| {
                open.push((text.clone(), Redactor::default()));
                open.len() - 1
            });
        if let Some((_, redactor)) = open.get_mut(at) {
            text.emit_piece(&redactor.redact_piece(piece), line);
        }
    }
}

impl<'a> EventLine<'a> {
    /// Creates the line of an event of a subtask, or of the main task (`None`).
    pub fn for_subtask(event: TaskEvent<'a>, subtask: Option<&'a TaskId>) -> Self {
        // The record of a start already names its task.
        let named = matches!(event, TaskEvent::Record(Record::Started(_)));
        Self {
            event,
            task: subtask.filter(|_| !named),
        }
    }
}

/// Merges consecutive deltas of one text until they are long enough, and flushes them before any
/// other event.
fn coalesce_deltas(
    held: &mut Option<(StreamedText, String)>,
    event: TaskEvent<'_>,
    line: &mut dyn FnMut(TaskEvent<'_>),
) {
    let delta = StreamedText::from_event(&event)
        .filter(|(text, _)| !matches!(text, StreamedText::Output(_)));
    if let (Some((text, piece)), Some((of, all))) = (&delta, held.as_mut())
        && of == text
    {
        all.push_str(piece);
    } else {
        if let Some((text, all)) = held.take() {
            text.emit_piece(&all, line);
        }
        match delta {
            Some((text, piece)) => *held = Some((text, piece.to_owned())),
            None => line(event),
        }
    }
    if let Some((text, all)) = held.take_if(|(_, all)| all.len() >= MIN_DELTA_BYTES) {
        text.emit_piece(&all, line);
    }
}

impl StreamedText {
    /// Returns the text that an event is a piece of, and the piece.
    fn from_event<'a>(event: &TaskEvent<'a>) -> Option<(Self, &'a str)> {
        let TaskEvent::Transient(moment) = event else {
            return None;
        };
        match moment {
            TransientEvent::Delta(Event::Text { text }) => Some((Self::Answer, text)),
            TransientEvent::Delta(Event::Thought { text }) => Some((Self::Thoughts, text)),
            TransientEvent::Delta(Event::ArgDelta { index, text }) => {
                Some((Self::Argument(*index), text))
            }
            TransientEvent::Output { call, text } => Some((Self::Output((*call).clone()), text)),
            _ => None,
        }
    }

    /// Returns true if the text is over at this event, or must be printed before it.
    fn ends_with(&self, event: &TaskEvent<'_>) -> bool {
        match (self, event) {
            (Self::Output(of), TaskEvent::Record(Record::Result(result))) => *of == result.id,
            (_, TaskEvent::Record(Record::Ended { .. })) => true,
            (Self::Output(_), _) => false,
            (_, TaskEvent::Record(_) | TaskEvent::Transient(TransientEvent::Asking { .. })) => true,
            (_, TaskEvent::Transient(TransientEvent::Delta(event))) => match (self, event) {
                (
                    Self::Argument(of),
                    Event::ArgEnd { index, .. } | Event::CallEnd { index, .. },
                ) => of == index,
                (Self::Argument(of), Event::CallCut { index, .. }) => of == index,
                // Usage reports may arrive in the middle of a text and do not end it.
                (Self::Answer, event) => !matches!(event, Event::Text { .. } | Event::Usage(_)),
                (Self::Thoughts, event) => {
                    !matches!(event, Event::Thought { .. } | Event::Usage(_))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Passes one more piece of the text to `line`, unless the piece is empty.
    fn emit_piece(&self, text: &str, line: &mut dyn FnMut(TaskEvent<'_>)) {
        if text.is_empty() {
            return;
        }
        line(TaskEvent::Transient(match self {
            Self::Answer => TransientEvent::Delta(Event::Text { text }),
            Self::Thoughts => TransientEvent::Delta(Event::Thought { text }),
            Self::Argument(index) => TransientEvent::Delta(Event::ArgDelta {
                index: *index,
                text,
            }),
            Self::Output(call) => TransientEvent::Output { call, text },
        }));
    }
}

#[cfg(test)]
mod tests {
    use sabir_session::call::{ToolResultStatus, redact};

    use super::*;

    /// The deltas and outputs to print, with pieces of the same text joined.
    fn shown(events: &[TaskEvent<'_>]) -> Vec<String> {
        let mut lines = EventLinePrinter::default();
        let mut all = Vec::<(Option<StreamedText>, String)>::new();
        for event in events {
            lines.emit_lines(*event, &mut |event| match (
                StreamedText::from_event(&event),
                all.last_mut(),
            ) {
                (Some((text, piece)), Some((Some(last), joined))) if *last == text => {
                    joined.push_str(piece)
                }
                (Some((text, piece)), _) => all.push((Some(text), piece.to_owned())),
                (None, _) => all.push((None, serde_json::to_string(&event).unwrap())),
            });
        }
        all.into_iter()
            .map(|(_, text)| text.chars().take(60).collect())
            .collect()
    }

    #[test]
    fn a_secret_in_many_chunks_becomes_one_placeholder() {
        let said = format!("use ghp_{} now", "0123456789".repeat(4));
        let id = CallId::new("c");
        let pieces: Vec<&str> = said.split_inclusive(|_| true).collect();
        let delta = |event| TaskEvent::Transient(TransientEvent::Delta(event));
        let mut events: Vec<TaskEvent<'_>> = pieces
            .iter()
            .map(|text| delta(Event::Text { text }))
            .collect();
        events.push(delta(Event::CallStart {
            index: 0,
            id: None,
            name: "n",
            dialect: None,
            at: 0,
            name_at: 0,
        }));
        for text in &pieces {
            events.push(delta(Event::ArgDelta { index: 0, text }));
            events.push(delta(Event::ArgDelta { index: 1, text }));
            events.push(TaskEvent::Transient(TransientEvent::Output {
                call: &id,
                text,
            }));
        }
        let name = "n".to_owned();
        let content = said.clone();
        let images = Vec::new();
        let result = Record::Result(sabir_session::call::CallResult {
            id: id.clone(),
            name,
            ending: ToolResultStatus::Done,
            content,
            images,
        });
        let ended = [
            delta(Event::ArgEnd {
                index: 0,
                lead: "",
                at: 1,
            }),
            TaskEvent::Record(&result),
        ];
        events.extend(ended);
        let joined = shown(&events);
        let all: String = joined.concat();
        assert_eq!(
            all.matches("[redacted: GitHub token]").count(),
            4,
            "{joined:?}"
        );
        assert!(
            joined[0] == redact::redact_text(&said) && joined[1].contains("call_start"),
            "{joined:?}"
        );
        assert!(!all.contains("ghp_0"), "{joined:?}");
    }

    #[test]
    fn held_text_is_printed_before_the_next_event() {
        let delta = |event| TaskEvent::Transient(TransientEvent::Delta(event));
        let usage = sabir_session::call::Usage::default();
        let start = Event::CallStart {
            index: 0,
            id: None,
            name: "n",
            dialect: None,
            at: 0,
            name_at: 0,
        };
        let events = [
            delta(Event::Text { text: "a ghp" }),
            delta(Event::Usage(usage)),
            delta(Event::Text { text: "_" }),
            delta(start),
        ];
        let joined = shown(&events);
        assert_eq!(
            (joined[0].as_str(), joined[2].as_str()),
            ("a ", "ghp_"),
            "{joined:?}"
        );
        assert!(
            joined[1].contains("usage") && joined[3].contains("call_start"),
            "{joined:?}"
        );
    }
}
