//! Tests recordings that are replayed on another machine: the same task events to the last byte, offline and without a key, with
//! real tools.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, events, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];

/// Returns true if commands can be cut off from every network here.
fn is_unshared() -> bool {
    let tried = Command::new("unshare").args(["-rn", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Runs `sabir` with these arguments and no way to reach a provider: another folder, another home, no variables
/// that name a key or an address, and no network if that is possible.
fn offline(world: &World, arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_sabir");
    let mut command = if is_unshared() {
        let mut command = Command::new("unshare");
        command.args(["-rn", binary]);
        command
    } else {
        Command::new(binary)
    };
    command
        .env_clear()
        .env("HOME", world.home.path())
        .env("PATH", std::env::var_os("PATH").unwrap());
    command
        .current_dir(world.work.path())
        .args(arguments)
        .output()
        .unwrap()
}

/// Another machine with the same files.
fn elsewhere() -> World {
    let world = World::new();
    prepare(&world);
    world
}

fn prepare(world: &World) {
    world.write("a.txt", "one\ntwo\nthree\n");
    for name in ["b.txt", "c.txt"] {
        world.write(name, &format!("{name}\n").repeat(300));
    }
}

fn tape(world: &World) -> PathBuf {
    world.home.path().join("tape.jsonl")
}

/// Provokes every difference between two machines: absolute paths, the folder's name in output, both streams of a command, a
/// command that prints in several pieces, calls at once.
fn turns(folder: &Path) -> Vec<Turn> {
    let folder = folder.display().to_string();
    let absolute = format!("{folder}/a.txt");
    let command =
        format!("pwd; for i in 1 2 3; do echo $i; sleep 0.02; done; cd {folder} && cat a.txt");
    vec![
        turn(
            "I look.",
            vec![
                ("read_file", json!({"path": "c.txt"})),
                ("read_file", json!({"path": absolute})),
                ("list_files", json!({"path": "."})),
                ("search_files", json!({"regex": "two"})),
            ],
        ),
        turn(
            "I write.",
            vec![(
                "write_to_file",
                json!({"path": format!("{folder}/new.txt"), "content": folder}),
            )],
        ),
        turn(
            "I run.",
            vec![("execute_command", json!({"command": command}))],
        ),
        turn(
            "I err.",
            vec![(
                "execute_command",
                json!({"command": "echo out; echo err >&2; exit 3"}),
            )],
        ),
        turn(
            "",
            vec![(
                "attempt_completion",
                json!({"result": format!("Done in {folder}.")}),
            )],
        ),
    ]
}

fn record(world: &World, provider: &ScriptedProvider, way: Way, more: &[&str]) -> Output {
    let path = tape(world).display().to_string();
    let arguments = ["--approve", "all", "--output", "events", "--record", &path];
    world.run(provider, way, &[&arguments[..], more, &["do it"]].concat())
}

fn replay(world: &World, tape: &Path, more: &[&str]) -> Output {
    let path = tape.display().to_string();
    let arguments = [
        "run",
        "--approve",
        "all",
        "--output",
        "events",
        "--replay",
        &path,
    ];
    offline(world, &[&arguments[..], more].concat())
}

#[track_caller]
fn check_same(recorded: &Output, replayed: &Output) {
    for (line, (one, other)) in stdout(recorded)
        .lines()
        .zip(stdout(replayed).lines())
        .enumerate()
    {
        assert_eq!(one, other, "line {line}: {}", stderr(replayed));
    }
    assert_eq!(stdout(recorded), stdout(replayed), "{}", stderr(replayed));
    assert_eq!(code(recorded), code(replayed), "{}", stderr(replayed));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_replay_in_another_folder_gives_the_same_events() {
    for way in WAYS {
        let world = elsewhere();
        let folder = world.work.path().canonicalize().unwrap();
        let all = turns(&folder);
        let chunks = [
            ChunkSplit::Random(5),
            ChunkSplit::Size(3),
            ChunkSplit::Whole,
            ChunkSplit::Size(1),
            ChunkSplit::Whole,
        ];
        // A provider that refuses, cuts before any event, cuts in the middle, stays silent, and
        // then answers.
        let provider = world.provider(ReplyScript::from_fn(move |count, _| {
            let reply = |at: usize| {
                way.reply(&all[at], at + 1)
                    .in_chunks(chunks[at])
                    .in_deltas(7)
            };
            match count {
                0 => ProviderReply::error_status(429).with_header("retry-after-ms", "130"),
                1 => reply(0).with_fault(ScriptedFault::CutAfter(0)),
                2 => reply(0),
                3 => reply(1).with_fault(ScriptedFault::CutAfter(500)),
                4 => reply(1),
                5 => reply(2),
                6 => ProviderReply::error_status(503),
                7 => reply(3),
                _ => reply(4),
            }
        }));
        let recorded = record(&world, &provider, way, &[]);
        assert_eq!(code(&recorded), 0, "{way:?}: {}", stderr(&recorded));
        let kinds = |kind: &str| {
            events(&recorded)
                .iter()
                .filter(|event| event["kind"] == kind)
                .count()
        };
        assert!(
            kinds("waiting") >= 3 && kinds("failed") == 1 && kinds("output") >= 3,
            "{way:?}"
        );
        let other = elsewhere();
        check_same(&recorded, &replay(&other, &tape(&world), &[]));
        let here = other
            .work
            .path()
            .canonicalize()
            .unwrap()
            .display()
            .to_string();
        assert_eq!(
            other.read("new.txt"),
            here,
            "the tools really work, and know where they are"
        );
        let text = std::fs::read_to_string(tape(&world)).unwrap();
        assert!(!text.contains("sk-secret-test"), "no key is recorded");
        assert_eq!(
            std::fs::metadata(tape(&world))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }
}

#[test]
fn a_replay_gives_the_same_events_on_every_wire() {
    for wire in Wire::ALL {
        let world = elsewhere();
        let folder = world.work.path().canonicalize().unwrap();
        let provider = world.plays(NATIVE, &turns(&folder));
        let config = world.home.path().join("config.toml");
        let url = provider.base_url(wire);
        std::fs::write(
            &config,
            format!("[providers.box]\nwire = \"{wire}\"\nbase_url = \"{url}\"\n"),
        )
        .unwrap();
        let mut command = world.sabir();
        command
            .args([
                "run",
                "--model",
                "box/scripted",
                "--approve",
                "all",
                "--output",
                "events",
                "--config",
            ])
            .arg(config);
        let recorded = command
            .arg("--record")
            .arg(tape(&world))
            .arg("do it")
            .output()
            .unwrap();
        assert_eq!(code(&recorded), 0, "{wire}: {}", stderr(&recorded));
        check_same(&recorded, &replay(&elsewhere(), &tape(&world), &[]));
    }
}

#[test]
fn replays_accept_other_outputs_and_repeated_text() {
    let world = elsewhere();
    let provider = world.plays(NATIVE, &turns(&world.work.path().canonicalize().unwrap()));
    let recorded = record(&world, &provider, NATIVE, &[]);
    assert_eq!(code(&recorded), 0, "{}", stderr(&recorded));
    let replayed = replay(
        &elsewhere(),
        &tape(&world),
        &["--model", NATIVE.model(), "--protocol", "native", "do it"],
    );
    check_same(&recorded, &replayed);
    let path = tape(&world).display().to_string();
    let json = offline(
        &elsewhere(),
        &[
            "run",
            "--approve",
            "all",
            "--output",
            "json",
            "--replay",
            &path,
        ],
    );
    let end: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(
        (&end["outcome"], &end["turns"]),
        (&json!("completed"), &json!(5))
    );
}

#[test]
fn a_resumed_task_is_recorded_and_replayed_from_its_beginning() {
    for way in [WAYS[0], WAYS[2]] {
        let world = elsewhere();
        let provider = world.plays(way, &turns(&world.work.path().canonicalize().unwrap()));
        let path = tape(&world).display().to_string();
        let first = record(&world, &provider, way, &["--max-turns", "2"]);
        assert_eq!(code(&first), 6, "{}", stderr(&first));
        let second = world.home.path().join("second.jsonl").display().to_string();
        let id = world.only_task();
        let resumed = world
            .sabir_with(&provider)
            .args([
                "resume",
                "--approve",
                "all",
                "--output",
                "events",
                "--record",
                &second,
                &id,
                "mind",
                "the",
                "tests",
            ])
            .output()
            .unwrap();
        assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
        let other = elsewhere();
        check_same(&first, &replay(&other, Path::new(&path), &[]));
        let again = [
            "resume",
            "--approve",
            "all",
            "--output",
            "events",
            "--replay",
            &second,
        ];
        check_same(&resumed, &offline(&other, &again));
        let wrong = offline(&other, &["run", "--replay", &second]);
        assert_eq!(code(&wrong), 2);
        assert!(
            stderr(&wrong).contains("sabir resume --replay"),
            "{}",
            stderr(&wrong)
        );
    }
}

#[test]
fn a_differing_request_is_reported_with_its_position() {
    let world = elsewhere();
    let provider = world.plays(NATIVE, &turns(&world.work.path().canonicalize().unwrap()));
    let recorded = record(&world, &provider, NATIVE, &[]);
    assert_eq!(code(&recorded), 0, "{}", stderr(&recorded));
    let other = elsewhere();
    other.write("a.txt", "one\nTWO\nthree\n");
    let output = replay(&other, &tape(&world), &[]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let end = events(&output).pop().unwrap();
    assert_eq!(
        (&end["kind"], &end["outcome"]),
        (&json!("ended"), &json!("misconfigured"))
    );
    let words = end["message"].as_str().unwrap();
    assert!(
        words.starts_with("request 2 is not the recorded one at body.messages[4].content"),
        "{words}"
    );
    assert!(
        words.contains("two") && words.contains("TWO") && words.contains("nothing was sent"),
        "{words}"
    );
    // Another task, and another approval.
    let output = replay(&elsewhere(), &tape(&world), &["do something else"]);
    assert_eq!(code(&output), 2);
    assert!(
        stdout(&output).contains("request 1 is not the recorded one at body.messages[1]"),
        "{}",
        stdout(&output)
    );
    let path = tape(&world).display().to_string();
    let output = offline(&elsewhere(), &["run", "--replay", &path]);
    assert_eq!(
        code(&output),
        2,
        "what may be done is not recorded: {}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("request 3") && stderr(&output).contains("denied"),
        "{}",
        stderr(&output)
    );
    let output = replay(&elsewhere(), &tape(&world), &["--model", "openai/other"]);
    assert_eq!(code(&output), 2);
}

#[test]
fn extra_and_missing_requests_are_reported() {
    let world = elsewhere();
    let provider = world.plays(NATIVE, &turns(&world.work.path().canonicalize().unwrap()));
    assert_eq!(code(&record(&world, &provider, NATIVE, &[])), 0);
    let text = std::fs::read_to_string(tape(&world)).unwrap();
    let fewer: String = text
        .lines()
        .take_while(|line| !line.contains("\"number\":5"))
        .map(|line| format!("{line}\n"))
        .collect();
    let short = world.home.path().join("short.jsonl");
    std::fs::write(&short, fewer).unwrap();
    let output = replay(&elsewhere(), &short, &[]);
    assert_eq!(code(&output), 2);
    assert!(
        stdout(&output).contains("holds 4 requests, and this would be request 5"),
        "{}",
        stdout(&output)
    );
    let more = text.clone()
        + &text
            .lines()
            .skip(1)
            .map(|line| line.replace("\"number\":5", "\"number\":6"))
            .filter(|line| line.contains("\"number\":6"))
            .map(|line| line + "\n")
            .collect::<String>();
    let long = world.home.path().join("long.jsonl");
    std::fs::write(&long, more).unwrap();
    let output = replay(&elsewhere(), &long, &[]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("1 recorded request was never asked for"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_recorded_interrupt_is_replayed() {
    let world = elsewhere();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("I think.").with_fault(ScriptedFault::StallAfter(200))
    }));
    let recorded = record(&world, &provider, NATIVE, &["--max-time", "1s"]);
    assert_eq!(code(&recorded), 6, "{}", stderr(&recorded));
    check_same(
        &recorded,
        &replay(&elsewhere(), &tape(&world), &["--max-time", "1s"]),
    );
    let output = replay(&elsewhere(), &tape(&world), &[]);
    assert_eq!(code(&output), 130, "{}", stderr(&output));
}

#[test]
fn kill_9_leaves_a_readable_recording() {
    let world = elsewhere();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("I think.").with_fault(ScriptedFault::StallAfter(200))
    }));
    let mut command = world.sabir_with(&provider);
    command
        .args(["run", "--model", NATIVE.model(), "--record"])
        .arg(tape(&world))
        .arg("do it");
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    while !std::fs::read_to_string(tape(&world))
        .unwrap_or_default()
        .contains("\"kind\":\"chunk\"")
    {
        assert!(begun.elapsed().as_secs() < 120, "nothing is recorded");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = replay(&elsewhere(), &tape(&world), &[]);
    assert_eq!(code(&output), 2);
    assert!(
        stdout(&output).contains("breaks off in the answer to request 1"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn unusable_recordings_are_explained() {
    let world = elsewhere();
    let provider = world.plays(
        NATIVE,
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "done"}))],
        )],
    );
    std::fs::write(tape(&world), "precious").unwrap();
    let output = record(&world, &provider, NATIVE, &[]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("exists already"),
        "{}",
        stderr(&output)
    );
    assert_eq!(provider.received_requests().len(), 0);
    assert_eq!(std::fs::read_to_string(tape(&world)).unwrap(), "precious");
    let output = replay(&world, &tape(&world), &[]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("not a recording"),
        "{}",
        stderr(&output)
    );
    let inside = world.run(&provider, NATIVE, &["--record", "inside.jsonl", "do it"]);
    assert!(
        stderr(&inside).contains("is in the task's folder"),
        "{}",
        stderr(&inside)
    );
    let output = replay(&world, Path::new("/nowhere/tape"), &[]);
    assert_eq!(code(&output), 2);
}

#[test]
fn a_recorded_key_renewal_is_replayed() {
    let world = elsewhere();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        if request.header_value("authorization") == Some("Bearer sk-second-key") {
            let at = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
            return if at == 0 {
                NATIVE.reply(&turn("Hm.", vec![]), 1)
            } else {
                NATIVE.reply(&done, 2)
            };
        }
        ProviderReply::error_status(401)
            .with_body(r#"{"error":{"message":"no sk-first-key","code":"invalid_api_key"}}"#)
    }));
    let keys = world.home.path().join("keys.sh");
    let used = world.home.path().join("used").display().to_string();
    std::fs::write(
        &keys,
        format!("[ -e {used} ] && echo sk-second-key || echo sk-first-key; touch {used}\n"),
    )
    .unwrap();
    let config = world.home.path().join("config.toml");
    let (url, keys) = (provider.base_url(NATIVE.wire), keys.display().to_string());
    let text = format!(
        "[providers.box]\nwire = \"openai-chat\"\nbase_url = \"{url}\"\napi_key_command = [\"sh\", \"{keys}\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = world.sabir();
    command
        .args([
            "run",
            "--model",
            "box/scripted",
            "--completion",
            "call",
            "--output",
            "events",
            "--config",
        ])
        .arg(config);
    let recorded = command
        .arg("--record")
        .arg(tape(&world))
        .arg("do it")
        .output()
        .unwrap();
    assert_eq!(code(&recorded), 0, "{}", stderr(&recorded));
    check_same(&recorded, &replay(&elsewhere(), &tape(&world), &[]));
    let text = std::fs::read_to_string(tape(&world)).unwrap();
    assert!(
        !text.contains("sk-first-key") && !text.contains("sk-second-key"),
        "{text}"
    );
    assert_eq!(text.matches("\"kind\":\"request\"").count(), 3);
}
