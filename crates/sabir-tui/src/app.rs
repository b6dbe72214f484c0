//! Holds the state of the interface: keys, pastes and events of a session go in, effects and views come out.
//!
//! The state is pure. It knows neither the terminal nor the session, and gets the time as a number, so that the same inputs
//! always do the same.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ratatui_core::text::Line;
use sabir_session::agent::{ContextChange, Record, TaskId, UserMessage, UserQuestion};
use sabir_session::call::{Cost, Image};
use sabir_session::config::key_bindings::{ACTIONS, KeyAction, KeyBindings};
use sabir_session::config::tui::{AnimationLevel, EditingKeys, StatusItem};
use sabir_session::custom_commands::CustomCommands;
use sabir_session::symbol_names::SymbolName;
use sabir_session::{
    CloseReason, Command, Decision, Delivery, NoticeTopic, RequestId, SessionEvent,
    SessionEventKind, SessionSnapshot, SessionState, UserCommandOutput, modes,
};
use sabir_terminal::print::duration_text;
use sabir_terminal::slash_commands::custom_command_line;

use self::completion::{Completion, MAX_COMPLETIONS};
use crate::commands::{COMMANDS, FIXED_KEYS, SlashCommand, is_builtin_command, parse_command};
use crate::composer::Composer;
use crate::decision::{OpenQuestion, QuestionKeyEffect};
use crate::keys::{Key, KeyCode, TerminalInput};
use crate::lines::{HistoryLine, MIN_WIDTH, fit_line, fit_text, one_line, span};
use crate::picker::{
    CheckpointedCall, PickedItem, Picker, PickerItem, PickerKeyEffect, RewindScope,
};
use crate::rewind::{NextSession, SentMessages};
use crate::subtask_view::SubtaskViews;
use crate::theme::{Role, Theme, ThemeSet};
use crate::transcript::{HelpRow, Transcript};
use crate::view::{DraftRows, TerminalSize, View, lay_out_draft};

mod choices;
mod completion;

/// The time within which a second Ctrl-C leaves.
const LEAVE_TIME: Duration = Duration::from_secs(2);
/// The time for which a message about a key is shown.
const HINT_TIME: Duration = Duration::from_secs(4);

/// The settings and data that an interface gets at its start.
#[derive(Debug, Clone)]
pub struct AppSettings {
    /// The themes.
    pub themes: ThemeSet,
    /// The name of the theme.
    pub theme_name: String,
    /// The amount of motion on the screen.
    pub motion: AnimationLevel,
    /// Earlier messages, the oldest first.
    pub history: Vec<String>,
    /// A draft left behind by an interrupted session.
    pub draft: String,
    /// The names of the modes.
    pub modes: Vec<String>,
    /// The commands that the folder and the user define.
    pub custom_commands: CustomCommands,
    /// The parts of the status line.
    pub status: Vec<StatusItem>,
    /// The keys that edit a message.
    pub keys: EditingKeys,
    /// The keys of the actions.
    pub bindings: KeyBindings,
    /// True if the next message starts a new task, so that another task can be chosen instead.
    pub can_switch: bool,
}

/// An action that the driver must execute.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Submit a command to the session.
    Submit(Command),
    /// Begin a task with this message.
    Begin(UserMessage),
    /// Keep a message in the history of all sessions.
    AddToHistory(String),
    /// Load the image of a file, and pass it to [`App::handle_loaded_image`].
    LoadImage {
        /// The file.
        path: String,
        /// The message that it belongs to; empty for the next one.
        message: String,
    },
    /// Expand a line that begins with a command of the folder or the user, which reads files: [`App::expand_command`].
    ExpandCommand(String),
    /// List the files of the workspace and the symbols in them, and pass them to [`App::set_files`] and [`App::set_symbols`].
    ListFiles,
    /// Edit the draft in the user's editor, and pass the text to [`App::set_edited_draft`].
    EditDraft(String),
    /// Compare the folder with its state before the last changing calls, or before all of them, and pass the result to
    /// [`App::show_diff`].
    CompareFolder(Option<usize>),
    /// List the checkpoints, and pass the list to [`App::open_picker`].
    ListCheckpoints,
    /// Compare the folder with its state before this call, and pass the result to [`App::set_checkpoint_preview`].
    CompareCheckpoint(CheckpointedCall),
    /// Preview a restore of the state before this call, and pass it to
    /// [`App::open_restore_choice`].
    PreviewRestore(CheckpointedCall),
    /// Keep this theme in the configuration.
    SaveTheme(String),
    /// Attach the picture in the clipboard, and pass it to [`App::handle_loaded_image`].
    PastePicture,
    /// Notify the user, who is elsewhere but needed. The text says why.
    NotifyUser(&'static str),
    /// List the tasks of the folder, and pass the list to [`App::open_picker`].
    ListTasks,
    /// List the models, and pass the list to [`App::open_picker`].
    ListModels,
    /// List the MCP servers, and pass the list to [`App::open_picker`].
    ListServers,
    /// Print the last exchange of a task.
    ShowTask(TaskId),
    /// Preview a rewind to these records, and pass it to [`App::open_rewind_choice`].
    PreviewRewind {
        /// The number of the message.
        message: usize,
        /// The number of records to keep.
        records: usize,
    },
    /// Restore the files to their state after this many records.
    RestoreFiles(usize),
    /// End this session and begin another one.
    Switch(Box<NextSession>),
    /// Submit a command to a subtask.
    SubmitTo(TaskId, Command),
    /// Run the user's command, and pass its result to [`App::handle_user_command_result`].
    RunUserCommand(String),
    /// Stop the user's command.
    StopUserCommand,
    /// Attach the image that a pasted path names, or else pass the text to [`App::paste_text`].
    AttachPasted(String),
    /// Add a note to the instructions of the folder.
    AppendNote(String),
    /// Copy a text to the terminal's clipboard.
    Copy(String),
    /// Draw the whole screen again.
    Redraw,
    /// Leave.
    Leave,
}

/// A file that a task has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// The path.
    pub path: String,
    /// The change, as a unified diff.
    pub diff: String,
}

/// The activity of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// There is no task yet.
    Composing,
    /// The task works.
    Working,
    /// The task waits for a message.
    Idle,
    /// The session is over.
    Ended,
}

/// The state of the interface.
#[derive(Debug)]
pub struct App {
    theme: Theme,
    bindings: Arc<KeyBindings>,
    composer: Composer,
    /// The reason for a refusal that is being typed, with its question.
    reason: Option<(RequestId, Composer)>,
    transcript: Transcript,
    decisions: VecDeque<OpenQuestion>,
    /// True if keys go to the draft although an approval is open.
    is_draft_focused: bool,
    /// True if the user has moved the focus to the open approval, so that no pause in typing is needed.
    has_chosen_decision: bool,
    queue: VecDeque<UserMessage>,
    images: Vec<Image>,
    activity: Activity,
    status: Status,
    /// The moment of the last key.
    last_key: Duration,
    /// The moment of a Ctrl-C that had nothing to clear.
    leaving_since: Option<Duration>,
    /// A message about the last key, until the next one.
    hint: String,
    /// The moment of the key that the hint is about.
    hint_since: Duration,
    /// The pause before the next request to the provider.
    pause: Option<RetryPause>,
    modes: Vec<String>,
    /// The commands that the folder and the user define.
    custom_commands: CustomCommands,
    files: Option<Vec<String>>,
    are_files_requested: bool,
    completion: Option<Completion>,
    /// The place of a completion that was closed, so that it does not open again at once.
    closed_completion: Option<usize>,
    size: TerminalSize,
    /// False while the terminal says that it does not have the focus.
    has_focus: bool,
    shown_status: Vec<StatusItem>,
    can_switch: bool,
    /// The list that is open.
    picker: Option<Picker>,
    /// True while the list of themes is open, and the selected one is shown.
    is_choosing_theme: bool,
    said: SentMessages,
    /// The id of the task.
    task: Option<TaskId>,
    /// The destination of the next message, if it is not this task.
    destination: Option<Destination>,
    /// The moment of an Escape that had nothing to stop.
    escape_since: Option<Duration>,
    /// A note that is added if the user confirms it.
    note: Option<String>,
    /// The user's running command.
    user_command: Option<String>,
    /// The user's commands and their outputs, which are sent with the next message.
    command_results: String,
    /// The running subtasks.
    subtasks: SubtaskViews,
    themes: ThemeSet,
    theme_name: String,
    motion: AnimationLevel,
    symbols: Vec<SymbolName>,
}

/// The destination of the next message, if it is not the shown task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Destination {
    /// A new task.
    New,
    /// Another task, which continues.
    Task(TaskId),
    /// A fork of a task, with this many of its records.
    Fork {
        task: TaskId,
        records: Option<usize>,
        restores_files: bool,
    },
}

/// The facts of the status line.
#[derive(Debug, Default)]
struct Status {
    model: String,
    protocol: String,
    mode: String,
    context_percent: Option<u64>,
    cost: Option<Cost>,
    /// The sandbox of commands, in a word or two.
    sandbox: &'static str,
    branch: Option<String>,
    /// The start of the current run; `None` while the task waits for a message.
    run_since: Option<Duration>,
}

/// A pause before a request is sent again.
#[derive(Debug)]
struct RetryPause {
    /// The moment of the next attempt.
    until: Duration,
    /// The number of the attempt that failed.
    failed: u32,
    reason: String,
}

impl RetryPause {
    /// Counts down. The time and the way out come first, since a narrow terminal cuts the end.
    fn describe(&self, now: Duration) -> String {
        let left = duration_text(self.until.saturating_sub(now));
        format!(
            "next attempt in {left}, Esc stops · attempt {} failed: {}",
            self.failed, self.reason
        )
    }
}

impl App {
    /// Creates the state of an interface without a session.
    pub fn new(settings: AppSettings) -> Self {
        let bindings = Arc::new(settings.bindings);
        let mut composer = Composer::new(settings.history)
            .with_keys(settings.keys)
            .with_bindings(Arc::clone(&bindings));
        if !settings.draft.is_empty() {
            composer.paste(&settings.draft);
        }
        let theme = settings.themes.find(&settings.theme_name);
        let mut transcript = Transcript::new(theme);
        transcript.set_unfold_key(bindings.describe_keys(KeyAction::UnfoldOutput));
        Self {
            theme,
            bindings,
            composer,
            reason: None,
            transcript,
            decisions: VecDeque::new(),
            is_draft_focused: false,
            has_chosen_decision: false,
            queue: VecDeque::new(),
            images: Vec::new(),
            activity: Activity::Composing,
            status: Status::default(),
            last_key: Duration::ZERO,
            leaving_since: None,
            hint: String::new(),
            hint_since: Duration::ZERO,
            pause: None,
            modes: settings.modes,
            custom_commands: settings.custom_commands,
            files: None,
            are_files_requested: false,
            completion: None,
            closed_completion: None,
            size: TerminalSize {
                columns: 80,
                rows: 24,
            },
            has_focus: true,
            shown_status: settings.status,
            can_switch: settings.can_switch,
            picker: None,
            is_choosing_theme: false,
            said: SentMessages::default(),
            task: None,
            destination: None,
            escape_since: None,
            note: None,
            user_command: None,
            command_results: String::new(),
            subtasks: SubtaskViews::new(theme),
            themes: settings.themes,
            theme_name: settings.theme_name,
            motion: settings.motion,
            symbols: Vec::new(),
        }
    }

    /// Notifies the user if they are elsewhere.
    fn notify_user(&self, why: &'static str) -> Vec<Effect> {
        if self.has_focus {
            Vec::new()
        } else {
            vec![Effect::NotifyUser(why)]
        }
    }

    /// Returns the draft with all pastes.
    pub fn draft(&self) -> String {
        self.composer.message()
    }

    /// Returns the messages that wait for the model, the oldest first.
    pub fn queued_messages(&self) -> impl Iterator<Item = &str> {
        self.queue.iter().map(|message| message.text.as_str())
    }

    /// Returns the activity of the session.
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Returns true if the view changes as time passes.
    pub fn is_animated(&self) -> bool {
        if self.motion == AnimationLevel::Reduced {
            return !self.hint.is_empty();
        }
        let is_working = self.activity == Activity::Working && self.decisions.is_empty();
        is_working || self.transcript.is_live() || !self.hint.is_empty()
    }

    /// Sets the size of the terminal.
    pub fn handle_resize(&mut self, size: TerminalSize) {
        self.size = size;
        self.transcript.set_width(size.columns.max(MIN_WIDTH));
        self.subtasks.set_width(size.columns.max(MIN_WIDTH));
    }

    /// Handles an input from the terminal.
    pub fn handle_input(&mut self, input: TerminalInput, now: Duration) -> Vec<Effect> {
        let effects = match input {
            TerminalInput::Key(key) => self.handle_key(key, now),
            TerminalInput::Paste(text) => self.handle_paste(&text),
            TerminalInput::Focus(has_focus) => {
                self.has_focus = has_focus;
                return Vec::new();
            }
            TerminalInput::Background(color) => {
                self.set_background(color);
                return Vec::new();
            }
        };
        self.last_key = now;
        self.hint_since = now;
        let mut effects = effects;
        self.update_completion(&mut effects);
        effects
    }

    fn handle_paste(&mut self, text: &str) -> Vec<Effect> {
        self.hint.clear();
        if let Some(picker) = &mut self.picker {
            picker.paste(text);
            return Vec::new();
        }
        if self.reason.is_none() && names_image(text) {
            return vec![Effect::AttachPasted(text.to_owned())];
        }
        match &mut self.reason {
            Some((_, reason)) => reason.paste(text),
            // A paste answers nothing.
            None => {
                self.is_draft_focused = true;
                self.composer.paste(text);
            }
        }
        Vec::new()
    }

    fn handle_key(&mut self, key: Key, now: Duration) -> Vec<Effect> {
        self.hint.clear();
        let leaving = self.leaving_since.take();
        if key == Key::control('c') {
            return self.press_interrupt(leaving, now);
        }
        if key == Key::control('l') && self.bindings.find_action(key).is_none() {
            return vec![Effect::Redraw];
        }
        // Any other key in between means that the two Escapes do not belong together.
        let escaped = self.escape_since.take();
        if self.reason.is_some() {
            return self.press_in_reason(key);
        }
        // A question that comes while a list is open waits: its keys are not meant for it.
        if let Some(effects) = self.press_in_picker(key) {
            return effects;
        }
        if let Some(effects) = self.press_in_note(key) {
            return effects;
        }
        if let Some(effects) = self.press_in_completion(key) {
            return effects;
        }
        if self.composer.search().is_none()
            && let Some(effects) = self.press_in_decision(key, now)
        {
            return effects;
        }
        if key.code == KeyCode::Escape && self.composer.search().is_none() {
            if self.composer.leave_insertion() {
                return Vec::new();
            }
            return self.press_escape(escaped, now);
        }
        if let Some(effects) = self.press_global(key, now) {
            return effects;
        }
        if key.code == KeyCode::Up && self.composer.is_empty() && self.edit_queue() {
            return Vec::new();
        }
        let is_moving_choice = self.composer.is_empty()
            && matches!(key.code, KeyCode::Up | KeyCode::Down)
            && self
                .decisions
                .front_mut()
                .is_some_and(|open| open.move_choice(key.code == KeyCode::Down));
        if is_moving_choice {
            return Vec::new();
        }
        self.composer.press(key);
        Vec::new()
    }

    /// Handles a key whose meaning does not depend on the focus; `None` for any other key.
    fn press_global(&mut self, key: Key, now: Duration) -> Option<Vec<Effect>> {
        let is_searching = self.composer.search().is_some();
        match key.code {
            KeyCode::Enter if !(key.alt || key.shift || key.control || is_searching) => {
                return Some(self.press_enter(now));
            }
            KeyCode::Tab if key == Key::plain(KeyCode::Tab) => {
                self.move_focus(now);
                return Some(Vec::new());
            }
            KeyCode::Char('d') if key == Key::control('d') && self.composer.is_empty() => {
                return Some(self.leave());
            }
            _ => {}
        }
        match self.bindings.find_action(key)? {
            KeyAction::NextMode => Some(self.switch_mode()),
            KeyAction::SendNow => Some(self.send_now()),
            KeyAction::UnfoldOutput => {
                if !self.shown_transcript().unfold_last() {
                    self.hint = "nothing is folded".to_owned();
                }
                Some(Vec::new())
            }
            KeyAction::SecondAction => {
                let task = self.subtasks.entered()?.clone();
                self.hint = "stopping the subtask…".to_owned();
                Some(vec![Effect::SubmitTo(task, Command::Interrupt)])
            }
            KeyAction::PastePicture if !is_searching => Some(vec![Effect::PastePicture]),
            KeyAction::OpenEditor if !is_searching => {
                Some(vec![Effect::EditDraft(self.composer.message())])
            }
            KeyAction::Command(line) => match parse_command(line)? {
                Ok(command) => Some(self.run_command(command)),
                Err(error) => {
                    self.hint = error.to_string();
                    Some(Vec::new())
                }
            },
            _ => None,
        }
    }

    /// Moves the focus between an open approval and the draft; without one Tab is a character.
    fn move_focus(&mut self, now: Duration) {
        match self.decisions.front() {
            Some(open) if open.is_approval() => {
                // Tab that was typed before the question was seen was meant for something else.
                if self.is_draft_focused && open.was_seen(now) {
                    self.is_draft_focused = false;
                    self.has_chosen_decision = true;
                } else {
                    self.is_draft_focused = true;
                    self.has_chosen_decision = false;
                }
            }
            _ => _ = self.composer.press(Key::plain(KeyCode::Char('\t'))),
        }
    }

    fn press_interrupt(&mut self, leaving: Option<Duration>, now: Duration) -> Vec<Effect> {
        if self.reason.take().is_some() || self.close_picker() || self.note.take().is_some() {
            return Vec::new();
        }
        if !self.composer.is_empty() {
            self.composer.clear();
            self.hint = "cleared; Ctrl-_ restores it".to_owned();
            return Vec::new();
        }
        if leaving.is_some_and(|since| now.saturating_sub(since) <= LEAVE_TIME) {
            return self.leave();
        }
        self.leaving_since = Some(now);
        self.hint = "Ctrl-C again leaves".to_owned();
        if self.is_busy() {
            return vec![Effect::Submit(Command::Interrupt)];
        }
        Vec::new()
    }

    /// Returns true if the task does something that can be stopped.
    fn is_busy(&self) -> bool {
        let is_asked = self
            .decisions
            .front()
            .is_some_and(|open| matches!(open.question, UserQuestion::Next { .. }));
        self.activity == Activity::Working && !is_asked
    }

    fn press_escape(&mut self, escaped: Option<Duration>, now: Duration) -> Vec<Effect> {
        // It is what the user started last, so it is stopped before the turn.
        if self.user_command.is_some() {
            self.hint = "stopping…".to_owned();
            return vec![Effect::StopUserCommand];
        }
        if self.subtasks.entered().is_some() {
            self.subtasks.leave("");
            return Vec::new();
        }
        if self.is_busy() {
            self.hint = "stopping…".to_owned();
            return vec![Effect::Submit(Command::Interrupt)];
        }
        if self.destination.take().is_some() {
            self.hint = "the next message stays in this task".to_owned();
            return Vec::new();
        }
        if !self.composer.is_empty() || self.said.messages().is_empty() {
            return Vec::new();
        }
        if escaped.is_some_and(|since| now.saturating_sub(since) <= LEAVE_TIME) {
            self.open_messages();
            return Vec::new();
        }
        self.escape_since = Some(now);
        self.hint = "Esc again opens the list of earlier messages".to_owned();
        Vec::new()
    }

    fn leave(&mut self) -> Vec<Effect> {
        match self.activity {
            Activity::Composing | Activity::Ended => vec![Effect::Leave],
            Activity::Working | Activity::Idle => vec![Effect::Submit(Command::End)],
        }
    }

    fn press_in_reason(&mut self, key: Key) -> Vec<Effect> {
        let Some((request, mut reason)) = self.reason.take() else {
            return Vec::new();
        };
        match key.code {
            KeyCode::Escape => return Vec::new(),
            KeyCode::Enter if !key.alt && !key.shift && !key.control => {
                let reason = reason.message().trim().to_owned();
                return self.answer(request, Decision::Deny { reason });
            }
            _ => _ = reason.press(key),
        }
        self.reason = Some((request, reason));
        Vec::new()
    }

    /// Handles a key while a list is open; `None` if there is none.
    fn press_in_picker(&mut self, key: Key) -> Option<Vec<Effect>> {
        let picker = self.picker.as_mut()?;
        let pressed = match self.bindings.find_action(key) {
            Some(KeyAction::SecondAction) => picker.choose_second(),
            _ => picker.press(key),
        };
        if pressed != PickerKeyEffect::Handled {
            self.close_picker();
        }
        Some(match pressed {
            PickerKeyEffect::Handled => self.preview_selected(),
            PickerKeyEffect::Closed => Vec::new(),
            PickerKeyEffect::Chosen(item) => self.choose(item),
            PickerKeyEffect::ChosenSecond(PickedItem::Task(task)) => {
                self.hint = "your message starts a fork of this task; Esc cancels".to_owned();
                self.destination = Some(Destination::Fork {
                    task: task.clone(),
                    records: None,
                    restores_files: false,
                });
                // Shown before the message is written, so that the user sees what it continues.
                vec![Effect::ShowTask(task)]
            }
            PickerKeyEffect::ChosenSecond(PickedItem::Message(number)) => {
                self.list_answers_after(number);
                Vec::new()
            }
            PickerKeyEffect::ChosenSecond(PickedItem::Subtask(task)) => {
                vec![Effect::SubmitTo(task, Command::Interrupt)]
            }
            PickerKeyEffect::ChosenSecond(PickedItem::Theme(name)) => {
                self.use_theme(&name);
                self.hint = format!("the theme is {name} until you leave");
                Vec::new()
            }
            PickerKeyEffect::ChosenSecond(_) => Vec::new(),
        })
    }

    /// Returns the transcript that is shown: that of the entered subtask, or the task's own.
    fn shown_transcript(&mut self) -> &mut Transcript {
        match self.subtasks.entered_transcript_mut() {
            Some(transcript) => transcript,
            None => &mut self.transcript,
        }
    }

    /// Closes the open list. A theme that was only previewed is dropped. Returns false if no list was open.
    fn close_picker(&mut self) -> bool {
        if std::mem::take(&mut self.is_choosing_theme) {
            self.set_theme(self.themes.find(&self.theme_name));
        }
        self.picker.take().is_some()
    }

    /// Executes the action of a row in a list.
    fn choose(&mut self, item: PickedItem) -> Vec<Effect> {
        match item {
            PickedItem::Task(task) => {
                // Its journal is locked by this session, so it could not be opened.
                if self.task.as_ref() == Some(&task) {
                    self.hint = "this is the current task".to_owned();
                    return Vec::new();
                }
                self.hint = "your message continues this task; Esc cancels".to_owned();
                self.destination = Some(Destination::Task(task.clone()));
                vec![Effect::ShowTask(task)]
            }
            PickedItem::Model(model) => {
                // A picked family of models has only the beginning of a name, which can be
                // completed before Enter.
                self.composer.replace(&format!("/model {model}"));
                Vec::new()
            }
            PickedItem::Mode(mode) => vec![Effect::Submit(Command::SetMode { mode })],
            PickedItem::Message(number) => match self.said.messages().get(number) {
                Some(said) => vec![Effect::PreviewRewind {
                    message: number,
                    records: said.records_before,
                }],
                None => Vec::new(),
            },
            PickedItem::Rewind { scope, message } => self.rewind(scope, message),
            PickedItem::Subtask(task) => {
                if !self.subtasks.enter(&task) {
                    self.hint = "this subtask has ended".to_owned();
                }
                Vec::new()
            }
            PickedItem::Theme(name) => {
                self.use_theme(&name);
                vec![Effect::SaveTheme(name)]
            }
            PickedItem::Checkpoint(call) => vec![Effect::PreviewRestore(call)],
            PickedItem::Restore { scope, call } => self.restore_call(scope, &call),
            PickedItem::Answer(number) => {
                self.show_answer(number);
                Vec::new()
            }
            PickedItem::Note => Vec::new(),
        }
    }

    /// Rewinds to an earlier message.
    fn rewind(&mut self, scope: RewindScope, message: usize) -> Vec<Effect> {
        let Some(said) = self.said.messages().get(message) else {
            return Vec::new();
        };
        // The conversation continues, so no session has to end.
        if scope == RewindScope::Files {
            return vec![Effect::RestoreFiles(said.records_before)];
        }
        let Some(task) = self.task.clone() else {
            return Vec::new();
        };
        self.destination = Some(Destination::Fork {
            task,
            records: Some(said.records_before),
            restores_files: scope == RewindScope::Both,
        });
        let text = said.text.clone();
        self.composer.replace(&text);
        self.hint = "Enter sends it instead of the earlier one; Esc cancels".to_owned();
        Vec::new()
    }

    /// Opens the list of earlier messages.
    fn open_messages(&mut self) {
        // The newest first: most often the last message was the mistake.
        let items = self.said.messages().iter().enumerate().rev();
        let items = items.map(|(number, said)| PickerItem {
            label: one_line(said.text.lines().next().unwrap_or_default()),
            note: format!("message {}", number + 1),
            preview: said.text.clone(),
            item: PickedItem::Message(number),
        });
        let key = self.bindings.describe_keys(KeyAction::SecondAction);
        let picker = Picker::new("go back to", "lists the answers", items.collect());
        self.picker = Some(picker.with_second_key(key));
    }

    /// Opens a list, or says that it is empty.
    pub fn open_picker(
        &mut self,
        title: &'static str,
        second: &'static str,
        items: Vec<PickerItem>,
    ) {
        if items.is_empty() {
            self.hint = format!("there are no {title}");
        } else {
            // A list that comes late replaces one that is open: both were asked for.
            let key = self.bindings.describe_keys(KeyAction::SecondAction);
            self.picker = Some(Picker::new(title, second, items).with_second_key(key));
        }
    }

    /// Asks which parts to rewind. The preview names the files that would change.
    pub fn open_rewind_choice(&mut self, message: usize, preview: &str) {
        let item = |label: &str, note: &str, scope, preview: &str| PickerItem {
            label: label.to_owned(),
            note: note.to_owned(),
            preview: preview.to_owned(),
            item: PickedItem::Rewind { scope, message },
        };
        // Said here, because going back sounds like losing what came after.
        let kept = "the current task is kept, and can be resumed";
        let items = vec![
            item(
                "conversation",
                "files stay as they are",
                RewindScope::Conversation,
                kept,
            ),
            item("conversation and files", "", RewindScope::Both, preview),
            item(
                "files",
                "the conversation continues",
                RewindScope::Files,
                preview,
            ),
        ];
        self.picker = Some(Picker::new("rewind", "", items));
    }

    /// Handles a key while a note waits for confirmation; `None` if there is none.
    fn press_in_note(&mut self, key: Key) -> Option<Vec<Effect>> {
        let note = self.note.take()?;
        match key.code {
            KeyCode::Enter => {
                // Kept only now: until the confirmation the draft is where it was.
                self.composer.take_message();
                Some(vec![Effect::AppendNote(note)])
            }
            KeyCode::Char('s') if !key.control && !key.alt => {
                let text = self.composer.take_message();
                Some(self.send_message(text, false))
            }
            KeyCode::Escape => Some(Vec::new()),
            _ => {
                self.note = Some(note);
                Some(Vec::new())
            }
        }
    }

    /// Sends a message to another task, to a fork or to a subtask; `None` if it is for this task.
    fn send_elsewhere(&mut self, text: &str) -> Option<Vec<Effect>> {
        if self.destination.is_none()
            && let Some(task) = self.subtasks.entered()
        {
            // A subtask has no queue that the user could see, so a message steers it at once.
            let command = Command::Send {
                message: UserMessage {
                    text: text.to_owned(),
                    images: std::mem::take(&mut self.images),
                },
                delivery: Delivery::Interrupt,
            };
            return Some(vec![Effect::SubmitTo(task.clone(), command)]);
        }
        let destination = self.destination.take()?;
        let message = UserMessage {
            text: text.to_owned(),
            images: std::mem::take(&mut self.images),
        };
        let next = match destination {
            Destination::New => NextSession::New(message),
            Destination::Task(task) => NextSession::Resumed { task, message },
            Destination::Fork {
                task,
                records,
                restores_files,
            } => NextSession::Forked {
                task,
                records,
                restores_files,
                message,
            },
        };
        Some(vec![Effect::Switch(Box::new(next))])
    }

    /// Handles the result of the user's command, or the reason why it did not run.
    pub fn handle_user_command_result(
        &mut self,
        line: &str,
        ended: Result<UserCommandOutput, String>,
    ) {
        self.user_command = None;
        let ended = match ended {
            Ok(ended) => ended,
            Err(why) => {
                self.shown_transcript()
                    .push_note(&format!("! {line}: {why}"), Role::Warning);
                return;
            }
        };
        let role = if ended.is_success {
            Role::Success
        } else {
            Role::Warning
        };
        let transcript = self.shown_transcript();
        transcript.push_note(&format!("! {line} ({})", ended.ending), role);
        transcript.push_output(&ended.output);
        // In the words of the user, because the model gets it as part of their message.
        self.command_results.push_str(&format!(
            "I ran `{line}` ({}):\n```\n{}\n```\n\n",
            ended.ending,
            ended.output.trim_end()
        ));
        self.hint = "the output is sent with your next message".to_owned();
    }

    /// Returns a message, preceded by the outputs of the commands that the user ran before it.
    fn with_results(&mut self, text: String) -> String {
        // Taken, so that the same output does not go along twice.
        let results = std::mem::take(&mut self.command_results);
        if results.is_empty() {
            return text;
        }
        results + &text
    }

    /// Sets the git branch of the folder.
    pub fn set_branch(&mut self, branch: Option<String>) {
        self.status.branch = branch;
    }

    /// Pastes text that turned out not to be an image's path into the draft.
    pub fn paste_text(&mut self, text: &str) {
        self.is_draft_focused = true;
        self.composer.paste(text);
    }

    /// Handles a key while an approval is open; `None` if the key is for the draft.
    fn press_in_decision(&mut self, key: Key, now: Duration) -> Option<Vec<Effect>> {
        let last_key = self.last_key;
        let open = self.decisions.front_mut()?;
        let is_plain_enter = key.code == KeyCode::Enter && !key.alt && !key.shift && !key.control;
        if !open.is_approval() {
            return None;
        }
        if self.is_draft_focused || key.code == KeyCode::Tab || key.control {
            return None;
        }
        let is_chosen = self.has_chosen_decision && open.was_seen(now);
        if !is_chosen && !open.accepts_keys(last_key, now) {
            // Meant for something else: it becomes part of the draft, which then has the focus.
            if key.code == KeyCode::Escape {
                return None;
            }
            if is_plain_enter {
                return Some(Vec::new());
            }
            self.is_draft_focused = key.written_char().is_some();
            return None;
        }
        let is_draft = !self.composer.is_empty();
        match open.press(key) {
            QuestionKeyEffect::Answer(decision) => {
                let request = open.request.clone();
                Some(self.answer(request, decision))
            }
            QuestionKeyEffect::AskReason => {
                let reason = Composer::default().with_bindings(Arc::clone(&self.bindings));
                self.reason = Some((open.request.clone(), reason));
                Some(Vec::new())
            }
            QuestionKeyEffect::Handled => Some(Vec::new()),
            QuestionKeyEffect::Unseen => {
                self.hint = "some of it was not shown yet: v shows more".to_owned();
                Some(Vec::new())
            }
            QuestionKeyEffect::Ignored if key.code == KeyCode::Escape => None,
            QuestionKeyEffect::Ignored => {
                let rest = if is_draft { "" } else { " a message" };
                self.hint = format!("answer with a key shown above; Tab goes to your draft{rest}");
                Some(Vec::new())
            }
        }
    }

    fn answer(&mut self, request: RequestId, decision: Decision) -> Vec<Effect> {
        // Removed at once, so that a second key cannot answer again.
        self.decisions.retain(|open| open.request != request);
        self.is_draft_focused = !self.composer.is_empty();
        self.has_chosen_decision = false;
        vec![Effect::Submit(Command::Answer { request, decision })]
    }

    fn press_enter(&mut self, now: Duration) -> Vec<Effect> {
        if self.composer.is_empty() && self.images.is_empty() {
            return self.press_enter_without_draft(now);
        }
        let is_unread = self
            .decisions
            .front()
            .is_some_and(|open| !open.was_seen(now));
        let is_approval = self
            .decisions
            .front()
            .is_some_and(OpenQuestion::is_approval);
        if is_unread && (is_approval && !self.is_draft_focused) {
            return Vec::new();
        }
        let text = self.composer.message();
        let is_one_line = !text.trim().contains('\n');
        // Before Sabir's own, whose parser would call it unknown.
        if is_one_line
            && !is_builtin_command(&text)
            && self.custom_commands.is_command_line(text.trim())
        {
            let text = self.composer.take_message();
            return vec![
                Effect::AddToHistory(text.clone()),
                Effect::ExpandCommand(text.trim().to_owned()),
            ];
        }
        if is_one_line && let Some(command) = parse_command(&text) {
            return match command {
                Ok(SlashCommand::Note(_)) if self.activity == Activity::Composing => {
                    self.hint = "this works once the task has started".to_owned();
                    Vec::new()
                }
                Ok(SlashCommand::Note(note)) => {
                    self.note = Some(note);
                    Vec::new()
                }
                Ok(command) => {
                    let message = self.composer.take_message();
                    let mut effects = self.run_command(command);
                    effects.push(Effect::AddToHistory(message));
                    effects
                }
                Err(error) => {
                    self.hint = error.to_string();
                    Vec::new()
                }
            };
        }
        let text = self.composer.take_message();
        let mut effects = vec![Effect::AddToHistory(text.clone())];
        let sent = match self.send_elsewhere(&text) {
            Some(sent) => sent,
            None => self.send_message(text, is_unread),
        };
        effects.extend(sent);
        effects
    }

    /// Sends the text of a command that the folder or the user defines. It never answers a question, but it may be the message that the
    /// idle session waits for.
    pub fn expand_command(&mut self, line: &str) -> Vec<Effect> {
        if self.activity == Activity::Composing {
            // Expanded where the task begins.
            return self.send_message(line.to_owned(), false);
        }
        match self.custom_commands.expand_line(line) {
            Some(Ok(text)) => {
                let is_question = self
                    .decisions
                    .front()
                    .is_some_and(|open| !matches!(open.question, UserQuestion::Next { .. }));
                self.send_message(text, is_question)
            }
            Some(Err(error)) => {
                self.hint = error.to_string();
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn press_enter_without_draft(&mut self, now: Duration) -> Vec<Effect> {
        if self.destination.is_some() {
            self.hint = "write the message first; Esc stays in this task".to_owned();
            return Vec::new();
        }
        let last_key = self.last_key;
        let Some(open) = self.decisions.front() else {
            return Vec::new();
        };
        if !open.accepts_keys(last_key, now) {
            return Vec::new();
        }
        let decision = match &open.question {
            UserQuestion::Completion { .. } => Decision::Allow,
            UserQuestion::Followup { .. } => match open.chosen_option() {
                Some(option) => Decision::Text {
                    text: option.to_owned(),
                    images: Vec::new(),
                },
                None => return Vec::new(),
            },
            _ => return Vec::new(),
        };
        let request = open.request.clone();
        self.answer(request, decision)
    }

    /// Sends a message where it belongs: as an answer, to the idle session, or into the queue.
    fn send_message(&mut self, text: String, is_unread: bool) -> Vec<Effect> {
        let images = std::mem::take(&mut self.images);
        let is_answer = self
            .decisions
            .front()
            .is_some_and(|open| matches!(open.question, UserQuestion::Followup { .. }));
        // The number of an option must stay a number, without the output of commands attached.
        let text = if is_answer {
            text
        } else {
            self.with_results(text)
        };
        if self.activity == Activity::Composing {
            return vec![Effect::Begin(UserMessage { text, images })];
        }
        if let Some(open) = self.decisions.front()
            && !open.is_approval()
            && !is_unread
        {
            let request = open.request.clone();
            let text = chosen_by_number(&open.question, &text).unwrap_or(text);
            // A message is recorded and comes back as an event, an answer does not.
            if !matches!(open.question, UserQuestion::Next { .. }) {
                self.transcript.push_user_message(&text);
            }
            return self.answer(request, Decision::Text { text, images });
        }
        let message = UserMessage { text, images };
        if self.activity == Activity::Idle {
            self.activity = Activity::Working;
            return vec![send(message, Delivery::Queue)];
        }
        self.queue.push_back(message);
        Vec::new()
    }

    /// Interrupts the model with the draft, or with what is queued.
    fn send_now(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.composer.is_empty() {
            let text = self.composer.take_message();
            effects.push(Effect::AddToHistory(text.clone()));
            if self.activity != Activity::Working || self.is_waiting_for_text() {
                effects.extend(self.send_message(text, false));
                return effects;
            }
            let images = std::mem::take(&mut self.images);
            let text = self.with_results(text);
            self.queue.push_back(UserMessage { text, images });
        }
        effects.extend(self.flush_queue(Delivery::Interrupt));
        effects
    }

    fn is_waiting_for_text(&self) -> bool {
        self.decisions
            .front()
            .is_some_and(|open| !open.is_approval())
    }

    /// Passes the queue on to the session.
    fn flush_queue(&mut self, delivery: Delivery) -> Vec<Effect> {
        if self.activity == Activity::Composing {
            return Vec::new();
        }
        let queue = std::mem::take(&mut self.queue);
        queue
            .into_iter()
            .map(|message| send(message, delivery))
            .collect()
    }

    /// Takes the last queued message back into the draft. Returns false if there is none.
    fn edit_queue(&mut self) -> bool {
        let Some(message) = self.queue.pop_back() else {
            return false;
        };
        self.composer.prepend_text(&message.text);
        self.composer.press(Key {
            control: true,
            ..Key::plain(KeyCode::End)
        });
        self.images.extend(message.images);
        true
    }

    fn run_command(&mut self, command: SlashCommand) -> Vec<Effect> {
        let needs_session = !matches!(
            command,
            SlashCommand::Help
                | SlashCommand::Themes
                | SlashCommand::Theme(_)
                | SlashCommand::Tasks
                | SlashCommand::New
                | SlashCommand::Quit
                | SlashCommand::Say(_)
                | SlashCommand::Image { .. }
        );
        if needs_session && self.activity == Activity::Composing {
            self.hint = "this works once the task has started: send a message first".to_owned();
            return Vec::new();
        }
        match command {
            SlashCommand::Help => {
                self.push_help();
                Vec::new()
            }
            SlashCommand::Now(text) => {
                self.composer.replace(&text);
                self.send_now()
            }
            SlashCommand::Say(text) => self.send_message(text, false),
            SlashCommand::Image { path, message } => vec![Effect::LoadImage { path, message }],
            SlashCommand::Mode(name) => match modes::resolve_mode_name(&name, &self.modes) {
                Ok(mode) => vec![Effect::Submit(Command::SetMode { mode })],
                Err(error) => {
                    self.hint = error.to_string();
                    Vec::new()
                }
            },
            SlashCommand::Model(model) => vec![Effect::Submit(Command::SetModel { model })],
            SlashCommand::LogIn { server, address } => {
                vec![Effect::Submit(Command::LogIn { server, address })]
            }
            SlashCommand::Context => vec![Effect::Submit(Command::ContextUsage)],
            SlashCommand::Compact => vec![Effect::Submit(Command::Compact)],
            SlashCommand::Undo { calls, checkpoint } => {
                vec![Effect::Submit(Command::Undo { calls, checkpoint })]
            }
            SlashCommand::Diff(count) => vec![Effect::CompareFolder(count)],
            SlashCommand::Checkpoints => vec![Effect::ListCheckpoints],
            SlashCommand::Todos => {
                self.push_todos();
                Vec::new()
            }
            SlashCommand::Wire(number) => {
                match number {
                    Some(number) => self.show_answer(number),
                    None => {
                        let items = self.shown_transcript().answers().list_items();
                        self.open_picker("answers", "", items);
                    }
                }
                Vec::new()
            }
            SlashCommand::Quit => self.leave(),
            SlashCommand::Tasks | SlashCommand::New if !self.can_switch => {
                self.hint = "this message belongs to its task: send it first".to_owned();
                Vec::new()
            }
            SlashCommand::Tasks => vec![Effect::ListTasks],
            SlashCommand::New => {
                self.hint = "your message begins a new task; Esc stays in this one".to_owned();
                if self.activity == Activity::Composing {
                    self.hint = "your message begins a new task".to_owned();
                    self.destination = None;
                } else {
                    self.destination = Some(Destination::New);
                }
                Vec::new()
            }
            SlashCommand::Models => vec![Effect::ListModels],
            SlashCommand::Modes => {
                let item = |mode: &String| PickerItem {
                    label: mode.clone(),
                    note: if *mode == self.status.mode { "now" } else { "" }.to_owned(),
                    preview: String::new(),
                    item: PickedItem::Mode(mode.clone()),
                };
                let items = self.modes.iter().map(item).collect();
                self.open_picker("modes", "", items);
                Vec::new()
            }
            SlashCommand::Servers => vec![Effect::ListServers],
            SlashCommand::Themes => {
                self.open_themes();
                Vec::new()
            }
            SlashCommand::Theme(name) => {
                if !self.themes.names().any(|known| known == name) {
                    let known: Vec<_> = self.themes.names().collect();
                    self.hint = format!("there is no theme `{name}`: {}", known.join(", "));
                    return Vec::new();
                }
                self.use_theme(&name);
                vec![Effect::SaveTheme(name)]
            }
            SlashCommand::Rewind => {
                self.open_messages();
                Vec::new()
            }
            SlashCommand::Subtasks => {
                self.open_picker("subtasks", "stops it", self.subtasks.list_items());
                Vec::new()
            }
            SlashCommand::Copy => match self.shown_transcript().last_answer() {
                "" => {
                    self.hint = "there is no answer to copy".to_owned();
                    Vec::new()
                }
                answer => vec![Effect::Copy(answer.to_owned())],
            },
            SlashCommand::Run(line) => {
                if self.user_command.is_some() {
                    self.composer.replace(&format!("!{line}"));
                    self.hint = "another command is running; Esc stops it".to_owned();
                    return Vec::new();
                }
                self.user_command = Some(line.clone());
                vec![Effect::RunUserCommand(line)]
            }
            // Confirmed first.
            SlashCommand::Note(_) => Vec::new(),
        }
    }

    fn switch_mode(&mut self) -> Vec<Effect> {
        if self.modes.is_empty() || self.activity == Activity::Composing {
            return Vec::new();
        }
        let at = self.modes.iter().position(|mode| *mode == self.status.mode);
        let next = at.map_or(0, |at| (at + 1) % self.modes.len());
        match self.modes.get(next) {
            Some(mode) => vec![Effect::Submit(Command::SetMode { mode: mode.clone() })],
            None => Vec::new(),
        }
    }

    fn push_help(&mut self) {
        let mut rows = vec![HelpRow::heading("Commands")];
        rows.extend(COMMANDS.iter().map(|command| {
            let name = format!("{} {}", command.name, command.argument);
            HelpRow::new(name.trim_end(), command.effect)
        }));
        let custom = self.custom_commands.commands();
        let custom: String = custom.iter().map(custom_command_line).collect();
        rows.extend(custom.lines().map(HelpRow::heading));
        rows.push(HelpRow::heading("Keys"));
        rows.extend(
            FIXED_KEYS
                .iter()
                .map(|(key, effect)| HelpRow::new(key, effect)),
        );
        rows.extend(ACTIONS.iter().filter_map(|known| {
            let keys = self.bindings.describe_keys(known.action);
            (!keys.is_empty()).then(|| HelpRow::new(&keys, known.effect))
        }));
        rows.push(HelpRow::heading(
            "[tui.bindings] in config.toml binds other keys: docs/tui.md",
        ));
        self.shown_transcript().push_help(&rows);
    }

    fn push_todos(&mut self) {
        let todos: String = self
            .shown_transcript()
            .todos()
            .iter()
            .map(|todo| {
                let mark = match todo.state {
                    sabir_session::agent::control::TodoState::Open => "[ ]",
                    sabir_session::agent::control::TodoState::Active => "[-]",
                    sabir_session::agent::control::TodoState::Done => "[x]",
                };
                format!(
                    "{}{mark} {}\n",
                    "  ".repeat(todo.depth.min(8) + 1),
                    one_line(&todo.text)
                )
            })
            .collect();
        let text = if todos.is_empty() {
            "there are no todos"
        } else {
            &todos
        };
        self.shown_transcript().push_note(text, Role::Plain);
    }

    /// Records that the session rejected a command.
    pub fn handle_rejection(&mut self, command: &Command, reason: &str) {
        self.shown_transcript()
            .push_note(&format!("sabir: {reason}"), Role::Warning);
        // A message that was not taken comes back.
        if let Command::Send { message, .. } = command {
            self.composer.prepend_text(&message.text);
            self.images.extend(message.images.iter().cloned());
        }
    }

    /// Adds lines that something else printed.
    pub fn show_notice(&mut self, text: &str) {
        self.shown_transcript().push_note(text, Role::Dim);
    }

    /// Shows the changes of files under a heading.
    pub fn show_diff(&mut self, heading: &str, changes: &[ChangedFile]) {
        let transcript = self.shown_transcript();
        transcript.push_note(heading, Role::Strong);
        for change in changes {
            transcript.push_diff(&change.path, &change.diff);
        }
    }

    /// Handles a loaded image, or the reason why it could not be loaded.
    pub fn handle_loaded_image(
        &mut self,
        path: &str,
        message: String,
        image: Result<Image, String>,
    ) -> Vec<Effect> {
        match image {
            Ok(image) => self.images.push(image),
            Err(why) => {
                self.shown_transcript()
                    .push_note(&format!("{why}; no message was sent"), Role::Warning);
                return Vec::new();
            }
        }
        if message.is_empty() {
            self.hint = format!("{path} goes with your next message");
            return Vec::new();
        }
        self.send_message(message, false)
    }

    /// Sets the files of the workspace.
    pub fn set_files(&mut self, files: Vec<String>) {
        self.files = Some(files);
        let mut effects = Vec::new();
        self.update_completion(&mut effects);
    }

    /// Sets the functions and types of the workspace.
    pub fn set_symbols(&mut self, symbols: Vec<SymbolName>) {
        self.symbols = symbols;
        let mut effects = Vec::new();
        self.update_completion(&mut effects);
    }

    /// Takes the draft back from the editor.
    pub fn set_edited_draft(&mut self, text: std::io::Result<String>) {
        match text {
            Ok(text) => self.composer.replace(text.trim_end_matches('\n')),
            Err(error) => self.hint = error.to_string(),
        }
    }

    /// Applies the initial state of a session.
    pub fn handle_snapshot(&mut self, snapshot: &SessionSnapshot, now: Duration) {
        self.status.run_since = Some(now);
        self.activity = match &snapshot.state {
            SessionState::Idle(_) => Activity::Idle,
            SessionState::Ended(_) => Activity::Ended,
            _ => Activity::Working,
        };
        let start = &snapshot.start;
        self.task = Some(start.task.clone());
        self.transcript.set_folder(&start.workspace);
        let text = format!(
            "task {} ({}, {})",
            start.task,
            start.model,
            start.protocol.name()
        );
        self.transcript.push_note(&text, Role::Dim);
        for notice in &snapshot.notices {
            self.note_sandbox(notice.about, &notice.text);
            self.transcript
                .push_note(&format!("sabir: {}", notice.text), Role::Dim);
        }
        let is_exchange = |record: &std::sync::Arc<Record>| {
            matches!(**record, Record::Answered(_) | Record::Said { .. })
        };
        // The end of a resumed task was printed before the interface began.
        if !snapshot.records.iter().any(is_exchange) {
            self.transcript.push_user_message(&start.prompt);
        }
        for record in &snapshot.records {
            let answers = self.transcript.answers().count();
            self.said.note_record(record, answers);
            self.note_status(record);
            if let Record::Answered(turn) = &**record {
                self.transcript.note_earlier_answer(turn);
            }
        }
        for (request, question) in &snapshot.requests {
            self.open_decision(request.clone(), question.clone(), None);
        }
    }

    /// Takes an event of the session.
    pub fn handle_event(&mut self, event: &SessionEvent, now: Duration) -> Vec<Effect> {
        self.transcript.note_event(event, now);
        let is_nested = event.subtask.is_some();
        if let Some(label) = &event.subtask {
            self.subtasks.note_event(label, &event.kind, now);
        }
        match &event.kind {
            SessionEventKind::Request { request, question } => {
                let subtask = event.subtask.as_ref().map(|label| label.mode.clone());
                self.open_decision(request.clone(), question.clone(), subtask);
                if matches!(question, UserQuestion::Next { .. }) && !is_nested {
                    return self.answer_with_queue();
                }
                return self.notify_user("Sabir asks you something");
            }
            SessionEventKind::RequestClosed { request, reason } => {
                let closed = self.decisions.iter().find(|open| open.request == *request);
                if closed.is_some_and(|open| matches!(open.question, UserQuestion::Next { .. })) {
                    self.status.run_since = Some(now);
                }
                self.decisions.retain(|open| open.request != *request);
                self.has_chosen_decision = false;
                if self
                    .reason
                    .as_ref()
                    .is_some_and(|(open, _)| open == request)
                {
                    self.reason = None;
                    if *reason != CloseReason::Answered {
                        self.hint = "the question was withdrawn".to_owned();
                    }
                }
            }
            SessionEventKind::Asking { full, .. } if !is_nested => {
                self.pause = None;
                self.status.context_percent = full.or(self.status.context_percent);
            }
            SessionEventKind::Waiting(waiting) => {
                if let Some(attempt) = waiting.attempt {
                    self.pause = Some(RetryPause {
                        until: now + Duration::from_millis(waiting.milliseconds),
                        failed: attempt.number,
                        reason: one_line(&waiting.reason),
                    });
                }
            }
            SessionEventKind::Delta(_) => self.pause = None,
            SessionEventKind::Notice(notice) => {
                self.note_sandbox(notice.about, &notice.text);
                if notice.about == NoticeTopic::Mode && !is_nested {
                    self.note_switch(&notice.text);
                }
            }
            SessionEventKind::Record(record) if !is_nested => {
                let answers = self.transcript.answers().count();
                self.said.note_record(record, answers);
                self.note_status(record);
                // The next request takes them up.
                if matches!(**record, Record::Answered(_)) {
                    return self.flush_queue(Delivery::Queue);
                }
            }
            SessionEventKind::State(state) => return self.note_state(state, now),
            _ => {}
        }
        Vec::new()
    }

    /// Shows the model or the mode that the session names after a switch without a record.
    fn note_switch(&mut self, text: &str) {
        if let Some((_, model)) = text.split_once("the model is now ") {
            self.status.model = one_line(model);
        }
        if let Some((_, mode)) = text.split_once("the mode is now ") {
            self.status.mode = one_line(mode);
        }
    }

    fn note_state(&mut self, state: &SessionState, now: Duration) -> Vec<Effect> {
        self.pause = None;
        match state {
            SessionState::Working => {
                self.status.run_since.get_or_insert(now);
                self.activity = Activity::Working;
            }
            SessionState::Idle(_) => {
                self.activity = Activity::Idle;
                self.status.run_since = None;
                self.hint.clear();
                self.decisions.clear();
                self.reason = None;
                self.subtasks.clear();
                if !self.queue.is_empty() {
                    self.activity = Activity::Working;
                    self.status.run_since = Some(now);
                    return self.flush_queue(Delivery::Queue);
                }
                return self.notify_user("Sabir is ready");
            }
            SessionState::Ended(_) => {
                self.activity = Activity::Ended;
                self.decisions.clear();
                self.reason = None;
                return vec![Effect::Leave];
            }
            _ => {}
        }
        Vec::new()
    }

    fn note_sandbox(&mut self, topic: NoticeTopic, text: &str) {
        if topic == NoticeTopic::Sandbox {
            self.status.sandbox = if text.starts_with("commands run in a sandbox") {
                match text.contains("without network") {
                    true => "sandbox",
                    false => "sandbox with network",
                }
            } else if text.starts_with("commands run without") {
                "no sandbox"
            } else {
                self.status.sandbox
            };
        }
    }

    fn note_status(&mut self, record: &Record) {
        match record {
            Record::Started(start) => {
                self.status.model.clone_from(&start.model);
                self.status.protocol = start.protocol.name().to_owned();
                self.status.mode = start.mode.clone().unwrap_or_else(|| "code".to_owned());
            }
            Record::Context(ContextChange::Moded { mode, .. }) => self.status.mode.clone_from(mode),
            Record::Answered(answered) => match &mut self.status.cost {
                Some(cost) => *cost += answered.cost,
                None => self.status.cost = Some(answered.cost),
            },
            _ => {}
        }
    }

    fn open_decision(
        &mut self,
        request: RequestId,
        question: UserQuestion,
        subtask: Option<String>,
    ) {
        match &question {
            UserQuestion::Completion { result, .. } => self.transcript.push_completion(result),
            UserQuestion::Next { reason } if !reason.is_empty() => {
                self.transcript
                    .push_note(&format!("{}. What now?", one_line(reason)), Role::Warning);
            }
            _ => {}
        }
        if self.decisions.is_empty() {
            self.is_draft_focused = !self.composer.is_empty();
        }
        self.decisions
            .push_back(OpenQuestion::new(request, question, subtask, self.theme));
    }

    /// Answers the question for a next message with the first queued one.
    fn answer_with_queue(&mut self) -> Vec<Effect> {
        let Some(message) = self.queue.pop_front() else {
            return self.notify_user("Sabir is ready");
        };
        let Some(open) = self.decisions.back() else {
            return Vec::new();
        };
        let request = open.request.clone();
        let decision = Decision::Text {
            text: message.text,
            images: message.images,
        };
        self.answer(request, decision)
    }

    /// Takes the lines that were decided since the last time.
    pub fn take_final_lines(&mut self) -> Vec<HistoryLine> {
        let own = self.transcript.take_final_lines();
        self.subtasks.select_lines(own)
    }

    /// Draws the viewport. From then on, the open question counts as shown.
    pub fn draw(&mut self, now: Duration) -> View {
        if now.saturating_sub(self.hint_since) > HINT_TIME {
            self.hint.clear();
        }
        let width = self.size.columns.max(MIN_WIDTH);
        let height = self.size.rows.saturating_sub(1).max(2);
        let draft_rows = (height / 2).clamp(1, 12);
        let draft = match &self.reason {
            Some((_, reason)) => {
                let prompt = span("no, because: ", self.theme.style(Role::Warning));
                lay_out_draft(reason, prompt, self.theme, width, draft_rows)
            }
            None => {
                let is_focused = self.is_draft_used();
                let role = if is_focused { Role::User } else { Role::Dim };
                let prompt = span("› ", self.theme.style(role));
                lay_out_draft(&self.composer, prompt, self.theme, width, draft_rows)
            }
        };
        let mut left = height.saturating_sub(draft.rows.len() + 1);
        let below = self.completion_rows(width, left.min(MAX_COMPLETIONS));
        left = left.saturating_sub(below.len());
        if let Some(picker) = &self.picker {
            // The list hides the question, so no key can answer it meanwhile. It also hides
            // streaming text, which is completed and printed nevertheless.
            let rows = picker.rows(self.theme, width, left.max(1));
            return self.finish_view(rows, draft, below, width, now);
        }
        let decision = self.decision_rows(width, left, now);
        left = left.saturating_sub(decision.len());
        let queue = self.queue_rows(width, left.min(4));
        left = left.saturating_sub(queue.len());
        // The tree may not push the question or the draft off the screen.
        let subtasks = self.subtasks.tree_rows(width, left.min(4));
        left = left.saturating_sub(subtasks.len());
        let shown = self.subtasks.entered_transcript();
        let shown = shown.unwrap_or(&self.transcript);
        let mut rows = match self.motion {
            AnimationLevel::Full => shown.live_lines(now, left.min(height * 2 / 3)),
            AnimationLevel::Reduced => Vec::new(),
        };
        if !rows.is_empty() && rows.len() < left {
            rows.push(Line::default());
        }
        rows.extend(subtasks);
        rows.extend(queue);
        rows.extend(decision);
        self.finish_view(rows, draft, below, width, now)
    }

    /// Adds draft, completions and status line to the rows above them.
    fn finish_view(
        &self,
        mut rows: Vec<Line<'static>>,
        draft: DraftRows,
        below: Vec<Line<'static>>,
        width: usize,
        now: Duration,
    ) -> View {
        let cursor_row = rows.len() + draft.cursor_row;
        rows.extend(draft.rows);
        rows.extend(below);
        rows.push(self.status_row(width, now));
        let rows = rows
            .into_iter()
            .map(|row| fit_line(row, self.size.columns.max(1)));
        View {
            rows: rows.collect(),
            cursor_row,
            cursor_column: draft.cursor_column.min(self.size.columns.saturating_sub(1)),
        }
    }

    /// Returns true if typed keys go to the draft.
    fn is_draft_used(&self) -> bool {
        self.is_draft_focused
            || !self
                .decisions
                .front()
                .is_some_and(OpenQuestion::is_approval)
    }

    fn decision_rows(
        &mut self,
        width: usize,
        max_rows: usize,
        now: Duration,
    ) -> Vec<Line<'static>> {
        let count = self.decisions.len();
        let is_used = self.is_draft_used();
        let Some(open) = self.decisions.front_mut() else {
            return Vec::new();
        };
        let position = if count > 1 {
            format!(" (1 of {count})")
        } else {
            String::new()
        };
        let hint = if open.is_approval() && is_used {
            " Tab answers the question"
        } else {
            ""
        };
        let fixed = open.fixed_rows(self.theme, width, &position, hint);
        let title = open.title_rows(self.theme, width, &position).len();
        let alone = max_rows.saturating_sub(title + 1);
        open.lay_out(width, max_rows.saturating_sub(fixed), alone);
        let mut rows = open.rows(self.theme, width, &position, hint);
        open.note_drawn(now);
        // On a tiny screen, where nothing can be allowed, the question matters most.
        rows.truncate(max_rows);
        rows
    }

    fn queue_rows(&self, width: usize, max_rows: usize) -> Vec<Line<'static>> {
        let skipped = self.queue.len().saturating_sub(max_rows);
        let rows = self.queue.iter().skip(skipped).map(|message| {
            let text = format!("queued: {}", one_line(&message.text));
            Line::from(span(&fit_text(&text, width), self.theme.style(Role::Dim)))
        });
        rows.collect()
    }

    fn status_row(&self, width: usize, now: Duration) -> Line<'static> {
        let dim = self.theme.style(Role::Dim);
        if let Some(search) = self.composer.search() {
            let found = if search.is_found { "" } else { " (not found)" };
            let text = format!("search: {}{found}", one_line(search.query));
            return Line::from(span(
                &fit_text(&text, width),
                self.theme.style(Role::Accent),
            ));
        }
        // The exact line is shown, since models will read it in every later task.
        if let Some(note) = &self.note {
            let line = sabir_session::memory::note_line(note);
            let text = format!(
                "AGENTS.md gets `{}`: Enter adds it, s sends it as a message, Esc",
                one_line(&line)
            );
            return Line::from(span(
                &fit_text(&text, width),
                self.theme.style(Role::Warning),
            ));
        }
        if !self.hint.is_empty() {
            let text = fit_text(&one_line(&self.hint), width);
            return Line::from(span(&text, self.theme.style(Role::Warning)));
        }
        let mut parts = vec![self.activity_text(now)];
        if self.subtasks.entered().is_some() {
            let key = self.bindings.describe_keys(KeyAction::SecondAction);
            let stops = match key.as_str() {
                "" => String::new(),
                key => format!(", {key} stops it"),
            };
            parts.insert(0, format!("in a subtask, Esc leaves{stops}"));
        }
        if let Some(destination) = &self.destination {
            parts.push(destination.describe().to_owned());
        }
        if self.composer.is_in_command_mode() {
            parts.push("COMMAND".to_owned());
        }
        if !self.status.model.is_empty() {
            let shown = self.shown_status.iter();
            parts.extend(shown.filter_map(|item| self.status.item_text(*item)));
        }
        if !self.images.is_empty() {
            parts.push(format!("{} image(s) attached", self.images.len()));
        }
        // The least important part comes last, and is dropped first.
        while parts.len() > 1 && crate::lines::text_width(&parts.join(" · ")) > width {
            parts.pop();
        }
        Line::from(span(&fit_text(&parts.join(" · "), width), dim))
    }

    fn activity_text(&self, now: Duration) -> String {
        if let Some(pause) = &self.pause {
            return pause.describe(now);
        }
        if let Some(line) = &self.user_command {
            return format!("! {} runs, Esc stops", one_line(line));
        }
        match self.activity {
            Activity::Composing => "What should Sabir do? /help lists keys".to_owned(),
            Activity::Ended => "the session is over".to_owned(),
            Activity::Idle => "ready".to_owned(),
            Activity::Working if self.decisions.is_empty() => {
                let began = self.status.run_since.unwrap_or(now);
                let seconds = now.saturating_sub(began).as_secs();
                match self.motion {
                    AnimationLevel::Full => format!("working {seconds} s, Esc stops"),
                    AnimationLevel::Reduced => "working, Esc stops".to_owned(),
                }
            }
            Activity::Working => match self.decisions.front().map(|open| &open.question) {
                Some(UserQuestion::Next { .. }) => "ready".to_owned(),
                _ => "waits for your answer".to_owned(),
            },
        }
    }
}

impl Destination {
    /// Describes it for the status line.
    fn describe(&self) -> &'static str {
        match self {
            Self::New => "begins a new task",
            Self::Task(_) => "continues another task",
            Self::Fork { records: None, .. } => "begins a fork",
            Self::Fork { .. } => "goes back",
        }
    }
}

impl Status {
    /// Returns a part of the status line; `None` if there is nothing to say.
    fn item_text(&self, item: StatusItem) -> Option<String> {
        match item {
            StatusItem::Model => Some(one_line(&self.model)),
            StatusItem::Protocol => Some(one_line(&self.protocol)),
            StatusItem::Mode => Some(one_line(&self.mode)),
            StatusItem::Context => self
                .context_percent
                .map(|percent| format!("{percent} % of context")),
            StatusItem::Cost => self
                .cost
                .filter(|cost| !cost.is_unknown())
                .map(|cost| cost.to_string()),
            StatusItem::Sandbox => Some(self.sandbox.to_owned()).filter(|text| !text.is_empty()),
            StatusItem::Branch => self.branch.as_deref().map(one_line),
        }
    }
}

/// Returns true for a pasted text that is the path of an image, as terminals paste a dropped file.
fn names_image(text: &str) -> bool {
    let text = text.trim().trim_matches(['\'', '"']).to_lowercase();
    // A relative name could be a word of a message.
    let is_path = text.starts_with('/') || text.starts_with("~/") || text.starts_with("file://");
    let endings = [".png", ".jpg", ".jpeg", ".gif", ".webp"];
    is_path && !text.contains('\n') && endings.iter().any(|ending| text.ends_with(ending))
}

fn send(message: UserMessage, delivery: Delivery) -> Effect {
    Effect::Submit(Command::Send { message, delivery })
}

/// Returns the option that a number names.
fn chosen_by_number(question: &UserQuestion, text: &str) -> Option<String> {
    let UserQuestion::Followup { options, .. } = question else {
        return None;
    };
    let number: usize = text.trim().parse().ok()?;
    options.get(number.checked_sub(1)?).cloned()
}
