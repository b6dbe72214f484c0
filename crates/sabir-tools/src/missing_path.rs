//! Describes a path that does not exist, with the existing paths that it may have been meant to be.
//!
//! Models mistype names, and remember files in the folder where another project has them. A failure
//! that names the nearest candidates saves them a listing.

use std::fmt;

use sabir_workspace::{EntryKind, ListOptions, WorkPath, Workspace};

/// The number of names that are suggested at most, of each kind.
const MAX_NAMES: usize = 5;
/// The Jaro-Winkler similarity, from 0 to 1, above which a name is suggested.
const MIN_SIMILARITY: f64 = 0.75;
/// The number of names that are considered in the folder, and in the whole workspace.
const MAX_LISTED: usize = 5000;

/// A path that does not exist. Its `Display` text suggests paths that do.
#[derive(Debug)]
pub(crate) struct MissingPath {
    path: WorkPath,
    nearby: NearbyPaths,
    /// Files with exactly the missing name, anywhere in the workspace.
    elsewhere: Vec<String>,
}

/// The nearest things that exist around a missing path.
#[derive(Debug)]
enum NearbyPaths {
    /// Its folder exists.
    Folder {
        folder: WorkPath,
        /// The most similar names in it, the best first; empty if none is similar enough.
        similar: Vec<String>,
    },
    /// Its folder does not exist either; this is the nearest ancestor that does.
    Ancestor(WorkPath),
    /// Not even an ancestor could be examined.
    Unknown,
}

impl MissingPath {
    /// Looks for paths that are like the missing one. Lists its folder and the workspace.
    pub(crate) fn find_similar(workspace: &Workspace, path: WorkPath) -> Self {
        let name = file_name(&path);
        let folder = parent_folder(workspace, &path)
            .and_then(|folder| Some((names_in(workspace, &folder)?, folder)));
        let nearby = match folder {
            Some((names, folder)) => NearbyPaths::Folder {
                folder,
                similar: nearest_names(&name, names),
            },
            None => nearest_ancestor(workspace, &path)
                .map_or(NearbyPaths::Unknown, NearbyPaths::Ancestor),
        };
        Self {
            elsewhere: find_elsewhere(workspace, &name),
            path,
            nearby,
        }
    }
}

impl fmt::Display for MissingPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not exist.", self.path)?;
        match &self.nearby {
            NearbyPaths::Folder { folder, similar } if !similar.is_empty() => {
                let similar = quote_names(similar);
                write!(f, " Nearest names in `{folder}`: {similar}.")?;
            }
            NearbyPaths::Ancestor(ancestor) => write!(
                f,
                " Neither does its folder; `{ancestor}` is the nearest one that does."
            )?,
            NearbyPaths::Folder { .. } | NearbyPaths::Unknown => {}
        }
        if !self.elsewhere.is_empty() {
            let elsewhere = quote_names(&self.elsewhere);
            write!(f, " That name is found at {elsewhere}.")?;
        }
        f.write_str(" Use list_files to list the names.")
    }
}

/// Returns the last name of a path; empty for the workspace folder.
fn file_name(path: &WorkPath) -> String {
    path.as_path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the folder that a path lies in; `None` for the workspace folder.
fn parent_folder(workspace: &Workspace, path: &WorkPath) -> Option<WorkPath> {
    to_work_path(workspace, path.as_path().parent()?)
}

/// Returns the nearest ancestor that exists, beginning with the folder of the folder.
fn nearest_ancestor(workspace: &Workspace, path: &WorkPath) -> Option<WorkPath> {
    path.as_path()
        .ancestors()
        // The path itself and its folder are known to be missing.
        .skip(2)
        .filter_map(|ancestor| to_work_path(workspace, ancestor))
        .find(|ancestor| workspace.exists(ancestor).unwrap_or(false))
}

/// Converts a relative path into a path of the workspace.
fn to_work_path(workspace: &Workspace, path: &std::path::Path) -> Option<WorkPath> {
    if path.as_os_str().is_empty() {
        Some(WorkPath::root())
    } else {
        workspace.parse_path(path.to_str()?).ok()
    }
}

/// Lists the names in a folder; `None` if there is no such folder.
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

/// Returns the names that are most like the given one, the best first.
fn nearest_names(name: &str, names: Vec<String>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&wanted, &name.to_lowercase());
    let mut scored: Vec<_> = names.into_iter().map(|name| (score(&name), name)).collect();
    scored.retain(|(score, _)| *score >= MIN_SIMILARITY);
    // Names of equal score are sorted too, so that the same folder always gives the same message.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored
        .into_iter()
        .take(MAX_NAMES)
        .map(|(_, name)| name)
        .collect()
}

/// Returns the paths of the files with exactly this name, anywhere in the workspace.
fn find_elsewhere(workspace: &Workspace, name: &str) -> Vec<String> {
    let options = ListOptions {
        recursive: true,
        max_entries: MAX_LISTED,
        ..ListOptions::default()
    };
    // This is only a suggestion, so a workspace that cannot be listed gives none.
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

/// Joins names with commas, each in backquotes.
fn quote_names(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
