//! Measures the names, prose and size of a tree.
//!
//! The figures are counts of text patterns, so they are rough, but they are the same for everybody and comparable between two
//! versions of the tree. Tests, benches, fuzz targets and examples are left out.
//!
//! Percentages are rounded to one decimal. Names count as one word if they have no underscore
//! (functions) or one capital letter (types): `read` and `Desk` tell a search nothing,
//! `read_journal` and `PromptQueue` do.

use std::fmt;

use regex::Regex;

use crate::import_cycles::largest_import_cycle;
use crate::{SourceFile, SourceTree};

/// A word with which a doc should not begin: a doc that says "What the …" or "Whether it …" does not name the thing.
const WH_WORD: &str = r"^(?i:what|who|whoever|whose|whether|which|where|when|why|how|of|those|that which|the one|as|from)\b";

/// The source folder of the binary, which should be small: its work belongs in libraries.
const BINARY_FOLDER: &str = "crates/sabir/src/";

/// The counts of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeMetrics {
    /// Lines that are neither blank nor a comment.
    pub code_lines: usize,
    /// Lines of `///` and `//!` docs.
    pub doc_lines: usize,
    /// Lines that hold only a `//` comment.
    pub comment_lines: usize,
    /// Functions of any kind.
    pub functions: usize,
    /// Functions whose name has no underscore inside.
    pub one_word_functions: usize,
    /// Structs, enums and traits.
    pub types: usize,
    /// Types whose name has one capital letter.
    pub one_word_types: usize,
    /// Files with a module doc.
    pub module_docs: usize,
    /// Module docs that begin with a wh-word.
    pub wh_module_docs: usize,
    /// Items and fields with a doc.
    pub item_docs: usize,
    /// Item docs that begin with a wh-word.
    pub wh_item_docs: usize,
    /// Parameters that destructure a tuple: `(a, b): (A, B)`.
    pub tuple_parameters: usize,
    /// Statements that bind several values by a tuple: `let (a, b) = (x, y);`.
    pub tuple_lets: usize,
    /// Uses of `Result` with `String` as the error.
    pub string_errors: usize,
    /// All lines below `crates/sabir/src`, those of test modules included.
    pub binary_lines: usize,
}

/// The size and the import structure of one crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrateMetrics {
    /// The crate's folder name.
    pub name: String,
    /// All lines of its measured files, without inline test modules.
    pub lines: usize,
    /// Its lines that are neither blank nor a comment.
    pub code_lines: usize,
    /// The paths of the files in its largest import cycle, sorted; empty if there is no cycle.
    pub largest_cycle: Vec<String>,
}

/// Counts the figures of a whole tree.
pub fn measure_tree(tree: &SourceTree) -> TreeMetrics {
    let patterns = LinePatterns::new();
    let mut figures = TreeMetrics::default();
    for file in tree.files.iter().filter(|file| is_measured(file)) {
        patterns.add_file(without_inline_tests(&file.text), &mut figures);
    }
    // Whole files, since the limit concerns how much code of the binary there is to read.
    figures.binary_lines = tree
        .files
        .iter()
        .filter(|file| file.is_rust() && file.path.starts_with(BINARY_FOLDER))
        .map(|file| file.text.lines().count())
        .sum();
    figures
}

/// Measures every crate of a tree, sorted by name.
pub fn measure_crates(tree: &SourceTree) -> Vec<CrateMetrics> {
    let patterns = LinePatterns::new();
    let measured: Vec<&SourceFile> = tree.files.iter().filter(|file| is_measured(file)).collect();
    let mut names: Vec<&str> = measured
        .iter()
        .filter_map(|file| file.owning_crate())
        .collect();
    names.sort_unstable();
    names.dedup();
    let measure = |name: &str| {
        let files: Vec<&SourceFile> = measured
            .iter()
            .copied()
            .filter(|file| file.owning_crate() == Some(name))
            .collect();
        let mut figures = TreeMetrics::default();
        let mut lines = 0;
        for file in &files {
            let text = without_inline_tests(&file.text);
            lines += text.lines().count();
            patterns.add_file(text, &mut figures);
        }
        let sources: Vec<(&str, &str)> = files
            .iter()
            .map(|file| (file.path.as_str(), without_inline_tests(&file.text)))
            .collect();
        CrateMetrics {
            name: name.to_owned(),
            lines,
            code_lines: figures.code_lines,
            largest_cycle: largest_import_cycle(&format!("crates/{name}/src"), &sources),
        }
    };
    names.into_iter().map(measure).collect()
}

impl TreeMetrics {
    /// Returns the figures as rows of a table: a name and a formatted value each.
    pub fn table_rows(&self) -> Vec<(&'static str, String)> {
        let percent =
            |part: usize, whole: usize| format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64);
        vec![
            ("code lines", self.code_lines.to_string()),
            ("functions", self.functions.to_string()),
            (
                "functions with one-word names, %",
                percent(self.one_word_functions, self.functions),
            ),
            ("types", self.types.to_string()),
            (
                "types with one-word names, %",
                percent(self.one_word_types, self.types),
            ),
            (
                "module docs that begin with a wh-word, %",
                percent(self.wh_module_docs, self.module_docs),
            ),
            (
                "item docs that begin with a wh-word, %",
                percent(self.wh_item_docs, self.item_docs),
            ),
            ("tuple parameters", self.tuple_parameters.to_string()),
            ("tuple lets", self.tuple_lets.to_string()),
            ("results with String errors", self.string_errors.to_string()),
            (
                "comment lines per 100 code lines",
                percent(self.comment_lines, self.code_lines),
            ),
            (
                "doc lines per 100 code lines",
                percent(self.doc_lines, self.code_lines),
            ),
            ("lines of the binary", self.binary_lines.to_string()),
        ]
    }

    /// Returns the figures that have an aim.
    ///
    /// The limits are far from the best possible values. They prevent a return to times when a
    /// search for a name found seventy functions.
    fn aims(&self) -> [MetricTarget; 10] {
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let most = |name, value, limit| MetricTarget {
            name,
            value,
            limit,
            kind: TargetSide::AtMost,
        };
        let least = |name, value, limit| MetricTarget {
            kind: TargetSide::AtLeast,
            ..most(name, value, limit)
        };
        [
            most(
                "functions with one-word names, %",
                percent(self.one_word_functions, self.functions),
                35.0,
            ),
            most(
                "types with one-word names, %",
                percent(self.one_word_types, self.types),
                30.0,
            ),
            most(
                "module docs that begin with a wh-word, %",
                percent(self.wh_module_docs, self.module_docs),
                3.0,
            ),
            most(
                "item docs that begin with a wh-word, %",
                percent(self.wh_item_docs, self.item_docs),
                5.0,
            ),
            most("tuple parameters", self.tuple_parameters as f64, 0.0),
            most("tuple lets", self.tuple_lets as f64, 5.0),
            most(
                "results with String errors",
                self.string_errors as f64,
                10.0,
            ),
            least(
                "comment lines per 100 code lines",
                percent(self.comment_lines, self.code_lines),
                3.0,
            ),
            least(
                "doc lines per 100 code lines",
                percent(self.doc_lines, self.code_lines),
                16.0,
            ),
            most("lines of the binary", self.binary_lines as f64, 3999.0),
        ]
    }

    /// Returns a message for each figure that misses its aim.
    ///
    /// The list is in the order of the table, and empty for a tree that meets all aims.
    pub fn missed_targets(&self) -> Vec<String> {
        self.aims()
            .iter()
            .filter(|aim| !aim.is_met())
            .map(MetricTarget::to_string)
            .collect()
    }
}

/// A figure with its aim.
struct MetricTarget {
    /// The name of the figure, as in the table.
    name: &'static str,
    /// The measured value, not rounded.
    value: f64,
    /// The worst value that is still good enough.
    limit: f64,
    /// The side on which the value should be.
    kind: TargetSide,
}

/// The side of the limit on which a figure should be. The limit itself is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetSide {
    /// Less is better.
    AtMost,
    /// More is better.
    AtLeast,
}

impl MetricTarget {
    /// Reports whether the figure, rounded as the table shows it, is on the right side of its limit.
    fn is_met(&self) -> bool {
        // Rounded, so that a figure never misses a limit that its printed value meets. Half a unit
        // in the last place is 0.05.
        match self.kind {
            TargetSide::AtMost => self.value < self.limit + 0.05,
            TargetSide::AtLeast => self.value >= self.limit - 0.05,
        }
    }
}

impl fmt::Display for MetricTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            limit,
            kind,
        } = self;
        let bound = match kind {
            TargetSide::AtMost => "at most",
            TargetSide::AtLeast => "at least",
        };
        write!(f, "{name}: {value:.1}, should be {bound} {limit}")
    }
}

impl fmt::Display for CrateMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            lines,
            code_lines,
            largest_cycle,
        } = self;
        write!(
            f,
            "{name:<20} {lines:>7} {code_lines:>7} {:>7}",
            largest_cycle.len()
        )
    }
}

/// Reports whether a file counts: Rust code of a crate that is not test code.
fn is_measured(file: &SourceFile) -> bool {
    file.is_rust()
        && file.owning_crate().is_some()
        && !file.is_test()
        && !file.path.ends_with("_tests.rs")
}

/// Cuts off the inline test module, which ends a file by convention.
fn without_inline_tests(text: &str) -> &str {
    // Everything after the first test module counts as test code, so a function between two test
    // modules is left out.
    text.split_once("\n#[cfg(test)]\nmod ")
        .map_or(text, |(code, _)| code)
}

/// The compiled patterns of everything that is counted.
struct LinePatterns {
    /// A wh-word at the beginning of a doc.
    wh_word: Regex,
    /// The first line of a module doc.
    module_doc: Regex,
    /// The name behind `fn`.
    function: Regex,
    /// The name behind `struct`, `enum` or `trait`.
    type_definition: Regex,
    /// A parameter that is a tuple pattern.
    tuple_parameter: Regex,
    /// A line that binds a tuple to a tuple.
    tuple_let: Regex,
    /// A `Result` whose error is a `String`.
    string_error: Regex,
}

impl LinePatterns {
    /// Compiles all patterns.
    fn new() -> Self {
        Self {
            wh_word: compile(WH_WORD),
            module_doc: compile(r"(?m)^//! ?(.*)$"),
            function: compile(r"\bfn ([a-z_][a-z0-9_]*)"),
            type_definition: compile(r"\b(?:struct|enum|trait) ([A-Z][A-Za-z0-9]*)"),
            tuple_parameter: compile(r"[(,]\s*\(\w+(?:, \w+)+\): \("),
            tuple_let: compile(r"^let (mut )?\([a-z_, ]+\) = \("),
            // One level of generics inside the success type, which may span lines.
            string_error: compile(r"Result<[^<>]*(?:<[^<>]*>)?[^<>]*, String>"),
        }
    }

    /// Adds the counts of one file.
    fn add_file(&self, text: &str, figures: &mut TreeMetrics) {
        if let Some(doc) = self
            .module_doc
            .captures(text)
            .and_then(|found| found.get(1))
        {
            figures.module_docs += 1;
            figures.wh_module_docs += usize::from(self.begins_with_wh_word(doc.as_str()));
        }
        for (_, [name]) in self
            .function
            .captures_iter(text)
            .map(|found| found.extract())
        {
            // Functions of traits and their implementations count too, since readers meet their
            // names.
            figures.functions += 1;
            figures.one_word_functions += usize::from(!name.trim_matches('_').contains('_'));
        }
        for (_, [name]) in self
            .type_definition
            .captures_iter(text)
            .map(|found| found.extract())
        {
            figures.types += 1;
            let capitals = name.chars().filter(char::is_ascii_uppercase).count();
            figures.one_word_types += usize::from(capitals == 1);
        }
        figures.tuple_parameters += self.tuple_parameter.find_iter(text).count();
        figures.string_errors += self.string_error.find_iter(text).count();
        self.add_lines(text, figures);
    }

    /// Adds the counts that are made line by line.
    fn add_lines(&self, text: &str, figures: &mut TreeMetrics) {
        let mut after_item_doc = false;
        for line in text.lines().map(str::trim) {
            // A line of four slashes counts as well, although rustdoc takes it for a plain comment.
            let item_doc = line.strip_prefix("///");
            if item_doc.is_some() || line.starts_with("//!") {
                figures.doc_lines += 1;
            } else if line.starts_with("//") {
                figures.comment_lines += 1;
            } else if !line.is_empty() {
                figures.code_lines += 1;
            }
            // Only the first line of a doc counts as the doc of an item.
            if let Some(doc) = item_doc.filter(|_| !after_item_doc) {
                figures.item_docs += 1;
                figures.wh_item_docs += usize::from(self.begins_with_wh_word(doc));
            }
            figures.tuple_lets += usize::from(self.tuple_let.is_match(line));
            after_item_doc = item_doc.is_some();
        }
    }

    /// Reports whether a doc begins with a wh-word, also in backquotes.
    fn begins_with_wh_word(&self, doc: &str) -> bool {
        self.wh_word.is_match(doc.trim().trim_start_matches('`'))
    }
}

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and every unit test compiles all of them"
)]
/// Compiles a constant pattern.
fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(text: &str) -> TreeMetrics {
        let mut tree = SourceTree::default();
        tree.add_file("crates/sabir-call/src/x.rs", text);
        measure_tree(&tree)
    }

    #[test]
    fn names_are_counted_by_their_words() {
        let figures = measure(
            "fn read() {}\nfn _read_() {}\nfn read_line() {}\nstruct Desk;\nenum FileKind {}\ntrait IO {}\n",
        );
        assert_eq!((figures.functions, figures.one_word_functions), (3, 2));
        assert_eq!((figures.types, figures.one_word_types), (3, 1));
    }

    #[test]
    fn wh_words_are_counted_at_the_first_line_of_a_doc() {
        let figures = measure(
            "//! What it is.\n/// `Whether` it is.\n/// How it is.\nfn f() {}\n/// Asks.\nfn g() {}\n",
        );
        assert_eq!((figures.module_docs, figures.wh_module_docs), (1, 1));
        assert_eq!((figures.item_docs, figures.wh_item_docs), (2, 1));
        assert_eq!(figures.doc_lines, 4);
    }

    #[test]
    fn lines_are_docs_comments_code_or_blank() {
        let figures = measure(
            "//! Doc.\n\n// A comment.\nfn f() {\n    // Another.\n    g(); // not counted\n}\n",
        );
        assert_eq!(
            (figures.doc_lines, figures.comment_lines, figures.code_lines),
            (1, 2, 3)
        );
    }

    #[test]
    fn tuples_and_string_errors_are_counted() {
        let figures = measure(
            "fn f(a: u8, (b, c): (u8, u8)) -> Result<Vec<u8>, String> {\n    let (d, e) = (b, c);\n    let (g, h) = f();\n}\n\
             fn g() -> Result<(), Error> {}\n",
        );
        assert_eq!(
            (
                figures.tuple_parameters,
                figures.tuple_lets,
                figures.string_errors
            ),
            (1, 1, 1)
        );
    }

    #[test]
    fn tests_are_left_out() {
        assert_eq!(
            measure("fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n").functions,
            1
        );
        for path in [
            "crates/a/tests/x.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/src/b_tests.rs",
            "crates/a/x.md",
            "x.rs",
        ] {
            let mut tree = SourceTree::default();
            tree.add_file(path, "fn f() {}\n");
            assert_eq!(measure_tree(&tree), TreeMetrics::default(), "{path}");
        }
    }

    #[test]
    fn percentages_of_nothing_are_zero() {
        let rows = TreeMetrics::default().table_rows();
        assert!(
            rows.iter().all(|(_, value)| value.parse() == Ok(0.0)),
            "{rows:?}"
        );
        let figures = TreeMetrics {
            functions: 3,
            one_word_functions: 1,
            ..TreeMetrics::default()
        };
        assert!(
            figures
                .table_rows()
                .contains(&("functions with one-word names, %", "33.3".to_owned()))
        );
    }

    #[test]
    fn missed_aims_are_named_with_value_and_limit() {
        let figures = TreeMetrics {
            code_lines: 100,
            doc_lines: 16,
            comment_lines: 2,
            functions: 1000,
            one_word_functions: 350,
            types: 10,
            one_word_types: 4,
            tuple_parameters: 1,
            binary_lines: 4000,
            ..TreeMetrics::default()
        };
        assert_eq!(
            figures.missed_targets(),
            [
                "types with one-word names, %: 40.0, should be at most 30",
                "tuple parameters: 1.0, should be at most 0",
                "comment lines per 100 code lines: 2.0, should be at least 3",
                "lines of the binary: 4000.0, should be at most 3999",
            ]
        );
        // A figure is checked as the table shows it: 35.04 % is 35.0 there, and 35.06 % is not.
        let share = |one_word_functions| {
            let figures = TreeMetrics {
                functions: 10_000,
                one_word_functions,
                ..TreeMetrics::default()
            };
            let missed = figures.missed_targets();
            missed.iter().any(|line| line.starts_with("functions"))
        };
        assert_eq!((share(3504), share(3506)), (false, true));
    }

    #[test]
    fn all_lines_of_the_binary_count() {
        let mut tree = SourceTree::default();
        tree.add_file(
            "crates/sabir/src/a/b.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n}\n",
        );
        tree.add_file("crates/sabir/src/a/tests.rs", "fn g() {}\n");
        tree.add_file("crates/sabir/tests/it/x.rs", "fn h() {}\n");
        tree.add_file("crates/sabir-call/src/x.rs", "fn i() {}\n");
        assert_eq!(measure_tree(&tree).binary_lines, 5);
    }

    #[test]
    fn crates_are_measured_one_by_one() {
        let mut tree = SourceTree::default();
        tree.add_file("crates/b/src/lib.rs", "//! Doc.\n\nmod x;\nmod y;\n");
        tree.add_file("crates/b/src/x.rs", "use crate::y::Y;\n");
        tree.add_file("crates/b/src/y.rs", "use crate::x::X;\n");
        tree.add_file("crates/a/src/lib.rs", "fn f() {}\n");
        let shown: Vec<String> = measure_crates(&tree)
            .iter()
            .map(|one| one.to_string())
            .collect();
        assert_eq!(
            shown,
            [
                "a                          1       1       0",
                "b                          6       4       2"
            ]
        );
    }
}
