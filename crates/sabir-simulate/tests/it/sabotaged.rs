//! Laws that are broken on purpose are noticed, each within a thousand seeds.

use sabir_simulate::{SABOTAGES, Sabotage, simulate};

/// The first seed, counted from 1, at which a law is seen broken.
fn caught(sabotage: Sabotage) -> Option<(u64, sabir_simulate::Violation)> {
    (0..1000).find_map(|seed| Some((seed + 1, simulate(seed, Some(sabotage), false).violation?)))
}

#[test]
fn broken_laws_are_noticed() {
    for (sabotage, laws) in SABOTAGES {
        let (seeds, violation) = caught(sabotage).unwrap_or_else(|| panic!("{sabotage:?} was not noticed"));
        assert!(laws.contains(&violation.law), "{sabotage:?} was taken for {violation}");
        println!("{sabotage:?}: caught after {seeds} seeds: {}", violation.law);
        // Without it the same seed is innocent.
        assert_eq!(simulate(seeds - 1, None, false).violation, None);
    }
}
