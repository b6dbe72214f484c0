//! Unifies what Linux and macOS offer for processes, terminals and folders.
//!
//! The rest of the crate calls these functions and does not name a system, except in the sandbox,
//! whose two launchers are `sandbox/launch.rs` and `sandbox/seatbelt_launch.rs`, and in
//! `supervise/process_table.rs`. Each function has one implementation per system:
//!
//! | | Linux | macOS |
//! | --- | --- | --- |
//! | [`adopt_orphans`] | subreaper | nothing: orphans are found in the process table (`process_table.rs`) |
//! | [`die_with_parent`] | parent death signal | nothing: the reaper and the agent end what a killed supervisor leaves |
//! | [`open_process_handle`] | pidfd | a kqueue with one `EVFILT_PROC` event |
//! | [`forbid_inspection`], [`allow_inspection`] | the dumpable flag | nothing: the system itself asks for permission to inspect a process |
//! | [`close_other_descriptors_on_exec`] | `close_range` | the flag is set on each descriptor in `/dev/fd` |
//! | [`fork_process`] | `clone` | `fork` |
//! | [`rename_process`] | name and arguments | nothing: `ps` shows the supervisor's arguments |
//! | [`enter_folder`] | `/proc/self/fd` | `fchdir` after the fork |
//! | [`open_terminal_pair`] | `TIOCGPTPEER` | the path of the terminal |
//! | [`open_folder_beneath`] | `openat2` | `ENOSYS`: the caller opens one folder after the other |
//! | [`RawDir`] | `getdents` | `readdir` |
//! | [`FOLDER_HANDLE`] | `O_PATH` | `O_RDONLY` |
//! | [`RECEIVE_CLOSED_ON_EXEC`], [`SEND_WITHOUT_SIGNAL`] | flags of `recvmsg` and `sendmsg` | none |

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    FOLDER_HANDLE, RECEIVE_CLOSED_ON_EXEC, RawDir, SEND_WITHOUT_SIGNAL, adopt_orphans,
    allow_inspection, close_other_descriptors_on_exec, die_with_parent, enter_folder,
    forbid_inspection, fork_process, open_folder_beneath, open_process_handle, open_terminal_pair,
    rename_process, to_mode_bits,
};
#[cfg(target_os = "linux")]
pub(crate) use linux::{close_other_descriptors, close_other_descriptors_except};
#[cfg(target_os = "macos")]
pub(crate) use macos::{
    FOLDER_HANDLE, RECEIVE_CLOSED_ON_EXEC, RawDir, SEND_WITHOUT_SIGNAL, adopt_orphans,
    allow_inspection, close_other_descriptors_on_exec, die_with_parent, enter_folder,
    forbid_inspection, fork_process, open_folder_beneath, open_process_handle, open_terminal_pair,
    rename_process, to_mode_bits,
};

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("Sabir supports Linux and macOS; on Windows, build it in WSL");

use rustix::fs::Mode;
use rustix::process::Pid;

/// The two processes after a fork.
pub(crate) enum ForkSide {
    /// The process that forked; with the new process's id, as seen from here.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Converts a number of a system's struct, whose size differs between systems, to a larger one.
pub(crate) fn widen<T>(number: impl Into<T>) -> T {
    number.into()
}

/// Converts the permission bits of a mode.
pub(crate) fn to_mode(bits: u32) -> Mode {
    Mode::from_raw_mode(to_mode_bits(bits))
}
