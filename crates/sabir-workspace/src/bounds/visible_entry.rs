//! Opens paths within bounds, through handles, checking every step.
//!
//! The path is checked as named and as resolved. The resolved path is walked name by name without
//! following links, the ignore files of each folder are read through its handle, and the final
//! entry is opened from the handle of its folder. A link planted on the way therefore causes an
//! error or a retry, but never an unchecked access.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{HiddenBy, HiddenRules};
use crate::error::WorkspaceError;
use crate::files::{EntryKind, FileInfo, Workspace, to_milliseconds};
use crate::path::WorkPath;
use crate::platform;
use crate::sandbox::masks::is_mask;

/// The number of attempts for a path on which links keep changing.
const MAX_TRIES: usize = 16;

/// A visible entry and its folder.
#[derive(Debug)]
pub(crate) struct VisibleEntry {
    /// The path with links resolved.
    pub(crate) path: WorkPath,
    /// The handle of its folder. The name below it is `.` for the workspace folder itself.
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// The metadata of the entry, which is not a link.
    pub(crate) found: Stat,
    /// The ignore files of the folders above it.
    pub(crate) hidden_rules: Option<Arc<HiddenRules>>,
}

/// The reason that a walk ended early.
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
    /// Turns this into the error for a walk to `path`.
    pub(crate) fn into_workspace_error(
        self,
        action: &'static str,
        path: &WorkPath,
    ) -> WorkspaceError {
        match self {
            Self::Hidden(by) => WorkspaceError::Hidden {
                path: path.to_string(),
                by: by.to_string(),
            },
            Self::System(error) => WorkspaceError::from_io(action, path, error.into()),
        }
    }
}

impl VisibleEntry {
    /// Returns kind, size and link count.
    pub(crate) fn file_info(&self) -> FileInfo {
        let kind = match FileType::from_raw_mode(self.found.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        let size_bytes = u64::try_from(self.found.st_size).unwrap_or_default();
        FileInfo {
            kind,
            size_bytes,
            links: platform::widen(self.found.st_nlink),
            changed_ms: to_milliseconds(
                self.found.st_ctime,
                i64::try_from(self.found.st_ctime_nsec).unwrap_or_default(),
            ),
        }
    }

    /// Opens the file if it is regular, before and after opening. `named` is the path used in
    /// errors.
    pub(crate) fn open_file(&self, named: &WorkPath) -> Result<File, WorkspaceError> {
        let fail = |error: Errno| WorkspaceError::from_io("read", named, error.into());
        ensure_regular_file(&self.found, named)?;
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty()).map_err(fail)?;
        // Checked again on the handle, since the entry may have been replaced since it was checked.
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
    Err(WorkspaceError::NotAFile {
        path: path.to_string(),
        found,
    })
}

impl Workspace {
    /// Returns the resolved path from which a listing or search starts, and the ignore files that
    /// apply to it.
    pub(crate) fn resolve_start(
        &self,
        path: &WorkPath,
    ) -> Result<(WorkPath, Option<Arc<HiddenRules>>), WorkspaceError> {
        if !self.bounds().hides_anything() {
            self.check_unmasked(path)?;
            return Ok((self.resolve_links(path)?, None));
        }
        self.resolve_visible(path, "list")
            .map(|reached| (reached.path, reached.hidden_rules))
    }

    /// Opens the entry at a path, unless it is hidden.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], even if nothing exists there;
    /// [`Missing`](WorkspaceError::Missing); those of [`resolve_links`](Self::resolve_links).
    pub(crate) fn resolve_visible(
        &self,
        path: &WorkPath,
        action: &'static str,
    ) -> Result<VisibleEntry, WorkspaceError> {
        let mut access_error = AccessError::System(Errno::LOOP);
        for _ in 0..MAX_TRIES {
            let resolved = self.resolve_links(path);
            let check_name = || {
                self.ensure_name_visible(path)
                    .map_err(|by| AccessError::Hidden(by).into_workspace_error(action, path))
            };
            // Without links the walk below checks the same names.
            let is_same = resolved.as_ref().is_ok_and(|real| real == path);
            if !is_same {
                check_name()?;
            }
            let real = resolved?;
            match self.open_visible(&real) {
                Ok(reached) => return Ok(reached),
                Err(AccessError::Hidden(by)) => {
                    return Err(AccessError::Hidden(by).into_workspace_error(action, &real));
                }
                Err(AccessError::System(error)) => {
                    // The walk may have ended above a hidden name, in a folder that cannot be opened.
                    if is_same {
                        check_name()?;
                    }
                    // A link appeared since the path was resolved, so it has to be resolved again.
                    if !matches!(error, Errno::LOOP | Errno::NOTDIR) {
                        return Err(AccessError::System(error).into_workspace_error(action, path));
                    }
                    access_error = error.into();
                }
            }
        }
        Err(access_error.into_workspace_error(action, path))
    }

    fn open_visible(&self, path: &WorkPath) -> Result<VisibleEntry, AccessError> {
        let name = path
            .as_path()
            .file_name()
            .unwrap_or(OsStr::new("."))
            .to_os_string();
        let parent = path.as_path().parent().unwrap_or(Path::new(""));
        let (folder, hidden_rules) =
            self.open_visible_folder(path.as_path(), parent, |_, _| Err(Errno::NOENT))?;
        let found = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // A hidden name is reported as hidden even if it does not exist, so that a probe
            // reveals nothing.
            found if matches!(found, Err(Errno::NOENT)) || is_mask(folder.as_fd(), &name) => {
                self.ensure_visible(hidden_rules.as_deref(), path.as_path(), false)?;
                return Err(Errno::NOENT.into());
            }
            found => found?,
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        if !path.is_root() {
            self.ensure_visible(
                hidden_rules.as_deref(),
                path.as_path(),
                kind == FileType::Directory,
            )?;
        }
        let hidden_rules = if path.is_root() { None } else { hidden_rules };
        Ok(VisibleEntry {
            path: path.clone(),
            folder,
            name,
            found,
            hidden_rules,
        })
    }

    /// Opens the folder `parent` of `path` without following links or entering hidden folders, and returns the ignore files that apply in
    /// it. `missing` handles missing folders as in [`open_each`](Self::open_each). If a folder is missing, all of `path` is still checked
    /// by the rules known so far, so that a hidden path is not revealed as missing.
    pub(crate) fn open_visible_folder(
        &self,
        path: &Path,
        parent: &Path,
        missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
    ) -> Result<(OwnedFd, Option<Arc<HiddenRules>>), AccessError> {
        let mut hidden_rules = None;
        let opened = self.open_each(parent, missing, |handle, folder, below| {
            hidden_rules = self.hidden_rules_in(hidden_rules.take(), handle.as_fd(), folder);
            self.ensure_visible(hidden_rules.as_deref(), below, true)
        });
        match opened {
            Ok(folder) => {
                hidden_rules = self.hidden_rules_in(hidden_rules.take(), folder.as_fd(), parent);
                Ok((folder, hidden_rules))
            }
            Err(AccessError::System(Errno::NOENT)) => {
                let mut all: Vec<&Path> = path
                    .ancestors()
                    .filter(|path| !path.as_os_str().is_empty())
                    .collect();
                all.reverse();
                for one in all {
                    self.ensure_visible(hidden_rules.as_deref(), one, one != path)?;
                }
                Err(Errno::NOENT.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Fails for an entry that is hidden in a visible folder.
    pub(crate) fn ensure_visible(
        &self,
        hidden_rules: Option<&HiddenRules>,
        path: &Path,
        is_folder: bool,
    ) -> Result<(), AccessError> {
        match self
            .bounds()
            .hidden_by(self.root(), hidden_rules, path, is_folder)
        {
            Some(by) => Err(AccessError::Hidden(by)),
            None => Ok(()),
        }
    }

    /// Checks the path as given, without resolving links. Its resolved target is checked
    /// separately.
    fn ensure_name_visible(&self, path: &WorkPath) -> Result<(), HiddenBy> {
        let mut hidden_rules = None;
        let mut folders: Vec<&Path> = path.as_path().ancestors().collect();
        folders.reverse();
        for pair in folders.windows(2) {
            let [folder, below] = pair else { continue };
            let at = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            if let Ok(handle) = self.dir().open_dir(at) {
                hidden_rules = self.hidden_rules_in(hidden_rules, handle.as_fd(), folder);
            }
            let is_folder = *below != path.as_path()
                || self
                    .dir()
                    .symlink_metadata(below)
                    .is_ok_and(|found| found.is_dir());
            if let Some(by) =
                self.bounds()
                    .hidden_by(self.root(), hidden_rules.as_deref(), below, is_folder)
            {
                return Err(by);
            }
        }
        Ok(())
    }
}
