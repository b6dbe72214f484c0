//! Checks that chunk boundaries never change the result, on any text and any bytes.

use proptest::prelude::*;
use sabir_call::dialect::{DialectSelection, DialectSet};
use sabir_call::{CallReader, Event, ToolSet, Truncation};

use crate::notation::{lines, read_chunks};

pub(crate) fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "read_file", "parameters": {"properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}},
            {"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
            {"name": "get_time", "parameters": {"properties": {}}}]"#,
    )
    .unwrap()
}

/// Generates pieces that are difficult in any order.
fn piece() -> impl Strategy<Value = String> {
    const FIXED: &[&str] = &[
        "<write_to_file>",
        "</write_to_file>",
        "<content>",
        "</content>",
        "<path>",
        "</path>",
        "<read_file>",
        "</read_file>",
        "<get_time>",
        "</get_time>",
        "<read_fil>",
        "</read_fil>",
        "<function_calls>",
        "</function_calls>",
        "</invoke>",
        "<invoke name=\"write_to_file\">",
        "<invoke name=\"get_time\">",
        "<invoke>",
        "<parameter name=\"path\">",
        "<parameter name=\"content\">",
        "<parameter>",
        "</parameter>",
        "<thinking>",
        "</thinking>",
        "<path",
        "<",
        "</",
        "\n",
        "\n",
        " ",
        "\r\n",
        "\r",
        "`",
        "```",
        "```\n",
        "> ",
        "    ",
        "\"",
        "a",
        "é🌍",
        "<b>",
        "</b>",
        "<content encoding=\"json\">",
        "\\",
        "<stranger>",
        "</stranger>",
        "~~~",
        "<|",
        "|>",
        "<|new call|>",
        "{\"name\": \"read_file\", \"arguments\": {}}",
        "[",
        "get_time(",
    ];
    prop_oneof![20 => proptest::sample::select(FIXED).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

pub(crate) fn selections() -> impl Strategy<Value = DialectSelection<'static>> {
    proptest::sample::select(&["auto", "cline", "invoke"][..])
        .prop_map(|name| DialectSet::built_in().select(name).unwrap())
}

/// The sequence of events, with adjacent deltas merged.
pub(crate) fn sequence(selection: DialectSelection, bytes: &[u8], size: usize) -> Vec<String> {
    let mut events: Vec<(u8, String)> = Vec::new();
    let mut out = |event: Event<'_>| {
        let (kind, text) = match event {
            Event::Text { text } => (1, text.to_owned()),
            Event::Thought { text } => (2, text.to_owned()),
            Event::ArgDelta { text, .. } => (3, text.to_owned()),
            other => (0, format!("{other:?}")),
        };
        match events.last_mut() {
            Some((last, known)) if *last == kind && kind != 0 => known.push_str(&text),
            _ => events.push((kind, text)),
        }
    };
    let mut reader = CallReader::new(selection, &tools());
    for chunk in bytes.chunks(size.max(1)) {
        reader.push_bytes(chunk, &mut out);
    }
    reader.finish(Truncation::Ended, &mut out);
    events
        .into_iter()
        .map(|(kind, text)| format!("{kind} {text}"))
        .collect()
}

fn read_in(selection: DialectSelection, bytes: &[u8], size: usize) -> String {
    let draft = read_chunks(selection, &tools(), bytes.chunks(size.max(1)));
    lines(&draft, &String::from_utf8_lossy(bytes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(750), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_any_text(text in text(), selection in selections(), at in 0usize..400, size in 1usize..9) {
        let bytes = text.as_bytes();
        let whole = read_in(selection, bytes, usize::MAX);
        prop_assert_eq!(&read_in(selection, bytes, 1), &whole);
        prop_assert_eq!(&read_in(selection, bytes, size), &whole);
        prop_assert_eq!(sequence(selection, bytes, 1), sequence(selection, bytes, usize::MAX));
        prop_assert_eq!(sequence(selection, bytes, size), sequence(selection, bytes, usize::MAX));
        let (head, tail) = bytes.split_at(at.min(bytes.len()));
        prop_assert_eq!(&lines(&read_chunks(selection, &tools(), [head, tail]), &text), &whole);
    }

    /// Bytes that are not UTF-8 are reported between the texts where they are, however much text is held.
    #[test]
    fn any_split_of_any_text_with_broken_bytes(text in text(), selection in selections(), breaks in proptest::collection::vec(0usize..300, 1..6), size in 1usize..9) {
        let mut bytes = text.into_bytes();
        for at in breaks {
            bytes.insert(at.min(bytes.len()), 0xff);
        }
        let whole = sequence(selection, &bytes, usize::MAX);
        prop_assert_eq!(sequence(selection, &bytes, 1), whole.clone());
        prop_assert_eq!(sequence(selection, &bytes, size), whole);
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60), size in 1usize..5) {
        prop_assert_eq!(read_in(DialectSet::built_in().all(), &bytes, size), read_in(DialectSet::built_in().all(), &bytes, usize::MAX));
    }
}

/// An input that fuzzing found: a token with a blank in it was decided before its end had arrived.
#[test]
fn words_that_no_header_holds_are_prose_in_any_chunks() {
    let all = DialectSet::built_in().all();
    for text in [
        "to=get_time\nwords json<|message|>{}<|call|>",
        "to=get_time <b json<|message|>{}",
        // A call behind a header that other markup ends, and a token that breaks off in one.
        "<|channel|>to=<|tool_call>call:get_time{",
        "<|start|>assistant to=get_time<|channel|>commentary json<|messa<|message|>{}<|call|>",
    ] {
        let whole = sequence(all, text.as_bytes(), text.len());
        for size in 1..9 {
            assert_eq!(sequence(all, text.as_bytes(), size), whole, "{text}");
        }
    }
}

#[test]
fn a_special_token_with_blanks_is_the_same_in_any_chunks() {
    let json = r#"{"arguments": {"path": "b"}, "name": "read_file"}"#;
    for text in [
        format!("[<|tose twool_call|>[\n{json}\n]\nThose two."),
        format!("I call.\n<|new tool call|>{json}"),
        format!("<｜new call｜> {json}"),
    ] {
        let all = DialectSet::built_in().all();
        let whole = sequence(all, text.as_bytes(), usize::MAX);
        let is_reported = |event: &String| event.contains("looks like the marker of a call");
        assert!(whole.iter().any(is_reported), "{whole:?}");
        for size in 1..9 {
            assert_eq!(sequence(all, text.as_bytes(), size), whole);
        }
    }
}

/// An input that fuzzing found: what follows a quotation mark was taken for the beginning of a marker in the same chunk, and not in
/// the next one.
#[test]
fn the_end_of_a_quotation_is_the_same_in_any_chunks() {
    let all = DialectSet::built_in().all();
    for text in [
        &b"\"[TOOL_CALLS]\">>\xff"[..],
        b"Write \"[TOOL_CALLS]\">>>get_time\n{}\n",
    ] {
        let whole = sequence(all, text, text.len());
        assert!(whole.iter().any(|event| event.contains("Mentioned")));
        for size in 1..9 {
            assert_eq!(sequence(all, text, size), whole);
        }
    }
}

/// An input that fuzzing found: with the space behind the longest possible name a tag was ruled out, because a bar could still follow.
#[test]
fn the_longest_name_of_a_tag_is_the_same_in_any_chunks() {
    let block = "<function_calls><invoke><parameter></parameter></invoke><invoke><";
    let invoke = DialectSet::built_in().select("invoke").unwrap();
    for length in 120..=130 {
        let name = format!("｜D{}", "x".repeat(length));
        for end in [
            "", " ", "  ", " a", " a=", " ｜a", " ｜ a", " a>", " a='b'>c",
        ] {
            let text = format!("{block}{name}{end}");
            let whole = sequence(invoke, text.as_bytes(), text.len());
            for size in 1..9 {
                assert_eq!(sequence(invoke, text.as_bytes(), size), whole, "{text}");
            }
        }
    }
}
