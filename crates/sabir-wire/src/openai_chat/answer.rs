//! OpenAI Chat Completions: events to response bodies.
//!
//! The input of a custom tool is plain text, which cannot show that its end is missing. Where such a call was cut, the answer is said
//! to have reached its limit, and a body that is not streamed leaves the call out.

use sabir_call::{Draft, DraftArgument, DraftCall, DraftPart, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::{NAME, stop_word};
use crate::client::{Counts, Head};
use crate::failure::ProviderError;
use crate::mould::{Cast, Mould, cast};
use crate::openai_responses::Written;
use crate::sse;
use crate::wire::Writer;

#[derive(Debug)]
pub(crate) struct Answer {
    head: Head,
    begun: bool,
    calls: Vec<(u32, Written)>,
    called: bool,
    /// Whether a call was cut whose input is text.
    short: bool,
    usage: Option<Usage>,
    stop: Option<(StopReason, String)>,
    /// The deltas of words, thoughts and arguments.
    moulds: [Option<Mould>; 3],
    /// A piece of arguments, before it is written.
    fragment: String,
}

impl Answer {
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            begun: false,
            calls: Vec::new(),
            called: false,
            short: false,
            usage: None,
            stop: None,
            moulds: Default::default(),
            fragment: String::new(),
        }
    }

    fn delta(&mut self, mut delta: Value, out: &mut Vec<u8>) {
        if !self.begun
            && let Some(delta) = delta.as_object_mut()
        {
            self.begun = true;
            delta.shift_insert(0, "role".to_owned(), json!("assistant"));
        }
        chunk(&self.head, choice(delta), None, out);
    }

    /// A delta of words, or of thoughts. The first of a response says whose they are.
    fn words(&mut self, field: &str, text: &str, out: &mut Vec<u8>) {
        if !self.begun {
            return self.delta(json!({field: text}), out);
        }
        let ([words, thoughts, _], head) = (&mut self.moulds, &self.head);
        let mould = if field == "content" { words } else { thoughts };
        cast(mould, Cast { key: 0, number: 0, text }, out, |_, text| written(head, json!({field: text})));
    }

    fn call(&mut self, index: u32, write: impl FnOnce(&mut Written, &mut String), out: &mut Vec<u8>) {
        self.fragment.clear();
        let mut is_text = false;
        if let Some((_, arguments)) = self.calls.iter_mut().rev().find(|(known, _)| *known == index) {
            write(arguments, &mut self.fragment);
            is_text = arguments.is_text();
        }
        if !self.fragment.is_empty() {
            let ([.., mould], head) = (&mut self.moulds, &self.head);
            let fragment = Cast { key: index.into(), number: 0, text: &self.fragment };
            cast(mould, fragment, out, |_, text| {
                let call = match is_text {
                    true => json!({"index": index, "custom": {"input": text}}),
                    false => json!({"index": index, "function": {"arguments": text}}),
                };
                written(head, json!({"tool_calls": [call]}))
            });
        }
    }
}

impl Writer for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.words("content", text, out),
            Event::Thought { text } => self.words("reasoning_content", text, out),
            Event::CallStart { index, id, name, .. } => {
                self.called = true;
                let freeform = is_freeform(&self.head, name);
                self.calls.push((index, Written::new(freeform)));
                let id = self.head.call_id(id, index);
                let call = match freeform {
                    true => {
                        json!({"index": index, "id": id, "type": "custom", "custom": {"name": name, "input": ""}})
                    }
                    false => {
                        let function = json!({"name": name, "arguments": ""});
                        json!({"index": index, "id": id, "type": "function", "function": function})
                    }
                };
                self.delta(json!({"tool_calls": [call]}), out);
            }
            Event::ArgStart { index, name, form, .. } => {
                self.call(index, |arguments, out| arguments.start(name, form, out), out);
            }
            Event::ArgDelta { index, text } => self.call(index, |arguments, out| arguments.delta(text, out), out),
            Event::ArgEnd { index, lead, .. } => self.call(index, |arguments, out| arguments.end(lead, out), out),
            Event::CallEnd { index, .. } => {
                self.call(index, Written::close, out);
                self.calls.retain(|(known, _)| *known != index);
            }
            Event::CallCut { index, .. } => {
                self.short |= self.calls.iter().any(|(known, call)| *known == index && call.is_text());
                self.call(index, Written::cut, out);
                self.calls.retain(|(known, _)| *known != index);
            }
            Event::Usage(usage) => self.usage.get_or_insert_default().update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => {
                self.delta(json!({"reasoning_details": [opaque.data]}), out);
            }
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        sse::encode("", &error_body(error).to_string(), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.delta(json!({"content": ""}), out);
        }
        let default = if self.called { StopReason::Calls } else { StopReason::End };
        let (reason, raw) = self.stop.clone().unwrap_or((default, String::new()));
        let word = if self.short { stop_word(StopReason::Length, "") } else { stop_word(reason, &raw) };
        chunk(&self.head, json!([{"index": 0, "delta": {}, "finish_reason": word}]), None, out);
        if self.usage.is_some() && self.head.wants.counts == Counts::Told {
            chunk(&self.head, json!([]), self.usage, out);
        }
        sse::encode("", "[DONE]", out);
    }
}

/// A chunk that holds this delta alone.
fn written(head: &Head, delta: Value) -> Vec<u8> {
    let mut out = Vec::new();
    chunk(head, choice(delta), None, &mut out);
    out
}

fn choice(delta: Value) -> Value {
    json!([{"index": 0, "delta": delta, "finish_reason": null}])
}

fn chunk(head: &Head, choices: Value, usage: Option<Usage>, out: &mut Vec<u8>) {
    let mut chunk = json!({
        "id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model, "choices": choices,
    });
    if let (Some(usage), Some(chunk)) = (usage, chunk.as_object_mut()) {
        chunk.insert("usage".to_owned(), self::usage(usage));
    }
    sse::encode("", &chunk.to_string(), out);
}

pub(crate) fn whole(head: &Head, draft: &Draft) -> Value {
    let (mut words, mut thoughts) = (None::<String>, String::new());
    let (mut details, mut calls) = (Vec::new(), Vec::new());
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => words.get_or_insert_default().push_str(text),
            DraftPart::Thought(text) => thoughts.push_str(text),
            DraftPart::Opaque(opaque) if opaque.wire == NAME => details.push(opaque.data.clone()),
            DraftPart::Opaque(_) => {}
            DraftPart::Call(call) => calls.extend(tool_call(head, call)),
        }
    }
    let default = if calls.is_empty() { StopReason::End } else { StopReason::Calls };
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(words));
    message.insert("refusal".to_owned(), Value::Null);
    if !thoughts.is_empty() {
        message.insert("reasoning_content".to_owned(), json!(thoughts));
    }
    if !details.is_empty() {
        message.insert("reasoning_details".to_owned(), json!(details));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    let (reason, raw) = draft.stop.as_ref().map_or((default, ""), |(reason, raw)| (*reason, raw.as_str()));
    json!({
        "id": head.id, "object": "chat.completion", "created": head.created, "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": stop_word(reason, raw)}],
        "usage": usage(draft.usage),
    })
}

fn is_freeform(head: &Head, name: &str) -> bool {
    head.wants.freeform.iter().any(|known| known == name)
}

/// A cut call shows as one: its arguments lack their end. One whose input is text could not, and is none.
fn tool_call(head: &Head, call: &DraftCall) -> Option<Value> {
    let mut writer = Written::new(is_freeform(head, &call.name));
    if writer.is_text() && matches!(call.state, DraftState::Cut(_)) {
        return None;
    }
    let mut arguments = String::new();
    for DraftArgument { name, form, text, partial, .. } in &call.arguments {
        writer.start(name, *form, &mut arguments);
        writer.delta(text, &mut arguments);
        if !partial {
            writer.end("", &mut arguments);
        }
    }
    match call.state {
        DraftState::Cut(_) => writer.cut(&mut arguments),
        _ => writer.close(&mut arguments),
    }
    let id = head.call_id(call.id.as_deref(), call.index);
    Some(match writer.is_text() {
        true => json!({"id": id, "type": "custom", "custom": {"name": call.name, "input": arguments}}),
        false => json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}}),
    })
}

/// The body of an error. Clients look for the code first, then for the type, which is one for each kind of status.
pub(crate) fn error_body(error: &ProviderError) -> Value {
    let (kind, usual) = match error.status() {
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
    let fixed = matches!(error.kind, ModelErrorKind::TooLong | ModelErrorKind::UnknownModel);
    let code = if error.code.is_empty() || fixed { usual } else { &error.code };
    let code = Some(code).filter(|code| !code.is_empty());
    json!({"error": {"message": error.message, "type": kind, "param": error.place, "code": code}})
}

fn usage(usage: Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or_default(), usage.output.unwrap_or_default());
    let mut value = Map::new();
    value.insert("prompt_tokens".to_owned(), json!(input));
    value.insert("completion_tokens".to_owned(), json!(output));
    value.insert("total_tokens".to_owned(), json!(input.saturating_add(output)));
    let mut details = Map::new();
    details.extend(usage.cache_read.map(|count| ("cached_tokens".to_owned(), json!(count))));
    details.extend(usage.cache_write.map(|count| ("cache_write_tokens".to_owned(), json!(count))));
    if !details.is_empty() {
        value.insert("prompt_tokens_details".to_owned(), Value::Object(details));
    }
    if let Some(count) = usage.reasoning {
        value.insert("completion_tokens_details".to_owned(), json!({"reasoning_tokens": count}));
    }
    Value::Object(value)
}
