//! Watches which paths of the workspace a command writes: a thread of the supervisor that receives
//! the notifications of the command's second system call filter.
//!
//! The command waits while the thread reads the path from its memory, and continues before anything
//! else is done with it: a path on a file system that hangs, or that the command itself serves,
//! cannot stop the two. A process could change the path in between, and its write would be missed;
//! the watch only attributes changes; it is not a security boundary.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::other_writers::{EntryEffect, OtherWriters};
use super::{PAUSE, WRITES};
use crate::command_writes::{WriteReport, WrittenPath};
use crate::sandbox::syscall_filter::written_paths::{
    PathArguments, WRITE_FLAGS, is_new_entry, open_flags, path_arguments,
};
use crate::sandbox::syscalls::{continue_call, enable_sync_wake_up, receive_notification};

/// The longest path of the kernel, with its end.
const MAX_PATH_BYTES: usize = 4096;
/// The size of a memory page in bytes, or a divisor of it: a path near the end of readable memory
/// is read up to the page's end.
const PAGE_BYTES: u64 = 4096;
/// The number of paths of a command from which on no more are reported.
const MAX_PATHS: usize = 500_000;
/// The time that the thread may need for the last notifications.
const LAST_TIME: Duration = Duration::from_secs(2);
/// Folders of devices and of the kernel, which no workspace is in.
const SYSTEM_FOLDERS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The thread that watches a command.
pub(super) struct WriteWatch {
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread.
struct PathCollector {
    /// The workspace, by its canonical path.
    root: PathBuf,
    /// The paths as the command wrote them, which need not be resolved again.
    known: HashSet<WrittenPath>,
    reported: HashSet<WrittenPath>,
    /// `None` where the kernel does not tell.
    others: Option<OtherWriters>,
    is_lost: bool,
}

/// Starts a thread that watches through this handle. If the thread cannot start, the handle is
/// closed: the command's writes then fail instead of blocking forever.
pub(super) fn start_write_watch(listener: OwnedFd, root: PathBuf) -> WriteWatch {
    send_write_report(&WriteReport::Watched);
    // Without it the command is only slower.
    let _ = enable_sync_wake_up(listener.as_fd());
    let collector = PathCollector {
        others: OtherWriters::start(&root),
        root,
        known: HashSet::new(),
        reported: HashSet::new(),
        is_lost: false,
    };
    let thread = thread::Builder::new().spawn(move || collector.run(&listener));
    WriteWatch {
        thread: thread.ok(),
    }
}

impl WriteWatch {
    /// Waits until the thread has reported everything. All processes of the command must have
    /// ended.
    pub(super) fn finish(self) {
        let start = Instant::now();
        let is_finished = || self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        while !is_finished() {
            if self.thread.is_none() || start.elapsed() > LAST_TIME {
                send_write_report(&WriteReport::Lost);
                return;
            }
            sleep(PAUSE);
        }
    }
}

/// Sends a line to the agent. The error is ignored: a dead agent needs no report.
fn send_write_report(report: &WriteReport) {
    let line = format!("{WRITES}{}\n", report.to_line());
    let _ = rustix::io::write(std::io::stdin().as_fd(), line.as_bytes());
}

impl PathCollector {
    /// Answers notifications until no process of the command is left.
    fn run(mut self, listener: &OwnedFd) {
        loop {
            let mut waited = vec![PollFd::new(listener, PollFlags::IN)];
            let events = self.others.as_ref().map(|others| others.events());
            waited.extend(
                events
                    .iter()
                    .map(|events| PollFd::new(events, PollFlags::IN)),
            );
            match poll(&mut waited, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let events = waited.first().map_or(PollFlags::HUP, PollFd::revents);
            drop(waited);
            if !events.contains(PollFlags::IN) {
                if let Some(others) = &mut self.others {
                    others.read_events();
                }
                self.report_others();
                if events.is_empty() {
                    continue;
                }
                return;
            }
            // A process that was killed meanwhile has taken its notification back.
            let Ok(notification) = receive_notification(listener.as_fd()) else {
                continue;
            };
            let call = i64::from(notification.data.nr);
            let written = read_written_paths(notification.pid, call, &notification.data.args);
            if let (Some(others), Ok(written)) = (&mut self.others, &written) {
                for_each_effect(written, call, &notification.data.args, |path, effect| {
                    others.before_call(path, effect)
                });
            }
            let _ = continue_call(listener.as_fd(), notification.id);
            match written {
                Ok(written) => written.into_iter().for_each(|path| self.add(path)),
                // A process that has ended writes nothing, nor does a call with a wrong address.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.mark_lost(),
                Err(_) => {}
            }
            self.report_others();
        }
    }

    /// Reports the files that somebody else was found to write too.
    fn report_others(&mut self) {
        let found = self.others.as_mut().map(OtherWriters::take_found);
        for path in found.into_iter().flatten() {
            send_write_report(&WriteReport::Shared(path));
        }
    }

    fn add(&mut self, written: WrittenPath) {
        let is_elsewhere = SYSTEM_FOLDERS
            .iter()
            .any(|top| written.path.starts_with(top))
            && !written.path.starts_with(&self.root);
        if self.is_lost || is_elsewhere || !self.known.insert(written.clone()) {
            return;
        }
        for path in resolve_path(&written.path) {
            let Ok(path) = path.strip_prefix(&self.root) else {
                continue;
            };
            if !written.path.starts_with(&self.root) {
                // By another name of a folder, which the search does not follow.
                self.others = None;
            }
            let found = WrittenPath {
                path: path.to_path_buf(),
                is_tree: written.is_tree,
            };
            if self.reported.insert(found.clone()) {
                send_write_report(&WriteReport::Written(found));
            }
        }
        if self.known.len() >= MAX_PATHS {
            self.mark_lost();
        }
    }

    fn mark_lost(&mut self) {
        if !self.is_lost {
            self.is_lost = true;
            send_write_report(&WriteReport::Lost);
        }
    }
}

/// Reads the paths that a call writes from the memory of its process. They are absolute, and
/// otherwise as the process wrote them.
fn read_written_paths(
    process: u32,
    call: i64,
    arguments: &[u64; 6],
) -> io::Result<Vec<WrittenPath>> {
    let Some(kind) = path_arguments(call) else {
        return Ok(Vec::new());
    };
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
    let plain = |at: usize| read_path(process, &memory, None, argument(at));
    let in_folder = |at: usize| {
        // The kernel takes a handle as a 32-bit number.
        let folder = argument(at) as i32;
        read_path(process, &memory, Some(folder), argument(at + 1))
    };
    let (is_tree, paths) = match kind {
        PathArguments::Plain(at) => (false, vec![plain(at)?]),
        PathArguments::At(at) => (false, vec![in_folder(at)?]),
        PathArguments::AtWithFlags(at) => {
            let mut flags = [0; 8];
            memory.read_exact_at(&mut flags, argument(at + 2))?;
            if u64::from_ne_bytes(flags) & u64::from(WRITE_FLAGS) == 0 {
                return Ok(Vec::new());
            }
            (false, vec![in_folder(at)?])
        }
        PathArguments::PlainRename => (true, vec![plain(0)?, plain(1)?]),
        PathArguments::AtRename => (true, vec![in_folder(0)?, in_folder(2)?]),
    };
    let paths = paths.into_iter();
    Ok(paths.map(|path| WrittenPath { path, is_tree }).collect())
}

/// Calls `visit` with each path of a call, and what the call does to the entry there.
fn for_each_effect(
    written: &[WrittenPath],
    call: i64,
    arguments: &[u64; 6],
    mut visit: impl FnMut(&Path, &EntryEffect),
) {
    match written {
        [source, target] => visit(&source.path, &EntryEffect::MovesTo(target.path.clone())),
        all => {
            let effect = match open_flags(call, arguments) {
                Some(flags) => EntryEffect::Opens {
                    writes: flags & libc::O_ACCMODE.cast_unsigned()
                        != libc::O_RDONLY.cast_unsigned(),
                },
                None if is_new_entry(call) => EntryEffect::Appears,
                None => EntryEffect::Other,
            };
            all.iter().for_each(|entry| visit(&entry.path, &effect));
        }
    }
}

/// Reads a path at this address, relative to the folder of a handle or to the current one.
fn read_path(
    process: u32,
    memory: &File,
    folder: Option<i32>,
    address: u64,
) -> io::Result<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(read_c_string(memory, address)?));
    if path.is_absolute() {
        return Ok(path);
    }
    let base = match folder {
        Some(handle) if handle != libc::AT_FDCWD => format!("/proc/{process}/fd/{handle}"),
        _ => format!("/proc/{process}/cwd"),
    };
    Ok(fs::read_link(base)?.join(path))
}

/// Reads the bytes up to a zero, page by page: the next page may not exist.
fn read_c_string(memory: &File, address: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < MAX_PATH_BYTES {
        let length = PAGE_BYTES - at % PAGE_BYTES;
        let mut page = vec![0; usize::try_from(length).unwrap_or(MAX_PATH_BYTES)];
        memory.read_exact_at(&mut page, at)?;
        match page.iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(page.get(..end).unwrap_or_default());
                return Ok(text);
            }
            None => text.append(&mut page),
        }
        at = at.checked_add(length).ok_or(io::ErrorKind::InvalidData)?;
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Returns the canonical path of an entry, and that of its target if it is a link. If the folder is
/// gone already, links in its path are not resolved.
fn resolve_path(path: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return path.canonicalize().into_iter().collect();
    };
    let entry = parent
        .canonicalize()
        .unwrap_or_else(|_| remove_dots(parent))
        .join(name);
    let target = entry
        .is_symlink()
        .then(|| entry.canonicalize().ok())
        .flatten();
    std::iter::once(entry).chain(target).collect()
}

/// Removes `.` and `..` from a path by its text alone.
fn remove_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir(top.join("real")).unwrap();
        fs::write(top.join("real/file"), "").unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        std::os::unix::fs::symlink("real/file", top.join("name")).unwrap();
        let resolved = |path: &str| resolve_path(&top.join(path));
        assert_eq!(resolved("link/new"), [top.join("real/new")]);
        assert_eq!(
            resolved("link/../name/"),
            [top.join("name"), top.join("real/file")]
        );
        assert_eq!(resolved("gone/./x/../y"), [top.join("gone/y")]);
        assert_eq!(resolved("real/..").first(), Some(&top));
    }

    #[test]
    fn a_path_is_read_up_to_the_end_of_its_memory() {
        let memory = tempfile::tempfile().unwrap();
        let mut bytes = vec![b'x'; 4096 + 10];
        bytes.push(0);
        bytes.resize(2 * 4096, b'y');
        memory.write_all_at(&bytes, 0).unwrap();
        assert_eq!(read_c_string(&memory, 4090).unwrap(), [b'x'; 16]);
        assert!(read_c_string(&memory, 5000).is_err(), "no end");
    }
}
