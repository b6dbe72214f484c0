//! Decodes Chat Completions responses into events.
//!
//! # Supported
//! Chunks and whole completions, of the first choice; of several choices as chunks for decoders of
//! their own. Content as a string or as parts; reasoning as
//! `reasoning_content`, `reasoning`, `reasoning_details` or thinking parts; signed or encrypted
//! reasoning details are kept as `Opaque`. Calls as `tool_calls` and as the old `function_call`;
//! arguments as text, as a JSON value, or absent. Calls of custom tools, whose text becomes their one
//! argument; nothing but a finish reason tells that the text is complete.
//!
//! # Unsupported
//! Choices that were not requested. Log
//! probabilities, audio, annotations and unknown members are details for a client of the same wire.
//!
//! # How a delta finds its call
//! The `index` is a label, and may be missing. In this order:
//! 1. the same non-empty id, under the same label (or one of the two has no label): that call,
//!    unless it is complete and the delta brings another name;
//! 2. another non-empty id: a new call, whatever its label; except that an incomplete call of that
//!    label without an id takes it;
//! 3. no id, a label: the latest call of that label, or a new one; no id and no label: the latest
//!    call;
//! 4. but a delta without an id that brings a name begins a new call if the call found this way is
//!    complete and was not simply repeated, or if it has arguments and another name.
//!
//! A name may come in pieces, as long as no arguments came: they are joined.
//!
//! A call ends at the finish reason, at `[DONE]`, or when the next call starts and its JSON is
//! complete. A delta for a complete call repeats the call, and is dropped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use sabir_call::{Event, EventSink, OpaqueState, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::NAME;
use super::answer_details::AnswerDetails;
use crate::choice_chunk::{SplitChoices, SplitChunk};
use crate::delta_template::escape_json;
use crate::lenient::{LenientContent, LenientCount, LenientList, LenientObject, LenientText};
use crate::native_call::NativeCall;
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    ResponseState, WireDecoder, emit_text, is_detail_data, note_unreadable,
};
use crate::wire::Wire;

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct OpenAiChatDecoder {
    /// The calls, the stop reason and the status of the response so far.
    state: ResponseState,
    /// A hash of each call's argument text so far, which reveals a repetition without keeping the
    /// text.
    hashes: Vec<DefaultHasher>,
    /// The calls of custom tools whose input has not ended.
    text_inputs: Vec<TextInput>,
    /// The index of the choice that is read.
    choice: Option<u64>,
    /// The finish reason as the provider spelled it, to recognize a repetition.
    word: String,
    /// True once a refusal was read, which outweighs the finish reason.
    refused: bool,
    /// The labels of calls that the provider runs itself; their later pieces have no type.
    server_calls: Vec<Option<u64>>,
    /// True after `[DONE]`. Many streams never send it.
    done: bool,
    /// The details of the last chunk that were emitted.
    details: AnswerDetails,
    /// The choices of an answer that is split.
    split: SplitChoices,
    /// The counts of each choice, by its index.
    choice_counts: BTreeMap<usize, Usage>,
}

/// The input of a custom tool's call, which is text.
#[derive(Debug)]
struct TextInput {
    /// The position of the call in the response.
    position: usize,
    /// True once some of it has arrived.
    has_begun: bool,
}

/// The beginning of the arguments of a custom tool's call, before its text.
const TEXT_OPENING: &str = "{\"input\":\"";

/// The most bytes of a chunk's own members that each of its choices gets too; the answer itself gets all of them. All APIs have few, and
/// they are copied for each choice.
const MAX_SHARED_MEMBERS: usize = 4096;

/// A chunk of the stream, or a whole completion.
// Rare members are boxed: the structs are moved several times while they are deserialized.
#[derive(Deserialize)]
struct ChatChunk<'a> {
    /// The alternatives; empty in a trailing chunk with the usage.
    #[serde(borrow, default)]
    choices: LenientList<ChunkChoice<'a>>,
    /// The counts, in a trailing chunk or in several chunks.
    #[serde(default)]
    usage: LenientObject<Box<TokenCounts>>,
    /// Groq's place for the counts.
    #[serde(default)]
    x_groq: LenientObject<Box<GroqExtension>>,
    /// An error in the middle of a stream that began with status 200.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// `chat.completion.chunk`, `chat.completion` or, for some servers, `error`. Often missing.
    #[serde(borrow, default)]
    object: LenientText<'a>,
    /// The response's id. It only shows that an empty chunk belongs to this wire.
    #[serde(borrow, default)]
    id: LenientText<'a>,
}

/// One of the alternatives in a response.
#[derive(Deserialize)]
struct ChunkChoice<'a> {
    /// The number of the alternative; taken for 0 if it is missing.
    #[serde(default)]
    index: LenientCount,
    /// In a stream: what is new.
    #[serde(borrow, default)]
    delta: LenientObject<ChoiceDelta<'a>>,
    /// In a whole completion: everything. Some servers also send it at the end of a stream.
    #[serde(borrow, default)]
    message: LenientObject<Box<ChoiceDelta<'a>>>,
    /// The reason, or `null` until the end. It may be missing altogether.
    #[serde(borrow, default)]
    finish_reason: LenientText<'a>,
    /// OpenRouter: the stop word of the underlying provider, which may report a limit that `finish_reason` hides.
    #[serde(borrow, default)]
    native_finish_reason: LenientText<'a>,
    /// The counts, which some servers put into the choice.
    #[serde(default)]
    usage: LenientObject<Box<TokenCounts>>,
}

/// The delta of a choice, or its whole message.
#[derive(Deserialize)]
struct ChoiceDelta<'a> {
    /// Text: a string, or at Mistral a list of parts.
    #[serde(borrow, default)]
    content: LenientContent<'a>,
    /// A thought, as DeepSeek, Z.ai and Kimi name it.
    #[serde(borrow, default)]
    reasoning_content: LenientContent<'a>,
    /// A thought, as OpenRouter and others name it.
    #[serde(borrow, default)]
    reasoning: LenientContent<'a>,
    /// OpenRouter: a list of thoughts with their signatures or encrypted data.
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    /// A refusal in place of the content.
    #[serde(borrow, default)]
    refusal: LenientText<'a>,
    /// Calls or pieces of calls.
    #[serde(borrow, default)]
    tool_calls: LenientList<ToolCall<'a>>,
    /// The only call of a response in OpenAI's older API, which some servers still send.
    #[serde(borrow, default)]
    function_call: LenientObject<FunctionCall<'a>>,
}

/// A call or a piece of one.
#[derive(Deserialize)]
struct ToolCall<'a> {
    /// The label of the call. Mistral leaves it out, and some gateways count from 1.
    #[serde(default)]
    index: LenientCount,
    /// The call's id, in its first piece; some servers repeat it in each.
    #[serde(borrow, default)]
    id: LenientText<'a>,
    /// The kind of the tool, usually `function`; often missing behind the first piece.
    #[serde(borrow, default, rename = "type")]
    kind: LenientText<'a>,
    /// The tool and a piece of the arguments.
    #[serde(borrow, default)]
    function: LenientObject<FunctionCall<'a>>,
    /// A custom tool and a piece of its input.
    #[serde(borrow, default)]
    custom: LenientObject<CustomCall<'a>>,
}

/// The custom tool of a call.
#[derive(Deserialize)]
struct CustomCall<'a> {
    /// The tool's name.
    #[serde(borrow, default)]
    name: LenientText<'a>,
    /// A piece of the input.
    #[serde(borrow, default)]
    input: LenientText<'a>,
}

impl ToolCall<'_> {
    /// Returns true for a tool that the provider runs itself, as xAI names its own in all its APIs: `web_search_call` or
    /// `TOOL_CALL_TYPE_WEB_SEARCH_TOOL`.
    fn is_run_by_server(&self) -> bool {
        let kind = self.kind.as_str();
        let name = kind
            .strip_prefix("TOOL_CALL_TYPE_")
            .and_then(|name| name.strip_suffix("_TOOL"))
            .or_else(|| kind.strip_suffix("_call"));
        name.is_some_and(|name| {
            SERVER_TOOLS
                .iter()
                .any(|tool| tool.eq_ignore_ascii_case(name))
        })
    }
}

/// The tools that xAI runs itself.
const SERVER_TOOLS: [&str; 10] = [
    "web_search",
    "x_search",
    "code_execution",
    "code_interpreter",
    "collections_search",
    "file_search",
    "document_search",
    "attachment_search",
    "mcp",
    "view_image",
];

/// The function of a call.
#[derive(Deserialize, Default)]
struct FunctionCall<'a> {
    /// The tool's name or a piece of it, perhaps in a later delta than the id.
    #[serde(borrow, default)]
    name: LenientText<'a>,
    /// A piece of JSON text; Mistral also sends an object, Groq the string `null` for no arguments.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// Groq's extension, which holds the usage of a stream.
#[derive(Deserialize)]
struct GroqExtension {
    /// The same counts as in `usage`.
    #[serde(default)]
    usage: LenientObject<Box<TokenCounts>>,
}

/// Token counts.
#[derive(Deserialize)]
struct TokenCounts {
    /// Input, with the cached part.
    #[serde(default)]
    prompt_tokens: LenientCount,
    /// Output, with reasoning except at xAI.
    #[serde(default)]
    completion_tokens: LenientCount,
    /// The sum, which shows if reasoning is part of the output count.
    #[serde(default)]
    total_tokens: LenientCount,
    /// The part of the input that was cached.
    #[serde(default)]
    prompt_tokens_details: LenientObject<InputDetails>,
    /// The part of the output that was reasoning.
    #[serde(default)]
    completion_tokens_details: LenientObject<OutputDetails>,
    /// DeepSeek's count of cached input.
    #[serde(default)]
    prompt_cache_hit_tokens: LenientCount,
}

/// The details of input counts.
#[derive(Deserialize)]
struct InputDetails {
    /// Input that was read from the cache.
    #[serde(default)]
    cached_tokens: LenientCount,
    /// Input that was written to the cache. Few servers report it.
    #[serde(default)]
    cache_write_tokens: LenientCount,
}

/// The details of output counts.
#[derive(Deserialize)]
struct OutputDetails {
    /// Output that was reasoning.
    #[serde(default)]
    reasoning_tokens: LenientCount,
}

impl WireDecoder for OpenAiChatDecoder {
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink) {
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() {
            return;
        }
        // Nothing after `[DONE]` can be trusted to belong to this response.
        if self.done {
            self.state.status.skipped += 1;
            self.state.status.events += 1;
            return;
        }
        if trimmed == "[DONE]" {
            return self.end_stream(out);
        }
        let chunk: ChatChunk<'_> = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            Err(error) => {
                return note_unreadable(
                    self,
                    &format!("an event of the stream cannot be read: {error}"),
                    out,
                );
            }
        };
        self.state.status.events += 1;
        if chunk.error.is_some() || name == "error" || chunk.object.as_str() == "error" {
            self.state
                .note_error_event(ProviderError::from_body(data.as_bytes()), out);
        } else if chunk.choices.0.is_empty() && chunk.usage.0.is_none() && chunk.id.0.is_none() {
            self.state.status.skipped += 1;
        }
        if self.state.choices > 1 {
            self.split_choices(data, out);
        } else if self.state.keeps_details {
            self.emit_details(&serde_json::from_str(data).unwrap_or_default(), out);
        }
        let choices = chunk.choices.0.iter();
        let is_split = self.state.choices > 1;
        for choice in choices.filter(|_| !is_split) {
            // The first choice that appears is read, whatever its index: some servers count from 1.
            let label = choice.index.0.unwrap_or_default();
            if *self.choice.get_or_insert(label) == label {
                self.decode_choice(choice, out);
            } else {
                self.state.status.skipped += 1;
            }
        }
        let usage = chunk
            .usage
            .0
            .or_else(|| chunk.x_groq.0.and_then(|groq| groq.usage.0));
        emit_owned_usage(usage, out);
    }

    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }
}

impl OpenAiChatDecoder {
    /// Emits what events have no place for, before the events of the chunk.
    fn emit_details(&mut self, chunk: &Value, out: &mut dyn EventSink) {
        let mut details = AnswerDetails::from_chunk(chunk, self.choice);
        details.add_call_ids(|index| {
            let calls = &self.state.calls.list;
            let known = calls.iter().rfind(|call| call.label == Some(index))?;
            (!known.id.is_empty()).then_some(known.id.as_str())
        });
        let is_news = details.chunk != self.details.chunk
            || details.thought_member != self.details.thought_member
            || [&details.choice, &details.message, &details.usage]
                .iter()
                .any(|members| !members.is_empty());
        if is_news {
            out.push_event(Event::Opaque(&OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: details.to_state(),
            }));
            self.details = details;
        }
    }

    /// Emits each choice of a chunk as a chunk of its own.
    fn split_choices(&mut self, data: &str, out: &mut dyn EventSink) {
        let Ok(Value::Object(mut chunk)) = serde_json::from_str(data) else {
            return;
        };
        let choices = chunk.shift_remove("choices");
        let mut shared = Value::Object(chunk);
        if self.state.keeps_details {
            self.emit_details(&shared, out);
        }
        // They belong to all choices.
        for key in ["usage", "x_groq", "error"] {
            if let Some(members) = shared.as_object_mut() {
                members.shift_remove(key);
            }
        }
        if shared.to_string().len() > MAX_SHARED_MEMBERS {
            shared = Value::Object(Map::new());
        }
        // A whole completion has all its choices at once.
        let is_whole = shared.get("object").and_then(Value::as_str) == Some("chat.completion");
        self.state.status.ended |= is_whole;
        let Some(Value::Array(choices)) = choices else {
            return;
        };
        let counts = &mut self.choice_counts;
        let chunk = SplitChunk {
            wire: Wire::OpenAiChat,
            choices,
            usual_label: None,
            shared,
        };
        self.split.split_chunk(
            &mut self.state,
            chunk,
            &mut |place, choice, out| {
                // Its own counts, which some servers put into the choice, are part of the answer's.
                let own = choice
                    .as_object_mut()
                    .and_then(|choice| choice.shift_remove("usage"));
                let own = own.and_then(|own| TokenCounts::deserialize(own).ok()?.usage());
                if let Some(own) = own {
                    counts.insert(place, own);
                    emit_choice_usage(counts, out);
                }
                let reason = choice.get("finish_reason").and_then(Value::as_str);
                reason.is_some_and(|reason| !reason.is_empty() && reason != "null")
                    || choice.get("message").is_some_and(Value::is_object)
            },
            out,
        );
    }

    /// Ends the stream at `[DONE]`.
    fn end_stream(&mut self, out: &mut dyn EventSink) {
        self.done = true;
        self.state.status.ended = true;
        self.state.status.events += 1;
        self.state.calls.mark_ends_seen(out);
        self.state
            .calls
            .apply_stop_reason(self.state.reason.unwrap_or(StopReason::End), out);
    }

    /// Decodes a choice.
    fn decode_choice(&mut self, choice: &ChunkChoice<'_>, out: &mut dyn EventSink) {
        let whole = choice.message.0.is_some();
        if let Some(delta) = choice.delta.0.as_ref().or(choice.message.0.as_deref()) {
            // A delta with both holds the thought that led to the text, so the thought comes first.
            self.decode_reasoning(delta, out);
            delta
                .content
                .for_each_text(false, &mut |thought, words| emit_text(thought, words, out));
            // A client of the same wire gets it unchanged, among the details.
            if !delta.refusal.as_str().is_empty() && !self.state.keeps_details {
                self.refused = true;
                emit_text(false, delta.refusal.as_str(), out);
            }
            for (position, call) in (0..).zip(&delta.tool_calls.0) {
                // A whole message has no indexes: the position is the label.
                let label = if whole { Some(position) } else { call.index.0 };
                if self.is_server_call(label, call) {
                    self.state.status.skipped += 1;
                    continue;
                }
                match (&call.function.0, &call.custom.0) {
                    (Some(function), _) => self.decode_call(label, call.id.as_str(), function, out),
                    (None, Some(custom)) => {
                        self.decode_custom_call(label, call.id.as_str(), custom, out)
                    }
                    (None, None) => {
                        self.decode_call(label, call.id.as_str(), &FunctionCall::default(), out)
                    }
                }
            }
            if let Some(function) = &delta.function_call.0 {
                // The old form allows only one call per response.
                self.decode_call(Some(0), "", function, out);
            }
        }
        emit_usage(&choice.usage, out);
        let word = choice.finish_reason.as_str();
        if !word.is_empty() && word != "null" {
            self.decode_stop(word, choice.native_finish_reason.as_str(), out);
        }
    }

    /// Returns true for a call that the provider runs itself, or a later piece of one.
    fn is_server_call(&mut self, label: Option<u64>, call: &ToolCall<'_>) -> bool {
        let is_known = self.server_calls.contains(&label);
        if call.is_run_by_server() {
            if !is_known {
                self.server_calls.push(label);
            }
            return true;
        }
        let function = call.function.0.as_ref();
        let is_named = function.is_some_and(|function| !function.name.as_str().is_empty());
        is_known && call.kind.as_str().is_empty() && !is_named
    }

    /// Decodes the reasoning of a delta.
    fn decode_reasoning(&mut self, delta: &ChoiceDelta<'_>, out: &mut dyn EventSink) {
        let mut has_text = false;
        for content in [&delta.reasoning_content, &delta.reasoning] {
            // Some servers send both fields with the same text.
            if !has_text {
                content.for_each_text(true, &mut |_, words| {
                    has_text |= !words.is_empty();
                    emit_text(true, words, out);
                });
            }
        }
        let Some(details) = delta.reasoning_details else {
            return;
        };
        let details: Vec<Value> = serde_json::from_str(details.get()).unwrap_or_default();
        for mut detail in details {
            let Some(object) = detail.as_object_mut() else {
                continue;
            };
            for key in ["text", "summary"] {
                if let Some(Value::String(words)) = object.remove(key)
                    && !has_text
                {
                    emit_text(true, &words, out);
                }
            }
            let full = |key: &str| {
                object
                    .get(key)
                    .and_then(Value::as_str)
                    .is_some_and(|text| !text.is_empty())
            };
            let is_wanted = (full("data") || full("signature")) && !is_detail_data(&detail);
            if is_wanted {
                out.push_event(Event::Opaque(&OpaqueState {
                    wire: NAME.to_owned(),
                    origin: None,
                    data: detail,
                }));
            }
        }
    }

    /// Decodes a call or a piece of one.
    fn decode_call(
        &mut self,
        label: Option<u64>,
        id: &str,
        function: &FunctionCall<'_>,
        out: &mut dyn EventSink,
    ) {
        let name = function.name.as_str();
        let arguments = function
            .arguments
            .map(|raw| argument_text(raw.get()))
            .unwrap_or_default();
        if id.is_empty() && name.is_empty() && arguments.is_empty() {
            return;
        }
        let known = self.find_call(label, id, name, &arguments);
        let Some(position) = known.or_else(|| self.begin_call(label, id, out)) else {
            return;
        };
        let (Some(call), Some(hash)) = (
            self.state.calls.list.get_mut(position),
            self.hashes.get_mut(position),
        ) else {
            return;
        };
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.is_whole() || !call.is_open() {
            self.state.status.skipped += 1;
            // Equal arguments repeat the call. Different ones contradict it, and it is unknown
            // which were meant.
            let mut again = DefaultHasher::new();
            again.write(arguments.as_bytes());
            if !arguments.trim_ascii().is_empty() && again.finish() != hash.finish() {
                call.mark_contradicted(out);
            }
            return;
        }
        call.push_name(name, &mut self.state.calls.next_index, out);
        if !arguments.is_empty() {
            call.start_if_named(&mut self.state.calls.next_index, out);
        }
        hash.write(arguments.as_bytes());
        call.push_arguments(&arguments, out);
    }

    /// Decodes a call of a custom tool, or a piece of one.
    fn decode_custom_call(
        &mut self,
        label: Option<u64>,
        id: &str,
        custom: &CustomCall<'_>,
        out: &mut dyn EventSink,
    ) {
        let name = custom.name.as_str();
        let input = custom.input.as_str();
        let known = self.find_call(label, id, name, input);
        // Some servers send everything once more, with the id; others the name in each delta.
        let repeats = known.is_some_and(|position| {
            let call = self.state.calls.list.get(position);
            let is_whole = !id.is_empty() && !name.is_empty() && !input.is_empty();
            call.is_some_and(|call| !call.is_open()) || is_whole && self.is_repeat(position, input)
        });
        if repeats {
            self.state.status.skipped += 1;
            return;
        }
        let Some(position) = known.or_else(|| self.begin_call(label, id, out)) else {
            return;
        };
        let inputs = &mut self.text_inputs;
        // The first delta of the call may not have named the tool.
        let is_new = self
            .state
            .calls
            .list
            .get(position)
            .is_some_and(|call| !call.has_arguments());
        if is_new && inputs.iter().all(|text| text.position != position) {
            inputs.push(TextInput {
                position,
                has_begun: false,
            });
        }
        let text = inputs.iter_mut().find(|text| text.position == position);
        let (Some(call), Some(hash), Some(text)) = (
            self.state.calls.list.get_mut(position),
            self.hashes.get_mut(position),
            text,
        ) else {
            return;
        };
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        call.push_name(name, &mut self.state.calls.next_index, out);
        if input.is_empty() {
            return;
        }
        call.start_if_named(&mut self.state.calls.next_index, out);
        let mut json = String::new();
        if !text.has_begun {
            json.push_str(TEXT_OPENING);
        }
        text.has_begun = true;
        hash.write(input.as_bytes());
        escape_json(input, &mut json);
        call.push_arguments(&json, out);
    }

    /// Ends the inputs of custom tools, which are complete.
    fn end_text_inputs(&mut self, out: &mut dyn EventSink) {
        self.open_text_inputs(out);
        for text in std::mem::take(&mut self.text_inputs) {
            if let Some(call) = self.state.calls.list.get_mut(text.position) {
                call.push_arguments("\"}", out);
            }
        }
    }

    /// Opens the inputs of custom tools that have not begun: a call without any would be complete.
    fn open_text_inputs(&mut self, out: &mut dyn EventSink) {
        for text in self.text_inputs.iter_mut().filter(|text| !text.has_begun) {
            text.has_begun = true;
            if let Some(call) = self.state.calls.list.get_mut(text.position) {
                call.push_arguments(TEXT_OPENING, out);
            }
        }
    }

    /// Starts a call. The calls before it that are complete end here.
    fn begin_call(
        &mut self,
        label: Option<u64>,
        id: &str,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        // Calls are numbered in the order in which they came.
        for call in &mut self.state.calls.list {
            call.start_if_named(&mut self.state.calls.next_index, out);
        }
        // Incomplete calls stay open, because servers may interleave the deltas of several calls.
        for call in self
            .state
            .calls
            .list
            .iter_mut()
            .filter(|call| call.is_whole())
        {
            call.mark_end_seen(&mut self.state.calls.next_index, out);
        }
        let position = self.state.begin_call(NativeCall::new(label, id), out)?;
        self.hashes.push(DefaultHasher::new());
        Some(position)
    }

    /// Returns the position of the call that a delta belongs to; `None` if it begins a new one.
    fn find_call(
        &self,
        label: Option<u64>,
        id: &str,
        name: &str,
        arguments: &str,
    ) -> Option<usize> {
        let list = &self.state.calls.list;
        let fits =
            |call: &NativeCall| label.is_none() || call.label.is_none() || call.label == label;
        if !id.is_empty() {
            // One id with two tool names means two calls; one id with the same name again means a
            // repetition.
            let other =
                |call: &NativeCall| call.is_whole() && !name.is_empty() && name != call.name;
            let known = list
                .iter()
                .rposition(|call| call.id == id && fits(call) && !other(call));
            let unnamed = || {
                let position = list.iter().rposition(|call| call.label == label)?;
                let call = list.get(position)?;
                (call.id.is_empty() && call.is_open() && !call.is_whole()).then_some(position)
            };
            return known.or_else(unnamed);
        }
        let position = match label {
            Some(_) => list.iter().rposition(|call| call.label == label)?,
            None => list.len().checked_sub(1)?,
        };
        let call = list.get(position)?;
        if name.is_empty() {
            return Some(position);
        }
        let other = name != call.name && !call.name.is_empty();
        let begins = if call.is_whole() || !call.is_open() {
            other
                || label.is_none()
                || !(arguments.is_empty() || self.is_repeat(position, arguments))
        } else {
            other && call.has_arguments()
        };
        (!begins).then_some(position)
    }

    /// Returns true if the text repeats the whole argument text of the call.
    fn is_repeat(&self, position: usize, arguments: &str) -> bool {
        let mut hash = DefaultHasher::new();
        hash.write(arguments.as_bytes());
        self.hashes
            .get(position)
            .is_some_and(|known| known.finish() == hash.finish())
    }

    /// Applies a finish reason, and emits it if it is new.
    fn decode_stop(&mut self, word: &str, native: &str, out: &mut dyn EventSink) {
        let mut reason = super::stop_reason(word);
        // OpenRouter sends `tool_calls` even if the model stopped at its limit; the native reason
        // shows it.
        if super::stop_reason(native) == StopReason::Length {
            reason = StopReason::Length;
        }
        // OpenAI ends a refusal with the reason `stop`.
        if self.refused {
            reason = StopReason::Refused;
        }
        self.state.status.ended = true;
        // A text that the limit or a filter cut looks like any other.
        if matches!(reason, StopReason::End | StopReason::Calls) {
            self.end_text_inputs(out);
        } else {
            self.open_text_inputs(out);
        }
        self.state.calls.mark_ends_seen(out);
        self.state.calls.apply_stop_reason(reason, out);
        // Some servers send everything once more as a whole message, with the same reason.
        if self.state.reason != Some(reason) || self.word != word {
            self.state.reason = Some(reason);
            word.clone_into(&mut self.word);
            out.push_event(Event::Stop { reason, raw: word });
        }
    }
}

/// Returns the text of arguments given as a string, as a JSON value in place of it, or as `null`.
pub(crate) fn argument_text(raw: &str) -> Cow<'_, str> {
    let text = serde_json::from_str::<LenientText<'_>>(raw).unwrap_or_default();
    match text.0 {
        Some(text) if raw.starts_with('"') => text,
        _ if raw == "null" => Cow::Borrowed(""),
        _ => Cow::Borrowed(raw),
    }
}

impl TokenCounts {
    /// Returns the counts; `None` if there are none.
    fn usage(&self) -> Option<Usage> {
        let details = self.completion_tokens_details.0.as_ref();
        let reasoning = details.and_then(|details| details.reasoning_tokens.0);
        let input = self.prompt_tokens.0;
        let mut output = self.completion_tokens.0;
        // xAI does not include reasoning in the output count; the total shows it.
        if let (Some(reasoning), Some(written), Some(read)) = (reasoning, output, input)
            && reasoning > 0
            && self.total_tokens.0
                == read
                    .checked_add(written)
                    .and_then(|sum| sum.checked_add(reasoning))
        {
            output = Some(written.saturating_add(reasoning));
        }
        let details = self.prompt_tokens_details.0.as_ref();
        let cache_read = details
            .and_then(|details| details.cached_tokens.0)
            .or(self.prompt_cache_hit_tokens.0);
        let usage = Usage {
            input,
            output,
            cache_read,
            cache_write: details.and_then(|details| details.cache_write_tokens.0),
            reasoning,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

/// Emits token counts.
fn emit_usage(found: &LenientObject<Box<TokenCounts>>, out: &mut dyn EventSink) {
    if let Some(usage) = found.0.as_ref().and_then(|counts| counts.usage()) {
        out.push_event(Event::Usage(usage));
    }
}

/// Emits the counts of all choices together, whose input is the same.
fn emit_choice_usage(counts: &BTreeMap<usize, Usage>, out: &mut dyn EventSink) {
    let all = || counts.values().copied();
    let sum = |count: fn(Usage) -> Option<u64>| all().filter_map(count).reduce(u64::saturating_add);
    let most = |count: fn(Usage) -> Option<u64>| all().filter_map(count).max();
    out.push_event(Event::Usage(Usage {
        input: most(|usage| usage.input),
        output: sum(|usage| usage.output),
        cache_read: most(|usage| usage.cache_read),
        cache_write: most(|usage| usage.cache_write),
        reasoning: sum(|usage| usage.reasoning),
    }));
}

/// Emits token counts that were moved out of a chunk.
fn emit_owned_usage(found: Option<Box<TokenCounts>>, out: &mut dyn EventSink) {
    emit_usage(&LenientObject(found), out);
}
