//! Checks that every file has a module doc, and that names of crates and modules say what is inside.
//!
//! A name such as `utils` attracts whatever has no place yet, until nobody can say what the file is
//! for. A module doc forces that question when the file is made.

use crate::source::leading_word;
use crate::{SourceFile, Violation};

/// Names that do not say what is inside.
const BANNED_NAMES: [&str; 9] = [
    "core", "common", "util", "utils", "helper", "helpers", "types", "misc", "mod",
];

/// Checks one file.
///
/// It looks at the text and the path, not at the lexed code: docs are comments.
pub(crate) fn check_shape(file: &SourceFile, found: &mut Vec<Violation>) {
    if !has_module_doc(&file.text) {
        found.push(file.violation_at(
            1,
            "no module doc; begin with `//!` and say what the file is for",
        ));
    }
    check_names(file, found);
}

/// Reports whether the first line of a file, after attributes and comments, is its doc.
fn has_module_doc(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // Inner attributes and plain comments, such as a license, may precede the doc.
    let aside = |line: &&str| {
        (line.starts_with("//") && !line.starts_with("//!")) || line.starts_with("#!")
    };
    lines
        .find(|line| !aside(line))
        .is_some_and(|line| line.starts_with("//!"))
}

/// Checks the names in the path of a file and of its inline modules.
fn check_names(file: &SourceFile, found: &mut Vec<Violation>) {
    let parts = file.path.split('/').skip_while(|part| *part == "crates");
    let stem = |part: &str| {
        part.trim_end_matches(".rs")
            .trim_start_matches("sabir-")
            .to_owned()
    };
    if let Some(name) = parts
        .map(stem)
        .find(|name| BANNED_NAMES.contains(&name.as_str()))
    {
        let message = match name.as_str() {
            "mod" => "no mod.rs; name the file after its module".to_owned(),
            _ => format!(
                "`{name}` says nothing of what is inside; name the question that it answers"
            ),
        };
        found.push(file.violation_at(1, message));
    }
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let line = line
            .strip_prefix("pub(crate) ")
            .or_else(|| line.strip_prefix("pub "))
            .unwrap_or(line);
        let name = line
            .strip_prefix("mod ")
            .map(leading_word)
            .filter(|name| BANNED_NAMES.contains(name));
        // Only inline modules: a module in a file of its own was checked by the path of that file.
        if let Some(name) = name.filter(|_| line.ends_with('{')) {
            found.push(file.violation_at(
                index + 1,
                format!("a module `{name}` says nothing of what is inside"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    fn report_violations(path: &str, text: &str) -> String {
        let mut tree = SourceTree::default();
        tree.add_file(path, text);
        check_tree(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_file_has_a_doc() {
        let path = "crates/sabir-call/src/x.rs";
        assert_eq!(report_violations(path, "\n#![allow(x)]\n//! Doc.\n"), "");
        for bad in [
            "",
            "fn f() {}\n//! late\n",
            "// not a doc\nfn f() {}\n",
            "/// an item's\nfn f() {}\n",
        ] {
            assert!(
                report_violations(path, bad)
                    .starts_with("crates/sabir-call/src/x.rs:1: no module doc"),
                "{bad}"
            );
        }
    }

    #[test]
    fn names_say_what_is_inside() {
        for path in [
            "crates/sabir-core/src/a.rs",
            "crates/sabir-call/src/utils/a.rs",
            "crates/sabir-call/src/types.rs",
        ] {
            assert!(
                report_violations(path, "//! Doc.\n").contains("says nothing"),
                "{path}"
            );
        }
        assert!(
            report_violations("crates/sabir-call/src/a/mod.rs", "//! Doc.\n").contains("no mod.rs")
        );
        assert!(
            report_violations(
                "crates/sabir-call/src/a.rs",
                "//! Doc.\n\nmod helpers {\n}\n"
            )
            .contains("a.rs:3: a module `helpers`")
        );
    }
}
