//! Tests each exit code with a task that ends with it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::json;

use crate::world::{WAYS, World, code, processes_with, stderr, stdout, turn};

const NATIVE: crate::world::Way = WAYS[1];

fn touch() -> crate::world::Turn {
    turn(
        "",
        vec![("execute_command", json!({"command": "touch made"}))],
    )
}

#[test]
fn completion_exits_with_0() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "All done."}))],
        )],
    );
    let output = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(
        (code(&output), stdout(&output).as_str()),
        (0, "All done.\n")
    );
    let provider = world.plays(
        NATIVE,
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "All done."}))],
        )],
    );
    let output = world.run(&provider, NATIVE, &["--output", "json", "do it"]);
    let end: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&end["outcome"], &end["exit_code"], &end["turns"]),
        (&json!("completed"), &json!(0), &json!(1))
    );
}

#[test]
fn usage_errors_exit_with_2() {
    let world = World::new();
    for arguments in [
        &["run"][..],
        &["run", "--output", "xml", "x"],
        &["nonsense", "--no-such-flag"],
    ] {
        assert_eq!(
            code(&world.sabir().args(arguments).output().unwrap()),
            2,
            "{arguments:?}"
        );
    }
}

#[test]
fn an_unfinished_task_exits_with_3() {
    let world = World::new();
    let words = || turn("I think it is fine.", vec![]);
    let provider = world.plays(NATIVE, &[words(), words(), words()]);
    let output = world.run(&provider, NATIVE, &["--completion", "call", "do it"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("sabir resume"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_empty_answer_is_not_success() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[turn("", vec![]), turn("", vec![]), turn("", vec![])],
    );
    assert_eq!(code(&world.run(&provider, NATIVE, &["do it"])), 3);
}

#[test]
fn denials_exit_with_5() {
    let world = World::new();
    let words = || turn("I cannot go on.", vec![]);
    let provider = world.plays(NATIVE, &[touch(), words(), words(), words()]);
    let output = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(!world.work.path().join("made").exists());
}

#[test]
fn a_limit_exits_with_6() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[touch(), touch()]);
    let output = world.run(
        &provider,
        NATIVE,
        &["--approve", "commands", "--max-turns", "1", "do it"],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    assert!(world.work.path().join("made").exists());
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
    }));
    let output = world.run(&provider, NATIVE, &["--max-time", "1s", "do it"]);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
}

#[test]
fn the_protocol_is_locked_for_the_task() {
    let world = World::new();
    let provider = world.plays(
        WAYS[2],
        &[
            touch(),
            turn("", vec![("attempt_completion", json!({"result": "x"}))]),
        ],
    );
    let output = world.run(
        &provider,
        WAYS[2],
        &["--approve", "commands", "--max-turns", "1", "do it"],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let id = world.only_task();
    let resume = |more: &[&str]| {
        let mut command = world.sabir_with(&provider);
        command
            .args(["resume", "--output", "text"])
            .args(more)
            .arg(&id)
            .output()
            .unwrap()
    };
    let other = resume(&["--protocol", "native"]);
    assert_eq!(code(&other), 2);
    assert!(
        stderr(&other).contains("locked to the protocol `cline`"),
        "{}",
        stderr(&other)
    );
    assert_eq!(code(&resume(&[])), 0);
    assert!(
        provider.received_requests()[1].body.get("tools").is_none(),
        "the journal's protocol goes on, not the catalogue's"
    );
}

#[test]
fn a_failing_provider_exits_with_7() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(400)
    }));
    let output = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("x").with_fault(ScriptedFault::Body {
            content_type: Some("text/html".to_owned()),
            body: "<html>proxy</html>".to_owned(),
        })
    }));
    let output = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
}

#[test]
fn an_interrupt_exits_with_130_and_leaves_no_process() {
    let world = World::new();
    let sleep = "sleep 7412";
    let provider = world.plays(
        NATIVE,
        &[turn(
            "",
            vec![(
                "execute_command",
                json!({"command": format!("{sleep} & {sleep}")}),
            )],
        )],
    );
    let mut command = world.sabir_with(&provider);
    command
        .args([
            "run",
            "--model",
            NATIVE.model(),
            "--approve",
            "commands",
            "do it",
        ])
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while processes_with("sleep\u{0}7412").len() < 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "the command does not start"
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
    while !processes_with("sleep\u{0}7412").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
    let provider = world.plays(
        NATIVE,
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "x"}))],
        )],
    );
    let resumed = world
        .sabir_with(&provider)
        .args([
            "resume",
            "--output",
            "text",
            &world.only_task(),
            "do",
            "not",
            "wait",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
    let body = provider.received_requests()[0].body.to_string();
    assert!(
        body.contains("interrupted"),
        "the model hears that the command may have run: {body}"
    );
    assert!(
        body.contains("do not wait"),
        "and what the user says: {body}"
    );
}
