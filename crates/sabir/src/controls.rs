//! Control lines: a program says on standard input what a user would say at a terminal (`--control`).
//!
//! All lines go to the task through one channel, so that they count in their order: an approval before the end of the input is an
//! approval. A line is held against the question that stands on standard output at the moment in which it is read. What does not
//! fit (another call, a second answer, no JSON) is told on standard error and changes nothing.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{Heard, Question, Record, Reply, TaskEvent, Words};
use sabir_call::{CallId, Image};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exit::{Exit, Failure};
use crate::pictures::{Given, Sight};
use crate::print;

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
    },
    /// The task is to end.
    Cancel {},
    /// That call may run.
    Approve { call: CallId },
    /// It may not.
    Deny {
        call: CallId,
        #[serde(default)]
        reason: String,
    },
    /// What the model wanted to know.
    Answer { call: CallId, text: String },
}

/// The task's end of the channel, and the question that stands there.
#[derive(Debug)]
pub(crate) struct Controls {
    open: Arc<Mutex<Option<Open>>>,
    ears: Option<UnboundedReceiver<Heard>>,
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
            Line::Message { text, images, .. } if !text.trim().is_empty() => match shown(&images, sight) {
                Ok(images) => return Ok(Words { text, images }),
                Err(why) => lines.refuse(&why),
            },
            Line::Message { .. } => lines.refuse("the message says nothing"),
            Line::Cancel {} => {
                return Err(Failure {
                    message: "cancelled before there was a task".to_owned(),
                    exit: Exit::Interrupted,
                });
            }
            Line::Approve { .. } | Line::Deny { .. } | Line::Answer { .. } => lines.refuse(NO_QUESTION),
        }
    }
    Err(Failure::usage("standard input ended before a message said what to do"))
}

const NO_QUESTION: &str = "no question about that call is open";

impl Controls {
    /// Reads on in a thread of its own, until the input or the process ends.
    pub(crate) fn listen(lines: Lines, sight: Sight) -> Self {
        let (sender, ears) = unbounded_channel();
        let open = Arc::new(Mutex::new(None));
        let asked = Arc::clone(&open);
        std::thread::spawn(move || read_all(lines, &sight, &asked, &sender));
        Self { open, ears: Some(ears) }
    }

    pub(crate) fn ears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.ears.take()
    }

    /// Must be called before the event can be seen: who sees a question may answer it at once.
    pub(crate) fn note(&mut self, event: &TaskEvent<'_>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
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

fn read_all(mut lines: Lines, sight: &Sight, open: &Mutex<Option<Open>>, sender: &UnboundedSender<Heard>) {
    while let Some(line) = lines.next() {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        match heard(line, sight, &mut open) {
            // Nobody listens once the task is over.
            Ok(heard) => _ = sender.send(heard),
            Err(why) => lines.refuse(&why),
        }
    }
    _ = sender.send(Heard::Left);
}

/// What a line means while that question is open.
fn heard(line: Line, sight: &Sight, open: &mut Option<Open>) -> Result<Heard, String> {
    let approval = |call: &CallId| open.as_ref().filter(|open| open.call == *call).map(|open| open.approval);
    let (call, reply) = match line {
        Line::Message { text, images, steer } => {
            let words = Words { text, images: shown(&images, sight)? };
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
        Line::Cancel {} => {
            *open = None;
            return Ok(Heard::Cancelled);
        }
        Line::Approve { call } => match approval(&call) {
            Some(true) => (call, Reply::Yes),
            Some(false) => return Err("the question is one for words: it takes `answer`".to_owned()),
            None => return Err(NO_QUESTION.to_owned()),
        },
        Line::Deny { call, reason } => match approval(&call) {
            Some(_) => (call, Reply::No(reason)),
            None => return Err(NO_QUESTION.to_owned()),
        },
        Line::Answer { call, text } => match approval(&call) {
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

    #[test]
    fn lines_count_for_the_open_question_alone() {
        let asked = |approval| Some(Open { call: CallId::new("c1"), approval });
        let check = |line: &str, question: Option<Open>, expected: Result<Heard, &str>, stays: bool| {
            let mut open = question;
            let line = serde_json::from_str(line).unwrap();
            assert_eq!(heard(line, &Sight::Sees, &mut open), expected.map_err(str::to_owned));
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
