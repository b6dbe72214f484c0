//! The family: a task with its subtasks, which live and die in one process.
//!
//! Each member has a scene of its own, with its own journal, model, tools and witness. What they share is here: whether the process
//! is gone, who is at work, and how many turns were made in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::control::Delegation;
use sabir_agent::{
    Arguments, Attended, Child, Completed, Household, Limits, NewTask, Opened, Origin, Permit, Progress, Record,
    Registry, Start, TaskId, Tool, ToolOutput, ToolWork,
};
use sabir_call::{CallId, ToolError, ToolSpec};
use tokio::sync::Notify;

use crate::laws::Law;
use crate::life::{Found, Lives};
use crate::model::SimulatedModel;
use crate::sabotage::Sabotage;
use crate::scene::{Scene, State};
use crate::store::WatchedStore;
use crate::user::SimulatedUser;
use crate::work;

/// What the members share.
#[derive(Clone, Default)]
pub(crate) struct Family(Arc<Shared>);

#[derive(Default)]
struct Shared {
    gone: AtomicBool,
    /// Turns in this process.
    turns: AtomicU32,
    life: Mutex<Life>,
    /// The subtasks that ever were.
    members: Mutex<BTreeMap<TaskId, Scene>>,
}

/// One process.
#[derive(Default)]
struct Life {
    over: Arc<Notify>,
    /// Who was opened, and under which task.
    opened: BTreeSet<TaskId>,
    at_work: BTreeMap<TaskId, TaskId>,
    /// How many turns all of them may make.
    most: Option<u32>,
}

/// A subtask that is at work, until this is dropped.
pub(crate) struct AtWork(Family, TaskId);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.life().at_work.remove(&self.1);
    }
}

impl Family {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.0.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process, in which all may make so many turns.
    pub(crate) fn begin_life(&self, most: Option<u32>) {
        self.0.gone.store(false, Ordering::Relaxed);
        self.0.turns.store(0, Ordering::Relaxed);
        *self.life() = Life { most, ..Life::default() };
    }

    /// The process is gone.
    pub(crate) fn crash(&self) {
        self.0.gone.store(true, Ordering::Relaxed);
        self.end();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }

    /// Nothing goes on.
    pub(crate) fn end(&self) {
        self.life().over.notify_one();
    }

    pub(crate) fn over(&self) -> Arc<Notify> {
        Arc::clone(&self.life().over)
    }

    pub(crate) fn count_turn(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// The turns that were made, where no more may be.
    pub(crate) fn spent(&self) -> Option<u32> {
        let turns = self.0.turns.load(Ordering::Relaxed);
        self.life().most.is_some_and(|most| turns >= most).then_some(turns)
    }

    /// The subtasks so far.
    pub(crate) fn members(&self) -> BTreeMap<TaskId, Scene> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A subtask that is at work.
    pub(crate) fn anybody(&self) -> Option<TaskId> {
        self.life().at_work.keys().next().cloned()
    }

    /// Whether that one is opened for the first time in this process, and how many of its parent's are at work with it.
    fn open(&self, task: &TaskId, parent: &TaskId) -> (bool, usize) {
        let mut life = self.life();
        let new = life.opened.insert(task.clone());
        life.at_work.insert(task.clone(), parent.clone());
        (new, life.at_work.values().filter(|of| *of == parent).count())
    }

    fn member(&self, task: &TaskId, make: impl FnOnce() -> Scene) -> (Scene, bool) {
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        let known = members.contains_key(task);
        (members.entry(task.clone()).or_insert_with(make).clone(), known)
    }
}

/// A task that may have subtasks.
pub(crate) struct Parent {
    scene: Scene,
    start: Start,
}

/// A tool whose work goes on when nobody waits for it any more (sabotage).
struct Detached(Arc<NewTask>);

/// The tools of a task, the one for subtasks among them where it may have some.
///
/// # Errors
/// None that could happen: the specs are fixed.
pub(crate) fn registry(scene: &Scene, start: &Start) -> Result<Registry, ToolError> {
    let (depth, sabotage) = scene.with(|state| (state.plan.terms.limits.subtasks.depth, state.sabotage));
    let parent = Parent { scene: scene.clone(), start: start.clone() };
    let tool = Arc::new(NewTask::new(Arc::new(parent)));
    let tool: Arc<dyn Tool> = match sabotage {
        Some(Sabotage::LetSubtasksGoOn) => Arc::new(Detached(tool)),
        _ => tool,
    };
    work::registry(scene, (depth > 0).then_some(tool))
}

impl Household for Parent {
    fn child(&self, call: &CallId, delegation: &Delegation, left: Limits) -> Result<Opened, String> {
        let id = self.start.task.child(call);
        let depth = self.start.depth() + 1;
        let todos = delegation.todos.as_ref().map(|todos| todos.text().to_owned());
        let from = Some(Origin::Subtask { task: self.start.task.clone(), call: call.clone(), depth, todos });
        let (scene, guard) = self.scene.with(|state| open(state, &id, &self.start.task, delegation, left))?;
        let start = scene.with(|state| Start { task: id, from, ..state.plan.start(0) });
        let registry = registry(&scene, &start).map_err(|error| error.to_string())?;
        let lives = Lives::new(scene.clone(), registry.clone(), start);
        let mut woken = match lives.find() {
            Found::Task(woken) => *woken,
            Found::Nothing => return Err("Its journal cannot be opened.".to_owned()),
            Found::Over => {
                let completed = scene.with(|state| Completed::of(&state.witness.records));
                scene.with(|state| state.figures.count("subtasks found completed"));
                return completed.map(Opened::Completed).ok_or_else(|| "It has no journal.".to_owned());
            }
        };
        scene.with(State::wake);
        if woken.first.is_none() && scene.with(|state| state.sabotage == Some(Sabotage::BeginSubtasksAnew)) {
            let (task, first) = lives.anew();
            (woken.task, woken.first) = (task, Some(first));
        }
        Ok(Opened::Working(Box::new(Child {
            task: woken.task,
            first: woken.first,
            store: Box::new(WatchedStore { scene: scene.clone(), journal: woken.journal, held: None }),
            model: Arc::new(SimulatedModel { scene: scene.clone(), registry: registry.clone() }),
            registry,
            user: Box::new(SimulatedUser { scene, _at_work: Some(guard) }),
            max_time: None,
        })))
    }
}

/// Sets the scene for a subtask: a new one, or the one where it was at work before.
fn open(
    state: &mut State,
    id: &TaskId,
    parent: &TaskId,
    delegation: &Delegation,
    left: Limits,
) -> Result<(Scene, AtWork), String> {
    state.happens(|| format!("the subtask {id} is opened"));
    if state.crashed() {
        return Err("The machine is gone.".to_owned());
    }
    let family = state.family.clone();
    let (new, together) = family.open(id, parent);
    if !new {
        state.broken(Law::Family, format!("{id} is begun twice"));
    }
    let limits = state.plan.terms.limits.subtasks;
    if limits.depth == 0 || left.subtasks.depth >= limits.depth {
        state.broken(Law::Family, format!("{id} stands too deep"));
    }
    if together > limits.at_once {
        state.broken(Law::Family, format!("{together} subtasks of {parent} are at work"));
    }
    if together > 1 {
        state.figures.count("subtasks at once");
    }
    let seed = state.chance.below(u64::MAX);
    let (plan, sabotage, traced) = (state.plan.clone(), state.sabotage, state.is_traced());
    let (scene, known) = family.member(id, || Scene::of(family.clone(), seed, sabotage, traced));
    state.figures.count(if known { "subtasks gone on with" } else { "subtasks begun" });
    scene.with(|child| {
        let own = &mut child.plan;
        own.is_subtask = true;
        own.prompt.clone_from(&delegation.message);
        own.disk_trouble = plan.disk_trouble;
        own.user.by_channel = true;
        if own.user.attended == Attended::Yes {
            own.user.attended = Attended::Program;
        }
        own.model.length = own.model.length.min(4);
        own.terms.time = None;
        own.terms.limits = least(own.terms.limits, left);
        child.witness.terms = child.plan.terms.clone();
        child.begin_life(true);
    });
    Ok((scene, AtWork(family, id.clone())))
}

/// The stricter of both.
fn least(own: Limits, left: Limits) -> Limits {
    fn least<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
        one.into_iter().chain(two).min()
    }
    Limits {
        turns: least(own.turns, left.turns),
        tokens: least(own.tokens, left.tokens),
        cost: least(own.cost, left.cost),
        subtasks: left.subtasks,
        ..own
    }
}

impl Tool for Detached {
    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    fn reads_only(&self) -> bool {
        self.0.reads_only()
    }

    fn access(&self, arguments: &Arguments) -> sabir_policy::Access {
        self.0.access(arguments)
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, _: Progress<'a>) -> ToolWork<'a> {
        let (tool, permit, arguments) = (Arc::clone(&self.0), permit.clone(), arguments.clone());
        let work = tokio::spawn(async move { tool.run(&permit, &arguments, &mut |_| {}).await });
        Box::pin(async move { work.await.unwrap_or_else(|error| ToolOutput::failed(error.to_string())) })
    }
}

/// Whether what a parent was told of its subtasks is what those have on record.
pub(crate) fn same_results(parent: &State, members: &BTreeMap<TaskId, Scene>, task: &TaskId) -> Result<(), String> {
    for record in &parent.witness.records {
        let Record::Result(result) = record else { continue };
        if result.name != sabir_agent::control::SUBTASK || result.ending.is_error() {
            continue;
        }
        let id = task.child(&result.id);
        let Some(member) = members.get(&id) else { return Err(format!("{id} never was, and has a result")) };
        let told = parent.witness.told(&result.id);
        member.with(|state| match state.witness.records.last() {
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
