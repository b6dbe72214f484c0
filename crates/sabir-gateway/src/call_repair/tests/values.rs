//! Tests values: typed by the schema, exact, and independent of how the text is split.

use proptest::prelude::*;
use sabir_call::dialect::Dialect;

use super::super::outgoing_call::{MAX_HELD_JSON, MAX_HELD_START};
use super::*;

#[test]
fn arguments_of_every_dialect_are_typed_in_any_chunks() {
    std::thread::scope(|scope| {
        for dialect in DialectSet::built_in().iter() {
            scope.spawn(move || assert_typed_in_any_chunks(dialect));
        }
    });
}

fn assert_typed_in_any_chunks(dialect: &Dialect) {
    for content in [
        "",
        "x",
        "\n",
        "\nline\n",
        "a < b && \"c\"\n\tü😀 {}",
        "</content>\n<path>evil</path>",
    ] {
        // All dialects are read here, and these bytes are also those of `qwen_coder` and `glm`, in
        // which the line feeds are layout.
        if matches!(dialect.name, "mimo" | "spark25") && content == "\nline\n" {
            continue;
        }
        let arguments = example(content);
        let text = format!(
            "I edit.\n{}",
            render_calls(dialect.name, &[("edit_file", arguments.clone())])
        );
        let check = |pieces: &[&str]| {
            let outcome = run_repair(
                &native(),
                RepairMode::Repair,
                &[&read(pieces, Truncation::Ended)],
            );
            let expected = format!("edit_file {arguments}");
            assert_eq!(
                outcome.calls(),
                [expected],
                "{}: {text} in {} pieces",
                dialect.name,
                pieces.len()
            );
            assert_eq!(
                (outcome.stop(), outcome.error),
                (Some(StopReason::Calls), None),
                "{}",
                dialect.name
            );
            assert_eq!(
                outcome.draft.text().trim_end(),
                "I edit.",
                "{}",
                dialect.name
            );
        };
        check(&[&text]);
        let letters: Vec<&str> = text.split_inclusive(|_| true).collect();
        check(&letters);
        for (at, _) in text.char_indices().filter(|_| content == "\nline\n") {
            let (head, tail) = text.split_at(at);
            check(&[head, tail]);
        }
    }
}

#[test]
fn long_values_are_sent_before_their_end() {
    let content = "line\n".repeat(MAX_HELD_START);
    for dialect in DialectSet::built_in().iter() {
        let text = render_calls(
            dialect.name,
            &[("edit_file", json!({"path": "a", "content": content}))],
        );
        let half = text.len() / 2;
        let seen = Mutex::new((0_usize, 0_usize));
        let mut given = 0;
        let report_event = |_: GatewayEvent<'_>| {};
        let out = |event: Event<'_>| {
            if let Event::ArgDelta { text, .. } = event {
                seen.lock().unwrap().0 += text.len();
            }
        };
        let request = native();
        let mut repairer = CallRepairer::new(
            &request,
            RepairMode::Repair,
            CallDelivery::InPieces,
            RepairLog::new(&report_event),
            out,
        );
        let mut reader = PromptedSink::new(
            DialectSet::built_in().all(),
            &request.tools,
            |event: Event<'_>| repairer.push_event(event),
        );
        for text in sabir_wire::split_text(&text, 100) {
            reader.push_event(Event::Text { text });
            given += text.len();
            let mut seen = seen.lock().unwrap();
            if given > half && seen.1 == 0 {
                seen.1 = seen.0;
            }
        }
        let _ = reader.finish(Truncation::Ended);
        let (all, at_half) = *seen.lock().unwrap();
        assert!(all >= content.len(), "{}: {all}", dialect.name);
        // The parser holds a call without any marker back until it is certain.
        let guessed = ["json", "xlam", "react", "fenced", "pythonic", "phi4"];
        let held = half.saturating_sub(at_half);
        if !guessed.iter().any(|name| dialect.name.contains(name)) {
            assert!(
                held <= MAX_HELD_START + 1500,
                "{}: {held} bytes of {half} are held back",
                dialect.name
            );
        }
    }
}

/// Returns a call with this text between the tags of an argument.
fn between(content: &str) -> String {
    format!("<edit_file><path>a</path><content>{content}</content></edit_file>")
}

#[test]
fn a_first_line_feed_is_kept_if_the_value_is_held_back() {
    let short = repair(&between("\nx"));
    assert_eq!(short.calls(), [r#"edit_file {"path":"a","content":"\nx"}"#]);
    let text = between(&format!("\n{}", "x".repeat(MAX_HELD_START + 1)));
    let long = repair(&text);
    assert!(long.calls()[0].contains(r#""content":"xxx"#));
    assert_eq!(long.report, "first_line_feed=1, leaked_call=1");
    for (way, repair_mode) in [
        (CallDelivery::Whole, RepairMode::Repair),
        (CallDelivery::InPieces, RepairMode::Retry(1)),
    ] {
        let long = run_repair_as(
            way,
            &native(),
            repair_mode,
            &[&read(&[&text], Truncation::Ended)],
        );
        assert!(
            long.calls()[0].contains(r#""content":"\nxxx"#),
            "{way:?} {repair_mode}"
        );
        assert_eq!(long.report, "leaked_call=1", "{way:?} {repair_mode}");
    }
}

#[test]
fn a_value_without_a_first_line_feed_is_sent_at_once() {
    let check = |pieces: &[&str], expected: &[&str]| {
        let (report_event, deltas) = (|_: GatewayEvent<'_>| {}, Mutex::new(Vec::new()));
        let out = |event: Event<'_>| {
            if let Event::ArgDelta { text, .. } = event {
                deltas.lock().unwrap().push(text.to_owned());
            }
        };
        let request = native();
        let mut repairer = CallRepairer::new(
            &request,
            RepairMode::Repair,
            CallDelivery::InPieces,
            RepairLog::new(&report_event),
            out,
        );
        let mut reader = PromptedSink::new(
            DialectSet::built_in().all(),
            &request.tools,
            |event: Event<'_>| repairer.push_event(event),
        );
        pieces
            .iter()
            .for_each(|text| reader.push_event(Event::Text { text }));
        assert_eq!(deltas.lock().unwrap().as_slice(), expected, "{pieces:?}");
    };
    check(&["<edit_file><content>", "le", "t"], &["le", "t"]);
    check(&["<edit_file><content>let"], &["let"]);
    check(&["<edit_file><content>\nlet"], &[]);
    check(&["<edit_file><content>", "\n", "let"], &[]);
    check(&["<edit_file><content>", "\r", "\n", "let"], &[]);
}

#[test]
fn names_and_values_are_repaired() {
    let outcome = repair("<EDIT_FILE><Path>a</Path><count> 3 </count></EDIT_FILE>");
    assert!(outcome.calls().len() <= 1);
    let broken = |arguments: &'static str| {
        let answer = move |sink: &mut dyn EventSink| {
            let mut scanner = sabir_call::json::ArgumentScanner::new(0);
            sink.push_event(Event::CallStart {
                index: 0,
                id: None,
                name: "Edit_File",
                dialect: None,
                at: 0,
                name_at: 0,
            });
            scanner.push(arguments, sink);
            scanner.finish(sink);
            sink.push_event(Event::CallEnd { index: 0, at: 0 });
        };
        run_repair(&native(), RepairMode::Repair, &[&answer])
    };
    let check = |arguments: &'static str, expected: &str, rules: &str| {
        let outcome = broken(arguments);
        assert_eq!(
            outcome.calls(),
            [format!("edit_file {expected}")],
            "{arguments}: {:?}",
            outcome.error
        );
        assert_eq!(
            outcome.report,
            format!("{rules}wrong_case_name=1"),
            "{arguments}"
        );
    };
    check(
        r#"{"path": "a", "count": "3"}"#,
        r#"{"path":"a","count":3}"#,
        "stringified_value=1, ",
    );
    check(
        r#"{"Path": "a", "count": 3.0}"#,
        r#"{"path":"a","count":3}"#,
        "wrong_case_argument=1, ",
    );
    check(
        r#"{"path": "a", "count": null}"#,
        r#"{"path":"a"}"#,
        "null_argument=1, ",
    );
    check(
        r#"{"path": "a", "list": "[\"x\"]"}"#,
        r#"{"path":"a","list":["x"]}"#,
        "double_encoding=1, ",
    );
    check(
        r#"{"path": "a", "list": [ "x", 1]}"#,
        r#"{"path":"a","list":["x",1]}"#,
        "",
    );
    check(
        r#"{"path": "a", "list": ["x",]}"#,
        r#"{"path":"a","list":["x"]}"#,
        "trailing_comma=1, ",
    );
    check(
        r#"{"path": "a", "all": True}"#,
        r#"{"path":"a","all":true}"#,
        "python_literal=1, ",
    );
    check(r#"{"path": "a",}"#, r#"{"path":"a"}"#, "trailing_comma=1, ");
    check(
        "{'path': 'a', 'count': 3}",
        r#"{"path":"a","count":3}"#,
        "single_quotes=1, ",
    );
    check(
        r#""{\"path\": \"a\"}""#,
        r#"{"path":"a"}"#,
        "double_encoding=1, ",
    );
    // The client's schema decides, and its validation reports the error.
    check(
        r#"{"path": 1, "count": "many"}"#,
        r#"{"path":1,"count":"many"}"#,
        "",
    );
    check(r#"{"other": true}"#, r#"{"other":true}"#, "");
    // Unreadable arguments never get their closing bracket.
    for arguments in [
        r#"{"path": "a", oops}"#,
        r#"{"path": oops}"#,
        r#"{"path": "a", "list": [oops]}"#,
        r#"{"path": "a", "path": "b"}"#,
        "oops",
    ] {
        let outcome = broken(arguments);
        assert_eq!(
            (outcome.calls().len(), outcome.stop()),
            (0, None),
            "{arguments}"
        );
        assert_eq!(
            outcome.error.map(|error| error.kind),
            Some(ModelErrorKind::Format),
            "{arguments}"
        );
    }
}

#[test]
fn a_long_list_is_sent_early_while_it_is_strict_json() {
    let list = |end: &'static str| {
        let text = format!("[{}{end}", "\"an item\", ".repeat(MAX_HELD_JSON / 8));
        let answer = move |sink: &mut dyn EventSink| {
            sink.push_event(Event::CallStart {
                index: 0,
                id: None,
                name: "edit_file",
                dialect: None,
                at: 0,
                name_at: 0,
            });
            sink.push_event(Event::ArgStart {
                index: 0,
                name: "list",
                form: ArgumentEncoding::Json,
                at: 0,
            });
            for text in sabir_wire::split_text(&text, 100) {
                sink.push_event(Event::ArgDelta { index: 0, text });
            }
            sink.push_event(Event::ArgEnd {
                index: 0,
                lead: "",
                at: 0,
            });
            sink.push_event(Event::CallEnd { index: 0, at: 0 });
        };
        let outcome = run_repair(&native(), RepairMode::Repair, &[&answer]);
        (
            outcome
                .draft
                .calls()
                .map(|call| call.arguments[0].text.len())
                .sum::<usize>()
                > MAX_HELD_JSON,
            outcome.error.is_some(),
        )
    };
    assert_eq!(list("\"last\"]"), (true, false));
    assert_eq!(list("oops]"), (true, true));
    assert_eq!(list("]"), (true, true));
}

#[test]
fn an_undeclared_tool_waits_for_its_arguments() {
    let named = |name: &'static str| {
        let answer =
            move |sink: &mut dyn EventSink| call(sink, 0, "c", name, &json!({"path": "a"}));
        run_repair(&native(), RepairMode::Repair, &[&answer])
    };
    let near = named("editFile");
    assert_eq!(
        (near.calls(), near.report),
        (
            vec![r#"edit_file {"path":"a"}"#.to_owned()],
            "near_name=1".to_owned()
        )
    );
    let unknown = named("erase");
    assert_eq!(
        (unknown.calls(), unknown.error),
        (vec![r#"erase {"path":"a"}"#.to_owned()], None)
    );
}

/// Generates text between tags, without any tag that could end the value.
fn bodies() -> impl Strategy<Value = String> {
    let feed = || prop::sample::select(vec!["", "\n", "\r\n", "\r", "\n\n", " \n"]);
    let body = prop_oneof![
        "[a-zü \n]{0,20}",
        Just("x".repeat(MAX_HELD_START)),
        Just("a line\n".repeat(40) + "end")
    ];
    (feed(), body, feed()).prop_map(|(before, body, behind)| format!("{before}{body}{behind}"))
}

fn contents() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "\n",
        "</content>",
        "<content>",
        "<",
        "\"",
        "\\",
        "ü",
        "```",
        "}",
        "]",
        "</edit_file>",
        "=",
        " ",
    ];
    let pieces = prop::collection::vec(prop::sample::select(pieces), 0..20)
        .prop_map(|pieces| pieces.concat());
    prop_oneof![pieces, ".{0,40}", Just("long line\n".repeat(200))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_do_not_change_the_result(
        content in contents(), dialect in 0..DialectSet::built_in().iter().count(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let dialect = DialectSet::built_in().iter().nth(dialect).unwrap();
        let arguments = example(&content);
        let calls = [("edit_file", arguments.clone()), ("stop", json!({}))];
        let text = format!("Words <b>.\n{}", render_calls(dialect.name, &calls));
        let mut at: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len()))).collect();
        at.sort_unstable();
        let bounds: Vec<usize> = [0].into_iter().chain(at).chain([text.len()]).collect();
        let pieces: Vec<&str> = bounds.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap()).collect();
        let outcome = run_repair(&native(), RepairMode::Repair, &[&read(&pieces, Truncation::Ended)]);
        let expected = [format!("edit_file {arguments}"), format!("stop {}", Value::Object(Map::new()))];
        prop_assert_eq!(outcome.calls(), expected, "{}: {}", dialect.name, text);
        let retried = run_repair(&native(), RepairMode::Retry(1), &[&read(&pieces, Truncation::Ended)]);
        prop_assert_eq!(retried.calls(), outcome.calls());
    }

    #[test]
    fn values_are_byte_exact(
        body in bodies(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = between(&body);
        let mut at: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len()))).collect();
        at.sort_unstable();
        let bounds: Vec<usize> = [0].into_iter().chain(at).chain([text.len()]).collect();
        let pieces: Vec<&str> = bounds.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap()).collect();
        let pair = ["\r\n", "\n"].iter().find_map(|feed| body.strip_prefix(feed)?.strip_suffix(feed));
        // `\r\n` and a lone `\n` are not a matching pair, in either order.
        let pair = pair.filter(|inner| body.starts_with('\r') || !inner.ends_with('\r'));
        let value = pair.unwrap_or(&body);
        let expected = [format!("edit_file {}", json!({"path": "a", "content": value}))];
        let whole = run_repair_as(CallDelivery::Whole, &native(), RepairMode::Repair, &[&read(&pieces, Truncation::Ended)]);
        prop_assert_eq!(whole.calls(), expected.clone(), "{:?}", text);
        let streamed = repair_in(&pieces);
        if streamed.report.contains("first_line_feed") {
            prop_assert!(pair.is_none() && value.len() > MAX_HELD_START && body.starts_with(['\n', '\r']), "{:?}", text);
            let rest = value.strip_prefix("\r\n").or(value.strip_prefix('\n'));
            prop_assert_eq!(streamed.calls(), [format!("edit_file {}", json!({"path": "a", "content": rest}))]);
        } else {
            prop_assert_eq!(streamed.calls(), expected, "{:?}", text);
        }
    }
}
