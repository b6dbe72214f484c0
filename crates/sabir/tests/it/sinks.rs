//! Standard output as a terminal: no command passes on what a terminal acts on, whatever the text comes from.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::json;

use crate::world::{WAYS, Way, World, code, stderr, turn};

const NATIVE: Way = WAYS[1];
/// A title, a colour, an 8-bit sequence, a direction, a deletion.
const EVIL: &str = "evil\u{1b}]0;owned\u{7}\u{1b}[31mred\u{9b}2J\u{202e}txt\u{7f}";

/// What a command shows whose standard output and error are a terminal.
fn shown(mut command: Command, input: &str) -> String {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop((command, theirs));
    let mut screen = File::from(ours);
    let reader = std::thread::spawn(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        // The read fails when the last process has closed its end.
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..count]);
        }
        seen
    });
    // A command that does not read closes it.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait().unwrap();
    String::from_utf8(reader.join().unwrap()).unwrap()
}

#[test]
fn no_command_passes_sequences_to_a_terminal() {
    let world = World::new();
    let calls = vec![
        ("read_file", json!({"path": "page.txt"})),
        (
            "write_to_file",
            json!({"path": "made.txt", "content": format!("{EVIL}\n")}),
        ),
        (
            "execute_command",
            json!({"command": format!("printf '%s' '{EVIL}'")}),
        ),
        (EVIL_TOOL, json!({})),
    ];
    world.write("page.txt", EVIL);
    world.write("tools.json", &json!([{"name": "t", "description": EVIL, "parameters": {"type": "object", "properties": {EVIL: {"type": "string"}}}}]).to_string());
    let provider = world.plays(
        NATIVE,
        &[
            turn(EVIL, calls),
            turn("", vec![("attempt_completion", json!({"result": EVIL}))]),
        ],
    );
    let arguments = ["--approve", "all", "--allow-denied", EVIL];
    let output = world.run(&provider, NATIVE, &arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let task = world.only_task();
    let call = format!("<write_to_file><path>a</path><content>{EVIL}</content></write_to_file>");
    let task_commands: [&[&str]; 17] = [
        &["export", "TASK"],
        &["export", "TASK", "--to", "html"],
        &["export", "TASK", "--to", "json"],
        &["log", "TASK"],
        &["log", "TASK", "--output", "json"],
        &["log", "TASK", "--output", "events"],
        &["log", "TASK", "--follow"],
        &["tasks"],
        &["tasks", "--output", "json"],
        &["diff", "TASK"],
        &["diff", "TASK", "--output", "json"],
        &["parse"],
        &["parse", "--output", "json"],
        &["parse", "--output", "events"],
        &["explain"],
        &["prompt", "--tools", "tools.json"],
        &["lint", "tools.json", "--output", "json"],
    ];
    let other_commands: [&[&str]; 12] = [
        &["context", "TASK"],
        &["context", "TASK", "--output", "json"],
        &["checkpoints", "TASK"],
        &["check", "--task", "TASK"],
        &["check"],
        &["lint", "tools.json"],
        &["policy", "explain", "EVIL"],
        &["policy", "EVIL"],
        &["policy", "explain", "EVIL", "--output", "json"],
        &["sandbox", "--level", "off", "--", "cat page.txt"],
        &["dialects", "EVIL"],
        &["EVIL"],
    ];
    let run = |arguments: &[&str]| {
        let mut command = world.sabir();
        // With colours, as at a real terminal.
        command.env("TERM", "xterm-256color");
        command.args(arguments.iter().map(|word| match *word {
            "TASK" => &task,
            "EVIL" => EVIL,
            word => word,
        }));
        shown(command, &call)
    };
    // These show the text, so the test sees that it was cleaned and not left out.
    for arguments in task_commands {
        let seen = run(arguments);
        assert!(seen.contains("evil"), "{arguments:?}: {seen}");
    }
    for arguments in task_commands.into_iter().chain(other_commands) {
        let seen = run(arguments);
        let acts =
            |c: char| (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) || c == '\u{202e}';
        assert!(!seen.contains(acts), "{arguments:?}: {seen:?}");
        assert!(!seen.contains("panicked"), "{arguments:?}: {seen}");
    }
    // Redirected, the same bytes as ever.
    let output = world.sabir().args(["export", &task]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains(EVIL));
    // JSON stays the same JSON.
    let seen = run(&["export", "TASK", "--to", "json"]);
    let value: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert!(
        value.to_string().contains(
            &serde_json::to_string(EVIL)
                .unwrap()
                .trim_matches('"')
                .to_owned()
        )
    );
}

/// The name of a tool, as a model might write it.
const EVIL_TOOL: &str = "evil\u{1b}[31m\u{202e}";
