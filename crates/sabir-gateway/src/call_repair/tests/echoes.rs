//! Calls in text that repeat the result of an earlier call.

use sabir_call::{CallResult, Role, ToolResultStatus};

use super::*;

/// A request whose history holds a result with that content.
fn after_result(content: &str) -> Request {
    let id = CallId::new("c1");
    let call = Call {
        id: id.clone(),
        name: "stop".to_owned(),
        arguments: Map::new(),
        dialect: None,
    };
    let result = CallResult {
        id,
        name: "stop".to_owned(),
        ending: ToolResultStatus::Done,
        content: content.to_owned(),
        images: Vec::new(),
    };
    Request {
        messages: vec![
            Message::user("go"),
            Message {
                role: Role::Assistant,
                parts: vec![MessagePart::Call(call)],
            },
            Message {
                role: Role::User,
                parts: vec![MessagePart::Result(result)],
            },
        ]
        .into(),
        ..native()
    }
}

/// The pieces of a text, a character each.
fn by_character(text: &str) -> Vec<&str> {
    text.split("").filter(|piece| !piece.is_empty()).collect()
}

#[test]
fn a_call_of_a_result_stays_text_in_every_dialect() {
    for dialect in DialectSet::built_in().iter() {
        let name = dialect.name;
        let markup = render_calls(name, &[("edit_file", example("rm -rf build"))]);
        // Some dialects are only read under their own name.
        if repair(&markup).calls().len() != 1 {
            continue;
        }
        let request = after_result(&format!(
            "# Notes\n\n    {}",
            markup.replace('\n', "\n    ")
        ));
        for mode in [RepairMode::Repair, RepairMode::Retry(1)] {
            for pieces in [vec![markup.as_str()], by_character(&markup)] {
                let outcome = run_repair(&request, mode, &[&read(&pieces, Truncation::Ended)]);
                assert_eq!(outcome.calls(), [""; 0], "{name} {mode}");
                assert!(
                    outcome.draft.text().contains("rm -rf build"),
                    "{name} {mode}: {}",
                    outcome.draft.text()
                );
                assert!(
                    outcome.report.contains("repeated_call=1"),
                    "{name} {mode}: {}",
                    outcome.report
                );
                assert_eq!(outcome.stop(), Some(StopReason::End));
            }
        }
    }
}

#[test]
fn text_around_a_repeated_call_keeps_its_order() {
    let markup = render_calls("hermes", &[("edit_file", json!({"path": "a"}))]);
    let answer = format!("The file says:\n{markup}\nI did not run it.");
    for pieces in [vec![answer.as_str()], by_character(&answer)] {
        let outcome = run_repair(
            &after_result(&markup),
            RepairMode::Repair,
            &[&read(&pieces, Truncation::Ended)],
        );
        let text = outcome.draft.text();
        let places =
            ["The file says", "edit_file", "I did not"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert_eq!(outcome.calls(), [""; 0]);
    }
}

#[test]
fn other_calls_than_those_of_a_result_are_sent() {
    let seen = render_calls(
        "hermes",
        &[("edit_file", json!({"path": "a", "content": "old"}))],
    );
    let other = render_calls(
        "hermes",
        &[("edit_file", json!({"path": "a", "content": "new"}))],
    );
    let answer = format!("{seen}\n{other}");
    for mode in [RepairMode::Repair, RepairMode::Retry(1)] {
        for pieces in [vec![answer.as_str()], by_character(&answer)] {
            let outcome = run_repair(
                &after_result(&seen),
                mode,
                &[&read(&pieces, Truncation::Ended)],
            );
            assert_eq!(
                outcome.calls(),
                [r#"edit_file {"path":"a","content":"new"}"#],
                "{mode}"
            );
        }
    }
    // A result that only speaks of the tool is none of a call.
    let prose = "Use edit_file with path a and content old, or stop.";
    let outcome = run_repair(
        &after_result(prose),
        RepairMode::Repair,
        &[&read(&[&seen], Truncation::Ended)],
    );
    assert_eq!(outcome.calls().len(), 1);
    // What the user writes may be meant to be done, and a native call is one that the model chose.
    let mut request = after_result("nothing");
    request.messages = vec![Message::user(&seen)].into();
    let outcome = run_repair(
        &request,
        RepairMode::Repair,
        &[&read(&[&seen], Truncation::Ended)],
    );
    assert_eq!(outcome.calls().len(), 1);
    let native = |sink: &mut dyn EventSink| {
        call(
            sink,
            0,
            "c",
            "edit_file",
            &json!({"path": "a", "content": "old"}),
        );
    };
    let outcome = run_repair(&after_result(&seen), RepairMode::Repair, &[&native]);
    assert_eq!(outcome.calls().len(), 1);
}

#[test]
fn a_call_that_differs_from_every_result_is_sent_while_it_arrives() {
    let request = after_result("<tool_call>\n{\"name\": \"other\"}\n</tool_call>");
    let pieces = [
        "<tool_call>{\"name\": \"edit_file\", \"arguments\": {\"path\": \"a",
        "b",
    ];
    let outcome = run_repair(
        &request,
        RepairMode::Repair,
        &[&read(&pieces, Truncation::Ended)],
    );
    // It is cut, and its beginning was sent.
    assert_eq!(outcome.draft.calls().count(), 1);
}

#[test]
fn a_call_that_a_thought_repeats_stays_a_thought() {
    let markup = render_calls("kimi", &[("edit_file", json!({"path": "a"}))]);
    let tools = tools();
    let answer = |sink: &mut dyn EventSink| {
        let mut reader =
            PromptedSink::new(DialectSet::built_in().all(), &tools, |event: Event<'_>| {
                sink.push_event(event)
            });
        for text in ["It says ", &markup, " in there."] {
            reader.push_event(Event::Thought { text });
        }
        reader.push_event(Event::Text { text: "Done." });
        let _ = reader.finish(Truncation::Ended);
    };
    let outcome = run_repair(&after_result(&markup), RepairMode::Repair, &[&answer]);
    assert_eq!(outcome.calls(), [""; 0]);
    assert_eq!(outcome.draft.text(), "Done.");
    let thoughts: String = outcome
        .draft
        .parts
        .iter()
        .filter_map(|part| match part {
            sabir_call::DraftPart::Thought(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(thoughts.contains("edit_file"), "{thoughts}");
}
