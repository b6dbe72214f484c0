//! Searching the workspace with a regular expression.
//!
//! The engine is ripgrep's, as a library: linear in the text, so no expression can hang it, and no process is started, so an
//! expression such as `--pre=x` is only an expression. Files are opened beneath the workspace's handle.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use crate::error::{WorkspaceError, shorten_text};
use crate::files::{EntryKind, Workspace};
use crate::ordered_pool::{OrderKey, run_in_order};
use crate::path::WorkPath;
use crate::stop_flag::StopFlag;

mod worker;

use worker::{FileBatch, FileResult, SearchJob, SearchWorker, SkipReason};

/// So many matches and searched files may wait for a file before them, however few are asked for.
const MIN_AHEAD: usize = 4096;
const MAX_REGEX_BYTES: usize = 10 << 20;

/// What to search for, and how much to return.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// The file or folder to search.
    pub path: WorkPath,
    /// The regular expression, in the syntax of the `regex` crate; it sees one line at a time.
    pub regex: String,
    /// Only files whose name, or whose path from the workspace folder, meets this glob.
    pub glob: Option<String>,
    /// How many lines to show before and after each match.
    pub context_lines: usize,
    /// The greatest number of matching lines.
    pub max_matches: usize,
    /// A longer line is cut to this many bytes, at a character.
    pub max_line_bytes: usize,
    /// The search ends before the file with which more bytes than this would have been read, so that it ends soon in any
    /// folder. Of a binary file little is read, however large it is.
    pub max_file_bytes: u64,
    /// Ends the search early.
    pub stop: StopFlag,
}

/// What was found, sorted by path and line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResult {
    /// The matching lines.
    pub matches: Vec<SearchMatch>,
    /// How many files were searched.
    pub files: usize,
    /// How many files were left out because they could not be read or have a line over 16 MiB. Binary files do not count.
    pub skipped: usize,
    /// Whether a limit ended the search early.
    pub truncated: bool,
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchMatch {
    /// The file.
    pub path: WorkPath,
    /// The line's number, from 1.
    pub line: u64,
    /// The line without its ending, invalid UTF-8 replaced, and `…` at the end when it was cut.
    pub text: String,
    /// The lines before, nearest last; fewer where another match is that near.
    pub before: Vec<String>,
    /// The lines after, nearest first; fewer where another match is that near.
    pub after: Vec<String>,
}

impl SearchOptions {
    /// A search of the whole workspace: no context, 200 matches, lines cut at 500 bytes, 2 GiB of files.
    #[must_use]
    pub fn new(regex: impl Into<String>) -> Self {
        Self {
            path: WorkPath::root(),
            regex: regex.into(),
            glob: None,
            context_lines: 0,
            max_matches: 200,
            max_line_bytes: 500,
            max_file_bytes: 2 << 30,
            stop: StopFlag::default(),
        }
    }
}

impl Workspace {
    /// Searches, with several threads and the same result as with one. Left out are binary files, `.git` and what the ignore
    /// files hide; links are not followed. A file with a byte order mark of UTF-16 is read as that. Memory is bounded by the
    /// matches asked for, the largest folder, and 16 MiB for each thread.
    ///
    /// # Errors
    /// [`WorkspaceError::Regex`], [`Glob`](WorkspaceError::Glob), [`Stopped`](WorkspaceError::Stopped),
    /// [`Hidden`](WorkspaceError::Hidden), and those of
    /// [`metadata`](Self::metadata) and [`resolve_links`](Self::resolve_links) for the path. A file that cannot be read is counted, not an
    /// error.
    pub fn search_files(&self, options: &SearchOptions) -> Result<SearchResult, WorkspaceError> {
        let matcher = compile_regex(&options.regex)?;
        let glob = options.glob.as_deref().map(compile_glob).transpose()?;
        let found = self.metadata(&options.path)?;
        let (start, hiding) = self.resolve_start(&options.path)?;
        let first = match (found.kind, start.as_path().parent(), start.as_path().file_name()) {
            (EntryKind::Folder, _, _) => SearchJob::Folder(self.start_folder(start.as_path(), hiding)),
            (EntryKind::File, Some(parent), Some(name))
                if glob.as_ref().is_none_or(|glob| glob_matches(glob, start.as_path())) =>
            {
                SearchJob::Files(FileBatch { folder: parent.to_path_buf(), names: vec![name.to_os_string()] })
            }
            _ => return Ok(SearchResult::default()),
        };
        let merged =
            Mutex::new(MergedResult { options, result: SearchResult::default(), left_bytes: options.max_file_bytes });
        // Those who are in the middle of a large file when the last match is found need not finish it.
        let over = StopFlag::default();
        let worker = || {
            let mut worker = SearchWorker::new(self, options, &matcher, glob.as_ref(), &over);
            let merged = &merged;
            move |job| worker.run_job(job, || merged.lock().unwrap_or_else(PoisonError::into_inner).remaining_matches())
        };
        let take = |part| {
            let flow = merged.lock().unwrap_or_else(PoisonError::into_inner).merge_files(part);
            flow.map_break(|()| over.request_stop())
        };
        let ahead = options.max_matches.max(MIN_AHEAD);
        run_in_order((OrderKey::for_path(start.as_path()), first), ahead, &options.stop, worker, take);
        if options.stop.is_requested() {
            return Err(WorkspaceError::Stopped { path: options.path.to_string() });
        }
        Ok(merged.into_inner().unwrap_or_else(PoisonError::into_inner).result)
    }
}

/// What is gathered so far, in order.
struct MergedResult<'a> {
    options: &'a SearchOptions,
    result: SearchResult,
    left_bytes: u64,
}

impl MergedResult<'_> {
    /// How many matches are still wanted.
    fn remaining_matches(&self) -> usize {
        self.options.max_matches - self.result.matches.len()
    }

    fn merge_files(&mut self, files: Vec<FileResult>) -> ControlFlow<()> {
        for file in files {
            if file.skipped == SkipReason::Unopened {
                self.result.skipped += 1;
                continue;
            }
            if file.bytes > self.left_bytes {
                self.result.truncated = true;
                return ControlFlow::Break(());
            }
            self.left_bytes -= file.bytes;
            self.result.files += 1;
            self.result.skipped += usize::from(file.skipped == SkipReason::Unread);
            let room = self.remaining_matches();
            self.result.truncated = file.more || file.matches.len() > room;
            self.result.matches.extend(file.matches.into_iter().take(room));
            if self.result.truncated {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

pub(crate) fn compile_regex(regex: &str) -> Result<RegexMatcher, WorkspaceError> {
    RegexMatcherBuilder::new()
        // So that `$` matches before `\r\n` as well; the searcher has to agree on it.
        .crlf(true)
        // The searcher looks at many lines at once, and `^` and `$` are about each.
        .multi_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build(regex)
        .map_err(|error| WorkspaceError::Regex { pattern: shorten_text(regex), reason: error.to_string() })
}

fn compile_glob(glob: &str) -> Result<GlobMatcher, WorkspaceError> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| WorkspaceError::Glob { pattern: shorten_text(glob), reason: error.kind().to_string() })
}

fn glob_matches(glob: &GlobMatcher, path: &Path) -> bool {
    glob.is_match(path) || path.file_name().is_some_and(|name| glob.is_match(name))
}
