//! `list_files`: the names in a folder.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{EntryKind, FolderListing, ListOptions, StopFlag, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::file_tracker::FileTracker;
use crate::text::{self, count_noun};
use crate::typed_tool::TypedTool;

const MAX_ENTRIES: usize = 1000;
const MAX_OUTPUT_BYTES: usize = 48 << 10;

/// The tool.
pub(crate) struct ListFiles(pub(crate) Arc<FileTracker>);

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
pub(crate) struct ListedFolder {
    folder: WorkPath,
    listing: FolderListing,
}

impl TypedTool for ListFiles {
    type Input = Input;
    type Output = ListedFolder;
    const NAME: &'static str = "list_files";
    const MANUAL: &'static str = include_str!("specs/list_files.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"path": "src", "recursive": true})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.read_access(&input.path)
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<ListedFolder, String> {
        text::run_stoppable(move |stop| list_folder(&self.0, &input, stop)).await
    }
}

fn list_folder(
    ground: &FileTracker,
    input: &Input,
    stop: StopFlag,
) -> Result<ListedFolder, String> {
    let folder = ground
        .resolve_path(&input.path)
        .map_err(|error| ground.explain_error(&error))?;
    let options = ListOptions {
        recursive: input.recursive,
        max_entries: MAX_ENTRIES,
        stop,
    };
    let listing =
        ground
            .workspace()
            .list_folder(&folder, &options)
            .map_err(|error| match error {
                WorkspaceError::NotAFolder { .. } => {
                    format!("`{folder}` is not a folder. Use read_file for files.")
                }
                error => ground.explain_error(&error),
            })?;
    Ok(ListedFolder { folder, listing })
}

impl From<ListedFolder> for ToolOutput {
    fn from(ListedFolder { folder, listing }: ListedFolder) -> Self {
        let hidden = match listing.hidden {
            0 => String::new(),
            hidden => format!(
                "\n[The user hides {}: work without, or ask.]",
                count_noun(hidden, "more name")
            ),
        };
        if listing.entries.is_empty() {
            return Self::done(format!(
                "`{folder}` holds no files, or only ignored ones.{hidden}"
            ));
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
            let folders = listing
                .entries
                .iter()
                .any(|entry| entry.kind == EntryKind::Folder);
            let rest = if folders {
                "List a folder below, or use"
            } else {
                "For the rest use execute_command with `ls`, or"
            };
            words.push_str(&format!(
                "[Only the first {shown} names. {rest} search_files.]"
            ));
        }
        Self::done(format!("{}{hidden}", words.trim_end_matches('\n')))
    }
}
