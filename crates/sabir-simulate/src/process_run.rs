//! Lives: the processes that work on one task, one after the other, each on what the last one left on the disk.

use std::path::Path;
use std::time::Duration;

use sabir_agent::{
    CancelToken, Record, ReplayError, RequestContext, Task, TaskDriver, TaskId, TaskInput, TaskOutcome, TaskSettings,
    TaskStart, ToolRegistry,
};
use sabir_journal::{Journal, JournalEntry, JournalError, read_journal_on};
use tokio::time::{Instant, sleep};

use crate::compaction_run;
use crate::disk::SimulatedDisk;
use crate::history;
use crate::laws::{Law, Violation};
use crate::model::SimulatedModel;
use crate::sabotage::Sabotage;
use crate::simulation_state::{SimulationHandle, SimulationState};
use crate::store::WatchedStore;
use crate::task_tree::check_results;
use crate::user::SimulatedUser;
use crate::witness::UserActions;

/// Where the journals lie.
const JOURNAL_FOLDER: &str = "/home/tasks";
/// A life in which nothing happens is looked after once in this time.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2 * 3600);
/// No life is longer.
const MAX_RUN_TIME: Duration = Duration::from_secs(60 * 24 * 3600);
/// Of longer journals, so many beginnings are replayed.
const MAX_PREFIXES: u64 = 5;

/// What all lives of a task have in common.
pub(crate) struct ProcessRunner {
    scene: SimulationHandle,
    registry: ToolRegistry,
    start: TaskStart,
}

/// A task to go on with.
pub(crate) struct OpenedTask {
    pub(crate) task: Task,
    pub(crate) journal: Journal,
    /// The record of its start, for a new one.
    pub(crate) first: Option<Record>,
}

/// What a process finds.
pub(crate) enum OpenOutcome {
    /// A task to go on with.
    Task(Box<OpenedTask>),
    /// Nothing can be done now; perhaps the next process can.
    Nothing,
    /// The task is over.
    Over,
}

impl ProcessRunner {
    pub(crate) fn new(scene: SimulationHandle, registry: ToolRegistry, start: TaskStart) -> Self {
        Self { scene, registry, start }
    }

    fn id(&self) -> &TaskId {
        &self.start.task
    }

    fn disk(&self) -> SimulatedDisk {
        SimulatedDisk(self.scene.clone())
    }

    fn clock(&self) -> impl Fn() -> u64 + Send + 'static {
        let scene = self.scene.clone();
        move || scene.with_state(|state| state.elapsed_millis())
    }

    /// Lets all processes live, then looks at what they left.
    pub(crate) async fn run_all(&self) {
        let lives = self.scene.with_state(|state| state.plan.lives);
        for number in 1..=lives {
            let cancel = self.scene.with_state(|state| state.begin_process(number == lives));
            let over = self.run_process(cancel).await;
            self.adopt_violations();
            self.disturb_between_runs();
            if over || self.scene.with_state(|state| state.violation().is_some()) {
                break;
            }
        }
        self.scene.with_state(|state| {
            state.plan.disk_trouble = false;
            for (name, times) in state.witness.count_endings() {
                state.counters.add_events(name, u64::from(times));
            }
        });
        self.check_final_journal();
        for (id, scene) in self.scene.with_state(|state| state.task_tree.all_members()) {
            let start = scene.with_state(|state| TaskStart { task: id, ..state.plan.start(0) });
            scene.with_state(|state| state.plan.disk_trouble = false);
            Self { scene, registry: self.registry.clone(), start }.check_final_journal();
        }
        self.adopt_violations();
        self.check_subtask_results();
    }

    /// Every scene of the family, this one first.
    fn with_all_scenes(&self, look: impl Fn(&mut SimulationState)) {
        let members = self.scene.with_state(|state| {
            look(state);
            state.task_tree.all_members()
        });
        members.values().for_each(|scene| scene.with_state(&look));
    }

    /// Takes over what subtasks saw broken.
    fn adopt_violations(&self) {
        for scene in self.scene.with_state(|state| state.task_tree.all_members()).values() {
            let broken = scene.with_state(|state| state.violation().cloned());
            broken.into_iter().for_each(|violation| self.scene.with_state(|state| state.record_check(Err(violation))));
        }
    }

    fn check_subtask_results(&self) {
        let members = self.scene.with_state(|state| state.task_tree.all_members());
        let id = self.id().clone();
        let all = members.iter().map(|(id, scene)| (id.clone(), scene)).chain([(id, &self.scene)]);
        let told: Vec<_> =
            all.filter_map(|(id, scene)| scene.with_state(|state| check_results(state, &members, &id)).err()).collect();
        self.scene.with_state(|state| told.into_iter().for_each(|seen| state.report_violation(Law::Family, seen)));
    }

    /// What happens to the machine after a process has ended.
    fn disturb_between_runs(&self) {
        self.scene.with_state(|state| {
            let crashed = state.has_crashed();
            let power = state.rng.below(if crashed { 2 } else { 4 }) == 0;
            let SimulationState { disk_state: platter, rng: chance, counters: figures, .. } = state;
            match (crashed, power) {
                (_, true) => {
                    figures.count_event("power cuts");
                    if !crashed {
                        figures.count_event("crashes between two lives");
                    }
                    platter.cut_power(chance, figures);
                }
                (true, false) => {
                    figures.count_event("kills");
                    platter.release_locks();
                }
                _ => {}
            }
            state.trace_line(|| format!("--- the process is gone; crashed: {crashed}, power cut: {power}"));
            for scene in state.task_tree.all_members().values() {
                scene.with_state(|member| {
                    let SimulationState { disk_state: platter, rng: chance, counters: figures, .. } = member;
                    if power {
                        platter.cut_power(chance, figures)
                    } else if crashed {
                        platter.release_locks()
                    }
                    member.pause_disturbances();
                });
            }
            state.pause_disturbances();
            if state.rng.below(8) == 0 {
                state.counters.count_event("rules changed");
                state.witness.request_tracker.version += 1;
            }
        });
    }

    /// One life. True: the task is over.
    async fn run_process(&self, cancel: CancelToken) -> bool {
        let OpenedTask { mut task, journal, first } = match self.open_task() {
            OpenOutcome::Task(woken) => *woken,
            OpenOutcome::Nothing => return false,
            OpenOutcome::Over => return true,
        };
        let model = SimulatedModel { scene: self.scene.clone(), registry: self.registry.clone() };
        let mut store = WatchedStore { scene: self.scene.clone(), journal, held: None };
        self.scene.with_state(SimulationState::on_task_opened);
        if first.is_none() && self.scene.with_state(|state| state.rng.below(3) == 0) {
            tokio::select! {
                biased;
                () = self.scene.wait_for_end() => {}
                () = compaction_run::run_compaction(&self.scene, &mut task, &mut store, &model) => {}
            }
            return false;
        }
        let (max_time, words) = self.scene.with_state(|state| {
            let words =
                (first.is_none() && state.rng.below(3) == 0).then(|| state.user_script.unique_words("go on with it"));
            state.witness.user.replied.extend(words.clone());
            let time = state.plan.terms.time.filter(|_| state.sabotage != Some(Sabotage::NeverStop));
            (time, words)
        });
        let mut user = SimulatedUser { scene: self.scene.clone(), _at_work: None };
        let (registry, began) = (&self.registry, Instant::now());
        let driver = TaskDriver {
            model: &model,
            registry,
            store: &mut store,
            front_end: &mut user,
            observers: Vec::new(),
            cancel,
            max_time,
        };
        let end = {
            let mut run = std::pin::pin!(driver.run(&mut task, first, words));
            loop {
                tokio::select! {
                    biased;
                    () = self.scene.wait_for_end() => break None,
                    end = &mut run => break Some(end),
                    () = sleep(IDLE_CHECK_INTERVAL) => self.with_all_scenes(|state| {
                        state.resolve_stuck();
                        if began.elapsed() > MAX_RUN_TIME {
                            state.report_violation(Law::Ends, "nothing happens any more, and nobody is asked");
                        }
                    }),
                }
            }
        };
        // What is dropped is gone when its turn would come.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.scene.with_state(|state| {
            if let Some(left) = state.task_tree.any_active().filter(|_| end.is_some() && !state.has_crashed()) {
                state.report_violation(Law::Family, format!("{left} still works although its parent does not"));
            }
        });
        match end.filter(|_| !self.scene.with_state(|state| state.has_crashed() || state.violation().is_some())) {
            Some((outcome, message)) => self.check_end(&task, outcome, &message),
            None => false,
        }
    }

    /// Opens the journal, or begins one, and holds what is in it against what was acknowledged.
    pub(crate) fn open_task(&self) -> OpenOutcome {
        let opened = Journal::open_on(&self.disk(), Path::new(JOURNAL_FOLDER), self.id(), self.clock());
        let acknowledged = self.scene.with_state(|state| !state.witness.records.is_empty());
        let (journal, entries, recovery) = match opened {
            Err(JournalError::Missing { .. }) if !acknowledged => return self.create_task(),
            Err(JournalError::Io { .. }) => return OpenOutcome::Nothing,
            // Nobody was told that it was a journal.
            Err(JournalError::NotAJournal { .. }) if !acknowledged => return OpenOutcome::Over,
            Err(error) => {
                self.scene.with_state(|state| state.report_violation(Law::Survives, error.to_string()));
                return OpenOutcome::Over;
            }
            Ok(opened) => opened,
        };
        self.scene.with_state(|state| {
            if recovery.torn_bytes > 0 {
                state.counters.count_event("journals with a torn end");
            }
            state.trace_line(|| format!("opened with {} records, {recovery:?}", entries.len()));
        });
        if self.check_survived(into_records(entries)) { self.replay_task(journal) } else { OpenOutcome::Over }
    }

    fn create_task(&self) -> OpenOutcome {
        let Ok(journal) = Journal::create_on(&self.disk(), Path::new(JOURNAL_FOLDER), self.id(), self.clock()) else {
            return OpenOutcome::Nothing;
        };
        let (task, first) = self.new_task();
        OpenOutcome::Task(Box::new(OpenedTask { task, journal, first: Some(first) }))
    }

    /// The task at its beginning, with the record of its start.
    pub(crate) fn new_task(&self) -> (Task, Record) {
        let (task, first) = Task::new(self.start.clone(), self.settings());
        (task.with_context(self.context()), first)
    }

    fn settings(&self) -> TaskSettings {
        self.scene.with_state(|state| {
            state.plan.settings(self.registry.tool_set().clone(), self.registry.read_only_names(), state.sabotage)
        })
    }

    fn context(&self) -> RequestContext {
        self.scene.with_state(|state| state.plan.context(state.witness.request_tracker.version))
    }

    /// Whether what was found is what was acknowledged, but for a record that was being written.
    fn check_survived(&self, found: Vec<Record>) -> bool {
        self.scene.with_state(|state| match state.witness.check_recovered(found) {
            Ok(more) => {
                if more {
                    state.counters.count_event("unacknowledged records found");
                    state.witness.shown = state.witness.records.len();
                }
                state.witness.attempted = None;
                state.witness.user = UserActions { cancelled: state.witness.user.cancelled, ..UserActions::default() };
                true
            }
            Err(violation) => {
                state.record_check(Err(violation));
                false
            }
        })
    }

    fn replay_task(&self, journal: Journal) -> OpenOutcome {
        let mut records = self.scene.with_state(|state| state.witness.records.clone());
        if self.scene.with_state(|state| state.sabotage == Some(Sabotage::ForgetWhatRan)) {
            records.retain(|record| !matches!(record, Record::Running { .. }));
        }
        let completed = is_completed(&records);
        match Task::replay(records, self.settings()) {
            Ok(_) if completed => {
                self.scene.with_state(|state| state.report_violation(Law::Replay, "a completed task can be resumed"));
                OpenOutcome::Over
            }
            Ok(task) => OpenOutcome::Task(Box::new(OpenedTask {
                task: task.with_context(self.context()),
                journal,
                first: None,
            })),
            Err(ReplayError::Completed) if completed => OpenOutcome::Over,
            // The process ended before the first record was written down.
            Err(ReplayError::NoStart) => OpenOutcome::Over,
            Err(error) => {
                self.scene.with_state(|state| state.report_violation(Law::Replay, error.to_string()));
                OpenOutcome::Over
            }
        }
    }

    /// A life ended on its own: is the end what it says, and the task what its records say? True: the task is over.
    fn check_end(&self, task: &Task, outcome: TaskOutcome, message: &str) -> bool {
        let settings = self.settings();
        self.scene.with_state(|state| {
            let claims = state.sabotage == Some(Sabotage::ClaimCompletion);
            let outcome = if claims { TaskOutcome::Completed } else { outcome };
            state.trace_line(|| format!("ended: {outcome:?}"));
            state.counters.count_event(match outcome {
                TaskOutcome::Completed => "ended completed",
                TaskOutcome::Denied => "ended denied",
                TaskOutcome::Limit => limit_event_name(message),
                TaskOutcome::ProviderFailed | TaskOutcome::Misconfigured => "ended by the provider",
                TaskOutcome::Cancelled => "ended cancelled",
                TaskOutcome::StoreFailed => "ended by the store",
                _ => "ended unfinished",
            });
            let reviewed = state.plan.user.attended.is_interactive() && !state.witness.user.gone;
            state.record_check(state.witness.check_end(outcome, reviewed));
            state.record_check(history::check_history(task.history()));
            if outcome != TaskOutcome::StoreFailed {
                state.record_check(check_totals(state.witness.output_tokens(), task));
                state.record_check(check_replay(&state.witness.records, task, settings));
            }
            outcome == TaskOutcome::Completed
        })
    }

    /// Opens the journal a last time, and replays and forks it from any record.
    fn check_final_journal(&self) {
        if self.scene.with_state(|state| state.violation().is_some()) {
            return;
        }
        let read = read_journal_on(&self.disk(), Path::new(JOURNAL_FOLDER), self.id())
            .map(|(entries, _)| into_records(entries));
        let opened = Journal::open_on(&self.disk(), Path::new(JOURNAL_FOLDER), self.id(), self.clock());
        let opened = opened.map(|(_, entries, _)| into_records(entries));
        let records = match (read, opened) {
            (Ok(read), Ok(opened)) if read == opened => read,
            (Err(JournalError::Missing { .. } | JournalError::NotAJournal { .. }), Err(_)) => Vec::new(),
            (read, opened) => {
                let seen = format!("reading gives {read:?}, opening {opened:?}");
                return self.scene.with_state(|state| state.report_violation(Law::Survives, seen));
            }
        };
        if !self.check_survived(records.clone()) {
            return;
        }
        let lengths = self.scene.with_state(|state| {
            let all = records.len() as u64;
            let some = (0..MAX_PREFIXES).map(|_| state.rng.in_range(1, all)).collect();
            let lengths: Vec<u64> = if all <= MAX_PREFIXES { (1..=all).collect() } else { some };
            state.counters.add_events("prefixes replayed", lengths.len() as u64);
            lengths
        });
        for length in lengths {
            let prefix = records.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            let checked = check_fork(prefix, &self.settings(), &self.context());
            self.scene.with_state(|state| state.record_check(checked));
        }
    }
}

/// Which limit it was.
fn limit_event_name(message: &str) -> &'static str {
    let names = [("turns", "ended by turns"), ("tokens", "ended by tokens"), ("time", "ended by time")];
    names.into_iter().find(|(word, _)| message.contains(word)).map_or("ended by cost", |(_, name)| name)
}

fn into_records(entries: Vec<JournalEntry>) -> Vec<Record> {
    entries.into_iter().map(|entry| entry.record).collect()
}

fn is_completed(records: &[Record]) -> bool {
    matches!(records.last(), Some(Record::Ended { outcome: TaskOutcome::Completed, .. }))
}

fn check_totals(output: u64, task: &Task) -> Result<(), Violation> {
    let totals = task.totals().usage.output.unwrap_or(0);
    if totals == output {
        return Ok(());
    }
    Err(Violation { law: Law::Totals, seen: format!("the task says {totals} tokens, its records {output}") })
}

fn check_replay(records: &[Record], task: &Task, settings: TaskSettings) -> Result<(), Violation> {
    let broken = |law, seen: String| Err(Violation { law, seen });
    match Task::replay(records.iter().cloned(), settings) {
        Ok(again) if again.history() != task.history() => {
            broken(Law::Replay, format!("the history is {:?}, again {:?}", task.history(), again.history()))
        }
        Ok(again) if again.totals() != task.totals() => {
            broken(Law::Totals, format!("the totals are {:?}, again {:?}", task.totals(), again.totals()))
        }
        Ok(_) => Ok(()),
        Err(ReplayError::Completed) if is_completed(records) => Ok(()),
        Err(error) => broken(Law::Replay, error.to_string()),
    }
}

/// The task that a beginning of a journal makes, twice: the same, and with a whole history.
fn check_fork(prefix: &[Record], settings: &TaskSettings, context: &RequestContext) -> Result<(), Violation> {
    let broken = |seen: String| Err(Violation { law: Law::Replay, seen });
    let again =
        || Task::replay(prefix.iter().cloned(), settings.clone()).map(|task| task.with_context(context.clone()));
    let (mut one, mut two) = match (again(), again()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(ReplayError::Completed), Err(_)) if is_completed(prefix) => return Ok(()),
        (one, _) => return broken(format!("{} records cannot be replayed: {:?}", prefix.len(), one.err())),
    };
    history::check_history(one.history())?;
    let (first, second) = (one.step(TaskInput::Begin), two.step(TaskInput::Begin));
    if first != second || one.history() != two.history() || one.totals() != two.totals() {
        return broken(format!("{} records go on as {first:?} and as {second:?}", prefix.len()));
    }
    if first.is_empty() {
        return Err(Violation {
            law: Law::Ends,
            seen: format!("after {} records nothing is to be done", prefix.len()),
        });
    }
    history::check_history(one.history())
}
