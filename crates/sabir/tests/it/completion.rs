//! Tests the conditions of completion (todos, the check) and the token limit through the binary.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use sabir_call::Usage;
use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, events, processes_with, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn write(name: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": name, "content": ""}))],
    )
}

fn list(todos: &str) -> Turn {
    turn("", vec![("update_todo_list", json!({"todos": todos}))])
}

/// Returns the results of the completion calls.
fn answered(output: &Output) -> Vec<(String, String)> {
    let completions = events(output)
        .into_iter()
        .filter(|event| event["kind"] == "result" && event["name"] == "attempt_completion");
    let word = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    completions
        .map(|event| (word(&event, "ending"), word(&event, "content")))
        .collect()
}

#[test]
fn a_check_decides_about_completion_on_every_wire() {
    for way in WAYS {
        let world = World::new();
        let provider = world.plays(way, &[done(), write("made"), done()]);
        let output = world.run(
            &provider,
            way,
            &[
                "--check",
                "test -e made || { echo nothing is made; false; }",
                "--approve",
                "edits",
                "--output",
                "events",
                "go",
            ],
        );
        assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
        let endings = answered(&output);
        assert_eq!(
            endings
                .iter()
                .map(|(ending, _)| ending.as_str())
                .collect::<Vec<_>>(),
            ["rejected", "done"],
            "{way:?}"
        );
        assert!(
            endings[0].1.contains("did not succeed") && endings[0].1.contains("nothing is made"),
            "{endings:?}"
        );
        let body = provider.received_requests()[1].body.to_string();
        assert!(
            body.contains("nothing is made"),
            "the model reads what it printed: {body}"
        );
        let kinds: Vec<_> = events(&output)
            .iter()
            .map(|event| event["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            kinds.iter().filter(|kind| *kind == "running").count(),
            3,
            "two checks and a write: {kinds:?}"
        );
    }
}

#[test]
fn a_check_that_never_succeeds_ends_with_3() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done(), done(), done(), done(), done(), done()]);
    let output = world.run(&provider, NATIVE, &["--check", "false", "go"]);
    assert_eq!(
        (code(&output), provider.received_requests().len()),
        (3, 5),
        "{}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("the completion was refused 5 times"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn long_output_of_a_check_is_shortened() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done(), done()]);
    let check = "test -e again || { touch again; echo first; seq 200000; echo last; false; }";
    let output = world.run(
        &provider,
        NATIVE,
        &["--check", check, "--output", "events", "go"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let words = &answered(&output)[0].1;
    assert!(
        words.len() < 48 << 10 && words.contains("first\n1\n2") && words.contains("200000\nlast"),
        "{}",
        words.len()
    );
}

#[test]
fn only_the_user_sets_a_check() {
    let world = World::new();
    for place in [
        ".sabir/config.toml",
        "config.toml",
        ".config/sabir/config.toml",
        ".sabir.toml",
    ] {
        std::fs::create_dir_all(world.work.path().join(place).parent().unwrap()).unwrap();
        world.write(
            place,
            "[completion]\ncheck = \"touch pwned\"\ntodos = true\n",
        );
    }
    let provider = world.plays(NATIVE, &[list("[ ] a"), done()]);
    let output = world.run(&provider, NATIVE, &["go"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!world.work.path().join("pwned").exists());

    world.configure("[completion]\ncheck = \"touch checked\"\ntodos = true\n");
    let provider = world.plays(NATIVE, &[list("[ ] a"), done(), list("[x] a"), done()]);
    let output = world.run(&provider, NATIVE, &["--output", "events", "go"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("checked").exists());
    assert!(
        answered(&output)[0]
            .1
            .starts_with("Not completed: 1 todo is not done: `a`."),
        "{:?}",
        answered(&output)
    );

    std::fs::remove_file(world.work.path().join("checked")).unwrap();
    let provider = world.plays(NATIVE, &[done()]);
    assert_eq!(
        code(&world.run(&provider, NATIVE, &["--check", "", "go"])),
        0
    );
    assert!(
        !world.work.path().join("checked").exists(),
        "an empty check is none"
    );

    world.configure("[completion]\nchecks = \"true\"\n");
    let output = world.run(&provider, NATIVE, &["go"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("line 2") && stderr(&output).contains("checks"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_check_runs_in_a_mode_without_commands() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(
        &provider,
        NATIVE,
        &["--mode", "ask", "--check", "touch checked", "go"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("checked").exists());
}

#[test]
fn an_interrupted_check_leaves_no_process_and_runs_again() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--check",
        "sleep 7413 & sleep 7413",
        "go",
    ]);
    let mut child = command
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while processes_with("sleep\u{0}7413").len() < 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the check does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupt.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let begun = Instant::now();
    while !processes_with("sleep\u{0}7413").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
    let provider = world.plays(NATIVE, &[done()]);
    let mut resume = world.sabir_with(&provider);
    let output = resume
        .args([
            "resume",
            "--output",
            "events",
            "--check",
            "true",
            &world.only_task(),
        ])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        provider.received_requests()[0]
            .body
            .to_string()
            .contains("Not completed: this was interrupted.")
    );
}

#[test]
fn a_check_runs_into_the_time_limit() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(
        &provider,
        NATIVE,
        &["--check", "sleep 300", "--max-time", "2s", "go"],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
}

#[test]
fn tokens_have_a_limit() {
    let used = |input, output| Usage {
        input: Some(input),
        output: Some(output),
        ..Usage::default()
    };
    let world = World::new();
    let look = || ProviderReply::default().with_call("c", "list_files", json!({"path": "."}));
    let script = move || {
        ReplyScript::from_fn(move |_, _| ProviderReply {
            usage: used(900, 100),
            ..look()
        })
    };
    let provider = world.provider(script());
    let output = world.run(
        &provider,
        NATIVE,
        &["--max-tokens", "2k", "--output", "json", "go"],
    );
    let end: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((code(&output), &end["turns"]), (6, &json!(2)), "{end}");
    assert_eq!(end["message"], "the limit of 2000 tokens was reached: 2000");
    let provider = world.provider(script());
    let mut resume = world.sabir_with(&provider);
    let output = resume
        .args([
            "resume",
            "--output",
            "json",
            "--max-tokens",
            "1500",
            &world.only_task(),
        ])
        .output()
        .unwrap();
    let end: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (code(&output), &end["turns"]),
        (6, &json!(2)),
        "counted anew since the resume: {end}"
    );
    world.configure("max_tokens = 1000\n");
    let provider = world.provider(script());
    assert_eq!(code(&world.run(&provider, NATIVE, &["go"])), 6);
    assert_eq!(
        code(&world.run(&provider, NATIVE, &["--max-tokens", "many", "go"])),
        2
    );
}

#[test]
fn todos_are_shown_when_they_change() {
    let world = World::new();
    let todos = "- [x] Find it\n- [-] Mend it\n  - [ ] in the parser";
    let provider = world.plays(WAYS[2], &[list(todos), list("no list"), done()]);
    let output = world.run(&provider, WAYS[2], &["go"]);
    let shown =
        "  ✓ update_todo_list \n    [x] Find it\n    [-] Mend it\n      [ ] in the parser\n";
    assert!(stderr(&output).contains(shown), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("✗ failed: update_todo_list"),
        "{}",
        stderr(&output)
    );
    let log = world
        .sabir()
        .args(["log", &world.only_task()])
        .output()
        .unwrap();
    let logged: String = shown
        .lines()
        .skip(1)
        .map(|line| format!("      {line}\n"))
        .collect();
    assert!(stdout(&log).contains(&logged), "{}", stdout(&log));
    let help = world
        .sabir()
        .args(["help", "tool", "update_todo_list"])
        .output()
        .unwrap();
    assert!(stdout(&help).starts_with("# update_todo_list\n"));
}

/// A search that finds nothing is an answer. As a check it still fails.
#[test]
fn a_search_without_a_match_is_no_failure() {
    let world = World::new();
    world.write("a.txt", "hay\n");
    let both = |line: &str| {
        turn(
            "",
            vec![
                ("execute_command", json!({"command": line})),
                ("attempt_completion", json!({"result": "done"})),
            ],
        )
    };
    let ending = |line: &str| {
        let provider = world.plays(NATIVE, &[both(line), done()]);
        let output = world.run(
            &provider,
            NATIVE,
            &["--approve", "all", "--output", "events", "go"],
        );
        let result = events(&output)
            .into_iter()
            .find(|event| event["kind"] == "result" && event["name"] == "execute_command")
            .unwrap();
        let content = result["content"].as_str().unwrap();
        assert!(content.starts_with("Exit code "), "{content}");
        (result["ending"].clone(), answered(&output).len())
    };
    assert_eq!(ending("cat a.txt | grep needle"), (json!("done"), 1));
    // An error of the search, or of what comes before it, fails, and so does the completion beside
    // it.
    assert_eq!(ending("grep needle none.txt"), (json!("failed"), 2));
    assert_eq!(ending("false && grep needle a.txt"), (json!("failed"), 2));

    let provider = world.plays(NATIVE, &[done(), done()]);
    let output = world.run(
        &provider,
        NATIVE,
        &[
            "--check",
            "grep -q needle a.txt",
            "--output",
            "events",
            "go",
        ],
    );
    assert_ne!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(answered(&output)[0].0, "rejected");
}

/// A full-screen program gets no keys, and does not hold the task up until the time limit: one that keeps the screen to its end,
/// one that gives it back when it is ended, as pagers and editors do, and one that only asks for keys, as `top` does.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_program_that_keeps_the_screen_is_ended() {
    let lines = [
        "printf '\\033[?1049hpage 1\\n'; sleep 100000",
        "trap 'printf \"\\033[?1l\\033[?1049l\"; exit 0' TERM; printf '\\033[?1049h\\033[?1hpage 1\\n'; sleep 100000 & wait",
        "printf '\\033[?1h\\033=page 1\\n'; sleep 100000",
    ];
    std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(move || check_full_screen(line));
        }
    });
}

fn check_full_screen(line: &str) {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "",
                vec![(
                    "execute_command",
                    json!({"command": line, "terminal": true}),
                )],
            ),
            done(),
        ],
    );
    let exact = format!("command={line}");
    let output = world.run(
        &provider,
        NATIVE,
        &[
            "--approve",
            "all",
            "--approve",
            &exact,
            "--output",
            "events",
            "go",
        ],
    );
    let content = events(&output)
        .into_iter()
        .find(|event| event["kind"] == "result")
        .map(|event| event["content"].as_str().unwrap().to_owned())
        .unwrap();
    // What a program has drawn goes with the screen that it gives back.
    let gives_back = line.contains("?1049l");
    let expected = match gives_back {
        true => "Killed: it kept the whole screen for 15 seconds, no output.\n",
        false => "Killed: it kept the whole screen for 15 seconds. Output:\npage 1\n",
    };
    assert!(content.starts_with(expected), "{content}");
    assert!(content.contains("full-screen program"), "{content}");
}
