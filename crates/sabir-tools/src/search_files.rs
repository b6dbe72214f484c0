//! `search_files`: the lines of files that match a regular expression.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_edit::{DecodedText, TextEncoding};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{
    EntryKind, SearchMatch, SearchOptions, SearchResult, StopFlag, WorkPath, WorkspaceError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::file_tracker::FileTracker;
use crate::text::{self, count_noun};
use crate::typed_tool::TypedTool;

const MAX_MATCHES: usize = 200;
const MAX_LINE_BYTES: usize = 300;
const MAX_OUTPUT_BYTES: usize = 48 << 10;
const MAX_CONTEXT_LINES: usize = 20;
/// How much of a file is looked at to tell whether it is binary.
const HEAD_BYTES: usize = 8 << 10;

/// The tool.
pub(crate) struct SearchFiles(pub(crate) Arc<FileTracker>);

/// Search files line by line with a regular expression. Matches come with their line numbers. Binary files and what
/// .gitignore hides are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The expression, in Rust's syntax; begin with `(?i)` to ignore case.
    regex: String,
    /// The folder or file to search. Default: the workspace.
    path: Option<String>,
    /// Search only files of this name or path, as in `*.rs` or `src/**/*.rs`.
    file_pattern: Option<String>,
    /// How many lines to show around each match. Default 1.
    #[schemars(range(min = 0, max = 20))]
    context_lines: Option<usize>,
}

/// What was found.
pub(crate) struct SearchOutcome {
    path: WorkPath,
    glob: Option<String>,
    result: SearchResult,
    /// What the file is that was to be searched, if it is none that can be.
    unsearchable_kind: Option<String>,
}

impl TypedTool for SearchFiles {
    type Input = Input;
    type Output = SearchOutcome;
    const NAME: &'static str = "search_files";
    const MANUAL: &'static str = include_str!("specs/search_files.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"regex": "fn \\w+_config", "path": "src", "file_pattern": "*.rs"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.read_access(input.path.as_deref().unwrap_or("."))
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<SearchOutcome, String> {
        text::run_stoppable(move |stop| run_search(&self.0, &input, stop)).await
    }
}

fn run_search(
    ground: &FileTracker,
    input: &Input,
    stop: StopFlag,
) -> Result<SearchOutcome, String> {
    let path = ground
        .resolve_path(input.path.as_deref().unwrap_or("."))
        .map_err(|error| ground.explain_error(&error))?;
    let options = SearchOptions {
        glob: input
            .file_pattern
            .clone()
            .filter(|pattern| !pattern.is_empty()),
        context_lines: input.context_lines.unwrap_or(1).min(MAX_CONTEXT_LINES),
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE_BYTES,
        path,
        stop,
        ..SearchOptions::new(&input.regex)
    };
    let result = ground.workspace().search_files(&options).map_err(|error| match error {
        WorkspaceError::Regex { reason, .. } => explain_regex_error(&input.regex, &reason),
        WorkspaceError::Glob { pattern, reason } => {
            format!("The file_pattern `{pattern}` is not valid: {reason}. Write it as in `*.rs` or `src/**/*.rs`.")
        }
        error => ground.explain_error(&error),
    })?;
    let SearchOptions { path, glob, .. } = options;
    let unsearched = result
        .matches
        .is_empty()
        .then(|| find_unsearchable_kind(ground, &path))
        .flatten();
    Ok(SearchOutcome {
        path,
        glob,
        result,
        unsearchable_kind: unsearched,
    })
}

/// What is wrong with an expression, where, and the usual cause.
fn explain_regex_error(regex: &str, reason: &str) -> String {
    const CAUSES: [(&str, &str); 9] = [
        (
            "is not allowed in a regex",
            "Each line is searched by itself, so search for what stands in one line.",
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
    // The search puts more around an expression, which the model never wrote.
    let own = regex_syntax::Parser::new()
        .parse(regex)
        .err()
        .map(|error| error.to_string());
    let reason = own.as_deref().unwrap_or(reason);
    let reason = reason
        .trim_start_matches("regex parse error:\n")
        .trim_end()
        .trim_end_matches('.');
    let (shown, what) = reason.rsplit_once("error: ").unwrap_or(("", reason));
    let cause = CAUSES.iter().find(|(word, _)| what.contains(word));
    let cause = cause.map_or(
        "Write it in the syntax of Rust's regex crate.",
        |(_, cause)| cause,
    );
    match shown.trim_end() {
        "" => format!("The regex is not valid: {what}. {cause}"),
        shown => format!("The regex is not valid: {what}. {cause}\n{shown}"),
    }
}

/// What a file is that the search takes for a binary one, as it does where there is a NUL.
fn find_unsearchable_kind(ground: &FileTracker, path: &WorkPath) -> Option<String> {
    let is_file = ground
        .workspace()
        .metadata(path)
        .is_ok_and(|found| found.kind == EntryKind::File);
    let start = is_file
        .then(|| ground.workspace().read_file(path, HEAD_BYTES).ok())
        .flatten()?;
    if !start.bytes.contains(&0) {
        return None;
    }
    match DecodedText::decode(&start.bytes) {
        // With a byte order mark it was read as what it is.
        Ok(DecodedText {
            encoding: TextEncoding::Utf16LeMark | TextEncoding::Utf16BeMark,
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
            return Self::done(searched.no_match_message());
        }
        let (mut words, shown) = render_matches(&result.matches);
        if result.truncated || shown < result.matches.len() {
            words.push_str(&format!(
                "\n[Only the first {}. Narrow the search with path, file_pattern or a more exact regex.]",
                count_noun(shown, "matching line")
            ));
        }
        words.push_str(&searched.skipped_note());
        Self::done(words)
    }
}

impl SearchOutcome {
    fn no_match_message(&self) -> String {
        let files = count_noun(self.result.files, "file");
        if let Some(what) = &self.unsearchable_kind {
            return format!(
                "`{}` is {what}, which is not searched. Use execute_command.",
                self.path
            );
        }
        let words = match &self.glob {
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
        words + &self.skipped_note()
    }

    fn skipped_note(&self) -> String {
        match self.result.skipped {
            0 => String::new(),
            skipped => format!("\n[{} could not be searched.]", count_noun(skipped, "file")),
        }
    }
}

/// The matches by file, `NUMBER: LINE` for a match and `NUMBER- LINE` for its context, and how many there was room for.
fn render_matches(matches: &[SearchMatch]) -> (String, usize) {
    let mut words = String::new();
    let mut before: Option<(&WorkPath, u64)> = None;
    for (index, found) in matches.iter().enumerate() {
        let mut number = found.line.saturating_sub(found.before.len() as u64);
        let mut part = match before {
            Some((path, last)) if *path == found.path => {
                if number > last + 1 { "--\n" } else { "" }.to_owned()
            }
            _ => format!(
                "{}{}\n",
                if before.is_some() { "\n" } else { "" },
                found.path
            ),
        };
        let context = |lines: &'_ [String], mark| {
            lines
                .iter()
                .map(|line| (mark, line.clone()))
                .collect::<Vec<_>>()
        };
        let matched = vec![(':', found.text.clone())];
        for (mark, line) in [
            context(&found.before, '-'),
            matched,
            context(&found.after, '-'),
        ]
        .concat()
        {
            part.push_str(format!("{number}{mark} {line}").trim_end());
            part.push('\n');
            number += 1;
        }
        if index > 0 && words.len() + part.len() > MAX_OUTPUT_BYTES {
            return (words.trim_end().to_owned(), index);
        }
        words.push_str(&part);
        before = Some((&found.path, number - 1));
    }
    (words.trim_end().to_owned(), matches.len())
}
