//! The task tree: a task with its subtasks, which run in one process.
//!
//! Each member has its own simulation state with its own journal, model, tools and observations. This module holds the shared part: whether
//! the process is gone, which tasks are running, and how many turns they made.
//!
//! A subtask keeps its state over all processes of its parent, as its journal does. This module
//! checks the invariants of subtasks: no subtask is started twice in a process, too deep, or beside too
//! many others; none runs after its parent has ended; and its parent has the result and the totals
//! of its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::control::SubtaskRequest;
use sabir_agent::{
    CallArguments, CallPermit, CompletedSubtask, Interactivity, NewTaskTool, PreparedCall,
    ProgressSink, Record, SubtaskHandle, SubtaskRun, SubtaskSpawnError, SubtaskSpawner, TaskId,
    TaskLimits, TaskOrigin, TaskStart, Tool, ToolFuture, ToolOutput, ToolRegistry,
};
use sabir_call::{CallId, ToolError, ToolSpec};
use tokio::sync::Notify;

use crate::invariants::{Invariant, Violation};
use crate::model::SimulatedModel;
use crate::process_run::{OpenOutcome, ProcessRunner};
use crate::sabotage::Sabotage;
use crate::simulated_tools;
use crate::simulation_state::{SimulationHandle, SimulationState};
use crate::store::WatchedStore;
use crate::user::SimulatedUser;

/// The state that all members of the tree share.
#[derive(Clone, Default)]
pub(crate) struct TaskTree(Arc<TreeState>);

#[derive(Default)]
struct TreeState {
    /// True after a crash, until the next process begins. Code that still runs has no effect then.
    gone: AtomicBool,
    /// The number of turns in the current process.
    turns: AtomicU32,
    /// It is locked after the state of a task, never before it.
    process: Mutex<ProcessState>,
    /// All subtasks of all processes.
    members: Mutex<BTreeMap<TaskId, SimulationHandle>>,
}

/// The state of the current process.
#[derive(Default)]
struct ProcessState {
    /// Wakes the simulation, which then drops the process.
    over: Arc<Notify>,
    /// The subtasks that were opened.
    opened: BTreeSet<TaskId>,
    /// The running subtasks, each with its parent.
    at_work: BTreeMap<TaskId, TaskId>,
    /// The maximum number of turns that all tasks together may make.
    most: Option<u32>,
}

/// Marks a subtask as running until it is dropped.
pub(crate) struct ActiveGuard(TaskTree, TaskId);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.lock_process().at_work.remove(&self.1);
    }
}

impl TaskTree {
    /// Locks the state of the current process. A panic of another holder leaves it usable.
    fn lock_process(&self) -> MutexGuard<'_, ProcessState> {
        self.0
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new process with a limit on the turns of all tasks together.
    pub(crate) fn begin_process(&self, most: Option<u32>) {
        // Relaxed, here and below: all of it runs on one thread.
        self.0.gone.store(false, Ordering::Relaxed);
        self.0.turns.store(0, Ordering::Relaxed);
        // A new `over` as well: a signal to the process before must not end this one.
        *self.lock_process() = ProcessState {
            most,
            ..ProcessState::default()
        };
    }

    /// Marks the process as gone.
    pub(crate) fn crash(&self) {
        self.0.gone.store(true, Ordering::Relaxed);
        self.end_process();
    }

    /// Reports whether the process has crashed.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }

    /// Wakes the simulation, so that it ends the process.
    pub(crate) fn end_process(&self) {
        self.lock_process().over.notify_one();
    }

    /// Returns the signal of the current process. The next process has another one.
    pub(crate) fn end_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.lock_process().over)
    }

    /// Counts an answer of any task of the tree.
    pub(crate) fn count_turn(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of turns if the limit is reached.
    pub(crate) fn exhausted_turns(&self) -> Option<u32> {
        let turns = self.0.turns.load(Ordering::Relaxed);
        self.lock_process()
            .most
            .is_some_and(|most| turns >= most)
            .then_some(turns)
    }

    /// Returns all subtasks so far.
    pub(crate) fn all_members(&self) -> BTreeMap<TaskId, SimulationHandle> {
        self.0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns any subtask that is running.
    pub(crate) fn any_active(&self) -> Option<TaskId> {
        self.lock_process().at_work.keys().next().cloned()
    }

    /// Marks a subtask as running. Returns whether it is the first time in this process, and how many subtasks of the same parent are
    /// running, including this one.
    fn open_member(&self, task: &TaskId, parent: &TaskId) -> (bool, usize) {
        let mut process = self.lock_process();
        let new = process.opened.insert(task.clone());
        process.at_work.insert(task.clone(), parent.clone());
        (
            new,
            process.at_work.values().filter(|of| *of == parent).count(),
        )
    }

    /// Returns the state of a subtask, and whether it existed before. A subtask keeps its state,
    /// with journal and observations, over all processes.
    fn get_or_insert(
        &self,
        task: &TaskId,
        make: impl FnOnce() -> SimulationHandle,
    ) -> (SimulationHandle, bool) {
        let mut members = self
            .0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = members.contains_key(task);
        (
            members.entry(task.clone()).or_insert_with(make).clone(),
            known,
        )
    }
}

/// Spawns the subtasks of one task.
pub(crate) struct SimulatedSpawner {
    /// The state of the parent.
    simulation: SimulationHandle,
    /// The start of the parent, which the ids and depths of subtasks follow from.
    start: TaskStart,
}

/// A tool that continues to run when its caller is dropped (sabotage).
///
/// The real driver drops the work of a parent that ends. Here the work is on its own task of the
/// runtime, so that nothing ends it.
struct DetachedTool(Arc<NewTaskTool>);

/// Builds the tools of a task, including the one for subtasks if the task may have them.
///
/// # Errors
/// Returns an error only if one of the fixed specs is invalid.
// One registry for each task, because the tool for subtasks knows its parent.
pub(crate) fn build_registry(
    simulation: &SimulationHandle,
    start: &TaskStart,
) -> Result<ToolRegistry, ToolError> {
    // Without levels left the tool is not offered at all, as in the real setup.
    let (depth, sabotage) =
        simulation.with_state(|state| (state.plan.terms.limits.subtasks.depth, state.sabotage));
    let parent = SimulatedSpawner {
        simulation: simulation.clone(),
        start: start.clone(),
    };
    let tool = Arc::new(NewTaskTool::new(Arc::new(parent)));
    let tool: Arc<dyn Tool> = match sabotage {
        Some(Sabotage::KeepSubtasksRunning) => Arc::new(DetachedTool(tool)),
        _ => tool,
    };
    simulated_tools::base_registry(simulation, (depth > 0).then_some(tool))
}

impl SubtaskSpawner for SimulatedSpawner {
    fn spawn(
        &self,
        call: &CallId,
        delegation: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskSpawnError> {
        let id = self.start.task.child_id(call);
        let depth = self.start.depth() + 1;
        let todos = delegation
            .todos
            .as_ref()
            .map(|todos| todos.text().to_owned());
        let from = Some(TaskOrigin::Subtask {
            task: self.start.task.clone(),
            call: call.clone(),
            depth,
            todos,
        });
        // The child's state is prepared under the parent's lock, so that no other event comes in
        // between.
        let opened = self
            .simulation
            .with_state(|state| open_subtask(state, &id, &self.start.task, delegation, left));
        let (simulation, guard) =
            opened.ok_or_else(|| SubtaskSpawnError::Journal("The machine is gone.".to_owned()))?;
        let start = simulation.with_state(|state| TaskStart {
            task: id,
            from,
            ..state.plan.start_record(0)
        });
        let registry = build_registry(&simulation, &start)
            .map_err(|error| SubtaskSpawnError::Setup(error.to_string()))?;
        let runner = ProcessRunner::new(simulation.clone(), registry.clone(), start);
        let mut opened_task = match runner.open_task() {
            OpenOutcome::Task(opened_task) => *opened_task,
            OpenOutcome::Nothing => {
                return Err(SubtaskSpawnError::Journal(
                    "Its journal cannot be opened.".to_owned(),
                ));
            }
            OpenOutcome::Over => {
                let completed = simulation.with_state(|state| {
                    CompletedSubtask::from_records(&state.observations.records)
                });
                simulation
                    .with_state(|state| state.counters.count_event("subtasks found completed"));
                return completed
                    .map(SubtaskHandle::Completed)
                    .ok_or_else(|| SubtaskSpawnError::Journal("It has no journal.".to_owned()));
            }
        };
        // After the journal was opened: from now on, records of this process count against the
        // limits.
        simulation.with_state(SimulationState::on_task_opened);
        if opened_task.first.is_none()
            && simulation.with_state(|state| state.sabotage == Some(Sabotage::RestartSubtasks))
        {
            let (task, first) = runner.new_task();
            opened_task.task = task;
            opened_task.first = Some(first);
        }
        Ok(SubtaskHandle::Working(Box::new(SubtaskRun {
            task: opened_task.task,
            first: opened_task.first,
            store: Box::new(WatchedStore {
                simulation: simulation.clone(),
                journal: opened_task.journal,
                held: None,
            }),
            model: Arc::new(SimulatedModel {
                simulation: simulation.clone(),
                registry: registry.clone(),
            }),
            registry,
            front_end: Box::new(SimulatedUser {
                simulation,
                _at_work: Some(guard),
            }),
            max_time: None,
            observers: Vec::new(),
        })))
    }
}

/// Prepares the simulation state of a subtask: a new one, or the one from earlier processes. Returns `None` if the machine crashed.
///
/// Also checks the invariants of subtasks: none is started twice, too deep, or beside too many others.
fn open_subtask(
    state: &mut SimulationState,
    id: &TaskId,
    parent: &TaskId,
    delegation: &SubtaskRequest,
    left: TaskLimits,
) -> Option<(SimulationHandle, ActiveGuard)> {
    state.on_event(|| format!("the subtask {id} is opened"));
    if state.has_crashed() {
        return None;
    }
    // A real spawner does not detect a second start. This one does, to check the invariant of subtasks.
    let tree = state.task_tree.clone();
    let (new, together) = tree.open_member(id, parent);
    if !new {
        state.report_violation(Invariant::Family, format!("{id} is begun twice"));
    }
    let limits = state.plan.terms.limits.subtasks;
    // What is left for the child must be less than what the parent has.
    if limits.depth == 0 || left.subtasks.depth >= limits.depth {
        state.report_violation(Invariant::Family, format!("{id} is nested too deeply"));
    }
    if together > limits.max_concurrent {
        state.report_violation(
            Invariant::Family,
            format!("{together} subtasks of {parent} are at work"),
        );
    }
    if together > 1 {
        state.counters.count_event("subtasks at once");
    }
    // Drawn also for a known subtask, so that the draws of the parent do not depend on it.
    let seed = state.rng.below(u64::MAX);
    let plan = state.plan.clone();
    let sabotage = state.sabotage;
    let traced = state.is_traced();
    let (simulation, known) = tree.get_or_insert(id, || {
        SimulationHandle::with_tree(tree.clone(), seed, sabotage, traced)
    });
    state.counters.count_event(if known {
        "subtasks continued"
    } else {
        "subtasks begun"
    });
    simulation.with_state(|child| {
        let own = &mut child.plan;
        own.is_subtask = true;
        own.prompt.clone_from(&delegation.message);
        // All tasks share one machine, so its disk fails for all of them or for none.
        own.disk_trouble = plan.disk_trouble;
        // The users of subtasks answer through the command channel.
        own.user.by_channel = true;
        if own.user.attended == Interactivity::Interactive {
            own.user.attended = Interactivity::Controlled;
        }
        // Subtasks are kept short.
        own.model.length = own.model.length.min(4);
        own.terms.time = None;
        own.terms.limits = strictest_limits(own.terms.limits, left);
        child.observations.terms = child.plan.terms.clone();
        // As the last process of its own: only the crash of the whole process ends a subtask early.
        child.begin_process(true);
    });
    Some((simulation, ActiveGuard(tree, id.clone())))
}

/// Returns the stricter one of each limit.
///
/// Mistakes and cycles are the subtask's own, since they count what one model does.
fn strictest_limits(own: TaskLimits, left: TaskLimits) -> TaskLimits {
    // `None` means no limit, so it must not win as the smallest value would.
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
    fn note_values_on_own_lines(&mut self, names: &[String]) {
        self.0.note_values_on_own_lines(names);
    }

    fn access(&self) -> sabir_policy::Access {
        self.0.access()
    }

    fn run<'a>(self: Box<Self>, permit: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        // The work owns everything, so it survives the future that waits for it. That is the
        // sabotage.
        let permit = permit.clone();
        let work = tokio::spawn(async move { self.0.run(&permit, &mut |_| {}).await });
        Box::pin(async move {
            work.await
                .unwrap_or_else(|error| ToolOutput::failed(error.to_string()))
        })
    }
}

/// Checks that the results and token counts that a parent has for its subtasks equal those in the journals of the subtasks.
pub(crate) fn check_results(
    parent: &SimulationState,
    members: &BTreeMap<TaskId, SimulationHandle>,
    task: &TaskId,
) -> Result<(), Violation> {
    let broken = |seen: String| {
        Err(Violation {
            invariant: Invariant::Family,
            seen,
        })
    };
    for record in &parent.observations.records {
        let Record::Result(result) = record else {
            continue;
        };
        // A failed subtask may have ended in any way; its parent has a failed result.
        if result.name != sabir_agent::control::NEW_TASK_TOOL || result.ending.is_error() {
            continue;
        }
        let id = task.child_id(&result.id);
        let Some(member) = members.get(&id) else {
            return broken(format!("{id} has a result and was never opened"));
        };
        // Compared with the child's own journal, not with what the child reported.
        let told = parent.observations.reported_tokens(&result.id);
        member.with_state(|state| match state.observations.records.last() {
            Some(Record::Ended { message, .. }) if *message == result.content => {
                let took = state.observations.output_tokens();
                if took == told {
                    Ok(())
                } else {
                    broken(format!(
                        "{id} took {took} tokens, and its parent knows of {told}"
                    ))
                }
            }
            last => broken(format!(
                "{id} ends with {last:?}, and its parent was told {:?}",
                result.content
            )),
        })?;
    }
    Ok(())
}
