//! Encodes events and drafts as Bedrock responses.

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::{NAME, stop_reason_name};
use crate::arguments::{ArgumentWriter, arguments_object};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::frames::{HeaderValue, encode_frame};
use crate::provider_error::ProviderError;
use crate::replay::split_text;
use crate::stop_reason_names::stop_or_default;
use crate::wire::WireEncoder;

/// The most bytes of text in one frame. JSON escapes at most multiply it by six, which stays below
/// a frame's limit.
const MAX_PIECE: usize = 1 << 20;

/// Encodes the frames of one response.
#[derive(Debug)]
pub(crate) struct BedrockEncoder {
    /// The id that generated call ids derive from; this wire writes neither id nor model.
    metadata: ResponseMetadata,
    /// True once `messageStart` was written.
    begun: bool,
    /// The index and kind of the open text or reasoning block.
    open_block: Option<(u64, TextBlockKind)>,
    /// The next `contentBlockIndex`.
    next_index: u64,
    /// The calls whose blocks are open, in the order of their starts.
    calls: Vec<OpenCall>,
    /// True once a call has started; it decides the stop reason where the provider sent none.
    has_calls: bool,
    /// The merged counts, written in the `metadata` event after `messageStop`.
    usage: Usage,
    /// The stop reason with the provider's word, written after all blocks have ended.
    stop: Option<(StopReason, String)>,
    /// The writer of deltas, with its buffers.
    deltas: DeltaFrames,
}

/// Writes deltas of text, thoughts and arguments: each payload is rendered from a template, then
/// framed.
#[derive(Debug, Default)]
struct DeltaFrames {
    /// The templates for text, thoughts and arguments, in this order.
    templates: [Option<DeltaTemplate>; 3],
    /// The payload of the frame that is written; it is kept to reuse its memory.
    payload: Vec<u8>,
    /// The buffer for one piece of arguments.
    fragment: String,
}

impl DeltaFrames {
    /// Writes a text as deltas of the block `delta.key`, split to fit into frames. `kind` is the
    /// index of the template.
    fn write_text_delta(
        &mut self,
        kind: usize,
        delta: TextDelta<'_>,
        out: &mut Vec<u8>,
        part: fn(&str) -> Value,
    ) {
        let Some(template) = self.templates.get_mut(kind) else {
            return;
        };
        let index = delta.key;
        for text in split_text(delta.text, MAX_PIECE) {
            self.payload.clear();
            write_delta(
                template,
                TextDelta { text, ..delta },
                &mut self.payload,
                |_, text| {
                    json!({"delta": part(text), "contentBlockIndex": index})
                        .to_string()
                        .into_bytes()
                },
            );
            write_frame("contentBlockDelta", &self.payload, out);
        }
    }
}

/// The kind of a block of prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextBlockKind {
    /// A block of `text` deltas.
    Text,
    /// A block of `reasoningContent` deltas.
    Reasoning,
}

/// A call whose block is open.
#[derive(Debug)]
struct OpenCall {
    /// The call's index in the events.
    index: u32,
    /// The index of the call's block in the message.
    block: u64,
    /// Turns argument events into the JSON text of `toolUse.input`.
    arguments: ArgumentWriter,
}

impl BedrockEncoder {
    pub(crate) fn new(metadata: ResponseMetadata) -> Self {
        Self {
            metadata,
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

    /// Writes the start of the message unless it was written.
    fn begin_message(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            write_event("messageStart", &json!({"role": "assistant"}), out);
        }
    }

    /// Closes the open text or reasoning block.
    fn close_open_block(&mut self, out: &mut Vec<u8>) {
        if let Some((index, _)) = self.open_block.take() {
            write_block_stop(index, out);
        }
    }

    /// Returns the index of a new block. A text or reasoning block has no start event.
    fn start_block(&mut self, start: Option<Value>, out: &mut Vec<u8>) -> u64 {
        self.begin_message(out);
        self.close_open_block(out);
        let index = self.next_index;
        self.next_index += 1;
        if let Some(start) = start {
            write_event(
                "contentBlockStart",
                &json!({"start": start, "contentBlockIndex": index}),
                out,
            );
        }
        index
    }

    /// Returns the index of an open block of this kind, opening one if needed.
    fn ensure_text_block(&mut self, kind: TextBlockKind, out: &mut Vec<u8>) -> u64 {
        match self.open_block {
            Some((index, known)) if known == kind => index,
            _ => {
                let index = self.start_block(None, out);
                self.open_block = Some((index, kind));
                index
            }
        }
    }

    /// Writes state of this wire: a signature into its reasoning block, anything else as a block.
    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        if let Some(signature) = data.pointer(SIGNATURE) {
            let index = self.ensure_text_block(TextBlockKind::Reasoning, out);
            write_block_delta(
                index,
                &json!({"reasoningContent": {"signature": signature}}),
                out,
            );
            self.close_open_block(out);
        } else if let Some(hidden) = data.get("reasoningContent") {
            let index = self.start_block(None, out);
            write_block_delta(index, &json!({"reasoningContent": hidden}), out);
            write_block_stop(index, out);
        } else {
            self.encode_server_block(data.clone(), out);
        }
    }

    /// Writes a block of a server tool or its result. The parts that clients expect as deltas are
    /// taken out of the start.
    fn encode_server_block(&mut self, mut data: Value, out: &mut Vec<u8>) {
        let mut take =
            |path: &str, key: &str| data.pointer_mut(path)?.as_object_mut()?.shift_remove(key);
        let input = take("/toolUse", "input");
        let content = take("/toolResult", "content");
        let index = self.start_block(Some(data), out);
        if let Some(input) = input {
            write_block_delta(
                index,
                &json!({"toolUse": {"input": input.to_string()}}),
                out,
            );
        }
        if let Some(content) = content {
            write_block_delta(index, &json!({"toolResult": content}), out);
        }
        write_block_stop(index, out);
    }

    /// Writes the JSON text that `write` adds to a call's arguments.
    fn encode_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut ArgumentWriter, &mut String),
        out: &mut Vec<u8>,
    ) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            // The buffer is taken out because `self.deltas` is borrowed while it is written.
            let mut fragment = std::mem::take(&mut self.deltas.fragment);
            write(&mut call.arguments, &mut fragment);
            self.deltas.write_text_delta(
                2,
                TextDelta {
                    key: call.block,
                    number: 0,
                    text: &fragment,
                },
                out,
                |text| json!({"toolUse": {"input": text}}),
            );
            fragment.clear();
            self.deltas.fragment = fragment;
        }
    }
}

/// The path of the signature in a reasoning block.
const SIGNATURE: &str = "/reasoningContent/reasoningText/signature";

impl WireEncoder for BedrockEncoder {
    // A binary stream has no comments, and the clients know no empty event.
    fn keep_alive(&mut self, _: &mut Vec<u8>) {}

    fn encode_comment(&mut self, _: &str, _: &str, _: &mut Vec<u8>) {}

    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => {
                let index = self.ensure_text_block(TextBlockKind::Text, out);
                self.deltas.write_text_delta(
                    0,
                    TextDelta {
                        key: index,
                        number: 0,
                        text,
                    },
                    out,
                    |text| json!({"text": text}),
                );
            }
            Event::Thought { text } => {
                let index = self.ensure_text_block(TextBlockKind::Reasoning, out);
                self.deltas.write_text_delta(
                    1,
                    TextDelta {
                        key: index,
                        number: 0,
                        text,
                    },
                    out,
                    |text| json!({"reasoningContent": {"text": text}}),
                );
            }
            Event::CallStart {
                index, id, name, ..
            } => {
                self.has_calls = true;
                let id = self.metadata.call_id(id, index);
                let block = self.start_block(
                    Some(json!({"toolUse": {"toolUseId": id, "name": name}})),
                    out,
                );
                self.calls.push(OpenCall {
                    index,
                    block,
                    arguments: ArgumentWriter::default(),
                });
            }
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. } => {
                self.encode_arguments(index, |writer, text| writer.encode_event(event, text), out);
            }
            Event::CallEnd { index, .. } => {
                self.encode_arguments(index, ArgumentWriter::close_call, out);
                if let Some(position) = self.calls.iter().rposition(|call| call.index == index) {
                    write_block_stop(self.calls.remove(position).block, out);
                }
            }
            Event::CallCut { index, .. } => {
                self.encode_arguments(index, ArgumentWriter::leave_truncated, out)
            }
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
        // The message of an error is at most 600 characters, so the frame cannot be too long.
        let _ = encode_frame(
            &headers,
            json!({"message": error.message}).to_string().as_bytes(),
            out,
        );
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin_message(out);
        self.close_open_block(out);
        // Truncated calls: their blocks end but their JSON stays incomplete, so clients refuse
        // them.
        for call in std::mem::take(&mut self.calls) {
            write_block_stop(call.block, out);
        }
        let (reason, raw) = stop_or_default(self.stop.as_ref(), self.has_calls);
        write_event(
            "messageStop",
            &json!({"stopReason": stop_reason_name(reason, raw)}),
            out,
        );
        write_event(
            "metadata",
            &json!({"usage": encode_usage(self.usage), "metrics": empty_metrics()}),
            out,
        );
    }
}

/// Encodes a response that is not streamed.
pub(crate) fn encode_response(_: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut content: Vec<Value> = Vec::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => content.push(json!({"text": text})),
            DraftPart::Thought(text) => {
                content.push(json!({"reasoningContent": {"reasoningText": {"text": text}}}))
            }
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = call
                    .id
                    .clone()
                    .unwrap_or_else(|| format!("call_{}", call.index));
                let input = arguments_object(&call.arguments);
                content
                    .push(json!({"toolUse": {"toolUseId": id, "name": call.name, "input": input}}));
            }
            DraftPart::Opaque(opaque) if opaque.wire == NAME => {
                attach_signature(&opaque.data, &mut content)
            }
            DraftPart::Opaque(_) => {}
        }
    }
    let called = draft
        .calls()
        .any(|call| !matches!(call.state, DraftState::Cut(_)));
    let (reason, raw) = stop_or_default(draft.stop.as_ref(), called);
    json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop_reason_name(reason, raw), "usage": encode_usage(draft.usage), "metrics": empty_metrics(),
    })
}

/// Adds a signature to the reasoning block before it, and any other state as a block.
fn attach_signature(data: &Value, content: &mut Vec<Value>) {
    let Some(signature) = data.pointer(SIGNATURE) else {
        return content.push(data.clone());
    };
    let inside = content
        .last_mut()
        .and_then(|block| block.pointer_mut("/reasoningContent/reasoningText"));
    match inside
        .and_then(Value::as_object_mut)
        .filter(|block| !block.contains_key("signature"))
    {
        Some(block) => {
            block.insert("signature".to_owned(), signature.clone());
        }
        None => content.push(
            json!({"reasoningContent": {"reasoningText": {"text": "", "signature": signature}}}),
        ),
    }
}

/// Encodes the body of an error response. The type belongs in the header `x-amzn-errortype`;
/// clients also look for it here.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    json!({"__type": error_kind(error), "message": error.message})
}

/// Returns the provider's exception name for an error, or the reported code if it is such a name.
fn error_kind(error: &ProviderError) -> String {
    if error.code.ends_with("Exception") {
        return error.code.clone();
    }
    // The exception names of the Bedrock runtime API.
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

/// Encodes the token counts. The provider reports cached input separately from the rest, and
/// includes it in the total.
fn encode_usage(usage: Usage) -> Value {
    let input = usage.input.unwrap_or_default();
    let output = usage.output.unwrap_or_default();
    let cached = usage
        .cache_read
        .unwrap_or_default()
        .saturating_add(usage.cache_write.unwrap_or_default());
    let mut value = Map::new();
    value.insert(
        "inputTokens".to_owned(),
        json!(input.saturating_sub(cached)),
    );
    value.insert("outputTokens".to_owned(), json!(output));
    value.insert(
        "totalTokens".to_owned(),
        json!(input.max(cached).saturating_add(output)),
    );
    if let Some(read) = usage.cache_read {
        value.insert("cacheReadInputTokens".to_owned(), json!(read));
    }
    if let Some(written) = usage.cache_write {
        value.insert("cacheWriteInputTokens".to_owned(), json!(written));
    }
    Value::Object(value)
}

/// Returns metrics without a measured latency. Clients require the member.
fn empty_metrics() -> Value {
    json!({"latencyMs": 0})
}

/// Writes a delta of a block.
fn write_block_delta(index: u64, delta: &Value, out: &mut Vec<u8>) {
    write_event(
        "contentBlockDelta",
        &json!({"delta": delta, "contentBlockIndex": index}),
        out,
    );
}

/// Writes the end of a block.
fn write_block_stop(index: u64, out: &mut Vec<u8>) {
    write_event(
        "contentBlockStop",
        &json!({"contentBlockIndex": index}),
        out,
    );
}

/// Writes an event.
fn write_event(kind: &str, body: &Value, out: &mut Vec<u8>) {
    write_frame(kind, body.to_string().as_bytes(), out);
}

/// Writes a frame with the headers of an event.
fn write_frame(kind: &str, payload: &[u8], out: &mut Vec<u8>) {
    let headers = [
        (":event-type", HeaderValue::Text(kind)),
        (":content-type", HeaderValue::Text("application/json")),
        (":message-type", HeaderValue::Text("event")),
    ];
    // Text was split above. Only provider state can exceed the limit, and clients could not read
    // such a frame, so it is dropped.
    let _ = encode_frame(&headers, payload, out);
}
