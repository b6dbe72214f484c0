//! What a path that does not exist may have been meant to be.

use sabir_workspace::{EntryKind, ListOptions, WorkPath, Workspace};

const MAX_NAMES: usize = 5;
/// How alike two names are at least, of 1.
const MIN_SIMILARITY: f64 = 0.75;
/// How many names are looked at in the folder, and in the whole workspace.
const MAX_LISTED: usize = 5000;

/// Says that the path does not exist, and what is like it.
pub(crate) fn missing_path_message(workspace: &Workspace, path: &WorkPath) -> String {
    let name = file_name(path);
    let folder = parent_folder(workspace, path);
    let mut words = format!("`{path}` does not exist.");
    match folder
        .as_ref()
        .and_then(|folder| names_in(workspace, folder).map(|names| (folder, names)))
    {
        Some((folder, names)) => {
            let nearest = nearest_names(&name, names);
            if !nearest.is_empty() {
                words.push_str(&format!(
                    " Nearest names in `{folder}`: {}.",
                    quote_names(&nearest)
                ));
            }
        }
        None => {
            let above = path
                .as_path()
                .ancestors()
                .skip(2)
                .filter_map(|above| to_work_path(workspace, above));
            if let Some(above) = above
                .into_iter()
                .find(|above| workspace.exists(above).unwrap_or(false))
            {
                words.push_str(&format!(
                    " Neither does its folder; `{above}` is the nearest one that does."
                ));
            }
        }
    }
    let elsewhere = find_elsewhere(workspace, &name);
    if !elsewhere.is_empty() {
        words.push_str(&format!(
            " That name is found at {}.",
            quote_names(&elsewhere)
        ));
    }
    words.push_str(" Use list_files to see what there is.");
    words
}

fn file_name(path: &WorkPath) -> String {
    path.as_path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn parent_folder(workspace: &Workspace, path: &WorkPath) -> Option<WorkPath> {
    to_work_path(workspace, path.as_path().parent()?)
}

fn to_work_path(workspace: &Workspace, path: &std::path::Path) -> Option<WorkPath> {
    if path.as_os_str().is_empty() {
        Some(WorkPath::root())
    } else {
        workspace.parse_path(path.to_str()?).ok()
    }
}

/// The names in a folder; `None` when there is no such folder.
fn names_in(workspace: &Workspace, folder: &WorkPath) -> Option<Vec<String>> {
    let options = ListOptions {
        recursive: false,
        max_entries: MAX_LISTED,
        ..ListOptions::default()
    };
    let listing = workspace.list_folder(folder, &options).ok()?;
    Some(
        listing
            .entries
            .iter()
            .map(|entry| file_name(&entry.path))
            .collect(),
    )
}

fn nearest_names(name: &str, names: Vec<String>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&wanted, &name.to_lowercase());
    let mut scored: Vec<_> = names.into_iter().map(|name| (score(&name), name)).collect();
    scored.retain(|(score, _)| *score >= MIN_SIMILARITY);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored
        .into_iter()
        .take(MAX_NAMES)
        .map(|(_, name)| name)
        .collect()
}

/// The files of exactly that name.
fn find_elsewhere(workspace: &Workspace, name: &str) -> Vec<String> {
    let options = ListOptions {
        recursive: true,
        max_entries: MAX_LISTED,
        ..ListOptions::default()
    };
    let Ok(listing) = workspace.list_folder(&WorkPath::root(), &options) else {
        return Vec::new();
    };
    let files = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File && file_name(&entry.path) == name);
    files
        .take(MAX_NAMES)
        .map(|entry| entry.path.to_string())
        .collect()
}

fn quote_names(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
