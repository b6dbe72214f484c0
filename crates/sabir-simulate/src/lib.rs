//! Do the laws hold?
//!
//! [`simulate`] lets one task live through a random life, and says which law it broke, if any. The task machine, the driver and
//! the journal are the real ones; model, tools, user, clock and disk are simulated, and everything random in them follows from one
//! number. The same seed gives the same life, so a failure is found again by its seed alone.
//!
//! What may happen stands in [`HAPPENINGS`], what must hold in [`LAWS`]. A look at many seeds fails where something of the first
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

mod answer;
mod chance;
mod disk;
mod family;
mod figures;
pub mod history;
mod laws;
mod life;
mod model;
mod plan;
mod platter;
mod reading;
mod sabotage;
mod scene;
mod store;
mod talk;
mod upkeep;
mod user;
mod witness;
mod work;

pub use figures::{Figures, HAPPENINGS};
pub use laws::{LAWS, Law, Row, Violation};
pub use sabotage::{SABOTAGES, Sabotage};

use life::Lives;
use scene::Scene;

/// What one seed gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What happened how often.
    pub figures: Figures,
    /// The first law that was broken.
    pub violation: Option<Violation>,
    /// All that happened, a line each, with milliseconds of the simulated clock; empty unless it was asked for.
    pub trace: Vec<String>,
}

/// Simulates one task with all its lives.
#[must_use]
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return unable(seed, &error.to_string()),
    };
    runtime.block_on(async {
        let scene = Scene::new(seed, sabotage, traced);
        let start = scene.with(|state| state.plan.start(seed));
        match family::registry(&scene, &start) {
            Ok(registry) => Lives::new(scene.clone(), registry, start).live().await,
            Err(error) => return unable(seed, &error.to_string()),
        }
        scene.with(|state| {
            state.figures.count("seeds");
            let (mut figures, violation) = (state.figures.clone(), state.violation().cloned());
            let mut trace = state.take_trace();
            for (id, scene) in state.family.members() {
                scene.with(|member| {
                    figures.merge(&member.figures);
                    trace.extend(member.take_trace().into_iter().map(|line| format!("{id}: {line}")));
                });
            }
            Report { seed, figures, violation, trace }
        })
    })
}

/// Not even begun: told as what it would hide.
fn unable(seed: u64, why: &str) -> Report {
    let violation = Violation { law: Law::Ends, seen: format!("the simulation could not begin: {why}") };
    Report { seed, figures: Figures::default(), violation: Some(violation), trace: Vec::new() }
}
