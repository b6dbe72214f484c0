//! Moulds: events of a stream that differ in one text alone.
//!
//! Nearly all of a stream is deltas, and two deltas of one block differ in nothing but their words. What stands around the
//! words is written once, and copied from then on: a delta costs little more than its own bytes.

use std::io::Write;

/// An event of a stream, with a hole for a text, and perhaps one for a number before it.
#[derive(Debug)]
pub(crate) struct DeltaTemplate {
    /// Of which block or call it is.
    key: u64,
    /// What stands before the number, where there is one.
    before_number: Option<Vec<u8>>,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// What an event is cast from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextDelta<'t> {
    /// Of which block or call it is.
    pub(crate) key: u64,
    /// The event's number, on wires that count them.
    pub(crate) number: u64,
    /// The inside of a JSON string.
    pub(crate) text: &'t str,
}

impl DeltaTemplate {
    /// The mould of the events that `write` writes from a number and a text. The text is the inside of a JSON string; the
    /// number, if it is written at all, stands before it.
    fn new(key: u64, write: impl Fn(u64, &str) -> Vec<u8>) -> Self {
        let first = write(1, "a");
        let (before, behind) = split_around_difference(&first, &write(1, "b"));
        let other = write(2, "a");
        let counted = (first != other).then(|| split_around_difference(&before, &other));
        match counted {
            Some((counted, before)) => Self { key, before_number: Some(counted), before, after: behind },
            None => Self { key, before_number: None, before, after: behind },
        }
    }

    /// Appends the event with that number and that text in it.
    fn render_delta(&self, number: u64, text: &str, out: &mut Vec<u8>) {
        if let Some(counted) = &self.before_number {
            out.extend_from_slice(counted);
            // Writing to memory cannot fail.
            _ = write!(out, "{number}");
        }
        out.extend_from_slice(&self.before);
        for_each_escaped_run(text, |run| out.extend_from_slice(run.as_bytes()));
        out.extend_from_slice(&self.after);
    }
}

/// What stands before and behind the one byte in which a text differs from another.
fn split_around_difference(text: &[u8], other: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let hole = text.iter().zip(other).position(|(one, other)| one != other).unwrap_or(text.len());
    (text.get(..hole).unwrap_or_default().to_vec(), text.get(hole + 1..).unwrap_or_default().to_vec())
}

/// Appends an event, in the mould at hand if it is of that key, or else in a new one.
pub(crate) fn write_delta(
    mould: &mut Option<DeltaTemplate>,
    TextDelta { key, number, text }: TextDelta<'_>,
    out: &mut Vec<u8>,
    write: impl Fn(u64, &str) -> Vec<u8>,
) {
    if mould.as_ref().is_none_or(|mould| mould.key != key) {
        *mould = Some(DeltaTemplate::new(key, write));
    }
    if let Some(mould) = mould {
        mould.render_delta(number, text, out);
    }
}

/// Appends the text as the inside of a JSON string.
pub(crate) fn escape_json(text: &str, out: &mut String) {
    for_each_escaped_run(text, |run| out.push_str(run));
}

/// The inside of a JSON string, in pieces.
fn for_each_escaped_run(text: &str, mut put: impl FnMut(&str)) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (run, behind) = rest.split_at(at);
        put(run);
        match behind.as_bytes().first().copied().unwrap_or_default() {
            b'"' => put("\\\""),
            b'\\' => put("\\\\"),
            b'\n' => put("\\n"),
            b'\r' => put("\\r"),
            b'\t' => put("\\t"),
            0x08 => put("\\b"),
            0x0c => put("\\f"),
            control => put(&format!("\\u{control:04x}")),
        }
        rest = behind.get(1..).unwrap_or_default();
    }
    put(rest);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_character_is_a_string_again() {
        let all: String = ('\0'..='\u{2ff}').chain(['\u{2028}', '€', '😀']).collect();
        let mut inside = String::new();
        escape_json(&all, &mut inside);
        assert_eq!(serde_json::from_str::<String>(&format!("\"{inside}\"")).unwrap(), all);
        assert_eq!(format!("\"{inside}\""), serde_json::to_string(&all).unwrap());
    }

    #[test]
    fn what_is_cast_is_what_would_be_written() {
        // What stands around the holes may hold anything, the very texts that find them too.
        let plain = |key: u64, _: u64, text: &str| format!("a{key}b1 {}", json!({"b": "a", "t": text, "a": "b2"}));
        let counted = |key: u64, number: u64, text: &str| format!("1{key} {}", json!({"n": number, "t": text, "a": 1}));
        for write in [plain, counted] {
            let mut mould = None;
            for (key, number, text) in [(1, 1, "x"), (1, 9, "\"\\\n"), (2, 10, ""), (1, 123, "aab"), (1, 0, "€")] {
                let mut out = Vec::new();
                write_delta(&mut mould, TextDelta { key, number, text }, &mut out, |number, text| {
                    write(key, number, text).into_bytes()
                });
                assert_eq!(String::from_utf8(out).unwrap(), write(key, number, text));
            }
        }
    }
}
