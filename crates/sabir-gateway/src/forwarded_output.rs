//! Counts the tokens of forwarded answers, while they pass.
//!
//! Usage that the upstream reports counts. Otherwise the output is estimated from the text of the
//! answer, at the endpoints that answer with text.

use sabir_call::{BYTES_PER_TOKEN, Usage};
use sabir_wire::parse_lossy;
use serde_json::Value;

/// The longest line of a stream of events that is read. The bytes of a longer one count as text.
const MAX_LINE: usize = 1 << 20;

/// The longest answer in JSON that is read whole. The bytes of a longer one count as text.
const MAX_JSON: usize = 32 << 20;

/// The form of a forwarded answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// A JSON value.
    Json,
    /// A stream of events with JSON data.
    Events,
    /// Plain text.
    Text,
    /// Something else, such as audio.
    Binary,
}

impl AnswerForm {
    /// Returns the form of a content type.
    pub(crate) fn of_type(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        match kind.to_ascii_lowercase().as_str() {
            "text/event-stream" => Self::Events,
            // An answer without a type is JSON as that of most endpoints.
            "" | "application/json" => Self::Json,
            kind if kind.ends_with("+json") || is_json_lines(kind) => Self::Json,
            kind if kind.starts_with("text/") || kind.ends_with("xml") => Self::Text,
            _ => Self::Binary,
        }
    }
}

/// Returns true for a content type of JSON values on lines.
pub(crate) fn is_json_lines(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind.ends_with("ndjson") || kind.ends_with("jsonl")
}

/// Counts the tokens of one answer.
pub(crate) struct OutputCounter {
    /// The form of the answer.
    form: AnswerForm,
    /// True if the endpoint answers with text of a model.
    has_text: bool,
    /// The present line of a stream, or the JSON so far.
    held: Vec<u8>,
    /// True if the line or the JSON is too long to be held.
    is_skipped: bool,
    /// The bytes of text so far.
    text_bytes: u64,
    /// The usage that the upstream reported.
    reported: Usage,
}

impl OutputCounter {
    /// Makes a counter.
    pub(crate) fn new(form: AnswerForm, has_text: bool) -> Self {
        Self {
            form,
            has_text,
            held: Vec::new(),
            is_skipped: false,
            text_bytes: 0,
            reported: Usage::default(),
        }
    }

    /// Counts the next bytes of the answer.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        match self.form {
            AnswerForm::Json => self.hold_bytes(bytes, MAX_JSON),
            AnswerForm::Events => {
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    self.hold_bytes(line, MAX_LINE);
                    if line.ends_with(b"\n") {
                        self.end_line();
                    }
                }
            }
            AnswerForm::Text => self.text_bytes += bytes.len() as u64,
            AnswerForm::Binary => {}
        }
    }

    /// Returns the usage of all bytes so far, also if the answer broke off.
    pub(crate) fn usage(&mut self) -> Usage {
        match self.form {
            AnswerForm::Json => {
                self.count_json(0);
                self.held.clear();
            }
            // The last line may have no end.
            AnswerForm::Events => self.end_line(),
            AnswerForm::Text | AnswerForm::Binary => {}
        }
        let text_bytes = if self.has_text { self.text_bytes } else { 0 };
        let estimate = text_bytes.div_ceil(BYTES_PER_TOKEN);
        Usage {
            output: self.reported.output.or(Some(estimate)),
            ..self.reported
        }
    }

    /// Keeps bytes of a line or of the JSON, unless there are too many.
    fn hold_bytes(&mut self, bytes: &[u8], most: usize) {
        if self.is_skipped || self.held.len() + bytes.len() > most {
            self.is_skipped = true;
            self.text_bytes += (self.held.len() + bytes.len()) as u64;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Counts the line that is over.
    fn end_line(&mut self) {
        if self.held.starts_with(b"data:") {
            self.count_json(b"data:".len());
        }
        self.held.clear();
        self.is_skipped = false;
    }

    /// Counts the buffered JSON from an offset on.
    fn count_json(&mut self, from: usize) {
        let json = self.held.get(from..).unwrap_or_default();
        // Others are `[DONE]`, or the rest of an answer that broke off.
        let Ok(value) = parse_lossy::<Value>(json) else {
            return;
        };
        if let Some(usage) = value
            .get("usage")
            .or_else(|| value.get("response")?.get("usage"))
        {
            let count = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64());
            let input = count(["prompt_tokens", "input_tokens"]);
            let output = count(["completion_tokens", "output_tokens"]);
            // Answers about a ranking have only the sum.
            let total = usage.get("total_tokens").and_then(Value::as_u64);
            let rest = total.map(|total| total.saturating_sub(output.unwrap_or(0)));
            self.reported.update(Usage {
                input: input.or(rest),
                output,
                ..Usage::default()
            });
        }
        self.text_bytes += text_bytes(&value);
    }
}

/// Returns the bytes of text in an answer or in one event of it.
fn text_bytes(value: &Value) -> u64 {
    let length = |value: Option<&Value>| value.and_then(Value::as_str).map_or(0, str::len) as u64;
    // Completions have choices, transcriptions have a text, and their events have deltas. The final
    // event repeats the whole text, so it is not counted.
    let is_done = value
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with(".done"));
    if is_done {
        return 0;
    }
    let choices = value.get("choices").and_then(Value::as_array);
    let in_choices: u64 = choices
        .into_iter()
        .flatten()
        .map(|choice| length(choice.get("text")))
        .sum();
    in_choices + length(value.get("text")) + length(value.get("delta"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the input and output of an answer that arrives in pieces of three bytes.
    fn counted(form: AnswerForm, has_text: bool, answer: &str) -> Usage {
        let mut counter = OutputCounter::new(form, has_text);
        for piece in answer.as_bytes().chunks(3) {
            counter.push_bytes(piece);
        }
        counter.usage()
    }

    fn usage(input: Option<u64>, output: u64) -> Usage {
        Usage {
            input,
            output: Some(output),
            ..Usage::default()
        }
    }

    #[test]
    fn reported_usage_counts_and_text_is_estimated_without_it() {
        let events = "data: {\"choices\":[{\"text\":\"12345678\"}],\"usage\":null}\n\n\
                      data: {\"choices\":[{\"text\":\"9\"}]}\r\n\r\ndata: [DONE]\n\n";
        assert_eq!(counted(AnswerForm::Events, true, events), usage(None, 3));
        let reported =
            format!("{events}data: {{\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":11}}}}");
        assert_eq!(
            counted(AnswerForm::Events, true, &reported),
            usage(Some(7), 11)
        );
        let whole = "{\"text\": \"12345\", \"usage\": {\"prompt_tokens\": 7}}";
        assert_eq!(counted(AnswerForm::Json, true, whole), usage(Some(7), 2));
        assert_eq!(counted(AnswerForm::Json, false, whole), usage(Some(7), 0));
        let ranking = "{\"results\": [], \"usage\": {\"total_tokens\": 9}}";
        assert_eq!(counted(AnswerForm::Json, false, ranking), usage(Some(9), 0));
        assert_eq!(counted(AnswerForm::Text, true, "12345678"), usage(None, 2));
        assert_eq!(
            counted(AnswerForm::Binary, true, "12345678"),
            usage(None, 0)
        );
    }

    #[test]
    fn the_form_follows_the_content_type() {
        for (kind, form) in [
            ("text/event-stream; charset=utf-8", AnswerForm::Events),
            ("application/JSON", AnswerForm::Json),
            ("application/problem+json", AnswerForm::Json),
            ("application/x-ndjson", AnswerForm::Json),
            ("", AnswerForm::Json),
            ("text/html", AnswerForm::Text),
            ("application/xml", AnswerForm::Text),
            ("audio/wav", AnswerForm::Binary),
        ] {
            assert_eq!(AnswerForm::of_type(kind), form, "{kind}");
        }
        assert!(is_json_lines("application/jsonl; charset=utf-8"));
        assert!(!is_json_lines("application/json"));
    }

    #[test]
    fn what_is_too_long_to_be_read_is_estimated() {
        let long = "x".repeat(MAX_LINE);
        let events = format!("data: {long}\ndata: {{\"choices\":[{{\"text\":\"12345678\"}}]}}\n");
        let output = counted(AnswerForm::Events, true, &events).output.unwrap();
        // The first line with its `data: ` and its end, and the text of the second.
        assert_eq!(output, (MAX_LINE as u64 + 7 + 8).div_ceil(BYTES_PER_TOKEN));
        let mut counter = OutputCounter::new(AnswerForm::Json, true);
        let piece = vec![b' '; MAX_JSON / 2 + 1];
        counter.push_bytes(&piece);
        counter.push_bytes(&piece);
        let estimate = (MAX_JSON as u64 + 2).div_ceil(BYTES_PER_TOKEN);
        assert_eq!(counter.usage(), usage(None, estimate));
    }
}
