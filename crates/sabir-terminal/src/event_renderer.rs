//! Renders task events as text for a terminal, and shows the progress of headless tasks.
//! `event_lines.rs` prints events for programs.

use std::future::Future;
use std::io::{IsTerminal, stderr, stdout};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_session::agent::control::{self, TodoList, TodoState};
use sabir_session::agent::{
    ContextChange, FailedTurn, FrontEnd, Record, TaskEvent, TaskOutcome, TransientEvent,
    UserQuestion, UserReply,
};
use sabir_session::call::redact::Redactor;
use sabir_session::call::{Call, CallId, Event, MessagePart, ModelErrorKind, ToolResultStatus};
use serde_json::Value;

use crate::argument_preview::ArgumentPreview;
use crate::front_end::SessionFrontEnd;
use crate::margin::{Margin, RowWrapper};
use crate::output_filter::OutputFilter;
use crate::sanitizer::Sanitizer;
use crate::{context_text, print};

/// The context usage from which it is reported, in percent.
const MIN_REPORTED_PERCENT: u64 = 60;

/// The maximum number of lines of a failed call's reason that are shown.
const MAX_REASON_LINES: usize = 8;

/// Shows progress on standard error. Secrets are redacted, because that output often ends up in the
/// log of a build.
#[derive(Debug)]
pub struct ProgressFrontEnd {
    renderer: EventRenderer,
    redactor: Redactor,
    /// The text of the answer that streams, or of the last one.
    answer: String,
    is_result_shown: Arc<AtomicBool>,
}

impl Default for ProgressFrontEnd {
    fn default() -> Self {
        Self {
            renderer: EventRenderer::without_final_failure(),
            redactor: Redactor::default(),
            answer: String::new(),
            is_result_shown: Arc::default(),
        }
    }
}

impl ProgressFrontEnd {
    /// Returns a flag that is true once the task has completed with an answer that the user has read on the screen while it
    /// streamed, so that printing the result would repeat it.
    pub fn result_shown_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_result_shown)
    }

    /// Tracks the text of the last answer up to the end of the task.
    fn follow_answer(&mut self, event: TaskEvent<'_>) {
        match event {
            TaskEvent::Transient(TransientEvent::Delta(Event::Text { text })) => {
                self.answer.push_str(text);
            }
            TaskEvent::Transient(TransientEvent::Asking { .. }) => self.answer.clear(),
            TaskEvent::Record(Record::Ended {
                outcome: TaskOutcome::Completed,
                message,
                ..
            }) => {
                let is_streamed = self.answer.trim() == message.trim();
                let is_one_screen = stdout().is_terminal() && stderr().is_terminal();
                self.is_result_shown
                    .store(is_streamed && is_one_screen, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Renders task events as text for a terminal.
#[derive(Debug, Default)]
pub struct EventRenderer {
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
    /// True if the streaming call sets the todo list. Its result is shown instead of its arguments.
    listing: bool,
    output_filter: OutputFilter,
    /// The context usage when it was last reported, in percent.
    context_percent: u64,
    /// True if another part shows the end of the task, with its message.
    leaves_out_end: bool,
    /// The failure that may turn out to be the end of the task.
    last_failure: Option<String>,
    /// Marks the lines of models and programs if questions are asked on the same screen.
    margin: Option<Margin>,
    /// Breaks lines before the terminal does, where lines have a margin.
    rows: RowWrapper,
}

/// A future that resolves to the user's reply.
type PendingReply<'a> = Pin<Box<dyn Future<Output = UserReply> + Send + 'a>>;

impl FrontEnd for ProgressFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        self.follow_answer(event);
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

impl SessionFrontEnd for ProgressFrontEnd {
    fn write(&mut self, lines: &str) {
        let painted = self.renderer.render_lines(lines);
        print::write_stderr(&self.redactor.redact_piece(&painted));
        print::write_stderr(&self.redactor.finish_text());
    }
}

impl EventRenderer {
    /// Creates a renderer for a running task, whose end is shown beside it: the failure that ends the task is left out.
    pub fn without_final_failure() -> Self {
        Self {
            leaves_out_end: true,
            ..Self::default()
        }
    }

    /// Creates a renderer for a task whose questions are asked on the same screen: foreign lines get a margin.
    pub fn with_margin() -> Self {
        Self {
            margin: Some(Margin::default()),
            ..Self::without_final_failure()
        }
    }

    /// Returns text of a model or a program, with a margin if there is one.
    fn foreign(&mut self, text: &str) -> String {
        match &mut self.margin {
            Some(margin) => margin.add_piece(text, self.in_line),
            None => text.to_owned(),
        }
    }

    /// Returns the failure before this event, unless the event is the end that repeats it.
    fn take_failure(&mut self, event: TaskEvent<'_>) -> String {
        let Some(failure) = self.last_failure.take() else {
            return String::new();
        };
        match event {
            TaskEvent::Record(Record::Ended { message, .. }) if *message == failure => {
                String::new()
            }
            _ => self.own_line(&format!(
                "the model cannot be asked: {}\n",
                one_line(&failure)
            )),
        }
    }

    /// Renders whole lines about something else (a subtask, for example) between those of the task.
    pub fn render_lines(&mut self, lines: &str) -> String {
        let held = self.finish_word();
        let text = held + &self.own_line(lines);
        let text = self.sanitizer.sanitize_chunk(&text);
        let text = self.wrap_rows(text);
        self.in_line = !text.ends_with('\n');
        text
    }

    /// Returns the word of the model that was held back, since it may not fit into its row.
    fn finish_word(&mut self) -> String {
        let word = self.margin.as_mut().map(Margin::finish_word);
        let word = word.unwrap_or_default();
        self.in_line |= !word.is_empty();
        word
    }

    fn wrap_rows(&mut self, text: String) -> String {
        match self.margin {
            Some(_) => self.rows.wrap_piece(&text, self.in_line),
            None => text,
        }
    }

    /// Returns the text to write for an event; empty for most events.
    pub fn render_event(&mut self, event: TaskEvent<'_>) -> String {
        // Whatever follows the text of an answer ends its last word.
        let held = match event {
            TaskEvent::Transient(TransientEvent::Delta(Event::Text { .. })) => String::new(),
            _ => self.finish_word(),
        };
        let was_in_line = self.in_line;
        let failure = self.take_failure(event);
        self.in_line &= failure.is_empty();
        let text = match event {
            TaskEvent::Transient(moment) => self.render_transient(moment),
            TaskEvent::Record(record) => self.render_record(record),
        };
        let text = held + &failure + &text;
        self.in_line = was_in_line;
        // All text is sanitized here, including tool names and messages, which are as untrusted as
        // the model's text.
        let text = self.sanitizer.sanitize_chunk(&text);
        let text = self.wrap_rows(text);
        if let Some(last) = text.chars().last() {
            self.in_line = last != '\n';
        }
        text
    }

    fn render_transient(&mut self, moment: TransientEvent<'_>) -> String {
        match moment {
            TransientEvent::Delta(Event::Text { text }) => match &mut self.margin {
                Some(margin) => margin.stream_piece(text, self.in_line),
                None => (*text).to_owned(),
            },
            TransientEvent::Delta(Event::CallStart { name, .. }) => {
                self.listing = name == control::TODO_LIST_TOOL;
                self.own_line(&format!("● {} ", one_line(name)))
            }
            TransientEvent::Delta(Event::ArgStart { name, .. }) => {
                // Without a name it is JSON that the checks have yet to read.
                let is_shown = !self.listing && !name.is_empty();
                self.argument = is_shown.then(|| ArgumentPreview::new(name));
                String::new()
            }
            TransientEvent::Delta(Event::ArgDelta { text, .. }) => self
                .argument
                .as_mut()
                .map(|argument| argument.push_piece(text))
                .unwrap_or_default(),
            TransientEvent::Delta(Event::ArgEnd { .. }) => self
                .argument
                .take()
                .map(|mut argument| argument.finish())
                .unwrap_or_default(),
            // An argument that is cut off is shown as far as it came.
            TransientEvent::Delta(Event::CallCut { .. }) => self
                .argument
                .take()
                .map(|mut argument| argument.finish_cut())
                .unwrap_or_default(),
            // Looked up in the answer, because the output names only the id of its call.
            TransientEvent::Output { call, text } => {
                let call = self.calls.iter().find(|known| known.id == *call);
                if self.output_filter.hide_output(call, text) {
                    String::new()
                } else {
                    self.foreign(text)
                }
            }
            TransientEvent::Asking {
                full: Some(full), ..
            } => self.render_context_usage(full),
            // A zero wait only reports a retry of the driver; the front end shows the waits
            // themselves.
            TransientEvent::Waiting {
                reason,
                milliseconds: 0,
            } => self.own_line(&format!("{}\n", one_line(reason))),
            _ => String::new(),
        }
    }

    /// Reports the context usage once it reaches [`MIN_REPORTED_PERCENT`], and again after every 5
    /// percent more.
    fn render_context_usage(&mut self, full: u64) -> String {
        let says = full >= MIN_REPORTED_PERCENT && full >= self.context_percent.saturating_add(5);
        // After a compaction the usage falls, and its growth is reported from there again.
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
            }) => self.own_line(&format!("the answer broke off: {}\n", one_line(message))),
            Record::Failed(failed) if self.leaves_out_end => {
                self.last_failure = Some(failed.message.clone());
                String::new()
            }
            Record::Failed(failed) => self.own_line(&format!(
                "the model cannot be asked: {}\n",
                one_line(&failed.message)
            )),
            Record::Context(ContextChange::Compacted(compacted)) => {
                self.own_line(&format!("{}\n", context_text::compaction_text(compacted)))
            }
            Record::Context(ContextChange::Restored) => {
                self.own_line("the last compaction was undone\n")
            }
            Record::Context(
                ContextChange::Changed { told, .. } | ContextChange::Moded { told, .. },
            ) => self.own_line(&format!("the model gets:\n{}\n", print::indent_lines(told))),
            Record::Damaged { bytes, .. } => self.own_line(&format!(
                "the journal was damaged here: {bytes} bytes of later records are lost\n"
            )),
            // The diagnostic was shown with the answer; the result repeats it for the model.
            Record::Result(result) if self.refused.contains(&result.id) => String::new(),
            Record::Result(result) => self.render_result(result),
            Record::Said {
                by: sabir_session::agent::MessageAuthor::Sabir,
                text,
                ..
            } => self.own_line(&format!("the model gets:\n{}\n", print::indent_lines(text))),
            _ => String::new(),
        }
    }

    /// Renders the checks of an answer: repairs, and for a refused call the diagnostic that the
    /// model receives.
    fn render_turn(&mut self, answered: &sabir_session::agent::AssistantTurn) -> String {
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
                    "  repaired in {} ({}): {} -> {}\n",
                    one_line(name),
                    repair.rule,
                    one_line(&repair.before),
                    one_line(&repair.after)
                ));
            }
            if !check.passed {
                self.refused.push(check.call.clone());
                text.push_str(&format!(
                    "  refused: {} is not run\n{}\n",
                    one_line(name),
                    print::indent_lines(&check.feedback_text())
                ));
            }
        }
        text
    }

    /// Renders a result on one line: its status, the tool, its subject, and the first line of an
    /// error.
    fn render_result(&mut self, result: &sabir_session::call::CallResult) -> String {
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
            ToolResultStatus::Failed => format!("\n{}", failure_reason(&result.content)),
            ToolResultStatus::Denied | ToolResultStatus::Rejected => {
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
            one_line(&result.name)
        );
        self.own_line(&text)
    }

    /// Returns the text so that it starts on a new line.
    fn own_line(&self, text: &str) -> String {
        if self.in_line {
            format!("\n{text}")
        } else {
            text.to_owned()
        }
    }
}

/// Returns a foreign text that belongs into a line of ours.
fn one_line(text: &str) -> String {
    text.replace('\n', " ⏎ ")
}

/// Returns the reason of a failure: its first lines, and the number of the others. The output of a
/// command has been shown before, so its first line is enough.
fn failure_reason(content: &str) -> String {
    let count = content.lines().count();
    let shown: Vec<_> = content.lines().take(MAX_REASON_LINES).collect();
    let more = match count.saturating_sub(MAX_REASON_LINES) {
        0 => String::new(),
        more => format!("\n({} more)", print::count_noun(more, "line")),
    };
    print::indent_lines(&format!("{}{more}", shown.join("\n")))
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
