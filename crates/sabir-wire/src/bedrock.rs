//! Amazon Bedrock: Converse and ConverseStream.
//!
//! Model and kind of answer stand in the path, not in the body; a stream is a binary one (see [`frames`](crate::frames)).

pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
mod event_types;

use sabir_call::StopReason;

use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::wire::WireSpec;

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "bedrock";

/// The wire, for the list.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: ["/model/{segment}/converse", "/model/{segment}/converse-stream"],
    // For an API key; other requests are signed, which is no matter of a header alone.
    key_header: ("authorization", "Bearer "),
    required_headers: &[],
    stream_type: "application/vnd.amazon.eventstream",
    capabilities: &CAPABILITIES,
    history_member: "messages",
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    encode_error: encode_response::encode_error,
    new_decoder: || Box::new(decode_response::BedrockDecoder::default()),
    new_encoder: |head| Box::new(encode_response::BedrockEncoder::new(head)),
};

/// What it has words for, whatever the model.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "inferenceConfig.temperature"),
        (RequestParam::TopP, "inferenceConfig.topP"),
        (RequestParam::Stop, "inferenceConfig.stopSequences"),
    ],
    is_param_refused: |request, _, wish| encode_request::is_param_refused(request, wish),
    unsupported: &[
        UnsupportedFeature::StrictArguments,
        UnsupportedFeature::ImageUrl,
        UnsupportedFeature::JsonFormat,
        UnsupportedFeature::SchemaFormat,
    ],
};

/// Words and reasons. The first row of a reason is the word that is written for it.
const STOP_REASONS: [(&str, StopReason); 7] = [
    ("end_turn", StopReason::End),
    ("tool_use", StopReason::Calls),
    ("max_tokens", StopReason::Length),
    ("model_context_window_exceeded", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("content_filtered", StopReason::Refused),
    ("guardrail_intervened", StopReason::Refused),
];

pub(crate) fn stop_reason(word: &str) -> StopReason {
    STOP_REASONS.iter().find(|(known, _)| *known == word).map_or(StopReason::Other, |(_, reason)| *reason)
}

/// The word for a reason: the provider's own if it is one of this wire's, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other || STOP_REASONS.contains(&(raw, reason)) {
        return raw;
    }
    STOP_REASONS.iter().find(|(_, known)| *known == reason).map_or("end_turn", |(word, _)| word)
}
