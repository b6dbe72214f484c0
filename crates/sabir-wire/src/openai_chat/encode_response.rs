//! Encodes events and drafts as Chat Completions responses.
//!
//! The input of a custom tool is plain text, which cannot show that its end is missing. If such a
//! call was truncated, the stream ends with the reason `length`, and a body that is not streamed
//! leaves the call out.
//!
//! A client that knows only the older form of functions gets the first call of an answer as its
//! `function_call`.

use std::collections::BTreeMap;

use sabir_call::{
    DraftArgument, DraftCall, DraftPart, DraftResponse, DraftState, Event, ModelErrorKind,
    StopReason, Usage,
};
use serde_json::{Map, Value, json};

use super::answer_details::{AnswerDetails, CALLS, REFUSAL, merge_members};
use super::legacy_functions::FUNCTION_CALL;
use super::{NAME, stop_reason_name};
use crate::client_request::{ResponseMetadata, UsageReporting};
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::openai_responses::CallArgumentWriter;
use crate::provider_error::ProviderError;
use crate::sse;
use crate::stop_reason_names::stop_or_default;
use crate::wire::WireEncoder;

/// Encodes the chunks of one response.
#[derive(Debug)]
pub(crate) struct OpenAiChatEncoder {
    /// The members that every chunk repeats, and the client's preferences.
    metadata: ResponseMetadata,
    /// True once the first delta was written.
    begun: bool,
    /// The open calls: index and writer. The index in the events is also the one on the wire.
    calls: Vec<(u32, CallArgumentWriter)>,
    /// True once a call has started; it decides the finish reason where the provider sent none.
    has_calls: bool,
    /// True if a call with a text input was truncated.
    custom_call_truncated: bool,
    /// The merged counts, written in a separate chunk if the client wants them.
    usage: Option<Usage>,
    /// The stop reason with the provider's word, written after all deltas.
    stop: Option<(StopReason, String)>,
    /// The templates for deltas of text, thoughts and arguments.
    templates: [Option<DeltaTemplate>; 3],
    /// The buffer for one piece of arguments.
    fragment: String,
    /// Other members of the provider's chunks. Members of choices and deltas wait for the next
    /// chunk.
    details: AnswerDetails,
    /// The provider's members of calls that have not begun, by the ids of the calls.
    call_members: BTreeMap<String, Map<String, Value>>,
    /// The indexes of the calls that have begun, by their ids.
    begun_calls: BTreeMap<String, u32>,
}

impl OpenAiChatEncoder {
    pub(crate) fn new(metadata: ResponseMetadata) -> Self {
        Self {
            metadata,
            begun: false,
            calls: Vec::new(),
            has_calls: false,
            custom_call_truncated: false,
            usage: None,
            stop: None,
            templates: Default::default(),
            fragment: String::new(),
            details: AnswerDetails::default(),
            call_members: BTreeMap::new(),
            begun_calls: BTreeMap::new(),
        }
    }

    /// Writes a chunk with this delta. The first one of a response names the role.
    fn encode_delta(&mut self, mut delta: Value, out: &mut Vec<u8>) {
        if !self.begun
            && let Some(delta) = delta.as_object_mut()
        {
            self.begun = true;
            delta.shift_insert(0, "role".to_owned(), json!("assistant"));
        }
        let choice = self.choice_with_details(delta, None);
        write_chunk(&self.metadata, &self.details.chunk, choice, out);
    }

    /// Builds the list of choices with one delta and the details that wait for it.
    fn choice_with_details(&mut self, delta: Value, finish_reason: Option<&str>) -> Value {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(self.metadata.choice));
        choice.insert("delta".to_owned(), delta);
        choice.insert("finish_reason".to_owned(), json!(finish_reason));
        if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
            merge_members(delta, std::mem::take(&mut self.details.message));
        }
        merge_members(&mut choice, std::mem::take(&mut self.details.choice));
        json!([choice])
    }

    /// Takes the details of a chunk.
    fn take_details(&mut self, mut later: AnswerDetails, out: &mut Vec<u8>) {
        let mut late = Vec::new();
        for (id, mut members) in later.take_call_members() {
            if let Some(index) = self.begun_calls.get(&id) {
                members.shift_insert(0, "index".to_owned(), json!(index));
                late.push(Value::Object(members));
            } else {
                self.call_members.entry(id).or_default().extend(members);
            }
        }
        if !late.is_empty() {
            later.message.insert(CALLS.to_owned(), late.into());
        }
        // The templates hold the members of the chunk and the name of the thoughts.
        self.templates = Default::default();
        self.details.add(later);
        // No event follows that would bring a piece of a refusal.
        if self.details.message.contains_key(REFUSAL) {
            self.encode_delta(json!({}), out);
        }
    }

    /// Returns true if a choice or a delta must be written with its details.
    fn has_details(&self) -> bool {
        !self.details.choice.is_empty() || !self.details.message.is_empty()
    }

    /// Writes a piece of text or of a thought; `field` is its member.
    fn encode_text(&mut self, field: &str, text: &str, out: &mut Vec<u8>) {
        let thought_member = self.details.thought_member.clone();
        let field = match &thought_member {
            Some(member) if field != "content" => member.as_str(),
            _ => field,
        };
        if !self.begun || self.has_details() {
            return self.encode_delta(json!({field: text}), out);
        }
        let members = &self.details.chunk;
        let metadata = &self.metadata;
        let [for_text, for_thoughts, _] = &mut self.templates;
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
            |_, text| delta_chunk(metadata, members, json!({field: text})),
        );
    }

    /// Writes the text that `write` adds to a call's arguments.
    fn encode_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut CallArgumentWriter, &mut String),
        out: &mut Vec<u8>,
    ) {
        self.fragment.clear();
        let mut is_text = false;
        if let Some((_, arguments)) = self
            .calls
            .iter_mut()
            .rev()
            .find(|(known, _)| *known == index)
        {
            write(arguments, &mut self.fragment);
            is_text = arguments.is_text();
        }
        if !self.fragment.is_empty() && self.has_details() {
            let call = argument_delta(&self.metadata, index, &self.fragment, is_text);
            self.encode_delta(call, out);
        } else if !self.fragment.is_empty() {
            let members = &self.details.chunk;
            let metadata = &self.metadata;
            let [.., template] = &mut self.templates;
            let fragment = TextDelta {
                key: index.into(),
                number: 0,
                text: &self.fragment,
            };
            write_delta(template, fragment, out, |_, text| {
                let delta = argument_delta(metadata, index, text, is_text);
                delta_chunk(metadata, members, delta)
            });
        }
    }
}

impl WireEncoder for OpenAiChatEncoder {
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.encode_text("content", text, out),
            Event::Thought { text } => self.encode_text("reasoning_content", text, out),
            Event::CallStart {
                index, id, name, ..
            } => {
                let is_old = self.metadata.preferences.legacy_functions;
                // The older form has room for one call.
                if is_old && self.has_calls {
                    return;
                }
                self.has_calls = true;
                let freeform = is_custom_tool(&self.metadata, name);
                self.calls.push((index, CallArgumentWriter::new(freeform)));
                // Further members of the call have no place in the older form.
                if is_old {
                    let call = json!({"name": name, "arguments": ""});
                    return self.encode_delta(json!({FUNCTION_CALL: call}), out);
                }
                let members = id.and_then(|id| {
                    self.begun_calls.insert(id.to_owned(), index);
                    self.call_members.remove(id)
                });
                let id = self.metadata.call_id(id, index);
                let mut call = match freeform {
                    true => {
                        json!({"index": index, "id": id, "type": "custom", "custom": {"name": name, "input": ""}})
                    }
                    false => {
                        let function = json!({"name": name, "arguments": ""});
                        json!({"index": index, "id": id, "type": "function", "function": function})
                    }
                };
                if let (Some(call), Some(members)) = (call.as_object_mut(), members) {
                    call.extend(members);
                }
                self.encode_delta(json!({"tool_calls": [call]}), out);
            }
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. } => {
                self.encode_arguments(index, |writer, text| writer.encode_event(event, text), out);
            }
            Event::CallEnd { index, .. } => {
                self.encode_arguments(index, CallArgumentWriter::close_call, out);
                self.calls.retain(|(known, _)| *known != index);
            }
            Event::CallCut { index, .. } => {
                self.custom_call_truncated |= self
                    .calls
                    .iter()
                    .any(|(known, call)| *known == index && call.is_text());
                self.encode_arguments(index, CallArgumentWriter::leave_truncated, out);
                self.calls.retain(|(known, _)| *known != index);
            }
            Event::Usage(usage) => self.usage.get_or_insert_default().update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => {
                match AnswerDetails::from_state(&opaque.data) {
                    Some(details) => self.take_details(details, out),
                    None => self.encode_delta(json!({"reasoning_details": [opaque.data]}), out),
                }
            }
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        sse::encode_event("", &encode_error(error).to_string(), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.finish_choice(out);
        self.finish_choices(out);
    }

    fn finish_choice(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.encode_delta(json!({"content": ""}), out);
        }
        let (reason, raw) = stop_or_default(self.stop.as_ref(), self.has_calls);
        let word = if self.custom_call_truncated {
            stop_reason_name(StopReason::Length, "")
        } else {
            finish_reason_name(&self.metadata, reason, raw)
        }
        .to_owned();
        let choice = self.choice_with_details(json!({}), Some(&word));
        write_chunk(&self.metadata, &self.details.chunk, choice, out);
    }

    fn finish_choices(&mut self, out: &mut Vec<u8>) {
        if let Some(usage) = self.usage
            && self.metadata.preferences.usage_reporting == UsageReporting::Reported
        {
            // OpenAI sends the counts in a last chunk without choices.
            let mut members = self.details.chunk.clone();
            let usage = usage_with_details(usage, &self.details);
            members.insert("usage".to_owned(), usage);
            write_chunk(&self.metadata, &members, json!([]), out);
        }
        sse::encode_event("", "[DONE]", out);
    }
}

/// Encodes a chunk with this delta.
fn delta_chunk(metadata: &ResponseMetadata, members: &Map<String, Value>, delta: Value) -> Vec<u8> {
    let mut out = Vec::new();
    let choices = json!([{"index": metadata.choice, "delta": delta, "finish_reason": null}]);
    write_chunk(metadata, members, choices, &mut out);
    out
}

/// Builds a delta with a piece of a call's arguments, or of its text.
fn argument_delta(metadata: &ResponseMetadata, index: u32, text: &str, is_text: bool) -> Value {
    if metadata.preferences.legacy_functions {
        return json!({FUNCTION_CALL: {"arguments": text}});
    }
    let call = match is_text {
        true => json!({"index": index, "custom": {"input": text}}),
        false => json!({"index": index, "function": {"arguments": text}}),
    };
    json!({"tool_calls": [call]})
}

/// Writes a chunk with further members.
fn write_chunk(
    metadata: &ResponseMetadata,
    members: &Map<String, Value>,
    choices: Value,
    out: &mut Vec<u8>,
) {
    let mut chunk = json!({
        "id": metadata.id, "object": "chat.completion.chunk", "created": metadata.created, "model": metadata.model, "choices": choices,
    });
    if let Some(chunk) = chunk.as_object_mut() {
        chunk.extend(members.clone());
    }
    sse::encode_event("", &chunk.to_string(), out);
}

/// Encodes the token counts with the provider's other members.
fn usage_with_details(usage: Usage, details: &AnswerDetails) -> Value {
    let mut encoded = encode_usage(usage);
    if let Some(encoded) = encoded.as_object_mut() {
        let own = std::mem::take(encoded);
        *encoded = details.usage.clone();
        merge_members(encoded, own);
    }
    encoded
}

/// Encodes a response that is not streamed.
///
/// A truncated call keeps its arguments without their closing bracket, so that no client can parse
/// them. One with a text input is left out.
pub(crate) fn encode_response(metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut words = None::<String>;
    let mut thoughts = String::new();
    let mut details = Vec::new();
    let mut calls = Vec::new();
    let mut answer = AnswerDetails::default();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => words.get_or_insert_default().push_str(text),
            DraftPart::Thought(text) => thoughts.push_str(text),
            DraftPart::Opaque(opaque) if opaque.wire == NAME => {
                match AnswerDetails::from_state(&opaque.data) {
                    Some(later) => answer.add(later),
                    None => details.push(opaque.data.clone()),
                }
            }
            DraftPart::Opaque(_) => {}
            DraftPart::Call(call) => calls.extend(encode_call(metadata, call)),
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(words));
    message.insert("refusal".to_owned(), Value::Null);
    if !thoughts.is_empty() {
        let member = answer.thought_member.as_deref();
        let member = member.unwrap_or("reasoning_content");
        message.insert(member.to_owned(), json!(thoughts));
    }
    if !details.is_empty() {
        message.insert("reasoning_details".to_owned(), json!(details));
    }
    for (id, members) in answer.take_call_members() {
        let call = calls
            .iter_mut()
            .find(|call| call.get("id").is_some_and(|known| *known == id));
        if let Some(call) = call.and_then(Value::as_object_mut) {
            call.extend(members);
        }
    }
    let has_calls = !calls.is_empty();
    if metadata.preferences.legacy_functions {
        let first = calls.into_iter().next();
        let call = first.and_then(|mut call| call.get_mut("function").map(Value::take));
        message.extend(call.map(|call| (FUNCTION_CALL.to_owned(), call)));
    } else if has_calls {
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    merge_members(&mut message, answer.message.clone());
    let (reason, raw) = stop_or_default(draft.stop.as_ref(), has_calls);
    let mut choice = Map::new();
    choice.insert("index".to_owned(), json!(metadata.choice));
    choice.insert("message".to_owned(), Value::Object(message));
    choice.insert("logprobs".to_owned(), Value::Null);
    let word = finish_reason_name(metadata, reason, raw);
    choice.insert("finish_reason".to_owned(), json!(word));
    merge_members(&mut choice, answer.choice.clone());
    let mut body = json!({
        "id": metadata.id, "object": "chat.completion", "created": metadata.created, "model": metadata.model,
        "choices": [choice], "usage": usage_with_details(draft.usage, &answer),
    });
    if let Some(body) = body.as_object_mut() {
        body.extend(answer.chunk);
    }
    body
}

/// Returns the finish reason in the client's form of functions.
fn finish_reason_name<'a>(
    metadata: &ResponseMetadata,
    reason: StopReason,
    raw: &'a str,
) -> &'a str {
    if metadata.preferences.legacy_functions && reason == StopReason::Calls {
        FUNCTION_CALL
    } else {
        stop_reason_name(reason, raw)
    }
}

/// Returns true if the input of the tool is text.
fn is_custom_tool(metadata: &ResponseMetadata, name: &str) -> bool {
    metadata
        .preferences
        .custom_tool_names
        .iter()
        .any(|known| known == name)
}

/// Encodes a call. A truncated call lacks its closing bracket; one with a text input cannot show it
/// and is left out.
fn encode_call(metadata: &ResponseMetadata, call: &DraftCall) -> Option<Value> {
    let mut writer = CallArgumentWriter::new(is_custom_tool(metadata, &call.name));
    if writer.is_text() && matches!(call.state, DraftState::Cut(_)) {
        return None;
    }
    let mut arguments = String::new();
    for DraftArgument {
        name,
        form,
        text,
        partial,
        ..
    } in &call.arguments
    {
        writer.start_argument(name, *form, &mut arguments);
        writer.push_delta(text, &mut arguments);
        if !partial {
            writer.end_argument("", &mut arguments);
        }
    }
    match call.state {
        DraftState::Cut(_) => writer.leave_truncated(&mut arguments),
        _ => writer.close_call(&mut arguments),
    }
    let id = metadata.call_id(call.id.as_deref(), call.index);
    Some(match writer.is_text() {
        true => {
            json!({"id": id, "type": "custom", "custom": {"name": call.name, "input": arguments}})
        }
        false => {
            json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        }
    })
}

/// Encodes the body of an error. Clients look at `code` first, then at `type`, which depends on the
/// status.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    let (kind, usual) = match error.http_status() {
        401 => ("authentication_error", "invalid_api_key"),
        403 => ("permission_error", "permission_denied"),
        429 => ("rate_limit_error", "rate_limit_exceeded"),
        400..=499 => match error.kind {
            ModelErrorKind::TooLong => ("invalid_request_error", "context_length_exceeded"),
            ModelErrorKind::UnknownModel => ("invalid_request_error", "model_not_found"),
            _ => ("invalid_request_error", ""),
        },
        _ => ("server_error", "server_error"),
    };
    // Clients react to these two codes, so a provider's own code must not hide them.
    let fixed = matches!(
        error.kind,
        ModelErrorKind::TooLong | ModelErrorKind::UnknownModel
    );
    let code = if error.code.is_empty() || fixed {
        usual
    } else {
        &error.code
    };
    let code = Some(code).filter(|code| !code.is_empty());
    json!({"error": {"message": error.message, "type": kind, "param": error.request_path, "code": code}})
}

/// Encodes the token counts.
fn encode_usage(usage: Usage) -> Value {
    let input = usage.input.unwrap_or_default();
    let output = usage.output.unwrap_or_default();
    let mut value = Map::new();
    value.insert("prompt_tokens".to_owned(), json!(input));
    value.insert("completion_tokens".to_owned(), json!(output));
    value.insert(
        "total_tokens".to_owned(),
        json!(input.saturating_add(output)),
    );
    let mut details = Map::new();
    details.extend(
        usage
            .cache_read
            .map(|count| ("cached_tokens".to_owned(), json!(count))),
    );
    details.extend(
        usage
            .cache_write
            .map(|count| ("cache_write_tokens".to_owned(), json!(count))),
    );
    if !details.is_empty() {
        value.insert("prompt_tokens_details".to_owned(), Value::Object(details));
    }
    if let Some(count) = usage.reasoning {
        value.insert(
            "completion_tokens_details".to_owned(),
            json!({"reasoning_tokens": count}),
        );
    }
    Value::Object(value)
}
