//! Checks the list of faults: every named test exists, and no row is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const LIST: &str = include_str!("held.md");

/// The number of rows of each kind; they are numbered from 1.
const KINDS: [(&str, usize); 8] = [
    ("STR", 52),
    ("PRO", 11),
    ("SIG", 9),
    ("DIS", 11),
    ("CON", 7),
    ("CLO", 3),
    ("STA", 5),
    ("MCP", 4),
];

#[test]
fn every_fault_has_its_test_or_its_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut tests) = (BTreeMap::<&str, BTreeSet<usize>>::new(), 0);
    let mut reasoned = 0;
    for row in LIST.lines().filter_map(|line| line.strip_prefix("| F-")) {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [id, fault, held] = cells[..] else {
            panic!("no three cells: {row}")
        };
        let (kind, number) = id.split_once('-').unwrap();
        assert!(
            seen.entry(kind)
                .or_default()
                .insert(number.parse().unwrap()),
            "{id} stands twice"
        );
        assert!(fault.len() > 5, "{id}: what is the fault?");
        let named: Vec<&str> = held
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.contains(".rs::"))
            .collect();
        for test in &named {
            let (file, name) = test.split_once("::").unwrap();
            let text = fs::read_to_string(crates.join(file))
                .unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
            let at = text
                .find(&format!("fn {name}("))
                .unwrap_or_else(|| panic!("{id}: no test `{name}` in {file}"));
            // The attributes of the function: those after the end of what comes before it.
            let before = text[..at]
                .rsplit_once("}\n")
                .map_or(&text[..at], |(_, attributes)| attributes);
            let is_test = before.contains("#[test]") || before.contains("#[tokio::test");
            assert!(is_test, "{id}: `{name}` in {file} is not a test: {before}");
        }
        let (words, held_by_a_test) = (held.len(), !named.is_empty());
        assert!(held_by_a_test || words > 60, "{id}: a reason is a sentence");
        tests += usize::from(held_by_a_test);
        reasoned += usize::from(!held_by_a_test);
    }
    for (kind, rows) in KINDS {
        assert_eq!(
            seen.remove(kind).unwrap_or_default(),
            (1..=rows).collect(),
            "{kind}"
        );
    }
    assert!(seen.is_empty(), "{seen:?}");
    println!(
        "{} faults: {tests} held by tests, {reasoned} with a reason",
        tests + reasoned
    );
}
