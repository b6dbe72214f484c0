//! Tests that streams give the events of the command `sabir parse --output events`, in every chunking.

use sabir_bindings::{ReaderOptions, StreamReader};
use sabir_call::Event;
use sabir_call::dialect::DialectSet;
use sabir_toolbox::parse::{EventLineWriter, ParseOptions, parse_text, parse_tools};
use serde_json::Value;

const TOOLS: &str = r#"[{"name": "write", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "integer"}}}}]"#;

fn options(dialect: &str) -> ReaderOptions {
    ReaderOptions::from_json(&format!(r#"{{"dialect": "{dialect}", "tools": {TOOLS}}}"#)).unwrap()
}

/// Reads a text in chunks of that many bytes and joins the deltas that belong together.
fn merged_events(text: &str, options: &ReaderOptions, size: usize) -> Vec<Value> {
    let mut reader = StreamReader::new(options);
    let mut events = Vec::new();
    for chunk in text.as_bytes().chunks(size.max(1)) {
        events.push(reader.push_bytes(chunk).unwrap().to_json());
    }
    events.push(reader.finish("ended").unwrap().to_json());
    let events = events
        .iter()
        .flat_map(|json| serde_json::from_str::<Vec<Value>>(json).unwrap());
    let mut merged: Vec<Value> = Vec::new();
    for event in events {
        let is_delta = ["text", "thought", "arg_delta"].contains(&event["event"].as_str().unwrap());
        match merged.last_mut() {
            Some(last)
                if is_delta
                    && last["event"] == event["event"]
                    && last["index"] == event["index"] =>
            {
                last["text"] = Value::from(
                    last["text"].as_str().unwrap().to_owned() + event["text"].as_str().unwrap(),
                );
            }
            _ => merged.push(event),
        }
    }
    merged
}

#[test]
fn chunks_do_not_change_the_events_of_any_dialect() {
    let calls = r#"[{"name": "write", "arguments": {"path": "ä.rs", "content": "\nif a < b {\n}\n", "lines": 2}}]"#;
    for dialect in DialectSet::built_in().iter() {
        let options = options(dialect.name);
        let written = sabir_bindings::render_calls(calls, &options).unwrap();
        let text = format!("Wörter.\n\n{written}");
        let whole = merged_events(&text, &options, text.len());
        assert!(
            whole.iter().any(|event| event["event"] == "call_end"),
            "{} {whole:?}",
            dialect.name
        );
        for size in [1, 2, 7, 64] {
            assert_eq!(
                merged_events(&text, &options, size),
                whole,
                "{} {size}",
                dialect.name
            );
        }
    }
}

#[test]
fn events_are_those_of_the_command() {
    let text = "Now:\n<write>\n<path>a.rs</path>\n<content>x</content>\n</write>\n<write><path>b";
    let tools = parse_tools(TOOLS, "tools").unwrap();
    let mut lines = Vec::new();
    let mut writer = EventLineWriter::new(&mut lines);
    parse_text(
        text.as_bytes(),
        &ParseOptions::new(tools),
        &mut |event: Event<'_>| {
            sabir_call::EventSink::push_event(&mut writer, event);
        },
    );
    writer.finish().unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let mut reader = StreamReader::new(&options("auto"));
    let pushed = reader.push(text).unwrap().to_json();
    let finished = reader.finish("ended").unwrap().to_json();
    let ours: Vec<Value> = [pushed, finished]
        .iter()
        .flat_map(|json| serde_json::from_str::<Vec<Value>>(json).unwrap())
        .collect();
    let theirs: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(ours, theirs);
    assert!(lines.contains("call_cut"));
}

#[test]
fn a_finished_reader_takes_nothing() {
    let mut reader = StreamReader::new(&options("auto"));
    reader.push("a").unwrap();
    assert_eq!(reader.finish("late").unwrap_err().code(), "unknown_word");
    reader.finish("ended").unwrap();
    assert_eq!(reader.push("b").unwrap_err().code(), "already_finished");
    assert_eq!(
        reader.finish("ended").unwrap_err().code(),
        "already_finished"
    );
    let mut next = reader.for_next_text();
    assert_eq!(
        next.push("b").unwrap().to_json(),
        r#"[{"event":"text","text":"b"}]"#
    );
}

#[test]
fn marks_are_wanted_or_left_out() {
    let text = "<write><path>a</path></write>";
    let with_marks =
        ReaderOptions::from_json(&format!(r#"{{"marks": true, "tools": {TOOLS}}}"#)).unwrap();
    assert!(
        StreamReader::new(&with_marks)
            .push(text)
            .unwrap()
            .to_json()
            .contains(r#""event":"mark""#)
    );
    assert!(
        !StreamReader::new(&options("auto"))
            .push(text)
            .unwrap()
            .to_json()
            .contains(r#""event":"mark""#)
    );
}
