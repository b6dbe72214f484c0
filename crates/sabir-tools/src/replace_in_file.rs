//! `replace_in_file`: changes parts of a file by SEARCH/REPLACE blocks.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, RefreshFuture};
use sabir_policy::{Access, ToolGroup};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::edit_error::EditError;
use crate::edits::{self, EditOutcome};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;
use crate::write_target::WriteTarget;

/// The tool, over the files of a task.
pub(crate) struct ReplaceInFile(pub(crate) Arc<FileTracker>);

/// Change parts of a file with SEARCH/REPLACE blocks. All blocks are applied, or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplaceInFileArguments {
    /// The file, relative to the workspace.
    path: String,
    /// One or more blocks: a line `------- SEARCH`, then whole lines exactly as they are in the file, indentation
    /// included and enough of them to be found only once, a line `=======`, the lines instead (none to delete), a
    /// line `+++++++ REPLACE`.
    diff: String,
}

/// A prepared call.
pub(crate) struct ReplaceInFileCall {
    target: WriteTarget,
    /// The blocks as the model wrote them.
    diff: String,
}

impl TypedTool for ReplaceInFile {
    type Arguments = ReplaceInFileArguments;
    type Call = ReplaceInFileCall;
    type Output = EditOutcome;
    type Error = EditError;
    const NAME: &'static str = "replace_in_file";
    const MANUAL: &'static str = include_str!("specs/replace_in_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({
            "path": "src/server.rs",
            "diff": "------- SEARCH\n    let port = 80;\n=======\n    let port = 8080;\n+++++++ REPLACE",
        })
    }

    fn prepare_call(&self, arguments: ReplaceInFileArguments) -> ReplaceInFileCall {
        ReplaceInFileCall {
            target: WriteTarget::resolve(&self.0, arguments.path),
            diff: arguments.diff,
        }
    }

    fn refresh_call(&self, call: &ReplaceInFileCall) -> Option<RefreshFuture> {
        self.0
            .refresh_buffers(vec![call.target.written_path().to_owned()])
    }

    fn call_access(&self, call: &ReplaceInFileCall) -> Access {
        call.target.write_access()
    }

    fn call_preconditions(&self, call: &ReplaceInFileCall) -> Preconditions {
        preconditions::write_preconditions(&self.0, [call.target.written_path()])
    }

    fn preview_call(&self, call: &ReplaceInFileCall) -> Option<String> {
        preview::preview_edit(&self.0, call.target.written_path(), |old| {
            Some(sabir_edit::apply_blocks(old, &call.diff).ok()?.content)
        })
    }

    fn dry_run(&self, call: &ReplaceInFileCall) -> Result<(), EditError> {
        let path = call.target.resolve_again(&self.0).confirm_file(&self.0)?;
        let file = TextFile::open_known(&self.0, path)?;
        let edited = sabir_edit::apply_blocks(&file.content, &call.diff);
        edits::check_edited(&file, edited).map(drop)
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: ReplaceInFileCall,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, EditError> {
        run_blocking(move || replace_blocks(&self.0, call)).await
    }
}

/// Applies all blocks, or none.
fn replace_blocks(
    tracker: &FileTracker,
    call: ReplaceInFileCall,
) -> Result<EditOutcome, EditError> {
    let file = TextFile::open_known(tracker, call.target.confirm_file(tracker)?)?;
    let edited = sabir_edit::apply_blocks(&file.content, &call.diff);
    edits::write_edited(tracker, file, edited, "block")
}
