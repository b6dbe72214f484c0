//! `search_files`: finds the lines of files that match a regular expression.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_call::escaping::escape_name;
use sabir_edit::{DecodedText, TextEncoding};
use sabir_policy::{Access, ToolGroup, names_secret_file};
use sabir_workspace::{
    EntryKind, SearchMatch, SearchOptions, SearchResult, StopFlag, WorkPath, WorkspaceError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{WorkerError, run_stoppable};
use crate::file_error::FileError;
use crate::file_tracker::FileTracker;
use crate::text::count_noun;
use crate::typed_tool::TypedTool;

/// The number of matching lines that one search collects.
const MAX_MATCHES: usize = 200;
/// The size above which a line is cut.
const MAX_LINE_BYTES: usize = 300;
/// The size of the result.
const MAX_OUTPUT_BYTES: usize = 48 << 10;
/// The number of lines around a match; a greater wish is reduced to it.
const MAX_CONTEXT_LINES: usize = 20;
/// The size of a file's start that is examined to find out whether the file is binary.
const HEAD_BYTES: usize = 8 << 10;

/// The tool, over the files of a task.
pub(crate) struct SearchFiles(pub(crate) Arc<FileTracker>);

/// Search lines of files with a regular expression. Matches have line numbers. Binary files and what
/// .gitignore hides are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFilesArguments {
    /// The expression, in Rust's syntax; begin with `(?i)` to ignore case.
    regex: String,
    /// The folder or file to search. Default: the workspace.
    path: Option<String>,
    /// Only files of this name or path, as in `*.rs` or `src/**/*.rs`.
    file_pattern: Option<String>,
    /// How many lines to show around each match. Default 1.
    #[schemars(range(min = 0, max = 20))]
    context_lines: Option<usize>,
}

/// The result of a search.
pub(crate) struct SearchOutcome {
    /// The folder or file that was searched.
    path: WorkPath,
    glob: Option<String>,
    result: SearchResult,
    /// The kind of file that `path` is, if it is a file that cannot be searched.
    unsearchable_kind: Option<String>,
}

/// A failure to search.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    /// The regular expression is not valid.
    #[error(transparent)]
    Regex(#[from] RegexProblem),
    /// The pattern for file names is not valid.
    #[error(
        "The file_pattern `{pattern}` is not valid: {reason}. Write it as in `*.rs` or `src/**/*.rs`."
    )]
    Glob {
        /// The pattern as the model wrote it.
        pattern: String,
        /// The message of the glob parser.
        reason: String,
    },
    /// The path or the files cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// An invalid regular expression: the problem, its usual remedy, and the place where it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("The regex is not valid: {problem}. {remedy}{}", on_new_line(.excerpt))]
pub(crate) struct RegexProblem {
    /// The problem in the words of the regex parser.
    problem: String,
    remedy: &'static str,
    /// The expression with a mark under the problem; empty if the parser gave none.
    excerpt: String,
}

/// Puts a text on a line of its own, if there is any.
fn on_new_line(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("\n{text}")
    }
}

impl TypedTool for SearchFiles {
    type Arguments = SearchFilesArguments;
    type Call = SearchFilesArguments;
    type Output = SearchOutcome;
    type Error = SearchError;
    const NAME: &'static str = "search_files";
    const MANUAL: &'static str = include_str!("specs/search_files.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example_arguments() -> Value {
        json!({"regex": "fn \\w+_config", "path": "src", "file_pattern": "*.rs"})
    }

    fn prepare_call(&self, arguments: SearchFilesArguments) -> SearchFilesArguments {
        arguments
    }

    fn call_access(&self, call: &SearchFilesArguments) -> Access {
        self.0.read_access(call.searched_path())
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: SearchFilesArguments,
        _: ProgressSink<'_>,
    ) -> Result<SearchOutcome, SearchError> {
        run_stoppable(move |stop| run_search(&self.0, &call, stop)).await
    }
}

impl SearchFilesArguments {
    /// Returns the path to search; by default the workspace.
    fn searched_path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

/// Searches, until `stop` is set.
fn run_search(
    tracker: &FileTracker,
    call: &SearchFilesArguments,
    stop: StopFlag,
) -> Result<SearchOutcome, SearchError> {
    let path = tracker.find_path(call.searched_path())?;
    let options = SearchOptions {
        // Models send an empty pattern where they mean none.
        glob: call
            .file_pattern
            .clone()
            .filter(|pattern| !pattern.is_empty()),
        context_lines: call.context_lines.unwrap_or(1).min(MAX_CONTEXT_LINES),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE_BYTES,
        // A folder that was asked about as a whole is searched as a whole.
        leave_out: (!names_secret_file(&path.to_string())).then_some(names_secret_file),
        path,
        stop,
        ..SearchOptions::new(&call.regex)
    };
    let result = match tracker.workspace().search_files(&options) {
        Ok(result) => result,
        Err(WorkspaceError::Regex { reason, .. }) => {
            return Err(explain_regex_error(&call.regex, &reason).into());
        }
        Err(WorkspaceError::Glob { pattern, reason }) => {
            return Err(SearchError::Glob { pattern, reason });
        }
        Err(error) => return Err(tracker.explain_error(error).into()),
    };
    let SearchOptions { path, glob, .. } = options;
    let unsearchable_kind = result
        .matches
        .is_empty()
        .then(|| find_unsearchable_kind(tracker, &path))
        .flatten();
    Ok(SearchOutcome {
        path,
        glob,
        result,
        unsearchable_kind,
    })
}

/// Finds the problem of an expression, its position and the usual remedy. `reason` is the search's
/// error message.
fn explain_regex_error(regex: &str, reason: &str) -> RegexProblem {
    /// Remedies by a part of the parser's message.
    const REMEDIES: [(&str, &str); 9] = [
        (
            "is not allowed in a regex",
            "Each line is searched by itself, so search for text within one line.",
        ),
        ("unclosed group", "To search for a `(` itself, write `\\(`."),
        ("unopened group", "To search for a `)` itself, write `\\)`."),
        (
            "unclosed character class",
            "To search for a `[` itself, write `\\[`.",
        ),
        (
            "repetition operator missing",
            "To search for a `*`, `+` or `?` itself, put a `\\` before it.",
        ),
        (
            "counted repetition",
            "To search for a `{` itself, write `\\{`.",
        ),
        (
            "repetition quantifier",
            "To search for a `{` itself, write `\\{`.",
        ),
        (
            "look-around",
            "Leave it out, and look through the lines that are found.",
        ),
        (
            "backreferences",
            "Leave it out, and look through the lines that are found.",
        ),
    ];
    // The search wraps the expression, and its message would quote what the model never wrote.
    let own = regex_syntax::Parser::new()
        .parse(regex)
        .err()
        .map(|error| error.to_string());
    let reason = own.as_deref().unwrap_or(reason);
    let reason = reason
        .trim_start_matches("regex parse error:\n")
        .trim_end()
        .trim_end_matches('.');
    let (excerpt, problem) = reason.rsplit_once("error: ").unwrap_or(("", reason));
    let remedy = REMEDIES
        .iter()
        .find(|(part, _)| problem.contains(part))
        .map_or(
            "Write it in the syntax of Rust's regex crate.",
            |(_, remedy)| remedy,
        );
    RegexProblem {
        problem: problem.to_owned(),
        remedy,
        excerpt: excerpt.trim_end().to_owned(),
    }
}

/// Returns the kind of a file that the search skips as binary: one with a NUL byte. `None` for other
/// files and for folders.
fn find_unsearchable_kind(tracker: &FileTracker, path: &WorkPath) -> Option<String> {
    let is_file = tracker
        .workspace()
        .metadata(path)
        .is_ok_and(|found| found.kind == EntryKind::File);
    let start = is_file
        .then(|| tracker.workspace().read_file(path, HEAD_BYTES).ok())
        .flatten()?;
    if !start.bytes.contains(&0) {
        return None;
    }
    match DecodedText::decode(&start.bytes) {
        // The search decodes UTF-16 with a byte order mark, so such a file was searched.
        Ok(DecodedText {
            encoding: TextEncoding::Utf16LeBom | TextEncoding::Utf16BeBom,
            ..
        }) => None,
        Ok(text) => Some(format!("in {}", text.encoding.name())),
        Err(_) => Some("a binary file".to_owned()),
    }
}

impl From<SearchOutcome> for ToolOutput {
    fn from(searched: SearchOutcome) -> Self {
        let result = &searched.result;
        if result.matches.is_empty() {
            // No match is an answer, not a failure.
            return Self::done(searched.no_match_message());
        }
        let RenderedMatches { mut text, shown } = render_matches(&result.matches);
        if result.truncated || shown < result.matches.len() {
            text.push_str(&format!(
                "\n[Only the first {}. Narrow the search with path, file_pattern or a more exact regex.]",
                count_noun(shown, "matching line")
            ));
        }
        // Otherwise the model takes the search for complete.
        text.push_str(&searched.skipped_note());
        Self::done(text)
    }
}

impl SearchOutcome {
    /// Explains an empty result: models otherwise take it for proof that the text exists nowhere.
    fn no_match_message(&self) -> String {
        let files = count_noun(self.result.files, "file");
        if let Some(kind) = &self.unsearchable_kind {
            return format!(
                "`{}` is {kind}, which is not searched. Use execute_command.",
                self.path
            );
        }
        let message = match &self.glob {
            Some(glob) if self.result.files == 0 && !self.result.truncated => {
                format!(
                    "No file in `{}` matches `{glob}`, so nothing was searched.",
                    self.path
                )
            }
            _ if self.result.truncated => {
                format!(
                    "No line matches in the first {files}; the rest was too much to search. Give a path."
                )
            }
            _ => {
                format!(
                    "No line matches in {files}. Upper and lower case count, unless the regex begins with `(?i)`."
                )
            }
        };
        message + &self.skipped_note()
    }

    /// Returns the remark on files that could not be searched; empty if there are none.
    fn skipped_note(&self) -> String {
        let mut note = match self.result.skipped {
            0 => String::new(),
            skipped => format!("\n[{} could not be searched.]", count_noun(skipped, "file")),
        };
        if self.result.left_out > 0 {
            note.push_str(&format!(
                "\n[{} that usually hold secrets left out. To search one, give it as the path; the user is asked.]",
                count_noun(self.result.left_out, "file")
            ));
        }
        note
    }
}

/// Matches as text.
struct RenderedMatches {
    text: String,
    /// The number of matches that fitted.
    shown: usize,
}

/// Renders the matches by file, `NUMBER: LINE` for a match and `NUMBER- LINE` for its context, until
/// the size limit.
fn render_matches(matches: &[SearchMatch]) -> RenderedMatches {
    let mut text = String::new();
    // The file and the last line of the match before.
    let mut previous: Option<(&WorkPath, u64)> = None;
    for (index, found) in matches.iter().enumerate() {
        let first_line = found.line.saturating_sub(found.before.len() as u64);
        let mut part = match previous {
            Some((path, last)) if *path == found.path => {
                if first_line > last + 1 { "--\n" } else { "" }.to_owned()
            }
            Some(_) => format!("\n{}\n", escape_name(&found.path.to_string())),
            None => format!("{}\n", escape_name(&found.path.to_string())),
        };
        let before = found.before.iter().map(|line| ('-', line));
        let after = found.after.iter().map(|line| ('-', line));
        let lines = before.chain([(':', &found.text)]).chain(after);
        let mut last_line = first_line;
        for (number, (mark, line)) in (first_line..).zip(lines) {
            part.push_str(format!("{number}{mark} {line}").trim_end());
            part.push('\n');
            last_line = number;
        }
        // The first match is shown at any size.
        if index > 0 && text.len() + part.len() > MAX_OUTPUT_BYTES {
            return RenderedMatches {
                text: text.trim_end().to_owned(),
                shown: index,
            };
        }
        text.push_str(&part);
        previous = Some((&found.path, last_line));
    }
    RenderedMatches {
        text: text.trim_end().to_owned(),
        shown: matches.len(),
    }
}
