//! Tools at work in a simulated world, and what they check when they begin and when they change something.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{Arguments, Bound, Permit, Progress, Registry, Tool, ToolOutput, ToolWork, control};
use sabir_call::{CallId, ToolError, ToolSpec};
use sabir_policy::Access;
use serde_json::json;
use tokio::time::sleep;

use crate::laws::{Law, Violation};
use crate::plan::{CHECKED, FORBIDDEN, HOST, Plan};
use crate::sabotage::Sabotage;
use crate::scene::{Counts, Scene, State, Stuck};
use crate::witness::{Quality, Witness, token};

/// The tools: their names, and whether they only read.
pub(crate) const TOOLS: [(&str, bool); 5] =
    [("look", true), ("list", true), ("touch", false), ("fetch", false), ("forbid", false)];

/// What runs, and what was changed.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// In the order in which they began, with whether they only read.
    running: Vec<(CallId, bool)>,
    /// Changes, by call, over all lives.
    effects: Counts<CallId>,
    /// Runs in this life.
    begun: Counts<CallId>,
    /// The completions whose check succeeded.
    passed: BTreeSet<CallId>,
}

/// A tool of the simulated world.
struct Worker {
    scene: Scene,
    name: &'static str,
    reads: bool,
    /// Whether it says that it only reads.
    said_to_read: bool,
}

/// What a tool does this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    Succeeds,
    Fails,
    Hangs,
    Breaks,
}

/// Says that a call is no longer at work, however that came.
struct AtWork {
    scene: Scene,
    call: CallId,
    ended: bool,
    changed: bool,
    /// Whether it is the check of a completion.
    checks: bool,
}

/// The tools of a task.
///
/// # Errors
/// None that could happen: the specs are fixed.
pub(crate) fn registry(scene: &Scene, subtasks: Option<Arc<dyn Tool>>) -> Result<Registry, ToolError> {
    let lies = scene.with(|state| state.sabotage == Some(Sabotage::CallWritesReads));
    let worker = |(name, reads)| {
        let said_to_read = reads || lies;
        Arc::new(Worker { scene: scene.clone(), name, reads, said_to_read }) as Arc<dyn Tool>
    };
    Registry::new(TOOLS.into_iter().map(worker).chain(subtasks).collect())
}

impl Tools {
    pub(crate) fn begin_life(&mut self) {
        self.running.clear();
        self.begun.clear();
    }

    /// Whether the check of that completion succeeded.
    pub(crate) fn has_passed(&self, id: &CallId) -> bool {
        self.passed.contains(id)
    }

    /// Whether any tool runs.
    pub(crate) fn any(&self) -> bool {
        !self.running.is_empty()
    }
}

impl Tool for Worker {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
            "path": {"type": "string"}, "note": {"type": "string"}, "count": {"type": "integer"},
        }});
        ToolSpec::new(self.name, "", schema)
    }

    fn reads_only(&self) -> bool {
        self.said_to_read
    }

    fn access(&self, arguments: &Arguments) -> Access {
        let path = token(arguments);
        self.scene.with(|state| {
            state.happens(|| format!("weigh {} {path}", self.name));
            if state.chance.permille(state.plan.tool_trouble / 20) {
                state.figures.count("accesses invalid");
                return Access::Invalid { reason: "this is no path".to_owned() };
            }
            match self.name {
                _ if state.sabotage == Some(Sabotage::HideAccess) => Access::Nothing,
                "touch" => Access::Write { path, protected: None },
                "fetch" => Access::Fetch { url: format!("https://{HOST}/{path}") },
                "forbid" => Access::Fetch { url: format!("https://{FORBIDDEN}/{path}") },
                _ => Access::Read { path, outside: false },
            }
        })
    }

    fn bound(&self, _: &Arguments) -> Bound {
        let mut bound = Bound::default();
        self.scene.with(|state| {
            let moved = state.chance.permille(state.plan.tool_trouble / 20);
            if moved {
                state.figures.count("things moved");
            }
            bound.hold("the file", if moved { "changed" } else { "as it was" });
        });
        bound
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, progress: Progress<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            let path = token(arguments);
            let temper = self.scene.with(|state| begin(state, &permit.call, &path, self.reads));
            let (scene, call, checks) = (self.scene.clone(), permit.call.clone(), path == CHECKED);
            let mut work = AtWork { scene, call, ended: false, changed: false, checks };
            sleep(self.scene.with(pause)).await;
            progress("working\n");
            if temper != Temper::Fails {
                self.scene.with(|state| change(state, &permit.call, &path));
                work.changed = true;
            }
            sleep(self.scene.with(pause)).await;
            work.ended = temper != Temper::Hangs;
            match temper {
                Temper::Hangs => std::future::pending().await,
                // Unwinds without a word on the terminal.
                Temper::Breaks => std::panic::resume_unwind(Box::new("the tool broke down")),
                _ => {}
            }
            self.scene.with(|state| end(state, &work, &path, temper))
        })
    }
}

/// What a tool says in the end: to the same call the same, where nothing goes wrong.
fn end(state: &mut State, work: &AtWork, path: &str, temper: Temper) -> ToolOutput {
    if work.checks && temper != Temper::Fails && !state.crashed() {
        state.witness.tools.passed.insert(work.call.clone());
    }
    let number: usize = path.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    let long = if state.plan.terms.room.is_some() { number * 371 % 2500 } else { 0 };
    match temper {
        Temper::Fails => ToolOutput::failed("It did not work."),
        _ => ToolOutput::done(format!("It is done.{}", "\nA line of output.".repeat(long / 18))),
    }
}

/// How long a piece of work takes.
fn pause(state: &mut State) -> Duration {
    let most = state.chance.pick(3, &[0, 50, 1_000, 60_000]);
    Duration::from_millis(state.chance.below(most))
}

fn begin(state: &mut State, id: &CallId, path: &str, reads: bool) -> Temper {
    state.moment.checking |= path == CHECKED;
    state.perhaps_tell(path == CHECKED);
    state.happens(|| format!("run {id} {path}"));
    if state.crashed() {
        return Temper::Hangs;
    }
    state.figures.count("calls run");
    if state.witness.tools.any() && reads {
        state.figures.count("reads at once");
    }
    let checked = may_begin(&mut state.witness, &state.plan, id, path, reads);
    state.check(checked);
    state.witness.tools.running.push((id.clone(), reads));
    if path == CHECKED {
        state.figures.count("checks");
        if state.chance.below(3) == 0 {
            state.figures.count("checks failed");
            return Temper::Fails;
        }
    }
    if !state.chance.permille(state.plan.tool_trouble) {
        return Temper::Succeeds;
    }
    let temper = state.chance.pick(Temper::Fails, &[Temper::Fails, Temper::Breaks, Temper::Hangs]);
    match temper {
        Temper::Fails => state.figures.count("tools failed"),
        Temper::Breaks => state.figures.count("tools broke down"),
        Temper::Hangs => {
            state.figures.count("tools hung");
            state.get_stuck(Stuck::Tool);
        }
        Temper::Succeeds => {}
    }
    temper
}

/// Whether a call may begin to run.
fn may_begin(witness: &mut Witness, plan: &Plan, id: &CallId, path: &str, reads: bool) -> Result<(), Violation> {
    let broken = |law, seen: String| Err(Violation { law, seen: format!("{id} ({path}) {seen}") });
    let Some(call) = witness.calls.get(id).cloned() else {
        return broken(Law::NeverRuns, "runs and no answer on record holds it".to_owned());
    };
    if !call.begun {
        return broken(Law::RecordFirst, "runs and no record says so".to_owned());
    }
    if call.result.is_some() {
        return broken(Law::OneEffect, "runs after its result".to_owned());
    }
    if call.name == control::COMPLETION {
        if path != CHECKED || !plan.terms.check {
            return broken(Law::NeverRuns, "runs for a completion".to_owned());
        }
        return once_in_order(witness, id, reads);
    }
    if call.token != path {
        return broken(Law::NeverRuns, format!("is on record with {}", call.token));
    }
    let quality = witness.written.get(path).copied();
    match quality {
        None => return broken(Law::NeverRuns, "was never written like this".to_owned()),
        Some(written) if written.quality != Quality::Good || !call.passed => {
            return broken(Law::NeverRuns, format!("was written as {:?}", written.quality));
        }
        Some(written) if written.runs >= written.times => {
            return broken(Law::OneEffect, format!("was written {} times and runs once more", written.times));
        }
        Some(written) if written.runs >= written.delivered => {
            return broken(Law::NeverRuns, "is of an unfinished answer".to_owned());
        }
        Some(_) => {}
    }
    if let Some(written) = witness.written.get_mut(path) {
        written.runs += 1;
    }
    let user = &witness.user;
    let held = |rule: &str| user.always.iter().any(|held| held == rule);
    let allowed = match call.name.as_str() {
        "forbid" => false,
        "touch" => plan.terms.edits || held("edits") || user.yes.contains(id),
        "fetch" => held(&format!("host={HOST}")) || user.yes.contains(id),
        _ => true,
    };
    if !allowed || call.denied || user.no.contains(id) {
        return broken(Law::Allowed, "runs and nobody allowed it".to_owned());
    }
    once_in_order(witness, id, reads)
}

fn once_in_order(witness: &mut Witness, id: &CallId, reads: bool) -> Result<(), Violation> {
    let begun = witness.tools.begun.entry(id.clone()).or_default();
    *begun += 1;
    if *begun > 1 {
        return Err(Violation { law: Law::OneEffect, seen: format!("{id} runs twice") });
    }
    let broken = |seen: String| Err(Violation { law: Law::WritesInOrder, seen: format!("{id} {seen}") });
    let running = &witness.tools.running;
    if let Some((other, _)) = running.iter().find(|(_, other)| !other || !reads) {
        return broken(format!("runs beside {other}"));
    }
    match witness.open_before(id).find(|_| !reads) {
        Some(other) => broken(format!("writes before {other} has its result")),
        None => Ok(()),
    }
}

fn change(state: &mut State, id: &CallId, path: &str) {
    state.happens(|| format!("change {id} {path}"));
    if state.crashed() {
        return;
    }
    let times = if state.sabotage == Some(Sabotage::RepeatEffect) { 2 } else { 1 };
    state.figures.count("side effects");
    let effects = state.witness.tools.effects.entry(id.clone()).or_default();
    *effects += times;
    let effects = *effects;
    if effects > 1 {
        state.broken(Law::OneEffect, format!("{id} ({path}) changed something {effects} times"));
    }
    if state.witness.result(id).is_some() {
        state.broken(Law::OneEffect, format!("{id} ({path}) changed something after its result"));
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.scene.with(|state| {
            state.moment.checking &= !self.checks;
            if !self.ended && !state.crashed() {
                state.figures.count("tools dropped");
                if self.changed {
                    state.figures.count("dropped after the effect");
                }
            }
            let running = &mut state.witness.tools.running;
            let at = running.iter().position(|(call, _)| *call == self.call);
            if self.ended && at.is_some_and(|at| at > 0) {
                state.figures.count("ends out of order");
            }
            if let Some(at) = at {
                running.remove(at);
            }
        });
    }
}
