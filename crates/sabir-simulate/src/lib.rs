//! Do the laws hold?
//!
//! [`simulate`] lets one task live through a random life, and says which law it broke, if any. The task machine, the driver and
//! the journal are the real ones; model, tools, user, clock and disk are simulated, and everything random in them follows from one
//! number. The same seed gives the same life, so a failure is found again by its seed alone.
//!
//! What may happen stands in [`COUNTED_EVENTS`], what must hold in [`LAWS`]. A look at many seeds fails where something of the first
//! never happened, because a case that never comes up proves nothing. That the laws are really looked at is shown by breaking them
//! on purpose ([`Sabotage`]).
//!
//! The decision that shapes this crate is that **the witness is not the machine**. What happened is noted where it happens (a tool
//! begins, a sync returns, the user nods), by code that shares nothing with the parts under test, and is then held against what
//! those say. A replay of the machine by itself would agree with its own mistakes.
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
mod laws;
mod model;
mod model_reply;
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
mod witness;

pub use counters::{COUNTED_EVENTS, EventCounters};
pub use laws::{LAWS, Law, LawRow, Violation};
pub use sabotage::{SABOTAGES, Sabotage};

use process_run::ProcessRunner;
use simulation_state::SimulationHandle;

/// What one seed gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationReport {
    /// The seed.
    pub seed: u64,
    /// What happened how often.
    pub counters: EventCounters,
    /// The first law that was broken.
    pub violation: Option<Violation>,
    /// All that happened, a line each, with milliseconds of the simulated clock; empty unless it was asked for.
    pub trace: Vec<String>,
}

/// Simulates one task with all its lives.
#[must_use]
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> SimulationReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed_report(seed, &error.to_string()),
    };
    runtime.block_on(async {
        let scene = SimulationHandle::new(seed, sabotage, traced);
        let start = scene.with_state(|state| state.plan.start(seed));
        match task_tree::build_registry(&scene, &start) {
            Ok(registry) => ProcessRunner::new(scene.clone(), registry, start).run_all().await,
            Err(error) => return failed_report(seed, &error.to_string()),
        }
        scene.with_state(|state| {
            state.counters.count_event("seeds");
            let (mut figures, violation) = (state.counters.clone(), state.violation().cloned());
            let mut trace = state.take_trace();
            for (id, scene) in state.task_tree.all_members() {
                scene.with_state(|member| {
                    figures.merge(&member.counters);
                    trace.extend(member.take_trace().into_iter().map(|line| format!("{id}: {line}")));
                });
            }
            SimulationReport { seed, counters: figures, violation, trace }
        })
    })
}

/// Not even begun: told as what it would hide.
fn failed_report(seed: u64, why: &str) -> SimulationReport {
    let violation = Violation { law: Law::Ends, seen: format!("the simulation could not begin: {why}") };
    SimulationReport { seed, counters: EventCounters::default(), violation: Some(violation), trace: Vec::new() }
}
