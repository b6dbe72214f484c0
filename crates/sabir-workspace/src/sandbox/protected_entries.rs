//! Lists the protected names that are at the top of a workspace, and directly in folders such as
//! `.github`.

use std::fs;
use std::path::{Path, PathBuf};

use super::masks::has_mask_mode;
use crate::protected_paths::{find_protection_reason, holds_protected_names};

/// Git's folder, of which only parts are protected (`git_guard.rs`).
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
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let name = PathBuf::from(entry.file_name());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && name.as_os_str() == GIT {
            continue;
        }
        if find_protection_reason(&name).is_some() {
            add_entry(top, name, &mut found);
        } else if kind.is_dir() && name.to_str().is_some_and(holds_protected_names) {
            for entry in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let inner = name.join(entry.file_name());
                if find_protection_reason(&inner).is_some() {
                    add_entry(top, inner, &mut found);
                }
            }
        }
    }
    found
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
