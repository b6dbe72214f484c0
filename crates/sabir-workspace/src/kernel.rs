//! Wraps the kernel calls that neither the standard library nor rustix offers as safe functions.
#![expect(
    unsafe_code,
    reason = "signal masks, close_range, code between fork and exec, and a terminal's readiness have no safe interface"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;

use rustix::process::{
    Pid, Signal, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid,
};
use rustix::stdio::stdin;
use tokio::io::unix::AsyncFd;

use crate::supervise::OutputDevice;

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
pub(crate) fn unblock_signals() -> io::Result<()> {
    set_signals(AllowedSignals::All)
}

/// Makes sure that only the three standard descriptors pass to programs started later.
pub(crate) fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: close_range takes three integers and, with this flag, closes nothing in this process.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
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
    // SAFETY: an owned descriptor is always the same one, and it is closed only after it was taken
    // out again.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}

/// Gives this process a new session, the terminal at its standard input if it has one, default
/// signal handling, and a SIGKILL when its parent dies. Fails if `parent` is not its parent any
/// more.
pub(crate) fn detach_process(parent: Pid, device: OutputDevice) -> io::Result<()> {
    set_signals(AllowedSignals::All)?;
    setsid()?;
    if device == OutputDevice::Terminal {
        ioctl_tiocsctty(stdin())?;
    }
    // The kernel clears this setting at fork, so it is set in the new process itself.
    set_parent_process_death_signal(Some(Signal::KILL))?;
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
    // old mask is not asked for.
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
