//! Checkpoints: what the workspace held before a call changed it, and the way back.
//!
//! A [`Checkpoints`] is a store in a folder of its own, outside of the workspace, and it only ever reads the workspace until
//! somebody goes back. It needs no version control and has no part in any: a repository's own files are files like others,
//! nested repositories and submodules among them.
//!
//! [`take`](Checkpoints::take) keeps what is there before a call, [`seal`](Checkpoints::seal) what the call left. Both are needed:
//! only what a call changed is ever gone back on, and what somebody else has changed since can be told from it.
//!
//! Contents and folders are objects, known by their SHA-256 ([`ObjectId`]), so what is unchanged costs nothing, and a file that
//! looks as it did is not read again. Every cap is in [`Caps`]; what is over one is recorded as [`Node::NotKept`], with the reason,
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
//! use sabir_checkpoint::{Caps, Checkpoints, Goal, Mark, Scope};
//! use sabir_workspace::{Expect, Workspace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
//! # let [work, store] = [folders[0].path(), folders[1].path()];
//! let workspace = Arc::new(Workspace::open(work)?);
//! let path = workspace.path("a.txt")?;
//! workspace.write(&path, b"old", Expect::Missing)?;
//!
//! let checkpoints = Checkpoints::new(PathBuf::from(store), Arc::clone(&workspace), Caps::default(), Vec::new());
//! let (stop, task) = (AtomicBool::new(false), "t1".to_owned());
//! let mark = Mark { task, ..Mark::default() };
//!
//! // Around a call that changes a file.
//! let id = checkpoints.take(mark.clone(), &Scope::Files(vec![path.clone()]), &stop)?;
//! workspace.write(&path, b"new", Expect::Any)?;
//! checkpoints.seal(id, 0, &stop)?;
//!
//! // A plan says what going back would do; nothing is done that differs from it.
//! let goal = Goal::Last(1);
//! let plan = checkpoints.plan("t1", &goal)?;
//! checkpoints.restore(&plan, &goal, mark, false)?;
//! assert_eq!(workspace.read(&path, 100)?.bytes, b"old");
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

mod back;
mod compare;
mod encoding;
mod error;
mod ignored;
mod log;
mod look;
mod object;
mod pack;
mod plan;
mod prune;
mod shown;
mod stamps;
mod store;
mod stores;

pub use back::Restored;
pub use compare::Difference;
pub use error::CheckpointError;
pub use object::{Node, NotKept, ObjectId};
pub use plan::{Goal, Hindrance, Item, Plan};
pub use shown::name;
pub use stores::prune_stores;

use compare::State;
use log::{Durable, Record};
use look::{Keep, Look};
use stamps::Stamps;
use store::{Lock, Store};

/// How much is kept. Everything over a cap is recorded as not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
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
pub struct Mark {
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
pub enum Scope {
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
    pub mark: Mark,
    /// What was done.
    pub what: What,
    whole: bool,
    before: ObjectId,
    after: Option<After>,
}

/// What was done behind a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A call of a tool.
    Call,
    /// Everything since the call of this number was gone back on.
    Back {
        /// The first call that was gone back on.
        to: u32,
    },
    /// Some paths were brought back.
    Part,
}

/// What a call left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct After {
    root: ObjectId,
    /// Whether it was looked at only when the next call began, because the process was gone.
    late: bool,
}

/// What a seal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// The call changed nothing; its checkpoint is removed.
    Nothing,
    /// The call changed something.
    Changed,
}

/// The checkpoints of one workspace folder. All methods block.
#[derive(Debug)]
pub struct Checkpoints {
    root: PathBuf,
    workspace: Arc<Workspace>,
    caps: Caps,
    /// Folders that are left out, by path, until the first look finds out which they are.
    apart: Vec<PathBuf>,
    state: Mutex<(Store, Option<Stamps>)>,
}

/// A store that nobody else works on.
struct Work<'a> {
    _lock: Lock,
    state: MutexGuard<'a, (Store, Option<Stamps>)>,
}

impl Default for Caps {
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

impl Caps {
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

impl Checkpoints {
    /// The store in the folder `root`, which is made when the first checkpoint is taken; nothing is touched here. `apart`: folders
    /// that are left out wherever the workspace holds them, as the one where this program keeps its own files.
    #[must_use]
    pub fn new(root: PathBuf, workspace: Arc<Workspace>, caps: Caps, apart: Vec<PathBuf>) -> Self {
        let state = Mutex::new((Store::new(root.clone()), None));
        Self { root, workspace, caps, apart, state }
    }

    /// Keeps what is there before a call. When this returns, it lasts. Returns the checkpoint's id.
    ///
    /// `stop` is looked at in every folder: whoever sets it gets [`CheckpointError::Cancelled`], and nothing is kept.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`Format`](CheckpointError::Format) and [`Cancelled`](CheckpointError::Cancelled).
    pub fn take(&self, mark: Mark, scope: &Scope, stop: &AtomicBool) -> Result<u64, CheckpointError> {
        let mut work = self.work_create()?;
        self.seal_left(&mut work, &mark, stop)?;
        self.make_room(&mut work, &mark.task, None)?;
        self.take_for(&mut work, (mark, What::Call), scope, stop)
    }

    /// Keeps what a call left.
    ///
    /// # Errors
    /// As [`take`](Self::take). The checkpoint stays, unsealed.
    pub fn seal(&self, id: u64, time_ms: u64, stop: &AtomicBool) -> Result<Sealed, CheckpointError> {
        let Some(mut work) = self.work()? else { return Ok(Sealed::Nothing) };
        self.seal_in(&mut work, (id, time_ms), false, stop)
    }

    /// The checkpoints of a task, or of all, the oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`Format`](CheckpointError::Format).
    pub fn list(&self, task: Option<&str>) -> Result<Vec<Checkpoint>, CheckpointError> {
        let Some(work) = self.work()? else { return Ok(Vec::new()) };
        let wanted = |checkpoint: &&Checkpoint| task.is_none_or(|task| checkpoint.mark.task == task);
        Ok(work.store().checkpoints.iter().filter(wanted).cloned().collect())
    }

    /// Up to which number the checkpoints of a task were removed, if any were.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn pruned(&self, task: &str) -> Result<Option<u32>, CheckpointError> {
        Ok(self.work()?.and_then(|work| work.store().pruned.get(task).copied()))
    }

    /// What the store takes on disk, in bytes.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn size(&self) -> Result<u64, CheckpointError> {
        Ok(self.work()?.map_or(0, |work| work.store().size()))
    }

    /// The bytes of a file that a checkpoint holds.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], and those of [`list`](Self::list).
    pub fn content(&self, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        let work = self.work()?.ok_or_else(|| CheckpointError::Damaged { object: id.to_string() })?;
        work.store().get(id)
    }

    fn work(&self) -> Result<Option<Work<'_>>, CheckpointError> {
        self.locked(false)
    }

    fn work_create(&self) -> Result<Work<'_>, CheckpointError> {
        let missing = || CheckpointError::io("lock", &self.root)(std::io::ErrorKind::NotFound.into());
        self.locked(true)?.ok_or_else(missing)
    }

    fn locked(&self, create: bool) -> Result<Option<Work<'_>>, CheckpointError> {
        // The mutex first: the lock of the file system does not tell one caller of this process from another.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lock) = store::lock(&self.root, create)? else { return Ok(None) };
        let mut work = Work { _lock: lock, state };
        if create {
            self.name_workspace()?;
        }
        work.state.0.refresh()?;
        Ok(Some(work))
    }

    /// Writes down for people which folder the store is about.
    fn name_workspace(&self) -> Result<(), CheckpointError> {
        let path = self.root.join("workspace");
        if path.exists() {
            return Ok(());
        }
        let mut options = std::fs::File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(self.workspace.root().as_os_str().as_bytes()))
            .map_err(CheckpointError::io("write", &path))
    }

    fn take_for(
        &self,
        work: &mut Work<'_>,
        (mark, what): (Mark, What),
        scope: &Scope,
        stop: &AtomicBool,
    ) -> Result<u64, CheckpointError> {
        let before = match scope {
            Scope::All => self.look(work, mark.time_ms, stop, |look| look.whole()),
            Scope::Files(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.as_path().to_path_buf()).collect();
                let places = self.look(work, mark.time_ms, stop, |look| match what {
                    What::Call => look.places(&paths),
                    _ => look.alone(&paths),
                })?;
                work.store_mut().put_places(&places)
            }
        };
        if before.is_err() {
            work.store_mut().abandon();
        }
        let store = work.store_mut();
        let (id, number) = (store.last_id + 1, store.next_number(&mark.task));
        let whole = matches!(scope, Scope::All);
        let checkpoint = Checkpoint { id, number, mark, what, whole, before: before?, after: None };
        store.commit(Record::Taken(checkpoint), Durable::Yes)?;
        self.keep_stamps(work);
        Ok(id)
    }

    /// What an earlier process of this task left unsealed is what is there now.
    fn seal_left(&self, work: &mut Work<'_>, mark: &Mark, stop: &AtomicBool) -> Result<(), CheckpointError> {
        let unsealed = |checkpoint: &&Checkpoint| checkpoint.mark.task == mark.task && checkpoint.after.is_none();
        let left: Vec<u64> = work.store().checkpoints.iter().filter(unsealed).map(|checkpoint| checkpoint.id).collect();
        left.into_iter().try_for_each(|id| self.seal_in(work, (id, mark.time_ms), true, stop).map(|_| ()))
    }

    fn seal_in(
        &self,
        work: &mut Work<'_>,
        (id, time_ms): (u64, u64),
        late: bool,
        stop: &AtomicBool,
    ) -> Result<Sealed, CheckpointError> {
        let Some(checkpoint) = work.store().checkpoints.iter().find(|checkpoint| checkpoint.id == id).cloned() else {
            return Ok(Sealed::Nothing);
        };
        self.make_room(work, &checkpoint.mark.task, None)?;
        let root = if checkpoint.whole {
            self.look(work, time_ms, stop, |look| look.whole())
        } else {
            let before = work.store().places(&checkpoint.before)?;
            let paths: Vec<_> = before.into_iter().map(|(path, _)| path).collect();
            let after = self.look(work, time_ms, stop, |look| match checkpoint.what {
                What::Call => look.places(&paths),
                _ => look.alone(&paths),
            })?;
            work.store_mut().put_places(&after)
        };
        if root.is_err() {
            work.store_mut().abandon();
        }
        let root = root?;
        // A call that is taken for interrupted may still be at work, and be sealed once more.
        if root == checkpoint.before && checkpoint.what == What::Call && !late {
            work.store_mut().abandon();
            work.store_mut().commit(Record::Void { id }, Durable::No)?;
            return Ok(Sealed::Nothing);
        }
        work.store_mut().seal(id, After { root, late })?;
        self.keep_stamps(work);
        Ok(Sealed::Changed)
    }

    /// Looks at the workspace, and puts what it sees into the store.
    fn look<T>(
        &self,
        work: &mut Work<'_>,
        now_ms: u64,
        stop: &AtomicBool,
        at: impl FnOnce(&mut Look<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let apart = self.apart();
        let (store, stamps) = &mut *work.state;
        let stamps = stamps.get_or_insert_with(|| Stamps::read(&self.root.join("stamps")));
        let place = (self.workspace.as_fd(), apart.as_slice());
        let looked = at(&mut Look::new(place, Keep::Into(store), stamps, (self.caps, now_ms), stop));
        if looked.is_err() {
            store.abandon();
        }
        looked
    }

    /// Looks at the workspace, and keeps nothing but the folders, in memory.
    fn look_only<T>(
        &self,
        work: &mut Work<'_>,
        memory: &mut std::collections::HashMap<ObjectId, object::Tree>,
        at: impl FnOnce(&mut Look<'_>) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let apart = self.apart();
        let stamps = work.state.1.get_or_insert_with(|| Stamps::read(&self.root.join("stamps")));
        let place = (self.workspace.as_fd(), apart.as_slice());
        // No clock is needed, since nothing of this look is remembered for another.
        at(&mut Look::new(place, Keep::Memory(memory), stamps, (self.caps, 0), &AtomicBool::new(false)))
    }

    fn apart(&self) -> Vec<(u64, u64)> {
        let own = self.apart.iter().chain([&self.root]);
        own.filter_map(|path| std::fs::metadata(path).ok()).map(|found| (found.dev(), found.ino())).collect()
    }

    /// Writes the stamps when enough of them are new; to lose them costs time and nothing else.
    fn keep_stamps(&self, work: &mut Work<'_>) {
        if let Some(stamps) = &mut work.state.1
            && stamps.fresh > stamps.count() / 20
        {
            _ = stamps.write(&self.root.join("stamps"));
        }
    }

    /// The state before or after a checkpoint.
    fn state(work: &Work<'_>, checkpoint: &Checkpoint, root: ObjectId) -> Result<State, CheckpointError> {
        Ok(if checkpoint.whole { State::Whole(root) } else { State::Places(work.store().places(&root)?) })
    }

    fn place(&self, path: &Path) -> Option<WorkPath> {
        WorkPath::from_inside(path).filter(|path| !path.is_root())
    }
}

impl Work<'_> {
    fn store(&self) -> &Store {
        &self.state.0
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.state.0
    }
}
