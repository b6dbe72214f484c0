//! Decodes Bedrock responses into events.
//!
//! # Supported
//! All events of ConverseStream, and whole responses of Converse. Client calls are `toolUse` blocks
//! except those of type `server_tool_use`. These, the results that the server adds, and every whole
//! block of an unknown kind are kept as `Opaque`, at their position. Reasoning becomes `Thought`,
//! followed by its signature as `Opaque`; redacted reasoning is an `Opaque`. Text and reasoning
//! need no start event. Frames of InvokeModelWithResponseStream, which carry Anthropic events in
//! base64, go to that wire's decoder.
//!
//! # Unsupported
//! Citations, and images in deltas: skipped and counted. Responses of models other than Anthropic's
//! through InvokeModelWithResponseStream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sabir_call::{Event, EventSink, Fault, FaultKind, OpaqueState, Span, StopReason, Usage};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use super::event_types::{
    BlockDelta, BlockStart, EventBody, ReasoningContent, TokenCounts, ToolUse, argument_text,
};
use crate::anthropic;
use crate::lenient::LenientObject;
use crate::native_call::NativeCall;
use crate::open_blocks::{OpenBlock, OpenBlocks};
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    OpaqueBudget, ResponseState, WireDecoder, emit_text, note_unreadable,
};

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct BedrockDecoder {
    /// The calls, the stop reason and the status, unless `inner` has taken over.
    state: ResponseState,
    /// The blocks that were begun and not ended.
    open_blocks: OpenBlocks<BlockKind>,
    /// The size limit of signatures and opaque blocks.
    opaque_budget: OpaqueBudget,
    /// True once an event of Converse was read: then no other decoder takes over.
    begun: bool,
    /// The decoder of events in base64, once the first one has arrived.
    inner: Option<Box<anthropic::decode_response::AnthropicDecoder>>,
    /// The last event that was decoded from base64.
    decoded: Vec<u8>,
}

/// The state of an open block.
#[derive(Debug)]
enum BlockKind {
    /// Text or reasoning, which only the deltas show.
    Prose {
        /// The signature of the reasoning so far; it must go back unchanged.
        signature: String,
        /// The bytes of encrypted reasoning so far, decoded from base64.
        redacted: Vec<u8>,
    },
    /// A call: its position in `calls.list`, and true if the arguments came whole with the start.
    Call { position: usize, whole: bool },
    /// A block that is kept as opaque state, its streamed `input`, and its streamed `content`.
    Kept {
        /// The block, as its start gave it.
        block: Value,
        /// Pieces of the JSON text of a server call's input.
        input: String,
        /// Pieces of a server result's content.
        content: Vec<Value>,
    },
    /// A block that was dropped.
    Dropped,
}

impl OpenBlock for BlockKind {
    fn call_position(&self) -> Option<usize> {
        match self {
            Self::Call { position, .. } => Some(*position),
            _ => None,
        }
    }
}

impl WireDecoder for BedrockDecoder {
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink) {
        if data.trim_ascii().is_empty() {
            return;
        }
        let body: EventBody<'_> = match serde_json::from_str(data) {
            Ok(body) => body,
            Err(error) => {
                return note_unreadable(
                    self,
                    &format!("an event of the stream cannot be read: {error}"),
                    out,
                );
            }
        };
        // InvokeModelWithResponseStream wraps events of the model's maker in `chunk` events.
        if self.inner.is_some() || (name == "chunk" && !self.begun) {
            return self.decode_anthropic_chunk(body.bytes.as_str(), out);
        }
        self.state.status.events += 1;
        self.begun = true;
        match name {
            "messageStart" => {}
            "contentBlockStart" => match body.start {
                Some(raw) => {
                    self.decode_block_start(body.content_block_index.0, raw.get(), false, out)
                }
                None => self.state.status.skipped += 1,
            },
            "contentBlockDelta" => {
                self.decode_block_delta(
                    body.content_block_index.0,
                    &body.delta.0.unwrap_or_default(),
                    out,
                );
            }
            "contentBlockStop" => self.decode_block_stop(body.content_block_index.0, out),
            "messageStop" => self.decode_message_stop(body.stop_reason.as_str(), out),
            // The usage comes after `messageStop`, in the last event of the stream.
            "metadata" => emit_usage(body.usage.0, out),
            // Only frames have event names. A body of Converse comes here as one JSON object.
            "" => self.decode_whole_response(&body, data, out),
            _ => self.state.status.skipped += 1,
        }
    }

    fn state(&self) -> &ResponseState {
        self.inner
            .as_ref()
            .map_or(&self.state, |inner| inner.state())
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        match &mut self.inner {
            Some(inner) => inner.state_mut(),
            None => &mut self.state,
        }
    }
}

impl BedrockDecoder {
    /// Passes an Anthropic event to its decoder. Such a stream holds no Converse events.
    fn decode_anthropic_chunk(&mut self, bytes: &str, out: &mut dyn EventSink) {
        // The status moves to the inner decoder, which reports it from now on.
        let inner = self.inner.get_or_insert_with(|| {
            let mut inner = Box::new(anthropic::decode_response::AnthropicDecoder::default());
            inner.state_mut().status = std::mem::take(&mut self.state.status);
            inner
        });
        if bytes.is_empty() {
            inner.state_mut().status.events += 1;
            inner.state_mut().status.skipped += 1;
            return;
        }
        self.decoded.clear();
        match STANDARD.decode_vec(bytes, &mut self.decoded) {
            Ok(()) => inner.decode_event("", &String::from_utf8_lossy(&self.decoded), out),
            Err(error) => note_unreadable(
                inner.as_mut(),
                &format!("the bytes of an event are not base64: {error}"),
                out,
            ),
        }
    }

    /// Decodes a whole response. An unknown operation also answers with status 200; its body is an
    /// error.
    fn decode_whole_response(&mut self, body: &EventBody<'_>, data: &str, out: &mut dyn EventSink) {
        let Some(message) = body
            .output
            .0
            .as_ref()
            .and_then(|output| output.message.0.as_ref())
        else {
            let value: Value = serde_json::from_str(data).unwrap_or_default();
            let error = ProviderError::from_value(&value).or_else(|| {
                let kind = value.get("Output")?.get("__type")?;
                ProviderError::from_value(
                    &json!({"__type": kind, "message": "the provider knows no such operation"}),
                )
            });
            match error {
                Some(error) => self.state.note_provider_error(error, out),
                None => self.state.status.skipped += 1,
            }
            return;
        };
        let blocks = message
            .content
            .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        let blocks = blocks.unwrap_or_default();
        let word = body.stop_reason.as_str();
        let limit = super::stop_reason(word) == StopReason::Length;
        let last = blocks.len() as u64;
        // Whole responses have no indexes. Any distinct labels will do.
        for (label, block) in (1..).zip(blocks) {
            self.decode_block_start(Some(label), block.get(), true, out);
            // At its output limit, the provider completes the JSON of a call that the limit cut, so
            // the end of the last block does not prove that the call is complete.
            if !limit || label != last {
                self.decode_block_stop(Some(label), out);
            }
        }
        emit_usage(body.usage.0, out);
        self.decode_message_stop(word, out);
    }

    /// Opens a block. `whole` is true if `raw` is the block of a whole response instead of a start
    /// event.
    fn decode_block_start(
        &mut self,
        label: Option<u64>,
        raw: &str,
        whole: bool,
        out: &mut dyn EventSink,
    ) {
        let Some(start) = serde_json::from_str::<LenientObject<BlockStart<'_>>>(raw)
            .ok()
            .and_then(|start| start.0)
        else {
            self.state.status.skipped += 1;
            return;
        };
        let id = start
            .tool_use
            .0
            .as_ref()
            .map_or("", |tool| tool.tool_use_id.as_str());
        if !self
            .open_blocks
            .may_start(label, id, &mut self.state.calls, out)
        {
            return;
        }
        self.state.calls.confirm_empty_calls(out);
        // Calls of server tools are answered by the provider itself.
        let client = start
            .tool_use
            .0
            .as_ref()
            .filter(|tool| tool.kind.as_str() != "server_tool_use");
        let kind = if let Some(tool) = client {
            self.begin_call(label, tool, out)
        } else if whole && (start.text.0.is_some() || start.reasoning_content.0.is_some()) {
            BlockKind::Prose {
                signature: String::new(),
                redacted: Vec::new(),
            }
        } else if !whole && start.tool_use.0.is_none() && start.tool_result.is_none() {
            self.state.status.skipped += 1;
            BlockKind::Dropped
        } else if self.limit_opaque_text(raw, out).is_empty() {
            BlockKind::Dropped
        } else {
            let block = serde_json::from_str(raw).unwrap_or_default();
            BlockKind::Kept {
                block,
                input: String::new(),
                content: Vec::new(),
            }
        };
        self.open_blocks
            .push_block(label, kind, &mut self.state.calls, out);
        // The text of a whole block is in its start.
        if let (true, Some(block)) = (whole, self.open_blocks.newest_position()) {
            emit_text(false, start.text.as_str(), out);
            self.decode_reasoning(block, start.reasoning_content.0.as_ref(), out);
        }
    }

    /// Starts a client call.
    fn begin_call(
        &mut self,
        label: Option<u64>,
        tool: &ToolUse<'_>,
        out: &mut dyn EventSink,
    ) -> BlockKind {
        let call = NativeCall::new(label, tool.tool_use_id.as_str());
        let Some(position) = self.state.begin_call(call, out) else {
            return BlockKind::Dropped;
        };
        // In a stream, `{}` in a start only announces deltas. In a whole body there are no deltas,
        // and it means no arguments.
        let input = tool
            .input
            .map(argument_text)
            .filter(|input| !matches!(input.trim_ascii(), "" | "{}" | "null"));
        if let Some(call) = self.state.calls.list.get_mut(position) {
            call.set_name(tool.name.as_str(), &mut self.state.calls.next_index, out);
            call.push_arguments(input.as_deref().unwrap_or_default(), out);
        }
        BlockKind::Call {
            position,
            whole: input.is_some(),
        }
    }

    /// Adds a delta to its block. A text or reasoning delta may open its block.
    fn decode_block_delta(
        &mut self,
        label: Option<u64>,
        delta: &BlockDelta<'_>,
        out: &mut dyn EventSink,
    ) {
        let prose = delta.text.0.is_some() || delta.reasoning_content.0.is_some();
        // Text and reasoning blocks have no start event: their first delta opens them.
        if prose && self.open_blocks.find_position(label).is_none() {
            self.state.calls.confirm_empty_calls(out);
            let block = BlockKind::Prose {
                signature: String::new(),
                redacted: Vec::new(),
            };
            self.open_blocks
                .push_block(label, block, &mut self.state.calls, out);
        }
        let Some(position) = self.open_blocks.find_position(label) else {
            if delta.tool_use.0.is_none() {
                return self.state.status.skipped += 1;
            }
            return self.state.note_stray_delta(out);
        };
        let Some(block) = self.open_blocks.get_mut(position) else {
            return;
        };
        let input = delta
            .tool_use
            .0
            .as_ref()
            .and_then(|tool| tool.input)
            .map(argument_text);
        match block {
            BlockKind::Prose { .. } if prose => {
                emit_text(false, delta.text.as_str(), out);
                return self.decode_reasoning(position, delta.reasoning_content.0.as_ref(), out);
            }
            BlockKind::Call {
                position,
                whole: false,
            } => {
                if let (Some(input), Some(call)) =
                    (&input, self.state.calls.list.get_mut(*position))
                {
                    return call.push_arguments(input, out);
                }
            }
            BlockKind::Kept {
                input: known,
                content,
                ..
            } => {
                let input = input.unwrap_or_default();
                let size = input.len() + delta.tool_result.map_or(0, |raw| raw.get().len());
                if !self.opaque_budget.try_reserve(size, out) {
                    *block = BlockKind::Dropped;
                    return;
                }
                known.push_str(&input);
                let items = delta
                    .tool_result
                    .and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
                if !input.is_empty() || items.is_some() {
                    return content.extend(items.unwrap_or_default());
                }
            }
            BlockKind::Prose { .. } | BlockKind::Call { .. } | BlockKind::Dropped => {}
        }
        self.state.status.skipped += 1;
    }

    /// Decodes reasoning that belongs to the prose block at this position.
    fn decode_reasoning(
        &mut self,
        position: usize,
        reasoning: Option<&ReasoningContent<'_>>,
        out: &mut dyn EventSink,
    ) {
        let Some(reasoning) = reasoning else { return };
        emit_text(true, reasoning.text.as_str(), out);
        let signed = self.limit_opaque_text(reasoning.signature.as_str(), out);
        let hidden = self.limit_opaque_text(reasoning.redacted_content.as_str(), out);
        if let Some(BlockKind::Prose {
            signature,
            redacted,
        }) = self.open_blocks.get_mut(position)
        {
            signature.push_str(signed);
            // Each piece is base64 on its own, with padding, so the pieces are decoded one by one.
            // `decode_vec` may leave a part of an invalid piece in the buffer.
            let known = redacted.len();
            if STANDARD.decode_vec(hidden, redacted).is_err() {
                redacted.truncate(known);
                let message = "redacted reasoning is not base64: it cannot go back";
                out.push_event(Event::Fault(&Fault::warning(
                    FaultKind::Provider,
                    Span::default(),
                    message,
                )));
            }
        }
        // A whole block nests the members one level deeper than a delta.
        let inside = reasoning
            .reasoning_text
            .and_then(|raw| serde_json::from_str::<LenientObject<_>>(raw.get()).ok());
        if let Some(inside) = inside.and_then(|inside| inside.0) {
            let inside: ReasoningContent<'_> = ReasoningContent {
                reasoning_text: None,
                ..inside
            };
            self.decode_reasoning(position, Some(&inside), out);
        }
    }

    /// Ends a block.
    fn decode_block_stop(&mut self, label: Option<u64>, out: &mut dyn EventSink) {
        let Some(block) = self.open_blocks.end_block(label) else {
            self.state.status.skipped += 1;
            return;
        };
        match block {
            BlockKind::Prose {
                signature,
                redacted,
            } => {
                if !signature.is_empty() {
                    emit_opaque(
                        json!({"reasoningContent": {"reasoningText": {"signature": signature}}}),
                        out,
                    );
                }
                if !redacted.is_empty() {
                    emit_opaque(
                        json!({"reasoningContent": {"redactedContent": STANDARD.encode(redacted)}}),
                        out,
                    );
                }
            }
            BlockKind::Call { position, .. } => {
                self.state.calls.end_call(position, self.state.reason, out)
            }
            BlockKind::Kept {
                mut block,
                input,
                content,
            } => {
                if let (Some(tool), Ok(input)) =
                    (block.pointer_mut("/toolUse"), serde_json::from_str(&input))
                {
                    insert_member(tool, "input", input);
                }
                if let Some(result) = block
                    .pointer_mut("/toolResult")
                    .filter(|_| !content.is_empty())
                {
                    insert_member(result, "content", Value::Array(content));
                }
                emit_opaque(block, out);
            }
            BlockKind::Dropped => {}
        }
    }

    /// Ends the message.
    fn decode_message_stop(&mut self, word: &str, out: &mut dyn EventSink) {
        let reason = super::stop_reason(word);
        if !word.is_empty() {
            self.state.reason = Some(reason);
            self.state.calls.apply_stop_reason(reason, out);
            out.push_event(Event::Stop { reason, raw: word });
        }
        self.state.status.ended = true;
        self.state
            .calls
            .apply_stop_reason(self.state.reason.unwrap_or(StopReason::End), out);
        if self.state.calls.list.iter().any(NativeCall::is_open) {
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

/// Sets a member of an object.
fn insert_member(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// Emits the token counts, if there are any.
fn emit_usage(tokens: Option<TokenCounts>, out: &mut dyn EventSink) {
    let usage = tokens.map(TokenCounts::to_usage).unwrap_or_default();
    if usage != Usage::default() {
        out.push_event(Event::Usage(usage));
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
