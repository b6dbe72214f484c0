//! Detects files that another program writes while the command writes them too.
//!
//! The system call filter shows what the command writes, and not what others do. So inotify reports
//! what happens in the folders in which the command writes: a file that was closed after writing,
//! created or replaced more often than the command did it has another writer. A file that somebody
//! wrote between the start and the command's first write shows it by its time.
//!
//! In doubt, another writer is missed, but never invented: a call that fails is counted like one
//! that succeeds, and a path that cannot be followed ends the search.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::{MaybeUninit, take};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, ResolveFlags, Stat, fstat, inotify, memfd_create,
    open, openat2, readlinkat, statat,
};
use rustix::io::Errno;

/// The size of the buffer for events, in bytes: several of the longest ones.
const EVENT_BYTES: usize = 4096;

/// The effect of a system call on the entry that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryEffect {
    /// The file is opened, and perhaps created; `writes` is false if it can only be read afterwards.
    Opens { writes: bool },
    /// The entry appears.
    Appears,
    /// The entry moves to another path.
    MovesTo(PathBuf),
    /// Its attributes change, or it is removed.
    Other,
}

/// The search for other writers.
pub(super) struct OtherWriters {
    /// The workspace, by its canonical path.
    root: PathBuf,
    root_folder: OwnedFd,
    events: OwnedFd,
    /// The time of the start, as files have it.
    start: FileTime,
    /// The watched folders by their number, relative to the workspace.
    folders: HashMap<i32, PathBuf>,
    files: HashMap<PathBuf, FileActivity>,
    /// Folders that were moved there, below which nothing is certain.
    moved: HashSet<PathBuf>,
    found: Vec<PathBuf>,
    is_over: bool,
}

/// The effects of the command on a path that inotify has not reported yet.
#[derive(Debug, Clone, Copy, Default)]
struct FileActivity {
    /// The number of times that it was opened for writing, less those that it was closed.
    open: u32,
    /// The number of times that it was created or moved there.
    entering: u32,
    /// True if nothing more can be told about it, or everything was.
    is_settled: bool,
}

/// The time of a change, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileTime(i128);

impl FileTime {
    fn of(stat: &Stat) -> Self {
        let seconds = i128::from(stat.st_mtime);
        Self(seconds * 1_000_000_000 + i128::from(stat.st_mtime_nsec))
    }
}

impl OtherWriters {
    /// Starts to search in the workspace; `None` where that is not possible.
    pub(super) fn start(root: &Path) -> Option<Self> {
        let events = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC);
        let folder = open(
            root,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        // A new file has the time of the clock that files get theirs from.
        let now = memfd_create("now", MemfdFlags::CLOEXEC).and_then(fstat);
        Some(Self {
            root: root.to_path_buf(),
            root_folder: folder.ok()?,
            events: events.ok()?,
            start: FileTime::of(&now.ok()?),
            folders: HashMap::new(),
            files: HashMap::new(),
            moved: HashSet::new(),
            found: Vec::new(),
            is_over: false,
        })
    }

    /// The handle that is readable when there are events.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Prepares for a call of the command that is about to happen. The path is as the command wrote
    /// it, and absolute.
    pub(super) fn before_call(&mut self, path: &Path, effect: &EntryEffect) {
        self.read_events();
        if self.is_over {
            return;
        }
        // These may lead to any file that is open already.
        if is_open_file(path) {
            self.is_over = true;
            return;
        }
        let Some(entry) = self.find_entry(path) else {
            if let EntryEffect::MovesTo(target) = effect {
                let target = self.find_entry(target);
                self.note_move(None, target);
            }
            return;
        };
        if matches!(effect, EntryEffect::Opens { .. }) && entry.is_kind(FileType::Symlink) {
            // What is opened is another file, perhaps one with another name here.
            self.is_over = true;
            return;
        }
        self.note_earlier_write(&entry);
        let activity = self.files.entry(entry.path.clone()).or_default();
        match effect {
            EntryEffect::Other => {}
            EntryEffect::Opens { writes } => {
                activity.open += u32::from(*writes);
                activity.entering += u32::from(entry.stat.is_none());
            }
            EntryEffect::Appears => activity.entering += 1,
            EntryEffect::MovesTo(target) => {
                // An exchange moves the other entry here.
                activity.entering += 1;
                let target = self.find_entry(target);
                self.note_move(Some(entry), target);
            }
        }
    }

    /// Returns the paths that somebody else wrote as well, and that were not returned before.
    pub(super) fn take_found(&mut self) -> Vec<PathBuf> {
        take(&mut self.found)
    }

    fn note_move(&mut self, source: Option<FoundEntry>, target: Option<FoundEntry>) {
        let Some(target) = target else {
            return;
        };
        self.note_earlier_write(&target);
        let is_file = source
            .as_ref()
            .is_some_and(|source| !source.is_kind(FileType::Directory));
        if !is_file {
            self.moved.insert(target.path.clone());
        }
        let source = source.and_then(|source| self.files.get(&source.path).copied());
        let source = source.unwrap_or_default();
        let activity = self.files.entry(target.path.clone()).or_default();
        activity.entering += 1;
        // It may still be open under its first name.
        activity.open += source.open;
        // What somebody else wrote moves along.
        if source.is_settled {
            self.add_found(&target.path);
        }
    }

    /// Notes a file that was written since the start, before the command's first write.
    fn note_earlier_write(&mut self, entry: &FoundEntry) {
        let is_first = !self.files.contains_key(&entry.path) && !self.is_below_moved(&entry.path);
        // Another name of the file may be the one that the command wrote.
        let is_later = entry.stat.as_ref().is_some_and(|stat| {
            entry.is_kind(FileType::RegularFile)
                && stat.st_nlink == 1
                && FileTime::of(stat) > self.start
        });
        if is_first && is_later {
            self.add_found(&entry.path);
        }
    }

    fn is_below_moved(&self, path: &Path) -> bool {
        !self.moved.is_empty() && path.ancestors().any(|above| self.moved.contains(above))
    }

    fn add_found(&mut self, path: &Path) {
        if self.is_below_moved(path) {
            return;
        }
        let activity = self.files.entry(path.to_path_buf()).or_default();
        if !activity.is_settled {
            activity.is_settled = true;
            self.found.push(path.to_path_buf());
        }
    }

    /// Finds an entry of the workspace and watches its folder. `None` for an entry outside of it.
    /// Other mounts are not entered, since their file systems may hang.
    fn find_entry(&mut self, path: &Path) -> Option<FoundEntry> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let name = inside.file_name()?;
        let parent = inside
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let folder = self.open_inside(parent.unwrap_or(Path::new(".")), OFlags::DIRECTORY)?;
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let folder_path = self.path_of(&folder)?;
        let events = inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::ONLYDIR;
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        match inotify::add_watch(&self.events, handle, events) {
            Ok(number) => _ = self.folders.insert(number, folder_path.clone()),
            Err(_) => {
                self.is_over = true;
                return None;
            }
        }
        Some(FoundEntry {
            path: folder_path.join(name),
            stat,
        })
    }

    fn open_inside(&self, path: &Path, flags: OFlags) -> Option<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        openat2(&self.root_folder, path, flags, Mode::empty(), resolve).ok()
    }

    /// Returns the path of an open folder, relative to the workspace.
    fn path_of(&self, folder: &OwnedFd) -> Option<PathBuf> {
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let target = readlinkat(rustix::fs::CWD, handle, Vec::new()).ok()?;
        let path = Path::new(OsStr::from_bytes(target.as_bytes()));
        path.strip_prefix(&self.root).ok().map(Path::to_path_buf)
    }

    /// Reads the events that there are, and compares them with what the command did.
    pub(super) fn read_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut seen = Vec::new();
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event
                        .file_name()
                        .map(|name| OsStr::from_bytes(name.to_bytes()).to_os_string());
                    seen.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        for (folder, kind, name) in seen {
            if kind.contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                self.is_over = true;
            }
            if self.is_over {
                return;
            }
            let path = self.folders.get(&folder).zip(name);
            if let Some((folder, name)) = path {
                let path = folder.join(name);
                self.compare_event(&path, kind);
            }
        }
    }

    fn compare_event(&mut self, path: &Path, kind: inotify::ReadFlags) {
        // A file that the command never touched is no matter here.
        let Some(activity) = self.files.get_mut(path) else {
            return;
        };
        let expected = if kind.contains(inotify::ReadFlags::CLOSE_WRITE) {
            &mut activity.open
        } else if kind.intersects(inotify::ReadFlags::CREATE | inotify::ReadFlags::MOVED_TO) {
            &mut activity.entering
        } else {
            return;
        };
        match expected.checked_sub(1) {
            Some(left) => *expected = left,
            None => self.add_found(path),
        }
    }
}

/// An entry of the workspace.
struct FoundEntry {
    /// Its path without links, relative to the workspace.
    path: PathBuf,
    /// `None` if it does not exist.
    stat: Option<Stat>,
}

impl FoundEntry {
    fn is_kind(&self, kind: FileType) -> bool {
        let stat = self.stat.as_ref();
        stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
    }
}

/// Returns true for the name of an open file of some process.
fn is_open_file(path: &Path) -> bool {
    ["/dev/stdin", "/dev/stdout", "/dev/stderr"]
        .iter()
        .any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc") && path.components().any(|part| part.as_os_str() == "fd")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    const OPENS: EntryEffect = EntryEffect::Opens { writes: true };

    /// A workspace and the search in it. A file that is written afterwards is later than the start.
    fn started() -> (tempfile::TempDir, PathBuf, OtherWriters) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "old"] {
            fs::write(top.join(name), "x").unwrap();
        }
        let writers = OtherWriters::start(&top).unwrap();
        sleep(Duration::from_millis(30));
        (folder, top, writers)
    }

    fn found(writers: &mut OtherWriters) -> Vec<PathBuf> {
        writers.read_events();
        writers.take_found()
    }

    #[test]
    fn what_the_command_writes_has_no_other_writer() {
        let (_folder, top, mut writers) = started();
        for _ in 0..3 {
            writers.before_call(&top.join("a"), &OPENS);
            fs::write(top.join("a"), "y").unwrap();
        }
        writers.before_call(&top.join("new"), &OPENS);
        let mut open = fs::File::create(top.join("new")).unwrap();
        // A file that is open keeps its writer when it is moved.
        writers.before_call(&top.join("new"), &EntryEffect::MovesTo(top.join("b")));
        fs::rename(top.join("new"), top.join("b")).unwrap();
        open.write_all(b"z").unwrap();
        drop(open);
        writers.before_call(&top.join("d"), &EntryEffect::Appears);
        fs::create_dir(top.join("d")).unwrap();
        writers.before_call(&top.join("d/f"), &OPENS);
        fs::write(top.join("d/f"), "y").unwrap();
        writers.before_call(&top.join("d"), &EntryEffect::MovesTo(top.join("e")));
        fs::rename(top.join("d"), top.join("e")).unwrap();
        writers.before_call(&top.join("e/f"), &OPENS);
        fs::write(top.join("e/f"), "z").unwrap();
        assert_eq!(found(&mut writers), Vec::<PathBuf>::new());
        assert!(!writers.is_over);
    }

    #[test]
    fn writes_of_others_are_found_before_between_and_after() {
        let (_folder, top, mut writers) = started();
        // Before the command's first write.
        fs::write(top.join("old"), "mine").unwrap();
        writers.before_call(&top.join("old"), &OPENS);
        fs::write(top.join("old"), "theirs").unwrap();
        assert_eq!(found(&mut writers), [PathBuf::from("old")]);
        // Afterwards, in place.
        writers.before_call(&top.join("a"), &OPENS);
        fs::write(top.join("a"), "theirs").unwrap();
        assert_eq!(found(&mut writers), Vec::<PathBuf>::new());
        fs::write(top.join("a"), "mine").unwrap();
        assert_eq!(found(&mut writers), [PathBuf::from("a")]);
        // Replaced, as some editors do it.
        writers.before_call(&top.join("b"), &OPENS);
        fs::write(top.join("b"), "theirs").unwrap();
        fs::write(top.join("b~"), "mine").unwrap();
        fs::rename(top.join("b~"), top.join("b")).unwrap();
        assert_eq!(found(&mut writers), [PathBuf::from("b")]);
        // Each is reported once, and files that the command leaves alone never.
        fs::write(top.join("a"), "again").unwrap();
        fs::write(top.join("users"), "mine").unwrap();
        assert_eq!(found(&mut writers), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_path_that_cannot_be_followed_ends_the_search() {
        for path in ["/dev/stderr", "/dev/fd/3", "/proc/self/fd/3"] {
            let (_folder, top, mut writers) = started();
            writers.before_call(Path::new(path), &OPENS);
            writers.before_call(&top.join("a"), &OPENS);
            fs::write(top.join("a"), "1").unwrap();
            fs::write(top.join("a"), "2").unwrap();
            assert_eq!(found(&mut writers), Vec::<PathBuf>::new(), "{path}");
        }
    }
}
