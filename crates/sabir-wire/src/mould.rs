//! Moulds: events of a stream that differ in one text alone.
//!
//! Nearly all of a stream is deltas, and two deltas of one block differ in nothing but their words. What stands around the
//! words is written once, and copied from then on: a delta costs little more than its own bytes.

/// An event of a stream, with a hole for a text.
#[derive(Debug)]
pub(crate) struct Mould {
    /// Of which block or call it is.
    key: u64,
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl Mould {
    /// The mould of the events that `write` writes, where the text is the inside of a JSON string.
    fn new(key: u64, write: impl Fn(&str) -> Vec<u8>) -> Self {
        let (mut first, second) = (write("a"), write("b"));
        let hole = first.iter().zip(&second).position(|(one, other)| one != other).unwrap_or(first.len());
        let behind = first.get(hole + 1..).unwrap_or_default().to_vec();
        first.truncate(hole);
        Self { key, before: first, behind }
    }

    /// Appends the event with that text in it.
    fn write(&self, text: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before);
        runs(text, |run| out.extend_from_slice(run.as_bytes()));
        out.extend_from_slice(&self.behind);
    }
}

/// Appends the event with that text, in the mould at hand if it is of that key, or else in a new one.
pub(crate) fn cast(
    mould: &mut Option<Mould>,
    (key, text): (u64, &str),
    out: &mut Vec<u8>,
    write: impl Fn(&str) -> Vec<u8>,
) {
    if mould.as_ref().is_none_or(|mould| mould.key != key) {
        *mould = Some(Mould::new(key, write));
    }
    if let Some(mould) = mould {
        mould.write(text, out);
    }
}

/// Appends the text as the inside of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    runs(text, |run| out.push_str(run));
}

/// The inside of a JSON string, in pieces.
fn runs(text: &str, mut put: impl FnMut(&str)) {
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
    use super::*;

    #[test]
    fn every_character_is_a_string_again() {
        let all: String = ('\0'..='\u{2ff}').chain(['\u{2028}', '€', '😀']).collect();
        let mut inside = String::new();
        escape(&all, &mut inside);
        assert_eq!(serde_json::from_str::<String>(&format!("\"{inside}\"")).unwrap(), all);
        assert_eq!(format!("\"{inside}\""), serde_json::to_string(&all).unwrap());
    }

    #[test]
    fn what_is_cast_is_what_would_be_written() {
        // What stands around the hole may hold anything, the very texts that find it too.
        let write = |key: u64, text: &str| {
            format!("a{key}b {}\n\n", serde_json::json!({"b": "a", "t": text, "a": "b"})).into_bytes()
        };
        let mut mould = None;
        for (key, text) in [(1, "x"), (1, "\"\\\n"), (2, ""), (1, "aab"), (1, "€")] {
            let mut out = Vec::new();
            cast(&mut mould, (key, text), &mut out, |text| write(key, text));
            assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(write(key, text)).unwrap());
        }
    }
}
