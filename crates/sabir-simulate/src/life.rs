//! Lives: the processes that work on one task, one after the other, each on what the last one left on the disk.

use std::path::Path;
use std::time::Duration;

use sabir_agent::{
    Cancel, Context, Driver, Input, Outcome, Record, Registry, ReplayError, Settings, Start, Task, TaskId,
};
use sabir_journal::{Entry, Journal, JournalError, read_on};
use tokio::time::{Instant, sleep};

use crate::disk::SimulatedDisk;
use crate::family::same_results;
use crate::history;
use crate::laws::{Law, Violation};
use crate::model::SimulatedModel;
use crate::sabotage::Sabotage;
use crate::scene::{Scene, State};
use crate::store::WatchedStore;
use crate::upkeep;
use crate::user::SimulatedUser;
use crate::witness::Deeds;

/// Where the journals lie.
const FOLDER: &str = "/home/tasks";
/// A life in which nothing happens is looked after once in this time.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
/// No life is longer.
const LONGEST: Duration = Duration::from_secs(60 * 24 * 3600);
/// Of longer journals, so many beginnings are replayed.
const PREFIXES: u64 = 5;

/// What all lives of a task have in common.
pub(crate) struct Lives {
    scene: Scene,
    registry: Registry,
    start: Start,
}

/// A task to go on with.
pub(crate) struct Woken {
    pub(crate) task: Task,
    pub(crate) journal: Journal,
    /// The record of its start, for a new one.
    pub(crate) first: Option<Record>,
}

/// What a process finds.
pub(crate) enum Found {
    /// A task to go on with.
    Task(Box<Woken>),
    /// Nothing can be done now; perhaps the next process can.
    Nothing,
    /// The task is over.
    Over,
}

impl Lives {
    pub(crate) fn new(scene: Scene, registry: Registry, start: Start) -> Self {
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
        move || scene.with(|state| state.milliseconds())
    }

    /// Lets all processes live, then looks at what they left.
    pub(crate) async fn live(&self) {
        let lives = self.scene.with(|state| state.plan.lives);
        for number in 1..=lives {
            let cancel = self.scene.with(|state| state.begin_life(number == lives));
            let over = self.one(cancel).await;
            self.take_over();
            self.between();
            if over || self.scene.with(|state| state.violation().is_some()) {
                break;
            }
        }
        self.scene.with(|state| {
            state.plan.disk_trouble = false;
            for (name, times) in state.witness.endings() {
                state.figures.add(name, u64::from(times));
            }
        });
        self.look_back();
        for (id, scene) in self.scene.with(|state| state.family.members()) {
            let start = scene.with(|state| Start { task: id, ..state.plan.start(0) });
            scene.with(|state| state.plan.disk_trouble = false);
            Self { scene, registry: self.registry.clone(), start }.look_back();
        }
        self.take_over();
        self.same_results();
    }

    /// Every scene of the family, this one first.
    fn members(&self, look: impl Fn(&mut State)) {
        let members = self.scene.with(|state| {
            look(state);
            state.family.members()
        });
        members.values().for_each(|scene| scene.with(&look));
    }

    /// Takes over what subtasks saw broken.
    fn take_over(&self) {
        for scene in self.scene.with(|state| state.family.members()).values() {
            let broken = scene.with(|state| state.violation().cloned());
            broken.into_iter().for_each(|violation| self.scene.with(|state| state.check(Err(violation))));
        }
    }

    fn same_results(&self) {
        let members = self.scene.with(|state| state.family.members());
        let id = self.id().clone();
        let all = members.iter().map(|(id, scene)| (id.clone(), scene)).chain([(id, &self.scene)]);
        let told: Vec<_> =
            all.filter_map(|(id, scene)| scene.with(|state| same_results(state, &members, &id)).err()).collect();
        self.scene.with(|state| told.into_iter().for_each(|seen| state.broken(Law::Family, seen)));
    }

    /// What happens to the machine after a process has ended.
    fn between(&self) {
        self.scene.with(|state| {
            let crashed = state.crashed();
            let power = state.chance.below(if crashed { 2 } else { 4 }) == 0;
            let State { platter, chance, figures, .. } = state;
            match (crashed, power) {
                (_, true) => {
                    figures.count("power cuts");
                    if !crashed {
                        figures.count("crashes between two lives");
                    }
                    platter.cut_power(chance, figures);
                }
                (true, false) => {
                    figures.count("kills");
                    platter.kill();
                }
                _ => {}
            }
            state.say(|| format!("--- the process is gone; crashed: {crashed}, power cut: {power}"));
            for scene in state.family.members().values() {
                scene.with(|member| {
                    let State { platter, chance, figures, .. } = member;
                    if power {
                        platter.cut_power(chance, figures)
                    } else if crashed {
                        platter.kill()
                    }
                    member.rest();
                });
            }
            state.rest();
            if state.chance.below(8) == 0 {
                state.figures.count("rules changed");
                state.witness.reading.version += 1;
            }
        });
    }

    /// One life. True: the task is over.
    async fn one(&self, cancel: Cancel) -> bool {
        let Woken { mut task, journal, first } = match self.find() {
            Found::Task(woken) => *woken,
            Found::Nothing => return false,
            Found::Over => return true,
        };
        let model = SimulatedModel { scene: self.scene.clone(), registry: self.registry.clone() };
        let mut store = WatchedStore { scene: self.scene.clone(), journal, held: None };
        self.scene.with(State::wake);
        if first.is_none() && self.scene.with(|state| state.chance.below(3) == 0) {
            tokio::select! {
                biased;
                () = self.scene.over() => {}
                () = upkeep::tend(&self.scene, &mut task, &mut store, &model) => {}
            }
            return false;
        }
        let (max_time, words) = self.scene.with(|state| {
            let words = (first.is_none() && state.chance.below(3) == 0).then(|| state.talk.words("go on with it"));
            state.witness.user.replied.extend(words.clone());
            let time = state.plan.terms.time.filter(|_| state.sabotage != Some(Sabotage::NeverStop));
            (time, words)
        });
        let mut user = SimulatedUser { scene: self.scene.clone(), _at_work: None };
        let (registry, began) = (&self.registry, Instant::now());
        let driver = Driver { model: &model, registry, store: &mut store, user: &mut user, cancel, max_time };
        let end = {
            let mut run = std::pin::pin!(driver.run(&mut task, first, words));
            loop {
                tokio::select! {
                    biased;
                    () = self.scene.over() => break None,
                    end = &mut run => break Some(end),
                    () = sleep(PATIENCE) => self.members(|state| {
                        state.look_after();
                        if began.elapsed() > LONGEST {
                            state.broken(Law::Ends, "nothing happens any more, and nobody is asked");
                        }
                    }),
                }
            }
        };
        // What is dropped is gone when its turn would come.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.scene.with(|state| {
            if let Some(left) = state.family.anybody().filter(|_| end.is_some() && !state.crashed()) {
                state.broken(Law::Family, format!("{left} still works although its parent does not"));
            }
        });
        match end.filter(|_| !self.scene.with(|state| state.crashed() || state.violation().is_some())) {
            Some((outcome, message)) => self.ended(&task, outcome, &message),
            None => false,
        }
    }

    /// Opens the journal, or begins one, and holds what is in it against what was acknowledged.
    pub(crate) fn find(&self) -> Found {
        let opened = Journal::open_on(&self.disk(), Path::new(FOLDER), self.id(), self.clock());
        let acknowledged = self.scene.with(|state| !state.witness.records.is_empty());
        let (journal, entries, recovery) = match opened {
            Err(JournalError::Missing { .. }) if !acknowledged => return self.begin(),
            Err(JournalError::Io { .. }) => return Found::Nothing,
            // Nobody was told that it was a journal.
            Err(JournalError::NotAJournal { .. }) if !acknowledged => return Found::Over,
            Err(error) => {
                self.scene.with(|state| state.broken(Law::Survives, error.to_string()));
                return Found::Over;
            }
            Ok(opened) => opened,
        };
        self.scene.with(|state| {
            if recovery.torn_bytes > 0 {
                state.figures.count("journals with a torn end");
            }
            state.say(|| format!("opened with {} records, {recovery:?}", entries.len()));
        });
        if self.compare(records(entries)) { self.replay(journal) } else { Found::Over }
    }

    fn begin(&self) -> Found {
        let Ok(journal) = Journal::create_on(&self.disk(), Path::new(FOLDER), self.id(), self.clock()) else {
            return Found::Nothing;
        };
        let (task, first) = self.anew();
        Found::Task(Box::new(Woken { task, journal, first: Some(first) }))
    }

    /// The task at its beginning, with the record of its start.
    pub(crate) fn anew(&self) -> (Task, Record) {
        let (task, first) = Task::new(self.start.clone(), self.settings());
        (task.within(self.context()), first)
    }

    fn settings(&self) -> Settings {
        self.scene
            .with(|state| state.plan.settings(self.registry.set().clone(), self.registry.readers(), state.sabotage))
    }

    fn context(&self) -> Context {
        self.scene.with(|state| state.plan.context(state.witness.reading.version))
    }

    /// Whether what was found is what was acknowledged, but for a record that was being written.
    fn compare(&self, found: Vec<Record>) -> bool {
        self.scene.with(|state| match state.witness.found(found) {
            Ok(more) => {
                if more {
                    state.figures.count("unacknowledged records found");
                    state.witness.shown = state.witness.records.len();
                }
                state.witness.attempted = None;
                state.witness.user = Deeds { cancelled: state.witness.user.cancelled, ..Deeds::default() };
                true
            }
            Err(violation) => {
                state.check(Err(violation));
                false
            }
        })
    }

    fn replay(&self, journal: Journal) -> Found {
        let mut records = self.scene.with(|state| state.witness.records.clone());
        if self.scene.with(|state| state.sabotage == Some(Sabotage::ForgetWhatRan)) {
            records.retain(|record| !matches!(record, Record::Running { .. }));
        }
        let completed = is_completed(&records);
        match Task::replay(records, self.settings()) {
            Ok(_) if completed => {
                self.scene.with(|state| state.broken(Law::Replay, "a completed task can be resumed"));
                Found::Over
            }
            Ok(task) => Found::Task(Box::new(Woken { task: task.within(self.context()), journal, first: None })),
            Err(ReplayError::Completed) if completed => Found::Over,
            // The process ended before the first record was written down.
            Err(ReplayError::NoStart) => Found::Over,
            Err(error) => {
                self.scene.with(|state| state.broken(Law::Replay, error.to_string()));
                Found::Over
            }
        }
    }

    /// A life ended on its own: is the end what it says, and the task what its records say? True: the task is over.
    fn ended(&self, task: &Task, outcome: Outcome, message: &str) -> bool {
        let settings = self.settings();
        self.scene.with(|state| {
            let claims = state.sabotage == Some(Sabotage::ClaimCompletion);
            let outcome = if claims { Outcome::Completed } else { outcome };
            state.say(|| format!("ended: {outcome:?}"));
            state.figures.count(match outcome {
                Outcome::Completed => "ended completed",
                Outcome::Denied => "ended denied",
                Outcome::Limit => limit(message),
                Outcome::ProviderFailed | Outcome::Misconfigured => "ended by the provider",
                Outcome::Cancelled => "ended cancelled",
                Outcome::StoreFailed => "ended by the store",
                _ => "ended unfinished",
            });
            let reviewed = state.plan.user.attended.converses() && !state.witness.user.gone;
            state.check(state.witness.ended(outcome, reviewed));
            state.check(history::check(task.history()));
            if outcome != Outcome::StoreFailed {
                state.check(same_totals(state.witness.output_tokens(), task));
                state.check(same_again(&state.witness.records, task, settings));
            }
            outcome == Outcome::Completed
        })
    }

    /// Opens the journal a last time, and replays and forks it from any record.
    fn look_back(&self) {
        if self.scene.with(|state| state.violation().is_some()) {
            return;
        }
        let read = read_on(&self.disk(), Path::new(FOLDER), self.id()).map(|(entries, _)| records(entries));
        let opened = Journal::open_on(&self.disk(), Path::new(FOLDER), self.id(), self.clock());
        let opened = opened.map(|(_, entries, _)| records(entries));
        let records = match (read, opened) {
            (Ok(read), Ok(opened)) if read == opened => read,
            (Err(JournalError::Missing { .. } | JournalError::NotAJournal { .. }), Err(_)) => Vec::new(),
            (read, opened) => {
                let seen = format!("reading gives {read:?}, opening {opened:?}");
                return self.scene.with(|state| state.broken(Law::Survives, seen));
            }
        };
        if !self.compare(records.clone()) {
            return;
        }
        let lengths = self.scene.with(|state| {
            let all = records.len() as u64;
            let some = (0..PREFIXES).map(|_| state.chance.between(1, all)).collect();
            let lengths: Vec<u64> = if all <= PREFIXES { (1..=all).collect() } else { some };
            state.figures.add("prefixes replayed", lengths.len() as u64);
            lengths
        });
        for length in lengths {
            let prefix = records.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            let checked = fork(prefix, &self.settings(), &self.context());
            self.scene.with(|state| state.check(checked));
        }
    }
}

/// Which limit it was.
fn limit(message: &str) -> &'static str {
    let names = [("turns", "ended by turns"), ("tokens", "ended by tokens"), ("time", "ended by time")];
    names.into_iter().find(|(word, _)| message.contains(word)).map_or("ended by cost", |(_, name)| name)
}

fn records(entries: Vec<Entry>) -> Vec<Record> {
    entries.into_iter().map(|entry| entry.record).collect()
}

fn is_completed(records: &[Record]) -> bool {
    matches!(records.last(), Some(Record::Ended { outcome: Outcome::Completed, .. }))
}

fn same_totals(output: u64, task: &Task) -> Result<(), Violation> {
    let totals = task.totals().usage.output.unwrap_or(0);
    if totals == output {
        return Ok(());
    }
    Err(Violation { law: Law::Totals, seen: format!("the task says {totals} tokens, its records {output}") })
}

fn same_again(records: &[Record], task: &Task, settings: Settings) -> Result<(), Violation> {
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
fn fork(prefix: &[Record], settings: &Settings, context: &Context) -> Result<(), Violation> {
    let broken = |seen: String| Err(Violation { law: Law::Replay, seen });
    let again = || Task::replay(prefix.iter().cloned(), settings.clone()).map(|task| task.within(context.clone()));
    let (mut one, mut two) = match (again(), again()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(ReplayError::Completed), Err(_)) if is_completed(prefix) => return Ok(()),
        (one, _) => return broken(format!("{} records cannot be replayed: {:?}", prefix.len(), one.err())),
    };
    history::check(one.history())?;
    let (first, second) = (one.step(Input::Begin), two.step(Input::Begin));
    if first != second || one.history() != two.history() || one.totals() != two.totals() {
        return broken(format!("{} records go on as {first:?} and as {second:?}", prefix.len()));
    }
    if first.is_empty() {
        return Err(Violation {
            law: Law::Ends,
            seen: format!("after {} records nothing is to be done", prefix.len()),
        });
    }
    history::check(one.history())
}
