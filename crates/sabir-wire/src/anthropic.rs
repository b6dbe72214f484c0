//! The Anthropic Messages API, version 2023-06-01.

mod answer_details;
pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
pub(crate) mod thinking;

use sabir_call::StopReason;

use crate::client_body::PassthroughMembers;
use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::stop_reason_names;
use crate::wire::WireSpec;

/// The wire's name, also used for its opaque state.
pub(crate) const NAME: &str = "anthropic";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["prompt is too long", "exceed context limit"],
    with_numbers: "prompt is too long: {used} tokens > {maximum} maximum",
    plain: "prompt is too long",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: ["/v1/messages", "/v1/messages"],
    key_header: ("x-api-key", ""),
    required_headers: &[("anthropic-version", "2023-06-01")],
    stream_type: "text/event-stream",
    capabilities: &CAPABILITIES,
    history_member: "messages",
    accepts_inline_instructions: false,
    passthrough_members: Some(PassthroughMembers {
        known: decode_request::MEMBERS,
        own: &["model", "stream"],
        limits: &["max_tokens"],
        reasoning: &["thinking", "output_config.effort"],
        choices: None,
        adapt_body: |_, _, _| {},
        unify_spellings: |_, _| Ok(()),
        clean_history: |_| {},
    }),
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    overflow_messages: OVERFLOW_WORDS,
    encode_error: encode_response::encode_error,
    new_decoder: || Box::new(decode_response::AnthropicDecoder::default()),
    new_encoder: |head| Box::new(encode_response::AnthropicEncoder::new(head)),
};

/// The parameters and features that the wire supports.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "temperature"),
        (RequestParam::TopP, "top_p"),
        (RequestParam::TopK, "top_k"),
        (RequestParam::Stop, "stop_sequences"),
        (RequestParam::User, "metadata.user_id"),
        (RequestParam::Tier, "service_tier"),
    ],
    is_param_refused: encode_request::is_param_refused,
    is_thinking_refused: encode_request::is_thinking_refused,
    unsupported: &[UnsupportedFeature::JsonFormat],
};

/// Stop words and reasons. The first row of a reason is the word that is written for it.
const STOP_REASONS: [(&str, StopReason); 8] = [
    ("end_turn", StopReason::End),
    ("tool_use", StopReason::Calls),
    ("max_tokens", StopReason::Length),
    ("model_context_window_exceeded", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("refusal", StopReason::Refused),
    ("pause_turn", StopReason::Paused),
    ("compaction", StopReason::Paused),
];

/// Returns the meaning of a stop word.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop_reason_names::reason_from_name(&STOP_REASONS, word)
}

/// Returns the word for a reason: the provider's own word if it is one of this wire's, else the
/// usual one.
pub(crate) fn stop_reason_name(reason: StopReason, raw: &str) -> &str {
    stop_reason_names::stop_reason_name(&STOP_REASONS, reason, raw, "end_turn")
}
