//! The policy for commands: tables, properties, working days, and a comparison with bash.
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
mod paths;
mod properties;
mod secrets;
mod table;

use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, FileNames, PolicyDecision, PolicyRules,
    RepositoryState, SecretFiles, ShellKind, SymlinkTraversal, TrackedSecrets, decide_access,
};

/// Returns the facts of a folder that the cases name.
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
        secret_files: SecretFiles::Found(Vec::new()),
        file_names: FileNames::Plain,
        index_names: FileNames::Plain,
        tracked_secrets: TrackedSecrets::Found(Vec::new()),
        history_secrets: TrackedSecrets::Found(Vec::new()),
        confined: true,
        absent_files: absent_files(),
        ..CommandFacts::default()
    }
}

/// The files that could choose what a program runs; none of them is in the folders of the cases.
fn absent_files() -> Vec<String> {
    const NAMES: [&str; 14] = [
        "rust-toolchain",
        "rust-toolchain.toml",
        ".cargo/config",
        ".cargo/config.toml",
        ".npmrc",
        ".pnpmfile.cjs",
        ".pnpmfile.mjs",
        "pnpm-workspace.yaml",
        ".yarnrc",
        ".yarnrc.yml",
        ".tool-versions",
        ".mvn",
        "global.json",
        "package.json",
    ];
    NAMES
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("src/{name}")])
        .collect()
}

/// Checks a command line by rules in a harmless folder.
pub(crate) fn decide_line(rules: &PolicyRules, line: &str) -> PolicyDecision {
    let facts = facts("plain", ShellKind::Bash);
    decide_access(
        rules,
        &Access::Command {
            command: line.to_owned(),
            facts,
            beyond: ExtraPermissions::Nothing,
        },
    )
}
