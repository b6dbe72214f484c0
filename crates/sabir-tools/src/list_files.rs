//! `list_files`: the names in a folder.

use std::sync::Arc;

use sabir_agent::{Permit, Progress, ToolOutput};
use sabir_policy::Access;
use sabir_workspace::{EntryKind, ListOptions, Listing, Stop, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::ground::Ground;
use crate::words::{self, count};

const MAX_ENTRIES: usize = 1000;
const MAX_OUTPUT_BYTES: usize = 48 << 10;

/// The tool.
pub(crate) struct ListFiles(pub(crate) Arc<Ground>);

/// List the files and folders in a folder. What .gitignore hides is left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The folder, relative to the workspace; `.` is the workspace.
    path: String,
    /// Whether to list the folders below too. Default false.
    #[serde(default)]
    recursive: bool,
}

/// What is in the folder.
pub(crate) struct Listed {
    folder: WorkPath,
    listing: Listing,
}

impl BuiltIn for ListFiles {
    type Input = Input;
    type Output = Listed;
    const NAME: &'static str = "list_files";
    const MANUAL: &'static str = include_str!("specs/list_files.md");
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"path": "src", "recursive": true})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.reading(&input.path)
    }

    async fn run(self: Arc<Self>, _: &Permit, input: Input, _: Progress<'_>) -> Result<Listed, String> {
        words::stoppable(move |stop| list(&self.0, &input, stop)).await
    }
}

fn list(ground: &Ground, input: &Input, stop: Stop) -> Result<Listed, String> {
    let folder = ground.resolve(&input.path).map_err(|error| ground.explain(&error))?;
    let options = ListOptions { recursive: input.recursive, max_entries: MAX_ENTRIES, stop };
    let listing = ground.workspace().list(&folder, &options).map_err(|error| match error {
        WorkspaceError::NotAFolder { .. } => format!("`{folder}` is not a folder. Use read_file for files."),
        error => ground.explain(&error),
    })?;
    Ok(Listed { folder, listing })
}

impl From<Listed> for ToolOutput {
    fn from(Listed { folder, listing }: Listed) -> Self {
        let hidden = match listing.hidden {
            0 => String::new(),
            hidden => format!("\n[The user hides {}: work without, or ask.]", count(hidden, "more name")),
        };
        if listing.entries.is_empty() {
            return Self::done(format!("`{folder}` holds no files, or only ignored ones.{hidden}"));
        }
        let (mut words, mut shown) = (String::new(), 0);
        for entry in &listing.entries {
            let mark = match entry.kind {
                EntryKind::Folder => "/",
                EntryKind::Link => " (link)",
                EntryKind::File => "",
                EntryKind::Other => " (special)",
            };
            let line = format!("{}{mark}\n", entry.path);
            if words.len() + line.len() > MAX_OUTPUT_BYTES {
                break;
            }
            words.push_str(&line);
            shown += 1;
        }
        if listing.truncated || shown < listing.entries.len() {
            let folders = listing.entries.iter().any(|entry| entry.kind == EntryKind::Folder);
            let rest =
                if folders { "List a folder below, or use" } else { "For the rest use execute_command with `ls`, or" };
            words.push_str(&format!("[Only the first {shown} names. {rest} search_files.]"));
        }
        Self::done(format!("{}{hidden}", words.trim_end_matches('\n')))
    }
}
