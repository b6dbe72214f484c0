//! Any bytes in any chunks: the reader never panics, and how they are cut never changes what comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_call::dialect::Selection;
use sabir_call::{Cut, Event, Reader, ToolSet};
use std::sync::LazyLock;

static TOOLS: LazyLock<ToolSet> = LazyLock::new(|| {
    let tools = r#"[{"name": "read_file", "parameters": {"properties": {"path": {}, "n": {}}}},
        {"name": "write_to_file", "parameters": {"properties": {"path": {}, "content": {}}}},
        {"name": "get_time", "parameters": {"properties": {}}}]"#;
    ToolSet::from_json(tools).unwrap_or_default()
});

/// The events of a text that comes in chunks of these sizes, adjacent deltas merged.
fn events(selection: Selection, mut bytes: &[u8], sizes: impl Iterator<Item = usize>) -> Vec<String> {
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
    let mut reader = Reader::new(selection, &TOOLS);
    for size in sizes {
        if bytes.is_empty() {
            break;
        }
        let (chunk, rest) = bytes.split_at(size.clamp(1, bytes.len()));
        reader.push_bytes(chunk, &mut out);
        bytes = rest;
    }
    reader.finish(Cut::Ended, &mut out);
    events.into_iter().map(|(_, text)| text).collect()
}

// The first byte says which dialect; the second how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [dialect, cut, bytes @ ..] = input else { return };
    let name = ["auto", "cline", "invoke"][usize::from(*dialect) % 3];
    let selection = Selection::from_name(name).unwrap_or(Selection::AUTO);
    let whole = events(selection, bytes, std::iter::repeat(usize::MAX));
    let mut state = u32::from(*cut) | 1;
    let sizes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as usize % (usize::from(*cut) % 20 + 1) + 1
    });
    assert_eq!(events(selection, bytes, sizes), whole);
    assert_eq!(events(selection, bytes, std::iter::repeat(1)), whole);
});
