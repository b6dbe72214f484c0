//! `list_files`: lists the names in a folder.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_call::escaping::escape_name;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{EntryKind, FolderListing, ListOptions, StopFlag, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{WorkerError, run_stoppable};
use crate::file_error::FileError;
use crate::file_tracker::FileTracker;
use crate::text::count_noun;
use crate::typed_tool::TypedTool;

/// The number of names that one listing collects.
const MAX_ENTRIES: usize = 1000;
/// The size of the result.
const MAX_OUTPUT_BYTES: usize = 48 << 10;

/// The tool, over the files of a task.
pub(crate) struct ListFiles(pub(crate) Arc<FileTracker>);

/// List the files and folders in a folder. What .gitignore hides is left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesArguments {
    /// The folder, relative to the workspace; `.` is the workspace.
    path: String,
    /// List the folders below too. Default false.
    #[serde(default)]
    recursive: bool,
}

/// A folder with its entries.
pub(crate) struct ListedFolder {
    folder: WorkPath,
    listing: FolderListing,
}

/// A failure to list a folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The path leads to a file.
    #[error("`{path}` is not a folder. Use read_file for files.")]
    NotAFolder {
        /// The path, links resolved.
        path: WorkPath,
    },
    /// The path or the folder cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl TypedTool for ListFiles {
    type Arguments = ListFilesArguments;
    type Call = ListFilesArguments;
    type Output = ListedFolder;
    type Error = ListError;
    const NAME: &'static str = "list_files";
    const MANUAL: &'static str = include_str!("specs/list_files.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example_arguments() -> Value {
        json!({"path": "src", "recursive": true})
    }

    fn prepare_call(&self, arguments: ListFilesArguments) -> ListFilesArguments {
        arguments
    }

    fn call_access(&self, call: &ListFilesArguments) -> Access {
        self.0.read_access(&call.path)
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: ListFilesArguments,
        _: ProgressSink<'_>,
    ) -> Result<ListedFolder, ListError> {
        run_stoppable(move |stop| list_folder(&self.0, &call, stop)).await
    }
}

/// Lists the folder, until `stop` is set.
fn list_folder(
    tracker: &FileTracker,
    call: &ListFilesArguments,
    stop: StopFlag,
) -> Result<ListedFolder, ListError> {
    let folder = tracker.find_path(&call.path)?;
    let options = ListOptions {
        recursive: call.recursive,
        max_entries: MAX_ENTRIES,
        stop,
    };
    match tracker.workspace().list_folder(&folder, &options) {
        Ok(listing) => Ok(ListedFolder { folder, listing }),
        Err(WorkspaceError::NotAFolder { .. }) => Err(ListError::NotAFolder { path: folder }),
        Err(error) => Err(tracker.explain_error(error).into()),
    }
}

impl From<ListedFolder> for ToolOutput {
    fn from(ListedFolder { folder, listing }: ListedFolder) -> Self {
        // Only the number is shown: the names are what the user hides.
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
        let mut names = String::new();
        let mut shown = 0;
        for entry in &listing.entries {
            let mark = match entry.kind {
                EntryKind::Folder => "/",
                EntryKind::Link => " (link)",
                EntryKind::File => "",
                EntryKind::Other => " (special)",
            };
            // One name is one line, even if it contains line feeds.
            let line = format!("{}{mark}\n", escape_name(&entry.path.to_string()));
            if names.len() + line.len() > MAX_OUTPUT_BYTES {
                break;
            }
            names.push_str(&line);
            shown += 1;
        }
        if listing.truncated || shown < listing.entries.len() {
            let has_folders = listing
                .entries
                .iter()
                .any(|entry| entry.kind == EntryKind::Folder);
            // A flat folder with too many files cannot be listed in parts by this tool.
            let rest = if has_folders {
                "List a folder below, or use"
            } else {
                "For the rest use execute_command with `ls`, or"
            };
            names.push_str(&format!(
                "[Only the first {shown} names. {rest} search_files.]"
            ));
        }
        Self::done(format!("{}{hidden}", names.trim_end_matches('\n')))
    }
}
