//! Restores the terminal after this process was killed by SIGKILL, which no process can do for
//! itself.
//!
//! A copy of this program holds the reading end of a pipe. When the pipe ends while the terminal is changed, the
//! writer is dead, and the copy restores what it can. It does nothing in every other case, and ends with the writer.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp,
    tcsetattr, ttyname,
};

use crate::kernel;

use crate::supervise::ARGUMENT;

/// The argument after [`ARGUMENT`] that starts the copy.
pub(crate) const MODE: &str = "terminal-guard";

/// The byte that says that the terminal is changed.
const CHANGED: u8 = b'+';
/// The byte that says that it is as it was.
const RESTORED: u8 = b'-';

/// The time for a shell to take the terminal back, which then restores the modes by itself.
const SHELL_TIME: Duration = Duration::from_millis(100);

/// Ends what a shell does not know about: reports of the focus, a hidden cursor, colours.
const RESET: &str = "\x1b[?1004l\x1b[?25h\x1b[0m";
/// Ends the marking of pastes, and begins a line. A shell that has the terminal may have switched marking on for itself.
const RESET_PASTES: &str = "\x1b[?2004l\r\n";

/// The special codes that raw mode changes.
const CODES: [SpecialCodeIndex; 3] = [
    SpecialCodeIndex::VINTR,
    SpecialCodeIndex::VMIN,
    SpecialCodeIndex::VTIME,
];

/// A copy of this program that restores the terminal if this process is killed.
#[derive(Debug)]
pub struct TerminalGuard {
    process: Child,
    pipe: Option<PipeWriter>,
}

/// A lock of the terminal, held by each interface that has changed it. A guard restores nothing
/// while the lock is held, because the next interface may have begun already.
#[derive(Debug)]
pub struct TerminalLock(#[expect(dead_code, reason = "it is held, not used")] OwnedFd);

impl TerminalLock {
    /// Takes the lock of the terminal at standard output.
    ///
    /// # Errors
    /// Standard output is no terminal, or its name is not known here.
    pub fn take() -> io::Result<Self> {
        Ok(Self::open(FlockOperation::LockShared)?)
    }

    fn open(operation: FlockOperation) -> Result<Self, Errno> {
        let name = ttyname(io::stdout(), Vec::new())?;
        // Opened again: a lock belongs to the open file description, which all copies of a
        // descriptor share, also the shell's.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name, flags, Mode::empty())?;
        flock(&terminal, operation)?;
        Ok(Self(terminal))
    }
}

/// The order that a guard gets as its arguments.
#[derive(Debug, PartialEq, Eq)]
struct GuardArguments {
    /// The process group of the writer, while it has the terminal.
    group: i32,
    input_modes: libc::tcflag_t,
    local_modes: libc::tcflag_t,
    codes: [u8; CODES.len()],
}

impl TerminalGuard {
    /// Starts the copy, for a terminal that is changed already. `helper` is this program, as for [`crate::ShellCommand`]; the terminal
    /// is standard output, and `saved` are its settings from before it was changed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(helper: &Path, saved: &Termios) -> io::Result<Self> {
        let order = GuardArguments {
            group: kernel::process_group(),
            input_modes: saved.input_modes.bits(),
            local_modes: saved.local_modes.bits(),
            codes: CODES.map(|code| saved.special_codes[code]),
        };
        let (states, mut pipe) = io::pipe()?;
        // Before the start: this process may be killed right after it.
        pipe.write_all(&[CHANGED])?;
        let process = Command::new(helper)
            .args([ARGUMENT, MODE])
            .args(order.to_words())
            .env_clear()
            .stdin(states)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            pipe: Some(pipe),
        })
    }

    /// Tells the copy whether the terminal is changed at present.
    ///
    /// # Errors
    /// The copy has ended.
    pub fn set_changed(&mut self, is_changed: bool) -> io::Result<()> {
        let byte = if is_changed { CHANGED } else { RESTORED };
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(&[byte]),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // Else it would take the end of the pipe for a death, and the wait would never end.
        _ = self.set_changed(false);
        self.pipe = None;
        _ = self.process.wait();
    }
}

impl GuardArguments {
    fn to_words(&self) -> Vec<String> {
        let mut words = vec![
            self.group.to_string(),
            self.input_modes.to_string(),
            self.local_modes.to_string(),
        ];
        words.extend(self.codes.iter().map(u8::to_string));
        words
    }

    fn from_words(words: &[OsString]) -> Option<Self> {
        let words: Vec<&str> = words
            .iter()
            .map(|word| word.to_str())
            .collect::<Option<_>>()?;
        let [group, input_modes, local_modes, first, second, third] = words[..] else {
            return None;
        };
        Some(Self {
            group: group.parse().ok()?,
            input_modes: input_modes.parse().ok()?,
            local_modes: local_modes.parse().ok()?,
            codes: [
                first.parse().ok()?,
                second.parse().ok()?,
                third.parse().ok()?,
            ],
        })
    }
}

/// Waits for the end of the writer, and restores the terminal at standard output if that is needed.
pub(crate) fn run_guard(words: &[OsString]) -> ExitCode {
    let Some(order) = GuardArguments::from_words(words) else {
        return ExitCode::from(2);
    };
    // Whatever the writer has inherited from its own parent may be waited for elsewhere.
    #[cfg(target_os = "linux")]
    let _ = crate::platform::close_other_descriptors();
    if !is_changed_at_end(io::stdin().lock()) {
        return ExitCode::SUCCESS;
    }
    std::thread::sleep(SHELL_TIME);
    let lock = TerminalLock::open(FlockOperation::NonBlockingLockExclusive);
    if matches!(lock, Err(Errno::WOULDBLOCK)) {
        return ExitCode::SUCCESS;
    }
    let terminal = io::stdout();
    let holder = tcgetpgrp(&terminal)
        .ok()
        .map(|group: Pid| group.as_raw_nonzero().get());
    // A group of an outer PID namespace has no number here, and is an error as the holder.
    let mut reset = RESET.to_owned();
    if holder.is_none_or(|holder| holder == order.group) || is_still_raw(&terminal) {
        // Else the change would stop this process where another group has the terminal.
        let _ = kernel::block_signals();
        restore_modes(&terminal, &order);
        reset.push_str(RESET_PASTES);
    }
    // Fails only if the terminal is gone.
    let mut terminal = terminal.lock();
    _ = terminal.write_all(reset.as_bytes());
    _ = terminal.flush();
    ExitCode::SUCCESS
}

/// Reads states until the end. Returns true if the last one is that the terminal is changed.
fn is_changed_at_end(mut pipe: impl Read) -> bool {
    let mut is_changed = false;
    let mut byte = [0];
    loop {
        match pipe.read(&mut byte) {
            Ok(0) => return is_changed,
            Ok(_) => is_changed = byte == [CHANGED],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Returns true if the interrupt key is off, as interfaces set it and line editors of shells do not. Some shells take the terminal back
/// without restoring its modes.
fn is_still_raw(terminal: &io::Stdout) -> bool {
    tcgetattr(terminal).is_ok_and(|settings| {
        !settings
            .local_modes
            .intersects(LocalModes::ICANON | LocalModes::ECHO)
            && settings.special_codes[SpecialCodeIndex::VINTR] == 0
    })
}

fn restore_modes(terminal: &io::Stdout, order: &GuardArguments) {
    let Ok(mut settings) = tcgetattr(terminal) else {
        return;
    };
    settings.input_modes = InputModes::from_bits_retain(order.input_modes);
    settings.local_modes = LocalModes::from_bits_retain(order.local_modes);
    for (code, value) in CODES.into_iter().zip(order.codes) {
        settings.special_codes[code] = value;
    }
    _ = tcsetattr(terminal, OptionalActions::Now, &settings);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let order = GuardArguments {
            group: 77,
            input_modes: 0x500,
            local_modes: 0x8a3b,
            codes: [3, 1, 0],
        };
        let words: Vec<OsString> = order.to_words().into_iter().map(Into::into).collect();
        assert_eq!(GuardArguments::from_words(&words), Some(order));
        assert_eq!(GuardArguments::from_words(&words[1..]), None);
        assert_eq!(GuardArguments::from_words(&[]), None);
    }

    #[test]
    fn the_last_state_counts() {
        for (states, is_changed) in [("", false), ("+", true), ("+-", false), ("+-+", true)] {
            assert_eq!(is_changed_at_end(states.as_bytes()), is_changed, "{states}");
        }
    }
}
