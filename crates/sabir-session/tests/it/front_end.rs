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

/// The example as a process, with its own home and work folder.
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

/// A provider that follows the script, with the runtime that serves it.
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

    /// Waits until this many requests were received.
    fn wait_for_requests(&self, count: usize) {
        while self.scripted.received_requests().len() < count {
            std::thread::sleep(Duration::from_millis(5));
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
    // Sends a message while the task works, then the approval.
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
    // The conversation continues after the interrupt.
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
fn a_task_resumes_after_kill_9() {
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
    // Killed before the request, the resumed task would get the stalled reply, and wait for its
    // timeout.
    provider.wait_for_requests(2);
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

/// Writes a table that defines the dialect `ours` by these tags, and returns its path.
fn dialect_file(folder: &Path, call: &str, argument: &str, wrapper: &str) -> std::path::PathBuf {
    let file = folder.join(format!("{wrapper}.toml"));
    let table = format!(
        "[dialects.ours]\nmachine = \"tagged\"\ntags = {{ call = \"{call}\", argument = \"{argument}\", wrapper = \"{wrapper}\" }}\n"
    );
    std::fs::write(&file, table).unwrap();
    file
}

/// Writes a call in the dialect that [`dialect_file`] defines.
fn dialect_call(
    call: &str,
    argument: &str,
    wrapper: &str,
    tool: &str,
    arguments: &[(&str, &str)],
) -> String {
    let arguments: String = arguments
        .iter()
        .map(|(name, value)| format!("<{argument} name=\"{name}\">{value}</{argument}>\n"))
        .collect();
    format!("<{wrapper}>\n<{call} name=\"{tool}\">\n{arguments}</{call}>\n</{wrapper}>")
}

#[test]
fn two_sessions_at_once_read_the_same_dialect_name_by_their_own_tables() {
    let home = TempDir::new().unwrap();
    let tags = [("deed", "with", "deeds"), ("act", "using", "acts")];
    let folders = tags.map(|_| TempDir::new().unwrap());
    let mut front_end = FrontEndProcess::start(home.path());
    let mut providers = Vec::new();
    let mut questions = Vec::new();
    for (at, (call, argument, wrapper)) in tags.into_iter().enumerate() {
        let (other_call, other_argument, other_wrapper) = tags[1 - at];
        let write = |call, argument, wrapper, file| {
            let arguments = [("path", file), ("content", wrapper)];
            dialect_call(call, argument, wrapper, "write_to_file", &arguments)
        };
        // What is a call in the other session is prose in this one.
        let foreign = write(other_call, other_argument, other_wrapper, "foreign.txt");
        let own = write(call, argument, wrapper, "own.txt");
        let complete = dialect_call(
            call,
            argument,
            wrapper,
            "attempt_completion",
            &[("result", wrapper)],
        );
        let provider = Provider::play([
            ProviderReply::text(format!("{foreign}\n\nAnd now:\n\n{own}")),
            ProviderReply::text(complete),
        ]);
        let folder = folders[at].path();
        let mut spec = spec(&provider, folder);
        spec["protocol"] = json!("ours");
        spec["dialect_files"] = json!([dialect_file(home.path(), call, argument, wrapper)]);
        front_end.send(&json!({"session": at + 1, "start": spec, "message": "Write."}));
        // Both sessions wait with their question open before either of them gets its answer.
        questions.push(front_end.wait_for(at as u32 + 1, "question"));
        providers.push(provider);
    }
    for (session, question) in (1..).zip(&questions) {
        assert_eq!(question["about"], "approval");
        front_end.answer(session, question, &json!({"decision": "allow"}));
        let completion = front_end.wait_for(session, "question");
        assert_eq!(completion["about"], "completion", "{completion}");
        front_end.answer(session, &completion, &json!({"decision": "allow"}));
        assert_eq!(
            front_end.wait_for_state(session, "idle")["outcome"],
            "completed"
        );
    }
    for (folder, (_, _, wrapper)) in folders.iter().zip(tags) {
        let written = std::fs::read_to_string(folder.path().join("own.txt")).unwrap();
        assert_eq!(written.trim_end(), wrapper);
        assert!(!folder.path().join("foreign.txt").exists());
    }
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

/// The beginning of the first file, as its result shows it.
const FIRST_LINE: &str = "1 | one.txt";

/// A provider whose first run is long enough to be compacted, and ends with a completion. The other replies come after it.
fn provider_with_long_run(
    work: &Path,
    others: impl IntoIterator<Item = ProviderReply>,
) -> Provider {
    let read = |name: &str| call("read_file", json!({ "path": name }));
    for name in ["one.txt", "two.txt"] {
        std::fs::write(work.join(name), format!("{name}\n{}", "line\n".repeat(400))).unwrap();
    }
    let run = [read("one.txt"), read("two.txt"), complete("Both are read.")];
    Provider::play(run.into_iter().chain(others))
}

/// Starts a session in `work` and accepts the completion of its first run.
fn start_and_complete(front_end: &mut FrontEndProcess, spec: &Value) {
    front_end.send(&json!({"session": 1, "start": spec, "message": "Read both."}));
    let completion = front_end.wait_for(1, "question");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    front_end.wait_for_state(1, "idle");
}

#[test]
fn an_idle_session_compacts_its_context() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let summary = "Both files hold the word `line`, four hundred times each.";
    let provider = provider_with_long_run(
        work.path(),
        [ProviderReply::text(summary), complete("Done.")],
    );
    let mut front_end = FrontEndProcess::start(home.path());
    let spec = spec(&provider, work.path());
    start_and_complete(&mut front_end, &spec);
    front_end.submit(1, &json!({"command": "context_usage"}));
    let before = front_end.wait_for(1, "context_usage");
    front_end.submit(1, &json!({"command": "compact"}));
    // The message is sent at once, and read after the compaction.
    front_end.submit(
        1,
        &json!({"command": "send", "message": {"text": "Finish."}}),
    );
    let status = front_end.wait_for(1, "compaction_status");
    assert_eq!(status["status"], "now");
    let compacted = front_end.wait_for(1, "context");
    assert_eq!(compacted["change"], "compacted", "{compacted}");
    // The end of the task is recorded again: task lists read only the last record.
    assert_eq!(front_end.wait_for(1, "ended")["outcome"], "completed");
    front_end.wait_for_state(1, "working");
    let completion = front_end.wait_for(1, "question");
    let requests = provider.scripted.received_requests();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains(summary) && last.contains("Finish."), "{last}");
    assert!(!last.contains(FIRST_LINE), "{last}");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    front_end.wait_for_state(1, "idle");
    front_end.submit(1, &json!({"command": "context_usage"}));
    let after = front_end.wait_for(1, "context_usage");
    assert!(
        after["tokens"].as_u64() < before["tokens"].as_u64(),
        "{before} {after}"
    );
    front_end.finish();
}

#[test]
fn an_interrupt_stops_the_compaction_of_an_idle_session() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let stalled = ProviderReply::text("Both files hold").with_fault(ScriptedFault::StallAfter(20));
    let provider = provider_with_long_run(work.path(), [stalled, complete("Done.")]);
    let mut front_end = FrontEndProcess::start(home.path());
    let spec = spec(&provider, work.path());
    start_and_complete(&mut front_end, &spec);
    front_end.submit(1, &json!({"command": "compact"}));
    front_end.wait_for(1, "waiting");
    // Otherwise the interrupt might come before the request, and the stalled reply would answer the
    // next one.
    provider.wait_for_requests(4);
    front_end.submit(1, &json!({"command": "interrupt"}));
    assert_eq!(front_end.wait_for_state(1, "idle")["outcome"], "completed");
    front_end.submit(
        1,
        &json!({"command": "send", "message": {"text": "Finish."}}),
    );
    let completion = front_end.wait_for(1, "question");
    let requests = provider.scripted.received_requests();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains(FIRST_LINE), "something was left out: {last}");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    front_end.wait_for_state(1, "idle");
    front_end.finish();
}

#[test]
fn commands_after_an_undo_wait_for_it() {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    let provider = Provider::play([
        call(
            "write_to_file",
            json!({"path": "one.txt", "content": "1\n"}),
        ),
        complete("It is written."),
    ]);
    let mut front_end = FrontEndProcess::start(home.path());
    let mut spec = spec(&provider, work.path());
    spec["no_checkpoints"] = json!(false);
    front_end.send(&json!({"session": 1, "start": spec, "message": "Write one."}));
    let approval = front_end.wait_for(1, "question");
    front_end.answer(1, &approval, &json!({"decision": "allow"}));
    let completion = front_end.wait_for(1, "question");
    front_end.answer(1, &completion, &json!({"decision": "allow"}));
    front_end.wait_for_state(1, "idle");
    front_end.submit(1, &json!({"command": "undo", "calls": 1, "checkpoint": 1}));
    front_end.submit(1, &json!({"command": "undo", "checkpoint": 1}));
    // An undo is a checkpoint itself, which undoes it.
    front_end.submit(1, &json!({"command": "undo", "checkpoint": 2}));
    front_end.submit(1, &json!({"command": "undo", "checkpoint": 9}));
    front_end.submit(1, &json!({"command": "context_usage"}));
    let mut kinds = Vec::new();
    let mut errors = Vec::new();
    loop {
        let line = front_end
            .lines
            .recv_timeout(Duration::from_secs(120))
            .unwrap();
        errors.extend(line["error"].as_str().map(str::to_owned));
        let event = &line["event"];
        if event["kind"] == "notice" {
            kinds.push(event["notice"]["text"].as_str().unwrap().to_owned());
        }
        if event["kind"] == "context_usage" {
            break;
        }
    }
    let [undone, redone, refused] = kinds.as_slice() else {
        panic!("{kinds:?}");
    };
    assert_eq!(
        undone,
        "1 path was restored: one.txt; the state before is checkpoint @2"
    );
    assert_eq!(
        redone,
        "1 path was restored: one.txt; the state before is checkpoint @3"
    );
    assert!(refused.starts_with("nothing was undone: "), "{refused}");
    assert_eq!(
        errors,
        ["an undo takes a number of calls or a checkpoint, not both"]
    );
    assert!(work.path().join("one.txt").exists());
    front_end.finish();
}
