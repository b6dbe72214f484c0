//! Gemini: events to response bodies.
//!
//! A call is written as one part when it is whole, because a client that does not know `willContinue` would take any
//! earlier part of it for the call itself. One that was cut is therefore left out; if it was the only one and not the
//! limit's fault, the answer ends with the word for a call that could not be read.
//!
//! A call waits for the event behind it, which may be its signature. Text is never held: its signature follows it in an
//! empty part, as the API's own streams do it.

use sabir_call::{Draft, DraftPart, DraftState, Event, ModelErrorKind, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::parts::{self, SIGNATURE};
use super::{MALFORMED, NAME, stop_word};
use crate::arguments::{ArgumentWriter, object, parsed};
use crate::client::Head;
use crate::failure::ProviderError;
use crate::mould::{Cast, Mould, cast};
use crate::sse;
use crate::wire::Writer;

#[derive(Debug)]
pub(crate) struct Answer {
    head: Head,
    calls: Vec<OpenCall>,
    /// The last call that ended, until it is written.
    held: Option<(u32, Value)>,
    /// The last call that began.
    latest: Option<u32>,
    outcome: Outcome,
    usage: Option<Usage>,
    /// The deltas of words and of thoughts.
    moulds: [Option<Mould>; 2],
}

#[derive(Debug)]
struct OpenCall {
    index: u32,
    id: String,
    name: String,
    writer: ArgumentWriter,
    arguments: String,
    signature: Option<Value>,
}

/// How an answer ended.
#[derive(Debug, Default)]
struct Outcome {
    called: bool,
    cut: bool,
    stop: Option<(StopReason, String)>,
}

impl Answer {
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            calls: Vec::new(),
            held: None,
            latest: None,
            outcome: Outcome::default(),
            usage: None,
            moulds: Default::default(),
        }
    }

    fn say(&mut self, thought: bool, text: &str, out: &mut Vec<u8>) {
        self.flush(out);
        let ([words, thoughts], head) = (&mut self.moulds, &self.head);
        let mould = if thought { thoughts } else { words };
        cast(mould, Cast { key: 0, number: 0, text }, out, |_, text| {
            let mut out = Vec::new();
            sse::encode("", &body(head, vec![parts::text(text, thought)], None, None).to_string(), &mut out);
            out
        });
    }

    fn part(&mut self, part: Value, out: &mut Vec<u8>) {
        self.flush(out);
        self.chunk(vec![part], None, out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some((_, part)) = self.held.take() {
            self.chunk(vec![part], None, out);
        }
    }

    fn chunk(&self, parts: Vec<Value>, finish: Option<&str>, out: &mut Vec<u8>) {
        let usage = self.usage.filter(|_| finish.is_some());
        sse::encode("", &body(&self.head, parts, finish, usage).to_string(), out);
    }

    fn open(&mut self, index: u32) -> Option<&mut OpenCall> {
        self.calls.iter_mut().rev().find(|call| call.index == index)
    }

    fn arguments(&mut self, index: u32, write: impl FnOnce(&mut ArgumentWriter, &mut String)) {
        if let Some(call) = self.open(index) {
            write(&mut call.writer, &mut call.arguments);
        }
    }

    fn take(&mut self, index: u32) -> Option<OpenCall> {
        let position = self.calls.iter().rposition(|call| call.index == index)?;
        Some(self.calls.remove(position))
    }

    fn end(&mut self, index: u32, out: &mut Vec<u8>) {
        self.flush(out);
        let Some(mut call) = self.take(index) else { return };
        call.writer.close(&mut call.arguments);
        let mut part = parts::call(&call.id, &call.name, parsed(&call.arguments));
        sign(&mut part, call.signature);
        self.outcome.called = true;
        self.held = Some((index, part));
    }

    fn opaque(&mut self, data: &Value, out: &mut Vec<u8>) {
        if let Some(signature) = parts::call_signature(data) {
            let Some(latest) = self.latest else { return };
            if let Some(call) = self.open(latest) {
                call.signature = Some(signature.clone());
            } else if let Some((_, part)) = self.held.as_mut().filter(|(index, _)| *index == latest) {
                sign(part, Some(signature.clone()));
            }
            return;
        }
        let mut placed = Vec::new();
        parts::place(data, &mut placed);
        for part in placed {
            self.part(part, out);
        }
    }
}

impl Writer for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.say(false, text, out),
            Event::Thought { text } => self.say(true, text, out),
            Event::CallStart { index, id, name, .. } => {
                self.flush(out);
                let id = self.head.call_id(id, index);
                let (writer, arguments) = (ArgumentWriter::default(), String::new());
                self.calls.push(OpenCall { index, id, name: name.to_owned(), writer, arguments, signature: None });
                self.latest = Some(index);
            }
            Event::ArgStart { index, name, form, .. } => {
                self.arguments(index, |writer, text| writer.start(name, form, text));
            }
            Event::ArgDelta { index, text: delta } => self.arguments(index, |writer, text| writer.delta(delta, text)),
            Event::ArgEnd { index, lead, .. } => self.arguments(index, |writer, text| writer.end(lead, text)),
            Event::CallEnd { index, .. } => self.end(index, out),
            Event::CallCut { index, .. } => {
                self.outcome.cut = true;
                self.take(index);
            }
            Event::Usage(usage) => self.usage.get_or_insert_default().update(usage),
            Event::Stop { reason, raw } => self.outcome.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) if opaque.wire == NAME => self.opaque(&opaque.data, out),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        self.flush(out);
        sse::encode("", &error_body(error).to_string(), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.flush(out);
        self.chunk(vec![parts::text("", false)], Some(self.outcome.word()), out);
    }
}

impl Outcome {
    fn word(&self) -> &str {
        let (reason, raw) = self.stop.as_ref().map_or((StopReason::End, ""), |(reason, raw)| (*reason, raw.as_str()));
        let finished = matches!(reason, StopReason::End | StopReason::Calls);
        if self.cut && !self.called && finished { MALFORMED } else { stop_word(reason, raw) }
    }
}

pub(crate) fn whole(head: &Head, draft: &Draft) -> Value {
    let mut found: Vec<Value> = Vec::new();
    let mut outcome = Outcome { stop: draft.stop.clone(), ..Outcome::default() };
    // Whether the last call was left out, so that its signature is not another's.
    let mut left_out = false;
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => found.push(parts::text(text, false)),
            DraftPart::Thought(text) => found.push(parts::text(text, true)),
            DraftPart::Call(call) => {
                left_out = matches!(call.state, DraftState::Cut(_));
                outcome.cut |= left_out;
                outcome.called |= !left_out;
                if !left_out {
                    let id = head.call_id(call.id.as_deref(), call.index);
                    found.push(parts::call(&id, &call.name, object(&call.arguments)));
                }
            }
            DraftPart::Opaque(opaque) if opaque.wire != NAME => {}
            DraftPart::Opaque(opaque) if left_out && parts::call_signature(&opaque.data).is_some() => {}
            DraftPart::Opaque(opaque) => parts::place(&opaque.data, &mut found),
        }
    }
    body(head, found, Some(outcome.word()), Some(draft.usage))
}

fn sign(part: &mut Value, signature: Option<Value>) {
    if let (Some(part), Some(signature)) = (part.as_object_mut(), signature) {
        part.insert(SIGNATURE.to_owned(), signature);
    }
}

fn body(head: &Head, parts: Vec<Value>, finish: Option<&str>, usage: Option<Usage>) -> Value {
    let mut candidate = Map::new();
    candidate.insert("content".to_owned(), json!({"parts": parts, "role": "model"}));
    candidate.extend(finish.map(|word| ("finishReason".to_owned(), json!(word))));
    candidate.insert("index".to_owned(), json!(0));
    let mut body = Map::new();
    body.insert("candidates".to_owned(), json!([candidate]));
    body.extend(usage.map(|usage| ("usageMetadata".to_owned(), self::usage(usage))));
    body.insert("modelVersion".to_owned(), json!(head.model));
    body.insert("responseId".to_owned(), json!(head.id));
    Value::Object(body)
}

/// The provider counts thoughts apart from the rest.
fn usage(usage: Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or_default(), usage.output.unwrap_or_default());
    let mut value = Map::new();
    value.insert("promptTokenCount".to_owned(), json!(input));
    value.extend(usage.cache_read.map(|count| ("cachedContentTokenCount".to_owned(), json!(count))));
    let words = output.saturating_sub(usage.reasoning.unwrap_or_default());
    value.insert("candidatesTokenCount".to_owned(), json!(words));
    value.extend(usage.reasoning.map(|count| ("thoughtsTokenCount".to_owned(), json!(count))));
    value.insert("totalTokenCount".to_owned(), json!(input.saturating_add(output)));
    Value::Object(value)
}

pub(crate) fn error_body(error: &ProviderError) -> Value {
    let (code, status) = match error.kind {
        ModelErrorKind::Key => (401, "UNAUTHENTICATED"),
        ModelErrorKind::UnknownModel => (404, "NOT_FOUND"),
        ModelErrorKind::Rejected | ModelErrorKind::TooLong => (400, "INVALID_ARGUMENT"),
        ModelErrorKind::RateLimited => (429, "RESOURCE_EXHAUSTED"),
        ModelErrorKind::Unavailable | ModelErrorKind::Unreachable => (503, "UNAVAILABLE"),
        _ => (500, "INTERNAL"),
    };
    json!({"error": {"code": code, "message": error.message, "status": status}})
}
