//! Drives the example front end: it starts, answers, interrupts and resumes sessions with the public API alone.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The example as a process, with a home and a work folder of its own.
struct FrontEndProcess {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
}

impl FrontEndProcess {
    fn start(home: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_json-front-end"))
            .env("SABIR_EXAMPLE_HOME", home)
            .env_remove("OPENAI_API_KEY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Nothing but its own JSON lines reaches standard output.
                sender.send(serde_json::from_str(&line).unwrap()).ok();
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    fn send(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Waits for the next event of this kind in a session.
    fn wait_for(&self, session: u32, kind: &str) -> Value {
        loop {
            let line = self
                .lines
                .recv_timeout(Duration::from_secs(120))
                .unwrap_or_else(|_| panic!("no `{kind}`"));
            assert!(line.get("error").is_none(), "{line}");
            if line["session"] == session && line["event"]["kind"] == kind {
                return line["event"].clone();
            }
        }
    }

    fn wait_for_state(&self, session: u32, state: &str) -> Value {
        loop {
            let event = self.wait_for(session, "state");
            if event["state"] == state {
                return event;
            }
        }
    }

    fn submit(&mut self, session: u32, command: &Value) {
        self.send(&json!({"session": session, "command": command}));
    }

    fn answer(&mut self, session: u32, question: &Value, decision: &Value) {
        self.submit(
            session,
            &json!({"command": "answer", "request": question["request"], "decision": decision}),
        );
    }

    /// Ends the process with the input, and checks that it has written nothing to standard error.
    fn finish(self) {
        let Self {
            child,
            input,
            lines,
        } = self;
        drop(input);
        let output = child.wait_with_output().unwrap();
        drop(lines);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// A provider that plays the script, with the runtime that serves it.
struct Provider {
    _runtime: Runtime,
    scripted: ScriptedProvider,
}

impl Provider {
    fn play(replies: impl IntoIterator<Item = ProviderReply>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let scripted = runtime
            .block_on(ScriptedProvider::start(ReplyScript::new(replies)))
            .unwrap();
        Self {
            _runtime: runtime,
            scripted,
        }
    }
}

fn call(name: &str, arguments: Value) -> ProviderReply {
    ProviderReply::text("").with_call("c1", name, arguments)
}

fn complete(result: &str) -> ProviderReply {
    call("attempt_completion", json!({"result": result}))
}

fn spec(provider: &Provider, folder: &Path) -> Value {
    let model = format!("{}#scripted", provider.scripted.base_url(Wire::OpenAiChat));
    json!({
        "workspace": folder, "model": model, "interactivity": "interactive", "no_checkpoints": true,
        "sandbox": {"level": "off", "network": false},
    })
}

#[test]
fn a_front_end_answers_interrupts_and_continues() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let provider = Provider::play([
        call(
            "write_to_file",
            json!({"path": "one.txt", "content": "1\n"}),
        ),
        complete("It is written."),
        call("execute_command", json!({"command": "sleep 600"})),
        complete("Both are there."),
    ]);
    let mut front_end = FrontEndProcess::start(home.path());
    front_end.send(
        &json!({"session": 1, "start": spec(&provider, work.path()), "message": "Write one."}),
    );
    // A message while it works, then the approval.
    let approval = front_end.wait_for(1, "question");
    assert_eq!(approval["about"], "approval");
    front_end.submit(
        1,
        &json!({"command": "send", "message": {"text": "And be quick."}}),
    );
    front_end.answer(1, &approval, &json!({"decision": "allow"}));
    let completion = front_end.wait_for(1, "question");
    assert_eq!(completion["about"], "completion");
    assert!(
        provider.scripted.received_requests()[1]
            .body
            .to_string()
            .contains("And be quick.")
    );
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    // The session outlives the completion: the next message continues it.
    assert_eq!(front_end.wait_for_state(1, "idle")["outcome"], "completed");
    front_end.submit(
        1,
        &json!({"command": "send", "message": {"text": "Now wait."}}),
    );
    front_end.wait_for(1, "running");
    front_end.submit(1, &json!({"command": "interrupt"}));
    assert_eq!(front_end.wait_for_state(1, "idle")["outcome"], "cancelled");
    // Control is back: the conversation goes on after the interrupt.
    front_end.submit(
        1,
        &json!({"command": "send", "message": {"text": "Finish."}}),
    );
    let completion = front_end.wait_for(1, "question");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    assert_eq!(front_end.wait_for_state(1, "idle")["outcome"], "completed");
    front_end.submit(1, &json!({"command": "end"}));
    assert_eq!(front_end.wait_for_state(1, "ended")["outcome"], "completed");
    assert_eq!(
        std::fs::read_to_string(work.path().join("one.txt")).unwrap(),
        "1\n"
    );
    front_end.finish();
}

#[test]
fn a_task_resumes_after_kill_nine() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let provider = Provider::play([
        call(
            "write_to_file",
            json!({"path": "one.txt", "content": "1\n"}),
        ),
        ProviderReply::text("I write a long").with_fault(ScriptedFault::StallAfter(20)),
        complete("Done."),
    ]);
    let mut front_end = FrontEndProcess::start(home.path());
    let spec = spec(&provider, work.path());
    front_end.send(&json!({"session": 1, "start": spec, "message": "Write one."}));
    let task = front_end.wait_for(1, "snapshot")["snapshot"]["start"]["task"].clone();
    let approval = front_end.wait_for(1, "question");
    front_end.answer(1, &approval, &json!({"decision": "allow"}));
    front_end.wait_for(1, "result");
    front_end.wait_for(1, "asking");
    front_end.child.kill().unwrap();
    front_end.child.wait().unwrap();
    let mut front_end = FrontEndProcess::start(home.path());
    front_end.send(&json!({"session": 7, "resume": task, "spec": spec, "message": "Go on."}));
    let snapshot = front_end.wait_for(7, "snapshot");
    let kinds: Vec<_> = snapshot["snapshot"]["records"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert!(
        kinds.iter().any(|record| record["kind"] == "result"),
        "{snapshot}"
    );
    let completion = front_end.wait_for(7, "question");
    front_end.answer(7, &completion, &json!({"decision": "allow"}));
    assert_eq!(front_end.wait_for_state(7, "idle")["outcome"], "completed");
    front_end.finish();
}

#[test]
fn an_unknown_request_is_rejected_and_nothing_breaks() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let provider = Provider::play([complete("Done.")]);
    let mut front_end = FrontEndProcess::start(home.path());
    front_end
        .send(&json!({"session": 1, "start": spec(&provider, work.path()), "message": "Finish."}));
    let completion = front_end.wait_for(1, "question");
    let request = json!({"task": completion["request"]["task"], "call": "no such call"});
    front_end.submit(
        1,
        &json!({"command": "answer", "request": request, "decision": {"decision": "allow"}}),
    );
    let rejected = front_end
        .lines
        .recv_timeout(Duration::from_secs(120))
        .unwrap();
    assert_eq!(rejected["error"], "no question about that call is open");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    front_end.wait_for_state(1, "idle");
    front_end.finish();
}
