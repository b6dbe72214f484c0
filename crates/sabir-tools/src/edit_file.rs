//! `edit_file`: replaces one text in a file by another.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, RefreshFuture};
use sabir_edit::StringReplacement;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::edit_error::EditError;
use crate::edits::{self, EditOutcome, FileEdit};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;
use crate::write_target::WriteTarget;

/// The tool, over the files of a task.
pub(crate) struct EditFile(pub(crate) Arc<FileTracker>);

/// Change a part of a file: replace a text by another.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFileArguments {
    /// The file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it is in the file, indentation included and enough of it to be found only
    /// once. Empty to make a new file.
    old_string: String,
    /// The text instead.
    new_string: String,
    /// Whether to replace every place where old_string is found. Default false.
    #[serde(default)]
    replace_all: bool,
}

/// A prepared call.
pub(crate) struct EditFileCall {
    target: WriteTarget,
    replacement: StringReplacement,
}

impl TypedTool for EditFile {
    type Arguments = EditFileArguments;
    type Call = EditFileCall;
    type Output = EditOutcome;
    type Error = EditError;
    const NAME: &'static str = "edit_file";
    const MANUAL: &'static str = include_str!("specs/edit_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({
            "path": "src/server.rs",
            "old_string": "    let port = 80;\n",
            "new_string": "    let port = 8080;\n",
        })
    }

    fn prepare_call(&self, arguments: EditFileArguments) -> EditFileCall {
        EditFileCall {
            target: WriteTarget::resolve(&self.0, arguments.path),
            replacement: StringReplacement {
                old: arguments.old_string,
                new: arguments.new_string,
                count: (!arguments.replace_all).then_some(1),
            },
        }
    }

    fn refresh_call(&self, call: &EditFileCall) -> Option<RefreshFuture> {
        self.0
            .refresh_buffers(vec![call.target.written_path().to_owned()])
    }

    fn call_access(&self, call: &EditFileCall) -> Access {
        call.target.write_access()
    }

    fn call_preconditions(&self, call: &EditFileCall) -> Preconditions {
        preconditions::write_preconditions(&self.0, [call.target.written_path()])
    }

    fn preview_call(&self, call: &EditFileCall) -> Option<String> {
        preview::preview_edit(&self.0, call.target.written_path(), |old| {
            Some(
                sabir_edit::apply_string_replacement(old, &call.replacement)
                    .ok()?
                    .content,
            )
        })
    }

    fn dry_run(&self, call: &EditFileCall) -> Result<(), EditError> {
        let path = call.target.resolve_again(&self.0).confirm_file(&self.0)?;
        if call.replacement.old.is_empty() && !self.0.path_exists(&path)? {
            return Ok(());
        }
        let file = TextFile::open_known(&self.0, path)?;
        let edited = sabir_edit::apply_string_replacement(&file.content, &call.replacement);
        edits::check_edited(&file, edited).map(drop)
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: EditFileCall,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, EditError> {
        run_blocking(move || replace_text(&self.0, call)).await
    }
}

/// Replaces the text, or creates the file if there is no text to replace and no file.
fn replace_text(tracker: &FileTracker, call: EditFileCall) -> Result<EditOutcome, EditError> {
    let EditFileCall {
        target,
        replacement,
    } = call;
    let path = target.confirm_file(tracker)?;
    if replacement.old.is_empty() && !tracker.path_exists(&path)? {
        return create_file(tracker, path, &replacement.new);
    }
    let file = TextFile::open_known(tracker, path)?;
    let edited = sabir_edit::apply_string_replacement(&file.content, &replacement);
    edits::write_edited(tracker, file, edited, "place")
}

/// Writes a new file, which fails if one has appeared since.
fn create_file(
    tracker: &FileTracker,
    path: WorkPath,
    content: &str,
) -> Result<EditOutcome, EditError> {
    let change = FileChange::write(
        path.clone(),
        content.as_bytes().to_vec(),
        WritePrecondition::Missing,
    );
    let written = tracker.apply_changes(&[change], &[content])?;
    let added = FileEdit::Added {
        path,
        lines: content.lines().count(),
    };
    Ok(EditOutcome::new(vec![added], written))
}
