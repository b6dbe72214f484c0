//! What is in a folder, as the user's ignore files see it.

use std::ops::ControlFlow;

use super::Workspace;
use super::walk::{FolderEntry, FolderReader, PendingFolder};
use crate::error::WorkspaceError;
use crate::ordered_pool::{JobOutput, OrderKey, run_in_order};
use crate::path::WorkPath;
use crate::stop_flag::StopFlag;

/// So many entries may wait for a folder before them, however few are asked for.
const MIN_AHEAD: usize = 4096;

/// How to list a folder.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// Whether to list the folders below as well.
    pub recursive: bool,
    /// The greatest number of entries to return.
    pub max_entries: usize,
    /// Ends the listing early.
    pub stop: StopFlag,
}

/// The entries of a folder, sorted by path, each folder right before what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderListing {
    /// The entries, as many as were asked for.
    pub entries: Vec<ListEntry>,
    /// Whether there are more.
    pub truncated: bool,
    /// How many names are not shown because of the workspace's [bounds](crate::Bounds), in the folders that are.
    pub hidden: usize,
}

/// One name in a [`FolderListing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// The path from the workspace folder.
    pub path: WorkPath,
    /// What it is. Links are not followed here.
    pub kind: EntryKind,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
        Self { recursive: false, max_entries: 1000, stop: StopFlag::default() }
    }
}

impl Workspace {
    /// Lists a folder. Left out are `.git`, what the ignore files hide, and what is in folders below that cannot be read. Links
    /// are listed and not followed, so the walk ends; and no folder is opened but beneath the workspace's handle, so no name
    /// from outside is ever listed. Folders are read by several threads; the result is the same. Memory is bounded by the
    /// entries asked for and the largest folder.
    ///
    /// # Errors
    /// [`WorkspaceError::NotAFolder`], [`Hidden`](WorkspaceError::Hidden), those of [`resolve_links`](Self::resolve_links) and [`metadata`](Self::metadata),
    /// [`Io`](WorkspaceError::Io) when this very folder cannot be read, and [`Stopped`](WorkspaceError::Stopped).
    pub fn list_folder(&self, folder: &WorkPath, options: &ListOptions) -> Result<FolderListing, WorkspaceError> {
        if self.metadata(folder)?.kind != EntryKind::Folder {
            return Err(WorkspaceError::NotAFolder { path: folder.to_string() });
        }
        let (start, hiding) = self.resolve_start(folder)?;
        let start = self.start_folder(start.as_path(), hiding);
        // What is below is left out when it cannot be read; this was asked for by name.
        self.open_beneath(&start.path).map_err(|error| WorkspaceError::from_io("list", folder, error.into()))?;
        let mut listing = FolderListing { entries: Vec::new(), truncated: false, hidden: 0 };
        // One more than is wanted tells that there is more.
        let reader = || {
            let mut reader = FolderReader::new(self, options.max_entries.saturating_add(1));
            move |folder| list_entries(&mut reader, folder, options.recursive)
        };
        let take = |(entries, hidden): ListPart| {
            listing.hidden += hidden;
            let room = options.max_entries - listing.entries.len();
            listing.truncated = entries.len() > room;
            listing.entries.extend(entries.into_iter().take(room));
            if listing.truncated { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let first = (OrderKey::for_contents(&start.path), start);
        run_in_order(first, options.max_entries.max(MIN_AHEAD), &options.stop, reader, take);
        if options.stop.is_requested() {
            Err(WorkspaceError::Stopped { path: folder.to_string() })
        } else {
            Ok(listing)
        }
    }
}

/// Entries, and how many more are hidden.
type ListPart = (Vec<ListEntry>, usize);

/// What one folder holds: its entries, with the folders below as jobs in between.
fn list_entries(
    reader: &mut FolderReader<'_>,
    mut folder: PendingFolder,
    recursive: bool,
) -> Vec<(OrderKey, JobOutput<PendingFolder, ListPart>)> {
    let shown = reader.read_folder(&mut folder).unwrap_or_default();
    let mut given = Vec::new();
    let mut part = Vec::new();
    let mut key = None;
    if shown.hidden > 0 {
        // Before all that the folder holds.
        given.push((OrderKey::for_contents(&folder.path), JobOutput::Part((Vec::new(), shown.hidden), 0)));
    }
    for FolderEntry { name, kind } in shown.names {
        let path = folder.path.join(name);
        let Some(found) = WorkPath::from_inside(&path) else { continue };
        key.get_or_insert_with(|| OrderKey::for_path(&path));
        part.push(ListEntry { path: found, kind });
        if recursive && kind == EntryKind::Folder {
            let entries = std::mem::take(&mut part);
            let count = entries.len();
            given.extend(key.take().map(|key| (key, JobOutput::Part((entries, 0), count))));
            given.push((OrderKey::for_contents(&path), JobOutput::Job(folder.child_folder(path))));
        }
    }
    let count = part.len();
    given.extend(key.map(|key| (key, JobOutput::Part((part, 0), count))));
    given
}
