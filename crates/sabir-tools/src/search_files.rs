//! `search_files`: the lines of files that match a regular expression.

use std::sync::Arc;

use sabir_agent::{Access, Progress, ToolOutput};
use sabir_workspace::{Match, SearchOptions, SearchResult, WorkPath};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::words::{self, count};

const MAX_MATCHES: usize = 200;
const MAX_LINE_BYTES: usize = 300;
const MAX_OUTPUT_BYTES: usize = 48 << 10;

/// The tool.
pub(crate) struct SearchFiles(pub(crate) Arc<Ground>);

/// Search files line by line with a regular expression. Matches come with their line numbers and a line of
/// context. Binary files and what .gitignore hides are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The expression, in Rust's syntax; begin with `(?i)` to ignore case.
    regex: String,
    /// The folder or file to search. Default: the workspace.
    path: Option<String>,
    /// Search only files of this name or path, as in `*.rs` or `src/**/*.rs`.
    file_pattern: Option<String>,
}

impl BuiltIn for SearchFiles {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "search_files";
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"regex": "fn \\w+_config", "path": "src", "file_pattern": "*.rs"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.reading(input.path.as_deref().unwrap_or("."))
    }

    async fn run(self: Arc<Self>, input: Input, _: Progress<'_>) -> Result<ToolOutput, String> {
        words::blocking(move || search(&self.0, &input).map(ToolOutput::done)).await
    }
}

fn search(ground: &Ground, input: &Input) -> Result<String, String> {
    let path = ground.resolve(input.path.as_deref().unwrap_or(".")).map_err(|error| ground.explain(&error))?;
    let options = SearchOptions {
        glob: input.file_pattern.clone().filter(|pattern| !pattern.is_empty()),
        context_lines: 1,
        max_matches: MAX_MATCHES,
        max_line_bytes: MAX_LINE_BYTES,
        path,
        ..SearchOptions::new(&input.regex)
    };
    let result = ground.workspace().search(&options).map_err(|error| ground.explain(&error))?;
    if result.matches.is_empty() {
        return Ok(nothing(&options, &result));
    }
    let (mut words, shown) = show(&result.matches);
    if result.truncated || shown < result.matches.len() {
        words.push_str(&format!(
            "\n[Only the first {}. Narrow the search with path, file_pattern or a more exact regex.]",
            count(shown, "matching line")
        ));
    }
    if result.skipped > 0 {
        words.push_str(&format!("\n[{} could not be searched.]", count(result.skipped, "file")));
    }
    Ok(words)
}

fn nothing(options: &SearchOptions, result: &SearchResult) -> String {
    let files = count(result.files, "file");
    match &options.glob {
        Some(glob) if result.files == 0 => {
            format!("No file in `{}` matches `{glob}`, so nothing was searched.", options.path)
        }
        _ if result.truncated => {
            format!("No line matches in the first {files}; the rest was too much to search. Give a path.")
        }
        _ => format!("No line matches in {files}. Upper and lower case count, unless the regex begins with `(?i)`."),
    }
}

/// The matches by file, `NUMBER: LINE` for a match and `NUMBER- LINE` for its context, and how many there was room for.
fn show(matches: &[Match]) -> (String, usize) {
    let mut words = String::new();
    let mut before: Option<(&WorkPath, u64)> = None;
    for (index, found) in matches.iter().enumerate() {
        let mut number = found.line.saturating_sub(found.before.len() as u64);
        let mut part = match before {
            Some((path, last)) if *path == found.path => if number > last + 1 { "--\n" } else { "" }.to_owned(),
            _ => format!("{}{}\n", if before.is_some() { "\n" } else { "" }, found.path),
        };
        let context = |lines: &'_ [String], mark| lines.iter().map(|line| (mark, line.clone())).collect::<Vec<_>>();
        let matched = vec![(':', found.text.clone())];
        for (mark, line) in [context(&found.before, '-'), matched, context(&found.after, '-')].concat() {
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
