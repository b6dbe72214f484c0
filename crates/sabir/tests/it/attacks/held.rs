//! Checks the list of cases and the tests that cover them: each test that it names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::world::skipped;

const LIST: &str = include_str!("held.md");

/// The number of cases of each area.
const CASES: [(&str, usize); 25] = [
    ("APR", 22),
    ("BEN", 36),
    ("CFG", 32),
    ("CHN", 26),
    ("ENV", 12),
    ("GIT", 25),
    ("INJ", 31),
    ("LNK", 13),
    ("MCP", 19),
    ("NET", 20),
    ("OPT", 40),
    ("PFX", 6),
    ("PTH", 28),
    ("RED", 14),
    ("RES", 16),
    ("SBX", 32),
    ("SEC", 19),
    ("SES", 10),
    ("SRV", 21),
    ("SUB", 27),
    ("TOC", 4),
    ("TRM", 25),
    ("UNI", 7),
    ("WRP", 28),
    ("ZSH", 12),
];

#[test]
fn every_named_test_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = BTreeSet::new();
    for row in LIST
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip(2)
    {
        let (id, held) = row.trim_end_matches(" |").split_once(" | ").unwrap();
        assert!(seen.insert(id), "{id} stands twice");
        let Some(test) = held.strip_prefix('`') else {
            assert!(held.len() > 20, "{id}: a reason is a sentence");
            continue;
        };
        let (file, name) = test.trim_end_matches('`').split_once("::").unwrap();
        let text = fs::read_to_string(crates.join(file))
            .unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
        assert!(
            text.contains(&format!("fn {name}(")),
            "{id}: no test `{name}` in {file}"
        );
    }
    let mut counts = BTreeMap::new();
    for id in &seen {
        let (area, number) = id.split_once('-').unwrap();
        assert!(number.parse::<u32>().is_ok(), "{id}");
        *counts.entry(area).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from(CASES));
    assert_eq!(seen.len(), 525);
}

/// Compares the list with the shared cases, if they are present: each of them is listed, and nothing else.
#[test]
fn every_shared_case_is_listed() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/security.jsonl");
    let Ok(text) = fs::read_to_string(shared) else {
        return skipped("there are no shared cases beside this checkout");
    };
    let cases: BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|case| case["id"].as_str().unwrap().to_owned())
        .collect();
    let listed: BTreeSet<String> = LIST
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip(2)
        .filter_map(|row| Some(row.split_once(" | ")?.0.to_owned()))
        .collect();
    assert_eq!(listed, cases);
}

/// The command cases are the lines of the first table, which `commands.rs` and the policy's own tests run.
#[test]
fn every_command_case_has_a_line() {
    const COMMANDS: [&str; 10] = [
        "BEN", "CHN", "ENV", "GIT", "OPT", "PFX", "RED", "SUB", "WRP", "ZSH",
    ];
    let counted = CASES.iter().filter(|(area, _)| COMMANDS.contains(area));
    assert_eq!(
        super::folders::cases(1).len(),
        counted.map(|(_, count)| count).sum::<usize>()
    );
}
