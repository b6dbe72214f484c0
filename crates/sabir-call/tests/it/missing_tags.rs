//! Checks that no call runs with other arguments than were meant when one of its tags is missing, whatever markup its values
//! hold.

use proptest::prelude::*;
use sabir_call::dialect::DialectSet;
use sabir_call::{Call, CallId, DraftState, ToolSet};
use serde_json::Map;

use crate::notation::read;
use crate::roundtrip::{TAGGED, piece};

/// Returns the dialects whose values are raw text.
fn raw_dialects() -> Vec<&'static str> {
    let is_raw = |name: &&str| *name != "harmony";
    TAGGED.into_iter().filter(is_raw).collect()
}

/// The arguments that are meant, with letters that occur in no tag in the place of the values.
const ARGUMENTS: [(&str, char); 2] = [("path", '\u{e000}'), ("content", '\u{e001}')];

/// `mode` is declared and never given.
fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"properties": {
                "path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "string"}}}},
            {"name": "get_time", "parameters": {"properties": {}}}]"#,
    )
    .unwrap()
}

/// Renders the call in a dialect, without its values.
fn render_frame(dialect: &str) -> String {
    let arguments: Map<_, _> = ARGUMENTS
        .iter()
        .map(|(name, place)| ((*name).to_owned(), place.to_string().into()))
        .collect();
    let call = Call {
        id: CallId::new("c1"),
        name: "write_to_file".to_owned(),
        arguments,
        dialect: None,
    };
    DialectSet::built_in()
        .find(dialect)
        .unwrap()
        .render_calls(&[call], &tools())
}

/// Renders a whole call without arguments, as a value may hold it.
fn render_get_time(dialect: &str) -> String {
    let call = Call {
        id: CallId::new("c2"),
        name: "get_time".to_owned(),
        arguments: Map::new(),
        dialect: None,
    };
    DialectSet::built_in()
        .find(dialect)
        .unwrap()
        .render_calls(&[call], &tools())
}

/// Returns the byte ranges of all tags of a rendered call. The text between key tags is part of the first.
fn find_tags(frame: &str) -> Vec<std::ops::Range<usize>> {
    const MARKS: [(&str, &str); 4] = [
        ("<|open|>", "<|sep|>"),
        ("<|close|>", "<|sep|>"),
        ("]<]minimax[>[", ">"),
        ("<", ">"),
    ];
    let mut tags = Vec::new();
    let mut at = 0;
    while at < frame.len() {
        let rest = &frame[at..];
        let found = MARKS.iter().find_map(|(open, close)| {
            let body = rest.strip_prefix(open)?;
            Some(open.len() + body.find(close)? + close.len())
        });
        match found {
            Some(length) => {
                tags.push(at..at + length);
                at += length;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    tags
}

/// Returns the calls that would run and are not the one that was meant.
fn wrong_calls(dialect: &str, missing: usize, values: [&str; 2]) -> Option<String> {
    let mut text = render_frame(dialect);
    let tags = find_tags(&text);
    // One more than there are tags: none is missing.
    if let Some(tag) = tags.get(missing % (tags.len() + 1)) {
        let removed = &text[tag.clone()];
        let is_whole_again = |value: &&str| {
            // Some dialects accept two spellings of an argument's tag.
            value.contains(removed) || removed.contains("=path>") && value.contains("name=\"path\"")
        };
        if values.iter().any(is_whole_again) {
            return None;
        }
        text.replace_range(tag.clone(), "");
    }
    for ((_, place), value) in ARGUMENTS.iter().zip(values) {
        text = text.replace(*place, value);
    }
    let draft = read(
        DialectSet::built_in().select(dialect).unwrap(),
        &tools(),
        &text,
    );
    let wrong = draft.calls().find(|call| {
        // The checks stop a call of an unknown tool, or without its required arguments.
        let runs = call.state == DraftState::Closed
            && draft.errors_of(call.index).count() == 0
            && (call.name == "get_time" || call.arguments.len() >= ARGUMENTS.len());
        let meant =
            call.name == "write_to_file"
                && call.arguments.len() == ARGUMENTS.len()
                && call.arguments.iter().zip(ARGUMENTS).zip(values).all(
                    |((read, (name, _)), value)| read.name == name && is_same(&read.text, value),
                );
        runs && !meant
    })?;
    Some(format!(
        "{text}\nran as {} {:?}",
        wrong.name, wrong.arguments
    ))
}

/// Returns true if the value that was read is the one that was meant, apart from line feeds around it, which the
/// frame may have added.
fn is_same(read: &str, meant: &str) -> bool {
    let feeds = ['\r', '\n'];
    read.trim_matches(feeds) == meant.trim_matches(feeds)
}

#[test]
fn a_missing_tag_never_moves_text_into_another_argument() {
    let mut wrong = Vec::new();
    for dialect in raw_dialects() {
        let frame = render_frame(dialect);
        let tags = find_tags(&frame);
        let whole = render_get_time(dialect);
        let marks: Vec<&str> = tags.iter().map(|tag| &frame[tag.clone()]).collect();
        for missing in 0..=tags.len() {
            let mut values = vec!["Paris".to_owned(), "two\nlines".to_owned()];
            for mark in &marks {
                values.push((*mark).to_owned());
                values.push(format!("a {mark} b"));
                for second in crate::case_count::sampled_positions(missing, marks.len(), 1) {
                    values.push(format!("a {mark}{} b", marks[second]));
                }
                values.push(format!("{mark}{whole}"));
                values.push(format!("{whole}{mark}"));
            }
            for value in &values {
                wrong.extend(
                    wrong_calls(dialect, missing, [value, "text"])
                        .map(|w| format!("{dialect} without {:?}: {w}", marks.get(missing))),
                );
                wrong.extend(
                    wrong_calls(dialect, missing, ["a.txt", value])
                        .map(|w| format!("{dialect} without {:?}: {w}", marks.get(missing))),
                );
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong calls ran, such as:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n\n")
    );
}

/// Returns the markup that opens the second argument, in the frame of a call.
fn second_opening(frame: &str) -> &str {
    let places = ARGUMENTS.map(|(_, place)| frame.find(place).unwrap());
    let is_between = |tag: &std::ops::Range<usize>| tag.start > places[0];
    let close = find_tags(frame).into_iter().find(is_between).unwrap();
    frame[close.end..places[1]].trim()
}

#[test]
fn an_argument_that_is_opened_twice_never_runs() {
    let mut wrong = Vec::new();
    for dialect in raw_dialects() {
        let frame = render_frame(dialect);
        let second = second_opening(&frame);
        let first = second.replace(ARGUMENTS[1].0, ARGUMENTS[0].0);
        let has_own_tags = matches!(dialect, "cline" | "minimax_m3");
        for (path, content) in [
            ("a".to_owned(), format!("one{second}two")),
            ("a".to_owned(), format!("{second}two")),
            ("a".to_owned(), format!("one\n{second}\ntwo")),
            (format!("a{first}b"), "text".to_owned()),
            ("a".to_owned(), format!("one{first}two")),
            (format!("a{second}b"), "text".to_owned()),
        ] {
            // A tag with an ordinary name is content of many files.
            let is_other = content.contains(&first) || path.contains(second);
            if has_own_tags && is_other {
                continue;
            }
            let text = frame.replace(ARGUMENTS[0].1, &path);
            let text = text.replace(ARGUMENTS[1].1, &content);
            let selection = DialectSet::built_in().select(dialect).unwrap();
            let draft = read(selection, &tools(), &text);
            if draft
                .calls()
                .any(|call| draft.errors_of(call.index).count() == 0)
            {
                wrong.push(format!("{dialect}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_end_of_all_calls_inside_a_value_leaves_two_readings() {
    let mark = |name: &str| {
        name.replace('<', "<｜DSML｜")
            .replace("<｜DSML｜/", "</｜DSML｜")
    };
    let text = mark(
        "<tool_calls><invoke name=\"get_weather\"><parameter name=\"location\" string=\"true\">Paris\
         </parameter></tool_calls>Visible </parameter></invoke></tool_calls>",
    );
    let tools = ToolSet::from_json(
        r#"[{"name": "get_weather", "parameters": {"properties": {"location": {"type": "string"}}}}]"#,
    )
    .unwrap();
    let draft = read(
        DialectSet::built_in().select("dsml").unwrap(),
        &tools,
        &text,
    );
    assert_eq!(draft.calls().count(), 1);
    assert!(draft.errors_of(0).count() > 0, "{draft:?}");
}

#[test]
fn no_call_runs_behind_one_that_was_not_understood() {
    let texts = [
        // The closing tags belong to the first of two openings without arguments.
        (
            "invoke",
            "<function_calls><invoke name=\"write_to_file\"><steptml:invoke name=\"get_time\"><invoke name=\"get_time\">\
             </invoke></parameter><parameter name=\"content\"></parameter></invoke></function_calls>",
        ),
        // A thought that never ends holds the closing tags.
        (
            "kimi_k3",
            "<|open|>tools<|sep|><|open|>call tool=\"write_to_file\" index=\"0\"<|sep|><think><|close|>argument<|sep|>\
             <|open|>call tool=\"get_time\"<|sep|><|close|>call<|sep|><|close|>argument<|sep|><|close|>call<|sep|>",
        ),
    ];
    for (dialect, text) in texts {
        let selection = DialectSet::built_in().select(dialect).unwrap();
        let draft = read(selection, &tools(), text);
        assert_eq!(draft.calls().count(), 1, "{dialect}: {draft:?}");
        assert!(draft.errors_of(0).count() > 0, "{dialect}: {draft:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_markup_moves_text_into_another_argument(
        path in proptest::collection::vec(piece(), 0..4), content in proptest::collection::vec(piece(), 0..6),
        dialect in proptest::sample::select(raw_dialects()), missing in 0_usize..30) {
        let (path, content) = (path.concat(), content.concat());
        let wrong = wrong_calls(dialect, missing, [&path, &content]);
        prop_assert!(wrong.is_none(), "{dialect}: {}", wrong.unwrap_or_default());
    }
}
