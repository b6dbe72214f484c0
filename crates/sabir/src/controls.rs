//! Control lines: a program says on standard input what a user would say at a terminal (`--control`).
//!
//! All lines go to their task through one channel, so that they count in their order: an approval before the end of the input is an
//! approval. A line is held against the questions that stand on standard output at the moment in which it is read. What does not
//! fit (another call, a second answer, no JSON) is told on standard error and changes nothing.
//!
//! Subtasks have a seat of their own. A line that names no task is for the one that was begun, but an answer finds the question
//! about its call, whoever asked; where two tasks have calls of one name, the line has to say which is meant.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::{Heard, Question, Record, Reply, TaskEvent, TaskId, Words};
use sabir_call::{CallId, Image};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exit::{Exit, Failure};
use crate::pictures::{Given, Sight};
use crate::typed::Known;
use crate::{modes, print};

/// The longest line; one that is longer is left out.
const MAX_LINE: u64 = 16 << 20;

/// A line, as a program writes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// Words for the model.
    Message {
        #[serde(default)]
        text: String,
        /// Pictures that go with them.
        #[serde(default)]
        images: Vec<Given>,
        /// Whether they give up what the model is doing.
        #[serde(default)]
        steer: bool,
        task: Option<TaskId>,
    },
    /// Another mode.
    Mode { mode: String },
    /// The task is to end.
    Cancel { task: Option<TaskId> },
    /// That call may run.
    Approve { call: CallId, task: Option<TaskId> },
    /// It may not.
    Deny {
        call: CallId,
        #[serde(default)]
        reason: String,
        task: Option<TaskId>,
    },
    /// What the model wanted to know.
    Answer { call: CallId, text: String, task: Option<TaskId> },
}

/// Where the lines of a family are handed out. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Controls(Arc<Mutex<Seats>>);

/// A task's end of its channel.
#[derive(Debug)]
pub(crate) struct Seat {
    controls: Controls,
    task: TaskId,
    ears: Option<UnboundedReceiver<Heard>>,
}

/// Who hears lines: the task that was begun first, then subtasks.
#[derive(Debug, Default)]
struct Seats {
    taken: Vec<Party>,
    /// Whether the input is over.
    left: bool,
}

/// One of them.
#[derive(Debug)]
struct Party {
    task: TaskId,
    /// The question that stands.
    open: Option<Open>,
    said: UnboundedSender<Heard>,
}

/// A question that has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    call: CallId,
    /// Whether it is about an approval.
    approval: bool,
}

/// Standard input, and how many lines of it were read.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    count: usize,
}

/// Reads the first message, which says what is to be done. What comes before it can mean nothing yet.
pub(crate) fn first_message(lines: &mut Lines, sight: &Sight) -> Result<Words, Failure> {
    while let Some(line) = lines.next() {
        match line {
            Line::Message { task: Some(_), .. } | Line::Cancel { task: Some(_) } => lines.refuse(NO_TASK),
            Line::Message { text, images, .. } if !text.trim().is_empty() => match shown(&images, sight) {
                Ok(images) => return Ok(Words { text, images }),
                Err(why) => lines.refuse(&why),
            },
            Line::Message { .. } => lines.refuse("the message says nothing"),
            Line::Cancel { task: None } => {
                return Err(Failure {
                    message: "cancelled before there was a task".to_owned(),
                    exit: Exit::Interrupted,
                });
            }
            Line::Mode { .. } => lines.refuse("there is no task yet; --mode says in which mode it begins"),
            Line::Approve { .. } | Line::Deny { .. } | Line::Answer { .. } => lines.refuse(NO_QUESTION),
        }
    }
    Err(Failure::usage("standard input ended before a message said what to do"))
}

const NO_QUESTION: &str = "no question about that call is open";

const NO_TASK: &str = "no such task is at work";

impl Controls {
    /// Reads on in a thread of its own, until the input or the process ends. The task that was begun has taken its seat.
    pub(crate) fn listen(&self, lines: Lines, known: Known) {
        let controls = self.clone();
        std::thread::spawn(move || controls.read_all(lines, &known));
    }

    /// A seat for a task, until it is dropped.
    pub(crate) fn seat(&self, task: &TaskId) -> Seat {
        let (said, ears) = unbounded_channel();
        let mut seats = self.seats();
        if seats.left {
            // It listens from its beginning.
            _ = said.send(Heard::Left);
        }
        seats.taken.push(Party { task: task.clone(), open: None, said });
        drop(seats);
        Seat { controls: self.clone(), task: task.clone(), ears: Some(ears) }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_all(&self, mut lines: Lines, known: &Known) {
        while let Some(mut line) = lines.next() {
            if let Line::Mode { mode } = &mut line {
                match modes::named(mode, &known.modes) {
                    Ok(name) => *mode = name,
                    Err(why) => {
                        lines.refuse(&why);
                        continue;
                    }
                }
            }
            let mut seats = self.seats();
            match seats.hear(line, known) {
                // Nobody listens once the task is over.
                Ok((party, heard)) => _ = party.said.send(heard),
                Err(why) => lines.refuse(&why),
            }
        }
        let mut seats = self.seats();
        seats.left = true;
        seats.taken.iter().for_each(|party| _ = party.said.send(Heard::Left));
    }
}

impl Seat {
    pub(crate) fn ears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.ears.take()
    }

    /// Must be called before the event can be seen: who sees a question may answer it at once.
    pub(crate) fn note(&mut self, event: &TaskEvent<'_>) {
        let mut seats = self.controls.seats();
        let Some(Party { open, .. }) = seats.taken.iter_mut().find(|party| party.task == self.task) else { return };
        match event {
            TaskEvent::Moment(sabir_agent::Moment::Question(question)) => {
                let approval = matches!(question, Question::Approval { .. });
                *open = question.call().cloned().map(|call| Open { call, approval });
            }
            TaskEvent::Record(Record::Result(result)) => _ = open.take_if(|open| open.call == result.id),
            TaskEvent::Record(Record::Ended { .. }) => *open = None,
            _ => {}
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.controls.seats().taken.retain(|party| party.task != self.task);
    }
}

impl Lines {
    /// The next line that can be understood; `None`: the input is over.
    fn next(&mut self) -> Option<Line> {
        loop {
            let mut bytes = Vec::new();
            let mut input = io::stdin().lock();
            // What cannot be read any more has ended.
            let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.count = self.count.saturating_add(1);
            if !bytes.ends_with(b"\n") && u64::try_from(read).is_ok_and(|read| read >= MAX_LINE) {
                drop(bytes);
                skip_line(&mut input);
                self.refuse("it is longer than 16 MiB");
                continue;
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&bytes) {
                Ok(line) => return Some(line),
                Err(error) => self.refuse(&error.to_string()),
            }
        }
    }

    fn refuse(&self, why: &str) {
        print::err(&print::visible(&format!("sabir: control line {}: {why}; it changes nothing\n", self.count)));
    }
}

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

/// The pictures of a line.
fn shown(given: &[Given], sight: &Sight) -> Result<Vec<Image>, String> {
    sight.shown(given.iter().map(Given::image).collect::<Result<_, _>>()?)
}

impl Seats {
    /// Who hears a line, and what.
    fn hear(&mut self, line: Line, known: &Known) -> Result<(&Party, Heard), String> {
        let party = self.meant(&line).map_err(str::to_owned)?;
        let heard = heard(line, known, &mut party.open)?;
        Ok((party, heard))
    }

    /// Whom a line is for.
    fn meant(&mut self, line: &Line) -> Result<&mut Party, &'static str> {
        let (call, task) = match line {
            Line::Message { task, .. } | Line::Cancel { task } => (None, task),
            Line::Mode { .. } => (None, &None),
            Line::Approve { call, task } | Line::Deny { call, task, .. } | Line::Answer { call, task, .. } => {
                (Some(call), task)
            }
        };
        if let Some(task) = task {
            return self.taken.iter_mut().find(|party| party.task == *task).ok_or(NO_TASK);
        }
        let Some(call) = call else { return self.taken.first_mut().ok_or(NO_TASK) };
        let about = |party: &&mut Party| party.open.as_ref().is_some_and(|open| open.call == *call);
        let mut asking = self.taken.iter_mut().filter(about);
        match (asking.next(), asking.next()) {
            (Some(party), None) => Ok(party),
            (None, _) => Err(NO_QUESTION),
            (Some(_), Some(_)) => Err("several tasks ask about a call of that name: say which with `task`"),
        }
    }
}

/// What a line means to a task while that question is open.
fn heard(line: Line, known: &Known, open: &mut Option<Open>) -> Result<Heard, String> {
    let approval = |call: &CallId| open.as_ref().filter(|open| open.call == *call).map(|open| open.approval);
    let (call, reply) = match line {
        Line::Message { text, images, steer, .. } => {
            let words = Words { text, images: shown(&images, &known.sight)? };
            if words.is_empty() {
                return Err("the message says nothing".to_owned());
            }
            // It takes the question back.
            open.take_if(|_| steer);
            return Ok(match (words.images.is_empty(), steer) {
                (true, false) => Heard::Said(words.text),
                (true, true) => Heard::Steered(words.text),
                (false, at_once) => Heard::Showed { words, at_once },
            });
        }
        Line::Mode { mode } => {
            // What is asked about is judged anew, and asked once more if it has to be: nothing is approved before that.
            open.take_if(|open| open.approval);
            return Ok(Heard::Moded(mode));
        }
        Line::Cancel { .. } => {
            *open = None;
            return Ok(Heard::Cancelled);
        }
        Line::Approve { call, .. } => match approval(&call) {
            Some(true) => (call, Reply::Yes),
            Some(false) => return Err("the question is one for words: it takes `answer`".to_owned()),
            None => return Err(NO_QUESTION.to_owned()),
        },
        Line::Deny { call, reason, .. } => match approval(&call) {
            Some(_) => (call, Reply::No(reason)),
            None => return Err(NO_QUESTION.to_owned()),
        },
        Line::Answer { call, text, .. } => match approval(&call) {
            Some(false) => (call, Reply::Words(text)),
            Some(true) => return Err("words approve nothing: the question takes `approve` or `deny`".to_owned()),
            None => return Err(NO_QUESTION.to_owned()),
        },
    };
    *open = None;
    Ok(Heard::Replied(call, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known { modes: Vec::new(), sight: Sight::Sees }
    }

    #[test]
    fn lines_count_for_the_open_question_alone() {
        let asked = |approval| Some(Open { call: CallId::new("c1"), approval });
        let check = |line: &str, question: Option<Open>, expected: Result<Heard, &str>, stays: bool| {
            let mut open = question;
            let line = serde_json::from_str(line).unwrap();
            assert_eq!(heard(line, &known(), &mut open), expected.map_err(str::to_owned));
            assert_eq!(open.is_some(), stays);
        };
        let replied = |reply| Ok(Heard::Replied(CallId::new("c1"), reply));
        let words = |text: &str| text.to_owned();
        check(r#"{"kind":"approve","call":"c1"}"#, asked(true), replied(Reply::Yes), false);
        check(r#"{"kind":"approve","call":"c2"}"#, asked(true), Err(NO_QUESTION), true);
        check(r#"{"kind":"approve","call":"c1"}"#, None, Err(NO_QUESTION), false);
        check(r#"{"kind":"deny","call":"c1","reason":"no"}"#, asked(true), replied(Reply::No(words("no"))), false);
        check(r#"{"kind":"deny","call":"c1"}"#, asked(false), replied(Reply::No(words(""))), false);
        check(
            r#"{"kind":"answer","call":"c1","text":"8080"}"#,
            asked(false),
            replied(Reply::Words(words("8080"))),
            false,
        );
        let no_words = "words approve nothing: the question takes `approve` or `deny`";
        check(r#"{"kind":"answer","call":"c1","text":"yes"}"#, asked(true), Err(no_words), true);
        check(r#"{"kind":"message","text":"yes"}"#, asked(true), Ok(Heard::Said(words("yes"))), true);
        check(r#"{"kind":"message","text":"no","steer":true}"#, asked(true), Ok(Heard::Steered(words("no"))), false);
        check(r#"{"kind":"message","text":" "}"#, asked(true), Err("the message says nothing"), true);
        check(r#"{"kind":"cancel"}"#, asked(true), Ok(Heard::Cancelled), false);
        let picture = r#"{"media_type":"image/gif","data":"R0lGODlhAQABAAAAACw="}"#;
        let image = Image { media_type: "image/gif".to_owned(), data: "R0lGODlhAQABAAAAACw=".to_owned() };
        let showed = |text: &str, at_once| {
            Ok(Heard::Showed { words: Words { text: text.to_owned(), images: vec![image.clone()] }, at_once })
        };
        let line = |more: &str| format!(r#"{{"kind":"message","images":[{picture}]{more}}}"#);
        check(&line(r#","text":"see""#), asked(true), showed("see", false), true);
        check(&line(r#","steer":true"#), asked(true), showed("", true), false);
        let none = r#"{"kind":"message","text":"x","images":[{"media_type":"image/png","data":"aGk="}]}"#;
        let why = "a picture of the message cannot be shown: it is no PNG, JPEG, GIF or WebP image";
        check(none, asked(true), Err(why), true);
    }

    /// Whom a line is for: the number of the seat, or why nobody hears it.
    #[test]
    fn lines_find_the_task_that_asks() {
        let check = |line: &str, questions: [Option<&str>; 3], expected: Result<usize, &str>| {
            let mut seats = Seats::default();
            for (at, open) in questions.into_iter().enumerate() {
                let open = open.map(|call| Open { call: CallId::new(call), approval: true });
                let (task, said) = (TaskId::new(format!("t{at}")), unbounded_channel().0);
                seats.taken.push(Party { task, open, said });
            }
            let heard =
                seats.hear(serde_json::from_str(line).unwrap(), &known()).map(|(party, _)| party.task.to_string());
            assert_eq!(heard, expected.map(|at| format!("t{at}")).map_err(str::to_owned), "{line}");
        };
        let one = [None, Some("a"), None];
        let two = [None, Some("a"), Some("a")];
        let several = "several tasks ask about a call of that name: say which with `task`";
        check(r#"{"kind":"approve","call":"a"}"#, one, Ok(1));
        check(r#"{"kind":"approve","call":"a","task":"t1"}"#, one, Ok(1));
        check(r#"{"kind":"approve","call":"a","task":"t0"}"#, one, Err(NO_QUESTION));
        check(r#"{"kind":"approve","call":"b"}"#, one, Err(NO_QUESTION));
        check(r#"{"kind":"deny","call":"a"}"#, two, Err(several));
        check(r#"{"kind":"deny","call":"a","task":"t2"}"#, two, Ok(2));
        check(r#"{"kind":"message","text":"x"}"#, two, Ok(0));
        check(r#"{"kind":"message","text":"x","task":"t2"}"#, two, Ok(2));
        check(r#"{"kind":"message","text":"x","task":"t9"}"#, two, Err(NO_TASK));
        check(r#"{"kind":"cancel"}"#, two, Ok(0));
        check(r#"{"kind":"cancel","task":"t1"}"#, two, Ok(1));
    }

    #[test]
    fn a_seat_is_taken_as_long_as_its_task_is_at_work() {
        let controls = Controls::default();
        let mut root = controls.seat(&TaskId::new("t"));
        let child = controls.seat(&TaskId::new("t-1"));
        controls.seats().taken[1].open = Some(Open { call: CallId::new("c"), approval: true });
        drop(child);
        let approve = || serde_json::from_str(r#"{"kind":"approve","call":"c"}"#).unwrap();
        assert_eq!(controls.seats().hear(approve(), &known()).map(|(_, heard)| heard), Err(NO_QUESTION.to_owned()));
        controls.seats().left = true;
        let mut late = controls.seat(&TaskId::new("t-2"));
        assert_eq!(late.ears().unwrap().try_recv(), Ok(Heard::Left));
        assert!(root.ears().unwrap().try_recv().is_err());
    }

    #[test]
    fn what_is_no_line_is_none() {
        for line in [
            "{}",
            "[]",
            r#"{"kind":"approve"}"#,
            r#"{"kind":"approve","call":"c","always":true}"#,
            r#"{"kind":"cancel","x":1}"#,
            r#"{"kind":"yes"}"#,
        ] {
            assert!(serde_json::from_str::<Line>(line).is_err(), "{line}");
        }
    }
}
