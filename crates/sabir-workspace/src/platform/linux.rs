//! Implements the functions of the [module above](super) for Linux.
#![expect(
    unsafe_code,
    reason = "close_range has no safe interface in rustix or the standard library"
)]

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags, RawMode, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, getpid, pidfd_open, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use super::ForkSide;
use crate::sandbox::syscalls::{self, ForkRelation};

pub(crate) use rustix::fs::RawDir;

/// Converts a mode to the system's type.
pub(crate) fn to_mode_bits(bits: u32) -> RawMode {
    bits
}

/// The flag for a handle of a folder that may be searched but not read.
pub(crate) const FOLDER_HANDLE: OFlags = OFlags::PATH;

/// Makes this process the parent of all orphans below it.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Makes the kernel send this process a SIGKILL when its parent dies. Not inherited.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes the memory of this process unreadable for others of the same user, and leaves no core
/// dump. Also makes `/proc/PID/mem` and ptrace unavailable to them.
pub(crate) fn forbid_inspection() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Reverts [`forbid_inspection`].
pub(crate) fn allow_inspection() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Opens a handle that becomes readable when the process ends; `None` on a kernel before 5.3, which
/// has no such handles, and if the process has ended.
pub(crate) fn open_process_handle(pid: Pid) -> Option<OwnedFd> {
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Makes sure that only the three standard descriptors pass to programs started later.
pub(crate) fn close_other_descriptors_on_exec() -> io::Result<()> {
    change_others(libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes every descriptor but the three standard ones. Nothing in this process may own one of them.
pub(crate) fn close_other_descriptors() -> io::Result<()> {
    change_others(0)
}

/// Closes every descriptor but the three standard ones and this one. What owns another one in this process must never be dropped.
pub(crate) fn close_other_descriptors_except(kept: BorrowedFd<'_>) -> io::Result<()> {
    let kept = kept.as_raw_fd().unsigned_abs();
    if kept > 3 {
        change_range(3, kept - 1, 0)?;
    }
    change_range(kept + 1, u32::MAX, 0)
}

fn change_others(flags: libc::c_uint) -> io::Result<()> {
    change_range(3, u32::MAX, flags)
}

fn change_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: close_range takes three integers. It closes nothing in this process with the one
    // flag; without, the caller vouches.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Forks this process, which must have no other threads.
pub(crate) fn fork_process() -> io::Result<ForkSide> {
    syscalls::fork_process(ForkRelation::Child)
}

/// Gives this process a name and arguments of its own. What fails here is only less telling.
pub(crate) fn rename_process(name: &CStr) {
    let _ = rustix::thread::set_name(name);
    let _ = overwrite_arguments(name);
}

/// Overwrites the arguments in the memory of this process, which `/proc/PID/cmdline` shows. Nothing
/// reads them any more.
fn overwrite_arguments(name: &CStr) -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may contain blanks, come fields 3 and following; the arguments are
    // from field 48 to field 49.
    let field = |number: usize| -> Option<u64> {
        let (_, fields) = stat.rsplit_once(')')?;
        fields
            .split_ascii_whitespace()
            .nth(number.checked_sub(3)?)?
            .parse()
            .ok()
    };
    let (Some(start), Some(end)) = (field(48), field(49)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    let mut title = name.to_bytes().to_vec();
    title.resize(length, 0);
    OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")?
        .write_all_at(&title, start)
}

/// Makes the program start in a folder that is entered through its handle, which must stay open
/// until then.
pub(crate) fn enter_folder(command: &mut Command, folder: BorrowedFd<'_>) -> io::Result<()> {
    command.current_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    Ok(())
}

/// Opens a pseudo-terminal: our side and the command's side.
pub(crate) fn open_terminal_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    // Through the master instead of a path: in another mount namespace `/dev/pts/N` may be a
    // different terminal.
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    Ok((ours, theirs))
}

/// Opens a folder below another, without following links. `ENOSYS` and `EPERM` mean that the system
/// cannot do that in one step, `EAGAIN` that something was renamed meanwhile.
pub(crate) fn open_folder_beneath(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// The flag with which received descriptors are closed on exec.
pub(crate) const RECEIVE_CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// The flag with which writing to a closed socket is an error and no signal.
pub(crate) const SEND_WITHOUT_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
