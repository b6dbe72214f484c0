//! Implements the functions of the [module above](super) for macOS.
//!
//! CI compiles this file, but we have not run it yet.
#![expect(
    unsafe_code,
    reason = "fork, fchdir between fork and exec, descriptor flags and kevent have no safe interface"
)]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue};
use rustix::fs::{Dir, DirEntry, Mode, OFlags, RawMode};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::ForkSide;

/// Does nothing: macOS gives orphans to launchd. The process table is watched instead, see
/// `supervise/process_table/macos.rs`.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as on Linux, where it can fail"
)]
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Does nothing: macOS has no such signal. If the supervisor is killed, the reaper ends the
/// command, and the agent ends every process that has the command's mark.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as on Linux, where it can fail"
)]
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// Does nothing: macOS lets no process inspect another of the same user without an entitlement.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as on Linux, where it can fail"
)]
pub(crate) fn forbid_inspection() -> io::Result<()> {
    Ok(())
}

/// Does nothing, as [`forbid_inspection`] does.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as on Linux, where it can fail"
)]
pub(crate) fn allow_inspection() -> io::Result<()> {
    Ok(())
}

/// Opens a kernel queue that becomes readable when the process ends; `None` if it has ended.
pub(crate) fn open_process_handle(pid: Pid) -> Option<OwnedFd> {
    let queue = kqueue().ok()?;
    let ended = Event::new(
        EventFilter::Proc {
            pid,
            flags: ProcessEvents::EXIT,
        },
        EventFlags::ADD | EventFlags::ONESHOT,
        std::ptr::null_mut(),
    );
    let mut none: [Event; 0] = [];
    // SAFETY: the event names a process, no descriptor that could be closed while it is registered.
    unsafe { kevent(&queue, &[ended], &mut none[..], Some(Duration::ZERO)) }.ok()?;
    Some(queue)
}

/// Makes sure that only the three standard descriptors pass to programs started later.
pub(crate) fn close_other_descriptors_on_exec() -> io::Result<()> {
    // Collected first, since the list itself is read through a descriptor.
    let open: Vec<i32> = std::fs::read_dir("/dev/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in open {
        // SAFETY: the call only sets a flag, and fails for a number that is not open.
        let _ = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Forks this process, which must have no other threads.
pub(crate) fn fork_process() -> io::Result<ForkSide> {
    // SAFETY: with one thread there is no lock that another could hold in the copy.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid @ 1.. => Pid::from_raw(pid)
            .map(ForkSide::Parent)
            .ok_or_else(io::Error::last_os_error),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does nothing: macOS shows a process by its arguments, which the kernel stores. Killing the
/// supervisor by its command line therefore also kills the reaper.
pub(crate) fn rename_process(_name: &CStr) {}

/// Makes the program start in a folder that is entered through its handle.
pub(crate) fn enter_folder(command: &mut Command, folder: BorrowedFd<'_>) -> io::Result<()> {
    let folder = folder.try_clone_to_owned()?;
    // SAFETY: fchdir is async-signal-safe, the closure allocates nothing, and it owns the
    // descriptor that it uses.
    unsafe {
        command.pre_exec(move || Ok(rustix::process::fchdir(&folder)?));
    }
    Ok(())
}

/// Opens a pseudo-terminal: our side and the command's side.
pub(crate) fn open_terminal_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    // Not at once, as on Linux: a program that another thread starts in this moment inherits it.
    fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let path = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(path, flags, Mode::empty())?;
    Ok((ours, theirs))
}

/// Returns `ENOSYS`: macOS cannot open a folder below another without following links in one step.
pub(crate) fn open_folder_beneath(_root: BorrowedFd<'_>, _path: &Path) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Converts a mode to the system's type, which has 16 bits, as modes have.
pub(crate) fn to_mode_bits(bits: u32) -> RawMode {
    RawMode::try_from(bits & 0xffff).unwrap_or_default()
}

/// No flag: a folder is opened for reading, so one that may only be searched is not opened.
pub(crate) const FOLDER_HANDLE: OFlags = OFlags::RDONLY;

/// The entries of a folder, read with `readdir`.
pub(crate) struct RawDir(Result<Dir, Errno>);

impl RawDir {
    /// Starts reading; `buffer` is what the implementation for Linux reads into.
    pub(crate) fn new(folder: impl AsFd, _buffer: &mut [MaybeUninit<u8>]) -> Self {
        Self(Dir::read_from(folder))
    }

    /// Returns the next entry, in no particular order.
    pub(crate) fn next(&mut self) -> Option<Result<DirEntry, Errno>> {
        match &mut self.0 {
            Ok(folder) => folder.read(),
            Err(error) => Some(Err(*error)),
        }
    }
}

/// No flag: [`close_other_descriptors_on_exec`] marks received descriptors.
pub(crate) const RECEIVE_CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

/// No flag: programs in Rust ignore the signal.
pub(crate) const SEND_WITHOUT_SIGNAL: SendFlags = SendFlags::empty();
