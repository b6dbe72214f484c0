//! Records which paths of a workspace its commands write, so that their changes can be told from
//! those that others make meanwhile.
//!
//! The supervisor of a sandboxed command sees each system call that changes a name or opens a file
//! for writing (`supervise/write_watch.rs`), and reports the path before the call is carried out.
//! A [`CommandWatch`] collects these reports for as long as it lives. What it misses is only ever a
//! write: a path that is listed was written, or at least tried.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The word before a path that was renamed, which takes everything below it along.
const TREE: &str = "tree ";
/// The word before any other path.
const PATH: &str = "path ";
/// The word before a path that somebody else writes too.
const SHARED: &str = "shared ";

/// The paths that commands wrote, as far as they were watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedWrites {
    /// True if a command ran that was not watched, or not to its end.
    has_gap: bool,
    paths: BTreeSet<PathBuf>,
    /// Paths that were renamed, which count with everything below them.
    trees: BTreeSet<PathBuf>,
    /// Paths that somebody else wrote too while a command wrote them.
    shared: BTreeSet<PathBuf>,
}

/// A path that a command is about to write, relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WrittenPath {
    pub(crate) path: PathBuf,
    /// True if everything below the path is written too.
    pub(crate) is_tree: bool,
}

/// A report of a supervisor about the writes of its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteReport {
    /// The command is watched from its start.
    Watched,
    /// From now on writes may be missing.
    Lost,
    /// The command is about to write this path.
    Written(WrittenPath),
    /// Somebody else writes this path as well, relative to the workspace.
    Shared(PathBuf),
}

/// A collection of the writes of all commands of a workspace, from its creation on. Commands that
/// are already running then are included with all that they have written.
#[derive(Debug)]
pub struct CommandWatch {
    log: WriteLog,
    number: u64,
}

/// The writes of the commands of one workspace that somebody watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteLog {
    state: Arc<Mutex<LogState>>,
}

#[derive(Debug, Default)]
struct LogState {
    /// The last number given to a watch, or to the end of a command.
    last: u64,
    watches: BTreeSet<u64>,
    commands: HashMap<u64, CommandEntry>,
}

#[derive(Debug, Default)]
struct CommandEntry {
    is_watched: bool,
    writes: ObservedWrites,
    /// The number of its end; `None` while it runs.
    ended: Option<u64>,
}

/// The entry of a running command. Dropping it records its end.
#[derive(Debug)]
pub(crate) struct CommandRecord {
    log: WriteLog,
    number: u64,
}

impl ObservedWrites {
    /// Returns true if all commands were watched to their end, so that a path that is not
    /// [contained](Self::contains) was written by none of them.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.has_gap
    }

    /// Returns true if a command wrote this path, relative to the workspace.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        self.paths.contains(path) || path.ancestors().any(|above| self.trees.contains(above))
    }

    /// Returns true if somebody else wrote this path while a command wrote it too.
    #[must_use]
    pub fn is_shared(&self, path: &Path) -> bool {
        self.shared.contains(path)
    }

    fn add(&mut self, written: WrittenPath) {
        let paths = if written.is_tree {
            &mut self.trees
        } else {
            &mut self.paths
        };
        paths.insert(written.path);
    }

    fn add_all(&mut self, other: &Self) {
        self.has_gap |= other.has_gap;
        // The other writer may be the other command.
        self.shared.retain(|path| !other.contains(path));
        let others = other.shared.iter().filter(|path| !self.contains(path));
        let others: Vec<_> = others.cloned().collect();
        self.shared.extend(others);
        self.paths.extend(other.paths.iter().cloned());
        self.trees.extend(other.trees.iter().cloned());
    }
}

impl CommandWatch {
    /// Returns the paths that the commands have written since the watch began.
    #[must_use]
    pub fn observed_writes(&self) -> ObservedWrites {
        let state = self.log.lock_state();
        let mut all = ObservedWrites::default();
        for entry in state.commands.values() {
            if entry.ended.is_none_or(|ended| ended > self.number) {
                all.add_all(&entry.writes);
                all.has_gap |= !entry.is_watched;
            }
        }
        all
    }
}

impl Drop for CommandWatch {
    fn drop(&mut self) {
        let mut state = self.log.lock_state();
        state.watches.remove(&self.number);
        state.forget_unwatched();
    }
}

impl WriteLog {
    /// Starts to collect.
    pub(crate) fn watch_commands(&self) -> CommandWatch {
        let mut state = self.lock_state();
        state.last += 1;
        let number = state.last;
        state.watches.insert(number);
        CommandWatch {
            log: self.clone(),
            number,
        }
    }

    /// Adds a command that is about to start. It counts as unwatched until its supervisor reports a watch, unless it cannot write in the
    /// workspace at all.
    pub(crate) fn add_command(&self, can_write: bool) -> CommandRecord {
        let mut state = self.lock_state();
        state.last += 1;
        let number = state.last;
        let entry = CommandEntry {
            is_watched: !can_write,
            ..CommandEntry::default()
        };
        state.commands.insert(number, entry);
        CommandRecord {
            log: self.clone(),
            number,
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    /// Removes the commands that ended before every watch.
    fn forget_unwatched(&mut self) {
        let first = self.watches.first().copied().unwrap_or(u64::MAX);
        self.commands
            .retain(|_, entry| entry.ended.is_none_or(|ended| ended > first));
    }
}

impl CommandRecord {
    /// Applies a report of the supervisor.
    pub(crate) fn add_report(&self, report: WriteReport) {
        let mut state = self.log.lock_state();
        let Some(entry) = state.commands.get_mut(&self.number) else {
            return;
        };
        match report {
            WriteReport::Watched => entry.is_watched = true,
            WriteReport::Lost => entry.writes.has_gap = true,
            WriteReport::Written(written) => entry.writes.add(written),
            WriteReport::Shared(path) => _ = entry.writes.shared.insert(path),
        }
    }
}

impl Drop for CommandRecord {
    fn drop(&mut self) {
        let mut state = self.log.lock_state();
        state.last += 1;
        let ended = state.last;
        if let Some(entry) = state.commands.get_mut(&self.number) {
            entry.ended = Some(ended);
        }
        state.forget_unwatched();
    }
}

impl WriteReport {
    /// Formats the report as one line of plain characters, without its end.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn to_line(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        let path_line = |word: &str, path: &Path| {
            let mut line = word.to_owned();
            for &byte in path.as_os_str().as_bytes() {
                match byte {
                    b'!'..=b'~' if byte != b'%' => line.push(char::from(byte)),
                    _ => line.push_str(&format!("%{byte:02x}")),
                }
            }
            line
        };
        match self {
            Self::Watched => "watched".to_owned(),
            Self::Lost => "lost".to_owned(),
            Self::Written(written) if written.is_tree => path_line(TREE, &written.path),
            Self::Written(written) => path_line(PATH, &written.path),
            Self::Shared(path) => path_line(SHARED, path),
        }
    }

    /// Parses a line of [`to_line`](Self::to_line).
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let written = |text: &str, is_tree| {
            let path = parse_path(text)?;
            Some(Self::Written(WrittenPath { path, is_tree }))
        };
        match line {
            "watched" => Some(Self::Watched),
            "lost" => Some(Self::Lost),
            _ => match (line.strip_prefix(TREE), line.strip_prefix(SHARED)) {
                (Some(path), _) => written(path, true),
                (None, Some(path)) => parse_path(path).map(Self::Shared),
                (None, None) => written(line.strip_prefix(PATH)?, false),
            },
        }
    }
}

/// Parses a path of plain characters.
fn parse_path(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(byte);
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &str) -> WriteReport {
        WriteReport::Written(WrittenPath {
            path: path.into(),
            is_tree: false,
        })
    }

    #[test]
    fn reports_parse_from_their_lines() {
        let odd = OsString::from_vec(b"a b%\n\xff/\xc3\xa9".to_vec());
        for report in [
            WriteReport::Watched,
            WriteReport::Lost,
            written("src/main.rs"),
            WriteReport::Written(WrittenPath {
                path: odd.clone().into(),
                is_tree: true,
            }),
            WriteReport::Shared(odd.into()),
        ] {
            let line = report.to_line();
            assert!(
                line.bytes()
                    .all(|byte| byte.is_ascii_graphic() || byte == b' ')
            );
            assert_eq!(WriteReport::from_line(&line), Some(report));
        }
        for line in ["", "path %", "path %zz", "paths x"] {
            assert_eq!(WriteReport::from_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_watch_collects_what_ran_while_it_lived() {
        let log = WriteLog::default();
        let early = log.add_command(true);
        early.add_report(WriteReport::Watched);
        early.add_report(written("early"));
        drop(early);
        let watch = log.watch_commands();
        assert_eq!(watch.observed_writes(), ObservedWrites::default());
        let job = log.add_command(true);
        assert!(
            !watch.observed_writes().is_complete(),
            "not watched until it is reported"
        );
        job.add_report(WriteReport::Watched);
        job.add_report(written("a/b"));
        job.add_report(WriteReport::Written(WrittenPath {
            path: "moved".into(),
            is_tree: true,
        }));
        drop(log.add_command(false));
        let found = watch.observed_writes();
        assert!(found.is_complete() && !found.contains(Path::new("early")));
        assert!(found.contains(Path::new("a/b")) && found.contains(Path::new("moved/x/y")));
        assert!(!found.contains(Path::new("a")) && !found.contains(Path::new("a/b/c")));
        // A command that still runs belongs to later watches too; one that has ended does not.
        drop(watch);
        let watch = log.watch_commands();
        assert!(watch.observed_writes().contains(Path::new("a/b")));
        job.add_report(WriteReport::Lost);
        drop(job);
        assert!(!watch.observed_writes().is_complete());
        assert!(log.watch_commands().observed_writes().is_complete());
        drop(watch);
        assert!(log.lock_state().commands.is_empty(), "nothing is kept");
    }
}
