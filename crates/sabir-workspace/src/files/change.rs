//! Applies several file changes as one: all of them, or none.
//!
//! First everything is checked, then all new content is written beside its place and synced, and
//! only then do names change. A replaced or deleted file is kept under a temporary name until
//! everything is done, so that it can be restored as the same file, with its mode, owner and
//! attributes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attributes::FileAttributes;
use super::swap::{FileSwap, SwapState};
use super::temp::TempFile;
use super::{FileVersion, Workspace, WritePrecondition, read_whole};
use crate::bounds::{AccessError, HiddenRules};
use crate::error::WorkspaceError;
use crate::path::WorkPath;
use crate::sandbox::masks::{is_mask, is_mask_itself};

/// A change of one file. A move consists of a write and a deletion; see [`FileChange::move_file`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The path of the file, with links resolved.
    pub path: WorkPath,
    /// The state that the file must have now; otherwise nothing is changed.
    pub expect: WritePrecondition,
    /// The new content; `None` deletes the file.
    pub content: Option<Vec<u8>>,
    /// The file that provides mode, owner and attributes of the written file, instead of the one it
    /// replaces. It may be deleted by the same set of changes.
    pub like: Option<WorkPath>,
}

/// A borrowed [`FileChange`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeRequest<'a> {
    pub(super) path: &'a WorkPath,
    pub(super) expect: WritePrecondition,
    pub(super) content: Option<&'a [u8]>,
    pub(super) like: Option<&'a WorkPath>,
}

impl FileChange {
    /// Creates a change that writes a file.
    #[must_use]
    pub fn write(path: WorkPath, content: Vec<u8>, expect: WritePrecondition) -> Self {
        Self {
            path,
            expect,
            content: Some(content),
            like: None,
        }
    }

    /// Creates a change that deletes a file.
    #[must_use]
    pub fn delete(path: WorkPath, expect: WritePrecondition) -> Self {
        Self {
            path,
            expect,
            content: None,
            like: None,
        }
    }

    /// Creates the changes that move a file to an unused name, keeping its mode; `content` is its
    /// new content.
    #[must_use]
    pub fn move_file(
        from: WorkPath,
        expect: WritePrecondition,
        to: WorkPath,
        content: Vec<u8>,
    ) -> [Self; 2] {
        let written = Self {
            path: to,
            expect: WritePrecondition::Missing,
            content: Some(content),
            like: Some(from.clone()),
        };
        [written, Self::delete(from, expect)]
    }
}

impl Workspace {
    /// Applies all changes, or none. Returns the new versions in the order of the changes, `None`
    /// for a deletion. Missing folders are created; folders that become empty stay.
    ///
    /// If a change fails at any point, everything is restored: the old files themselves, without
    /// the folders created on the way. Two guarantees are not possible. Other processes see the
    /// changes one after the other, though each single file always has its old or its new content.
    /// And a process that is killed, or a power failure, between the first rename and the last
    /// leaves some files old and others new.
    ///
    /// # Errors
    /// Those of [`write_file`](Self::write_file), for the first change that fails;
    /// [`WorkspaceError::ConflictingChanges`] for two changes of one path, or of a path and something below it;
    /// [`NotRestored`](WorkspaceError::NotRestored) if restoring failed as well.
    pub fn apply_changes(
        &self,
        changes: &[FileChange],
    ) -> Result<Vec<Option<FileVersion>>, WorkspaceError> {
        let wanted = changes.iter().map(|change| ChangeRequest {
            path: &change.path,
            expect: change.expect,
            content: change.content.as_deref(),
            like: change.like.as_ref(),
        });
        self.make_changes(&wanted.collect::<Vec<_>>())
    }

    pub(super) fn make_changes(
        &self,
        wanted: &[ChangeRequest<'_>],
    ) -> Result<Vec<Option<FileVersion>>, WorkspaceError> {
        check_distinct(wanted)?;
        // All checks come before any write, so most errors leave nothing to undo.
        let attributes: Vec<Option<FileAttributes>> = wanted
            .iter()
            .map(|one| self.check_change(one))
            .collect::<Result<_, _>>()?;
        let mut work = ChangeTransaction {
            workspace: self,
            folders: HashMap::new(),
            made: Vec::new(),
            swaps: Vec::new(),
        };
        let result = wanted
            .iter()
            .zip(&attributes)
            .try_for_each(|(one, attributes)| work.prepare_change(one, attributes.as_ref()));
        match result.and_then(|()| work.commit()) {
            Ok(()) => Ok(work.swaps.into_iter().map(|swap| swap.version).collect()),
            Err(error) => Err(work.roll_back(error)),
        }
    }

    /// Checks everything that can be known before a change, and returns the attributes that the new
    /// file will have.
    fn check_change(
        &self,
        wanted: &ChangeRequest<'_>,
    ) -> Result<Option<FileAttributes>, WorkspaceError> {
        let path = wanted.path;
        // The caller has checked and shown this path. If it contained a link, another file would be
        // written.
        let real = self.resolve_writable(path)?;
        if real != *path {
            return Err(WorkspaceError::LinkInPath {
                path: path.to_string(),
                real: real.to_string(),
            });
        }
        let fail = |error: Errno| WorkspaceError::from_io("write", path, error.into());
        let (parent, name) = split_path(path)?;
        let old = match self.open_folder(parent, |_, _| Err(Errno::NOENT)) {
            Ok(folder) => stat_regular(&folder, name, path)?.map(|old| (folder, old)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(fail(error)),
        };
        let Some((folder, old)) = old else {
            let needed =
                matches!(wanted.expect, WritePrecondition::Version(_)) || wanted.content.is_none();
            return if needed {
                Err(fail(Errno::NOENT))
            } else {
                self.template_attributes(wanted)
            };
        };
        check_precondition(&folder, name, path, wanted.expect)?;
        // Root may write anything, so the permission check below would not stop it.
        if old.st_mode & 0o222 == 0 {
            return Err(WorkspaceError::ReadOnly {
                path: path.to_string(),
            });
        }
        // Write permission on the folder would suffice to replace a file, but one that the user may
        // not write must not be replaced.
        rustix::fs::accessat(&folder, name, Access::WRITE_OK, AtFlags::EACCESS).map_err(fail)?;
        if wanted.like.is_some() {
            self.template_attributes(wanted)
        } else {
            Ok(Some(read_attributes(&folder, name, &old)))
        }
    }

    /// Returns the attributes of the file named by `like`, if any.
    fn template_attributes(
        &self,
        wanted: &ChangeRequest<'_>,
    ) -> Result<Option<FileAttributes>, WorkspaceError> {
        let Some(path) = wanted.like else {
            return Ok(None);
        };
        self.check_readable(path)?;
        let (parent, name) = split_path(path)?;
        let missing = |error: Errno| WorkspaceError::from_io("read", path, error.into());
        let folder = self
            .open_folder(parent, |_, _| Err(Errno::NOENT))
            .map_err(missing)?;
        let found = stat_regular(&folder, name, path)?.ok_or_else(|| missing(Errno::NOENT))?;
        Ok(Some(read_attributes(&folder, name, &found)))
    }
}

/// A set of changes in progress.
struct ChangeTransaction<'a> {
    workspace: &'a Workspace,
    /// The folders of the files, each opened once, with the ignore files that apply in them.
    folders: HashMap<PathBuf, (Arc<OwnedFd>, Option<Arc<HiddenRules>>)>,
    /// The folders that were created: the handle of the parent, and the name.
    made: Vec<(OwnedFd, PathBuf)>,
    swaps: Vec<FileSwap<'a>>,
}

impl<'a> ChangeTransaction<'a> {
    /// Writes the new content beside its place and syncs it.
    fn prepare_change(
        &mut self,
        wanted: &ChangeRequest<'a>,
        attributes: Option<&FileAttributes>,
    ) -> Result<(), WorkspaceError> {
        let fail = |error: io::Error| WorkspaceError::from_io("write", wanted.path, error);
        let (parent, name) = split_path(wanted.path)?;
        let folder = self
            .open_change_folder(wanted.path.as_path(), parent)
            .map_err(|access_error| access_error.into_workspace_error("write", wanted.path))?;
        let (temp, version) = match wanted.content {
            Some(bytes) => {
                let (temp, version) =
                    TempFile::create_with(&folder, bytes, attributes).map_err(fail)?;
                (temp, Some(version))
            }
            None => (TempFile::reserve_name(&folder), None),
        };
        self.swaps.push(FileSwap {
            path: wanted.path,
            name,
            expect: wanted.expect,
            temp,
            version,
            done: SwapState::Nothing,
        });
        Ok(())
    }

    /// Opens (or creates) the parent folder of a path that is not hidden.
    fn open_change_folder(
        &mut self,
        path: &Path,
        parent: &Path,
    ) -> Result<Arc<OwnedFd>, AccessError> {
        if let Some((known, hidden_rules)) = self.folders.get(parent) {
            self.workspace
                .ensure_visible(hidden_rules.as_deref(), path, false)?;
            return Ok(Arc::clone(known));
        }
        let made = &mut self.made;
        let (opened, hidden_rules) =
            self.workspace
                .open_visible_folder(path, parent, |above, name| {
                    match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) => made.push((
                            above.try_clone().map_err(|_| Errno::MFILE)?,
                            name.to_path_buf(),
                        )),
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    // A new name is durable only once its folder is synced, even if another process
                    // created it.
                    sync_folder(above)
                })?;
        self.workspace.sweep_temp_files(parent, opened.as_fd());
        self.workspace
            .ensure_visible(hidden_rules.as_deref(), path, false)?;
        let opened = Arc::new(opened);
        self.folders
            .insert(parent.to_path_buf(), (Arc::clone(&opened), hidden_rules));
        Ok(opened)
    }

    /// Renames all files into place, one after the other, and syncs their folders.
    fn commit(&mut self) -> Result<(), WorkspaceError> {
        for swap in &mut self.swaps {
            // Checked a second time, because preparing the other changes may have taken a while.
            let checked = check_precondition(&swap.temp.folder, swap.name, swap.path, swap.expect)?;
            swap.apply_swap(checked.as_ref())?;
        }
        for (parent, (folder, _)) in &self.folders {
            sync_folder(folder).map_err(|error| {
                let named = WorkPath::from_inside(parent).unwrap_or_else(WorkPath::root);
                WorkspaceError::from_io("sync the folder", named, error.into())
            })?;
        }
        // Only after the last sync: until then an error still restores the old files.
        self.swaps.iter_mut().for_each(FileSwap::discard_old);
        Ok(())
    }

    /// Restores everything, last change first, and returns the error to report.
    fn roll_back(mut self, why: WorkspaceError) -> WorkspaceError {
        let failed: Vec<String> = self
            .swaps
            .iter_mut()
            .rev()
            .filter_map(FileSwap::roll_back)
            .collect();
        // The temporary files have to be removed before their folders can be.
        self.swaps.clear();
        for (above, name) in self.made.iter().rev() {
            // A folder in which someone else has created something meanwhile stays.
            let _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
        }
        for (folder, _) in self.folders.values() {
            let _ = sync_folder(folder);
        }
        if failed.is_empty() {
            why
        } else {
            WorkspaceError::NotRestored {
                files: failed.join(", "),
                why: Box::new(why),
            }
        }
    }
}

/// Syncs a folder. Some file systems cannot, and say so.
fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::fsync(folder) {
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Checks that no path occurs twice, and none lies below another.
fn check_distinct(wanted: &[ChangeRequest<'_>]) -> Result<(), WorkspaceError> {
    let mut paths: Vec<&WorkPath> = wanted.iter().map(|one| one.path).collect();
    paths.sort();
    for pair in paths.windows(2) {
        // Sorted by components, so a path comes right before those below it.
        if let [first, second] = pair
            && second.as_path().starts_with(first.as_path())
        {
            return Err(WorkspaceError::ConflictingChanges {
                path: first.to_string(),
                other: second.to_string(),
            });
        }
    }
    Ok(())
}

/// Splits a path into folder and name.
fn split_path(path: &WorkPath) -> Result<(&Path, &OsStr), WorkspaceError> {
    match (path.as_path().parent(), path.as_path().file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(WorkspaceError::NotAFile {
            path: path.to_string(),
            found: "a folder",
        }),
    }
}

/// Returns the metadata of a regular file, `None` if nothing exists.
fn stat_regular(
    folder: &OwnedFd,
    name: &OsStr,
    path: &WorkPath,
) -> Result<Option<Stat>, WorkspaceError> {
    let found = stat_entry(folder, name)
        .map_err(|error| WorkspaceError::from_io("look at", path, error.into()))?;
    if is_mask_itself(folder) {
        return Err(WorkspaceError::Masked {
            path: path.to_string(),
        });
    }
    match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
        None | Some(FileType::RegularFile) => Ok(found),
        // The entry became a link since it was checked.
        Some(FileType::Symlink) => Err(WorkspaceError::Stale {
            path: path.to_string(),
        }),
        Some(FileType::Directory) if is_mask(folder.as_fd(), name) => Err(WorkspaceError::Masked {
            path: path.to_string(),
        }),
        Some(FileType::Directory) => Err(WorkspaceError::NotAFile {
            path: path.to_string(),
            found: "a folder",
        }),
        Some(_) => Err(WorkspaceError::NotAFile {
            path: path.to_string(),
            found: "something special",
        }),
    }
}

fn read_attributes(folder: &OwnedFd, name: &OsStr, found: &Stat) -> FileAttributes {
    let file = rustix::fs::openat(folder, name, READ_FLAGS, Mode::empty()).ok();
    FileAttributes::from_stat(found, file.as_ref().map(AsFd::as_fd))
}

/// Never follow a link, and never wait for a FIFO.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Checks a precondition. For a version, returns the metadata of the file as it was before it was
/// read.
fn check_precondition(
    folder: &OwnedFd,
    name: &OsStr,
    path: &WorkPath,
    expect: WritePrecondition,
) -> Result<Option<Stat>, WorkspaceError> {
    let fail = |error: io::Error| WorkspaceError::from_io("write", path, error);
    match expect {
        WritePrecondition::Any => Ok(None),
        WritePrecondition::Missing => {
            match stat_entry(folder, name).map_err(|error| fail(error.into()))? {
                Some(_) => Err(WorkspaceError::Exists {
                    path: path.to_string(),
                }),
                None => Ok(None),
            }
        }
        WritePrecondition::Version(version) => {
            // A link, FIFO or folder in its place is a change as well.
            stat_regular(folder, name, path)?;
            let file =
                rustix::fs::openat(folder, name, READ_FLAGS, Mode::empty()).map_err(|error| {
                    match error {
                        Errno::LOOP => WorkspaceError::Stale {
                            path: path.to_string(),
                        },
                        error => fail(error.into()),
                    }
                })?;
            // Before reading: a write during the read then shows as a difference when the file is
            // swapped.
            let before = rustix::fs::fstat(&file).map_err(|error| fail(error.into()))?;
            let found = read_whole(&file.into(), 0).map_err(fail)?;
            if found.version == version {
                Ok(Some(before))
            } else {
                Err(WorkspaceError::Stale {
                    path: path.to_string(),
                })
            }
        }
    }
}

pub(super) fn stat_entry(
    folder: &OwnedFd,
    name: impl rustix::path::Arg,
) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
