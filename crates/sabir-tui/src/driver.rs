//! Connects the interface with the terminal and the session.
//!
//! One task waits for keys, changes of the terminal, events of the session and the clock, and
//! draws. Keys are drawn at once; events of the session at most once in 16 ms, so that many events
//! cost no more than a few. Without events nothing runs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::isatty;
use sabir_session::agent::TaskId;
use sabir_session::call::Image;
use sabir_session::checkpoint_history::{CheckpointFolder, CheckpointKind, HistoryError};
use sabir_session::config::change::set_value;
use sabir_session::config::tui::{NotificationKind, TuiConfig};
use sabir_session::custom_commands::CustomCommands;
use sabir_session::draft_store::DraftStore;
use sabir_session::file_names::list_file_names;
use sabir_session::images::{self, CurrentImageSupport};
use sabir_session::input_history::InputHistory;
use sabir_session::memory::{append_note, note_line};
use sabir_session::symbol_names::{SymbolName, list_symbols};
use sabir_session::{
    Command, Environment, Host, InterfaceChoice, Session, SessionEventKind, SessionHandle,
    SessionState, SessionUpdate, StopFlag, Subscription, TaskList, UserCommandOutput,
    UserCommandRunner, edit_text, find_branch,
};
use sabir_terminal::history_text::last_exchange_text;
use sabir_terminal::print::count_noun;
use sabir_terminal::screen::{self, ExitBySignal, TerminalChange};
use sabir_terminal::task_tree::age_text;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::app::{App, AppSettings, ChangedFile, Effect};
use crate::comparisons::ComparisonQueue;
use crate::inline_screen::{InlineScreen, RowReflow};
use crate::keys::{KeyDecoder, TerminalInput};
use crate::picker::{CheckpointedCall, PickedItem, PickerItem};
use crate::pickers::{list_models, list_servers, list_tasks};
use crate::rewind::{self, NextSession};
use crate::terminal_capabilities::{MODERN_VARIABLES, TerminalCapabilities};
use crate::theme::{Background, ColorDepth, ThemeSet};
use crate::view::TerminalSize;

/// The least time between two frames for events of the session.
const FRAME_TIME: Duration = Duration::from_millis(16);
/// The time after which a lone escape byte is the Escape key.
const ESCAPE_TIME: Duration = Duration::from_millis(30);
/// The time after which it is, while an answer of the terminal is under way.
const SLOW_ESCAPE_TIME: Duration = Duration::from_millis(200);
/// The time without input after which a paste has ended, although its end was lost.
const PASTE_TIME: Duration = Duration::from_secs(1);
/// The time for which the answer about the background is waited for. Nothing else waits with it.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// Lets the terminal tell when it gets or loses the focus.
const REPORT_FOCUS: &str = "\x1b[?1004h";
/// Ends such reports.
const IGNORE_FOCUS: &str = "\x1b[?1004l";
/// The time after which a changed draft is kept.
const DRAFT_TIME: Duration = Duration::from_secs(1);
/// The maximum number of events that are taken before the next frame.
const MAX_EVENTS: usize = 4000;

/// The terminals of which a viewport asks too much: typewriters, and what a serial console usually claims to be.
const LINE_TERMINALS: [&str; 11] = [
    "", "dumb", "unknown", "emacs", "vt52", "vt100", "vt102", "vt220", "ansi", "cons25", "network",
];

/// Terminals that rewrap their rows, by the value of `TERM_PROGRAM`.
const REWRAPPING_PROGRAMS: [&str; 5] = ["ghostty", "vscode", "Apple_Terminal", "WezTerm", "iTerm"];
/// The same in `TERM`.
const REWRAPPING_TERMINALS: [&str; 4] = ["foot", "alacritty", "xterm-kitty", "xterm-ghostty"];

/// The parts that an interface needs from its program.
#[derive(Debug, Clone)]
pub struct InterfaceSettings {
    color_depth: ColorDepth,
    /// The brightness of the terminal's background, as soon as it is known.
    background: Arc<OnceLock<Background>>,
    abilities: TerminalCapabilities,
    reflow: RowReflow,
    history: InputHistory,
    drafts: DraftStore,
    /// The user's editor, with its options.
    editor: String,
    host: Host,
    exit: ExitBySignal,
    /// The configuration file, if it is not the usual one.
    config: Option<PathBuf>,
    /// The settings of the interface.
    tui: TuiConfig,
    /// The name of the theme, which the user may change.
    theme_name: Arc<Mutex<String>>,
    /// True if another task can be chosen in place of the first message.
    can_switch: bool,
    /// The folder of a task that has not begun.
    folder: PathBuf,
}

impl InterfaceSettings {
    /// Returns the settings of an interface in the environment of this host; `None` where the line mode is chosen, or the terminal can show
    /// nothing else. `named_config` is the configuration file, if it is not the usual one. `exit` ends the process because of a signal.
    pub fn for_terminal(
        host: &Host,
        named_config: Option<&Path>,
        choice: InterfaceChoice,
        exit: ExitBySignal,
    ) -> Option<Self> {
        let environment = host.environment();
        let kind = environment.variable("TERM").unwrap_or_default();
        let is_capable = match choice {
            InterfaceChoice::Line | InterfaceChoice::ScreenReader => false,
            InterfaceChoice::Auto | InterfaceChoice::Full => !LINE_TERMINALS.contains(&kind),
        };
        let is_terminal = isatty(io::stdin()) && isatty(io::stdout()) && isatty(io::stderr());
        let is_set = |name: &&str| {
            environment
                .variable(name)
                .is_some_and(|value| !value.is_empty())
        };
        let editor = ["VISUAL", "EDITOR"].into_iter().find(is_set);
        let editor = editor.and_then(|name| environment.variable(name));
        // A mistake in the configuration is reported when it is loaded for the task; defaults
        // suffice here.
        let config = host.load_config(named_config).unwrap_or_default();
        (is_capable && is_terminal).then(|| Self {
            config: named_config.map(Path::to_owned),
            abilities: TerminalCapabilities::find(
                environment,
                config.tui().hyperlink_mode(),
                config.tui().clipboard_mode(),
            ),
            tui: config.tui().clone(),
            can_switch: true,
            theme_name: Arc::new(Mutex::new(config.tui().theme_name().to_owned())),
            folder: PathBuf::from("."),
            color_depth: ColorDepth::find(environment),
            background: Arc::new(
                Background::find(environment).map_or_else(OnceLock::new, OnceLock::from),
            ),
            reflow: find_reflow(environment),
            history: InputHistory::in_environment(environment),
            drafts: DraftStore::in_environment(environment),
            editor: editor.unwrap_or("vi").to_owned(),
            host: host.clone(),
            exit,
        })
    }
}

/// Returns what the terminal does with its rows when its width changes.
fn find_reflow(environment: &Environment) -> RowReflow {
    let is_set = |name: &&str| environment.variable(name).is_some();
    let is = |name: &str, known: &[&str]| {
        let value = environment.variable(name).unwrap_or_default();
        known.iter().any(|known| value.starts_with(known))
    };
    // An inner terminal (tmux, screen) is checked first: its own screen decides, whatever terminal
    // is around it.
    if is_set(&"TMUX") {
        RowReflow::Rewraps
    } else if is_set(&"STY") || is_set(&"XTERM_VERSION") {
        RowReflow::Cuts
    } else if MODERN_VARIABLES.iter().any(&is_set)
        || is("TERM_PROGRAM", &REWRAPPING_PROGRAMS)
        || is("TERM", &REWRAPPING_TERMINALS)
    {
        RowReflow::Rewraps
    } else {
        RowReflow::Unknown
    }
}

impl InterfaceSettings {
    /// Returns the name of the theme.
    fn theme_name(&self) -> String {
        let name = self.theme_name.lock();
        name.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the name of the theme for the next interface of this process.
    fn keep_theme_name(&self, name: &str) {
        let mut kept = self
            .theme_name
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        name.clone_into(&mut kept);
    }

    /// Prevents the choice of another task, because the task of the message is known.
    #[must_use]
    pub fn for_known_task(self) -> Self {
        Self {
            can_switch: false,
            ..self
        }
    }
}

impl InterfaceSettings {
    /// Sets the folder of the task whose first message is asked for.
    #[must_use]
    pub fn for_folder(self, folder: PathBuf) -> Self {
        Self { folder, ..self }
    }
}

/// Asks for the first message of a task, or for another task to continue. Returns `None` if the user leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn compose_first_message(
    settings: &InterfaceSettings,
    custom: CustomCommands,
) -> io::Result<Option<NextSession>> {
    let mut driver = Driver::begin(settings, Vec::new(), custom, None)?;
    driver.run(None).await;
    Ok(driver.next.take())
}

/// The result of showing a session: the next one, if the user chose one.
#[derive(Debug)]
pub struct InterfaceOutcome {
    /// The session that they left it for.
    pub next: Option<NextSession>,
    /// True if the last end of the task was shown while the session was still open.
    pub is_end_shown: bool,
}

/// Shows a session until it ends.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn show_session(
    session: &Session,
    settings: &InterfaceSettings,
) -> io::Result<InterfaceOutcome> {
    let link = SessionLink {
        handle: session.handle(),
        image_support: session.image_support(),
        user_commands: session.user_commands().clone(),
    };
    let modes = session.modes().to_vec();
    let custom = session.custom_commands().clone();
    let mut driver = Driver::begin(settings, modes, custom, Some(link))?;
    screen::leave_signals_to_session();
    driver.run(Some(session.subscribe())).await;
    Ok(InterfaceOutcome {
        next: driver.next.take(),
        is_end_shown: driver.is_end_shown,
    })
}

/// The session that is shown.
struct SessionLink {
    handle: SessionHandle,
    image_support: CurrentImageSupport,
    user_commands: UserCommandRunner,
}

/// The interface with its terminal.
struct Driver<'a> {
    settings: &'a InterfaceSettings,
    app: App,
    screen: InlineScreen,
    session: Option<SessionLink>,
    decoder: KeyDecoder,
    keys: KeyReader,
    changes: UnboundedReceiver<TerminalChange>,
    begun: Instant,
    /// True if the view may have changed since it was drawn.
    is_dirty: bool,
    last_frame: Option<Instant>,
    /// The session after this one, or after the first message.
    next: Option<NextSession>,
    /// Stops the command of the user that runs.
    stop_command: Arc<Notify>,
    /// The results of work in the background.
    finished: UnboundedReceiver<FinishedWork>,
    sender: UnboundedSender<FinishedWork>,
    /// True if the terminal should be asked for the colour of its background.
    needs_background: bool,
    /// The moment until which the answer about the background is waited for, also when the user leaves.
    waits_for_background: Option<Instant>,
    /// The comparisons for the list of checkpoints.
    comparisons: ComparisonQueue,
    /// Stops the scan for symbols when the interface is gone.
    stop_scan: StopFlag,
    is_leaving: bool,
    /// True if the last end of the task is on the screen.
    is_end_shown: bool,
    /// The folder of the workspace.
    folder: PathBuf,
    /// The moment at which the changed draft is kept.
    keeps_draft_at: Option<Instant>,
    /// The draft that was kept last.
    kept_draft: String,
    /// The moment at which an open escape sequence becomes the Escape key.
    escape_at: Option<Instant>,
    /// The moment at which an open paste counts as ended.
    paste_ends_at: Option<Instant>,
}

/// Work in the background that has ended.
enum FinishedWork {
    /// A command of the user.
    Command {
        line: String,
        result: Result<UserCommandOutput, String>,
    },
    /// The files of the workspace.
    Files(Vec<String>),
    /// The functions and types of the workspace.
    Symbols(Vec<SymbolName>),
    /// The picture in the clipboard.
    Picture(Result<Image, String>),
    /// The change since a checkpoint.
    CheckpointPreview {
        call: CheckpointedCall,
        text: String,
    },
}

/// The reason why the driver woke up.
enum Wakeup {
    Finished(FinishedWork),
    Keys(Option<Vec<u8>>),
    Change(Option<TerminalChange>),
    Update(Option<SessionUpdate>),
    Time,
}

impl<'a> Driver<'a> {
    fn begin(
        settings: &'a InterfaceSettings,
        modes: Vec<String>,
        custom_commands: CustomCommands,
        session: Option<SessionLink>,
    ) -> io::Result<Self> {
        let (sender, changes) = unbounded_channel();
        let helper = settings.host.environment().helper_program.clone();
        screen::begin_interface(settings.exit, sender, helper)?;
        let size = terminal_size();
        let tui = &settings.tui;
        let background = settings.background.get().copied();
        let themes = ThemeSet::new(tui.user_themes().clone(), settings.color_depth, background);
        let needs_background = themes.needs_background();
        let mut app = App::new(AppSettings {
            themes,
            theme_name: settings.theme_name(),
            motion: tui.motion(),
            history: settings.history.load(),
            draft: settings.drafts.take(),
            modes,
            custom_commands,
            status: tui.status_items().to_vec(),
            keys: tui.editing_keys(),
            bindings: tui.key_bindings().clone(),
            can_switch: settings.can_switch || session.is_some(),
        });
        let (sender, finished) = unbounded_channel();
        app.handle_resize(size);
        Ok(Self {
            settings,
            app,
            screen: InlineScreen::new(size, settings.reflow)
                .with_links(settings.abilities.shows_links()),
            session,
            decoder: KeyDecoder::default(),
            keys: KeyReader::start()?,
            changes,
            begun: Instant::now(),
            is_dirty: true,
            last_frame: None,
            next: None,
            stop_command: Arc::default(),
            finished,
            sender,
            needs_background,
            waits_for_background: None,
            comparisons: ComparisonQueue::default(),
            stop_scan: StopFlag::default(),
            is_leaving: false,
            is_end_shown: false,
            folder: settings.folder.clone(),
            keeps_draft_at: None,
            kept_draft: String::new(),
            escape_at: None,
            paste_ends_at: None,
        })
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Runs until the session is over, or the user leaves.
    async fn run(&mut self, mut events: Option<Subscription>) {
        screen::write_frame(REPORT_FOCUS, IGNORE_FOCUS.to_owned());
        self.draw_frame();
        self.query_background();
        while !self.is_leaving {
            let deadline = self.next_deadline();
            let wakeup = tokio::select! {
                // Keys come first, so that a flood of events delays none.
                biased;
                bytes = self.keys.bytes.recv() => Wakeup::Keys(bytes),
                change = self.changes.recv() => Wakeup::Change(change),
                Some(finished) = self.finished.recv() => Wakeup::Finished(finished),
                () = sleep_until(deadline) => Wakeup::Time,
                update = next_update(&mut events) => Wakeup::Update(update),
            };
            self.handle_wakeup(wakeup, &mut events).await;
        }
        self.save_draft();
        self.draw_frame();
        // The next interface takes the answer as its own.
        if self.next.is_none() {
            self.await_background().await;
        }
        self.stop_scan.request_stop();
        screen::end_interface();
    }

    /// Asks the terminal for the colour of its background, after the first frame. The answer comes as input, if it comes.
    fn query_background(&mut self) {
        let known = self.settings.background.get().copied();
        let query = self.settings.abilities.background_query(known);
        if let Some(query) = query.filter(|_| self.needs_background) {
            screen::write_frame(query, self.exit_bytes());
            self.waits_for_background = Some(Instant::now() + ANSWER_TIME);
        }
    }

    /// Waits a moment for an answer that is still under way, so that it does not become input of the shell.
    async fn await_background(&mut self) {
        while let Some(until) = self.waits_for_background {
            let answered = tokio::time::timeout_at(until.into(), self.keys.bytes.recv()).await;
            match answered {
                Ok(Some(bytes)) => {
                    for input in self.decoder.feed(&bytes) {
                        self.note_background(&input);
                    }
                }
                Ok(None) | Err(_) => self.waits_for_background = None,
            }
        }
    }

    /// Keeps the colour of the background for the next interface of this process.
    fn note_background(&mut self, input: &TerminalInput) {
        if let TerminalInput::Background(color) = input {
            self.waits_for_background = None;
            // Known already if the terminal answers twice.
            _ = self.settings.background.set(match color.is_light() {
                true => Background::Light,
                false => Background::Dark,
            });
        }
    }

    /// Returns the time after which an open escape sequence is the Escape key.
    fn escape_time(&self) -> Duration {
        // An answer over a slow line may arrive in two pieces.
        match self.waits_for_background {
            Some(until) if until > Instant::now() => SLOW_ESCAPE_TIME,
            _ => ESCAPE_TIME,
        }
    }

    async fn handle_finished_work(&mut self, finished: FinishedWork) {
        match finished {
            FinishedWork::Command { line, result } => {
                self.app.handle_user_command_result(&line, result)
            }
            FinishedWork::Files(files) => {
                self.scan_symbols(files.clone());
                self.app.set_files(files);
            }
            FinishedWork::Symbols(symbols) => self.app.set_symbols(symbols),
            FinishedWork::Picture(picture) => {
                let picture = picture.and_then(|picture| self.check_image(picture));
                let effects = match picture {
                    Ok(image) => {
                        let name = "the picture in the clipboard";
                        self.app.handle_loaded_image(name, String::new(), Ok(image))
                    }
                    Err(why) => {
                        self.app.show_notice(&format!("sabir: {why}"));
                        Vec::new()
                    }
                };
                self.run_effects(effects).await;
            }
            FinishedWork::CheckpointPreview { call, text } => {
                self.app.set_checkpoint_preview(&call, &text);
                if let Some(next) = self.comparisons.finish() {
                    self.start_comparison(next);
                }
            }
        }
    }

    /// Runs something that blocks, and takes its result when it is there.
    fn start_work(&self, work: impl FnOnce() -> FinishedWork + Send + 'static) {
        let sender = self.sender.clone();
        tokio::task::spawn_blocking(move || {
            // Fails if the interface is gone.
            _ = sender.send(work());
        });
    }

    /// Looks for functions and types in the files, in the background.
    fn scan_symbols(&self, files: Vec<String>) {
        let folder = self.folder.clone();
        let stop = self.stop_scan.clone();
        self.start_work(move || FinishedWork::Symbols(list_symbols(&folder, &files, &stop)));
    }

    async fn handle_wakeup(&mut self, wakeup: Wakeup, events: &mut Option<Subscription>) {
        match wakeup {
            Wakeup::Keys(Some(bytes)) => {
                for input in self.decoder.feed(&bytes) {
                    self.note_background(&input);
                    let effects = self.app.handle_input(input, self.now());
                    self.run_effects(effects).await;
                }
                let now = Instant::now();
                self.keeps_draft_at.get_or_insert(now + DRAFT_TIME);
                self.escape_at = self
                    .decoder
                    .has_open_escape()
                    .then_some(now + self.escape_time());
                self.paste_ends_at = self.decoder.has_open_paste().then_some(now + PASTE_TIME);
                self.draw_frame();
            }
            // The terminal is gone.
            Wakeup::Keys(None) | Wakeup::Change(None) => self.leave_session(),
            Wakeup::Change(Some(change)) => self.handle_terminal_change(change),
            Wakeup::Update(Some(update)) => {
                self.handle_update(update).await;
                self.handle_waiting_updates(events).await;
            }
            Wakeup::Update(None) => self.is_leaving = true,
            Wakeup::Finished(finished) => {
                self.handle_finished_work(finished).await;
                self.draw_frame();
            }
            Wakeup::Time => self.handle_timers().await,
        }
    }

    async fn handle_timers(&mut self) {
        if self.keeps_draft_at.is_some_and(|at| at <= Instant::now()) {
            self.save_draft();
        }
        if self.escape_at.is_some_and(|at| at <= Instant::now())
            && self.escape_at.take().is_some()
            && let Some(input) = self.decoder.finish_escape()
        {
            let effects = self.app.handle_input(input, self.now());
            self.run_effects(effects).await;
        }
        if self.paste_ends_at.is_some_and(|at| at <= Instant::now())
            && self.paste_ends_at.take().is_some()
            && let Some(input) = self.decoder.finish_paste()
        {
            let effects = self.app.handle_input(input, self.now());
            self.run_effects(effects).await;
        }
        self.draw_frame();
    }

    /// Takes the updates that are there already, so that they share a frame.
    async fn handle_waiting_updates(&mut self, events: &mut Option<Subscription>) {
        for _ in 0..MAX_EVENTS {
            let is_late = self
                .last_frame
                .is_some_and(|last| last.elapsed() >= 2 * FRAME_TIME);
            let next = events.as_mut().and_then(Subscription::try_next);
            match next {
                Some(update) => self.handle_update(update).await,
                None => break,
            }
            if is_late {
                break;
            }
        }
        self.is_dirty = true;
        let is_due = self
            .last_frame
            .is_none_or(|last| last.elapsed() >= FRAME_TIME);
        if is_due {
            self.draw_frame();
        }
    }

    async fn handle_update(&mut self, update: SessionUpdate) {
        let now = self.now();
        match update {
            SessionUpdate::Snapshot(snapshot) => {
                self.folder = PathBuf::from(&snapshot.start.workspace);
                self.app.handle_snapshot(&snapshot, now);
                self.find_branch();
            }
            SessionUpdate::Event(event) => {
                // A file is read each time, so not for each piece of a stream.
                let is_change = matches!(
                    event.kind,
                    SessionEventKind::State(_) | SessionEventKind::Asking { .. }
                );
                if is_change {
                    self.find_branch();
                }
                match &event.kind {
                    SessionEventKind::State(SessionState::Idle(_)) => self.is_end_shown = true,
                    SessionEventKind::State(SessionState::Working) => self.is_end_shown = false,
                    _ => {}
                }
                let effects = self.app.handle_event(&event, now);
                self.run_effects(effects).await;
            }
        }
    }

    /// Finds the branch again, which a command may have changed.
    fn find_branch(&mut self) {
        self.app.set_branch(find_branch(&self.folder));
    }

    fn handle_terminal_change(&mut self, change: TerminalChange) {
        match change {
            TerminalChange::Resized => self.take_size(),
            TerminalChange::Resumed => {
                screen::write_frame(REPORT_FOCUS, IGNORE_FOCUS.to_owned());
                self.screen.forget_viewport();
                self.take_size();
            }
            TerminalChange::Printed(text) => self.app.show_notice(&text),
        }
        self.draw_frame();
    }

    fn take_size(&mut self) {
        let size = terminal_size();
        let bytes = self.screen.resize(size);
        screen::write_frame(&bytes, IGNORE_FOCUS.to_owned());
        self.app.handle_resize(size);
    }

    /// Returns the next moment at which something must be done without news.
    fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let frame = self
            .is_dirty
            .then(|| self.last_frame.unwrap_or(now) + FRAME_TIME);
        // Seconds are counted, nothing spins.
        let tick = self.app.is_animated().then(|| now + Duration::from_secs(1));
        let deadlines = [
            frame,
            tick,
            self.keeps_draft_at,
            self.escape_at,
            self.paste_ends_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    fn draw_frame(&mut self) {
        self.is_dirty = false;
        self.last_frame = Some(Instant::now());
        // The signal of a new size may come later than the next frame, which would be drawn for the old one.
        if terminal_size() != self.screen.size() {
            self.take_size();
        }
        let now = self.now();
        let history = self.app.take_final_lines();
        let view = self.app.draw(now);
        let bytes = self.screen.draw(history, view);
        screen::write_frame(&bytes, self.exit_bytes());
    }

    fn exit_bytes(&self) -> String {
        self.screen.exit_bytes() + IGNORE_FOCUS
    }

    async fn run_effects(&mut self, effects: Vec<Effect>) {
        let mut effects = std::collections::VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Submit(command) => self.submit(command),
                Effect::Begin(message) => {
                    self.next = Some(NextSession::New(message));
                    self.is_leaving = true;
                }
                Effect::AddToHistory(message) => self.settings.history.append(&message),
                Effect::LoadImage { path, message } => {
                    let image = self.load_image(&path);
                    effects.extend(self.app.handle_loaded_image(&path, message, image));
                }
                Effect::ExpandCommand(line) => effects.extend(self.app.expand_command(&line)),
                Effect::ListFiles => {
                    let folder = self.folder.clone();
                    self.start_work(move || FinishedWork::Files(list_file_names(&folder)));
                }
                Effect::EditDraft(text) => {
                    let edited = self.edit_draft(text).await;
                    self.app.set_edited_draft(edited);
                }
                Effect::CompareFolder(count) => self.compare_folder(count).await,
                Effect::ListCheckpoints => self.list_checkpoints().await,
                Effect::NotifyUser(why) => self.notify_user(why),
                Effect::ListTasks => {
                    let host = self.settings.host.clone();
                    let folder = self.folder.clone();
                    let listed = tokio::task::spawn_blocking(move || list_tasks(&host, &folder));
                    match listed.await.map_err(|error| error.to_string()) {
                        Ok(Ok(tasks)) => self.app.open_picker("tasks", "forks it", tasks),
                        Ok(Err(error)) => self.app.show_notice(&format!("sabir: {error}")),
                        Err(error) => self.app.show_notice(&format!("sabir: {error}")),
                    }
                }
                Effect::ListModels => {
                    let models = list_models(&self.settings.host, self.settings.config.as_deref());
                    self.app.open_picker("models", "", models);
                }
                Effect::ListServers => {
                    let statuses = self
                        .session
                        .as_ref()
                        .map(|session| session.handle.server_statuses());
                    let servers = list_servers(statuses.unwrap_or_default());
                    self.app.open_picker("MCP servers", "", servers);
                }
                Effect::ShowTask(task) => {
                    let list = TaskList::read(self.settings.host.environment(), None, &[]);
                    let entries = list
                        .map(|list| list.read_records(&task))
                        .unwrap_or_default();
                    self.app.show_notice(&last_exchange_text(&entries));
                }
                Effect::PreviewRewind { message, records } => {
                    let preview = self.preview_rewind(records).await;
                    self.app.open_rewind_choice(message, &preview);
                }
                Effect::RestoreFiles(records) => self.restore_files(records).await,
                Effect::Switch(next) => {
                    // The session ends first: two would share the terminal and the folder.
                    self.next = Some(*next);
                    self.leave_session();
                }
                Effect::SubmitTo(task, command) => {
                    let Some(session) = &self.session else {
                        continue;
                    };
                    if let Err(rejected) = session.handle.submit_to(&task, command.clone()) {
                        self.app.handle_rejection(&command, &rejected.to_string());
                    }
                }
                Effect::RunUserCommand(line) => self.run_user_command(line),
                // Kept for a command that is still being set up.
                Effect::StopUserCommand => self.stop_command.notify_one(),
                Effect::AppendNote(note) => match append_note(&self.folder, &note) {
                    Ok(path) => {
                        let text =
                            format!("{} has a new line: {}", path.display(), note_line(&note));
                        self.app.show_notice(&text);
                    }
                    Err(error) => {
                        let text = format!("sabir: AGENTS.md was not changed: {error}");
                        self.app.show_notice(&text);
                    }
                },
                Effect::Copy(text) => self.copy(&text),
                Effect::PastePicture => self.start_work(|| {
                    let picture = images::load_clipboard_image();
                    FinishedWork::Picture(picture.map_err(|error| error.to_string()))
                }),
                Effect::SaveTheme(name) => self.save_theme(&name),
                Effect::CompareCheckpoint(call) => self.compare_checkpoint(call),
                Effect::PreviewRestore(call) => self.preview_restore(call).await,
                Effect::AttachPasted(text) => {
                    let path = pasted_path(&text, self.settings.host.environment());
                    match self.load_image(&path) {
                        Ok(image) => effects.extend(self.app.handle_loaded_image(
                            &path,
                            String::new(),
                            Ok(image),
                        )),
                        Err(_) => self.app.paste_text(&text),
                    }
                }
                Effect::Redraw => {
                    let bytes = self.screen.redraw();
                    screen::write_frame(&bytes, self.exit_bytes());
                }
                Effect::Leave => self.leave_session(),
            }
        }
    }

    fn submit(&mut self, command: Command) {
        let Some(session) = &self.session else {
            return;
        };
        if let Err(rejected) = session.handle.submit(command.clone()) {
            self.app.handle_rejection(&command, &rejected.to_string());
        }
    }

    fn leave_session(&mut self) {
        if let Some(session) = &self.session {
            // Rejected only if the session is over, when no command is needed.
            _ = session.handle.submit(Command::End);
        }
        self.is_leaving = true;
    }

    fn load_image(&self, path: &str) -> Result<Image, String> {
        let image = images::load_image(Path::new(path)).map_err(|error| error.to_string())?;
        self.check_image(image)
    }

    /// Returns the image, if the model can get it.
    fn check_image(&self, image: Image) -> Result<Image, String> {
        // The model of a task that has not begun is checked when it begins.
        let Some(session) = &self.session else {
            return Ok(image);
        };
        let support = session.image_support.get();
        let mut images = support
            .check_images(vec![image])
            .map_err(|error| error.to_string())?;
        images.pop().ok_or_else(String::new)
    }

    fn notify_user(&mut self, why: &str) {
        let bytes = match self.settings.tui.notification_kind() {
            NotificationKind::Off => return,
            // The bell alone marks the window in most terminals.
            NotificationKind::Bell => "\x07".to_owned(),
            // Understood by most terminals; the others ignore it.
            NotificationKind::Desktop => format!("\x1b]9;{why}\x1b\\\x07"),
        };
        screen::write_frame(&bytes, self.exit_bytes());
    }

    async fn preview_rewind(&self, records: usize) -> String {
        let Some(session) = &self.session else {
            return String::new();
        };
        let host = self.settings.host.clone();
        let task = session.handle.task().clone();
        // Files are compared, which takes a while in a large folder.
        let preview = move || rewind::preview_restore(&host, &task, records);
        let previewed = tokio::task::spawn_blocking(preview).await;
        previewed.unwrap_or_else(|error| error.to_string())
    }

    async fn restore_files(&mut self, records: usize) {
        let Some(session) = &self.session else {
            return;
        };
        let host = self.settings.host.clone();
        let task = session.handle.task().clone();
        let restore = move || rewind::restore_files(&host, &task, Some(records));
        let restored = tokio::task::spawn_blocking(restore).await;
        let text = match restored.map_err(|error| error.to_string()) {
            Ok(Ok(count)) => format!("{} restored", count_noun(count, "path")),
            Ok(Err(error)) => format!("sabir: {error}"),
            Err(error) => format!("sabir: {error}"),
        };
        self.app.show_notice(&text);
    }

    /// Runs a command of the user beside the task.
    fn run_user_command(&mut self, line: String) {
        let Some(session) = &self.session else {
            return;
        };
        let runner = session.user_commands.clone();
        // Of its own, so that a stop that comes late does not end the next command.
        self.stop_command = Arc::default();
        let stop = Arc::clone(&self.stop_command);
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let result = runner.run(&line, stop).await;
            let result = result.map_err(|error| error.to_string());
            // Fails if the interface is gone.
            _ = sender.send(FinishedWork::Command { line, result });
        });
    }

    /// Shows what the task has changed.
    async fn compare_folder(&mut self, count: Option<usize>) {
        let Some(checkpoints) = self.checkpoint_reader() else {
            return;
        };
        let compare = move || checkpoints.compare(count);
        let compared = tokio::task::spawn_blocking(compare).await;
        match compared.map_err(|error| error.to_string()) {
            Ok(Ok(changes)) => {
                let heading = count_noun(changes.len(), "changed path");
                self.app.show_diff(&heading, &changes);
            }
            Ok(Err(error)) => self.app.show_notice(&format!("sabir: {error}")),
            Err(error) => self.app.show_notice(&format!("sabir: {error}")),
        }
    }

    fn copy(&mut self, text: &str) {
        let abilities = self.settings.abilities;
        let note = match abilities.clipboard_bytes(text) {
            Some(bytes) => {
                screen::write_frame(&bytes, self.exit_bytes());
                let hint = abilities.clipboard_hint();
                format!("the answer was copied to the terminal's clipboard{hint}")
            }
            None => "the answer was not copied: this terminal is not known to accept text for its clipboard; `tui.clipboard = \"on\"` in config.toml sends it anyway"
                .to_owned(),
        };
        self.app.show_notice(&note);
    }

    /// Keeps a theme in the configuration file, and for the next interface of this process.
    fn save_theme(&mut self, name: &str) {
        self.settings.keep_theme_name(name);
        let environment = self.settings.host.environment();
        let named = self.settings.config.as_deref();
        let note = match set_value(environment, named, "tui.theme", &[name.to_owned()]) {
            Ok(change) => format!("{} has `theme = \"{name}\"` now", change.path.display()),
            Err(error) => format!("the theme is {name} until you leave; it was not kept: {error}"),
        };
        self.app.show_notice(&note);
    }

    async fn list_checkpoints(&mut self) {
        let Some(checkpoints) = self.checkpoint_reader() else {
            return;
        };
        let list = move || checkpoints.list_items();
        let listed = tokio::task::spawn_blocking(list).await;
        match listed.map_err(|error| error.to_string()) {
            Ok(Ok(items)) => {
                self.app.open_picker("checkpoints", "", items);
                for effect in self.app.preview_selected() {
                    if let Effect::CompareCheckpoint(call) = effect {
                        self.compare_checkpoint(call);
                    }
                }
            }
            Ok(Err(error)) => self.app.show_notice(&format!("sabir: {error}")),
            Err(error) => self.app.show_notice(&format!("sabir: {error}")),
        }
    }

    /// Compares the folder with its state before a call, in the background.
    fn compare_checkpoint(&mut self, call: CheckpointedCall) {
        if self.session.is_some()
            && let Some(call) = self.comparisons.request(call)
        {
            self.start_comparison(call);
        }
    }

    fn start_comparison(&self, call: CheckpointedCall) {
        let Some(checkpoints) = self.checkpoint_reader() else {
            return;
        };
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let number = call.number;
            let describe = move || checkpoints.describe_changes_since(number);
            let described = tokio::task::spawn_blocking(describe).await;
            // Every kind of end is reported; otherwise no other comparison would start.
            let text = described.unwrap_or_else(|error| error.to_string());
            // Fails if the interface is gone.
            _ = sender.send(FinishedWork::CheckpointPreview { call, text });
        });
    }

    async fn preview_restore(&mut self, call: CheckpointedCall) {
        let Some(checkpoints) = self.checkpoint_reader() else {
            return;
        };
        let number = call.number;
        let previewed =
            tokio::task::spawn_blocking(move || checkpoints.preview_restore(number)).await;
        let files = previewed.unwrap_or_else(|error| error.to_string());
        let answer = match self.app.records_before_call(&call) {
            // The same state that the choice restores.
            Some(records) => self.preview_rewind(records).await,
            None => "the conversation before this call is not in this task".to_owned(),
        };
        self.app.open_restore_choice(&call, &files, &answer);
    }

    fn checkpoint_reader(&self) -> Option<CheckpointReader> {
        let session = self.session.as_ref()?;
        Some(CheckpointReader {
            host: self.settings.host.clone(),
            folder: self.folder.clone(),
            task: session.handle.task().clone(),
        })
    }

    /// Gives the terminal to the user's editor. The task works on, and its events wait.
    async fn edit_draft(&mut self, text: String) -> io::Result<String> {
        self.keys.stop();
        screen::pause_interface();
        let editor = self.settings.editor.clone();
        let folder = self.settings.host.environment().temporary_folder.clone();
        let edit = move || edit_text(&editor, &text, &folder).map_err(io::Error::other);
        let edited = tokio::task::spawn_blocking(edit).await;
        screen::continue_interface();
        while let Ok(change) = self.changes.try_recv() {
            self.handle_terminal_change(change);
        }
        self.keys = KeyReader::start()?;
        edited.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Keeps the draft, if it has changed, so that a crash does not lose it.
    fn save_draft(&mut self) {
        self.keeps_draft_at = None;
        let draft = self.app.draft();
        if draft != self.kept_draft {
            self.settings.drafts.save(&draft);
            self.kept_draft = draft;
        }
    }
}

/// Reads the checkpoints of a task.
struct CheckpointReader {
    host: Host,
    folder: PathBuf,
    task: TaskId,
}

impl CheckpointReader {
    fn compare(&self, count: Option<usize>) -> Result<Vec<ChangedFile>, HistoryError> {
        let folder = CheckpointFolder::open(&self.host, Some(&self.folder))?;
        let diff = folder.diff(self.task.as_str(), count)?;
        let changes = diff.changes.into_iter().map(|change| ChangedFile {
            path: change.path.display().to_string(),
            diff: change.diff,
        });
        Ok(changes.collect())
    }

    /// Lists the calls that changed files, the newest first.
    fn list_items(&self) -> Result<Vec<PickerItem>, HistoryError> {
        let folder = CheckpointFolder::open(&self.host, Some(&self.folder))?;
        let list = folder.list(self.task.as_str(), None)?;
        let now = self.host.environment().now_milliseconds();
        let mut items = Vec::new();
        for listed in list.checkpoints.iter().rev() {
            let checkpoint = &listed.checkpoint;
            let age = age_text(now.saturating_sub(checkpoint.mark.time_ms));
            let is_restore = checkpoint.kind != CheckpointKind::Call;
            let state = match (checkpoint.kind, listed.is_active) {
                (CheckpointKind::Call, true) => "",
                (CheckpointKind::Call, false) => "undone, ",
                _ => "a restore, ",
            };
            let call = CheckpointedCall {
                number: checkpoint.number,
                call: checkpoint.mark.call.clone(),
            };
            items.push(PickerItem {
                label: format!(
                    "@{} {} {}",
                    checkpoint.number, checkpoint.mark.tool, checkpoint.mark.label
                ),
                note: format!("{state}{age}"),
                preview: match is_restore {
                    true => "Enter shows what undoing this restore would change".to_owned(),
                    false => String::new(),
                },
                item: match listed.is_active || is_restore {
                    true => PickedItem::Checkpoint(call),
                    false => PickedItem::Note,
                },
            });
        }
        Ok(items)
    }

    /// Counts the calls whose changes are in effect, from this one on.
    fn count_calls_since(&self, number: u32) -> Result<usize, String> {
        let list = CheckpointFolder::open(&self.host, Some(&self.folder))
            .and_then(|folder| folder.list(self.task.as_str(), None))
            .map_err(|error| error.to_string())?;
        let active = list.checkpoints.iter().filter(|listed| listed.is_active);
        let active: Vec<u32> = active.map(|listed| listed.checkpoint.number).collect();
        count_active_since(&active, number).ok_or_else(|| {
            format!(
                "checkpoint @{number} is gone, or is undone already; /checkpoints lists the present ones"
            )
        })
    }

    /// Describes the changes of a call and those after it, as a diff.
    fn describe_changes_since(&self, number: u32) -> String {
        let calls = match self.count_calls_since(number) {
            Ok(calls) => calls,
            Err(why) => return why,
        };
        let diff = CheckpointFolder::open(&self.host, Some(&self.folder))
            .and_then(|folder| folder.diff(self.task.as_str(), Some(calls)));
        match diff {
            Ok(diff) if diff.changes.is_empty() => "nothing is changed since".to_owned(),
            Ok(diff) => {
                let changes = diff.changes.iter();
                changes.map(|change| change.diff.as_str()).collect()
            }
            Err(error) => error.to_string(),
        }
    }

    /// Names the paths that restoring the state before a call would change.
    fn preview_restore(&self, number: u32) -> String {
        let call = format!("{}@{number}", self.task.as_str());
        let preview = CheckpointFolder::open(&self.host, Some(&self.folder))
            .and_then(|folder| folder.preview_restore(&call, &[], false));
        match preview {
            Ok(preview) => rewind::preview_lines(&preview),
            Err(error) => format!("files cannot be restored: {error}"),
        }
    }
}

/// Returns the number of active calls from this one on, the oldest first in `active`; `None` if it is not among them.
fn count_active_since(active: &[u32], number: u32) -> Option<usize> {
    let at = active.iter().position(|one| *one == number)?;
    Some(active.len() - at)
}

/// Returns the path that a terminal has pasted for a dropped file.
fn pasted_path(text: &str, environment: &Environment) -> String {
    let text = text.trim().trim_matches(['\'', '"']);
    let text = text
        .strip_prefix("file://")
        .unwrap_or(text)
        .replace("\\ ", " ");
    match (text.strip_prefix("~/"), &environment.home_folder) {
        (Some(rest), Some(home)) => home.join(rest).display().to_string(),
        _ => text,
    }
}

async fn next_update(events: &mut Option<Subscription>) -> Option<SessionUpdate> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn terminal_size() -> TerminalSize {
    let (columns, rows) = screen::terminal_size();
    TerminalSize { columns, rows }
}

/// Reads standard input on a thread, until it is dropped. Input that comes later stays in the terminal's queue.
struct KeyReader {
    bytes: UnboundedReceiver<Vec<u8>>,
    is_stopped: Arc<AtomicBool>,
    /// Wakes the thread when it is dropped.
    waker: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl KeyReader {
    fn start() -> io::Result<Self> {
        // Closed in programs that are started, one of which would keep the reader asleep.
        let (woken, waker) = io::pipe()?;
        let woken = OwnedFd::from(woken);
        let (sender, bytes) = unbounded_channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let read = move || read_keys(&woken, &stopped, &sender);
        let thread = std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(read)?;
        Ok(Self {
            bytes,
            is_stopped,
            waker: Some(waker.into()),
            thread: Some(thread),
        })
    }

    /// Stops reading and waits until nothing more is taken from the terminal.
    fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.waker = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads until the waker is closed or the input ends.
fn read_keys(woken: &OwnedFd, is_stopped: &AtomicBool, sender: &UnboundedSender<Vec<u8>>) {
    let input = io::stdin();
    let mut buffer = vec![0; 64 << 10];
    while !is_stopped.load(Ordering::SeqCst) {
        let mut polled = [
            PollFd::new(&input, PollFlags::IN),
            PollFd::new(woken, PollFlags::IN),
        ];
        let waited = poll(&mut polled, None);
        let is_woken = polled
            .last()
            .is_some_and(|polled| !polled.revents().is_empty());
        let is_ready = polled
            .first()
            .is_some_and(|polled| !polled.revents().is_empty());
        if is_woken {
            return;
        }
        if waited.is_err() || !is_ready {
            // The kernel has no memory for it, or a signal came.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        match rustix::io::read(&input, &mut buffer) {
            Ok(count @ 1..) => {
                let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                if sender.send(bytes).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_from_their_number() {
        assert_eq!(count_active_since(&[1, 2, 5], 2), Some(2));
        // Another call came meanwhile.
        assert_eq!(count_active_since(&[1, 2, 5, 6], 2), Some(3));
        // Undone, pruned or never there.
        assert_eq!(count_active_since(&[1, 2, 5], 4), None);
        assert_eq!(count_active_since(&[], 1), None);
    }
}
