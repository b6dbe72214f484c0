//! Reads processes from `/proc`, and sends signals through process handles.

use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// Returns the children of a process.
pub(crate) fn list_children(pid: Pid) -> Vec<Pid> {
    // By thread: the kernel lists a child under the thread that forked it.
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            // Either the kernel was built without these lists, or the thread just ended.
            Err(_) if !has_children_lists() => return children_by_scan(pid),
            Err(_) => {}
        }
    }
    found
}

/// Returns no process: the kernel makes every orphan a child of this process.
pub(crate) fn list_orphans() -> Vec<Pid> {
    Vec::new()
}

/// Returns all processes of the machine.
pub(crate) fn list_processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_pid(entry.file_name().to_str()?))
}

/// Returns true for a process that has ended and was not reaped yet.
pub(crate) fn is_dead(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_zombie(&stat))
}

/// Returns true if a process has this environment entry. A zombie has an empty environment, so it
/// does not count.
pub(crate) fn has_environment_entry(pid: Pid, entry: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.split(|&byte| byte == 0).any(|one| one == entry))
}

/// Returns the memory that a process uses, in KiB.
pub(crate) fn resident_kib(pid: Pid) -> u64 {
    read_field(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or(0)
}

/// Returns the memory that a process uses, in KiB, with only its share of what several use. Slow;
/// `None` if the kernel does not report it.
pub(crate) fn shared_resident_kib(pid: Pid) -> Option<u64> {
    read_field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the memory of the machine, in KiB.
pub(crate) fn machine_memory() -> Option<u64> {
    read_field("/proc/meminfo", "MemTotal:")
}

/// Sends a signal through a process handle, after checking that the handle belongs to the intended
/// process, a child of `parent`: its number may have been reused.
pub(crate) fn send_signal(pid: Pid, parent: Pid, signal: Signal) -> Result<(), Errno> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Checked after opening: the handle now refers to this process, even if its number is
        // reused.
        Ok(handle) => {
            let found = parent_of(pid).ok_or(Errno::SRCH)?;
            // Orphans are adopted by the supervisor.
            if found != parent && found != getpid() {
                return Err(Errno::SRCH);
            }
            pidfd_send_signal(&handle, signal)
        }
        Err(Errno::NOSYS) => kill_process(pid, signal),
        Err(error) => Err(error),
    }
}

fn has_children_lists() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

fn children_by_scan(pid: Pid) -> Vec<Pid> {
    list_processes()
        .filter(|&child| parent_of(child) == Some(pid))
        .collect()
}

/// Returns the parent of a process: the second field after the name, which may itself contain
/// blanks and parentheses.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    parse_pid(fields.split_ascii_whitespace().nth(1)?)
}

/// Returns true if the state, the first field after the name, is that of a dead process.
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}

/// Reads a number from a file with lines of the form `NAME NUMBER`.
fn read_field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}
