//! What is in a folder, as the user's ignore files see it.

use std::path::Path;

use ignore::{DirEntry, WalkBuilder};

use super::Workspace;
use super::temp::TEMP_START;
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// How to list a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether to list the folders below as well.
    pub recursive: bool,
    /// The greatest number of entries to return.
    pub max_entries: usize,
}

/// The entries of a folder, sorted by path, each folder right before what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The entries, as many as were asked for.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// One name in a [`Listing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path from the workspace folder.
    pub path: WorkPath,
    /// What it is. Links are not followed here.
    pub kind: EntryKind,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Other,
}

impl Default for ListOptions {
    /// One folder deep, 1000 entries.
    fn default() -> Self {
        Self { recursive: false, max_entries: 1000 }
    }
}

impl Workspace {
    /// Lists a folder. Left out are `.git`, what the ignore files hide, and folders that cannot be read. Links are listed and
    /// not followed, so the walk ends.
    ///
    /// # Errors
    /// [`WorkspaceError::NotAFolder`], and those of [`resolve`](Self::resolve) and [`metadata`](Self::metadata).
    pub fn list(&self, folder: &WorkPath, options: ListOptions) -> Result<Listing, WorkspaceError> {
        if self.metadata(folder)?.kind != EntryKind::Folder {
            return Err(WorkspaceError::NotAFolder { path: folder.to_string() });
        }
        let mut listing = Listing { entries: Vec::new(), truncated: false };
        let mut walk = self.walk(folder)?;
        walk.max_depth((!options.recursive).then_some(1));
        for entry in walk.build().flatten().filter(|entry| entry.depth() > 0) {
            let Some(path) = self.inside(entry.path()) else { continue };
            if listing.entries.len() == options.max_entries {
                listing.truncated = true;
                break;
            }
            listing.entries.push(Entry { path, kind: kind(&entry) });
        }
        Ok(listing)
    }

    /// A sorted walk that never leaves by a link, sees hidden files, and reads no configuration of the user's.
    ///
    /// The walk goes by names, so a folder swapped for a link within it can show names from outside; contents are always opened
    /// beneath the handle.
    pub(crate) fn walk(&self, start: &WorkPath) -> Result<WalkBuilder, WorkspaceError> {
        let start = self.resolve(start)?;
        let mut walk = WalkBuilder::new(self.root.join(start.as_path()));
        walk.hidden(false).git_global(false).require_git(false).follow_links(false);
        walk.sort_by_file_path(Path::cmp);
        walk.filter_entry(|entry| {
            let name = entry.file_name().to_string_lossy();
            name != ".git" && !name.starts_with(TEMP_START)
        });
        Ok(walk)
    }

    /// The path of a walked entry from the workspace folder.
    pub(crate) fn inside(&self, walked: &Path) -> Option<WorkPath> {
        WorkPath::from_inside(walked.strip_prefix(&self.root).ok()?)
    }
}

fn kind(entry: &DirEntry) -> EntryKind {
    match entry.file_type() {
        Some(kind) if kind.is_file() => EntryKind::File,
        Some(kind) if kind.is_dir() => EntryKind::Folder,
        Some(kind) if kind.is_symlink() => EntryKind::Link,
        _ => EntryKind::Other,
    }
}
