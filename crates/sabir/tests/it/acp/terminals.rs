//! Terminals of the client: they run what no sandbox would confine, and are killed and released.

use serde_json::{Value, json};

use super::client::AcpClient;
use super::{NATIVE, finish};
use crate::world::{World, turn};

/// Starts a client with terminals, whose model runs this command once.
fn start(
    world: &World,
    command: &Value,
    arguments: &[&str],
) -> (AcpClient, String, sabir_testkit::ScriptedProvider) {
    let turns = [
        turn("", vec![("execute_command", command.clone())]),
        finish("done"),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut client = AcpClient::spawn(world, &provider, NATIVE, arguments);
    client.initialize(json!({"terminal": true}));
    let session = client.new_session(world);
    (client, session, provider)
}

const FREE: [&str; 4] = ["--approve", "all", "--sandbox", "off"];

#[test]
fn a_command_without_a_sandbox_runs_in_a_terminal_of_the_client() {
    let world = World::new();
    let command = json!({"command": "echo $GIT_PAGER; exit 3"});
    let (mut client, session, provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    let params = &created["params"];
    assert_eq!(params["cwd"].as_str(), world.work.path().to_str());
    // Nothing is inherited: the editor's variables may hold keys.
    assert_eq!(params["command"], "/usr/bin/env");
    let words: Vec<_> = params["args"].as_array().unwrap().iter().collect();
    assert_eq!(words[0], "-i");
    assert!(words.contains(&&json!("GIT_PAGER=cat")), "{params}");
    assert_eq!(words[words.len() - 2..], ["-c", "echo $GIT_PAGER; exit 3"]);
    client.respond(&created, json!({"terminalId": "t1"}));
    let waited = client.terminal_request("terminal/wait_for_exit");
    let shown = client.wait_for("tool_call_update");
    assert!(
        shown.to_string().contains("\"t1\"") || shown["status"] == "in_progress",
        "{shown}"
    );
    client.respond(&waited, json!({"exitCode": 3}));
    let read = client.terminal_request("terminal/output");
    client.respond(&read, json!({"output": "cat\n", "truncated": false}));
    let released = client.terminal_request("terminal/release");
    assert_eq!(released["params"]["terminalId"], "t1");
    client.respond(&released, json!({}));
    assert_eq!(client.stop_reason(prompt), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("Exit code 3. Output:\\ncat"), "{body}");
    let updates = client.of_kind("tool_call_update");
    let terminal = json!([{"type": "terminal", "terminalId": "t1"}]);
    let last = updates.last().unwrap();
    assert_eq!(
        (&last["content"], &last["status"]),
        (&terminal, &json!("failed"))
    );
    assert!(
        updates
            .iter()
            .any(|one| one["content"] == terminal && one["status"].is_null())
    );
}

#[test]
fn a_confined_command_never_leaves_the_sandbox_for_a_terminal() {
    let world = World::new();
    let command = json!({"command": "echo inside"});
    let (mut client, session, provider) = start(&world, &command, &["--approve", "all"]);
    assert_eq!(client.finish_prompt(&session, "run it"), "end_turn");
    assert!(
        client.terminal_requests.is_empty(),
        "{:?}",
        client.terminal_requests
    );
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("inside"), "{body}");
}

#[test]
fn a_client_that_refuses_a_terminal_leaves_the_command_to_sabir() {
    let world = World::new();
    let command = json!({"command": "echo without"});
    let (mut client, session, provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.refuse(&created, "no room");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("Exit code 0. Output:\\nwithout"), "{body}");
}

#[test]
fn a_cancel_kills_and_releases_the_terminal() {
    let world = World::new();
    let command = json!({"command": "sleep 1000"});
    let (mut client, session, _provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.respond(&created, json!({"terminalId": "t1"}));
    client.terminal_request("terminal/wait_for_exit");
    client.notify("session/cancel", json!({"sessionId": session}));
    for method in ["terminal/kill", "terminal/release"] {
        let request = client.terminal_request(method);
        assert_eq!(request["params"]["terminalId"], "t1");
        client.respond(&request, json!({}));
    }
    assert_eq!(client.stop_reason(prompt), "cancelled");
}

#[test]
fn a_terminal_that_comes_after_a_cancel_is_killed_and_released() {
    let world = World::new();
    let command = json!({"command": "sleep 1000"});
    let (mut client, session, _provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(prompt), "cancelled");
    client.respond(&created, json!({"terminalId": "t1"}));
    for method in ["terminal/kill", "terminal/release"] {
        let request = client.terminal_request(method);
        assert_eq!(request["params"]["terminalId"], "t1");
        client.respond(&request, json!({}));
    }
}

#[test]
fn a_time_limit_kills_the_command_and_keeps_its_output() {
    let world = World::new();
    let command = json!({"command": "sleep 1000", "timeout": 1});
    let (mut client, session, provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.respond(&created, json!({"terminalId": "t1"}));
    client.terminal_request("terminal/wait_for_exit");
    let killed = client.terminal_request("terminal/kill");
    client.respond(&killed, json!({}));
    let read = client.terminal_request("terminal/output");
    client.respond(&read, json!({"output": "so far", "truncated": true}));
    client.terminal_request("terminal/release");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(
        body.contains("Killed after 1 second") && body.contains("so far"),
        "{body}"
    );
    assert!(body.contains("kept only the end of the output"), "{body}");
}

#[test]
fn a_client_that_leaves_during_a_command_ends_everything() {
    let world = World::new();
    let command = json!({"command": "sleep 1000"});
    let (mut client, session, _provider) = start(&world, &command, &FREE);
    client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.respond(&created, json!({"terminalId": "t1"}));
    client.terminal_request("terminal/wait_for_exit");
    assert_eq!(client.close(), 0);
    let log = world.sabir().args(["log", &session]).output().unwrap();
    assert!(log.status.success());
}

#[test]
fn a_client_that_does_not_say_how_a_command_ended_gets_it_killed() {
    let world = World::new();
    let command = json!({"command": "sleep 1000"});
    let (mut client, session, provider) = start(&world, &command, &FREE);
    let prompt = client.prompt(&session, "run it");
    let created = client.terminal_request("terminal/create");
    client.respond(&created, json!({"terminalId": "t1"}));
    let waited = client.terminal_request("terminal/wait_for_exit");
    client.refuse(&waited, "no idea");
    for method in ["terminal/kill", "terminal/release"] {
        let request = client.terminal_request(method);
        client.respond(&request, json!({}));
    }
    assert_eq!(client.stop_reason(prompt), "end_turn");
    // It may have done anything, so it is not run once more.
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("Find out what was done"), "{body}");
}
