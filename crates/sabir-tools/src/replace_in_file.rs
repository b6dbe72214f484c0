//! `replace_in_file`: parts of a file, by SEARCH/REPLACE blocks.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink};
use sabir_policy::{Access, ToolGroup};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::edits::{self, EditOutcome};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;

/// The tool.
pub(crate) struct ReplaceInFile(pub(crate) Arc<FileTracker>);

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

impl TypedTool for ReplaceInFile {
    type Input = Input;
    type Output = EditOutcome;
    const NAME: &'static str = "replace_in_file";
    const MANUAL: &'static str = include_str!("specs/replace_in_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({
            "path": "src/server.rs",
            "diff": "------- SEARCH\n    let port = 80;\n=======\n    let port = 8080;\n+++++++ REPLACE",
        })
    }

    fn access(&self, input: &Input) -> Access {
        self.0.write_access(&input.path)
    }

    fn preconditions(&self, input: &Input) -> Preconditions {
        preconditions::write_preconditions(&self.0, [input.path.as_str()])
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::preview_edit(&self.0, &input.path, |old| {
            Some(sabir_edit::apply_blocks(old, &input.diff).ok()?.content)
        })
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, String> {
        text::run_blocking(move || replace_blocks(&self.0, &input)).await
    }
}

fn replace_blocks(ground: &FileTracker, input: &Input) -> Result<EditOutcome, String> {
    let file = TextFile::open(ground, ground.write_target(&input.path)?)?;
    let edited = sabir_edit::apply_blocks(&file.content, &input.diff);
    edits::apply_edit(ground, file, edited, "block")
}
