//! `read_file`: a text file, or some lines of it, with their numbers.

use std::sync::Arc;

use sabir_agent::{Access, Progress, ToolOutput};
use sabir_workspace::{FileContent, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::words::{self, MAX_FILE_BYTES, count};

const MAX_LINES: usize = 2000;
const MAX_OUTPUT_BYTES: usize = 64 << 10;
const MAX_LINE_BYTES: usize = 2000;
/// A NUL in the first so many bytes makes a file binary.
const LOOKED_AT_BYTES: usize = 8 << 10;

/// The tool.
pub(crate) struct ReadFile(pub(crate) Arc<Ground>);

/// Read a text file. Each line comes as `NUMBER | LINE`; number and bar are not part of the file. A long file
/// comes in parts; read on with start_line.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// First line to show, counted from 1.
    #[schemars(range(min = 1))]
    start_line: Option<usize>,
    /// Last line to show.
    #[schemars(range(min = 1))]
    end_line: Option<usize>,
}

impl BuiltIn for ReadFile {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "read_file";
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"path": "src/main.rs", "start_line": 40, "end_line": 80})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.reading(&input.path)
    }

    async fn run(self: Arc<Self>, input: Input, _: Progress<'_>) -> Result<ToolOutput, String> {
        words::blocking(move || read(&self.0, &input).map(ToolOutput::done)).await
    }
}

fn read(ground: &Ground, input: &Input) -> Result<String, String> {
    let (first, last) = (input.start_line.unwrap_or(1), input.end_line.unwrap_or(usize::MAX));
    if first == 0 || last < first {
        return Err(format!(
            "Lines {first} to {last} are no lines: start_line is at least 1, end_line at least start_line."
        ));
    }
    let path = ground.resolve(&input.path).map_err(|error| ground.explain(&error))?;
    let found = ground.workspace().read(&path, MAX_FILE_BYTES).map_err(|error| match error {
        WorkspaceError::NotAFile { found: "a folder", .. } => format!("`{path}` is a folder. Use list_files for it."),
        error => ground.explain(&error),
    })?;
    if found.bytes.iter().take(LOOKED_AT_BYTES).any(|byte| *byte == 0) {
        return Err(format!(
            "`{path}` is a binary file ({} bytes), which read_file cannot show. Use execute_command, with `file` or `xxd` for \
             instance.",
            found.size_bytes
        ));
    }
    let words = show(&path, &found, first, last)?;
    ground.learn(path, found.version);
    Ok(words)
}

/// The lines, as many as fit, and a last line in brackets when they are not the whole file.
fn show(path: &WorkPath, found: &FileContent, first: usize, last: usize) -> Result<String, String> {
    let text = String::from_utf8_lossy(&found.bytes);
    let total = text.lines().count();
    if total == 0 && first == 1 {
        return Ok(format!("`{path}` is empty."));
    }
    if first > total {
        return Err(format!(
            "`{path}` has {}, so there is no line {first}. Give a smaller start_line.",
            count(total, "line")
        ));
    }
    let last = last.min(total);
    let width = last.to_string().len();
    let (mut shown, mut end) = (String::new(), first);
    for (number, line) in (1..=last).zip(text.lines()).skip(first - 1).take(MAX_LINES) {
        let line = format!("{number:>width$} | {}\n", words::cut(line, MAX_LINE_BYTES));
        if number > first && shown.len() + line.len() > MAX_OUTPUT_BYTES {
            break;
        }
        shown.push_str(&line);
        end = number;
    }
    let mut notes = String::new();
    if first > 1 || end < total {
        notes.push_str(&format!("[Lines {first} to {end} of {total}."));
        if end < last {
            notes.push_str(&format!(" Read on with start_line {}.", end + 1));
        }
        notes.push(']');
    }
    if found.truncated {
        notes.push_str(&format!(
            "[The file has {} bytes and read_file sees the first {MAX_FILE_BYTES}. Use execute_command with `sed -n` for the rest.]",
            found.size_bytes
        ));
    }
    if text.contains('\u{fffd}') && std::str::from_utf8(&found.bytes).is_err() && !found.truncated {
        notes.push_str("[The file is not UTF-8; wrong bytes are shown as \u{fffd}.]");
    }
    shown.push_str(&notes);
    Ok(shown.trim_end_matches('\n').to_owned())
}
