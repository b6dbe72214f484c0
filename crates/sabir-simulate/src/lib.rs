//! Simulates random tasks from seeds and checks that no invariant of the agent is broken.
//!
//! [`simulate`] runs one task with random events and reports the first invariant that it broke, if any. The task machine, the driver and
//! the journal are the real ones. Model, tools, user, clock and disk are simulated, and everything random in them follows from one
//! number. The same seed gives the same run, so a failure is reproduced by its seed alone.
//!
//! [`COUNTED_EVENTS`] lists the events that may happen, and [`INVARIANTS`] the invariants that must hold. A run over many seeds fails if one of
//! the events never happened, because a case that never comes up proves nothing. [`Sabotage`] breaks the invariants on purpose to show
//! that each check works.
//!
//! The main design decision is that **the observer is independent of the machine**. Code that shares nothing with the parts under test records
//! each event where it happens (a tool begins, a sync returns, the user approves), and compares the record with what those parts
//! report. A machine that is only checked against its own replay would repeat its own mistakes.
//!
//! ```
//! let report = sabir_simulate::simulate(7, None, true);
//! assert_eq!(report.violation, None);
//! assert_eq!(report.trace, sabir_simulate::simulate(7, None, true).trace);
//! ```

mod compaction_run;
mod counters;
mod disk;
mod disk_state;
pub mod history;
mod invariants;
mod model;
mod model_reply;
mod observations;
mod plan;
mod process_run;
mod request_checks;
mod rng;
mod sabotage;
mod simulated_tools;
mod simulation_state;
mod store;
mod task_tree;
mod user;
mod user_script;

pub use counters::{COUNTED_EVENTS, EventCounters};
pub use invariants::{INVARIANTS, Invariant, InvariantRow, Violation};
pub use sabotage::{SABOTAGES, Sabotage};

use process_run::ProcessRunner;
use simulation_state::SimulationHandle;

/// The result of one simulated task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationReport {
    /// The seed of the task.
    pub seed: u64,
    /// The number of times that each event happened.
    pub counters: EventCounters,
    /// The first invariant that was broken, if any.
    pub violation: Option<Violation>,
    /// One line for each event, with the milliseconds of the simulated clock; empty unless tracing was on.
    pub trace: Vec<String>,
}

/// Simulates one task over all its processes. `sabotage` breaks an invariant on purpose; `traced` records every event.
#[must_use]
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> SimulationReport {
    // One thread and a paused clock make the run deterministic: time only advances when nothing
    // else can run.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed_report(seed, &error.to_string()),
    };
    // Everything below runs on this thread. Two runs of a seed poll the same futures in the same
    // order.
    runtime.block_on(async {
        let simulation = SimulationHandle::new(seed, sabotage, traced);
        let start = simulation.with_state(|state| state.plan.start_record(seed));
        match task_tree::build_registry(&simulation, &start) {
            Ok(registry) => {
                ProcessRunner::new(simulation.clone(), registry, start)
                    .run_all()
                    .await
            }
            // The fixed tool specs are invalid: a mistake in this crate, and no finding about the
            // agent.
            Err(error) => return failed_report(seed, &error.to_string()),
        }
        simulation.with_state(|state| {
            state.counters.count_event("seeds");
            // Each subtask counts for itself. The report is about the whole tree.
            let mut counters = state.counters.clone();
            let violation = state.violation().cloned();
            let mut trace = state.take_trace();
            // Other states are locked while this one is. That is safe, because there is one thread
            // and no member locks its parent.
            for (id, simulation) in state.task_tree.all_members() {
                simulation.with_state(|member| {
                    counters.merge(&member.counters);
                    trace.extend(
                        member
                            .take_trace()
                            .into_iter()
                            .map(|line| format!("{id}: {line}")),
                    );
                });
            }
            SimulationReport {
                seed,
                counters,
                violation,
                trace,
            }
        })
    })
}

/// Returns the report of a simulation that could not begin. It counts as a violation, so that it cannot be overlooked.
fn failed_report(seed: u64, why: &str) -> SimulationReport {
    let violation = Violation {
        invariant: Invariant::Ends,
        seen: format!("the simulation could not begin: {why}"),
    };
    SimulationReport {
        seed,
        counters: EventCounters::default(),
        violation: Some(violation),
        trace: Vec::new(),
    }
}
