//! Tests that an approved command in the sandbox reaches the ports of the machine's loopback that its line names, and no others.

use std::io::Write;
use std::net::TcpListener;

use sabir_testkit::ScriptedProvider;
use serde_json::json;

use crate::interactive::Talk;
use crate::world::{Turn, WAYS, Way, World, code, skipped, stderr, turn};

const NATIVE: Way = WAYS[1];

/// Starts a server of this machine that greets each client. It ends with the test.
fn greeting_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            _ = client.and_then(|mut client| client.write_all(b"pong\n"));
        }
    });
    port
}

/// Returns false where the machine has no level 2, which alone gives a command a network of its own.
fn has_level_2(world: &World) -> bool {
    let probe = world
        .sabir()
        .args(["sandbox", "--level", "2", "--", "true"])
        .output()
        .unwrap();
    let found = code(&probe) == 0;
    if !found {
        skipped("level 2 of the sandbox is not available");
    }
    found
}

fn command(line: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": line}))])
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// A line that names the port, as the user sees it.
fn ask_port(port: u16) -> String {
    format!("bash -c 'cat < /dev/tcp/127.0.0.1/{port}'")
}

fn last_request(provider: &ScriptedProvider) -> String {
    provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string()
}

/// Answers the question about the call with yes, and returns the question.
fn approve(world: &World, provider: &ScriptedProvider) -> String {
    let mut command = world.sabir_with(provider);
    command.args(["--sandbox", "2", "--model", NATIVE.model(), "do", "it"]);
    let mut talk = Talk::of(command);
    let question = talk.wait_for("allow it?");
    talk.say("y");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    question
}

#[test]
fn an_approved_command_reaches_the_port_that_it_names() {
    let world = World::new();
    if !has_level_2(&world) {
        return;
    }
    let port = greeting_server();
    let provider = world.plays(NATIVE, &[command(&ask_port(port)), done()]);
    let question = approve(&world, &provider);
    assert!(!question.contains("loopback"), "{question}");
    let told = last_request(&provider);
    assert!(told.contains("pong"), "{told}");

    // So does one that the user's rules approve; and a server that the line starts itself has its
    // port.
    let own = "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & \
               until bash -c 'exec 3<>/dev/tcp/127.0.0.1/8123' 2>/dev/null; do sleep 0.1; done; echo own";
    let asked = ask_port(port);
    let provider = world.plays(NATIVE, &[command(&asked), command(own), done()]);
    let approved = [asked.as_str(), own].map(|line| format!("command={line}"));
    let ran = world.run(
        &provider,
        NATIVE,
        &[
            "--sandbox",
            "2",
            "--approve",
            &approved[0],
            "--approve",
            &approved[1],
            "go",
        ],
    );
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    let told = last_request(&provider);
    assert!(told.contains("pong") && told.contains("own"), "{told}");
}

#[test]
fn a_port_that_is_not_on_the_line_is_refused_with_a_hint() {
    let world = World::new();
    if !has_level_2(&world) {
        return;
    }
    let port = greeting_server();
    // The user has not seen this port.
    let hidden = format!("p={port}; bash -c \"cat < /dev/tcp/127.0.0.1/$p\"");
    let provider = world.plays(NATIVE, &[command(&hidden), done()]);
    approve(&world, &provider);
    let told = last_request(&provider);
    assert!(!told.contains("pong"), "{told}");
    for words in [
        "Connection refused",
        "this machine's loopback",
        "`loopback = false`",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// `curl -s` says why it failed by its exit code alone.
#[test]
fn a_silent_refusal_has_the_hint_too() {
    let world = World::new();
    if !has_level_2(&world) {
        return;
    }
    let has_curl = std::process::Command::new("curl").arg("-V").output();
    if !has_curl.is_ok_and(|output| output.status.success()) {
        skipped("there is no curl");
        return;
    }
    let port = greeting_server();
    for (line, words) in [
        (
            format!("p={port}; curl -s http://127.0.0.1:$p/"),
            "this machine's loopback",
        ),
        (
            "curl -s http://registry.invalid/".to_owned(),
            "it has no network",
        ),
    ] {
        let provider = world.plays(NATIVE, &[command(&line), done()]);
        approve(&world, &provider);
        let told = last_request(&provider);
        assert!(told.contains(", no output."), "{told}");
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn the_question_says_that_the_loopback_is_off() {
    let world = World::new();
    if !has_level_2(&world) {
        return;
    }
    world.configure("loopback = false\n");
    let port = greeting_server();
    let provider = world.plays(NATIVE, &[command(&ask_port(port)), done()]);
    let question = approve(&world, &provider);
    assert!(
        question.contains(
            "it will not reach this machine's loopback (`loopback = false` in config.toml)"
        ),
        "{question}"
    );
    let told = last_request(&provider);
    assert!(
        !told.contains("pong") && told.contains("this machine's loopback"),
        "{told}"
    );
}
