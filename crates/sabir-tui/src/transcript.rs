//! Turns the events of a session into lines: those that are decided and go above the viewport, and those that are live.
//!
//! A decided line never changes. Text that streams, the call that is being written and the commands that run are live: they are
//! drawn in the viewport until they are decided. The work for an event depends on its own size alone, and what is kept of an
//! output is bounded.

use std::collections::HashMap;
use std::time::Duration;

use ratatui_core::text::Line;
use sabir_session::agent::control::{
    COMPLETION_TOOL, TODO_LIST_TOOL, TodoItem, TodoList, TodoState,
};
use sabir_session::agent::{
    AssistantTurn, CompactionTiming, ContextChange, FailedTurn, MessageAuthor, Record, TaskId,
    TaskOutcome,
};
use sabir_session::call::{
    Call, CallId, CallResult, MessagePart, ModelErrorKind, ToolResultStatus,
};
use sabir_session::{
    CloseReason, SessionEvent, SessionEventKind, SessionState, StreamEvent, SubtaskLabel, TaskEnd,
    images, partial_marker_len,
};
use sabir_terminal::context_text;
use sabir_terminal::output_filter::OutputFilter;
use sabir_terminal::print::{count_noun, usage_text};
use sabir_terminal::sanitizer::{Sanitizer, sanitize_text};
use sabir_terminal::subtask_renderer::SubtaskRenderer;
use serde_json::Value;

use crate::diff::render_diff;
use crate::highlight::CodeHighlighter;
use crate::lines::{HistoryLine, fit_line, fit_text, one_line, span, text_width};
use crate::markdown::MarkdownStream;
use crate::theme::{Role, Theme};
use crate::wire_view::AnswerHistory;

/// The maximum number of bytes of a running output or a streaming argument that are kept for the screen.
const MAX_TAIL: usize = 8 << 10;
/// The maximum number of lines of a finished output that are shown unfolded.
const MAX_OUTPUT_LINES: usize = 5;
/// The maximum number of lines of a failed call's reason that are shown.
const MAX_REASON_LINES: usize = 8;
/// The maximum number of lines of a call or an output that are live.
const LIVE_LINES: usize = 6;
/// The maximum number of bytes that are kept of a folded text.
const MAX_FOLDED: usize = 256 << 10;
/// The minimum duration that is shown.
const MIN_SHOWN_TIME: Duration = Duration::from_secs(1);

/// The lines of a session.
#[derive(Debug)]
pub struct Transcript {
    theme: Theme,
    width: usize,
    decided: Vec<HistoryLine>,
    /// True if the last decided line was empty, or there is none.
    ends_with_gap: bool,
    text: MarkdownStream,
    sanitizer: Sanitizer,
    /// True if text was written since the last other block.
    is_writing: bool,
    thought: Option<Thought>,
    streaming: Option<StreamingCall>,
    running: Vec<RunningCall>,
    calls: Vec<Call>,
    refused: Vec<CallId>,
    outputs: OutputFilter,
    nested: HashMap<TaskId, SubtaskRenderer>,
    todos: Vec<TodoItem>,
    /// The answers as they were received.
    answers: AnswerHistory,
    /// The most recently folded text, which a key shows.
    folded: Option<String>,
    /// True if the result of the open completion was shown while it streamed.
    has_streamed_result: bool,
    last_failure: Option<String>,
    /// The text of the last answer.
    answer: String,
    /// True if the end of the last run was shown.
    is_end_shown: bool,
    /// The name of the key that shows folded text; empty if there is none.
    unfold_key: String,
    /// The folder that paths of calls belong to; empty if it is not known.
    folder: String,
}

/// A row of the help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpRow {
    /// The command or the key; empty for a heading.
    name: String,
    /// The effect, or the heading.
    text: String,
}

impl HelpRow {
    /// Creates the row of a command or a key.
    pub fn new(name: &str, effect: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: effect.to_owned(),
        }
    }

    /// Creates a line over or between the rows.
    pub fn heading(text: &str) -> Self {
        Self::new("", text)
    }
}

/// Reasoning that streams.
#[derive(Debug)]
struct Thought {
    since: Duration,
    tail: TailBuffer,
    whole: String,
}

/// A call that the model writes.
#[derive(Debug)]
struct StreamingCall {
    name: String,
    /// The name of the argument that is written.
    argument: String,
    subject: String,
    tail: TailBuffer,
}

/// A call that runs.
#[derive(Debug)]
struct RunningCall {
    id: CallId,
    since: Duration,
    output: TailBuffer,
}

/// The end of a growing text, with the number of its lines.
#[derive(Debug, Default)]
struct TailBuffer {
    text: String,
    line_feeds: usize,
}

impl TailBuffer {
    fn push(&mut self, text: &str) {
        self.line_feeds += text.bytes().filter(|byte| *byte == b'\n').count();
        let start = text.floor_char_boundary(text.len().saturating_sub(MAX_TAIL));
        let end = text.get(start..).unwrap_or_default();
        self.text.push_str(end);
        if self.text.len() > 2 * MAX_TAIL {
            let cut = self.text.floor_char_boundary(self.text.len() - MAX_TAIL);
            self.text.drain(..cut);
        }
    }

    fn line_count(&self) -> usize {
        self.line_feeds + usize::from(!self.text.is_empty() && !self.text.ends_with('\n'))
    }

    /// Returns the last lines, cleaned.
    fn last_lines(&self, count: usize) -> Vec<String> {
        last_clean_lines(&self.text, count)
    }

    /// Returns the last lines, cleaned, without a line that may still become a marker of an edit.
    fn last_stable_lines(&self, count: usize) -> Vec<String> {
        let hidden = partial_marker_len(&self.text, true);
        let settled = self.text.get(..self.text.len() - hidden);
        last_clean_lines(settled.unwrap_or_default(), count)
    }
}

fn last_clean_lines(text: &str, count: usize) -> Vec<String> {
    let clean = sanitize_text(text);
    let lines: Vec<_> = clean.lines().collect();
    let skipped = lines.len().saturating_sub(count);
    lines
        .iter()
        .skip(skipped)
        .map(|line| one_line(line))
        .collect()
}

impl Transcript {
    /// Creates an empty transcript.
    pub fn new(theme: Theme) -> Self {
        Self {
            theme,
            width: 80,
            decided: Vec::new(),
            ends_with_gap: true,
            text: MarkdownStream::new(theme),
            sanitizer: Sanitizer::default(),
            is_writing: false,
            thought: None,
            streaming: None,
            running: Vec::new(),
            calls: Vec::new(),
            refused: Vec::new(),
            outputs: OutputFilter::default(),
            nested: HashMap::new(),
            todos: Vec::new(),
            answers: AnswerHistory::default(),
            folded: None,
            has_streamed_result: false,
            last_failure: None,
            answer: String::new(),
            is_end_shown: false,
            unfold_key: "Ctrl-O".to_owned(),
            folder: String::new(),
        }
    }

    /// Sets the width for lines that are finished from now on.
    pub fn set_width(&mut self, width: usize) {
        self.width = width;
    }

    /// Sets the styles of lines that are finished from now on.
    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
        self.text.set_theme(theme);
    }

    /// Names the key that shows folded text; empty if there is none.
    pub fn set_unfold_key(&mut self, key: String) {
        self.unfold_key = key;
    }

    /// Returns the hint at the key that shows folded text.
    fn unfold_hint(&self, effect: &str) -> String {
        match self.unfold_key.as_str() {
            "" => String::new(),
            key => format!(" ({key} {effect})"),
        }
    }

    /// Sets the folder that paths of calls belong to, so that they can be links.
    pub fn set_folder(&mut self, folder: &str) {
        folder.clone_into(&mut self.folder);
    }

    /// Finishes everything that is live, because the task is over.
    pub fn finish_live(&mut self) {
        self.end_live();
    }

    /// Takes the lines that were decided since the last time.
    pub fn take_final_lines(&mut self) -> Vec<HistoryLine> {
        let lines = self.text.take_final_lines(self.width);
        self.push_text_lines(lines);
        std::mem::take(&mut self.decided)
    }

    /// Returns the text of the last answer; empty if there is none.
    pub fn last_answer(&self) -> &str {
        &self.answer
    }

    /// Returns the todos of the task.
    pub fn todos(&self) -> &[TodoItem] {
        &self.todos
    }

    /// Returns true if a call runs or the model writes.
    pub fn is_live(&self) -> bool {
        self.thought.is_some() || self.streaming.is_some() || !self.running.is_empty()
    }

    /// Adds lines of the interface itself.
    pub fn push_note(&mut self, text: &str, role: Role) {
        self.end_text();
        let style = self.theme.style(role);
        for line in sanitize_text(text).lines() {
            let line = Line::from(span(line, style));
            self.decided.push(HistoryLine::words(line, 2));
        }
        self.ends_with_gap = false;
    }

    /// Adds the rows of the help.
    pub fn push_help(&mut self, rows: &[HelpRow]) {
        self.end_text();
        self.push_gap();
        for row in rows {
            if row.name.is_empty() {
                let is_heading = !row.text.starts_with(' ');
                let role = if is_heading {
                    Role::Strong
                } else {
                    Role::Plain
                };
                self.push_note(&row.text, role);
                continue;
            }
            let spans = vec![
                span(
                    &format!("  {:<22} ", row.name),
                    self.theme.style(Role::Accent),
                ),
                span(&row.text, self.theme.style(Role::Plain)),
            ];
            self.decided.push(HistoryLine::words(Line::from(spans), 25));
        }
        self.ends_with_gap = false;
    }

    /// Returns the answers as they were received.
    pub fn answers(&self) -> &AnswerHistory {
        &self.answers
    }

    /// Notes an answer that was received before this interface began.
    pub fn note_earlier_answer(&mut self, turn: &AssistantTurn) {
        self.answers.finish_answer(turn);
    }

    /// Shows an answer as it was received, beside its interpretation. Returns false if it is not kept.
    pub fn push_answer(&mut self, number: usize) -> bool {
        let Some(lines) = self.answers.lines(number, self.theme) else {
            return false;
        };
        self.end_text();
        self.push_gap();
        self.push_text_lines(lines);
        true
    }

    /// Adds the change of a file.
    pub fn push_diff(&mut self, path: &str, diff: &str) {
        self.push_gap();
        self.push_note(path, Role::Strong);
        let lines = render_diff(diff, path, self.theme, self.width);
        self.push_text_lines(lines);
    }

    /// Adds a message of the user.
    pub fn push_user_message(&mut self, text: &str) {
        self.end_text();
        self.push_gap();
        let clean = sanitize_text(text);
        let total = clean.lines().count();
        for (at, line) in clean.lines().take(20).enumerate() {
            let mark = if at == 0 { "› " } else { "  " };
            let spans = vec![
                span(mark, self.theme.style(Role::User)),
                span(line, self.theme.style(Role::Strong)),
            ];
            self.decided.push(HistoryLine::words(Line::from(spans), 2));
        }
        if total > 20 {
            let more = format!("  … {}", count_noun(total - 20, "more line"));
            self.push_dim(&more);
        }
        self.push_gap();
    }

    /// Shows the most recently folded text. Returns false if there is none.
    pub fn unfold_last(&mut self) -> bool {
        let Some(text) = self.folded.take() else {
            return false;
        };
        self.end_text();
        for line in sanitize_text(&text).lines() {
            let spans = vec![
                span("  │ ", self.theme.style(Role::Dim)),
                span(line, self.theme.style(Role::Plain)),
            ];
            self.decided.push(HistoryLine::whole(Line::from(spans)));
        }
        self.ends_with_gap = false;
        true
    }

    /// Takes an event of the session.
    pub fn note_event(&mut self, event: &SessionEvent, now: Duration) {
        match &event.subtask {
            Some(label) => self.note_nested(event, label),
            None => self.note_own_event(&event.kind, now),
        }
    }

    /// Takes an event of the task whose transcript this is.
    pub fn note_own_event(&mut self, kind: &SessionEventKind, now: Duration) {
        self.note_failure(kind);
        match kind {
            SessionEventKind::Record(record) => self.note_record(record, now),
            SessionEventKind::Asking { .. } => self.answers.begin_answer(),
            SessionEventKind::Delta(delta) => {
                self.answers.note_delta(delta);
                self.note_delta(delta, now);
            }
            SessionEventKind::Output { call, text } => self.note_output(call, text),
            SessionEventKind::Waiting(waiting) if waiting.attempt.is_none() => {
                self.push_note(&waiting.reason, Role::Dim);
            }
            SessionEventKind::Notice(notice) => {
                self.push_note(&format!("sabir: {}", notice.text), Role::Dim);
            }
            SessionEventKind::ContextUsage(usage) => {
                self.push_note(&context_text::render_usage(usage), Role::Plain);
            }
            SessionEventKind::CompactionStatus(status) => match status {
                CompactionTiming::Nothing => self.push_note(
                    "there is nothing that a compaction could leave out of the context",
                    Role::Dim,
                ),
                CompactionTiming::Now => {}
                CompactionTiming::Later => self.push_note(
                    "the context is compacted before the model is asked for its next turn",
                    Role::Dim,
                ),
            },
            SessionEventKind::RequestClosed {
                reason: CloseReason::TimedOut,
                ..
            } => self.push_note("no answer in time: denied", Role::Warning),
            SessionEventKind::State(SessionState::Idle(end)) => self.push_end(end),
            SessionEventKind::State(SessionState::Ended(_)) => self.end_live(),
            SessionEventKind::State(SessionState::Working) => self.is_end_shown = false,
            _ => {}
        }
    }

    /// Returns the live lines for a screen of this width, at most this many.
    pub fn live_lines(&self, now: Duration, max_rows: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for line in self.text.open_lines(self.width) {
            lines.extend(match line.wrapping {
                crate::lines::Wrapping::Words(_) => line.rows(self.width),
                crate::lines::Wrapping::Terminal => {
                    crate::lines::wrap_words(&line.line, self.width, 0)
                }
            });
        }
        if let Some(thought) = &self.thought {
            lines.extend(self.thought_lines(thought, now));
        }
        if let Some(call) = &self.streaming {
            lines.extend(self.streaming_lines(call));
        }
        for call in &self.running {
            lines.extend(self.running_lines(call, now));
        }
        let skipped = lines.len().saturating_sub(max_rows);
        let width = self.width;
        lines
            .into_iter()
            .skip(skipped)
            .map(|line| fit_line(line, width))
            .collect()
    }

    fn thought_lines(&self, thought: &Thought, now: Duration) -> Vec<Line<'static>> {
        let dim = self.theme.style(Role::Comment);
        let seconds = now.saturating_sub(thought.since).as_secs();
        let mut lines = vec![Line::from(span(&format!("thinking… {seconds} s"), dim))];
        for line in thought.tail.last_lines(2) {
            lines.push(Line::from(span(&format!("  {line}"), dim)));
        }
        lines
    }

    fn streaming_lines(&self, call: &StreamingCall) -> Vec<Line<'static>> {
        let count = call.tail.line_count();
        let size = match count {
            0 | 1 => String::new(),
            count => format!("  {}", count_noun(count, "line")),
        };
        let mut lines = vec![self.call_line("●", Role::Accent, &call.name, &call.subject, &size)];
        if count > 1 {
            let mut highlighter = CodeHighlighter::for_language(&call.subject);
            for line in call.tail.last_stable_lines(LIVE_LINES) {
                let mut spans = vec![span("  │ ", self.theme.style(Role::Dim))];
                spans.extend(self.argument_line(&call.argument, &line, &mut highlighter));
                lines.push(Line::from(spans));
            }
        }
        lines
    }

    /// Returns the pieces of a line of an argument: code, or a line of a diff.
    fn argument_line(
        &self,
        argument: &str,
        line: &str,
        highlighter: &mut CodeHighlighter,
    ) -> Vec<ratatui_core::text::Span<'static>> {
        if matches!(argument, "diff" | "patch" | "input") {
            return vec![span(line, self.theme.style(diff_role(line)))];
        }
        highlighter.highlight_line(line, self.theme)
    }

    fn running_lines(&self, call: &RunningCall, now: Duration) -> Vec<Line<'static>> {
        let known = self.calls.iter().find(|known| known.id == call.id);
        let name = known.map_or("", |call| call.name.as_str());
        let subject = known.map(call_subject).unwrap_or_default();
        let time = now.saturating_sub(call.since);
        let time = match time >= MIN_SHOWN_TIME {
            true => format!("  {} s", time.as_secs()),
            false => String::new(),
        };
        let mut lines = vec![self.call_line("●", Role::Accent, name, &subject, &time)];
        for line in call.output.last_lines(LIVE_LINES) {
            lines.push(self.output_line(&line));
        }
        lines
    }

    fn call_line(
        &self,
        mark: &str,
        role: Role,
        name: &str,
        subject: &str,
        note: &str,
    ) -> Line<'static> {
        let name = one_line(name);
        let room = self
            .width
            .saturating_sub(text_width(&name) + text_width(note) + 4)
            .max(8);
        Line::from(vec![
            span(&format!("{mark} "), self.theme.style(role)),
            span(&name, self.theme.style(Role::Strong)),
            span(
                &format!(" {}", fit_text(&one_line(subject), room)),
                self.theme.style(Role::Plain),
            ),
            span(note, self.theme.style(Role::Dim)),
        ])
    }

    fn output_line(&self, line: &str) -> Line<'static> {
        Line::from(vec![
            span("  │ ", self.theme.style(Role::Dim)),
            span(line, self.theme.style(Role::Dim)),
        ])
    }

    fn note_nested(&mut self, event: &SessionEvent, label: &SubtaskLabel) {
        let Some(task_event) = event.kind.as_task_event() else {
            return;
        };
        let make = || SubtaskRenderer::new(&label.task, &label.mode, label.depth);
        let renderer = self.nested.entry(label.task.clone()).or_insert_with(make);
        let lines = renderer.render_lines(task_event);
        if !lines.is_empty() {
            self.push_note(&lines, Role::Dim);
        }
    }

    /// Shows the failure before this event, unless the event is the end that repeats it.
    fn note_failure(&mut self, kind: &SessionEventKind) {
        let Some(failure) = self.last_failure.take() else {
            return;
        };
        let is_end = match kind {
            SessionEventKind::Record(record) => {
                matches!(&**record, Record::Ended { message, .. } if *message == failure)
            }
            _ => false,
        };
        if !is_end {
            self.push_note(
                &format!("the model cannot be asked: {}", one_line(&failure)),
                Role::Error,
            );
        }
    }

    fn note_delta(&mut self, delta: &StreamEvent, now: Duration) {
        match delta {
            StreamEvent::Text { text } => {
                self.end_thought(now);
                self.push_text(text);
            }
            StreamEvent::Thought { text } => {
                let thought = self.thought.get_or_insert_with(|| Thought {
                    since: now,
                    tail: TailBuffer::default(),
                    whole: String::new(),
                });
                thought.tail.push(text);
                if thought.whole.len() < MAX_FOLDED {
                    thought.whole.push_str(text);
                }
            }
            StreamEvent::CallStart { name, .. } => {
                self.end_thought(now);
                self.end_text();
                self.streaming = Some(StreamingCall {
                    name: name.clone(),
                    argument: String::new(),
                    subject: String::new(),
                    tail: TailBuffer::default(),
                });
            }
            StreamEvent::ArgStart { name, .. } => {
                if let Some(call) = &mut self.streaming {
                    call.argument.clone_from(name);
                    call.tail = TailBuffer::default();
                    if call.name == COMPLETION_TOOL && name == "result" {
                        self.has_streamed_result = true;
                        self.push_gap();
                    }
                }
            }
            StreamEvent::ArgDelta { text, .. } => self.note_argument(text),
            StreamEvent::CallEnd { .. } | StreamEvent::CallCut { .. } => {
                self.end_text();
                self.streaming = None;
            }
            _ => {}
        }
    }

    fn note_argument(&mut self, text: &str) {
        let Some(call) = &mut self.streaming else {
            return;
        };
        if call.name == COMPLETION_TOOL && call.argument == "result" {
            return self.push_text(text);
        }
        if is_subject(&call.argument) && call.subject.len() < 400 {
            call.subject.push_str(text);
        }
        call.tail.push(text);
    }

    fn note_output(&mut self, id: &CallId, text: &str) {
        let call = self.calls.iter().find(|known| known.id == *id);
        if self.outputs.hide_output(call, text) {
            return;
        }
        if let Some(running) = self.running.iter_mut().find(|call| call.id == *id) {
            running.output.push(text);
        }
    }

    fn note_record(&mut self, record: &Record, now: Duration) {
        if matches!(record, Record::Said { .. } | Record::Answered(_)) {
            self.is_end_shown = false;
        }
        match record {
            Record::Said {
                by: MessageAuthor::User,
                text,
                images,
                ..
            } => self.push_user_message(&images::with_image_notes(text, images)),
            Record::Said {
                by: MessageAuthor::Sabir,
                text,
                ..
            } => self.push_note(&format!("the model gets: {text}"), Role::Dim),
            Record::Answered(answered) => self.note_answer(answered, now),
            Record::Failed(FailedTurn { error, message, .. }) => {
                self.end_live();
                if *error == ModelErrorKind::Broken {
                    self.push_note(
                        &format!("the answer broke off: {}", one_line(message)),
                        Role::Warning,
                    );
                } else {
                    self.last_failure = Some(message.clone());
                }
            }
            Record::Running { call, .. } => {
                self.end_text();
                self.running.push(RunningCall {
                    id: call.clone(),
                    since: now,
                    output: TailBuffer::default(),
                });
            }
            Record::Result(result) => self.note_result(result, now),
            Record::Context(change) => self.note_context(change),
            Record::Damaged { bytes, .. } => self.push_note(
                &format!("the journal was damaged here: {bytes} bytes of later records are lost"),
                Role::Error,
            ),
            Record::Ended { .. } => self.end_live(),
            _ => {}
        }
    }

    fn note_context(&mut self, change: &ContextChange) {
        match change {
            ContextChange::Compacted(compacted) => {
                self.push_note(&context_text::compaction_text(compacted), Role::Dim);
            }
            ContextChange::Restored => self.push_note("the last compaction was undone", Role::Dim),
            ContextChange::Changed { told, .. } | ContextChange::Moded { told, .. } => {
                self.push_note(&format!("the model gets: {told}"), Role::Dim);
            }
            _ => {}
        }
    }

    fn note_answer(&mut self, answered: &AssistantTurn, now: Duration) {
        self.end_thought(now);
        self.end_text();
        self.streaming = None;
        self.answers.finish_answer(answered);
        let texts = answered.parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let answer: String = texts.collect();
        if !answer.trim().is_empty() {
            self.answer = answer;
        }
        self.calls = answered
            .parts
            .iter()
            .filter_map(|part| match part {
                MessagePart::Call(call) => Some(call.clone()),
                _ => None,
            })
            .collect();
        for check in &answered.checks {
            let call = self.calls.iter().find(|call| call.id == check.call);
            let name = one_line(call.map_or("", |call| call.name.as_str()));
            for repair in &check.repairs {
                let text = format!(
                    "  repaired in {name} ({}): {} → {}",
                    repair.rule,
                    one_line(&repair.before),
                    one_line(&repair.after)
                );
                self.push_note(&text, Role::Warning);
            }
            if !check.passed {
                self.refused.push(check.call.clone());
                self.push_note(&format!("✗ refused: {name} is not run"), Role::Error);
                for line in check.feedback_text().lines() {
                    self.push_note(&format!("  │ {line}"), Role::Plain);
                }
            }
        }
    }

    fn note_result(&mut self, result: &CallResult, now: Duration) {
        let running = self
            .running
            .iter()
            .position(|call| call.id == result.id)
            .map(|at| self.running.remove(at));
        if self.refused.contains(&result.id) {
            return;
        }
        self.end_text();
        let hidden = self.outputs.hidden_summary(&result.id);
        let call = self.calls.iter().find(|call| call.id == result.id).cloned();
        let subject = call.as_ref().map(call_subject).unwrap_or_default();
        let (mark, role) = match result.ending {
            ToolResultStatus::Done => ("✓", Role::Success),
            ToolResultStatus::Failed => ("✗ failed:", Role::Error),
            ToolResultStatus::Rejected => ("✗ refused:", Role::Error),
            ToolResultStatus::Denied => ("✗ denied:", Role::Warning),
            ToolResultStatus::Interrupted => ("✗ interrupted:", Role::Warning),
        };
        let time = running
            .as_ref()
            .map(|call| now.saturating_sub(call.since))
            .filter(|time| *time >= MIN_SHOWN_TIME)
            .map(|time| format!("  {:.1} s", time.as_secs_f64()))
            .unwrap_or_default();
        let is_completion = result.name == COMPLETION_TOOL;
        if !(is_completion && result.ending == ToolResultStatus::Done) {
            let line = self.call_line(mark, role, &result.name, &subject, &time);
            let path = call.as_ref().and_then(|call| call.arguments.get("path"));
            let mut line = HistoryLine::words(line, 4);
            if let Some(path) = path.and_then(Value::as_str) {
                line.link_path(path, &self.folder);
            }
            self.decided.push(line);
            self.ends_with_gap = false;
        }
        if !hidden.is_empty() {
            self.push_dim(hidden.trim_end());
        } else if let Some(running) = running.filter(|call| !call.output.text.is_empty()) {
            self.push_tail(&running.output);
        } else if result.ending != ToolResultStatus::Done {
            self.push_reason(result);
        }
        if result.ending == ToolResultStatus::Done
            && let Some(call) = call.filter(|call| call.name == TODO_LIST_TOOL)
        {
            self.note_todos(&call);
        }
    }

    /// Adds the output of a command that has ended, folded to its last lines.
    pub fn push_output(&mut self, output: &str) {
        let mut tail = TailBuffer::default();
        tail.push(output);
        self.push_tail(&tail);
    }

    fn push_tail(&mut self, output: &TailBuffer) {
        let count = output.line_count();
        let shown = output.last_lines(MAX_OUTPUT_LINES);
        if count > shown.len() {
            self.folded = Some(output.text.clone());
            let more = format!(
                "  … {}{}",
                count_noun(count - shown.len(), "line"),
                self.unfold_hint("shows more")
            );
            self.push_dim(&more);
        }
        for line in shown {
            let line = self.output_line(&line);
            self.decided.push(HistoryLine::whole(line));
        }
        self.ends_with_gap = false;
    }

    fn push_reason(&mut self, result: &CallResult) {
        let count = result.content.lines().count();
        let limit = match result.ending {
            ToolResultStatus::Failed => MAX_REASON_LINES,
            _ => 1,
        };
        for line in sanitize_text(&result.content).lines().take(limit) {
            let line = Line::from(span(&format!("    {line}"), self.theme.style(Role::Plain)));
            self.decided.push(HistoryLine::words(line, 4));
        }
        if count > limit && result.ending == ToolResultStatus::Failed {
            self.folded = Some(clip(&result.content).to_owned());
            let more = format!(
                "    … {}{}",
                count_noun(count - limit, "more line"),
                self.unfold_hint("shows all")
            );
            self.push_dim(&more);
        }
    }

    fn note_todos(&mut self, call: &Call) {
        let list = call.arguments.get("todos").and_then(Value::as_str);
        let list = list.and_then(|text| TodoList::parse(text).ok());
        self.todos = list.map(|list| list.items().to_vec()).unwrap_or_default();
        for todo in self.todos.clone() {
            let (mark, role) = match todo.state {
                TodoState::Open => ("[ ]", Role::Plain),
                TodoState::Active => ("[-]", Role::Accent),
                TodoState::Done => ("[x]", Role::Dim),
            };
            let indent = "  ".repeat(todo.depth.min(8) + 2);
            let text = format!("{indent}{mark} {}", one_line(&todo.text));
            let line = Line::from(span(&text, self.theme.style(role)));
            self.decided
                .push(HistoryLine::words(line, indent.len() + 4));
        }
    }

    /// Shows the result of a completion, unless it was already shown while it streamed.
    pub fn push_completion(&mut self, result: &str) {
        self.answer = result.to_owned();
        if !std::mem::take(&mut self.has_streamed_result) {
            self.push_gap();
            self.push_text(result);
            self.end_text();
        }
    }

    fn push_end(&mut self, end: &TaskEnd) {
        self.end_live();
        // A session that was changed while it was idle is idle again.
        if std::mem::replace(&mut self.is_end_shown, true) {
            return;
        }
        if end.session_outcome() != TaskOutcome::Completed && !end.message.is_empty() {
            self.push_note(&format!("■ {}", one_line(&end.message)), Role::Warning);
        }
        if end.outcome == TaskOutcome::Misconfigured {
            self.push_note(
                "correct it, or choose another model with /model: your next message tries again",
                Role::Plain,
            );
        }
        if end.turns > 0 {
            let turns = count_noun(end.turns as usize, "turn");
            self.push_note(&format!("{turns}: {}", usage_text(&end.totals)), Role::Dim);
        }
        self.push_gap();
    }

    /// Appends foreign text to the stream of Markdown.
    fn push_text(&mut self, text: &str) {
        let clean = self.sanitizer.sanitize_chunk(text);
        if !self.is_writing && !clean.trim().is_empty() {
            self.push_gap();
            self.is_writing = true;
        }
        if self.is_writing {
            self.text.push(&clean);
        }
    }

    /// Finishes all open text.
    fn end_text(&mut self) {
        let lines = self.text.finish(self.width);
        self.push_text_lines(lines);
        self.is_writing = false;
        self.sanitizer = Sanitizer::default();
    }

    fn push_text_lines(&mut self, lines: Vec<HistoryLine>) {
        if !lines.is_empty() {
            self.decided.extend(lines);
            self.ends_with_gap = false;
        }
    }

    fn end_thought(&mut self, now: Duration) {
        if let Some(thought) = self.thought.take() {
            let seconds = now.saturating_sub(thought.since).as_secs();
            self.end_text();
            let hint = self.unfold_hint("shows it");
            self.push_dim(&format!("thought for {seconds} s{hint}"));
            self.folded = Some(thought.whole);
        }
    }

    /// Finishes everything that is live, because the turn is over.
    fn end_live(&mut self) {
        self.end_text();
        self.thought = None;
        self.streaming = None;
        self.running.clear();
        self.has_streamed_result = false;
    }

    fn push_dim(&mut self, text: &str) {
        let line = Line::from(span(text, self.theme.style(Role::Dim)));
        self.decided.push(HistoryLine::words(line, 2));
        self.ends_with_gap = false;
    }

    /// Adds an empty line, unless the last one is.
    fn push_gap(&mut self) {
        if !self.ends_with_gap {
            self.decided.push(HistoryLine::empty());
            self.ends_with_gap = true;
        }
    }
}

/// Returns the role of a line of a diff.
pub fn diff_role(line: &str) -> Role {
    match line.as_bytes() {
        [b'@', b'@', ..] => Role::Accent,
        [b'+', ..] if !line.starts_with("+++++++") => Role::Added,
        [b'-', ..] if !line.starts_with("-------") => Role::Removed,
        [b'*', b'*', b'*', ..] => Role::Accent,
        _ => Role::Plain,
    }
}

/// Returns true for arguments that name the object of a call.
fn is_subject(argument: &str) -> bool {
    matches!(
        argument,
        "path" | "command" | "regex" | "url" | "file_path" | "message" | "query"
    )
}

/// Returns the object of a call: its path, its command, its pattern.
pub fn call_subject(call: &Call) -> String {
    let names = [
        "path", "command", "regex", "url", "mode", "question", "message", "query",
    ];
    let subject = names
        .iter()
        .find_map(|name| call.arguments.get(*name))
        .and_then(Value::as_str);
    let first = subject.and_then(|text| text.lines().next());
    first.unwrap_or_default().to_owned()
}

fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_FOLDED))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::TailBuffer;

    #[test]
    fn half_a_marker_is_not_shown_while_it_streams() {
        let mut tail = TailBuffer::default();
        tail.push("------- SEARCH\nx\n====");
        assert_eq!(tail.last_stable_lines(9), ["------- SEARCH", "x"]);
        tail.push("===");
        assert_eq!(tail.last_stable_lines(9), ["------- SEARCH", "x"]);
        tail.push("\ny\n+++++++ REP");
        let lines = ["------- SEARCH", "x", "=======", "y"];
        assert_eq!(tail.last_stable_lines(9), lines);
        tail.push("ORT");
        assert_eq!(tail.last_stable_lines(1), ["+++++++ REPORT"]);
    }
}
