//! The state that all parts of one simulated task share, behind one lock.
//!
//! Everything runs on one thread, so the order of all accesses follows from the simulated clock and the seed alone.
//!
//! Events are numbered. A process plans its disturbances (crash, interruption, unasked message) as
//! event numbers before it begins, and each happens at that number, whatever the task is doing
//! then. In this way disturbances reach every place in the code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{CancelToken, UserCommand};
use tokio::time::Instant;

use crate::counters::EventCounters;
use crate::disk_state::DiskState;
use crate::invariants::{Invariant, Violation};
use crate::observations::TaskObservations;
use crate::plan::TaskPlan;
use crate::rng::SeededRng;
use crate::sabotage::Sabotage;
use crate::task_tree::TaskTree;
use crate::user_script::UserScript;

/// The maximum number of events of a task; a task with more counts as endless.
const MAX_EVENTS: u64 = 30_000;

/// A handle to the shared state.
///
/// The lock is held for a moment at a time and never across an `await`, so the single thread cannot
/// block itself.
#[derive(Clone)]
pub(crate) struct SimulationHandle(Arc<Mutex<SimulationState>>);

/// The shared state of one simulated task.
pub(crate) struct SimulationState {
    /// The settings that the seed has drawn. Only the state of a subtask changes them, when it is
    /// opened.
    pub(crate) plan: TaskPlan,
    /// The source of all chance. A draw more or less changes everything after it.
    pub(crate) rng: SeededRng,
    /// The events of this task; those of its subtasks are in their own states.
    pub(crate) counters: EventCounters,
    /// The disk, which survives processes.
    pub(crate) disk_state: DiskState,
    /// The record of what happened, and the checks against it.
    pub(crate) observations: TaskObservations,
    /// The invariant that is broken on purpose, if one is.
    pub(crate) sabotage: Option<Sabotage>,
    /// The current activities, which decide what is counted.
    pub(crate) activity: ActivityFlags,
    /// The channel from the user, and the time of their next message.
    pub(crate) user_script: UserScript,
    /// The part that all tasks of the tree share.
    pub(crate) task_tree: TaskTree,
    trace: TraceLog,
    /// The first broken invariant.
    violation: Option<Violation>,
    disturbances: PlannedDisturbances,
}

/// The log of all events, if tracing is on.
struct TraceLog {
    /// The lines so far; `None` if tracing is off, so that no line is even formatted.
    lines: Option<Vec<String>>,
    /// The time at which the task began, on the simulated clock.
    began: Instant,
}

/// The current activities, which decide what is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ActivityFlags {
    /// The user is being asked.
    pub(crate) asking: bool,
    /// The model is answering.
    pub(crate) answering: bool,
    /// The model is writing a summary.
    pub(crate) summarising: bool,
    /// A completion is being checked.
    pub(crate) checking: bool,
}

/// The planned disturbances of a process, as event numbers.
#[derive(Default)]
struct PlannedDisturbances {
    /// The number of events so far, over all processes.
    events: u64,
    /// The event at which the process crashes.
    crash_at: Option<u64>,
    /// The event at which it has crashed.
    crashed_at: Option<u64>,
    /// The event at which the user interrupts.
    cancel_at: Option<u64>,
    /// Interrupts the task that is being driven. Each process has its own.
    cancel: CancelToken,
    /// The reason why the process waits forever, if it does.
    stuck: Option<StuckReason>,
}

/// The reason why a process cannot continue by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StuckReason {
    /// A tool hangs.
    Tool,
    /// The user never answers.
    User,
}

impl SimulationHandle {
    /// Creates the state of a task that the user starts, with a plan drawn from the seed.
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        Self::with_tree(TaskTree::default(), seed, sabotage, traced)
    }

    /// Creates the state of a task that belongs to a tree.
    pub(crate) fn with_tree(
        tree: TaskTree,
        seed: u64,
        sabotage: Option<Sabotage>,
        traced: bool,
    ) -> Self {
        let mut rng = SeededRng::new(seed);
        let plan = TaskPlan::from_rng(&mut rng);
        let observations = TaskObservations {
            terms: plan.terms.clone(),
            ..TaskObservations::default()
        };
        Self(Arc::new(Mutex::new(SimulationState {
            task_tree: tree,
            trace: TraceLog {
                lines: traced.then(|| vec![format!("{plan:?}")]),
                began: Instant::now(),
            },
            plan,
            rng,
            counters: EventCounters::default(),
            disk_state: DiskState::default(),
            observations,
            sabotage,
            activity: ActivityFlags::default(),
            user_script: UserScript::default(),
            violation: None,
            disturbances: PlannedDisturbances::default(),
        })))
    }

    /// Calls a function with the state.
    pub(crate) fn with_state<T>(&self, work: impl FnOnce(&mut SimulationState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the process is ended from outside, by a crash or a broken invariant.
    pub(crate) async fn wait_for_end(&self) {
        let over = self.with_state(|state| state.task_tree.end_signal());
        over.notified().await;
    }
}

impl SimulationState {
    /// Counts an event. Planned crashes, interruptions and unasked messages happen here.
    ///
    /// An event is anything that a simulated part does: an operation of the disk, a step of a tool,
    /// a record that is shown. The checks of the invariants that belong to it follow, unless the process
    /// has crashed in it.
    pub(crate) fn on_event(&mut self, what: impl FnOnce() -> String) {
        // Counted even after a crash, so that the numbers do not depend on the remaining actions of
        // a crashed process.
        self.disturbances.events += 1;
        if self.has_crashed() {
            return;
        }
        self.counters.count_event("happenings");
        self.trace_line(what);
        if self.disturbances.events > MAX_EVENTS {
            self.report_violation(
                Invariant::Ends,
                format!("{MAX_EVENTS} happenings without an end"),
            );
        }
        // The crash comes last, so that an interruption or a message in the same event is sent
        // before it.
        if self.disturbances.cancel_at == Some(self.disturbances.events) {
            self.cancel();
        }
        if self.user_script.is_due(self.disturbances.events) {
            self.send_unprompted(self.disturbances.events);
        }
        if self.disturbances.crash_at == Some(self.disturbances.events) {
            self.crash();
        }
    }

    /// Writes a line into the trace.
    pub(crate) fn trace_line(&mut self, what: impl FnOnce() -> String) {
        let at = self.elapsed_millis();
        if let Some(lines) = &mut self.trace.lines {
            lines.push(format!("{at:>9} {}", what()));
        }
    }

    /// Returns the milliseconds since the task began, on the simulated clock.
    pub(crate) fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.trace.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a broken invariant; only the first one is kept.
    pub(crate) fn report_violation(&mut self, invariant: Invariant, seen: impl Into<String>) {
        self.record_check(Err(Violation {
            invariant,
            seen: seen.into(),
        }));
    }

    /// Keeps the violation of a failed check, if it is the first one, and ends the process.
    pub(crate) fn record_check(&mut self, checked: Result<(), Violation>) {
        if let Err(violation) = checked
            && self.violation.is_none()
        {
            self.trace_line(|| format!("BROKEN {violation}"));
            self.violation = Some(violation);
            // Later violations are mostly consequences of the first, so the process ends here.
            self.task_tree.end_process();
        }
    }

    /// Returns the first broken invariant, if any.
    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Crashes the process or the machine. Its code may still run until it is dropped, but has no effect any more.
    pub(crate) fn crash(&mut self) {
        self.trace_line(|| "CRASH".to_owned());
        // The interesting case: the next process does not know if those calls happened.
        if self.observations.tools.is_any_running() {
            self.counters.count_event("crashes with calls running");
        }
        self.disturbances.crashed_at = Some(self.disturbances.events);
        self.task_tree.crash();
    }

    /// Reports whether the process has crashed. Whatever its code still does has no effect.
    pub(crate) fn has_crashed(&self) -> bool {
        self.task_tree.is_gone()
    }

    /// Reports whether the crash struck in the current event.
    pub(crate) fn crashes_now(&self) -> bool {
        self.disturbances.crashed_at == Some(self.disturbances.events)
    }

    /// Interrupts the task: a subtask through its command channel, the main task by its token.
    fn cancel(&mut self) {
        if self.sabotage == Some(Sabotage::NeverStop) {
            return;
        }
        // Before the signal, since the task may end at once and the check of its end asks for this.
        self.note_cancel();
        if self.is_subtask() {
            self.send_to_driver(UserCommand::Cancel);
        } else {
            self.disturbances.cancel.cancel();
        }
    }

    /// Records that the user interrupts the task.
    pub(crate) fn note_cancel(&mut self) {
        self.trace_line(|| "the user cancels".to_owned());
        self.counters.count_event("user cancelled");
        if self.activity.asking {
            self.counters.count_event("cancelled in a question");
        }
        if self.activity.answering {
            self.counters.count_event("cancelled in an answer");
        }
        if self.observations.tools.is_any_running() {
            self.counters.count_event("cancelled while tools ran");
        }
        self.observations.user.cancelled = true;
    }

    /// Notes that the process waits for something that never comes by itself.
    pub(crate) fn mark_stuck(&mut self, stuck: StuckReason) {
        self.disturbances.stuck = Some(stuck);
    }

    /// Ends a stuck process as a user would: interrupts a tool that hangs, or closes the terminal.
    ///
    /// It is called when nothing has happened for two hours of the simulated clock.
    pub(crate) fn resolve_stuck(&mut self) {
        match self.disturbances.stuck.take() {
            Some(StuckReason::Tool) => self.cancel(),
            // An open question never ends by itself. The user closes the terminal, which kills the
            // process.
            Some(StuckReason::User) => self.crash(),
            None => {}
        }
    }

    /// Begins a new process and plans its disturbances. The last process never crashes, so that tasks can end.
    ///
    /// Returns the token that interrupts it.
    pub(crate) fn begin_process(&mut self, last: bool) -> CancelToken {
        self.counters.count_event("lives");
        // The tree is reset by the main task alone; its subtasks live in its process.
        if !self.is_subtask() {
            self.task_tree.begin_process(self.plan.terms.limits.turns);
        }
        self.activity = ActivityFlags::default();
        let mut upcoming = PlannedDisturbances {
            events: self.disturbances.events,
            ..PlannedDisturbances::default()
        };
        // Early crashes are more frequent than late ones, because most processes are short.
        if !last && self.plan.crashes > 0 && self.rng.below(self.plan.crashes) == 0 {
            let within = self.rng.pick_one(10, &[40, 150, 600]);
            upcoming.crash_at = Some(upcoming.events + 1 + self.rng.below(within));
        }
        // One process in six is interrupted at some event, if it lives that long.
        if self.rng.below(6) == 0 {
            let within = self.rng.pick_one(20, &[100, 400]);
            upcoming.cancel_at = Some(upcoming.events + 1 + self.rng.below(within));
        }
        let cancel = upcoming.cancel.clone();
        let talks = self.draw_next_message_at(upcoming.events);
        self.user_script.disconnect(talks);
        self.disturbances = upcoming;
        self.observations.begin_process();
        cancel
    }

    /// Removes all disturbances for the time between two processes.
    pub(crate) fn pause_disturbances(&mut self) {
        if !self.is_subtask() {
            self.task_tree.begin_process(None);
        }
        self.disturbances = PlannedDisturbances {
            events: self.disturbances.events,
            ..PlannedDisturbances::default()
        };
        self.user_script.disconnect(None);
    }

    /// Takes the lines of the trace. Nothing is traced afterwards.
    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.lines.take().unwrap_or_default()
    }

    /// Reports whether tracing is on.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.lines.is_some()
    }

    /// Reports whether this task is a subtask.
    pub(crate) fn is_subtask(&self) -> bool {
        self.plan.is_subtask
    }

    /// Notes that a task was opened in this process.
    pub(crate) fn on_task_opened(&mut self) {
        self.observations.on_task_opened();
        self.observations.process.from = self.observations.records.len();
        self.observations.process.began = self.elapsed_millis();
    }
}

/// Counts by key.
pub(crate) type KeyCounts<K> = BTreeMap<K, u32>;
