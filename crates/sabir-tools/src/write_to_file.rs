//! `write_to_file`: a whole file, new or replaced.

use std::sync::Arc;

use sabir_agent::{Bound, Permit, Progress, ToolOutput};
use sabir_edit::{Encoding, Text};
use sabir_policy::Access;
use sabir_workspace::{Change, Expect, FileContent, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bound;
use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::preview;
use crate::text_file::encode;
use crate::words::{self, MAX_FILE_BYTES, count};

/// The tool.
pub(crate) struct WriteToFile(pub(crate) Arc<Ground>);

/// Write a whole file: a new one, or a new content for an old one. Missing folders are made. Change parts of a file
/// with the edit tool instead.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// All that the file is to hold; nothing may be left out.
    content: String,
}

/// What became of the file.
pub(crate) struct Written {
    path: WorkPath,
    lines: usize,
    before: Before,
    /// Whether the file had CRLF line endings, and has others now.
    lost_crlf: bool,
}

/// What was there.
enum Before {
    Nothing,
    /// The same.
    Same,
    Lines {
        lines: usize,
        read: bool,
    },
    /// What is no text, or too large to be counted.
    Bytes {
        bytes: u64,
        read: bool,
    },
}

impl BuiltIn for WriteToFile {
    type Input = Input;
    type Output = Written;
    const NAME: &'static str = "write_to_file";
    const MANUAL: &'static str = include_str!("specs/write_to_file.md");
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"path": "docs/plan.md", "content": "# Plan\n\n- Parse\n- Check\n"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.writing(&input.path)
    }

    fn bound(&self, input: &Input) -> Bound {
        bound::of_writes(&self.0, [input.path.as_str()])
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::of_write(&self.0, &input.path, &input.content)
    }

    async fn run(self: Arc<Self>, _: &Permit, input: Input, _: Progress<'_>) -> Result<Written, String> {
        words::blocking(move || write(&self.0, &input)).await
    }
}

impl From<Written> for ToolOutput {
    fn from(written: Written) -> Self {
        let Written { path, lines, before, lost_crlf } = written;
        let lines = count(lines, "line");
        let unread = |read| if read { "" } else { ", which you had not read" };
        let mut words = match before {
            Before::Nothing => format!("Wrote {lines} to the new file `{path}`."),
            Before::Same => format!("`{path}` holds exactly this content already; nothing was written."),
            Before::Lines { lines: old, read } => {
                format!("Wrote {lines} to `{path}`, in place of its {}{}.", count(old, "line"), unread(read))
            }
            Before::Bytes { bytes, read } => {
                format!("Wrote {lines} to `{path}`, in place of its {}{}.", words::bytes(bytes), unread(read))
            }
        };
        if lost_crlf {
            words.push_str("\n[Its lines ended in CRLF, and do not any more.]");
        }
        Self::done(words)
    }
}

fn write(ground: &Ground, input: &Input) -> Result<Written, String> {
    let path = ground.target(&input.path)?;
    let old = match ground.workspace().read(&path, MAX_FILE_BYTES) {
        Ok(old) => Some(old),
        Err(WorkspaceError::Missing { .. }) => None,
        Err(error) => return Err(ground.explain(&error)),
    };
    let lines = input.content.lines().count();
    let Some(old) = old else {
        let change = Change::write(path.clone(), input.content.as_bytes().to_vec(), Expect::Missing);
        ground.make(&[change], &[&input.content])?;
        return Ok(Written { path, lines, before: Before::Nothing, lost_crlf: false });
    };
    let text = Text::decode(&old.bytes).ok().filter(|_| !old.truncated);
    ground.fresh(&path, old.version, text.as_ref().map(|text| text.content.as_str()))?;
    let encoding = text.as_ref().map_or(Encoding::Utf8, |text| text.encoding);
    let bytes = encode(&path, encoding, &input.content)?;
    if old.bytes == bytes && !old.truncated {
        ground.learn(path.clone(), old.version, Some(&input.content));
        return Ok(Written { path, lines, before: Before::Same, lost_crlf: false });
    }
    let before = before(&old, text.as_ref(), ground.knows(&path));
    let lost_crlf = text.is_some_and(|text| text.content.contains("\r\n")) && !input.content.contains("\r\n");
    let change = Change::write(path.clone(), bytes, Expect::Version(old.version));
    ground.make(&[change], &[&input.content])?;
    Ok(Written { path, lines, before, lost_crlf })
}

fn before(old: &FileContent, text: Option<&Text>, read: bool) -> Before {
    match text {
        Some(text) => Before::Lines { lines: text.content.lines().count(), read },
        None => Before::Bytes { bytes: old.size_bytes, read },
    }
}
