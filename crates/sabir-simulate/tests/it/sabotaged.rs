//! Tests that every sabotage is detected within a thousand seeds.

use sabir_simulate::{Invariant, SABOTAGES, Sabotage, simulate};

/// Returns the first seed, counted from 1, at which the sabotage is detected.
fn caught(sabotage: Sabotage) -> Option<(u64, sabir_simulate::Violation)> {
    (0..1000).find_map(|seed| Some((seed + 1, simulate(seed, Some(sabotage), false).violation?)))
}

#[test]
fn every_sabotage_is_detected() {
    let look = |(sabotage, invariants): &(Sabotage, &[Invariant])| {
        let (seeds, violation) =
            caught(*sabotage).unwrap_or_else(|| panic!("{sabotage:?} was not noticed"));
        assert!(
            invariants.contains(&violation.invariant),
            "{sabotage:?} was taken for {violation}"
        );
        println!(
            "{sabotage:?}: caught after {seeds} seeds: {}",
            violation.invariant
        );
        // Without the sabotage the same seed breaks no invariant.
        assert_eq!(simulate(seeds - 1, None, false).violation, None);
    };
    let (some, others) = SABOTAGES.split_at(SABOTAGES.len() / 2);
    std::thread::scope(|scope| {
        for part in [some, others] {
            scope.spawn(move || part.iter().for_each(look));
        }
    });
}
