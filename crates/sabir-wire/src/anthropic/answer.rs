//! Anthropic Messages: events to response bodies.

use sabir_call::{Draft, DraftPart, DraftState, Event, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::{NAME, stop_word};
use crate::arguments::{ArgumentWriter, object};
use crate::client::Head;
use crate::failure::ProviderError;
use crate::mould::{Cast, Mould, cast};
use crate::sse;
use crate::wire::{Wire, Writer};

#[derive(Debug)]
pub(crate) struct Answer {
    head: Head,
    begun: bool,
    /// The text or thinking block that is open, by index.
    open: Option<(u64, Prose)>,
    next: u64,
    calls: Vec<OpenCall>,
    called: bool,
    usage: Usage,
    stop: Option<(StopReason, String)>,
    /// The deltas of words, thoughts and arguments.
    moulds: [Option<Mould>; 3],
    /// A piece of arguments, before it is written.
    fragment: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prose {
    Text,
    Thinking,
}

#[derive(Debug)]
struct OpenCall {
    index: u32,
    block: u64,
    arguments: ArgumentWriter,
}

impl Answer {
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            begun: false,
            open: None,
            next: 0,
            calls: Vec::new(),
            called: false,
            usage: Usage::default(),
            stop: None,
            moulds: Default::default(),
            fragment: String::new(),
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            let message = json!({
                "id": self.head.id, "type": "message", "role": "assistant", "model": self.head.model, "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage(self.usage, 0),
            });
            send("message_start", json!({"message": message}), out);
        }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some((index, _)) = self.open.take() {
            send("content_block_stop", json!({"index": index}), out);
        }
    }

    fn block(&mut self, block: Value, out: &mut Vec<u8>) -> u64 {
        self.begin(out);
        self.close(out);
        let index = self.next;
        self.next += 1;
        send("content_block_start", json!({"index": index, "content_block": block}), out);
        index
    }

    fn prose(&mut self, kind: Prose, out: &mut Vec<u8>) -> u64 {
        if let Some((index, known)) = self.open
            && known == kind
        {
            return index;
        }
        let block = match kind {
            Prose::Text => json!({"type": "text", "text": ""}),
            Prose::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        let index = self.block(block, out);
        self.open = Some((index, kind));
        index
    }

    fn opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        let signature = data.get("signature").filter(|_| data.get("type").is_some_and(|kind| kind == "thinking"));
        if let Some(signature) = signature {
            let index = self.prose(Prose::Thinking, out);
            delta(index, json!({"type": "signature_delta", "signature": signature}), out);
            self.close(out);
        } else {
            let index = self.block(data.clone(), out);
            send("content_block_stop", json!({"index": index}), out);
        }
    }

    fn call(&mut self, index: u32, write: impl FnOnce(&mut ArgumentWriter, &mut String), out: &mut Vec<u8>) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            self.fragment.clear();
            write(&mut call.arguments, &mut self.fragment);
            if !self.fragment.is_empty() {
                let [.., mould] = &mut self.moulds;
                let (block, names) = (call.block, ["input_json_delta", "partial_json"]);
                let fragment = Cast { key: block, number: 0, text: &self.fragment };
                cast(mould, fragment, out, |_, text| text_delta(block, names, text));
            }
        }
    }
}

impl Writer for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => {
                let index = self.prose(Prose::Text, out);
                let [mould, ..] = &mut self.moulds;
                cast(mould, Cast { key: index, number: 0, text }, out, |_, text| {
                    text_delta(index, ["text_delta", "text"], text)
                });
            }
            Event::Thought { text } => {
                let index = self.prose(Prose::Thinking, out);
                let [_, mould, _] = &mut self.moulds;
                cast(mould, Cast { key: index, number: 0, text }, out, |_, text| {
                    text_delta(index, ["thinking_delta", "thinking"], text)
                });
            }
            Event::CallStart { index, id, name, .. } => {
                self.called = true;
                let id = self.head.call_id(id, index);
                let block = self.block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), out);
                self.calls.push(OpenCall { index, block, arguments: ArgumentWriter::default() });
            }
            Event::ArgStart { index, name, form, .. } => {
                self.call(index, |arguments, out| arguments.start(name, form, out), out);
            }
            Event::ArgDelta { index, text } => self.call(index, |arguments, out| arguments.delta(text, out), out),
            Event::ArgEnd { index, lead, .. } => self.call(index, |arguments, out| arguments.end(lead, out), out),
            Event::CallEnd { index, .. } => {
                self.call(index, ArgumentWriter::close, out);
                if let Some(position) = self.calls.iter().rposition(|call| call.index == index) {
                    let call = self.calls.remove(position);
                    send("content_block_stop", json!({"index": call.block}), out);
                }
            }
            Event::CallCut { index, .. } => self.call(index, ArgumentWriter::cut, out),
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => self.opaque(&opaque.data, out),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        sse::encode("error", &error_body(error).to_string(), out);
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        send("ping", json!({}), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        self.close(out);
        // Calls that were cut: their blocks end, their JSON does not.
        for call in std::mem::take(&mut self.calls) {
            send("content_block_stop", json!({"index": call.block}), out);
        }
        let default = if self.called { StopReason::Calls } else { StopReason::End };
        let (reason, raw) = self.stop.clone().unwrap_or((default, String::new()));
        let delta = json!({"stop_reason": stop_word(reason, &raw), "stop_sequence": ended_by(&self.head, reason)});
        let usage = usage(self.usage, self.usage.output.unwrap_or_default());
        send("message_delta", json!({"delta": delta, "usage": usage}), out);
        send("message_stop", json!({}), out);
    }
}

pub(crate) fn whole(head: &Head, draft: &Draft) -> Value {
    let mut content: Vec<Value> = Vec::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => content.push(json!({"type": "text", "text": text})),
            DraftPart::Thought(text) => {
                content.push(json!({"type": "thinking", "thinking": text, "signature": ""}));
            }
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = head.call_id(call.id.as_deref(), call.index);
                let input = object(&call.arguments);
                content.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
            }
            DraftPart::Opaque(opaque) if opaque.wire == NAME => sign(&opaque.data, &mut content),
            DraftPart::Opaque(_) => {}
        }
    }
    let called = draft.calls().any(|call| !matches!(call.state, DraftState::Cut(_)));
    let default = if called { StopReason::Calls } else { StopReason::End };
    let (reason, raw) = draft.stop.as_ref().map_or((default, ""), |(reason, raw)| (*reason, raw.as_str()));
    json!({
        "id": head.id, "type": "message", "role": "assistant", "model": head.model, "content": content,
        "stop_reason": stop_word(reason, raw), "stop_sequence": ended_by(head, reason),
        "usage": usage(draft.usage, draft.usage.output.unwrap_or_default()),
    })
}

/// Puts a signature into the thinking block before it, and any other state into a block of its own.
fn sign(data: &Value, content: &mut Vec<Value>) {
    let Some(signature) = data.get("signature").filter(|_| data.get("type").is_some_and(|kind| kind == "thinking"))
    else {
        return content.push(data.clone());
    };
    match content.last_mut() {
        Some(Value::Object(block)) if block.get("signature").is_some_and(|known| known == "") => {
            block.insert("signature".to_owned(), signature.clone());
        }
        _ => content.push(json!({"type": "thinking", "thinking": "", "signature": signature})),
    }
}

/// The text that ended the answer, where there was only one that could.
fn ended_by(head: &Head, reason: StopReason) -> Option<&str> {
    head.wants.stop.as_deref().filter(|_| reason == StopReason::Sequence)
}

/// The types of errors, of which official clients make their own: each has a status.
const ERRORS: [(u16, &str); 9] = [
    (401, "authentication_error"),
    (402, "billing_error"),
    (403, "permission_error"),
    (404, "not_found_error"),
    (413, "request_too_large"),
    (429, "rate_limit_error"),
    (504, "timeout_error"),
    (529, "overloaded_error"),
    (400, "invalid_request_error"),
];

pub(crate) fn error_body(error: &ProviderError) -> Value {
    let known = ERRORS.iter().find(|(_, kind)| *kind == error.code);
    let status = Wire::Anthropic.status(error);
    let by_status = || ERRORS.iter().find(|(known, _)| *known == status);
    let client = if (400..500).contains(&status) { "invalid_request_error" } else { "api_error" };
    let kind = known.or_else(by_status).map_or(client, |(_, kind)| *kind);
    json!({"type": "error", "error": {"type": kind, "message": error.message}})
}

/// The provider counts cached input apart from the rest.
fn usage(usage: Usage, output: u64) -> Value {
    let cached = usage.cache_read.unwrap_or_default().saturating_add(usage.cache_write.unwrap_or_default());
    let mut value = Map::new();
    value.insert("input_tokens".to_owned(), json!(usage.input.unwrap_or_default().saturating_sub(cached)));
    if let Some(written) = usage.cache_write {
        value.insert("cache_creation_input_tokens".to_owned(), json!(written));
    }
    if let Some(read) = usage.cache_read {
        value.insert("cache_read_input_tokens".to_owned(), json!(read));
    }
    value.insert("output_tokens".to_owned(), json!(output));
    Value::Object(value)
}

/// A delta of that type, with a text in that field.
fn text_delta(index: u64, [kind, field]: [&str; 2], text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    delta(index, json!({"type": kind, field: text}), &mut out);
    out
}

fn delta(index: u64, delta: Value, out: &mut Vec<u8>) {
    send("content_block_delta", json!({"index": index, "delta": delta}), out);
}

fn send(kind: &str, mut body: Value, out: &mut Vec<u8>) {
    if let Some(body) = body.as_object_mut() {
        body.shift_insert(0, "type".to_owned(), json!(kind));
    }
    sse::encode(kind, &body.to_string(), out);
}
