//! The list of cases and the tests that hold them: each test that it names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const LIST: &str = include_str!("held.md");

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
    assert!(seen.len() >= 100, "{}", seen.len());
}
