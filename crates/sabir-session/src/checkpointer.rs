//! Takes checkpoints around tool calls: a snapshot of the files that a call may change before it runs, and of the result afterwards.
//!
//! A call whose checkpoint cannot be taken does not run, because it could not be undone, and nobody
//! would notice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sabir_agent::{DriverObserver, ObservedCall, ObserverFuture, TaskId, ToolOutput, ToolRefusal};
use sabir_call::CallId;
use sabir_checkpoint::{
    CallWrites, CheckpointCall, CheckpointError, CheckpointStore, ObjectId, RestorePoint,
    SnapshotScope, StoreLimits, display_path, prune_stores,
};
use sabir_policy::{Access, PolicyRules, Verdict};
use sabir_workspace::{CommandWatch, Workspace};

use crate::checkpoint_history::last_changing_turn;
use crate::command::Rejected;
use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::spec::SessionSpec;

/// The smallest size of a store. A smaller one could not hold a checkpoint of most folders.
const LEAST_MIB: u64 = 16;
/// The size of all stores together, as a multiple of the size of one.
const STORES: u64 = 4;
/// The longest label in the list of checkpoints, in characters: about two lines of a terminal.
const MAX_LABEL_CHARS: usize = 160;

/// Takes the checkpoints of one task.
#[derive(Debug)]
pub(crate) struct TaskCheckpointer {
    checkpoints: Arc<CheckpointStore>,
    workspace: Arc<Workspace>,
    /// The folder of all stores, the store of this workspace, and the size limit of all stores in bytes.
    stores: (PathBuf, PathBuf, u64),
    /// True once a checkpoint was taken.
    begun: AtomicBool,
    /// The task, which is known only when it is driven; the tools exist before that.
    task: OnceLock<TaskId>,
    /// The snapshots of the calls that run now, which are not sealed. One of a call that was dropped stays unsealed; the store seals
    /// it before the next snapshot.
    open_snapshots: Mutex<HashMap<CallId, OpenSnapshot>>,
    /// The number of snapshots since the changed paths were last taken.
    snapshot_count: AtomicUsize,
    environment: Arc<Environment>,
}

/// The snapshot of a call that runs.
#[derive(Debug)]
struct OpenSnapshot {
    id: u64,
    /// The watch over what commands write meanwhile.
    watch: CommandWatch,
}

/// The reason why no checkpoint was taken before a call.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    /// The store cannot keep it: it is full, too large, or cannot be written.
    #[error(transparent)]
    Store(#[from] CheckpointError),
    /// The thread that works on the store panicked, or the runtime is shutting down.
    #[error(transparent)]
    Worker(#[from] tokio::task::JoinError),
}

/// Stops the work that its future no longer waits for.
struct StopGuard(Arc<AtomicBool>);

/// Opens the checkpoint store of a workspace. Its place in the data folder depends on the path of the workspace.
///
/// # Errors
/// When there is no data folder.
pub fn open_store(
    workspace: &Arc<Workspace>,
    caps: StoreLimits,
    environment: &Environment,
) -> Result<CheckpointStore, SessionError> {
    let data = environment.sabir_data_folder()?;
    let folder = store_folder(&data, workspace.root());
    Ok(CheckpointStore::new(
        folder,
        Arc::clone(workspace),
        caps,
        vec![data],
    ))
}

/// Returns the folder of a workspace's store. Its name is the beginning of a hash of the path,
/// since the path itself may be too long for a name.
fn store_folder(data: &Path, workspace: &Path) -> PathBuf {
    let name = ObjectId::hash_of(workspace.as_os_str().as_encoded_bytes()).to_string();
    data.join("checkpoints")
        .join(name.get(..32).unwrap_or(&name))
}

/// Returns the size limits of a store, by the configuration.
///
/// # Errors
/// When `checkpoints_mib` is too small.
pub fn store_limits(config: &Config) -> Result<StoreLimits, SessionError> {
    let caps = StoreLimits::default();
    match config.checkpoints_mib {
        None => Ok(caps),
        Some(mib) if mib < LEAST_MIB => Err(SessionError::invalid(format!(
            "checkpoints_mib = {mib} is too little: give at least {LEAST_MIB}, or checkpoints = false to have none"
        ))),
        Some(mib) => Ok(StoreLimits {
            store_bytes: mib.saturating_mul(1 << 20),
            ..caps
        }),
    }
}

/// The calls that an undo is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoTarget {
    /// The changing calls since the user's last message.
    LastMessage,
    /// This many changing calls, counted back from the last one.
    Last(usize),
    /// The call of the checkpoint of this number, and all later ones.
    Since(u32),
}

impl UndoTarget {
    /// Creates the target of a command.
    pub(crate) fn new(calls: Option<usize>, checkpoint: Option<u32>) -> Result<Self, Rejected> {
        match (calls, checkpoint) {
            (None, None) => Ok(Self::LastMessage),
            (Some(calls), None) => Ok(Self::Last(calls)),
            (None, Some(number)) => Ok(Self::Since(number)),
            (Some(_), Some(_)) => Err(Rejected::Invalid(
                "an undo takes a number of calls or a checkpoint, not both".to_owned(),
            )),
        }
    }
}

/// The result of an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UndoneCalls {
    /// The paths that were restored.
    pub(crate) paths: Vec<PathBuf>,
    /// The number of the checkpoint with the state before; `None` if nothing was there to undo.
    pub(crate) checkpoint: Option<u32>,
}

impl TaskCheckpointer {
    /// Creates the checkpointer of a task, or `None` where checkpoints are off. It does not write anything yet.
    pub(crate) fn from_options(
        options: &SessionSpec,
        config: &Config,
        workspace: &Arc<Workspace>,
    ) -> Result<Option<Arc<Self>>, SessionError> {
        if options.no_checkpoints || !config.takes_checkpoints() {
            return Ok(None);
        }
        let caps = store_limits(config)?;
        let checkpoints = Arc::new(open_store(workspace, caps, &config.environment)?);
        let own = store_folder(&config.environment.sabir_data_folder()?, workspace.root());
        let all = own.parent().unwrap_or(&own).to_path_buf();
        let stores = (all, own, caps.store_bytes.saturating_mul(STORES));
        Ok(Some(Arc::new(Self {
            checkpoints,
            workspace: Arc::clone(workspace),
            stores,
            begun: AtomicBool::new(false),
            task: OnceLock::new(),
            open_snapshots: Mutex::default(),
            snapshot_count: AtomicUsize::new(0),
            environment: Arc::clone(&config.environment),
        })))
    }

    fn open_snapshots(&self) -> MutexGuard<'_, HashMap<CallId, OpenSnapshot>> {
        self.open_snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the task whose calls are snapshotted.
    pub(crate) fn set_task(&self, task: &TaskId) {
        // Set once: a checkpointer is for one task.
        _ = self.task.set(task.clone());
    }

    /// Undoes calls of the task. It restores nothing if one of the paths was changed since.
    pub(crate) fn undo_calls(&self, target: UndoTarget) -> Result<UndoneCalls, SessionError> {
        let failed = |error: CheckpointError| SessionError::invalid(error.to_string());
        // Nothing has run yet, so there is nothing to undo.
        let Some(task) = self.task.get() else {
            return Ok(UndoneCalls::default());
        };
        let goal = match target {
            UndoTarget::Last(calls) => RestorePoint::Last(calls),
            UndoTarget::Since(number) => RestorePoint::Before(number, Vec::new()),
            UndoTarget::LastMessage => {
                let turn = last_changing_turn(&self.checkpoints, &self.environment, task.as_str());
                let turn = turn.map_err(|error| SessionError::invalid(error.to_string()))?;
                RestorePoint::Last(turn.calls)
            }
        };
        let plan = self
            .checkpoints
            .plan_restore(task.as_str(), &goal)
            .map_err(failed)?;
        // All or nothing: half of an undo would be a state that never existed.
        if let Some(item) = plan.items.iter().find(|item| !item.is_restored(false)) {
            let why = item
                .conflict
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            return Err(SessionError::invalid(format!(
                "{}: {why}",
                display_path(&item.path)
            )));
        }
        // The restore takes a checkpoint of its own, by which it can be undone.
        let mark = CheckpointCall {
            task: task.to_string(),
            tool: "sabir".to_owned(),
            label: match &goal {
                RestorePoint::Last(calls) => format!("undo {calls}"),
                _ => format!("undo @{}", plan.to),
            },
            time_ms: self.environment.now_milliseconds(),
            ..CheckpointCall::default()
        };
        let done = self
            .checkpoints
            .restore(&plan, &goal, mark, false)
            .map_err(failed)?;
        let is_skipped = |path: &PathBuf| done.skipped.iter().any(|(skipped, _)| skipped == path);
        let paths = plan.items.into_iter().map(|item| item.path);
        Ok(UndoneCalls {
            paths: paths.filter(|path| !is_skipped(path)).collect(),
            checkpoint: Some(done.number).filter(|number| *number > 0),
        })
    }

    /// Returns the paths that the calls since the last time changed, commands included. A store that cannot be read gives none: the
    /// list is for a summary.
    pub(crate) fn take_changed_paths(&self) -> Vec<PathBuf> {
        let count = self.snapshot_count.swap(0, Ordering::Relaxed);
        let Some(task) = self.task.get().filter(|_| count > 0) else {
            return Vec::new();
        };
        // A call that changed nothing is not a changing call for the store.
        let active = self
            .checkpoints
            .active_calls(task.as_str())
            .unwrap_or_default();
        let goal = RestorePoint::Last(count.min(active.len()));
        let differences = self.checkpoints.list_differences(task.as_str(), &goal);
        let paths = differences.unwrap_or_default().paths.into_iter();
        paths.map(|difference| difference.path).collect()
    }

    /// Returns those of the paths that git ignores.
    pub(crate) fn ignored_paths<'p>(
        &self,
        paths: &'p [PathBuf],
    ) -> impl Iterator<Item = &'p PathBuf> {
        let root = self.workspace.root();
        let mut checker = self.workspace.ignore_checker();
        let is_ignored = |path: &&PathBuf| checker.is_ignored(path, root.join(path).is_dir());
        let ignored: Vec<_> = paths.iter().filter(is_ignored).collect();
        ignored.into_iter()
    }

    /// Returns the paths that a call may change; `None` means none.
    fn checkpoint_scope(&self, access: &Access) -> Option<SnapshotScope> {
        match access {
            Access::Nothing
            | Access::Read { .. }
            | Access::Fetch { .. }
            | Access::Invalid { .. } => None,
            // A replacement character means that the path is not the real one, so any file may be
            // written.
            Access::Write { path, .. } => Some(match self.workspace.parse_path(path) {
                Ok(real) if !path.contains('\u{fffd}') => SnapshotScope::Files(vec![real]),
                _ => SnapshotScope::All,
            }),
            // One call of unknown extent makes the extent of all unknown.
            Access::Several(all) => all
                .iter()
                .filter_map(|one| self.checkpoint_scope(one))
                .reduce(|one, other| match (one, other) {
                    (SnapshotScope::Files(one), SnapshotScope::Files(other)) => {
                        SnapshotScope::Files(one.into_iter().chain(other).collect())
                    }
                    _ => SnapshotScope::All,
                }),
            // A command that the default rules allow only reads. A snapshot of the whole tree would
            // cost more than the command.
            command if PolicyRules::default().decide(command).verdict == Verdict::Allow => None,
            _ => Some(SnapshotScope::All),
        }
    }

    async fn take_checkpoint(
        &self,
        mark: CheckpointCall,
        scope: SnapshotScope,
    ) -> Result<u64, SnapshotError> {
        let checkpoints = Arc::clone(&self.checkpoints);
        let stop = Arc::new(AtomicBool::new(false));
        let watch = StopGuard(Arc::clone(&stop));
        // Old stores are pruned once, before the first checkpoint, so that a task which changes
        // nothing does not pay for it.
        let first = (!self.begun.swap(true, Ordering::Relaxed)).then(|| self.stores.clone());
        let work = move || -> Result<u64, CheckpointError> {
            if let Some((all, own, most)) = first {
                // A failure is ignored: other folders' stores that cannot be removed must not stop
                // the work in this one.
                _ = prune_stores(&all, &own, most);
            }
            checkpoints.take_snapshot(mark, &scope, &stop)
        };
        let taken = tokio::task::spawn_blocking(work).await;
        drop(watch);
        Ok(taken??)
    }

    /// Records the state after a call. A failure is ignored: the next call of the task seals the checkpoint, and an undo can use
    /// an unsealed one.
    async fn seal_checkpoint(&self, id: u64, writes: CallWrites) {
        let checkpoints = Arc::clone(&self.checkpoints);
        let stop = Arc::new(AtomicBool::new(false));
        let watch = StopGuard(Arc::clone(&stop));
        let now = self.environment.now_milliseconds();
        _ = tokio::task::spawn_blocking(move || {
            checkpoints.seal_checkpoint(id, now, &writes, &stop)
        })
        .await;
        drop(watch);
    }
}

impl DriverObserver for TaskCheckpointer {
    /// Takes a snapshot of the files that the call may change. A call whose snapshot cannot be taken must not run.
    fn before_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
    ) -> ObserverFuture<'a, Result<(), ToolRefusal>> {
        Box::pin(async move {
            // The policy checked the same access, so a call can change nothing outside of its
            // snapshot.
            let (Some(scope), Some(task)) = (self.checkpoint_scope(&call.access), self.task.get())
            else {
                return Ok(());
            };
            let mark = CheckpointCall {
                task: task.as_str().to_owned(),
                call: call.id.as_str().to_owned(),
                tool: call.tool.clone(),
                label: access_label(&call.access),
                time_ms: self.environment.now_milliseconds(),
            };
            // Begun before the scan: a job of an earlier call may write meanwhile.
            let watch = self.workspace.watch_commands();
            let id = self.take_checkpoint(mark, scope).await.map_err(|error| {
                ToolRefusal(format!(
                    "Nothing was done: no checkpoint could be taken before the call ({error}). This is for the user to put \
                     right; tell them."
                ))
            })?;
            let snapshot = OpenSnapshot { id, watch };
            self.open_snapshots().insert(call.id.clone(), snapshot);
            self.snapshot_count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Seals the snapshot with the state that the call left.
    fn after_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
        _: &'a ToolOutput,
    ) -> ObserverFuture<'a, ()> {
        Box::pin(async move {
            // Taken out before the `await`, so that the lock is not held across it.
            let snapshot = self.open_snapshots().remove(&call.id);
            if let Some(snapshot) = snapshot {
                let writes = call_writes(&call.access, &snapshot.watch);
                self.seal_checkpoint(snapshot.id, writes).await;
            }
        })
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns what is known about the files that a call wrote.
fn call_writes(access: &Access, watch: &CommandWatch) -> CallWrites {
    match access {
        // The tool itself writes the file.
        Access::Write { .. } => CallWrites::All,
        Access::Command { .. } => CallWrites::Observed(watch.observed_writes()),
        _ => CallWrites::Unknown,
    }
}

/// Returns one line about a call, for the list of checkpoints.
fn access_label(access: &Access) -> String {
    let text = match access {
        Access::Write { path, .. } => path.clone(),
        Access::Command { command, .. } => command.clone(),
        Access::Several(all) => all.iter().map(access_label).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    };
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(MAX_LABEL_CHARS).collect()
}
