//! Lists the names of a workspace's files, for front ends that complete them.

use std::path::Path;

use sabir_workspace::{EntryKind, ListOptions, StopFlag, WorkPath, Workspace};

/// The most files that are listed.
const MAX_FILES: usize = 50_000;

/// Lists the files of a folder and the folders below it, without ignored ones, relative to the folder. Empty if the folder cannot
/// be read. Blocks for a while in a large tree.
pub fn list_file_names(folder: &Path) -> Vec<String> {
    let Ok(workspace) = Workspace::open(folder) else {
        return Vec::new();
    };
    let options = ListOptions {
        recursive: true,
        max_entries: MAX_FILES,
        stop: StopFlag::default(),
    };
    let listing = workspace
        .parse_path(".")
        .and_then(|root: WorkPath| workspace.list_folder(&root, &options));
    let entries = listing.map(|listing| listing.entries).unwrap_or_default();
    entries
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .map(|entry| entry.path.to_string())
        .collect()
}
