//! The scene: everything that the parts of one simulated task share, behind one lock.
//!
//! All of it runs on one thread, so whoever asks first is decided by the simulated clock and the seed alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{Cancel, Heard};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::family::Family;
use crate::figures::Figures;
use crate::laws::{Law, Violation};
use crate::plan::Plan;
use crate::platter::Platter;
use crate::sabotage::Sabotage;
use crate::talk::Talk;
use crate::witness::Witness;

/// A task that has seen more than this does not end.
const MOST_HAPPENINGS: u64 = 30_000;

/// The shared state, by handle.
#[derive(Clone)]
pub(crate) struct Scene(Arc<Mutex<State>>);

/// What is shared.
pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) chance: Chance,
    pub(crate) figures: Figures,
    pub(crate) platter: Platter,
    pub(crate) witness: Witness,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) moment: Moment,
    pub(crate) talk: Talk,
    pub(crate) family: Family,
    tape: Tape,
    violation: Option<Violation>,
    fate: Doom,
}

/// What is written down for whoever looks.
struct Tape {
    lines: Option<Vec<String>>,
    began: Instant,
}

/// What the life is at, for the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) asking: bool,
    pub(crate) answering: bool,
    pub(crate) summarising: bool,
    /// A completion is being checked.
    pub(crate) checking: bool,
}

/// When a life is to be disturbed, in happenings from now.
#[derive(Default)]
struct Doom {
    happenings: u64,
    crash_at: Option<u64>,
    crashed_at: Option<u64>,
    cancel_at: Option<u64>,
    cancel: Cancel,
    /// Why nothing will happen any more unless somebody acts.
    stuck: Option<Stuck>,
}

/// Why a life does not go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// A tool never comes back.
    Tool,
    /// The user has gone away without a word.
    User,
}

impl Scene {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        Self::of(Family::default(), seed, sabotage, traced)
    }

    /// That of a member of a family.
    pub(crate) fn of(family: Family, seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        let mut chance = Chance::new(seed);
        let plan = Plan::draw(&mut chance);
        let witness = Witness { terms: plan.terms.clone(), ..Witness::default() };
        Self(Arc::new(Mutex::new(State {
            family,
            tape: Tape { lines: traced.then(|| vec![format!("{plan:?}")]), began: Instant::now() },
            plan,
            chance,
            figures: Figures::default(),
            platter: Platter::default(),
            witness,
            sabotage,
            moment: Moment::default(),
            talk: Talk::default(),
            violation: None,
            fate: Doom::default(),
        })))
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when the life is over from outside: a crash, or a broken law.
    pub(crate) async fn over(&self) {
        let over = self.with(|state| state.family.over());
        over.notified().await;
    }
}

impl State {
    /// Something happens: the place where crashes and interruptions strike.
    pub(crate) fn happens(&mut self, what: impl FnOnce() -> String) {
        self.fate.happenings += 1;
        if self.crashed() {
            return;
        }
        self.figures.count("happenings");
        self.say(what);
        if self.fate.happenings > MOST_HAPPENINGS {
            self.broken(Law::Ends, format!("{MOST_HAPPENINGS} happenings without an end"));
        }
        if self.fate.cancel_at == Some(self.fate.happenings) {
            self.cancel();
        }
        if self.talk.is_due(self.fate.happenings) {
            self.speak(self.fate.happenings);
        }
        if self.fate.crash_at == Some(self.fate.happenings) {
            self.crash();
        }
    }

    /// Writes a line into the trace.
    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        let at = self.milliseconds();
        if let Some(lines) = &mut self.tape.lines {
            lines.push(format!("{at:>9} {}", what()));
        }
    }

    /// Since the task began, by the simulated clock.
    pub(crate) fn milliseconds(&self) -> u64 {
        u64::try_from(self.tape.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes a broken law; the first one counts.
    pub(crate) fn broken(&mut self, law: Law, seen: impl Into<String>) {
        self.check(Err(Violation { law, seen: seen.into() }));
    }

    pub(crate) fn check(&mut self, checked: Result<(), Violation>) {
        if let Err(violation) = checked
            && self.violation.is_none()
        {
            self.say(|| format!("BROKEN {violation}"));
            self.violation = Some(violation);
            self.family.end();
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The process or the machine is gone: whatever its code still does, nobody sees it.
    pub(crate) fn crash(&mut self) {
        self.say(|| "CRASH".to_owned());
        if self.witness.tools.any() {
            self.figures.count("crashes with calls running");
        }
        self.fate.crashed_at = Some(self.fate.happenings);
        self.family.crash();
    }

    pub(crate) fn crashed(&self) -> bool {
        self.family.is_gone()
    }

    /// Whether it is this very happening in which it struck.
    pub(crate) fn crashes_now(&self) -> bool {
        self.fate.crashed_at == Some(self.fate.happenings)
    }

    fn cancel(&mut self) {
        if self.sabotage == Some(Sabotage::NeverStop) {
            return;
        }
        self.cancelled();
        if self.is_subtask() {
            self.send(Heard::Cancelled);
        } else {
            self.fate.cancel.cancel();
        }
    }

    /// Notes that the user interrupts, by whatever means.
    pub(crate) fn cancelled(&mut self) {
        self.say(|| "the user cancels".to_owned());
        self.figures.count("user cancelled");
        if self.moment.asking {
            self.figures.count("cancelled in a question");
        }
        if self.moment.answering {
            self.figures.count("cancelled in an answer");
        }
        if self.witness.tools.any() {
            self.figures.count("cancelled while tools ran");
        }
        self.witness.user.cancelled = true;
    }

    pub(crate) fn get_stuck(&mut self, stuck: Stuck) {
        self.fate.stuck = Some(stuck);
    }

    /// Somebody looks after a life in which nothing happens: they interrupt a tool that hangs, or close the terminal.
    pub(crate) fn look_after(&mut self) {
        match self.fate.stuck.take() {
            Some(Stuck::Tool) => self.cancel(),
            Some(Stuck::User) => self.crash(),
            None => {}
        }
    }

    /// A new process: what was in the memory of the last one is gone.
    pub(crate) fn begin_life(&mut self, last: bool) -> Cancel {
        self.figures.count("lives");
        if !self.is_subtask() {
            self.family.begin_life(self.plan.terms.limits.turns);
        }
        self.moment = Moment::default();
        let mut doom = Doom { happenings: self.fate.happenings, ..Doom::default() };
        if !last && self.plan.crashes > 0 && self.chance.below(self.plan.crashes) == 0 {
            let within = self.chance.pick(10, &[40, 150, 600]);
            doom.crash_at = Some(doom.happenings + 1 + self.chance.below(within));
        }
        if self.chance.below(6) == 0 {
            let within = self.chance.pick(20, &[100, 400]);
            doom.cancel_at = Some(doom.happenings + 1 + self.chance.below(within));
        }
        let cancel = doom.cancel.clone();
        let talks = self.next_talk(doom.happenings);
        self.talk.hush(talks);
        self.fate = doom;
        self.witness.begin_life();
        cancel
    }

    /// A moment between two lives, in which nothing is disturbed.
    pub(crate) fn rest(&mut self) {
        if !self.is_subtask() {
            self.family.begin_life(None);
        }
        self.fate = Doom { happenings: self.fate.happenings, ..Doom::default() };
        self.talk.hush(None);
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.tape.lines.take().unwrap_or_default()
    }

    /// Whether what happens is written down.
    pub(crate) fn is_traced(&self) -> bool {
        self.tape.lines.is_some()
    }

    /// Whether another task stands above this one.
    pub(crate) fn is_subtask(&self) -> bool {
        self.plan.is_subtask
    }

    /// A task was opened: what its process before was at is over.
    pub(crate) fn wake(&mut self) {
        self.witness.wake();
        (self.witness.life.from, self.witness.life.began) = (self.witness.records.len(), self.milliseconds());
    }
}

/// Counts by key, for small sums.
pub(crate) type Counts<K> = BTreeMap<K, u32>;
