//! Tests tasks on a failing disk: at any call, full, without inodes, read-only, removed, slow, or with short writes.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sabir_testkit::{ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use super::preload;
use crate::world::{Turn, WAYS, Way, World, code, events, skipped, stderr, stdout, turn};

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

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// A provider that writes `a.txt`, then completes, for any number of requests.
fn writes(world: &World) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(|_, request| {
        let written = request.body["messages"]
            .to_string()
            .contains("\"role\":\"tool\"");
        let write = turn(
            "I write.",
            vec![(
                "write_to_file",
                json!({"path": "a.txt", "content": "new\n"}),
            )],
        );
        if written {
            NATIVE.reply(&done(), 2)
        } else {
            NATIVE.reply(&write, 1)
        }
    }))
}

/// The records in the journal of the only task, as far as there is one.
fn journal(world: &World) -> Vec<Value> {
    let output = world
        .sabir()
        .args(["log", "--output", "events", &world.only_task()])
        .output()
        .unwrap();
    let lines = stdout(&output);
    let values = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    values
        .map(|mut record| {
            // Only the journal knows these.
            record
                .as_object_mut()
                .unwrap()
                .retain(|name, _| name != "at" && name != "seal");
            record
        })
        .collect()
}

/// Returns true if an event is also a record.
fn is_record(event: &Value) -> bool {
    let kinds = [
        "started", "said", "answered", "failed", "judged", "running", "result", "context",
    ];
    kinds.contains(&event["kind"].as_str().unwrap())
}

/// Checks the standard output of a task that could not be stored: before the end, nothing that is not in the journal.
fn check_lost(world: &World, output: &Output, what: &str) {
    assert_eq!(code(output), 1, "{what}: {}", stderr(output));
    assert!(
        !stderr(output).contains("panicked"),
        "{what}: {}",
        stderr(output)
    );
    let all = events(output);
    let Some((last, before)) = all.split_last() else {
        // Nothing was begun.
        assert!(
            stderr(output).contains("could not "),
            "{what}: {}",
            stderr(output)
        );
        return;
    };
    assert_eq!(
        (&last["kind"], &last["outcome"]),
        (&json!("ended"), &json!("store_failed")),
        "{what}: {last}"
    );
    let kept = journal(world);
    let mut kept = kept.iter();
    for record in before.iter().filter(|event| is_record(event)) {
        assert!(
            kept.any(|one| one == record),
            "{what}: acknowledged and lost: {record}"
        );
    }
}

#[test]
fn the_journal_may_fail_at_any_call() {
    let Some(library) = preload::library() else {
        return;
    };
    let (mut failed, mut gone_on) = (0, 0);
    for (call, error) in [("pwrite64", "28"), ("fdatasync", "5"), ("fsync", "5")] {
        for nth in 1.. {
            let world = World::new();
            let (provider, told) = (writes(&world), world.home.path().join("told"));
            let wish = format!("{call}:{error}:{nth}");
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
            assert!(
                ["", "new\n"].contains(&world.read("a.txt").as_str()),
                "{wish}: half a file"
            );
            if call == "fsync" && code(&output) == 0 {
                // The failed call was that of the file `a.txt`, and the model learned about it.
                continue;
            }
            check_lost(&world, &output, &wish);
            // There is space again: a task that had started continues, and any other can start.
            let tasks = world.home.path().join(".local/share/sabir/tasks");
            let begun = std::fs::read_dir(tasks).is_ok_and(|mut names| names.next().is_some());
            let mut command = world.sabir_with(&provider);
            if begun
                && events(&output)
                    .iter()
                    .any(|event| event["kind"] == "started")
            {
                gone_on += 1;
                command.args([
                    "resume",
                    "--sandbox",
                    "off",
                    "--no-checkpoints",
                    "--approve",
                    "all",
                    "--output",
                    "events",
                ]);
                command.arg(world.only_task());
            } else {
                command.arg("run").args(RUN).arg("x");
            }
            let again = command.output().unwrap();
            // The very last record may be there after all, although nobody could promise it.
            let over = code(&again) == 2 && stderr(&again).contains("the task is completed");
            assert!(code(&again) == 0 || over, "{wish}: {}", stderr(&again));
            // A call that may have run is not run again, and the model learns about it.
            let asked = provider
                .received_requests()
                .last()
                .unwrap()
                .body
                .to_string();
            assert!(
                world.read("a.txt") == "new\n"
                    || asked.contains("Sabir was stopped while this ran"),
                "{wish}: {asked}"
            );
        }
    }
    assert!(
        failed >= 15 && gone_on >= 8,
        "{failed} faults, {gone_on} tasks gone on with"
    );
}

/// A system may take a part of what is written, or nothing yet.
#[test]
fn short_writes_are_completed() {
    let Some(library) = preload::library() else {
        return;
    };
    let world = World::new();
    world.write("b.txt", "one\ntwo\n");
    let content = "a line of some length\n".repeat(200);
    let diff = "------- SEARCH\ntwo\n=======\n2\n+++++++ REPLACE";
    let turns = [
        turn("", vec![("read_file", json!({"path": "b.txt"}))]),
        turn(
            "",
            vec![("replace_in_file", json!({"path": "b.txt", "diff": diff}))],
        ),
        turn(
            "",
            vec![(
                "write_to_file",
                json!({"path": "a.txt", "content": content}),
            )],
        ),
        turn(
            "",
            vec![("execute_command", json!({"command": "seq 3000"}))],
        ),
        done(),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut command = world.sabir_with(&provider);
    preload::with(&mut command, library, &[("FAULTS_SHORT", "9")])
        .arg("run")
        .args(RUN)
        .arg("x");
    // Checkpoints are written as well.
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        (world.read("a.txt"), world.read("b.txt").as_str()),
        (content, "one\n2\n")
    );
    let records: Vec<Value> = events(&output).into_iter().filter(is_record).collect();
    let kept = journal(&world);
    assert_eq!(kept[..kept.len() - 1], records, "{}", stderr(&output));
    assert!(kept.iter().any(|record| {
        record["content"]
            .as_str()
            .is_some_and(|text| text.contains("\n2999\n3000"))
    }));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_slow_disk_only_delays() {
    let Some(library) = preload::library() else {
        return;
    };
    let world = World::new();
    let provider = writes(&world);
    let mut command = world.sabir_with(&provider);
    let slow = world.home.path().join("slow");
    std::fs::write(&slow, "200").unwrap();
    preload::with(
        &mut command,
        library,
        &[("FAULTS_SLOW", slow.to_str().unwrap())],
    )
    .arg("run")
    .args(RUN)
    .arg("x");
    let begun = Instant::now();
    let output = command.output().unwrap();
    assert_eq!(
        (code(&output), world.read("a.txt").as_str()),
        (0, "new\n"),
        "{}",
        stderr(&output)
    );
    assert!(
        begun.elapsed() > Duration::from_secs(2),
        "the disk was not slow"
    );
    let records: Vec<Value> = events(&output).into_iter().filter(is_record).collect();
    let kept = journal(&world);
    assert_eq!(kept[..kept.len() - 1], records);
}

/// Runs a task whose state folder is another disk, mounted at `$1` by this shell command. `None` if nothing can be mounted.
fn mounted(world: &World, provider: &ScriptedProvider, mount: &str) -> Option<Output> {
    let state = world.home.path().join(".local/share/sabir");
    std::fs::create_dir_all(state.join("tasks")).unwrap();
    let binary = env!("CARGO_BIN_EXE_sabir");
    let script = format!("{mount} || exit 77; shift; exec \"$@\"");
    for how in [&["--user", "--map-root-user", "--mount"][..], &["--mount"]] {
        let plain = world.sabir_with(provider);
        let mut command = Command::new("unshare");
        command.env_clear().envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command
            .current_dir(world.work.path())
            .args(how)
            .args(["sh", "-c", &script, "sh"])
            .arg(&state);
        let Ok(output) = command.arg(binary).arg("run").args(RUN).arg("x").output() else {
            break;
        };
        let refused = stderr(&output).contains("unshare:") || code(&output) == 77;
        if !refused {
            return Some(output);
        }
    }
    skipped("no mounts in a namespace on this machine");
    None
}

/// A task cannot work without a journal, and sends no request whose answer could not be stored.
#[test]
fn a_task_does_not_start_without_a_writable_journal() {
    for (mount, words) in [
        ("mount -t tmpfs -o ro none \"$1\"", "Read-only file system"),
        (
            "mount -t tmpfs -o nr_inodes=2 none \"$1\"",
            "No space left on device",
        ),
    ] {
        let world = World::new();
        let provider = writes(&world);
        let Some(output) = mounted(&world, &provider, mount) else {
            return;
        };
        assert_eq!(code(&output), 1, "{mount}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(words) && stderr(&output).contains("tasks"),
            "{mount}: {}",
            stderr(&output)
        );
        assert!(
            provider.received_requests().is_empty() && events(&output).is_empty(),
            "{mount}"
        );
    }
}

/// Tests a disk that becomes full during a task.
#[test]
fn a_disk_that_is_full_in_the_middle_ends_the_task() {
    let world = World::new();
    let write = |path: &str, bytes: usize| {
        turn(
            "I say much. ",
            vec![(
                "write_to_file",
                json!({"path": path, "content": "x".repeat(bytes)}),
            )],
        )
    };
    let provider = world.plays(
        NATIVE,
        &[write("b.txt", 40_000), write("a.txt", 60_000), done()],
    );
    let Some(output) = mounted(
        &world,
        &provider,
        "mount -t tmpfs -o size=64k none \"$1\"; mkdir \"$1/tasks\"",
    ) else {
        return;
    };
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let all = events(&output);
    let last = all.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["outcome"]),
        (&json!("ended"), &json!("store_failed")),
        "{last}"
    );
    assert!(
        last["message"]
            .as_str()
            .unwrap()
            .contains("No space left on device"),
        "{last}"
    );
    assert!(
        !world.work.path().join("a.txt").exists(),
        "what could not be kept was not done"
    );
}

#[test]
fn a_removed_state_folder_ends_the_task_and_is_recreated() {
    let world = World::new();
    let wait = "touch ready; until test -e go; do sleep 0.05; done";
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![("execute_command", json!({"command": wait}))]),
            done(),
        ],
    );
    let mut command = world.sabir_with(&provider);
    let child = command.arg("run").args(RUN).arg("x").spawn().unwrap();
    let begun = Instant::now();
    while !world.work.path().join("ready").exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the command does not run"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_dir_all(world.home.path().join(".local/share/sabir")).unwrap();
    world.write("go", "");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let all = events(&output);
    let last = all.last().unwrap();
    assert_eq!(last["outcome"], "store_failed", "{last}");
    assert!(
        last["message"].as_str().unwrap().contains("it was removed"),
        "{last}"
    );
    let provider = world.plays(NATIVE, &[done()]);
    let again = world
        .sabir_with(&provider)
        .arg("run")
        .args(RUN)
        .arg("x")
        .output()
        .unwrap();
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    assert_eq!(journal(&world).last().unwrap()["outcome"], "completed");
}
