//! Tools with checkpoints around them: what a call may change is kept before it runs, and what it left after it.
//!
//! A call whose checkpoint cannot be taken does not run: it could not be undone, and nobody would know.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sabir_agent::{Arguments, Bound, Permit, Progress, TaskId, Tool, ToolOutput, ToolWork};
use sabir_call::{CallId, ToolSpec};
use sabir_checkpoint::{Caps, CheckpointError, Checkpoints, Goal, Mark, ObjectId, Scope, name, prune_stores};
use sabir_policy::{Access, Beyond, Facts, Rules, Verdict};
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
pub(crate) struct Keeper {
    checkpoints: Arc<Checkpoints>,
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
pub(crate) struct Kept {
    tool: Arc<dyn Tool>,
    keeper: Arc<Keeper>,
    /// What calls were judged by. A tool is not asked twice, since it may remember what it said.
    judged: Mutex<HashMap<String, Access>>,
}

/// Stops the work that its future no longer waits for.
struct Stop(Arc<AtomicBool>);

/// The store for a workspace, in its usual place, which depends on the folder's path.
pub fn store(workspace: &Arc<Workspace>, caps: Caps, environment: &Environment) -> Result<Checkpoints, SessionError> {
    let data = environment.sabir_data_folder()?;
    let folder = store_folder(&data, workspace.root());
    Ok(Checkpoints::new(folder, Arc::clone(workspace), caps, vec![data]))
}

fn store_folder(data: &Path, workspace: &Path) -> PathBuf {
    let name = ObjectId::of(workspace.as_os_str().as_encoded_bytes()).to_string();
    data.join("checkpoints").join(name.get(..32).unwrap_or(&name))
}

/// How much is kept, by the configuration.
pub fn caps(config: &Config) -> Result<Caps, SessionError> {
    let caps = Caps::default();
    match config.checkpoints_mib {
        None => Ok(caps),
        Some(mib) if mib < LEAST_MIB => Err(SessionError::invalid(format!(
            "checkpoints_mib = {mib} is too little: give at least {LEAST_MIB}, or checkpoints = false to have none"
        ))),
        Some(mib) => Ok(Caps { store_bytes: mib.saturating_mul(1 << 20), ..caps }),
    }
}

impl Keeper {
    /// A keeper by options and configuration; none where checkpoints are off. Nothing is touched.
    pub(crate) fn of(
        options: &SessionSpec,
        config: &Config,
        workspace: &Arc<Workspace>,
    ) -> Result<Option<Arc<Self>>, SessionError> {
        if options.no_checkpoints || config.checkpoints == Some(false) {
            return Ok(None);
        }
        let caps = caps(config)?;
        let checkpoints = Arc::new(store(workspace, caps, &config.environment)?);
        let own = store_folder(&config.environment.sabir_data_folder()?, workspace.root());
        let all = own.parent().unwrap_or(&own).to_path_buf();
        let stores = (all, own, caps.store_bytes.saturating_mul(STORES));
        let (workspace, begun, task) = (Arc::clone(workspace), AtomicBool::new(false), OnceLock::new());
        let environment = Arc::clone(&config.environment);
        Ok(Some(Arc::new(Self { checkpoints, workspace, stores, begun, task, environment })))
    }

    /// Says which task it is.
    pub(crate) fn begin(&self, task: &TaskId) {
        // A bench is for one task.
        _ = self.task.set(task.clone());
    }

    /// Undoes the last changing calls of the task: all of it, or nothing where something was changed since. Gives the number of paths
    /// that were brought back.
    pub(crate) fn undo(&self, calls: usize) -> Result<usize, SessionError> {
        let failed = |error: CheckpointError| SessionError::invalid(error.to_string());
        let Some(task) = self.task.get() else { return Ok(0) };
        let goal = Goal::Last(calls);
        let plan = self.checkpoints.plan(task.as_str(), &goal).map_err(failed)?;
        if let Some(item) = plan.items.iter().find(|item| !item.goes(false)) {
            let why = item.hindrance.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(SessionError::invalid(format!("{}: {why}", name(&item.path))));
        }
        let mark = Mark {
            task: task.to_string(),
            tool: "sabir".to_owned(),
            label: format!("undo {calls}"),
            time_ms: self.environment.now_milliseconds(),
            ..Mark::default()
        };
        let restored = self.checkpoints.restore(&plan, &goal, mark, false).map_err(failed)?;
        Ok(restored.done)
    }

    /// What a call may change; `None`: nothing.
    fn scope(&self, access: &Access) -> Option<Scope> {
        match access {
            Access::Nothing | Access::Read { .. } | Access::Fetch { .. } | Access::Invalid { .. } => None,
            // A path that cannot be read back from what is shown of it says only that something is written.
            Access::Write { path, .. } => Some(match self.workspace.path(path) {
                Ok(real) if !path.contains('\u{fffd}') => Scope::Files(vec![real]),
                _ => Scope::All,
            }),
            Access::Several(all) => {
                all.iter().filter_map(|one| self.scope(one)).reduce(|one, other| match (one, other) {
                    (Scope::Files(one), Scope::Files(other)) => Scope::Files(one.into_iter().chain(other).collect()),
                    _ => Scope::All,
                })
            }
            // What may run unasked by default only reads: a walk through the whole tree would cost more than the command.
            command if Rules::default().decide(command).verdict == Verdict::Allow => None,
            _ => Some(Scope::All),
        }
    }

    async fn take(&self, mark: Mark, scope: Scope) -> Result<u64, String> {
        let (checkpoints, stop) = (Arc::clone(&self.checkpoints), Arc::new(AtomicBool::new(false)));
        let watch = Stop(Arc::clone(&stop));
        let first = (!self.begun.swap(true, Ordering::Relaxed)).then(|| self.stores.clone());
        let work = move || -> Result<u64, CheckpointError> {
            if let Some((all, own, most)) = first {
                // Stores of other folders that cannot be removed are no reason not to work in this one.
                _ = prune_stores(&all, &own, most);
            }
            checkpoints.take(mark, &scope, &stop)
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
    async fn seal(&self, id: u64) {
        let (checkpoints, stop) = (Arc::clone(&self.checkpoints), Arc::new(AtomicBool::new(false)));
        let watch = Stop(Arc::clone(&stop));
        let now = self.environment.now_milliseconds();
        _ = tokio::task::spawn_blocking(move || checkpoints.seal(id, now, &stop)).await;
        drop(watch);
    }
}

impl Kept {
    /// The tools, with checkpoints around those that do more than read.
    pub(crate) fn all(tools: Vec<Arc<dyn Tool>>, keeper: &Arc<Keeper>) -> Vec<Arc<dyn Tool>> {
        let kept = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
            if tool.reads_only() {
                return tool;
            }
            Arc::new(Self { tool, keeper: Arc::clone(keeper), judged: Mutex::default() })
        };
        tools.into_iter().map(kept).collect()
    }

    /// What the call was judged by. One that was judged by another process may touch anything.
    fn judged(&self, arguments: &Arguments) -> Access {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let known = judged.get(&key(arguments)).cloned();
        if judged.len() > MAX_JUDGED {
            judged.clear();
        }
        known.unwrap_or(Access::Command { command: String::new(), facts: Facts::default(), beyond: Beyond::Nothing })
    }
}

impl Tool for Kept {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn reads_only(&self) -> bool {
        false
    }

    fn offered(&self) -> bool {
        self.tool.offered()
    }

    fn polls(&self) -> bool {
        self.tool.polls()
    }

    fn access(&self, arguments: &Arguments) -> Access {
        let access = self.tool.access(arguments);
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.insert(key(arguments), access.clone());
        access
    }

    fn bound(&self, arguments: &Arguments) -> Bound {
        self.tool.bound(arguments)
    }

    fn preview(&self, arguments: &Arguments) -> Option<String> {
        self.tool.preview(arguments)
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, progress: Progress<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            let access = self.judged(arguments);
            let (Some(scope), Some(task)) = (self.keeper.scope(&access), self.keeper.task.get()) else {
                return self.tool.run(permit, arguments, progress).await;
            };
            let mark = Mark {
                task: task.as_str().to_owned(),
                call: permit.call.as_str().to_owned(),
                tool: self.tool.spec().name,
                label: label(&access),
                time_ms: self.keeper.environment.now_milliseconds(),
            };
            let id = match self.keeper.take(mark, scope).await {
                Ok(id) => id,
                Err(error) => {
                    return ToolOutput::failed(format!(
                        "Nothing was done: no checkpoint could be taken before the call ({error}). This is for the user to put \
                         right; tell them."
                    ));
                }
            };
            let output = self.tool.run(permit, arguments, progress).await;
            self.keeper.seal(id).await;
            output
        })
    }

    fn give_up(&self, call: &CallId) {
        self.tool.give_up(call);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Equal arguments have equal text: the gates made them, in the order of the schema or of the model.
fn key(arguments: &Arguments) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
}

/// What a call is about, on a line.
fn label(access: &Access) -> String {
    let text = match access {
        Access::Write { path, .. } => path.clone(),
        Access::Command { command, .. } => command.clone(),
        Access::Several(all) => all.iter().map(label).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    };
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(MAX_LABEL_CHARS).collect()
}
