//! Listing and search of a large tree, beside ripgrep.
//!
//! `tree FOLDER` makes the tree, `compare FOLDER RG` prints a Markdown table of times, and `list` and `search` are what is
//! timed. Each time is of a whole process, its start and its output included, and the two take turns.

#![expect(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod compare;
mod tree;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use sabir_workspace::{EntryKind, ListOptions, SearchOptions, WorkPath, Workspace};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tree", folder] => tree::make(Path::new(folder))?,
        ["list", folder, limit] => list(folder, limit.parse()?)?,
        ["search", folder, regex, limit] => search(folder, regex, limit.parse()?)?,
        ["compare", folder, rg] => return Ok(compare::table(Path::new(folder), rg)?),
        _ => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(folder: &str, max_entries: usize) -> Result<(), Box<dyn std::error::Error>> {
    let options = ListOptions { recursive: true, max_entries, ..ListOptions::default() };
    let listing = Workspace::open(Path::new(folder))?.list_folder(&WorkPath::root(), &options)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for entry in listing.entries.iter().filter(|entry| entry.kind == EntryKind::File) {
        writeln!(out, "{}", entry.path)?;
    }
    Ok(out.flush()?)
}

fn search(folder: &str, regex: &str, max_matches: usize) -> Result<(), Box<dyn std::error::Error>> {
    let options = SearchOptions { max_matches, ..SearchOptions::new(regex) };
    let result = Workspace::open(Path::new(folder))?.search_files(&options)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for found in &result.matches {
        writeln!(out, "{}:{}:{}", found.path, found.line, found.text)?;
    }
    Ok(out.flush()?)
}
