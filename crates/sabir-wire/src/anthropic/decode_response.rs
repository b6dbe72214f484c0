//! Decodes Anthropic Messages responses into events.
//!
//! # Supported
//! All event kinds of the stream, and whole messages. Only blocks of type `tool_use` are client
//! calls. Thinking becomes `Thought`, followed by its signature as `Opaque`. Every block of another
//! type (redacted thinking, server tools and their results, compaction) is kept whole as `Opaque`,
//! at its position.
//!
//! # Unsupported
//! Citations of text blocks are skipped and counted; a client of the same wire gets them as details.

use sabir_call::{Event, EventSink, Fault, FaultKind, OpaqueState, Span, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use super::answer_details::AnswerDetail;
use crate::lenient::{LenientCount, LenientObject, LenientText};
use crate::native_call::NativeCall;
use crate::open_blocks::{OpenBlock, OpenBlocks};
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    OpaqueBudget, ResponseState, WireDecoder, emit_text, is_detail_data, note_unreadable,
};

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct AnthropicDecoder {
    /// The calls, the stop reason and the status of the response so far.
    state: ResponseState,
    /// The blocks between `content_block_start` and `content_block_stop`.
    open_blocks: OpenBlocks<BlockKind>,
    /// The size limit of signatures and opaque blocks.
    opaque_budget: OpaqueBudget,
    /// The counts of `message_start`, completed by each `message_delta`.
    tokens: TokenCounts,
}

/// The state of an open block.
#[derive(Debug)]
enum BlockKind {
    /// Text, which is emitted as it arrives.
    Text,
    Thinking {
        signature: String,
    },
    /// A call: its position in `calls.list`, and true if the arguments came whole with the start.
    Call {
        position: usize,
        whole: bool,
    },
    /// A block that is kept as opaque state, its streamed `input`, and its streamed `content`.
    Kept {
        block: Value,
        input: String,
        content: String,
    },
    /// A block that was dropped with a fault.
    Dropped,
}

/// Token counts as the provider splits them: cached input is not part of `input_tokens`.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct TokenCounts {
    /// Input that was neither read from the cache nor written to it.
    #[serde(default)]
    input_tokens: LenientCount,
    /// Input that was read from the cache.
    #[serde(default)]
    cache_read_input_tokens: LenientCount,
    /// Input that was written to the cache.
    #[serde(default)]
    cache_creation_input_tokens: LenientCount,
    /// Output so far, thinking included. Each `message_delta` repeats the running total.
    #[serde(default)]
    output_tokens: LenientCount,
}

/// An event of the stream, or a whole message.
#[derive(Deserialize)]
struct EventBody<'a> {
    /// The `type`, which in a stream repeats the event's name.
    #[serde(rename = "type", borrow, default)]
    kind: LenientText<'a>,
    /// The label of the block that the event belongs to.
    #[serde(default)]
    index: LenientCount,
    /// In `message_start`: the message so far, which is empty except for its usage.
    #[serde(borrow, default)]
    message: LenientObject<MessageStart<'a>>,
    /// In `content_block_start`: the block. It is kept as text, since blocks of an unknown type
    /// must go back unchanged.
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    /// In `content_block_delta` and `message_delta`.
    #[serde(borrow, default)]
    delta: LenientObject<BlockDelta<'a>>,
    /// In `message_delta` and in a whole message.
    #[serde(default)]
    usage: LenientObject<TokenCounts>,
    /// In an `error` event: `{"type": …, "message": …}`.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// In a whole message: the list of its blocks.
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    /// In a whole message. A stream has it in the delta of `message_delta`.
    #[serde(borrow, default)]
    stop_reason: LenientText<'a>,
}

/// The message in a `message_start` event.
#[derive(Deserialize)]
struct MessageStart<'a> {
    /// The input counts, and an output count that a later event replaces.
    #[serde(default)]
    usage: LenientObject<TokenCounts>,
    /// Usually `null` here, because the message has only begun.
    #[serde(borrow, default)]
    stop_reason: LenientText<'a>,
}

/// The delta of a block or of the message.
#[derive(Deserialize, Default)]
struct BlockDelta<'a> {
    /// In a `text_delta`.
    #[serde(borrow, default)]
    text: LenientText<'a>,
    /// In a `thinking_delta`.
    #[serde(borrow, default)]
    thinking: LenientText<'a>,
    /// In a `signature_delta`: it signs the whole thinking block and must go back unchanged.
    #[serde(borrow, default)]
    signature: LenientText<'a>,
    /// In an `input_json_delta`: a fragment of the JSON text of the input, cut anywhere.
    #[serde(borrow, default)]
    partial_json: LenientText<'a>,
    /// In a delta of a kept block, such as `compaction`: a piece of its `content`.
    #[serde(borrow, default)]
    content: LenientText<'a>,
    /// In `message_delta`.
    #[serde(borrow, default)]
    stop_reason: LenientText<'a>,
}

/// The block in a `content_block_start` event, or in a whole message.
#[derive(Deserialize)]
struct BlockStart<'a> {
    /// The `type`; only `tool_use` is a call for the client.
    #[serde(rename = "type", borrow, default)]
    kind: LenientText<'a>,
    /// The call's id, which its result must name.
    #[serde(borrow, default)]
    id: LenientText<'a>,
    /// The tool's name.
    #[serde(borrow, default)]
    name: LenientText<'a>,
    /// The arguments: `{}` in a stream, where deltas follow, or the whole object.
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    /// In a `text` block; empty in a stream.
    #[serde(borrow, default)]
    text: LenientText<'a>,
    /// In a `thinking` block; empty in a stream.
    #[serde(borrow, default)]
    thinking: LenientText<'a>,
    /// In a `thinking` block; empty in a stream.
    #[serde(borrow, default)]
    signature: LenientText<'a>,
}

impl OpenBlock for BlockKind {
    fn call_position(&self) -> Option<usize> {
        match self {
            Self::Call { position, .. } => Some(*position),
            _ => None,
        }
    }
}

impl WireDecoder for AnthropicDecoder {
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink) {
        // Some gateways append OpenAI's end marker to every stream.
        if data.trim_ascii().is_empty() || data.trim_ascii() == "[DONE]" {
            return;
        }
        let message: EventBody<'_> = match serde_json::from_str(data) {
            Ok(message) => message,
            Err(error) => {
                return note_unreadable(
                    self,
                    &format!("an event of the stream cannot be read: {error}"),
                    out,
                );
            }
        };
        self.state.status.events += 1;
        if self.state.keeps_details {
            for state in AnswerDetail::from_event(data) {
                out.push_event(Event::Opaque(&state));
            }
        }
        // Gateways may drop either the event name or the member `type`.
        let kind = if message.kind.as_str().is_empty() {
            name
        } else {
            message.kind.as_str()
        };
        match kind {
            // Some servers send an error without the event name, so the member counts as well.
            _ if kind == "error" || message.error.is_some() => {
                self.state
                    .note_error_event(ProviderError::from_body(data.as_bytes()), out);
            }
            // Some gateways send several of them. Counts are merged, so a repetition does no harm.
            "message_start" => {
                if let Some(inner) = message.message.0 {
                    self.emit_usage(inner.usage.0, out);
                    self.decode_stop(inner.stop_reason.as_str(), out);
                }
            }
            "content_block_start" => match message.content_block {
                Some(raw) => self.decode_block_start(message.index.0, raw.get(), out),
                None => self.state.status.skipped += 1,
            },
            "content_block_delta" => {
                self.decode_block_delta(message.index.0, &message.delta.0.unwrap_or_default(), out)
            }
            "content_block_stop" => self.decode_block_stop(message.index.0, out),
            "message_delta" => {
                self.emit_usage(message.usage.0, out);
                self.decode_stop(
                    message.delta.0.unwrap_or_default().stop_reason.as_str(),
                    out,
                );
            }
            "message_stop" => self.decode_message_stop(out),
            "message" => self.decode_whole_message(&message, out),
            // Pings only keep the connection open, so they are known and not counted as skipped.
            "ping" => {}
            _ => self.state.status.skipped += 1,
        }
    }

    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }
}

impl AnthropicDecoder {
    /// Decodes a message that was not streamed.
    fn decode_whole_message(&mut self, message: &EventBody<'_>, out: &mut dyn EventSink) {
        let blocks = message
            .content
            .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        let blocks = blocks.unwrap_or_default();
        let limit = super::stop_reason(message.stop_reason.as_str()) == StopReason::Length;
        let last = blocks.len() as u64;
        for (label, block) in (1..).zip(blocks) {
            self.decode_block_start(Some(label), block.get(), out);
            // At its output limit, the provider completes the JSON of a call that the limit cut, so
            // the end of the last block does not prove that the call is complete.
            if !limit || label != last {
                self.decode_block_stop(Some(label), out);
            }
        }
        self.emit_usage(message.usage.0, out);
        self.decode_stop(message.stop_reason.as_str(), out);
        self.decode_message_stop(out);
    }

    /// Opens a block.
    fn decode_block_start(&mut self, label: Option<u64>, raw: &str, out: &mut dyn EventSink) {
        let Some(start) = serde_json::from_str::<LenientObject<BlockStart<'_>>>(raw)
            .ok()
            .and_then(|start| start.0)
        else {
            self.state.status.skipped += 1;
            return;
        };
        let id = if start.kind.as_str() == "tool_use" {
            start.id.as_str()
        } else {
            ""
        };
        if !self
            .open_blocks
            .may_start(label, id, &mut self.state.calls, out)
        {
            return;
        }
        // A new block shows that the blocks before it are complete.
        self.state.calls.confirm_empty_calls(out);
        let kind = match start.kind.as_str() {
            "text" => {
                emit_text(false, start.text.as_str(), out);
                BlockKind::Text
            }
            "thinking" => {
                emit_text(true, start.thinking.as_str(), out);
                let signature = self
                    .limit_opaque_text(start.signature.as_str(), out)
                    .to_owned();
                BlockKind::Thinking { signature }
            }
            // Calls of server tools have types of their own (`server_tool_use`, `mcp_tool_use`).
            "tool_use" => self.begin_call(label, &start, out),
            // Provider state is limited for the whole response, not per block.
            _ if self.limit_opaque_text(raw, out).is_empty() => BlockKind::Dropped,
            _ => BlockKind::Kept {
                block: serde_json::from_str(raw).unwrap_or_default(),
                input: String::new(),
                content: String::new(),
            },
        };
        self.open_blocks
            .push_block(label, kind, &mut self.state.calls, out);
    }

    /// Starts a client call.
    fn begin_call(
        &mut self,
        label: Option<u64>,
        start: &BlockStart<'_>,
        out: &mut dyn EventSink,
    ) -> BlockKind {
        let call = NativeCall::new(label, start.id.as_str());
        let Some(position) = self.state.begin_call(call, out) else {
            return BlockKind::Dropped;
        };
        // In a stream, `{}` in a start only announces deltas. In a whole body there are no deltas,
        // and it means no arguments.
        let input = start
            .input
            .map(RawValue::get)
            .filter(|input| !is_empty_object(input));
        if let Some(call) = self.state.calls.list.get_mut(position) {
            call.set_name(start.name.as_str(), &mut self.state.calls.next_index, out);
            call.push_arguments(input.unwrap_or_default(), out);
        }
        BlockKind::Call {
            position,
            whole: input.is_some(),
        }
    }

    /// Adds a delta to its block.
    fn decode_block_delta(
        &mut self,
        label: Option<u64>,
        delta: &BlockDelta<'_>,
        out: &mut dyn EventSink,
    ) {
        let Some(position) = self.open_blocks.find_position(label) else {
            return self.state.note_stray_delta(out);
        };
        emit_text(true, delta.thinking.as_str(), out);
        let mut known = delta.thinking.0.is_some() || delta.text.0.is_some();
        let signed = self.limit_opaque_text(delta.signature.as_str(), out);
        let Some(block) = self.open_blocks.get_mut(position) else {
            return;
        };
        match block {
            BlockKind::Thinking { signature } => {
                signature.push_str(signed);
                emit_text(true, delta.text.as_str(), out);
                known |= delta.signature.0.is_some();
            }
            BlockKind::Call {
                position,
                whole: false,
            } => {
                if let Some(call) = self.state.calls.list.get_mut(*position) {
                    call.push_arguments(delta.partial_json.as_str(), out);
                    known |= delta.partial_json.0.is_some();
                }
            }
            BlockKind::Kept { input, content, .. } => {
                let more = delta.partial_json.as_str();
                let words = delta.content.as_str();
                // A kept block that lacks a piece is worthless, so it is dropped completely.
                if self
                    .opaque_budget
                    .try_reserve(more.len() + words.len(), out)
                {
                    input.push_str(more);
                    content.push_str(words);
                    known |= delta.partial_json.0.is_some() || delta.content.0.is_some();
                } else {
                    *block = BlockKind::Dropped;
                }
            }
            // A `citations_delta` comes here without a text, and is counted as skipped below.
            BlockKind::Text => emit_text(false, delta.text.as_str(), out),
            BlockKind::Call { .. } | BlockKind::Dropped => {}
        }
        self.state.status.skipped += u64::from(!known);
    }

    /// Ends a block.
    fn decode_block_stop(&mut self, label: Option<u64>, out: &mut dyn EventSink) {
        let Some(block) = self.open_blocks.end_block(label) else {
            self.state.status.skipped += 1;
            return;
        };
        match block {
            BlockKind::Thinking { signature } if !signature.is_empty() => {
                emit_opaque(json!({"type": "thinking", "signature": signature}), out);
            }
            BlockKind::Call { position, .. } => {
                self.state.calls.end_call(position, self.state.reason, out)
            }
            BlockKind::Kept {
                mut block,
                input,
                content,
            } => {
                if let Some(object) = block.as_object_mut() {
                    if let Ok(input) = serde_json::from_str::<Value>(&input) {
                        object.insert("input".to_owned(), input);
                    }
                    if !content.is_empty() {
                        object.insert("content".to_owned(), Value::String(content));
                    }
                }
                if !is_detail_data(&block) {
                    emit_opaque(block, out);
                }
            }
            BlockKind::Thinking { .. } | BlockKind::Text | BlockKind::Dropped => {}
        }
    }

    /// Emits the token counts known so far. Later events repeat or complete earlier ones, so fields
    /// are merged.
    fn emit_usage(&mut self, tokens: Option<TokenCounts>, out: &mut dyn EventSink) {
        let Some(tokens) = tokens else { return };
        // A later event may repeat only some of the counts.
        let take = |field: &mut LenientCount, value: LenientCount| field.0 = value.0.or(field.0);
        let known = &mut self.tokens;
        take(&mut known.input_tokens, tokens.input_tokens);
        take(
            &mut known.cache_read_input_tokens,
            tokens.cache_read_input_tokens,
        );
        take(
            &mut known.cache_creation_input_tokens,
            tokens.cache_creation_input_tokens,
        );
        take(&mut known.output_tokens, tokens.output_tokens);
        let read = known.cache_read_input_tokens.0;
        let written = known.cache_creation_input_tokens.0;
        // The common form counts cached tokens as part of the input.
        let input = known.input_tokens.0.map(|plain| {
            plain
                .saturating_add(read.unwrap_or_default())
                .saturating_add(written.unwrap_or_default())
        });
        let usage = Usage {
            input,
            output: known.output_tokens.0,
            cache_read: read,
            cache_write: written,
            reasoning: None,
        };
        if usage != Usage::default() {
            out.push_event(Event::Usage(usage));
        }
    }

    /// Decodes a stop reason. It may come before or after the end of a call.
    fn decode_stop(&mut self, word: &str, out: &mut dyn EventSink) {
        if word.is_empty() {
            return;
        }
        let reason = super::stop_reason(word);
        self.state.reason = Some(reason);
        self.state.calls.apply_stop_reason(reason, out);
        out.push_event(Event::Stop { reason, raw: word });
    }

    /// Ends the message.
    fn decode_message_stop(&mut self, out: &mut dyn EventSink) {
        self.state.status.ended = true;
        // Without a stop reason, the end of the message shows that the limit was not the cause.
        self.state
            .calls
            .apply_stop_reason(self.state.reason.unwrap_or(StopReason::End), out);
        // An incomplete signature or block is invalid, so without its end it is dropped, with a
        // fault.
        let is_state = |block: &BlockKind| {
            matches!(block, BlockKind::Thinking { .. } | BlockKind::Kept { .. })
        };
        if self.state.calls.list.iter().any(NativeCall::is_open)
            || self.open_blocks.iter().any(is_state)
        {
            let message = "the message ended while a content block was open";
            out.push_event(Event::Fault(&Fault::warning(
                FaultKind::Provider,
                Span::default(),
                message,
            )));
            self.state.truncate_unfinished(out);
        }
        self.open_blocks.clear();
    }

    /// Counts text toward the limit of opaque state and returns it, or an empty text above the
    /// limit.
    fn limit_opaque_text<'t>(&mut self, text: &'t str, out: &mut dyn EventSink) -> &'t str {
        if self.opaque_budget.try_reserve(text.len(), out) {
            text
        } else {
            ""
        }
    }
}

/// Emits opaque state of this wire.
fn emit_opaque(data: Value, out: &mut dyn EventSink) {
    out.push_event(Event::Opaque(&OpaqueState {
        wire: NAME.to_owned(),
        origin: None,
        data,
    }));
}

/// Returns true for an object without members, and for `null`.
fn is_empty_object(raw: &str) -> bool {
    let inside = raw
        .trim_ascii()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    raw == "null" || inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}
