//! Runs small agents of known behaviour through the cases. A program of its own instead of a test binary, because it is also the
//! supervisor of commands and the agents.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of tests fails by panicking, and says that it has ended"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use sabir_torture::{
    CellResult, RunOptions, TortureCase, Verdict, custom_preset, run_agent, select_cases,
};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == sabir_workspace::supervise::ARGUMENT)
    {
        return sabir_workspace::supervise::main(arguments);
    }
    let words: Vec<String> = std::env::args().collect();
    if let [_, agent, kind, address] = words.as_slice()
        && agent == "agent"
    {
        run_as_agent(kind, address.trim_start_matches("http://"));
        return ExitCode::SUCCESS;
    }
    verdicts_follow_the_files();
    the_same_cell_gives_the_same_verdict_twice();
    println!("2 tests passed");
    ExitCode::SUCCESS
}

fn verdicts_follow_the_files() {
    for (agent, case, expected) in [
        ("careful", "native", Verdict::Passed),
        ("careful", "busy", Verdict::Passed),
        ("careful", "unknown-tool", Verdict::Passed),
        ("careful", "no-arguments", Verdict::Passed),
        ("careful", "page", Verdict::Passed),
        ("careful", "leak-hermes", Verdict::Missed),
        ("careful", "mention-hermes", Verdict::Passed),
        ("credulous", "leak-hermes", Verdict::Passed),
        ("credulous", "mention-hermes", Verdict::Wrong),
        ("half", "native", Verdict::Wrong),
        ("silent", "native", Verdict::Untested),
        ("endless", "native", Verdict::Hung),
    ] {
        assert_eq!(run(agent, case).verdict, expected, "{agent} {case}");
    }
}

fn the_same_cell_gives_the_same_verdict_twice() {
    for case in ["native", "page", "leak-kimi"] {
        assert_eq!(run("careful", case), run("careful", case));
    }
}

fn run(agent: &str, case: &str) -> CellResult {
    let own = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let words = [&own.display().to_string(), "agent", agent, "{base_url}"].map(str::to_owned);
    let mut preset = custom_preset(&words);
    preset.name = agent.to_owned();
    let options = RunOptions {
        helper: own,
        path: "/usr/bin:/bin".to_owned(),
        folder: folder.path().to_owned(),
        // Only the endless agent reaches its limit.
        limit: Duration::from_secs(if agent == "endless" { 2 } else { 60 }),
    };
    let cases: Vec<TortureCase> = select_cases(&[case.to_owned()]);
    let [case] = cases.as_slice() else {
        panic!("{case} names {} cases", cases.len());
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime
        .block_on(run_agent(&preset, case, &options))
        .unwrap()
}

/// Asks the provider until it says that it is done, and runs the calls in the way of this kind of agent.
fn run_as_agent(kind: &str, address: &str) {
    if kind == "silent" {
        return;
    }
    let mut messages = vec![json!({"role": "user", "content": "Write ok into sentinel.txt."})];
    for _ in 0..6 {
        let Some(answer) = ask(address, &messages) else {
            continue;
        };
        let message = &answer["choices"][0]["message"];
        let text = message["content"].as_str().unwrap_or_default();
        if kind == "credulous" && text.contains("sentinel.txt") {
            std::fs::write("sentinel.txt", "ok").unwrap();
            return;
        }
        let Some(call) = message["tool_calls"].get(0) else {
            return;
        };
        messages.push(message.clone());
        let result = run_call(kind, &call["function"]);
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
    }
}

fn run_call(kind: &str, function: &Value) -> &'static str {
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap_or_default())
        .unwrap_or_default();
    if function["name"] != "bash" || !arguments["command"].is_string() {
        return "error: no such call";
    }
    match kind {
        "half" => std::fs::write("cut.txt", "cut").unwrap(),
        "endless" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        _ => std::fs::write("sentinel.txt", "ok").unwrap(),
    }
    "done"
}

/// Sends a request of the Chat Completions API; `None` if the answer is none.
fn ask(address: &str, messages: &[Value]) -> Option<Value> {
    let parameters = json!({"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}});
    let body = json!({
        "model": "m",
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "bash", "description": "", "parameters": parameters}}],
    })
    .to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    // The provider keeps the connection open, so the answer ends where its length says.
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_lowercase()
                        .strip_prefix("content-length: ")?
                        .parse()
                        .ok()
                })
                .unwrap_or(0);
            if rest.len() >= length {
                let is_answer = head.starts_with("HTTP/1.1 200");
                return serde_json::from_str(rest).ok().filter(|_| is_answer);
            }
        }
        let read = stream.read(&mut piece).unwrap();
        if read == 0 {
            return None;
        }
        answer.extend_from_slice(&piece[..read]);
    }
}
