//! Laws that are broken on purpose are noticed, each within a thousand seeds.

use sabir_simulate::{Law, SABOTAGES, Sabotage, simulate};

/// The first seed, counted from 1, at which a law is seen broken.
fn caught(sabotage: Sabotage) -> Option<(u64, sabir_simulate::Violation)> {
    (0..1000).find_map(|seed| Some((seed + 1, simulate(seed, Some(sabotage), false).violation?)))
}

#[test]
fn broken_laws_are_noticed() {
    let look = |(sabotage, laws): &(Sabotage, &[Law])| {
        let (seeds, violation) =
            caught(*sabotage).unwrap_or_else(|| panic!("{sabotage:?} was not noticed"));
        assert!(
            laws.contains(&violation.law),
            "{sabotage:?} was taken for {violation}"
        );
        println!(
            "{sabotage:?}: caught after {seeds} seeds: {}",
            violation.law
        );
        // Without it the same seed is innocent.
        assert_eq!(simulate(seeds - 1, None, false).violation, None);
    };
    let (some, others) = SABOTAGES.split_at(SABOTAGES.len() / 2);
    std::thread::scope(|scope| {
        for part in [some, others] {
            scope.spawn(move || part.iter().for_each(look));
        }
    });
}
