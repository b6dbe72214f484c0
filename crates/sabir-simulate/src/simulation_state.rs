//! The scene: everything that the parts of one simulated task share, behind one lock.
//!
//! All of it runs on one thread, so whoever asks first is decided by the simulated clock and the seed alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{CancelToken, UserCommand};
use tokio::time::Instant;

use crate::counters::EventCounters;
use crate::disk_state::DiskState;
use crate::laws::{Law, Violation};
use crate::plan::TaskPlan;
use crate::rng::SeededRng;
use crate::sabotage::Sabotage;
use crate::task_tree::TaskTree;
use crate::user_script::UserScript;
use crate::witness::Witness;

/// A task that has seen more than this does not end.
const MAX_EVENTS: u64 = 30_000;

/// The shared state, by handle.
#[derive(Clone)]
pub(crate) struct SimulationHandle(Arc<Mutex<SimulationState>>);

/// What is shared.
pub(crate) struct SimulationState {
    pub(crate) plan: TaskPlan,
    pub(crate) rng: SeededRng,
    pub(crate) counters: EventCounters,
    pub(crate) disk_state: DiskState,
    pub(crate) witness: Witness,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) moment: ActivityFlags,
    pub(crate) user_script: UserScript,
    pub(crate) task_tree: TaskTree,
    trace: TraceLog,
    violation: Option<Violation>,
    disturbances: Disturbances,
}

/// What is written down for whoever looks.
struct TraceLog {
    lines: Option<Vec<String>>,
    began: Instant,
}

/// What the life is at, for the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ActivityFlags {
    pub(crate) asking: bool,
    pub(crate) answering: bool,
    pub(crate) summarising: bool,
    /// A completion is being checked.
    pub(crate) checking: bool,
}

/// When a life is to be disturbed, in happenings from now.
#[derive(Default)]
struct Disturbances {
    events: u64,
    crash_at: Option<u64>,
    crashed_at: Option<u64>,
    cancel_at: Option<u64>,
    cancel: CancelToken,
    /// Why nothing will happen any more unless somebody acts.
    stuck: Option<StuckReason>,
}

/// Why a life does not go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StuckReason {
    /// A tool never comes back.
    Tool,
    /// The user has gone away without a word.
    User,
}

impl SimulationHandle {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        Self::with_tree(TaskTree::default(), seed, sabotage, traced)
    }

    /// That of a member of a family.
    pub(crate) fn with_tree(family: TaskTree, seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        let mut chance = SeededRng::new(seed);
        let plan = TaskPlan::from_rng(&mut chance);
        let witness = Witness { terms: plan.terms.clone(), ..Witness::default() };
        Self(Arc::new(Mutex::new(SimulationState {
            task_tree: family,
            trace: TraceLog { lines: traced.then(|| vec![format!("{plan:?}")]), began: Instant::now() },
            plan,
            rng: chance,
            counters: EventCounters::default(),
            disk_state: DiskState::default(),
            witness,
            sabotage,
            moment: ActivityFlags::default(),
            user_script: UserScript::default(),
            violation: None,
            disturbances: Disturbances::default(),
        })))
    }

    pub(crate) fn with_state<T>(&self, work: impl FnOnce(&mut SimulationState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when the life is over from outside: a crash, or a broken law.
    pub(crate) async fn wait_for_end(&self) {
        let over = self.with_state(|state| state.task_tree.end_signal());
        over.notified().await;
    }
}

impl SimulationState {
    /// Something happens: the place where crashes and interruptions strike.
    pub(crate) fn on_event(&mut self, what: impl FnOnce() -> String) {
        self.disturbances.events += 1;
        if self.has_crashed() {
            return;
        }
        self.counters.count_event("happenings");
        self.trace_line(what);
        if self.disturbances.events > MAX_EVENTS {
            self.report_violation(Law::Ends, format!("{MAX_EVENTS} happenings without an end"));
        }
        if self.disturbances.cancel_at == Some(self.disturbances.events) {
            self.cancel();
        }
        if self.user_script.is_due(self.disturbances.events) {
            self.speak_unasked(self.disturbances.events);
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

    /// Since the task began, by the simulated clock.
    pub(crate) fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.trace.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes a broken law; the first one counts.
    pub(crate) fn report_violation(&mut self, law: Law, seen: impl Into<String>) {
        self.record_check(Err(Violation { law, seen: seen.into() }));
    }

    pub(crate) fn record_check(&mut self, checked: Result<(), Violation>) {
        if let Err(violation) = checked
            && self.violation.is_none()
        {
            self.trace_line(|| format!("BROKEN {violation}"));
            self.violation = Some(violation);
            self.task_tree.end_process();
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The process or the machine is gone: whatever its code still does, nobody sees it.
    pub(crate) fn crash(&mut self) {
        self.trace_line(|| "CRASH".to_owned());
        if self.witness.tools.is_any_running() {
            self.counters.count_event("crashes with calls running");
        }
        self.disturbances.crashed_at = Some(self.disturbances.events);
        self.task_tree.crash();
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.task_tree.is_gone()
    }

    /// Whether it is this very happening in which it struck.
    pub(crate) fn crashes_now(&self) -> bool {
        self.disturbances.crashed_at == Some(self.disturbances.events)
    }

    fn cancel(&mut self) {
        if self.sabotage == Some(Sabotage::NeverStop) {
            return;
        }
        self.note_cancel();
        if self.is_subtask() {
            self.send_to_driver(UserCommand::Cancel);
        } else {
            self.disturbances.cancel.cancel();
        }
    }

    /// Notes that the user interrupts, by whatever means.
    pub(crate) fn note_cancel(&mut self) {
        self.trace_line(|| "the user cancels".to_owned());
        self.counters.count_event("user cancelled");
        if self.moment.asking {
            self.counters.count_event("cancelled in a question");
        }
        if self.moment.answering {
            self.counters.count_event("cancelled in an answer");
        }
        if self.witness.tools.is_any_running() {
            self.counters.count_event("cancelled while tools ran");
        }
        self.witness.user.cancelled = true;
    }

    pub(crate) fn mark_stuck(&mut self, stuck: StuckReason) {
        self.disturbances.stuck = Some(stuck);
    }

    /// Somebody looks after a life in which nothing happens: they interrupt a tool that hangs, or close the terminal.
    pub(crate) fn resolve_stuck(&mut self) {
        match self.disturbances.stuck.take() {
            Some(StuckReason::Tool) => self.cancel(),
            Some(StuckReason::User) => self.crash(),
            None => {}
        }
    }

    /// A new process: what was in the memory of the last one is gone.
    pub(crate) fn begin_process(&mut self, last: bool) -> CancelToken {
        self.counters.count_event("lives");
        if !self.is_subtask() {
            self.task_tree.begin_process(self.plan.terms.limits.turns);
        }
        self.moment = ActivityFlags::default();
        let mut doom = Disturbances { events: self.disturbances.events, ..Disturbances::default() };
        if !last && self.plan.crashes > 0 && self.rng.below(self.plan.crashes) == 0 {
            let within = self.rng.pick_one(10, &[40, 150, 600]);
            doom.crash_at = Some(doom.events + 1 + self.rng.below(within));
        }
        if self.rng.below(6) == 0 {
            let within = self.rng.pick_one(20, &[100, 400]);
            doom.cancel_at = Some(doom.events + 1 + self.rng.below(within));
        }
        let cancel = doom.cancel.clone();
        let talks = self.draw_next_talk(doom.events);
        self.user_script.disconnect(talks);
        self.disturbances = doom;
        self.witness.begin_process();
        cancel
    }

    /// A moment between two lives, in which nothing is disturbed.
    pub(crate) fn pause_disturbances(&mut self) {
        if !self.is_subtask() {
            self.task_tree.begin_process(None);
        }
        self.disturbances = Disturbances { events: self.disturbances.events, ..Disturbances::default() };
        self.user_script.disconnect(None);
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.lines.take().unwrap_or_default()
    }

    /// Whether what happens is written down.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.lines.is_some()
    }

    /// Whether another task stands above this one.
    pub(crate) fn is_subtask(&self) -> bool {
        self.plan.is_subtask
    }

    /// A task was opened: what its process before was at is over.
    pub(crate) fn on_task_opened(&mut self) {
        self.witness.on_task_opened();
        (self.witness.life.from, self.witness.life.began) = (self.witness.records.len(), self.elapsed_millis());
    }
}

/// Counts by key, for small sums.
pub(crate) type KeyCounts<K> = BTreeMap<K, u32>;
