//! Encodes events and drafts as Anthropic Messages responses.

use sabir_call::{DraftPart, DraftResponse, DraftState, Event, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::answer_details::AnswerDetail;
use super::{NAME, stop_reason_name};
use crate::arguments::{ArgumentWriter, arguments_object};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::provider_error::ProviderError;
use crate::sse;
use crate::stop_reason_names::stop_or_default;
use crate::wire::{Wire, WireEncoder};

/// Encodes the event stream of one response.
#[derive(Debug)]
pub(crate) struct AnthropicEncoder {
    /// The id and the model's name, which `message_start` carries.
    metadata: ResponseMetadata,
    /// True once `message_start` was written.
    begun: bool,
    /// The index and kind of the open text or thinking block.
    open_block: Option<(u64, TextBlockKind)>,
    /// The index of the next block. Anthropic's clients use it as a position in the content.
    next_index: u64,
    /// The calls whose blocks are open, in the order of their starts.
    calls: Vec<OpenCall>,
    /// True once a call has started; it decides the stop reason where the provider sent none.
    has_calls: bool,
    /// The merged counts. `message_start` gets the counts known by then, `message_delta` all of them.
    usage: Usage,
    /// The stop reason with the provider's word. It is written last, because calls may still end
    /// after it.
    stop: Option<(StopReason, String)>,
    /// The templates for deltas of text, thoughts and arguments.
    templates: [Option<DeltaTemplate>; 3],
    /// The buffer for one piece of arguments.
    fragment: String,
    /// Other members of the provider's message.
    details: MessageDetails,
}

/// Members of a message that events have no place for.
#[derive(Debug, Default)]
struct MessageDetails {
    /// Members of the message.
    message: Map<String, Value>,
    /// Members of the `message_delta` event, which a body has as members of the message.
    end: Map<String, Value>,
    /// Members of the counts.
    usage: Map<String, Value>,
}

impl MessageDetails {
    /// Adds members of the message or of its counts.
    fn add(&mut self, detail: AnswerDetail) {
        match detail {
            AnswerDetail::Message(members) => self.message.extend(members),
            AnswerDetail::End(members) => self.end.extend(members),
            AnswerDetail::Usage(members) => self.usage.extend(members),
            AnswerDetail::TextStart | AnswerDetail::TextDelta(_) => {}
        }
    }

    /// Encodes the counts with the provider's further ones.
    fn encode_usage(&self, usage: Usage, output: u64) -> Value {
        let mut encoded = encode_usage(usage, output);
        extend_object(&mut encoded, &self.usage);
        encoded
    }
}

/// Adds members to an object.
fn extend_object(object: &mut Value, members: &Map<String, Value>) {
    if let Some(object) = object.as_object_mut() {
        object.extend(members.clone());
    }
}

/// The kind of a block of prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextBlockKind {
    /// A `text` block.
    Text,
    /// A `thinking` block; its signature is empty until the provider sends one.
    Thinking,
}

/// A call whose block is open.
#[derive(Debug)]
struct OpenCall {
    /// The call's index in the events.
    index: u32,
    /// The index of the call's block in the message.
    block: u64,
    /// Turns argument events into the JSON text of `input_json_delta` events.
    arguments: ArgumentWriter,
}

impl AnthropicEncoder {
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
            templates: Default::default(),
            fragment: String::new(),
            details: MessageDetails::default(),
        }
    }

    /// Writes the start of the message unless it was written.
    fn begin_message(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            let mut message = json!({
                "id": self.metadata.id, "type": "message", "role": "assistant", "model": self.metadata.model, "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": self.details.encode_usage(self.usage, 0),
            });
            extend_object(&mut message, &self.details.message);
            write_event("message_start", json!({"message": message}), out);
        }
    }

    /// Closes the open text or thinking block.
    fn close_open_block(&mut self, out: &mut Vec<u8>) {
        if let Some((index, _)) = self.open_block.take() {
            write_event("content_block_stop", json!({"index": index}), out);
        }
    }

    /// Starts a block and returns its index.
    fn start_block(&mut self, block: Value, out: &mut Vec<u8>) -> u64 {
        self.begin_message(out);
        self.close_open_block(out);
        let index = self.next_index;
        self.next_index += 1;
        write_event(
            "content_block_start",
            json!({"index": index, "content_block": block}),
            out,
        );
        index
    }

    /// Returns the index of an open block of this kind, starting one if needed.
    fn ensure_text_block(&mut self, kind: TextBlockKind, out: &mut Vec<u8>) -> u64 {
        if let Some((index, known)) = self.open_block
            && known == kind
        {
            return index;
        }
        // Clients join the deltas of one block, so a thought between two texts must become a block
        // of its own.
        let block = match kind {
            TextBlockKind::Text => json!({"type": "text", "text": ""}),
            TextBlockKind::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        let index = self.start_block(block, out);
        self.open_block = Some((index, kind));
        index
    }

    /// Takes a detail of the provider's answer.
    fn take_detail(&mut self, detail: AnswerDetail, out: &mut Vec<u8>) {
        match detail {
            // Each text block has citations of its own.
            AnswerDetail::TextStart => {
                if matches!(self.open_block, Some((_, TextBlockKind::Text))) {
                    self.close_open_block(out);
                }
            }
            AnswerDetail::TextDelta(delta) => {
                let index = self.ensure_text_block(TextBlockKind::Text, out);
                write_block_delta(index, delta, out);
            }
            detail => self.details.add(detail),
        }
    }

    /// Writes state of this wire: a signature into its thinking block, anything else as a block.
    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        // The data of a signed thought has no text of its own: the text was streamed as `Thought`.
        let signature = data
            .get("signature")
            .filter(|_| data.get("type").is_some_and(|kind| kind == "thinking"));
        if let Some(signature) = signature {
            let index = self.ensure_text_block(TextBlockKind::Thinking, out);
            write_block_delta(
                index,
                json!({"type": "signature_delta", "signature": signature}),
                out,
            );
            self.close_open_block(out);
        } else {
            let index = self.start_block(data.clone(), out);
            write_event("content_block_stop", json!({"index": index}), out);
        }
    }

    /// Writes the JSON text that `write` adds to a call's arguments.
    fn encode_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut ArgumentWriter, &mut String),
        out: &mut Vec<u8>,
    ) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            self.fragment.clear();
            write(&mut call.arguments, &mut self.fragment);
            if !self.fragment.is_empty() {
                let [.., template] = &mut self.templates;
                let block = call.block;
                let names = ["input_json_delta", "partial_json"];
                let fragment = TextDelta {
                    key: block,
                    number: 0,
                    text: &self.fragment,
                };
                write_delta(template, fragment, out, |_, text| {
                    text_delta(block, names, text)
                });
            }
        }
    }
}

impl WireEncoder for AnthropicEncoder {
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => {
                let index = self.ensure_text_block(TextBlockKind::Text, out);
                let [template, ..] = &mut self.templates;
                write_delta(
                    template,
                    TextDelta {
                        key: index,
                        number: 0,
                        text,
                    },
                    out,
                    |_, text| text_delta(index, ["text_delta", "text"], text),
                );
            }
            Event::Thought { text } => {
                let index = self.ensure_text_block(TextBlockKind::Thinking, out);
                let [_, template, _] = &mut self.templates;
                write_delta(
                    template,
                    TextDelta {
                        key: index,
                        number: 0,
                        text,
                    },
                    out,
                    |_, text| text_delta(index, ["thinking_delta", "thinking"], text),
                );
            }
            Event::CallStart {
                index, id, name, ..
            } => {
                self.has_calls = true;
                let id = self.metadata.call_id(id, index);
                let block = self.start_block(
                    json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
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
                    let call = self.calls.remove(position);
                    write_event("content_block_stop", json!({"index": call.block}), out);
                }
            }
            Event::CallCut { index, .. } => {
                self.encode_arguments(index, ArgumentWriter::leave_truncated, out)
            }
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => {
                match AnswerDetail::from_state(&opaque.data) {
                    Some(detail) => self.take_detail(detail, out),
                    None => self.encode_opaque(&opaque.data, out),
                }
            }
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        sse::encode_event("error", &encode_error(error).to_string(), out);
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        // As in Anthropic's own streams, a `ping` never precedes `message_start`.
        self.begin_message(out);
        write_event("ping", json!({}), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.begin_message(out);
        self.close_open_block(out);
        // Truncated calls: their blocks end but their JSON stays incomplete, so clients refuse
        // them.
        for call in std::mem::take(&mut self.calls) {
            write_event("content_block_stop", json!({"index": call.block}), out);
        }
        let (reason, raw) = stop_or_default(self.stop.as_ref(), self.has_calls);
        let mut delta = json!({"stop_reason": stop_reason_name(reason, raw), "stop_sequence": matched_stop_sequence(&self.metadata, reason)});
        extend_object(&mut delta, &self.details.message);
        let output = self.usage.output.unwrap_or_default();
        let usage = self.details.encode_usage(self.usage, output);
        let mut event = json!({"delta": delta, "usage": usage});
        extend_object(&mut event, &self.details.end);
        write_event("message_delta", event, out);
        write_event("message_stop", json!({}), out);
    }
}

/// Encodes a response that is not streamed.
///
/// Truncated calls are left out: `input` is an object on this wire, which cannot be shown as
/// unfinished.
pub(crate) fn encode_response(metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut content: Vec<Value> = Vec::new();
    let mut details = MessageDetails::default();
    // True behind a detail inside of a text block, which the text then continues.
    let mut continues = false;
    for part in &draft.parts {
        let after_detail = std::mem::take(&mut continues);
        match part {
            DraftPart::Text(text) => {
                let open = content.last_mut().filter(|_| after_detail);
                match open.and_then(|block| block.get_mut("text")) {
                    Some(Value::String(known)) => known.push_str(text),
                    _ => content.push(json!({"type": "text", "text": text})),
                }
            }
            DraftPart::Thought(text) => {
                content.push(json!({"type": "thinking", "thinking": text, "signature": ""}));
            }
            // An unfinished object cannot be shown, and a completed one would be run.
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = metadata.call_id(call.id.as_deref(), call.index);
                let input = arguments_object(&call.arguments);
                content
                    .push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
            }
            DraftPart::Opaque(opaque) if opaque.wire == NAME => {
                match AnswerDetail::from_state(&opaque.data) {
                    Some(AnswerDetail::TextStart) => {}
                    Some(AnswerDetail::TextDelta(delta)) => {
                        attach_citation(&delta, &mut content);
                        continues = true;
                    }
                    Some(detail) => {
                        details.add(detail);
                        continues = after_detail;
                    }
                    None => attach_signature(&opaque.data, &mut content),
                }
            }
            DraftPart::Opaque(_) => {}
        }
    }
    let called = draft
        .calls()
        .any(|call| !matches!(call.state, DraftState::Cut(_)));
    let (reason, raw) = stop_or_default(draft.stop.as_ref(), called);
    let output = draft.usage.output.unwrap_or_default();
    let mut message = json!({
        "id": metadata.id, "type": "message", "role": "assistant", "model": metadata.model, "content": content,
        "stop_reason": stop_reason_name(reason, raw), "stop_sequence": matched_stop_sequence(metadata, reason),
        "usage": details.encode_usage(draft.usage, output),
    });
    extend_object(&mut message, &details.message);
    extend_object(&mut message, &details.end);
    message
}

/// Adds the citation of a delta to the last text block.
fn attach_citation(delta: &Value, content: &mut Vec<Value>) {
    if content
        .last()
        .is_none_or(|block| block.get("text").is_none())
    {
        content.push(json!({"type": "text", "text": ""}));
    }
    let block = content.last_mut().and_then(Value::as_object_mut);
    if let (Some(block), Some(citation)) = (block, delta.get("citation")) {
        let citations = block.entry("citations").or_insert_with(|| json!([]));
        if let Some(citations) = citations.as_array_mut() {
            citations.push(citation.clone());
        }
    }
}

/// Adds a signature to the thinking block before it, and any other state as a block.
fn attach_signature(data: &Value, content: &mut Vec<Value>) {
    let Some(signature) = data
        .get("signature")
        .filter(|_| data.get("type").is_some_and(|kind| kind == "thinking"))
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

/// Returns the stop sequence that ended the response, if only one was possible.
fn matched_stop_sequence(metadata: &ResponseMetadata, reason: StopReason) -> Option<&str> {
    metadata
        .preferences
        .only_stop_sequence
        .as_deref()
        .filter(|_| reason == StopReason::Sequence)
}

/// Error types by HTTP status. Official clients build their exception classes from the type.
const ERROR_TYPES: [(u16, &str); 9] = [
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

/// Encodes the body of an error response.
/// The shape is `{"type": "error", "error": {"type": …, "message": …}}`, in a stream as in a body.
pub(crate) fn encode_error(error: &ProviderError) -> Value {
    // A code that is one of the wire's own types is more exact than the status.
    let known = ERROR_TYPES.iter().find(|(_, kind)| *kind == error.code);
    let status = Wire::Anthropic.error_status(error);
    let by_status = || ERROR_TYPES.iter().find(|(known, _)| *known == status);
    let client = if (400..500).contains(&status) {
        "invalid_request_error"
    } else {
        "api_error"
    };
    let kind = known.or_else(by_status).map_or(client, |(_, kind)| *kind);
    json!({"type": "error", "error": {"type": kind, "message": error.message}})
}

/// Encodes the token counts. The provider reports cached input separately from the rest.
fn encode_usage(usage: Usage, output: u64) -> Value {
    let cached = usage
        .cache_read
        .unwrap_or_default()
        .saturating_add(usage.cache_write.unwrap_or_default());
    let mut value = Map::new();
    value.insert(
        "input_tokens".to_owned(),
        json!(usage.input.unwrap_or_default().saturating_sub(cached)),
    );
    if let Some(written) = usage.cache_write {
        value.insert("cache_creation_input_tokens".to_owned(), json!(written));
    }
    if let Some(read) = usage.cache_read {
        value.insert("cache_read_input_tokens".to_owned(), json!(read));
    }
    value.insert("output_tokens".to_owned(), json!(output));
    Value::Object(value)
}

/// Encodes a delta of the given type with a text in the given field.
fn text_delta(index: u64, [kind, field]: [&str; 2], text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_block_delta(index, json!({"type": kind, field: text}), &mut out);
    out
}

/// Writes a delta of a block.
fn write_block_delta(index: u64, delta: Value, out: &mut Vec<u8>) {
    write_event(
        "content_block_delta",
        json!({"index": index, "delta": delta}),
        out,
    );
}

/// Writes an event. Its name is repeated as `type`, the first member of the data.
fn write_event(kind: &str, mut body: Value, out: &mut Vec<u8>) {
    if let Some(body) = body.as_object_mut() {
        body.shift_insert(0, "type".to_owned(), json!(kind));
    }
    sse::encode_event(kind, &body.to_string(), out);
}
