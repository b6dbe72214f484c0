//! Tests at a real terminal what the user chooses in the full interface: keys, themes, checkpoints, subtasks, links and the clipboard.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sabir_testkit::{ReplyScript, ScriptedProvider};
use serde_json::json;

use crate::interface::{NATIVE, ScreenSeat, command, full, gated, last_said, wait_for_requests};
use crate::subtasks::{new_task, results, who};
use crate::world::{Turn, World, code, skipped, stderr, turn};

#[test]
fn keys_are_bound_in_the_configuration() {
    let world = World::new();
    world.configure("[tui.bindings]\ntheme = [\"f2\"]\nbreak_line = [\"f3\"]\n");
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    seat.keys("\x1bOQ");
    seat.wait_for("themes 6/6");
    seat.keys("\x1b");
    seat.wait_until("no list", |text| !text.contains("themes"));
    seat.keys("one\x1b[13~two");
    seat.wait_for("› one\n  two");
    seat.keys("\r");
    seat.wait_for("ready");
    assert_eq!(last_said(&provider).pop().unwrap(), "one\ntwo");
    assert!(seat.leave().is_some());
    for (table, message) in [
        ("sendnow = [\"f2\"]", "did you mean `send_now`?"),
        ("undo = [\"ctrl-c\"]", "cannot be bound"),
        (
            "undo = [\"f2\"]\nredo = [\"f2\"]",
            "`F2` is bound to `redo` and to `undo`",
        ),
    ] {
        world.configure(format!("[tui.bindings]\n{table}\n"));
        let output = world.sabir().args(["config", "check"]).output().unwrap();
        assert_eq!(code(&output), 2);
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(message), "{said}");
    }
}

/// Answers the query for the background like a light terminal, in two pieces.
#[test]
fn the_background_is_asked_for_and_the_answer_is_no_input() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    let text = seat.wait_for("What should Sabir do?");
    // The first frame did not wait for it.
    assert!(text.contains('›'), "{text}");
    while !seat.raw().contains("\x1b]11;?\x1b\\") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    seat.keys("\x1b]11;rgb:ffff/ff");
    seat.keys("ff/ffff\x1b\\hello");
    seat.wait_for("› hello");
    seat.keys("\x03");
    // Yellow is not used on a light background.
    seat.keys("/theme none\r");
    seat.wait_for("there is no theme `none`");
    assert!(!seat.raw().contains("\x1b[33m"), "{:?}", seat.raw());
    seat.keys("\x03\x04");
    assert!(seat.end().success());
}

#[test]
fn a_theme_is_previewed_and_kept() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut command = command(&world, &provider, &[]);
    command
        .env("COLORTERM", "truecolor")
        .env("COLORFGBG", "15;0");
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("What should Sabir do?");
    seat.keys("/theme\r");
    seat.wait_for("themes 6/6");
    seat.keys("dark");
    seat.wait_for("themes 1/6: dark");
    assert!(seat.raw().contains("38;2;163;211;156m"), "{:?}", seat.raw());
    // The environment named the background.
    assert!(!seat.raw().contains("\x1b]11;?"));
    seat.keys("\r");
    seat.wait_for("has `theme = \"dark\"` now");
    seat.keys("\x04");
    seat.end();
    let file = world.home.path().join(".config/sabir/config.toml");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("theme = \"dark\""), "{text}");
}

#[test]
fn sixteen_colors_and_none() {
    for (variables, is_colored) in [
        (&[("TERM", "xterm")][..], true),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
    ] {
        let world = World::new();
        world.configure("[tui]\ntheme = \"dark\"\n");
        let provider = world.plays(NATIVE, &[turn("# One\n\n`code`\n\nTwo.", vec![])]);
        let mut command = command(&world, &provider, &["go", "on"]);
        command.envs(variables.iter().copied());
        let mut seat = ScreenSeat::start(command, 80, 24);
        seat.wait_for("Two.");
        seat.wait_for("ready");
        let raw = seat.raw();
        assert!(!raw.contains("38;2;") && !raw.contains("38;5;"), "{raw:?}");
        assert_eq!(raw.contains("36m"), is_colored, "{raw:?}");
        assert!(seat.leave().is_some());
    }
}

/// Makes a turn that writes `notes.txt`.
fn write_notes(content: &str) -> Turn {
    let arguments = json!({"path": "notes.txt", "content": content});
    turn("", vec![("write_to_file", arguments)])
}

/// Starts a task that edits files without asking, and waits until both of its edits are done.
fn start_with_edits(world: &World, provider: &ScriptedProvider) -> ScreenSeat {
    let mut command = command(world, provider, &["go", "on"]);
    command.args(["--approve", "edits"]);
    let seat = ScreenSeat::start(command, 80, 30);
    seat.wait_for("Both done.");
    seat.wait_for("ready");
    seat
}

#[test]
fn files_are_restored_from_a_checkpoint() {
    let world = World::new();
    let turns = [
        write_notes("first\n"),
        write_notes("second\n"),
        turn("Both done.", vec![]),
        turn("Again.", vec![]),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut seat = start_with_edits(&world, &provider);
    seat.keys("/checkpoints\r");
    seat.wait_for("checkpoints 2/2");
    let text = seat.wait_for("+second");
    assert!(text.contains("-first"), "{text}");
    seat.keys("\x1b[B");
    seat.wait_until("the change of both calls", |text| {
        text.contains("+second") && !text.contains("-first")
    });
    seat.keys("\x1b[A");
    seat.keys("\r");
    seat.wait_for("restores notes.txt");
    seat.keys("\r");
    seat.wait_until("the restored file", |_| {
        world.read("notes.txt") == "first\n"
    });
    // The conversation before the first call, with its files.
    seat.wait_for("ready");
    seat.keys("/checkpoints\r");
    seat.wait_for("checkpoints ");
    seat.keys("@1");
    seat.wait_until("the first call alone", |text| {
        text.contains("> @1 write_to_file notes.txt") && text.contains("+first")
    });
    seat.keys("\r");
    seat.wait_for("restore 3/3");
    seat.keys("\x1b[B");
    seat.keys("\r");
    seat.wait_for("goes back");
    seat.keys("do it differently\r");
    seat.wait_for("Again.");
    assert!(!world.work.path().join("notes.txt").exists());
    let said = last_said(&provider).join("\n");
    assert!(said.contains("do it differently"), "{said}");
    let body = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(!body.contains("second"), "{body}");
    assert!(seat.leave().is_some());
}

#[test]
fn a_checkpoint_is_undone_by_its_number() {
    let world = World::new();
    let turns = [
        write_notes("first\n"),
        write_notes("second\n"),
        turn("Both done.", vec![]),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut seat = start_with_edits(&world, &provider);
    seat.keys("/undo @2\r");
    seat.wait_for("notes.txt; the state before is checkpoint @3");
    assert_eq!(world.read("notes.txt"), "first\n");
    // The undo itself is undone.
    seat.keys("/undo @3\r");
    seat.wait_for("notes.txt; the state before is checkpoint @4");
    assert_eq!(world.read("notes.txt"), "second\n");
    seat.keys("/undo @77\r");
    seat.wait_for("nothing was undone");
    assert_eq!(world.read("notes.txt"), "second\n");
    assert!(seat.leave().is_some());
}

#[test]
fn any_answer_is_shown_as_it_was_received() {
    let world = World::new();
    world.write("a.rs", "fn main() {}\n");
    let turns = [
        turn(
            "I look first.",
            vec![("read_file", json!({"path": "a.rs"}))],
        ),
        turn("It is empty.", vec![]),
        turn("Nothing more.", vec![]),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut seat = full(&world, &provider, &["go", "on"]);
    seat.wait_for("It is empty.");
    seat.wait_for("ready");
    seat.keys("and now?\r");
    seat.wait_for("Nothing more.");
    seat.wait_for("ready");
    seat.keys("/wire\r");
    let text = seat.wait_for("answers 3/3");
    assert!(text.contains("> 3 Nothing more."), "{text}");
    // The next one is the one before.
    seat.keys("\x1b[B");
    seat.wait_for("> 2 It is empty.");
    seat.keys("\x1b[B");
    seat.wait_for("> 1 I look first.");
    seat.wait_for("└ call read_file");
    seat.keys("\r");
    seat.wait_for("answer 1: 13 bytes of text");
    seat.keys("/wire 2\r");
    seat.wait_for("answer 2: 12 bytes of text");
    seat.keys("/wire 9\r");
    seat.wait_for("there is no answer 9: answers 1 to 3 are kept");
    // From the list of messages to the answers to one of them.
    seat.keys("/rewind\r");
    seat.wait_for("go back to 2/2");
    seat.keys("\x18");
    seat.wait_for("> 3 Nothing more.");
    seat.keys("\x1b");
    seat.wait_until("a closed list", |text| !text.contains("answers 3/3"));
    assert!(seat.leave().is_some());
}

#[test]
fn links_are_written_where_the_terminal_shows_them() {
    for (variable, is_linked) in [("VTE_VERSION", true), ("OTHER", false)] {
        let world = World::new();
        world.write("a.rs", "fn main() {}\n");
        let turns = [
            turn("", vec![("read_file", json!({"path": "a.rs"}))]),
            turn(
                "See https://a.example/page, or [the manual](https://a.example/m).\n\nDone.",
                vec![],
            ),
        ];
        let provider = world.plays(NATIVE, &turns);
        let mut command = command(&world, &provider, &["go", "on"]);
        command.env(variable, "7600");
        let mut seat = ScreenSeat::start(command, 80, 24);
        seat.wait_for("Done.");
        seat.wait_for("ready");
        let raw = seat.raw();
        let address = "https://a.example/page\x1b\\https://a.example/page\x1b]8;;\x1b\\,";
        assert_eq!(raw.contains(address), is_linked, "{raw:?}");
        // The style of the label comes between the link and the label.
        let label = ";https://a.example/m\x1b\\";
        assert_eq!(raw.contains(label), is_linked, "{raw:?}");
        let file = "/a.rs\x1b\\a.rs";
        assert_eq!(raw.contains(file), is_linked, "{raw:?}");
        assert!(seat.leave().is_some());
    }
}

#[test]
fn a_terminal_without_a_clipboard_is_not_written_to() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Hello.", vec![])]);
    let mut command = command(&world, &provider, &["go", "on"]);
    command.env("TERM", "linux");
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("ready");
    seat.keys("/copy\r");
    seat.wait_for("the answer was not copied");
    let raw = seat.raw();
    assert!(!raw.contains("\x1b]"), "{raw:?}");
    assert!(seat.leave().is_some());
}

/// The program of the desktop is a script that prints a picture.
#[test]
fn the_picture_in_the_clipboard_goes_along() {
    let world = World::new();
    let tools = world.home.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let script = tools.join("wl-paste");
    std::fs::write(
        &script,
        "#!/bin/sh\nprintf '%s' R0lGODlhAQABAAAAACw= | base64 -d\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let provider = world.plays(NATIVE, &[turn("I see.", vec![])]);
    let mut command = command(&world, &provider, &[]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", tools.display()));
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("What should Sabir do?");
    seat.keys("\x16");
    seat.wait_for("the picture in the clipboard goes with your next message");
    seat.keys("what is this?\r");
    seat.wait_for("I see.");
    let body = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(
        body.contains("data:image/gif;base64,R0lGODlhAQABAAAAACw="),
        "{body}"
    );
    assert!(seat.leave().is_some());
}

#[test]
fn functions_of_the_workspace_are_completed() {
    let world = World::new();
    world.write(
        "tools.py",
        "import os\n\ndef parse_header(line):\n    pass\n",
    );
    let provider = world.plays(NATIVE, &[turn("One.", vec![])]);
    let mut seat = full(&world, &provider, &[]);
    seat.wait_for("What should Sabir do?");
    seat.keys("explain @parsehead");
    seat.wait_for("`parse_header` (tools.py:3)  def");
    seat.keys("\t");
    seat.wait_for("› explain `parse_header` (tools.py:3)");
    seat.keys("\r");
    seat.wait_for("One.");
    let said = last_said(&provider).pop().unwrap();
    assert!(
        said.starts_with("explain `parse_header` (tools.py:3)"),
        "{said}"
    );
    assert!(seat.leave().is_some());
}

/// Nothing is drawn again: the output holds no movement of the cursor, and each line is printed once.
#[test]
fn a_screen_reader_gets_lines_only() {
    for by_variable in [true, false] {
        let world = World::new();
        if !by_variable {
            world.configure("interface = \"screen-reader\"\n");
        }
        let (provider, gate) = gated(&world, vec![turn("Hello there.", vec![])]);
        let mut command = world.sabir_with(&provider);
        command.env("TERM", "xterm-256color").args([
            "--sandbox",
            "off",
            "--model",
            NATIVE.model(),
            "go",
            "on",
        ]);
        if by_variable {
            command.env("SABIR_SCREEN_READER", "1");
        }
        let mut seat = ScreenSeat::start(command, 80, 24);
        wait_for_requests(&provider, 1);
        gate.send(()).unwrap();
        seat.wait_for("Hello there.");
        assert!(!seat.is_raw());
        seat.keys("/quit\n");
        assert!(seat.end().code().is_some());
        let raw = seat.raw();
        let moves = raw.split("\x1b[").skip(1).filter(|sequence| {
            let end = sequence.find(|c: char| c.is_ascii_alphabetic());
            end.is_none_or(|end| !sequence[..=end].ends_with('m'))
        });
        assert_eq!(moves.count(), 0, "{raw:?}");
        assert_eq!(raw.matches("Hello there.").count(), 1, "{raw:?}");
    }
}

/// A subtask is entered while it works, gets a message, and its end leads back to the task.
#[test]
fn a_subtask_is_entered_and_spoken_to() {
    let world = World::new();
    let (gate, opened) = channel();
    let opened = Mutex::new(opened);
    let list = || ("list_files", json!({"path": "."}));
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let wait = || {
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            _ = opened.recv_timeout(Duration::from_secs(60));
        };
        let results = results(request);
        let turn = match (who(request).as_str(), results) {
            ("root", 0) => turn("", vec![new_task("alpha looks for one")]),
            ("alpha", 0) => turn("I list the files.", vec![list()]),
            ("alpha", _) => {
                wait();
                let result = json!({"result": "Alpha has seen it."});
                turn("", vec![("attempt_completion", result)])
            }
            _ => turn("All done.", vec![]),
        };
        NATIVE.reply(&turn, results + 1)
    }));
    let mut seat = full(&world, &provider, &["--subtasks", "root", "begins"]);
    seat.wait_for("◦ code: alpha looks for one · list_files .");
    wait_for_requests(&provider, 3);
    seat.keys("/subtasks\r");
    seat.wait_for("subtasks 1/1");
    seat.keys("\r");
    let text = seat.wait_for("in a subtask, Esc leaves, Ctrl-X stops it");
    for part in [
        "── subtask code: alpha looks for one ──",
        "I list the files.",
        "✓ list_files .",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    seat.keys("look closer\r");
    seat.wait_for("› look closer");
    // The first is for the request that the message has interrupted.
    gate.send(()).unwrap();
    gate.send(()).unwrap();
    seat.wait_for("back in the task ──");
    seat.wait_for("All done.");
    let bodies: Vec<_> = provider.received_requests();
    let mut of_alpha = bodies.iter().filter(|request| who(request) == "alpha");
    assert!(
        of_alpha
            .next_back()
            .unwrap()
            .body
            .to_string()
            .contains("look closer")
    );
    assert!(seat.leave().is_some());
}

/// A server of tmux with one session, which ends with the test.
struct TmuxSession {
    socket: String,
}

impl TmuxSession {
    fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket, "-f", "/dev/null"]);
        let output = command.args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.run(&["capture-pane", "-p"]);
            if shown.contains(words) {
                return shown;
            }
            let is_late = begun.elapsed() > Duration::from_secs(60);
            assert!(!is_late, "`{words}` does not come:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TmuxSession {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn the_interface_works_in_tmux() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return skipped("there is no tmux");
    }
    let world = World::new();
    let answer = "Words that are long enough to wrap in a narrow window. It is done.";
    let provider = world.plays(NATIVE, &[turn(answer, vec![])]);
    let sabir = command(&world, &provider, &[]);
    let session = TmuxSession {
        socket: format!("sabir-test-{}", std::process::id()),
    };
    let mut tmux = Command::new("tmux");
    tmux.args(["-L", &session.socket, "-f", "/dev/null"])
        .args(["new-session", "-d", "-x", "80", "-y", "24"])
        .arg(sabir.get_program())
        .args(sabir.get_args())
        .current_dir(world.work.path());
    tmux.env_clear().env("TERM", "xterm-256color");
    for (name, value) in sabir.get_envs() {
        if let Some(value) = value.filter(|_| name != "TERM") {
            tmux.env(name, value);
        }
    }
    assert!(tmux.status().unwrap().success());
    session.wait_for("What should Sabir do?");
    session.run(&["send-keys", "say it", "C-j", "again", "Enter"]);
    let shown = session.wait_for("ready");
    assert!(shown.contains("› say it\n  again"), "{shown}");
    session.run(&["resize-window", "-x", "40", "-y", "20"]);
    let shown = session.wait_for("narrow window. It is done.");
    assert_eq!(shown.matches("It is done.").count(), 1, "{shown}");
    session.run(&["send-keys", "/copy", "Enter"]);
    session.wait_for("set-clipboard on");
    session.run(&["send-keys", "C-d"]);
}

/// A session of GNU screen, which ends with the test.
struct GnuScreenSession {
    folder: std::path::PathBuf,
}

impl Drop for GnuScreenSession {
    fn drop(&mut self) {
        let mut command = Command::new("screen");
        command.env("SCREENDIR", &self.folder);
        // Fails if it has ended.
        _ = command.args(["-S", "sabir", "-X", "quit"]).output();
    }
}

#[test]
fn the_interface_works_in_screen() {
    if Command::new("screen").arg("-v").output().is_err() {
        return skipped("there is no screen");
    }
    let world = World::new();
    let answer = "| a | b |\n|---|---|\n| one | two |\n\nIt is done.";
    let provider = world.plays(NATIVE, &[turn(answer, vec![])]);
    let sabir = command(&world, &provider, &[]);
    let session = GnuScreenSession {
        folder: world.home.path().join("screen"),
    };
    std::fs::create_dir(&session.folder).unwrap();
    std::fs::set_permissions(&session.folder, PermissionsExt::from_mode(0o700)).unwrap();
    let mut screen = Command::new("screen");
    screen
        .args(["-U", "-c", "/dev/null", "-S", "sabir"])
        .arg(sabir.get_program())
        .args(sabir.get_args())
        .current_dir(world.work.path());
    screen.env_clear();
    for (name, value) in sabir.get_envs() {
        if let Some(value) = value {
            screen.env(name, value);
        }
    }
    screen
        .env("SCREENDIR", &session.folder)
        .env("TERM", "xterm-256color");
    let mut seat = ScreenSeat::start(screen, 80, 24);
    seat.wait_for("What should Sabir do?");
    seat.keys("say it\r");
    let text = seat.wait_for("ready");
    assert!(text.contains("one │ two"), "{text}");
    assert_eq!(text.matches("It is done.").count(), 1, "{text}");
    seat.keys("/copy\r");
    seat.wait_for("copied to the terminal's clipboard");
    let raw = seat.raw();
    assert!(raw.contains("\x1b]52;c;"), "{raw:?}");
    seat.keys("\x04");
    seat.end();
}
