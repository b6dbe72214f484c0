//! Is the house in order?
//!
//! A rule that only a document holds is broken within a week. The rules of the design that neither the compiler nor
//! clippy can see are data here, and `cargo test` holds them. They need nothing but the standard library and a look at the
//! text: what they read is Rust as this tree writes it (formatted, `mod` declarations on lines of their own), not Rust in
//! general.
//!
//! | file | checks |
//! | --- | --- |
//! | `dependency_rules.rs` | which crate may depend on which, and how many packages `sabir-call` may lock |
//! | `processes.rs` | every started process has a row in `docs/processes.md` |
//! | `crate_boundaries.rs` | which crates may use `std::fs`, `std::process`, `std::env`, printing and `unsafe` |
//! | `file_shape.rs` | module docs, names of crates and modules |
//!
//! ```
//! use sabir_tidy::{SourceTree, check_tree};
//!
//! let mut tree = SourceTree::default();
//! tree.add_file("crates/sabir-call/src/utils.rs", "fn main() {}\n");
//! let said: Vec<String> = check_tree(&tree).iter().map(ToString::to_string).collect();
//! assert!(said.iter().any(|line| line.starts_with("crates/sabir-call/src/utils.rs:1: ")));
//! ```

mod crate_boundaries;
mod dependency_rules;
mod file_shape;
mod processes;
mod source;

/// The texts of a tree that the rules look at: `.rs` files, manifests, the lock file and the table of
/// processes.
#[derive(Debug, Default)]
pub struct SourceTree {
    files: Vec<SourceFile>,
}

/// One file.
#[derive(Debug)]
struct SourceFile {
    path: String,
    text: String,
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The file, from the root of the tree.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl SourceTree {
    /// Adds a file; `path` is relative to the root, with `/` between its parts.
    pub fn add_file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.push(SourceFile { path: path.into(), text: text.into() });
    }

    /// How many Rust files there are: a tree without any was read from the wrong place.
    pub fn rust_file_count(&self) -> usize {
        self.files.iter().filter(|file| file.is_rust()).count()
    }

    fn find_file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The crate's folder name, if the file belongs to one.
    fn owning_crate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether all of the file is test code.
    fn is_test(&self) -> bool {
        let aside = ["tests", "benches", "examples", "fuzz"];
        let inside = self.path.split('/').rev().skip(1).any(|part| aside.contains(&part));
        inside || self.path.ends_with("/tests.rs")
    }

    fn violation_at(&self, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, message: message.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Every broken rule, file by file.
pub fn check_tree(tree: &SourceTree) -> Vec<Violation> {
    let mut found = Vec::new();
    dependency_rules::check_dependencies(tree, &mut found);
    processes::check(tree, &mut found);
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let code = source::blank_non_code(&file.text);
        file_shape::check_shape(file, &mut found);
        crate_boundaries::check_boundaries(file, &code, &mut found);
    }
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}
