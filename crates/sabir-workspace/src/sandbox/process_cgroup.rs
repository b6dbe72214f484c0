//! Limits the number of a command's processes with a control group, where one can be made.
//!
//! The limit of resources does not hold for root, and counts all processes of any other user. A PID
//! namespace has a limit of its own (`mounts.rs`), so this is for level 1 and for older kernels. A
//! group also finds every process, whatever it did to its parents.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::random_path;

/// The prefix of the groups' names.
pub(super) const START: &str = "sabir-";
/// The age at which an empty group counts as left by a killed supervisor.
const STALE: Duration = Duration::from_secs(60);

/// A control group for the processes of one command, removed in the end.
#[derive(Debug)]
pub(crate) struct ProcessCgroup(PathBuf);

impl ProcessCgroup {
    /// Creates a group with a limit, beside or below that of this process; `None` where that is not
    /// allowed, or the controller is missing.
    pub(super) fn create(limit: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let parents = own
            .lines()
            .flat_map(|line| candidate_parents(line, &mounts));
        for parent in parents {
            remove_stale(&parent);
            let folder = random_path(&parent, START);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self(folder);
            if fs::write(group.0.join("pids.max"), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Moves this process into the group, and thus all processes that it will start.
    pub(super) fn join(&self) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), "0")
    }

    /// Kills every process of the group.
    pub(crate) fn kill_all(&self) {
        // Only version 2 can kill all at once. At its limit, the group cannot start new processes
        // meanwhile.
        if fs::write(self.0.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        let all = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in all.lines().filter_map(|line| line.parse().ok()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for ProcessCgroup {
    fn drop(&mut self) {
        // Fails while a process is left, which the supervisor reports.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the groups in which one may be created, for a line of `/proc/self/cgroup`.
fn candidate_parents(line: &str, mounts: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let is_second_version = controllers.is_empty();
    if !is_second_version && !controllers.split(',').any(|name| name == "pids") {
        return Vec::new();
    }
    let Some(mount) = mounts
        .lines()
        .find_map(|line| hierarchy_mount(line, is_second_version))
    else {
        return Vec::new();
    };
    let own = mount.join(path.trim_start_matches('/'));
    // Version 2 allows no limits below a group that has processes itself.
    let beside = own
        .parent()
        .filter(|parent| is_second_version && parent.starts_with(&mount));
    let beside = beside.map(Path::to_path_buf);
    std::iter::once(own).chain(beside).collect()
}

/// Returns the mount point of the hierarchy with the controller of processes, if it is in this line
/// of `/proc/self/mountinfo`.
fn hierarchy_mount(line: &str, is_second_version: bool) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let right = match kind.next()? {
        "cgroup2" => is_second_version,
        "cgroup" => !is_second_version && kind.nth(1)?.split(',').any(|option| option == "pids"),
        _ => false,
    };
    right.then(|| mount.split(' ').nth(4).map(PathBuf::from))?
}

fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(START));
        let is_stale = || {
            let found = entry.metadata().and_then(|found| found.modified());
            found.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE))
        };
        if ours && is_stale() {
            // Fails while it has processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_cgroups_are_found() {
        let mounts = "30 25 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                      31 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let parents = |line| {
            let found = candidate_parents(line, mounts);
            found
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(parents("8:pids:/"), "/sys/fs/cgroup/pids/");
        assert_eq!(parents("8:cpu,pids:/a"), "/sys/fs/cgroup/pids/a");
        assert_eq!(parents("4:memory:/a"), "");
        assert_eq!(
            parents("0::/user.slice/s.scope"),
            "/sys/fs/cgroup/unified/user.slice/s.scope /sys/fs/cgroup/unified/user.slice"
        );
        assert_eq!(parents("0::/"), "/sys/fs/cgroup/unified/");
    }
}
