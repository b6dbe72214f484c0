//! One JSON object a line, as things happen: `--output events`.
//!
//! Lines end up in files and logs, so secrets are taken out of them. What comes in pieces (words, arguments, the output of a command)
//! is looked through as one text each: where a piece ends in what may begin a secret, that much is held until the next piece, or the
//! end of that text, says what it is.
//!
//! Small pieces of an answer are put together, so that lines do not weigh more than what they say. How long is a matter of bytes
//! and never of time: the same answer makes the same lines, however it arrives.
//!
//! Each subtask has lines of its own, which name it. They are printed as they come: a program can tell them apart, and may have
//! questions of several tasks at once, which it answers by their calls.

use sabir_agent::{Moment, Record, TaskEvent, TaskId};
use sabir_call::redact::Redactor;
use sabir_call::{CallId, Event};
use serde::Serialize;

use crate::print;

/// The fewest bytes of a delta, unless its text ends or something else comes.
const ENOUGH: usize = 96;

/// A watcher that prints lines.
#[derive(Debug, Default)]
pub(crate) struct EventLines {
    open: Vec<(Text, Redactor)>,
    /// A delta that is not long enough for a line.
    held: Option<(Text, String)>,
    /// The subtask whose lines these are; `None`: those of the task that was begun.
    subtask: Option<TaskId>,
}

/// An event as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    #[serde(flatten)]
    pub(crate) event: TaskEvent<'a>,
    /// The subtask whose event it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<&'a TaskId>,
}

/// A text that comes in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Text {
    Words,
    Thoughts,
    /// The arguments of the call of that index, one after the other.
    Argument(u32),
    Output(CallId),
}

impl EventLines {
    /// Prints the lines of the session's task, or of that subtask.
    pub(crate) fn new(subtask: Option<TaskId>) -> Self {
        Self { subtask, ..Self::default() }
    }

    /// Prints an event, or holds it until a line is complete.
    pub(crate) fn print(&mut self, event: TaskEvent<'_>) {
        let subtask = self.subtask.take();
        self.lines(event, &mut |event| print::redacted(&Line::of(event, subtask.as_ref())));
        self.subtask = subtask;
    }

    /// Hands on what is to be printed for an event.
    fn lines(&mut self, event: TaskEvent<'_>, line: &mut dyn FnMut(TaskEvent<'_>)) {
        // The raw text would repeat what the deltas say.
        if matches!(event, TaskEvent::Moment(Moment::Delta(Event::Source { .. }))) {
            return;
        }
        let Self { open, held, .. } = self;
        let line = &mut |event: TaskEvent<'_>| put_together(held, event, line);
        for (text, mut redactor) in open.extract_if(.., |(text, _)| text.ends_with(&event)) {
            text.line(&redactor.rest(), line);
        }
        // A seal is of this machine and folder, and the same task has the same events elsewhere.
        if let TaskEvent::Record(Record::Running { call, .. }) = event {
            return line(TaskEvent::Record(&Record::Running { call: call.clone(), seal: None }));
        }
        let Some((text, piece)) = Text::of(&event) else { return line(event) };
        let at = open.iter().position(|(open, _)| *open == text).unwrap_or_else(|| {
            open.push((text.clone(), Redactor::default()));
            open.len() - 1
        });
        if let Some((_, redactor)) = open.get_mut(at) {
            text.line(&redactor.text(piece), line);
        }
    }
}

impl<'a> Line<'a> {
    /// An event of that subtask, or of the task that was begun.
    pub(crate) fn of(event: TaskEvent<'a>, subtask: Option<&'a TaskId>) -> Self {
        // The record of a start names its task itself.
        let named = matches!(event, TaskEvent::Record(Record::Started(_)));
        Self { event, task: subtask.filter(|_| !named) }
    }
}

/// Holds a delta until it is long enough, and hands it on before anything else.
fn put_together(held: &mut Option<(Text, String)>, event: TaskEvent<'_>, line: &mut dyn FnMut(TaskEvent<'_>)) {
    let delta = Text::of(&event).filter(|(text, _)| !matches!(text, Text::Output(_)));
    if let (Some((text, piece)), Some((of, all))) = (&delta, held.as_mut())
        && of == text
    {
        all.push_str(piece);
    } else {
        if let Some((text, all)) = held.take() {
            text.line(&all, line);
        }
        match delta {
            Some((text, piece)) => *held = Some((text, piece.to_owned())),
            None => line(event),
        }
    }
    if let Some((text, all)) = held.take_if(|(_, all)| all.len() >= ENOUGH) {
        text.line(&all, line);
    }
}

impl Text {
    /// Which text an event is a piece of.
    fn of<'a>(event: &TaskEvent<'a>) -> Option<(Self, &'a str)> {
        let TaskEvent::Moment(moment) = event else { return None };
        match moment {
            Moment::Delta(Event::Text { text }) => Some((Self::Words, text)),
            Moment::Delta(Event::Thought { text }) => Some((Self::Thoughts, text)),
            Moment::Delta(Event::ArgDelta { index, text }) => Some((Self::Argument(*index), text)),
            Moment::Output { call, text } => Some((Self::Output((*call).clone()), text)),
            _ => None,
        }
    }

    /// Whether no more of it comes after, or what comes must not be told before it.
    fn ends_with(&self, event: &TaskEvent<'_>) -> bool {
        match (self, event) {
            (Self::Output(of), TaskEvent::Record(Record::Result(result))) => *of == result.id,
            (_, TaskEvent::Record(Record::Ended { .. })) => true,
            (Self::Output(_), _) => false,
            (_, TaskEvent::Record(_) | TaskEvent::Moment(Moment::Asking { .. })) => true,
            (_, TaskEvent::Moment(Moment::Delta(event))) => match (self, event) {
                (Self::Argument(of), Event::ArgEnd { index, .. } | Event::CallEnd { index, .. }) => of == index,
                (Self::Argument(of), Event::CallCut { index, .. }) => of == index,
                (Self::Words, event) => !matches!(event, Event::Text { .. } | Event::Usage(_)),
                (Self::Thoughts, event) => !matches!(event, Event::Thought { .. } | Event::Usage(_)),
                _ => false,
            },
            _ => false,
        }
    }

    /// The event of one more piece, if there is anything in it.
    fn line(&self, text: &str, line: &mut dyn FnMut(TaskEvent<'_>)) {
        if text.is_empty() {
            return;
        }
        line(TaskEvent::Moment(match self {
            Self::Words => Moment::Delta(Event::Text { text }),
            Self::Thoughts => Moment::Delta(Event::Thought { text }),
            Self::Argument(index) => Moment::Delta(Event::ArgDelta { index: *index, text }),
            Self::Output(call) => Moment::Output { call, text },
        }));
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::{Ending, redact};

    use super::*;

    /// The deltas and outputs that are printed, those of the same text joined.
    fn shown(events: &[TaskEvent<'_>]) -> Vec<String> {
        let (mut lines, mut all) = (EventLines::default(), Vec::<(Option<Text>, String)>::new());
        for event in events {
            lines.lines(*event, &mut |event| match (Text::of(&event), all.last_mut()) {
                (Some((text, piece)), Some((Some(last), joined))) if *last == text => joined.push_str(piece),
                (Some((text, piece)), _) => all.push((Some(text), piece.to_owned())),
                (None, _) => all.push((None, serde_json::to_string(&event).unwrap())),
            });
        }
        all.into_iter().map(|(_, text)| text.chars().take(60).collect()).collect()
    }

    #[test]
    fn a_secret_in_many_pieces_leaves_one_sign() {
        let said = format!("use ghp_{} now", "0123456789".repeat(4));
        let id = CallId::new("c");
        let pieces: Vec<&str> = said.split_inclusive(|_| true).collect();
        let delta = |event| TaskEvent::Moment(Moment::Delta(event));
        let mut events: Vec<TaskEvent<'_>> = pieces.iter().map(|text| delta(Event::Text { text })).collect();
        events.push(delta(Event::CallStart { index: 0, id: None, name: "n", dialect: None, at: 0, name_at: 0 }));
        for text in &pieces {
            events.push(delta(Event::ArgDelta { index: 0, text }));
            events.push(delta(Event::ArgDelta { index: 1, text }));
            events.push(TaskEvent::Moment(Moment::Output { call: &id, text }));
        }
        let name = "n".to_owned();
        let (content, images) = (said.clone(), Vec::new());
        let result =
            Record::Result(sabir_call::CallResult { id: id.clone(), name, ending: Ending::Done, content, images });
        let ended = [delta(Event::ArgEnd { index: 0, lead: "", at: 1 }), TaskEvent::Record(&result)];
        events.extend(ended);
        let joined = shown(&events);
        let all: String = joined.concat();
        assert_eq!(all.matches("[redacted: GitHub token]").count(), 4, "{joined:?}");
        assert!(joined[0] == redact::text(&said) && joined[1].contains("call_start"), "{joined:?}");
        assert!(!all.contains("ghp_0"), "{joined:?}");
    }

    #[test]
    fn what_is_held_comes_before_what_ends_it() {
        let delta = |event| TaskEvent::Moment(Moment::Delta(event));
        let usage = sabir_call::Usage::default();
        let start = Event::CallStart { index: 0, id: None, name: "n", dialect: None, at: 0, name_at: 0 };
        let events = [
            delta(Event::Text { text: "a ghp" }),
            delta(Event::Usage(usage)),
            delta(Event::Text { text: "_" }),
            delta(start),
        ];
        let joined = shown(&events);
        assert_eq!((joined[0].as_str(), joined[2].as_str()), ("a ", "ghp_"), "{joined:?}");
        assert!(joined[1].contains("usage") && joined[3].contains("call_start"), "{joined:?}");
    }
}
