//! Amazon Bedrock: events to response bodies.

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::{NAME, stop_word};
use crate::arguments::{ArgumentWriter, arguments_object};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::frames::{HeaderValue, encode_frame};
use crate::provider_error::ProviderError;
use crate::replay::split_text;
use crate::wire::WireEncoder;

/// The most bytes of text in one frame; escaped, they are still within a frame's limit.
const MAX_PIECE: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct BedrockEncoder {
    head: ResponseMetadata,
    begun: bool,
    /// The text or reasoning block that is open, by index.
    open_block: Option<(u64, ProseKind)>,
    next_index: u64,
    calls: Vec<OpenCall>,
    has_calls: bool,
    usage: Usage,
    stop: Option<(StopReason, String)>,
    deltas: DeltaFrames,
}

/// Frames of words, thoughts and arguments: their payloads are cast, then framed.
#[derive(Debug, Default)]
struct DeltaFrames {
    templates: [Option<DeltaTemplate>; 3],
    payload: Vec<u8>,
    /// A piece of arguments, before it is written.
    fragment: String,
}

impl DeltaFrames {
    /// Writes a text as the delta of a block, in frames that are not too long. `kind` counts the moulds.
    fn write_text_delta(
        &mut self,
        (kind, index): (usize, u64),
        text: &str,
        out: &mut Vec<u8>,
        part: fn(&str) -> Value,
    ) {
        let Some(mould) = self.templates.get_mut(kind) else { return };
        for text in split_text(text, MAX_PIECE) {
            self.payload.clear();
            write_delta(mould, TextDelta { key: index, number: 0, text }, &mut self.payload, |_, text| {
                json!({"delta": part(text), "contentBlockIndex": index}).to_string().into_bytes()
            });
            write_frame("contentBlockDelta", &self.payload, out);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProseKind {
    Text,
    Reasoning,
}

#[derive(Debug)]
struct OpenCall {
    index: u32,
    block: u64,
    arguments: ArgumentWriter,
}

impl BedrockEncoder {
    pub(crate) fn new(head: ResponseMetadata) -> Self {
        Self {
            head,
            begun: false,
            open_block: None,
            next_index: 0,
            calls: Vec::new(),
            has_calls: false,
            usage: Usage::default(),
            stop: None,
            deltas: DeltaFrames::default(),
        }
    }

    fn begin_message(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            write_event("messageStart", &json!({"role": "assistant"}), out);
        }
    }

    fn close_open_block(&mut self, out: &mut Vec<u8>) {
        if let Some((index, _)) = self.open_block.take() {
            write_block_stop(index, out);
        }
    }

    /// The index of a new block. A block of text or reasoning has no start.
    fn start_block(&mut self, start: Option<Value>, out: &mut Vec<u8>) -> u64 {
        self.begin_message(out);
        self.close_open_block(out);
        let index = self.next_index;
        self.next_index += 1;
        if let Some(start) = start {
            write_event("contentBlockStart", &json!({"start": start, "contentBlockIndex": index}), out);
        }
        index
    }

    fn ensure_prose_block(&mut self, kind: ProseKind, out: &mut Vec<u8>) -> u64 {
        match self.open_block {
            Some((index, known)) if known == kind => index,
            _ => {
                let index = self.start_block(None, out);
                self.open_block = Some((index, kind));
                index
            }
        }
    }

    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        if let Some(signature) = data.pointer(SIGNATURE) {
            let index = self.ensure_prose_block(ProseKind::Reasoning, out);
            write_block_delta(index, &json!({"reasoningContent": {"signature": signature}}), out);
            self.close_open_block(out);
        } else if let Some(hidden) = data.get("reasoningContent") {
            let index = self.start_block(None, out);
            write_block_delta(index, &json!({"reasoningContent": hidden}), out);
            write_block_stop(index, out);
        } else {
            self.encode_server_block(data.clone(), out);
        }
    }

    /// A call of the provider's own, or its result: what comes as a delta is taken out of the start.
    fn encode_server_block(&mut self, mut data: Value, out: &mut Vec<u8>) {
        let mut take = |path: &str, key: &str| data.pointer_mut(path)?.as_object_mut()?.shift_remove(key);
        let (input, content) = (take("/toolUse", "input"), take("/toolResult", "content"));
        let index = self.start_block(Some(data), out);
        if let Some(input) = input {
            write_block_delta(index, &json!({"toolUse": {"input": input.to_string()}}), out);
        }
        if let Some(content) = content {
            write_block_delta(index, &json!({"toolResult": content}), out);
        }
        write_block_stop(index, out);
    }

    fn encode_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut ArgumentWriter, &mut String),
        out: &mut Vec<u8>,
    ) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            let mut fragment = std::mem::take(&mut self.deltas.fragment);
            write(&mut call.arguments, &mut fragment);
            self.deltas.write_text_delta((2, call.block), &fragment, out, |text| json!({"toolUse": {"input": text}}));
            fragment.clear();
            self.deltas.fragment = fragment;
        }
    }
}

/// Where a signature stands in a reasoning block.
const SIGNATURE: &str = "/reasoningContent/reasoningText/signature";

impl WireEncoder for BedrockEncoder {
    fn keep_alive(&mut self, _: &mut Vec<u8>) {}

    fn encode_comment(&mut self, _: &str, _: &str, _: &mut Vec<u8>) {}

    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => {
                let index = self.ensure_prose_block(ProseKind::Text, out);
                self.deltas.write_text_delta((0, index), text, out, |text| json!({"text": text}));
            }
            Event::Thought { text } => {
                let index = self.ensure_prose_block(ProseKind::Reasoning, out);
                self.deltas.write_text_delta((1, index), text, out, |text| json!({"reasoningContent": {"text": text}}));
            }
            Event::CallStart { index, id, name, .. } => {
                self.has_calls = true;
                let id = self.head.call_id(id, index);
                let block = self.start_block(Some(json!({"toolUse": {"toolUseId": id, "name": name}})), out);
                self.calls.push(OpenCall { index, block, arguments: ArgumentWriter::default() });
            }
            Event::ArgStart { index, name, form, .. } => {
                self.encode_arguments(index, |arguments, out| arguments.start_argument(name, form, out), out);
            }
            Event::ArgDelta { index, text } => {
                self.encode_arguments(index, |arguments, out| arguments.push_delta(text, out), out)
            }
            Event::ArgEnd { index, lead, .. } => {
                self.encode_arguments(index, |arguments, out| arguments.end_argument(lead, out), out)
            }
            Event::CallEnd { index, .. } => {
                self.encode_arguments(index, ArgumentWriter::close_call, out);
                if let Some(position) = self.calls.iter().rposition(|call| call.index == index) {
                    write_block_stop(self.calls.remove(position).block, out);
                }
            }
            Event::CallCut { index, .. } => self.encode_arguments(index, ArgumentWriter::leave_truncated, out),
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => self.encode_opaque(&opaque.data, out),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        let kind = error_kind(error);
        let headers = [
            (":exception-type", HeaderValue::Text(&kind)),
            (":content-type", HeaderValue::Text("application/json")),
            (":message-type", HeaderValue::Text("exception")),
        ];
        // An error's words are few.
        let _ = encode_frame(&headers, json!({"message": error.message}).to_string().as_bytes(), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin_message(out);
        self.close_open_block(out);
        // Calls that were cut: their blocks end, their JSON does not.
        for call in std::mem::take(&mut self.calls) {
            write_block_stop(call.block, out);
        }
        let default = if self.has_calls { StopReason::Calls } else { StopReason::End };
        let (reason, raw) = self.stop.clone().unwrap_or((default, String::new()));
        write_event("messageStop", &json!({"stopReason": stop_word(reason, &raw)}), out);
        write_event("metadata", &json!({"usage": encode_usage(self.usage), "metrics": empty_metrics()}), out);
    }
}

pub(crate) fn encode_response(_: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut content: Vec<Value> = Vec::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => content.push(json!({"text": text})),
            DraftPart::Thought(text) => content.push(json!({"reasoningContent": {"reasoningText": {"text": text}}})),
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = call.id.clone().unwrap_or_else(|| format!("call_{}", call.index));
                let input = arguments_object(&call.arguments);
                content.push(json!({"toolUse": {"toolUseId": id, "name": call.name, "input": input}}));
            }
            DraftPart::Opaque(opaque) if opaque.wire == NAME => attach_signature(&opaque.data, &mut content),
            DraftPart::Opaque(_) => {}
        }
    }
    let called = draft.calls().any(|call| !matches!(call.state, DraftState::Cut(_)));
    let default = if called { StopReason::Calls } else { StopReason::End };
    let (reason, raw) = draft.stop.as_ref().map_or((default, ""), |(reason, raw)| (*reason, raw.as_str()));
    json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop_word(reason, raw), "usage": encode_usage(draft.usage), "metrics": empty_metrics(),
    })
}

/// Puts a signature into the reasoning block before it, and any other state into a block of its own.
fn attach_signature(data: &Value, content: &mut Vec<Value>) {
    let Some(signature) = data.pointer(SIGNATURE) else { return content.push(data.clone()) };
    let inside = content.last_mut().and_then(|block| block.pointer_mut("/reasoningContent/reasoningText"));
    match inside.and_then(Value::as_object_mut).filter(|block| !block.contains_key("signature")) {
        Some(block) => {
            block.insert("signature".to_owned(), signature.clone());
        }
        None => content.push(json!({"reasoningContent": {"reasoningText": {"text": "", "signature": signature}}})),
    }
}

/// The type belongs into the header `x-amzn-errortype`; clients also look for it here.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    json!({"__type": error_kind(error), "message": error.message})
}

/// The provider's own name for such an error, or the one that was reported if it is one of its names.
fn error_kind(error: &ProviderError) -> String {
    if error.code.ends_with("Exception") {
        return error.code.clone();
    }
    let name = match error.kind {
        ModelErrorKind::Key => "accessDeniedException",
        ModelErrorKind::UnknownModel => "resourceNotFoundException",
        ModelErrorKind::Rejected | ModelErrorKind::TooLong => "validationException",
        ModelErrorKind::RateLimited => "throttlingException",
        ModelErrorKind::Unavailable | ModelErrorKind::Unreachable => "serviceUnavailableException",
        _ => "internalServerException",
    };
    name.to_owned()
}

/// The provider counts cached input apart from the rest, and all of it in the total.
fn encode_usage(usage: Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or_default(), usage.output.unwrap_or_default());
    let cached = usage.cache_read.unwrap_or_default().saturating_add(usage.cache_write.unwrap_or_default());
    let mut value = Map::new();
    value.insert("inputTokens".to_owned(), json!(input.saturating_sub(cached)));
    value.insert("outputTokens".to_owned(), json!(output));
    value.insert("totalTokens".to_owned(), json!(input.max(cached).saturating_add(output)));
    if let Some(read) = usage.cache_read {
        value.insert("cacheReadInputTokens".to_owned(), json!(read));
    }
    if let Some(written) = usage.cache_write {
        value.insert("cacheWriteInputTokens".to_owned(), json!(written));
    }
    Value::Object(value)
}

/// Clients insist on a latency; without a clock there is none.
fn empty_metrics() -> Value {
    json!({"latencyMs": 0})
}

fn write_block_delta(index: u64, delta: &Value, out: &mut Vec<u8>) {
    write_event("contentBlockDelta", &json!({"delta": delta, "contentBlockIndex": index}), out);
}

fn write_block_stop(index: u64, out: &mut Vec<u8>) {
    write_event("contentBlockStop", &json!({"contentBlockIndex": index}), out);
}

fn write_event(kind: &str, body: &Value, out: &mut Vec<u8>) {
    write_frame(kind, body.to_string().as_bytes(), out);
}

fn write_frame(kind: &str, payload: &[u8], out: &mut Vec<u8>) {
    let headers = [
        (":event-type", HeaderValue::Text(kind)),
        (":content-type", HeaderValue::Text("application/json")),
        (":message-type", HeaderValue::Text("event")),
    ];
    // Text comes in pieces. Only provider state can be too long, and a frame of it could not be read.
    let _ = encode_frame(&headers, payload, out);
}
