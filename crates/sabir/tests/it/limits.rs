//! Tests the limits of resources through the binary: the cases RES-001 to RES-023. Tested elsewhere:
//! memory and disk of commands by the tests of the sandbox (RES-004, RES-005), single bytes by the tests of chunks and the benchmark
//! of linearity (RES-011), budgets by `ends.rs` and the agent's `costs.rs` (RES-023).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use sabir_testkit::ScriptedFault;
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, events, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const MIB: u64 = 1 << 20;

fn done() -> crate::world::Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// The most memory that this process has had, in bytes.
fn peak(child: &Child) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) * 1024
}

/// Runs the command to its end, and returns its peak memory.
fn watched(command: &mut Command, input: Option<Vec<u8>>) -> (Output, u64) {
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let mut child = command.spawn().unwrap();
    if let (Some(input), Some(mut typed)) = (input, child.stdin.take()) {
        std::thread::spawn(move || _ = typed.write_all(&input));
    }
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        _ = out.read_to_end(&mut bytes);
        bytes
    });
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        _ = err.read_to_end(&mut bytes);
        bytes
    });
    let mut most = 0;
    let status = loop {
        most = most.max(peak(&child));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (
        Output {
            status,
            stdout: read.join().unwrap(),
            stderr: errors.join().unwrap(),
        },
        most,
    )
}

/// Runs a task of one command; returns the result for the model, and the peak memory.
fn command(line: &str, seconds: u64) -> (String, u64) {
    let world = World::new();
    let arguments = json!({"command": line, "timeout": seconds});
    let provider = world.plays(
        NATIVE,
        &[turn("", vec![("execute_command", arguments)]), done()],
    );
    let mut sabir = world.sabir_with(&provider);
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
    let (output, most) = watched(&mut sabir, None);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let requests = provider.received_requests();
    let body = &requests.last().unwrap().body;
    (
        body["messages"].as_array().unwrap().last().unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned(),
        most,
    )
}

#[test]
fn res_001_much_output_takes_little_memory_and_is_shortened() {
    let (_, least) = command("true", 60);
    // 10 GiB take minutes; what holds for 64 MiB holds for them, since nothing grows.
    let (told, most) = command("yes | head -c 67108864", 120);
    assert!(
        told.len() < 48 << 10,
        "RES-001: {} bytes are told",
        told.len()
    );
    assert!(
        most < least + 32 * MIB,
        "RES-001: {most} bytes of memory, {least} without the flood"
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn res_002_endless_output_is_stopped_and_shortened() {
    let (told, _) = command("cat /dev/urandom", 1);
    let shown: String = told.chars().take(300).collect();
    assert!(
        told.len() < 48 << 10 && told.contains("Killed after 1 second"),
        "RES-002: {} bytes: {shown}",
        told.len()
    );
}

/// A task whose first answer is this body.
fn answered(body: String) -> (Output, u64, usize) {
    let world = World::new();
    world.write("a.txt", "a\n");
    let first = sabir_testkit::ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".into()),
        body,
    });
    let provider = world.provider(sabir_testkit::ReplyScript::from_fn(
        move |count, _| match count {
            0 => first.clone(),
            _ => NATIVE.reply(&done(), 2),
        },
    ));
    let mut sabir = world.sabir_with(&provider);
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
    let (output, most) = watched(&mut sabir, None);
    (output, most, provider.received_requests().len())
}

fn call_of(pieces: &[&str]) -> String {
    let delta = |value: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {"tool_calls": [value]}}]})
        )
    };
    let begin = delta(
        json!({"index": 0, "id": "c", "function": {"name": "write_to_file", "arguments": "{\"path\":\"x\",\"content\":\""}}),
    );
    let rest: String = pieces
        .iter()
        .map(|piece| delta(json!({"index": 0, "function": {"arguments": piece}})))
        .collect();
    format!(
        "{begin}{rest}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"tool_calls\"}}]}}\n\ndata: [DONE]\n\n"
    )
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn res_007_an_argument_of_100_mb_is_rejected_early() {
    let piece = "a".repeat(1 << 20);
    let pieces: Vec<&str> = std::iter::repeat_n(piece.as_str(), 100)
        .chain(["\"}"])
        .collect();
    let (output, most, _) = answered(call_of(&pieces));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(most < 200 * MIB, "RES-007: {most} bytes of memory");
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn res_010_an_endless_answer_is_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                _ = stream.read(&mut [0; 65_536]);
                _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
                let event = format!(
                    "data: {}\n\n",
                    json!({"choices": [{"delta": {"content": "word ".repeat(50_000)}}]})
                );
                while stream.write_all(event.as_bytes()).is_ok() {}
            });
        }
    });
    let world = World::new();
    let mut sabir = world.sabir();
    sabir
        .env("OPENAI_BASE_URL", address)
        .env("OPENAI_API_KEY", "sk-secret-test");
    sabir.args(["run", "--model", NATIVE.model(), "--output", "json", "go"]);
    let (output, most) = watched(&mut sabir, None);
    assert_eq!(code(&output), 7, "RES-010: {}", stderr(&output));
    assert!(
        stdout(&output).contains("sent more than 32 MiB of output"),
        "RES-010: {}",
        stdout(&output)
    );
    assert!(most < 200 * MIB, "RES-010: {most} bytes of memory");
}

#[test]
fn res_008_numbers_are_exact_or_refused() {
    let world = World::new();
    let tools = r#"[{"name":"t","description":"","parameters":{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}}]"#;
    let tools = world.write("tools.json", tools).display().to_string();
    for number in ["1e400", "-0", "9007199254740993", "0.1"] {
        let text = format!(
            "<tool_call>\n{{\"name\": \"t\", \"arguments\": {{\"n\": {number}}}}}\n</tool_call>"
        );
        let output = world.piped(&["parse", "--tools", &tools, "--output", "json"], &text);
        let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let call = said["parts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|part| part["type"] == "call")
            .unwrap();
        let kept = call["arguments"]["n"].to_string();
        let refused = call["state"] == "rejected" && code(&output) == 4;
        assert!(
            refused || kept.trim_matches('"') == number || kept == "-0.0" && number == "-0",
            "RES-008: {number}: {call}"
        );
    }
}

#[test]
fn res_013_and_014_endless_tags_and_parameters_are_bounded() {
    let world = World::new();
    let parse = |input: String| {
        let mut sabir = world.sabir();
        let (output, most) = watched(
            sabir.args(["parse", "--output", "text"]),
            Some(input.into_bytes()),
        );
        assert_eq!(code(&output), 0, "RES-013: {}", stderr(&output));
        most
    };
    // The program itself takes more without optimisation.
    let own = parse("<a>".to_owned());
    let most = parse(format!("<{}>", "a".repeat(10_000_000)));
    assert!(
        most < own + 100 * MIB,
        "RES-013: {most} bytes of memory, {own} for a short tag"
    );

    let parameters: String = (0..100_000).map(|at| format!("<p{at}>x</p{at}>")).collect();
    let text = format!("<read_file>{parameters}</read_file>");
    let mut sabir = world.sabir();
    let (output, most) = watched(sabir.args(["check"]), Some(text.into_bytes()));
    assert!(
        code(&output) == 4 || code(&output) == 0,
        "RES-014: {}",
        stderr(&output)
    );
    assert!(most < 300 * MIB, "RES-014: {most} bytes of memory");
    // Each unknown parameter had a fault, and each fault looked for its line from the beginning.
    let parameters: String = (0..100_000)
        .map(|at| format!("<parameter name=\"p{at}\">x</parameter>"))
        .collect();
    let text = format!("<invoke name=\"read_file\">{parameters}</invoke>");
    let said = world.piped(&["check"], &text);
    assert_eq!(code(&said), 4, "RES-014: {}", stderr(&said));
    let shown = stdout(&said) + &stderr(&said);
    assert!(
        shown.contains("the call has 100000 arguments, more than any tool takes"),
        "RES-014: {}",
        shown.chars().take(500).collect::<String>()
    );
    let said = world.piped(
        &["parse", "--output", "json"],
        "<read_file><path>a</path></read_file>",
    );
    assert_eq!(code(&said), 0);
}

#[test]
fn res_016_a_picture_is_measured_before_it_is_read() {
    let world = World::new();
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend_from_slice(&100_000_u32.to_be_bytes());
    png.extend_from_slice(&100_000_u32.to_be_bytes());
    png.extend_from_slice(b"\x08\x02\0\0\0\0\0\0\0");
    std::fs::write(world.work.path().join("a.png"), png).unwrap();
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![("read_file", json!({"path": "a.png"}))]),
            done(),
        ],
    );
    let mut sabir = world.sabir_with(&provider);
    sabir.args(["run", "--model", NATIVE.model(), "--output", "events", "go"]);
    let (output, most) = watched(&mut sabir, None);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results: Vec<Value> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    assert!(
        results[0]["content"]
            .as_str()
            .unwrap()
            .contains("8000 pixels"),
        "RES-016: {results:?}"
    );
    assert!(most < 150 * MIB, "RES-016: {most} bytes of memory");
}

/// Most of the time is the file system's, which makes and removes the tree.
#[test]
fn res_017_a_tree_of_2_000_levels_is_listed_in_part() {
    check_deep_tree(1);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn res_017_a_tree_of_10_000_levels_is_listed_in_part() {
    check_deep_tree(5);
}

/// Lists a tree of so many times 2,000 levels.
fn check_deep_tree(parts: u32) {
    let world = World::new();
    let script = "for i in $(seq 10); do n=d; for j in $(seq 200); do n=$n/d; done; mkdir -p $n; cd -P $n; done";
    // The path gets too long for a single call, so the shell descends step by step.
    let deep = format!("for k in $(seq {parts}); do {script}; done; touch f");
    let made = Command::new("sh")
        .args(["-c", &deep])
        .current_dir(world.work.path())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "",
                vec![("list_files", json!({"path": ".", "recursive": true}))],
            ),
            done(),
        ],
    );
    let mut sabir = world.sabir_with(&provider);
    sabir.args(["run", "--model", NATIVE.model(), "--output", "events", "go"]);
    let (output, most) = watched(&mut sabir, None);
    assert_eq!(code(&output), 0, "RES-017 ({made}): {}", stderr(&output));
    let results: Vec<Value> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    let told = results[0]["content"].as_str().unwrap();
    assert!(
        told.len() < 64 << 10,
        "RES-017: {} bytes are told",
        told.len()
    );
    assert!(most < 300 * MIB, "RES-017: {most} bytes of memory");
    // The test's own way of removing it goes down one call a level.
    Command::new("rm")
        .args(["-rf", "d"])
        .current_dir(world.work.path())
        .status()
        .unwrap();
}

#[test]
fn res_022_a_file_of_instructions_of_50_mb_costs_nothing() {
    let world = World::new();
    world.write("AGENTS.md", &"Be kind.\n".repeat(50 * 1024 * 1024 / 9));
    let provider = world.plays(NATIVE, &[done()]);
    let mut sabir = world.sabir_with(&provider);
    sabir.args(["run", "--model", NATIVE.model(), "--output", "json", "go"]);
    let (output, most) = watched(&mut sabir, None);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        provider.received_requests()[0].body.to_string().len() < 256 << 10,
        "RES-022: it is told whole"
    );
    assert!(most < 200 * MIB, "RES-022: {most} bytes of memory");
}
