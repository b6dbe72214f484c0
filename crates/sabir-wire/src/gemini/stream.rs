//! Gemini: response bodies to events.
//!
//! # Supported
//! Streams of events, lists and whole bodies: all three hold the same objects. Calls come whole, or in pieces
//! (`partialArgs`, `willContinue`), with an id or without. Signatures become an `Opaque` behind what they sign, parts that
//! are neither words nor calls an `Opaque` as they stand; see [`parts`](super::parts).
//!
//! # Unsupported
//! Candidates beyond the first are skipped and counted. Citations and what searches are grounded on are not read.
//!
//! # Grammar as implemented
//! A call ends with the part that holds it, since its arguments are an object of the part; one that continues ends with
//! the first part of its own that does not say `willContinue`, be it empty. The finish reason proves nothing.

use sabir_call::{Cut, Event, Fault, FaultKind, Opaque, Sink, Span, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::partial::{PartialArguments, Piece};
use super::{MALFORMED, NAME, parts};
use crate::calls::NativeCall;
use crate::failure::ProviderError;
use crate::loose::{Count, List, Maybe, Text};
use crate::response::{Calls, Close, Kept, Reader, Status, cut_of, reported, say, unreadable};

#[derive(Debug, Default)]
pub(crate) struct Stream {
    status: Status,
    calls: Calls,
    /// The call that continues, the last one, and its arguments.
    partial: Option<PartialArguments>,
    /// The label of the candidate that is read.
    candidate: Option<u64>,
    kept: Kept,
    reason: Option<StopReason>,
    word: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: List<Candidate<'a>>,
    #[serde(borrow, default)]
    prompt_feedback: Maybe<Feedback<'a>>,
    #[serde(default)]
    usage_metadata: Maybe<Tokens>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    content: Maybe<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    finish_message: Text<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thought: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thought_signature: Text<'a>,
    #[serde(borrow, default)]
    function_call: Maybe<Called<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Called<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial_args: List<Piece<'a>>,
    #[serde(borrow, default)]
    will_continue: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow, default)]
    block_reason: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    tool_use_prompt_token_count: Count,
    #[serde(default)]
    cached_content_token_count: Count,
    #[serde(default)]
    candidates_token_count: Count,
    #[serde(default)]
    thoughts_token_count: Count,
}

impl Reader for Stream {
    fn message(&mut self, _: &str, data: &str, out: &mut dyn Sink) {
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() || trimmed == "[DONE]" {
            return;
        }
        let chunk: Chunk<'_> = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            Err(error) => return unreadable(self, &format!("an event of the stream cannot be read: {error}"), out),
        };
        self.status.events += 1;
        let blocked = chunk.prompt_feedback.0.as_ref().map(|feedback| feedback.block_reason.as_str());
        if chunk.error.is_some() {
            reported(ProviderError::read(data.as_bytes()), &mut self.status, &mut self.calls, out);
        } else if chunk.candidates.0.is_empty() && chunk.usage_metadata.0.is_none() && blocked.is_none() {
            self.status.skipped += 1;
        }
        for candidate in &chunk.candidates.0 {
            let label = candidate.index.0.unwrap_or_default();
            if *self.candidate.get_or_insert(label) == label {
                self.candidate(candidate, out);
            } else {
                self.status.skipped += 1;
            }
        }
        if let Some(tokens) = &chunk.usage_metadata.0 {
            usage(tokens, out);
        }
        if let Some(word) = blocked.filter(|word| !word.is_empty()) {
            self.stopped(StopReason::Refused, word, out);
        }
    }

    fn lost(&mut self) {
        self.calls.poison();
    }

    fn finish(&mut self, how: Close, out: &mut dyn Sink) {
        let ended = self.status.ended && self.status.error.is_none();
        self.calls.cut(cut_of(how, ended, self.reason), out);
        self.partial = None;
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}

impl Stream {
    fn candidate(&mut self, candidate: &Candidate<'_>, out: &mut dyn Sink) {
        let parts = candidate.content.0.as_ref().and_then(|content| content.parts);
        let parts: Vec<&RawValue> = parts.and_then(|parts| serde_json::from_str(parts.get()).ok()).unwrap_or_default();
        for part in parts {
            self.part(part.get(), out);
        }
        let word = candidate.finish_reason.as_str();
        if word.is_empty() || word == "FINISH_REASON_UNSPECIFIED" {
            return;
        }
        let mut reason = super::stop_reason(word);
        if reason == StopReason::End && !self.calls.list.is_empty() {
            reason = StopReason::Calls;
        }
        if word == MALFORMED && self.word != word {
            let said = candidate.finish_message.as_str();
            let message = format!("the provider could not read a call of its model{}{said}", colon(said));
            let fault = Fault::error(FaultKind::MalformedJson, Span::default(), message);
            out.event(Event::Fault(&fault.hint("write the call once more, with arguments that fit its schema")));
        }
        self.stopped(reason, word, out);
    }

    fn stopped(&mut self, reason: StopReason, word: &str, out: &mut dyn Sink) {
        self.status.ended = true;
        self.calls.stopped(reason, out);
        if self.reason != Some(reason) || self.word != word {
            self.reason = Some(reason);
            word.clone_into(&mut self.word);
            out.event(Event::Stop { reason, raw: word });
        }
    }

    fn part(&mut self, raw: &str, out: &mut dyn Sink) {
        let Ok(Maybe(Some(part))) = serde_json::from_str::<Maybe<Part<'_>>>(raw) else {
            self.status.skipped += 1;
            return;
        };
        self.calls.went_on(out);
        let signature = part.thought_signature.as_str();
        let thought = part.thought.is_some_and(is_true);
        if let Some(called) = &part.function_call.0 {
            return self.call(called, signature, out);
        }
        let text = part.text.as_str();
        if text.is_empty() {
            return self.keep_part(raw, out);
        }
        say(thought, text, out);
        if !signature.is_empty() {
            self.keep(parts::signed_text(text, thought, signature), signature.len(), out);
        }
    }

    /// Keeps a part that holds neither words nor a call.
    fn keep_part(&mut self, raw: &str, out: &mut dyn Sink) {
        let part = serde_json::from_str(raw).ok().and_then(parts::kept);
        if let Some(part) = part {
            self.keep(part, raw.len(), out);
        }
    }

    fn keep(&mut self, data: Value, length: usize, out: &mut dyn Sink) {
        if self.kept.has_room(length, out) {
            out.event(Event::Opaque(&Opaque { wire: NAME.to_owned(), data }));
        }
    }

    fn call(&mut self, called: &Called<'_>, signature: &str, out: &mut dyn Sink) {
        let more = called.will_continue.is_some_and(is_true);
        let pieces = &called.partial_args.0;
        if self.partial.is_some() && !self.continues(called) {
            self.partial = None;
            if let Some(call) = self.calls.list.last_mut() {
                call.cut(Cut::Broken, &mut self.calls.next, out);
            }
        }
        if self.partial.is_none() {
            let empty = called.name.as_str().is_empty() && called.id.as_str().is_empty() && pieces.is_empty();
            if empty && called.args.is_none() && !more {
                // It ends a call that has ended.
                self.status.skipped += 1;
                return;
            }
            if !self.begin(called, out) {
                return;
            }
            self.partial = (more || !pieces.is_empty()).then(PartialArguments::default);
        }
        self.arguments(called, out);
        if !signature.is_empty() {
            self.keep(parts::signed_call(signature), signature.len(), out);
        }
        if more {
            return;
        }
        self.partial = None;
        if let Some(call) = self.calls.list.last_mut() {
            call.end_seen(&mut self.calls.next, out);
            if let Some(reason) = self.reason {
                call.stopped(reason, &mut self.calls.next, out);
            }
        }
    }

    /// Whether a part goes on with the call that continues.
    fn continues(&self, called: &Called<'_>) -> bool {
        let (id, name) = (called.id.as_str(), called.name.as_str());
        self.calls.list.last().is_some_and(|call| {
            let same = (id.is_empty() || id == call.id) && (name.is_empty() || name == call.name);
            same && (name.is_empty() || !called.partial_args.0.is_empty())
        })
    }

    /// Whether there was room for one more call.
    fn begin(&mut self, called: &Called<'_>, out: &mut dyn Sink) -> bool {
        let position = self.calls.begin(NativeCall::new(None, called.id.as_str()), &self.status, out);
        if let Some(call) = position.and_then(|position| self.calls.list.get_mut(position)) {
            call.set_name(called.name.as_str(), &mut self.calls.next, out);
        }
        position.is_some()
    }

    fn arguments(&mut self, called: &Called<'_>, out: &mut dyn Sink) {
        let Some(call) = self.calls.list.last_mut() else { return };
        let Some(partial) = &mut self.partial else {
            return call.push(called.args.map_or("", RawValue::get), out);
        };
        let mut text = String::new();
        for piece in &called.partial_args.0 {
            if partial.write(piece, &mut text).is_none() {
                call.poison();
                let message = "a piece of the arguments has a path that cannot be added to what came before";
                out.event(Event::Fault(&Fault::warning(FaultKind::Provider, Span::default(), message)));
                return;
            }
        }
        if !called.will_continue.is_some_and(is_true) {
            partial.close(&mut text);
        }
        call.push(&text, out);
    }
}

fn usage(tokens: &Tokens, out: &mut dyn Sink) {
    let sum = |a: Count, b: Count| match (a.0, b.0) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or_default().saturating_add(b.unwrap_or_default())),
    };
    let usage = Usage {
        // What server-side tools gave to the model is counted apart, and so are thoughts.
        input: sum(tokens.prompt_token_count, tokens.tool_use_prompt_token_count),
        output: sum(tokens.candidates_token_count, tokens.thoughts_token_count),
        cache_read: tokens.cached_content_token_count.0,
        cache_write: None,
        reasoning: tokens.thoughts_token_count.0,
    };
    if usage != Usage::default() {
        out.event(Event::Usage(usage));
    }
}

fn is_true(raw: &RawValue) -> bool {
    raw.get() == "true"
}

fn colon(said: &str) -> &str {
    if said.is_empty() { "" } else { ": " }
}
