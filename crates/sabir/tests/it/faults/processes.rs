//! Tests tasks on a machine without free processes, threads or file descriptors.

use std::process::{Command, Output};

use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use super::preload;
use crate::world::{Turn, WAYS, Way, World, code, events, skipped, stderr, turn};

const NATIVE: Way = WAYS[1];
const RUN: [&str; 9] = [
    "--model",
    "openai/scripted",
    "--sandbox",
    "off",
    "--no-checkpoints",
    "--approve",
    "all",
    "--output",
    "events",
];

fn run(command: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": command}))])
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn of_kind(output: &Output, kind: &str) -> Vec<Value> {
    events(output)
        .into_iter()
        .filter(|event| event["kind"] == kind)
        .collect()
}

/// Checks a task that met the fault: it reports the fault and does not crash, and every call has one result.
fn check_survived(output: &Output, what: &str) {
    let said = stderr(output);
    assert!(
        output.status.code().is_some_and(|code| code <= 7),
        "{what}: {:?}: {said}",
        output.status
    );
    assert!(!said.contains("panicked"), "{what}: {said}");
    let Some(last) = events(output).pop() else {
        assert!(said.contains("sabir: "), "{what}: {said}");
        return;
    };
    assert_eq!(last["kind"], "ended", "{what}: {last}");
    let answers = of_kind(output, "answered");
    let calls: usize = answers
        .iter()
        .map(|answer| answer["checks"].as_array().unwrap().len())
        .sum();
    assert_eq!(
        of_kind(output, "result").len(),
        calls,
        "{what}: each call has one result"
    );
}

/// EAGAIN and ENOMEM for processes and threads, EMFILE for pipes: each at its n-th time, for every n.
#[test]
fn starting_processes_may_fail_at_any_time() {
    let Some(library) = preload::library() else {
        return;
    };
    let mut failed = 0;
    for (call, error) in [
        ("fork", 11),
        ("fork", 12),
        ("posix_spawnp", 11),
        ("posix_spawnp", 12),
        ("pthread_create", 11),
        ("pipe2", 24),
    ] {
        for nth in 1.. {
            let world = World::new();
            let provider = world.plays(
                NATIVE,
                &[
                    turn("", vec![("list_files", json!({"path": "."}))]),
                    run("echo one"),
                    run("echo two"),
                    done(),
                ],
            );
            let (wish, told) = (
                format!("{call}:{error}:{nth}"),
                world.home.path().join("told"),
            );
            let mut command = world.sabir_with(&provider);
            let wishes = [
                ("FAULTS_FAIL", wish.as_str()),
                ("FAULTS_TOLD", told.to_str().unwrap()),
            ];
            let output = preload::with(&mut command, library, &wishes)
                .arg("run")
                .args(RUN)
                .arg("x")
                .output()
                .unwrap();
            if !told.exists() {
                assert_eq!(code(&output), 0, "{wish}: {}", stderr(&output));
                break;
            }
            failed += 1;
            check_survived(&output, &wish);
        }
    }
    assert!(failed >= 4, "{failed}");
}

/// A limit of open files, from one that allows nothing to one that allows all.
#[test]
fn few_open_files_suffice() {
    let (mut failed, mut completed) = (0, 0);
    for most in (4..48).step_by(2) {
        let world = World::new();
        let provider = world.plays(NATIVE, &[run("echo one"), run("echo two"), done()]);
        let plain = world.sabir_with(&provider);
        let mut command = Command::new("sh");
        command.env_clear().envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let line = format!(
            "ulimit -n {most}; exec {} run \"$@\"",
            env!("CARGO_BIN_EXE_sabir")
        );
        let output = command
            .current_dir(world.work.path())
            .args(["-c", &line, "sh"])
            .args(RUN)
            .arg("x")
            .output()
            .unwrap();
        // The loader itself cannot open its libraries.
        if code(&output) == 127 {
            continue;
        }
        check_survived(&output, &format!("{most} files"));
        let refused = of_kind(&output, "result")
            .iter()
            .any(|result| result["ending"] == "failed");
        failed += usize::from(refused || code(&output) != 0);
        completed += usize::from(code(&output) == 0 && !refused);
    }
    assert!(
        failed > 0 && completed > 0,
        "{failed} failed, {completed} completed"
    );
}

#[test]
fn some_commands_leave_no_processes() {
    run_commands(12);
}

/// `SABIR_COMMANDS` sets the number.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn many_commands_leave_no_processes() {
    run_commands(std::env::var("SABIR_COMMANDS").map_or(60, |count| count.parse().unwrap()));
}

/// Checks that this many commands leave no process and no open file.
fn run_commands(most: usize) {
    let world = World::new();
    // The shell's parent is the supervisor, and the supervisor's is Sabir.
    let count = "agent=$(ps -o ppid= -p $PPID | tr -d ' '); \
                 echo open $(ls /proc/$agent/fd 2>/dev/null | wc -l) dead $(ps -o stat= --ppid $agent | grep -c Z)";
    let provider = world.provider(ReplyScript::from_fn(move |asked, _| match asked {
        // Each command is different: equal calls with equal results end a task.
        asked if asked < most => {
            NATIVE.reply(&run(&format!("{count}; echo number {asked}")), asked + 1)
        }
        _ => NATIVE.reply(&done(), asked + 1),
    }));
    let output = world
        .sabir_with(&provider)
        .arg("run")
        .args(RUN)
        .arg("x")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let words: Vec<String> = of_kind(&output, "result")
        .iter()
        .filter_map(|result| {
            Some(
                result["content"]
                    .as_str()?
                    .lines()
                    .find(|line| line.contains("open "))?
                    .to_owned(),
            )
        })
        .collect();
    if words.iter().any(|line| line.contains("open 0 ")) {
        return skipped("no `ps`, or others may not look at what is open");
    }
    println!(
        "{} commands: {:?} … {:?}",
        words.len(),
        words.first(),
        words.last()
    );
    assert!(
        words.iter().all(|line| line.contains("dead 0")),
        "{words:?}"
    );
    assert_eq!(words.get(1), words.last(), "files stay open");
}

#[test]
fn a_removed_folder_is_reported_and_the_task_continues() {
    let world = World::new();
    let folder = world.work.path().join("inner");
    std::fs::create_dir(&folder).unwrap();
    let read = turn("", vec![("read_file", json!({"path": "a.txt"}))]);
    let provider = world.plays(
        NATIVE,
        &[
            run("rmdir \"$PWD\"; echo gone"),
            run("echo here"),
            read,
            done(),
        ],
    );
    let mut command = world.sabir_with(&provider);
    let output = command
        .current_dir(&folder)
        .arg("run")
        .args(RUN)
        .arg("x")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results = of_kind(&output, "result");
    let endings: Vec<&str> = results
        .iter()
        .map(|result| result["ending"].as_str().unwrap())
        .collect();
    assert_eq!(endings, ["done", "failed", "failed", "done"], "{results:?}");
    assert!(
        results[1]["content"]
            .as_str()
            .unwrap()
            .contains("folder is gone"),
        "{results:?}"
    );
}
