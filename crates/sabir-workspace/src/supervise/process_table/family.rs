//! Remembers the processes of a command where the kernel does not keep orphans together, and finds
//! the environment in what macOS tells about a process.
//!
//! Pure, so that its tests run on every system.

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

/// A process as the system's table lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessRow {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    /// The process group.
    pub(super) group: Option<Pid>,
    /// The time of its start, in microseconds: a later process with the same number has another.
    pub(super) started: u64,
}

/// The processes that were seen below one process, with those in their process groups.
#[derive(Debug, Default)]
pub(super) struct ProcessFamily {
    /// The members, with the time of their start.
    members: HashMap<Pid, u64>,
    /// The process groups that members have founded.
    groups: HashSet<Pid>,
}

impl ProcessFamily {
    /// Updates the family from the process table, and returns its members, parents before their
    /// children.
    ///
    /// A process belongs to the family if it did before, if its parent is `root` or a member, or if
    /// it is in a process group that a member created. `root` itself is not a member.
    pub(super) fn observe(&mut self, root: Pid, table: &[ProcessRow]) -> Vec<ProcessRow> {
        // The number of a group that is gone may be given to a stranger's.
        self.groups
            .retain(|group| table.iter().any(|row| row.group == Some(*group)));
        let mut members = HashMap::new();
        let mut found: Vec<ProcessRow> = Vec::new();
        loop {
            let before = found.len();
            for row in table.iter().filter(|row| row.pid != root) {
                let belongs = self.members.get(&row.pid) == Some(&row.started)
                    || row.parent == Some(root)
                    || row
                        .parent
                        .is_some_and(|parent| members.contains_key(&parent))
                    || row.group.is_some_and(|group| self.groups.contains(&group));
                if belongs && members.insert(row.pid, row.started).is_none() {
                    found.push(*row);
                    if row.group == Some(row.pid) {
                        self.groups.insert(row.pid);
                    }
                }
            }
            // The table has no order, so a parent may come after its child.
            if found.len() == before {
                break;
            }
        }
        self.members = members;
        found
    }
}

/// Returns the environment entries in what `KERN_PROCARGS2` tells of a process: the number of
/// arguments, the path of the program, padding, the arguments, the environment.
pub(super) fn environment_entries(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (count, rest) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let count = usize::try_from(i32::from_ne_bytes(*count)).unwrap_or(0);
    let path = rest
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(rest.len());
    let rest = rest.get(path..).unwrap_or_default();
    let padding = rest
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(rest.len());
    let rest = rest.get(padding..).unwrap_or_default();
    rest.split(|byte| *byte == 0)
        .skip(count)
        .take_while(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    /// Makes a table of rows `pid parent group`, all of which started at the time of their number.
    fn table(rows: &[[i32; 3]]) -> Vec<ProcessRow> {
        rows.iter()
            .map(|[number, parent, group]| ProcessRow {
                pid: pid(*number),
                parent: Pid::from_raw(*parent),
                group: Pid::from_raw(*group),
                started: number.unsigned_abs().into(),
            })
            .collect()
    }

    fn numbers(rows: &[ProcessRow]) -> Vec<i32> {
        let mut found: Vec<i32> = rows.iter().map(|row| row.pid.as_raw_pid()).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn orphans_stay_in_the_family() {
        let mut family = ProcessFamily::default();
        // 10 is the supervisor, 11 the shell in a group of its own, 20 a stranger. A child may be
        // listed before its parent.
        let first = table(&[
            [1, 0, 1],
            [12, 11, 11],
            [10, 1, 10],
            [11, 10, 11],
            [20, 1, 20],
        ]);
        assert_eq!(numbers(&family.observe(pid(10), &first)), [11, 12]);
        // The shell has ended and launchd has its children: 12, which was seen, 13, which was not
        // but is in the shell's group, and 14, a child of 12 with a group of its own.
        let second = table(&[
            [10, 1, 10],
            [12, 1, 11],
            [13, 1, 11],
            [14, 12, 14],
            [20, 1, 20],
        ]);
        assert_eq!(numbers(&family.observe(pid(10), &second)), [12, 13, 14]);
        let third = table(&[[10, 1, 10], [14, 1, 14], [20, 1, 20]]);
        assert_eq!(numbers(&family.observe(pid(10), &third)), [14]);
        assert_eq!(
            numbers(&family.observe(pid(10), &table(&[[10, 1, 10]]))),
            []
        );
    }

    #[test]
    fn reused_numbers_are_strangers() {
        let mut family = ProcessFamily::default();
        family.observe(pid(10), &table(&[[10, 1, 10], [11, 10, 11]]));
        let mut later = table(&[[10, 1, 10], [11, 1, 7]]);
        later[1].started = 99;
        assert_eq!(family.observe(pid(10), &later), []);
        // The group of the first 11 is forgotten with its last process.
        let mut reused = table(&[[10, 1, 10], [11, 1, 11]]);
        reused[1].started = 100;
        assert_eq!(family.observe(pid(10), &reused), []);
    }

    #[test]
    fn the_environment_follows_the_arguments() {
        let mut bytes = 2_i32.to_ne_bytes().to_vec();
        bytes.extend(b"/bin/sh\0\0\0\0sh\0MARK=argument\0HOME=/h\0MARK=1\0\0rest=1\0");
        let entries: Vec<&[u8]> = environment_entries(&bytes).collect();
        assert_eq!(entries, [b"HOME=/h".as_slice(), b"MARK=1"]);
        for end in 0..bytes.len() {
            // Cut short anywhere, it still ends.
            let _ = environment_entries(&bytes[..end]).count();
        }
    }
}
