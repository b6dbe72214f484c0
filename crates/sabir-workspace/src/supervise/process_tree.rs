//! Finds the processes below this one, and sends them signals.

use std::collections::HashSet;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::process_table;
use crate::platform;

pub(crate) use super::process_table::machine_memory;

/// The number of children whose ends are waited for.
const MAX_WAITED: usize = 16;
/// The number of rounds in which a freeze searches for new processes.
const MAX_FREEZE_ROUNDS: usize = 64;

/// A process, with the parent under which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descendant {
    pub(crate) pid: Pid,
    parent: Pid,
}

/// Returns every process below this one, parents first. Processes that come and go meanwhile may be
/// missing, so callers ask repeatedly.
pub(crate) fn list_descendants() -> Vec<Descendant> {
    let mut found: Vec<Descendant> = list_children(getpid());
    let mut known: HashSet<Pid> = found.iter().map(|below| below.pid).collect();
    let mut next = 0;
    // Breadth first over the growing list, so parents come before their children.
    while let Some(&Descendant { pid, .. }) = found.get(next) {
        next += 1;
        found.extend(
            list_children(pid)
                .into_iter()
                .filter(|below| known.insert(below.pid)),
        );
    }
    found
}

/// Counts the processes below this one that run or could run; zombies do not count.
pub(crate) fn count_running() -> usize {
    list_descendants()
        .into_iter()
        .filter(|below| !process_table::is_dead(below.pid))
        .count()
}

/// Returns true if the processes below this one use more than `limit_kib` KiB of memory. Shared
/// memory counts once if the kernel reports it; that report is slow, so it is requested only if the
/// plain sum is too high.
pub(crate) fn exceeds_memory(limit_kib: u64) -> bool {
    let all = list_descendants();
    let plain = process_table::resident_kib;
    if all.iter().map(|below| plain(below.pid)).sum::<u64>() <= limit_kib {
        return false;
    }
    let fair = |pid: Pid| process_table::shared_resident_kib(pid).unwrap_or_else(|| plain(pid));
    all.iter().map(|below| fair(below.pid)).sum::<u64>() > limit_kib
}

/// Returns true if a process has lost its parent and the kernel did not make it a child of this
/// one. Never on Linux.
pub(crate) fn has_orphans() -> bool {
    !process_table::list_orphans().is_empty()
}

/// Reads the process table where orphans must be tracked; does nothing where the kernel reparents
/// them to the supervisor.
pub(crate) fn note_orphans() {
    if !process_table::ADOPTS_ORPHANS {
        let _ = process_table::list_orphans();
    }
}

/// Sends a signal to each process that still exists.
pub(crate) fn signal_all(targets: &[Descendant], signal: Signal) {
    for target in targets {
        // A process that has ended needs no signal, and one of another user cannot be signalled; it
        // is counted as a survivor at the end.
        let _ = send_signal(*target, signal);
    }
}

/// Stops every descendant before killing any: a stopped process cannot fork, so nothing escapes
/// between listing and killing.
pub(crate) fn kill_all() {
    let mut stopped: Vec<Descendant> = Vec::new();
    let mut known: HashSet<Pid> = HashSet::new();
    for _ in 0..MAX_FREEZE_ROUNDS {
        let fresh: Vec<Descendant> = list_descendants()
            .into_iter()
            .filter(|below| known.insert(below.pid))
            .collect();
        if fresh.is_empty() {
            break;
        }
        // Repeats until a round finds no new process: then everything is stopped and nothing can
        // fork any more.
        signal_all(&fresh, Signal::STOP);
        stopped.extend(fresh);
    }
    signal_all(&stopped, Signal::KILL);
}

/// Returns true if there are more than `most` processes below this one, without counting all.
pub(crate) fn exceeds_count(most: usize) -> bool {
    let mut count = 0;
    let mut open = vec![getpid()];
    while let Some(pid) = open.pop() {
        let children = list_children(pid);
        count += children.len();
        if count > most {
            return true;
        }
        open.extend(children.into_iter().map(|child| child.pid));
    }
    false
}

/// Waits until one of the children of this process has ended, or the time has passed.
pub(super) fn wait_for_child(time: Duration) {
    let children = list_children(getpid());
    let handles: Vec<_> = children
        .iter()
        .take(MAX_WAITED)
        .filter_map(|child| platform::open_process_handle(child.pid))
        .collect();
    let mut waited: Vec<_> = handles
        .iter()
        .map(|handle| PollFd::new(handle, PollFlags::IN))
        .collect();
    // Without handles this is a pause.
    let _ = poll(&mut waited, Timespec::try_from(time).ok().as_ref());
}

/// Kills the children of this process. One of them is the first process of a PID namespace, if there
/// is one, and the kernel ends all others of the namespace with it, including those that are just being
/// started.
pub(crate) fn kill_children() {
    signal_all(&list_children(getpid()), Signal::KILL);
}

/// Kills the children of the process with this number.
pub(crate) fn kill_children_of(parent: u32) {
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    for child in parent.map(list_children).unwrap_or_default() {
        let _ = kill_process(child.pid, Signal::KILL);
    }
}

/// Kills every process whose environment contains this entry, anywhere in the process tree. Used if
/// the supervisor itself was killed. Bounded by the number of processes on the machine.
pub(crate) fn kill_by_environment_entry(name: &str, value: &str) {
    let entry = format!("{name}={value}").into_bytes();
    // Repeated, because a process may fork between listing and killing.
    for _ in 0..MAX_FREEZE_ROUNDS {
        let marked: Vec<Pid> = process_table::list_processes()
            .filter(|&pid| pid != getpid() && process_table::has_environment_entry(pid, &entry))
            .collect();
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Sends a signal, after checking that the number still belongs to this process.
fn send_signal(target: Descendant, signal: Signal) -> Result<(), Errno> {
    process_table::send_signal(target.pid, target.parent, signal)
}

/// Returns the processes directly below one; below this process, also those that lost their parent.
fn list_children(pid: Pid) -> Vec<Descendant> {
    let mut found = process_table::list_children(pid);
    if pid == getpid() {
        found.extend(process_table::list_orphans());
    }
    found
        .into_iter()
        .map(|child| Descendant {
            pid: child,
            parent: pid,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_are_compared() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        assert!(exceeds_memory(0) && !exceeds_memory(u64::MAX));
        assert!(machine_memory().unwrap() > 1024);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
