//! Searches the workspace with a regular expression.
//!
//! The engine is ripgrep's, used as a library: it is linear in the text, so no expression can hang
//! it, and no process is started, so an expression such as `--pre=x` is only an expression. Files
//! are opened beneath the workspace's handle.

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

/// The minimum number of matches and searched files that may wait for an earlier file, however few
/// were requested.
const MIN_AHEAD: usize = 4096;
const MAX_REGEX_BYTES: usize = 10 << 20;

/// The options of a search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// The file or folder to search.
    pub path: WorkPath,
    /// The regular expression, in the syntax of the `regex` crate; it sees one line at a time.
    pub regex: String,
    /// A glob that the file name, or the path relative to the workspace folder, must match.
    pub glob: Option<String>,
    /// The number of lines to show before and after each match.
    pub context_lines: usize,
    /// The maximum number of matching lines.
    pub max_matches: usize,
    /// The size to which longer lines are cut, in bytes, at a character boundary.
    pub max_line_bytes: usize,
    /// The maximum number of bytes to read: the search ends before the file that would exceed it, so
    /// that it ends soon in any folder. Only a little of a binary file is read, however large it is.
    pub max_file_bytes: u64,
    /// Reports whether a file is left out, by its path relative to the workspace folder. A file that is itself the path of
    /// the search is never left out.
    pub leave_out: Option<fn(&str) -> bool>,
    /// Ends the search early.
    pub stop: StopFlag,
}

/// The result of a search, sorted by path and line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResult {
    /// The matching lines.
    pub matches: Vec<SearchMatch>,
    /// The number of files that were searched.
    pub files: usize,
    /// The number of files that were left out because of [`SearchOptions::leave_out`].
    pub left_out: usize,
    /// The number of files that were skipped because they could not be read or have a line over 16
    /// MiB. Binary files do not count.
    pub skipped: usize,
    /// True if a limit ended the search early.
    pub truncated: bool,
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchMatch {
    /// The file.
    pub path: WorkPath,
    /// The line's number, from 1.
    pub line: u64,
    /// The line without its ending, invalid UTF-8 replaced, with `…` at the end if it was cut.
    pub text: String,
    /// The lines before, nearest last; fewer if another match is that near.
    pub before: Vec<String>,
    /// The lines after, nearest first; fewer if another match is that near.
    pub after: Vec<String>,
}

impl SearchOptions {
    /// Creates options for a search of the whole workspace: no context, 200 matches, lines cut at
    /// 500 bytes, 2 GiB of files.
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
            leave_out: None,
            stop: StopFlag::default(),
        }
    }

    /// Returns true if a found file is left out.
    fn is_excluded(&self, path: &Path) -> bool {
        self.leave_out
            .is_some_and(|is_excluded| is_excluded(&path.to_string_lossy()))
    }
}

impl Workspace {
    /// Searches with several threads, with the same result as with one. Binary files, `.git` and
    /// ignored files are left out; links are not followed. A file with a UTF-16 byte order mark is
    /// decoded. Memory is bounded by the requested matches, the largest folder, and 16 MiB per
    /// thread.
    ///
    /// # Errors
    /// [`WorkspaceError::Regex`], [`Glob`](WorkspaceError::Glob),
    /// [`Stopped`](WorkspaceError::Stopped), [`Hidden`](WorkspaceError::Hidden), and those of
    /// [`metadata`](Self::metadata) and [`resolve_links`](Self::resolve_links) for the path. A file
    /// that cannot be read is counted, not an error.
    pub fn search_files(&self, options: &SearchOptions) -> Result<SearchResult, WorkspaceError> {
        let matcher = compile_regex(&options.regex)?;
        let glob = options.glob.as_deref().map(compile_glob).transpose()?;
        let found = self.metadata(&options.path)?;
        let (start, hidden_rules) = self.resolve_start(&options.path)?;
        let first = match (
            found.kind,
            start.as_path().parent(),
            start.as_path().file_name(),
        ) {
            (EntryKind::Folder, _, _) => {
                SearchJob::Folder(self.start_folder(start.as_path(), hidden_rules))
            }
            (EntryKind::File, Some(parent), Some(name))
                if glob
                    .as_ref()
                    .is_none_or(|glob| glob_matches(glob, start.as_path())) =>
            {
                SearchJob::Files(FileBatch {
                    folder: parent.to_path_buf(),
                    names: vec![name.to_os_string()],
                    is_named: true,
                })
            }
            _ => return Ok(SearchResult::default()),
        };
        let merged = Mutex::new(MergedResult {
            options,
            result: SearchResult::default(),
            left_bytes: options.max_file_bytes,
        });
        // Lets threads abandon a large file once the last match was found.
        let over = StopFlag::default();
        let worker = || {
            let mut worker = SearchWorker::new(self, options, &matcher, glob.as_ref(), &over);
            let merged = &merged;
            move |job| {
                worker.run_job(job, || {
                    merged
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remaining_matches()
                })
            }
        };
        let take = |part| {
            let flow = merged
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .merge_files(part);
            flow.map_break(|()| over.request_stop())
        };
        let ahead = options.max_matches.max(MIN_AHEAD);
        run_in_order(
            (OrderKey::for_path(start.as_path()), first),
            ahead,
            &options.stop,
            worker,
            take,
        );
        if options.stop.is_requested() {
            return Err(WorkspaceError::Stopped {
                path: options.path.to_string(),
            });
        }
        Ok(merged
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .result)
    }
}

/// The merged results so far, in order.
struct MergedResult<'a> {
    options: &'a SearchOptions,
    result: SearchResult,
    left_bytes: u64,
}

impl MergedResult<'_> {
    /// Returns the number of matches that are still wanted.
    fn remaining_matches(&self) -> usize {
        self.options.max_matches - self.result.matches.len()
    }

    fn merge_files(&mut self, files: Vec<FileResult>) -> ControlFlow<()> {
        for file in files {
            if file.skipped == SkipReason::LeftOut {
                self.result.left_out += 1;
                continue;
            }
            if file.skipped == SkipReason::Unopened {
                self.result.skipped += 1;
                continue;
            }
            // Decided here, in order, so that the result does not depend on which thread was
            // faster.
            if file.bytes > self.left_bytes {
                self.result.truncated = true;
                return ControlFlow::Break(());
            }
            self.left_bytes -= file.bytes;
            self.result.files += 1;
            self.result.skipped += usize::from(file.skipped == SkipReason::Unread);
            let room = self.remaining_matches();
            self.result.truncated = file.more || file.matches.len() > room;
            self.result
                .matches
                .extend(file.matches.into_iter().take(room));
            if self.result.truncated {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

pub(crate) fn compile_regex(regex: &str) -> Result<RegexMatcher, WorkspaceError> {
    RegexMatcherBuilder::new()
        // Lets `$` match before `\r\n` as well; the searcher is set to agree.
        .crlf(true)
        // The searcher passes many lines at once, and `^` and `$` apply to each.
        .multi_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build(regex)
        .map_err(|error| WorkspaceError::Regex {
            pattern: shorten_text(regex),
            reason: error.to_string(),
        })
}

fn compile_glob(glob: &str) -> Result<GlobMatcher, WorkspaceError> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| WorkspaceError::Glob {
            pattern: shorten_text(glob),
            reason: error.kind().to_string(),
        })
}

fn glob_matches(glob: &GlobMatcher, path: &Path) -> bool {
    glob.is_match(path) || path.file_name().is_some_and(|name| glob.is_match(name))
}
