//! Tests the full interface at a real terminal, before a screen model: what a person types and sees.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::line_editor::{in_pid_namespace, process_in_namespace};
use crate::world::{Turn, WAYS, Way, World, skipped, turn};

pub(crate) const NATIVE: Way = WAYS[1];

/// The interface at a terminal of its own, with a model of the screen.
pub(crate) struct ScreenSeat {
    child: Child,
    terminal: File,
    screen: Arc<Mutex<ScreenModel>>,
}

/// The screen, and everything that was written to it.
struct ScreenModel {
    parser: vt100::Parser,
    raw: Vec<u8>,
}

/// Returns the number of bytes that a terminal shows: without a synchronized update that is not complete.
fn whole_updates(bytes: &[u8]) -> usize {
    let last = |marker: &[u8]| {
        bytes
            .windows(marker.len())
            .rposition(|window| window == marker)
    };
    match (last(b"\x1b[?2026h"), last(b"\x1b[?2026l")) {
        (Some(begin), end) if end.is_none_or(|end| end < begin) => begin,
        _ => bytes.len(),
    }
}

fn nonzero(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

impl ScreenSeat {
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&ours, window(columns, rows)).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        drop((command, theirs));
        let terminal = File::from(ours);
        let screen = Arc::new(Mutex::new(ScreenModel {
            parser: vt100::Parser::new(nonzero(rows), nonzero(columns), 10_000),
            raw: Vec::new(),
        }));
        let shown = Arc::clone(&screen);
        let mut output = terminal.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            let mut unshown = Vec::new();
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.raw.extend_from_slice(&buffer[..count]);
                unshown.extend_from_slice(&buffer[..count]);
                let whole = whole_updates(&unshown);
                shown.parser.process(&unshown[..whole]);
                unshown.drain(..whole);
            }
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.parser.process(&unshown);
        });
        Self {
            child,
            terminal,
            screen,
        }
    }

    fn model(&self) -> MutexGuard<'_, ScreenModel> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the screen's rows, without empty ones at the end.
    pub(crate) fn rows(&self) -> Vec<String> {
        let model = self.model();
        let (_, columns) = model.parser.screen().size();
        let rows: Vec<String> = model.parser.screen().rows(0, columns.get()).collect();
        let end = rows.iter().rposition(|row| !row.is_empty());
        rows.into_iter().take(end.map_or(0, |at| at + 1)).collect()
    }

    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.model().raw).into_owned()
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.rows().join("\n");
            if holds(&text) {
                return text;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{what} does not come:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str) -> String {
        self.wait_until(&format!("`{words}`"), |text| text.contains(words))
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a question counts keys as answers, then presses the key.
    pub(crate) fn answer(&mut self, keys: &str) {
        std::thread::sleep(Duration::from_millis(500));
        self.keys(keys);
    }

    pub(crate) fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn resize(&self, columns: u16, rows: u16) {
        let mut model = self.model();
        model
            .parser
            .screen_mut()
            .set_size(nonzero(rows), nonzero(columns));
        tcsetwinsize(&self.terminal, window(columns, rows)).unwrap();
        kill_process(self.process(), Signal::WINCH).unwrap();
    }

    pub(crate) fn is_raw(&self) -> bool {
        let settings = tcgetattr(&self.terminal).unwrap();
        !settings
            .local_modes
            .intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn wait_until_raw(&self, expected: bool) {
        let begun = Instant::now();
        while self.is_raw() != expected {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "raw mode: {}",
                !expected
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Leaves an idle session, and returns the exit code.
    pub(crate) fn leave(&mut self) -> Option<i32> {
        self.wait_for("ready");
        self.keys("\x04");
        self.end().code()
    }
}

impl Drop for ScreenSeat {
    fn drop(&mut self) {
        // Fails if it has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn window(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

pub(crate) fn command(world: &World, provider: &ScriptedProvider, words: &[&str]) -> Command {
    let mut command = world.sabir_with(provider);
    command
        .env("TERM", "xterm-256color")
        .args([
            "--interface",
            "full",
            "--sandbox",
            "off",
            "--model",
            NATIVE.model(),
        ])
        .args(words);
    command
}

pub(crate) fn full(world: &World, provider: &ScriptedProvider, words: &[&str]) -> ScreenSeat {
    ScreenSeat::start(command(world, provider, words), 80, 24)
}

/// Starts a provider whose replies each wait until they are let go.
pub(crate) fn gated(world: &World, turns: Vec<Turn>) -> (ScriptedProvider, Sender<()>) {
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

/// Returns the texts of the user's messages in the last request.
pub(crate) fn last_said(provider: &ScriptedProvider) -> Vec<String> {
    let requests = provider.received_requests();
    let messages = requests.last().unwrap().body["messages"]
        .as_array()
        .unwrap()
        .clone();
    messages
        .iter()
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

fn write(path: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": path, "content": "new\n"}))],
    )
}

pub(crate) fn wait_for_requests(provider: &ScriptedProvider, count: usize) {
    let begun = Instant::now();
    while provider.received_requests().len() < count {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no request {count}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_message_is_typed_and_its_answer_goes_into_the_history() {
    let world = World::new();
    let answer = "# Result\n\nIt is **done**:\n\n```rust\nfn main() {}\n```\n\n- one\n- two";
    let provider = world.plays(NATIVE, &[turn(answer, vec![]), turn("Again.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    // The draft has two lines; Alt-Enter breaks it.
    seat.keys("say x\x7f");
    seat.keys("hello\x1b\rworld");
    seat.wait_for("› say hello\n  world");
    seat.keys("\r");
    let text = seat.wait_for("ready");
    for part in [
        "› say hello\n  world",
        "Result\n\nIt is done:\n\n  fn main() {}\n\n• one\n• two",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(last_said(&provider).pop().unwrap(), "say hello\nworld");
    seat.keys("more\r");
    seat.wait_for("Again.");
    assert!(seat.leave().is_some());
    assert!(!seat.is_raw());
    // The viewport is gone, the history stays.
    seat.wait_until("the history alone", |text| {
        text.contains("Again.") && !text.contains("ready")
    });
}

#[test]
fn an_edit_is_approved_and_another_denied_with_a_reason() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[write("one"), write("two"), turn("So be it.", vec![])],
    );
    let mut seat = full(&world, &provider, &["go", "on"]);
    let text = seat.wait_for("n no, because");
    assert!(
        text.contains("? write_to_file") && text.contains("one") && text.contains("new"),
        "{text}"
    );
    seat.answer("y");
    seat.wait_for("✓ write_to_file one");
    assert_eq!(world.read("one"), "new\n");
    seat.wait_for("    two");
    seat.answer("n");
    seat.wait_for("no, because: ");
    seat.keys("not that one\r");
    seat.wait_for("So be it.");
    seat.wait_for("denied: write_to_file two");
    assert!(!world.work.path().join("two").exists());
    let body = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(body.contains("not that one"), "{body}");
    assert!(seat.leave().is_some());
}

/// Keys from before a question is drawn do not answer it, and become a draft that is not lost.
#[test]
fn keys_typed_ahead_answer_nothing() {
    let world = World::new();
    let (provider, gate) = gated(
        &world,
        vec![write("one"), turn("Well.", vec![]), turn("Yes.", vec![])],
    );
    let mut seat = full(&world, &provider, &["go", "on"]);
    wait_for_requests(&provider, 1);
    seat.keys("y");
    seat.wait_for("› y");
    gate.send(()).unwrap();
    seat.wait_for("Tab answers the question");
    // The draft has the focus: neither key answers.
    seat.answer("es");
    seat.wait_for("› yes");
    assert!(!world.work.path().join("one").exists());
    seat.keys("\t");
    seat.wait_for("n no, because");
    seat.answer("n");
    seat.wait_for("no, because: ");
    seat.keys("\r");
    gate.send(()).unwrap();
    seat.wait_for("Well.");
    seat.wait_for("› yes");
    assert!(!world.work.path().join("one").exists());
    seat.keys(", that\r");
    gate.send(()).unwrap();
    seat.wait_for("Yes.");
    assert_eq!(last_said(&provider).pop().unwrap(), "yes, that");
    assert!(seat.leave().is_some());
}

#[test]
fn a_paste_of_a_megabyte_is_folded_and_sent_whole() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Read it.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    let text = "    fn main() {\n\t\tlet x = \"äöü\";\n\n    }\n".repeat(25_000);
    seat.keys("look: ");
    seat.keys(&format!("\x1b[200~{}\x1b[201~", text.replace('\n', "\r")));
    seat.wait_for("› look: [pasted 100000 lines, 1.0 MB]");
    seat.keys(" and say\r");
    seat.wait_for("Read it.");
    let said = last_said(&provider).pop().unwrap();
    assert!(
        said.contains(&format!("look: {text} and say")),
        "{} bytes",
        said.len()
    );
    assert!(seat.leave().is_some());
}

#[test]
fn a_turn_is_interrupted_and_messages_are_queued_and_steer() {
    let world = World::new();
    let (provider, gate) = gated(
        &world,
        vec![
            turn("Never.", vec![]),
            turn("Two.", vec![]),
            turn("Three.", vec![]),
        ],
    );
    let mut seat = full(&world, &provider, &["go", "on"]);
    wait_for_requests(&provider, 1);
    seat.wait_for("Esc stops");
    seat.keys("\x1b");
    seat.wait_for("ready");
    gate.send(()).unwrap();
    seat.keys("second\r");
    wait_for_requests(&provider, 2);
    seat.keys("later\r");
    seat.wait_for("queued: later");
    // Up takes it back, Ctrl-S interrupts with it.
    seat.keys("\x1b[A");
    seat.wait_for("› later");
    seat.keys(" now");
    seat.keys("\x13");
    seat.wait_until("an empty queue", |text| !text.contains("queued:"));
    gate.send(()).unwrap();
    wait_for_requests(&provider, 3);
    gate.send(()).unwrap();
    seat.wait_for("Three.");
    let said = last_said(&provider).pop().unwrap();
    assert!(said.ends_with("later now"), "{said}");
    assert!(seat.leave().is_some());
}

#[test]
fn the_screen_is_whole_after_a_resize_while_text_streams() {
    let world = World::new();
    let answer = "alpha beta gamma delta epsilon zeta eta theta. ".repeat(20);
    let expected = answer.clone();
    let (gate, opened) = channel();
    let opened = Mutex::new(opened);
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        _ = opened.recv_timeout(Duration::from_secs(60));
        ProviderReply::text(answer.clone()).in_deltas(40)
    }));
    let mut seat = ScreenSeat::start(command(&world, &provider, &["go", "on"]), 200, 30);
    seat.wait_for("Esc stops");
    seat.keys("a draft of some words that is longer than the narrow screen will be");
    seat.wait_for("will be");
    gate.send(()).unwrap();
    seat.resize(40, 50);
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    let text = seat.wait_until("the whole answer", |text| {
        squeeze(text).contains(&squeeze(&expected)) && text.contains("ready")
    });
    assert_eq!(text.matches("a draft of some").count(), 1, "{text}");
    assert_eq!(
        squeeze(&text).matches(&squeeze(&expected)).count(),
        1,
        "{text}"
    );
    seat.keys("\x03");
    assert!(seat.leave().is_some());
}

#[test]
fn the_terminal_is_restored_by_every_end() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let at_prompt = || {
        let seat = full(&world, &provider, &[]);
        seat.wait_for("What should Sabir do?");
        seat.wait_until_raw(true);
        seat
    };
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut seat = at_prompt();
        kill_process(seat.process(), signal).unwrap();
        assert_eq!(seat.end().code(), Some(128 + signal.as_raw()));
        assert!(!seat.is_raw(), "{signal:?}");
        seat.wait_until("an empty screen", str::is_empty);
        assert!(seat.raw().ends_with("\x1b[?2004l"), "{:?}", seat.raw());
    }
    // Ctrl-C clears the draft first, then leaves.
    let mut seat = at_prompt();
    seat.keys("abc");
    seat.wait_for("› abc");
    seat.keys("\x03");
    seat.wait_for("cleared");
    seat.keys("\x03");
    seat.wait_for("again leaves");
    seat.keys("\x03");
    assert_eq!(seat.end().code(), Some(0));
    assert!(!seat.is_raw());
}

#[test]
fn the_interface_runs_in_a_group_that_began_outside_of_the_namespace() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    for is_ended_by_signal in [false, true] {
        let plain = command(&world, &provider, &[]);
        let Some(command) = in_pid_namespace(&world, &plain) else {
            return skipped("no PID namespace can be made on this machine");
        };
        let mut seat = ScreenSeat::start(command, 80, 24);
        seat.wait_for("What should Sabir do?");
        seat.wait_until_raw(true);
        let code = if is_ended_by_signal {
            let sabir = process_in_namespace(seat.process()).unwrap();
            kill_process(sabir, Signal::TERM).unwrap();
            143
        } else {
            seat.keys("\x04");
            0
        };
        assert_eq!(seat.end().code(), Some(code));
        assert!(!seat.is_raw());
    }
}

/// Waits for a child of a process whose command line contains a word.
fn wait_for_child(parent: Pid, word: &str) -> Pid {
    let parent = parent.as_raw_nonzero();
    let list = format!("/proc/{parent}/task/{parent}/children");
    for _ in 0..6000 {
        // Of the main thread, or of any other one.
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).unwrap();
        let lists = tasks.flatten().map(|task| task.path().join("children"));
        let children: String = lists
            .filter_map(|list| std::fs::read_to_string(list).ok())
            .collect();
        for child in children.split_whitespace() {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(word) {
                return Pid::from_raw(child.parse().unwrap()).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{list} has no `{word}`");
}

/// Returns a shell that runs a script, in which `"$@"` is the interface. It has no job control, so it does not restore a terminal itself.
fn script_with_interface(world: &World, provider: &ScriptedProvider, script: &str) -> Command {
    let sabir = command(world, provider, &[]);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", script, "sh"])
        .arg(sabir.get_program())
        .args(sabir.get_args())
        .current_dir(world.work.path())
        .env_clear();
    for (name, value) in sabir.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}

#[test]
fn a_second_interface_keeps_the_terminal_after_a_kill_of_the_first() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let shell = script_with_interface(&world, &provider, "\"$@\"; echo first; \"$@\"; sleep 600");
    let mut seat = ScreenSeat::start(shell, 80, 24);
    seat.wait_for("What should Sabir do?");
    let first = wait_for_child(seat.process(), "sabir");
    let guard = wait_for_child(first, "terminal-guard");
    kill_process(first, Signal::KILL).unwrap();
    seat.wait_until("the second interface", |_| {
        seat.raw().matches("What should Sabir do?").count() > 1
    });
    let proc = format!("/proc/{}/cmdline", guard.as_raw_nonzero());
    seat.wait_until("the end of the guard", |_| {
        std::fs::read(&proc).unwrap_or_default().is_empty()
    });
    assert!(seat.is_raw());
    seat.keys("still here");
    seat.wait_for("› still here");
}

#[test]
fn the_terminal_is_restored_after_a_kill() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let shell = script_with_interface(
        &world,
        &provider,
        "\"$@\"; echo the shell is here; sleep 600",
    );
    let seat = ScreenSeat::start(shell, 80, 24);
    seat.wait_for("What should Sabir do?");
    seat.wait_until_raw(true);
    let process = wait_for_child(seat.process(), "sabir");
    let guard = wait_for_child(process, "terminal-guard");
    kill_process(process, Signal::KILL).unwrap();
    seat.wait_until_raw(false);
    seat.wait_until("the end of the guard", |_| {
        seat.raw().contains("\x1b[?1004l") && seat.raw().contains("\x1b[?2004l")
    });
    let proc = format!("/proc/{}/cmdline", guard.as_raw_nonzero());
    // A process that ended has no command line, even if nobody has waited for it.
    seat.wait_until("an empty command line", |_| {
        std::fs::read(&proc).unwrap_or_default().is_empty()
    });
    seat.wait_for("the shell is here");
}

#[test]
fn a_stopped_session_comes_back_with_its_draft() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    seat.keys("half a word");
    seat.wait_for("› half a word");
    kill_process(seat.process(), Signal::TSTP).unwrap();
    seat.wait_until_raw(false);
    seat.wait_until("an empty screen", str::is_empty);
    let state = format!("/proc/{}/stat", seat.process().as_raw_nonzero());
    let is_stopped = || std::fs::read_to_string(&state).unwrap().contains(") T ");
    seat.wait_until("the stop", |_| is_stopped());
    kill_process(seat.process(), Signal::CONT).unwrap();
    seat.wait_until_raw(true);
    seat.wait_for("› half a word");
    // Killed without a warning: the next session offers the draft.
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(seat.process(), Signal::KILL).unwrap();
    assert_eq!(seat.end().signal(), Some(9));
    let seat = full(&world, &provider, &[]);
    seat.wait_for("› half a word");
}

#[test]
fn a_signal_during_a_session_restores_the_terminal() {
    let world = World::new();
    let (provider, _gate) = gated(&world, vec![]);
    let mut seat = full(&world, &provider, &["go", "on"]);
    wait_for_requests(&provider, 1);
    seat.wait_for("Esc stops");
    kill_process(seat.process(), Signal::TERM).unwrap();
    let end = seat.end();
    assert!(end.code().is_some(), "{end:?}");
    assert!(!seat.is_raw());
}

#[test]
fn the_draft_is_edited_in_the_users_editor() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Well.", vec![])]);
    let mut command = command(&world, &provider, &[]);
    command.env("EDITOR", "sed -i s/one/two/");
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("What should Sabir do?");
    seat.keys("one word");
    seat.wait_for("› one word");
    seat.keys("\x07");
    seat.wait_for("› two word");
    seat.keys("\r");
    seat.wait_for("Well.");
    assert_eq!(last_said(&provider).pop().unwrap(), "two word");
    assert!(seat.leave().is_some());
}

#[test]
fn commands_and_files_are_completed() {
    let world = World::new();
    std::fs::create_dir(world.work.path().join("src")).unwrap();
    world.write("src/markdown.rs", "");
    world.write("src/main.rs", "");
    let provider = world.plays(NATIVE, &[turn("Well.", vec![]), turn("Seen.", vec![])]);
    let mut seat = full(&world, &provider, &["go", "on"]);
    seat.wait_for("ready");
    seat.keys("/hel");
    seat.wait_for("show the keys and commands");
    seat.keys("\r");
    seat.wait_for("[tui.bindings] in config.toml");
    seat.keys("see @mkd");
    seat.wait_for("  @src/markdown.rs");
    seat.keys("\t");
    seat.wait_for("› see @src/markdown.rs");
    seat.keys("\r");
    seat.wait_for("Seen.");
    assert_eq!(
        last_said(&provider).pop().unwrap().trim_end(),
        "see @src/markdown.rs"
    );
    assert!(seat.leave().is_some());
}

#[test]
fn the_history_spans_sessions_and_is_searched() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("First.", vec![]), turn("Second.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    seat.keys("run the tests\r");
    seat.wait_for("First.");
    assert!(seat.leave().is_some());
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    seat.keys("draft\x12");
    seat.keys("tests");
    seat.wait_for("search: tests");
    seat.wait_for("› run the tests");
    // Enter takes it, Enter again sends it.
    seat.keys("\r");
    seat.wait_until("the end of the search", |text| !text.contains("search:"));
    seat.keys("!");
    seat.keys("\r");
    seat.wait_for("Second.");
    assert_eq!(last_said(&provider).pop().unwrap(), "run the tests!");
    assert!(seat.leave().is_some());
}

/// Nothing of a model, a tool or a file acts on the terminal: only the interface's own sequences are written.
#[test]
fn foreign_control_bytes_never_reach_the_terminal() {
    let world = World::new();
    let hostile = "a\u{1b}]0;owned\u{7}b\u{1b}[2J\u{9b}31m\u{1b}[8mc\u{202e}d &#27;[2J &#155;31m";
    world.write("evil.txt", hostile);
    let calls = vec![
        ("read_file", json!({"path": "evil.txt"})),
        ("execute_command", json!({"command": "cat evil.txt"})),
    ];
    let provider = world.plays(NATIVE, &[turn(hostile, calls), turn("Over.", vec![])]);
    let mut command = command(&world, &provider, &["go", "on"]);
    command.args(["--approve", "command=cat evil.txt"]);
    // The terminal need not be asked for its background, which is a sequence of the interface's
    // own.
    command.env("COLORFGBG", "15;0");
    let mut seat = ScreenSeat::start(command, 80, 24);
    let text = seat.wait_until("the end", |text| {
        text.contains("Over.") || text.contains("n no, because")
    });
    if !text.contains("Over.") {
        seat.answer("y");
        seat.wait_for("Over.");
    }
    let raw = seat.raw();
    for forbidden in ["\x1b]", "\x1b[2J", "\x1b[8m", "\u{9b}", "\u{7}", "\u{202e}"] {
        assert!(!raw.contains(forbidden), "{forbidden:?}");
    }
    assert!(seat.leave().is_some());
}

#[test]
fn no_color_writes_none() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[write("one"), turn("# Well\n`x`", vec![])]);
    let mut command = command(&world, &provider, &["go", "on"]);
    command.env("NO_COLOR", "1");
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("n no, because");
    seat.answer("y");
    seat.wait_for("Well");
    let raw = seat.raw();
    for color in 30..38 {
        let used = [
            format!(";{color}m"),
            format!("[{color}m"),
            format!(";{color};"),
        ];
        assert!(!used.iter().any(|code| raw.contains(code)), "{color}");
    }
    assert!(seat.leave().is_some());
}

#[test]
fn a_narrow_terminal_shows_everything() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[write("one"), turn("世界 🙂 done", vec![])]);
    let mut seat = ScreenSeat::start(command(&world, &provider, &["go", "on"]), 20, 24);
    seat.wait_for("n no");
    seat.answer("y");
    seat.wait_for("世界 🙂 done");
    assert_eq!(world.read("one"), "new\n");
    assert!(seat.leave().is_some());
}

/// A dumb terminal, a serial console and a chosen line mode have no viewport.
#[test]
fn the_line_mode_stays_where_it_belongs() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Plain.", vec![])]);
    for (kind, choice) in [
        ("dumb", "full"),
        ("vt100", "auto"),
        ("xterm-256color", "line"),
    ] {
        let mut command = world.sabir_with(&provider);
        command.env("TERM", kind).args([
            "--interface",
            choice,
            "--sandbox",
            "off",
            "--model",
            NATIVE.model(),
        ]);
        let mut seat = ScreenSeat::start(command, 80, 24);
        seat.wait_for("? lists commands");
        seat.keys("/quit\n");
        assert!(seat.end().code().is_some());
        assert!(!seat.raw().contains("\x1b[?2026h"), "{kind}");
    }
    // At any other terminal the full interface needs no choice.
    let mut command = world.sabir_with(&provider);
    command
        .env("TERM", "xterm-256color")
        .args(["--sandbox", "off", "--model", NATIVE.model()]);
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("What should Sabir do? /help");
    seat.keys("\x04");
    seat.end();
}

#[test]
fn two_sessions_keep_a_draft_each() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let mut one = full(&world, &provider, &[]);
    one.wait_for("What should Sabir do?");
    one.keys("draft of one");
    one.wait_for("› draft of one");
    let mut other = full(&world, &provider, &[]);
    other.wait_for("What should Sabir do?");
    other.keys("draft of the other");
    other.wait_for("› draft of the other");
    let drafts = world.home.path().join(".local/share/sabir/drafts");
    let begun = Instant::now();
    while std::fs::read_dir(&drafts).map_or(0, |drafts| drafts.count()) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{drafts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // One is killed, and the other still works: only the draft of the first is offered.
    kill_process(one.process(), Signal::KILL).unwrap();
    one.end();
    let third = full(&world, &provider, &[]);
    third.wait_for("› draft of one");
    assert!(!third.rows().join("\n").contains("other"));
}

#[test]
fn the_status_line_shows_branch_and_sandbox() {
    let world = World::new();
    std::fs::create_dir_all(world.work.path().join(".git/objects")).unwrap();
    std::fs::create_dir_all(world.work.path().join(".git/refs")).unwrap();
    world.write(".git/HEAD", "ref: refs/heads/topic/one\n");
    let provider = world.plays(NATIVE, &[turn("Well.", vec![]), turn("Again.", vec![])]);
    let mut seat = ScreenSeat::start(command(&world, &provider, &["go", "on"]), 120, 24);
    seat.wait_for("Well.");
    seat.wait_until("branch and sandbox", |text| {
        let status = text.lines().last().unwrap_or_default();
        status.contains("topic/one") && status.contains("no sandbox")
    });
    assert!(seat.leave().is_some());
    world.configure("[tui]\nstatus = [\"branch\"]\n");
    let mut seat = ScreenSeat::start(command(&world, &provider, &["go", "on"]), 120, 24);
    seat.wait_until("the branch alone", |text| {
        text.lines().last() == Some("ready · topic/one")
    });
    assert!(seat.leave().is_some());
}

#[test]
fn a_task_is_chosen_from_a_list_and_continues() {
    let world = World::new();
    let turns = ["First.", "Second.", "Third.", "Fourth."].map(|text| turn(text, vec![]));
    let provider = world.plays(NATIVE, &turns);
    let mut seat = full(&world, &provider, &["about", "apples"]);
    seat.wait_for("First.");
    assert!(seat.leave().is_some());
    let mut seat = full(&world, &provider, &["about", "pears"]);
    seat.wait_for("Second.");
    seat.wait_for("ready");
    seat.keys("/tasks\r");
    seat.wait_for("tasks 2/2");
    seat.keys("apples");
    seat.wait_for("tasks 1/2: apples");
    seat.keys("\r");
    seat.wait_for("continues another task");
    seat.keys("and plums\r");
    seat.wait_for("Third.");
    let said = last_said(&provider);
    assert!(said[0].contains("about apples"), "{said:?}");
    assert!(said.last().unwrap().contains("and plums"), "{said:?}");
    assert!(!said.iter().any(|said| said.contains("pears")), "{said:?}");
    seat.wait_for("ready");
    seat.keys("/new\r");
    seat.wait_for("your message begins a new task");
    seat.keys("about cherries\r");
    seat.wait_for("Fourth.");
    let said = last_said(&provider);
    assert!(said[0].contains("about cherries"), "{said:?}");
    assert!(!said[0].contains("apples"), "{said:?}");
    assert!(seat.leave().is_some());
}

#[test]
fn the_conversation_and_its_files_go_back_to_an_earlier_message() {
    let world = World::new();
    let turns = [
        turn("One.", vec![]),
        write("made.txt"),
        turn("Two.", vec![]),
        turn("Other.", vec![]),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut command = command(&world, &provider, &["go", "on"]);
    command.args(["--approve", "edits"]);
    let mut seat = ScreenSeat::start(command, 80, 30);
    seat.wait_for("One.");
    seat.wait_for("ready");
    seat.keys("make a file\r");
    seat.wait_for("Two.");
    seat.wait_for("ready");
    assert_eq!(world.read("made.txt"), "new\n");
    // Each Escape is a key of its own.
    seat.keys("\x1b");
    seat.wait_for("Esc again");
    seat.keys("\x1b");
    seat.wait_for("go back to 2/2");
    seat.keys("\r");
    seat.wait_for("rewind 3/3");
    seat.keys("\x1b[B");
    seat.wait_for("restores made.txt");
    seat.keys("\r");
    // The draft, right above the status line, and not the message of before.
    seat.wait_until("the draft", |text| {
        let draft = text.lines().rev().nth(1);
        draft.is_some_and(|row| row.trim_end() == "› make a file")
    });
    seat.keys(" no more\r");
    seat.wait_for("Other.");
    assert!(!world.work.path().join("made.txt").exists());
    let said = last_said(&provider);
    assert_eq!(said.last().unwrap(), "make a file no more");
    assert!(!said.contains(&"make a file".to_owned()), "{said:?}");
    assert!(seat.leave().is_some());
}

#[test]
fn a_command_of_the_user_runs_and_its_output_goes_along() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("One.", vec![]), turn("Two.", vec![])]);
    let mut command = command(&world, &provider, &["go", "on"]);
    command.args(["--deny", "touch **"]);
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("One.");
    seat.wait_for("ready");
    seat.keys("!echo it is $((40 + 2))\r");
    seat.wait_for("it is 42");
    seat.keys("!touch made\r");
    seat.wait_for("denied");
    assert!(!world.work.path().join("made").exists());
    seat.keys("what is it?\r");
    seat.wait_for("Two.");
    let said = last_said(&provider).pop().unwrap();
    assert!(
        said.contains("it is 42") && said.ends_with("what is it?"),
        "{said}"
    );
    // Another is stopped.
    seat.wait_for("ready");
    seat.keys("!sleep 7411\r");
    seat.wait_for("runs, Esc stops");
    seat.keys("\x1b");
    seat.wait_for("! sleep 7411 (");
    assert!(seat.leave().is_some());
}

#[test]
fn a_note_is_kept_after_it_was_shown() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut seat = full(&world, &provider, &["go", "on"]);
    seat.wait_for("One.");
    seat.wait_for("ready");
    seat.keys("# tests come first\r");
    seat.wait_for("AGENTS.md gets `- tests come first`");
    assert!(!world.work.path().join("AGENTS.md").exists());
    seat.keys("\r");
    seat.wait_for("has a new line");
    assert_eq!(world.read("AGENTS.md"), "- tests come first\n");
    assert!(seat.leave().is_some());
}

#[test]
fn the_answer_is_copied_and_the_desktop_is_notified() {
    let world = World::new();
    world.configure("[tui]\nnotify = \"desktop\"\nkeys = \"vi\"\n");
    let (provider, gate) = gated(&world, vec![turn("Hello.", vec![]), turn("Two.", vec![])]);
    let mut seat = full(&world, &provider, &["go", "on"]);
    seat.wait_for("Esc stops");
    // The terminal has lost the focus. The key shows when that was read.
    seat.keys("\x1b[Ox");
    seat.wait_for("› x");
    seat.keys("\x7f");
    gate.send(()).unwrap();
    seat.wait_for("Hello.");
    seat.wait_for("ready");
    assert!(seat.raw().contains("\x1b]9;Sabir is ready"));
    seat.keys("/copy\r");
    seat.wait_for("clipboard");
    assert!(seat.raw().contains("\x1b]52;c;SGVsbG8u\x1b\\"));
    // With the keys of vi.
    seat.keys("one two");
    seat.wait_for("› one two");
    seat.keys("\x1b");
    seat.wait_for("COMMAND");
    seat.keys("bcwfour");
    seat.wait_for("› one four");
    seat.keys("\r");
    gate.send(()).unwrap();
    seat.wait_for("Two.");
    assert_eq!(last_said(&provider).pop().unwrap(), "one four");
    assert!(seat.leave().is_some());
}

#[test]
fn models_modes_and_a_dropped_image_are_chosen() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut seat = full(&world, &provider, &["go", "on"]);
    seat.wait_for("One.");
    seat.wait_for("ready");
    seat.keys("/model\r");
    seat.wait_for("models ");
    seat.wait_for(" context, $");
    seat.keys("\x1b");
    seat.wait_until("no list", |text| !text.contains(" context, $"));
    seat.keys("/mode\r");
    seat.wait_for("modes ");
    seat.keys("plan");
    seat.keys("\r");
    seat.wait_until("another mode", |text| {
        text.lines()
            .last()
            .is_some_and(|status| status.contains(" · plan"))
    });
    // What is not an image goes into the draft as it was pasted.
    seat.keys("\x1b[200~/nowhere/a.png\x1b[201~");
    seat.wait_for("› /nowhere/a.png");
    seat.keys("\x03");
    assert!(seat.leave().is_some());
}
