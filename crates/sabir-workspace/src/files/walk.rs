//! Reads the names in a folder through its handle.
//!
//! A folder is opened beneath the handle of the workspace, without following links, each time it is
//! read. A folder that is swapped for a link can therefore not be read, and no name from outside is
//! ever seen; and a tree of any depth needs only one handle at a time per thread.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::ignore_rules::{IgnoreFilesPresent, IgnoreRules};
use super::temp::TEMP_START;
use super::{EntryKind, Workspace};
use crate::bounds::HiddenRules;
use crate::platform::{self, RawDir};
use crate::sandbox::masks::is_mask;

const BUFFER_BYTES: usize = 32 << 10;
/// The number of attempts for a folder whose path is being renamed.
const MAX_TRIES: usize = 64;

/// A folder to be read.
#[derive(Debug, Clone)]
pub(crate) struct PendingFolder {
    /// The path, relative to the workspace folder.
    pub(crate) path: PathBuf,
    rules: Option<Arc<IgnoreRules>>,
    /// The hidden-path rules that apply in it.
    hidden_rules: Option<Arc<HiddenRules>>,
}

/// The visible content of a folder.
#[derive(Debug, Default)]
pub(crate) struct VisibleNames {
    /// The visible names, sorted.
    pub(crate) names: Vec<FolderEntry>,
    /// The number of names that only the bounds hide.
    pub(crate) hidden: usize,
}

/// A name in a folder.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FolderEntry {
    pub(crate) name: OsString,
    pub(crate) kind: EntryKind,
}

/// A reader of folders that reuses its buffer.
#[derive(Debug)]
pub(crate) struct FolderReader<'a> {
    workspace: &'a Workspace,
    buffer: Box<[MaybeUninit<u8>]>,
    /// The maximum number of names to keep, first ones in order.
    most: usize,
}

impl PendingFolder {
    /// Returns a subfolder of this one, which inherits its rules.
    pub(crate) fn child_folder(&self, path: PathBuf) -> Self {
        Self {
            path,
            rules: self.rules.clone(),
            hidden_rules: self.hidden_rules.clone(),
        }
    }
}

impl Workspace {
    /// Returns the folder to start from, given its resolved path and the hidden-path rules above
    /// it.
    pub(crate) fn start_folder(
        &self,
        path: &Path,
        hidden_rules: Option<Arc<HiddenRules>>,
    ) -> PendingFolder {
        PendingFolder {
            path: path.to_path_buf(),
            rules: self.rules_above(path),
            hidden_rules,
        }
    }

    /// Opens a folder beneath the workspace's handle, without following links.
    pub(crate) fn open_beneath(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let at = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        for _ in 0..MAX_TRIES {
            match platform::open_folder_beneath(self.dir().as_fd(), at) {
                // `RESOLVE_BENEATH` answers `EAGAIN` if a rename happened during the lookup.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Kernels before 5.6, some containers, and macOS lack `openat2`.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return self.open_folder(path, |_, _| Err(Errno::NOENT));
                }
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }
}

impl<'a> FolderReader<'a> {
    pub(crate) fn new(workspace: &'a Workspace, most: usize) -> Self {
        Self {
            workspace,
            buffer: Box::new_uninit_slice(BUFFER_BYTES),
            most,
        }
    }

    /// Returns the names that nothing hides, and adds the folder's own ignore files to its rules.
    pub(crate) fn read_folder(
        &mut self,
        folder: &mut PendingFolder,
    ) -> Result<VisibleNames, Errno> {
        let handle = self.workspace.open_beneath(&folder.path)?;
        let mut names = Vec::new();
        let mut present = IgnoreFilesPresent::default();
        let bounds = self.workspace.bounds();
        let mut bound = false;
        let mut entries = RawDir::new(&handle, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            match name.as_bytes() {
                b"." | b".." => continue,
                b".git" => {
                    present.git = true;
                    continue;
                }
                b".ignore" => present.ignore = true,
                b".gitignore" => present.git_ignore = true,
                name if name.starts_with(TEMP_START.as_bytes()) => continue,
                _ if is_mask(handle.as_fd(), name) => continue,
                _ => {}
            }
            bound |= bounds.is_ignore_file(name.as_bytes());
            names.push(FolderEntry {
                name: name.to_os_string(),
                kind: entry_kind(&handle, name, entry.file_type()),
            });
        }
        folder.rules =
            IgnoreRules::within_folder(folder.rules.take(), handle.as_fd(), &folder.path, present);
        if let Some(rules) = &folder.rules {
            let mut path = folder.path.clone();
            names.retain(|name| {
                path.push(&name.name);
                let hidden = rules.is_hidden(&path, name.kind == EntryKind::Folder);
                path.pop();
                !hidden
            });
        }
        if bound {
            folder.hidden_rules = self.workspace.hidden_rules_in(
                folder.hidden_rules.take(),
                handle.as_fd(),
                &folder.path,
            );
        }
        let hidden = if bounds.hides_anything() {
            self.remove_hidden(folder, &mut names)
        } else {
            0
        };
        // Selecting before sorting bounds the work for folders with far more names than wanted.
        if names.len() > self.most {
            names.select_nth_unstable(self.most);
            names.truncate(self.most);
        }
        names.sort_unstable();
        Ok(VisibleNames { names, hidden })
    }

    /// Removes the names that the bounds hide, and returns their number.
    fn remove_hidden(&self, folder: &PendingFolder, names: &mut Vec<FolderEntry>) -> usize {
        let before = names.len();
        let root = self.workspace.root();
        let mut path = folder.path.clone();
        names.retain(|name| {
            path.push(&name.name);
            let is_folder = name.kind == EntryKind::Folder;
            let hider = self.workspace.bounds().hidden_by(
                root,
                folder.hidden_rules.as_deref(),
                &path,
                is_folder,
            );
            path.pop();
            hider.is_none()
        });
        before - names.len()
    }
}

/// Returns the kind of an entry, without following links. If the file system does not report it,
/// the entry is looked up.
pub(crate) fn entry_kind(folder: &OwnedFd, name: &OsStr, said: FileType) -> EntryKind {
    let found = match said {
        FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |found| {
                FileType::from_raw_mode(found.st_mode)
            }),
        said => said,
    };
    match found {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}
