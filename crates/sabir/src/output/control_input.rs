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

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::{Record, TaskId, UserQuestion};
use sabir_call::{CallId, Image};
use sabir_session::modes;
use sabir_session::pictures::{ImageInput, ImageSupport};
use sabir_session::{
    Command, Decision, Delivery, RequestId, SessionEvent, SessionEventKind, SessionHandle,
    UserMessage,
};
use serde::Deserialize;

use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::output::stdin_reader::LineContext;

/// The maximum length of a line in bytes (16 MiB, enough for pictures in base64). A longer line is
/// skipped and reported.
const MAX_LINE: u64 = 16 << 20;

/// A control line in its JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
        text: String,
        task: Option<TaskId>,
    },
}

/// The control input of a task and its subtasks. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlInput(Arc<Mutex<InboxRegistry>>);

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
    /// True if the question asks for an approval rather than for text.
    approval: bool,
}

/// A reader of standard input that counts lines for its messages.
#[derive(Debug, Default)]
pub(crate) struct ControlReader {
    count: usize,
}

/// Reads lines up to the first message, which is the prompt of the task. Refuses the lines before
/// it that need a task.
pub(crate) fn first_message(
    lines: &mut ControlReader,
    sight: &ImageSupport,
) -> Result<UserMessage, CommandError> {
    while let Some(line) = lines.next_line() {
        match line {
            ControlLine::Message { task: Some(_), .. } | ControlLine::Cancel { task: Some(_) } => {
                lines.report_refusal(NO_TASK)
            }
            ControlLine::Message { text, images, .. } if !text.trim().is_empty() => {
                match decode_images(&images, sight) {
                    Ok(images) => return Ok(UserMessage { text, images }),
                    Err(why) => lines.report_refusal(&why),
                }
            }
            ControlLine::Message { .. } => lines.report_refusal("the message says nothing"),
            ControlLine::Cancel { task: None } => {
                return Err(CommandError {
                    message: "cancelled before there was a task".to_owned(),
                    exit: ExitStatus::Interrupted,
                });
            }
            ControlLine::Mode { .. } => {
                lines.report_refusal("there is no task yet; --mode says in which mode it begins")
            }
            ControlLine::Approve { .. } | ControlLine::Deny { .. } | ControlLine::Answer { .. } => {
                lines.report_refusal(NO_QUESTION)
            }
        }
    }
    Err(CommandError::usage(
        "standard input ended before a message said what to do",
    ))
}

/// The refusal of a line about a call without an open question.
const NO_QUESTION: &str = "no question about that call is open";

/// The refusal of a line that names an unknown task.
const NO_TASK: &str = "no such task is at work";

impl ControlInput {
    /// Starts a thread that reads control lines until the input or the process ends, and submits
    /// them to the session.
    pub(crate) fn spawn_reader(
        &self,
        lines: ControlReader,
        known: LineContext,
        session: SessionHandle,
    ) {
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
                        lines.report_refusal(&why);
                        continue;
                    }
                }
            }
            // The registry stays locked until the command is submitted, so that a question printed
            // meanwhile is not answered by this line.
            let mut seats = self.lock_registry();
            let submitted = seats
                .dispatch_line(line, known)
                .map(|(task, command)| session.submit_to(&task, command));
            match submitted {
                // Rejected only when the task is over; then the line no longer matters.
                Ok(_) => {}
                Err(why) => lines.report_refusal(&why),
            }
        }
        _ = session.submit(Command::Detach);
    }

    /// Records which tasks are running and what they ask. Must be called before the event is
    /// printed, because a program may answer at once.
    pub(crate) fn note_event(&self, event: &SessionEvent) {
        let mut seats = self.lock_registry();
        if let Some(label) = &event.subtask
            && !seats.entries.iter().any(|party| party.task == label.task)
        {
            seats.entries.push(TaskEntry {
                task: label.task.clone(),
                open_question: None,
            });
        }
        match &event.kind {
            SessionEventKind::Request { request, question } => {
                let approval = matches!(question, UserQuestion::Approval { .. });
                let call = request.call.clone();
                if let Some(party) = seats.party(&request.task) {
                    party.open_question = call.map(|call| OpenQuestion { call, approval });
                }
            }
            SessionEventKind::RequestClosed { request, .. } => {
                if let Some(party) = seats.party(&request.task) {
                    party
                        .open_question
                        .take_if(|open| Some(&open.call) == request.call.as_ref());
                }
            }
            SessionEventKind::Record(record) if matches!(**record, Record::Ended { .. }) => {
                if let Some(label) = &event.subtask {
                    seats.entries.retain(|party| party.task != label.task);
                }
            }
            _ => {}
        }
    }
}

impl ControlReader {
    /// Returns the next valid line, or `None` at the end of the input. Reports invalid lines.
    fn next_line(&mut self) -> Option<ControlLine> {
        loop {
            let mut bytes = Vec::new();
            let mut input = io::stdin().lock();
            // A read error counts as the end of the input.
            let read = input
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut bytes)
                .unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.count = self.count.saturating_add(1);
            // `take` cut the line: skip its rest, so that the rest is not read as a line of its
            // own.
            if !bytes.ends_with(b"\n") && u64::try_from(read).is_ok_and(|read| read >= MAX_LINE) {
                drop(bytes);
                skip_line(&mut input);
                self.report_refusal("it is longer than 16 MiB");
                continue;
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&bytes) {
                Ok(line) => return Some(line),
                Err(error) => self.report_refusal(&error.to_string()),
            }
        }
    }

    /// Reports a line that is refused, with its number, on standard error.
    fn report_refusal(&self, why: &str) {
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
fn decode_images(given: &[ImageInput], sight: &ImageSupport) -> Result<Vec<Image>, String> {
    sight.check_images(
        given
            .iter()
            .map(ImageInput::decode_image)
            .collect::<Result<_, _>>()?,
    )
}

impl InboxRegistry {
    /// Returns the task that a line addresses and the command it stands for, and closes the
    /// question that it answers.
    fn dispatch_line(
        &mut self,
        line: ControlLine,
        known: &LineContext,
    ) -> Result<(TaskId, Command), String> {
        let party = self.find_entry(&line).map_err(str::to_owned)?;
        let command = command(line, known, &party.task, &mut party.open_question)?;
        Ok((party.task.clone(), command))
    }

    fn party(&mut self, task: &TaskId) -> Option<&mut TaskEntry> {
        self.entries.iter_mut().find(|party| party.task == *task)
    }

    /// Finds the task that a line addresses: the named one, the one that asks about the call, or
    /// the main task.
    fn find_entry(&mut self, line: &ControlLine) -> Result<&mut TaskEntry, &'static str> {
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
                .find(|party| party.task == *task)
                .ok_or(NO_TASK);
        }
        let Some(call) = call else {
            return self.entries.first_mut().ok_or(NO_TASK);
        };
        let about = |party: &&mut TaskEntry| {
            party
                .open_question
                .as_ref()
                .is_some_and(|open| open.call == *call)
        };
        let mut asking = self.entries.iter_mut().filter(about);
        match (asking.next(), asking.next()) {
            (Some(party), None) => Ok(party),
            (None, _) => Err(NO_QUESTION),
            (Some(_), Some(_)) => {
                Err("several tasks ask about a call of that name: say which with `task`")
            }
        }
    }
}

/// Turns a line into a command for `task`, given its open question; closes the question if the
/// command settles it.
fn command(
    line: ControlLine,
    known: &LineContext,
    task: &TaskId,
    open: &mut Option<OpenQuestion>,
) -> Result<Command, String> {
    let approval = |call: &CallId| {
        open.as_ref()
            .filter(|open| open.call == *call)
            .map(|open| open.approval)
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
                images: decode_images(&images, &known.image_support)?,
            };
            if message.text.trim().is_empty() && message.images.is_empty() {
                return Err("the message says nothing".to_owned());
            }
            // An interrupting message withdraws the open question.
            open.take_if(|_| steer);
            let delivery = if steer {
                Delivery::Interrupt
            } else {
                Delivery::Queue
            };
            return Ok(Command::Send { message, delivery });
        }
        ControlLine::Mode { mode } => {
            // The call is checked again under the new mode and asked about again if necessary, so
            // an approval of the old question must not count.
            open.take_if(|open| open.approval);
            return Ok(Command::SetMode { mode });
        }
        ControlLine::Cancel { .. } => {
            *open = None;
            return Ok(Command::End);
        }
        ControlLine::Approve { call, .. } => match approval(&call) {
            Some(true) => (call, Decision::Allow),
            Some(false) => {
                return Err("the question is one for words: it takes `answer`".to_owned());
            }
            None => return Err(NO_QUESTION.to_owned()),
        },
        ControlLine::Deny { call, reason, .. } => match approval(&call) {
            Some(_) => (call, Decision::Deny { reason }),
            None => return Err(NO_QUESTION.to_owned()),
        },
        // Text never approves: only `approve` lets a call run.
        ControlLine::Answer { call, text, .. } => match approval(&call) {
            Some(false) => (call, Decision::Text { text }),
            Some(true) => {
                return Err(
                    "words approve nothing: the question takes `approve` or `deny`".to_owned(),
                );
            }
            None => return Err(NO_QUESTION.to_owned()),
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
            image_support: ImageSupport::Supported,
        }
    }

    #[test]
    fn lines_count_for_the_open_question_alone() {
        let asked = |approval| {
            Some(OpenQuestion {
                call: CallId::new("c1"),
                approval,
            })
        };
        let task = TaskId::new("t");
        let check = |line: &str,
                     question: Option<OpenQuestion>,
                     expected: Result<Command, &str>,
                     stays: bool| {
            let mut open = question;
            let line = serde_json::from_str(line).unwrap();
            assert_eq!(
                command(line, &known(), &task, &mut open),
                expected.map_err(str::to_owned)
            );
            assert_eq!(open.is_some(), stays);
        };
        let replied = |decision| {
            let request = RequestId {
                task: task.clone(),
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
            asked(true),
            replied(Decision::Allow),
            false,
        );
        check(
            r#"{"kind":"approve","call":"c2"}"#,
            asked(true),
            Err(NO_QUESTION),
            true,
        );
        check(
            r#"{"kind":"approve","call":"c1"}"#,
            None,
            Err(NO_QUESTION),
            false,
        );
        check(
            r#"{"kind":"deny","call":"c1","reason":"no"}"#,
            asked(true),
            replied(Decision::Deny {
                reason: words("no"),
            }),
            false,
        );
        check(
            r#"{"kind":"deny","call":"c1"}"#,
            asked(false),
            replied(Decision::Deny { reason: words("") }),
            false,
        );
        check(
            r#"{"kind":"answer","call":"c1","text":"8080"}"#,
            asked(false),
            replied(Decision::Text {
                text: words("8080"),
            }),
            false,
        );
        let no_words = "words approve nothing: the question takes `approve` or `deny`";
        check(
            r#"{"kind":"answer","call":"c1","text":"yes"}"#,
            asked(true),
            Err(no_words),
            true,
        );
        check(
            r#"{"kind":"message","text":"yes"}"#,
            asked(true),
            send("yes", Delivery::Queue),
            true,
        );
        check(
            r#"{"kind":"message","text":"no","steer":true}"#,
            asked(true),
            send("no", Delivery::Interrupt),
            false,
        );
        check(
            r#"{"kind":"message","text":" "}"#,
            asked(true),
            Err("the message says nothing"),
            true,
        );
        check(r#"{"kind":"cancel"}"#, asked(true), Ok(Command::End), false);
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
            asked(true),
            showed("see", false),
            true,
        );
        check(
            &line(r#","steer":true"#),
            asked(true),
            showed("", true),
            false,
        );
        let none =
            r#"{"kind":"message","text":"x","images":[{"media_type":"image/png","data":"aGk="}]}"#;
        let why = "a picture of the message cannot be shown: it is no PNG, JPEG, GIF or WebP image";
        check(none, asked(true), Err(why), true);
    }

    /// Checks which task a line addresses: the index of its entry, or the reason why it is refused.
    #[test]
    fn lines_find_the_task_that_asks() {
        let check = |line: &str, questions: [Option<&str>; 3], expected: Result<usize, &str>| {
            let mut seats = InboxRegistry::default();
            for (at, open) in questions.into_iter().enumerate() {
                let open = open.map(|call| OpenQuestion {
                    call: CallId::new(call),
                    approval: true,
                });
                seats.entries.push(TaskEntry {
                    task: TaskId::new(format!("t{at}")),
                    open_question: open,
                });
            }
            let heard = seats
                .dispatch_line(serde_json::from_str(line).unwrap(), &known())
                .map(|(task, _)| task.to_string());
            assert_eq!(
                heard,
                expected.map(|at| format!("t{at}")).map_err(str::to_owned),
                "{line}"
            );
        };
        let one = [None, Some("a"), None];
        let two = [None, Some("a"), Some("a")];
        let several = "several tasks ask about a call of that name: say which with `task`";
        check(r#"{"kind":"approve","call":"a"}"#, one, Ok(1));
        check(r#"{"kind":"approve","call":"a","task":"t1"}"#, one, Ok(1));
        check(
            r#"{"kind":"approve","call":"a","task":"t0"}"#,
            one,
            Err(NO_QUESTION),
        );
        check(r#"{"kind":"approve","call":"b"}"#, one, Err(NO_QUESTION));
        check(r#"{"kind":"deny","call":"a"}"#, two, Err(several));
        check(r#"{"kind":"deny","call":"a","task":"t2"}"#, two, Ok(2));
        check(r#"{"kind":"message","text":"x"}"#, two, Ok(0));
        check(r#"{"kind":"message","text":"x","task":"t2"}"#, two, Ok(2));
        check(
            r#"{"kind":"message","text":"x","task":"t9"}"#,
            two,
            Err(NO_TASK),
        );
        check(r#"{"kind":"cancel"}"#, two, Ok(0));
        check(r#"{"kind":"cancel","task":"t1"}"#, two, Ok(1));
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
