//! Rewrites forwarded answers: the model has the name that the client asked for, and nothing shows
//! the provider's secrets or, outside of the model's output, its address.
//!
//! One rule covers every form of an answer:
//!
//! * A secret is replaced wherever it is, but only as a whole.
//! * An address is replaced everywhere but in [`CONTENT_MEMBERS`] and in plain text that a model
//!   wrote. An answer that is not JSON where the API has JSON was not written by the model.
//!
//! Everything else stays as it is, to the last digit of a number.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sabir_model::ClientRedactor;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of answers that hold what the model, or a client, wrote.
// Their text is never changed, even if a model writes the address of its own server.
const CONTENT_MEMBERS: [&str; 22] = [
    "choices",
    "content",
    "data",
    "delta",
    "documents",
    "embedding",
    "embeddings",
    "filename",
    "generated_text",
    "images",
    "input",
    "instructions",
    "item",
    "metadata",
    "output",
    "output_text",
    "part",
    "prompt",
    "results",
    "segments",
    "text",
    "words",
];

/// The members of answers that show that a message beside them is none of an error.
const OUTPUT_MEMBERS: [&str; 7] = [
    "choices",
    "content",
    "data",
    "embeddings",
    "images",
    "output",
    "text",
];

/// The member of an event that holds a whole answer.
const NESTED_ANSWER: &str = "response";

/// The longest record of a stream that is read whole.
const MAX_RECORD: usize = 1 << 20;

/// The field of an event that holds its data.
const DATA_FIELD: &[u8] = b"data:";

/// The mark of the byte order at the beginning of a text, which clients leave out.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Rewrites the answers of one exchange.
pub(crate) struct AnswerRewriter {
    /// The name that the client asked for; `None` if answers have no name of a model.
    model: Option<String>,
    /// Removes the secrets and the address of the upstream.
    redactor: Arc<ClientRedactor>,
}

/// The framing of the records in a streamed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFraming {
    /// Events, with JSON in their data.
    Events,
    /// A JSON value on each line, or a single one on many lines.
    Json,
    /// Lines of plain text.
    Text {
        /// True if a model wrote them.
        is_output: bool,
    },
    /// Bytes without records.
    Bytes,
}

/// Rewrites an answer while it arrives.
pub(crate) struct StreamRewriter {
    /// Rewrites the records.
    answers: AnswerRewriter,
    /// The form of the records.
    framing: RecordFraming,
    /// The bytes of a record whose end has not come.
    held: Vec<u8>,
    /// The length of the line whose end has not come.
    line_length: usize,
    /// True if the last byte was `\r`; a `\n` behind it does not end another line.
    is_after_return: bool,
    /// True in a record that is too long to be read whole.
    is_skipping: bool,
    /// True if that record is a single line, as far as it came.
    is_one_line: bool,
}

/// The members of a JSON object, with those that have the same name.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A change of a text: the bytes that are replaced, and their replacement.
type Change = (Range<usize>, Vec<u8>);

impl AnswerRewriter {
    /// Makes a rewriter. `model` is the name that the client asked for, if answers have one.
    pub(crate) fn new(model: Option<String>, redactor: Arc<ClientRedactor>) -> Self {
        Self { model, redactor }
    }

    /// Returns an answer in JSON with the client's name of the model, and without secrets and
    /// addresses.
    pub(crate) fn rewrite_answer(&self, answer: Vec<u8>) -> Vec<u8> {
        self.rewrite_json(&answer)
            .unwrap_or_else(|| self.redact_all(answer))
    }

    /// Makes a rewriter of an answer that arrives in pieces.
    pub(crate) fn into_stream(self, framing: RecordFraming) -> StreamRewriter {
        StreamRewriter {
            answers: self,
            framing,
            held: Vec::new(),
            line_length: 0,
            is_after_return: false,
            is_skipping: false,
            is_one_line: false,
        }
    }

    /// Rewrites a JSON value; `None` if the text is not one.
    fn rewrite_json(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut changes = Vec::new();
        let json = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        // Some servers end each record with the end of a C string.
        let is_blank = |byte: u8| byte == 0 || byte.is_ascii_whitespace();
        let end = json.iter().rposition(|byte| !is_blank(*byte));
        let json = json.get(..=end?)?;
        match json.trim_ascii_start().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_slice(json).ok()?;
                self.collect_changes(text, &members, &mut changes);
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_slice(json).ok()?;
                for item in items {
                    self.collect_item(text, item, &mut changes);
                }
            }
            _ => {
                let value: &RawValue = serde_json::from_slice(json).ok()?;
                self.collect_address(text, value, &mut changes);
            }
        }
        let rewritten = apply_changes(text, changes);
        Some(self.redact_secrets(rewritten))
    }

    /// Collects the changes of an answer: those of its model's name, and of all addresses outside of
    /// its content.
    fn collect_changes(
        &self,
        text: &[u8],
        members: &[(Cow<'_, str>, &RawValue)],
        changes: &mut Vec<Change>,
    ) {
        let is_error = is_error(members);
        for (name, value) in members {
            self.collect_name(text, name, value, changes);
            match &self.model {
                Some(model) if name == "model" && value.get().starts_with('"') => {
                    let model = serde_json::Value::from(&**model).to_string().into_bytes();
                    changes.extend(Some((range_in(text, value), model)));
                }
                _ if is_error => self.collect_address(text, value, changes),
                _ if name == NESTED_ANSWER => self.collect_nested(text, value, changes),
                // A list of files, whose items hold errors too.
                None if name == "data" && value.get().starts_with('[') => {
                    self.collect_item(text, value, changes);
                }
                _ if CONTENT_MEMBERS.contains(&&**name) => {}
                _ => self.collect_address(text, value, changes),
            }
        }
    }

    /// Collects the changes of an answer that is a part of a record. Its model is not named.
    fn collect_nested(&self, text: &[u8], value: &RawValue, changes: &mut Vec<Change>) {
        let Ok(Members(members)) = serde_json::from_str(value.get()) else {
            return self.collect_address(text, value, changes);
        };
        for (name, value) in &members {
            self.collect_name(text, name, value, changes);
            if !CONTENT_MEMBERS.contains(&&**name) {
                self.collect_address(text, value, changes);
            }
        }
    }

    /// Collects the changes of an item of a list, which may be a list of answers itself.
    fn collect_item(&self, text: &[u8], item: &RawValue, changes: &mut Vec<Change>) {
        match serde_json::from_str::<Vec<&RawValue>>(item.get()) {
            Ok(answers) => {
                for answer in answers {
                    self.collect_nested(text, answer, changes);
                }
            }
            Err(_) => self.collect_nested(text, item, changes),
        }
    }

    /// Collects the change of the name of a member with an address. `value` is the member's value.
    fn collect_name(&self, text: &[u8], name: &str, value: &RawValue, changes: &mut Vec<Change>) {
        if !name.contains(['.', ':']) {
            return;
        }
        // The bytes since the value before have the name, as it is written.
        let end = range_in(text, value).start;
        let before = text.get(..end).unwrap_or_default();
        let start = start_of_name(before);
        let name = before.get(start..).unwrap_or_default();
        if let Some(redacted) = self.redactor.redact_address(name) {
            changes.push((start..end, redacted));
        }
    }

    /// Collects the change of a value with an address.
    fn collect_address(&self, text: &[u8], value: &RawValue, changes: &mut Vec<Change>) {
        if let Some(redacted) = self.redactor.redact_address(value.get().as_bytes()) {
            changes.push((range_in(text, value), redacted));
        }
    }

    /// Removes secrets.
    fn redact_secrets(&self, text: Vec<u8>) -> Vec<u8> {
        self.redactor.redact_secrets(&text).unwrap_or(text)
    }

    /// Removes secrets and addresses.
    fn redact_all(&self, text: Vec<u8>) -> Vec<u8> {
        self.redactor.redact_all(&text).unwrap_or(text)
    }
}

/// Returns true for an error that is marked as one, or has a message and no output.
fn is_error(members: &[(Cow<'_, str>, &RawValue)]) -> bool {
    let has_output = members
        .iter()
        .any(|(name, _)| OUTPUT_MEMBERS.contains(&&**name));
    members
        .iter()
        .any(|(name, value)| match (&**name, value.get()) {
            ("object" | "type", kind) => kind == r#""error""#,
            ("message", message) => message.starts_with('"') && !has_output,
            _ => false,
        })
}

/// Returns the offset of the name of a member at the end of a text that stops in front of its value.
fn start_of_name(before: &[u8]) -> usize {
    let bytes = before.iter().enumerate().rev();
    let mut quotes = bytes.filter(|(_, byte)| **byte == b'"').map(|(at, _)| at);
    // The one that ends the name.
    _ = quotes.next();
    let is_first = |quote: &usize| {
        let before = before.get(..*quote).unwrap_or_default();
        let slashes = before.iter().rev().take_while(|byte| **byte == b'\\');
        slashes.count() % 2 == 0
    };
    quotes.find(is_first).unwrap_or(0)
}

/// Returns the range of a value in the JSON that it was read from.
fn range_in(json: &[u8], value: &RawValue) -> Range<usize> {
    let value = value.get();
    let start = value.as_ptr().addr().saturating_sub(json.as_ptr().addr());
    start..start + value.len()
}

/// Applies changes, which are in the order of their ranges.
fn apply_changes(text: &[u8], changes: Vec<Change>) -> Vec<u8> {
    let mut changed = Vec::with_capacity(text.len());
    let mut done = 0;
    for (range, replacement) in changes {
        changed.extend_from_slice(text.get(done..range.start).unwrap_or_default());
        changed.extend(replacement);
        done = range.end;
    }
    changed.extend_from_slice(text.get(done..).unwrap_or_default());
    changed
}

impl StreamRewriter {
    /// Takes the next bytes, and returns those whose records are complete.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut rewritten = Vec::with_capacity(self.held.len() + bytes.len());
        if self.framing == RecordFraming::Bytes {
            self.held.extend_from_slice(bytes);
            self.pass_all_but_window(&mut rewritten);
            return rewritten;
        }
        for piece in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            let is_second_half = self.is_after_return && piece == b"\n";
            self.is_after_return = piece.ends_with(b"\r");
            if is_second_half && self.held.is_empty() {
                rewritten.extend_from_slice(piece);
                continue;
            }
            self.held.extend_from_slice(piece);
            if is_second_half {
                continue;
            }
            self.line_length += piece.len();
            if !self.is_skipping && self.held.len() > MAX_RECORD {
                self.is_skipping = true;
                self.is_one_line = self.held.len() == self.line_length;
            }
            if piece.last().is_some_and(|byte| is_line_end(*byte)) {
                self.end_line(&mut rewritten);
            }
        }
        // Not for each line: the window may be far longer than a line.
        if self.is_skipping {
            self.pass_all_but_window(&mut rewritten);
        }
        rewritten
    }

    /// Returns the bytes of a last record without an end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.take_record()
    }

    /// Takes the held record out if it is complete with this line.
    fn end_line(&mut self, rewritten: &mut Vec<u8>) {
        let length = std::mem::take(&mut self.line_length);
        let is_blank = length == 1;
        let is_first = length == self.held.len() && !self.is_skipping;
        let json_start = match self.framing {
            RecordFraming::Text { .. } => None,
            RecordFraming::Events if is_blank => None,
            RecordFraming::Json if is_first && is_blank => None,
            // The next line is a value by itself.
            RecordFraming::Json if self.is_skipping && self.is_one_line => None,
            _ if !is_first => return,
            RecordFraming::Events => data_start(&self.held),
            RecordFraming::Json => Some(0),
            RecordFraming::Bytes => return,
        };
        let Some(start) = json_start else {
            return rewritten.extend(self.take_record());
        };
        // A value may be on many lines, but most are on one, which must not wait for the next.
        let (field, json) = self.held.split_at(start);
        if let Some(json) = self.answers.rewrite_json(json) {
            rewritten.extend_from_slice(field);
            rewritten.extend(json);
            self.held.clear();
        }
    }

    /// Takes the held record out, rewritten.
    fn take_record(&mut self) -> Vec<u8> {
        let record = std::mem::take(&mut self.held);
        let answers = &self.answers;
        if std::mem::take(&mut self.is_skipping) {
            return answers.redact_secrets(record);
        }
        match self.framing {
            RecordFraming::Events => answers.rewrite_event(record),
            RecordFraming::Json => answers.rewrite_answer(record),
            RecordFraming::Text { is_output: false } => answers.redact_all(record),
            RecordFraming::Text { is_output: true } | RecordFraming::Bytes => {
                answers.redact_secrets(record)
            }
        }
    }

    /// Passes the beginning of a record that is too long, without secrets. The end is held back, since a
    /// secret may begin there.
    fn pass_all_but_window(&mut self, rewritten: &mut Vec<u8>) {
        // Always the same number of bytes: otherwise a client would see whether they begin a secret.
        let window = self.answers.redactor.longest_secret();
        self.held = self.answers.redact_secrets(std::mem::take(&mut self.held));
        let passed = self.held.len().saturating_sub(window);
        rewritten.extend(self.held.drain(..passed));
    }
}

impl AnswerRewriter {
    /// Rewrites an event whose first line is no JSON value by itself, or has no end.
    fn rewrite_event(&self, event: Vec<u8>) -> Vec<u8> {
        let lines = || event.split(|byte| is_line_end(*byte));
        let data: Vec<&[u8]> = lines().filter_map(data_of_line).collect();
        if data.len() < 2 {
            let (field, json) = event.split_at(data_start(&event).unwrap_or(0));
            return match self.rewrite_json(json) {
                Some(json) => [field, &json].concat(),
                None => self.redact_all(event),
            };
        }
        let joined = data.join(&b'\n');
        let data = self.rewrite_answer(joined.clone());
        let others = lines().filter(|line| !line.is_empty() && data_of_line(line).is_none());
        let others = others.collect::<Vec<_>>().join(&b'\n');
        let redacted = self.redactor.redact_all(&others);
        if data == joined && redacted.is_none() {
            return event;
        }
        let others = redacted.unwrap_or(others);
        let mut written = Vec::with_capacity(event.len());
        for line in data.split(|byte| *byte == b'\n') {
            written.extend([DATA_FIELD, b" ", line, b"\n"].concat());
        }
        written.extend([&*others, b"\n\n"].concat());
        written
    }
}

/// Returns the offset of the data in a line of an event; `None` if it is another field, a comment
/// or the end.
fn data_start(line: &[u8]) -> Option<usize> {
    let field = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let data = field.strip_prefix(DATA_FIELD)?;
    Some(line.len() - data.len())
}

/// Returns the data in a line of an event, without the blank in front of it.
fn data_of_line(line: &[u8]) -> Option<&[u8]> {
    let data = line.get(data_start(line)?..)?;
    Some(data.strip_prefix(b" ").unwrap_or(data))
}

/// Returns true for a byte that ends a line of a stream of events; `\r\n` ends a single line.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use sabir_model::{Provider, Secret};
    use sabir_wire::Wire;

    use super::*;

    /// Returns a rewriter for a provider with the key `sk-1234` at `10.0.0.5:8000`.
    fn rewriter(model: &str) -> AnswerRewriter {
        let key = Some(Secret::new("sk-1234"));
        let provider = Provider::new("p", Wire::OpenAiChat, "http://10.0.0.5:8000/v1", key);
        let redactor = Arc::new(ClientRedactor::new(&provider));
        AnswerRewriter::new(Some(model.to_owned()), redactor)
    }

    /// Checks an answer alone, as lines of JSON, and as the data of an event in any pieces.
    fn assert_rewritten(answer: &str, expected: &str) {
        let rewritten = rewriter("a\"b").rewrite_answer(answer.as_bytes().to_vec());
        assert_eq!(String::from_utf8(rewritten).unwrap(), expected);
        assert_streamed(RecordFraming::Json, answer, expected);
        let event = |answer: &str| format!("id: 1\r\ndata: {answer}\r\n\r\ndata: [DONE]\n\n");
        assert_streamed(RecordFraming::Events, &event(answer), &event(expected));
    }

    /// Checks a stream in pieces of any size.
    fn assert_streamed(framing: RecordFraming, answer: &str, expected: &str) {
        for size in 1..=answer.len().min(99) {
            let mut stream = rewriter("a\"b").into_stream(framing);
            let mut rewritten = Vec::new();
            for piece in answer.as_bytes().chunks(size) {
                rewritten.extend(stream.push_bytes(piece));
            }
            rewritten.extend(stream.finish());
            let rewritten = String::from_utf8(rewritten).unwrap();
            assert_eq!(rewritten, expected, "{framing:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_model_has_the_name_of_the_client() {
        for (answer, expected) in [
            (
                r#"{"data": [0.10], "model" : "be\"hind", "n": 1e2}"#,
                r#"{"data": [0.10], "model" : "a\"b", "n": 1e2}"#,
            ),
            (
                r#"{"model": "x", "m\u006fdel": "y"}"#,
                r#"{"model": "a\"b", "m\u006fdel": "a\"b"}"#,
            ),
            (r#"{"a": {"model": "x"}}"#, r#"{"a": {"model": "x"}}"#),
            (r#"{"model": null}"#, r#"{"model": null}"#),
            (r#"{"model": "x""#, r#"{"model": "x""#),
            ("[1]", "[1]"),
        ] {
            assert_rewritten(answer, expected);
        }
    }

    #[test]
    fn errors_in_any_form_show_neither_key_nor_address() {
        for (answer, expected) in [
            (
                r#"{"error": {"message": "bad key sk-1234", "n": 1.0}, "model":"x"}"#,
                r#"{"error": {"message": "bad key [secret]", "n": 1.0}, "model":"a\"b"}"#,
            ),
            (
                r#"{"object": "error", "message": "sk-1234 at http://10.0.0.5:8000/v1", "code": 401}"#,
                r#"{"object": "error", "message": "[secret] at http://[address]/v1", "code": 401}"#,
            ),
            (
                r#"{"detail": [{"msg": "sk-1234 at 10.0.0.5"}], "errors": ["10.0.0.5:8000"]}"#,
                r#"{"detail": [{"msg": "[secret] at [address]"}], "errors": ["[address]"]}"#,
            ),
            (
                r#"{"type": "response.failed", "response": {"error": {"message": "sk-1234 at 10.0.0.5"}}}"#,
                r#"{"type": "response.failed", "response": {"error": {"message": "[secret] at [address]"}}}"#,
            ),
            (
                r#"[{"error": "sk-1234 at 10.0.0.5"}]"#,
                r#"[{"error": "[secret] at [address]"}]"#,
            ),
            (r#""sk-1234 at 10.0.0.5""#, r#""[secret] at [address]""#),
            (
                r#"{"a": 1, "http:\/\/10\u002e0.0.5:8000/v1 \"b\"" : "x", "10.0.0.5": {"10.0.0.5": 1}}"#,
                r#"{"a": 1, "http:\/\/[address]/v1 \"b\"" : "x", "[address]": {"[address]": 1}}"#,
            ),
            (r#"[{"10.0.0.5": 1}]"#, r#"[{"[address]": 1}]"#),
            (
                r#"{"object": "error", "data": "10.0.0.5"}"#,
                r#"{"object": "error", "data": "[address]"}"#,
            ),
            (
                r#"{"message": "x", "results": [{"error": "10.0.0.5"}], "model": "x"}"#,
                r#"{"message": "x", "results": [{"error": "[address]"}], "model": "a\"b"}"#,
            ),
            // The last of two members counts for some clients, and the first for others.
            (
                r#"{"error": "10.0.0.5 sk-1234", "error": "sk-1234 10.0.0.5"}"#,
                r#"{"error": "[address] [secret]", "error": "[secret] [address]"}"#,
            ),
            (
                "\u{feff}{\"error\": \"sk-1234 at 10.0.0.5\"}",
                "\u{feff}{\"error\": \"[secret] at [address]\"}",
            ),
            (
                r#"{"error": "sk-1234 at 10.0.0.5", }"#,
                r#"{"error": "[secret] at [address]", }"#,
            ),
            (
                "bad gateway: 10.0.0.5:8000 refused sk-1234",
                "bad gateway: [address] refused [secret]",
            ),
            (
                r#"{"error": "\u0073k\u002D1234 at http:\/\/10\u002e0.0.5:8000\/v1"}"#,
                r#"{"error": "[secret] at http:\/\/[address]\/v1"}"#,
            ),
            (
                r#"{"error": "{\"message\": \"\\u0073k-1234\"}"}"#,
                r#"{"error": "{\"message\": \"[secret]\"}"}"#,
            ),
        ] {
            assert_rewritten(answer, expected);
        }
    }

    #[test]
    fn output_changes_only_where_it_has_the_whole_key() {
        for (answer, expected) in [
            (
                r#"{"choices": [{"text": "see 10.0.0.5:8000 \u0031"}], "id": "10.0.0.5"}"#,
                r#"{"choices": [{"text": "see 10.0.0.5:8000 \u0031"}], "id": "[address]"}"#,
            ),
            (
                r#"{"type": "x.delta", "delta": "10.0.0.5", "response": {"output": ["10.0.0.5"]}}"#,
                r#"{"type": "x.delta", "delta": "10.0.0.5", "response": {"output": ["10.0.0.5"]}}"#,
            ),
            (
                r#"[[{"text": "10.0.0.5", "error": "10.0.0.5"}]]"#,
                r#"[[{"text": "10.0.0.5", "error": "[address]"}]]"#,
            ),
            (
                "{\"text\": \"10.0.0.5\", \"error\": \"10.0.0.5\"}\0",
                "{\"text\": \"10.0.0.5\", \"error\": \"[address]\"}\0",
            ),
            (
                r#"{"text": "a sk-1234 b sk-123"}"#,
                r#"{"text": "a [secret] b sk-123"}"#,
            ),
        ] {
            assert_rewritten(answer, expected);
        }
    }

    #[test]
    fn lists_of_files_keep_only_the_names_of_files() {
        let redactor = rewriter("m").redactor;
        let files = r#"{"object": "list", "data": [{"filename": "10.0.0.5", "status_details": "10.0.0.5"}]}"#;
        let rewritten = AnswerRewriter::new(None, redactor).rewrite_answer(files.into());
        assert_eq!(
            String::from_utf8(rewritten).unwrap(),
            r#"{"object": "list", "data": [{"filename": "10.0.0.5", "status_details": "[address]"}]}"#
        );
    }

    #[test]
    fn an_error_may_be_on_several_lines() {
        assert_streamed(
            RecordFraming::Events,
            "event: error\ndata: {\"error\": {\"message\":\ndata: \"sk-1234 at 10.0.0.5\"}}\nid: 7\n\n",
            "event: error\ndata: {\"error\": {\"message\":\ndata: \"[secret] at [address]\"}}\nid: 7\n\n",
        );
        let output =
            "data: {\"text\":\r\ndata:\"10.0.0.5\",\r\ndata:\"n\": 1}\r\nevent: x\r\n\r\n: hi\r\n";
        assert_streamed(RecordFraming::Events, output, output);
        assert_streamed(
            RecordFraming::Events,
            ": sk-1234 at 10.0.0.5\r\rdata: a sk-\rdata: 1234 b",
            ": [secret] at [address]\r\rdata: a [secret] b\n\n\n",
        );
        assert_streamed(
            RecordFraming::Json,
            "{\n  \"text\": \"10.0.0.5\",\n  \"detail\": \"sk-1234 at 10.0.0.5\"\n}\n",
            "{\n  \"text\": \"10.0.0.5\",\n  \"detail\": \"[secret] at [address]\"\n}\n",
        );
        assert_streamed(
            RecordFraming::Json,
            "\n{\"text\": \"10.0.0.5\"}\n{\"model\": \"x\"}\n\n{\"detail\": \"10.0.0.5\"}",
            "\n{\"text\": \"10.0.0.5\"}\n{\"model\": \"a\\\"b\"}\n\n{\"detail\": \"[address]\"}",
        );
    }

    #[test]
    fn text_and_bytes_lose_only_what_they_must() {
        let text = "1\n00:01 --> 00:02\nfrom 10.0.0.5 with sk-1234\n";
        for (framing, expected) in [
            (
                RecordFraming::Text { is_output: true },
                text.replace("sk-1234", "[secret]"),
            ),
            (
                RecordFraming::Text { is_output: false },
                text.replace("sk-1234", "[secret]")
                    .replace("10.0.0.5", "[address]"),
            ),
            (RecordFraming::Bytes, text.replace("sk-1234", "[secret]")),
        ] {
            assert_streamed(framing, text, &expected);
        }
    }

    #[test]
    fn events_are_rewritten_in_any_pieces() {
        let long = |key: &str| {
            let filling = "y".repeat(MAX_RECORD);
            format!("data: {{\"model\": \"x\", \"a\": \"{filling}{key}{filling}\"}}\n\n")
        };
        let event = |model: &str, key: &str| {
            format!(
                "data: {{\"model\":\"{model}\"}}\r\r: model\r\ndata: {{\"model\":\"{model}\"}}\r\n\r\n{}data:{{\"model\":\"{model}\"}}\n\ndata: [DONE]\n\n\u{feff}data: {{\"model\":\"{model}\"}}",
                long(key)
            )
        };
        for size in [7, 64, 1 << 22] {
            let mut stream = rewriter("m").into_stream(RecordFraming::Events);
            let mut rewritten = Vec::new();
            for piece in event("x", "sk-1234").as_bytes().chunks(size) {
                rewritten.extend(stream.push_bytes(piece));
            }
            rewritten.extend(stream.finish());
            let is_right = rewritten == event("m", "[secret]").as_bytes();
            assert!(is_right, "pieces of {size}");
        }
    }

    #[test]
    fn lines_behind_a_long_line_are_rewritten() {
        let answer = |model: &str, key: &str, address: &str| {
            let long = "y".repeat(MAX_RECORD);
            format!(
                "{{\"a\": \"{long}{key}\"}}\n{{\"model\": \"{model}\", \"error\": \"{address}\"}}\n"
            )
        };
        for size in [64, 1 << 22] {
            let mut stream = rewriter("m").into_stream(RecordFraming::Json);
            let mut rewritten = Vec::new();
            for piece in answer("x", "sk-1234", "10.0.0.5").as_bytes().chunks(size) {
                rewritten.extend(stream.push_bytes(piece));
            }
            // Before the end.
            let is_right = rewritten == answer("m", "[secret]", "[address]").as_bytes();
            assert!(is_right, "pieces of {size}");
        }
    }

    #[test]
    fn a_key_in_json_in_json_in_json_is_found_in_any_pieces() {
        let key: String = "sk-1234"
            .bytes()
            .map(|sign| format!(r"\\\\u{sign:04x}"))
            .collect();
        let begin = format!("data: {}", "y".repeat(MAX_RECORD));
        for cut in [1, key.len() / 2, key.len() - 1] {
            let mut stream = rewriter("m").into_stream(RecordFraming::Events);
            let mut rewritten =
                stream.push_bytes(&[begin.as_bytes(), key.as_bytes().get(..cut).unwrap()].concat());
            rewritten.extend(
                stream.push_bytes(&[key.as_bytes().get(cut..).unwrap(), b" end\n\n"].concat()),
            );
            let is_right = rewritten == format!("{begin}[secret] end\n\n").as_bytes();
            assert!(is_right, "cut at {cut}");
        }
    }

    #[test]
    fn a_record_is_passed_when_its_last_line_has_come() {
        let mut stream = rewriter("m").into_stream(RecordFraming::Events);
        for record in [
            "data: {\"text\": \"a\"}\n",
            "\n",
            ": ping\n",
            "data: [DONE]\n\n",
        ] {
            let passed = stream.push_bytes(record.as_bytes());
            assert_eq!(String::from_utf8(passed).unwrap(), record);
        }
    }
}
