//! Checks the rules on this tree.

use std::path::Path;

use sabir_tidy::{check_tree, read_tree};

#[test]
fn tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let tree = read_tree(root).unwrap();
    assert!(tree.rust_file_count() > 20, "the tree was not found");
    let found = check_tree(&tree);
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(
        found.is_empty(),
        "{} rules are broken:\n{}",
        found.len(),
        lines.join("\n")
    );
}
