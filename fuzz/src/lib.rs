//! What the targets share: tools, and the one property that every machine must have.
//!
//! Any bytes in any chunks: the reader never panics, how they are cut never changes what comes out, and what it keeps in
//! memory never grows much beyond what it was given.

use std::fmt::Write;
use std::sync::LazyLock;

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Truncation, Event, CallReader, EventSink, ToolSet};

/// The tools that the inputs call.
pub static TOOLS: LazyLock<ToolSet> = LazyLock::new(|| {
    let tools = r#"[{"name": "read_file", "parameters": {"properties": {"path": {}, "n": {}}}},
        {"name": "write_to_file", "parameters": {"properties": {"path": {}, "content": {}}, "required": ["path"]}},
        {"name": "get_time", "parameters": {"properties": {}}}]"#;
    ToolSet::from_json(tools).unwrap_or_default()
});

/// The dialect that a byte stands for.
pub fn pick(byte: u8) -> &'static Dialect {
    let all: Vec<&'static Dialect> = DialectSet::built_in().iter().collect();
    all[usize::from(byte) % all.len()]
}

/// Feeds a text in chunks of these sizes.
fn feed(mut reader: CallReader, mut bytes: &[u8], sizes: impl Iterator<Item = usize>, out: &mut dyn EventSink) {
    for size in sizes {
        if bytes.is_empty() {
            break;
        }
        let (chunk, rest) = bytes.split_at(size.clamp(1, bytes.len()));
        reader.push_bytes(chunk, out);
        bytes = rest;
    }
    reader.finish(Truncation::Ended, out);
}

/// The events as one number, adjacent deltas merged: much cheaper than to keep them.
#[derive(Default)]
struct Digest {
    hash: u64,
    last: u8,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
        }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

impl EventSink for Digest {
    fn push_event(&mut self, event: Event<'_>) {
        let (kind, text) = match event {
            Event::Text { text } => (1, text),
            Event::Thought { text } => (2, text),
            Event::ArgDelta { text, .. } => (3, text),
            _ => (0, ""),
        };
        if kind != self.last || kind == 0 {
            self.add(&[0xff, kind]);
        }
        self.last = kind;
        match event {
            Event::Fault(fault) => {
                let _ = write!(self, "{:?}{:?}{:?}{}", fault.kind, fault.call, fault.span, fault.message);
            }
            Event::Mark(mark) => self.add(&mark.span.start.to_le_bytes()),
            other if kind == 0 => _ = write!(self, "{other:?}"),
            _ => self.add(text.as_bytes()),
        }
    }
}

/// The events in words, to be shown where they differ.
fn words(reader: CallReader, bytes: &[u8], sizes: impl Iterator<Item = usize>) -> Vec<String> {
    let mut events: Vec<(u8, String)> = Vec::new();
    feed(reader, bytes, sizes, &mut |event: Event<'_>| {
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
    });
    events.into_iter().map(|(_, text)| text).collect()
}

/// The readers that every input begins with, so that the dialects are compiled once: compiling them costs more than reading
/// a text of a few hundred bytes.
#[derive(Default)]
pub struct Readers {
    made: Vec<(&'static str, CallReader)>,
}

impl Readers {
    /// Returns the reader of a dialect, or of all, which is made where it is asked for first.
    fn reader(&mut self, dialect: Option<&'static str>) -> &CallReader {
        let name = dialect.unwrap_or_default();
        let at = self.made.iter().position(|(known, _)| *known == name);
        let at = at.unwrap_or_else(|| {
            let all = DialectSet::built_in().all();
            let selection = dialect.and_then(|name| DialectSet::built_in().select(name)).unwrap_or(all);
            self.made.push((name, CallReader::new(selection, &TOOLS)));
            self.made.len() - 1
        });
        &self.made[at].1
    }

    /// Checks the property for a text as all dialects, or one, read it; `cut` says how it is cut.
    pub fn check(&mut self, dialect: Option<&'static str>, bytes: &[u8], cut: u8) {
        let reader = self.reader(dialect);
        check(|| reader.for_next_text(), bytes, cut);
    }

    /// Checks the property for a text as reasoning.
    pub fn check_reasoning(&mut self, dialect: Option<&'static str>, bytes: &[u8], cut: u8) {
        let reader = self.reader(dialect);
        check(|| reader.reasoning_reader(), bytes, cut);
    }

    /// Checks the property behind the opening of a call, so that the machine is reached at once. The first byte says which
    /// opening and whether the dialect is chosen, the second how the rest is cut.
    pub fn check_behind(&mut self, openings: &[(&'static str, &str)], input: &[u8]) {
        let [which, cut, bytes @ ..] = input else { return };
        let (name, opening) = openings[usize::from(*which / 2) % openings.len()];
        let text = [opening.as_bytes(), bytes].concat();
        self.check((which % 2 == 0).then_some(name), &text, *cut);
    }
}

/// Checks the property for a text; `cut` says how it is cut.
pub fn check(make: impl Fn() -> CallReader, bytes: &[u8], cut: u8) {
    let odd = || {
        let mut state = u32::from(cut) | 1;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as usize % (usize::from(cut) % 20 + 1) + 1
        })
    };
    let digest = |sizes: &mut dyn Iterator<Item = usize>| {
        let mut digest = Digest::default();
        feed(make(), bytes, sizes, &mut digest);
        digest.hash
    };
    let whole = digest(&mut std::iter::repeat(usize::MAX));
    // One cut a text: the other comes with the next.
    if cut % 2 == 0 {
        if digest(&mut std::iter::repeat(1)) != whole {
            assert_eq!(words(make(), bytes, std::iter::repeat(1)), words(make(), bytes, std::iter::repeat(usize::MAX)));
        }
    } else if digest(&mut odd()) != whole {
        assert_eq!(words(make(), bytes, odd()), words(make(), bytes, std::iter::repeat(usize::MAX)));
    }
    // What is kept is measured now and then, because the measure costs more than the reading.
    if cut % 64 == 0 {
        let used = allocation_counter::measure(|| feed(make(), bytes, std::iter::repeat(16), &mut |_: Event<'_>| {}));
        assert!(used.bytes_max < 64 * 1024 + 16 * bytes.len() as u64, "{} bytes for {}", used.bytes_max, bytes.len());
    }
}
