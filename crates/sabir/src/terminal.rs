//! The plain interactive mode: line by line, streaming.
//!
//! A line that was typed before a question stood there never answers it: like all that is typed while the task works it is said to
//! the model, which reads it behind what it is doing; `/now WORDS` has it read at once, and
//! `/mode NAME` switches the mode. On a terminal an answer counts only a moment after the question was drawn, since keys are on their way while it appears.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sabir_agent::{Aside, Compaction, Heard, Moment, Proposal, Question, Record, Reply, Speaker, TaskEvent, User};
use sabir_session::pictures;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::front_end::Audience;
use crate::screen::Painter;
use crate::shown::{exactly, first_lines, in_part};
use crate::typed::{self, Known, Typed};
use crate::{context, print};

/// How much of what a call would write is shown before the user is asked.
const SHOWN_LINES: usize = 120;
/// Runs of blanks that are counted: in what is asked about, and in text that may be indented.
const LONG_RUN: usize = 16;
const LONG_INDENT: usize = 80;
/// Nobody reads a question in less. Keys that come before are for what stood there.
const SETTLE: Duration = Duration::from_millis(250);

/// A user at a terminal, or at the other end of a pipe.
#[derive(Debug)]
pub(crate) struct Terminal {
    painter: Painter,
    typed: Typed,
    /// The question for which lines count.
    asked: Option<Question>,
    /// Whether it is not the user's turn.
    works: bool,
}

impl Terminal {
    pub(crate) fn new(known: Known) -> Self {
        Self { painter: Painter::default(), typed: Typed::new(known), asked: None, works: false }
    }

    async fn answer(&mut self, question: &Question) -> Reply {
        // Words that came meanwhile do not end a question: it stands there already.
        if self.asked.as_ref() != Some(question) {
            if matches!(question, Question::Next { .. }) {
                if !self.typed.await_words() {
                    return Reply::Leave;
                }
                print::err(prompt(question));
            } else {
                if Typed::is_terminal() {
                    tokio::time::sleep(SETTLE).await;
                }
                self.typed.await_answer(|| print::err(prompt(question)));
            }
            self.asked = Some(question.clone());
        }
        loop {
            let Some(line) = self.typed.answer().await else { return Reply::Leave };
            match reply(question, line.trim()) {
                Some(reply) => return reply,
                None => print::err(prompt(question)),
            }
        }
    }

    /// Nothing is asked any more.
    fn go_on(&mut self) {
        if self.asked.take().is_some() {
            self.typed.go_on();
        }
    }

    /// What the user said is shown where it does not stand on his screen as an answer.
    fn heard(&mut self, text: &str) {
        if self.works {
            let text = print::indented(text);
            print::err(&print::visible(&format!("\nqueued:\n{text}\n")));
        }
    }
}

impl User for Terminal {
    fn show(&mut self, event: TaskEvent<'_>) {
        if let TaskEvent::Record(Record::Said { by: Speaker::User, text, images, .. }) = event {
            return self.heard(&pictures::beside(text, images));
        }
        self.go_on();
        print::err(&self.painter.paint(event));
        match event {
            TaskEvent::Moment(Moment::Asking { .. }) => self.works = true,
            TaskEvent::Moment(Moment::Question(question)) => {
                self.works = !matches!(question, Question::Next { .. });
                print::err(&print::visible(&describe(question)));
            }
            _ => {}
        }
    }

    fn tell(&mut self, aside: Aside<'_>) {
        let words = match aside {
            Aside::Filling(filling) => context::filled(filling),
            Aside::Compaction(Compaction::Nothing) => {
                "there is nothing that could be left out of the context\n".to_owned()
            }
            Aside::Compaction(Compaction::Now) => return,
            Aside::Compaction(Compaction::Later) => {
                "the context is compacted before the model is asked for its next turn\n".to_owned()
            }
        };
        print::err(&print::visible(&format!("\n{words}")));
        if let Some(question) = &self.asked {
            print::err(prompt(question));
        }
    }

    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.typed.words()
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(self.answer(question))
    }
}

impl Audience for Terminal {
    fn write(&mut self, lines: &str) {
        self.go_on();
        print::err(&self.painter.tell(lines));
    }

    fn show_timeout(&mut self) {
        self.go_on();
        print::err("\nno answer in time: not allowed\n");
    }
}

fn describe(question: &Question) -> String {
    match question {
        Question::Approval { tool, subject, detail, reason, proposals, .. } => {
            let tool = exactly(tool, LONG_RUN);
            let reason = exactly(reason, LONG_RUN).replace('\n', " ⏎ ");
            let subject = print::indented(&in_part(&exactly(subject, LONG_RUN)));
            let detail = first_lines(&exactly(detail, LONG_INDENT), SHOWN_LINES);
            let detail =
                if detail.is_empty() { String::new() } else { format!("{}\n", print::indented(&in_part(&detail))) };
            format!("\n{tool} {}:\n{subject}\n{detail}{}", in_part(&reason), always(proposals))
        }
        Question::Followup { question, options, .. } => {
            let options = options.iter().enumerate().map(|(at, option)| format!("  {}. {option}\n", at + 1));
            format!("\n{question}\n{}", options.collect::<String>())
        }
        Question::Completion { result, .. } => format!("\nThe model says that the task is done:\n{result}\n"),
        Question::Next { reason } if reason.is_empty() => "\n".to_owned(),
        Question::Next { reason } => format!("\n{reason}. What now?\n"),
        _ => String::new(),
    }
}

/// What `always` would allow.
fn always(proposals: &[Proposal]) -> String {
    match proposals {
        [] => String::new(),
        [one] => format!("always, for the rest of this task: {}\n", one.words),
        all => {
            let lines = all.iter().enumerate().map(|(at, one)| format!("  {}. {}\n", at + 1, one.words));
            format!("always, for the rest of this task (`a 1` for the first alone):\n{}", lines.collect::<String>())
        }
    }
}

fn prompt(question: &Question) -> &'static str {
    match question {
        Question::Approval { proposals, .. } if !proposals.is_empty() => {
            "allow it? [y]es, [n]o, [a]lways, or say why not: "
        }
        Question::Approval { .. } => "allow it? [y]es, [n]o, or say why not: ",
        Question::Completion { .. } => "is that right? [y]es, or say what is missing: ",
        _ => "> ",
    }
}

/// What a line means; `None`: it must be asked again.
fn reply(question: &Question, line: &str) -> Option<Reply> {
    let word = line.to_lowercase();
    let (yes, no) = (matches!(word.as_str(), "y" | "yes"), matches!(word.as_str(), "n" | "no"));
    match question {
        _ if typed::is_leave(line) => Some(Reply::Leave),
        _ if line.is_empty() => None,
        Question::Approval { .. } if yes => Some(Reply::Yes),
        Question::Approval { .. } if no => Some(Reply::No(String::new())),
        Question::Approval { proposals, .. } => match chosen(&word, proposals) {
            Some(rules) => (!rules.is_empty()).then_some(Reply::Always(rules)),
            None => Some(Reply::No(line.to_owned())),
        },
        Question::Completion { .. } if yes => Some(Reply::Yes),
        Question::Completion { .. } if no => Some(Reply::No(String::new())),
        Question::Followup { options, .. } => {
            let chosen = line.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
            Some(Reply::Words(chosen.map_or(line, String::as_str).to_owned()))
        }
        _ => Some(Reply::Words(line.to_owned())),
    }
}

/// The rules that `always` means: `a`, or `a 1 3` for some. `None`: the line is no such word; no rules: it means none that was
/// offered.
fn chosen(line: &str, proposals: &[Proposal]) -> Option<Vec<String>> {
    let mut words = line.split_whitespace();
    if !matches!(words.next(), Some("a" | "always")) {
        return None;
    }
    let numbers: Vec<&str> = words.collect();
    if numbers.is_empty() {
        return Some(proposals.iter().map(|proposal| proposal.rule.clone()).collect());
    }
    let numbers = numbers.iter().map(|number| number.parse::<usize>().ok());
    // Words behind it are words for the model, and a number that was not offered is a slip.
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let rules = numbers.into_iter().map(|number| proposals.get(number.checked_sub(1)?).map(|known| known.rule.clone()));
    Some(rules.collect::<Option<Vec<_>>>().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use sabir_call::CallId;

    use super::*;

    fn question(rules: &[&str]) -> Question {
        let proposal = |rule: &&str| Proposal { rule: (*rule).to_owned(), words: format!("all of {rule}") };
        Question::Approval {
            call: CallId::new("1"),
            tool: "execute_command".to_owned(),
            subject: "make x".to_owned(),
            detail: String::new(),
            reason: "runs make".to_owned(),
            proposals: rules.iter().map(proposal).collect(),
        }
    }

    #[test]
    fn only_what_was_offered_is_always() {
        let check = |line: &str, rules: &[&str], expected: Option<Reply>| {
            assert_eq!(reply(&question(rules), line), expected, "{line}");
        };
        let always = |rules: &[&str]| Some(Reply::Always(rules.iter().map(|rule| (*rule).to_owned()).collect()));
        check("a", &["kind=make", "edits"], always(&["kind=make", "edits"]));
        check("Always", &["edits"], always(&["edits"]));
        check("a 2", &["kind=make", "edits"], always(&["edits"]));
        check("a 3", &["kind=make", "edits"], None);
        check("a 0", &["edits"], None);
        check("a", &[], None);
        check("a better way is cargo", &["edits"], Some(Reply::No("a better way is cargo".to_owned())));
        check("", &["edits"], None);
        check("y", &[], Some(Reply::Yes));
        check("yes please", &[], Some(Reply::No("yes please".to_owned())));
    }

    #[test]
    fn a_question_says_what_always_would_allow() {
        let shown = describe(&question(&["kind=make", "edits"]));
        assert_eq!(
            shown,
            "\nexecute_command runs make:\n    make x\nalways, for the rest of this task (`a 1` for the first alone):\n  1. all of \
             kind=make\n  2. all of edits\n"
        );
        assert!(describe(&question(&["edits"])).ends_with("always, for the rest of this task: all of edits\n"));
        assert!(!describe(&question(&[])).contains("always"));
    }
}
