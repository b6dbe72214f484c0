//! Puts the model's name that the client asked for into forwarded answers, in the place of the
//! upstream's own name.
//!
//! Everything else stays as it is, to the last digit of a number: only the bytes of the name are
//! replaced. An answer without a member `model` is not changed.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest line of a stream of events in which the name is looked for.
const MAX_LINE: usize = 1 << 20;

/// Replaces the name in the events of a stream.
pub(crate) struct ModelRenamer {
    /// The name that the client asked for.
    name: String,
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// True in a line that is too long.
    is_skipping: bool,
}

/// The member of an answer that names the model.
#[derive(Deserialize)]
struct NamedAnswer<'a> {
    /// The name.
    #[serde(borrow)]
    model: &'a RawValue,
}

impl ModelRenamer {
    /// Makes a renamer for one stream.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            held: Vec::new(),
            is_skipping: false,
        }
    }

    /// Takes the next bytes, and returns those whose lines are complete.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut renamed = Vec::with_capacity(self.held.len() + bytes.len());
        for line in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            let is_ended = line.last().is_some_and(|byte| is_line_end(*byte));
            if !self.is_skipping {
                self.held.extend_from_slice(line);
                self.is_skipping = self.held.len() > MAX_LINE;
                if self.is_skipping || is_ended {
                    renamed.extend(self.take_line());
                }
            } else {
                renamed.extend_from_slice(line);
            }
            self.is_skipping &= !is_ended;
        }
        renamed
    }

    /// Returns the bytes of a last line without an end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.take_line()
    }

    /// Takes the held line out, with the name replaced.
    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.held);
        const FIELD: &[u8] = b"data:";
        if line.len() <= MAX_LINE && line.starts_with(FIELD) {
            let data = line.split_off(FIELD.len());
            line.extend(rename_model(data, &self.name));
        }
        line
    }
}

/// Returns true for a byte that ends a line of a stream of events; `\r\n` ends an empty line as well.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Returns an answer in JSON with another name of its model.
pub(crate) fn rename_model(mut json: Vec<u8>, name: &str) -> Vec<u8> {
    if let Some(range) = find_model(&json) {
        let name = serde_json::Value::from(name).to_string();
        json.splice(range, name.into_bytes());
    }
    json
}

/// Finds the model's name in an answer, with its quotes.
fn find_model(json: &[u8]) -> Option<Range<usize>> {
    let answer: NamedAnswer<'_> = serde_json::from_slice(json).ok()?;
    let name = answer.model.get();
    let start = name.as_ptr().addr().checked_sub(json.as_ptr().addr())?;
    name.starts_with('"').then(|| start..start + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_changes() {
        for (answer, expected) in [
            (
                r#"{"data": [0.10], "model" : "be\"hind", "n": 1e2}"#,
                r#"{"data": [0.10], "model" : "a\"b", "n": 1e2}"#,
            ),
            (r#"{"a": {"model": "x"}}"#, r#"{"a": {"model": "x"}}"#),
            (r#"{"model": null}"#, r#"{"model": null}"#),
            (r#"{"model": "x""#, r#"{"model": "x""#),
            ("[1]", "[1]"),
        ] {
            let renamed = rename_model(answer.as_bytes().to_vec(), "a\"b");
            assert_eq!(String::from_utf8(renamed).unwrap(), expected);
        }
    }

    #[test]
    fn events_are_renamed_in_any_pieces() {
        let long = format!(
            "data: {{\"model\": \"x\", \"a\": \"{}\"}}\n",
            "y".repeat(MAX_LINE)
        );
        let events = format!(
            "data: {{\"model\":\"x\"}}\r\r: model\r\ndata: {{\"model\":\"x\"}}\r\n\r\n{long}data:{{\"model\":\"x\"}}\n\ndata: [DONE]\n\ndata: {{\"model\":\"x\"}}"
        );
        let expected = format!(
            "data: {{\"model\":\"m\"}}\r\r: model\r\ndata: {{\"model\":\"m\"}}\r\n\r\n{long}data:{{\"model\":\"m\"}}\n\ndata: [DONE]\n\ndata: {{\"model\":\"m\"}}"
        );
        for size in [7, 64, 1 << 22] {
            let mut renamer = ModelRenamer::new("m");
            let mut renamed = Vec::new();
            for piece in events.as_bytes().chunks(size) {
                renamed.extend(renamer.push_bytes(piece));
            }
            renamed.extend(renamer.finish());
            assert!(renamed == expected.as_bytes(), "pieces of {size}");
        }
    }
}
