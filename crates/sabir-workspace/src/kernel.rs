//! Wraps the kernel calls that neither the standard library nor rustix offers as safe functions.
#![expect(
    unsafe_code,
    reason = "signal masks, code between fork and exec, and a terminal's readiness have no safe interface"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;

use rustix::process::{Pid, getpid, getppid, ioctl_tiocsctty, setsid};
use rustix::stdio::stdin;
use tokio::io::unix::AsyncFd;

use crate::platform;
use crate::supervise::OutputDevice;

/// The highest signal number, real-time signals included (signal(7)).
const LAST_SIGNAL: i32 = 64;

/// The signals that reach this process.
#[derive(Clone, Copy)]
enum AllowedSignals {
    All,
    /// None except SIGKILL and SIGSTOP, which cannot be blocked.
    None,
}

/// Blocks every signal that can be blocked, whatever mask was inherited.
pub(crate) fn block_signals() -> io::Result<()> {
    set_signals(AllowedSignals::None)
}

/// Reverts [`block_signals`].
#[cfg(target_os = "linux")]
pub(crate) fn unblock_signals() -> io::Result<()> {
    set_signals(AllowedSignals::All)
}

/// Starts a program in a new session, without a terminal except the one given as its standard
/// input, with default signal handling. It dies when the calling thread does.
pub(crate) fn spawn_detached(command: &mut Command, device: OutputDevice) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
    // allowed; it makes plain system calls and calls sigfillset and its like, and allocates
    // nothing.
    unsafe { command.pre_exec(move || detach_process(parent, device)) };
    command.spawn()
}

/// Registers a non-blocking descriptor with the async runtime. Needs a runtime.
pub(crate) fn register_fd(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor always has the same number, and it is closed only after it is
    // deregistered.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}

/// Gives this process a new session, the terminal at its standard input if it has one, default
/// signal handling, and a SIGKILL when its parent dies. Fails if `parent` is not its parent any
/// more.
pub(crate) fn detach_process(parent: Pid, device: OutputDevice) -> io::Result<()> {
    set_signals(AllowedSignals::All)?;
    // A session of its own has no controlling terminal, so it can neither read keys nor get
    // signals.
    setsid()?;
    if device == OutputDevice::Terminal {
        // Only a session leader without a terminal can take one, hence after setsid.
        ioctl_tiocsctty(stdin())?;
    }
    // The kernel clears this setting at fork, so it is set in the new process itself.
    platform::die_with_parent()?;
    // The parent may have died before the line above; then nothing would ever send the signal.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Resets every signal to its default handling, since a parent may have handed down ignored ones,
/// and sets the mask.
fn set_signals(wanted: AllowedSignals) -> io::Result<()> {
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: SIG_DFL is always a valid disposition; for SIGKILL, SIGSTOP and the C library's
        // own the call fails harmlessly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset and sigemptyset initialise the set that pthread_sigmask then reads; the
    // null pointer declines the old mask.
    let error = unsafe {
        match wanted {
            AllowedSignals::All => libc::sigemptyset(mask.as_mut_ptr()),
            AllowedSignals::None => libc::sigfillset(mask.as_mut_ptr()),
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut())
    };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Returns true if this process is the first of its session.
///
/// False where the first process is in an outer PID namespace, as in some containers. The kernel then numbers the session 0, which
/// rustix's `getsid` cannot represent.
pub fn is_session_leader() -> bool {
    // SAFETY: neither call takes a pointer.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Returns true if this process belongs to the process group of this number.
pub fn is_in_process_group(group: Pid) -> bool {
    process_group() == group.as_raw_nonzero().get()
}

/// Returns the number of this process's group. A group of an outer PID namespace has the number 0, which rustix's `getpgrp` cannot
/// represent.
pub(crate) fn process_group() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::getpgrp() }
}

/// Returns true if each PID namespace has its own limit of processes (Linux 6.14). Before, the same
/// file sets the limit of the whole machine.
pub(crate) fn has_process_limit_per_namespace() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .is_ok_and(|release| is_at_least(&release, [6, 14]))
}

/// Compares the first two numbers of a kernel release.
fn is_at_least(release: &str, least: [u32; 2]) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= least
}

#[cfg(test)]
mod tests {
    use super::is_at_least;

    #[test]
    fn kernel_releases_are_compared() {
        assert!(is_at_least("6.14.0-generic", [6, 14]));
        assert!(is_at_least("7.0", [6, 14]));
        assert!(!is_at_least("6.8.0-45", [6, 14]));
        assert!(!is_at_least("", [6, 14]));
    }
}
