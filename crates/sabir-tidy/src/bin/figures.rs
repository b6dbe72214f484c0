//! `cargo run -p sabir-tidy --bin figures -- [--cycles] [FOLDER]...`: prints the naming, prose and size figures of source trees.
//!
//! Each folder is the root of a tree, and gets a column; the default is this tree. To compare with an earlier version, check it out
//! beside this one: `git worktree add ../before main`, and then `… figures -- ../before .`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command prints its result"
)]

use std::path::Path;
use std::process::ExitCode;

use sabir_tidy::{CrateMetrics, SourceTree, TreeMetrics, measure_crates, measure_tree, read_tree};

/// Reads the trees and prints their figures. Exits with 2 for a wrong option, and with 1 for a tree
/// that cannot be read.
fn main() -> ExitCode {
    let mut folders: Vec<String> = std::env::args().skip(1).collect();
    let shows_cycles = folders.iter().any(|word| word == "--cycles");
    folders.retain(|word| word != "--cycles");
    if let Some(option) = folders.iter().find(|word| word.starts_with('-')) {
        eprintln!("unknown option: {option}\nusage: figures [--cycles] [FOLDER]...");
        return ExitCode::from(2);
    }
    if folders.is_empty() {
        folders.push(".".to_owned());
    }
    let mut trees: Vec<SourceTree> = Vec::new();
    for folder in &folders {
        match read_tree(Path::new(folder)) {
            Ok(tree) if tree.rust_file_count() > 0 => trees.push(tree),
            // Most likely the wrong folder: figures of nothing would look perfect.
            Ok(_) => {
                eprintln!("{folder}: there is no Rust code");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("{folder}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    print_figures(&folders, &trees);
    for (folder, tree) in folders.iter().zip(&trees) {
        print_crates(folder, &measure_crates(tree), shows_cycles);
    }
    ExitCode::SUCCESS
}

/// Prints one row for each figure, with a column for each tree.
fn print_figures(folders: &[String], trees: &[SourceTree]) {
    // All trees have the same rows in the same order, since the rows do not depend on the values.
    let columns: Vec<_> = trees
        .iter()
        .map(measure_tree)
        .map(|figures: TreeMetrics| figures.table_rows())
        .collect();
    let Some(first) = columns.first() else { return };
    let headings: String = folders
        .iter()
        .map(|folder| format!(" {folder:>12}"))
        .collect();
    println!("{:<42}{headings}", "figure");
    for (index, (name, _)) in first.iter().enumerate() {
        let values = columns.iter().filter_map(|rows| rows.get(index));
        let values: String = values.map(|(_, value)| format!(" {value:>12}")).collect();
        println!("{name:<42}{values}");
    }
}

/// Prints one row for each crate of a tree.
fn print_crates(folder: &str, crates: &[CrateMetrics], shows_cycles: bool) {
    println!("\n{folder}");
    println!(
        "{:<20} {:>7} {:>7} {:>7}",
        "crate", "lines", "code", "cycle"
    );
    for figures in crates {
        println!("{figures}");
        if shows_cycles {
            figures
                .largest_cycle
                .iter()
                .for_each(|path| println!("    {path}"));
        }
    }
}
