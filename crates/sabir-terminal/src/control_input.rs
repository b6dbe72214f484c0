//! Reads control lines: JSON commands that a program sends on standard input instead of a user at a
//! terminal (`--control`).
//!
//! All lines are submitted through one channel, so they take effect in the order in which they were
//! written: an approval before the end of the input still approves. A line is matched against the
//! questions that are open when the line is read. A line that does not fit (another call, a second
//! answer, invalid JSON) is reported on standard error and changes nothing.
//!
//! Subtasks have entries of their own. A message or cancellation without a `task` is for the main
//! task, but an approval, denial or answer finds the question about its call in any task. If two
//! tasks ask about calls with the same id, the line must name its task.

use std::io::{BufRead, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_session::agent::{Record, TaskId, UserQuestion};
use sabir_session::call::{CallId, Image};
use sabir_session::images::{ImageInput, ImageSupport};
use sabir_session::modes;
use sabir_session::{
    Command, Decision, Delivery, RequestId, SessionEvent, SessionEventKind, SessionHandle,
    UserMessage,
};
use serde::Deserialize;

use crate::print;
use crate::stdin_reader::LineContext;

/// The maximum length of a line in bytes (16 MiB, enough for pictures in base64). A longer line is
/// skipped and reported.
const MAX_LINE: u64 = 16 << 20;

/// A control line in its JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
// Unknown fields are refused: a misspelt `"steer"` or an `"always"` that does not exist must not be
// ignored silently.
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ControlLine {
    /// A message for the model.
    Message {
        #[serde(default)]
        text: String,
        /// The pictures attached to the message.
        #[serde(default)]
        images: Vec<ImageInput>,
        /// True if the message interrupts the model's current step.
        #[serde(default)]
        steer: bool,
        task: Option<TaskId>,
    },
    /// Switches the mode.
    Mode { mode: String },
    /// Ends the task.
    Cancel { task: Option<TaskId> },
    /// Approves a call.
    Approve { call: CallId, task: Option<TaskId> },
    /// Denies a call.
    Deny {
        call: CallId,
        #[serde(default)]
        reason: String,
        task: Option<TaskId>,
    },
    /// Answers a question of the model.
    Answer {
        call: CallId,
        #[serde(default)]
        text: String,
        /// The pictures attached to the answer.
        #[serde(default)]
        images: Vec<ImageInput>,
        task: Option<TaskId>,
    },
}

/// The control input of a task and its subtasks. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct ControlInput(Arc<Mutex<InboxRegistry>>);

/// The tasks that receive lines: the main task first, then its running subtasks.
#[derive(Debug, Default)]
struct InboxRegistry {
    entries: Vec<TaskEntry>,
}

/// A task that receives lines.
#[derive(Debug)]
struct TaskEntry {
    task: TaskId,
    /// The open question of the task, if any.
    open_question: Option<OpenQuestion>,
}

/// A question without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenQuestion {
    call: CallId,
    kind: QuestionKind,
}

/// The kinds of questions, which take different answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuestionKind {
    /// `approve` or `deny`.
    Approval,
    /// `approve`, or `answer` (or `deny`) with what is missing.
    Completion,
    /// `answer`, or `deny` for a no.
    FreeText,
}

/// Reads control lines, and counts them for its reports.
pub struct ControlReader {
    input: Box<dyn BufRead + Send>,
    count: usize,
}

/// A reason why no task was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FirstMessageError {
    /// The program cancelled.
    #[error("cancelled before there was a task")]
    Cancelled,
    /// The input ended.
    #[error("standard input ended before a message said what to do")]
    Ended,
}

/// A reason why a line is refused; it then changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LineRefusal {
    #[error("no question about that call is open")]
    NoQuestion,
    #[error("no such task is running")]
    UnknownTask,
    #[error("several tasks ask about a call of that name: say which with `task`")]
    AmbiguousCall,
    #[error("the message is empty")]
    EmptyMessage,
    #[error("there is no task yet; --mode selects the mode in which it begins")]
    NoTaskYet,
    #[error("the question needs an answer in words: use `answer`")]
    NeedsAnswer,
    #[error("an answer approves nothing: use `approve` or `deny`")]
    NeedsApproval,
    #[error("it is longer than 16 MiB")]
    TooLong,
    /// The line is not JSON, or not a control line.
    #[error("{0}")]
    Syntax(String),
    /// A picture or the name of a mode cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// Reads lines up to the first message, which is the prompt of the task. Refuses the lines before
/// it that need a task.
///
/// # Errors
/// When the program cancels, or the input ends.
pub fn first_message(
    lines: &mut ControlReader,
    sight: &ImageSupport,
) -> Result<UserMessage, FirstMessageError> {
    while let Some(line) = lines.next_line() {
        match line {
            ControlLine::Message { task: Some(_), .. } | ControlLine::Cancel { task: Some(_) } => {
                lines.report_refusal(&LineRefusal::UnknownTask)
            }
            ControlLine::Message { text, images, .. } if !text.trim().is_empty() => {
                match decode_images(&images, sight) {
                    Ok(images) => return Ok(UserMessage { text, images }),
                    Err(why) => lines.report_refusal(&why),
                }
            }
            ControlLine::Message { .. } => lines.report_refusal(&LineRefusal::EmptyMessage),
            ControlLine::Cancel { task: None } => {
                return Err(FirstMessageError::Cancelled);
            }
            ControlLine::Mode { .. } => lines.report_refusal(&LineRefusal::NoTaskYet),
            ControlLine::Approve { .. } | ControlLine::Deny { .. } | ControlLine::Answer { .. } => {
                lines.report_refusal(&LineRefusal::NoQuestion)
            }
        }
    }
    Err(FirstMessageError::Ended)
}

impl ControlInput {
    /// Starts a thread that reads control lines until the input or the process ends, and submits
    /// them to the session.
    pub fn spawn_reader(&self, lines: ControlReader, known: LineContext, session: SessionHandle) {
        self.lock_registry().entries.push(TaskEntry {
            task: session.task().clone(),
            open_question: None,
        });
        let controls = self.clone();
        std::thread::spawn(move || controls.read_lines(lines, &known, &session));
    }

    fn lock_registry(&self) -> MutexGuard<'_, InboxRegistry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits each line to the session; the body of the reading thread.
    fn read_lines(&self, mut lines: ControlReader, known: &LineContext, session: &SessionHandle) {
        while let Some(mut line) = lines.next_line() {
            if let ControlLine::Mode { mode } = &mut line {
                match modes::resolve_mode_name(mode, &known.modes) {
                    Ok(name) => *mode = name,
                    Err(why) => {
                        lines.report_refusal(&LineRefusal::Unusable(why.to_string()));
                        continue;
                    }
                }
            }
            // The registry stays locked until the command is submitted, so that a question printed
            // meanwhile is not answered by this line.
            let mut registry = self.lock_registry();
            let submitted = registry
                .dispatch_line(line, known)
                .map(|(task, command)| session.submit_to(&task, command));
            match submitted {
                // Rejected only when the task is over; then the line no longer matters.
                Ok(_) => {}
                Err(why) => lines.report_refusal(&why),
            }
        }
        // Questions can no longer be answered: from now on they are denied.
        _ = session.submit(Command::Detach);
    }

    /// Records which tasks are running and what they ask. Must be called before the event is
    /// printed, because a program may answer at once.
    pub fn note_event(&self, event: &SessionEvent) {
        let mut registry = self.lock_registry();
        if let Some(label) = &event.subtask
            && !registry
                .entries
                .iter()
                .any(|entry| entry.task == label.task)
        {
            registry.entries.push(TaskEntry {
                task: label.task.clone(),
                open_question: None,
            });
        }
        match &event.kind {
            SessionEventKind::Request { request, question } => {
                let kind = match question {
                    UserQuestion::Approval { .. } => QuestionKind::Approval,
                    UserQuestion::Completion { .. } => QuestionKind::Completion,
                    _ => QuestionKind::FreeText,
                };
                let call = request.call.clone();
                if let Some(entry) = registry.entry_of(&request.task) {
                    entry.open_question = call.map(|call| OpenQuestion { call, kind });
                }
            }
            SessionEventKind::RequestClosed { request, .. } => {
                if let Some(entry) = registry.entry_of(&request.task) {
                    entry
                        .open_question
                        .take_if(|open| Some(&open.call) == request.call.as_ref());
                }
            }
            SessionEventKind::Record(record) if matches!(**record, Record::Ended { .. }) => {
                // The entry of the main task stays, for lines that name no task.
                if let Some(label) = &event.subtask {
                    registry.entries.retain(|entry| entry.task != label.task);
                }
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for ControlReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ControlReader")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl ControlReader {
    /// Creates a reader of the lines of `input`.
    pub fn new(input: impl BufRead + Send + 'static) -> Self {
        Self {
            input: Box::new(input),
            count: 0,
        }
    }

    /// Returns the next valid line, or `None` at the end of the input. Reports invalid lines.
    fn next_line(&mut self) -> Option<ControlLine> {
        loop {
            let mut bytes = Vec::new();
            // A read error counts as the end of the input.
            let read = (&mut self.input)
                .take(MAX_LINE)
                .read_until(b'\n', &mut bytes)
                .unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.count = self.count.saturating_add(1);
            // `take` cut the line. The rest is skipped, so that it is not read as a separate line.
            if !bytes.ends_with(b"\n") && u64::try_from(read).is_ok_and(|read| read >= MAX_LINE) {
                drop(bytes);
                skip_line(&mut self.input);
                self.report_refusal(&LineRefusal::TooLong);
                continue;
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&bytes) {
                Ok(line) => return Some(line),
                Err(error) => self.report_refusal(&LineRefusal::Syntax(error.to_string())),
            }
        }
    }

    /// Reports a line that is refused, with its number, on standard error.
    fn report_refusal(&self, why: &LineRefusal) {
        print::write_stderr(&print::sanitize_text(&format!(
            "sabir: control line {}: {why}; it changes nothing\n",
            self.count
        )));
    }
}

/// Skips the input through the next line feed.
fn skip_line(input: &mut impl BufRead) {
    loop {
        let (count, over) = match input.fill_buf() {
            Ok(buffer) => match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            },
            Err(_) => return,
        };
        input.consume(count);
        if over {
            return;
        }
    }
}

/// Decodes and checks the pictures of a line.
fn decode_images(given: &[ImageInput], sight: &ImageSupport) -> Result<Vec<Image>, LineRefusal> {
    given
        .iter()
        .map(ImageInput::decode_image)
        .collect::<Result<_, _>>()
        .and_then(|images| sight.check_images(images))
        .map_err(|why| LineRefusal::Unusable(why.to_string()))
}

impl InboxRegistry {
    /// Returns the task that a line addresses and the command it stands for, and closes the
    /// question that it answers.
    fn dispatch_line(
        &mut self,
        line: ControlLine,
        known: &LineContext,
    ) -> Result<(TaskId, Command), LineRefusal> {
        let entry = self.find_entry(&line)?;
        let command = parse_command(line, known, &entry.task, &mut entry.open_question)?;
        Ok((entry.task.clone(), command))
    }

    fn entry_of(&mut self, task: &TaskId) -> Option<&mut TaskEntry> {
        self.entries.iter_mut().find(|entry| entry.task == *task)
    }

    /// Finds the task that a line addresses: the named one, the one that asks about the call, or
    /// the main task.
    fn find_entry(&mut self, line: &ControlLine) -> Result<&mut TaskEntry, LineRefusal> {
        let (call, task) = match line {
            ControlLine::Message { task, .. } | ControlLine::Cancel { task } => (None, task),
            ControlLine::Mode { .. } => (None, &None),
            ControlLine::Approve { call, task }
            | ControlLine::Deny { call, task, .. }
            | ControlLine::Answer { call, task, .. } => (Some(call), task),
        };
        if let Some(task) = task {
            return self
                .entries
                .iter_mut()
                .find(|entry| entry.task == *task)
                .ok_or(LineRefusal::UnknownTask);
        }
        let Some(call) = call else {
            return self.entries.first_mut().ok_or(LineRefusal::UnknownTask);
        };
        let about = |entry: &&mut TaskEntry| {
            entry
                .open_question
                .as_ref()
                .is_some_and(|open| open.call == *call)
        };
        let mut asking = self.entries.iter_mut().filter(about);
        match (asking.next(), asking.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => Err(LineRefusal::NoQuestion),
            (Some(_), Some(_)) => Err(LineRefusal::AmbiguousCall),
        }
    }
}

/// Turns a line into a command for `task`, given its open question; closes the question if the
/// command settles it.
fn parse_command(
    line: ControlLine,
    known: &LineContext,
    task: &TaskId,
    open: &mut Option<OpenQuestion>,
) -> Result<Command, LineRefusal> {
    let kind_of = |call: &CallId| {
        open.as_ref()
            .filter(|open| open.call == *call)
            .map(|open| open.kind)
    };
    let (call, decision) = match line {
        ControlLine::Message {
            text,
            images,
            steer,
            ..
        } => {
            let message = UserMessage {
                text,
                images: decode_images(&images, &known.image_support.get())?,
            };
            if message.text.trim().is_empty() && message.images.is_empty() {
                return Err(LineRefusal::EmptyMessage);
            }
            // An interrupting message withdraws the open question, and any message is the answer to
            // a completion.
            open.take_if(|open| steer || open.kind == QuestionKind::Completion);
            let delivery = if steer {
                Delivery::Interrupt
            } else {
                Delivery::Queue
            };
            return Ok(Command::Send { message, delivery });
        }
        ControlLine::Mode { mode } => {
            // The call is checked again under the new mode, and the user is asked again if
            // necessary, so an approval of the old question must not count.
            open.take_if(|open| open.kind == QuestionKind::Approval);
            return Ok(Command::SetMode { mode });
        }
        ControlLine::Cancel { .. } => {
            *open = None;
            return Ok(Command::End);
        }
        ControlLine::Approve { call, .. } => match kind_of(&call) {
            Some(QuestionKind::Approval | QuestionKind::Completion) => (call, Decision::Allow),
            Some(QuestionKind::FreeText) => return Err(LineRefusal::NeedsAnswer),
            None => return Err(LineRefusal::NoQuestion),
        },
        ControlLine::Deny { call, reason, .. } => match kind_of(&call) {
            Some(_) => (call, Decision::Deny { reason }),
            None => return Err(LineRefusal::NoQuestion),
        },
        // Text never approves: only `approve` lets a call run.
        ControlLine::Answer {
            call, text, images, ..
        } => match kind_of(&call) {
            Some(QuestionKind::FreeText | QuestionKind::Completion) => {
                let images = decode_images(&images, &known.image_support.get())?;
                (call, Decision::Text { text, images })
            }
            Some(QuestionKind::Approval) => return Err(LineRefusal::NeedsApproval),
            None => return Err(LineRefusal::NoQuestion),
        },
    };
    *open = None;
    let request = RequestId {
        task: task.clone(),
        call: Some(call),
    };
    Ok(Command::Answer { request, decision })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> LineContext {
        LineContext {
            modes: Vec::new(),
            image_support: sabir_session::images::CurrentImageSupport::default(),
            editing: None,
            custom_commands: Default::default(),
        }
    }

    fn asked(kind: QuestionKind) -> Option<OpenQuestion> {
        Some(OpenQuestion {
            call: CallId::new("c1"),
            kind,
        })
    }

    /// Checks the command of a line, and whether the question stays open.
    fn check(
        line: &str,
        question: Option<OpenQuestion>,
        expected: Result<Command, LineRefusal>,
        stays: bool,
    ) {
        let mut open = question;
        let line = serde_json::from_str(line).unwrap();
        assert_eq!(
            parse_command(line, &known(), &TaskId::new("t"), &mut open),
            expected
        );
        assert_eq!(open.is_some(), stays);
    }

    #[test]
    fn answers_apply_only_to_the_open_question() {
        let replied = |decision| {
            let request = RequestId {
                task: TaskId::new("t"),
                call: Some(CallId::new("c1")),
            };
            Ok(Command::Answer { request, decision })
        };
        let send = |text: &str, delivery| {
            Ok(Command::Send {
                message: UserMessage::from_text(text),
                delivery,
            })
        };
        let words = |text: &str| text.to_owned();
        check(
            r#"{"kind":"approve","call":"c1"}"#,
            asked(QuestionKind::Approval),
            replied(Decision::Allow),
            false,
        );
        check(
            r#"{"kind":"approve","call":"c2"}"#,
            asked(QuestionKind::Approval),
            Err(LineRefusal::NoQuestion),
            true,
        );
        check(
            r#"{"kind":"approve","call":"c1"}"#,
            None,
            Err(LineRefusal::NoQuestion),
            false,
        );
        check(
            r#"{"kind":"deny","call":"c1","reason":"no"}"#,
            asked(QuestionKind::Approval),
            replied(Decision::Deny {
                reason: words("no"),
            }),
            false,
        );
        check(
            r#"{"kind":"deny","call":"c1"}"#,
            asked(QuestionKind::FreeText),
            replied(Decision::Deny { reason: words("") }),
            false,
        );
        check(
            r#"{"kind":"answer","call":"c1","text":"8080"}"#,
            asked(QuestionKind::FreeText),
            replied(Decision::Text {
                text: words("8080"),
                images: Vec::new(),
            }),
            false,
        );
        // A completion takes a yes and words, and any message answers it.
        check(
            r#"{"kind":"approve","call":"c1"}"#,
            asked(QuestionKind::Completion),
            replied(Decision::Allow),
            false,
        );
        check(
            r#"{"kind":"answer","call":"c1","text":"more"}"#,
            asked(QuestionKind::Completion),
            replied(Decision::Text {
                text: words("more"),
                images: Vec::new(),
            }),
            false,
        );
        check(
            r#"{"kind":"message","text":"more"}"#,
            asked(QuestionKind::Completion),
            send("more", Delivery::Queue),
            false,
        );
        check(
            r#"{"kind":"answer","call":"c1","text":"yes"}"#,
            asked(QuestionKind::Approval),
            Err(LineRefusal::NeedsApproval),
            true,
        );
        check(
            r#"{"kind":"message","text":"yes"}"#,
            asked(QuestionKind::Approval),
            send("yes", Delivery::Queue),
            true,
        );
        check(
            r#"{"kind":"message","text":"no","steer":true}"#,
            asked(QuestionKind::Approval),
            send("no", Delivery::Interrupt),
            false,
        );
        check(
            r#"{"kind":"message","text":" "}"#,
            asked(QuestionKind::Approval),
            Err(LineRefusal::EmptyMessage),
            true,
        );
        check(
            r#"{"kind":"cancel"}"#,
            asked(QuestionKind::Approval),
            Ok(Command::End),
            false,
        );
    }

    #[test]
    fn messages_can_have_pictures() {
        let picture = r#"{"media_type":"image/gif","data":"R0lGODlhAQABAAAAACw="}"#;
        let image = Image {
            media_type: "image/gif".to_owned(),
            data: "R0lGODlhAQABAAAAACw=".to_owned(),
        };
        let showed = |text: &str, at_once| {
            let message = UserMessage {
                text: text.to_owned(),
                images: vec![image.clone()],
            };
            let delivery = if at_once {
                Delivery::Interrupt
            } else {
                Delivery::Queue
            };
            Ok(Command::Send { message, delivery })
        };
        let line = |more: &str| format!(r#"{{"kind":"message","images":[{picture}]{more}}}"#);
        check(
            &line(r#","text":"see""#),
            asked(QuestionKind::Approval),
            showed("see", false),
            true,
        );
        check(
            &line(r#","steer":true"#),
            asked(QuestionKind::Approval),
            showed("", true),
            false,
        );
        let none =
            r#"{"kind":"message","text":"x","images":[{"media_type":"image/png","data":"aGk="}]}"#;
        let why =
            "a picture of the message cannot be shown: it is not a PNG, JPEG, GIF or WebP image";
        check(
            none,
            asked(QuestionKind::Approval),
            Err(LineRefusal::Unusable(why.to_owned())),
            true,
        );
    }

    /// Checks which task a line addresses: the index of its entry, or the reason why it is refused.
    #[test]
    fn answers_reach_the_task_that_asked() {
        let check =
            |line: &str, questions: [Option<&str>; 3], expected: Result<usize, LineRefusal>| {
                let mut registry = InboxRegistry::default();
                for (at, open) in questions.into_iter().enumerate() {
                    let open = open.map(|call| OpenQuestion {
                        call: CallId::new(call),
                        kind: QuestionKind::Approval,
                    });
                    registry.entries.push(TaskEntry {
                        task: TaskId::new(format!("t{at}")),
                        open_question: open,
                    });
                }
                let heard = registry
                    .dispatch_line(serde_json::from_str(line).unwrap(), &known())
                    .map(|(task, _)| task.to_string());
                assert_eq!(heard, expected.map(|at| format!("t{at}")), "{line}");
            };
        let one = [None, Some("a"), None];
        let two = [None, Some("a"), Some("a")];
        check(r#"{"kind":"approve","call":"a"}"#, one, Ok(1));
        check(r#"{"kind":"approve","call":"a","task":"t1"}"#, one, Ok(1));
        check(
            r#"{"kind":"approve","call":"a","task":"t0"}"#,
            one,
            Err(LineRefusal::NoQuestion),
        );
        check(
            r#"{"kind":"approve","call":"b"}"#,
            one,
            Err(LineRefusal::NoQuestion),
        );
        check(
            r#"{"kind":"deny","call":"a"}"#,
            two,
            Err(LineRefusal::AmbiguousCall),
        );
        check(r#"{"kind":"deny","call":"a","task":"t2"}"#, two, Ok(2));
        check(r#"{"kind":"message","text":"x"}"#, two, Ok(0));
        check(r#"{"kind":"message","text":"x","task":"t2"}"#, two, Ok(2));
        check(
            r#"{"kind":"message","text":"x","task":"t9"}"#,
            two,
            Err(LineRefusal::UnknownTask),
        );
        check(r#"{"kind":"cancel"}"#, two, Ok(0));
        check(r#"{"kind":"cancel","task":"t1"}"#, two, Ok(1));
    }

    #[test]
    fn the_first_message_is_the_prompt() {
        let check = |input: &str, expected: Result<&str, FirstMessageError>| {
            let mut reader = ControlReader::new(std::io::Cursor::new(input.to_owned()));
            let message = first_message(&mut reader, &ImageSupport::Supported);
            assert_eq!(message, expected.map(UserMessage::from_text), "{input}");
        };
        let message = r#"{"kind":"message","text":"go"}"#;
        check(message, Ok("go"));
        let early = r#"{"kind":"approve","call":"c"}"#;
        check(&format!("{early}\n\nnonsense\n{message}\n"), Ok("go"));
        check(&format!("{}\n{message}", " ".repeat(17 << 20)), Ok("go"));
        check(early, Err(FirstMessageError::Ended));
        check(
            &format!("{{\"kind\":\"cancel\"}}\n{message}"),
            Err(FirstMessageError::Cancelled),
        );
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in [
            "{}",
            "[]",
            r#"{"kind":"approve"}"#,
            r#"{"kind":"approve","call":"c","always":true}"#,
            r#"{"kind":"cancel","x":1}"#,
            r#"{"kind":"yes"}"#,
        ] {
            assert!(serde_json::from_str::<ControlLine>(line).is_err(), "{line}");
        }
    }
}
