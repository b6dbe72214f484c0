//! `write_to_file`: a whole file, new or replaced.

use std::sync::Arc;

use sabir_agent::{Access, Progress, ToolOutput};
use sabir_workspace::{Expect, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::words::{self, MAX_FILE_BYTES, count};

/// The tool.
pub(crate) struct WriteToFile(pub(crate) Arc<Ground>);

/// Write a whole file: a new one, or a new content for an old one. Missing folders are made. To change parts of a
/// file use replace_in_file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// All that the file is to hold; nothing may be left out.
    content: String,
}

impl BuiltIn for WriteToFile {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "write_to_file";
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"path": "docs/plan.md", "content": "# Plan\n\n- Parse\n- Check\n"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.writing(&input.path)
    }

    async fn run(self: Arc<Self>, input: Input, _: Progress<'_>) -> Result<ToolOutput, String> {
        words::blocking(move || write(&self.0, &input).map(ToolOutput::done)).await
    }
}

fn write(ground: &Ground, input: &Input) -> Result<String, String> {
    let path = ground.target(&input.path)?;
    let stale = || {
        format!(
            "`{path}` changed on disk since you last read or wrote it, so nothing was written. Read it again, and redo the change \
             on what it holds now."
        )
    };
    let old = match ground.workspace().read(&path, MAX_FILE_BYTES) {
        Ok(old) => Some(old),
        Err(WorkspaceError::Missing { .. }) => None,
        Err(error) => return Err(ground.explain(&error)),
    };
    let known = ground.known(&path);
    if old.as_ref().zip(known).is_some_and(|(old, known)| old.version != known) {
        return Err(stale());
    }
    if let Some(old) = old.as_ref().filter(|old| old.bytes == input.content.as_bytes()) {
        ground.learn(path.clone(), old.version);
        return Ok(format!("`{path}` holds exactly this content already; nothing was written."));
    }
    let expect = old.as_ref().map_or(Expect::Missing, |old| Expect::Version(old.version));
    let written = ground.workspace().write(&path, input.content.as_bytes(), expect).map_err(|error| match error {
        WorkspaceError::Stale { .. } | WorkspaceError::Exists { .. } => stale(),
        error => ground.explain(&error),
    })?;
    ground.learn(path.clone(), written);
    let lines = count(input.content.lines().count(), "line");
    Ok(match old {
        None => format!("Wrote {lines} to the new file `{path}`."),
        Some(old) => {
            let before = if old.truncated {
                format!("{} bytes", old.size_bytes)
            } else {
                count(String::from_utf8_lossy(&old.bytes).lines().count(), "line")
            };
            let unread = if known.is_none() { ", which you had not read" } else { "" };
            format!("Wrote {lines} to `{path}`, in place of its {before}{unread}.")
        }
    })
}
