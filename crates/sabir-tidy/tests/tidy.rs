//! Checks the rules and the aims on this tree.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::path::Path;

use sabir_tidy::{SourceTree, check_tree, measure_tree, read_tree};

fn read_this_tree() -> SourceTree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let tree = read_tree(root).unwrap();
    assert!(tree.rust_file_count() > 20, "the tree was not found");
    tree
}

#[test]
fn tidy() {
    let found = check_tree(&read_this_tree());
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(
        found.is_empty(),
        "{} rules are broken:\n{}",
        found.len(),
        lines.join("\n")
    );
}

#[test]
fn figures_meet_their_aims() {
    let missed = measure_tree(&read_this_tree()).missed_targets();
    assert!(
        missed.is_empty(),
        "{} figures miss their aims:\n{}\n`cargo run -p sabir-tidy --bin figures` shows them all",
        missed.len(),
        missed.join("\n")
    );
}
