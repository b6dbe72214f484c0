//! `edit_file`: one text in place of another.

use std::sync::Arc;

use sabir_agent::{Bound, Permit, Progress};
use sabir_edit::Replacement;
use sabir_policy::Access;
use sabir_workspace::{Change, Expect, WorkPath};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bound;
use crate::built_in::BuiltIn;
use crate::edits::{self, Done, Edits};
use crate::ground::Ground;
use crate::preview;
use crate::text_file::TextFile;
use crate::words;

/// The tool.
pub(crate) struct EditFile(pub(crate) Arc<Ground>);

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

impl BuiltIn for EditFile {
    type Input = Input;
    type Output = Edits;
    const NAME: &'static str = "edit_file";
    const MANUAL: &'static str = include_str!("specs/edit_file.md");
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({
            "path": "src/server.rs",
            "old_string": "    let port = 80;\n",
            "new_string": "    let port = 8080;\n",
        })
    }

    fn access(&self, input: &Input) -> Access {
        self.0.writing(&input.path)
    }

    fn bound(&self, input: &Input) -> Bound {
        bound::of_writes(&self.0, [input.path.as_str()])
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::of_edit(&self.0, &input.path, |old| {
            Some(sabir_edit::apply_string(old, &input.replacement()).ok()?.content)
        })
    }

    async fn run(self: Arc<Self>, _: &Permit, input: Input, _: Progress<'_>) -> Result<Edits, String> {
        words::blocking(move || replace(&self.0, &input)).await
    }
}

impl Input {
    fn replacement(&self) -> Replacement {
        let count = (!self.replace_all).then_some(1);
        Replacement { old: self.old_string.clone(), new: self.new_string.clone(), count }
    }
}

fn replace(ground: &Ground, input: &Input) -> Result<Edits, String> {
    let path = ground.target(&input.path)?;
    if input.old_string.is_empty() && !ground.workspace().exists(&path).map_err(|error| ground.explain(&error))? {
        return add(ground, path, &input.new_string);
    }
    let file = TextFile::open(ground, path)?;
    let edited = sabir_edit::apply_string(&file.content, &input.replacement());
    edits::one(ground, file, edited, "place")
}

fn add(ground: &Ground, path: WorkPath, content: &str) -> Result<Edits, String> {
    let change = Change::write(path.clone(), content.as_bytes().to_vec(), Expect::Missing);
    ground.make(&[change], &[content])?;
    Ok(Edits(vec![Done::Added { path, lines: content.lines().count() }]))
}
