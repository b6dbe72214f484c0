//! Executes a restore plan: paths are set to their target states one by one, and each is either old
//! or new.
//!
//! Folders are opened from the handle of the workspace name by name, and none may be a link, so a
//! link planted during the restore leads nowhere. Each path is checked again right before it is
//! replaced.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::error::CheckpointError;
use super::object::TreeNode;
use super::platform;
use super::restore_plan::{RestoreItem, RestorePlan};
use super::snapshot::{folder_mode, open_folder, stat_entry};
use super::store::ObjectStore;
use super::{CheckpointCall, CheckpointKind, CheckpointStore, RestorePoint, SnapshotScope};
use sabir_workspace::{TEMP_START, WorkPath, Workspace};

/// The number of the next temporary file. With the process id it makes names that no other restore
/// on this machine uses.
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// The result of a restore.
/// A restore is never all or nothing: a path that fails is skipped, and the others are restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// The number of the checkpoint that was taken first, with which the restore itself can be
    /// undone.
    pub number: u32,
    /// The number of restored paths.
    pub restored: usize,
    /// The paths that were not restored, each with the reason: the plan leaves them alone, or they
    /// could not be changed.
    pub skipped: Vec<(PathBuf, String)>,
}

/// Restores files below the workspace's handle.
struct FileRestorer<'a> {
    workspace: &'a Workspace,
    root: BorrowedFd<'a>,
    store: &'a ObjectStore,
    /// The modes to set on folders once their content is complete.
    modes: BTreeMap<PathBuf, u32>,
    left: Vec<(PathBuf, String)>,
}

impl CheckpointStore {
    /// Executes a plan, after taking a checkpoint of its own. `goal` is the restore point that the
    /// plan was made for: if the files no longer match the plan, nothing is done. `force` also
    /// restores paths whose conflict can be forced.
    ///
    /// # Errors
    /// [`CheckpointError::Stale`] if the plan no longer matches; those of
    /// [`plan_restore`](Self::plan_restore) and [`take_snapshot`](Self::take_snapshot).
    pub fn restore(
        &self,
        plan: &RestorePlan,
        goal: &RestorePoint,
        mark: CheckpointCall,
        force: bool,
    ) -> Result<RestoreOutcome, CheckpointError> {
        let missing = || CheckpointError::NoTask {
            task: plan.task.clone(),
        };
        let mut work = self.lock_existing()?.ok_or_else(missing)?;
        let stop = AtomicBool::new(false);
        self.seal_leftovers(&mut work, &mark, Some(plan.to), &stop)?;
        // The user approved this plan, so any difference cancels the restore.
        if self.plan_restore_in(&mut work, &plan.task, goal)? != *plan {
            return Err(CheckpointError::Stale);
        }
        self.free_space(&mut work, &plan.task, Some(plan.to))?;
        let paths: Vec<_> = plan
            .changed_paths(force)
            .into_iter()
            .filter_map(|path| self.to_work_path(path))
            .collect();
        let what = if plan.part {
            CheckpointKind::PartialRestore
        } else {
            CheckpointKind::Restore { to: plan.to }
        };
        let time_ms = mark.time_ms;
        let id =
            self.take_snapshot_in(&mut work, mark, what, &SnapshotScope::Files(paths), &stop)?;
        let taken = work
            .store()
            .checkpoints
            .iter()
            .find(|checkpoint| checkpoint.id == id);
        let number = taken.map_or(0, |checkpoint| checkpoint.number);
        let root = self.workspace.as_fd();
        let modes = BTreeMap::new();
        let left = Vec::new();
        let mut restorer = FileRestorer {
            workspace: &self.workspace,
            root,
            store: work.store(),
            modes,
            left,
        };
        let done = restorer.restore_all(plan, force);
        let left = restorer.left;
        // One sync for all files suffices, because nothing relies on them before the seal.
        if let Some(folder) = open_folder(root, Path::new("")) {
            _ = platform::sync_file_system(&folder);
        }
        self.seal_checkpoint_in(&mut work, id, time_ms, &stop)?;
        Ok(RestoreOutcome {
            number,
            restored: done,
            skipped: left,
        })
    }
}

impl FileRestorer<'_> {
    /// Removes obsolete entries, deepest first; then creates folders, top down; then writes files
    /// and links. Returns the number of paths that match the plan afterwards.
    fn restore_all(&mut self, plan: &RestorePlan, force: bool) -> usize {
        let (items, alone): (Vec<&RestoreItem>, Vec<&RestoreItem>) =
            plan.items.iter().partition(|item| item.is_restored(force));
        let mut stuck = Vec::new();
        for item in items
            .iter()
            .rev()
            .filter(|item| item.now.is_some() && !can_replace_in_place(item))
        {
            if !self.attempt_in_folder(item, |restorer, folder, name| {
                restorer.remove_entry(folder, name, item)
            }) {
                // Nothing may be written where the old entry could not be removed.
                stuck.push(&item.path);
            }
        }
        // In the order of the plan, which lists a folder before its content.
        let coming = || items.iter().filter(|item| !stuck.contains(&&item.path));
        for item in coming() {
            if let Some(TreeNode::Folder { mode, .. }) = item.target {
                self.attempt_in_folder(item, |_, folder, name| make_folder(folder, name));
                // The final mode may forbid writing, so it is set after the content.
                self.modes.insert(item.path.clone(), mode);
            }
        }
        for item in coming() {
            match &item.target {
                Some(TreeNode::File { mode, content, .. }) => {
                    self.attempt_in_folder(item, |restorer, folder, name| {
                        let bytes = restorer
                            .store
                            .read_object(content)
                            .map_err(|error| io::Error::other(error.to_string()))?;
                        write_file(folder, name, &bytes, *mode, item)
                    });
                }
                Some(TreeNode::Link { target }) => {
                    self.attempt_in_folder(item, |_, folder, name| {
                        write_link(folder, name, target, item)
                    });
                }
                _ => {}
            }
        }
        let modes = std::mem::take(&mut self.modes);
        // Deepest first: a mode without write permission must not block changes below.
        for (path, mode) in modes.iter().rev() {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                continue;
            };
            let set = open_folder(self.root, parent)
                .map(|folder| platform::set_folder_mode(folder.as_fd(), name, *mode));
            if let Some(Err(error)) = set {
                self.left
                    .push((path.clone(), format!("its mode could not be set: {error}")));
            }
        }
        self.left.sort();
        self.left.dedup_by(|second, first| second.0 == first.0);
        let done = items
            .iter()
            .filter(|item| !self.left.iter().any(|(path, _)| *path == item.path))
            .count();
        for item in alone {
            let why = item
                .conflict
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            self.left.push((item.path.clone(), why));
        }
        done
    }

    /// Runs an action in the parent folder of a path. If permission is denied, the folder is made
    /// writable for its owner until its mode is restored at the end.
    fn attempt_in_folder(
        &mut self,
        item: &RestoreItem,
        act: impl Fn(&Self, BorrowedFd<'_>, &OsStr) -> io::Result<()>,
    ) -> bool {
        let done = self.open_parent(item).and_then(|(folder, name)| {
            match act(self, folder.as_fd(), name) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.unlock_folder(item, folder.as_fd())?;
                    act(self, folder.as_fd(), name)
                }
                done => done,
            }
        });
        if let Err(error) = done {
            self.left
                .push((item.path.clone(), describe_io_error(&error)));
            return false;
        }
        true
    }

    /// Opens the parent folder of a path. Missing folders are created if the target is not empty.
    fn open_parent<'b>(&self, item: &'b RestoreItem) -> io::Result<(OwnedFd, &'b OsStr)> {
        let (Some(parent), Some(name)) = (item.path.parent(), item.path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(folder) = open_folder(self.root, parent) {
            // Temporary files of a restore that was killed would keep the folder from being
            // removed.
            if let Some(path) = WorkPath::from_inside(&item.path) {
                self.workspace.sweep_temp_files(
                    path.as_path().parent().unwrap_or(path.as_path()),
                    folder.as_fd(),
                );
            }
            return Ok((folder, name));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(self.root, ".", flags, Mode::empty())?;
        for part in parent {
            let below = match rustix::fs::openat(&folder, part, flags, Mode::empty()) {
                Err(Errno::NOENT) if item.target.is_some() => {
                    rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777))?;
                    rustix::fs::openat(&folder, part, flags, Mode::empty())?
                }
                opened => opened?,
            };
            folder = below;
        }
        Ok((folder, name))
    }

    /// Makes the parent folder of a path writable for its owner, and notes its mode for the end. A mode from the plan is kept, since the
    /// folder should get that mode.
    fn unlock_folder(&mut self, item: &RestoreItem, folder: BorrowedFd<'_>) -> io::Result<()> {
        let found = rustix::fs::fstat(folder)?;
        rustix::fs::fchmod(folder, Mode::from_raw_mode(found.st_mode & 0o7777 | 0o700))?;
        let parent = item.path.parent().unwrap_or(Path::new("")).to_path_buf();
        self.modes.entry(parent).or_insert(folder_mode(&found));
        Ok(())
    }

    /// Removes an entry of the kind that the plan saw. An entry that is gone already is fine.
    fn remove_entry(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        item: &RestoreItem,
    ) -> io::Result<()> {
        check_unchanged(folder, name, item)?;
        let flags = if item.now.as_ref().is_some_and(TreeNode::is_folder) {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        // `AT_REMOVEDIR` fails on a folder with content, so files that somebody added survive.
        match rustix::fs::unlinkat(folder, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }
}

/// Returns true if the current entry can be replaced in place by one of the same kind.
fn can_replace_in_place(item: &RestoreItem) -> bool {
    match (&item.now, &item.target) {
        (Some(now), Some(TreeNode::Folder { .. })) => now.is_folder(),
        (Some(now), Some(TreeNode::File { .. } | TreeNode::Link { .. })) => !now.is_folder(),
        _ => false,
    }
}

/// Checks that the current entry still has the kind that the plan saw.
fn check_unchanged(folder: BorrowedFd<'_>, name: &OsStr, item: &RestoreItem) -> io::Result<()> {
    let kind = match stat_entry(folder, name) {
        Ok(found) => Some(FileType::from_raw_mode(found.st_mode)),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let expected = match &item.now {
        None => None,
        Some(TreeNode::Folder { .. } | TreeNode::Omitted { folder: true, .. }) => {
            Some(FileType::Directory)
        }
        Some(TreeNode::Link { .. }) => Some(FileType::Symlink),
        Some(TreeNode::File { .. } | TreeNode::Omitted { .. }) => Some(FileType::RegularFile),
        Some(TreeNode::Special) => return Ok(()),
    };
    // An earlier step may have removed the entry, which is fine.
    if kind == expected || kind.is_none() {
        Ok(())
    } else {
        Err(io::Error::other("it changed in the meantime"))
    }
}

/// Creates a folder that only its owner can enter until its content is complete. An existing folder is kept; any other entry is an error.
fn make_folder(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) => match stat_entry(folder, name) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Ok(()),
            _ => Err(Errno::EXIST.into()),
        },
        made => Ok(made?),
    }
}

/// Writes a file under a temporary name with its final mode, then renames it: other programs see
/// the old content or the new one.
fn write_file(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    bytes: &[u8],
    mode: u32,
    item: &RestoreItem,
) -> io::Result<()> {
    check_unchanged(folder, name, item)?;
    // `O_EXCL` never opens an existing entry, so a planted link or file is not written to.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (temp, file) = loop {
        let temp = new_temp_name();
        match rustix::fs::openat(folder, &temp, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::EXIST) => {}
            opened => break (temp, File::from(opened?)),
        }
    };
    let written = (&file)
        .write_all(bytes)
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
    move_into_place(folder, &temp, name, written, item)
}

/// Creates a link under a temporary name, then renames it. Its target is text and never followed.
fn write_link(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    target: &Path,
    item: &RestoreItem,
) -> io::Result<()> {
    check_unchanged(folder, name, item)?;
    let temp = new_temp_name();
    rustix::fs::symlinkat(target, folder, &temp)?;
    move_into_place(folder, &temp, name, Ok(()), item)
}

/// Renames a temporary entry to its final name, or removes it if it was not completed.
fn move_into_place(
    folder: BorrowedFd<'_>,
    temp: &str,
    name: &OsStr,
    made: io::Result<()>,
    item: &RestoreItem,
) -> io::Result<()> {
    let plain = || rustix::fs::renameat(folder, temp, folder, name);
    let moved = made.and_then(|()| {
        // An entry that appeared where none was is not Sabir's, and must not be replaced.
        let replaces = item.now.as_ref().is_some_and(|now| !now.is_folder());
        let renamed = if replaces {
            plain()
        } else {
            match rustix::fs::renameat_with(folder, temp, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems do not support the flag; a plain rename has to do there.
                Err(Errno::INVAL | Errno::NOSYS) => plain(),
                renamed => renamed,
            }
        };
        Ok(renamed?)
    });
    if moved.is_err() {
        _ = rustix::fs::unlinkat(folder, temp, AtFlags::empty());
    }
    moved
}

/// Returns a new name with the prefix by which leftovers are recognized and removed.
fn new_temp_name() -> String {
    format!(
        "{TEMP_START}{}-b{}",
        std::process::id(),
        NEXT_TEMP.fetch_add(1, Ordering::Relaxed)
    )
}

/// Describes an error for the list of skipped paths; the frequent ones in the user's terms.
fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => "the folder is not empty".to_owned(),
        io::ErrorKind::AlreadyExists => "something was created there in the meantime".to_owned(),
        _ => error.to_string(),
    }
}
