//! Gemini: events to response bodies.
//!
//! A call is written as one part when it is whole, because a client that does not know `willContinue` would take any
//! earlier part of it for the call itself. One that was cut is therefore left out; if it was the only one and not the
//! limit's fault, the answer ends with the word for a call that could not be read.
//!
//! A call waits for the event behind it, which may be its signature. Text is never held: its signature follows it in an
//! empty part, as the API's own streams do it.

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::parts::{self, SIGNATURE};
use super::{MALFORMED, NAME, stop_word};
use crate::arguments::{ArgumentWriter, arguments_object, parse_arguments};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::provider_error::ProviderError;
use crate::sse;
use crate::wire::WireEncoder;

#[derive(Debug)]
pub(crate) struct GeminiEncoder {
    head: ResponseMetadata,
    calls: Vec<OpenCall>,
    /// The last call that ended, until it is written.
    held_call: Option<(u32, Value)>,
    /// The last call that began.
    latest_call: Option<u32>,
    outcome: ResponseOutcome,
    usage: Option<Usage>,
    /// The deltas of words and of thoughts.
    templates: [Option<DeltaTemplate>; 2],
}

#[derive(Debug)]
struct OpenCall {
    index: u32,
    id: String,
    name: String,
    writer: ArgumentWriter,
    arguments: String,
    signature: Option<Value>,
}

/// How an answer ended.
#[derive(Debug, Default)]
struct ResponseOutcome {
    has_calls: bool,
    cut: bool,
    stop: Option<(StopReason, String)>,
}

impl GeminiEncoder {
    pub(crate) fn new(head: ResponseMetadata) -> Self {
        Self {
            head,
            calls: Vec::new(),
            held_call: None,
            latest_call: None,
            outcome: ResponseOutcome::default(),
            usage: None,
            templates: Default::default(),
        }
    }

    fn encode_text(&mut self, thought: bool, text: &str, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        let ([words, thoughts], head) = (&mut self.templates, &self.head);
        let mould = if thought { thoughts } else { words };
        write_delta(mould, TextDelta { key: 0, number: 0, text }, out, |_, text| {
            let mut out = Vec::new();
            sse::encode_event(
                "",
                &response_body(head, vec![parts::text_part(text, thought)], None, None).to_string(),
                &mut out,
            );
            out
        });
    }

    fn encode_part(&mut self, part: Value, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        self.write_chunk(vec![part], None, out);
    }

    fn flush_held_call(&mut self, out: &mut Vec<u8>) {
        if let Some((_, part)) = self.held_call.take() {
            self.write_chunk(vec![part], None, out);
        }
    }

    fn write_chunk(&self, parts: Vec<Value>, finish: Option<&str>, out: &mut Vec<u8>) {
        let usage = self.usage.filter(|_| finish.is_some());
        sse::encode_event("", &response_body(&self.head, parts, finish, usage).to_string(), out);
    }

    fn open_call(&mut self, index: u32) -> Option<&mut OpenCall> {
        self.calls.iter_mut().rev().find(|call| call.index == index)
    }

    fn append_arguments(&mut self, index: u32, write: impl FnOnce(&mut ArgumentWriter, &mut String)) {
        if let Some(call) = self.open_call(index) {
            write(&mut call.writer, &mut call.arguments);
        }
    }

    fn take_call(&mut self, index: u32) -> Option<OpenCall> {
        let position = self.calls.iter().rposition(|call| call.index == index)?;
        Some(self.calls.remove(position))
    }

    fn end_call(&mut self, index: u32, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        let Some(mut call) = self.take_call(index) else { return };
        call.writer.close_call(&mut call.arguments);
        let mut part = parts::call_part(&call.id, &call.name, parse_arguments(&call.arguments));
        attach_signature(&mut part, call.signature);
        self.outcome.has_calls = true;
        self.held_call = Some((index, part));
    }

    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        if let Some(signature) = parts::call_signature(data) {
            let Some(latest) = self.latest_call else { return };
            if let Some(call) = self.open_call(latest) {
                call.signature = Some(signature.clone());
            } else if let Some((_, part)) = self.held_call.as_mut().filter(|(index, _)| *index == latest) {
                attach_signature(part, Some(signature.clone()));
            }
            return;
        }
        let mut placed = Vec::new();
        parts::place_opaque(data, &mut placed);
        for part in placed {
            self.encode_part(part, out);
        }
    }
}

impl WireEncoder for GeminiEncoder {
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.encode_text(false, text, out),
            Event::Thought { text } => self.encode_text(true, text, out),
            Event::CallStart { index, id, name, .. } => {
                self.flush_held_call(out);
                let id = self.head.call_id(id, index);
                let (writer, arguments) = (ArgumentWriter::default(), String::new());
                self.calls.push(OpenCall { index, id, name: name.to_owned(), writer, arguments, signature: None });
                self.latest_call = Some(index);
            }
            Event::ArgStart { index, name, form, .. } => {
                self.append_arguments(index, |writer, text| writer.start_argument(name, form, text));
            }
            Event::ArgDelta { index, text: delta } => {
                self.append_arguments(index, |writer, text| writer.push_delta(delta, text))
            }
            Event::ArgEnd { index, lead, .. } => {
                self.append_arguments(index, |writer, text| writer.end_argument(lead, text))
            }
            Event::CallEnd { index, .. } => self.end_call(index, out),
            Event::CallCut { index, .. } => {
                self.outcome.cut = true;
                self.take_call(index);
            }
            Event::Usage(usage) => self.usage.get_or_insert_default().update(usage),
            Event::Stop { reason, raw } => self.outcome.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => self.encode_opaque(&opaque.data, out),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        sse::encode_event("", &encode_error(error).to_string(), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        self.write_chunk(vec![parts::text_part("", false)], Some(self.outcome.finish_reason()), out);
    }
}

impl ResponseOutcome {
    fn finish_reason(&self) -> &str {
        let (reason, raw) = self.stop.as_ref().map_or((StopReason::End, ""), |(reason, raw)| (*reason, raw.as_str()));
        let finished = matches!(reason, StopReason::End | StopReason::Calls);
        if self.cut && !self.has_calls && finished { MALFORMED } else { stop_word(reason, raw) }
    }
}

pub(crate) fn encode_response(head: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut found: Vec<Value> = Vec::new();
    let mut outcome = ResponseOutcome { stop: draft.stop.clone(), ..ResponseOutcome::default() };
    // Whether the last call was left out, so that its signature is not another's.
    let mut left_out = false;
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => found.push(parts::text_part(text, false)),
            DraftPart::Thought(text) => found.push(parts::text_part(text, true)),
            DraftPart::Call(call) => {
                left_out = matches!(call.state, DraftState::Cut(_));
                outcome.cut |= left_out;
                outcome.has_calls |= !left_out;
                if !left_out {
                    let id = head.call_id(call.id.as_deref(), call.index);
                    found.push(parts::call_part(&id, &call.name, arguments_object(&call.arguments)));
                }
            }
            DraftPart::Opaque(opaque) if opaque.wire != NAME => {}
            DraftPart::Opaque(opaque) if left_out && parts::call_signature(&opaque.data).is_some() => {}
            DraftPart::Opaque(opaque) => parts::place_opaque(&opaque.data, &mut found),
        }
    }
    response_body(head, found, Some(outcome.finish_reason()), Some(draft.usage))
}

fn attach_signature(part: &mut Value, signature: Option<Value>) {
    if let (Some(part), Some(signature)) = (part.as_object_mut(), signature) {
        part.insert(SIGNATURE.to_owned(), signature);
    }
}

fn response_body(head: &ResponseMetadata, parts: Vec<Value>, finish: Option<&str>, usage: Option<Usage>) -> Value {
    let mut candidate = Map::new();
    candidate.insert("content".to_owned(), json!({"parts": parts, "role": "model"}));
    candidate.extend(finish.map(|word| ("finishReason".to_owned(), json!(word))));
    candidate.insert("index".to_owned(), json!(0));
    let mut body = Map::new();
    body.insert("candidates".to_owned(), json!([candidate]));
    body.extend(usage.map(|usage| ("usageMetadata".to_owned(), self::encode_usage(usage))));
    body.insert("modelVersion".to_owned(), json!(head.model));
    body.insert("responseId".to_owned(), json!(head.id));
    Value::Object(body)
}

/// The provider counts thoughts apart from the rest.
fn encode_usage(usage: Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or_default(), usage.output.unwrap_or_default());
    let mut value = Map::new();
    value.insert("promptTokenCount".to_owned(), json!(input));
    value.extend(usage.cache_read.map(|count| ("cachedContentTokenCount".to_owned(), json!(count))));
    let words = output.saturating_sub(usage.reasoning.unwrap_or_default());
    value.insert("candidatesTokenCount".to_owned(), json!(words));
    value.extend(usage.reasoning.map(|count| ("thoughtsTokenCount".to_owned(), json!(count))));
    value.insert("totalTokenCount".to_owned(), json!(input.saturating_add(output)));
    Value::Object(value)
}

pub(crate) fn encode_error(error: &ProviderError) -> Value {
    let (code, status) = match error.kind {
        ModelErrorKind::Key => (401, "UNAUTHENTICATED"),
        ModelErrorKind::UnknownModel => (404, "NOT_FOUND"),
        ModelErrorKind::Rejected | ModelErrorKind::TooLong => (400, "INVALID_ARGUMENT"),
        ModelErrorKind::RateLimited => (429, "RESOURCE_EXHAUSTED"),
        ModelErrorKind::Unavailable | ModelErrorKind::Unreachable => (503, "UNAVAILABLE"),
        _ => (500, "INTERNAL"),
    };
    json!({"error": {"code": code, "message": error.message, "status": status}})
}
