//! Renders task events as text for a terminal, and shows the progress of headless tasks.
//! `event_lines.rs` prints events for programs.

use std::future::Future;
use std::pin::Pin;

use sabir_agent::control::{self, TodoList, TodoState};
use sabir_agent::{
    ContextChange, FailedTurn, FrontEnd, Record, TaskEvent, TransientEvent, UserQuestion, UserReply,
};
use sabir_call::redact::Redactor;
use sabir_call::{Call, CallId, Event, MessagePart, ModelErrorKind, ToolResultStatus};
use serde_json::Value;

use crate::commands::context;
use crate::output::argument_preview::ArgumentPreview;
use crate::output::front_end::Audience;
use crate::output::output_filter::OutputFilter;
use crate::output::print;
use crate::output::sanitizer::Sanitizer;

/// The context usage from which it is reported, in percent.
const MIN_REPORTED_PERCENT: u64 = 60;

/// Shows progress on standard error. Secrets are redacted, because that output often ends up in the
/// log of a build.
#[derive(Debug, Default)]
pub(crate) struct ProgressFrontEnd {
    renderer: EventRenderer,
    redactor: Redactor,
}

/// Renders task events as text for a terminal.
#[derive(Debug, Default)]
pub(crate) struct EventRenderer {
    /// True if the last thing written ended inside a line.
    in_line: bool,
    /// The calls of the last answer.
    calls: Vec<Call>,
    /// The calls whose refusal has been shown with its reasons, so that their results are not shown
    /// again.
    refused: Vec<CallId>,
    sanitizer: Sanitizer,
    /// The argument that is streaming.
    argument: Option<ArgumentPreview>,
    /// True if the streaming call sets the todo list, which is shown with its result instead of its
    /// arguments.
    listing: bool,
    output_filter: OutputFilter,
    /// The context usage when it was last reported, in percent.
    context_percent: u64,
}

/// A future of the user's reply.
type PendingReply<'a> = Pin<Box<dyn Future<Output = UserReply> + Send + 'a>>;

impl FrontEnd for ProgressFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        let painted = self.renderer.render_event(event);
        print::write_stderr(&self.redactor.redact_piece(&painted));
        // A record ends all streamed text, so what the redactor holds back can be written.
        if matches!(event, TaskEvent::Record(_)) {
            print::write_stderr(&self.redactor.finish_text());
        }
    }

    fn request<'a>(&'a mut self, _question: &'a UserQuestion) -> PendingReply<'a> {
        // Nobody can answer in a headless task.
        Box::pin(std::future::ready(UserReply::Leave))
    }
}

impl Audience for ProgressFrontEnd {
    fn write(&mut self, lines: &str) {
        let painted = self.renderer.render_lines(lines);
        print::write_stderr(&self.redactor.redact_piece(&painted));
        print::write_stderr(&self.redactor.finish_text());
    }
}

impl EventRenderer {
    /// Renders whole lines about something else (a subtask, for example) between those of the task.
    pub(crate) fn render_lines(&mut self, lines: &str) -> String {
        let text = self.sanitizer.sanitize_chunk(&self.own_line(lines));
        self.in_line = !text.ends_with('\n');
        text
    }

    /// Returns the text to write for an event; empty for most events.
    pub(crate) fn render_event(&mut self, event: TaskEvent<'_>) -> String {
        let text = match event {
            TaskEvent::Moment(moment) => self.render_transient(moment),
            TaskEvent::Record(record) => self.render_record(record),
        };
        // All text is sanitized here, including tool names and messages, which are as foreign as
        // the model's text.
        let text = self.sanitizer.sanitize_chunk(&text);
        if let Some(last) = text.chars().last() {
            self.in_line = last != '\n';
        }
        text
    }

    fn render_transient(&mut self, moment: TransientEvent<'_>) -> String {
        match moment {
            TransientEvent::Delta(Event::Text { text }) => text.to_owned(),
            TransientEvent::Delta(Event::CallStart { name, .. }) => {
                self.listing = name == control::TODO_LIST_TOOL;
                self.own_line(&format!("● {name} "))
            }
            TransientEvent::Delta(Event::ArgStart { name, .. }) => {
                self.argument = (!self.listing).then(|| ArgumentPreview::new(name));
                String::new()
            }
            TransientEvent::Delta(Event::ArgDelta { text, .. }) => self
                .argument
                .as_mut()
                .map(|argument| argument.push_piece(text))
                .unwrap_or_default(),
            // An argument that is cut off is shown as far as it came.
            TransientEvent::Delta(Event::ArgEnd { .. } | Event::CallCut { .. }) => self
                .argument
                .take()
                .map(|mut argument| argument.finish())
                .unwrap_or_default(),
            TransientEvent::Output { call, text } => {
                let call = self.calls.iter().find(|known| known.id == *call);
                if self.output_filter.hide_output(call, text) {
                    String::new()
                } else {
                    text.to_owned()
                }
            }
            TransientEvent::Asking {
                full: Some(full), ..
            } => self.render_context_usage(full),
            TransientEvent::Waiting {
                reason,
                milliseconds: 0,
            } => self.own_line(&format!("{reason}\n")),
            _ => String::new(),
        }
    }

    /// Reports the context usage once it reaches [`MIN_REPORTED_PERCENT`], and again after every 5
    /// percent more.
    fn render_context_usage(&mut self, full: u64) -> String {
        let says = full >= MIN_REPORTED_PERCENT && full >= self.context_percent.saturating_add(5);
        if says || full < self.context_percent {
            self.context_percent = full;
        }
        if says {
            self.own_line(&format!("the context is {full} % full\n"))
        } else {
            String::new()
        }
    }

    fn render_record(&mut self, record: &Record) -> String {
        match record {
            Record::Started(start) => {
                format!(
                    "task {} ({}, {})\n",
                    start.task,
                    start.model,
                    start.protocol.name()
                )
            }
            Record::Answered(answered) => self.render_turn(answered),
            Record::Failed(FailedTurn {
                error: ModelErrorKind::Broken,
                message,
                ..
            }) => self.own_line(&format!("the answer broke off: {message}\n")),
            Record::Failed(failed) => {
                self.own_line(&format!("the model cannot be asked: {}\n", failed.message))
            }
            Record::Context(ContextChange::Compacted(compacted)) => {
                self.own_line(&format!("{}\n", context::compaction_text(compacted)))
            }
            Record::Context(ContextChange::Restored) => {
                self.own_line("the last compaction was undone\n")
            }
            Record::Context(
                ContextChange::Changed { told, .. } | ContextChange::Moded { told, .. },
            ) => self.own_line(&format!(
                "the model is told:\n{}\n",
                print::indent_lines(told)
            )),
            Record::Result(result) if self.refused.contains(&result.id) => String::new(),
            Record::Result(result) => self.render_result(result),
            Record::Said {
                by: sabir_agent::MessageAuthor::Sabir,
                text,
                ..
            } => self.own_line(&format!(
                "the model is told:\n{}\n",
                print::indent_lines(text)
            )),
            _ => String::new(),
        }
    }

    /// Renders the checks of an answer: repairs, and for a refused call the diagnostic that the
    /// model receives.
    fn render_turn(&mut self, answered: &sabir_agent::AssistantTurn) -> String {
        self.calls = answered
            .parts
            .iter()
            .filter_map(|part| match part {
                MessagePart::Call(call) => Some(call.clone()),
                _ => None,
            })
            .collect();
        let mut text = self.own_line("");
        for check in &answered.checks {
            let name = self
                .calls
                .iter()
                .find(|call| call.id == check.call)
                .map_or("", |call| call.name.as_str());
            for repair in &check.repairs {
                text.push_str(&format!(
                    "  repaired in {name} ({}): {} -> {}\n",
                    repair.rule, repair.before, repair.after
                ));
            }
            if !check.passed {
                self.refused.push(check.call.clone());
                text.push_str(&format!(
                    "  refused: {name} is not run\n{}\n",
                    print::indent_lines(&check.feedback_text())
                ));
            }
        }
        text
    }

    /// Renders a result on one line: its status, the tool, its subject, and the first line of an
    /// error.
    fn render_result(&mut self, result: &sabir_call::CallResult) -> String {
        let call = self.calls.iter().find(|call| call.id == result.id);
        let subject = call.and_then(|call| {
            ["path", "command", "regex"]
                .iter()
                .find_map(|name| call.arguments.get(*name))
        });
        let subject = subject
            .and_then(Value::as_str)
            .and_then(|text| text.lines().next())
            .unwrap_or_default();
        let word = match result.ending {
            ToolResultStatus::Done => "✓",
            ToolResultStatus::Failed => "✗ failed:",
            ToolResultStatus::Rejected => "✗ refused:",
            ToolResultStatus::Denied => "✗ denied:",
            ToolResultStatus::Interrupted => "✗ interrupted:",
        };
        let reason = match result.ending {
            ToolResultStatus::Failed | ToolResultStatus::Denied | ToolResultStatus::Rejected => {
                format!(
                    "\n{}",
                    print::indent_lines(result.content.lines().next().unwrap_or_default())
                )
            }
            _ => String::new(),
        };
        let folded = self.output_filter.hidden_summary(&result.id);
        let todos = call
            .filter(|_| result.ending == ToolResultStatus::Done)
            .map(render_todos)
            .unwrap_or_default();
        let text = format!(
            "{folded}  {word} {} {subject}{reason}\n{todos}",
            result.name
        );
        self.own_line(&text)
    }

    /// Returns the text so that it starts on a line of its own.
    fn own_line(&self, text: &str) -> String {
        if self.in_line {
            format!("\n{text}")
        } else {
            text.to_owned()
        }
    }
}

/// Renders the todos that a call set, one per line; empty for any other call.
fn render_todos(call: &Call) -> String {
    let text = call
        .arguments
        .get("todos")
        .and_then(Value::as_str)
        .filter(|_| call.name == control::TODO_LIST_TOOL);
    let todos = text
        .and_then(|text| TodoList::parse(text).ok())
        .unwrap_or_default();
    let line = |todo: &control::TodoItem| {
        let state = match todo.state {
            TodoState::Open => "[ ]",
            TodoState::Active => "[-]",
            TodoState::Done => "[x]",
        };
        format!("    {}{state} {}\n", "  ".repeat(todo.depth), todo.text)
    };
    todos.items().iter().map(line).collect()
}
