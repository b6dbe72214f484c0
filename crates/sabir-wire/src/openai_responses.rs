//! The OpenAI Responses API and compatible APIs.
//!
//! The provider stores no state: requests say `store: false` and carry the whole history. State
//! that the model needs again travels as opaque state in the form of its item: `reasoning` items
//! with their encrypted content, items of server tools, `compaction`. State of type `message` is
//! not an item: it holds the `phase` of the message whose text follows it.

mod argument_format;
mod argument_progress;
pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
mod event_types;

pub(crate) use argument_format::CallArgumentWriter;
pub(crate) use decode_request::decode_custom_tool_spec;

use sabir_call::StopReason;

use crate::client_body::PassthroughMembers;
use crate::openai_chat::is_param_refused;
use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::stop_reason_names;
use crate::wire::WireSpec;

/// The wire's name, also used for its opaque state.
pub(crate) const NAME: &str = "openai-responses";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["context window", "maximum context length"],
    with_numbers: "Your input exceeds the context window of this model. It has {used} tokens, and the maximum context length is {maximum} tokens. Please adjust your input and try again.",
    plain: "Your input exceeds the context window of this model. Please adjust your input and try again.",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: ["/responses", "/responses"],
    key_header: ("authorization", "Bearer "),
    required_headers: &[],
    stream_type: "text/event-stream",
    capabilities: &CAPABILITIES,
    history_member: "input",
    accepts_inline_instructions: true,
    passthrough_members: Some(PassthroughMembers {
        known: decode_request::MEMBERS,
        own: &["model", "stream", "store", "include"],
        limits: &["max_output_tokens"],
        reasoning: &["reasoning"],
        choices: None,
        adapt_body: |_, _, _| {},
        unify_spellings: |_, _| Ok(()),
        clean_history: event_types::drop_unusable_reasoning,
    }),
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    overflow_messages: OVERFLOW_WORDS,
    encode_error: crate::openai_chat::encode_response::encode_error,
    new_decoder: || Box::new(decode_response::OpenAiResponsesDecoder::default()),
    new_encoder: |head| Box::new(encode_response::OpenAiResponsesEncoder::new(head)),
};

/// The parameters and features that the wire supports. It has no stop sequences.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "temperature"),
        (RequestParam::TopP, "top_p"),
        (RequestParam::Verbosity, "text.verbosity"),
        (RequestParam::User, "user"),
        (RequestParam::User, "safety_identifier"),
        (RequestParam::Tier, "service_tier"),
        (RequestParam::CacheKey, "prompt_cache_key"),
    ],
    is_param_refused: |request, _, param| is_param_refused(request, param),
    is_thinking_refused: |_| false,
    unsupported: &[
        UnsupportedFeature::CacheMarks,
        UnsupportedFeature::FailedResult,
    ],
};

/// Reasons for an incomplete response. The first row of a reason is the word that is written for
/// it.
const STOP_REASONS: [(&str, StopReason); 5] = [
    ("max_output_tokens", StopReason::Length),
    ("max_tokens", StopReason::Length),
    ("content_filter", StopReason::Refused),
    ("max_messages", StopReason::Other),
    ("steered", StopReason::Other),
];

/// Returns the meaning of the word of an incomplete response. A complete response ended or waits
/// for calls.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop_reason_names::reason_from_name(&STOP_REASONS, word)
}

/// Returns the word that tells why a response is incomplete; `None` if it is complete.
pub(crate) fn stop_reason_name(reason: StopReason, raw: &str) -> Option<&str> {
    if STOP_REASONS.contains(&(raw, reason)) {
        return Some(raw);
    }
    stop_reason_names::name_of_reason(&STOP_REASONS, reason).filter(|_| reason != StopReason::Other)
}
