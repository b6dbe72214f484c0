//! The policy for commands: tables, laws, working days, and a comparison with bash.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that fails by panicking is doing its work"
)]

mod days;
mod differential;
mod laws;
mod paths;
mod table;

use sabir_policy::{Access, Beyond, Facts, Judgement, Repository, Roaming, Rules, Shell, decide};

/// What is known in the folders that the cases speak of.
pub(crate) fn facts(fixture: &str, shell: Shell) -> Facts {
    let runs = || Repository::Executes(vec!["core.fsmonitor".to_owned()]);
    let repositories = match fixture {
        "hostile" | "filter" => vec![(".".to_owned(), runs())],
        "hostile2" => vec![(".".to_owned(), Repository::Clean), ("evilrepo".to_owned(), runs())],
        _ => vec![(".".to_owned(), Repository::Clean), ("src".to_owned(), Repository::Clean)],
    };
    Facts {
        shell,
        clean_path: true,
        root: "/w/proj".to_owned(),
        repositories,
        roaming: Roaming::Inside,
        ..Facts::default()
    }
}

/// Judges a command line by rules in a harmless folder.
pub(crate) fn judge(rules: &Rules, line: &str) -> Judgement {
    let facts = facts("plain", Shell::Bash);
    decide(rules, &Access::Command { command: line.to_owned(), facts, beyond: Beyond::Nothing })
}
