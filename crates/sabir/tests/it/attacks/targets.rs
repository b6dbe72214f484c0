//! Commands that write protected files, or show files with secrets from git's history, ask even if their kind is approved.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::world::{WAYS, World, stderr};

use super::commands::endings;

const SECRET: &str = "KEY=swordfish-4711";

/// Commands that put a file where some program would run it.
const WRITERS: [&str; 14] = [
    "cp x .git/hooks/pre-commit",
    "cp x .gi?/hooks/pre-commit",
    "cd .git && cp ../x hooks/pre-commit",
    "mv x .vscode/tasks.json",
    "cp -r d/.husky .",
    "tee .envrc < x",
    "cat x > AGENTS.md",
    "cat x >> .git/config",
    "bash -c 'cp x CLAUDE.md'",
    "timeout 5 cp x .npmrc",
    "install x rust-toolchain.toml",
    "dd if=x of=.gitattributes",
    "mkdir .vscode",
    "touch .mise.toml",
];

/// Commands that show a file with secrets that git keeps.
const SHOWERS: [&str; 9] = [
    "git diff",
    "git diff HEAD~1",
    "git diff --cached HEAD~1",
    "git log -p",
    "git log --patch -1",
    "git show",
    "git show HEAD",
    "git grep KEY",
    "git diff --stat -p",
];

fn git(folder: &Path, arguments: &[&str]) {
    let done = std::process::Command::new("git")
        .args(["-c", "user.name=n", "-c", "user.email=e@e"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
}

/// A repository that has committed a `.env`, and changed it since.
fn project(world: &World) -> PathBuf {
    let folder = world.work.path().join("proj");
    fs::create_dir_all(folder.join("d/.husky")).unwrap();
    for name in ["x", "a.txt", "d/.husky/pre-commit"] {
        fs::write(folder.join(name), "alpha\n").unwrap();
    }
    git(&folder, &["init", "-q", "-b", "main"]);
    git(&folder, &["add", "a.txt"]);
    git(&folder, &["commit", "-qm", "first"]);
    fs::write(folder.join(".env"), format!("{SECRET}\n")).unwrap();
    git(&folder, &["add", "-f", ".env"]);
    git(&folder, &["commit", "-qm", "second"]);
    fs::write(folder.join(".env"), format!("{SECRET}\nmore\n")).unwrap();
    folder
}

/// Runs these lines without a user, and returns those that were not denied; no result shows the secret.
fn run_unasked<'a>(lines: &[&'a str], flags: &[&str]) -> (World, Vec<&'a str>) {
    let world = World::new();
    let folder = project(&world);
    let mut run = Vec::new();
    // A task ends after too many denials in a row.
    for some in lines.chunks(4) {
        let calls = some.iter().map(|line| json!({"command": line})).collect();
        let (output, found) = endings(&world, WAYS[1], &folder, calls, flags);
        assert_eq!(found.len(), some.len(), "{}", stderr(&output));
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains(SECRET),
            "{flags:?}"
        );
        let unasked = some
            .iter()
            .zip(&found)
            .filter(|(_, ending)| *ending != "denied");
        run.extend(unasked.map(|(line, _)| *line));
    }
    (world, run)
}

#[test]
fn no_kind_covers_a_protected_target() {
    for flags in [
        &["--allow", "kind=copies", "--allow", "kind=new files"][..],
        &["--approve", "all", "--sandbox", "off"],
        &[
            "--allow",
            "cp **",
            "--allow",
            "mv **",
            "--approve",
            "commands",
        ],
    ] {
        let (world, run) = run_unasked(&WRITERS, flags);
        assert!(run.is_empty(), "{flags:?}: {run:?}");
        for name in [
            ".git/hooks/pre-commit",
            ".vscode",
            ".husky",
            "AGENTS.md",
            ".npmrc",
        ] {
            assert!(
                !world.work.path().join("proj").join(name).exists(),
                "{name}"
            );
        }
    }
    let (_, run) = run_unasked(&["cp x y", "mv a.txt b.txt"], &["--allow", "kind=copies"]);
    assert_eq!(run, ["cp x y", "mv a.txt b.txt"]);
}

#[test]
fn git_shows_no_secret_that_it_keeps() {
    for flags in [&[][..], &["--sandbox", "off"]] {
        let (_, run) = run_unasked(&SHOWERS, flags);
        assert!(run.is_empty(), "{flags:?}: {run:?}");
        let harmless = [
            "git status",
            "git log --oneline",
            "git diff --stat",
            "git diff -- a.txt",
            "git show HEAD:a.txt",
            "git grep -l KEY",
        ];
        let (_, run) = run_unasked(&harmless, flags);
        assert_eq!(run, harmless, "{flags:?}");
    }
}

/// Git reads the words behind the name of a setting as its value, even if they look like an option that only reads.
#[test]
fn no_option_becomes_the_value_of_a_setting() {
    const SETTERS: [&str; 4] = [
        "git config core.fsmonitor '--type=x; touch PWNED'",
        "git config core.pager --type='x; touch PWNED'",
        "git config --local user.name --get",
        "bash -c 'git config a.b -l'",
    ];
    for flags in [&[][..], &["--sandbox", "1"], &["--sandbox", "off"]] {
        let (world, run) = run_unasked(&SETTERS, flags);
        assert!(run.is_empty(), "{flags:?}: {run:?}");
        let config = fs::read_to_string(world.work.path().join("proj/.git/config")).unwrap();
        assert!(!config.contains("--") && !config.contains("-l"), "{config}");
    }
    // The positive control: git does set it.
    let world = World::new();
    let folder = project(&world);
    git(
        &folder,
        &["config", "core.fsmonitor", "--type=x; touch PWNED"],
    );
    let config = fs::read_to_string(folder.join(".git/config")).unwrap();
    assert!(config.contains("touch PWNED"), "{config}");
}
