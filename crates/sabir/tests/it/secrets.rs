//! Tests that no secret is stored: the cases SEC-001 to SEC-028, with the real binary.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::json;

use crate::world::{WAYS, Way, World, code, events, stderr, turn};

const NATIVE: Way = WAYS[1];

/// Generates letters of which no two neighbours are equal, so that no source file contains anything like a key.
fn letters(count: usize) -> String {
    "Ab3dE5gHi7".chars().cycle().take(count).collect()
}

/// The cases: the id, the name in the placeholder, and a made-up secret.
fn secrets() -> Vec<(&'static str, &'static str, String)> {
    let jwt = format!(
        "{0}JhbGciOiJIUzI1NiJ9.{0}JzdWIiOiIxMjM0{1}.{2}",
        "ey",
        letters(12),
        letters(43)
    );
    let line = letters(64);
    let key = format!(
        "-----BEGIN PRIVATE{0}\n{line}\n{line}\n-----END PRIVATE{0}",
        " KEY-----"
    );
    vec![
        (
            "SEC-004",
            "AWS access key id",
            format!("AKIA{}", letters(16).to_uppercase()),
        ),
        (
            "SEC-004",
            "AWS access key id",
            format!("ASIA{}", letters(16).to_uppercase()),
        ),
        (
            "SEC-004",
            "AWS secret access key",
            format!("aws_secret_access_key = {}", letters(40)),
        ),
        ("SEC-005", "GitHub token", format!("ghp_{}", letters(36))),
        (
            "SEC-005",
            "GitHub token",
            format!("github_pat_{}_{}", letters(22), letters(59)),
        ),
        ("SEC-005", "GitLab token", format!("glpat-{}", letters(20))),
        (
            "SEC-007",
            "Anthropic key",
            format!("sk-ant-api03-{}", letters(80)),
        ),
        ("SEC-007", "OpenAI key", format!("sk-proj-{}", letters(48))),
        (
            "SEC-008",
            "Slack token",
            format!("xox{}-123456789012-{}", "b", letters(24)),
        ),
        ("SEC-008", "Google key", format!("AIza{}", letters(35))),
        ("SEC-008", "Stripe key", format!("sk_live_{}", letters(24))),
        ("SEC-010", "JWT", jwt),
        ("SEC-010", "private key", key),
        (
            "SEC-011",
            "password",
            format!("https://user:{}@host/", letters(12)),
        ),
        (
            "SEC-013",
            "authorization",
            format!("Authorization: Bearer {}", letters(40)),
        ),
    ]
}

/// Returns the part of a secret that must not be found: all but the parts that may be shown.
fn core(secret: &str) -> &str {
    secret
        .rsplit([' ', ':', '\n'])
        .find(|part| part.contains("Ab3"))
        .or(secret.split('\n').nth(1))
        .unwrap_or(secret)
        .trim_end_matches("@host/")
}

/// All bytes of the files below.
fn below(folder: &Path, name: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(below(&path, name));
        } else if path.to_string_lossy().ends_with(name) {
            all.extend(std::fs::read(&path).unwrap());
        }
    }
    all
}

fn has(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

fn done() -> crate::world::Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

#[test]
fn sec_004_to_012_secrets_in_outputs_are_never_stored() {
    let world = World::new();
    let all: Vec<String> = secrets().into_iter().map(|(.., secret)| secret).collect();
    world.write("out.txt", &format!("{}\n", all.join("\n")));
    let command = "cat out.txt; while read -r line; do printf %s \"$line\" | head -c 9; sleep 0.01; echo; done < out.txt";
    let turns = [
        turn(
            "I look.",
            vec![
                ("execute_command", json!({"command": command})),
                ("read_file", json!({"path": "out.txt"})),
            ],
        ),
        done(),
    ];
    let provider = world.plays(NATIVE, &turns);
    let tape = world.home.path().join("tape.jsonl");
    let prompt = format!("remove {} from out.txt", all[3]);
    let tape_path = tape.display().to_string();
    let arguments = [
        "--approve",
        "all",
        "--output",
        "events",
        "--record",
        &tape_path,
        &prompt,
    ];
    let output = world.run(&provider, NATIVE, &arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = provider.received_requests().last().unwrap().body["messages"].to_string();
    let id = world.only_task();
    let said = |arguments: &[&str]| world.sabir().args(arguments).output().unwrap().stdout;
    let written = [
        ("events", output.stdout.clone()),
        ("recording", std::fs::read(&tape).unwrap()),
        ("journal", below(world.home.path(), ".journal")),
        ("log", said(&["log", &id, "--output", "json"])),
        ("log", said(&["log", &id, "--output", "events"])),
        ("log", said(&["log", &id])),
        ("tasks", said(&["tasks"])),
    ];
    for (case, name, secret) in secrets() {
        let core = core(&secret);
        assert!(
            core.len() >= 12 && told.contains(core),
            "{case}: the model is told what there is: {secret}"
        );
        for (place, bytes) in &written {
            assert!(!has(bytes, core), "{case}: {core} stands in the {place}");
        }
        for (place, bytes) in written.iter().take(4) {
            assert!(
                has(bytes, &format!("[redacted: {name}]")),
                "{case}: {name} is not told in the {place}"
            );
        }
    }
    let outputs: String = events(&output)
        .iter()
        .filter(|event| event["kind"] == "output")
        .filter_map(|event| event["text"].as_str())
        .collect();
    assert!(outputs.contains("[redacted: private key]\n"), "{outputs}");

    // A replay gives the same task, although its requests contain placeholders now.
    let replayed = world
        .sabir()
        .args([
            "run",
            "--approve",
            "all",
            "--output",
            "events",
            "--replay",
            &tape_path,
        ])
        .output()
        .unwrap();
    assert_eq!(code(&replayed), 0, "{}", stderr(&replayed));
    assert_eq!(joined(&replayed), joined(&output));
}

/// The events, with the pieces of an output as one, but for guesses of how long a request was.
fn joined(output: &Output) -> Vec<serde_json::Value> {
    let mut all: Vec<serde_json::Value> = Vec::new();
    for mut event in events(output) {
        // The request was longer or shorter by a placeholder.
        event.as_object_mut().unwrap().remove("estimate");
        if let Some(used) = event["used"].as_object_mut() {
            used.remove("estimate");
        }
        match all
            .last_mut()
            .filter(|last| last["kind"] == "output" && event["kind"] == "output")
        {
            Some(last) => {
                let text = format!(
                    "{}{}",
                    last["text"].as_str().unwrap(),
                    event["text"].as_str().unwrap()
                );
                last["text"] = text.into();
            }
            None => all.push(event),
        }
    }
    all
}

#[test]
fn progress_lines_show_no_secrets() {
    let world = World::new();
    let secret = format!("ghp_{}", letters(36));
    world.write("out.txt", &format!("{secret}\n"));
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "",
                vec![("execute_command", json!({"command": "cat out.txt"}))],
            ),
            done(),
        ],
    );
    let output = world.run(&provider, NATIVE, &["--approve", "all", "go"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("[redacted: GitHub token]") && !stderr(&output).contains(&secret),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_resumed_task_keeps_redacted_placeholders() {
    let world = World::new();
    let secret = format!("ghp_{}", letters(36));
    world.write("out.txt", &secret);
    let provider = world.plays(
        NATIVE,
        &[turn("", vec![("read_file", json!({"path": "out.txt"}))])],
    );
    let output = world.run(
        &provider,
        NATIVE,
        &["--max-turns", "1", "--output", "json", "go"],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let provider = world.plays(NATIVE, &[done()]);
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", "--output", "json", &world.only_task()])
        .output()
        .unwrap();
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
    let told = provider.received_requests()[0].body.to_string();
    assert!(
        told.contains("[redacted: GitHub token]") && !told.contains(&secret),
        "{told}"
    );
}

/// Returns the output of a command in the model's result.
fn printed(world: &World, command: &str, change: impl Fn(&mut Command)) -> String {
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![("execute_command", json!({"command": command}))]),
            done(),
        ],
    );
    let mut sabir = world.sabir_with(&provider);
    change(&mut sabir);
    sabir.args([
        "run",
        "--model",
        NATIVE.model(),
        "--approve",
        "all",
        "--output",
        "json",
        "go",
    ]);
    let output = sabir.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let requests = provider.received_requests();
    let body = &requests.last().unwrap().body;
    body["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

#[test]
fn sec_001_and_002_commands_see_no_keys() {
    let set = |command: &mut Command| {
        command
            .env("DEPLOY_TOKEN", "hush-1")
            .env("MY_SECRET", "hush-2")
            .env("AWS_SECRET_ACCESS_KEY", "hush-3");
    };
    let world = World::new();
    for command in [
        "env",
        "printenv",
        "tr '\\0' '\\n' < /proc/self/environ",
        "tr '\\0' '\\n' < /proc/$PPID/environ; true",
    ] {
        let told = printed(&world, command, set);
        assert!(
            !told.contains("hush-") && !told.contains("sk-secret-test"),
            "SEC-001: {command}: {told}"
        );
    }
    // As a normal user, since root can read everything.
    let (world, user) = (World::new(), 65_534);
    if chown(world.home.path(), Some(user), Some(user)).is_err() {
        crate::world::skipped("not root, so no other user can be tried; this one is");
    }
    let _ = chown(world.work.path(), Some(user), Some(user));
    let owned = std::fs::metadata(world.home.path()).unwrap().uid();
    let all = "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep -a 'hush-\\|sk-secret' ; echo end";
    let told = printed(&world, all, |command| {
        set(command);
        if owned == user {
            command.uid(user).gid(user);
        }
    });
    assert!(
        told.contains("end") && !told.contains("hush-") && !told.contains("sk-secret-test"),
        "SEC-002: {told}"
    );
}

/// Waits until the provider was asked; what it answers never comes.
fn asked(world: &World) -> (std::process::Child, ScriptedProvider) {
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::default().with_fault(sabir_testkit::ScriptedFault::StallBeforeHeaders)
    }));
    let mut command = world.sabir_with(&provider);
    let child = command
        .args(["run", "--model", NATIVE.model(), "--output", "events", "go"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while provider.received_requests().is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing is asked"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    (child, provider)
}

#[test]
fn sec_013_no_level_of_logs_shows_a_key() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let mut command = world.sabir_with(&provider);
    for name in ["RUST_LOG", "SABIR_LOG", "DEBUG"] {
        command.env(name, "trace");
    }
    let output = command
        .args(["run", "--model", NATIVE.model(), "--output", "events", "go"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let all = [output.stdout, output.stderr, below(world.home.path(), "")].concat();
    assert!(!has(&all, "sk-secret-test"), "SEC-013");
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn sec_014_errors_of_the_network_show_no_credentials() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for address in [
        format!("http://user:hunter2x@127.0.0.1:{free}/v1"),
        "http://user:hunter2x@nowhere.invalid/v1?key=hunter2x".to_owned(),
    ] {
        let world = World::new();
        let mut command = world.sabir();
        command
            .env("OPENAI_BASE_URL", &address)
            .env("OPENAI_API_KEY", "sk-secret-test");
        let output = command
            .args(["run", "--model", NATIVE.model(), "--max-time", "5s", "go"])
            .output()
            .unwrap();
        assert_ne!(code(&output), 0);
        let all = [output.stdout, output.stderr, below(world.home.path(), "")].concat();
        assert!(
            !has(&all, "hunter2x") && !has(&all, "sk-secret-test"),
            "SEC-014: {}",
            String::from_utf8_lossy(&all)
        );
    }
}

#[test]
fn sec_016_a_crash_leaves_no_core() {
    let world = World::new();
    let (mut child, _provider) = asked(&world);
    Command::new("kill")
        .args(["-ABRT", &child.id().to_string()])
        .status()
        .unwrap();
    let status = child.wait().unwrap();
    assert!(
        status.signal().is_some() && !status.core_dumped(),
        "SEC-016: {status:?}"
    );
}

#[test]
fn sec_017_to_025_secret_files_need_approval_even_if_reads_are_approved() {
    let names = [
        ".env",
        ".aws/credentials",
        ".netrc",
        ".npmrc",
        ".kube/config",
        "server.pem",
        ".ssh/id_ed25519",
        ".env.local",
    ];
    let world = World::new();
    for name in names {
        let path = world.work.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "hush-hush").unwrap();
    }
    for name in names {
        let provider = world.plays(
            NATIVE,
            &[turn("", vec![("read_file", json!({"path": name}))]), done()],
        );
        let output = world.run(
            &provider,
            NATIVE,
            &["--approve", "reads", "--output", "events", "go"],
        );
        let judged: Vec<_> = events(&output)
            .into_iter()
            .filter(|event| event["kind"] == "judged")
            .collect();
        assert_eq!(judged[0]["verdict"], "deny", "{name}: {judged:?}");
        assert!(
            judged[0]["reason"].as_str().unwrap().contains("secrets"),
            "{name}: {judged:?}"
        );
        let told: String = provider
            .received_requests()
            .iter()
            .map(|request| request.body.to_string())
            .collect();
        assert!(!told.contains("hush-hush"), "{name}");
    }
}

/// A server that redirects every client, and counts them.
fn redirecting(to: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let (count, to) = (Arc::new(AtomicUsize::new(0)), to.to_owned());
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 65_536];
            let _ = stream.read(&mut buffer);
            counted.fetch_add(1, Ordering::SeqCst);
            let head = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
        }
    });
    (address, count)
}

#[test]
fn sec_026_a_redirect_never_receives_the_key() {
    let world = World::new();
    let other = world.plays(NATIVE, &[done(), done()]);
    let (address, count) = redirecting(&format!(
        "{}/chat/completions",
        other.base_url(Wire::OpenAiChat)
    ));
    let mut command = world.sabir();
    command
        .env("OPENAI_BASE_URL", address)
        .env("OPENAI_API_KEY", "sk-secret-test");
    let output = command
        .args(["run", "--model", NATIVE.model(), "go"])
        .output()
        .unwrap();
    assert_eq!(
        (code(&output), other.received_requests().len()),
        (7, 0),
        "SEC-026: {}",
        stderr(&output)
    );
    assert!(count.load(Ordering::SeqCst) > 0);
}

/// What an interactive task shows, which is answered with `y` whenever it asks.
fn talk(world: &World, provider: &ScriptedProvider) -> Output {
    let mut command = world.sabir_with(provider);
    command
        .args(["--model", NATIVE.model(), "--", "go"])
        .stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut typed, mut errors) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
    let shown = Mutex::new(Vec::new());
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let mut shown = shown.lock().unwrap();
        let before = shown.len().saturating_sub(8);
        shown.extend_from_slice(&buffer[..count]);
        if has(&shown[before..], "allow it?") || has(&shown[before..], "is that right?") {
            writeln!(typed, "y").unwrap();
        }
        // The session stays open after the completion.
        if has(&shown, "is that right?") {
            writeln!(typed, "/quit").unwrap();
        }
    }
    let status = child.wait().unwrap();
    Output {
        status,
        stdout: Vec::new(),
        stderr: shown.into_inner().unwrap(),
    }
}

#[test]
fn sec_028_contents_of_secret_files_are_folded_on_the_screen() {
    let world = World::new();
    world.write(".env", "A=hush-1\nB=hush-2\n");
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "",
                vec![("execute_command", json!({"command": "cat .env"}))],
            ),
            done(),
        ],
    );
    let output = talk(&world, &provider);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let shown = stderr(&output);
    assert!(
        shown.contains("… 2 lines of a file that usually holds secrets; not shown"),
        "SEC-028: {shown}"
    );
    assert!(!shown.contains("hush-"), "SEC-028: {shown}");
    assert!(
        provider
            .received_requests()
            .last()
            .unwrap()
            .body
            .to_string()
            .contains("hush-2"),
        "the model gets what was approved"
    );
}

#[test]
fn stored_files_are_private_to_the_user() {
    let world = World::new();
    let run = turn(
        "",
        vec![(
            "execute_command",
            json!({"command": "seq 1 100000; touch new"}),
        )],
    );
    let provider = world.plays(NATIVE, &[run, done()]);
    let tape = world.home.path().join("tape.jsonl").display().to_string();
    let output = world.run(
        &provider,
        NATIVE,
        &[
            "--approve",
            "all",
            "--output",
            "json",
            "--record",
            &tape,
            "go",
        ],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mut open = vec![
        world.home.path().join(".local/share/sabir"),
        world.home.path().join("tape.jsonl"),
    ];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        let found = std::fs::metadata(&path).unwrap();
        // The folders that mask names are empty, and have the mode that they show in the sandbox;
        // nobody reaches them from outside.
        if path
            .parent()
            .is_some_and(|folder| folder.ends_with("masks"))
        {
            assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
            continue;
        }
        assert_eq!(
            found.permissions().mode() & 0o077,
            0,
            "{} has mode {:o}",
            path.display(),
            found.permissions().mode()
        );
        seen += 1;
        if found.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    assert!(seen > 6, "{seen} files and folders");
}
