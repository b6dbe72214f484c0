//! Ollama: response bodies to events.
//!
//! # Supported
//! Lines of a stream and whole bodies, which look the same. `content`, `thinking`, and `tool_calls`, each of which is
//! whole; arguments as an object, or as its text, which some servers in between make of it. Ids may be missing or repeat.
//!
//! # Unsupported
//! `logprobs` are not read, and neither is what `/api/generate` answers.

use sabir_call::{Event, Sink, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::calls::NativeCall;
use crate::failure::ProviderError;
use crate::loose::{Count, List, Maybe, Text};
use crate::openai_chat::stream::argument_text;
use crate::response::{Calls, Close, Reader, Status, cut_of, reported, say, unreadable};

#[derive(Debug, Default)]
pub(crate) struct Stream {
    status: Status,
    calls: Calls,
    reason: Option<StopReason>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    message: Maybe<Message<'a>>,
    #[serde(borrow, default)]
    done: Option<&'a RawValue>,
    #[serde(borrow, default)]
    done_reason: Text<'a>,
    #[serde(default)]
    prompt_eval_count: Count,
    #[serde(default)]
    eval_count: Count,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: List<ToolCall<'a>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    function: Maybe<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Reader for Stream {
    fn message(&mut self, _: &str, data: &str, out: &mut dyn Sink) {
        if data.trim_ascii().is_empty() {
            return;
        }
        let line: Line<'_> = match serde_json::from_str(data) {
            Ok(line) => line,
            Err(error) => return unreadable(self, &format!("a line of the stream cannot be read: {error}"), out),
        };
        self.status.events += 1;
        if line.error.is_some() {
            reported(ProviderError::read(data.as_bytes()), &mut self.status, &mut self.calls, out);
        }
        let done = line.done.is_some_and(|done| done.get() == "true");
        match &line.message.0 {
            Some(message) => self.said(message, out),
            None if done || line.error.is_some() => {}
            None => self.status.skipped += 1,
        }
        let usage = Usage { input: line.prompt_eval_count.0, output: line.eval_count.0, ..Usage::default() };
        if usage != Usage::default() {
            out.event(Event::Usage(usage));
        }
        if done {
            self.stop(line.done_reason.as_str(), out);
        }
    }

    fn lost(&mut self) {
        self.calls.poison();
    }

    fn finish(&mut self, how: Close, out: &mut dyn Sink) {
        let ended = self.status.ended && self.status.error.is_none();
        self.calls.cut(cut_of(how, ended, self.reason), out);
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}

impl Stream {
    fn said(&mut self, message: &Message<'_>, out: &mut dyn Sink) {
        for (thought, words) in [(true, message.thinking.as_str()), (false, message.content.as_str())] {
            if !words.is_empty() {
                self.calls.went_on(out);
                say(thought, words, out);
            }
        }
        for call in &message.tool_calls.0 {
            self.calls.went_on(out);
            self.call(call, out);
        }
    }

    fn call(&mut self, called: &ToolCall<'_>, out: &mut dyn Sink) {
        let position = self.calls.begin(NativeCall::new(None, called.id.as_str()), &self.status, out);
        let Calls { list, next, .. } = &mut self.calls;
        let Some(call) = position.and_then(|position| list.get_mut(position)) else { return };
        if let Some(function) = &called.function.0 {
            call.set_name(function.name.as_str(), next, out);
            let arguments = function.arguments.map_or("", RawValue::get);
            call.push(&argument_text(arguments), out);
        }
        call.end_seen(next, out);
        if let Some(reason) = self.reason {
            call.stopped(reason, next, out);
        }
    }

    fn stop(&mut self, word: &str, out: &mut dyn Sink) {
        let mut reason = super::stop_reason(word);
        if reason == StopReason::End && !self.calls.list.is_empty() {
            reason = StopReason::Calls;
        }
        self.status.ended = true;
        self.calls.stopped(reason, out);
        if self.reason != Some(reason) {
            self.reason = Some(reason);
            out.event(Event::Stop { reason, raw: word });
        }
    }
}
