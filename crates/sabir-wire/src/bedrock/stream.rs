//! Amazon Bedrock: response bodies to events.
//!
//! # Supported
//! All events of ConverseStream, and whole answers of Converse. Client calls are `toolUse` blocks, but for those of type
//! `server_tool_use`: these, the results that the server adds, and every whole block of an unknown kind are kept as
//! `Opaque`, in their place. Reasoning becomes `Thought`, its signature an `Opaque` behind it; redacted reasoning is an
//! `Opaque`. Text and reasoning need no start of their block. Frames of InvokeModelWithResponseStream, which carry events
//! of Anthropic in base64, go to that wire's reader.
//!
//! # Unsupported
//! Citations, and pictures that come as deltas: skipped and counted. What other models than Anthropic's send through
//! InvokeModelWithResponseStream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sabir_call::{Event, Fault, FaultKind, Opaque, Sink, Span, StopReason, Usage};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use super::shape::{Body, Delta, Reasoning, Start, Tokens, ToolUse, arguments};
use crate::anthropic;
use crate::blocks::{Block, Blocks};
use crate::calls::NativeCall;
use crate::failure::ProviderError;
use crate::loose::Maybe;
use crate::response::{Calls, Close, Kept, Reader, Status, cut_of, failed, say, unreadable};

#[derive(Debug, Default)]
pub(crate) struct Stream {
    status: Status,
    calls: Calls,
    open: Blocks<BlockKind>,
    /// Signatures and blocks so far.
    kept: Kept,
    reason: Option<StopReason>,
    /// Whether an event of Converse was read: then no other reader takes over.
    begun: bool,
    /// The reader of events that come in base64, once the first one has come.
    inner: Option<Box<anthropic::stream::Stream>>,
    /// The event that came last in base64.
    decoded: Vec<u8>,
}

#[derive(Debug)]
enum BlockKind {
    /// Text or reasoning: which of them only the deltas say.
    Prose { signature: String, redacted: Vec<u8> },
    /// Position in `calls.list`, and whether the arguments came whole with the start.
    Call { position: usize, whole: bool },
    /// A block that is kept, its streamed `input`, and its streamed `content`.
    Kept { block: Value, input: String, content: Vec<Value> },
    /// A block that is dropped.
    Dropped,
}

impl Block for BlockKind {
    fn call(&self) -> Option<usize> {
        match self {
            Self::Call { position, .. } => Some(*position),
            _ => None,
        }
    }
}

impl Reader for Stream {
    fn message(&mut self, name: &str, data: &str, out: &mut dyn Sink) {
        if data.trim_ascii().is_empty() {
            return;
        }
        let body: Body<'_> = match serde_json::from_str(data) {
            Ok(body) => body,
            Err(error) => return unreadable(self, &format!("an event of the stream cannot be read: {error}"), out),
        };
        if self.inner.is_some() || (name == "chunk" && !self.begun) {
            return self.chunk(body.bytes.as_str(), out);
        }
        self.status.events += 1;
        self.begun = true;
        match name {
            "messageStart" => {}
            "contentBlockStart" => match body.start {
                Some(raw) => self.block_start(body.content_block_index.0, raw.get(), false, out),
                None => self.status.skipped += 1,
            },
            "contentBlockDelta" => {
                self.delta(body.content_block_index.0, &body.delta.0.unwrap_or_default(), out);
            }
            "contentBlockStop" => self.block_stop(body.content_block_index.0, out),
            "messageStop" => self.message_stop(body.stop_reason.as_str(), out),
            "metadata" => usage(body.usage.0, out),
            "" => self.whole(&body, data, out),
            _ => self.status.skipped += 1,
        }
    }

    fn lost(&mut self) {
        match &mut self.inner {
            Some(inner) => inner.lost(),
            None => self.calls.poison(),
        }
    }

    fn finish(&mut self, how: Close, out: &mut dyn Sink) {
        if let Some(inner) = &mut self.inner {
            return inner.finish(how, out);
        }
        let ended = self.status.ended && self.status.error.is_none();
        self.calls.cut(cut_of(how, ended, self.reason), out);
        self.open.clear();
    }

    fn status(&self) -> &Status {
        self.inner.as_ref().map_or(&self.status, |inner| inner.status())
    }

    fn status_mut(&mut self) -> &mut Status {
        match &mut self.inner {
            Some(inner) => inner.status_mut(),
            None => &mut self.status,
        }
    }
}

impl Stream {
    /// Hands an event of Anthropic to its reader. Nothing of Converse stands in such a stream.
    fn chunk(&mut self, bytes: &str, out: &mut dyn Sink) {
        let inner = self.inner.get_or_insert_with(|| {
            let mut inner = Box::new(anthropic::stream::Stream::default());
            *inner.status_mut() = std::mem::take(&mut self.status);
            inner
        });
        if bytes.is_empty() {
            inner.status_mut().events += 1;
            inner.status_mut().skipped += 1;
            return;
        }
        self.decoded.clear();
        match STANDARD.decode_vec(bytes, &mut self.decoded) {
            Ok(()) => inner.message("", &String::from_utf8_lossy(&self.decoded), out),
            Err(error) => unreadable(inner.as_mut(), &format!("the bytes of an event are no base64: {error}"), out),
        }
    }

    /// A whole answer. With status 200 an unknown operation answers too, and what it says is an error.
    fn whole(&mut self, body: &Body<'_>, data: &str, out: &mut dyn Sink) {
        let Some(message) = body.output.0.as_ref().and_then(|output| output.message.0.as_ref()) else {
            let value: Value = serde_json::from_str(data).unwrap_or_default();
            let error = ProviderError::from_value(&value).or_else(|| {
                let kind = value.get("Output")?.get("__type")?;
                ProviderError::from_value(&json!({"__type": kind, "message": "the provider knows no such operation"}))
            });
            match error {
                Some(error) => failed(&mut self.status, error, out),
                None => self.status.skipped += 1,
            }
            return;
        };
        let blocks = message.content.and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        let blocks = blocks.unwrap_or_default();
        let word = body.stop_reason.as_str();
        let limit = super::stop_reason(word) == StopReason::Length;
        let last = blocks.len() as u64;
        for (label, block) in (1..).zip(blocks) {
            self.block_start(Some(label), block.get(), true, out);
            // The provider mends the JSON of a call that its limit cut: the last block has no end that can be trusted.
            if !limit || label != last {
                self.block_stop(Some(label), out);
            }
        }
        usage(body.usage.0, out);
        self.message_stop(word, out);
    }

    fn block_start(&mut self, label: Option<u64>, raw: &str, whole: bool, out: &mut dyn Sink) {
        let Some(start) = serde_json::from_str::<Maybe<Start<'_>>>(raw).ok().and_then(|start| start.0) else {
            self.status.skipped += 1;
            return;
        };
        let id = start.tool_use.0.as_ref().map_or("", |tool| tool.tool_use_id.as_str());
        if !self.open.may_start(label, id, &mut self.calls, out) {
            return;
        }
        self.calls.went_on(out);
        let client = start.tool_use.0.as_ref().filter(|tool| tool.kind.as_str() != "server_tool_use");
        let kind = if let Some(tool) = client {
            self.call_start(label, tool, out)
        } else if whole && (start.text.0.is_some() || start.reasoning_content.0.is_some()) {
            BlockKind::Prose { signature: String::new(), redacted: Vec::new() }
        } else if !whole && start.tool_use.0.is_none() && start.tool_result.is_none() {
            self.status.skipped += 1;
            BlockKind::Dropped
        } else if self.keep(raw, out).is_empty() {
            BlockKind::Dropped
        } else {
            let block = serde_json::from_str(raw).unwrap_or_default();
            BlockKind::Kept { block, input: String::new(), content: Vec::new() }
        };
        self.open.push(label, kind, &mut self.calls, out);
        if let (true, Some(block)) = (whole, self.open.newest()) {
            say(false, start.text.as_str(), out);
            self.reasoning(block, start.reasoning_content.0.as_ref(), out);
        }
    }

    fn call_start(&mut self, label: Option<u64>, tool: &ToolUse<'_>, out: &mut dyn Sink) -> BlockKind {
        let call = NativeCall::new(label, tool.tool_use_id.as_str());
        let Some(position) = self.calls.begin(call, &self.status, out) else { return BlockKind::Dropped };
        // `{}` in a start only says that deltas will follow; a whole body has no deltas, where it means no arguments.
        let input = tool.input.map(arguments).filter(|input| !matches!(input.trim_ascii(), "" | "{}" | "null"));
        if let Some(call) = self.calls.list.get_mut(position) {
            call.set_name(tool.name.as_str(), &mut self.calls.next, out);
            call.push(input.as_deref().unwrap_or_default(), out);
        }
        BlockKind::Call { position, whole: input.is_some() }
    }

    fn delta(&mut self, label: Option<u64>, delta: &Delta<'_>, out: &mut dyn Sink) {
        let prose = delta.text.0.is_some() || delta.reasoning_content.0.is_some();
        if prose && self.open.position(label).is_none() {
            self.calls.went_on(out);
            let block = BlockKind::Prose { signature: String::new(), redacted: Vec::new() };
            self.open.push(label, block, &mut self.calls, out);
        }
        let Some(position) = self.open.position(label) else {
            if delta.tool_use.0.is_none() {
                return self.status.skipped += 1;
            }
            return self.calls.stray(&mut self.status, out);
        };
        let Some(block) = self.open.get_mut(position) else { return };
        let input = delta.tool_use.0.as_ref().and_then(|tool| tool.input).map(arguments);
        match block {
            BlockKind::Prose { .. } if prose => {
                say(false, delta.text.as_str(), out);
                return self.reasoning(position, delta.reasoning_content.0.as_ref(), out);
            }
            BlockKind::Call { position, whole: false } => {
                if let (Some(input), Some(call)) = (&input, self.calls.list.get_mut(*position)) {
                    return call.push(input, out);
                }
            }
            BlockKind::Kept { input: known, content, .. } => {
                let input = input.unwrap_or_default();
                let size = input.len() + delta.tool_result.map_or(0, |raw| raw.get().len());
                if !self.kept.has_room(size, out) {
                    *block = BlockKind::Dropped;
                    return;
                }
                known.push_str(&input);
                let items = delta.tool_result.and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
                if !input.is_empty() || items.is_some() {
                    return content.extend(items.unwrap_or_default());
                }
            }
            BlockKind::Prose { .. } | BlockKind::Call { .. } | BlockKind::Dropped => {}
        }
        self.status.skipped += 1;
    }

    /// Takes reasoning that belongs to the block of prose at this position.
    fn reasoning(&mut self, position: usize, reasoning: Option<&Reasoning<'_>>, out: &mut dyn Sink) {
        let Some(reasoning) = reasoning else { return };
        say(true, reasoning.text.as_str(), out);
        let signed = self.keep(reasoning.signature.as_str(), out);
        let hidden = self.keep(reasoning.redacted_content.as_str(), out);
        if let Some(BlockKind::Prose { signature, redacted }) = self.open.get_mut(position) {
            signature.push_str(signed);
            // Each piece is base64 of its own, with padding.
            let known = redacted.len();
            if STANDARD.decode_vec(hidden, redacted).is_err() {
                redacted.truncate(known);
                let message = "redacted reasoning is no base64: it cannot go back";
                out.event(Event::Fault(&Fault::warning(FaultKind::Provider, Span::default(), message)));
            }
        }
        let inside = reasoning.reasoning_text.and_then(|raw| serde_json::from_str::<Maybe<_>>(raw.get()).ok());
        if let Some(inside) = inside.and_then(|inside| inside.0) {
            let inside: Reasoning<'_> = Reasoning { reasoning_text: None, ..inside };
            self.reasoning(position, Some(&inside), out);
        }
    }

    fn block_stop(&mut self, label: Option<u64>, out: &mut dyn Sink) {
        let Some(block) = self.open.end(label) else {
            self.status.skipped += 1;
            return;
        };
        match block {
            BlockKind::Prose { signature, redacted } => {
                if !signature.is_empty() {
                    opaque(json!({"reasoningContent": {"reasoningText": {"signature": signature}}}), out);
                }
                if !redacted.is_empty() {
                    opaque(json!({"reasoningContent": {"redactedContent": STANDARD.encode(redacted)}}), out);
                }
            }
            BlockKind::Call { position, .. } => self.calls.end(position, self.reason, out),
            BlockKind::Kept { mut block, input, content } => {
                if let (Some(tool), Ok(input)) = (block.pointer_mut("/toolUse"), serde_json::from_str(&input)) {
                    insert(tool, "input", input);
                }
                if let Some(result) = block.pointer_mut("/toolResult").filter(|_| !content.is_empty()) {
                    insert(result, "content", Value::Array(content));
                }
                opaque(block, out);
            }
            BlockKind::Dropped => {}
        }
    }

    fn message_stop(&mut self, word: &str, out: &mut dyn Sink) {
        let reason = super::stop_reason(word);
        if !word.is_empty() {
            self.reason = Some(reason);
            self.calls.stopped(reason, out);
            out.event(Event::Stop { reason, raw: word });
        }
        self.status.ended = true;
        self.calls.stopped(self.reason.unwrap_or(StopReason::End), out);
        if self.calls.list.iter().any(NativeCall::is_open) {
            let message = "the message ended while a content block was open";
            out.event(Event::Fault(&Fault::warning(FaultKind::Provider, Span::default(), message)));
            self.calls.cut(cut_of(Close::Clean, true, self.reason), out);
        }
        self.open.clear();
    }

    /// Counts what is kept; hands it back, or nothing if it would be too much.
    fn keep<'t>(&mut self, text: &'t str, out: &mut dyn Sink) -> &'t str {
        if self.kept.has_room(text.len(), out) { text } else { "" }
    }
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

fn usage(tokens: Option<Tokens>, out: &mut dyn Sink) {
    let usage = tokens.map(Tokens::usage).unwrap_or_default();
    if usage != Usage::default() {
        out.event(Event::Usage(usage));
    }
}

fn opaque(data: Value, out: &mut dyn Sink) {
    out.event(Event::Opaque(&Opaque { wire: NAME.to_owned(), data }));
}
