//! Encodes events and drafts as Ollama responses.
//!
//! A call is written when it is complete. A truncated call is left out: arguments are an object on
//! this wire, which cannot be shown as unfinished.

use std::time::Duration;

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::stop_reason_name;
use crate::arguments::{ArgumentWriter, arguments_object, parse_arguments};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::provider_error::ProviderError;
use crate::stop_reason_names::stop_or_default;
use crate::timestamp::format_timestamp;
use crate::wire::WireEncoder;

/// Encodes the lines of one response.
#[derive(Debug)]
pub(crate) struct OllamaEncoder {
    /// The model's name, the creation time and the durations.
    metadata: ResponseMetadata,
    /// The calls that have begun and not ended.
    calls: Vec<OpenCall>,
    /// The number of calls written so far.
    calls_written: u64,
    /// The merged counts, written in the last line.
    usage: Usage,
    /// The stop reason with the provider's word, written in the last line.
    stop: Option<(StopReason, String)>,
    /// The templates for deltas of text and of thoughts.
    templates: [Option<DeltaTemplate>; 2],
}

/// A call whose end has not come.
#[derive(Debug)]
struct OpenCall {
    /// The call's index in the events.
    index: u32,
    /// The provider's id, or a generated one.
    id: String,
    /// The tool's name.
    name: String,
    /// Turns argument events into JSON text.
    writer: ArgumentWriter,
    /// The JSON text so far; it becomes an object when the call ends.
    arguments: String,
}

impl OllamaEncoder {
    pub(crate) fn new(metadata: ResponseMetadata) -> Self {
        let usage = Usage::default();
        Self {
            metadata,
            calls: Vec::new(),
            calls_written: 0,
            usage,
            stop: None,
            templates: Default::default(),
        }
    }

    /// Writes a piece of text or of a thought; `field` is its member.
    fn encode_text(&mut self, field: &str, text: &str, out: &mut Vec<u8>) {
        let metadata = &self.metadata;
        let [for_text, for_thoughts] = &mut self.templates;
        let template = if field == "content" {
            for_text
        } else {
            for_thoughts
        };
        write_delta(
            template,
            TextDelta {
                key: 0,
                number: 0,
                text,
            },
            out,
            |_, text| {
                let mut out = Vec::new();
                write_message_line(metadata, json!({field: text}), &mut out);
                out
            },
        );
    }

    /// Adds JSON text to a call's arguments.
    fn append_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut ArgumentWriter, &mut String),
    ) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            write(&mut call.writer, &mut call.arguments);
        }
    }

    /// Completes a call and writes it.
    fn end_call(&mut self, index: u32, out: &mut Vec<u8>) {
        let Some(position) = self.calls.iter().rposition(|call| call.index == index) else {
            return;
        };
        let mut call = self.calls.remove(position);
        call.writer.close_call(&mut call.arguments);
        let call = encode_call(
            &call.id,
            self.calls_written,
            &call.name,
            parse_arguments(&call.arguments),
        );
        self.calls_written += 1;
        write_message_line(&self.metadata, json!({"tool_calls": [call]}), out);
    }
}

impl WireEncoder for OllamaEncoder {
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.encode_text("content", text, out),
            Event::Thought { text } => self.encode_text("thinking", text, out),
            Event::CallStart {
                index, id, name, ..
            } => {
                let id = self.metadata.call_id(id, index);
                let writer = ArgumentWriter::default();
                let arguments = String::new();
                self.calls.push(OpenCall {
                    index,
                    id,
                    name: name.to_owned(),
                    writer,
                    arguments,
                });
            }
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. } => {
                self.append_arguments(index, |writer, text| writer.encode_event(event, text));
            }
            Event::CallEnd { index, .. } => self.end_call(index, out),
            Event::CallCut { index, .. } => self.calls.retain(|call| call.index != index),
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        write_line(&encode_error(error), out);
    }

    // Every line is an object of the response, so there are no bytes that all clients skip.
    fn keep_alive(&mut self, _: &mut Vec<u8>) {}

    fn set_durations(&mut self, total: Duration, generation: Duration) {
        self.metadata.total_duration = total;
        self.metadata.generation_duration = generation;
    }

    /// Writes a line without text whose extra member clients ignore.
    fn encode_comment(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        let mut body = line_head(&self.metadata);
        body.insert(
            "message".to_owned(),
            json!({"role": "assistant", "content": ""}),
        );
        body.insert("done".to_owned(), json!(false));
        body.insert(name.to_owned(), json!(words));
        write_line(&Value::Object(body), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let message = json!({"role": "assistant", "content": ""});
        write_line(
            &final_line(&self.metadata, message, self.stop.as_ref(), self.usage),
            out,
        );
    }
}

/// Writes a line with this message.
fn write_message_line(metadata: &ResponseMetadata, mut message: Value, out: &mut Vec<u8>) {
    if let Some(message) = message.as_object_mut() {
        // Ollama itself writes the member even in a message with calls.
        message.entry("content").or_insert_with(|| json!(""));
        message.shift_insert(0, "role".to_owned(), json!("assistant"));
    }
    let mut body = line_head(metadata);
    body.insert("message".to_owned(), message);
    body.insert("done".to_owned(), json!(false));
    write_line(&Value::Object(body), out);
}

/// Encodes a response that is not streamed.
pub(crate) fn encode_response(metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut words = String::new();
    let mut thoughts = String::new();
    let mut calls = Vec::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => words.push_str(text),
            DraftPart::Thought(text) => thoughts.push_str(text),
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = metadata.call_id(call.id.as_deref(), call.index);
                calls.push(encode_call(
                    &id,
                    calls.len() as u64,
                    &call.name,
                    arguments_object(&call.arguments),
                ));
            }
            DraftPart::Opaque(_) => {}
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(words));
    if !thoughts.is_empty() {
        message.insert("thinking".to_owned(), json!(thoughts));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    final_line(
        metadata,
        Value::Object(message),
        draft.stop.as_ref(),
        draft.usage,
    )
}

/// Encodes the body of an error response.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    json!({"error": error.message})
}

/// Encodes a call.
fn encode_call(id: &str, index: u64, name: &str, arguments: Map<String, Value>) -> Value {
    json!({"id": id, "function": {"index": index, "name": name, "arguments": arguments}})
}

/// Builds the last line of a stream, which is also the body of a response that is not streamed.
fn final_line(
    metadata: &ResponseMetadata,
    message: Value,
    stop: Option<&(StopReason, String)>,
    usage: Usage,
) -> Value {
    let (reason, raw) = stop_or_default(stop, false);
    let mut body = line_head(metadata);
    body.insert("message".to_owned(), message);
    body.insert("done".to_owned(), json!(true));
    body.insert(
        "done_reason".to_owned(),
        json!(stop_reason_name(reason, raw)),
    );
    // Unknown values are left out, as Ollama leaves out zeros. Only the provider knows how long
    // loading and prompt evaluation took.
    let time = |name: &str, time: Duration| {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Ollama counts durations in nanoseconds.
        (nanoseconds > 0).then(|| (name.to_owned(), json!(nanoseconds)))
    };
    body.extend(time("total_duration", metadata.total_duration));
    body.extend(
        usage
            .input
            .map(|count| ("prompt_eval_count".to_owned(), json!(count))),
    );
    body.extend(
        usage
            .output
            .map(|count| ("eval_count".to_owned(), json!(count))),
    );
    body.extend(time("eval_duration", metadata.generation_duration));
    Value::Object(body)
}

/// Builds the members that every line starts with.
fn line_head(metadata: &ResponseMetadata) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(metadata.model));
    body.insert(
        "created_at".to_owned(),
        json!(format_timestamp(metadata.created)),
    );
    body
}

/// Writes a line of JSON.
fn write_line(body: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(body.to_string().as_bytes());
    out.push(b'\n');
}
