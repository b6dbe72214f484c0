//! What the targets share: tools, and the one property that every machine must have.
//!
//! Any bytes in any chunks: the reader never panics, how they are cut never changes what comes out, and what it keeps in
//! memory never grows much beyond what it was given.

use std::sync::LazyLock;

use sabir_call::dialect::{Dialect, Selection, dialects};
use sabir_call::{Cut, Event, Reader, ToolSet};

/// The tools that the inputs call.
pub static TOOLS: LazyLock<ToolSet> = LazyLock::new(|| {
    let tools = r#"[{"name": "read_file", "parameters": {"properties": {"path": {}, "n": {}}}},
        {"name": "write_to_file", "parameters": {"properties": {"path": {}, "content": {}}, "required": ["path"]}},
        {"name": "get_time", "parameters": {"properties": {}}}]"#;
    ToolSet::from_json(tools).unwrap_or_default()
});

/// The dialect that a byte stands for.
pub fn pick(byte: u8) -> &'static Dialect {
    let all = dialects();
    all[usize::from(byte) % all.len()]
}

/// The events of a text that comes in chunks of these sizes, adjacent deltas merged.
fn events(mut reader: Reader, mut bytes: &[u8], sizes: impl Iterator<Item = usize>) -> Vec<String> {
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

/// Checks the property for a text; `cut` says how it is cut.
pub fn check(make: impl Fn() -> Reader, bytes: &[u8], cut: u8) {
    let whole = events(make(), bytes, std::iter::repeat(usize::MAX));
    let mut state = u32::from(cut) | 1;
    let sizes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as usize % (usize::from(cut) % 20 + 1) + 1
    });
    assert_eq!(events(make(), bytes, sizes), whole);
    assert_eq!(events(make(), bytes, std::iter::repeat(1)), whole);
    let mut reader = make();
    let used = allocation_counter::measure(|| {
        for chunk in bytes.chunks(16) {
            reader.push_bytes(chunk, &mut |_: Event<'_>| {});
        }
    });
    assert!(used.bytes_max < 64 * 1024 + 16 * bytes.len() as u64, "{} bytes for {}", used.bytes_max, bytes.len());
}

/// Checks the property behind the opening of a call, so that the machine is reached at once. The first byte says which
/// opening and whether the dialect is chosen, the second how the rest is cut.
pub fn behind(openings: &[(&str, &str)], input: &[u8]) {
    let [which, cut, bytes @ ..] = input else { return };
    let (name, opening) = openings[usize::from(*which / 2) % openings.len()];
    let chosen = Selection::from_name(name).unwrap_or(Selection::AUTO);
    let selection = if which % 2 == 0 { chosen } else { Selection::AUTO };
    let text = [opening.as_bytes(), bytes].concat();
    check(|| Reader::new(selection, &TOOLS), &text, *cut);
}
