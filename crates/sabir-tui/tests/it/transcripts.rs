//! Shows sessions on a screen model, and compares what a person would see.

use sabir_session::agent::{Record, TaskId, TaskOutcome, UserQuestion};
use sabir_session::call::{CallId, ToolResultStatus};
use sabir_session::{
    CloseReason, Command, Decision, Delivery, SessionEventKind, SessionState, StreamEvent,
};
use sabir_tui::app::Effect;
use serde_json::json;

use crate::support::{
    Bench, answered, approval, call, idle, output, record, request_id, result, running, text,
};

fn answer(call: &str, decision: Decision) -> Effect {
    Effect::Submit(Command::Answer {
        request: request_id(call),
        decision,
    })
}

#[test]
fn an_answer_streams_into_the_history() {
    let mut bench = Bench::working(40, 12);
    bench.event(text("# Plan\n\nFirst **this"));
    assert!(bench.shows("Plan"));
    bench.event(text("** and\n- one\n- two"));
    bench.event(answered(
        vec![call("1", "read_file", json!({"path": "src/a.rs"}))],
        Vec::new(),
    ));
    bench.event(running("1"));
    assert!(bench.shows("● read_file src/a.rs"), "{:?}", bench.rows());
    bench.event(result("1", "read_file", ToolResultStatus::Done, "1 | x"));
    assert_eq!(
        bench.rows(),
        [
            "Plan",
            "",
            "First this and",
            "",
            "• one",
            "• two",
            "✓ read_file src/a.rs",
            "› ",
            "working 0 s, Esc stops"
        ]
    );
}

#[test]
fn the_time_of_a_run_begins_with_its_message() {
    let mut bench = Bench::working(60, 12);
    bench.wait(3_000);
    bench.draw();
    assert!(bench.shows("working 3 s"), "{:?}", bench.rows());
    bench.event(SessionEventKind::Request {
        request: request_id("next"),
        question: UserQuestion::Next {
            reason: String::new(),
        },
    });
    assert!(bench.shows("ready"), "{:?}", bench.rows());
    bench.wait(10_000);
    bench.event(SessionEventKind::RequestClosed {
        request: request_id("next"),
        reason: CloseReason::Answered,
    });
    bench.wait(1_000);
    bench.draw();
    assert!(bench.shows("working 1 s"), "{:?}", bench.rows());
    bench.event(idle());
    bench.wait(10_000);
    bench.keys("go on\r");
    bench.event(SessionEventKind::State(SessionState::Working));
    bench.wait(2_000);
    bench.draw();
    assert!(bench.shows("working 2 s"), "{:?}", bench.rows());
}

#[test]
fn an_output_is_folded_and_shown_on_demand() {
    let mut bench = Bench::working(60, 16);
    bench.event(answered(
        vec![call("1", "execute_command", json!({"command": "seq 40"}))],
        Vec::new(),
    ));
    bench.event(running("1"));
    let numbers: String = (1..=40).map(|number| format!("{number}\n")).collect();
    bench.event(output("1", &numbers));
    bench.event(result(
        "1",
        "execute_command",
        ToolResultStatus::Done,
        &numbers,
    ));
    assert!(
        bench.shows("✓ execute_command seq 40\n  … 35 lines (Ctrl-O shows more)\n  │ 36"),
        "{:?}",
        bench.rows()
    );
    bench.keys("\x0f");
    assert!(bench.shows("  │ 30\n  │ 31"), "{:?}", bench.rows());
}

#[test]
fn a_streamed_answer_is_written_about_once() {
    let answer = "I looked at the **parser**, and it reads `1.2.3` as a number. ".repeat(12)
        + "\n\n- the lexer accepts two dots\n- nothing tests an empty file, see [why](https://a.example)\n\n"
        + "```rust\nfn parse(input: &str) -> Result<Vec<Item>, ParseError> {\n    Ok(Vec::new())\n}\n```\n\n";
    let answer = answer.repeat(20);
    let mut bench = Bench::working(120, 40);
    let begun = bench.written;
    let chars: Vec<char> = answer.chars().collect();
    for piece in chars.chunks(80) {
        bench.event(text(&piece.iter().collect::<String>()));
    }
    let written = bench.written - begun;
    assert!(written < answer.len() * 2, "{written} for {}", answer.len());
}

#[test]
fn a_hundred_megabytes_of_output_keep_the_screen_small() {
    let mut bench = Bench::working(80, 24);
    bench.event(answered(
        vec![call("1", "execute_command", json!({"command": "yes"}))],
        Vec::new(),
    ));
    bench.event(running("1"));
    let chunk = "y\n".repeat(32 << 10);
    for round in 0..1600 {
        bench.quiet_event(output("1", &chunk));
        if round % 16 == 0 {
            bench.draw();
        }
    }
    bench.event(result("1", "execute_command", ToolResultStatus::Done, "y"));
    assert!(bench.shows("… 52428795 lines"), "{:?}", bench.rows());
    assert!(bench.written < 100_000, "{} bytes", bench.written);
}

#[test]
fn keys_from_before_a_question_do_not_answer_it() {
    let mut bench = Bench::working(60, 16);
    bench.event(approval("1", "src/a.rs", "+x"));
    // In the moment in which it appears.
    assert_eq!(bench.keys("y"), []);
    assert!(bench.shows("› y"), "{:?}", bench.rows());
    bench.wait(1000);
    // The draft has the focus, until Tab gives it to the question.
    let effects = bench.keys("y\r");
    assert_eq!(effects, [Effect::AddToHistory("yy".to_owned())]);
    assert!(bench.shows("Tab answers"), "{:?}", bench.rows());
    assert!(bench.shows("queued: yy"), "{:?}", bench.rows());
}

#[test]
fn a_question_is_answered_after_a_quiet_moment() {
    let mut bench = Bench::working(60, 16);
    bench.event(approval("1", "src/a.rs", "+x"));
    bench.wait(400);
    assert_eq!(bench.keys("y"), [answer("1", Decision::Allow)]);
    // A second key cannot answer again.
    assert_eq!(bench.keys("y"), []);
    bench.event(approval("2", "src/b.rs", "+x"));
    bench.keys("\x7f");
    bench.wait(400);
    assert_eq!(bench.keys("\tn"), []);
    let effects = bench.keys("use c.rs\r");
    let reason = "use c.rs".to_owned();
    assert_eq!(effects, [answer("2", Decision::Deny { reason })]);
}

#[test]
fn the_exact_thing_is_shown() {
    let mut bench = Bench::working(60, 20);
    bench.event(approval(
        "1",
        "ls \u{202e}hs.live\u{1b}[8m",
        "@@ -1 +1 @@\n-a\n+b",
    ));
    let rows = bench.rows().join("\n");
    assert!(rows.contains("ls <U+202E>hs.live<U+001B>[8m"), "{rows}");
    assert!(rows.contains("    -a\n    +b"), "{rows}");
}

#[test]
fn a_followup_is_answered_by_choice_number_or_text() {
    let question = || SessionEventKind::Request {
        request: request_id("1"),
        question: UserQuestion::Followup {
            call: CallId::new("1"),
            question: "Which one?".to_owned(),
            options: vec!["left".to_owned(), "right".to_owned()],
        },
    };
    let said = |text: &str| {
        answer(
            "1",
            Decision::Text {
                text: text.to_owned(),
                images: Vec::new(),
            },
        )
    };
    for (keys, expected) in [
        ("\x1b[B\x1b[B\r", "right"),
        ("1\r", "left"),
        ("none\r", "none"),
    ] {
        let mut bench = Bench::working(60, 16);
        bench.event(question());
        bench.wait(400);
        let effects = bench.keys(keys.strip_suffix('\r').unwrap());
        assert_eq!(effects, []);
        bench.wait(400);
        let effects = bench.keys("\r");
        assert!(effects.contains(&said(expected)), "{keys:?}: {effects:?}");
    }
}

#[test]
fn messages_are_queued_edited_and_steer() {
    let send = |text: &str, delivery| {
        Effect::Submit(Command::Send {
            message: text.into(),
            delivery,
        })
    };
    let mut bench = Bench::working(60, 16);
    bench.keys("first\r");
    bench.keys("second\r");
    assert!(
        bench.shows("queued: first\nqueued: second"),
        "{:?}",
        bench.rows()
    );
    // The last one is taken back, and queued again.
    bench.keys("\x1b[A");
    assert!(bench.shows("› second"), "{:?}", bench.rows());
    bench.keys(" one\r");
    let effects = bench.event(answered(Vec::new(), Vec::new()));
    assert_eq!(
        effects,
        [
            send("first", Delivery::Queue),
            send("second one", Delivery::Queue)
        ]
    );
    let effects = bench.keys("now\x13");
    assert!(
        effects.contains(&send("now", Delivery::Interrupt)),
        "{effects:?}"
    );
}

#[test]
fn escape_stops_and_control_c_clears_then_leaves() {
    let mut bench = Bench::working(60, 16);
    assert_eq!(bench.keys("\x1b"), [Effect::Submit(Command::Interrupt)]);
    bench.event(idle());
    assert_eq!(bench.keys("draft\x03"), []);
    assert_eq!(bench.app.draft(), "");
    assert_eq!(bench.keys("\x03"), []);
    assert_eq!(bench.keys("\x03"), [Effect::Submit(Command::End)]);
}

#[test]
fn a_file_is_shown_while_it_is_written() {
    let mut bench = Bench::working(60, 16);
    let delta = |event| SessionEventKind::Delta(event);
    bench.event(delta(StreamEvent::CallStart {
        index: 0,
        id: None,
        name: "write_to_file".to_owned(),
        dialect: None,
        at: 0,
        name_at: 0,
    }));
    for (name, value) in [
        ("path", "src/a.rs"),
        ("content", "fn main() {\n    go();\n"),
    ] {
        bench.event(delta(StreamEvent::ArgStart {
            index: 0,
            name: name.to_owned(),
            form: sabir_session::call::ArgumentEncoding::String,
            at: 0,
        }));
        bench.event(delta(StreamEvent::ArgDelta {
            index: 0,
            text: value.to_owned(),
        }));
    }
    let rows = bench.rows().join("\n");
    assert!(
        rows.contains("● write_to_file src/a.rs  2 lines\n  │ fn main() {\n  │     go();"),
        "{rows}"
    );
}

#[test]
fn hostile_text_of_every_sink_reaches_the_screen_clean() {
    let hostile = "x\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2Jy\u{202e}\r\n&#27;[2J";
    let mut bench = Bench::working(60, 30);
    let delta = |text: &str| {
        let text = text.to_owned();
        SessionEventKind::Delta(StreamEvent::Thought { text })
    };
    let events = [
        text(hostile),
        delta(hostile),
        answered(
            vec![call("1", hostile, json!({"command": hostile}))],
            Vec::new(),
        ),
        running("1"),
        output("1", hostile),
        result("1", hostile, ToolResultStatus::Failed, hostile),
        approval("2", hostile, hostile),
    ];
    for event in events {
        bench.event(event);
        check_frame(&bench.frame);
    }
    bench.app.show_notice(hostile);
    bench.input(sabir_tui::keys::TerminalInput::Paste(hostile.to_owned()));
    check_frame(&bench.frame);
    let rows = bench.rows().join("\n");
    assert!(rows.contains("working") || rows.contains("waits"), "{rows}");
    assert!(!rows.contains('\u{202e}'), "{rows}");
}

/// Checks that a frame holds only the sequences that the interface itself writes.
fn check_frame(frame: &str) {
    let mut rest = frame;
    while let Some(at) = rest.find(|c: char| c.is_control()) {
        rest = rest[at..].trim_start_matches(['\r', '\n']);
        // The address of a link is printable, up to its end.
        if let Some(link) = rest.strip_prefix("\x1b]8;") {
            let (target, after) = link.split_once("\x1b\\").unwrap();
            assert!(
                target.bytes().all(|byte| byte.is_ascii_graphic()),
                "{target:?}"
            );
            rest = after;
            continue;
        }
        let Some(sequence) = rest.strip_prefix("\x1b[") else {
            assert!(!rest.starts_with(|c: char| c.is_control()), "{rest:?}");
            continue;
        };
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let whole = &sequence[..=end];
        let is_own = matches!(&whole[end..], "m" | "A" | "B" | "C" | "K" | "L" | "M")
            || matches!(whole, "J" | "?2026h" | "?2026l" | "?25h" | "?25l");
        assert!(is_own, "{whole:?} in {frame:?}");
        rest = &sequence[end + 1..];
    }
}

#[test]
fn a_subtask_is_shown_spoken_to_and_stopped() {
    let mut bench = Bench::working(80, 24);
    let work = answered(
        vec![call("1", "read_file", json!({"path": "src/a.rs"}))],
        Vec::new(),
    );
    bench.subtask_event("child", work);
    assert!(bench.shows("◦ code:"), "{:?}", bench.rows());
    assert!(bench.shows("read_file src/a.rs"), "{:?}", bench.rows());
    bench.keys("/subtasks\r");
    assert!(bench.shows("subtasks 1/1"), "{:?}", bench.rows());
    let stopped = bench.keys("\x18");
    let child = TaskId::new("child");
    assert_eq!(
        stopped,
        [Effect::SubmitTo(child.clone(), Command::Interrupt)]
    );
    bench.keys("/subtasks\r");
    bench.keys("\r");
    assert!(bench.shows("in a subtask, Esc leaves, Ctrl-X stops it"));
    let sent = bench.keys("look at b too\r");
    let is_sent = sent.iter().any(|effect| {
        matches!(effect, Effect::SubmitTo(task, Command::Send { message, .. })
            if *task == child && message.text == "look at b too")
    });
    assert!(is_sent, "{sent:?}");
    bench.subtask_event(
        "child",
        record(Record::Ended {
            outcome: TaskOutcome::Completed,
            message: String::new(),
            used: None,
        }),
    );
    assert!(!bench.shows("◦ code:"), "{:?}", bench.rows());
}

/// A list hides a question that comes, which no key answers before it is drawn.
#[test]
fn a_question_behind_a_list_is_not_answered() {
    let mut bench = Bench::working(80, 24);
    bench.keys("/mode\r");
    assert!(bench.shows("modes 2/2"), "{:?}", bench.rows());
    bench.event(approval("1", "src/a.rs", "+x\n"));
    bench.wait(5000);
    assert!(!bench.shows("src/a.rs"), "{:?}", bench.rows());
    assert_eq!(bench.keys("y"), []);
    bench.keys("\x1b");
    assert!(bench.shows("src/a.rs"), "{:?}", bench.rows());
    // It was drawn just now.
    assert_eq!(bench.keys("y"), []);
    assert!(bench.shows("src/a.rs"), "{:?}", bench.rows());
}
