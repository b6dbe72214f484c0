//! Measures decisions, and the tokenizing of a line alone for comparison.

use std::time::{Duration, Instant};

use divan::black_box;
use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, FileNames, PolicyRules, RepositoryState, SecretFiles,
    ShellKind, SymlinkTraversal, TrackedSecrets, decide_access,
};

fn main() {
    percentiles();
    divan::main();
}

fn accesses() -> Vec<Access> {
    let facts = CommandFacts {
        shell: ShellKind::Bash,
        clean_path: true,
        root: "/w/proj".to_owned(),
        repositories: vec![(".".to_owned(), RepositoryState::Clean)],
        links: Vec::new(),
        symlink_traversal: SymlinkTraversal::Inside,
        secret_files: SecretFiles::Found(Vec::new()),
        file_names: FileNames::Plain,
        index_names: FileNames::Plain,
        tracked_secrets: TrackedSecrets::Found(Vec::new()),
        history_secrets: TrackedSecrets::Found(Vec::new()),
        confined: true,
        ..CommandFacts::default()
    };
    let cases = include_str!("../tests/it/cases.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let cases = cases.filter_map(|line| serde_json::from_str(line.splitn(4, '\t').nth(3)?).ok());
    let days = include_str!("../tests/it/days.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = cases.chain(days.map(str::to_owned));
    lines
        .map(|command| Access::Command {
            command,
            facts: facts.clone(),
            beyond: ExtraPermissions::Nothing,
        })
        .collect()
}

/// The median and the 99th percentile over all lines, each line timed by the fastest of nine decisions.
fn percentiles() {
    let rules = PolicyRules::default();
    let fastest = |access: &Access| {
        let once = |_| {
            let begun = Instant::now();
            black_box(decide_access(&rules, access));
            begun.elapsed()
        };
        (0..9).map(once).min().unwrap_or_default()
    };
    let mut times: Vec<Duration> = accesses().iter().map(fastest).collect();
    times.sort();
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    divan::black_box(&times);
    let report = format!(
        "{} lines: p50 {:?}, p99 {:?}, longest {:?}\n",
        times.len(),
        at(50),
        at(99),
        at(100).max(times.last().copied().unwrap_or_default())
    );
    std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes()).unwrap_or_default();
}

#[divan::bench]
fn decisions(bencher: divan::Bencher<'_, '_>) {
    let (rules, accesses) = (PolicyRules::default(), accesses());
    bencher
        .counter(divan::counter::ItemsCount::new(accesses.len()))
        .bench_local(|| {
            accesses
                .iter()
                .map(|access| decide_access(&rules, access).segments.len())
                .sum::<usize>()
        });
}

#[divan::bench]
fn tokens_alone(bencher: divan::Bencher<'_, '_>) {
    let accesses = accesses();
    let tokens = |access: &Access| match access {
        Access::Command { command, .. } => {
            brush_parser::uncached_tokenize_str(command, &brush_parser::TokenizerOptions::default())
                .map_or(0, |tokens| tokens.len())
        }
        _ => 0,
    };
    bencher
        .counter(divan::counter::ItemsCount::new(accesses.len()))
        .bench_local(|| accesses.iter().map(tokens).sum::<usize>());
}
