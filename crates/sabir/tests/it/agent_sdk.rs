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
