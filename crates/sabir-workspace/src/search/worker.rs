//! Runs the jobs of a search in one thread: reads folders, and searches the files in them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use rustix::fs::{Mode, OFlags};

use super::{SearchMatch, SearchOptions, glob_matches};
use crate::files::{EntryKind, FolderReader, PendingFolder, Workspace};
use crate::ordered_pool::{JobOutput, OrderKey};
use crate::path::WorkPath;
use crate::stop_flag::StopFlag;

/// The size of a line above which its file is skipped, so that one file cannot fill the memory.
const MAX_LINE_BUFFER_BYTES: usize = 16 << 20;
/// The number of files per job: enough to make distribution cheap, and few enough to keep all
/// threads busy.
const FILES_A_JOB: usize = 64;

/// A job of a search.
pub(super) enum SearchJob {
    Folder(PendingFolder),
    Files(FileBatch),
}

/// Files of one folder, in order.
pub(super) struct FileBatch {
    pub(super) folder: PathBuf,
    pub(super) names: Vec<OsString>,
    /// True if the search names the file itself, so that it is not left out.
    pub(super) is_named: bool,
}

/// The result of one file.
#[derive(Debug)]
pub(super) struct FileResult {
    pub(super) skipped: SkipReason,
    /// The number of bytes that were read.
    pub(super) bytes: u64,
    pub(super) matches: Vec<SearchMatch>,
    /// True if there are more matches than were wanted.
    pub(super) more: bool,
}

/// The reason that a file was skipped, if it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipReason {
    No,
    /// It could not be opened, or is not a regular file.
    Unopened,
    /// It could not be read to the end, or has too long a line.
    Unread,
    /// The options leave it out.
    LeftOut,
}

/// The state of one search thread.
pub(super) struct SearchWorker<'a> {
    workspace: &'a Workspace,
    options: &'a SearchOptions,
    matcher: &'a RegexMatcher,
    glob: Option<&'a GlobMatcher>,
    /// Set when enough matches were found.
    over: &'a StopFlag,
    reader: FolderReader<'a>,
    searcher: Searcher,
}

impl<'a> SearchWorker<'a> {
    pub(super) fn new(
        workspace: &'a Workspace,
        options: &'a SearchOptions,
        matcher: &'a RegexMatcher,
        glob: Option<&'a GlobMatcher>,
        over: &'a StopFlag,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(options.context_lines)
            .after_context(options.context_lines)
            // A NUL byte marks a binary file, as in ripgrep.
            .binary_detection(BinaryDetection::quit(0))
            .bom_sniffing(true)
            .heap_limit(Some(MAX_LINE_BUFFER_BYTES))
            .build();
        Self {
            workspace,
            options,
            matcher,
            glob,
            over,
            reader: FolderReader::new(workspace, usize::MAX),
            searcher,
        }
    }

    /// Runs a job. `room` returns the maximum number of matches still wanted.
    pub(super) fn run_job(
        &mut self,
        job: SearchJob,
        room: impl Fn() -> usize,
    ) -> Vec<(OrderKey, JobOutput<SearchJob, Vec<FileResult>>)> {
        match job {
            SearchJob::Folder(folder) => self.list_folder(folder),
            SearchJob::Files(files) => {
                let key = files
                    .names
                    .first()
                    .map(|name| OrderKey::for_path(&files.folder.join(name)));
                let searched = self.search_batch(&files, room());
                let count = searched.iter().map(|file| file.matches.len() + 1).sum();
                key.map(|key| (key, JobOutput::Part(searched, count)))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Splits a folder into batches of files, with the subfolders in between.
    fn list_folder(
        &mut self,
        mut folder: PendingFolder,
    ) -> Vec<(OrderKey, JobOutput<SearchJob, Vec<FileResult>>)> {
        let found = self
            .reader
            .read_folder(&mut folder)
            .unwrap_or_default()
            .names;
        let mut outputs = Vec::new();
        let mut names = Vec::new();
        let hand_over = |names: &mut Vec<OsString>, outputs: &mut Vec<_>| {
            if let Some(first) = names.first() {
                let key = OrderKey::for_path(&folder.path.join(first));
                let files = FileBatch {
                    folder: folder.path.clone(),
                    names: std::mem::take(names),
                    is_named: false,
                };
                outputs.push((key, JobOutput::Job(SearchJob::Files(files))));
            }
        };
        for found in found {
            match found.kind {
                EntryKind::Folder => {
                    hand_over(&mut names, &mut outputs);
                    let path = folder.path.join(found.name);
                    outputs.push((
                        OrderKey::for_contents(&path),
                        JobOutput::Job(SearchJob::Folder(folder.child_folder(path))),
                    ));
                }
                EntryKind::File => {
                    if self
                        .glob
                        .is_none_or(|glob| glob_matches(glob, &folder.path.join(&found.name)))
                    {
                        names.push(found.name);
                    }
                    if names.len() == FILES_A_JOB {
                        hand_over(&mut names, &mut outputs);
                    }
                }
                EntryKind::Link | EntryKind::Other => {}
            }
        }
        hand_over(&mut names, &mut outputs);
        outputs
    }

    /// Searches files until one match more than `room` is found.
    fn search_batch(&mut self, files: &FileBatch, mut room: usize) -> Vec<FileResult> {
        let mut searched = Vec::with_capacity(files.names.len());
        let Ok(folder) = self.workspace.open_beneath(&files.folder) else {
            searched.resize_with(files.names.len(), FileResult::not_opened);
            return searched;
        };
        for name in &files.names {
            if self.options.stop.is_requested() || self.over.is_requested() {
                break;
            }
            let path = files.folder.join(name);
            if !files.is_named && self.options.is_excluded(&path) {
                searched.push(FileResult::skipped(SkipReason::LeftOut));
                continue;
            }
            // Opened from the folder's handle, so a file swapped for a link is never followed.
            let found = match open_file(&folder, name.as_ref()) {
                Some((file, size)) => self.search_file(&file, size, &path, room),
                None => FileResult::not_opened(),
            };
            room = room.saturating_sub(found.matches.len());
            let more = found.more;
            searched.push(found);
            if more {
                break;
            }
        }
        searched
    }

    fn search_file(&mut self, file: &File, size: u64, path: &Path, room: usize) -> FileResult {
        let Some(path) = WorkPath::from_inside(path) else {
            return FileResult::not_opened();
        };
        // A growing file is searched up to its size at opening; kernel files report size 0.
        let left = if size == 0 { u64::MAX } else { size };
        let stops = [&self.options.stop, self.over];
        let mut watched = LimitedReader {
            file,
            left,
            most: self.options.max_file_bytes,
            read: 0,
            stops,
        };
        let options = self.options;
        let matches = Vec::new();
        let mut sink = MatchCollector {
            options,
            path: &path,
            room,
            before: Vec::new(),
            matches,
            more: false,
        };
        let result = self
            .searcher
            .search_reader(self.matcher, &mut watched, &mut sink);
        let skipped = if result.is_err() {
            SkipReason::Unread
        } else {
            SkipReason::No
        };
        FileResult {
            skipped,
            bytes: watched.read,
            matches: sink.matches,
            more: sink.more,
        }
    }
}

impl FileResult {
    fn not_opened() -> Self {
        Self::skipped(SkipReason::Unopened)
    }

    fn skipped(reason: SkipReason) -> Self {
        Self {
            skipped: reason,
            bytes: 0,
            matches: Vec::new(),
            more: false,
        }
    }
}

/// Opens a file if it is still regular, and returns it with its size. Never follows a link and
/// never blocks: a FIFO in its place opens at once and is refused.
fn open_file(folder: &OwnedFd, name: &Path) -> Option<(File, u64)> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let found = file.metadata().ok()?;
    found.is_file().then_some((file, found.len()))
}

/// A reader that stops at a limit or on request.
struct LimitedReader<'a> {
    file: &'a File,
    /// The number of bytes left in the file.
    left: u64,
    most: u64,
    read: u64,
    stops: [&'a StopFlag; 2],
}

impl Read for LimitedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte over the limit shows that it was reached.
        if self.stops.iter().any(|stop| stop.is_requested()) || self.read > self.most {
            return Err(io::Error::other("no more is wanted"));
        }
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self
            .file
            .read(buffer.get_mut(..wanted).unwrap_or_default())?;
        self.left -= count as u64;
        self.read += count as u64;
        Ok(count)
    }
}

/// A collector for the matches of one file.
struct MatchCollector<'a> {
    options: &'a SearchOptions,
    path: &'a WorkPath,
    room: usize,
    before: Vec<String>,
    matches: Vec<SearchMatch>,
    more: bool,
}

impl Sink for MatchCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.matches.len() >= self.room {
            self.more = true;
            return Ok(false);
        }
        self.matches.push(SearchMatch {
            path: self.path.clone(),
            line: found.line_number().unwrap_or_default(),
            text: cut_line(found.bytes(), self.options.max_line_bytes),
            before: std::mem::take(&mut self.before),
            after: Vec::new(),
        });
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let text = cut_line(found.bytes(), self.options.max_line_bytes);
        match found.kind() {
            SinkContextKind::After => {
                if let Some(last) = self.matches.last_mut() {
                    last.after.push(text);
                }
            }
            _ => self.before.push(text),
        }
        Ok(true)
    }

    /// Discards the matches before the first NUL of a file that turns out to be binary.
    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.matches.clear();
        self.more = false;
        Ok(false)
    }
}

fn cut_line(bytes: &[u8], max_bytes: usize) -> String {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let Some(start) = bytes
        .get(..max_bytes)
        .filter(|start| start.len() < bytes.len())
    else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let whole = crate::capture::whole_characters(start);
    format!("{}…", String::from_utf8_lossy(whole))
}
