//! Shows what the user chooses: keys, themes, checkpoints, subtasks, symbols, and how much moves.

use std::collections::BTreeMap;

use sabir_session::agent::{Record, TaskId, TaskOutcome};
use sabir_session::call::ToolResultStatus;
use sabir_session::config::key_bindings::KeyBindings;
use sabir_session::config::tui::AnimationLevel;
use sabir_session::symbol_names::SymbolName;
use sabir_session::{Command, SessionEventKind};
use sabir_tui::app::{AppSettings, Effect};
use sabir_tui::keys::{BackgroundColor, TerminalInput};
use sabir_tui::picker::{CheckpointedCall, PickedItem, PickerItem};
use sabir_tui::theme::{ColorDepth, ThemeSet};
use serde_json::json;

use crate::support::{Bench, answered, call, idle, record, result, running, said, text};

fn bindings(table: &[(&str, &[&str])]) -> KeyBindings {
    let table = table.iter().map(|(action, keys)| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        ((*action).to_owned(), keys)
    });
    KeyBindings::try_from(table.collect::<BTreeMap<_, Vec<String>>>()).unwrap()
}

#[test]
fn bound_keys_work_and_the_help_shows_them() {
    let table: &[(&str, &[&str])] = &[
        ("send_now", &["f2"]),
        ("delete_word_back", &["alt-x"]),
        ("theme", &["f3"]),
        ("unfold_output", &["f4"]),
    ];
    let settings = AppSettings {
        bindings: bindings(table),
        ..Bench::settings()
    };
    let mut bench = Bench::with_settings(100, 50, settings);
    bench.event(SessionEventKind::State(
        sabir_session::SessionState::Working,
    ));
    // The usual keys of these actions mean nothing any more.
    assert_eq!(bench.keys("one two\x17\x13"), []);
    assert!(bench.shows("› one two"), "{:?}", bench.rows());
    bench.keys("\x1bx");
    assert_eq!(bench.app.draft(), "one ");
    let sent = bench.keys("\x1bOQ");
    let is_sent = |effect: &Effect| matches!(effect, Effect::Submit(Command::Send { message, .. }) if message.text.trim() == "one");
    assert!(sent.iter().any(is_sent), "{sent:?}");
    bench.keys("/help\r");
    let rows = bench.rows().join("\n");
    for line in [
        "F2                     send now",
        "Alt-X                  delete a word back",
        "F3                     run /theme",
        "Ctrl-O",
    ] {
        assert_eq!(rows.contains(line), line != "Ctrl-O", "{line}: {rows}");
    }
    bench.keys("\x1bOR");
    assert!(bench.shows("themes 6/6"), "{:?}", bench.rows());
}

/// Returns the colour that a word on the screen begins with.
fn color_of(bench: &Bench, word: &str) -> vt100::Color {
    let rows = bench.rows();
    let row = rows.iter().position(|row| row.contains(word)).unwrap();
    let column = rows[row].find(word).unwrap();
    let column = rows[row][..column].chars().count();
    let screen = bench.parser.screen();
    let cell = screen.cell(row as u16, column as u16).unwrap();
    cell.fgcolor()
}

#[test]
fn themes_are_previewed_kept_and_left() {
    let themes = ThemeSet::new(BTreeMap::new(), ColorDepth::Full, None);
    let settings = AppSettings {
        themes,
        ..Bench::settings()
    };
    let mut bench = Bench::with_settings(80, 24, settings);
    bench.keys("/theme\r");
    let usual = color_of(&bench, "✓ done");
    assert_eq!(usual, vt100::Color::Idx(2));
    bench.keys("dark");
    assert_eq!(color_of(&bench, "✓ done"), vt100::Color::Rgb(163, 211, 156));
    // Only looked at.
    bench.keys("\x1b");
    bench.event(result("1", "read_file", ToolResultStatus::Done, ""));
    assert_eq!(color_of(&bench, "✓ read_file"), usual);
    bench.keys("/theme\rdark");
    assert_eq!(bench.keys("\r"), [Effect::SaveTheme("dark".to_owned())]);
    bench.event(result("2", "list_files", ToolResultStatus::Done, ""));
    let dark = vt100::Color::Rgb(163, 211, 156);
    assert_eq!(color_of(&bench, "✓ list_files"), dark);
    bench.keys("/theme nosuch\r");
    assert!(
        bench.shows("there is no theme `nosuch`"),
        "{:?}",
        bench.rows()
    );
}

#[test]
fn a_light_background_changes_the_usual_theme() {
    let mut bench = Bench::working(80, 24);
    bench.app.show_notice("x");
    let warn = |bench: &mut Bench, line: &str| {
        bench
            .app
            .handle_user_command_result(line, Err("not run".to_owned()));
        bench.draw();
        color_of(bench, &format!("! {line}"))
    };
    assert_eq!(warn(&mut bench, "one"), vt100::Color::Idx(3));
    bench.input(TerminalInput::Background(BackgroundColor {
        red: 1.0,
        green: 1.0,
        blue: 0.9,
    }));
    assert_eq!(warn(&mut bench, "two"), vt100::Color::Idx(5));
}

fn checkpoint(number: u32) -> CheckpointedCall {
    CheckpointedCall {
        number,
        call: number.to_string(),
    }
}

#[test]
fn a_checkpoint_is_looked_at_and_restored() {
    let mut bench = Bench::working(80, 24);
    bench.event(said("go on"));
    for id in ["1", "2"] {
        let write = call(id, "write_to_file", json!({"path": "a.rs"}));
        bench.event(answered(vec![write], Vec::new()));
        bench.event(running(id));
        bench.event(result(id, "write_to_file", ToolResultStatus::Done, ""));
    }
    bench.event(idle());
    assert_eq!(
        bench.keys("/checkpoints\r").first(),
        Some(&Effect::ListCheckpoints)
    );
    let items = [2, 1].map(|number| PickerItem {
        label: format!("@{number} write_to_file a.rs"),
        note: "1 min ago".to_owned(),
        preview: String::new(),
        item: PickedItem::Checkpoint(checkpoint(number)),
    });
    bench.app.open_picker("checkpoints", "", items.to_vec());
    let asked = bench.app.preview_selected();
    assert_eq!(asked, [Effect::CompareCheckpoint(checkpoint(2))]);
    bench
        .app
        .set_checkpoint_preview(&checkpoint(2), "@@ -1 +1 @@\n-old\n+new\x1b[2J");
    bench.draw();
    assert!(bench.shows("│ -old\n  │ +new"), "{:?}", bench.rows());
    let moved = bench.keys("\x1b[B");
    assert_eq!(moved, [Effect::CompareCheckpoint(checkpoint(1))]);
    // A change without lines of text is known, too.
    bench.app.set_checkpoint_preview(&checkpoint(1), "");
    assert_eq!(bench.app.preview_selected(), []);
    let chosen = bench.keys("\r");
    assert_eq!(chosen, [Effect::PreviewRestore(checkpoint(1))]);
    bench
        .app
        .open_restore_choice(&checkpoint(1), "restores a.rs\n", "");
    bench.draw();
    assert!(bench.shows("restores a.rs"), "{:?}", bench.rows());
    let undo = Effect::Submit(Command::Undo {
        calls: None,
        checkpoint: Some(1),
    });
    assert_eq!(bench.keys("\r"), [undo]);
    // The conversation before the call of an answer that this session has not seen cannot be
    // restored.
    bench
        .app
        .open_restore_choice(&checkpoint(9), "restores a.rs\n", "");
    assert_eq!(bench.keys("conversation\r"), []);
    assert!(bench.shows("is not in this task"), "{:?}", bench.rows());
}

#[test]
fn a_conversation_is_restored_to_before_the_whole_answer() {
    let mut bench = Bench::working(80, 24);
    bench.event(said("go on"));
    let writes = ["1", "2"].map(|id| call(id, "write_to_file", json!({"path": id})));
    bench.event(answered(writes.to_vec(), Vec::new()));
    for id in ["1", "2"] {
        bench.event(result(id, "write_to_file", ToolResultStatus::Done, ""));
    }
    bench.event(idle());
    let [first, second] = [1, 2].map(checkpoint);
    let records = bench.app.records_before_call(&first);
    assert!(records.is_some());
    assert_eq!(bench.app.records_before_call(&second), records);
    assert_eq!(bench.app.records_before_call(&checkpoint(9)), None);
    bench
        .app
        .open_restore_choice(&second, "restores 2\n", "restores 1\nrestores 2\n");
    bench.draw();
    assert!(bench.shows("│ restores 2"), "{:?}", bench.rows());
    assert!(!bench.shows("│ restores 1"), "{:?}", bench.rows());
    bench.keys("\x1b[B");
    let all =
        "│ undoes all calls of the answer that this one is in\n  │ restores 1\n  │ restores 2";
    assert!(bench.shows(all), "{:?}", bench.rows());
}

#[test]
fn a_subtask_is_entered_read_stopped_and_left() {
    let mut bench = Bench::working(80, 30);
    let child = TaskId::new("child");
    let step = |id: &str, path: &str| {
        answered(
            vec![call(id, "read_file", json!({"path": path}))],
            Vec::new(),
        )
    };
    bench.subtask_event("child", step("1", "src/before.rs"));
    bench.subtask_event("child", running("1"));
    bench.subtask_event(
        "child",
        result("1", "read_file", ToolResultStatus::Done, ""),
    );
    bench.keys("/subtasks\r\r");
    // What it has done is shown, and what it does.
    assert!(bench.shows("── subtask code:"), "{:?}", bench.rows());
    assert!(
        bench.shows("✓ read_file src/before.rs"),
        "{:?}",
        bench.rows()
    );
    bench.subtask_event("child", text("I look around.\n\nThen"));
    assert!(bench.shows("I look around."), "{:?}", bench.rows());
    // The task's own words wait.
    bench.event(text("The parent speaks.\n\n"));
    assert!(!bench.shows("The parent speaks."), "{:?}", bench.rows());
    let sent = bench.keys("look at b\r");
    let is_sent = sent.iter().any(|effect| {
        matches!(effect, Effect::SubmitTo(task, Command::Send { message, .. })
            if *task == child && message.text == "look at b")
    });
    assert!(is_sent, "{sent:?}");
    let stop = Effect::SubmitTo(child.clone(), Command::Interrupt);
    assert_eq!(bench.keys("\x18"), [stop]);
    bench.keys("\x1b");
    assert!(bench.shows("── back in the task ──"), "{:?}", bench.rows());
    assert!(bench.shows("The parent speaks."), "{:?}", bench.rows());
    // Esc stops the task's own turn again.
    assert_eq!(bench.keys("\x1b"), [Effect::Submit(Command::Interrupt)]);
    bench.keys("/subtasks\r\r");
    bench.subtask_event("child", text("Last words."));
    let end = record(Record::Ended {
        outcome: TaskOutcome::Completed,
        message: "all is read".to_owned(),
        used: None,
    });
    bench.subtask_event("child", end);
    assert!(bench.shows("Last words."), "{:?}", bench.rows());
    assert!(
        bench.shows("the subtask has ended: all is read; back in the task"),
        "{:?}",
        bench.rows()
    );
    assert!(!bench.shows("in a subtask"), "{:?}", bench.rows());
}

#[test]
fn lines_of_a_task_that_wait_are_bounded() {
    let mut bench = Bench::working(80, 24);
    bench.subtask_event("child", said("look"));
    bench.keys("/subtasks\r\r");
    for number in 0..30 {
        let lines = format!("- waiting {number}\n").repeat(200);
        bench.event(text(&format!("{lines}\n")));
    }
    bench.event(text("last\n\n"));
    bench.draw();
    assert!(!bench.shows("waiting"), "{:?}", bench.rows());
    bench.keys("\x1b");
    let printed = &bench.frame;
    assert!(
        printed.contains("of the task left out"),
        "{:?}",
        bench.rows()
    );
    assert!(!printed.contains("waiting 0"));
    let kept = printed.matches("waiting").count();
    assert!((4000..=5000).contains(&kept), "{kept}");
    assert!(bench.shows("last"), "{:?}", bench.rows());
}

#[test]
fn symbols_are_completed_beside_files() {
    let mut bench = Bench::working(80, 24);
    assert_eq!(bench.keys("see @par"), [Effect::ListFiles]);
    bench
        .app
        .set_files(vec!["src/parser.rs".to_owned(), "docs/party.md".to_owned()]);
    let symbol = |name: &str, line| SymbolName {
        name: name.to_owned(),
        kind: "fn",
        path: "src/parser.rs".to_owned(),
        line,
    };
    bench
        .app
        .set_symbols(vec![symbol("parse_line", 12), symbol("other", 3)]);
    bench.draw();
    assert!(
        bench.shows("`parse_line` (src/parser.rs:12)  fn"),
        "{:?}",
        bench.rows()
    );
    assert!(bench.shows("@src/parser.rs"), "{:?}", bench.rows());
    bench.keys("se_l\t");
    assert_eq!(bench.app.draft(), "see `parse_line` (src/parser.rs:12) ");
}

#[test]
fn a_symbol_with_many_places_leaves_room_for_others() {
    let mut bench = Bench::working(80, 24);
    bench.keys("see @par");
    bench.app.set_files(Vec::new());
    let symbol = |name: &str, line| SymbolName {
        name: name.to_owned(),
        kind: "fn",
        path: "a.rs".to_owned(),
        line,
    };
    let same = || (1..=9).map(|line| symbol("parse", line));
    bench.app.set_symbols(same().collect());
    bench.draw();
    assert!(bench.shows("`parse` (a.rs:6)"), "{:?}", bench.rows());
    let others = ["parser", "parsed_line"].map(|name| symbol(name, 20));
    bench.app.set_symbols(same().chain(others).collect());
    bench.draw();
    for shown in [
        "parse` (a.rs:4)",
        "parser` (a.rs:20)",
        "parsed_line` (a.rs:20)",
    ] {
        assert!(bench.shows(shown), "{shown}: {:?}", bench.rows());
    }
    assert!(!bench.shows("parse` (a.rs:5)"), "{:?}", bench.rows());
}

#[test]
fn with_reduced_motion_nothing_moves() {
    let settings = AppSettings {
        motion: AnimationLevel::Reduced,
        ..Bench::settings()
    };
    let mut bench = Bench::with_settings(60, 16, settings);
    bench.event(SessionEventKind::State(
        sabir_session::SessionState::Working,
    ));
    bench.event(text("A paragraph that is"));
    assert!(!bench.shows("A paragraph"), "{:?}", bench.rows());
    assert!(!bench.app.is_animated());
    bench.wait(5000);
    bench.draw();
    assert_eq!(bench.frame, "");
    bench.event(text(" whole.\n\nNext\n\nLast"));
    assert!(
        bench.shows("A paragraph that is whole."),
        "{:?}",
        bench.rows()
    );
    assert!(bench.shows("working, Esc stops"), "{:?}", bench.rows());
}

#[test]
fn addresses_and_files_are_links() {
    let mut bench = Bench::working(60, 16);
    bench.event(text("See [the page](https://a.example/x).\n\nNext\n\n"));
    assert!(
        bench
            .frame
            .contains(";https://a.example/x\x1b\\https://a.example/x\x1b]8;;"),
        "{:?}",
        bench.frame
    );
    assert!(
        bench.shows("See the page (https://a.example/x)."),
        "{:?}",
        bench.rows()
    );
}
