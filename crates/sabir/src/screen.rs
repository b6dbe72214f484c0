//! Watchers of headless tasks: progress for people, silence. `lines.rs` has the one for programs.

use std::future::Future;
use std::pin::Pin;

use sabir_agent::control::{self, TodoState, Todos};
use sabir_agent::{Failed, Moment, Question, Record, Reply, Shift, TaskEvent, User};
use sabir_call::redact::Redactor;
use sabir_call::{Call, CallId, Ending, Event, ModelErrorKind, Part};
use serde_json::Value;

use crate::argument::Preview;
use crate::context;
use crate::folded::Folded;
use crate::front_end::Audience;
use crate::print;
use crate::sanitizer::Sanitizer;

/// How full a context is when it is worth a word, in percent.
const FULL: u64 = 60;

/// Progress on standard error, which is often kept as the log of a build: secrets are taken out.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    painter: Painter,
    redactor: Redactor,
}

/// Task events as words for a terminal.
#[derive(Debug, Default)]
pub(crate) struct Painter {
    /// Whether the last thing written ended inside a line.
    inside: bool,
    calls: Vec<Call>,
    /// Calls whose refusal has been shown with its reasons.
    refused: Vec<CallId>,
    sanitizer: Sanitizer,
    /// The argument that is being written.
    argument: Option<Preview>,
    /// Whether the call that is being written gives todos, which are shown once they are kept.
    listing: bool,
    folded: Folded,
    /// How full the context was when that was last said, in percent.
    full: u64,
}

type Asked<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

impl User for Progress {
    fn show(&mut self, event: TaskEvent<'_>) {
        let painted = self.painter.paint(event);
        print::err(&self.redactor.text(&painted));
        // What is held belongs to a line that is over.
        if matches!(event, TaskEvent::Record(_)) {
            print::err(&self.redactor.rest());
        }
    }

    fn ask<'a>(&'a mut self, _question: &'a Question) -> Asked<'a> {
        Box::pin(std::future::ready(Reply::Leave))
    }
}

impl Audience for Progress {
    fn write(&mut self, lines: &str) {
        let painted = self.painter.tell(lines);
        print::err(&self.redactor.text(&painted));
        print::err(&self.redactor.rest());
    }
}

impl Painter {
    /// Whole lines about something else, between those of the task.
    pub(crate) fn tell(&mut self, lines: &str) -> String {
        let text = self.sanitizer.clean(&self.line(lines));
        self.inside = !text.ends_with('\n');
        text
    }

    /// What to write for an event; nothing for most.
    pub(crate) fn paint(&mut self, event: TaskEvent<'_>) -> String {
        let text = match event {
            TaskEvent::Moment(moment) => self.moment(moment),
            TaskEvent::Record(record) => self.record(record),
        };
        // The one place through which foreign text passes: names and messages are as foreign as words.
        let text = self.sanitizer.clean(&text);
        if let Some(last) = text.chars().last() {
            self.inside = last != '\n';
        }
        text
    }

    fn moment(&mut self, moment: Moment<'_>) -> String {
        match moment {
            Moment::Delta(Event::Text { text }) => text.to_owned(),
            Moment::Delta(Event::CallStart { name, .. }) => {
                self.listing = name == control::TODOS;
                self.line(&format!("● {name} "))
            }
            Moment::Delta(Event::ArgStart { name, .. }) => {
                self.argument = (!self.listing).then(|| Preview::new(name));
                String::new()
            }
            Moment::Delta(Event::ArgDelta { text, .. }) => {
                self.argument.as_mut().map(|argument| argument.push(text)).unwrap_or_default()
            }
            // One that is cut is shown as far as it came.
            Moment::Delta(Event::ArgEnd { .. } | Event::CallCut { .. }) => {
                self.argument.take().map(|mut argument| argument.end()).unwrap_or_default()
            }
            Moment::Output { call, text } => {
                let call = self.calls.iter().find(|known| known.id == *call);
                if self.folded.hides(call, text) { String::new() } else { text.to_owned() }
            }
            Moment::Asking { full: Some(full), .. } => self.filling(full),
            Moment::Waiting { reason, milliseconds: 0 } => self.line(&format!("{reason}\n")),
            _ => String::new(),
        }
    }

    /// Said where it begins to matter, and then every few percent.
    fn filling(&mut self, full: u64) -> String {
        let says = full >= FULL && full >= self.full.saturating_add(5);
        if says || full < self.full {
            self.full = full;
        }
        if says { self.line(&format!("the context is {full} % full\n")) } else { String::new() }
    }

    fn record(&mut self, record: &Record) -> String {
        match record {
            Record::Started(start) => {
                format!("task {} ({}, {})\n", start.task, start.model, start.protocol.name())
            }
            Record::Answered(answered) => self.answered(answered),
            Record::Failed(Failed { error: ModelErrorKind::Broken, message, .. }) => {
                self.line(&format!("the answer broke off: {message}\n"))
            }
            Record::Failed(failed) => self.line(&format!("the model cannot be asked: {}\n", failed.message)),
            Record::Context(Shift::Compacted(compacted)) => self.line(&format!("{}\n", context::words(compacted))),
            Record::Context(Shift::Restored) => self.line("the last compaction was undone\n"),
            Record::Context(Shift::Changed { told, .. } | Shift::Moded { told, .. }) => {
                self.line(&format!("the model is told:\n{}\n", print::indented(told)))
            }
            Record::Result(result) if self.refused.contains(&result.id) => String::new(),
            Record::Result(result) => self.result(result),
            Record::Said { by: sabir_agent::Speaker::Sabir, text, .. } => {
                self.line(&format!("the model is told:\n{}\n", print::indented(text)))
            }
            _ => String::new(),
        }
    }

    /// What the gates said: repairs, and for a call that may not run the diagnostic that the model gets.
    fn answered(&mut self, answered: &sabir_agent::Answered) -> String {
        self.calls = answered
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Call(call) => Some(call.clone()),
                _ => None,
            })
            .collect();
        let mut text = self.line("");
        for check in &answered.checks {
            let name = self.calls.iter().find(|call| call.id == check.call).map_or("", |call| call.name.as_str());
            for repair in &check.repairs {
                text.push_str(&format!(
                    "  repaired in {name} ({}): {} -> {}\n",
                    repair.rule, repair.before, repair.after
                ));
            }
            if !check.passed {
                self.refused.push(check.call.clone());
                text.push_str(&format!("  refused: {name} is not run\n{}\n", print::indented(&check.words())));
            }
        }
        text
    }

    fn result(&mut self, result: &sabir_call::CallResult) -> String {
        let call = self.calls.iter().find(|call| call.id == result.id);
        let subject =
            call.and_then(|call| ["path", "command", "regex"].iter().find_map(|name| call.arguments.get(*name)));
        let subject = subject.and_then(Value::as_str).and_then(|text| text.lines().next()).unwrap_or_default();
        let word = match result.ending {
            Ending::Done => "✓",
            Ending::Failed => "✗ failed:",
            Ending::Rejected => "✗ refused:",
            Ending::Denied => "✗ denied:",
            Ending::Interrupted => "✗ interrupted:",
        };
        let reason = match result.ending {
            Ending::Failed | Ending::Denied | Ending::Rejected => {
                format!("\n{}", print::indented(result.content.lines().next().unwrap_or_default()))
            }
            _ => String::new(),
        };
        let folded = self.folded.told(&result.id);
        let todos = call.filter(|_| result.ending == Ending::Done).map(todos).unwrap_or_default();
        let text = format!("{folded}  {word} {} {subject}{reason}\n{todos}", result.name);
        self.line(&text)
    }

    fn line(&self, text: &str) -> String {
        if self.inside { format!("\n{text}") } else { text.to_owned() }
    }
}

/// The todos that a call gave, a line each; nothing of any other call.
fn todos(call: &Call) -> String {
    let text = call.arguments.get("todos").and_then(Value::as_str).filter(|_| call.name == control::TODOS);
    let todos = text.and_then(|text| Todos::read(text).ok()).unwrap_or_default();
    let line = |todo: &control::Todo| {
        let state = match todo.state {
            TodoState::Open => "[ ]",
            TodoState::Active => "[-]",
            TodoState::Done => "[x]",
        };
        format!("    {}{state} {}\n", "  ".repeat(todo.depth), todo.text)
    };
    todos.items().iter().map(line).collect()
}
