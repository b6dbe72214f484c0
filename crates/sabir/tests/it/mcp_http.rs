//! Tests `sabir mcp serve --http`: the address and the token, a client of Sabir's own, and the end by a signal.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use crate::world::{WAYS, World, code, stderr, stdout, turn};

/// A running server. It is killed with the test.
struct HttpServer {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// The entry for clients that it printed.
    entry: Value,
}

impl HttpServer {
    fn start(command: Command) -> Self {
        Self::start_at(command, "127.0.0.1:0")
    }

    fn start_at(mut command: Command, address: &str) -> Self {
        command
            .args(["mcp", "serve", "--http", address])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
        line.clear();
        output.read_line(&mut line).unwrap();
        let mut settings: Value = serde_json::from_str(&line).unwrap();
        let entry = settings["mcpServers"]["sabir"].take();
        Self {
            child,
            output,
            entry,
        }
    }

    fn url(&self) -> &str {
        self.entry["url"].as_str().unwrap()
    }

    /// Stops it as a user would, and checks that it says nothing more.
    fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Adds the server to the user's configuration, with a header, and calls a tool of it.
fn call(world: &World, server: &HttpServer, header: Option<&str>) -> std::process::Output {
    let mut add = world.sabir();
    add.args(["mcp", "add", "other", server.url()]);
    if let Some(value) = header {
        add.args(["--header", &format!("Authorization={value}")]);
    }
    let added = add.output().unwrap();
    assert_eq!(code(&added), 0, "{}", stderr(&added));
    let output = world
        .sabir()
        .args(["mcp", "call", "other", "read_file", "{\"path\": \"a.txt\"}"])
        .output()
        .unwrap();
    let removed = world.sabir().args(["mcp", "remove", "other"]).output();
    assert_eq!(code(&removed.unwrap()), 0);
    output
}

#[test]
fn a_client_with_the_printed_token_uses_the_tools() {
    let world = World::new();
    world.write("a.txt", "hello\n");
    let server = HttpServer::start(world.sabir());
    let token = server.entry["headers"]["Authorization"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(token.starts_with("Bearer sabir-"), "{token}");
    let output = call(&world, &server, Some(&token));
    assert!(stdout(&output).contains("hello"), "{}", stderr(&output));
    for header in [None, Some("Bearer sabir-0")] {
        let output = call(&world, &server, header);
        assert_ne!(code(&output), 0, "{header:?}");
        assert!(!stdout(&output).contains("hello"));
    }
    server.stop(Signal::TERM);
}

#[test]
fn a_token_of_the_user_is_not_printed() {
    let world = World::new();
    world.write("a.txt", "hello\n");
    let mut command = world.sabir();
    command.env("SABIR_MCP_TOKEN", "a-token-of-mine");
    let server = HttpServer::start(command);
    let shown = server.entry.to_string();
    assert!(
        shown.contains("${SABIR_MCP_TOKEN}") && !shown.contains("a-token-of-mine"),
        "{shown}"
    );
    let output = call(&world, &server, Some("Bearer a-token-of-mine"));
    assert!(stdout(&output).contains("hello"), "{}", stderr(&output));
    server.stop(Signal::INT);
}

#[test]
fn without_a_token_only_this_machine_is_served() {
    let world = World::new();
    world.write("a.txt", "hello\n");
    let mut command = world.sabir();
    command.args(["mcp", "serve", "--http", "0.0.0.0:0", "--no-token"]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a token is needed; leave --no-token out"),
        "{}",
        stderr(&output)
    );
    assert_eq!(stdout(&output), "");
    let output = world
        .sabir()
        .args(["mcp", "serve", "--no-token"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let mut command = world.sabir();
    command.env("SABIR_MCP_TOKEN", "");
    command.args(["mcp", "serve", "--http", "127.0.0.1:0"]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("SABIR_MCP_TOKEN is empty"),
        "{}",
        stderr(&output)
    );
}

/// A server that was started again knows no session any more: the client makes the handshake once more, and the call is answered.
#[test]
fn a_forgotten_session_is_begun_again() {
    let way = WAYS[1];
    let world = World::new();
    world.write("a.txt", "hello\n");
    let serve = || {
        let mut command = world.sabir();
        command.env("SABIR_MCP_TOKEN", "t0ken");
        command
    };
    let server = HttpServer::start(serve());
    let url = server.url().to_owned();
    let address = url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp")
        .to_owned();
    world.configure(format!(
        "[mcp.servers.far]\nurl = {url:?}\nrequired = true\nheaders = {{ Authorization = \"Bearer ${{FAR_TOKEN}}\" }}\n"
    ));
    let command = Mutex::new(Some(serve()));
    let running = Mutex::new(Some(server));
    let provider = world.provider(ReplyScript::from_fn(move |count, _| {
        if count == 1 {
            let mut running = running.lock().unwrap();
            // The old one has to be gone before its address is free.
            drop(running.take());
            let command = command.lock().unwrap().take().unwrap();
            *running = Some(HttpServer::start_at(command, &address));
        }
        let read = turn("", vec![("far__read_file", json!({"path": "a.txt"}))]);
        let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
        way.reply(&if count < 2 { read } else { done }, count + 1)
    }));
    let mut command = world.sabir_with(&provider);
    command.env("FAR_TOKEN", "t0ken");
    command.args([
        "run",
        "--model",
        way.model(),
        "--approve",
        "mcp=far/*",
        "Go.",
    ]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let last = provider.received_requests()[2].body.to_string();
    assert_eq!(last.matches("hello").count(), 2, "{last}");
}
