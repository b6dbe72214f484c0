//! Checkpoints: what the workspace held before a call changed it, and the way back.
//!
//! A [`CheckpointStore`] is a store in a folder of its own, outside of the workspace, and it only ever reads the workspace until
//! somebody goes back. It needs no version control and has no part in any: a repository's own files are files like others,
//! nested repositories and submodules among them.
//!
//! [`take_snapshot`](CheckpointStore::take_snapshot) keeps what is there before a call, [`seal_checkpoint`](CheckpointStore::seal_checkpoint) what the call left. Both are needed:
//! only what a call changed is ever gone back on, and what somebody else has changed since can be told from it.
//!
//! Contents and folders are objects, known by their SHA-256 ([`ObjectId`]), so what is unchanged costs nothing, and a file that
//! looks as it did is not read again. Every cap is in [`StoreLimits`]; what is over one is recorded as [`TreeNode::Omitted`], with the reason,
//! and never touched on the way back.
//!
//! Whatever happens in between, `kill -9` or a full disk, checkpoints that were taken can be gone back to, and a way back that
//! was broken off can be gone again: each file is old or new.
//!
//! ```
//! use std::path::PathBuf;
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//!
//! use sabir_checkpoint::{CheckpointCall, CheckpointStore, RestorePoint, SnapshotScope, StoreLimits};
//! use sabir_workspace::{Workspace, WritePrecondition};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
//! # let [work, store] = [folders[0].path(), folders[1].path()];
//! let workspace = Arc::new(Workspace::open(work)?);
//! let path = workspace.parse_path("a.txt")?;
//! workspace.write_file(&path, b"old", WritePrecondition::Missing)?;
//!
//! let checkpoints = CheckpointStore::new(PathBuf::from(store), Arc::clone(&workspace), StoreLimits::default(), Vec::new());
//! let (stop, task) = (AtomicBool::new(false), "t1".to_owned());
//! let mark = CheckpointCall { task, ..CheckpointCall::default() };
//!
//! // Around a call that changes a file.
//! let id = checkpoints.take_snapshot(mark.clone(), &SnapshotScope::Files(vec![path.clone()]), &stop)?;
//! workspace.write_file(&path, b"new", WritePrecondition::Any)?;
//! checkpoints.seal_checkpoint(id, 0, &stop)?;
//!
//! // A plan says what going back would do; nothing is done that differs from it.
//! let goal = RestorePoint::Last(1);
//! let plan = checkpoints.plan_restore("t1", &goal)?;
//! checkpoints.restore(&plan, &goal, mark, false)?;
//! assert_eq!(workspace.read_file(&path, 100)?.bytes, b"old");
//! # Ok(())
//! # }
//! ```

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_workspace::{WorkPath, Workspace};

mod compare;
mod diff_text;
mod encoding;
mod error;
mod gitignore;
mod log;
mod object;
mod pack;
mod prune;
mod restore;
mod restore_plan;
mod snapshot;
mod stamps;
mod store;
mod store_cleanup;

pub use compare::PathDifference;
pub use diff_text::display_path;
pub use error::CheckpointError;
pub use object::{ObjectId, OmitReason, TreeNode};
pub use restore::RestoreOutcome;
pub use restore_plan::{RestoreConflict, RestoreItem, RestorePlan, RestorePoint};
pub use store_cleanup::prune_stores;

use compare::WorkspaceState;
use log::{AppendDurability, LogRecord};
use snapshot::{SnapshotScanner, SnapshotTarget};
use stamps::StampCache;
use store::{ObjectStore, StoreLock};

/// How much is kept. Everything over a cap is recorded as not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most that the store takes on disk, in bytes. A checkpoint may hold a quarter of it.
    pub store_bytes: u64,
    /// The largest file, in bytes.
    pub file_bytes: u64,
    /// The most files and folders in one checkpoint.
    pub entries: u64,
    /// The most files and folders in a folder that the ignore files name; a larger one is not kept at all.
    pub ignored_entries: u64,
    /// The most bytes in such a folder.
    pub ignored_bytes: u64,
}

/// Which call a checkpoint is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointCall {
    /// The task.
    pub task: String,
    /// The call's id.
    pub call: String,
    /// The tool's name.
    pub tool: String,
    /// What the call does, in a line.
    pub label: String,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
}

/// What a call may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotScope {
    /// These files, and the folders above them where they are missing.
    Files(Vec<WorkPath>),
    /// Anything in the workspace.
    All,
}

/// One checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Counted in the store, over all tasks.
    pub id: u64,
    /// Counted in the task, from 1. Calls that changed nothing are not counted.
    pub number: u32,
    /// Which call it is for.
    pub mark: CheckpointCall,
    /// What was done.
    pub kind: CheckpointKind,
    whole: bool,
    before: ObjectId,
    after: Option<StateAfter>,
}

/// What was done behind a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// A call of a tool.
    Call,
    /// Everything since the call of this number was gone back on.
    Restore {
        /// The first call that was gone back on.
        to: u32,
    },
    /// Some paths were brought back.
    PartialRestore,
}

/// What a call left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StateAfter {
    root: ObjectId,
    /// Whether it was looked at only when the next call began, because the process was gone.
    late: bool,
}

/// What a seal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealOutcome {
    /// The call changed nothing; its checkpoint is removed.
    Unchanged,
    /// The call changed something.
    Changed,
}

/// The checkpoints of one workspace folder. All methods block.
#[derive(Debug)]
pub struct CheckpointStore {
    root: PathBuf,
    workspace: Arc<Workspace>,
    caps: StoreLimits,
    /// Folders that are left out, by path, until the first look finds out which they are.
    apart: Vec<PathBuf>,
    state: Mutex<(ObjectStore, Option<StampCache>)>,
}

/// A store that nobody else works on.
struct LockedStore<'a> {
    _lock: StoreLock,
    state: MutexGuard<'a, (ObjectStore, Option<StampCache>)>,
}

impl Default for StoreLimits {
    /// 2 GiB in all, 32 MiB a file, 200,000 entries; 5,000 entries and 64 MiB in an ignored folder.
    fn default() -> Self {
        Self {
            store_bytes: 2 << 30,
            file_bytes: 32 << 20,
            entries: 200_000,
            ignored_entries: 5000,
            ignored_bytes: 64 << 20,
        }
    }
}

impl StoreLimits {
    fn checkpoint_bytes(&self) -> u64 {
        self.store_bytes / 4
    }
}

impl Checkpoint {
    /// Whether it is known what the call left. Not so while it runs, and after a crash until the task goes on.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.after.is_some()
    }

    /// Whether the whole workspace was looked at, and not only the files that the call named.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl CheckpointStore {
    /// The store in the folder `root`, which is made when the first checkpoint is taken; nothing is touched here. `apart`: folders
    /// that are left out wherever the workspace holds them, as the one where this program keeps its own files.
    #[must_use]
    pub fn new(root: PathBuf, workspace: Arc<Workspace>, caps: StoreLimits, apart: Vec<PathBuf>) -> Self {
        let state = Mutex::new((ObjectStore::new(root.clone()), None));
        Self { root, workspace, caps, apart, state }
    }

    /// Keeps what is there before a call. When this returns, it lasts. Returns the checkpoint's id.
    ///
    /// `stop` is looked at in every folder: whoever sets it gets [`CheckpointError::Cancelled`], and nothing is kept.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`UnknownFormat`](CheckpointError::UnknownFormat) and [`Cancelled`](CheckpointError::Cancelled).
    pub fn take_snapshot(
        &self,
        mark: CheckpointCall,
        scope: &SnapshotScope,
        stop: &AtomicBool,
    ) -> Result<u64, CheckpointError> {
        let mut work = self.lock_or_create()?;
        self.seal_leftovers(&mut work, &mark, stop)?;
        self.make_room(&mut work, &mark.task, None)?;
        self.take_snapshot_in(&mut work, (mark, CheckpointKind::Call), scope, stop)
    }

    /// Keeps what a call left.
    ///
    /// # Errors
    /// As [`take_snapshot`](Self::take_snapshot). The checkpoint stays, unsealed.
    pub fn seal_checkpoint(&self, id: u64, time_ms: u64, stop: &AtomicBool) -> Result<SealOutcome, CheckpointError> {
        let Some(mut work) = self.lock_existing()? else { return Ok(SealOutcome::Unchanged) };
        self.seal_checkpoint_in(&mut work, (id, time_ms), false, stop)
    }

    /// The checkpoints of a task, or of all, the oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`UnknownFormat`](CheckpointError::UnknownFormat).
    pub fn list_checkpoints(&self, task: Option<&str>) -> Result<Vec<Checkpoint>, CheckpointError> {
        let Some(work) = self.lock_existing()? else { return Ok(Vec::new()) };
        let wanted = |checkpoint: &&Checkpoint| task.is_none_or(|task| checkpoint.mark.task == task);
        Ok(work.store().checkpoints.iter().filter(wanted).cloned().collect())
    }

    /// Up to which number the checkpoints of a task were removed, if any were.
    ///
    /// # Errors
    /// As [`list_checkpoints`](Self::list_checkpoints).
    pub fn pruned_through(&self, task: &str) -> Result<Option<u32>, CheckpointError> {
        Ok(self.lock_existing()?.and_then(|work| work.store().pruned.get(task).copied()))
    }

    /// What the store takes on disk, in bytes.
    ///
    /// # Errors
    /// As [`list_checkpoints`](Self::list_checkpoints).
    pub fn disk_bytes(&self) -> Result<u64, CheckpointError> {
        Ok(self.lock_existing()?.map_or(0, |work| work.store().total_bytes()))
    }

    /// The bytes of a file that a checkpoint holds.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], and those of [`list_checkpoints`](Self::list_checkpoints).
    pub fn read_content(&self, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        let work = self.lock_existing()?.ok_or_else(|| CheckpointError::Damaged { object: id.to_string() })?;
        work.store().read_object(id)
    }

    fn lock_existing(&self) -> Result<Option<LockedStore<'_>>, CheckpointError> {
        self.lock_store(false)
    }

    fn lock_or_create(&self) -> Result<LockedStore<'_>, CheckpointError> {
        let missing = || CheckpointError::io_error("lock", &self.root)(std::io::ErrorKind::NotFound.into());
        self.lock_store(true)?.ok_or_else(missing)
    }

    fn lock_store(&self, create: bool) -> Result<Option<LockedStore<'_>>, CheckpointError> {
        // The mutex first: the lock of the file system does not tell one caller of this process from another.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lock) = store::lock_store(&self.root, create)? else { return Ok(None) };
        let mut work = LockedStore { _lock: lock, state };
        if create {
            self.write_workspace_name()?;
        }
        work.state.0.refresh()?;
        Ok(Some(work))
    }

    /// Writes down for people which folder the store is about.
    fn write_workspace_name(&self) -> Result<(), CheckpointError> {
        let path = self.root.join("workspace");
        if path.exists() {
            return Ok(());
        }
        let mut options = std::fs::File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(self.workspace.root().as_os_str().as_bytes()))
            .map_err(CheckpointError::io_error("write", &path))
    }

    fn take_snapshot_in(
        &self,
        work: &mut LockedStore<'_>,
        (mark, what): (CheckpointCall, CheckpointKind),
        scope: &SnapshotScope,
        stop: &AtomicBool,
    ) -> Result<u64, CheckpointError> {
        let before = match scope {
            SnapshotScope::All => self.scan_into_store(work, mark.time_ms, stop, |look| look.scan_workspace()),
            SnapshotScope::Files(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.as_path().to_path_buf()).collect();
                let places = self.scan_into_store(work, mark.time_ms, stop, |look| match what {
                    CheckpointKind::Call => look.scan_paths(&paths),
                    _ => look.scan_paths_shallow(&paths),
                })?;
                work.store_mut().put_path_states(&places)
            }
        };
        if before.is_err() {
            work.store_mut().discard_pending();
        }
        let store = work.store_mut();
        let id = store.last_id + 1;
        let number = store.next_number(&mark.task);
        let whole = matches!(scope, SnapshotScope::All);
        let checkpoint = Checkpoint { id, number, mark, kind: what, whole, before: before?, after: None };
        store.commit(LogRecord::Taken(checkpoint), AppendDurability::Synced)?;
        self.save_stamps(work);
        Ok(id)
    }

    /// What an earlier process of this task left unsealed is what is there now.
    fn seal_leftovers(
        &self,
        work: &mut LockedStore<'_>,
        mark: &CheckpointCall,
        stop: &AtomicBool,
    ) -> Result<(), CheckpointError> {
        let unsealed = |checkpoint: &&Checkpoint| checkpoint.mark.task == mark.task && checkpoint.after.is_none();
        let left: Vec<u64> = work.store().checkpoints.iter().filter(unsealed).map(|checkpoint| checkpoint.id).collect();
        left.into_iter().try_for_each(|id| self.seal_checkpoint_in(work, (id, mark.time_ms), true, stop).map(|_| ()))
    }

    fn seal_checkpoint_in(
        &self,
        work: &mut LockedStore<'_>,
        (id, time_ms): (u64, u64),
        late: bool,
        stop: &AtomicBool,
    ) -> Result<SealOutcome, CheckpointError> {
        let Some(checkpoint) = work.store().checkpoints.iter().find(|checkpoint| checkpoint.id == id).cloned() else {
            return Ok(SealOutcome::Unchanged);
        };
        self.make_room(work, &checkpoint.mark.task, None)?;
        let root = if checkpoint.whole {
            self.scan_into_store(work, time_ms, stop, |look| look.scan_workspace())
        } else {
            let before = work.store().load_path_states(&checkpoint.before)?;
            let paths: Vec<_> = before.into_iter().map(|(path, _)| path).collect();
            let after = self.scan_into_store(work, time_ms, stop, |look| match checkpoint.kind {
                CheckpointKind::Call => look.scan_paths(&paths),
                _ => look.scan_paths_shallow(&paths),
            })?;
            work.store_mut().put_path_states(&after)
        };
        if root.is_err() {
            work.store_mut().discard_pending();
        }
        let root = root?;
        // A call that is taken for interrupted may still be at work, and be sealed once more.
        if root == checkpoint.before && checkpoint.kind == CheckpointKind::Call && !late {
            work.store_mut().discard_pending();
            work.store_mut().commit(LogRecord::Discarded { id }, AppendDurability::Deferred)?;
            return Ok(SealOutcome::Unchanged);
        }
        work.store_mut().commit_seal(id, StateAfter { root, late })?;
        self.save_stamps(work);
        Ok(SealOutcome::Changed)
    }

    /// Looks at the workspace, and puts what it sees into the store.
    fn scan_into_store<T>(
        &self,
        work: &mut LockedStore<'_>,
        now_ms: u64,
        stop: &AtomicBool,
        at: impl FnOnce(&mut SnapshotScanner<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let apart = self.excluded_inodes();
        let (store, stamps) = &mut *work.state;
        let stamps = stamps.get_or_insert_with(|| StampCache::load_from(&self.root.join("stamps")));
        let place = (self.workspace.as_fd(), apart.as_slice());
        let looked =
            at(&mut SnapshotScanner::new(place, SnapshotTarget::Store(store), stamps, (self.caps, now_ms), stop));
        if looked.is_err() {
            store.discard_pending();
        }
        looked
    }

    /// Looks at the workspace, and keeps nothing but the folders, in memory.
    fn scan_in_memory<T>(
        &self,
        work: &mut LockedStore<'_>,
        memory: &mut std::collections::HashMap<ObjectId, object::TreeEntries>,
        at: impl FnOnce(&mut SnapshotScanner<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let apart = self.excluded_inodes();
        let stamps = work.state.1.get_or_insert_with(|| StampCache::load_from(&self.root.join("stamps")));
        let place = (self.workspace.as_fd(), apart.as_slice());
        // No clock is needed, since nothing of this look is remembered for another.
        at(&mut SnapshotScanner::new(
            place,
            SnapshotTarget::Memory(memory),
            stamps,
            (self.caps, 0),
            &AtomicBool::new(false),
        ))
    }

    fn excluded_inodes(&self) -> Vec<(u64, u64)> {
        let own = self.apart.iter().chain([&self.root]);
        own.filter_map(|path| std::fs::metadata(path).ok()).map(|found| (found.dev(), found.ino())).collect()
    }

    /// Writes the stamps when enough of them are new; to lose them costs time and nothing else.
    fn save_stamps(&self, work: &mut LockedStore<'_>) {
        if let Some(stamps) = &mut work.state.1
            && stamps.fresh > stamps.file_count() / 20
        {
            _ = stamps.save_to(&self.root.join("stamps"));
        }
    }

    /// The state before or after a checkpoint.
    fn load_state(
        work: &LockedStore<'_>,
        checkpoint: &Checkpoint,
        root: ObjectId,
    ) -> Result<WorkspaceState, CheckpointError> {
        Ok(if checkpoint.whole {
            WorkspaceState::Whole(root)
        } else {
            WorkspaceState::Paths(work.store().load_path_states(&root)?)
        })
    }

    fn to_work_path(&self, path: &Path) -> Option<WorkPath> {
        WorkPath::from_inside(path).filter(|path| !path.is_root())
    }
}

impl LockedStore<'_> {
    fn store(&self) -> &ObjectStore {
        &self.state.0
    }

    fn store_mut(&mut self) -> &mut ObjectStore {
        &mut self.state.0
    }
}
