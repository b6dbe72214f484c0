//! Finds everything that is hidden in a workspace, so that a sandbox can hide it from commands.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::HiddenRules;
use crate::error::WorkspaceError;
use crate::files::{EntryKind, Workspace, entry_kind};
use crate::ordered_pool::{JobOutput, OrderKey, run_in_order};
use crate::platform::RawDir;
use crate::stop_flag::StopFlag;

const BUFFER_BYTES: usize = 32 << 10;
/// The number of paths that may wait for an earlier folder.
const MAX_QUEUED: usize = 1 << 20;

/// A visible folder to scan.
struct HiddenScanFolder {
    path: PathBuf,
    hidden_rules: Option<Arc<HiddenRules>>,
}

/// The output of one folder: the folders below it, and the hidden paths in it.
type FolderScan = Vec<(OrderKey, JobOutput<HiddenScanFolder, Vec<PathBuf>>)>;

impl Workspace {
    pub(crate) fn scan_hidden_paths(
        &self,
        stop: &StopFlag,
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        self.open_beneath(Path::new("")).map_err(|error| {
            WorkspaceError::from_io("list", self.root().display(), error.into())
        })?;
        let mut hidden = Vec::new();
        let worker = || {
            let mut buffer = Box::new_uninit_slice(BUFFER_BYTES);
            // A folder that this process cannot read is unreadable for commands of the same user,
            // too.
            move |folder| {
                self.scan_hidden_folder(&mut buffer, folder)
                    .unwrap_or_default()
            }
        };
        let take = |part: Vec<PathBuf>| {
            hidden.extend(part);
            ControlFlow::Continue(())
        };
        let first = HiddenScanFolder {
            path: PathBuf::new(),
            hidden_rules: None,
        };
        run_in_order(
            (OrderKey::for_contents(Path::new("")), first),
            MAX_QUEUED,
            stop,
            worker,
            take,
        );
        if stop.is_requested() {
            return Err(WorkspaceError::Stopped {
                path: ".".to_owned(),
            });
        }
        // Several links may lead to one file, so the list may contain duplicates.
        hidden.sort();
        hidden.dedup();
        Ok(hidden)
    }

    fn scan_hidden_folder(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        mut folder: HiddenScanFolder,
    ) -> Result<FolderScan, Errno> {
        let handle = self.open_beneath(&folder.path)?;
        let mut names = Vec::new();
        let mut bound = false;
        let mut entries = RawDir::new(&handle, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                bound |= self.bounds().is_ignore_file(name.as_bytes());
                names.push((
                    name.to_os_string(),
                    entry_kind(&handle, name, entry.file_type()),
                ));
            }
        }
        if bound {
            folder.hidden_rules =
                self.hidden_rules_in(folder.hidden_rules.take(), handle.as_fd(), &folder.path);
        }
        let mut outputs = Vec::new();
        let mut found = Vec::new();
        for (name, kind) in names {
            let path = folder.path.join(name);
            let is_folder = kind == EntryKind::Folder;
            if self
                .bounds()
                .hidden_by(
                    self.root(),
                    folder.hidden_rules.as_deref(),
                    &path,
                    is_folder,
                )
                .is_some()
            {
                found.extend(self.maskable_path(&path, kind));
            // Ignore files do not apply inside `.git`, so it is scanned only if globs could hide
            // something there.
            } else if is_folder
                && (path.file_name() != Some(OsStr::new(".git")) || self.bounds().has_globs())
            {
                outputs.push((
                    OrderKey::for_contents(&path),
                    JobOutput::Job(HiddenScanFolder {
                        hidden_rules: folder.hidden_rules.clone(),
                        path,
                    }),
                ));
            }
        }
        let count = found.len();
        outputs.push((
            OrderKey::for_contents(&folder.path),
            JobOutput::Part(found, count),
        ));
        Ok(outputs)
    }

    /// Returns the path that a sandbox can mask for a hidden name: the path itself, or the target
    /// of a link to a file.
    fn maskable_path(&self, path: &Path, kind: EntryKind) -> Option<PathBuf> {
        let path = self.root().join(path);
        if kind != EntryKind::Link {
            return Some(path);
        }
        path.canonicalize().ok().filter(|real| real.is_file())
    }
}
