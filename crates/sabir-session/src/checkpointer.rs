//! Tools with checkpoints around them: what a call may change is kept before it runs, and what it left after it.
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

/// A smaller store could hold no checkpoint worth the name.
const LEAST_MIB: u64 = 16;
/// All stores together take at most so many times what one may.
const STORES: u64 = 4;
/// Calls that were judged and never ran are forgotten beyond this.
const MAX_JUDGED: usize = 1000;
const MAX_LABEL_CHARS: usize = 160;

/// Takes the checkpoints of one task.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    checkpoints: Arc<CheckpointStore>,
    workspace: Arc<Workspace>,
    /// The folder of all stores, the one of this workspace, and how much all may take in bytes.
    stores: (PathBuf, PathBuf, u64),
    /// Whether this keeper has taken a checkpoint.
    begun: AtomicBool,
    /// Known only when the task is driven; the tools are there before.
    task: OnceLock<TaskId>,
    environment: Arc<Environment>,
}

/// A tool whose calls can be gone back on.
pub(crate) struct CheckpointedTool {
    tool: Arc<dyn Tool>,
    checkpointer: Arc<Checkpointer>,
    /// What calls were judged by. A tool is not asked twice, since it may remember what it said.
    assessed: Mutex<HashMap<String, Access>>,
}

/// Stops the work that its future no longer waits for.
struct StopGuard(Arc<AtomicBool>);

/// The store for a workspace, in its usual place, which depends on the folder's path.
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

/// How much is kept, by the configuration.
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
    /// A keeper by options and configuration; none where checkpoints are off. Nothing is touched.
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
        let (workspace, begun, task) = (Arc::clone(workspace), AtomicBool::new(false), OnceLock::new());
        let environment = Arc::clone(&config.environment);
        Ok(Some(Arc::new(Self { checkpoints, workspace, stores, begun, task, environment })))
    }

    /// Says which task it is.
    pub(crate) fn set_task(&self, task: &TaskId) {
        // A bench is for one task.
        _ = self.task.set(task.clone());
    }

    /// Undoes the last changing calls of the task: all of it, or nothing where something was changed since. Gives the number of paths
    /// that were brought back.
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

    /// What a call may change; `None`: nothing.
    fn checkpoint_scope(&self, access: &Access) -> Option<SnapshotScope> {
        match access {
            Access::Nothing | Access::Read { .. } | Access::Fetch { .. } | Access::Invalid { .. } => None,
            // A path that cannot be read back from what is shown of it says only that something is written.
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
            // What may run unasked by default only reads: a walk through the whole tree would cost more than the command.
            command if PolicyRules::default().decide(command).verdict == Verdict::Allow => None,
            _ => Some(SnapshotScope::All),
        }
    }

    async fn take_checkpoint(&self, mark: CheckpointCall, scope: SnapshotScope) -> Result<u64, String> {
        let (checkpoints, stop) = (Arc::clone(&self.checkpoints), Arc::new(AtomicBool::new(false)));
        let watch = StopGuard(Arc::clone(&stop));
        let first = (!self.begun.swap(true, Ordering::Relaxed)).then(|| self.stores.clone());
        let work = move || -> Result<u64, CheckpointError> {
            if let Some((all, own, most)) = first {
                // Stores of other folders that cannot be removed are no reason not to work in this one.
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

    /// What was not sealed is sealed before the task's next call, or taken as it is by whoever goes back.
    async fn seal_checkpoint(&self, id: u64) {
        let (checkpoints, stop) = (Arc::clone(&self.checkpoints), Arc::new(AtomicBool::new(false)));
        let watch = StopGuard(Arc::clone(&stop));
        let now = self.environment.now_milliseconds();
        _ = tokio::task::spawn_blocking(move || checkpoints.seal_checkpoint(id, now, &stop)).await;
        drop(watch);
    }
}

impl CheckpointedTool {
    /// The tools, with checkpoints around those that do more than read.
    pub(crate) fn wrap_all(tools: Vec<Arc<dyn Tool>>, keeper: &Arc<Checkpointer>) -> Vec<Arc<dyn Tool>> {
        let kept = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
            if tool.is_read_only() {
                return tool;
            }
            Arc::new(Self { tool, checkpointer: Arc::clone(keeper), assessed: Mutex::default() })
        };
        tools.into_iter().map(kept).collect()
    }

    /// What the call was judged by. One that was judged by another process may touch anything.
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

/// Equal arguments have equal text: the gates made them, in the order of the schema or of the model.
fn arguments_key(arguments: &CallArguments) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
}

/// What a call is about, on a line.
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
