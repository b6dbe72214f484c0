//! Rewrites forwarded answers: the model has the name that the client asked for, and errors show
//! neither the upstream's secrets nor its address.
//!
//! Everything else stays as it is, to the last digit of a number: only the bytes of the name and of
//! an error are replaced. An answer without a member `model` or `error`, and that is
//! no error itself (`"object": "error"`), is not changed.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest line of a stream of events that is rewritten.
const MAX_LINE: usize = 1 << 20;

/// Rewrites the answers of one exchange.
pub(crate) struct AnswerRewriter {
    /// The name that the client asked for.
    model: String,
    /// Removes secrets from the text of an error.
    redact: Box<dyn Fn(&str) -> String + Send>,
}

/// Rewrites the events of a stream.
pub(crate) struct EventRewriter {
    /// Rewrites the data of an event.
    answers: AnswerRewriter,
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// True in a line that is too long.
    is_skipping: bool,
}

/// The members of an answer that are rewritten.
#[derive(Deserialize)]
struct RewrittenMembers<'a> {
    /// The name of the model.
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    /// The error.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// The text of an error that is the answer itself.
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    /// `error` if the answer itself is one.
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

impl AnswerRewriter {
    /// Makes a rewriter. `redact` removes secrets from the text of an error.
    pub(crate) fn new(model: &str, redact: impl Fn(&str) -> String + Send + 'static) -> Self {
        Self {
            model: model.to_owned(),
            redact: Box::new(redact),
        }
    }

    /// Returns an answer in JSON with the client's name of the model, and without secrets in its error.
    pub(crate) fn rewrite_answer(&self, mut json: Vec<u8>) -> Vec<u8> {
        let Ok(members) = serde_json::from_slice::<RewrittenMembers<'_>>(&json) else {
            return json;
        };
        let name = members.model.filter(|name| name.get().starts_with('"'));
        let is_error = members
            .object
            .is_some_and(|object| object.get() == "\"error\"");
        let message = members.message.filter(|_| is_error);
        let changes = [
            name.map(|name| (name, serde_json::Value::from(&*self.model).to_string())),
            members
                .error
                .map(|error| (error, (self.redact)(error.get()))),
            message.map(|message| (message, (self.redact)(message.get()))),
        ];
        let mut changes: Vec<(Range<usize>, String)> = changes
            .into_iter()
            .flatten()
            .filter_map(|(value, text)| Some((range_in(&json, value)?, text)))
            .collect();
        // From the last one, so that the ranges of the others stay right.
        changes.sort_unstable_by_key(|(range, _)| range.start);
        for (range, text) in changes.into_iter().rev() {
            json.splice(range, text.into_bytes());
        }
        json
    }

    /// Makes a rewriter of a stream of such answers.
    pub(crate) fn into_events(self) -> EventRewriter {
        EventRewriter {
            answers: self,
            held: Vec::new(),
            is_skipping: false,
        }
    }
}

/// Returns the bytes of a value in the JSON that it was read from.
fn range_in(json: &[u8], value: &RawValue) -> Option<Range<usize>> {
    let value = value.get();
    let start = value.as_ptr().addr().checked_sub(json.as_ptr().addr())?;
    Some(start..start + value.len())
}

impl EventRewriter {
    /// Takes the next bytes, and returns those whose lines are complete.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut rewritten = Vec::with_capacity(self.held.len() + bytes.len());
        for line in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            let is_ended = line.last().is_some_and(|byte| is_line_end(*byte));
            if !self.is_skipping {
                self.held.extend_from_slice(line);
                self.is_skipping = self.held.len() > MAX_LINE;
                if self.is_skipping || is_ended {
                    rewritten.extend(self.take_line());
                }
            } else {
                rewritten.extend_from_slice(line);
            }
            self.is_skipping &= !is_ended;
        }
        rewritten
    }

    /// Returns the bytes of a last line without an end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.take_line()
    }

    /// Takes the held line out, rewritten.
    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.held);
        const FIELD: &[u8] = b"data:";
        if line.len() <= MAX_LINE && line.starts_with(FIELD) {
            let data = line.split_off(FIELD.len());
            line.extend(self.answers.rewrite_answer(data));
        }
        line
    }
}

/// Returns true for a byte that ends a line of a stream of events; `\r\n` ends an empty line as well.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriter(model: &str) -> AnswerRewriter {
        AnswerRewriter::new(model, |text| text.replace("sk-1234", "[secret]"))
    }

    #[test]
    fn only_the_name_and_errors_change() {
        for (answer, expected) in [
            (
                r#"{"data": [0.10], "model" : "be\"hind", "n": 1e2}"#,
                r#"{"data": [0.10], "model" : "a\"b", "n": 1e2}"#,
            ),
            (r#"{"a": {"model": "x"}}"#, r#"{"a": {"model": "x"}}"#),
            (r#"{"model": null}"#, r#"{"model": null}"#),
            (r#"{"model": "x""#, r#"{"model": "x""#),
            ("[1]", "[1]"),
            (
                r#"{"error": {"message": "bad key sk-1234", "n": 1.0}, "text": "sk-1234", "model":"x"}"#,
                r#"{"error": {"message": "bad key [secret]", "n": 1.0}, "text": "sk-1234", "model":"a\"b"}"#,
            ),
            (
                r#"{"model":"x", "error": "sk-1234"}"#,
                r#"{"model":"a\"b", "error": "[secret]"}"#,
            ),
            (r#"{"error": null}"#, r#"{"error": null}"#),
            (
                r#"{"object": "error", "message": "bad key sk-1234", "code": 401}"#,
                r#"{"object": "error", "message": "bad key [secret]", "code": 401}"#,
            ),
            (
                r#"{"object": "list", "message": "sk-1234"}"#,
                r#"{"object": "list", "message": "sk-1234"}"#,
            ),
        ] {
            let rewritten = rewriter("a\"b").rewrite_answer(answer.as_bytes().to_vec());
            assert_eq!(String::from_utf8(rewritten).unwrap(), expected);
        }
    }

    #[test]
    fn events_are_rewritten_in_any_pieces() {
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
            let mut events_rewriter = rewriter("m").into_events();
            let mut rewritten = Vec::new();
            for piece in events.as_bytes().chunks(size) {
                rewritten.extend(events_rewriter.push_bytes(piece));
            }
            rewritten.extend(events_rewriter.finish());
            assert!(rewritten == expected.as_bytes(), "pieces of {size}");
        }
    }
}
