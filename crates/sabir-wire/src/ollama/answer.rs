//! Ollama: events to response bodies.
//!
//! A call is written when it is whole. One that was cut is left out: arguments are an object here, which cannot be shown as
//! unfinished.

use std::time::Duration;

use sabir_call::{Draft, DraftPart, DraftState, Event, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::stop_word;
use crate::arguments::{ArgumentWriter, object, parsed};
use crate::client::Head;
use crate::failure::ProviderError;
use crate::moment::moment;
use crate::mould::{Cast, Mould, cast};
use crate::wire::Writer;

#[derive(Debug)]
pub(crate) struct Answer {
    head: Head,
    calls: Vec<OpenCall>,
    /// How many calls have been written.
    written: u64,
    usage: Usage,
    stop: Option<(StopReason, String)>,
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
}

impl Answer {
    pub(crate) fn new(head: Head) -> Self {
        let (usage, moulds) = (Usage::default(), Default::default());
        Self { head, calls: Vec::new(), written: 0, usage, stop: None, moulds }
    }

    fn words(&mut self, field: &str, text: &str, out: &mut Vec<u8>) {
        let ([words, thoughts], head) = (&mut self.moulds, &self.head);
        let mould = if field == "content" { words } else { thoughts };
        cast(mould, Cast { key: 0, number: 0, text }, out, |_, text| {
            let mut out = Vec::new();
            say(head, json!({field: text}), &mut out);
            out
        });
    }

    fn arguments(&mut self, index: u32, write: impl FnOnce(&mut ArgumentWriter, &mut String)) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            write(&mut call.writer, &mut call.arguments);
        }
    }

    fn end(&mut self, index: u32, out: &mut Vec<u8>) {
        let Some(position) = self.calls.iter().rposition(|call| call.index == index) else { return };
        let mut call = self.calls.remove(position);
        call.writer.close(&mut call.arguments);
        let call = tool_call(&call.id, self.written, &call.name, parsed(&call.arguments));
        self.written += 1;
        say(&self.head, json!({"tool_calls": [call]}), out);
    }
}

impl Writer for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text } => self.words("content", text, out),
            Event::Thought { text } => self.words("thinking", text, out),
            Event::CallStart { index, id, name, .. } => {
                let id = self.head.call_id(id, index);
                let (writer, arguments) = (ArgumentWriter::default(), String::new());
                self.calls.push(OpenCall { index, id, name: name.to_owned(), writer, arguments });
            }
            Event::ArgStart { index, name, form, .. } => {
                self.arguments(index, |writer, text| writer.start(name, form, text));
            }
            Event::ArgDelta { index, text: delta } => self.arguments(index, |writer, text| writer.delta(delta, text)),
            Event::ArgEnd { index, lead, .. } => self.arguments(index, |writer, text| writer.end(lead, text)),
            Event::CallEnd { index, .. } => self.end(index, out),
            Event::CallCut { index, .. } => self.calls.retain(|call| call.index != index),
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Source { .. } | Event::Mark(_) | Event::Opaque(_) | Event::Fault(_) => {}
        }
    }

    fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        line(&error_body(error), out);
    }

    fn keep_alive(&mut self, _: &mut Vec<u8>) {}

    fn took(&mut self, took: Duration, spoke: Duration) {
        (self.head.took, self.head.spoke) = (took, spoke);
    }

    /// A line without words, with a member that no client looks for.
    fn remark(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        let mut body = opening(&self.head);
        body.insert("message".to_owned(), json!({"role": "assistant", "content": ""}));
        body.insert("done".to_owned(), json!(false));
        body.insert(name.to_owned(), json!(words));
        line(&Value::Object(body), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let message = json!({"role": "assistant", "content": ""});
        line(&end(&self.head, message, self.stop.as_ref(), self.usage), out);
    }
}

/// A line that holds this message.
fn say(head: &Head, mut message: Value, out: &mut Vec<u8>) {
    if let Some(message) = message.as_object_mut() {
        message.entry("content").or_insert_with(|| json!(""));
        message.shift_insert(0, "role".to_owned(), json!("assistant"));
    }
    let mut body = opening(head);
    body.insert("message".to_owned(), message);
    body.insert("done".to_owned(), json!(false));
    line(&Value::Object(body), out);
}

pub(crate) fn whole(head: &Head, draft: &Draft) -> Value {
    let (mut words, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => words.push_str(text),
            DraftPart::Thought(text) => thoughts.push_str(text),
            DraftPart::Call(call) if matches!(call.state, DraftState::Cut(_)) => {}
            DraftPart::Call(call) => {
                let id = head.call_id(call.id.as_deref(), call.index);
                calls.push(tool_call(&id, calls.len() as u64, &call.name, object(&call.arguments)));
            }
            DraftPart::Opaque(_) => {}
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(words));
    if !thoughts.is_empty() {
        message.insert("thinking".to_owned(), json!(thoughts));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    end(head, Value::Object(message), draft.stop.as_ref(), draft.usage)
}

pub(crate) fn error_body(error: &ProviderError) -> Value {
    json!({"error": error.message})
}

fn tool_call(id: &str, index: u64, name: &str, arguments: Map<String, Value>) -> Value {
    json!({"id": id, "function": {"index": index, "name": name, "arguments": arguments}})
}

/// The line that ends a stream, which is also the whole of a body that is not streamed.
fn end(head: &Head, message: Value, stop: Option<&(StopReason, String)>, usage: Usage) -> Value {
    let (reason, raw) = stop.map_or((StopReason::End, ""), |(reason, raw)| (*reason, raw.as_str()));
    let mut body = opening(head);
    body.insert("message".to_owned(), message);
    body.insert("done".to_owned(), json!(true));
    body.insert("done_reason".to_owned(), json!(stop_word(reason, raw)));
    // What is not known is left out, as Ollama leaves out what is 0: how long loading and the prompt took, only the provider knows.
    let time = |name: &str, time: Duration| {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (nanoseconds > 0).then(|| (name.to_owned(), json!(nanoseconds)))
    };
    body.extend(time("total_duration", head.took));
    body.extend(usage.input.map(|count| ("prompt_eval_count".to_owned(), json!(count))));
    body.extend(usage.output.map(|count| ("eval_count".to_owned(), json!(count))));
    body.extend(time("eval_duration", head.spoke));
    Value::Object(body)
}

fn opening(head: &Head) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(head.model));
    body.insert("created_at".to_owned(), json!(moment(head.created)));
    body
}

fn line(body: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(body.to_string().as_bytes());
    out.push(b'\n');
}
