//! Encodes events and drafts as Responses bodies and streams.
//!
//! The encoder writes the whole sequence that official clients require: the start of the response;
//! items and their parts, each added, sent in deltas and repeated when it is done; and a final
//! response with everything. All output is therefore kept until the end. A call with a text input
//! is an item type of its own; a truncated one is never marked done. A response repeats small
//! members of the request, but neither its instructions nor its tools.

use std::collections::{BTreeMap, BTreeSet};

use sabir_call::{DraftResponse, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Value, json};

use super::argument_format::CallArgumentWriter;
use super::event_types::{ITEM_START, TEXT_DETAILS, must_be_resent};
use super::{NAME, stop_reason_name};
use crate::client_request::ResponseMetadata;
use crate::delta_template::{DeltaTemplate, TextDelta, write_delta};
use crate::openai_chat::encode_response::encode_error;
use crate::provider_error::ProviderError;
use crate::replay::replay_draft;
use crate::sse;
use crate::wire::WireEncoder;

/// Encodes the event stream of one response.
#[derive(Debug)]
pub(crate) struct OpenAiResponsesEncoder {
    /// The response's id, from which the ids of items derive, and the client's preferences.
    metadata: ResponseMetadata,
    /// True once `response.created` was written.
    begun: bool,
    /// The number of the next event.
    sequence: u64,
    /// The items by output index; `null` for one that is not done.
    output: Vec<Value>,
    /// The open message or reasoning item; at most one is open at a time.
    open_item: Option<OpenItem>,
    /// The phase of the next message.
    phase: Option<Value>,
    /// The provider's ids of the next items, by the prefixes of their kinds.
    announced_ids: BTreeMap<&'static str, String>,
    /// The provider's ids of items so far. The empty one is no id.
    used_ids: BTreeSet<String>,
    /// True if the provider's ids are known.
    knows_ids: bool,
    /// The calls whose items are open; several may be.
    calls: Vec<OpenCall>,
    /// The merged counts, written in the final response.
    usage: Option<Usage>,
    /// The stop reason with the provider's word; it decides if the response is complete.
    stop: Option<(StopReason, String)>,
    /// The templates for deltas of text, thoughts and arguments.
    templates: [Option<DeltaTemplate>; 3],
}

/// The prefixes of ids by the types of items.
const ITEM_PREFIXES: [(&str, &str); 4] = [
    ("message", "msg"),
    ("reasoning", "rs"),
    ("function_call", "fc"),
    ("custom_tool_call", "ctc"),
];

/// An open message or reasoning item with its one part.
#[derive(Debug)]
struct OpenItem {
    /// True for a reasoning item.
    thought: bool,
    /// The item's position and id, which each of its events names.
    position: ItemPosition,
    /// All text so far, which the `done` events repeat.
    text: String,
    /// The `phase` member of a message.
    phase: Option<Value>,
    /// The provider's annotations of the text.
    annotations: Vec<Value>,
    /// The probabilities of its tokens.
    logprobs: Vec<Value>,
}

/// A call whose item is open.
#[derive(Debug)]
struct OpenCall {
    /// The call's index in the events.
    index: u32,
    /// The item's position and id.
    position: ItemPosition,
    /// The id that the result must name.
    call_id: String,
    /// The tool's name, without its namespace.
    name: String,
    /// The namespace of the tool.
    namespace: Option<String>,
    /// Turns argument events into JSON text, or into the text of a custom tool.
    arguments: CallArgumentWriter,
    /// All of it so far, which the `done` events repeat.
    text: String,
}

/// The output index and the id of an item.
#[derive(Debug, Clone)]
struct ItemPosition {
    /// The `output_index`.
    index: usize,
    /// The `item_id`.
    id: String,
}

impl ItemPosition {
    /// Builds the body of an event about a part of the item.
    fn part_body(&self, thought: bool, key: &str, value: Value) -> Value {
        let number = if thought {
            "summary_index"
        } else {
            "content_index"
        };
        let mut body = self.item_body(key, value);
        if let Some(body) = body.as_object_mut() {
            body.insert(number.to_owned(), json!(0));
        }
        body
    }

    /// Builds the body of an event about the item.
    fn item_body(&self, key: &str, value: Value) -> Value {
        json!({"item_id": self.id, "output_index": self.index, key: value})
    }
}

/// Returns the text of a reasoning item.
fn reasoning_text(item: &Value) -> String {
    let parts = ["summary", "content"]
        .into_iter()
        .filter_map(|key| item.get(key)?.as_array())
        .flatten();
    let texts = parts.filter_map(|part| part.get("text")?.as_str());
    if item.get("type").is_some_and(|kind| kind == "reasoning") {
        texts.collect()
    } else {
        String::new()
    }
}

impl OpenItem {
    /// Encodes the part with this text.
    fn encode_part(&self, text: &str) -> Value {
        if self.thought {
            return json!({"type": "summary_text", "text": text});
        }
        json!({"type": "output_text", "text": text, "annotations": self.annotations, "logprobs": self.logprobs})
    }

    /// Encodes a delta event with this number.
    fn encode_delta(&self, number: u64, text: &str) -> Vec<u8> {
        let mut body = self.position.part_body(self.thought, "delta", json!(text));
        if let Some(body) = body.as_object_mut().filter(|_| !self.thought) {
            body.insert("logprobs".to_owned(), json!([]));
        }
        let kind = if self.thought {
            "response.reasoning_summary_text.delta"
        } else {
            "response.output_text.delta"
        };
        let mut out = Vec::new();
        write_numbered_event(kind, number, body, &mut out);
        out
    }

    /// Encodes the item with these parts.
    fn encode_item(&self, status: &str, parts: Vec<Value>) -> Value {
        if self.thought {
            return json!({"id": self.position.id, "type": "reasoning", "summary": parts});
        }
        let mut item = json!({
            "id": self.position.id, "type": "message", "role": "assistant", "status": status, "content": parts,
        });
        if let (Some(phase), Some(item)) = (&self.phase, item.as_object_mut()) {
            item.insert("phase".to_owned(), phase.clone());
        }
        item
    }
}

impl OpenCall {
    /// Returns the event types for a piece and for the whole, and the member that holds the whole.
    fn event_names(&self) -> [&'static str; 3] {
        if self.arguments.is_text() {
            [
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
                "input",
            ]
        } else {
            [
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "arguments",
            ]
        }
    }

    /// Encodes the item.
    fn encode_item(&self, status: &str) -> Value {
        if self.arguments.is_text() {
            return json!({
                "id": self.position.id, "type": "custom_tool_call", "status": status, "call_id": self.call_id,
                "name": self.name, "input": self.text,
            });
        }
        let mut item = json!({
            "id": self.position.id, "type": "function_call", "status": status, "call_id": self.call_id,
            "name": self.name, "arguments": self.text,
        });
        if let (Some(space), Some(item)) = (&self.namespace, item.as_object_mut()) {
            item.insert("namespace".to_owned(), json!(space));
        }
        item
    }
}

impl OpenAiResponsesEncoder {
    pub(crate) fn new(metadata: ResponseMetadata) -> Self {
        Self {
            metadata,
            begun: false,
            sequence: 0,
            output: Vec::new(),
            open_item: None,
            phase: None,
            announced_ids: BTreeMap::new(),
            used_ids: BTreeSet::from([String::new()]),
            knows_ids: false,
            calls: Vec::new(),
            usage: None,
            stop: None,
            templates: Default::default(),
        }
    }

    /// Writes an event with the next number.
    fn write_event(&mut self, kind: &str, body: Value, out: &mut Vec<u8>) {
        write_numbered_event(kind, self.sequence, body, out);
        self.sequence += 1;
    }

    /// Writes the start of the response unless it was written.
    fn begin_response(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            for kind in ["response.created", "response.in_progress"] {
                let response = self.response_body("in_progress", Value::Null);
                self.write_event(kind, json!({"response": response}), out);
            }
        }
    }

    /// Reserves the next output index, after closing the open item.
    fn reserve_item_position(&mut self, prefix: &'static str, out: &mut Vec<u8>) -> ItemPosition {
        self.begin_response(out);
        self.close_open_item(None, out);
        let index = self.output.len();
        // The index is reserved now, because items are done in another order than they begin.
        self.output.push(Value::Null);
        let announced = self.announced_ids.remove(prefix);
        ItemPosition {
            index,
            id: announced.unwrap_or_else(|| format!("{prefix}_{}_{index}", self.metadata.id)),
        }
    }

    /// Writes the start of an item.
    fn write_item_added(&mut self, index: usize, item: Value, out: &mut Vec<u8>) {
        self.write_event(
            "response.output_item.added",
            json!({"output_index": index, "item": item}),
            out,
        );
    }

    /// Writes the end of an item and keeps it for the final response.
    fn write_item_done(&mut self, index: usize, item: Value, out: &mut Vec<u8>) {
        self.write_event(
            "response.output_item.done",
            json!({"output_index": index, "item": item}),
            out,
        );
        if let Some(slot) = self.output.get_mut(index) {
            *slot = item;
        }
    }

    /// Writes a piece of text or of a thought, opening an item if needed.
    fn encode_text(&mut self, thought: bool, text: &str, out: &mut Vec<u8>) {
        if self
            .open_item
            .as_ref()
            .is_none_or(|open| open.thought != thought)
        {
            let position = self.reserve_item_position(if thought { "rs" } else { "msg" }, out);
            let phase = if thought { None } else { self.phase.take() };
            let prose = OpenItem {
                thought,
                position,
                text: String::new(),
                phase,
                annotations: Vec::new(),
                logprobs: Vec::new(),
            };
            self.write_item_added(
                prose.position.index,
                prose.encode_item("in_progress", Vec::new()),
                out,
            );
            let kind = if thought {
                "response.reasoning_summary_part.added"
            } else {
                "response.content_part.added"
            };
            self.write_event(
                kind,
                prose
                    .position
                    .part_body(thought, "part", prose.encode_part("")),
                out,
            );
            self.open_item = Some(prose);
        }
        let Some(open) = &mut self.open_item else {
            return;
        };
        open.text.push_str(text);
        let [for_text, for_thoughts, _] = &mut self.templates;
        let template = if thought { for_thoughts } else { for_text };
        let delta = TextDelta {
            key: open.position.index as u64,
            number: self.sequence,
            text,
        };
        write_delta(template, delta, out, |number, text| {
            open.encode_delta(number, text)
        });
        self.sequence += 1;
    }

    /// Closes the open message or reasoning item, as `item` if that is given. The item keeps the id of its start, by which clients find it.
    fn close_open_item(&mut self, item: Option<&Value>, out: &mut Vec<u8>) {
        let Some(open) = self.open_item.take() else {
            return;
        };
        let [text, part] = if open.thought {
            [
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
            ]
        } else {
            ["response.output_text.done", "response.content_part.done"]
        };
        for (number, annotation) in open.annotations.iter().enumerate() {
            let mut body = open
                .position
                .part_body(false, "annotation", annotation.clone());
            if let Some(body) = body.as_object_mut() {
                body.insert("annotation_index".to_owned(), json!(number));
            }
            self.write_event("response.output_text.annotation.added", body, out);
        }
        let mut body = open
            .position
            .part_body(open.thought, "text", json!(open.text));
        if let Some(body) = body.as_object_mut().filter(|_| !open.thought) {
            body.insert("logprobs".to_owned(), json!(open.logprobs));
        }
        self.write_event(text, body, out);
        let whole = open.encode_part(&open.text);
        self.write_event(
            part,
            open.position.part_body(open.thought, "part", whole.clone()),
            out,
        );
        let mut item = item
            .cloned()
            .unwrap_or_else(|| open.encode_item("completed", vec![whole]));
        if let Some(item) = item.as_object_mut().filter(|_| self.knows_ids) {
            item.insert("id".to_owned(), json!(open.position.id));
        }
        self.write_item_done(open.position.index, item, out);
    }

    /// Encodes state of this wire, which is an item, signs the preceding reasoning, or belongs to the following message.
    fn encode_opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        let is = |kind: &str| data.get("type").is_some_and(|known| known == kind);
        if is(ITEM_START) {
            let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
            let prefix = ITEM_PREFIXES.iter().find(|(kind, _)| *kind == text("kind"));
            self.knows_ids = true;
            if let Some((_, prefix)) = prefix
                && self.used_ids.insert(text("id").to_owned())
            {
                self.announced_ids.insert(prefix, text("id").to_owned());
            }
        } else if is(TEXT_DETAILS) {
            // Without an open message, all of its text was markup of calls.
            if let Some(open) = self.open_item.as_mut().filter(|open| !open.thought) {
                let list = |key: &str| data.get(key).and_then(Value::as_array).cloned();
                open.annotations
                    .extend(list("annotations").unwrap_or_default());
                open.logprobs.extend(list("logprobs").unwrap_or_default());
            }
        } else if is("message") {
            self.begin_response(out);
            self.close_open_item(None, out);
            self.phase = data.get("phase").cloned();
        } else if is("reasoning") && self.open_item.as_ref().is_some_and(|open| open.thought) {
            self.close_open_item(Some(data), out);
        } else if let Some(mut item) = self.unsent_state(data) {
            let position = self.reserve_item_position("item", out);
            // Two items with one id, or one without, could not be distinguished.
            let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
            if self.knows_ids
                && !self.used_ids.insert(id.to_owned())
                && let Some(item) = item.as_object_mut()
            {
                item.insert("id".to_owned(), json!(position.id));
            }
            self.write_item_added(position.index, item.clone(), out);
            self.write_item_done(position.index, item, out);
        }
    }

    /// Returns an item of state without text that was already sent, since a provider may end its reasoning only after the message that
    /// follows it. Returns `None` if the rest need not be sent.
    fn unsent_state(&self, data: &Value) -> Option<Value> {
        // The client already has this text as streamed reasoning.
        let text = reasoning_text(data);
        if text.is_empty() || !self.output.iter().any(|item| reasoning_text(item) == text) {
            return Some(data.clone());
        }
        let mut rest = data.clone();
        for key in ["summary", "content"] {
            if let Some(words) = rest.get_mut(key) {
                *words = json!([]);
            }
        }
        must_be_resent(&rest).then_some(rest)
    }

    /// Starts a call.
    fn begin_call(&mut self, index: u32, id: Option<&str>, name: &str, out: &mut Vec<u8>) {
        let freeform = self
            .metadata
            .preferences
            .custom_tool_names
            .iter()
            .any(|known| known == name);
        let position = self.reserve_item_position(if freeform { "ctc" } else { "fc" }, out);
        let call_id = self.metadata.call_id(id, index);
        let namespaced = self
            .metadata
            .preferences
            .namespaced_tools
            .iter()
            .find(|tool| tool.offered_name == name);
        let (space, name) = namespaced.map_or((None, name), |tool| {
            (Some(tool.namespace.clone()), tool.name.as_str())
        });
        let name = name.to_owned();
        let arguments = CallArgumentWriter::new(freeform);
        let text = String::new();
        let call = OpenCall {
            index,
            position,
            call_id,
            name,
            namespace: space,
            arguments,
            text,
        };
        self.write_item_added(call.position.index, call.encode_item("in_progress"), out);
        self.calls.push(call);
    }

    /// Writes the text that `write` adds to a call's arguments.
    fn encode_arguments(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut CallArgumentWriter, &mut String),
        out: &mut Vec<u8>,
    ) {
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) else {
            return;
        };
        let before = call.text.len();
        write(&mut call.arguments, &mut call.text);
        let Some(text) = call
            .text
            .get(before..)
            .filter(|fragment| !fragment.is_empty())
        else {
            return;
        };
        let [.., template] = &mut self.templates;
        let position = &call.position;
        let [kind, ..] = call.event_names();
        let delta = TextDelta {
            key: position.index as u64,
            number: self.sequence,
            text,
        };
        write_delta(template, delta, out, |number, text| {
            let mut out = Vec::new();
            write_numbered_event(
                kind,
                number,
                position.item_body("delta", json!(text)),
                &mut out,
            );
            out
        });
        self.sequence += 1;
    }

    /// Ends a call.
    fn end_call(&mut self, index: u32, out: &mut Vec<u8>) {
        self.encode_arguments(index, CallArgumentWriter::close_call, out);
        if let Some(position) = self.calls.iter().rposition(|call| call.index == index) {
            let call = self.calls.remove(position);
            let [_, kind, key] = call.event_names();
            let mut body = call.position.item_body(key, json!(call.text));
            if let Some(body) = body.as_object_mut().filter(|_| !call.arguments.is_text()) {
                body.insert("name".to_owned(), json!(call.name));
            }
            self.write_event(kind, body, out);
            self.write_item_done(call.position.index, call.encode_item("completed"), out);
        }
    }

    /// Ends everything and returns the type and the response of the final event.
    fn end_response(&mut self, out: &mut Vec<u8>) -> (&'static str, Value) {
        self.begin_response(out);
        self.close_open_item(None, out);
        // Truncated calls: their items end but their JSON stays incomplete, so clients refuse them.
        for call in std::mem::take(&mut self.calls) {
            if call.arguments.is_text() {
                // A text cannot show that its end is missing, so the item is never marked done.
                continue;
            }
            self.write_item_done(call.position.index, call.encode_item("incomplete"), out);
        }
        let (reason, raw) = self.stop.take().unwrap_or((StopReason::End, String::new()));
        match stop_reason_name(reason, &raw) {
            Some(word) => (
                "response.incomplete",
                self.response_body("incomplete", json!({"reason": word})),
            ),
            None => (
                "response.completed",
                self.response_body("completed", Value::Null),
            ),
        }
    }

    /// Builds the response with all members that clients require.
    fn response_body(&self, status: &str, incomplete: Value) -> Value {
        let output: Vec<_> = self.output.iter().filter(|item| !item.is_null()).collect();
        let mut response = json!({
            "id": self.metadata.id, "object": "response", "created_at": self.metadata.created, "status": status,
            "background": false, "error": null, "incomplete_details": incomplete, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "model": self.metadata.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null}, "store": false, "temperature": null,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": null,
            "truncation": "disabled", "usage": self.usage.map(encode_usage), "user": null,
        });
        if let Some(response) = response.as_object_mut() {
            // The client's values replace the defaults above.
            response.extend(self.metadata.preferences.echoed_members.clone());
        }
        response
    }
}

impl WireEncoder for OpenAiResponsesEncoder {
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.encode_text(false, text, out),
            Event::Thought { text } => self.encode_text(true, text, out),
            Event::CallStart {
                index, id, name, ..
            } => self.begin_call(index, id, name, out),
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. } => {
                self.encode_arguments(index, |writer, text| writer.encode_event(event, text), out);
            }
            Event::CallEnd { index, .. } => self.end_call(index, out),
            Event::CallCut { index, .. } => {
                self.encode_arguments(index, CallArgumentWriter::leave_truncated, out)
            }
            Event::Usage(usage) => self.usage.get_or_insert_default().update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => self.encode_opaque(&opaque.data, out),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        // The documentation has the members at the top level; official clients look for them in
        // `error`.
        let mut body = encode_error(error);
        if let Some(body) = body.as_object_mut() {
            body.insert("code".to_owned(), json!(error.code));
            body.insert("message".to_owned(), json!(error.message));
            body.insert("param".to_owned(), Value::Null);
        }
        self.write_event("error", body, out);
        // Some clients look for the `error` event, others for the failed response.
        self.begin_response(out);
        let mut response = self.response_body("failed", Value::Null);
        if let Some(response) = response.as_object_mut() {
            response.insert(
                "error".to_owned(),
                json!({"code": failure_code(error), "message": error.message}),
            );
        }
        self.write_event("response.failed", json!({"response": response}), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let (kind, response) = self.end_response(out);
        self.write_event(kind, json!({"response": response}), out);
    }

    fn take_output(&mut self) -> Vec<Value> {
        let mut output = std::mem::take(&mut self.output);
        output.retain(|item| !item.is_null());
        output
    }
}

/// Writes an event with its type and number as the first members of the data.
fn write_numbered_event(kind: &str, number: u64, mut body: Value, out: &mut Vec<u8>) {
    if let Some(body) = body.as_object_mut() {
        body.shift_insert(0, "type".to_owned(), json!(kind));
        body.shift_insert(1, "sequence_number".to_owned(), json!(number));
    }
    sse::encode_event(kind, &body.to_string(), out);
}

/// Encodes a response that is not streamed: the final response of the equivalent stream.
pub(crate) fn encode_response(metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
    let mut answer = OpenAiResponsesEncoder::new(metadata.clone());
    let mut stream = Vec::new();
    replay_draft(draft, 0, &mut |event: Event<'_>| {
        answer.encode_event(event, &mut stream);
        stream.clear();
    });
    answer.end_response(&mut stream).1
}

/// Returns the error code that clients know for a failed response.
fn failure_code(error: &ProviderError) -> &'static str {
    match error.kind {
        ModelErrorKind::TooLong => "context_length_exceeded",
        ModelErrorKind::RateLimited => "rate_limit_exceeded",
        ModelErrorKind::Rejected | ModelErrorKind::UnknownModel => "invalid_prompt",
        _ => "server_error",
    }
}

/// Encodes the token counts. Official clients require every member, so unknown counts are 0.
fn encode_usage(usage: Usage) -> Value {
    let input = usage.input.unwrap_or_default();
    let output = usage.output.unwrap_or_default();
    let read = usage.cache_read.unwrap_or_default();
    let written = usage.cache_write.unwrap_or_default();
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning.unwrap_or_default()},
        "total_tokens": input.saturating_add(output),
    })
}
