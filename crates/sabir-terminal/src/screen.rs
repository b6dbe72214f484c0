//! Shares the terminal between what Sabir prints and what the user types.
//!
//! While `begin_editing` is in force the terminal is in raw mode, and the line editor draws the
//! user's draft through `show_draft`. Everything else that is printed goes above the draft: it is
//! erased, the text is written where the output ended, and the draft is drawn again below. A draft
//! behind a prompt stays on the prompt's line.
//!
//! An interface that draws the whole terminal by itself takes it with [`begin_interface`]. Other
//! output is then passed to it, but the state of the terminal is still kept and restored here.
//!
//! The terminal is the process's, so its state is a static. It is restored by [`restore`]: at the end,
//! before a stop (Ctrl-Z), by the panic hook, and when a signal ends the process. If an interface was
//! killed at once, a [`TerminalGuard`] restores it.

use std::io::{self, Write, stderr, stdin, stdout};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::process::{getpid, kill_process};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr,
};
use sabir_session::{TerminalGuard, TerminalLock, is_in_process_group, is_session_leader};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

use crate::draft_layout::{DraftRows, ScreenSize, column_after, lay_out};
use crate::print::is_stdout_terminal;

/// The prompt of a draft that is typed while something else is printed.
const OWN_PROMPT: &str = "> ";
/// Lets the terminal mark pastes.
const MARK_PASTES: &str = "\x1b[?2004h";
/// Ends the marking of pastes.
const UNMARK_PASTES: &str = "\x1b[?2004l";

/// The time before the guard of the terminal is started, so that it does not delay the first screen.
const GUARD_DELAY: Duration = Duration::from_millis(300);

/// Ends the process because of the signal of this number.
pub type ExitBySignal = fn(i32);

/// The effect of Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptKey {
    /// A byte that the line editor reads.
    Byte,
    /// A signal that arrives while nothing is read.
    Signal,
}

/// A stream of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

/// An event of the terminal that an interface draws on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalChange {
    /// The size may have changed.
    Resized,
    /// The process was suspended and continues, and nothing of the interface is on the screen.
    Resumed,
    /// Another part of the program printed this text.
    Printed(String),
}

/// The interface that draws the terminal.
struct Interface {
    changes: UnboundedSender<TerminalChange>,
    /// The bytes that remove it from the screen.
    leaving: String,
}

/// The state of the terminal.
struct Screen {
    /// The interface that draws the terminal, instead of the draft.
    interface: Option<Interface>,
    /// The settings from before raw mode; `None` outside of it.
    saved: Option<Termios>,
    /// True while the process is stopped.
    is_suspended: bool,
    interrupt_key: InterruptKey,
    /// The process that restores the terminal of an interface if this one is killed.
    guard: Option<TerminalGuard>,
    /// The lock of the terminal, while an interface has changed it.
    lock: Option<TerminalLock>,
    /// The path of this program, once the guard may be started.
    guard_program: Option<PathBuf>,
    /// True if signals are watched.
    is_watched: bool,
    /// True once a session reacts to the signals that end it.
    has_session: bool,
    /// The column at which the output ended.
    column: usize,
    /// The prompt at the end of the output, whose line the draft continues.
    prompt: Option<String>,
    /// A line above the draft that says what Sabir waits for; empty for none.
    status: String,
    draft: String,
    cursor: usize,
    drawn: Option<DrawnDraft>,
}

/// A draft on the screen.
#[derive(Debug, Clone, Copy)]
struct DrawnDraft {
    /// The row of the cursor, counted from the draft's first.
    cursor_row: usize,
    /// The last row.
    last_row: usize,
    /// True if it begins on a new line, below output without a line end.
    is_below: bool,
}

static SCREEN: Mutex<Screen> = Mutex::new(Screen {
    interface: None,
    saved: None,
    is_suspended: false,
    interrupt_key: InterruptKey::Byte,
    guard: None,
    lock: None,
    guard_program: None,
    is_watched: false,
    has_session: false,
    column: 0,
    prompt: None,
    status: String::new(),
    draft: String::new(),
    cursor: 0,
    drawn: None,
});

fn lock_screen() -> MutexGuard<'static, Screen> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the terminal into raw mode, unless it is. Signals that end or stop the process restore it.
///
/// # Errors
/// When standard input is not a terminal, or signals cannot be watched.
pub(crate) fn begin_editing(key: InterruptKey, exit: ExitBySignal) -> io::Result<()> {
    let mut screen = lock_screen();
    if !screen.is_watched {
        watch_signals(exit)?;
        screen.is_watched = true;
    }
    screen.interrupt_key = key;
    screen.enter_raw_mode()
}

/// Gives the terminal to an interface, in raw mode, and sends it what happens to the terminal. `helper` is this program, which is
/// started a second time to restore the terminal if this process is killed.
///
/// # Errors
/// When standard input is not a terminal, or signals cannot be watched.
pub fn begin_interface(
    exit: ExitBySignal,
    changes: UnboundedSender<TerminalChange>,
    helper: PathBuf,
) -> io::Result<()> {
    lock_screen().interface = Some(Interface {
        changes,
        leaving: String::new(),
    });
    begin_editing(InterruptKey::Byte, exit).inspect_err(|_| lock_screen().interface = None)?;
    // The interface also works without a guard.
    _ = std::thread::Builder::new()
        .name("terminal guard".to_owned())
        .spawn(move || {
            std::thread::sleep(GUARD_DELAY);
            let mut screen = lock_screen();
            screen.guard_program = Some(helper);
            let is_changed = screen.saved.is_some();
            screen.notify_guard(is_changed);
        });
    Ok(())
}

/// Takes the terminal back from an interface. It stays in raw mode until [`restore`], so that nothing that is typed meanwhile is
/// echoed.
pub fn end_interface() {
    let mut screen = lock_screen();
    if let Some(interface) = screen.interface.take() {
        write_all(OutputStream::Stdout, interface.leaving.as_bytes());
    }
}

/// Writes a frame of the interface. `leaving` are the bytes that remove it from the screen again. Returns false, and writes
/// nothing, while the process is stopped or another program has the terminal.
pub fn write_frame(frame: &str, leaving: String) -> bool {
    let mut screen = lock_screen();
    if screen.saved.is_none() || screen.is_suspended {
        return false;
    }
    write_all(OutputStream::Stdout, frame.as_bytes());
    if let Some(interface) = &mut screen.interface {
        interface.leaving = leaving;
    }
    true
}

/// Restores the terminal for another program, until [`continue_interface`].
pub fn pause_interface() {
    lock_screen().suspend();
}

/// Takes the terminal again after [`pause_interface`].
pub fn continue_interface() {
    lock_screen().resume();
}

/// Returns the columns and rows of the terminal, or the usual ones if it does not tell.
pub fn terminal_size() -> (usize, usize) {
    let size = screen_size();
    (size.columns, size.rows)
}

/// Leaves the signals that end the process to the session's own listener.
pub fn leave_signals_to_session() {
    lock_screen().has_session = true;
}

/// Restores the terminal, if it was changed. Gives up after half a second if another thread is stuck in writing to it, because a
/// program that should end must end.
pub fn restore() {
    restore_within(50);
}

/// Restores the terminal, and tries it so many times, 10 ms apart.
fn restore_within(attempts: usize) {
    for _ in 0..attempts {
        match SCREEN.try_lock() {
            Ok(mut screen) => return screen.leave_raw_mode(),
            Err(TryLockError::Poisoned(screen)) => return screen.into_inner().leave_raw_mode(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Restores the terminal after a panic in a thread that may hold the lock.
pub(crate) fn restore_after_panic() {
    // Another thread lets the lock go in a moment; the one that panicked never does.
    restore_within(20);
}

/// Writes to standard error without the lock, which the thread that panicked may hold.
pub(crate) fn write_after_panic(text: &str) {
    write_all(OutputStream::Stderr, text.as_bytes());
}

/// Shows the user's draft, with the cursor at a byte offset of it.
pub(crate) fn show_draft(text: &str, cursor: usize) {
    let mut screen = lock_screen();
    let mut out = screen.erase_draft();
    text.clone_into(&mut screen.draft);
    screen.cursor = cursor;
    out.push_str(&screen.draw_draft());
    write_all(OutputStream::Stderr, out.as_bytes());
}

/// Returns true if a status line can be shown.
pub(crate) fn has_status() -> bool {
    lock_screen().saved.is_some()
}

/// Shows a line of plain text above the draft, until another or an empty line replaces it.
pub(crate) fn show_status(text: &str) {
    let mut screen = lock_screen();
    let mut out = screen.erase_draft();
    text.clone_into(&mut screen.status);
    out.push_str(&screen.draw_draft());
    write_all(OutputStream::Stderr, out.as_bytes());
}

/// Leaves a completed message on the screen as it was typed, and ends its line.
pub(crate) fn commit_draft(text: &str) {
    let mut screen = lock_screen();
    let mut out = screen.erase_draft();
    text.clone_into(&mut screen.draft);
    screen.cursor = text.len();
    let below = screen.column > 0 && screen.prompt.is_none();
    // Enter alone says nothing, and must not break a line of the output.
    if !(text.is_empty() && below) {
        let status = std::mem::take(&mut screen.status);
        out.push_str(&screen.draw_draft());
        screen.status = status;
        out.push_str("\r\n");
        screen.column = 0;
        screen.prompt = None;
    }
    screen.draft.clear();
    screen.cursor = 0;
    screen.drawn = None;
    write_all(OutputStream::Stderr, out.as_bytes());
}

/// Writes bytes to a stream, above the user's draft if there is one. `is_prompt` makes the draft
/// continue the line.
pub(crate) fn write_output(stream: OutputStream, bytes: &[u8], is_prompt: bool) -> io::Result<()> {
    let mut screen = lock_screen();
    let is_elsewhere = stream == OutputStream::Stdout && !is_stdout_terminal();
    if let Some(interface) = &screen.interface
        && !is_elsewhere
    {
        let text = String::from_utf8_lossy(bytes).into_owned();
        // An interface that is gone shows nothing.
        if interface
            .changes
            .send(TerminalChange::Printed(text))
            .is_ok()
        {
            return Ok(());
        }
    }
    if screen.saved.is_none() || is_elsewhere {
        return write_to(stream, bytes);
    }
    let erased = screen.erase_draft();
    let text = String::from_utf8_lossy(bytes);
    let size = screen_size();
    screen.column = column_after(&text, screen.column, size.columns);
    screen.prompt = is_prompt.then(|| text.rsplit('\n').next().unwrap_or_default().to_owned());
    let drawn = screen.draw_draft();
    if stream == OutputStream::Stderr {
        // At once, so that nothing flickers.
        return write_to(
            stream,
            &[erased.as_bytes(), bytes, drawn.as_bytes()].concat(),
        );
    }
    write_all(OutputStream::Stderr, erased.as_bytes());
    let written = write_to(stream, bytes);
    write_all(OutputStream::Stderr, drawn.as_bytes());
    written
}

fn write_to(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Stdout => {
            let mut stream = stdout().lock();
            stream.write_all(bytes).and_then(|()| stream.flush())
        }
        OutputStream::Stderr => {
            let mut stream = stderr().lock();
            stream.write_all(bytes).and_then(|()| stream.flush())
        }
    }
}

/// Writes bytes. Ignores errors: if the terminal is closed, the reader of its keys reports it.
fn write_all(stream: OutputStream, bytes: &[u8]) {
    if !bytes.is_empty() {
        _ = write_to(stream, bytes);
    }
}

/// Returns the size of the terminal, or the usual one if it does not tell.
fn screen_size() -> ScreenSize {
    let known = tcgetwinsize(stderr()).ok();
    let or = |count: Option<u16>, usual: usize| match count {
        None | Some(0) => usual,
        Some(count) => usize::from(count),
    };
    ScreenSize {
        columns: or(known.map(|size| size.ws_col), 80),
        rows: or(known.map(|size| size.ws_row), 24),
    }
}

impl Screen {
    fn enter_raw_mode(&mut self) -> io::Result<()> {
        if !is_foreground() {
            // The shell continues us in the foreground later, with another signal.
            return Ok(());
        }
        let current = tcgetattr(stdin())?;
        let is_new = self.saved.is_none();
        let mut raw = self.saved.get_or_insert(current).clone();
        raw.input_modes -= InputModes::ICRNL
            | InputModes::INLCR
            | InputModes::IGNCR
            | InputModes::ISTRIP
            | InputModes::IXON;
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        if self.interrupt_key == InterruptKey::Byte {
            // `_POSIX_VDISABLE`: no byte is this key.
            raw.special_codes[SpecialCodeIndex::VINTR] = 0;
        }
        // What is typed already stays in the queue.
        tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        self.is_suspended = false;
        if is_new {
            write_all(OutputStream::Stderr, MARK_PASTES.as_bytes());
            if self.interface.is_some() {
                // Without a lock a guard of an earlier interface may restore too much.
                self.lock = TerminalLock::take().ok();
            }
            self.notify_guard(true);
        }
        Ok(())
    }

    /// Tells the guard whether the terminal is changed, and starts it where it is needed.
    fn notify_guard(&mut self, is_changed: bool) {
        if let Some(guard) = &mut self.guard
            && guard.set_changed(is_changed).is_err()
        {
            // A Ctrl-C for the user's editor has ended it, for example.
            self.guard = None;
        }
        if let (true, None, Some(program), Some(saved)) =
            (is_changed, &self.guard, &self.guard_program, &self.saved)
        {
            // The interface also works without a guard.
            self.guard = TerminalGuard::start(program, saved).ok();
        }
    }

    fn leave_raw_mode(&mut self) {
        let Some(saved) = self.saved.take() else {
            return;
        };
        // A draft stays on the screen, and what follows begins a line.
        let mut out = String::new();
        if let Some(interface) = &mut self.interface {
            out.push_str(&std::mem::take(&mut interface.leaving));
        } else if let Some(drawn) = self.drawn.take() {
            out.push_str(&"\r\n".repeat(drawn.last_row.saturating_sub(drawn.cursor_row) + 1));
            self.column = 0;
        } else if self.column > 0 {
            out.push_str("\r\n");
            self.column = 0;
        }
        out.push_str(UNMARK_PASTES);
        write_all(OutputStream::Stderr, out.as_bytes());
        // Fails only if the terminal is gone.
        _ = tcsetattr(stdin(), OptionalActions::Drain, &saved);
        self.lock = None;
        self.notify_guard(false);
    }

    /// Returns the bytes that erase the draft and put the cursor where the output ended.
    fn erase_draft(&mut self) -> String {
        let Some(drawn) = self.drawn.take() else {
            return String::new();
        };
        let mut out = move_up(drawn.cursor_row);
        out.push('\r');
        if drawn.is_below {
            out.push_str("\x1b[J");
            // A full line has moved the cursor to the next one already.
            if self.column < screen_size().columns {
                out.push_str(&move_up(1));
                out.push_str(&move_right(self.column));
            } else {
                self.column = 0;
            }
        } else {
            out.push_str(&move_right(self.column));
            out.push_str("\x1b[J");
        }
        out
    }

    /// Returns the bytes that draw the draft.
    fn draw_draft(&mut self) -> String {
        let is_nothing = self.draft.is_empty() && self.status.is_empty();
        if is_nothing || self.saved.is_none() || self.is_suspended {
            return String::new();
        }
        let size = screen_size();
        let is_inline = self.prompt.is_some();
        let is_below = !is_inline && self.column > 0;
        let start = if is_inline {
            self.column
        } else {
            OWN_PROMPT.len()
        };
        let DraftRows {
            rows,
            cursor_row,
            cursor_column,
        } = lay_out(&self.draft, self.cursor, start, size.columns).limit_rows(size.rows / 2);
        let mut out = String::new();
        if is_below {
            out.push_str("\r\n");
        }
        let mut rows = rows;
        let mut cursor_row = cursor_row;
        let mut cursor_column = cursor_column;
        if !is_inline {
            if let Some(first) = rows.first_mut() {
                first.insert_str(0, OWN_PROMPT);
            }
            if !self.status.is_empty() {
                let status: String = self
                    .status
                    .chars()
                    .take(size.columns.saturating_sub(1))
                    .collect();
                if self.draft.is_empty() {
                    cursor_column = status.chars().count();
                    rows = vec![status];
                } else {
                    rows.insert(0, status);
                    cursor_row += 1;
                }
            }
        }
        out.push_str(&rows.join("\r\n"));
        let last_row = rows.len().saturating_sub(1);
        out.push_str(&move_up(last_row.saturating_sub(cursor_row)));
        out.push('\r');
        out.push_str(&move_right(cursor_column));
        self.drawn = Some(DrawnDraft {
            cursor_row,
            last_row,
            is_below,
        });
        out
    }

    /// Restores the terminal while the process is stopped.
    fn suspend(&mut self) {
        self.leave_raw_mode();
        self.is_suspended = true;
    }

    /// Enters raw mode again after the process was stopped, and draws the draft.
    fn resume(&mut self) {
        let was_stopped = self.is_suspended;
        if !was_stopped && self.saved.is_none() || self.enter_raw_mode().is_err() {
            return;
        }
        if let Some(interface) = &self.interface {
            let change = match was_stopped && !self.is_suspended {
                true => TerminalChange::Resumed,
                false => TerminalChange::Resized,
            };
            // An interface that is gone needs no news.
            _ = interface.changes.send(change);
            return;
        }
        let mut out = self.erase_draft();
        if was_stopped
            && !self.is_suspended
            && let Some(prompt) = &self.prompt
        {
            self.column = column_after(prompt, 0, screen_size().columns);
            out.push_str(prompt);
        }
        out.push_str(&self.draw_draft());
        write_all(OutputStream::Stderr, out.as_bytes());
    }
}

fn move_up(rows: usize) -> String {
    if rows == 0 {
        return String::new();
    }
    format!("\x1b[{rows}A")
}

fn move_right(columns: usize) -> String {
    if columns == 0 {
        return String::new();
    }
    format!("\x1b[{columns}C")
}

/// Returns false if another program has the terminal; changing it would then stop this process.
fn is_foreground() -> bool {
    // A terminal that does not control this process has no foreground.
    tcgetpgrp(stdin()).map_or(true, is_in_process_group)
}

/// Starts the thread that restores the terminal before a signal stops or ends the process.
fn watch_signals(exit: ExitBySignal) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut watched = {
        let _inside = runtime.enter();
        WatchedSignals {
            stop: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
            resize: signal(SignalKind::window_change())?,
            quit: signal(SignalKind::quit())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        }
    };
    std::thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(move || runtime.block_on(watched.watch(exit)))?;
    Ok(())
}

/// The signals that concern the terminal.
struct WatchedSignals {
    stop: Signal,
    resume: Signal,
    resize: Signal,
    quit: Signal,
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl WatchedSignals {
    async fn watch(&mut self, exit: ExitBySignal) {
        loop {
            let ending = tokio::select! {
                _ = self.stop.recv() => {
                    stop_process();
                    continue;
                }
                _ = self.resume.recv() => {
                    lock_screen().resume();
                    continue;
                }
                _ = self.resize.recv() => {
                    lock_screen().resume();
                    continue;
                }
                // No session reacts to it.
                _ = self.quit.recv() => {
                    restore();
                    exit(SignalKind::quit().as_raw_value());
                    continue;
                }
                _ = self.interrupt.recv() => SignalKind::interrupt(),
                _ = self.terminate.recv() => SignalKind::terminate(),
                _ = self.hang_up.recv() => SignalKind::hangup(),
            };
            if !lock_screen().has_session {
                restore();
                exit(ending.as_raw_value());
            }
        }
    }
}

/// Restores the terminal and stops the process.
fn stop_process() {
    // Nobody would continue the first process of a terminal.
    if is_session_leader() {
        return;
    }
    lock_screen().suspend();
    // This thread may run for a moment after this line, so the signal that continues the process
    // restores the terminal, not the code below.
    _ = kill_process(getpid(), rustix::process::Signal::STOP);
}
