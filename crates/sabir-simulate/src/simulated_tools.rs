//! The simulated tools, which check the invariants when a call begins and when it changes something.
//!
//! A tool run is where most invariants about calls are checked, because that is where breaking one does
//! harm: the tool asks the observations whether exactly this call was completely written, passed the
//! checks, is on record, and was allowed. Its only effect is a counter, which shows a call that ran
//! twice. Runs take simulated time, so that they overlap, are interrupted and survive each other in
//! every order. A run may also fail, hang or panic, each as often as the plan says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{
    CallArguments, CallPermit, Preconditions, PreparedCall, ProgressSink, Tool, ToolFuture,
    ToolOutput, ToolRegistry, control,
};
use sabir_call::{CallId, ToolError, ToolSpec};
use sabir_policy::Access;
use serde_json::json;
use tokio::time::sleep;

use crate::invariants::{Invariant, Violation};
use crate::observations::{CallQuality, TaskObservations, call_token};
use crate::plan::{ALLOWED_HOST, CHECK_PATH, FORBIDDEN_HOST, TaskPlan};
use crate::sabotage::Sabotage;
use crate::simulation_state::{KeyCounts, SimulationHandle, SimulationState, StuckReason};

/// The tools: the name of each, and whether it only reads.
/// `look` and `list` read. `touch` writes and needs an approval unless edits are approved; `fetch`
/// needs one for its host; a rule forbids `forbid`.
pub(crate) const SIMULATED_TOOLS: [(&str, bool); 5] = [
    ("look", true),
    ("list", true),
    ("touch", false),
    ("fetch", false),
    ("forbid", false),
];

/// The running calls and their effects.
#[derive(Debug, Default)]
pub(crate) struct ToolActivity {
    /// The running calls in the order in which they began, each with whether it only reads.
    running: Vec<(CallId, bool)>,
    /// The number of changes by each call, over all processes.
    effects: KeyCounts<CallId>,
    /// The number of runs of each call in the current process.
    begun: KeyCounts<CallId>,
    /// The completions whose check succeeded.
    passed: BTreeSet<CallId>,
}

/// A tool of the simulated world.
#[derive(Clone)]
struct SimulatedTool {
    /// The state of the task.
    simulation: SimulationHandle,
    /// The name, which decides the access of its calls.
    name: &'static str,
    /// True if it only reads.
    reads: bool,
    /// True if it claims to only read.
    said_to_read: bool,
}

/// The behavior of a tool in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolBehavior {
    /// It changes something and says so.
    Succeeds,
    /// It changes nothing and says so.
    Fails,
    /// It changes something and never returns.
    Hangs,
    /// It changes something and panics.
    Breaks,
}

/// Marks the end of a run when it is dropped, also if the call was cancelled.
struct RunGuard {
    simulation: SimulationHandle,
    /// The call that runs.
    call: CallId,
    /// True if the run came to its end. Otherwise it was dropped.
    ended: bool,
    /// True if it has changed something.
    changed: bool,
    /// True if the run is the check of a completion.
    checks: bool,
}

/// Builds the tools of a task.
///
/// # Errors
/// Returns an error only if one of the fixed specs is invalid.
pub(crate) fn base_registry(
    simulation: &SimulationHandle,
    subtasks: Option<Arc<dyn Tool>>,
) -> Result<ToolRegistry, ToolError> {
    let lies = simulation.with_state(|state| state.sabotage == Some(Sabotage::ClaimReadOnly));
    let worker = |(name, reads)| {
        let said_to_read = reads || lies;
        Arc::new(SimulatedTool {
            simulation: simulation.clone(),
            name,
            reads,
            said_to_read,
        }) as Arc<dyn Tool>
    };
    ToolRegistry::new(
        SIMULATED_TOOLS
            .into_iter()
            .map(worker)
            .chain(subtasks)
            .collect(),
    )
}

impl ToolActivity {
    /// Forgets what ran in the process before. Effects and passed checks stay.
    pub(crate) fn begin_process(&mut self) {
        self.running.clear();
        self.begun.clear();
    }

    /// Reports whether the check of a completion succeeded.
    pub(crate) fn has_passed(&self, id: &CallId) -> bool {
        self.passed.contains(id)
    }

    /// Reports whether any tool is running.
    pub(crate) fn is_any_running(&self) -> bool {
        !self.running.is_empty()
    }
}

impl Tool for SimulatedTool {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
            "path": {"type": "string"}, "note": {"type": "string"}, "count": {"type": "integer"},
        }});
        ToolSpec::new(self.name, "", schema)
    }

    fn is_read_only(&self) -> bool {
        self.said_to_read
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(SimulatedCall {
            tool: self.clone(),
            path: call_token(arguments),
        })
    }
}

/// A call of a simulated tool.
struct SimulatedCall {
    /// The tool.
    tool: SimulatedTool,
    /// The token of the call.
    path: String,
}

impl PreparedCall for SimulatedCall {
    fn access(&self) -> Access {
        let path = self.path.clone();
        self.tool.simulation.with_state(|state| {
            state.on_event(|| format!("weigh {} {path}", self.tool.name));
            // A tool with unknown access must not run without a question.
            if state.rng.hits_permille(state.plan.tool_trouble / 20) {
                state.counters.count_event("accesses invalid");
                return Access::Invalid {
                    reason: "this is not a path".to_owned(),
                };
            }
            match self.tool.name {
                _ if state.sabotage == Some(Sabotage::HideAccess) => Access::Nothing,
                "touch" => Access::Write {
                    path,
                    protected: None,
                },
                "fetch" => Access::Fetch {
                    url: format!("https://{ALLOWED_HOST}/{path}"),
                },
                "forbid" => Access::Fetch {
                    url: format!("https://{FORBIDDEN_HOST}/{path}"),
                },
                _ => Access::Read {
                    path,
                    outside: false,
                },
            }
        })
    }

    fn preconditions(&self) -> Preconditions {
        let mut bound = Preconditions::default();
        self.tool.simulation.with_state(|state| {
            // Called twice, before the decision and before the run; a difference must prevent the
            // run.
            let moved = state.rng.hits_permille(state.plan.tool_trouble / 20);
            if moved {
                state.counters.count_event("things moved");
            }
            bound.insert("the file", if moved { "changed" } else { "as it was" });
        });
        bound
    }

    fn run<'a>(
        self: Box<Self>,
        permit: &'a CallPermit,
        progress: ProgressSink<'a>,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let Self {
                tool: SimulatedTool {
                    simulation, reads, ..
                },
                path,
            } = *self;
            // All invariants about the beginning of a run are checked here, before the first await.
            let behavior =
                simulation.with_state(|state| begin_run(state, &permit.call, &path, reads));
            let mut work = RunGuard {
                simulation: simulation.clone(),
                call: permit.call.clone(),
                ended: false,
                changed: false,
                // No model writes this path, so the run is the machine's own check.
                checks: path == CHECK_PATH,
            };
            // Others may begin, end or be interrupted meanwhile.
            sleep(simulation.with_state(draw_pause)).await;
            progress("working\n");
            if behavior != ToolBehavior::Fails {
                simulation.with_state(|state| apply_effect(state, &permit.call, &path));
                work.changed = true;
            }
            sleep(simulation.with_state(draw_pause)).await;
            // Set before the panic: a run that breaks down has ended, too.
            work.ended = behavior != ToolBehavior::Hangs;
            match behavior {
                ToolBehavior::Hangs => std::future::pending().await,
                // Unlike `panic!`, this prints nothing.
                ToolBehavior::Breaks => std::panic::resume_unwind(Box::new("the tool crashed")),
                _ => {}
            }
            simulation.with_state(|state| finish_run(state, &work, &path, behavior))
        })
    }
}

/// Returns the output of a run. The same call gets the same output unless something fails, so that cycles can be detected.
fn finish_run(
    state: &mut SimulationState,
    work: &RunGuard,
    path: &str,
    behavior: ToolBehavior,
) -> ToolOutput {
    // Noted under the completion's id, which the conditions are checked with.
    if work.checks && behavior != ToolBehavior::Fails && !state.has_crashed() {
        state.observations.tools.passed.insert(work.call.clone());
    }
    // The number in the token, so that the same call always has the same output.
    let number: usize = path
        .trim_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap_or(0);
    // Long outputs fill a limited context window, so that compactions happen.
    let long = if state.plan.terms.room.is_some() {
        number * 371 % 2500
    } else {
        0
    };
    match behavior {
        ToolBehavior::Fails => ToolOutput::failed("It did not work."),
        _ => ToolOutput::done(format!(
            "It is done.{}",
            "\nA line of output.".repeat(long / 18)
        )),
    }
}

/// Draws the duration of a piece of work.
fn draw_pause(state: &mut SimulationState) -> Duration {
    // In milliseconds, from nothing to a minute, so that runs overlap in every way.
    let most = state.rng.pick_one(3, &[0, 50, 1_000, 60_000]);
    Duration::from_millis(state.rng.below(most))
}

/// Begins a run and draws its behavior.
fn begin_run(state: &mut SimulationState, id: &CallId, path: &str, reads: bool) -> ToolBehavior {
    // Set before the event, in which the user may send a message: messages during a check are
    // counted by this flag.
    state.activity.checking |= path == CHECK_PATH;
    state.maybe_send_message(path == CHECK_PATH);
    state.on_event(|| format!("run {id} {path}"));
    if state.has_crashed() {
        return ToolBehavior::Hangs;
    }
    state.counters.count_event("calls run");
    // Checked before this run is added.
    if state.observations.tools.is_any_running() && reads {
        state.counters.count_event("reads at once");
    }
    let checked = check_may_begin(&mut state.observations, &state.plan, id, path, reads);
    state.record_check(checked);
    state.observations.tools.running.push((id.clone(), reads));
    if path == CHECK_PATH {
        state.counters.count_event("checks");
        // A check fails often, because a refused completion leads to more work.
        if state.rng.below(3) == 0 {
            state.counters.count_event("checks failed");
            return ToolBehavior::Fails;
        }
    }
    if !state.rng.hits_permille(state.plan.tool_trouble) {
        return ToolBehavior::Succeeds;
    }
    let behavior = state.rng.pick_one(
        ToolBehavior::Fails,
        &[
            ToolBehavior::Fails,
            ToolBehavior::Breaks,
            ToolBehavior::Hangs,
        ],
    );
    match behavior {
        ToolBehavior::Fails => state.counters.count_event("tools failed"),
        ToolBehavior::Breaks => state.counters.count_event("tools crashed"),
        ToolBehavior::Hangs => {
            state.counters.count_event("tools hung");
            // The simulation interrupts the task once nothing else happens.
            state.mark_stuck(StuckReason::Tool);
        }
        ToolBehavior::Succeeds => {}
    }
    behavior
}

/// Checks that the invariants allow a call to begin.
///
/// It counts the run, so it must be called once for each. The checks go from the most general to
/// the most specific, since only the first failure is reported.
fn check_may_begin(
    observations: &mut TaskObservations,
    plan: &TaskPlan,
    id: &CallId,
    path: &str,
    reads: bool,
) -> Result<(), Violation> {
    let broken = |invariant, seen: String| {
        Err(Violation {
            invariant,
            seen: format!("{id} ({path}) {seen}"),
        })
    };
    // Checks the call's record, then how the model wrote it, and last the permission. All come from
    // the observations; the task is not queried.
    let Some(call) = observations.calls.get(id).cloned() else {
        return broken(
            Invariant::NeverRuns,
            "runs and no answer on record holds it".to_owned(),
        );
    };
    // The record must be acknowledged before the tool is called, not only on its way.
    if !call.begun {
        return broken(
            Invariant::RecordFirst,
            "runs and no record says so".to_owned(),
        );
    }
    if call.result.is_some() {
        return broken(Invariant::OneEffect, "runs after its result".to_owned());
    }
    // The check of a completion runs as the completion's call, with arguments that no model wrote.
    if call.name == control::COMPLETION_TOOL {
        // A completion runs a tool for its check alone, and only where the plan has one.
        if path != CHECK_PATH || !plan.terms.check {
            return broken(Invariant::NeverRuns, "runs for a completion".to_owned());
        }
        return check_order(observations, id, reads);
    }
    // The arguments on their way to the tool must be those on record.
    if call.token != path {
        return broken(
            Invariant::NeverRuns,
            format!("is on record with {}", call.token),
        );
    }
    let quality = observations.written.get(path).copied();
    match quality {
        None => {
            return broken(
                Invariant::NeverRuns,
                "was never written like this".to_owned(),
            );
        }
        Some(written) if written.quality != CallQuality::Good || !call.passed => {
            return broken(
                Invariant::NeverRuns,
                format!("was written as {:?}", written.quality),
            );
        }
        // By the token and over all processes, since providers use ids again.
        Some(written) if written.runs >= written.times => {
            return broken(
                Invariant::OneEffect,
                format!("was written {} times and runs once more", written.times),
            );
        }
        // A call may be complete while its response is not; it must wait for the end of the
        // response.
        Some(written) if written.runs >= written.delivered => {
            return broken(
                Invariant::NeverRuns,
                "is of an unfinished answer".to_owned(),
            );
        }
        Some(_) => {}
    }
    if let Some(written) = observations.written.get_mut(path) {
        written.runs += 1;
    }
    // Only what the user did in this process counts; earlier approvals ended with their process.
    let user = &observations.user;
    let held = |rule: &str| user.always.iter().any(|held| held == rule);
    let allowed = match call.name.as_str() {
        // Denied by a rule, which no approval can lift.
        "forbid" => false,
        "touch" => plan.terms.edits || held("edits") || user.yes.contains(id),
        "fetch" => held(&format!("host={ALLOWED_HOST}")) || user.yes.contains(id),
        _ => true,
    };
    // A denial wins over an approval, whichever came first.
    if !allowed || call.denied || user.no.contains(id) {
        return broken(Invariant::Allowed, "runs and nobody allowed it".to_owned());
    }
    check_order(observations, id, reads)
}

/// Checks that a call runs once, that it does not run beside a write, and that a write waits for all calls before it.
fn check_order(
    observations: &mut TaskObservations,
    id: &CallId,
    reads: bool,
) -> Result<(), Violation> {
    // Within one process even the same call may not begin twice.
    let begun = observations.tools.begun.entry(id.clone()).or_default();
    *begun += 1;
    if *begun > 1 {
        return Err(Violation {
            invariant: Invariant::OneEffect,
            seen: format!("{id} runs twice"),
        });
    }
    let broken = |seen: String| {
        Err(Violation {
            invariant: Invariant::WritesInOrder,
            seen: format!("{id} {seen}"),
        })
    };
    let running = &observations.tools.running;
    // Two calls may overlap only if both read.
    if let Some((other, _)) = running.iter().find(|(_, other)| !other || !reads) {
        return broken(format!("runs beside {other}"));
    }
    // A write sees the results of everything before it, as the model expects.
    match observations.open_before(id).find(|_| !reads) {
        Some(other) => broken(format!("writes before {other} has its result")),
        None => Ok(()),
    }
}

/// Applies the side effect of a call, which must happen once and before its result.
///
/// The effect is a counter by call. A second effect, or one after the result, breaks the invariant.
fn apply_effect(state: &mut SimulationState, id: &CallId, path: &str) {
    state.on_event(|| format!("change {id} {path}"));
    if state.has_crashed() {
        return;
    }
    // The effect is counted over all processes: a resumed task must not repeat it.
    let times = if state.sabotage == Some(Sabotage::RepeatEffect) {
        2
    } else {
        1
    };
    state.counters.count_event("side effects");
    // By id: a call that was written twice has two ids on record.
    let effects = state
        .observations
        .tools
        .effects
        .entry(id.clone())
        .or_default();
    *effects += times;
    let effects = *effects;
    if effects > 1 {
        state.report_violation(
            Invariant::OneEffect,
            format!("{id} ({path}) changed something {effects} times"),
        );
    }
    if state.observations.call_result(id).is_some() {
        state.report_violation(
            Invariant::OneEffect,
            format!("{id} ({path}) changed something after its result"),
        );
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.simulation.with_state(|state| {
            // Also after a drop: the check is over either way.
            state.activity.checking &= !self.checks;
            if !self.ended && !state.has_crashed() {
                state.counters.count_event("tools dropped");
                if self.changed {
                    state.counters.count_event("dropped after the effect");
                }
            }
            let running = &mut state.observations.tools.running;
            // It is missing where the next process has cleared the list.
            let at = running.iter().position(|(call, _)| *call == self.call);
            // Calls that began earlier are still running.
            if self.ended && at.is_some_and(|at| at > 0) {
                state.counters.count_event("ends out of order");
            }
            if let Some(at) = at {
                running.remove(at);
            }
        });
    }
}
