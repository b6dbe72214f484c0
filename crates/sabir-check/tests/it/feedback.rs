//! Tests feedback as the model reads it: in its own dialect, different for repeated mistakes, and bounded in length.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which may panic like the tests"
)]

use sabir_call::dialect::DialectSet;
use sabir_call::{
    ArgumentEncoding, CallReader, DraftResponse, Event, EventSink, ToolProtocol, ToolSet,
    Truncation,
};
use sabir_check::{
    CallChecker, CallState, CheckedCall, CheckedOutcome, FEEDBACK_CAP, FeedbackContext,
    MistakeCounter, render_feedback,
};

const TOOLS: &str = r#"[
 {"name": "read_file", "parameters": {"type": "object", "required": ["path"], "properties":
   {"path": {"type": "string"}, "start_line": {"type": "integer", "minimum": 1}}}},
 {"name": "write_to_file", "parameters": {"type": "object", "required": ["path", "content"], "properties":
   {"path": {"type": "string"}, "content": {"type": "string"}}}},
 {"name": "replace_in_file", "parameters": {"type": "object", "required": ["path", "diff"], "properties":
   {"path": {"type": "string"}, "diff": {"type": "string"}}}},
 {"name": "ask_followup_question", "parameters": {"type": "object", "required": ["question"], "properties":
   {"question": {"type": "string"}}}},
 {"name": "plan", "parameters": {"type": "object", "required": ["title", "items"], "properties":
   {"title": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}, "done": {"type": "boolean"}}}}
]"#;

/// A draft of one call whose arguments are raw.
fn draft(name: &str, arguments: &[(&str, &str)], end: Option<Truncation>) -> DraftResponse {
    let mut draft = DraftResponse::default();
    draft.push_event(Event::CallStart {
        index: 0,
        id: None,
        name,
        dialect: Some("cline"),
        at: 0,
        name_at: 1,
    });
    for (name, text) in arguments {
        draft.push_event(Event::ArgStart {
            index: 0,
            name,
            form: ArgumentEncoding::Raw,
            at: 2,
        });
        draft.push_event(Event::ArgDelta { index: 0, text });
        draft.push_event(Event::ArgEnd {
            index: 0,
            lead: "",
            at: 2,
        });
    }
    draft.push_event(match end {
        None => Event::CallEnd { index: 0, at: 3 },
        Some(why) => Event::CallCut {
            index: 0,
            why,
            at: 3,
        },
    });
    draft
}

fn note(told: &mut MistakeCounter, checked: &[CheckedCall]) {
    told.record_message(checked.iter().map(|call| CheckedOutcome {
        tool: &call.name,
        passed: call.state == CallState::Complete,
        faults: &call.faults,
    }));
}

/// Renders the feedback on the same call for the first, the second and the third time.
fn times(
    protocol: &ToolProtocol,
    name: &str,
    arguments: &[(&str, &str)],
    end: Option<Truncation>,
) -> [String; 3] {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let checked = CallChecker::new(tools.clone()).check_all(&draft(name, arguments, end));
    let mut told = MistakeCounter::default();
    [(); 3].map(|()| {
        let words = render_feedback(
            &checked,
            &[],
            "<call>",
            &FeedbackContext {
                protocol,
                dialects: DialectSet::built_in(),
                tools: &tools,
                repetition: &told,
            },
        )
        .unwrap();
        assert!(words.len() <= FEEDBACK_CAP);
        note(&mut told, &checked);
        words
    })
}

#[test]
fn feedback_on_a_repeated_mistake_changes() {
    let native = ToolProtocol::Native;
    let [first, second, third] = times(
        &native,
        "read_file",
        &[("path", "src/a.rs"), ("start_line", "ten")],
        None,
    );
    assert_eq!(
        first,
        "Your call 1 (`read_file`) was not run.\nerror[wrong_type]: `start_line` must be an integer, but is \"ten\"\n --> line 1, column 3\n  |\n1 | <call>\n  |   ^\n  = hint: write an integer in `start_line`\nCorrect arguments of `read_file`:\n{\"path\":\"text\"}\n"
    );
    assert!(
        second.starts_with(
            "Your call 1 (`read_file`) was not run: the same mistake for the 2nd time.\n"
        ),
        "{second}"
    );
    assert!(second.ends_with("  |   ^\n  = hint: write an integer in `start_line`\nCorrect arguments of `read_file`:\n{\"path\":\"src/a.rs\"}\n"), "{second}");
    assert_eq!(
        third,
        "Your call 1 (`read_file`) was not run: the same mistake for the 3rd time.\nerror[wrong_type]: `start_line` must be an integer, but is \"ten\" (write an integer in `start_line`)\nDo not write this call again in the same way. Instead:\n- ask the user what to do, with `ask_followup_question`\nCorrect arguments of `read_file`:\n{\"path\":\"text\"}\n"
    );
}

type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

#[test]
fn corrected_calls_keep_only_valid_short_values() {
    let long = "x".repeat(500);
    // (tool, arguments, the arguments shown the second time)
    let rows: [Row<'_>; 7] = [
        (
            "write_to_file",
            &[("path", "a.rs"), ("mode", "x")],
            r#"{"path":"a.rs","content":"text"}"#,
        ),
        (
            "write_to_file",
            &[("path", "PARAM_VALUE"), ("content", "ok")],
            r#"{"path":"text","content":"ok"}"#,
        ),
        (
            "write_to_file",
            &[("path", "a"), ("content", &long), ("mode", "x")],
            r#"{"path":"a","content":"text"}"#,
        ),
        (
            "write_to_file",
            &[("path", "a"), ("content", "</content>"), ("mode", "x")],
            r#"{"path":"a","content":"text"}"#,
        ),
        (
            "plan",
            &[
                ("title", "t"),
                ("items", "[\"a\", \"b\"]"),
                ("done", "maybe"),
            ],
            r#"{"title":"t","items":["a","b"]}"#,
        ),
        (
            "plan",
            &[("items", "[1]"), ("done", "true")],
            r#"{"title":"text","items":["text"],"done":true}"#,
        ),
        (
            "writ_to_fil",
            &[("path", "a.rs"), ("content", "b")],
            r#"{"path":"a.rs","content":"b"}"#,
        ),
    ];
    for (tool, arguments, expected) in rows {
        let [_, second, third] = times(&ToolProtocol::Native, tool, arguments, None);
        assert_eq!(second.lines().last().unwrap(), expected, "{second}");
        assert!(!third.contains(&long) && !second.contains(&long));
    }
}

#[test]
fn the_third_mistake_suggests_alternatives() {
    let long = "line\n".repeat(2_000);
    let cut = times(
        &ToolProtocol::Native,
        "write_to_file",
        &[("path", "a"), ("content", &long)],
        Some(Truncation::Limit),
    );
    assert!(
        cut.iter()
            .all(|words| !words.contains("line\\nline\\nline\\nline\\nline\\nline"))
    );
    let rows = [
        (
            &cut,
            "- write a short beginning with `write_to_file`, then add the rest in pieces, with `replace_in_file`\n- ask the user",
        ),
        (
            &times(
                &ToolProtocol::Native,
                "write_to_file",
                &[("path", "a")],
                None,
            ),
            "- if the file is there, change only the lines that differ, with `replace_in_file`\n- ask",
        ),
        (
            &times(
                &ToolProtocol::Native,
                "replace_in_file",
                &[("path", "a")],
                None,
            ),
            "with `write_to_file`\n- ask",
        ),
        (
            &times(&ToolProtocol::Native, "grep", &[], None),
            "- use a tool that there is: `read_file`, `write_to_file`",
        ),
        (
            &times(&ToolProtocol::Native, "ask_followup_question", &[], None),
            "- make the smallest call",
        ),
    ];
    for (words, expected) in rows {
        assert!(words[2].contains(expected), "{}", words[2]);
        assert!(!words[0].contains("Instead:") && !words[1].contains("Instead:"));
    }
}

#[test]
fn a_call_that_passes_ends_the_count() {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let checker = CallChecker::new(tools.clone());
    let (bad, good) = (
        draft("read_file", &[], None),
        draft("read_file", &[("path", "a")], None),
    );
    let (bad, good) = (checker.check_all(&bad), checker.check_all(&good));
    let mut told = MistakeCounter::default();
    for (note_good, expected) in [
        (false, ""),
        (false, "2nd"),
        (true, ""),
        (false, "2nd"),
        (false, "3rd"),
        (false, "4th"),
    ] {
        if note_good {
            note(&mut told, &good);
        }
        let words = render_feedback(
            &bad,
            &[],
            "",
            &FeedbackContext {
                protocol: &ToolProtocol::Native,
                dialects: DialectSet::built_in(),
                tools: &tools,
                repetition: &told,
            },
        )
        .unwrap();
        let head = words.lines().next().unwrap();
        assert_eq!(
            head.split_once("for the ")
                .map_or("", |(_, time)| time.split(' ').next().unwrap()),
            expected
        );
        note(&mut told, &bad);
    }
}

#[test]
fn corrected_calls_are_valid_in_every_dialect() {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    for dialect in DialectSet::built_in().iter() {
        let protocol = ToolProtocol::Prompted(dialect.name.to_owned());
        let calls: [(&str, &[(&str, &str)]); 3] = [
            (
                "plan",
                &[
                    ("title", "a & b \"c\" > d"),
                    ("items", "[\"x\", \"y's\"]"),
                    ("done", "no"),
                ],
            ),
            ("write_to_file", &[("path", "a.rs")]),
            ("raed_fil", &[("path", "a b.rs")]),
        ];
        for (name, arguments) in calls {
            for words in times(&protocol, name, arguments, None) {
                let (_, shown) = words.split_once("A correct call of ").unwrap();
                let (tool, shown) = shown.split_once(":\n").unwrap();
                let mut draft = DraftResponse::default();
                let mut reader =
                    CallReader::new(DialectSet::built_in().select(dialect.name).unwrap(), &tools);
                reader.push(shown, &mut draft);
                reader.finish(Truncation::Ended, &mut draft);
                let checked = CallChecker::new(tools.clone()).check_all(&draft);
                let [call] = &checked[..] else {
                    panic!("{}: {shown}", dialect.name)
                };
                assert_eq!(
                    (format!("`{}`", call.name).as_str(), call.state),
                    (tool, CallState::Complete),
                    "{shown}"
                );
                assert_eq!((call.repairs.len(), draft.faults.len()), (0, 0), "{shown}");
            }
        }
    }
}
