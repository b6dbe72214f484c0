//! Checks that reading allocates nothing in steady state: once a value has begun, no push allocates
//! memory.
//!
//! A test binary of its own, because the counting allocator replaces the global one.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that fails by panicking is doing its work"
)]

use sabir_call::dialect::{Dialect, DialectSelection, DialectSet};
use sabir_call::json::ArgumentScanner;
use sabir_call::{Call, CallId, CallReader, Event, ToolSet};

/// Source code that makes the reader work: comparisons, tags without meaning, quotes, line feeds,
/// and words cut anywhere.
const CODE: &str = "fn max<T: Ord>(a: &T, b: &T) -> bool {\n    // <b>bold</b> \"quoted\" \\ größer\n    a < b && f(\"<div id='x'>\")\n}\n\n";

/// Pushes the text in chunks and returns the number of pushes that allocated, after a first half to
/// warm up.
fn pushes_that_allocate(text: &str, size: usize, push: &mut dyn FnMut(&str)) -> usize {
    let mut rest = text;
    let mut count = 0;
    let mut seen = 0;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
        let took = allocation_counter::measure(|| push(chunk)).count_total > 0;
        count += usize::from(took && seen > text.len() / 2);
        seen += chunk.len();
        rest = after;
    }
    count
}

#[test]
fn values_between_tags() {
    let tools = r#"[{"name": "write", "parameters": {"properties": {"path": {}, "content": {}}}}, {"name": "read", "parameters": {}}]"#;
    let tools = ToolSet::from_json(tools).unwrap();
    let opening = [
        "<write>\n<path>a</path>\n<content>\n",
        "<function_calls><invoke name=\"write\"><parameter name=\"content\">",
    ];
    for (opening, size) in opening
        .into_iter()
        .flat_map(|opening| [1, 4, 16, 64, 256].map(|size| (opening, size)))
    {
        let mut reader = CallReader::new(DialectSet::built_in().all(), &tools);
        let text = format!("{opening}{}", CODE.repeat(400));
        let mut deltas = 0;
        let count = pushes_that_allocate(&text, size, &mut |chunk| {
            reader.push(chunk, &mut |event: Event<'_>| {
                deltas += usize::from(matches!(event, Event::ArgDelta { .. }))
            });
        });
        assert!(
            deltas > text.len() / size / 2,
            "{deltas} deltas of {size} bytes"
        );
        assert_eq!(count, 0, "{opening} in chunks of {size}");
    }
}

#[test]
fn values_in_json() {
    let tools =
        ToolSet::from_json(r#"[{"name": "write", "parameters": {"properties": {"content": {}}}}]"#)
            .unwrap();
    let value = serde_json::json!(CODE.repeat(400)).to_string();
    let openings = [
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": ",
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": [",
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {'content': ",
        "<tool_call>\n{\"name\": \"write\", \"thought\": ",
    ];
    for (opening, size) in openings
        .into_iter()
        .flat_map(|opening| [1, 4, 16, 64, 256].map(|size| (opening, size)))
    {
        let mut reader = CallReader::new(DialectSet::built_in().all(), &tools);
        let mut events = 0;
        let count = pushes_that_allocate(&format!("{opening}{value}"), size, &mut |chunk| {
            reader.push(chunk, &mut |_: Event<'_>| events += 1);
        });
        assert!(
            opening.contains("thought") || events > value.len() / size / 2,
            "{opening}: {events} of {size} bytes"
        );
        assert_eq!(count, 0, "{opening} in chunks of {size}");
    }
}

#[test]
fn prose() {
    let tools = ToolSet::from_json(r#"[{"name": "read", "parameters": {}}]"#).unwrap();
    for size in [1, 4, 16, 64] {
        let mut reader = CallReader::new(DialectSet::built_in().all(), &tools);
        let count = pushes_that_allocate(&CODE.repeat(400), size, &mut |chunk| {
            reader.push(chunk, &mut |_: Event<'_>| {})
        });
        assert_eq!(count, 0, "in chunks of {size}");
    }
}

#[test]
fn strings_of_native_calls() {
    for size in [1, 4, 16, 64, 256] {
        let mut scanner = ArgumentScanner::new(0);
        let text = serde_json::json!({ "content": CODE.repeat(400) }).to_string();
        let count = pushes_that_allocate(&text, size, &mut |chunk| {
            scanner.push(chunk, &mut |_: Event<'_>| {})
        });
        assert_eq!(count, 0, "in chunks of {size}");
    }
}

/// Returns the memory that a reader uses in the middle of a value, without the vocabulary of its
/// tools: its own size and its allocations.
fn state(dialect: &Dialect, selection: DialectSelection, size: usize) -> usize {
    let tools = r#"[{"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}]"#;
    let tools = ToolSet::from_json(tools).unwrap();
    let mut arguments = serde_json::Map::new();
    arguments.insert("path".to_owned(), "src/table.tsx".into());
    arguments.insert("content".to_owned(), CODE.repeat(100).into());
    let call = Call {
        id: CallId::new("1"),
        name: "write_to_file".to_owned(),
        arguments,
        dialect: None,
    };
    let text = dialect.render_calls([&call], &tools);
    let mut rest = &text[..text.floor_char_boundary(text.len() / 2)];
    let mut reader = CallReader::new(selection, &tools);
    let mut inside = 0;
    let taken = allocation_counter::measure(|| {
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
            reader.push(chunk, &mut |event: Event<'_>| {
                inside += usize::from(matches!(event, Event::ArgDelta { .. }))
            });
            rest = after;
        }
    });
    assert!(
        inside > text.len() / size / 4,
        "{}: {inside} deltas of {size} bytes",
        dialect.name
    );
    size_of::<CallReader>() + usize::try_from(taken.bytes_current).unwrap()
}

#[test]
fn state_is_small() {
    let mut too_large = String::new();
    for dialect in DialectSet::built_in().iter() {
        for size in [4, 16, 64] {
            let own = state(
                dialect,
                DialectSet::built_in().select(dialect.name).unwrap(),
                size,
            );
            // What is put together from escapes, and what is read again with its rest, is at most
            // as long as a chunk, and empty between most pushes.
            if own > 512 + if size > 16 { 2 * size } else { 0 } {
                too_large += &format!("{}: {own} bytes in chunks of {size}\n", dialect.name);
            }
        }
    }
    assert!(too_large.is_empty(), "{too_large}");
}
