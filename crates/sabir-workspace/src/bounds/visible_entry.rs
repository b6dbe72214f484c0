//! The way to a path within bounds: through handles, and judged on the way.
//!
//! The named path is judged first, then where it leads. That place is walked to name by name through no link, the ignore files
//! of each folder are read through its handle, and what is opened in the end is opened from the handle of the last one. So
//! whoever puts a link in the way, at whatever moment, gets an error or another round, and never a look.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{HiddenBy, HiddenRules};
use crate::error::WorkspaceError;
use crate::files::{EntryKind, FileInfo, Workspace};
use crate::path::WorkPath;
use crate::sandbox::masks::is_mask;

/// How often a path is walked again on which links come and go.
const MAX_TRIES: usize = 16;

/// A place that is not hidden, and its folder.
#[derive(Debug)]
pub(crate) struct VisibleEntry {
    /// The place, links resolved.
    pub(crate) path: WorkPath,
    /// The handle of its folder, and its name in there; `.` for the workspace folder.
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// What is there; no link.
    pub(crate) found: Stat,
    /// The ignore files of the folders that it is in.
    pub(crate) hiding: Option<Arc<HiddenRules>>,
}

/// Why a walk ended early.
pub(crate) enum AccessError {
    Hidden(HiddenBy),
    System(Errno),
}

impl From<Errno> for AccessError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl AccessError {
    /// The error of a walk to that path.
    pub(crate) fn into_workspace_error(self, action: &'static str, path: &WorkPath) -> WorkspaceError {
        match self {
            Self::Hidden(by) => WorkspaceError::Hidden { path: path.to_string(), by: by.to_string() },
            Self::System(error) => WorkspaceError::from_io(action, path, error.into()),
        }
    }
}

impl VisibleEntry {
    /// What is there.
    pub(crate) fn file_info(&self) -> FileInfo {
        let kind = match FileType::from_raw_mode(self.found.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        let size_bytes = u64::try_from(self.found.st_size).unwrap_or_default();
        FileInfo { kind, size_bytes, links: self.found.st_nlink }
    }

    /// Opens the file, if it is a regular one and still the one that was judged to be. `named` is for the error.
    pub(crate) fn open_file(&self, named: &WorkPath) -> Result<File, WorkspaceError> {
        let fail = |error: Errno| WorkspaceError::from_io("read", named, error.into());
        ensure_regular_file(&self.found, named)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()).map_err(fail)?;
        ensure_regular_file(&rustix::fs::fstat(&file).map_err(fail)?, named)?;
        Ok(file.into())
    }
}

fn ensure_regular_file(found: &Stat, path: &WorkPath) -> Result<(), WorkspaceError> {
    let found = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a folder",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "something special",
    };
    Err(WorkspaceError::NotAFile { path: path.to_string(), found })
}

impl Workspace {
    /// The place from which a listing or search starts, and the ignore files that hold for it.
    pub(crate) fn resolve_start(
        &self,
        path: &WorkPath,
    ) -> Result<(WorkPath, Option<Arc<HiddenRules>>), WorkspaceError> {
        if !self.bounds().hides_anything() {
            self.check_unmasked(path)?;
            return Ok((self.resolve_links(path)?, None));
        }
        self.resolve_visible(path, "list").map(|reached| (reached.path, reached.hiding))
    }

    /// Goes to what is at a path, unless it is hidden.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], also where nothing is; [`Missing`](WorkspaceError::Missing); those of
    /// [`resolve_links`](Self::resolve_links).
    pub(crate) fn resolve_visible(
        &self,
        path: &WorkPath,
        action: &'static str,
    ) -> Result<VisibleEntry, WorkspaceError> {
        self.ensure_name_visible(path).map_err(|by| AccessError::Hidden(by).into_workspace_error(action, path))?;
        let mut barred = AccessError::System(Errno::LOOP);
        for _ in 0..MAX_TRIES {
            let real = self.resolve_links(path)?;
            match self.open_visible(&real) {
                Ok(reached) => return Ok(reached),
                // A link since a moment ago, which is to be resolved in turn.
                Err(AccessError::System(error @ (Errno::LOOP | Errno::NOTDIR))) => barred = error.into(),
                Err(AccessError::Hidden(by)) => return Err(AccessError::Hidden(by).into_workspace_error(action, &real)),
                Err(AccessError::System(error)) => {
                    return Err(AccessError::System(error).into_workspace_error(action, path));
                }
            }
        }
        Err(barred.into_workspace_error(action, path))
    }

    fn open_visible(&self, path: &WorkPath) -> Result<VisibleEntry, AccessError> {
        let name = path.as_path().file_name().unwrap_or(OsStr::new(".")).to_os_string();
        let parent = path.as_path().parent().unwrap_or(Path::new(""));
        let (folder, hiding) = self.open_visible_folder(path.as_path(), parent, |_, _| Err(Errno::NOENT))?;
        let found = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            found if matches!(found, Err(Errno::NOENT)) || is_mask(folder.as_fd(), &name) => {
                self.ensure_visible(hiding.as_deref(), path.as_path(), false)?;
                return Err(Errno::NOENT.into());
            }
            found => found?,
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        if !path.is_root() {
            self.ensure_visible(hiding.as_deref(), path.as_path(), kind == FileType::Directory)?;
        }
        let hiding = if path.is_root() { None } else { hiding };
        Ok(VisibleEntry { path: path.clone(), folder, name, found, hiding })
    }

    /// Opens the folder `parent` of `path` through no link and through nothing that is hidden, and gives the ignore files that
    /// hold in it. `missing` as for a write. Where a folder is missing, all of `path` is judged by what is known.
    pub(crate) fn open_visible_folder(
        &self,
        path: &Path,
        parent: &Path,
        missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
    ) -> Result<(OwnedFd, Option<Arc<HiddenRules>>), AccessError> {
        let mut hiding = None;
        let opened = self.open_each(parent, missing, |handle, folder, below| {
            hiding = self.hidden_rules_in(hiding.take(), handle.as_fd(), folder);
            self.ensure_visible(hiding.as_deref(), below, true)
        });
        match opened {
            Ok(folder) => {
                hiding = self.hidden_rules_in(hiding.take(), folder.as_fd(), parent);
                Ok((folder, hiding))
            }
            Err(AccessError::System(Errno::NOENT)) => {
                let mut all: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
                all.reverse();
                for one in all {
                    self.ensure_visible(hiding.as_deref(), one, one != path)?;
                }
                Err(Errno::NOENT.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Fails for what is hidden in a folder that is not.
    pub(crate) fn ensure_visible(
        &self,
        hiding: Option<&HiddenRules>,
        path: &Path,
        is_folder: bool,
    ) -> Result<(), AccessError> {
        match self.bounds().hidden_by(self.root(), hiding, path, is_folder) {
            Some(by) => Err(AccessError::Hidden(by)),
            None => Ok(()),
        }
    }

    /// Judges the path as it is named, links on the way left as they are. What it leads to is judged by itself.
    fn ensure_name_visible(&self, path: &WorkPath) -> Result<(), HiddenBy> {
        let mut hiding = None;
        let mut folders: Vec<&Path> = path.as_path().ancestors().collect();
        folders.reverse();
        for pair in folders.windows(2) {
            let [folder, below] = pair else { continue };
            let at = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            if let Ok(handle) = self.dir().open_dir(at) {
                hiding = self.hidden_rules_in(hiding, handle.as_fd(), folder);
            }
            let is_folder =
                *below != path.as_path() || self.dir().symlink_metadata(below).is_ok_and(|found| found.is_dir());
            if let Some(by) = self.bounds().hidden_by(self.root(), hiding.as_deref(), below, is_folder) {
                return Err(by);
            }
        }
        Ok(())
    }
}
