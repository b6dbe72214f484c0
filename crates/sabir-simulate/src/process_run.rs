//! Runs the processes of a simulated task, one after the other. Each one continues from the disk that the last one left.
//!
//! One process opens the journal, compares it with what was acknowledged, replays the task and
//! drives it until it ends or crashes. Between two processes the power may be cut, which takes a
//! random part of what was not synced. After the last one, the journal is read once more, and
//! prefixes of it are replayed as forks.
//! A crash is simulated in two steps: all simulated parts stop having effects, then the driver's
//! future is dropped. So the order of events is that of a kill, although the whole test runs in one
//! thread.

use std::path::Path;
use std::time::Duration;

use sabir_agent::{
    CancelToken, Record, ReplayError, RequestContext, Task, TaskDriver, TaskId, TaskInput,
    TaskOutcome, TaskSettings, TaskStart, ToolRegistry,
};
use sabir_journal::{Journal, JournalEntry, JournalError, read_journal_on};
use tokio::time::{Instant, sleep};

use crate::compaction_run;
use crate::disk::SimulatedDisk;
use crate::history;
use crate::invariants::{Invariant, Violation};
use crate::model::SimulatedModel;
use crate::observations::UserActions;
use crate::sabotage::Sabotage;
use crate::simulation_state::{SimulationHandle, SimulationState};
use crate::store::WatchedStore;
use crate::task_tree::check_results;
use crate::user::SimulatedUser;

/// The folder of the journals.
const JOURNAL_FOLDER: &str = "/home/tasks";
/// The interval at which a process is checked for being stuck.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2 * 3600);
/// The longest run of a process on the simulated clock; a longer one does not end.
const MAX_RUN_TIME: Duration = Duration::from_secs(60 * 24 * 3600);
/// The number of prefixes that are replayed of a journal with more records than that.
const MAX_PREFIXES: u64 = 5;

/// The parts that all processes of a task share.
pub(crate) struct ProcessRunner {
    /// The state of the task.
    simulation: SimulationHandle,
    /// The tools. They outlive processes, and hold no state but that of the simulation.
    registry: ToolRegistry,
    /// The start of the task, for its journal.
    start: TaskStart,
}

/// A task that was opened or created.
pub(crate) struct OpenedTask {
    /// The task, paused.
    pub(crate) task: Task,
    /// Its journal, which is locked until this is dropped.
    pub(crate) journal: Journal,
    /// The start record of a new task; `None` for a resumed one.
    pub(crate) first: Option<Record>,
}

/// The result of opening a task.
pub(crate) enum OpenOutcome {
    /// A task that can begin or continue.
    Task(Box<OpenedTask>),
    /// The disk failed; the next process may succeed.
    Nothing,
    /// The task is over.
    Over,
}

impl ProcessRunner {
    /// Creates the runner of a task.
    pub(crate) fn new(
        simulation: SimulationHandle,
        registry: ToolRegistry,
        start: TaskStart,
    ) -> Self {
        Self {
            simulation,
            registry,
            start,
        }
    }

    /// Returns the id of the task, which names its journal.
    fn task_id(&self) -> &TaskId {
        &self.start.task
    }

    /// Returns a handle of the disk. All handles share its content.
    fn simulated_disk(&self) -> SimulatedDisk {
        SimulatedDisk(self.simulation.clone())
    }

    /// Returns the clock of the journal, in milliseconds since the task began.
    fn simulated_clock(&self) -> impl Fn() -> u64 + Send + 'static {
        let simulation = self.simulation.clone();
        move || simulation.with_state(|state| state.elapsed_millis())
    }

    /// Runs all processes, and then checks the journals that they left.
    pub(crate) async fn run_all(&self) {
        let lives = self.simulation.with_state(|state| state.plan.lives);
        for number in 1..=lives {
            let cancel = self
                .simulation
                .with_state(|state| state.begin_process(number == lives));
            // Adopts violations of subtasks; otherwise the next process would begin in spite of
            // them.
            let over = self.run_process(cancel).await;
            self.adopt_violations();
            self.disturb_between_runs();
            if over
                || self
                    .simulation
                    .with_state(|state| state.violation().is_some())
            {
                break;
            }
        }
        self.simulation.with_state(|state| {
            // From here on nothing is tested but the content of the disk.
            state.plan.disk_trouble = false;
            for (name, times) in state.observations.count_endings() {
                state.counters.add_events(name, u64::from(times));
            }
        });
        self.check_final_journal();
        // Each subtask has a journal of its own, for which the same invariants hold.
        for (id, simulation) in self
            .simulation
            .with_state(|state| state.task_tree.all_members())
        {
            let start = simulation.with_state(|state| TaskStart {
                task: id,
                ..state.plan.start_record(0)
            });
            simulation.with_state(|state| state.plan.disk_trouble = false);
            Self {
                simulation,
                registry: self.registry.clone(),
                start,
            }
            .check_final_journal();
        }
        self.adopt_violations();
        self.check_subtask_results();
    }

    /// Calls a function with the state of every task of the tree, this one first.
    fn with_all_states(&self, look: impl Fn(&mut SimulationState)) {
        let members = self.simulation.with_state(|state| {
            look(state);
            state.task_tree.all_members()
        });
        members
            .values()
            .for_each(|simulation| simulation.with_state(&look));
    }

    /// Adopts the violations that subtasks have seen.
    fn adopt_violations(&self) {
        for simulation in self
            .simulation
            .with_state(|state| state.task_tree.all_members())
            .values()
        {
            let broken = simulation.with_state(|state| state.violation().cloned());
            broken.into_iter().for_each(|violation| {
                self.simulation
                    .with_state(|state| state.record_check(Err(violation)))
            });
        }
    }

    /// Compares the records that each task has about its subtasks to their journals.
    fn check_subtask_results(&self) {
        let members = self
            .simulation
            .with_state(|state| state.task_tree.all_members());
        let id = self.task_id().clone();
        let all = members
            .iter()
            .map(|(id, simulation)| (id.clone(), simulation))
            .chain([(id, &self.simulation)]);
        let told: Vec<_> = all
            .filter_map(|(id, simulation)| {
                simulation
                    .with_state(|state| check_results(state, &members, &id))
                    .err()
            })
            .collect();
        self.simulation.with_state(|state| {
            told.into_iter()
                .for_each(|seen| state.record_check(Err(seen)))
        });
    }

    /// Disturbs the machine after a process has ended: cuts the power, kills the process, or changes the instructions.
    ///
    /// Subtasks are on the same machine, so a power cut affects their journals too.
    fn disturb_between_runs(&self) {
        self.simulation.with_state(|state| {
            let crashed = state.has_crashed();
            // The power is cut after half of the crashes and a quarter of the regular ends.
            let power = state.rng.below(if crashed { 2 } else { 4 }) == 0;
            let SimulationState {
                disk_state,
                rng,
                counters,
                ..
            } = state;
            match (crashed, power) {
                // A power cut discards unsynced data; a kill ends only the process and releases its
                // locks.
                (_, true) => {
                    counters.count_event("power cuts");
                    if !crashed {
                        counters.count_event("crashes between two lives");
                    }
                    disk_state.cut_power(rng, counters);
                }
                (true, false) => {
                    counters.count_event("kills");
                    disk_state.release_locks();
                }
                _ => {}
            }
            state.trace_line(|| {
                format!("--- the process is gone; crashed: {crashed}, power cut: {power}")
            });
            for simulation in state.task_tree.all_members().values() {
                simulation.with_state(|member| {
                    let SimulationState {
                        disk_state,
                        rng,
                        counters,
                        ..
                    } = member;
                    if power {
                        disk_state.cut_power(rng, counters)
                    } else if crashed {
                        disk_state.release_locks()
                    }
                    // Subtasks run on the same machine, so its crash affects them too.
                    member.pause_disturbances();
                });
            }
            state.pause_disturbances();
            // Somebody edits the instruction file between two processes.
            if state.rng.below(8) == 0 {
                state.counters.count_event("rules changed");
                state.observations.request_tracker.version += 1;
            }
        });
    }

    /// Runs one process. Returns true if the task is over.
    ///
    /// A crash, a broken invariant and a failed disk end it as well; the next process then begins from
    /// the disk.
    async fn run_process(&self, cancel: CancelToken) -> bool {
        let OpenedTask {
            mut task,
            journal,
            first,
        } = match self.open_task() {
            OpenOutcome::Task(opened_task) => *opened_task,
            OpenOutcome::Nothing => return false,
            OpenOutcome::Over => return true,
        };
        let model = SimulatedModel {
            simulation: self.simulation.clone(),
            registry: self.registry.clone(),
        };
        let mut store = WatchedStore {
            simulation: self.simulation.clone(),
            journal,
            held: None,
        };
        self.simulation.with_state(SimulationState::on_task_opened);
        // Some processes only compact the context, as a user can between two runs. This requires a
        // task that has begun.
        if first.is_none() && self.simulation.with_state(|state| state.rng.below(3) == 0) {
            tokio::select! {
                biased;
                () = self.simulation.wait_for_end() => {}
                () = compaction_run::run_compaction(&self.simulation, &mut task, &mut store, &model) => {}
            }
            return false;
        }
        let (max_time, words) = self.simulation.with_state(|state| {
            let words = (first.is_none() && state.rng.below(3) == 0)
                .then(|| state.user_script.unique_message("go on with it"));
            // Registered before the message is sent, because its record is checked against it.
            state.observations.user.replied.extend(words.clone());
            let time = state
                .plan
                .terms
                .time
                .filter(|_| state.sabotage != Some(Sabotage::NeverStop));
            (time, words)
        });
        let mut user = SimulatedUser {
            simulation: self.simulation.clone(),
            _at_work: None,
        };
        let began = Instant::now();
        let driver = TaskDriver {
            model: &model,
            registry: &self.registry,
            store: &mut store,
            front_end: &mut user,
            observers: Vec::new(),
            cancel,
            max_time,
        };
        let end = {
            // Dropping this future in the middle is what a kill is to the task.
            let mut run = std::pin::pin!(driver.run(&mut task, first, words));
            loop {
                // Biased, so that the order of events does not depend on the runtime.
                tokio::select! {
                    biased;
                    () = self.simulation.wait_for_end() => break None,
                    end = &mut run => break Some(end),
                    // The clock is paused and jumps ahead when nothing can run, so this fires when
                    // everything waits, and after two hours of work.
                    () = sleep(IDLE_CHECK_INTERVAL) => self.with_all_states(|state| {
                        state.resolve_stuck();
                        if began.elapsed() > MAX_RUN_TIME {
                            state.report_violation(Invariant::Ends, "nothing happens any more, and nobody is asked");
                        }
                    }),
                }
            }
        };
        // Dropped work ends only when the runtime polls it, so every task gets a few turns.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.simulation.with_state(|state| {
            // A task that has ended must have ended its subtasks first.
            if let Some(left) = state
                .task_tree
                .any_active()
                .filter(|_| end.is_some() && !state.has_crashed())
            {
                state.report_violation(
                    Invariant::Family,
                    format!("{left} still works although its parent does not"),
                );
            }
        });
        // After a crash there is no end: the journal may lack records that the task already has.
        match end.filter(|_| {
            !self
                .simulation
                .with_state(|state| state.has_crashed() || state.violation().is_some())
        }) {
            Some(Ok((outcome, message))) => self.check_end(&task, outcome, &message),
            Some(Err(error)) => {
                self.simulation
                    .with_state(|state| state.report_violation(Invariant::Ends, error.to_string()));
                false
            }
            None => false,
        }
    }

    /// Opens the journal, or creates one, and compares its records with those that were acknowledged.
    pub(crate) fn open_task(&self) -> OpenOutcome {
        let opened = Journal::open_on(
            &self.simulated_disk(),
            Path::new(JOURNAL_FOLDER),
            self.task_id(),
            self.simulated_clock(),
        );
        let acknowledged = self
            .simulation
            .with_state(|state| !state.observations.records.is_empty());
        let (journal, entries, recovery) = match opened {
            // A journal without an acknowledged record may be missing, torn or empty; any other
            // must be whole.
            Err(JournalError::Missing { .. }) if !acknowledged => return self.create_task(),
            Err(JournalError::Io { .. }) => return OpenOutcome::Nothing,
            // The crash came before the header or the first record was acknowledged.
            Err(JournalError::NotAJournal { .. } | JournalError::DamagedStart { .. })
                if !acknowledged =>
            {
                return OpenOutcome::Over;
            }
            Err(error) => {
                self.simulation.with_state(|state| {
                    state.report_violation(Invariant::Survives, error.to_string())
                });
                return OpenOutcome::Over;
            }
            Ok(opened) => opened,
        };
        self.simulation.with_state(|state| {
            if recovery.torn_bytes > 0 {
                state.counters.count_event("journals with a torn end");
            }
            if recovery.damaged_bytes > 0 {
                state.counters.count_event("journals with a damaged end");
            }
            state.trace_line(|| format!("opened with {} records, {recovery:?}", entries.len()));
        });
        // Compared here, before anything new is appended.
        if self.check_survived(into_records(entries)) {
            self.replay_task(journal)
        } else {
            OpenOutcome::Over
        }
    }

    /// Creates the journal and the task. The start record is still to be appended.
    fn create_task(&self) -> OpenOutcome {
        let Ok(journal) = Journal::create_on(
            &self.simulated_disk(),
            Path::new(JOURNAL_FOLDER),
            self.task_id(),
            self.simulated_clock(),
        ) else {
            return OpenOutcome::Nothing;
        };
        let (task, first) = self.new_task();
        OpenOutcome::Task(Box::new(OpenedTask {
            task,
            journal,
            first: Some(first),
        }))
    }

    /// Returns a new task with its start record.
    pub(crate) fn new_task(&self) -> (Task, Record) {
        let (task, first) = Task::new(self.start.clone(), self.task_settings());
        (task.with_context(self.request_context()), first)
    }

    /// Returns the settings of the machine, with the tools of this task.
    fn task_settings(&self) -> TaskSettings {
        self.simulation.with_state(|state| {
            state.plan.task_settings(
                self.registry.tool_set().clone(),
                self.registry.read_only_tool_names(),
                state.sabotage,
            )
        })
    }

    /// Returns the context of requests, with the present version of the instructions.
    fn request_context(&self) -> RequestContext {
        self.simulation.with_state(|state| {
            state
                .plan
                .request_context(state.observations.request_tracker.version)
        })
    }

    /// Checks that the found records are the acknowledged ones, with at most one more that was being written.
    fn check_survived(&self, found: Vec<Record>) -> bool {
        self.simulation
            .with_state(|state| match state.observations.check_recovered(found) {
                Ok(more) => {
                    if more {
                        state.counters.count_event("unacknowledged records found");
                        state.observations.shown = state.observations.records.len();
                    }
                    // Decided now: the record was found, or it is lost.
                    state.observations.attempted = None;
                    // Approvals and answers hold for the process in which they were given. A
                    // resumed task asks again.
                    state.observations.user = UserActions {
                        cancelled: state.observations.user.cancelled,
                        ..UserActions::default()
                    };
                    true
                }
                Err(violation) => {
                    state.record_check(Err(violation));
                    false
                }
            })
    }

    /// Replays the acknowledged records. A completed task is over.
    fn replay_task(&self, journal: Journal) -> OpenOutcome {
        let mut records = self
            .simulation
            .with_state(|state| state.observations.records.clone());
        if self
            .simulation
            .with_state(|state| state.sabotage == Some(Sabotage::DropRunningRecords))
        {
            records.retain(|record| !matches!(record, Record::Running { .. }));
        }
        let completed = is_completed(&records);
        match Task::replay(records, self.task_settings()) {
            Ok(_) if completed => {
                self.simulation.with_state(|state| {
                    state.report_violation(Invariant::Replay, "a completed task can be resumed")
                });
                OpenOutcome::Over
            }
            Ok(task) => OpenOutcome::Task(Box::new(OpenedTask {
                task: task.with_context(self.request_context()),
                journal,
                first: None,
            })),
            Err(ReplayError::Completed) if completed => OpenOutcome::Over,
            // The process ended before the first record was written.
            Err(ReplayError::NoStart) => OpenOutcome::Over,
            Err(error) => {
                self.simulation.with_state(|state| {
                    state.report_violation(Invariant::Replay, error.to_string())
                });
                OpenOutcome::Over
            }
        }
    }

    /// Checks the end of a process that ended without a crash, and the task against its records. Returns true if the task is over.
    fn check_end(&self, task: &Task, outcome: TaskOutcome, message: &str) -> bool {
        let settings = self.task_settings();
        self.simulation.with_state(|state| {
            // Sabotage changes the outcome here, between the driver and the check.
            let claims = state.sabotage == Some(Sabotage::ClaimCompletion);
            let outcome = if claims {
                TaskOutcome::Completed
            } else {
                outcome
            };
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
            let reviewed = state.plan.user.attended.can_answer() && !state.observations.user.gone;
            state.record_check(state.observations.check_end(outcome, reviewed));
            state.record_check(history::check_history(task.history()));
            // After a failed append the task has applied a record that the journal lacks.
            if outcome != TaskOutcome::StoreFailed {
                state.record_check(check_totals(state.observations.output_tokens(), task));
                state.record_check(check_replay(&state.observations.records, task, settings));
            }
            // Every other outcome can be resumed.
            outcome == TaskOutcome::Completed
        })
    }

    /// Opens the journal a last time, and replays and forks prefixes of it.
    fn check_final_journal(&self) {
        if self
            .simulation
            .with_state(|state| state.violation().is_some())
        {
            return;
        }
        let read = read_journal_on(
            &self.simulated_disk(),
            Path::new(JOURNAL_FOLDER),
            self.task_id(),
        )
        .map(|(entries, _)| into_records(entries));
        let opened = Journal::open_on(
            &self.simulated_disk(),
            Path::new(JOURNAL_FOLDER),
            self.task_id(),
            self.simulated_clock(),
        );
        let opened = opened.map(|(_, entries, recovery)| {
            let mut records = into_records(entries);
            // Reading changes nothing, so it adds no record of the damage.
            if recovery.damaged_bytes > 0 {
                records.pop();
            }
            records
        });
        let records = match (read, opened) {
            // Reading repairs nothing and opening may cut a torn end; both must find the same
            // records.
            (Ok(read), Ok(opened)) if read == opened => read,
            // The task crashed before its journal was acknowledged.
            (
                Err(
                    JournalError::Missing { .. }
                    | JournalError::NotAJournal { .. }
                    | JournalError::DamagedStart { .. },
                ),
                Err(_),
            ) => Vec::new(),
            (read, opened) => {
                let seen = format!("reading gives {read:?}, opening {opened:?}");
                return self
                    .simulation
                    .with_state(|state| state.report_violation(Invariant::Survives, seen));
            }
        };
        if !self.check_survived(records.clone()) {
            return;
        }
        let lengths = self.simulation.with_state(|state| {
            let all = records.len() as u64;
            let some = (0..MAX_PREFIXES)
                .map(|_| state.rng.in_range(1, all))
                .collect();
            // Replaying every prefix of a long journal takes quadratic time, so a few are drawn.
            let lengths: Vec<u64> = if all <= MAX_PREFIXES {
                (1..=all).collect()
            } else {
                some
            };
            state
                .counters
                .add_events("prefixes replayed", lengths.len() as u64);
            lengths
        });
        for length in lengths {
            let prefix = records
                .get(..usize::try_from(length).unwrap_or(0))
                .unwrap_or_default();
            let checked = check_fork(prefix, &self.task_settings(), &self.request_context());
            self.simulation
                .with_state(|state| state.record_check(checked));
        }
    }
}

/// Returns the event for the limit that ended a task.
fn limit_event_name(message: &str) -> &'static str {
    let names = [
        ("turns", "ended by turns"),
        ("tokens", "ended by tokens"),
        ("time", "ended by time"),
    ];
    names
        .into_iter()
        .find(|(word, _)| message.contains(word))
        .map_or("ended by cost", |(_, name)| name)
}

/// Returns the records of entries, without their times.
fn into_records(entries: Vec<JournalEntry>) -> Vec<Record> {
    entries.into_iter().map(|entry| entry.record).collect()
}

/// Reports whether the last record completes the task.
fn is_completed(records: &[Record]) -> bool {
    matches!(
        records.last(),
        Some(Record::Ended {
            outcome: TaskOutcome::Completed,
            ..
        })
    )
}

/// Checks that the totals of a task are the sums of its records.
fn check_totals(output: u64, task: &Task) -> Result<(), Violation> {
    let totals = task.totals().usage.output.unwrap_or(0);
    if totals == output {
        return Ok(());
    }
    Err(Violation {
        invariant: Invariant::Totals,
        seen: format!("the task says {totals} tokens, its records {output}"),
    })
}

/// Checks that a replay of the records gives the same history and totals.
fn check_replay(records: &[Record], task: &Task, settings: TaskSettings) -> Result<(), Violation> {
    let broken = |invariant, seen: String| Err(Violation { invariant, seen });
    match Task::replay(records.iter().cloned(), settings) {
        Ok(again) if again.history() != task.history() => broken(
            Invariant::Replay,
            format!(
                "the history is {:?}, again {:?}",
                task.history(),
                again.history()
            ),
        ),
        Ok(again) if again.totals() != task.totals() => broken(
            Invariant::Totals,
            format!(
                "the totals are {:?}, again {:?}",
                task.totals(),
                again.totals()
            ),
        ),
        Ok(_) => Ok(()),
        Err(ReplayError::Completed) if is_completed(records) => Ok(()),
        Err(error) => broken(Invariant::Replay, error.to_string()),
    }
}

/// Replays a prefix of a journal twice. Both tasks must be equal, have a complete history and have something to do.
///
/// That is what a fork at this record would begin from. Nothing is appended, so the journal stays
/// as it is.
fn check_fork(
    prefix: &[Record],
    settings: &TaskSettings,
    context: &RequestContext,
) -> Result<(), Violation> {
    let broken = |seen: String| {
        Err(Violation {
            invariant: Invariant::Replay,
            seen,
        })
    };
    let again = || {
        Task::replay(prefix.iter().cloned(), settings.clone())
            .map(|task| task.with_context(context.clone()))
    };
    let (mut one, mut two) = match (again(), again()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(ReplayError::Completed), Err(_)) if is_completed(prefix) => return Ok(()),
        (one, _) => {
            return broken(format!(
                "{} records cannot be replayed: {:?}",
                prefix.len(),
                one.err()
            ));
        }
    };
    history::check_history(one.history())?;
    // A resumed task must have something to do: at least a request, a question or its end.
    let first = one.step(TaskInput::Begin);
    let second = two.step(TaskInput::Begin);
    if first != second || one.history() != two.history() || one.totals() != two.totals() {
        return broken(format!(
            "{} records continue as {first:?} and as {second:?}",
            prefix.len()
        ));
    }
    if first.is_empty() {
        return Err(Violation {
            invariant: Invariant::Ends,
            seen: format!("after {} records nothing is left to do", prefix.len()),
        });
    }
    history::check_history(one.history())
}
