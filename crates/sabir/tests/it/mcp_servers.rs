//! Runs one task over real MCP servers from npm, over the pipe and over HTTP, in four protocols, and compares the results.
//!
//! `crates/sabir-testkit/mcp/run` installs the servers; without them the test is skipped, and says so.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sabir_wire::Wire;
use serde_json::json;

use crate::headless::Desk;
use crate::world::{Turn, Way, World, events, skipped, turn};

/// The protocols.
const PROTOCOLS: [&str; 4] = ["native", "cline", "invoke", "hermes"];

/// Returns the folder with the servers' programs.
fn servers() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let folder = root.join("target/mcp/node_modules/.bin");
    let has_all = ["everything", "filesystem", "memory", "sequential-thinking"]
        .iter()
        .all(|name| folder.join(format!("mcp-server-{name}")).exists());
    has_all.then_some(folder)
}

/// The reference server, over HTTP. It is killed with the test.
struct HttpReference {
    child: Child,
    port: u16,
}

impl HttpReference {
    fn start(folder: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = Command::new(folder.join("mcp-server-everything"))
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..600 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Self { child, port }
    }
}

impl Drop for HttpReference {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The calls of the task, each with a piece of its result.
fn calls() -> Vec<(&'static str, serde_json::Value, &'static str)> {
    let operation = "everything__trigger-long-running-operation";
    vec![
        (
            "everything__echo",
            json!({"message": "a <b> & \"c\""}),
            "a <b> & \"c\"",
        ),
        ("everything__get-sum", json!({"a": 2, "b": 40.5}), "42.5"),
        (
            "everything__get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
            "Error: Operation failed",
        ),
        (
            "everything__get-tiny-image",
            json!({}),
            "The image above is the MCP logo",
        ),
        (
            "everything__get-resource-links",
            json!({"count": 2}),
            "demo://resource",
        ),
        (
            "access_mcp_resource",
            json!({"server_name": "everything"}),
            "demo://resource/static/document/features.md",
        ),
        (
            "access_mcp_resource",
            json!({"server_name": "everything", "uri": "demo://resource/static/document/features.md"}),
            "Everything Server",
        ),
        (operation, json!({"duration": 1, "steps": 4}), "Steps: 4"),
        (
            "remote__get-structured-content",
            json!({"location": "Chicago"}),
            "temperature",
        ),
        // It says nothing for longer than it may, so the call is cancelled, and the server is still
        // there.
        (
            "hasty__trigger-long-running-operation",
            json!({"duration": 8, "steps": 1}),
            "did not answer within 2 s",
        ),
        (
            "hasty__echo",
            json!({"message": "still here"}),
            "still here",
        ),
        (
            "files__read_text_file",
            json!({"path": "note.txt", "head": 1}),
            "a note",
        ),
        (
            "files__read_multiple_files",
            json!({"paths": ["note.txt", "none.txt"]}),
            "none.txt: Error",
        ),
        (
            "files__read_text_file",
            json!({"path": "/etc/hostname"}),
            "Access denied",
        ),
        (
            "memory__create_entities",
            json!({"entities": [{"name": "Sabir", "entityType": "language", "observations": ["small", "shared"]}]}),
            "Sabir",
        ),
        ("memory__read_graph", json!({}), "language"),
        (
            "thinking__sequentialthinking",
            json!({"thought": "done", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}),
            "thoughtHistoryLength",
        ),
        // The server offers this one only after the handshake, in a changed list. Nobody is there
        // to answer.
        ("everything__trigger-elicitation-request", json!({}), "User"),
    ]
}

/// Runs the task in a protocol, and returns the results of its calls.
fn run_task(protocol: &'static str, folder: &Path, port: u16) -> Vec<String> {
    let way = Way {
        wire: Wire::OpenAiChat,
        protocol,
    };
    let world = World::new();
    world.write("note.txt", "a note\nmore\n");
    let program = |name: &str| folder.join(format!("mcp-server-{name}"));
    let mut config = "[mcp]\ndefinition_tokens = 100000\n".to_owned();
    for (name, server, more) in [
        ("everything", "everything", ""),
        ("hasty", "everything", "call_seconds = 2\n"),
        ("files", "filesystem", "args = [\".\"]\n"),
        ("memory", "memory", ""),
        ("thinking", "sequential-thinking", ""),
    ] {
        config += &format!(
            "[mcp.servers.{name}]\ncommand = {:?}\nrequired = true\nstart_seconds = 120\n{more}",
            program(server)
        );
    }
    let memory = world.home.path().join("memory.jsonl");
    config += &format!(
        "[mcp.servers.memory.env]\nMEMORY_FILE_PATH = {memory:?}\n\
         [mcp.servers.remote]\nurl = \"http://127.0.0.1:{port}/mcp\"\nrequired = true\nstart_seconds = 120\n"
    );
    // The configuration may hold secrets for all Sabir knows.
    let path = world.configure(&config);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let calls = calls();
    let mut turns: Vec<Turn> = calls
        .iter()
        .map(|(name, arguments, _)| turn("", vec![(*name, arguments.clone())]))
        .collect();
    turns.push(turn(
        "Done.",
        vec![("attempt_completion", json!({"result": "done"}))],
    ));
    let provider = world.plays(way, &turns);
    let mut arguments = vec!["--max-turns", "40"];
    for rule in [
        "mcp=everything/*",
        "mcp=remote/*",
        "mcp=hasty/*",
        "mcp=files/*",
        "mcp=memory/*",
        "mcp=thinking/*",
    ] {
        arguments.extend(["--approve", rule]);
    }
    arguments.push("Try everything.");
    let mut command = world.sabir_with(&provider);
    command.args(["run", "--model", way.model(), "--protocol", protocol]);
    command
        .args(["--output", "events", "--control"])
        .args(arguments);
    let mut desk = Desk::of(command);
    loop {
        let event = desk.wait_for_any(&["question", "ended"]);
        if event["kind"] == "ended" {
            break;
        }
        let call = &event["call"];
        if event["about"] == "completion" {
            desk.say(json!({"kind": "approve", "call": call}));
            continue;
        }
        // The form has one field that must be filled in; the others have defaults or are left out.
        let is_name = event.to_string().contains("name: String Your full");
        let text = if is_name { "Ada Lovelace" } else { "" };
        desk.say(json!({"kind": "answer", "call": call, "text": text}));
    }
    assert!(matches!(desk.code(), 0 | 3), "{protocol}");
    let log = world
        .sabir()
        .args(["log", &world.only_task(), "--output", "events"])
        .output()
        .unwrap();
    let results: Vec<String> = events(&log)
        .iter()
        .filter(|event| event["kind"] == "result")
        .filter_map(|event| event["content"].as_str().map(str::to_owned))
        .collect();
    assert!(results.len() >= calls.len(), "{protocol}: {results:#?}");
    for ((name, _, expected), result) in calls.iter().zip(&results) {
        assert!(result.contains(expected), "{protocol}: {name}: {result}");
    }
    // The image of the fourth call is in the request after it.
    let request = provider.received_requests()[4].body.to_string();
    assert!(request.contains("iVBORw0KGgo"), "{protocol}");
    let work = world.work.path().display().to_string();
    results
        .into_iter()
        .map(|result| result.replace(&work, "WORK"))
        .collect()
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn one_task_over_real_servers_is_the_same_in_four_protocols() {
    let Some(folder) = servers() else {
        return skipped("no servers from npm; crates/sabir-testkit/mcp/run installs them");
    };
    let reference = HttpReference::start(&folder);
    let results = PROTOCOLS.map(|protocol| run_task(protocol, &folder, reference.port));
    for (protocol, other) in PROTOCOLS.iter().zip(&results) {
        assert_eq!(*other, results[0], "{protocol}");
    }
}
