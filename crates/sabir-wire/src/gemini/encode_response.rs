//! Encodes events and drafts as Gemini responses.
//!
//! A call is written as one part when it is complete, because a client that does not support
//! `willContinue` would take an earlier piece for the whole call. A truncated call is therefore
//! left out. If it was the only one and the output limit was not the cause, the response ends with
//! the finish reason for an unreadable call.
//!
//! A finished call is held until the next event, which may be its signature. Text is never held:
//! its signature follows in an empty part, as in the API's own streams.

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::answer_details::AnswerDetails;
use super::parts::{self, SIGNATURE};
use super::{MALFORMED, NAME, stop_reason_name};
use crate::arguments::{ArgumentWriter, arguments_object, parse_arguments};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::provider_error::ProviderError;
use crate::sse;
use crate::stop_reason_names::stop_or_default;
use crate::wire::WireEncoder;

/// Encodes the event stream of one response.
#[derive(Debug)]
pub(crate) struct GeminiEncoder {
    /// The model's name and the response's id, which every chunk repeats.
    metadata: ResponseMetadata,
    /// The calls that have begun and not ended.
    calls: Vec<OpenCall>,
    /// The last finished call with its index, until it is written.
    held_call: Option<(u32, Value)>,
    /// The index of the last call that started.
    latest_call: Option<u32>,
    /// The facts for the finish reason.
    outcome: ResponseOutcome,
    /// The merged counts, written in the last chunk.
    usage: Option<Usage>,
    /// The templates for deltas of text and of thoughts.
    templates: [Option<DeltaTemplate>; 2],
    /// Other members of the provider's chunks, for the next chunk; the counts for the last one.
    details: AnswerDetails,
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
    /// The signature, if it came before the end of the call.
    signature: Option<Value>,
}

/// The facts that decide the finish reason.
#[derive(Debug, Default)]
struct ResponseOutcome {
    /// True once a call was completed.
    has_calls: bool,
    /// True once a call was truncated, and so left out.
    cut: bool,
    /// The stop reason with the provider's word.
    stop: Option<(StopReason, String)>,
}

impl GeminiEncoder {
    pub(crate) fn new(metadata: ResponseMetadata) -> Self {
        Self {
            metadata,
            calls: Vec::new(),
            held_call: None,
            latest_call: None,
            outcome: ResponseOutcome::default(),
            usage: None,
            templates: Default::default(),
            details: AnswerDetails::default(),
        }
    }

    /// Writes a piece of text or of a thought.
    fn encode_text(&mut self, thought: bool, text: &str, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        if !self.details.is_empty() {
            return self.write_chunk(vec![parts::text_part(text, thought)], None, out);
        }
        let metadata = &self.metadata;
        let [for_text, for_thoughts] = &mut self.templates;
        let template = if thought { for_thoughts } else { for_text };
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
                sse::encode_event(
                    "",
                    &response_body(
                        metadata,
                        vec![parts::text_part(text, thought)],
                        None,
                        None,
                        AnswerDetails::default(),
                    )
                    .to_string(),
                    &mut out,
                );
                out
            },
        );
    }

    /// Writes a part.
    fn encode_part(&mut self, part: Value, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        self.write_chunk(vec![part], None, out);
    }

    /// Writes the finished call that is held back, if there is one.
    fn flush_held_call(&mut self, out: &mut Vec<u8>) {
        if let Some((_, part)) = self.held_call.take() {
            self.write_chunk(vec![part], None, out);
        }
    }

    /// Writes an object of the stream.
    fn write_chunk(&mut self, parts: Vec<Value>, finish: Option<&str>, out: &mut Vec<u8>) {
        // Token counts are complete only in the last chunk.
        let usage = self.usage.filter(|_| finish.is_some());
        let details = AnswerDetails {
            chunk: std::mem::take(&mut self.details.chunk),
            candidate: std::mem::take(&mut self.details.candidate),
            usage: self.details.usage.clone(),
        };
        sse::encode_event(
            "",
            &response_body(&self.metadata, parts, finish, usage, details).to_string(),
            out,
        );
    }

    /// Returns the open call with this index.
    fn open_call(&mut self, index: u32) -> Option<&mut OpenCall> {
        self.calls.iter_mut().rev().find(|call| call.index == index)
    }

    /// Adds JSON text to a call's arguments.
    fn append_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut ArgumentWriter, &mut String),
    ) {
        if let Some(call) = self.open_call(index) {
            write(&mut call.writer, &mut call.arguments);
        }
    }

    /// Removes the open call with this index and returns it.
    fn take_call(&mut self, index: u32) -> Option<OpenCall> {
        let position = self.calls.iter().rposition(|call| call.index == index)?;
        Some(self.calls.remove(position))
    }

    /// Completes a call and holds its part.
    fn end_call(&mut self, index: u32, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        let Some(mut call) = self.take_call(index) else {
            return;
        };
        call.writer.close_call(&mut call.arguments);
        let mut part = parts::call_part(&call.id, &call.name, parse_arguments(&call.arguments));
        attach_signature(&mut part, call.signature);
        self.outcome.has_calls = true;
        self.held_call = Some((index, part));
    }

    /// Writes state of this wire: a signature into its call, anything else as a part.
    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        if let Some(later) = AnswerDetails::from_state(data) {
            return self.details.add(later);
        }
        if let Some(signature) = parts::call_signature(data) {
            // State that signs a call always follows it, so it belongs to the latest one.
            let Some(latest) = self.latest_call else {
                return;
            };
            if let Some(call) = self.open_call(latest) {
                call.signature = Some(signature.clone());
            } else if let Some((_, part)) = self
                .held_call
                .as_mut()
                .filter(|(index, _)| *index == latest)
            {
                attach_signature(part, Some(signature.clone()));
            }
            return;
        }
        let mut placed = Vec::new();
        parts::insert_opaque(data, &mut placed);
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
            Event::CallStart {
                index, id, name, ..
            } => {
                self.flush_held_call(out);
                let id = self.metadata.call_id(id, index);
                let writer = ArgumentWriter::default();
                let arguments = String::new();
                self.calls.push(OpenCall {
                    index,
                    id,
                    name: name.to_owned(),
                    writer,
                    arguments,
                    signature: None,
                });
                self.latest_call = Some(index);
            }
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. } => {
                self.append_arguments(index, |writer, text| writer.encode_event(event, text));
            }
            Event::CallEnd { index, .. } => self.end_call(index, out),
            // The client never sees this call, since one part must hold all of its arguments.
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
        self.finish_choice(out);
    }

    // With several candidates, the token counts belong to the whole answer: `finish_choices` writes
    // them.
    fn finish_choice(&mut self, out: &mut Vec<u8>) {
        self.flush_held_call(out);
        let reason = self.outcome.finish_reason().to_owned();
        self.write_chunk(vec![parts::text_part("", false)], Some(&reason), out);
    }

    fn finish_choices(&mut self, out: &mut Vec<u8>) {
        let details = std::mem::take(&mut self.details);
        if self.usage.is_some() || !details.is_empty() {
            let body = body_with(&self.metadata, None, self.usage, details);
            sse::encode_event("", &body.to_string(), out);
        }
    }
}

impl ResponseOutcome {
    /// Returns the word for the end of the response.
    fn finish_reason(&self) -> &str {
        let (reason, raw) = stop_or_default(self.stop.as_ref(), false);
        let finished = matches!(reason, StopReason::End | StopReason::Calls);
        // `STOP` would tell the client that nothing is missing.
        if self.cut && !self.has_calls && finished {
            MALFORMED
        } else {
            stop_reason_name(reason, raw)
        }
    }
}

/// Encodes a response that is not streamed.
pub(crate) fn encode_response(metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut found: Vec<Value> = Vec::new();
    let mut outcome = ResponseOutcome {
        stop: draft.stop.clone(),
        ..ResponseOutcome::default()
    };
    // True if the last call was left out, so that its signature is not attached to an earlier one.
    let mut left_out = false;
    let mut details = AnswerDetails::default();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => found.push(parts::text_part(text, false)),
            DraftPart::Thought(text) => found.push(parts::text_part(text, true)),
            DraftPart::Call(call) => {
                left_out = matches!(call.state, DraftState::Cut(_));
                outcome.cut |= left_out;
                outcome.has_calls |= !left_out;
                if !left_out {
                    let id = metadata.call_id(call.id.as_deref(), call.index);
                    found.push(parts::call_part(
                        &id,
                        &call.name,
                        arguments_object(&call.arguments),
                    ));
                }
            }
            DraftPart::Opaque(opaque) if opaque.wire != NAME => {}
            DraftPart::Opaque(opaque)
                if left_out && parts::call_signature(&opaque.data).is_some() => {}
            DraftPart::Opaque(opaque) => match AnswerDetails::from_state(&opaque.data) {
                Some(later) => details.add(later),
                None => parts::insert_opaque(&opaque.data, &mut found),
            },
        }
    }
    response_body(
        metadata,
        found,
        Some(outcome.finish_reason()),
        Some(draft.usage),
        details,
    )
}

/// Adds a signature to a part.
fn attach_signature(part: &mut Value, signature: Option<Value>) {
    if let (Some(part), Some(signature)) = (part.as_object_mut(), signature) {
        part.insert(SIGNATURE.to_owned(), signature);
    }
}

/// Builds an object of the stream, or a whole body.
fn response_body(
    metadata: &ResponseMetadata,
    parts: Vec<Value>,
    finish: Option<&str>,
    usage: Option<Usage>,
    mut details: AnswerDetails,
) -> Value {
    let mut candidate = Map::new();
    candidate.insert(
        "content".to_owned(),
        json!({"parts": parts, "role": "model"}),
    );
    candidate.extend(finish.map(|word| ("finishReason".to_owned(), json!(word))));
    candidate.insert("index".to_owned(), json!(metadata.choice));
    candidate.extend(std::mem::take(&mut details.candidate));
    body_with(metadata, Some(candidate), usage, details)
}

/// Builds an object with this candidate, and with what belongs to the whole answer.
fn body_with(
    metadata: &ResponseMetadata,
    candidate: Option<Map<String, Value>>,
    usage: Option<Usage>,
    details: AnswerDetails,
) -> Value {
    let mut body = Map::new();
    body.extend(candidate.map(|candidate| ("candidates".to_owned(), json!([candidate]))));
    body.extend(usage.map(|usage| {
        let mut counts = details.usage;
        counts.extend(self::encode_usage(usage));
        ("usageMetadata".to_owned(), Value::Object(counts))
    }));
    body.insert("modelVersion".to_owned(), json!(metadata.model));
    body.insert("responseId".to_owned(), json!(metadata.id));
    body.extend(details.chunk);
    Value::Object(body)
}

/// Encodes the token counts. The provider reports thoughts separately from the rest.
fn encode_usage(usage: Usage) -> Map<String, Value> {
    let input = usage.input.unwrap_or_default();
    let output = usage.output.unwrap_or_default();
    let mut value = Map::new();
    value.insert("promptTokenCount".to_owned(), json!(input));
    value.extend(
        usage
            .cache_read
            .map(|count| ("cachedContentTokenCount".to_owned(), json!(count))),
    );
    let words = output.saturating_sub(usage.reasoning.unwrap_or_default());
    value.insert("candidatesTokenCount".to_owned(), json!(words));
    value.extend(
        usage
            .reasoning
            .map(|count| ("thoughtsTokenCount".to_owned(), json!(count))),
    );
    value.insert(
        "totalTokenCount".to_owned(),
        json!(input.saturating_add(output)),
    );
    value
}

/// Encodes the body of an error response.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    let status = match error.kind {
        ModelErrorKind::Key => "UNAUTHENTICATED",
        ModelErrorKind::UnknownModel => "NOT_FOUND",
        ModelErrorKind::Rejected | ModelErrorKind::TooLong => "INVALID_ARGUMENT",
        ModelErrorKind::RateLimited => "RESOURCE_EXHAUSTED",
        ModelErrorKind::Unavailable | ModelErrorKind::Unreachable => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    // The code repeats the status of the response.
    let code = match error.http_status() {
        529 => 503,
        sent => sent,
    };
    json!({"error": {"code": code, "message": error.message, "status": status}})
}
