//! Searching the workspace with a regular expression.
//!
//! The engine is ripgrep's, as a library: linear in the text, so no expression can hang it, and no process is started, so an
//! expression such as `--pre=x` is only an expression. Files are opened beneath the workspace's handle.

use std::io;

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch};

use crate::error::{WorkspaceError, shorten};
use crate::files::Workspace;
use crate::path::WorkPath;

/// A file with a longer line than this is skipped, so that one file cannot fill the memory.
const MAX_LINE_BUFFER_BYTES: usize = 16 << 20;
const MAX_REGEX_BYTES: usize = 10 << 20;

/// What to search for, and how much to return.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The search ends after files of this many bytes together, so that it ends soon in any folder.
    pub max_file_bytes: u64,
}

/// What was found, sorted by path and line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchResult {
    /// The matching lines.
    pub matches: Vec<Match>,
    /// How many files were searched.
    pub files: usize,
    /// How many files were left out because they could not be read or have a line over 16 MiB. Binary files do not count.
    pub skipped: usize,
    /// Whether a limit ended the search early.
    pub truncated: bool,
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
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
        }
    }
}

impl Workspace {
    /// Searches. Left out are binary files, `.git` and what the ignore files hide; links are not followed.
    ///
    /// # Errors
    /// [`WorkspaceError::Regex`], [`Glob`](WorkspaceError::Glob), and those of [`metadata`](Self::metadata) and
    /// [`resolve`](Self::resolve) for the path. A file that cannot be read is counted, not an error.
    pub fn search(&self, options: &SearchOptions) -> Result<SearchResult, WorkspaceError> {
        let matcher = compile(&options.regex)?;
        let glob = options.glob.as_deref().map(compile_glob).transpose()?;
        self.metadata(&options.path)?;
        let mut searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(options.context_lines)
            .after_context(options.context_lines)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BUFFER_BYTES))
            .build();
        let mut result = SearchResult::default();
        let mut left_bytes = options.max_file_bytes;
        for entry in self.walk(&options.path)?.build().flatten() {
            let wanted = entry.file_type().is_some_and(|kind| kind.is_file());
            let Some(path) = self.inside(entry.path()).filter(|_| wanted) else { continue };
            if !glob.as_ref().is_none_or(|glob| meets(glob, &path)) {
                continue;
            }
            let Ok(file) = self.open_regular(&path) else {
                result.skipped += 1;
                continue;
            };
            let size = file.metadata().map_or(0, |found| found.len());
            if size > left_bytes {
                result.truncated = true;
                break;
            }
            left_bytes -= size;
            result.files += 1;
            let mut sink = Collector { options, path: &path, first: result.matches.len(), before: Vec::new(), result };
            let searched = searcher.search_file(&matcher, &file, &mut sink);
            result = sink.result;
            if searched.is_err() {
                result.skipped += 1;
            }
            if result.truncated {
                break;
            }
        }
        Ok(result)
    }
}

/// Gathers the matches of one file.
struct Collector<'a> {
    options: &'a SearchOptions,
    path: &'a WorkPath,
    /// The index of this file's first match, so that context is not given to another file's.
    first: usize,
    before: Vec<String>,
    result: SearchResult,
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.result.matches.len() >= self.options.max_matches {
            self.result.truncated = true;
            return Ok(false);
        }
        self.result.matches.push(Match {
            path: self.path.clone(),
            line: found.line_number().unwrap_or_default(),
            text: line(found.bytes(), self.options.max_line_bytes),
            before: std::mem::take(&mut self.before),
            after: Vec::new(),
        });
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let text = line(found.bytes(), self.options.max_line_bytes);
        match found.kind() {
            SinkContextKind::After => {
                if let Some(last) = self.result.matches.get_mut(self.first..).and_then(<[Match]>::last_mut) {
                    last.after.push(text);
                }
            }
            _ => self.before.push(text),
        }
        Ok(true)
    }

    /// A file that turns out to be binary loses the matches before its first NUL as well.
    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.result.matches.truncate(self.first);
        Ok(false)
    }
}

pub(crate) fn compile(regex: &str) -> Result<RegexMatcher, WorkspaceError> {
    RegexMatcherBuilder::new()
        // So that `$` matches before `\r\n` as well; the searcher has to agree on it.
        .crlf(true)
        // The searcher looks at many lines at once, and `^` and `$` are about each.
        .multi_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build(regex)
        .map_err(|error| WorkspaceError::Regex { pattern: shorten(regex), reason: error.to_string() })
}

fn compile_glob(glob: &str) -> Result<GlobMatcher, WorkspaceError> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| WorkspaceError::Glob { pattern: shorten(glob), reason: error.kind().to_string() })
}

fn meets(glob: &GlobMatcher, path: &WorkPath) -> bool {
    let path = path.as_path();
    glob.is_match(path) || path.file_name().is_some_and(|name| glob.is_match(name))
}

fn line(bytes: &[u8], max_bytes: usize) -> String {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let Some(start) = bytes.get(..max_bytes).filter(|start| start.len() < bytes.len()) else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let whole = crate::capture::whole_characters(start);
    format!("{}…", String::from_utf8_lossy(whole))
}
