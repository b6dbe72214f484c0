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

use sabir_policy::{
    Access, Beyond, CommandFacts, PolicyDecision, PolicyRules, RepositoryState, ShellKind,
    SymlinkTraversal, decide_access,
};

/// What is known in the folders that the cases speak of.
pub(crate) fn facts(fixture: &str, shell: ShellKind) -> CommandFacts {
    let runs = || RepositoryState::Executes(vec!["core.fsmonitor".to_owned()]);
    let repositories = match fixture {
        "hostile" | "filter" => vec![(".".to_owned(), runs())],
        "hostile2" => vec![
            (".".to_owned(), RepositoryState::Clean),
            ("evilrepo".to_owned(), runs()),
        ],
        _ => vec![
            (".".to_owned(), RepositoryState::Clean),
            ("src".to_owned(), RepositoryState::Clean),
        ],
    };
    CommandFacts {
        shell,
        clean_path: true,
        root: "/w/proj".to_owned(),
        repositories,
        symlink_traversal: SymlinkTraversal::Inside,
        ..CommandFacts::default()
    }
}

/// Judges a command line by rules in a harmless folder.
pub(crate) fn judge(rules: &PolicyRules, line: &str) -> PolicyDecision {
    let facts = facts("plain", ShellKind::Bash);
    decide_access(
        rules,
        &Access::Command {
            command: line.to_owned(),
            facts,
            beyond: Beyond::Nothing,
        },
    )
}
