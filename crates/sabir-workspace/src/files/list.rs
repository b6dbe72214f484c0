//! Lists folders as the ignore files define them.

use std::ops::ControlFlow;

use super::Workspace;
use super::walk::{FolderEntry, FolderReader, PendingFolder};
use crate::error::WorkspaceError;
use crate::ordered_pool::{JobOutput, OrderKey, run_in_order};
use crate::path::WorkPath;
use crate::stop_flag::StopFlag;

/// The minimum number of entries that may wait for an earlier folder, however few were requested.
const MIN_AHEAD: usize = 4096;

/// The options of a listing.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// True to list the folders below as well.
    pub recursive: bool,
    /// The maximum number of entries to return.
    pub max_entries: usize,
    /// Ends the listing early.
    pub stop: StopFlag,
}

/// The entries of a folder, sorted by path, each folder right before its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderListing {
    /// The entries, up to the requested number.
    pub entries: Vec<ListEntry>,
    /// True if there are more entries.
    pub truncated: bool,
    /// The number of names in the listed folders that the workspace's [bounds](crate::Bounds) hide.
    pub hidden: usize,
}

/// An entry of a [`FolderListing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// The path, relative to the workspace folder.
    pub path: WorkPath,
    /// The kind of entry. Links are not followed.
    pub kind: EntryKind,
}

/// The kind of a folder entry.
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
    /// Returns options for one level of folders and 1000 entries.
    fn default() -> Self {
        Self {
            recursive: false,
            max_entries: 1000,
            stop: StopFlag::default(),
        }
    }
}

impl Workspace {
    /// Lists a folder. `.git`, ignored entries, and the content of unreadable subfolders are left
    /// out. Links are listed but not followed, so the walk terminates; and folders are only opened
    /// beneath the workspace's handle, so no name from outside is ever listed. Folders are read by
    /// several threads, with the same result as one. Memory is bounded by the requested entries and
    /// the largest folder.
    ///
    /// # Errors
    /// [`WorkspaceError::NotAFolder`], [`Hidden`](WorkspaceError::Hidden), those of
    /// [`resolve_links`](Self::resolve_links) and [`metadata`](Self::metadata),
    /// [`Io`](WorkspaceError::Io) if this folder itself cannot be read, and
    /// [`Stopped`](WorkspaceError::Stopped).
    pub fn list_folder(
        &self,
        folder: &WorkPath,
        options: &ListOptions,
    ) -> Result<FolderListing, WorkspaceError> {
        if self.metadata(folder)?.kind != EntryKind::Folder {
            return Err(WorkspaceError::NotAFolder {
                path: folder.to_string(),
            });
        }
        let (start, hidden_rules) = self.resolve_start(folder)?;
        let start = self.start_folder(start.as_path(), hidden_rules);
        // Unreadable subfolders are skipped silently, but this folder was requested by name.
        self.open_beneath(&start.path)
            .map_err(|error| WorkspaceError::from_io("list", folder, error.into()))?;
        let mut listing = FolderListing {
            entries: Vec::new(),
            truncated: false,
            hidden: 0,
        };
        // One more entry than requested shows that there are more.
        let reader = || {
            let mut reader = FolderReader::new(self, options.max_entries.saturating_add(1));
            move |folder| list_entries(&mut reader, folder, options.recursive)
        };
        let take = |(entries, hidden): ListPart| {
            listing.hidden += hidden;
            // Parts arrive in order, so cutting here always keeps the first entries of the whole
            // listing.
            let room = options.max_entries - listing.entries.len();
            listing.truncated = entries.len() > room;
            listing.entries.extend(entries.into_iter().take(room));
            if listing.truncated {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let first = (OrderKey::for_contents(&start.path), start);
        run_in_order(
            first,
            options.max_entries.max(MIN_AHEAD),
            &options.stop,
            reader,
            take,
        );
        if options.stop.is_requested() {
            Err(WorkspaceError::Stopped {
                path: folder.to_string(),
            })
        } else {
            Ok(listing)
        }
    }
}

/// Entries, and the number of further entries that are hidden.
type ListPart = (Vec<ListEntry>, usize);

/// Lists one folder: its entries, with the subfolders as jobs in between.
fn list_entries(
    reader: &mut FolderReader<'_>,
    mut folder: PendingFolder,
    recursive: bool,
) -> Vec<(OrderKey, JobOutput<PendingFolder, ListPart>)> {
    let shown = reader.read_folder(&mut folder).unwrap_or_default();
    let mut outputs = Vec::new();
    let mut part = Vec::new();
    let mut key = None;
    if shown.hidden > 0 {
        // The key sorts before everything that the folder contains.
        outputs.push((
            OrderKey::for_contents(&folder.path),
            JobOutput::Part((Vec::new(), shown.hidden), 0),
        ));
    }
    for FolderEntry { name, kind } in shown.names {
        let path = folder.path.join(name);
        let Some(found) = WorkPath::from_inside(&path) else {
            continue;
        };
        key.get_or_insert_with(|| OrderKey::for_path(&path));
        part.push(ListEntry { path: found, kind });
        if recursive && kind == EntryKind::Folder {
            let entries = std::mem::take(&mut part);
            let count = entries.len();
            outputs.extend(
                key.take()
                    .map(|key| (key, JobOutput::Part((entries, 0), count))),
            );
            outputs.push((
                OrderKey::for_contents(&path),
                JobOutput::Job(folder.child_folder(path)),
            ));
        }
    }
    let count = part.len();
    outputs.extend(key.map(|key| (key, JobOutput::Part((part, 0), count))));
    outputs
}
