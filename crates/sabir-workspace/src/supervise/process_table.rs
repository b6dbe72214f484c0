//! Reads the system's table of processes: `/proc` on Linux, `libproc` and `sysctl` on macOS.
//!
//! On Linux the kernel gives every orphan to the supervisor (see [`crate::supervise`]), so the
//! processes of a command are those below it. macOS gives orphans to launchd. There the table is
//! watched while a command runs, and [`list_orphans`] returns the processes that were seen below
//! the supervisor, or are in a process group of one that was (`family.rs`). A process that founds
//! a group of its own and loses its parent between two looks, which are a fifth of a second apart,
//! is missed; the agent finds it by the command's mark in its environment.

#[cfg(any(target_os = "macos", test))]
#[cfg_attr(
    not(target_os = "macos"),
    allow(dead_code, reason = "used on macOS; its tests run everywhere")
)]
mod family;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    has_environment_entry, is_dead, list_children, list_orphans, list_processes, machine_memory,
    resident_kib, send_signal, shared_resident_kib,
};
#[cfg(target_os = "macos")]
pub(crate) use macos::{
    has_environment_entry, is_dead, list_children, list_orphans, list_processes, machine_memory,
    resident_kib, send_signal, shared_resident_kib,
};
/// True where the kernel gives orphans to the supervisor, and thus reports when none is left.
pub(crate) const ADOPTS_ORPHANS: bool = cfg!(target_os = "linux");
