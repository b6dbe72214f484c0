//! Checks the rules of the source tree that neither the compiler nor clippy can see.
//!
//! A rule that is only written in a document is broken within a week, so the rules of the design are tables here, and `cargo test`
//! checks them. The checks look at the text of the files. They understand Rust as this tree writes it (formatted, with `mod`
//! declarations on lines of their own), not Rust in general.
//!
//! | file | checks |
//! | --- | --- |
//! | `dependency_rules.rs` | which crate may depend on which, and how many packages `sabir-call` may lock |
//! | `processes.rs` | every started process has a row in `docs/processes.md` |
//! | `crate_boundaries.rs` | which crates may use `std::fs`, `std::process`, `std::env`, printing and `unsafe` |
//! | `file_shape.rs` | module docs, names of crates and modules |
//! | `test_targets.rs` | targets that are built without tests or documentation tests have none |
//!
//! The crate also measures the tree: `cargo run -p sabir-tidy --bin figures` prints how names, docs, comments and imports look, for
//! one tree or for two versions of it side by side. The figures of the whole tree ([`measure_tree`]) have aims, which a test checks
//! ([`TreeMetrics::missed_targets`]); those of single crates ([`measure_crates`]) are for comparison only.
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
mod figures;
mod file_shape;
mod import_cycles;
mod processes;
mod source;
mod test_targets;
mod tree_reader;

pub use figures::{CrateMetrics, TreeMetrics, measure_crates, measure_tree};
pub use tree_reader::read_tree;

/// The texts of a tree that the rules read: `.rs` files, manifests, the lock file and the table of processes.
///
/// A tree is a value: tests build small ones by hand, and [`read_tree`] reads the real one. So
/// every rule can be tested without files.
#[derive(Debug, Default)]
pub struct SourceTree {
    /// The files, in the order in which they were read. No rule depends on it.
    files: Vec<SourceFile>,
}

/// One file of a tree.
#[derive(Debug)]
struct SourceFile {
    /// The path, relative to the root of the tree, with `/` between its parts.
    path: String,
    /// The content, as it is on the disk.
    text: String,
}

/// One place where a rule is broken.
///
/// Its `Display` is `PATH:LINE: MESSAGE`, which editors can jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path of the file, relative to the root of the tree.
    pub path: String,
    /// The line number, counted from 1.
    pub line: usize,
    /// The problem, and a way to fix it.
    pub message: String,
}

impl SourceTree {
    /// Adds a file; `path` is relative to the root, with `/` between its parts.
    ///
    /// The rules find manifests, the lock file and the table of processes by their paths.
    pub fn add_file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.push(SourceFile {
            path: path.into(),
            text: text.into(),
        });
    }

    /// Returns the number of Rust files. A tree without any was read from the wrong folder.
    pub fn rust_file_count(&self) -> usize {
        self.files.iter().filter(|file| file.is_rust()).count()
    }

    /// Returns the file with this path.
    fn find_file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SourceFile {
    /// Reports whether the file is Rust code.
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the folder name of the crate that the file belongs to.
    fn owning_crate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Reports whether the whole file is test code.
    fn is_test(&self) -> bool {
        // The last part of the path is the file itself, so it is skipped.
        let aside = ["tests", "benches", "examples", "fuzz"];
        let inside = self
            .path
            .split('/')
            .rev()
            .skip(1)
            .any(|part| aside.contains(&part));
        inside || self.path.ends_with("/tests.rs")
    }

    /// Creates a violation at a line of the file, counted from 1.
    fn violation_at(&self, line: usize, message: impl Into<String>) -> Violation {
        Violation {
            path: self.path.clone(),
            line,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Returns every broken rule, sorted by file and line.
///
/// An empty list means that the tree is tidy. A tree without Rust code breaks no rule either, so
/// callers should look at [`SourceTree::rust_file_count`] first.
pub fn check_tree(tree: &SourceTree) -> Vec<Violation> {
    let mut found = Vec::new();
    dependency_rules::check_dependencies(tree, &mut found);
    processes::check_processes(tree, &mut found);
    test_targets::check_test_targets(tree, &mut found);
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        // Lexed once for each file: a word in a comment or a string is no use of anything.
        let code = source::blank_non_code(&file.text);
        file_shape::check_shape(file, &mut found);
        crate_boundaries::check_boundaries(file, &code, &mut found);
    }
    // Files come in the order of the file system, which differs from machine to machine.
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}
