//! Repositories whose index makes git fetch missing objects with a program that they name: checking a command never runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{WAYS, World, code, events, skipped, stderr, stdout, turn};

/// The script that creates the repositories, which can also be run by hand.
const SCRIPT: &str = include_str!("lazy.sh");
/// The first git that can lay them out.
const OLDEST: [u32; 2] = [2, 37];

/// The version of git, if there is one.
fn version() -> Option<[u32; 2]> {
    let output = Command::new("git").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text
        .split_whitespace()
        .nth(2)?
        .split('.')
        .map_while(|part| part.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}

/// The repositories: `sparse`, and `clone` with another below `docs`.
struct Lazy(TempDir);

impl Lazy {
    /// Creates the repositories; prints a note and returns `None` if git is too old. Checks that git itself runs their program.
    fn new() -> Option<Self> {
        if version().is_none_or(|version| version < OLDEST) {
            skipped("there is no git, or it is too old for a sparse index");
            return None;
        }
        let lazy = Self(TempDir::new_in(sabir_testkit::find_temp_base()).unwrap());
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SCRIPT, "sh"])
            .arg(lazy.0.path())
            .arg(lazy.mark())
            .stdin(Stdio::null());
        let made = shell.output().unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        assert!(!lazy.mark().exists(), "laying out runs what it lays out");
        for name in ["sparse", "clone/docs"] {
            // In a copy, because git writes to the repository when it runs the program.
            let copy = TempDir::new_in(sabir_testkit::find_temp_base()).unwrap();
            let copied = Command::new("cp")
                .arg("-r")
                .arg(lazy.folder(name))
                .arg(copy.path())
                .status()
                .unwrap();
            assert!(copied.success());
            let folder = copy.path().join(Path::new(name).file_name().unwrap());
            let mut git = Command::new("git");
            git.args(["ls-files", "--stage"])
                .current_dir(folder)
                .stdin(Stdio::null());
            git.output().unwrap();
            assert!(
                lazy.mark().exists(),
                "{name}: git does not fall for it, so the test shows nothing"
            );
            fs::remove_file(lazy.mark()).unwrap();
        }
        Some(lazy)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the file that the program of the repositories creates, outside of all of them.
    fn mark(&self) -> PathBuf {
        self.0.path().join("PWNED")
    }

    #[track_caller]
    fn assert_nothing_ran(&self, what: &str) {
        assert!(!self.mark().exists(), "{what} ran the repository's program");
    }
}

/// A folder, and lines that lead git to the repository there.
const PLACES: [(&str, &[&str]); 3] = [
    ("sparse", &["git status", "git diff", "cd a && git log"]),
    (
        "clone",
        &[
            "git -C docs status",
            "cd docs && git ls-files --stage",
            "cd docs/a && git status",
        ],
    ),
    ("clone/docs", &["git status", "git ls-files --stage"]),
];

#[test]
fn explain_and_trust_run_no_program() {
    let Some(lazy) = Lazy::new() else { return };
    let world = World::new();
    for (name, lines) in PLACES {
        let folder = lazy.folder(name);
        for line in lines {
            let explain = ["policy", "explain", "--output", "json", "--", line];
            let output = world
                .sabir()
                .args(explain)
                .current_dir(&folder)
                .output()
                .unwrap();
            lazy.assert_nothing_ran(line);
            let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(value["verdict"], "ask", "{name} {line}: {value}");
        }
        for flags in [
            &["trust"][..],
            &["trust", "--yes"],
            &["trust", "--output", "json"],
        ] {
            let output = world
                .sabir()
                .args(flags)
                .current_dir(&folder)
                .output()
                .unwrap();
            lazy.assert_nothing_ran(&format!("{flags:?} in {name}"));
            // The clone itself runs nothing.
            if name != "clone" {
                assert_eq!(code(&output), 2, "{name}: {}", stderr(&output));
                assert!(
                    stderr(&output).contains("cannot be found out: "),
                    "{}",
                    stderr(&output)
                );
            }
        }
    }
    let output = world
        .sabir()
        .arg("trust")
        .current_dir(lazy.folder("sparse"))
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("the index is sparse"),
        "{}",
        stderr(&output)
    );
    let output = world
        .sabir()
        .arg("trust")
        .current_dir(lazy.folder("clone/docs"))
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("is laid out like git's own files"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn nothing_runs_in_a_task_of_any_mode() {
    let Some(lazy) = Lazy::new() else { return };
    for (name, lines) in PLACES {
        for mode in [&[][..], &["--mode", "plan"], &["--mode", "ask"]] {
            let world = World::new();
            let calls = lines
                .iter()
                .map(|line| ("execute_command", json!({"command": line})))
                .collect();
            let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
            let provider = world.plays(WAYS[1], &[turn("", calls), done.clone(), done]);
            let folder = lazy.folder(name);
            let flags = [
                "-C",
                folder.to_str().unwrap(),
                "--output",
                "events",
                "--no-checkpoints",
            ];
            let output = world.run(&provider, WAYS[1], &[&flags, mode, &["go"]].concat());
            lazy.assert_nothing_ran(&format!("a task in {name} {mode:?}"));
            let results: Vec<_> = events(&output)
                .into_iter()
                .filter(|event| event["kind"] == "result")
                .collect();
            assert!(results.len() >= lines.len(), "{}", stderr(&output));
            let ran = results
                .iter()
                .take(lines.len())
                .find(|result| result["ending"] == "done");
            assert_eq!(ran, None, "{name} {mode:?}");
        }
    }
}

/// A repository that a command writes in the sandbox is not run outside of it when the next command is checked.
#[test]
fn nothing_runs_that_a_command_planted() {
    let Some(lazy) = Lazy::new() else { return };
    let (world, folder) = (World::new(), lazy.folder("clone"));
    fs::rename(folder.join("docs/HEAD"), folder.join("docs/not-yet")).unwrap();
    let calls = ["mv docs/not-yet docs/HEAD", "git -C docs status"];
    let turns = calls.map(|line| turn("", vec![("execute_command", json!({"command": line}))]));
    let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(WAYS[1], &[&turns[..], &[done.clone(), done]].concat());
    let approved = ["--approve", "command=mv docs/not-yet docs/HEAD"];
    let flags = [
        "-C",
        folder.to_str().unwrap(),
        "--output",
        "events",
        "--no-checkpoints",
    ];
    let output = world.run(
        &provider,
        WAYS[1],
        &[&flags[..], &approved, &["go"]].concat(),
    );
    assert!(folder.join("docs/HEAD").exists(), "{}", stderr(&output));
    lazy.assert_nothing_ran("the decision about a command");
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    assert_eq!(results[1]["ending"], "denied", "{results:?}");
}
