//! Anthropic Messages: response bodies to events.
//!
//! # Supported
//! All event kinds of the stream, and whole messages. Client calls are blocks of type `tool_use` and no others. Thinking
//! becomes `Thought`, and its signature an `Opaque` behind it. Every block of another type (redacted thinking, server
//! tools and their results, compaction) is kept whole as `Opaque`, in its place.
//!
//! # Unsupported
//! Citations of text blocks are skipped and counted.

use sabir_call::{Event, Fault, FaultKind, Opaque, Sink, Span, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use crate::blocks::{Block, Blocks};
use crate::calls::NativeCall;
use crate::failure::ProviderError;
use crate::loose::{Count, Maybe, Text};
use crate::response::{Calls, Close, Kept, Reader, Status, cut_of, reported, say, unreadable};

#[derive(Debug, Default)]
pub(crate) struct Stream {
    status: Status,
    calls: Calls,
    open: Blocks<BlockKind>,
    /// Signatures and blocks so far.
    kept: Kept,
    tokens: Tokens,
    reason: Option<StopReason>,
}

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking {
        signature: String,
    },
    /// Position in `calls.list`, and whether the arguments came whole with the start.
    Call {
        position: usize,
        whole: bool,
    },
    /// A block that is kept, its streamed `input`, and its streamed `content`.
    Kept {
        block: Value,
        input: String,
        content: String,
    },
    /// A block that was dropped with a fault.
    Dropped,
}

/// Token counts as the provider splits them.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Tokens {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    message: Maybe<Inner<'a>>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Maybe<Delta<'a>>,
    #[serde(default)]
    usage: Maybe<Tokens>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(default)]
    usage: Maybe<Tokens>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
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
        if data.trim_ascii().is_empty() || data.trim_ascii() == "[DONE]" {
            return;
        }
        let message: Message<'_> = match serde_json::from_str(data) {
            Ok(message) => message,
            Err(error) => return unreadable(self, &format!("an event of the stream cannot be read: {error}"), out),
        };
        self.status.events += 1;
        let kind = if message.kind.as_str().is_empty() { name } else { message.kind.as_str() };
        match kind {
            _ if kind == "error" || message.error.is_some() => {
                reported(ProviderError::read(data.as_bytes()), &mut self.status, &mut self.calls, out);
            }
            "message_start" => {
                if let Some(inner) = message.message.0 {
                    self.usage(inner.usage.0, out);
                    self.stop(inner.stop_reason.as_str(), out);
                }
            }
            "content_block_start" => match message.content_block {
                Some(raw) => self.block_start(message.index.0, raw.get(), out),
                None => self.status.skipped += 1,
            },
            "content_block_delta" => self.delta(message.index.0, &message.delta.0.unwrap_or_default(), out),
            "content_block_stop" => self.block_stop(message.index.0, out),
            "message_delta" => {
                self.usage(message.usage.0, out);
                self.stop(message.delta.0.unwrap_or_default().stop_reason.as_str(), out);
            }
            "message_stop" => self.message_stop(out),
            "message" => self.whole(&message, out),
            "ping" => {}
            _ => self.status.skipped += 1,
        }
    }

    fn lost(&mut self) {
        self.calls.poison();
    }

    fn finish(&mut self, how: Close, out: &mut dyn Sink) {
        let ended = self.status.ended && self.status.error.is_none();
        self.calls.cut(cut_of(how, ended, self.reason), out);
        self.open.clear();
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}

impl Stream {
    fn whole(&mut self, message: &Message<'_>, out: &mut dyn Sink) {
        let blocks = message.content.and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        let blocks = blocks.unwrap_or_default();
        let limit = super::stop_reason(message.stop_reason.as_str()) == StopReason::Length;
        let last = blocks.len() as u64;
        for (label, block) in (1..).zip(blocks) {
            self.block_start(Some(label), block.get(), out);
            // The provider mends the JSON of a call that its limit cut: the last block has no end that can be trusted.
            if !limit || label != last {
                self.block_stop(Some(label), out);
            }
        }
        self.usage(message.usage.0, out);
        self.stop(message.stop_reason.as_str(), out);
        self.message_stop(out);
    }

    fn block_start(&mut self, label: Option<u64>, raw: &str, out: &mut dyn Sink) {
        let Some(start) = serde_json::from_str::<Maybe<Start<'_>>>(raw).ok().and_then(|start| start.0) else {
            self.status.skipped += 1;
            return;
        };
        let id = if start.kind.as_str() == "tool_use" { start.id.as_str() } else { "" };
        if !self.open.may_start(label, id, &mut self.calls, out) {
            return;
        }
        self.calls.went_on(out);
        let kind = match start.kind.as_str() {
            "text" => {
                say(false, start.text.as_str(), out);
                BlockKind::Text
            }
            "thinking" => {
                say(true, start.thinking.as_str(), out);
                let signature = self.keep(start.signature.as_str(), out).to_owned();
                BlockKind::Thinking { signature }
            }
            "tool_use" => self.call_start(label, &start, out),
            _ if self.keep(raw, out).is_empty() => BlockKind::Dropped,
            _ => BlockKind::Kept {
                block: serde_json::from_str(raw).unwrap_or_default(),
                input: String::new(),
                content: String::new(),
            },
        };
        self.open.push(label, kind, &mut self.calls, out);
    }

    fn call_start(&mut self, label: Option<u64>, start: &Start<'_>, out: &mut dyn Sink) -> BlockKind {
        let call = NativeCall::new(label, start.id.as_str());
        let Some(position) = self.calls.begin(call, &self.status, out) else { return BlockKind::Dropped };
        // `{}` in a start only says that deltas will follow; a whole body has no deltas, where it means no arguments.
        let input = start.input.map(RawValue::get).filter(|input| !is_empty_object(input));
        if let Some(call) = self.calls.list.get_mut(position) {
            call.set_name(start.name.as_str(), &mut self.calls.next, out);
            call.push(input.unwrap_or_default(), out);
        }
        BlockKind::Call { position, whole: input.is_some() }
    }

    fn delta(&mut self, label: Option<u64>, delta: &Delta<'_>, out: &mut dyn Sink) {
        let Some(position) = self.open.position(label) else { return self.calls.stray(&mut self.status, out) };
        say(true, delta.thinking.as_str(), out);
        let mut known = delta.thinking.0.is_some() || delta.text.0.is_some();
        let signed = self.keep(delta.signature.as_str(), out);
        let Some(block) = self.open.get_mut(position) else { return };
        match block {
            BlockKind::Thinking { signature } => {
                signature.push_str(signed);
                say(true, delta.text.as_str(), out);
                known |= delta.signature.0.is_some();
            }
            BlockKind::Call { position, whole: false } => {
                if let Some(call) = self.calls.list.get_mut(*position) {
                    call.push(delta.partial_json.as_str(), out);
                    known |= delta.partial_json.0.is_some();
                }
            }
            BlockKind::Kept { input, content, .. } => {
                let (more, words) = (delta.partial_json.as_str(), delta.content.as_str());
                if self.kept.has_room(more.len() + words.len(), out) {
                    input.push_str(more);
                    content.push_str(words);
                    known |= delta.partial_json.0.is_some() || delta.content.0.is_some();
                } else {
                    *block = BlockKind::Dropped;
                }
            }
            BlockKind::Text => say(false, delta.text.as_str(), out),
            BlockKind::Call { .. } | BlockKind::Dropped => {}
        }
        self.status.skipped += u64::from(!known);
    }

    fn block_stop(&mut self, label: Option<u64>, out: &mut dyn Sink) {
        let Some(block) = self.open.end(label) else {
            self.status.skipped += 1;
            return;
        };
        match block {
            BlockKind::Thinking { signature } if !signature.is_empty() => {
                opaque(json!({"type": "thinking", "signature": signature}), out);
            }
            BlockKind::Call { position, .. } => self.calls.end(position, self.reason, out),
            BlockKind::Kept { mut block, input, content } => {
                if let Some(object) = block.as_object_mut() {
                    if let Ok(input) = serde_json::from_str::<Value>(&input) {
                        object.insert("input".to_owned(), input);
                    }
                    if !content.is_empty() {
                        object.insert("content".to_owned(), Value::String(content));
                    }
                }
                opaque(block, out);
            }
            BlockKind::Thinking { .. } | BlockKind::Text | BlockKind::Dropped => {}
        }
    }

    fn usage(&mut self, tokens: Option<Tokens>, out: &mut dyn Sink) {
        let Some(tokens) = tokens else { return };
        let take = |field: &mut Count, value: Count| field.0 = value.0.or(field.0);
        let known = &mut self.tokens;
        take(&mut known.input_tokens, tokens.input_tokens);
        take(&mut known.cache_read_input_tokens, tokens.cache_read_input_tokens);
        take(&mut known.cache_creation_input_tokens, tokens.cache_creation_input_tokens);
        take(&mut known.output_tokens, tokens.output_tokens);
        let (read, written) = (known.cache_read_input_tokens.0, known.cache_creation_input_tokens.0);
        let input = known
            .input_tokens
            .0
            .map(|plain| plain.saturating_add(read.unwrap_or_default()).saturating_add(written.unwrap_or_default()));
        let usage =
            Usage { input, output: known.output_tokens.0, cache_read: read, cache_write: written, reasoning: None };
        if usage != Usage::default() {
            out.event(Event::Usage(usage));
        }
    }

    fn stop(&mut self, word: &str, out: &mut dyn Sink) {
        if word.is_empty() {
            return;
        }
        let reason = super::stop_reason(word);
        self.reason = Some(reason);
        self.calls.stopped(reason, out);
        out.event(Event::Stop { reason, raw: word });
    }

    fn message_stop(&mut self, out: &mut dyn Sink) {
        self.status.ended = true;
        self.calls.stopped(self.reason.unwrap_or(StopReason::End), out);
        // State goes back as it was signed, and a part of it is none: without its end it is lost, and that is said.
        let is_state = |block: &BlockKind| matches!(block, BlockKind::Thinking { .. } | BlockKind::Kept { .. });
        if self.calls.list.iter().any(NativeCall::is_open) || self.open.iter().any(is_state) {
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

fn opaque(data: Value, out: &mut dyn Sink) {
    out.event(Event::Opaque(&Opaque { wire: NAME.to_owned(), data }));
}

fn is_empty_object(raw: &str) -> bool {
    let inside = raw.trim_ascii().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    raw == "null" || inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}
