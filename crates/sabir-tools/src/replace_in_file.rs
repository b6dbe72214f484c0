//! `replace_in_file`: parts of a file, by SEARCH/REPLACE blocks.

use std::sync::Arc;

use sabir_agent::{Bound, Permit, Progress};
use sabir_policy::Access;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bound;
use crate::built_in::BuiltIn;
use crate::edits::{self, Edits};
use crate::ground::Ground;
use crate::preview;
use crate::text_file::TextFile;
use crate::words;

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
    type Output = Edits;
    const NAME: &'static str = "replace_in_file";
    const MANUAL: &'static str = include_str!("specs/replace_in_file.md");
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

    fn bound(&self, input: &Input) -> Bound {
        bound::of_writes(&self.0, [input.path.as_str()])
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::of_edit(&self.0, &input.path, |old| Some(sabir_edit::apply_blocks(old, &input.diff).ok()?.content))
    }

    async fn run(self: Arc<Self>, _: &Permit, input: Input, _: Progress<'_>) -> Result<Edits, String> {
        words::blocking(move || replace(&self.0, &input)).await
    }
}

fn replace(ground: &Ground, input: &Input) -> Result<Edits, String> {
    let file = TextFile::open(ground, ground.target(&input.path)?)?;
    let edited = sabir_edit::apply_blocks(&file.content, &input.diff);
    edits::one(ground, file, edited, "block")
}
