//! The family: a task with its subtasks, which live and die in one process.
//!
//! Each member has a scene of its own, with its own journal, model, tools and witness. What they share is here: whether the process
//! is gone, who is at work, and how many turns were made in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::control::SubtaskRequest;
use sabir_agent::{
    CallArguments, CallPermit, CompletedSubtask, Interactivity, NewTaskTool, PreparedCall, ProgressSink, Record,
    SubtaskHandle, SubtaskRun, SubtaskSpawner, TaskId, TaskLimits, TaskOrigin, TaskStart, Tool, ToolOutput,
    ToolRegistry, ToolWork,
};
use sabir_call::{CallId, ToolError, ToolSpec};
use tokio::sync::Notify;

use crate::laws::Law;
use crate::model::SimulatedModel;
use crate::process_run::{OpenOutcome, ProcessRunner};
use crate::sabotage::Sabotage;
use crate::simulated_tools;
use crate::simulation_state::{SimulationHandle, SimulationState};
use crate::store::WatchedStore;
use crate::user::SimulatedUser;

/// What the members share.
#[derive(Clone, Default)]
pub(crate) struct TaskTree(Arc<TreeState>);

#[derive(Default)]
struct TreeState {
    gone: AtomicBool,
    /// Turns in this process.
    turns: AtomicU32,
    life: Mutex<ProcessState>,
    /// The subtasks that ever were.
    members: Mutex<BTreeMap<TaskId, SimulationHandle>>,
}

/// One process.
#[derive(Default)]
struct ProcessState {
    over: Arc<Notify>,
    /// Who was opened, and under which task.
    opened: BTreeSet<TaskId>,
    at_work: BTreeMap<TaskId, TaskId>,
    /// How many turns all of them may make.
    most: Option<u32>,
}

/// A subtask that is at work, until this is dropped.
pub(crate) struct ActiveGuard(TaskTree, TaskId);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.lock_process().at_work.remove(&self.1);
    }
}

impl TaskTree {
    fn lock_process(&self) -> MutexGuard<'_, ProcessState> {
        self.0.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process, in which all may make so many turns.
    pub(crate) fn begin_process(&self, most: Option<u32>) {
        self.0.gone.store(false, Ordering::Relaxed);
        self.0.turns.store(0, Ordering::Relaxed);
        *self.lock_process() = ProcessState { most, ..ProcessState::default() };
    }

    /// The process is gone.
    pub(crate) fn crash(&self) {
        self.0.gone.store(true, Ordering::Relaxed);
        self.end_process();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }

    /// Nothing goes on.
    pub(crate) fn end_process(&self) {
        self.lock_process().over.notify_one();
    }

    pub(crate) fn end_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.lock_process().over)
    }

    pub(crate) fn count_turn(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// The turns that were made, where no more may be.
    pub(crate) fn exhausted_turns(&self) -> Option<u32> {
        let turns = self.0.turns.load(Ordering::Relaxed);
        self.lock_process().most.is_some_and(|most| turns >= most).then_some(turns)
    }

    /// The subtasks so far.
    pub(crate) fn all_members(&self) -> BTreeMap<TaskId, SimulationHandle> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A subtask that is at work.
    pub(crate) fn any_active(&self) -> Option<TaskId> {
        self.lock_process().at_work.keys().next().cloned()
    }

    /// Whether that one is opened for the first time in this process, and how many of its parent's are at work with it.
    fn open_member(&self, task: &TaskId, parent: &TaskId) -> (bool, usize) {
        let mut life = self.lock_process();
        let new = life.opened.insert(task.clone());
        life.at_work.insert(task.clone(), parent.clone());
        (new, life.at_work.values().filter(|of| *of == parent).count())
    }

    fn get_or_insert(&self, task: &TaskId, make: impl FnOnce() -> SimulationHandle) -> (SimulationHandle, bool) {
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        let known = members.contains_key(task);
        (members.entry(task.clone()).or_insert_with(make).clone(), known)
    }
}

/// A task that may have subtasks.
pub(crate) struct SimulatedSpawner {
    scene: SimulationHandle,
    start: TaskStart,
}

/// A tool whose work goes on when nobody waits for it any more (sabotage).
struct DetachedTool(Arc<NewTaskTool>);

/// The tools of a task, the one for subtasks among them where it may have some.
///
/// # Errors
/// None that could happen: the specs are fixed.
pub(crate) fn build_registry(scene: &SimulationHandle, start: &TaskStart) -> Result<ToolRegistry, ToolError> {
    let (depth, sabotage) = scene.with_state(|state| (state.plan.terms.limits.subtasks.depth, state.sabotage));
    let parent = SimulatedSpawner { scene: scene.clone(), start: start.clone() };
    let tool = Arc::new(NewTaskTool::new(Arc::new(parent)));
    let tool: Arc<dyn Tool> = match sabotage {
        Some(Sabotage::LetSubtasksGoOn) => Arc::new(DetachedTool(tool)),
        _ => tool,
    };
    simulated_tools::base_registry(scene, (depth > 0).then_some(tool))
}

impl SubtaskSpawner for SimulatedSpawner {
    fn spawn(&self, call: &CallId, delegation: &SubtaskRequest, left: TaskLimits) -> Result<SubtaskHandle, String> {
        let id = self.start.task.child_id(call);
        let depth = self.start.depth() + 1;
        let todos = delegation.todos.as_ref().map(|todos| todos.text().to_owned());
        let from = Some(TaskOrigin::Subtask { task: self.start.task.clone(), call: call.clone(), depth, todos });
        let (scene, guard) =
            self.scene.with_state(|state| open_subtask_scene(state, &id, &self.start.task, delegation, left))?;
        let start = scene.with_state(|state| TaskStart { task: id, from, ..state.plan.start(0) });
        let registry = build_registry(&scene, &start).map_err(|error| error.to_string())?;
        let lives = ProcessRunner::new(scene.clone(), registry.clone(), start);
        let mut woken = match lives.open_task() {
            OpenOutcome::Task(woken) => *woken,
            OpenOutcome::Nothing => return Err("Its journal cannot be opened.".to_owned()),
            OpenOutcome::Over => {
                let completed = scene.with_state(|state| CompletedSubtask::from_records(&state.witness.records));
                scene.with_state(|state| state.counters.count_event("subtasks found completed"));
                return completed.map(SubtaskHandle::Completed).ok_or_else(|| "It has no journal.".to_owned());
            }
        };
        scene.with_state(SimulationState::on_task_opened);
        if woken.first.is_none() && scene.with_state(|state| state.sabotage == Some(Sabotage::BeginSubtasksAnew)) {
            let (task, first) = lives.new_task();
            (woken.task, woken.first) = (task, Some(first));
        }
        Ok(SubtaskHandle::Working(Box::new(SubtaskRun {
            task: woken.task,
            first: woken.first,
            store: Box::new(WatchedStore { scene: scene.clone(), journal: woken.journal, held: None }),
            model: Arc::new(SimulatedModel { scene: scene.clone(), registry: registry.clone() }),
            registry,
            front_end: Box::new(SimulatedUser { scene, _at_work: Some(guard) }),
            max_time: None,
            observers: Vec::new(),
        })))
    }
}

/// Sets the scene for a subtask: a new one, or the one where it was at work before.
fn open_subtask_scene(
    state: &mut SimulationState,
    id: &TaskId,
    parent: &TaskId,
    delegation: &SubtaskRequest,
    left: TaskLimits,
) -> Result<(SimulationHandle, ActiveGuard), String> {
    state.on_event(|| format!("the subtask {id} is opened"));
    if state.has_crashed() {
        return Err("The machine is gone.".to_owned());
    }
    let family = state.task_tree.clone();
    let (new, together) = family.open_member(id, parent);
    if !new {
        state.report_violation(Law::Family, format!("{id} is begun twice"));
    }
    let limits = state.plan.terms.limits.subtasks;
    if limits.depth == 0 || left.subtasks.depth >= limits.depth {
        state.report_violation(Law::Family, format!("{id} stands too deep"));
    }
    if together > limits.max_concurrent {
        state.report_violation(Law::Family, format!("{together} subtasks of {parent} are at work"));
    }
    if together > 1 {
        state.counters.count_event("subtasks at once");
    }
    let seed = state.rng.below(u64::MAX);
    let (plan, sabotage, traced) = (state.plan.clone(), state.sabotage, state.is_traced());
    let (scene, known) =
        family.get_or_insert(id, || SimulationHandle::with_tree(family.clone(), seed, sabotage, traced));
    state.counters.count_event(if known { "subtasks gone on with" } else { "subtasks begun" });
    scene.with_state(|child| {
        let own = &mut child.plan;
        own.is_subtask = true;
        own.prompt.clone_from(&delegation.message);
        own.disk_trouble = plan.disk_trouble;
        own.user.by_channel = true;
        if own.user.attended == Interactivity::Interactive {
            own.user.attended = Interactivity::Controlled;
        }
        own.model.length = own.model.length.min(4);
        own.terms.time = None;
        own.terms.limits = strictest_limits(own.terms.limits, left);
        child.witness.terms = child.plan.terms.clone();
        child.begin_process(true);
    });
    Ok((scene, ActiveGuard(family, id.clone())))
}

/// The stricter of both.
fn strictest_limits(own: TaskLimits, left: TaskLimits) -> TaskLimits {
    fn min_option<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
        one.into_iter().chain(two).min()
    }
    TaskLimits {
        turns: min_option(own.turns, left.turns),
        tokens: min_option(own.tokens, left.tokens),
        cost: min_option(own.cost, left.cost),
        subtasks: left.subtasks,
        ..own
    }
}

impl Tool for DetachedTool {
    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(DetachedCall(self.0.prepare(arguments)))
    }
}

/// A call of the detached tool.
struct DetachedCall(Box<dyn PreparedCall>);

impl PreparedCall for DetachedCall {
    fn access(&self) -> sabir_policy::Access {
        self.0.access()
    }

    fn run<'a>(self: Box<Self>, permit: &'a CallPermit, _: ProgressSink<'a>) -> ToolWork<'a> {
        let permit = permit.clone();
        let work = tokio::spawn(async move { self.0.run(&permit, &mut |_| {}).await });
        Box::pin(async move { work.await.unwrap_or_else(|error| ToolOutput::failed(error.to_string())) })
    }
}

/// Whether what a parent was told of its subtasks is what those have on record.
pub(crate) fn check_results(
    parent: &SimulationState,
    members: &BTreeMap<TaskId, SimulationHandle>,
    task: &TaskId,
) -> Result<(), String> {
    for record in &parent.witness.records {
        let Record::Result(result) = record else { continue };
        if result.name != sabir_agent::control::NEW_TASK_TOOL || result.ending.is_error() {
            continue;
        }
        let id = task.child_id(&result.id);
        let Some(member) = members.get(&id) else { return Err(format!("{id} never was, and has a result")) };
        let told = parent.witness.reported_tokens(&result.id);
        member.with_state(|state| match state.witness.records.last() {
            Some(Record::Ended { message, .. }) if *message == result.content => {
                let took = state.witness.output_tokens();
                if took == told {
                    Ok(())
                } else {
                    Err(format!("{id} took {took} tokens, and its parent knows of {told}"))
                }
            }
            last => Err(format!("{id} ends with {last:?}, and its parent was told {:?}", result.content)),
        })?;
    }
    Ok(())
}
