//! `replace_in_file`: parts of a file, by exact SEARCH/REPLACE blocks.

use std::sync::Arc;

use sabir_agent::{Access, Progress, ToolOutput};
use sabir_workspace::edit::{self, EditFault};
use sabir_workspace::{Expect, WorkPath, WorkspaceError, unified};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::words::{self, MAX_FILE_BYTES, count};

const MAX_FAULTS: usize = 10;

/// The tool.
pub(crate) struct ReplaceInFile(pub(crate) Arc<Ground>);

/// Change parts of a file with SEARCH/REPLACE blocks. All blocks are applied, or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// One or more blocks: a line `------- SEARCH`, then whole lines exactly as they stand in the file, indentation
    /// included and enough of them to be found only once, a line `=======`, the lines instead (none to delete), a
    /// line `+++++++ REPLACE`.
    diff: String,
}

impl BuiltIn for ReplaceInFile {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "replace_in_file";
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({
            "path": "src/server.rs",
            "diff": "------- SEARCH\n    let port = 80;\n=======\n    let port = 8080;\n+++++++ REPLACE",
        })
    }

    fn access(&self, input: &Input) -> Access {
        self.0.writing(&input.path)
    }

    async fn run(self: Arc<Self>, input: Input, _: Progress<'_>) -> Result<ToolOutput, String> {
        words::blocking(move || replace(&self.0, &input).map(ToolOutput::done)).await
    }
}

fn replace(ground: &Ground, input: &Input) -> Result<String, String> {
    let path = ground.target(&input.path)?;
    let old = ground.workspace().read(&path, MAX_FILE_BYTES).map_err(|error| match error {
        WorkspaceError::Missing { .. } => format!("{} To make a new file use write_to_file.", ground.explain(&error)),
        error => ground.explain(&error),
    })?;
    if old.truncated {
        return Err(format!(
            "`{path}` has {} bytes, and replace_in_file edits files up to {MAX_FILE_BYTES}. Use execute_command.",
            old.size_bytes
        ));
    }
    let text = String::from_utf8(old.bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("`{path}` is not UTF-8 text (byte {at} is the first that is wrong), so it cannot be edited. Use execute_command.")
    })?;
    let edited = edit::apply_blocks(&text, &input.diff).map_err(|faults| explain(&path, &faults))?;
    let written = ground.workspace().write(&path, edited.content.as_bytes(), Expect::Version(old.version));
    let written = written.map_err(|error| ground.explain(&error))?;
    let diff = unified(&text, &edited.content, &path.to_string());
    // The first two lines only name the file.
    let diff: String = diff.split_inclusive('\n').skip(2).collect();
    let mut words =
        format!("Changed `{path}`, {}:\n{}", count(edited.hunks.len(), "block"), diff.trim_end_matches('\n'));
    match ground.known(&path) {
        Some(known) if known != old.version => {
            // The model still does not know the rest of the file, so it must not overwrite it unread.
            words.push_str("\n[Other lines of the file may have changed since you last read it.]");
        }
        _ => ground.learn(path, written),
    }
    Ok(words)
}

fn explain(path: &WorkPath, faults: &[EditFault]) -> String {
    let mut words = format!("Nothing was changed in `{path}`:");
    for fault in faults.iter().take(MAX_FAULTS) {
        words.push_str(&format!("\n{fault}"));
    }
    if let Some(more @ 1..) = faults.len().checked_sub(MAX_FAULTS) {
        words.push_str(&format!("\n[{more} more of the kind.]"));
    }
    words
}
