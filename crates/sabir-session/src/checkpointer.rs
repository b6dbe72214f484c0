//! Takes checkpoints around tool calls: a snapshot of what a call may change before it runs, and of the result afterwards.
//!
//! A call whose checkpoint cannot be taken does not run: it could not be undone, and nobody would know.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sabir_agent::{CallArguments, CallPermit, Preconditions, ProgressSink, TaskId, Tool, ToolOutput, ToolWork};
use sabir_call::{CallId, ToolSpec};
use sabir_checkpoint::{
    CheckpointCall, CheckpointError, CheckpointStore, ObjectId, RestorePoint, SnapshotScope, StoreLimits, display_path,
    prune_stores,
};
use sabir_policy::{Access, Beyond, CommandFacts, PolicyRules, Verdict};
use sabir_workspace::Workspace;

use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::spec::SessionSpec;

/// The smallest size of a store. A smaller one could not hold a checkpoint of most folders.
const LEAST_MIB: u64 = 16;
/// The size of all stores together, as a multiple of the size of one.
const STORES: u64 = 4;
/// The number of remembered accesses. Calls that were judged and never ran would otherwise pile up.
const MAX_JUDGED: usize = 1000;
/// The length at which a label is cut, so that it fits on a line of a list.
const MAX_LABEL_CHARS: usize = 160;

/// Takes the checkpoints of one task.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    checkpoints: Arc<CheckpointStore>,
    workspace: Arc<Workspace>,
    /// The folder of all stores, the store of this workspace, and the size limit of all stores in bytes.
    stores: (PathBuf, PathBuf, u64),
    /// True once a checkpoint was taken.
    begun: AtomicBool,
    /// The task, which is known only when it is driven; the tools exist before that.
    task: OnceLock<TaskId>,
    environment: Arc<Environment>,
}

/// A tool whose calls can be undone.
pub(crate) struct CheckpointedTool {
    tool: Arc<dyn Tool>,
    checkpointer: Arc<Checkpointer>,
    /// The accesses that calls were judged by, by their arguments. The tool is not asked a second time, because its answer may
    /// change its state.
    assessed: Mutex<HashMap<String, Access>>,
}

/// Stops blocking work when the future that waits for it is dropped.
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
    Ok(CheckpointStore::new(folder, Arc::clone(workspace), caps, vec![data]))
}

fn store_folder(data: &Path, workspace: &Path) -> PathBuf {
    let name = ObjectId::hash_of(workspace.as_os_str().as_encoded_bytes()).to_string();
    data.join("checkpoints").join(name.get(..32).unwrap_or(&name))
}

/// Returns the size limits of a store, by the configuration.
///
/// # Errors
/// When `checkpoints_mib` is too small.
pub fn store_caps(config: &Config) -> Result<StoreLimits, SessionError> {
    let caps = StoreLimits::default();
    match config.checkpoints_mib {
        None => Ok(caps),
        Some(mib) if mib < LEAST_MIB => Err(SessionError::invalid(format!(
            "checkpoints_mib = {mib} is too little: give at least {LEAST_MIB}, or checkpoints = false to have none"
        ))),
        Some(mib) => Ok(StoreLimits { store_bytes: mib.saturating_mul(1 << 20), ..caps }),
    }
}

impl Checkpointer {
    /// Creates the checkpointer of a task, or `None` where checkpoints are off. It does not write anything yet.
    pub(crate) fn from_options(
        options: &SessionSpec,
        config: &Config,
        workspace: &Arc<Workspace>,
    ) -> Result<Option<Arc<Self>>, SessionError> {
        if options.no_checkpoints || config.checkpoints == Some(false) {
            return Ok(None);
        }
        let caps = store_caps(config)?;
        let checkpoints = Arc::new(open_store(workspace, caps, &config.environment)?);
        let own = store_folder(&config.environment.sabir_data_folder()?, workspace.root());
        let all = own.parent().unwrap_or(&own).to_path_buf();
        let stores = (all, own, caps.store_bytes.saturating_mul(STORES));
        let workspace = Arc::clone(workspace);
        let begun = AtomicBool::new(false);
        let task = OnceLock::new();
        let environment = Arc::clone(&config.environment);
        Ok(Some(Arc::new(Self { checkpoints, workspace, stores, begun, task, environment })))
    }

    /// Sets the task whose calls are checkpointed.
    pub(crate) fn set_task(&self, task: &TaskId) {
        // A setup belongs to one task, so a second call sets the same id again.
        _ = self.task.set(task.clone());
    }

    /// Undoes the last changing calls of the task, and returns the number of restored paths. It restores nothing if one of the
    /// paths was changed since.
    pub(crate) fn undo(&self, calls: usize) -> Result<usize, SessionError> {
        let failed = |error: CheckpointError| SessionError::invalid(error.to_string());
        let Some(task) = self.task.get() else { return Ok(0) };
        let goal = RestorePoint::Last(calls);
        let plan = self.checkpoints.plan_restore(task.as_str(), &goal).map_err(failed)?;
        if let Some(item) = plan.items.iter().find(|item| !item.is_restored(false)) {
            let why = item.conflict.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(SessionError::invalid(format!("{}: {why}", display_path(&item.path))));
        }
        let mark = CheckpointCall {
            task: task.to_string(),
            tool: "sabir".to_owned(),
            label: format!("undo {calls}"),
            time_ms: self.environment.now_milliseconds(),
            ..CheckpointCall::default()
        };
        let restored = self.checkpoints.restore(&plan, &goal, mark, false).map_err(failed)?;
        Ok(restored.restored)
    }

    /// Returns the paths that a call may change; `None` means none.
    fn checkpoint_scope(&self, access: &Access) -> Option<SnapshotScope> {
        match access {
            Access::Nothing | Access::Read { .. } | Access::Fetch { .. } | Access::Invalid { .. } => None,
            // A shown path with a replacement character is not the real one: all that is known is that something is written.
            Access::Write { path, .. } => Some(match self.workspace.parse_path(path) {
                Ok(real) if !path.contains('\u{fffd}') => SnapshotScope::Files(vec![real]),
                _ => SnapshotScope::All,
            }),
            Access::Several(all) => {
                all.iter().filter_map(|one| self.checkpoint_scope(one)).reduce(|one, other| match (one, other) {
                    (SnapshotScope::Files(one), SnapshotScope::Files(other)) => {
                        SnapshotScope::Files(one.into_iter().chain(other).collect())
                    }
                    _ => SnapshotScope::All,
                })
            }
            // A command that the default rules allow only reads. A snapshot of the whole tree would cost more than the command.
            command if PolicyRules::default().decide(command).verdict == Verdict::Allow => None,
            _ => Some(SnapshotScope::All),
        }
    }

    async fn take_checkpoint(&self, mark: CheckpointCall, scope: SnapshotScope) -> Result<u64, String> {
        let checkpoints = Arc::clone(&self.checkpoints);
        let stop = Arc::new(AtomicBool::new(false));
        let watch = StopGuard(Arc::clone(&stop));
        // Old stores are pruned once, before the first checkpoint, so that a task which changes nothing does not pay for it.
        let first = (!self.begun.swap(true, Ordering::Relaxed)).then(|| self.stores.clone());
        let work = move || -> Result<u64, CheckpointError> {
            if let Some((all, own, most)) = first {
                // A failure is ignored: other folders' stores that cannot be removed must not stop the work in this one.
                _ = prune_stores(&all, &own, most);
            }
            checkpoints.take_snapshot(mark, &scope, &stop)
        };
        let taken = tokio::task::spawn_blocking(work).await;
        drop(watch);
        match taken {
            Ok(Ok(id)) => Ok(id),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Records the state after a call. A failure is ignored: the next call of the task seals the checkpoint, and an undo can use
    /// an unsealed one.
    async fn seal_checkpoint(&self, id: u64) {
        let checkpoints = Arc::clone(&self.checkpoints);
        let stop = Arc::new(AtomicBool::new(false));
        let watch = StopGuard(Arc::clone(&stop));
        let now = self.environment.now_milliseconds();
        _ = tokio::task::spawn_blocking(move || checkpoints.seal_checkpoint(id, now, &stop)).await;
        drop(watch);
    }
}

impl CheckpointedTool {
    /// Wraps the tools that do more than read.
    pub(crate) fn wrap_all(tools: Vec<Arc<dyn Tool>>, checkpointer: &Arc<Checkpointer>) -> Vec<Arc<dyn Tool>> {
        let kept = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
            if tool.is_read_only() {
                return tool;
            }
            Arc::new(Self { tool, checkpointer: Arc::clone(checkpointer), assessed: Mutex::default() })
        };
        tools.into_iter().map(kept).collect()
    }

    /// Returns the access that the call was judged by. A call that an earlier process judged, before a resume, may touch
    /// anything.
    fn assessed_access(&self, arguments: &CallArguments) -> Access {
        let mut judged = self.assessed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = judged.get(&arguments_key(arguments)).cloned();
        if judged.len() > MAX_JUDGED {
            judged.clear();
        }
        known.unwrap_or(Access::Command {
            command: String::new(),
            facts: CommandFacts::default(),
            beyond: Beyond::Nothing,
        })
    }
}

impl Tool for CheckpointedTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_offered(&self) -> bool {
        self.tool.is_offered()
    }

    fn is_polling(&self) -> bool {
        self.tool.is_polling()
    }

    fn call_access(&self, arguments: &CallArguments) -> Access {
        let access = self.tool.call_access(arguments);
        let mut judged = self.assessed.lock().unwrap_or_else(PoisonError::into_inner);
        judged.insert(arguments_key(arguments), access.clone());
        access
    }

    fn preconditions(&self, arguments: &CallArguments) -> Preconditions {
        self.tool.preconditions(arguments)
    }

    fn preview(&self, arguments: &CallArguments) -> Option<String> {
        self.tool.preview(arguments)
    }

    fn run<'a>(
        &'a self,
        permit: &'a CallPermit,
        arguments: &'a CallArguments,
        progress: ProgressSink<'a>,
    ) -> ToolWork<'a> {
        Box::pin(async move {
            let access = self.assessed_access(arguments);
            let (Some(scope), Some(task)) = (self.checkpointer.checkpoint_scope(&access), self.checkpointer.task.get())
            else {
                return self.tool.run(permit, arguments, progress).await;
            };
            let mark = CheckpointCall {
                task: task.as_str().to_owned(),
                call: permit.call.as_str().to_owned(),
                tool: self.tool.spec().name,
                label: access_label(&access),
                time_ms: self.checkpointer.environment.now_milliseconds(),
            };
            let id = match self.checkpointer.take_checkpoint(mark, scope).await {
                Ok(id) => id,
                Err(error) => {
                    return ToolOutput::failed(format!(
                        "Nothing was done: no checkpoint could be taken before the call ({error}). This is for the user to put \
                         right; tell them."
                    ));
                }
            };
            let output = self.tool.run(permit, arguments, progress).await;
            self.checkpointer.seal_checkpoint(id).await;
            output
        })
    }

    fn request_stop(&self, call: &CallId) {
        self.tool.request_stop(call);
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the key for a call's arguments. Equal calls have equal text, since `call_access` and `run` get the same map from the
/// gates.
fn arguments_key(arguments: &CallArguments) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
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
