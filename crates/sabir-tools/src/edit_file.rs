//! `edit_file`: one text in place of another.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink};
use sabir_edit::StringReplacement;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::edits::{self, EditOutcome, FileEdit};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;

/// The tool.
pub(crate) struct EditFile(pub(crate) Arc<FileTracker>);

/// Change a part of a file: replace a text by another.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it stands in the file, indentation included and enough of it to be found only
    /// once. Empty to make a new file.
    old_string: String,
    /// The text instead.
    new_string: String,
    /// Whether to replace every place where old_string is found. Default false.
    #[serde(default)]
    replace_all: bool,
}

impl TypedTool for EditFile {
    type Input = Input;
    type Output = EditOutcome;
    const NAME: &'static str = "edit_file";
    const MANUAL: &'static str = include_str!("specs/edit_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({
            "path": "src/server.rs",
            "old_string": "    let port = 80;\n",
            "new_string": "    let port = 8080;\n",
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
            Some(
                sabir_edit::apply_string(old, &input.replacement())
                    .ok()?
                    .content,
            )
        })
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, String> {
        text::run_blocking(move || replace_text(&self.0, &input)).await
    }
}

impl Input {
    fn replacement(&self) -> StringReplacement {
        let count = (!self.replace_all).then_some(1);
        StringReplacement {
            old: self.old_string.clone(),
            new: self.new_string.clone(),
            count,
        }
    }
}

fn replace_text(ground: &FileTracker, input: &Input) -> Result<EditOutcome, String> {
    let path = ground.write_target(&input.path)?;
    if input.old_string.is_empty()
        && !ground
            .workspace()
            .exists(&path)
            .map_err(|error| ground.explain_error(&error))?
    {
        return create_file(ground, path, &input.new_string);
    }
    let file = TextFile::open(ground, path)?;
    let edited = sabir_edit::apply_string(&file.content, &input.replacement());
    edits::apply_edit(ground, file, edited, "place")
}

fn create_file(ground: &FileTracker, path: WorkPath, content: &str) -> Result<EditOutcome, String> {
    let change = FileChange::write(
        path.clone(),
        content.as_bytes().to_vec(),
        WritePrecondition::Missing,
    );
    ground.apply_changes(&[change], &[content])?;
    Ok(EditOutcome(vec![FileEdit::Added {
        path,
        lines: content.lines().count(),
    }]))
}
