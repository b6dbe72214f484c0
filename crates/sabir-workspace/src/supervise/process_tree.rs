//! Finds the processes below this one in `/proc`, and sends them signals.

use std::collections::HashSet;
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// The number of rounds in which a freeze searches for newly born processes.
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
    let is_dead = |pid: Pid| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_zombie(&stat))
    };
    list_descendants()
        .into_iter()
        .filter(|below| !is_dead(below.pid))
        .count()
}

/// Returns true if the processes below this one use more than `limit_kib` KiB of memory. Shared
/// memory counts once if the kernel reports it; that report is slow, so it is requested only if the
/// plain sum is too high.
pub(crate) fn exceeds_memory(limit_kib: u64) -> bool {
    let all = list_descendants();
    let plain = |pid: Pid| read_field(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or(0);
    if all.iter().map(|below| plain(below.pid)).sum::<u64>() <= limit_kib {
        return false;
    }
    let fair = |pid: Pid| {
        read_field(&format!("/proc/{pid}/smaps_rollup"), "Pss:").unwrap_or_else(|| plain(pid))
    };
    all.iter().map(|below| fair(below.pid)).sum::<u64>() > limit_kib
}

/// Returns the memory of the machine, in KiB.
pub(crate) fn machine_memory() -> Option<u64> {
    read_field("/proc/meminfo", "MemTotal:")
}

/// Reads a number from a file with lines of the form `NAME NUMBER`.
fn read_field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns true if the state, the first field after the name, is that of a dead process.
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}

/// Sends a signal to each process that still exists.
pub(crate) fn signal_all(targets: &[Descendant], signal: Signal) {
    for target in targets {
        // A process that has ended needs no signal, and one of another user cannot be reached; it
        // is counted as a survivor in the end.
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
        // Repeats until a round finds nobody new: then everything is stopped and nothing can fork
        // any more.
        signal_all(&fresh, Signal::STOP);
        stopped.extend(fresh);
    }
    signal_all(&stopped, Signal::KILL);
}

/// Kills every process whose environment contains this entry, anywhere in the process tree. Used if
/// the supervisor itself was killed. Bounded by the number of processes on the machine.
pub(crate) fn kill_marked(name: &str, value: &str) {
    let entry = format!("{name}={value}").into_bytes();
    // Repeated, because a process may fork between listing and killing.
    for _ in 0..MAX_FREEZE_ROUNDS {
        let marked: Vec<Pid> = list_processes()
            .filter(|&pid| pid != getpid() && is_marked(pid, &entry))
            .collect();
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns true if a process has this environment entry. A zombie has an empty environment, so it
/// does not count.
fn is_marked(pid: Pid, entry: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.split(|&byte| byte == 0).any(|one| one == entry))
}

/// Sends a signal through a process handle, after checking that the handle belongs to the intended
/// process: its number may have been reused.
fn send_signal(target: Descendant, signal: Signal) -> Result<(), Errno> {
    match pidfd_open(target.pid, PidfdFlags::empty()) {
        Ok(handle) => {
            let parent = parent_of(target.pid).ok_or(Errno::SRCH)?;
            // Orphans are adopted by the supervisor.
            if parent != target.parent && parent != getpid() {
                return Err(Errno::SRCH);
            }
            pidfd_send_signal(&handle, signal)
        }
        Err(Errno::NOSYS) => kill_process(target.pid, signal),
        Err(error) => Err(error),
    }
}

fn list_children(pid: Pid) -> Vec<Descendant> {
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
        .into_iter()
        .map(|child| Descendant {
            pid: child,
            parent: pid,
        })
        .collect()
}

fn has_children_lists() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

fn children_by_scan(pid: Pid) -> Vec<Descendant> {
    list_processes()
        .filter(|&child| parent_of(child) == Some(pid))
        .map(|child| Descendant {
            pid: child,
            parent: pid,
        })
        .collect()
}

fn list_processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_pid(entry.file_name().to_str()?))
}

/// Returns the parent of a process: the second field after the name, which may itself contain
/// blanks and parentheses.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    parse_pid(fields.split_ascii_whitespace().nth(1)?)
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted() {
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
