//! Decodes Gemini responses into events.
//!
//! # Supported
//! Event streams, lists and whole bodies, which all hold the same objects. Calls arrive whole, or
//! in pieces (`partialArgs`, `willContinue`), with an id or without. A signature becomes an
//! `Opaque` after what it signs; parts that are neither text nor calls become an `Opaque`
//! unchanged; see [`parts`](super::parts).
//!
//! # Unsupported
//! Candidates beyond the first are skipped and counted, unless several were requested: then each becomes
//! chunks for a decoder of its own. Citations, grounding metadata and unknown
//! members are details for a client of the same wire.
//!
//! # Grammar as implemented
//! A call ends with the part that holds it, since its arguments are an object of the part. A
//! continued call ends with its first part without `willContinue`, even an empty one. The finish
//! reason proves nothing.

use sabir_call::{
    Event, EventSink, Fault, FaultKind, OpaqueState, Span, StopReason, Truncation, Usage,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::answer_details::AnswerDetails;
use super::partial_arguments::{ArgumentFragment, PartialArguments};
use super::{MALFORMED, NAME, parts};
use crate::choice_chunk::{SplitChoices, SplitChunk};
use crate::lenient::{LenientCount, LenientList, LenientObject, LenientText};
use crate::native_call::NativeCall;
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    OpaqueBudget, ResponseState, WireDecoder, emit_text, is_detail_data, note_unreadable,
};
use crate::unknown_members::is_known_spelling;
use crate::wire::Wire;

/// The default of the finish reason, which means the same as a missing one.
const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct GeminiDecoder {
    /// The calls, the stop reason and the status of the response so far.
    state: ResponseState,
    /// The arguments of the last call, if it continues.
    partial: Option<PartialArguments>,
    /// The index of the candidate that is read.
    candidate: Option<u64>,
    /// The size limit of signatures and kept parts.
    opaque_budget: OpaqueBudget,
    /// The finish reason as the provider spelled it, to recognize a repetition.
    word: String,
    /// The latest value of each detail.
    details: AnswerDetails,
    /// The candidates of an answer that is split.
    split: SplitChoices,
}

/// An object of the stream, or a whole body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseChunk<'a> {
    /// The alternatives; absent in a chunk that only has usage.
    #[serde(borrow, default)]
    candidates: LenientList<ResponseCandidate<'a>>,
    /// Present, and without any candidate, if the prompt itself was blocked.
    #[serde(borrow, default)]
    prompt_feedback: LenientObject<PromptFeedback<'a>>,
    /// The counts so far; most chunks repeat them.
    #[serde(default)]
    usage_metadata: LenientObject<TokenCounts>,
    /// An error in the middle of a stream: `{"code": …, "message": …, "status": …}`.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// One of the alternatives in a response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseCandidate<'a> {
    /// The number of the alternative; missing for the first one.
    #[serde(default)]
    index: LenientCount,
    /// `{"role": "model", "parts": […]}`; absent if nothing was written.
    #[serde(borrow, default)]
    content: LenientObject<CandidateContent<'a>>,
    /// The reason, in the last chunk. It is also `STOP` after calls.
    #[serde(borrow, default)]
    finish_reason: LenientText<'a>,
    /// The provider's explanation of a reason such as `MALFORMED_FUNCTION_CALL`.
    #[serde(borrow, default)]
    finish_message: LenientText<'a>,
}

/// The content of a candidate.
#[derive(Deserialize)]
struct CandidateContent<'a> {
    /// The list of parts. It is kept as text, because parts of unknown types go back unchanged.
    #[serde(borrow, default)]
    parts: Option<&'a RawValue>,
}

/// A part of a content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentPart<'a> {
    /// A piece of text or of a thought.
    #[serde(borrow, default)]
    text: LenientText<'a>,
    /// `true` if the text is a thought.
    #[serde(borrow, default)]
    thought: Option<&'a RawValue>,
    /// The signature of this part; `parts` describes how it is sent back.
    #[serde(borrow, default)]
    thought_signature: LenientText<'a>,
    /// A call, which then is all that the part holds.
    #[serde(borrow, default)]
    function_call: LenientObject<FunctionCall<'a>>,
}

/// A call or a piece of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCall<'a> {
    /// The call's id; 63 of 71 recorded streams with calls have none.
    #[serde(borrow, default)]
    id: LenientText<'a>,
    /// The tool's name; missing from the parts that continue a call.
    #[serde(borrow, default)]
    name: LenientText<'a>,
    /// All arguments as an object; missing for a call without arguments.
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    /// Pieces of the arguments, of a model that streams them.
    #[serde(borrow, default)]
    partial_args: LenientList<ArgumentFragment<'a>>,
    /// `true` if later parts continue this call.
    #[serde(borrow, default)]
    will_continue: Option<&'a RawValue>,
}

/// The provider's verdict on the prompt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    /// The reason why the prompt was refused, such as `SAFETY`.
    #[serde(borrow, default)]
    block_reason: LenientText<'a>,
}

/// Token counts as the provider splits them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenCounts {
    /// Input, with the cached part.
    #[serde(default)]
    prompt_token_count: LenientCount,
    /// Results of server tools, which the model read; not part of the prompt count.
    #[serde(default)]
    tool_use_prompt_token_count: LenientCount,
    /// The part of the input that was read from the cache.
    #[serde(default)]
    cached_content_token_count: LenientCount,
    /// Output without thoughts.
    #[serde(default)]
    candidates_token_count: LenientCount,
    /// Thoughts, which count as output.
    #[serde(default)]
    thoughts_token_count: LenientCount,
}

impl WireDecoder for GeminiDecoder {
    fn decode_event(&mut self, _: &str, data: &str, out: &mut dyn EventSink) {
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() || trimmed == "[DONE]" {
            return;
        }
        let chunk: ResponseChunk<'_> = match serde_json::from_str(data) {
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
        let blocked = chunk
            .prompt_feedback
            .0
            .as_ref()
            .map(|feedback| feedback.block_reason.as_str());
        if chunk.error.is_some() {
            self.state
                .note_error_event(ProviderError::from_body(data.as_bytes()), out);
        } else if chunk.candidates.0.is_empty()
            && chunk.usage_metadata.0.is_none()
            && blocked.is_none()
        {
            self.state.status.skipped += 1;
        }
        let is_split = self.state.choices > 1;
        if is_split {
            self.split_candidates(data, out);
        } else if self.state.keeps_details {
            self.emit_details(&serde_json::from_str(data).unwrap_or_default(), out);
        }
        for candidate in chunk.candidates.0.iter().filter(|_| !is_split) {
            // A missing index means 0: Google leaves out members with default values.
            let label = candidate.index.0.unwrap_or_default();
            // The first candidate that appears is read, whatever its index.
            if *self.candidate.get_or_insert(label) == label {
                self.decode_candidate(candidate, out);
            } else {
                self.state.status.skipped += 1;
            }
        }
        if let Some(tokens) = &chunk.usage_metadata.0 {
            emit_usage(tokens, out);
        }
        if let Some(word) = blocked.filter(|word| !word.is_empty()) {
            self.apply_stop(StopReason::Refused, word, out);
        }
    }

    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }
}

impl GeminiDecoder {
    /// Emits what events have no place for, before the events of the chunk.
    fn emit_details(&mut self, chunk: &Value, out: &mut dyn EventSink) {
        let mut details = AnswerDetails::from_chunk(chunk, self.candidate);
        // Most chunks repeat the counts and the ratings.
        self.details.retain_changes(&mut details);
        if details != AnswerDetails::default() {
            let state = details.to_state();
            let length = state.to_string().len();
            self.emit_opaque(state, length, out);
        }
    }

    /// Emits each candidate of a chunk as a chunk of its own.
    fn split_candidates(&mut self, data: &str, out: &mut dyn EventSink) {
        let Ok(Value::Object(mut chunk)) = serde_json::from_str(data) else {
            return;
        };
        let candidates = chunk.shift_remove("candidates");
        if self.state.keeps_details {
            self.emit_details(&Value::Object(chunk), out);
        }
        let Some(Value::Array(choices)) = candidates else {
            return;
        };
        let chunk = SplitChunk {
            wire: Wire::Gemini,
            choices,
            // Google leaves out members with default values.
            usual_label: Some(0),
            // The answer itself has the other members.
            shared: Value::Object(Map::new()),
        };
        self.split.split_chunk(
            &mut self.state,
            chunk,
            &mut |_, candidate, _| {
                let word = candidate.get("finishReason").and_then(Value::as_str);
                word.is_some_and(|word| !word.is_empty() && word != UNSPECIFIED)
            },
            out,
        );
    }

    /// Decodes the parts and the finish reason of a candidate.
    fn decode_candidate(&mut self, candidate: &ResponseCandidate<'_>, out: &mut dyn EventSink) {
        let parts = candidate
            .content
            .0
            .as_ref()
            .and_then(|content| content.parts);
        let parts: Vec<&RawValue> = parts
            .and_then(|parts| serde_json::from_str(parts.get()).ok())
            .unwrap_or_default();
        for part in parts {
            self.decode_part(part.get(), out);
        }
        let word = candidate.finish_reason.as_str();
        if word.is_empty() || word == UNSPECIFIED {
            return;
        }
        let mut reason = super::stop_reason(word);
        // `STOP` also ends responses with calls.
        if reason == StopReason::End && !self.state.calls.list.is_empty() {
            reason = StopReason::Calls;
        }
        // The chunk with the reason may come twice; the fault is reported once.
        if word == MALFORMED && self.word != word {
            let said = candidate.finish_message.as_str();
            let message = format!(
                "the provider could not read a call of its model{}{said}",
                message_separator(said)
            );
            let fault = Fault::error(FaultKind::MalformedJson, Span::default(), message);
            out.push_event(Event::Fault(&fault.with_hint(
                "write the call once more, with arguments that fit its schema",
            )));
        }
        self.apply_stop(reason, word, out);
    }

    /// Applies a finish reason, and emits it if it is new.
    fn apply_stop(&mut self, reason: StopReason, word: &str, out: &mut dyn EventSink) {
        self.state.status.ended = true;
        self.state.calls.apply_stop_reason(reason, out);
        if self.state.reason != Some(reason) || self.word != word {
            self.state.reason = Some(reason);
            word.clone_into(&mut self.word);
            out.push_event(Event::Stop { reason, raw: word });
        }
    }

    /// Decodes a part.
    fn decode_part(&mut self, raw: &str, out: &mut dyn EventSink) {
        let Ok(LenientObject(Some(part))) =
            serde_json::from_str::<LenientObject<ContentPart<'_>>>(raw)
        else {
            self.state.status.skipped += 1;
            return;
        };
        self.state.calls.confirm_empty_calls(out);
        let signature = part.thought_signature.as_str();
        let thought = part.thought.is_some_and(is_true);
        if let Some(called) = &part.function_call.0 {
            return self.decode_call(called, signature, out);
        }
        let text = part.text.as_str();
        if text.is_empty() {
            return self.emit_opaque_part(raw, out);
        }
        emit_text(thought, text, out);
        if !signature.is_empty() {
            self.emit_opaque(
                parts::text_signature_state(text, thought, signature),
                signature.len(),
                out,
            );
        }
    }

    /// Keeps a part with neither text nor a call.
    fn emit_opaque_part(&mut self, raw: &str, out: &mut dyn EventSink) {
        let Ok(mut part) = serde_json::from_str::<Map<String, Value>>(raw) else {
            return;
        };
        // Clients would read it as a call that nobody has checked.
        part.retain(|key, _| !is_known_spelling(key, &["functionCall"]));
        if let Some(part) = parts::opaque_part(part).filter(|part| !is_detail_data(part)) {
            self.emit_opaque(part, raw.len(), out);
        }
    }

    /// Emits opaque state of this wire.
    fn emit_opaque(&mut self, data: Value, length: usize, out: &mut dyn EventSink) {
        if self.opaque_budget.try_reserve(length, out) {
            out.push_event(Event::Opaque(&OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data,
            }));
        }
    }

    /// Decodes a call or a piece of one.
    fn decode_call(&mut self, called: &FunctionCall<'_>, signature: &str, out: &mut dyn EventSink) {
        // `willContinue` announces further parts of this call.
        let more = called.will_continue.is_some_and(is_true);
        let pieces = &called.partial_args.0;
        if self.partial.is_some() && !self.is_continuation(called) {
            // The call in progress never got its last part, so its arguments are incomplete.
            self.partial = None;
            if let Some(call) = self.state.calls.list.last_mut() {
                call.truncate_call(Truncation::Broken, &mut self.state.calls.next_index, out);
            }
        }
        if self.partial.is_none() {
            let empty = called.name.as_str().is_empty()
                && called.id.as_str().is_empty()
                && pieces.is_empty();
            if empty && called.args.is_none() && !more {
                // An empty part ends a call that has ended already.
                self.state.status.skipped += 1;
                return;
            }
            if !self.begin_call(called, out) {
                return;
            }
            // Whole arguments need no assembly.
            self.partial = (more || !pieces.is_empty()).then(PartialArguments::default);
        }
        self.decode_arguments(called, out);
        if !signature.is_empty() {
            self.emit_opaque(parts::call_signature_state(signature), signature.len(), out);
        }
        if more {
            return;
        }
        self.partial = None;
        if let Some(call) = self.state.calls.list.last_mut() {
            call.mark_end_seen(&mut self.state.calls.next_index, out);
            if let Some(reason) = self.state.reason {
                call.apply_stop_reason(reason, &mut self.state.calls.next_index, out);
            }
        }
    }

    /// Returns true if a part continues the call in progress.
    fn is_continuation(&self, called: &FunctionCall<'_>) -> bool {
        let id = called.id.as_str();
        let name = called.name.as_str();
        self.state.calls.list.last().is_some_and(|call| {
            let same = (id.is_empty() || id == call.id) && (name.is_empty() || name == call.name);
            // A part with the same name but whole arguments is a new call.
            same && (name.is_empty() || !called.partial_args.0.is_empty())
        })
    }

    /// Starts a call. Returns false if there are too many.
    fn begin_call(&mut self, called: &FunctionCall<'_>, out: &mut dyn EventSink) -> bool {
        let position = self
            .state
            .begin_call(NativeCall::new(None, called.id.as_str()), out);
        if let Some(call) = position.and_then(|position| self.state.calls.list.get_mut(position)) {
            call.set_name(called.name.as_str(), &mut self.state.calls.next_index, out);
        }
        position.is_some()
    }

    /// Adds arguments to the last call.
    fn decode_arguments(&mut self, called: &FunctionCall<'_>, out: &mut dyn EventSink) {
        let Some(call) = self.state.calls.list.last_mut() else {
            return;
        };
        let Some(partial) = &mut self.partial else {
            return call.push_arguments(called.args.map_or("", RawValue::get), out);
        };
        let mut text = String::new();
        for piece in &called.partial_args.0 {
            if partial.append_fragment(piece, &mut text).is_none() {
                call.mark_damaged();
                let message =
                    "a piece of the arguments has a path that cannot be added to what came before";
                out.push_event(Event::Fault(&Fault::warning(
                    FaultKind::Provider,
                    Span::default(),
                    message,
                )));
                return;
            }
        }
        if !called.will_continue.is_some_and(is_true) {
            // The last piece closes the JSON text; only now its end is known.
            partial.close_all(&mut text);
        }
        call.push_arguments(&text, out);
    }
}

/// Emits the token counts, if there are any.
fn emit_usage(tokens: &TokenCounts, out: &mut dyn EventSink) {
    let sum = |a: LenientCount, b: LenientCount| match (a.0, b.0) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or_default().saturating_add(b.unwrap_or_default())),
    };
    let usage = Usage {
        // The API counts results of server tools, and thoughts, separately.
        input: sum(
            tokens.prompt_token_count,
            tokens.tool_use_prompt_token_count,
        ),
        output: sum(tokens.candidates_token_count, tokens.thoughts_token_count),
        cache_read: tokens.cached_content_token_count.0,
        cache_write: None,
        reasoning: tokens.thoughts_token_count.0,
    };
    if usage != Usage::default() {
        out.push_event(Event::Usage(usage));
    }
}

/// Returns true for the JSON value `true`.
fn is_true(raw: &RawValue) -> bool {
    raw.get() == "true"
}

/// Returns the separator before the provider's explanation, if there is one.
fn message_separator(said: &str) -> &str {
    if said.is_empty() { "" } else { ": " }
}
