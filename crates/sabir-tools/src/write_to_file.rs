//! `write_to_file`: a whole file, new or replaced.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, ToolOutput};
use sabir_edit::{DecodedText, TextEncoding};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, FileContent, WorkPath, WorkspaceError, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text::{self, MAX_FILE_BYTES, count_noun};
use crate::text_file::encode_content;
use crate::typed_tool::TypedTool;

/// The tool.
pub(crate) struct WriteToFile(pub(crate) Arc<FileTracker>);

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
pub(crate) struct WrittenFile {
    path: WorkPath,
    lines: usize,
    before: PreviousContent,
    /// Whether the file had CRLF line endings, and has others now.
    lost_crlf: bool,
}

/// What was there.
enum PreviousContent {
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

impl TypedTool for WriteToFile {
    type Input = Input;
    type Output = WrittenFile;
    const NAME: &'static str = "write_to_file";
    const MANUAL: &'static str = include_str!("specs/write_to_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"path": "docs/plan.md", "content": "# Plan\n\n- Parse\n- Check\n"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.write_access(&input.path)
    }

    fn preconditions(&self, input: &Input) -> Preconditions {
        preconditions::write_preconditions(&self.0, [input.path.as_str()])
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::preview_write(&self.0, &input.path, &input.content)
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<WrittenFile, String> {
        text::run_blocking(move || write_file(&self.0, &input)).await
    }
}

impl From<WrittenFile> for ToolOutput {
    fn from(written: WrittenFile) -> Self {
        let WrittenFile {
            path,
            lines,
            before,
            lost_crlf,
        } = written;
        let lines = count_noun(lines, "line");
        let unread = |read| if read { "" } else { ", which you had not read" };
        let mut words = match before {
            PreviousContent::Nothing => format!("Wrote {lines} to the new file `{path}`."),
            PreviousContent::Same => {
                format!("`{path}` holds exactly this content already; nothing was written.")
            }
            PreviousContent::Lines { lines: old, read } => {
                format!(
                    "Wrote {lines} to `{path}`, in place of its {}{}.",
                    count_noun(old, "line"),
                    unread(read)
                )
            }
            PreviousContent::Bytes { bytes, read } => {
                format!(
                    "Wrote {lines} to `{path}`, in place of its {}{}.",
                    text::count_bytes(bytes),
                    unread(read)
                )
            }
        };
        if lost_crlf {
            words.push_str("\n[Its lines ended in CRLF, and do not any more.]");
        }
        Self::done(words)
    }
}

fn write_file(ground: &FileTracker, input: &Input) -> Result<WrittenFile, String> {
    let path = ground.write_target(&input.path)?;
    let old = match ground.workspace().read_file(&path, MAX_FILE_BYTES) {
        Ok(old) => Some(old),
        Err(WorkspaceError::Missing { .. }) => None,
        Err(error) => return Err(ground.explain_error(&error)),
    };
    let lines = input.content.lines().count();
    let Some(old) = old else {
        let change = FileChange::write(
            path.clone(),
            input.content.as_bytes().to_vec(),
            WritePrecondition::Missing,
        );
        ground.apply_changes(&[change], &[&input.content])?;
        return Ok(WrittenFile {
            path,
            lines,
            before: PreviousContent::Nothing,
            lost_crlf: false,
        });
    };
    let text = DecodedText::decode(&old.bytes)
        .ok()
        .filter(|_| !old.truncated);
    ground.check_fresh(
        &path,
        old.version,
        text.as_ref().map(|text| text.content.as_str()),
    )?;
    let encoding = text
        .as_ref()
        .map_or(TextEncoding::Utf8, |text| text.encoding);
    let bytes = encode_content(&path, encoding, &input.content)?;
    if old.bytes == bytes && !old.truncated {
        ground.record_version(path.clone(), old.version, Some(&input.content));
        return Ok(WrittenFile {
            path,
            lines,
            before: PreviousContent::Same,
            lost_crlf: false,
        });
    }
    let before = previous_content(&old, text.as_ref(), ground.is_known(&path));
    let lost_crlf =
        text.is_some_and(|text| text.content.contains("\r\n")) && !input.content.contains("\r\n");
    let change = FileChange::write(path.clone(), bytes, WritePrecondition::Version(old.version));
    ground.apply_changes(&[change], &[&input.content])?;
    Ok(WrittenFile {
        path,
        lines,
        before,
        lost_crlf,
    })
}

fn previous_content(old: &FileContent, text: Option<&DecodedText>, read: bool) -> PreviousContent {
    match text {
        Some(text) => PreviousContent::Lines {
            lines: text.content.lines().count(),
            read,
        },
        None => PreviousContent::Bytes {
            bytes: old.size_bytes,
            read,
        },
    }
}
