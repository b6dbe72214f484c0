//! Tests that commands in the background end with their task, however it ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{WAYS, World, code, processes_with, stderr, turn};

/// Ignores signals, and runs in a separate session. `mark` distinguishes it from other tests' processes.
fn job(mark: &str) -> String {
    format!(
        "(setsid sh -c \"trap '' TERM; sleep 8{mark}; sleep 8{mark}\" &); trap '' TERM; touch up; sleep 8{mark}; sleep 8{mark}"
    )
}

fn left(mark: &str) -> Vec<String> {
    processes_with(&format!("sleep\u{0}8{mark}"))
}

#[track_caller]
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what} did not come"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn jobs_end_with_a_task_that_completes() {
    let (world, way, mark) = (World::new(), WAYS[1], "0517");
    let turns = [
        turn(
            "",
            vec![(
                "execute_command",
                json!({"command": job(mark), "background": true}),
            )],
        ),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    let output = world.run(
        &provider,
        way,
        &["--approve", "all", "--output", "events", "go"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("up").exists());
    assert_eq!(left(mark), Vec::<String>::new());
}

/// Starts a task with a job, and ends the process with this signal while a command works in the foreground.
fn after(signal: &str, mark: &str) -> std::process::ExitStatus {
    let (world, way) = (World::new(), WAYS[1]);
    let turns = [
        turn(
            "",
            vec![(
                "execute_command",
                json!({"command": job(mark), "background": true}),
            )],
        ),
        turn(
            "",
            vec![(
                "execute_command",
                json!({"command": format!("touch ready; sleep 8{mark}")}),
            )],
        ),
    ];
    let provider = world.plays(way, &turns);
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        way.model(),
        "--approve",
        "all",
        "--output",
        "events",
        "go",
    ]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the foreground", || {
        world.work.path().join("ready").exists()
    });
    // The command says that it is ready before its last process is there.
    wait_for("all processes", || left(mark).len() >= 3);
    let sent = std::process::Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    if signal == "-KILL" {
        wait_for("the end of all", || left(mark).is_empty());
    }
    assert_eq!(left(mark), Vec::<String>::new());
    status
}

#[test]
fn jobs_end_with_a_task_that_is_cancelled() {
    assert_eq!(after("-INT", "0518").code(), Some(130));
}

#[test]
fn jobs_end_with_a_task_that_is_killed() {
    assert_eq!(after("-KILL", "0519").code(), None);
}

#[test]
fn outputs_stay_beside_the_journal() {
    let (world, way) = (World::new(), WAYS[1]);
    let turns = [
        turn(
            "",
            vec![("execute_command", json!({"command": "seq 1 100000"}))],
        ),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    let output = world.run(
        &provider,
        way,
        &["--approve", "all", "--output", "events", "go"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let folder = world
        .home
        .path()
        .join(".local/share/sabir/tasks")
        .join(format!("{}.outputs", world.only_task()));
    assert_eq!(
        std::fs::metadata(folder.join("1.head")).unwrap().len(),
        588_895
    );
    let tasks = world.sabir().arg("tasks").output().unwrap();
    assert_eq!(code(&tasks), 0, "{}", stderr(&tasks));
}

/// A resumed task can read a long output in parts, even if the result that named it was compacted.
#[test]
fn outputs_outlive_compactions_and_resumes() {
    use std::os::unix::fs::PermissionsExt;
    let (world, way) = (World::new(), WAYS[1]);
    for name in ["a.txt", "b.txt", "c.txt"] {
        world.write(name, &"a line of notes\n".repeat(600));
    }
    let read = |name: &'static str| turn("I read.", vec![("read_file", json!({"path": name}))]);
    let turns = [
        turn(
            "I count.",
            vec![("execute_command", json!({"command": "seq 1 100000"}))],
        ),
        read("a.txt"),
        read("b.txt"),
        read("c.txt"),
    ];
    let provider = world.plays(way, &turns);
    let output = world.run(
        &provider,
        way,
        &["--approve", "all", "--max-turns", "4", "go"],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let task = world.only_task();
    let output = world
        .sabir()
        .args(["context", &task, "--compact", "--plain"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));

    let lines = json!({"output": 1, "start_line": 54321, "end_line": 54323});
    let turns = [
        turn("Which?", vec![("read_command_output", json!({}))]),
        turn("Some.", vec![("read_command_output", lines)]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    let output = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let last = provider.received_requests().pop().unwrap().body.to_string();
    assert!(
        !last.contains("99999"),
        "the result itself was left out: {last}"
    );
    assert!(
        last.contains("seq 1 100000")
            && last.contains("54321 | 54321\\n54322 | 54322\\n54323 | 54323"),
        "{last}"
    );

    let folder = world
        .home
        .path()
        .join(".local/share/sabir/tasks")
        .join(format!("{task}.outputs"));
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.for_each(|file| assert_eq!(mode(&file), 0o600, "{}", file.display()));
}
