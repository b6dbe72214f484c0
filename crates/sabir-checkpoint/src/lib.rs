//! Keeps the content of workspace files before a tool call changes them, and restores it.
//!
//! A [`CheckpointStore`] lives in a folder of its own, outside the workspace. It only reads the
//! workspace until a restore. It neither needs nor touches version control: the files of a
//! repository, nested repositories and submodules included, are files like others.
//!
//! [`take_snapshot`](CheckpointStore::take_snapshot) records the files before a call,
//! [`seal_checkpoint`](CheckpointStore::seal_checkpoint) those after it. Both are needed: only
//! changes made by a call are ever undone, and the second state shows what others have
//! changed since. Around a command the whole workspace is compared, which also shows what others
//! changed while it ran; [`CallWrites`] says which of these changes are the command's, as far as
//! it was watched, and a restore leaves the others alone.
//!
//! File contents and folders are objects, identified by their SHA-256 ([`ObjectId`]). Unchanged
//! content therefore costs no space, and a file with unchanged metadata (its *stamp*: size, inode, times) is
//! not read again. Every limit is in [`StoreLimits`]; content over a limit is recorded as
//! [`TreeNode::Omitted`] with the reason, and restoring never touches it.
//!
//! After `kill -9` or on a full disk, checkpoints that were taken can still be restored, and an
//! interrupted restore can be repeated: each file is either old or new.
//!
//! ```
//! use std::path::PathBuf;
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//!
//! use sabir_checkpoint::{
//!     CallWrites, CheckpointCall, CheckpointStore, RestorePoint, SnapshotScope, StoreLimits,
//! };
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
//! checkpoints.seal_checkpoint(id, 0, &CallWrites::All, &stop)?;
//!
//! // A plan says what a restore would do; a restore that would do anything else is refused.
//! let goal = RestorePoint::Last(1);
//! let plan = checkpoints.plan_restore("t1", &goal)?;
//! checkpoints.restore(&plan, &goal, mark, false)?;
//! assert_eq!(workspace.read_file(&path, 100)?.bytes, b"old");
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_workspace::{ObservedWrites, WorkPath, Workspace};

mod compare;
mod diff_text;
mod encoding;
mod error;
mod gitignore;
mod log;
mod object;
mod pack;
mod platform;
mod prune;
mod restore;
mod restore_plan;
mod snapshot;
mod stamps;
mod store;
mod store_cleanup;

pub use compare::{PathDifference, TaskDifferences};
pub use diff_text::display_path;
pub use error::CheckpointError;
pub use object::{ObjectId, OmitReason, TreeNode};
pub use restore::RestoreOutcome;
pub use restore_plan::{RestoreConflict, RestoreItem, RestorePlan, RestorePoint};
pub use store_cleanup::prune_stores;

use compare::{TreeReader, WorkspaceState};
use log::{AppendDurability, LogRecord};
use snapshot::{SnapshotScanner, SnapshotTarget};
use stamps::StampCache;
use store::{ObjectStore, StoreLock};

/// The maximum number of paths that are recorded as changed by others while a call ran.
const MAX_OTHERS: usize = 10_000;

/// The limits of a store. Content over a limit is recorded as not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// The maximum size of the store on disk, in bytes. A checkpoint may hold a quarter of it.
    pub store_bytes: u64,
    /// The maximum size of a file, in bytes.
    pub file_bytes: u64,
    /// The maximum number of files and folders in one checkpoint.
    pub entries: u64,
    /// The maximum number of files and folders in an ignored folder (one that the ignore files
    /// name); a larger one is not kept at all.
    pub ignored_entries: u64,
    /// The maximum number of bytes in an ignored folder.
    pub ignored_bytes: u64,
}

/// The tool call that a checkpoint belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointCall {
    /// The id of the task.
    pub task: String,
    /// The id of the call.
    pub call: String,
    /// The name of the tool.
    pub tool: String,
    /// A one-line description of the call.
    pub label: String,
    /// The time, in milliseconds since 1970.
    pub time_ms: u64,
}

/// The part of the workspace that a call may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotScope {
    /// These files, and the missing folders above them.
    Files(Vec<WorkPath>),
    /// Anything in the workspace.
    All,
}

/// The known writes of a call, if the whole workspace is compared before and after it. For other
/// calls, the scope says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallWrites {
    /// All changes are the call's.
    All,
    /// Its changes cannot be distinguished from those of others.
    Unknown,
    /// It was watched.
    Observed(ObservedWrites),
}

/// The author of a change, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeAuthor {
    /// The call of the checkpoint.
    Call,
    /// Another program or person, during the call.
    Others,
    /// It is unknown.
    Unknown,
}

/// One checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The id, counted in the store over all tasks.
    pub id: u64,
    /// The number within the task, from 1. Calls that changed nothing are not counted.
    pub number: u32,
    /// The call that it belongs to.
    pub mark: CheckpointCall,
    /// The kind of action that it precedes.
    pub kind: CheckpointKind,
    /// True if the whole workspace was scanned; decides whether the states are trees or single
    /// paths.
    whole: bool,
    /// The state before the call: a tree, or the states of single paths.
    before: ObjectId,
    /// The state after the call; `None` while it runs, and after a crash.
    after: Option<StateAfter>,
    /// The newest checkpoint when the state after was recorded; 0 before. Not stored: it follows from the order of the log.
    newest_at_seal: u64,
    /// The changed paths that others wrote while the call ran; `None` where that is not known.
    others: Option<BTreeSet<PathBuf>>,
}

/// The kind of action after a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// A tool call.
    Call,
    /// A restore that undid everything since the call of this number.
    Restore {
        /// The first call that was undone.
        to: u32,
    },
    /// A restore of single paths.
    PartialRestore,
}

/// The state after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StateAfter {
    root: ObjectId,
    /// True if the state was recorded only when the next call began, because the process had ended.
    late: bool,
}

/// The result of sealing a checkpoint.
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
    /// Folders to leave out, by path; they are resolved to inodes at each scan.
    excluded: Vec<PathBuf>,
    /// The index of the store, and the stamps once they were needed.
    state: Mutex<(ObjectStore, Option<StampCache>)>,
}

/// A store whose file lock this process holds.
struct LockedStore<'a> {
    _lock: StoreLock,
    state: MutexGuard<'a, (ObjectStore, Option<StampCache>)>,
}

impl Default for StoreLimits {
    /// Returns 2 GiB in total, 32 MiB per file, 200,000 entries; 5,000 entries and 64 MiB in an
    /// ignored folder.
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
    /// Returns the number of content bytes that one checkpoint may hold. A quarter of the store, so
    /// that pruning can always make room for the next one.
    fn checkpoint_bytes(&self) -> u64 {
        self.store_bytes / 4
    }
}

impl Checkpoint {
    /// Returns true if the state after the call is recorded. It is not while the call runs, nor
    /// after a crash until the task continues.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.after.is_some()
    }

    /// Returns true if both calls ran at the same time, as far as the log still shows it.
    fn overlaps(&self, other: &Self) -> bool {
        other.id <= self.newest_at_seal && self.id <= other.newest_at_seal
    }

    /// Returns true if it is known which of the changes are the call's.
    #[must_use]
    pub fn is_attributed(&self) -> bool {
        !self.whole || self.others.is_some()
    }

    /// Returns the author of a path's change between the two states.
    fn author_of(&self, path: &Path) -> ChangeAuthor {
        match &self.others {
            _ if !self.whole => ChangeAuthor::Call,
            Some(others) if others.contains(path) => ChangeAuthor::Others,
            Some(_) => ChangeAuthor::Call,
            None => ChangeAuthor::Unknown,
        }
    }

    /// Returns true if the whole workspace was scanned, not only the files that the call named.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl CheckpointStore {
    /// Creates a handle for the store in the folder `root`, which is created with the first
    /// checkpoint; nothing is read or written here. `excluded` lists folders that are left out
    /// wherever the workspace contains them, such as this program's own files.
    #[must_use]
    pub fn new(
        root: PathBuf,
        workspace: Arc<Workspace>,
        caps: StoreLimits,
        excluded: Vec<PathBuf>,
    ) -> Self {
        let state = Mutex::new((ObjectStore::new(root.clone()), None));
        Self {
            root,
            workspace,
            caps,
            excluded,
            state,
        }
    }

    /// Records the state before a call, durably, and returns the checkpoint's id.
    ///
    /// `stop` is checked in every folder; when it is set, the result is
    /// [`CheckpointError::Cancelled`] and nothing is kept.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`UnknownFormat`](CheckpointError::UnknownFormat) and
    /// [`Cancelled`](CheckpointError::Cancelled).
    pub fn take_snapshot(
        &self,
        mark: CheckpointCall,
        scope: &SnapshotScope,
        stop: &AtomicBool,
    ) -> Result<u64, CheckpointError> {
        let mut work = self.lock_or_create()?;
        // The leftovers go first: the state after an interrupted call is the state before this one.
        self.seal_leftovers(&mut work, &mark, None, stop)?;
        self.free_space(&mut work, &mark.task, None)?;
        self.take_snapshot_in(&mut work, mark, CheckpointKind::Call, scope, stop)
    }

    /// Records the state that a call left, and which of the changes are its own.
    ///
    /// # Errors
    /// Those of [`take_snapshot`](Self::take_snapshot). The checkpoint stays, unsealed.
    pub fn seal_checkpoint(
        &self,
        id: u64,
        time_ms: u64,
        writes: &CallWrites,
        stop: &AtomicBool,
    ) -> Result<SealOutcome, CheckpointError> {
        let Some(mut work) = self.lock_existing()? else {
            return Ok(SealOutcome::Unchanged);
        };
        let sealed = self.seal_checkpoint_in(&mut work, id, time_ms, stop)?;
        if sealed == SealOutcome::Changed {
            self.attribute_changes(&mut work, id, writes)?;
        }
        Ok(sealed)
    }

    /// Records, for a call with a comparison of the whole workspace, which changes are those of others.
    fn attribute_changes(
        &self,
        work: &mut LockedStore<'_>,
        id: u64,
        writes: &CallWrites,
    ) -> Result<(), CheckpointError> {
        let mut known = work.store().checkpoints.iter();
        let Some(checkpoint) = known.find(|checkpoint| checkpoint.id == id).cloned() else {
            return Ok(());
        };
        let (true, Some(after)) = (checkpoint.whole, checkpoint.after) else {
            return Ok(());
        };
        let others = match writes {
            CallWrites::All => BTreeSet::new(),
            CallWrites::Observed(writes) if writes.is_complete() => {
                let trees = TreeReader {
                    store: work.store(),
                    memory: &HashMap::new(),
                };
                let before = WorkspaceState::Whole(checkpoint.before);
                let found = trees.diff_states(&before, &WorkspaceState::Whole(after.root))?;
                let paths = found.into_iter().map(|difference| difference.path);
                paths
                    .filter(|path| !writes.contains(path) || writes.is_shared(path))
                    .collect()
            }
            CallWrites::Observed(_) | CallWrites::Unknown => return Ok(()),
        };
        // So many changes probably come from a program that the watch missed. The call's writes
        // then count as unknown, which is equally safe.
        if others.len() > MAX_OTHERS {
            return Ok(());
        }
        let record = LogRecord::Attributed { id, others };
        work.store_mut().commit(record, AppendDurability::Deferred)
    }

    /// Returns the checkpoints of a task, or of all tasks, oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`UnknownFormat`](CheckpointError::UnknownFormat).
    pub fn list_checkpoints(&self, task: Option<&str>) -> Result<Vec<Checkpoint>, CheckpointError> {
        let Some(work) = self.lock_existing()? else {
            return Ok(Vec::new());
        };
        let wanted =
            |checkpoint: &&Checkpoint| task.is_none_or(|task| checkpoint.mark.task == task);
        Ok(work
            .store()
            .checkpoints
            .iter()
            .filter(wanted)
            .cloned()
            .collect())
    }

    /// Returns the highest call number whose checkpoint was removed to save space, if any was.
    ///
    /// # Errors
    /// Those of [`list_checkpoints`](Self::list_checkpoints).
    pub fn pruned_through(&self, task: &str) -> Result<Option<u32>, CheckpointError> {
        Ok(self
            .lock_existing()?
            .and_then(|work| work.store().pruned.get(task).copied()))
    }

    /// Returns the size of the store on disk, in bytes.
    ///
    /// # Errors
    /// Those of [`list_checkpoints`](Self::list_checkpoints).
    pub fn disk_bytes(&self) -> Result<u64, CheckpointError> {
        Ok(self
            .lock_existing()?
            .map_or(0, |work| work.store().total_bytes()))
    }

    /// Returns the bytes of a file that a checkpoint holds.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], and those of [`list_checkpoints`](Self::list_checkpoints).
    pub fn read_content(&self, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        let work = self
            .lock_existing()?
            .ok_or_else(|| CheckpointError::Damaged {
                object: id.to_string(),
            })?;
        work.store().read_object(id)
    }

    /// Locks the store; `None` if no checkpoint was ever taken. Reading must not create it.
    fn lock_existing(&self) -> Result<Option<LockedStore<'_>>, CheckpointError> {
        self.lock_store(false)
    }

    /// Locks the store and creates its folder if missing.
    fn lock_or_create(&self) -> Result<LockedStore<'_>, CheckpointError> {
        let missing =
            || CheckpointError::io_error("lock", &self.root)(std::io::ErrorKind::NotFound.into());
        self.lock_store(true)?.ok_or_else(missing)
    }

    /// Takes both locks, that of this process and that of the store, and reads what others have
    /// written.
    fn lock_store(&self, create: bool) -> Result<Option<LockedStore<'_>>, CheckpointError> {
        // Take the mutex first: a file lock does not separate the threads of one process. A
        // poisoned mutex is usable, since `refresh` discards the state of an interrupted method.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lock) = store::lock_store(&self.root, create)? else {
            return Ok(None);
        };
        let mut work = LockedStore { _lock: lock, state };
        if create {
            self.write_workspace_name()?;
        }
        // Another process may have changed the store while this one waited for the lock.
        work.state.0.refresh()?;
        Ok(Some(work))
    }

    /// Writes the path of the workspace folder into the store, for people who look at it.
    fn write_workspace_name(&self) -> Result<(), CheckpointError> {
        let path = self.root.join("workspace");
        if path.exists() {
            return Ok(());
        }
        let mut options = std::fs::File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| file.write_all(self.workspace.root().as_os_str().as_bytes()))
            .map_err(CheckpointError::io_error("write", &path))
    }

    /// Scans the scope and commits the checkpoint. The caller has made room.
    ///
    /// A restore only replaces single entries, so its own checkpoint excludes the content of folders.
    fn take_snapshot_in(
        &self,
        work: &mut LockedStore<'_>,
        mark: CheckpointCall,
        kind: CheckpointKind,
        scope: &SnapshotScope,
        stop: &AtomicBool,
    ) -> Result<u64, CheckpointError> {
        let before = match scope {
            SnapshotScope::All => {
                self.scan_into_store(work, mark.time_ms, stop, |scanner| scanner.scan_workspace())
            }
            SnapshotScope::Files(paths) => {
                let paths: Vec<_> = paths
                    .iter()
                    .map(|path| path.as_path().to_path_buf())
                    .collect();
                let places =
                    self.scan_into_store(work, mark.time_ms, stop, |scanner| match kind {
                        CheckpointKind::Call => scanner.scan_paths(&paths),
                        _ => scanner.scan_paths_shallow(&paths),
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
        let checkpoint = Checkpoint {
            id,
            number,
            mark,
            kind,
            whole,
            before: before?,
            after: None,
            newest_at_seal: 0,
            others: None,
        };
        // Synced before the call may run: afterwards, the old content of its files exists nowhere
        // else.
        store.commit(LogRecord::Taken(checkpoint), AppendDurability::Synced)?;
        self.save_stamps(work);
        Ok(id)
    }

    /// Seals the checkpoints that an earlier process of this task left unsealed, with the current
    /// state.
    ///
    /// A process that was killed between snapshot and seal leaves such a checkpoint. Without a seal its changes could not be distinguished
    /// from later ones. Pruning keeps the task's checkpoints from the call number `from` on.
    fn seal_leftovers(
        &self,
        work: &mut LockedStore<'_>,
        mark: &CheckpointCall,
        from: Option<u32>,
        stop: &AtomicBool,
    ) -> Result<(), CheckpointError> {
        let unsealed = |checkpoint: &&Checkpoint| {
            checkpoint.mark.task == mark.task && checkpoint.after.is_none()
        };
        let left: Vec<u64> = work
            .store()
            .checkpoints
            .iter()
            .filter(unsealed)
            .map(|checkpoint| checkpoint.id)
            .collect();
        for id in left {
            self.free_space(work, &mark.task, from)?;
            self.scan_and_seal(work, id, mark.time_ms, true, stop)?;
        }
        Ok(())
    }

    /// Makes room and seals a checkpoint of this process.
    fn seal_checkpoint_in(
        &self,
        work: &mut LockedStore<'_>,
        id: u64,
        time_ms: u64,
        stop: &AtomicBool,
    ) -> Result<SealOutcome, CheckpointError> {
        let checkpoints = &work.store().checkpoints;
        if let Some(checkpoint) = checkpoints.iter().find(|checkpoint| checkpoint.id == id) {
            let task = checkpoint.mark.task.clone();
            self.free_space(work, &task, None)?;
        }
        self.scan_and_seal(work, id, time_ms, false, stop)
    }

    /// Scans the scope of a checkpoint again and commits the state, or removes the checkpoint if
    /// nothing changed. `late` says that another process made the call. Does nothing if the
    /// checkpoint was pruned.
    fn scan_and_seal(
        &self,
        work: &mut LockedStore<'_>,
        id: u64,
        time_ms: u64,
        late: bool,
        stop: &AtomicBool,
    ) -> Result<SealOutcome, CheckpointError> {
        let Some(checkpoint) = work
            .store()
            .checkpoints
            .iter()
            .find(|checkpoint| checkpoint.id == id)
            .cloned()
        else {
            return Ok(SealOutcome::Unchanged);
        };
        let root = if checkpoint.whole {
            self.scan_into_store(work, time_ms, stop, |scanner| scanner.scan_workspace())
        } else {
            let before = work.store().load_path_states(&checkpoint.before)?;
            // The same paths as in the snapshot, so that both states can be compared.
            let paths: Vec<_> = before.into_iter().map(|(path, _)| path).collect();
            let after =
                self.scan_into_store(work, time_ms, stop, |scanner| match checkpoint.kind {
                    CheckpointKind::Call => scanner.scan_paths(&paths),
                    _ => scanner.scan_paths_shallow(&paths),
                })?;
            work.store_mut().put_path_states(&after)
        };
        if root.is_err() {
            work.store_mut().discard_pending();
        }
        let root = root?;
        // A late seal keeps the checkpoint even without a change: the call may still be running,
        // and be sealed again. Equal ids mean that all files are equal.
        if root == checkpoint.before && checkpoint.kind == CheckpointKind::Call && !late {
            work.store_mut().discard_pending();
            work.store_mut()
                .commit(LogRecord::Discarded { id }, AppendDurability::Deferred)?;
            return Ok(SealOutcome::Unchanged);
        }
        work.store_mut()
            .commit_seal(id, StateAfter { root, late })?;
        self.save_stamps(work);
        Ok(SealOutcome::Changed)
    }

    /// Scans the workspace and puts the content it reads into the store.
    fn scan_into_store<T>(
        &self,
        work: &mut LockedStore<'_>,
        now_ms: u64,
        stop: &AtomicBool,
        at: impl FnOnce(&mut SnapshotScanner<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let excluded = self.excluded_inodes();
        let (store, stamps) = &mut *work.state;
        let stamps = stamps.get_or_insert_with(|| StampCache::load_from(&self.root.join("stamps")));
        let target = SnapshotTarget::Store(store);
        let root = self.workspace.as_fd();
        let scanned = at(&mut SnapshotScanner::new(
            root, &excluded, target, stamps, self.caps, now_ms, stop,
        ));
        if scanned.is_err() {
            store.discard_pending();
        }
        scanned
    }

    /// Scans the workspace without storing content; only the folder listings are kept, in memory.
    fn scan_in_memory<T>(
        &self,
        work: &mut LockedStore<'_>,
        memory: &mut HashMap<ObjectId, object::TreeEntries>,
        at: impl FnOnce(&mut SnapshotScanner<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let excluded = self.excluded_inodes();
        let stamps = work
            .state
            .1
            .get_or_insert_with(|| StampCache::load_from(&self.root.join("stamps")));
        let root = self.workspace.as_fd();
        let target = SnapshotTarget::Memory(memory);
        // A time of zero keeps the stamps of this scan from being remembered, so no clock is
        // needed.
        let stop = AtomicBool::new(false);
        at(&mut SnapshotScanner::new(
            root, &excluded, target, stamps, self.caps, 0, &stop,
        ))
    }

    /// Returns device and inode of the folders to leave out, the store itself among them: a
    /// workspace that contains its own store would grow with every checkpoint.
    fn excluded_inodes(&self) -> Vec<(u64, u64)> {
        let own = self.excluded.iter().chain([&self.root]);
        own.filter_map(|path| std::fs::metadata(path).ok())
            .map(|found| (found.dev(), found.ino()))
            .collect()
    }

    /// Writes the stamps if more than one in twenty is new. Losing them costs only time.
    fn save_stamps(&self, work: &mut LockedStore<'_>) {
        if let Some(stamps) = &mut work.state.1
            && stamps.fresh > stamps.file_count() / 20
        {
            _ = stamps.save_to(&self.root.join("stamps"));
        }
    }

    /// Loads the state before or after a checkpoint.
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

    /// Converts a path of a plan; `None` for the root and for anything that leads out of the
    /// workspace.
    fn to_work_path(&self, path: &Path) -> Option<WorkPath> {
        WorkPath::from_inside(path).filter(|path| !path.is_root())
    }
}

impl LockedStore<'_> {
    /// Returns the index of the store, which is current for as long as the lock is held.
    fn store(&self) -> &ObjectStore {
        &self.state.0
    }

    /// Returns the index for changes, which the lock makes exclusive among processes.
    fn store_mut(&mut self) -> &mut ObjectStore {
        &mut self.state.0
    }
}
