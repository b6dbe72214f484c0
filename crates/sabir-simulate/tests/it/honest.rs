//! Tests simulations without sabotage: no invariant is broken, the same seed gives the same run, and the tables are complete.

use std::collections::BTreeSet;

use sabir_simulate::{EventCounters, INVARIANTS, SABOTAGES, SimulationReport, simulate};

/// Few enough for a debug build; the program simulates more.
const SEEDS: u64 = 300;

fn look(seeds: impl Iterator<Item = u64>) -> EventCounters {
    let mut figures = EventCounters::default();
    for seed in seeds {
        let SimulationReport {
            counters: more,
            violation,
            ..
        } = simulate(seed, None, false);
        assert_eq!(
            violation, None,
            "again: cargo run --release -p sabir-simulate -- --seed {seed} --trace"
        );
        figures.merge(&more);
    }
    figures
}

#[test]
fn no_invariant_is_broken() {
    // Half of the seeds, so that two tests share them.
    let figures = std::thread::scope(|scope| {
        let halves = [0, 1]
            .map(|half| scope.spawn(move || look((0..SEEDS / 2).map(|seed| seed * 2 + half))));
        let mut all = EventCounters::default();
        halves
            .into_iter()
            .for_each(|half| all.merge(&half.join().unwrap()));
        all
    });
    assert_eq!(figures.unlisted_events(), [""; 0]);
    assert_eq!(figures.count_of("seeds"), SEEDS);
    // Every event must have happened, except those that are too rare for so few seeds.
    assert!(
        figures.missing_events().len() < 8,
        "never happened: {:?}",
        figures.missing_events()
    );
}

/// Seeds that broke an invariant once, in runs of 100,000.
#[test]
fn seeds_that_broke_an_invariant_hold() {
    // 4392 and 5596: a power cut within the first record. 32191: a subtask that began after another
    // of the same message had ended had a turn too many.
    look([4392, 5596, 32191].into_iter());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1000..1020 {
        let (one, two) = (simulate(seed, None, true), simulate(seed, None, true));
        assert!(one.trace.len() > 1, "seed {seed}");
        let differs = one
            .trace
            .iter()
            .zip(&two.trace)
            .find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one, two, "seed {seed}");
        // Tracing does not change the run.
        assert_eq!(
            simulate(seed, None, false).counters,
            one.counters,
            "seed {seed}"
        );
    }
}

#[test]
fn every_invariant_has_a_sabotage() {
    let broken: BTreeSet<_> = SABOTAGES
        .iter()
        .flat_map(|(_, invariants)| *invariants)
        .collect();
    for (invariant, ..) in &INVARIANTS {
        assert!(
            broken.contains(invariant),
            "no sabotage breaks {invariant:?}"
        );
    }
}
