//! Tests which calls are sent, how a response ends, and the feedback about the other calls.

use super::*;

#[test]
fn special_tokens_in_thoughts_are_calls() {
    let arguments = json!({"path": "a", "count": 2});
    let thought = format!(
        "I edit. {}",
        render_calls("kimi", &[("edit_file", arguments.clone())])
    );
    let tools = tools();
    let answer = |sink: &mut dyn EventSink| {
        let mut reader =
            PromptedSink::new(DialectSet::built_in().all(), &tools, |event: Event<'_>| {
                sink.push_event(event)
            });
        for text in sabir_wire::split_text(&thought, 5) {
            reader.push_event(Event::Thought { text });
        }
        let _ = reader.finish(Truncation::Ended);
    };
    for repair_mode in [RepairMode::Repair, RepairMode::Retry(1)] {
        let outcome = run_repair(&native(), repair_mode, &[&answer]);
        assert_eq!(
            outcome.calls(),
            [format!("edit_file {arguments}")],
            "{repair_mode}"
        );
        let thoughts = outcome.draft.parts.iter().filter_map(|part| match part {
            sabir_call::DraftPart::Thought(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(
            thoughts.collect::<String>().trim_end(),
            "I edit.",
            "{repair_mode}"
        );
    }
}

/// A model drafts a call in a thought, and then makes it with other arguments, in any form.
#[test]
fn drafts_of_calls_in_thoughts_are_not_sent() {
    let drafted = render_calls("kimi", &[("edit_file", json!({"path": "a", "count": 2}))]);
    let made = json!({"path": "b", "count": 3});
    let in_text = render_calls("kimi", &[("edit_file", made.clone())]);
    let tools = tools();
    for (is_reasoning, is_native) in [(true, true), (true, false), (false, true), (false, false)] {
        let answer = |sink: &mut dyn EventSink| {
            let mut reader =
                PromptedSink::new(DialectSet::built_in().all(), &tools, |event: Event<'_>| {
                    sink.push_event(event)
                });
            let thought = match is_reasoning {
                true => format!("{drafted} Or rather {drafted} b."),
                false => format!("<think>{drafted} Or rather {drafted} b.</think>"),
            };
            for text in sabir_wire::split_text(&thought, 5) {
                reader.push_event(match is_reasoning {
                    true => Event::Thought { text },
                    false => Event::Text { text },
                });
            }
            match is_native {
                true => call(&mut reader, 0, "c1", "edit_file", &made),
                false => {
                    for text in sabir_wire::split_text(&in_text, 5) {
                        reader.push_event(Event::Text { text });
                    }
                }
            }
            let _ = reader.finish(Truncation::Ended);
        };
        for repair_mode in [RepairMode::Repair, RepairMode::Retry(1)] {
            let outcome = run_repair(&native(), repair_mode, &[&answer]);
            assert_eq!(
                outcome.calls(),
                [format!("edit_file {made}")],
                "{repair_mode} {is_reasoning} {is_native}"
            );
        }
    }
}

#[test]
fn a_call_repeated_as_text_is_sent_once() {
    let arguments = json!({"path": "a", "list": ["x", "y"]});
    let as_text = render_calls("hermes", &[("edit_file", arguments.clone())]);
    let tools = tools();
    let both = |text_first: bool, other: &Value| {
        let answer = |sink: &mut dyn EventSink| {
            let mut reader =
                PromptedSink::new(DialectSet::built_in().all(), &tools, |event: Event<'_>| {
                    sink.push_event(event)
                });
            if text_first {
                reader.push_event(Event::Text { text: &as_text });
                call(&mut reader, 0, "c1", "edit_file", other);
            } else {
                call(&mut reader, 0, "c1", "edit_file", other);
                reader.push_event(Event::Text { text: &as_text });
            }
            let _ = reader.finish(Truncation::Ended);
        };
        let outcome = run_repair(&native(), RepairMode::Repair, &[&answer]);
        (
            outcome.calls().len(),
            outcome.report.contains("doubled_call=1"),
        )
    };
    let reordered = json!({"list": ["x", "y"], "path": "a"});
    for text_first in [true, false] {
        assert_eq!(both(text_first, &arguments), (1, true));
        assert_eq!(both(text_first, &reordered), (1, true));
        assert_eq!(both(text_first, &json!({"path": "b"})), (2, false));
    }
    // Two calls with one id: an equal call is dropped, a different one gets a new id.
    let twice = |other: Value| {
        let first = arguments.clone();
        let answer = move |sink: &mut dyn EventSink| {
            call(sink, 0, "c", "edit_file", &first);
            call(sink, 1, "c", "edit_file", &other);
        };
        let outcome = run_repair(&native(), RepairMode::Repair, &[&answer]);
        outcome
            .draft
            .calls()
            .map(|call| call.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(twice(arguments.clone()), [Some("c".to_owned())]);
    assert_eq!(twice(json!({"path": "b"})), [Some("c".to_owned()), None]);
    // Two equal native calls are both sent.
    let alike = |sink: &mut dyn EventSink| {
        call(sink, 0, "c", "stop", &json!({}));
        call(sink, 1, "d", "stop", &json!({}));
    };
    assert_eq!(
        run_repair(&native(), RepairMode::Repair, &[&alike])
            .calls()
            .len(),
        2
    );
}

#[test]
fn parallel_calls_are_dropped_if_one_is_requested() {
    let request = Request {
        parallel_calls: ParallelCalls::One,
        ..native()
    };
    let two = render_calls(
        "cline",
        &[
            ("edit_file", json!({"path": "a"})),
            ("edit_file", json!({"path": "b"})),
        ],
    );
    let spoken = format!(
        "{}\n\n[edit_file]\nDone!",
        render_calls("cline", &[("edit_file", json!({"path": "a"}))])
    );
    for repair_mode in [RepairMode::Repair, RepairMode::Retry(1)] {
        for text in [&two, &spoken] {
            let over = Mutex::new(false);
            let answer = |sink: &mut dyn EventSink| {
                read(&[text], Truncation::Ended)(sink);
                *over.lock().unwrap() = true;
            };
            let outcome = run_repair(&request, repair_mode, &[&answer]);
            assert_eq!(
                outcome.calls(),
                [r#"edit_file {"path":"a"}"#],
                "{repair_mode}"
            );
            assert_eq!(
                (outcome.draft.text().as_str(), outcome.stop()),
                ("", Some(StopReason::Calls)),
                "{repair_mode}"
            );
        }
    }
    // Interleaved native calls: the first is sent to its end.
    let interleaved = |sink: &mut dyn EventSink| {
        let start = |index, id| Event::CallStart {
            index,
            id: Some(id),
            name: "edit_file",
            dialect: None,
            at: 0,
            name_at: 0,
        };
        sink.push_event(start(0, "a"));
        sink.push_event(Event::ArgStart {
            index: 0,
            name: "path",
            form: ArgumentEncoding::String,
            at: 0,
        });
        sink.push_event(start(1, "b"));
        sink.push_event(Event::ArgDelta {
            index: 0,
            text: "x",
        });
        sink.push_event(Event::ArgEnd {
            index: 0,
            lead: "",
            at: 0,
        });
        sink.push_event(Event::CallEnd { index: 0, at: 0 });
        sink.push_event(Event::Text { text: "never" });
    };
    let outcome = run_repair(&request, RepairMode::Repair, &[&interleaved]);
    assert_eq!(
        (outcome.calls(), outcome.draft.text()),
        (vec![r#"edit_file {"path":"x"}"#.to_owned()], String::new())
    );
}

#[test]
fn the_tool_choice_of_the_client_is_enforced() {
    let none = Request {
        tool_choice: ToolChoice::None,
        ..native()
    };
    let unasked = |sink: &mut dyn EventSink| {
        sink.push_event(Event::Text {
            text: "hi <tool_call>",
        });
        call(sink, 0, "c", "stop", &json!({}));
        sink.push_event(Event::Stop {
            reason: StopReason::Calls,
            raw: "tool_calls",
        });
    };
    let outcome = run_repair(&none, RepairMode::Repair, &[&unasked]);
    assert_eq!(
        (outcome.calls().len(), outcome.stop()),
        (0, Some(StopReason::End))
    );
    assert_eq!(
        (outcome.draft.text().as_str(), outcome.report.as_str()),
        ("hi <tool_call>", "unasked_call=1")
    );

    let words = read(&["I think so."], Truncation::Ended);
    let stop = |sink: &mut dyn EventSink| call(sink, 0, "c", "stop", &json!({}));
    let edit = |sink: &mut dyn EventSink| call(sink, 0, "c", "edit_file", &json!({"path": "a"}));
    let required = Request {
        tool_choice: ToolChoice::Required,
        ..native()
    };
    let outcome = run_repair(&required, RepairMode::Retry(1), &[&words, &stop]);
    assert_eq!(
        (outcome.calls(), outcome.draft.text().as_str()),
        (vec!["stop {}".to_owned()], "I think so.")
    );
    assert_eq!(
        run_repair(&required, RepairMode::Repair, &[&words]).stop(),
        Some(StopReason::End)
    );

    let named = Request {
        tool_choice: ToolChoice::Tool("edit_file".into()),
        ..native()
    };
    let outcome = run_repair(&named, RepairMode::Retry(1), &[&stop, &edit]);
    assert_eq!(outcome.calls(), [r#"edit_file {"path":"a"}"#]);
    assert_eq!(outcome.asked.len(), 1);
}

#[test]
fn stop_reasons_follow_the_calls() {
    let check = |calls: u32, said: Option<StopReason>, expected: StopReason| {
        let answer = |sink: &mut dyn EventSink| {
            sink.push_event(Event::Text { text: "hi" });
            (0..calls).for_each(|index| call(sink, index, "", "stop", &json!({})));
            if let Some(reason) = said {
                sink.push_event(Event::Stop {
                    reason,
                    raw: "word",
                });
            }
        };
        assert_eq!(
            run_repair(&native(), RepairMode::Repair, &[&answer]).stop(),
            Some(expected),
            "{calls} {said:?}"
        );
    };
    for said in [
        None,
        Some(StopReason::End),
        Some(StopReason::Calls),
        Some(StopReason::Length),
    ] {
        check(1, said, StopReason::Calls);
    }
    for said in [None, Some(StopReason::End), Some(StopReason::Calls)] {
        check(0, said, StopReason::End);
    }
    check(0, Some(StopReason::Length), StopReason::Length);
    check(0, Some(StopReason::Refused), StopReason::Refused);
}

#[test]
fn a_cut_call_ends_in_an_error_wherever_it_is_cut() {
    for dialect in DialectSet::built_in().iter() {
        let text = render_calls(
            dialect.name,
            &[(
                "edit_file",
                json!({"path": "a.rs", "content": "fn main() {}\n"}),
            )],
        );
        for (at, _) in text.char_indices() {
            let (text, _) = text.split_at(at);
            for why in [Truncation::Limit, Truncation::Ended]
                .into_iter()
                .take(1 + usize::from(at % 8 == 0))
            {
                let outcome = run_repair(&native(), RepairMode::Repair, &[&read(&[text], why)]);
                if let Some(error) = &outcome.error {
                    assert_eq!(
                        (outcome.calls().len(), outcome.stop()),
                        (0, None),
                        "{}: {}",
                        dialect.name,
                        text
                    );
                    let kind = if why == Truncation::Limit {
                        ModelErrorKind::Rejected
                    } else {
                        ModelErrorKind::Format
                    };
                    assert_eq!(error.kind, kind, "{}", text);
                } else if !outcome.calls().is_empty() {
                    // Only optional parts are missing: brackets and tags after a call that is
                    // whole.
                    let expected = [r#"edit_file {"path":"a.rs","content":"fn main() {}\n"}"#];
                    assert_eq!(outcome.calls(), expected, "{}: {}", dialect.name, text);
                }
            }
        }
    }
}

#[test]
fn a_retry_sends_the_model_feedback_about_its_faults() {
    let usage = |sink: &mut dyn EventSink| {
        sink.push_event(Event::Usage(Usage {
            output: Some(10),
            ..Usage::default()
        }))
    };
    let wrong = |sink: &mut dyn EventSink| {
        read(
            &["First. <edit_file><count>1</count></edit_file>"],
            Truncation::Ended,
        )(sink);
        usage(sink);
    };
    let right = |sink: &mut dyn EventSink| {
        read(
            &[
                "Second. ",
                &render_calls("cline", &[("edit_file", json!({"path": "a", "count": 1}))]),
            ],
            Truncation::Ended,
        )(sink);
        usage(sink);
    };
    for protocol in [ToolProtocol::Native, ToolProtocol::Prompted("cline".into())] {
        let request = Request {
            protocol,
            ..native()
        };
        let outcome = run_repair(&request, RepairMode::Retry(2), &[&wrong, &wrong, &right]);
        assert_eq!(outcome.calls(), [r#"edit_file {"path":"a","count":1}"#]);
        assert_eq!(outcome.draft.text(), "First. First. Second. ");
        assert_eq!(
            (outcome.draft.usage.output, outcome.stop()),
            (Some(30), Some(StopReason::Calls))
        );
        assert!(
            outcome.report.starts_with("asked_again=2"),
            "{}",
            outcome.report
        );
        let [first, second] = outcome.asked.as_slice() else {
            panic!("{}", outcome.asked.len())
        };
        let [_, said, told] = first.messages.as_slice() else {
            panic!("{:?}", first.messages)
        };
        assert!(matches!(
            said.parts.as_slice(),
            [MessagePart::Text { .. }, MessagePart::Call(_)]
        ));
        let [MessagePart::Result(result)] = told.parts.as_slice() else {
            panic!("{told:?}")
        };
        assert!(result.content.contains("`path`"), "{}", result.content);
        assert_eq!(second.messages.len(), 5);
    }
    // After the last retry the text is sent, or the error.
    let outcome = run_repair(&native(), RepairMode::Retry(1), &[&wrong, &wrong]);
    assert_eq!(
        (
            outcome.calls().len(),
            outcome.stop(),
            outcome.error.is_none()
        ),
        (0, Some(StopReason::End), true)
    );
    let silent = |sink: &mut dyn EventSink| call(sink, 0, "c", "edit_file", &json!({}));
    let outcome = run_repair(&native(), RepairMode::Retry(1), &[&silent, &silent]);
    assert_eq!(
        (
            outcome.calls().len(),
            outcome.stop(),
            outcome.error.is_some()
        ),
        (0, None, true)
    );
}

#[test]
fn calls_before_a_broken_one_are_sent_and_later_ones_are_not() {
    let answer = |sink: &mut dyn EventSink| {
        call(sink, 0, "a", "edit_file", &json!({"path": "a"}));
        call(sink, 1, "b", "edit_file", &json!({}));
        call(sink, 2, "c", "stop", &json!({}));
    };
    let outcome = run_repair(&native(), RepairMode::Retry(1), &[&answer]);
    assert_eq!(
        (outcome.calls(), outcome.asked.len()),
        (vec![r#"edit_file {"path":"a"}"#.to_owned()], 0)
    );
    assert_eq!(
        (outcome.stop(), outcome.report.as_str()),
        (Some(StopReason::Calls), "dropped_call=1")
    );
}

#[test]
fn text_that_begins_like_a_marker_is_kept() {
    let check = |text: &str, why: Truncation, expected: &str| {
        for repair_mode in [RepairMode::Repair, RepairMode::Retry(1)] {
            for pieces in [vec![text], text.split_inclusive(|_| true).collect()] {
                let outcome = run_repair(&native(), repair_mode, &[&read(&pieces, why)]);
                assert_eq!(
                    (outcome.draft.text().as_str(), outcome.error),
                    (expected, None),
                    "{text:?} {why:?}"
                );
            }
        }
    };
    for text in [
        "Write <fun",
        "Write <tool_ca",
        "See [TOOL",
        "An <edit_fi",
        "Open <inv",
        "Vec<too",
    ] {
        check(text, Truncation::Ended, text);
    }
    check("Write <tool_call>", Truncation::Ended, "Write ");
    check("Write <|tool_ca", Truncation::Ended, "Write ");
    check("Write <tool_ca", Truncation::Limit, "Write ");
}

#[test]
fn pass_mode_changes_nothing() {
    let answer = |sink: &mut dyn EventSink| {
        sink.push_event(Event::Text {
            text: "<tool_call><|im_end|>",
        });
        call(sink, 0, "c", "Edit_File", &json!({"count": "3"}));
        sink.push_event(Event::Stop {
            reason: StopReason::End,
            raw: "stop",
        });
    };
    let outcome = run_repair(&native(), RepairMode::Pass, &[&answer]);
    assert_eq!(outcome.calls(), [r#"Edit_File {"count":"3"}"#]);
    assert_eq!(
        (outcome.draft.text().as_str(), outcome.stop()),
        ("<tool_call><|im_end|>", Some(StopReason::End))
    );
}

#[test]
fn repair_modes_parse_from_their_display_text() {
    for repair_mode in [
        RepairMode::Pass,
        RepairMode::Repair,
        RepairMode::Retry(1),
        RepairMode::Retry(9),
    ] {
        assert_eq!(repair_mode.to_string().parse(), Ok(repair_mode));
    }
    assert_eq!("retry".parse(), Ok(RepairMode::Retry(1)));
    assert_eq!("heal".parse(), Ok(RepairMode::Repair));
    for wrong in [
        "", "retry 0", "retry 10", "retry x", "retry2", "repair 2", "Pass", "retries",
    ] {
        assert!(wrong.parse::<RepairMode>().is_err(), "{wrong}");
    }
}
