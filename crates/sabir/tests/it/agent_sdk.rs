//! Tests the command line of the Claude Agent SDK with programs that misbehave; `crates/sabir-testkit/agent-sdk/run` drives it with both
//! packages.

use std::io::Write;
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sabir_testkit::ScriptedProvider;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, World, code, json_lines, processes_with, stderr, stdout, turn};

/// The time to wait for a message. Far more than needed on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that drives Sabir as the SDK does.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
}

impl Program {
    /// Starts Sabir in the native protocol, with more flags.
    fn start(world: &World, provider: &ScriptedProvider, flags: &[&str]) -> Self {
        let mut child = world
            .sabir_with(provider)
            .args(["--output-format", "stream-json", "--verbose"])
            .args(["--input-format", "stream-json"])
            .args(["--model", "anthropic/scripted"])
            .args(flags)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = json_lines(child.stdout.take().unwrap());
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    fn write_line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.write_line(&message.to_string());
    }

    fn say(&mut self, text: &str) {
        self.send(&json!({"type": "user", "message": {"role": "user", "content": text}}));
    }

    fn respond(&mut self, request: &Value, response: &Value) {
        let id = &request["request_id"];
        let response = json!({"subtype": "success", "request_id": id, "response": response});
        self.send(&json!({"type": "control_response", "response": response}));
    }

    /// Waits for the next message of this type.
    fn next_of(&self, kind: &str) -> Value {
        loop {
            let message = self.lines.recv_timeout(PATIENCE).unwrap();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Closes the input and waits for the end.
    fn close(mut self) -> i32 {
        drop(self.input.take());
        while self.lines.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Disconnected) {}
        self.child.wait().unwrap().code().unwrap()
    }
}

/// Returns the messages on standard output.
fn messages(output: &Output) -> Vec<Value> {
    let text = stdout(output);
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

fn write_turns() -> [Turn; 3] {
    let write = |name: &'static str| ("write_to_file", json!({"path": name, "content": "x\n"}));
    [
        turn("", vec![write("a.txt")]),
        turn("", vec![write("b.txt")]),
        turn("Done.", vec![]),
    ]
}

#[test]
fn garbage_and_repeated_answers_change_nothing() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &write_turns());
    let mut program = Program::start(&world, &provider, &["--permission-prompt-tool", "stdio"]);
    program.write_line("not JSON");
    program.write_line(r#"{"type": "user", "message": {"content": [{"type": "document"}]}}"#);
    program.write_line(r#"{"type": "control_response", "response": {"request_id": "sabir-1", "subtype": "success", "response": {"behavior": "allow"}}}"#);
    program.send(&json!({"type": "control_request", "request_id": "r", "request": {"subtype": "brew_coffee"}}));
    let refused = program.next_of("control_response");
    assert_eq!(refused["response"]["subtype"], "error", "{refused}");
    program.say("write");
    let first = program.next_of("control_request");
    assert_eq!(first["request"]["tool_name"], "Write", "{first}");
    program.respond(&first, &json!({"behavior": "deny", "message": "no"}));
    // The second answer to the same question comes too late.
    program.respond(&first, &json!({"behavior": "allow"}));
    let second = program.next_of("control_request");
    // Without a clear yes the answer is no.
    program.respond(&second, &json!({"behavior": "perhaps"}));
    let end = program.next_of("result");
    assert_eq!(end["result"], "Done.", "{end}");
    assert_eq!(end["permission_denials"].as_array().unwrap().len(), 2);
    assert_eq!(program.close(), 0);
    assert_eq!(
        (world.read("a.txt"), world.read("b.txt")),
        Default::default()
    );
}

#[test]
fn a_program_that_stops_answering_is_denied_at_its_end() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &write_turns());
    let mut program = Program::start(&world, &provider, &["--permission-prompt-tool=stdio"]);
    program.say("write");
    program.next_of("control_request");
    assert_eq!(program.close(), 0);
    assert_eq!(world.read("a.txt"), "");
    // The journal is whole.
    let log = world.sabir().args(["log", &world.only_task()]).output();
    assert_eq!(code(&log.unwrap()), 0);
}

#[test]
fn a_program_that_is_killed_leaves_no_process() {
    let world = World::new();
    let mark = "31537";
    let sleep = json!({"command": format!("sleep {mark}")});
    let turns = [turn("", vec![("execute_command", sleep)])];
    let provider = world.plays(WAYS[0], &turns);
    let flags = ["--permission-mode", "bypassPermissions"];
    let mut program = Program::start(&world, &provider, &flags);
    program.say("sleep");
    let is_running = || !processes_with(mark).is_empty();
    let begin = Instant::now();
    while !is_running() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_running());
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let begin = Instant::now();
    while is_running() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_running(), "{:?}", processes_with(mark));
}

#[test]
fn a_prompt_on_the_command_line_is_one_turn() {
    let hello = [turn("Hello.", vec![])];
    for flags in [
        &["-p", "hello", "--output-format", "stream-json", "--verbose"][..],
        &["run", "--output", "stream-json", "--", "--hello"],
    ] {
        let world = World::new();
        world.configure("protocol = \"cline\"\nmodel = \"openai/scripted\"\n");
        let provider = world.plays(WAYS[2], &hello);
        let output = world.sabir_with(&provider).args(flags).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let messages = messages(&output);
        let kinds: Vec<_> = messages
            .iter()
            .map(|message| message["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["system", "assistant", "result"]);
        let result = messages[2]["result"].as_str().unwrap();
        assert_eq!(result.trim(), "Hello.");
    }
}

#[test]
fn what_cannot_begin_says_why() {
    let world = World::new();
    let flags = ["-p", "x", "--output-format=stream-json", "--tools", "Read"];
    let refused = world.sabir().args(flags).output().unwrap();
    assert_eq!(code(&refused), 2);
    assert!(
        stderr(&refused).contains("--tools Read"),
        "{}",
        stderr(&refused)
    );
    // Without a key the turn fails, and its result has the reason.
    let flags = [
        "-p",
        "x",
        "--output-format=stream-json",
        "--model",
        "anthropic/x",
    ];
    let failed = world.sabir().args(flags).output().unwrap();
    assert_ne!(code(&failed), 0);
    let messages = messages(&failed);
    let end = messages.last().unwrap();
    assert_eq!(end["subtype"], "error_during_execution", "{end}");
    assert!(
        end["errors"][0]
            .as_str()
            .unwrap()
            .contains("ANTHROPIC_API_KEY"),
        "{end}"
    );
}

fn control(id: &str, request: Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

/// Starts a program whose session waits for a hook when it begins, and sends the first message. Returns the request to the hook.
fn start_with_hook(world: &World, provider: &ScriptedProvider) -> (Program, Value) {
    let mut program = Program::start(world, provider, &[]);
    let hooks = json!({"SessionStart": [{"hookCallbackIds": ["h"]}]});
    program.send(&control(
        "i",
        json!({"subtype": "initialize", "hooks": hooks}),
    ));
    program.next_of("control_response");
    program.say("begin");
    let asked = program.next_of("control_request");
    assert_eq!(asked["request"]["callback_id"], "h", "{asked}");
    (program, asked)
}

#[test]
fn a_message_that_cannot_be_sent_gets_a_result() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &[turn("Hello.", vec![])]);
    let mut program = Program::start(&world, &provider, &[]);
    let document = json!([{"type": "document"}]);
    for content in [document, json!([]), Value::Null] {
        program.send(&json!({"type": "user", "message": {"content": content}}));
        let end = program.next_of("result");
        let reason = end["errors"][0].as_str().unwrap();
        assert!(reason.starts_with("the message was not sent: "), "{end}");
    }
    program.say("hello");
    assert_eq!(program.next_of("result")["result"], "Hello.");
    assert_eq!(program.close(), 0);
}

#[test]
fn settings_hold_that_were_changed_while_the_session_began() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &[turn("One.", vec![]), turn("Two.", vec![])]);
    let (mut program, asked) = start_with_hook(&world, &provider);
    let requests = [
        json!({"subtype": "set_permission_mode", "mode": "plan"}),
        json!({"subtype": "set_model", "model": "anthropic/other"}),
    ];
    for request in requests {
        program.send(&control("c", request));
        let answer = program.next_of("control_response");
        assert_eq!(answer["response"]["subtype"], "success", "{answer}");
    }
    program.respond(&asked, &json!({}));
    assert_eq!(program.next_of("result")["result"], "One.");
    program.say("go on");
    assert_eq!(program.next_of("result")["result"], "Two.");
    assert_eq!(program.close(), 0);
    let second = provider.received_requests()[1].body.clone();
    assert_eq!(second["model"], "other");
    assert!(
        !second["tools"].to_string().contains("write_to_file"),
        "{second}"
    );
}

#[test]
fn a_session_whose_beginning_was_interrupted_goes_on() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &[turn("Two.", vec![]), turn("Three.", vec![])]);
    let (mut program, asked) = start_with_hook(&world, &provider);
    program.send(&control("s", json!({"subtype": "interrupt"})));
    let end = program.next_of("result");
    assert_eq!(end["errors"][0], "the turn was interrupted", "{end}");
    // An answer to the hook of the session that is gone.
    program.respond(&asked, &json!({}));
    program.say("again");
    let asked = program.next_of("control_request");
    program.respond(&asked, &json!({}));
    assert_eq!(program.next_of("result")["result"], "Two.");
    // An interrupt of nothing has no effect on the next turn.
    program.send(&control("s", json!({"subtype": "interrupt"})));
    program.next_of("control_response");
    program.say("once more");
    assert_eq!(program.next_of("result")["result"], "Three.");
    assert_eq!(program.close(), 0);
}

#[test]
fn hooks_and_servers_that_come_late_are_refused() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &[turn("One.", vec![])]);
    let mut program = Program::start(&world, &provider, &[]);
    program.say("begin");
    program.next_of("result");
    let hooks = json!({"PreToolUse": [{"hookCallbackIds": ["h"]}]});
    for late in [json!({"hooks": hooks}), json!({"sdkMcpServers": ["late"]})] {
        let mut request = late;
        request["subtype"] = json!("initialize");
        program.send(&control("i", request));
        let answer = program.next_of("control_response");
        assert_eq!(answer["response"]["subtype"], "error", "{answer}");
    }
    assert_eq!(program.close(), 0);
}

#[test]
fn a_question_with_a_secret_is_answered_by_its_shown_text() {
    let world = World::new();
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    let ask = json!({"question": format!("Use {key}?"), "follow_up": "<suggest>yes</suggest>"});
    let turns = [
        turn("", vec![("ask_followup_question", ask)]),
        turn("Done.", vec![]),
    ];
    let provider = world.plays(WAYS[0], &turns);
    let mut program = Program::start(&world, &provider, &["--permission-prompt-tool", "stdio"]);
    program.say("ask me");
    let asked = program.next_of("control_request");
    let shown = asked["request"]["input"]["questions"][0]["question"]
        .as_str()
        .unwrap();
    assert!(!shown.contains(&key), "{asked}");
    let mut input = asked["request"]["input"].clone();
    input["answers"] = json!({shown: "rather not"});
    program.respond(&asked, &json!({"behavior": "allow", "updatedInput": input}));
    assert_eq!(program.next_of("result")["result"], "Done.");
    assert_eq!(program.close(), 0);
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("rather not"), "{body}");
}

#[test]
fn a_program_that_reads_no_more_ends_the_session() {
    let world = World::new();
    let provider = world.plays(WAYS[0], &[turn("Hello.", vec![])]);
    let mut child = world
        .sabir_with(&provider)
        .args([
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
        ])
        .args(["--model", "anthropic/scripted"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    writeln!(
        input,
        r#"{{"type": "user", "message": {{"content": "hello"}}}}"#
    )
    .unwrap();
    // The input stays open.
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = child.try_wait().unwrap();
    child.kill().ok();
    assert!(ended.is_some(), "it still runs");
    drop(input);
}
