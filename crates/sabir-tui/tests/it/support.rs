//! Drives the interface without a terminal: its bytes go into a screen model.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use sabir_session::agent::{
    AssistantTurn, CallCheck, MessageAuthor, Record, TaskId, TaskOutcome, ToolUsageTable,
    UsageTotals, UserQuestion,
};
use sabir_session::call::{Call, CallId, CallResult, Cost, MessagePart, ToolResultStatus, Usage};
use sabir_session::config::key_bindings::KeyBindings;
use sabir_session::config::tui::{AnimationLevel, EditingKeys, StatusItem};
use sabir_session::custom_commands::CustomCommands;
use sabir_session::{
    RequestId, RunSummary, SessionEvent, SessionEventKind, SessionState, StreamEvent, SubtaskLabel,
    TaskEnd,
};
use sabir_tui::app::{App, AppSettings, Effect};
use sabir_tui::inline_screen::{InlineScreen, RowReflow};
use sabir_tui::keys::{KeyDecoder, TerminalInput};
use sabir_tui::theme::{ColorDepth, ThemeSet};
use sabir_tui::view::{TerminalSize, View};

/// The interface before a screen model.
pub(crate) struct Bench {
    pub(crate) app: App,
    pub(crate) parser: vt100::Parser,
    pub(crate) now: Duration,
    pub(crate) view: View,
    pub(crate) written: usize,
    /// The last frame.
    pub(crate) frame: String,
    screen: InlineScreen,
    size: TerminalSize,
    sequence: u64,
}

impl Bench {
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self::with_commands(columns, rows, CustomCommands::default())
    }

    /// Creates an interface that knows these commands of a folder.
    pub(crate) fn with_commands(
        columns: usize,
        rows: usize,
        custom_commands: CustomCommands,
    ) -> Self {
        let settings = AppSettings {
            custom_commands,
            ..Self::settings()
        };
        Self::with_settings(columns, rows, settings)
    }

    /// Returns the usual settings.
    pub(crate) fn settings() -> AppSettings {
        AppSettings {
            themes: ThemeSet::new(BTreeMap::new(), ColorDepth::Palette, None),
            theme_name: "auto".to_owned(),
            motion: AnimationLevel::Full,
            history: vec!["an earlier message".to_owned(), "two\nlines".to_owned()],
            draft: String::new(),
            modes: vec!["code".to_owned(), "plan".to_owned()],
            custom_commands: CustomCommands::default(),
            status: StatusItem::ALL.to_vec(),
            keys: EditingKeys::Emacs,
            bindings: KeyBindings::default(),
            can_switch: true,
        }
    }

    /// Creates an interface with these settings.
    pub(crate) fn with_settings(columns: usize, rows: usize, settings: AppSettings) -> Self {
        let size = TerminalSize { columns, rows };
        let mut app = App::new(settings);
        app.handle_resize(size);
        let mut bench = Self {
            app,
            parser: vt100::Parser::new(narrow(rows), narrow(columns), 10_000),
            now: Duration::from_secs(1),
            view: View::default(),
            written: 0,
            frame: String::new(),
            screen: InlineScreen::new(size, RowReflow::Unknown).with_links(true),
            size,
            sequence: 0,
        };
        bench.draw();
        bench
    }

    /// Begins a task, so that messages go into it.
    pub(crate) fn working(columns: usize, rows: usize) -> Self {
        let mut bench = Self::new(columns, rows);
        bench.event(SessionEventKind::State(SessionState::Working));
        bench
    }

    pub(crate) fn draw(&mut self) {
        let history = self.app.take_final_lines();
        self.view = self.app.draw(self.now);
        let bytes = self.screen.draw(history, self.view.clone());
        self.written += bytes.len();
        self.parser.process(bytes.as_bytes());
        self.frame = bytes;
    }

    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// Types keys one after the other.
    pub(crate) fn keys(&mut self, keys: &str) -> Vec<Effect> {
        let mut decoder = KeyDecoder::default();
        let mut effects = Vec::new();
        let mut bytes = [0; 4];
        for c in keys.chars() {
            let inputs = decoder.feed(c.encode_utf8(&mut bytes).as_bytes());
            for input in inputs {
                effects.extend(self.input(input));
            }
        }
        if let Some(input) = decoder.finish_escape() {
            effects.extend(self.input(input));
        }
        effects
    }

    pub(crate) fn input(&mut self, input: TerminalInput) -> Vec<Effect> {
        let effects = self.app.handle_input(input, self.now);
        if effects.contains(&Effect::Redraw) {
            let bytes = self.screen.redraw();
            self.parser.process(bytes.as_bytes());
        }
        self.draw();
        effects
    }

    pub(crate) fn resize(&mut self, columns: usize, rows: usize) {
        self.size = TerminalSize { columns, rows };
        self.parser
            .screen_mut()
            .set_size(narrow(rows), narrow(columns));
        let bytes = self.screen.resize(self.size);
        self.parser.process(bytes.as_bytes());
        self.app.handle_resize(self.size);
        self.draw();
    }

    pub(crate) fn size(&self) -> TerminalSize {
        self.size
    }

    pub(crate) fn event(&mut self, kind: SessionEventKind) -> Vec<Effect> {
        let effects = self.quiet_event(kind);
        self.draw();
        effects
    }

    /// Takes an event without drawing, as in a flood.
    pub(crate) fn quiet_event(&mut self, kind: SessionEventKind) -> Vec<Effect> {
        self.sequence += 1;
        let event = SessionEvent {
            sequence: self.sequence,
            subtask: None,
            kind,
        };
        self.app.handle_event(&event, self.now)
    }

    /// Takes an event of a subtask.
    pub(crate) fn subtask_event(&mut self, task: &str, kind: SessionEventKind) -> Vec<Effect> {
        self.sequence += 1;
        let event = SessionEvent {
            sequence: self.sequence,
            subtask: Some(Arc::new(SubtaskLabel {
                task: TaskId::new(task),
                mode: "code".to_owned(),
                depth: 1,
            })),
            kind,
        };
        let effects = self.app.handle_event(&event, self.now);
        self.draw();
        effects
    }

    /// Returns the screen's rows, without empty ones at the end.
    pub(crate) fn rows(&self) -> Vec<String> {
        let (_, columns) = self.parser.screen().size();
        let rows: Vec<String> = self.parser.screen().rows(0, columns.get()).collect();
        let end = rows
            .iter()
            .rposition(|row| !row.is_empty())
            .map_or(0, |at| at + 1);
        rows.into_iter().take(end).collect()
    }

    pub(crate) fn shows(&self, words: &str) -> bool {
        self.rows().join("\n").contains(words)
    }
}

/// Returns the state of a session whose task was interrupted.
pub(crate) fn idle() -> SessionEventKind {
    SessionEventKind::State(SessionState::Idle(TaskEnd {
        outcome: TaskOutcome::Cancelled,
        message: "interrupted".to_owned(),
        turns: 1,
        totals: UsageTotals::default(),
        summary: RunSummary::default(),
        tools: ToolUsageTable::new(),
        follows_answer: false,
    }))
}

fn narrow(size: usize) -> NonZeroU16 {
    u16::try_from(size)
        .ok()
        .and_then(NonZeroU16::new)
        .unwrap_or(NonZeroU16::MAX)
}

pub(crate) fn text(text: &str) -> SessionEventKind {
    SessionEventKind::Delta(StreamEvent::Text {
        text: text.to_owned(),
    })
}

/// Returns the record of a message of the user.
pub(crate) fn said(text: &str) -> SessionEventKind {
    record(Record::Said {
        by: MessageAuthor::User,
        text: text.to_owned(),
        images: Vec::new(),
        when: Default::default(),
    })
}

pub(crate) fn request_id(call: &str) -> RequestId {
    RequestId {
        task: TaskId::new("t"),
        call: Some(CallId::new(call)),
    }
}

pub(crate) fn approval(call: &str, subject: &str, detail: &str) -> SessionEventKind {
    SessionEventKind::Request {
        request: request_id(call),
        question: UserQuestion::Approval {
            call: CallId::new(call),
            tool: "write_to_file".to_owned(),
            subject: subject.to_owned(),
            detail: detail.to_owned(),
            reason: "changes a file".to_owned(),
            proposals: Vec::new(),
            recovered_from_text: false,
            echo_of: None,
        },
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: serde_json::Value) -> Call {
    Call {
        id: CallId::new(id),
        name: name.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    }
}

pub(crate) fn answered(calls: Vec<Call>, checks: Vec<CallCheck>) -> SessionEventKind {
    record(Record::Answered(AssistantTurn {
        turn: 1,
        parts: calls.into_iter().map(MessagePart::Call).collect(),
        checks,
        faults: Vec::new(),
        usage: Usage::default(),
        estimate: Usage::default(),
        cost: Cost::UNKNOWN,
        stop: None,
        feedback: None,
    }))
}

pub(crate) fn running(id: &str) -> SessionEventKind {
    record(Record::Running {
        call: CallId::new(id),
        seal: None,
    })
}

pub(crate) fn output(id: &str, text: &str) -> SessionEventKind {
    SessionEventKind::Output {
        call: CallId::new(id),
        text: text.to_owned(),
    }
}

pub(crate) fn result(
    id: &str,
    name: &str,
    ending: ToolResultStatus,
    content: &str,
) -> SessionEventKind {
    record(Record::Result(CallResult {
        id: CallId::new(id),
        name: name.to_owned(),
        ending,
        content: content.to_owned(),
        images: Vec::new(),
    }))
}

pub(crate) fn record(record: Record) -> SessionEventKind {
    SessionEventKind::Record(std::sync::Arc::new(record))
}
