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
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sabir_torture::{
    AgentPreset, CellResult, ClientApi, EndpointOptions, EndpointTest, RunOptions, TortureCase,
    TortureError, Verdict, custom_preset, make_names_unique, run_agent, select_cases,
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
    let tests = [
        verdicts_follow_the_files,
        the_same_cell_gives_the_same_verdict_twice,
        what_an_agent_leaves_behind_is_described,
        a_missing_agent_is_an_error,
        agents_of_one_name_get_folders_of_their_own,
        a_proxy_that_changes_nothing_scores_badly,
        a_gateway_that_never_asks_is_named,
        a_late_retry_counts_for_no_other_case,
    ];
    // At once, since they mostly wait. A panic in one of them is one here.
    std::thread::scope(|scope| tests.iter().for_each(|test| drop(scope.spawn(test))));
    println!("{} tests passed", tests.len());
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
        ("silent", "native", Verdict::NeverAsked),
        ("sleepy", "native", Verdict::NeverAsked),
        ("scripted", "native", Verdict::NeverAsked),
        ("toolless", "native", Verdict::Untested),
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

fn what_an_agent_leaves_behind_is_described() {
    let left = run("messy", "native");
    assert_eq!(left.verdict, Verdict::Wrong);
    for text in [
        "dangling: \"a symbolic link\"",
        "zero: \"a symbolic link\"",
        "pipe: \"a device, pipe or socket\"",
        "large: \"\\0\\0",
    ] {
        assert!(left.detail.contains(text), "{}", left.detail);
    }
}

fn a_missing_agent_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let preset = custom_preset(&["/no/such/program".to_owned()]);
    let cases = select_cases(&["native".to_owned()]);
    let error = run_preset(&preset, &cases[0], folder.path()).unwrap_err();
    assert!(
        matches!(error, TortureError::NotFound { .. }) && error.to_string().contains("/no/such"),
        "{error}"
    );
}

fn agents_of_one_name_get_folders_of_their_own() {
    let named = |name: &str| custom_preset(&[name.to_owned()]);
    let mut presets = ["codex", "codex", "a/b", "a b", "..", "codex-2"].map(named);
    make_names_unique(&mut presets);
    let names = presets.each_ref().map(|preset| preset.name.as_str());
    assert_eq!(
        names,
        ["codex", "codex-2", "a/b", "a b-2", "..", "codex-2-2"]
    );
    // A folder beside that of the run must survive an agent that is named after its parent.
    let parent = tempfile::tempdir().unwrap();
    let beside = parent.path().join("native");
    let inside = parent.path().join("torture");
    for folder in [&beside, &inside] {
        std::fs::create_dir(folder).unwrap();
    }
    let cases = select_cases(&["native".to_owned()]);
    let _ = run_preset(&named(".."), &cases[0], &inside);
    assert_eq!(std::fs::read_dir(&beside).unwrap().count(), 0);
    assert!(inside.join("agent").is_dir());
}

/// The way of a proxy with the bytes that it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyKind {
    /// Passes all bytes.
    Transparent,
    /// Never asks the provider.
    Refusing,
    /// Passes all bytes, and sends each request again just before the next one.
    RetryingLate,
}

/// Starts the provider behind a proxy, and returns the verdict of each case.
fn torture_proxy(client: ClientApi, kind: ProxyKind, names: &[String]) -> Vec<CellResult> {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = EndpointOptions {
        endpoint: format!("http://{}", proxy.local_addr().unwrap()),
        model: "torture-1".to_owned(),
        limit: Duration::from_secs(60),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let test = EndpointTest::start(options, 0).await.unwrap();
        let provider = test.provider_address();
        std::thread::spawn(move || {
            for client in proxy.incoming().flatten() {
                match kind {
                    ProxyKind::Transparent => {
                        forward(client, TcpStream::connect(provider).unwrap())
                    }
                    ProxyKind::Refusing => refuse(client),
                    ProxyKind::RetryingLate => {
                        std::thread::spawn(move || forward_with_retries(client, provider));
                    }
                }
            }
        });
        test.wait_for_gateway().await.unwrap();
        let mut cells = Vec::new();
        for case in select_cases(names) {
            cells.push(test.run_case(&case, client).await);
        }
        cells
    })
}

fn forward(client: TcpStream, provider: TcpStream) {
    let copies = [
        (client.try_clone().unwrap(), provider.try_clone().unwrap()),
        (provider, client),
    ];
    for (mut from, mut to) in copies {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// Forwards the requests of a connection, and before each one sends the one before it again.
fn forward_with_retries(mut client: TcpStream, address: SocketAddr) {
    let mut provider = TcpStream::connect(address).unwrap();
    let mut answers = provider.try_clone().unwrap();
    let mut receiver = client.try_clone().unwrap();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut receiver);
        let _ = receiver.shutdown(std::net::Shutdown::Both);
    });
    let mut earlier = None;
    while let Some(request) = read_message(&mut client) {
        if let Some(earlier) = earlier.replace(request.clone()) {
            let mut retry = TcpStream::connect(address).unwrap();
            retry.write_all(earlier.as_bytes()).unwrap();
            // It has been counted, if it is, when its answer begins.
            assert!(retry.read(&mut [0; 64]).unwrap() > 0);
        }
        provider.write_all(request.as_bytes()).unwrap();
    }
}

/// Reads a request or an answer with its body; `None` if the connection ends before. The other side may keep the connection open, so the
/// message ends where its length says.
fn read_message(stream: &mut TcpStream) -> Option<String> {
    let mut message = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&message);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= content_length(head)
        {
            return Some(text.into_owned());
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => message.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}

/// Returns the length of the body in a head; 0 without one.
fn content_length(head: &str) -> usize {
    let length = |line: &str| {
        let line = line.to_lowercase();
        line.strip_prefix("content-length: ")?.parse().ok()
    };
    head.lines().find_map(length).unwrap_or(0)
}

fn refuse(mut client: TcpStream) {
    let _ = client.read(&mut [0; 4096]);
    let _ =
        client.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
}

fn a_proxy_that_changes_nothing_scores_badly() {
    for client in [ClientApi::OpenAi, ClientApi::Anthropic, ClientApi::Ollama] {
        for cell in torture_proxy(client, ProxyKind::Transparent, &[]) {
            let expected = match cell.case.as_str() {
                "page" | "empty" => Verdict::Missed,
                // Only Chat Completions says before its last event why the answer ends.
                "no-last-event" if client != ClientApi::OpenAi => Verdict::Missed,
                case if case.starts_with("leak-") => Verdict::Missed,
                _ => Verdict::Passed,
            };
            assert_eq!(cell.verdict, expected, "{cell:?}");
        }
    }
}

fn a_gateway_that_never_asks_is_named() {
    let cells = torture_proxy(ClientApi::OpenAi, ProxyKind::Refusing, &[]);
    assert!(
        cells.iter().all(|cell| cell.verdict == Verdict::NeverAsked),
        "{cells:?}"
    );
}

fn a_late_retry_counts_for_no_other_case() {
    let names = ["native", "busy"].map(str::to_owned);
    let cells = torture_proxy(ClientApi::OpenAi, ProxyKind::RetryingLate, &names);
    let counted: Vec<usize> = cells.iter().map(|cell| cell.requests).collect();
    assert_eq!(counted, [1, 1], "{cells:?}");
    // The late request of the case before must not take the answer that fails.
    assert!(cells[1].end.starts_with("status 429"), "{cells:?}");
}

fn run_preset(
    preset: &AgentPreset,
    case: &TortureCase,
    folder: &Path,
) -> Result<CellResult, TortureError> {
    let options = RunOptions {
        helper: std::env::current_exe().unwrap(),
        path: "/usr/bin:/bin".to_owned(),
        folder: folder.to_owned(),
        limit: Duration::from_secs(60),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run_agent(preset, case, &options))
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
        // Only these agents reach their limits.
        limit: Duration::from_secs(if ["endless", "sleepy"].contains(&agent) {
            2
        } else {
            60
        }),
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

/// The tool of the agents.
const BASH_TOOL: &str = r#"[{"type": "function", "function": {"name": "bash", "description": "", "parameters":
    {"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}}}}]"#;

/// Asks the provider until it says that it is done, and runs the calls in the way of this kind of agent.
fn run_as_agent(kind: &str, address: &str) {
    match kind {
        "silent" => return,
        "sleepy" => std::thread::sleep(Duration::from_secs(600)),
        "scripted" => return std::fs::write("sentinel.txt", "ok").unwrap(),
        "toolless" => {
            ask(
                address,
                &[json!({"role": "user", "content": "Hello."})],
                "[]",
            );
            return;
        }
        _ => {}
    }
    let mut messages = vec![json!({"role": "user", "content": "Write ok into sentinel.txt."})];
    for _ in 0..6 {
        let Some(answer) = ask(address, &messages, BASH_TOOL) else {
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
        "messy" => leave_special_files(),
        "half" => std::fs::write("cut.txt", "cut").unwrap(),
        "endless" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        _ => std::fs::write("sentinel.txt", "ok").unwrap(),
    }
    "done"
}

/// Leaves a dangling link, a link to an endless device, a pipe and a long file behind.
fn leave_special_files() {
    std::os::unix::fs::symlink("nowhere", "dangling").unwrap();
    std::os::unix::fs::symlink("/dev/zero", "zero").unwrap();
    let made = std::process::Command::new("mkfifo").arg("pipe").status();
    assert!(made.unwrap().success());
    let large = std::fs::File::create("large").unwrap();
    large.set_len(1 << 40).unwrap();
}

/// Sends a request of the Chat Completions API; `None` if the answer is none.
fn ask(address: &str, messages: &[Value], tools: &str) -> Option<Value> {
    let tools: Value = serde_json::from_str(tools).unwrap();
    let body = json!({"model": "m", "messages": messages, "tools": tools}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let answer = read_message(&mut stream)?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_answer = head.starts_with("HTTP/1.1 200");
    serde_json::from_str(body).ok().filter(|_| is_answer)
}
