//! Lists the protected names that are at the top of a workspace, and in folders such as `.github`.

use std::fs;
use std::path::{Path, PathBuf};

use super::masks::has_mask_mode;
use crate::protected_paths::{find_protection_reason, holds_protected_names};

/// Git's folder, of which only parts are protected (`git_protection.rs`).
pub(super) const GIT: &str = ".git";

/// A protected entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtectedEntry {
    /// The path relative to the workspace.
    pub(super) path: PathBuf,
    pub(super) shape: EntryShape,
}

/// The kind of a protected entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryShape {
    /// A file or a folder.
    Plain,
    /// A symbolic link, or something else that cannot be mounted over.
    Other,
}

/// Lists the protected entries of a workspace, without its git folder and without masks. A folder
/// that cannot be read has none.
pub(super) fn list_protected_entries(top: &Path) -> Vec<ProtectedEntry> {
    let mut found = Vec::new();
    list_below(top, Path::new(""), &mut found);
    found
}

fn list_below(top: &Path, folder: &Path, found: &mut Vec<ProtectedEntry>) {
    for entry in fs::read_dir(top.join(folder))
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = folder.join(entry.file_name());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && path.as_os_str() == GIT {
            continue;
        }
        if find_protection_reason(&path).is_some() {
            add_entry(top, path, found);
        } else if kind.is_dir() && holds_protected_names(&path) {
            // Ends with the components of the longest protected name.
            list_below(top, &path, found);
        }
    }
}

fn add_entry(top: &Path, path: PathBuf, found: &mut Vec<ProtectedEntry>) {
    let Ok(metadata) = fs::symlink_metadata(top.join(&path)) else {
        return;
    };
    if has_mask_mode(&metadata) {
        return;
    }
    let shape = if metadata.is_file() || metadata.is_dir() {
        EntryShape::Plain
    } else {
        EntryShape::Other
    };
    found.push(ProtectedEntry { path, shape });
}
