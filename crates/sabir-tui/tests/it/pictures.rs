//! Takes pictures of the interface from the screen model, and compares them with those in `docs/tui-screens.md`.
//!
//! `SABIR_RENEW=1 cargo test -p sabir-tui --test it pictures` takes them anew.

use sabir_session::SessionEventKind;
use sabir_session::StreamEvent;
use sabir_session::agent::UserQuestion;
use sabir_session::call::{ArgumentEncoding, CallId, ToolResultStatus};
use sabir_tui::app::ChangedFile;
use sabir_tui::keys::TerminalInput;
use sabir_tui::picker::{CheckpointedCall, PickedItem, PickerItem};
use serde_json::json;

use crate::support::{
    Bench, answered, approval, call, idle, output, request_id, result, running, text,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tui-screens.md");

/// A picture with its caption.
struct Picture {
    caption: &'static str,
    rows: Vec<String>,
}

impl Picture {
    fn of(caption: &'static str, bench: &Bench) -> Self {
        let rows = bench.rows();
        Self {
            caption,
            rows: rows.iter().map(|row| row.trim_end().to_owned()).collect(),
        }
    }
}

fn stream_call(bench: &mut Bench, name: &str, arguments: &[(&str, &str)]) {
    let mut push = |event| {
        bench.event(SessionEventKind::Delta(event));
    };
    push(StreamEvent::CallStart {
        index: 0,
        id: None,
        name: name.to_owned(),
        dialect: None,
        at: 0,
        name_at: 0,
    });
    for (name, value) in arguments {
        push(StreamEvent::ArgStart {
            index: 0,
            name: (*name).to_owned(),
            form: ArgumentEncoding::String,
            at: 0,
        });
        push(StreamEvent::ArgDelta {
            index: 0,
            text: (*value).to_owned(),
        });
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one scene after the other, each from the state before"
)]
fn take_pictures() -> Vec<Picture> {
    let mut pictures = Vec::new();
    let mut first = Bench::new(76, 20);
    first.keys("fix the heading of the report");
    pictures.push(Picture::of("The first message.", &first));

    let mut work = Bench::working(76, 24);
    work.event(text(
        "I look at the **test** first.\n\n| file | lines |\n|---|--:|\n| `src/report.rs` | 120 |\n| `tests/report.rs` | 40 |\n\n",
    ));
    let read = call("1", "read_file", json!({"path": "src/report.rs"}));
    let run = call(
        "2",
        "execute_command",
        json!({"command": "cargo test report"}),
    );
    work.event(answered(vec![read, run], Vec::new()));
    work.event(running("1"));
    work.event(result("1", "read_file", ToolResultStatus::Done, "1 | x"));
    work.event(running("2"));
    work.event(output(
        "2",
        "running 2 tests\ntest heading ... FAILED\ntest body ... ok\n",
    ));
    work.wait(7000);
    work.keys("look at the date as well");
    pictures.push(Picture::of(
        "A command runs while the user types the next message.",
        &work,
    ));

    work.keys("\r");
    work.event(result(
        "2",
        "execute_command",
        ToolResultStatus::Failed,
        "exit code 101\ntest heading ... FAILED",
    ));
    stream_call(
        &mut work,
        "write_to_file",
        &[
            ("path", "src/heading.rs"),
            (
                "content",
                "//! Writes headings.\n\npub fn heading(title: &str) -> String {\n    format!(\"# {tit",
            ),
        ],
    );
    pictures.push(Picture::of(
        "A file appears while the model writes it; a message waits in the queue.",
        &work,
    ));

    let mut asked = Bench::working(76, 20);
    asked.event(approval(
        "1",
        "src/heading.rs",
        "@@ -1,3 +1,3 @@\n fn heading() {\n-    \"report\"\n+    \"Report\"\n }",
    ));
    pictures.push(Picture::of("An edit is approved.", &asked));
    asked.wait(500);
    asked.keys("n");
    asked.keys("say Yearly report");
    pictures.push(Picture::of("It is refused, with a reason.", &asked));

    let mut long = Bench::working(76, 16);
    long.event(approval("1", "data/list.txt", &"+line\n".repeat(80)));
    pictures.push(Picture::of(
        "What does not fit can be allowed only after all of it was shown.",
        &long,
    ));

    let mut choice = Bench::working(76, 14);
    choice.event(SessionEventKind::Request {
        request: request_id("1"),
        question: UserQuestion::Followup {
            call: CallId::new("1"),
            question: "Which format should the date have?".to_owned(),
            options: vec!["2026-11-23".to_owned(), "23 November 2026".to_owned()],
        },
    });
    choice.wait(500);
    choice.keys("\x1b[B");
    pictures.push(Picture::of("The model asks.", &choice));

    let mut done = Bench::working(76, 22);
    stream_call(
        &mut done,
        "attempt_completion",
        &[(
            "result",
            "The heading is right:\n\n- `Report` has a capital letter\n- the date follows\n\n```sh\ncargo test report\n```\n",
        )],
    );
    done.event(SessionEventKind::Delta(StreamEvent::CallEnd {
        index: 0,
        at: 0,
    }));
    done.event(SessionEventKind::Request {
        request: request_id("9"),
        question: UserQuestion::Completion {
            call: CallId::new("9"),
            result: String::new(),
        },
    });
    pictures.push(Picture::of("The result is reviewed.", &done));

    let mut pasted = Bench::new(76, 12);
    pasted.keys("why does this fail? ");
    pasted.input(TerminalInput::Paste("error: something\n".repeat(4000)));
    pictures.push(Picture::of("A long paste is folded.", &pasted));

    let mut complete = Bench::working(76, 14);
    complete.event(idle());
    complete.keys("/co");
    pictures.push(Picture::of("Commands are completed.", &complete));

    let mut diff = Bench::working(76, 16);
    diff.app.show_diff("1 changed path", &[ChangedFile {
        path: "src/heading.rs".to_owned(),
        diff: "--- a/x\n+++ b/x\n@@ -9,4 +9,5 @@\n fn heading() {\n-    let title = \"report\";\n+    let title = \"Report\";\n+    check(title);\n     write(title)\n }\n".to_owned(),
    }]);
    diff.draw();
    pictures.push(Picture::of(
        "`/diff` shows what the task has changed.",
        &diff,
    ));

    let mut themes = Bench::new(76, 20);
    themes.keys("/theme\r\x1b[B\x1b[B");
    pictures.push(Picture::of(
        "`/theme` lists the themes; the selected one is shown at once.",
        &themes,
    ));

    let mut checkpoints = Bench::working(76, 20);
    let checkpoint = |number| CheckpointedCall {
        number,
        call: String::new(),
    };
    let items = [(2, "src/heading.rs"), (1, "src/report.rs")];
    let items = items.map(|(number, path)| PickerItem {
        label: format!("@{number} write_to_file {path}"),
        note: format!("{number} min ago"),
        preview: String::new(),
        item: PickedItem::Checkpoint(checkpoint(number)),
    });
    let open = &mut checkpoints.app;
    open.open_picker("checkpoints", "", items.to_vec());
    open.set_checkpoint_preview(
        &checkpoint(2),
        "--- a/src/heading.rs\n+++ b/src/heading.rs\n@@ -10 +10 @@\n-    let title = \"report\";\n+    let title = \"Report\";\n",
    );
    checkpoints.draw();
    pictures.push(Picture::of(
        "`/checkpoints` shows what each call changed.",
        &checkpoints,
    ));

    let mut entered = Bench::working(76, 20);
    let read = call("1", "read_file", json!({"path": "src/dates.rs"}));
    entered.subtask_event("child", answered(vec![read], Vec::new()));
    entered.subtask_event("child", running("1"));
    entered.subtask_event(
        "child",
        result("1", "read_file", ToolResultStatus::Done, ""),
    );
    entered.keys("/subtasks\r\r");
    entered.subtask_event("child", text("The dates have three formats.\n\nNow the"));
    entered.keys("tell me which");
    pictures.push(Picture::of(
        "A subtask is entered; messages go to it.",
        &entered,
    ));

    let mut narrow = Bench::working(28, 16);
    narrow.event(text(
        "A narrow screen of 28 columns has **everything** as well.\n\n- 世界 and 🙂\n\n",
    ));
    narrow.event(approval("1", "src/a.rs", "+x"));
    pictures.push(Picture::of("A narrow terminal.", &narrow));
    pictures
}

#[test]
fn the_pictures_in_the_documentation_are_those_of_the_interface() {
    let mut page = String::from(
        "# Screens of the full interface\n\nTaken from the interface before a model of a screen; a test compares them. [The full interface](tui.md) says what the keys do.\n",
    );
    for Picture { caption, rows } in take_pictures() {
        page.push_str(&format!(
            "\n{caption}\n\n```text\n{}\n```\n",
            rows.join("\n")
        ));
    }
    if std::env::var_os("SABIR_RENEW").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let known = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(known, page, "SABIR_RENEW=1 takes the pictures anew");
}
