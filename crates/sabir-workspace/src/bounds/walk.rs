//! All that is hidden in a workspace, for a sandbox that has to hide it too.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::RawDir;
use rustix::io::Errno;

use super::Hiding;
use crate::error::WorkspaceError;
use crate::files::{EntryKind, Workspace, kind};
use crate::order::{Key, Next, in_order};
use crate::stop::Stop;

const BUFFER_BYTES: usize = 32 << 10;
/// So many paths may wait for a folder before them.
const AHEAD: usize = 1 << 20;

/// A folder that is not hidden.
struct Folder {
    path: PathBuf,
    hiding: Option<Arc<Hiding>>,
}

impl Workspace {
    pub(crate) fn walk_hidden(&self, stop: &Stop) -> Result<Vec<PathBuf>, WorkspaceError> {
        self.open_beneath(Path::new(""))
            .map_err(|error| WorkspaceError::from_io("list", self.root().display(), error.into()))?;
        let mut hidden = Vec::new();
        let worker = || {
            let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
            // What cannot be read by us can be read by no command of the same user.
            move |folder| self.hidden_in(&mut buffer, folder).unwrap_or_default()
        };
        let take = |part: Vec<PathBuf>| {
            hidden.extend(part);
            ControlFlow::Continue(())
        };
        let first = Folder { path: PathBuf::new(), hiding: None };
        in_order((Key::inside(Path::new("")), first), AHEAD, stop, worker, take);
        if stop.is_asked() {
            return Err(WorkspaceError::Stopped { path: ".".to_owned() });
        }
        hidden.sort();
        hidden.dedup();
        Ok(hidden)
    }

    fn hidden_in(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        mut folder: Folder,
    ) -> Result<Vec<(Key, Next<Folder, Vec<PathBuf>>)>, Errno> {
        let handle = self.open_beneath(&folder.path)?;
        let (mut names, mut bound) = (Vec::new(), false);
        let mut entries = RawDir::new(&handle, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                bound |= self.bounds().is_ignore_file(name.as_bytes());
                names.push((name.to_os_string(), kind(&handle, name, entry.file_type())));
            }
        }
        if bound {
            folder.hiding = self.hiding_in(folder.hiding.take(), handle.as_fd(), &folder.path);
        }
        let (mut given, mut found) = (Vec::new(), Vec::new());
        for (name, kind) in names {
            let path = folder.path.join(name);
            let is_folder = kind == EntryKind::Folder;
            if self.bounds().hider(self.root(), folder.hiding.as_deref(), &path, is_folder).is_some() {
                found.extend(self.real(&path, kind));
            } else if is_folder && (path.file_name() != Some(OsStr::new(".git")) || self.bounds().has_globs()) {
                given.push((Key::inside(&path), Next::Job(Folder { hiding: folder.hiding.clone(), path })));
            }
        }
        let count = found.len();
        given.push((Key::inside(&folder.path), Next::Part(found, count)));
        Ok(given)
    }

    /// What a sandbox can hide in place of a hidden name.
    fn real(&self, path: &Path, kind: EntryKind) -> Option<PathBuf> {
        let path = self.root().join(path);
        if kind != EntryKind::Link {
            return Some(path);
        }
        path.canonicalize().ok().filter(|real| real.is_file())
    }
}
