//! `list_files`: the names in a folder.

use std::sync::Arc;

use sabir_agent::{Access, Arguments, Progress, Tool, ToolWork};
use sabir_call::ToolSpec;
use sabir_workspace::{EntryKind, ListOptions, WorkspaceError};
use serde::Deserialize;
use serde_json::json;

use crate::ground::Ground;
use crate::words::{self, Words};

const MAX_ENTRIES: usize = 1000;
const MAX_OUTPUT_BYTES: usize = 48 << 10;

/// The tool.
pub(crate) struct ListFiles(pub(crate) Arc<Ground>);

#[derive(Deserialize)]
struct Input {
    path: String,
    #[serde(default)]
    recursive: bool,
}

impl Tool for ListFiles {
    fn spec(&self) -> ToolSpec {
        spec()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn access(&self, arguments: &Arguments) -> Access {
        self.0.reading(words::text(arguments, "path").unwrap_or_default())
    }

    fn run<'a>(&'a self, arguments: &'a Arguments, _: Progress<'a>) -> ToolWork<'a> {
        words::run(&self.0, arguments, list)
    }
}

fn list(ground: &Ground, input: &Input) -> Words {
    let path = ground.resolve(&input.path).map_err(|error| ground.explain(&error))?;
    let options = ListOptions { recursive: input.recursive, max_entries: MAX_ENTRIES };
    let listing = ground.workspace().list(&path, options).map_err(|error| match error {
        WorkspaceError::NotAFolder { .. } => format!("`{path}` is not a folder. Use read_file for files."),
        error => ground.explain(&error),
    })?;
    if listing.entries.is_empty() {
        return Ok(format!("`{path}` holds no files, or only ignored ones."));
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
        words.push_str(&format!("[Only the first {shown} names. List a folder below, or use search_files.]"));
    }
    Ok(words.trim_end_matches('\n').to_owned())
}

/// What a model reads of it.
pub(crate) fn spec() -> ToolSpec {
    words::spec(
        "list_files",
        "List the files and folders in a folder. What .gitignore hides is left out.",
        json!({
            "path": {"type": "string", "description": "The folder, relative to the workspace; `.` is the workspace."},
            "recursive": {"type": "boolean", "description": "Whether to list the folders below too. Default false."},
        }),
        &["path"],
        json!({"path": "src", "recursive": true}),
    )
}
