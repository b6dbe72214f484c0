//! Checks that every place that starts a process has a row in `docs/processes.md`, and every row a place.
//!
//! A program that is started unnoticed is a way for a repository to run code. The row for a process says what it reads, who controls
//! that, and whether it is confined.
//!
//! The count is by file: a file with two rows must have two places. Where a process is started
//! through a helper, the place is in the helper, so the row describes all its callers.

use crate::source::without_tests;
use crate::{SourceFile, SourceTree, Violation};

/// The path of the table.
const TABLE: &str = "docs/processes.md";
/// The number of columns of the table: the file, the program, why it runs, what it reads, who controls that, and how it is confined.
const COLUMNS: usize = 6;

/// Code that starts a process or prepares one.
const STARTS: [&str; 22] = [
    // The type of `sabir-workspace` for a command in the sandbox.
    "ShellCommand::new",
    "ShellCommand as ",
    // The type of `sabir-workspace` for a server.
    "ServerCommand::new",
    // The type of `std` and `tokio`.
    "Command::new",
    "Command::from",
    "Command as ",
    "libc::fork",
    "libc::vfork",
    "libc::exec",
    "libc::fexecve",
    "libc::posix_spawn",
    "libc::system",
    "libc::popen",
    "libc::clone",
    "syscall(libc::SYS_clone",
    "syscall(libc::SYS_fork",
    "syscall(libc::SYS_vfork",
    "syscall(libc::SYS_exec",
    "rustix::runtime",
    "kernel_fork",
    "execve(",
    "execveat(",
];

/// Packages that start programs, which must not be dependencies.
///
/// The list cannot be complete; it stops the well-known ones.
const STARTERS: [&str; 24] = [
    "arboard",
    "async-process",
    "cli-clipboard",
    "clipboard",
    "cmd_lib",
    "command-group",
    "copypasta",
    "duct",
    "edit",
    "expectrl",
    "gix",
    "gix-command",
    "nix",
    "open",
    "opener",
    "portable-pty",
    "process-wrap",
    "pty-process",
    "rexpect",
    "run_script",
    "shared_child",
    "subprocess",
    "webbrowser",
    "xshell",
];

/// Checks all files against the table.
///
/// A row whose file is gone is reported in the table, a place without a row in the source.
pub(crate) fn check_processes(tree: &SourceTree, found: &mut Vec<Violation>) {
    let rows = parse_table(tree, found);
    let sources = tree
        .files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test() && file.owning_crate().is_some());
    for file in sources.filter(|file| file.path.contains("/src/")) {
        let lines = process_start_lines(file);
        let known = rows.iter().filter(|row| row.path == file.path).count();
        // Reported at the last place, which is the new one more often than not.
        if lines.len() > known {
            let message = format!(
                "{} processes are started here, and {TABLE} knows {known}; add a row",
                lines.len()
            );
            found.push(file.violation_at(lines.last().copied().unwrap_or(1), message));
        }
        if lines.len() < known {
            let message = format!(
                "{} processes are started here, and {TABLE} knows {known}; take one out",
                lines.len()
            );
            found.push(file.violation_at(1, message));
        }
    }
    for row in rows.iter().filter(|row| tree.find_file(row.path).is_none()) {
        let message = format!("{} is not there", row.path);
        found.push(Violation {
            path: TABLE.to_owned(),
            line: row.line,
            message,
        });
    }
    for file in tree
        .files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"))
    {
        check_manifest(file, found);
    }
}

/// A row of the table.
struct ProcessRow<'a> {
    /// The line in the table, counted from 1.
    line: usize,
    /// The path of the file that starts the process.
    path: &'a str,
}

/// Returns the rows of the table that name a file of this tree, and reports rows with missing or empty fields.
fn parse_table<'a>(tree: &'a SourceTree, found: &mut Vec<Violation>) -> Vec<ProcessRow<'a>> {
    let Some(table) = tree.find_file(TABLE) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (index, line) in table.text.lines().enumerate() {
        // The heading, the ruler and the text around the table begin with something else.
        let Some(inside) = line
            .strip_prefix("| `crates/")
            .and_then(|_| line.strip_prefix('|')?.strip_suffix('|'))
        else {
            continue;
        };
        let fields: Vec<&str> = inside.split('|').map(str::trim).collect();
        if fields.len() != COLUMNS || fields.iter().any(|field| field.is_empty()) {
            found.push(table.violation_at(
                index + 1,
                format!("a row has {COLUMNS} fields, and none is empty"),
            ));
        }
        rows.extend(fields.first().map(|path| ProcessRow {
            line: index + 1,
            path: path.trim_matches('`'),
        }));
    }
    rows
}

/// Returns the line numbers outside of tests where a process is started. A line with two starts is listed twice.
fn process_start_lines(file: &SourceFile) -> Vec<usize> {
    let code = crate::source::blank_non_code(&file.text);
    let last = without_tests(&file.text)
        .map(|(line, _)| line)
        .last()
        .unwrap_or(0);
    let is_start = |text: &str, at: usize| {
        !text
            .get(..at)
            .is_some_and(|head| head.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let count = |line: &str| -> usize {
        let found = STARTS.iter().map(|start| {
            line.match_indices(start)
                .filter(|(at, _)| is_start(line, *at))
                .count()
        });
        found.sum()
    };
    let mut lines = code.lines().take(last).enumerate().peekable();
    let mut starts = Vec::new();
    while let Some((index, line)) = lines.next() {
        // The formatter puts the number of a long system call on its own line.
        let next = lines.peek().map_or("", |(_, next)| next.trim_start());
        let found = match line.trim_end().ends_with("syscall(") {
            true => count(&format!("{}{next}", line.trim_end())),
            false => count(line),
        };
        starts.extend(std::iter::repeat_n(index + 1, found));
    }
    starts
}

/// Checks that a manifest lists no package that starts programs.
fn check_manifest(file: &SourceFile, found: &mut Vec<Violation>) {
    for (index, line) in file.text.lines().enumerate() {
        let name = line
            .split(['=', '.', ' '])
            .next()
            .unwrap_or_default()
            .trim_matches('"');
        if STARTERS.contains(&name) && line.contains('=') {
            let message =
                format!("`{name}` starts programs, which only the workspace does; see {TABLE}");
            found.push(file.violation_at(index + 1, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    const FILE: &str = "crates/sabir-workspace/src/x.rs";

    #[track_caller]
    fn check_report(code: &str, table: &str, expected: &str) {
        let mut tree = SourceTree::default();
        tree.add_file(FILE, format!("//! Doc.\n{code}\n"));
        tree.add_file("docs/processes.md", table);
        let said: String = check_tree(&tree)
            .iter()
            .filter(|found| found.message.contains("processes") || found.path.ends_with(".md"))
            .map(|found| {
                format!(
                    "{}:{} {}; ",
                    found.path,
                    found.line,
                    found.message.split(',').next().unwrap_or("")
                )
            })
            .collect();
        assert_eq!(said, expected, "{code}");
    }

    #[test]
    fn each_start_has_a_row() {
        let row = format!("| `{FILE}` | true | probe | nothing | nobody | yes |\n");
        let start = "fn f() { Command::new(\"x\"); }";
        let new = format!("{FILE}:2 1 processes are started here; ");
        check_report(start, "", &new);
        check_report(start, &row, "");
        check_report(
            "",
            &row,
            &format!("{FILE}:1 0 processes are started here; "),
        );
        check_report(
            start,
            "| `crates/a.rs` | true | probe | nothing | nobody | yes |\n",
            &format!("{new}docs/processes.md:1 crates/a.rs is not there; "),
        );
        check_report(
            start,
            &row.replace("nobody", ""),
            "docs/processes.md:1 a row has 6 fields; ",
        );
        check_report(
            &format!("{start}\n{start}"),
            &row,
            &format!("{FILE}:3 2 processes are started here; "),
        );
        for other in [
            "let x = map(std::process::Command::new);",
            "let command = ShellCommand::new(line, &helper);",
            "tokio::process::Command::new(x)",
            "use std::process::Command as Program;",
            "libc::posix_spawnp(x)",
            "libc::execvp(x)",
        ] {
            check_report(other, "", &new);
        }
        check_report(
            "// Command::new\nlet x = \"Command::new\"; MyCommand::new()",
            "",
            "",
        );
        check_report(
            "#[cfg(test)]\nmod tests {\n    fn f() { Command::new(\"x\"); }\n}",
            "",
            "",
        );
    }

    #[test]
    fn packages_that_start_programs() {
        let mut tree = SourceTree::default();
        tree.add_file(
            "Cargo.toml",
            "[workspace.dependencies]\nopen = \"5\"\nopener-like = \"1\"\n",
        );
        let found = check_tree(&tree);
        assert!(
            found
                .iter()
                .any(|found| found.line == 2 && found.message.starts_with("`open` starts")),
            "{found:?}"
        );
        assert!(!found.iter().any(|found| found.line == 3), "{found:?}");
    }
}
