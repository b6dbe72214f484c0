//! Reads processes with `libproc` and `sysctl`, and keeps track of orphans.
//!
//! CI compiles this file, but we have not run it yet.
#![expect(unsafe_code, reason = "libproc and sysctl have no safe interface")]

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, size_of};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::family::{ProcessFamily, ProcessRow, environment_entries};

/// The processes below this one. A supervisor, and a reaper, has one command and one thread.
static FAMILY: Mutex<Option<ProcessFamily>> = Mutex::new(None);

/// The number of processes that may start while the table is read.
const SPARE_ROWS: usize = 64;
/// The state of a process that has ended, in `proc_bsdinfo`.
const ZOMBIE: u32 = libc::SZOMB;

/// Returns the children of a process.
pub(crate) fn list_children(pid: Pid) -> Vec<Pid> {
    read_table()
        .into_iter()
        .filter(|row| row.parent == Some(pid))
        .map(|row| row.pid)
        .collect()
}

/// Reads the process table, and returns the processes of the family that are no longer below this
/// process.
pub(crate) fn list_orphans() -> Vec<Pid> {
    let root = getpid();
    let table = read_table();
    let mut family = FAMILY.lock().unwrap_or_else(PoisonError::into_inner);
    let members = family
        .get_or_insert_with(ProcessFamily::default)
        .observe(root, &table);
    // Those whose parent is in the family are found below it.
    let is_below = |row: &ProcessRow| {
        row.parent == Some(root) || members.iter().any(|other| row.parent == Some(other.pid))
    };
    members
        .iter()
        .filter(|row| !is_below(row) && !is_dead(row.pid))
        .map(|row| row.pid)
        .collect()
}

/// Returns all processes of the machine.
pub(crate) fn list_processes() -> impl Iterator<Item = Pid> {
    // SAFETY: without a buffer the call only returns a number.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    let mut numbers = vec![0_i32; usize::try_from(count).unwrap_or(0) + SPARE_ROWS];
    let bytes = c_int::try_from(numbers.len() * size_of::<i32>()).unwrap_or(c_int::MAX);
    // SAFETY: the buffer has that many bytes, and the kernel writes whole numbers into it.
    let count = unsafe { libc::proc_listallpids(numbers.as_mut_ptr().cast::<c_void>(), bytes) };
    numbers.truncate(usize::try_from(count).unwrap_or(0));
    numbers.into_iter().filter_map(Pid::from_raw)
}

/// Returns true for a process that has ended and was not reaped yet.
pub(crate) fn is_dead(pid: Pid) -> bool {
    read_info(pid).is_some_and(|info| info.pbi_status == ZOMBIE)
}

/// Returns true if a process has this environment entry. macOS does not show the environment of
/// its own programs, nor that of other users'.
pub(crate) fn has_environment_entry(pid: Pid, entry: &[u8]) -> bool {
    read_arguments(pid).is_some_and(|bytes| environment_entries(&bytes).any(|one| one == entry))
}

/// Returns the memory that a process uses, in KiB.
pub(crate) fn resident_kib(pid: Pid) -> u64 {
    let info: Option<libc::proc_taskinfo> = read_process(pid, libc::PROC_PIDTASKINFO);
    info.map_or(0, |info| info.pti_resident_size / 1024)
}

/// Returns `None`: macOS does not report it.
pub(crate) fn shared_resident_kib(_pid: Pid) -> Option<u64> {
    None
}

/// Returns the memory of the machine, in KiB.
pub(crate) fn machine_memory() -> Option<u64> {
    let mut bytes = 0_u64;
    let mut length = size_of::<u64>();
    // SAFETY: the value is a number of 64 bits, and `length` is the size of the buffer.
    let done = unsafe {
        libc::sysctlbyname(
            c"hw.memsize".as_ptr(),
            (&raw mut bytes).cast::<c_void>(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    (done == 0 && length == size_of::<u64>()).then_some(bytes / 1024)
}

/// Sends a signal to a process, after checking that it is a child of `parent` or an orphan: its
/// number may have been reused. macOS has no handles of processes, so it may still be reused between
/// the two.
pub(crate) fn send_signal(pid: Pid, parent: Pid, signal: Signal) -> Result<(), Errno> {
    let found = read_info(pid).ok_or(Errno::SRCH)?;
    let found = i32::try_from(found.pbi_ppid).ok().and_then(Pid::from_raw);
    if found != Some(parent) && found != Some(getpid()) && found != Some(Pid::INIT) {
        return Err(Errno::SRCH);
    }
    kill_process(pid, signal)
}

fn read_table() -> Vec<ProcessRow> {
    let to_pid = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw);
    list_processes()
        .filter_map(|pid| {
            let info = read_info(pid)?;
            Some(ProcessRow {
                pid,
                parent: to_pid(info.pbi_ppid),
                group: to_pid(info.pbi_pgid),
                started: info
                    .pbi_start_tvsec
                    .saturating_mul(1_000_000)
                    .saturating_add(info.pbi_start_tvusec),
            })
        })
        .collect()
}

fn read_info(pid: Pid) -> Option<libc::proc_bsdinfo> {
    read_process(pid, libc::PROC_PIDTBSDINFO)
}

/// Asks for a description of a process. `flavor` must be the one whose answer is a `T`.
fn read_process<T>(pid: Pid, flavor: c_int) -> Option<T> {
    let mut info = MaybeUninit::<T>::zeroed();
    let size = c_int::try_from(size_of::<T>()).ok()?;
    // SAFETY: the buffer has `size` bytes. All callers ask for structs of numbers, for which any
    // bytes are valid.
    unsafe {
        let read = libc::proc_pidinfo(
            pid.as_raw_pid(),
            flavor,
            0,
            info.as_mut_ptr().cast::<c_void>(),
            size,
        );
        (read == size).then(|| info.assume_init())
    }
}

/// Returns the arguments and the environment of a process, as the kernel keeps them.
fn read_arguments(pid: Pid) -> Option<Vec<u8>> {
    let mut most: c_int = 0;
    let mut length = size_of::<c_int>();
    let mut name = [libc::CTL_KERN, libc::KERN_ARGMAX];
    // SAFETY: the name has two numbers, the value is a number, and `length` is its size.
    let done = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            2,
            (&raw mut most).cast::<c_void>(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    let mut bytes = vec![0; usize::try_from(most).ok().filter(|_| done == 0)?];
    let mut length = bytes.len();
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid.as_raw_pid()];
    // SAFETY: the name has three numbers, and the kernel writes at most `length` bytes.
    let done = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            3,
            bytes.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    bytes.truncate(length);
    (done == 0).then_some(bytes)
}
