//! Decodes Ollama responses into events.
//!
//! # Supported
//! Lines of a stream and whole bodies, which look the same: `content`, `thinking`, and
//! `tool_calls`, each of which is complete. Arguments are an object, or its JSON text from some
//! proxies. Ids may be missing or repeat.
//!
//! # Unsupported
//! `logprobs` and the responses of `/api/generate` are not read.

use sabir_call::{Event, EventSink, StopReason, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::{LenientCount, LenientList, LenientObject, LenientText};
use crate::native_call::NativeCall;
use crate::openai_chat::decode_response::argument_text;
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    ResponseCalls, ResponseState, WireDecoder, emit_text, note_unreadable,
};

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct OllamaDecoder {
    /// The calls, the stop reason and the status of the response so far.
    state: ResponseState,
}

/// A line of the stream, or a whole body.
#[derive(Deserialize)]
struct ResponseLine<'a> {
    /// A piece of the message; empty in the last line.
    #[serde(borrow, default)]
    message: LenientObject<LineMessage<'a>>,
    /// `true` in the last line, and in a whole body.
    #[serde(borrow, default)]
    done: Option<&'a RawValue>,
    /// In the last line: `stop` or `length`. It may be missing.
    #[serde(borrow, default)]
    done_reason: LenientText<'a>,
    /// In the last line: input tokens.
    #[serde(default)]
    prompt_eval_count: LenientCount,
    /// In the last line: output tokens.
    #[serde(default)]
    eval_count: LenientCount,
    /// An error as a string, on its own line.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The message of a line.
#[derive(Deserialize)]
struct LineMessage<'a> {
    /// A piece of text.
    #[serde(borrow, default)]
    content: LenientText<'a>,
    /// A piece of a thought.
    #[serde(borrow, default)]
    thinking: LenientText<'a>,
    /// Whole calls.
    #[serde(borrow, default)]
    tool_calls: LenientList<ToolCall<'a>>,
}

/// A call.
#[derive(Deserialize)]
struct ToolCall<'a> {
    /// The call's id; many versions send none.
    #[serde(borrow, default)]
    id: LenientText<'a>,
    /// The tool and its arguments.
    #[serde(borrow, default)]
    function: LenientObject<FunctionCall<'a>>,
}

/// The function of a call.
#[derive(Deserialize)]
struct FunctionCall<'a> {
    /// The tool's name.
    #[serde(borrow, default)]
    name: LenientText<'a>,
    /// The arguments: an object, or a string with its JSON text.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl WireDecoder for OllamaDecoder {
    fn decode_event(&mut self, _: &str, data: &str, out: &mut dyn EventSink) {
        if data.trim_ascii().is_empty() {
            return;
        }
        let line: ResponseLine<'_> = match serde_json::from_str(data) {
            Ok(line) => line,
            Err(error) => {
                return note_unreadable(
                    self,
                    &format!("a line of the stream cannot be read: {error}"),
                    out,
                );
            }
        };
        self.state.status.events += 1;
        // The server reports errors in the middle of a stream as a line of their own.
        if line.error.is_some() {
            self.state
                .note_error_event(ProviderError::from_body(data.as_bytes()), out);
        }
        let done = line.done.is_some_and(|done| done.get() == "true");
        match &line.message.0 {
            Some(message) => self.decode_message(message, out),
            None if done || line.error.is_some() => {}
            None => self.state.status.skipped += 1,
        }
        let usage = Usage {
            input: line.prompt_eval_count.0,
            output: line.eval_count.0,
            ..Usage::default()
        };
        if usage != Usage::default() {
            out.push_event(Event::Usage(usage));
        }
        if done {
            self.decode_stop(line.done_reason.as_str(), out);
        }
    }

    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }
}

impl OllamaDecoder {
    /// Decodes the message of a line.
    fn decode_message(&mut self, message: &LineMessage<'_>, out: &mut dyn EventSink) {
        // A line with both holds the thought that led to the text, so the thought comes first.
        for (thought, words) in [
            (true, message.thinking.as_str()),
            (false, message.content.as_str()),
        ] {
            if !words.is_empty() {
                self.state.calls.confirm_empty_calls(out);
                emit_text(thought, words, out);
            }
        }
        for call in &message.tool_calls.0 {
            self.state.calls.confirm_empty_calls(out);
            self.decode_call(call, out);
        }
    }

    /// Decodes a call, which is always complete.
    fn decode_call(&mut self, called: &ToolCall<'_>, out: &mut dyn EventSink) {
        let position = self
            .state
            .begin_call(NativeCall::new(None, called.id.as_str()), out);
        let ResponseCalls {
            list,
            next_index: next,
            ..
        } = &mut self.state.calls;
        let Some(call) = position.and_then(|position| list.get_mut(position)) else {
            return;
        };
        if let Some(function) = &called.function.0 {
            call.set_name(function.name.as_str(), next, out);
            let arguments = function.arguments.map_or("", RawValue::get);
            call.push_arguments(&argument_text(arguments), out);
        }
        // A call in a line is always complete, so its end needs no further proof.
        call.mark_end_seen(next, out);
        if let Some(reason) = self.state.reason {
            call.apply_stop_reason(reason, next, out);
        }
    }

    /// Decodes the stop reason of the last line.
    fn decode_stop(&mut self, word: &str, out: &mut dyn EventSink) {
        // `stop` also ends responses with calls.
        let mut reason = super::stop_reason(word);
        if reason == StopReason::End && !self.state.calls.list.is_empty() {
            reason = StopReason::Calls;
        }
        self.state.status.ended = true;
        self.state.calls.apply_stop_reason(reason, out);
        if self.state.reason != Some(reason) {
            self.state.reason = Some(reason);
            out.push_event(Event::Stop { reason, raw: word });
        }
    }
}
