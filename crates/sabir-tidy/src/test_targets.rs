//! Checks that targets that are built without tests have none.
//!
//! A target without tests would still be linked once more by `cargo test`, so its manifest says
//! `test = false`. A test that is written there later would never run, and nobody would notice. The same holds for libraries
//! without examples in their documentation, for each of which rustdoc would be started: `doctest = false`.

use crate::{SourceFile, SourceTree, Violation};

/// Attributes of tests and of their modules.
const TEST_ATTRIBUTES: [&str; 3] = ["#[test]", "#[tokio::test", "#[cfg(test)]"];

/// Words behind the fence of a block that rustdoc runs or compiles.
const EXAMPLE_WORDS: [&str; 6] = [
    "",
    "rust",
    "no_run",
    "should_panic",
    "compile_fail",
    "ignore",
];

/// Checks the targets of every manifest that say `test = false` or `doctest = false`.
pub(crate) fn check_test_targets(tree: &SourceTree, found: &mut Vec<Violation>) {
    for manifest in &tree.files {
        let Some(folder) = manifest.path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        for root in parse_untested_roots(&manifest.text) {
            let is_covered = |file: &&SourceFile| {
                let inside = file.path.strip_prefix(folder);
                inside.is_some_and(|path| covers(root, path.trim_start_matches('/')))
            };
            for file in tree.files.iter().filter(is_covered) {
                check_file(file, found);
            }
        }
        if manifest
            .text
            .lines()
            .any(|line| line.trim() == "doctest = false")
        {
            let is_covered = |file: &&SourceFile| {
                let inside = file.path.strip_prefix(folder);
                inside.is_some_and(|path| path.starts_with("/src/"))
            };
            for file in tree.files.iter().filter(is_covered) {
                check_examples(file, found);
            }
        }
    }
}

/// Reports an example in the documentation of a file, at its first line.
fn check_examples(file: &SourceFile, found: &mut Vec<Violation>) {
    let mut is_open = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(info) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else {
            continue;
        };
        let first = info.split([',', ' ']).next().unwrap_or_default();
        if !is_open && EXAMPLE_WORDS.contains(&first) {
            let message = "this example never runs; remove `doctest = false` from Cargo.toml";
            found.push(file.violation_at(index + 1, message));
            return;
        }
        is_open = !is_open;
    }
}

/// Reports a test in a file, at its first line.
fn check_file(file: &SourceFile, found: &mut Vec<Violation>) {
    let has_test = |line: &str| TEST_ATTRIBUTES.iter().any(|mark| line.starts_with(mark));
    if let Some(index) = file.text.lines().position(|line| has_test(line.trim())) {
        let message = "this test never runs; remove `test = false` from the target in Cargo.toml";
        found.push(file.violation_at(index + 1, message));
    }
}

/// Reports whether a file belongs to the target with this root file. A program in `src/bin` is one
/// file; a library or a `main.rs` has everything else in `src`.
fn covers(root: &str, path: &str) -> bool {
    path == root
        || (!root.starts_with("src/bin/")
            && root.starts_with("src/")
            && path.starts_with("src/")
            && !path.starts_with("src/bin/"))
}

/// Returns the root files of the targets that a manifest builds without tests.
///
/// Each of them names its path, as the first of the lines up to `test = false`.
fn parse_untested_roots(text: &str) -> Vec<&str> {
    let mut roots = Vec::new();
    let mut path = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            path = "";
        } else if let Some(value) = line.strip_prefix("path = ") {
            path = value.trim_matches('"');
        } else if line == "test = false" {
            roots.push(path);
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    fn report_violations(manifest: &str, path: &str) -> Vec<String> {
        let mut tree = SourceTree::default();
        tree.add_file("crates/sabir-tidy/Cargo.toml", manifest);
        let path = format!("crates/sabir-tidy/{path}");
        tree.add_file(path, "//! Tests.\n\n#[cfg(test)]\nmod tests {}\n");
        check_tree(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_library_whose_examples_do_not_run_has_none() {
        let report = |manifest: &str, text: &str| -> Vec<String> {
            let mut tree = SourceTree::default();
            tree.add_file("crates/sabir-tidy/Cargo.toml", manifest);
            tree.add_file("crates/sabir-tidy/src/part.rs", text);
            check_tree(&tree).iter().map(ToString::to_string).collect()
        };
        let library = "[lib]\ndoctest = false\n";
        let shown = "//! Part.\n//!\n//! ```json\n//! {}\n//! ```\n";
        assert_eq!(report(library, shown), [""; 0]);
        let run = format!("{shown}//! ```\n//! let x = 1;\n//! ```\n");
        let said = report(library, &run);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("crates/sabir-tidy/src/part.rs:6: this example never runs"));
        assert_eq!(report("[lib]\n", &run), [""; 0]);
    }

    #[test]
    fn a_target_without_tests_has_none() {
        let library = "[lib]\npath = \"src/lib.rs\"\ntest = false\n";
        let said = report_violations(library, "src/part.rs");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("crates/sabir-tidy/src/part.rs:3: this test never runs"));
        assert_eq!(report_violations(library, "src/bin/other.rs"), [""; 0]);
        assert_eq!(
            report_violations("[lib]\npath = \"src/lib.rs\"\n", "src/part.rs"),
            [""; 0]
        );

        let program = "[[bin]]\nname = \"other\"\npath = \"src/bin/other.rs\"\ntest = false\n";
        assert_eq!(report_violations(program, "src/bin/other.rs").len(), 1);
        assert_eq!(report_violations(program, "src/part.rs"), [""; 0]);
    }
}
