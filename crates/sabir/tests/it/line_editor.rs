//! Tests the line editor of the plain interactive mode at a real terminal: pastes, drafts, history, and the terminal's state.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::approval::Seat;
use crate::world::{Turn, WAYS, Way, World, skipped, turn};

const NATIVE: Way = WAYS[1];

/// Returns the command of an interactive session at a terminal that can do more than a typewriter.
fn interactive(world: &World, provider: &ScriptedProvider, words: &[&str]) -> Command {
    let mut command = world.sabir_with(provider);
    command
        .env("TERM", "xterm-256color")
        .args(["--interface", "line", "--sandbox", "off"])
        .args(["--model", NATIVE.model()])
        .args(words);
    command
}

fn write(path: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": path, "content": "new\n"}))],
    )
}

/// Returns the texts of the user's messages in a request.
fn said(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages
        .filter(|message| message["role"] == "user")
        .map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            parts => parts
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect(),
        })
        .collect()
}

fn last_said(provider: &ScriptedProvider) -> Vec<String> {
    said(&provider.received_requests().last().unwrap().body)
}

/// Starts a provider whose replies each wait until they are let go.
fn gated(world: &World, turns: Vec<Turn>) -> (ScriptedProvider, Sender<()>) {
    let (gate, opened) = channel();
    let opened = Mutex::new(opened);
    let provider = world.provider(ReplyScript::from_fn(move |count, _| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        _ = opened.recv_timeout(Duration::from_secs(60));
        match turns.get(count) {
            Some(turn) => NATIVE.reply(turn, count + 1),
            None => ProviderReply::text("Nothing more."),
        }
    }));
    (provider, gate)
}

fn is_raw(seat: &Seat) -> bool {
    let settings = tcgetattr(seat.terminal()).unwrap();
    !settings
        .local_modes
        .intersects(LocalModes::ICANON | LocalModes::ECHO)
}

/// Waits until the terminal is in raw mode, or is not.
fn wait_until_raw(seat: &Seat, expected: bool) {
    for _ in 0..6000 {
        if is_raw(seat) == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("raw mode: {}", !expected);
}

/// A program text of about this many bytes, with indentation, tabs, blank lines and long lines.
fn program(bytes: usize) -> String {
    let part = "    fn main() {\n\t\tlet x = \"äöü\";\n\n        // ".to_owned()
        + &"long ".repeat(1000)
        + "\n    }\n";
    part.repeat(bytes / part.len() + 1)
}

#[test]
fn a_paste_of_any_size_is_one_message() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Read it.", vec![]), turn("Both.", vec![])]);
    let mut seat = Seat::running(interactive(&world, &provider, &[]), "");
    seat.wait_for("> ");
    let text = program(300_000);
    // A terminal sends line breaks as returns.
    seat.keys(&format!("\x1b[200~{}\x1b[201~", text.replace('\n', "\r")));
    seat.keys("\r");
    seat.wait_for("Read it.");
    seat.wait_for("> ");
    let first = last_said(&provider).pop().unwrap();
    assert!(
        first.contains(&text),
        "{} of {} bytes",
        first.len(),
        text.len()
    );
    // A terminal that marks no pastes.
    seat.keys("one\r    two\r\r\tthree\r");
    seat.wait_for("three");
    assert_eq!(provider.received_requests().len(), 1);
    seat.keys("\r");
    seat.wait_for("Both.");
    assert_eq!(provider.received_requests().len(), 2);
    assert_eq!(
        last_said(&provider).pop().unwrap(),
        "one\n    two\n\n\tthree\n"
    );
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
    assert!(!is_raw(&seat));
}

#[test]
fn a_paste_while_the_model_works_is_one_message() {
    let world = World::new();
    let (provider, gate) = gated(&world, vec![turn("One.", vec![]), turn("Two.", vec![])]);
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    wait_until_raw(&seat, true);
    seat.wait_for("\x1b[?2004h");
    let text = program(20_000);
    seat.keys(&format!("\x1b[200~{text}\x1b[201~"));
    seat.keys("\r");
    seat.wait_for("queued:");
    gate.send(()).unwrap();
    gate.send(()).unwrap();
    seat.wait_for("Two.");
    assert_eq!(provider.received_requests().len(), 2);
    assert_eq!(last_said(&provider).pop().unwrap(), text);
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
}

/// Keys typed before a question is drawn do not answer it, and are not lost.
#[test]
fn a_draft_from_before_a_question_comes_back_after_it() {
    let world = World::new();
    let (provider, gate) = gated(
        &world,
        vec![
            write("one"),
            turn("So be it.", vec![]),
            turn("Yes.", vec![]),
        ],
    );
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    wait_until_raw(&seat, true);
    seat.wait_for("\x1b[?2004h");
    seat.keys("y");
    seat.wait_for("> y");
    gate.send(()).unwrap();
    seat.wait_for("allow it?");
    seat.wait_for("why not: ");
    // Enter does not complete the `y`: nothing was typed since the question.
    seat.keys("\r");
    seat.wait_for("why not: ");
    seat.keys("n\r");
    gate.send(()).unwrap();
    seat.wait_for("So be it.");
    // The draft is back at the prompt.
    seat.wait_for("y");
    seat.keys("es, that was it\r");
    gate.send(()).unwrap();
    seat.wait_for("Yes.");
    assert!(!world.work.path().join("one").exists());
    assert_eq!(last_said(&provider).pop().unwrap(), "yes, that was it");
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
}

/// A paste answers no approval, even if its first line is `y`.
#[test]
fn a_paste_approves_nothing() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[write("one"), turn("Well.", vec![])]);
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    seat.wait_for("why not: ");
    seat.keys("\x1b[200~y\ry\r\x1b[201~");
    seat.keys("\r");
    seat.wait_for("Well.");
    assert!(!world.work.path().join("one").exists());
    seat.wait_for("> ");
    seat.keys("\x04");
    assert!(seat.end().code().is_some());
}

#[test]
fn keys_edit_and_the_history_spans_sessions() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("First.", vec![]), turn("Second.", vec![])]);
    let mut seat = Seat::running(interactive(&world, &provider, &[]), "");
    seat.wait_for("> ");
    seat.keys("tests run\x17\x01run \x05\x7f\x1b\rwith sk-ant-REDACTED");
    seat.keys("\x17care\r");
    seat.wait_for("First.");
    assert_eq!(last_said(&provider).pop().unwrap(), "run tests\nwith care");
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
    let file = world.home.path().join(".local/share/sabir/history");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The newest entry is `/quit`.
    let mut seat = Seat::running(interactive(&world, &provider, &[]), "");
    seat.wait_for("> ");
    seat.keys("\x1b[A\x1b[A");
    seat.wait_for("with care");
    seat.keys("!\r");
    seat.wait_for("Second.");
    assert_eq!(last_said(&provider).pop().unwrap(), "run tests\nwith care!");
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
}

/// The model's text goes above the draft, and neither disturbs the other.
#[test]
fn output_goes_above_the_draft() {
    let world = World::new();
    let answer = "alpha beta gamma ".repeat(8);
    let expected = answer.clone();
    let (gate, opened) = channel();
    let opened = Mutex::new(opened);
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        _ = opened.recv_timeout(Duration::from_secs(60));
        ProviderReply::text(answer.clone()).in_deltas(5)
    }));
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    let size = Winsize {
        ws_row: 24,
        ws_col: 50,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(seat.terminal(), size).unwrap();
    let mut shown = seat.wait_for("\x1b[?2004h");
    wait_until_raw(&seat, true);
    let draft = "my next words are longer than one row of this small terminal";
    seat.keys(draft);
    shown += &seat.wait_for("terminal");
    shown += "terminal";
    gate.send(()).unwrap();
    // The margin of the model's text is not part of it.
    let squeezed = |text: &str| text.replace('│', "").split_whitespace().collect::<String>();
    // Each piece of the answer is followed by the draft, drawn again.
    let text = loop {
        let size = [60, 50].map(|count| std::num::NonZero::new(count).unwrap());
        let mut screen = vt100::Parser::new(size[0], size[1], 0);
        screen.process(shown.as_bytes());
        let text: String = screen.screen().rows(0, 50).collect();
        if squeezed(&text).contains(&squeezed(&expected)) {
            break text;
        }
        shown += &seat.wait_for("terminal");
        shown += "terminal";
    };
    assert_eq!(
        squeezed(&text).matches(&squeezed(draft)).count(),
        1,
        "{text}"
    );
    seat.keys("\x03");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
}

/// Stops the process, as Ctrl-Z does, and continues it, as `fg` does.
fn stop_and_continue(seat: &mut Seat, process: Pid) {
    seat.keys("half a word");
    seat.wait_for("half a word");
    kill_process(process, Signal::TSTP).unwrap();
    wait_until_raw(seat, false);
    let state = format!("/proc/{}/stat", process.as_raw_nonzero());
    let is_stopped = || std::fs::read_to_string(&state).unwrap().contains(") T ");
    for _ in 0..6000 {
        if is_stopped() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_stopped(), "the process was not stopped");
    kill_process(process, Signal::CONT).unwrap();
    wait_until_raw(seat, true);
    seat.wait_for("half a word");
}

#[test]
fn the_terminal_is_restored_by_every_end() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let at_prompt = || {
        let mut seat = Seat::running(interactive(&world, &provider, &[]), "");
        seat.wait_for("> ");
        wait_until_raw(&seat, true);
        seat
    };
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut seat = at_prompt();
        kill_process(seat.process(), signal).unwrap();
        let end = seat.end();
        assert_eq!(end.code(), Some(128 + signal.as_raw()), "{end:?}");
        assert!(!is_raw(&seat), "{signal:?}");
        seat.wait_for("\x1b[?2004l");
    }
    // Ctrl-C at an empty prompt; with a draft it only clears that.
    let mut seat = at_prompt();
    seat.keys("abc");
    seat.wait_for("abc");
    seat.keys("\x03");
    seat.wait_for("\x1b[J");
    assert!(is_raw(&seat));
    seat.keys("\x03");
    assert_eq!(seat.end().code(), Some(0));
    assert!(!is_raw(&seat));

    let mut seat = at_prompt();
    let process = seat.process();
    stop_and_continue(&mut seat, process);
    kill_process(process, Signal::KILL).unwrap();
    assert_eq!(seat.end().signal(), Some(9));
}

/// Returns the only child of a process.
fn only_child(process: Pid) -> Option<Pid> {
    let id = process.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    Pid::from_raw(children.trim().parse().ok()?)
}

/// Returns a command that runs `plain` in a PID namespace of its own, as in some containers: session and process group began outside,
/// where they have no number. `None` where no such namespace can be made.
pub(crate) fn in_pid_namespace(world: &World, plain: &Command) -> Option<Command> {
    let ways = [
        &[
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ][..],
        &["--pid", "--fork", "--mount-proc"],
    ];
    let is_possible = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let way = ways.iter().find(is_possible)?;
    let mut command = Command::new("unshare");
    command
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(world.work.path())
        .args(*way)
        // The first process of a namespace is not stopped by signals from inside, so a shell is
        // that.
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(env!("CARGO_BIN_EXE_sabir"))
        .args(plain.get_args());
    Some(command)
}

/// Returns the process of the program in a command of [`in_pid_namespace`].
pub(crate) fn process_in_namespace(unshare: Pid) -> Option<Pid> {
    only_child(unshare).and_then(only_child)
}

#[test]
fn a_session_that_began_outside_of_the_namespace_can_be_stopped() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let Some(command) = in_pid_namespace(&world, &interactive(&world, &provider, &[])) else {
        return skipped("no PID namespace can be made on this machine");
    };
    let mut seat = Seat::running(command, "");
    seat.wait_for("> ");
    wait_until_raw(&seat, true);
    let sabir = process_in_namespace(seat.process()).unwrap();
    stop_and_continue(&mut seat, sabir);
    kill_process(sabir, Signal::TERM).unwrap();
    assert_eq!(seat.end().code(), Some(143));
    assert!(!is_raw(&seat));
}

#[test]
fn a_signal_during_a_session_restores_the_terminal() {
    let world = World::new();
    let (provider, gate) = gated(&world, vec![]);
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    wait_until_raw(&seat, true);
    seat.wait_for("\x1b[?2004h");
    kill_process(seat.process(), Signal::TERM).unwrap();
    let end = seat.end();
    assert!(end.code().is_some(), "{end:?}");
    assert!(!is_raw(&seat));
    drop(gate);

    // Ctrl-C interrupts the model, and the prompt comes back.
    let (provider, gate) = gated(&world, vec![turn("", vec![])]);
    let mut seat = Seat::running(interactive(&world, &provider, &["go", "on"]), "");
    wait_until_raw(&seat, true);
    seat.wait_for("\x1b[?2004h");
    while provider.received_requests().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    seat.keys("\x03");
    seat.wait_for("> ");
    seat.keys("/quit\r");
    seat.end();
    assert!(!is_raw(&seat));
    drop(gate);
}

/// A dumb terminal, and one without a type, keep the lines that the system edits.
#[test]
fn a_dumb_terminal_has_plain_lines() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Plain.", vec![])]);
    let mut command = interactive(&world, &provider, &[]);
    command.env("TERM", "dumb");
    let mut seat = Seat::running(command, "");
    seat.wait_for("> ");
    assert!(!is_raw(&seat));
    seat.keys("  words  \n");
    let shown = seat.wait_for("Plain.");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    assert_eq!(last_said(&provider).pop().unwrap(), "words");
    seat.wait_for("> ");
    seat.keys("/quit\n");
    assert!(seat.end().code().is_some());
}
