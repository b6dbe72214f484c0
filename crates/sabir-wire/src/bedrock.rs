//! The Amazon Bedrock API: Converse and ConverseStream.
//!
//! The path carries the model's name and selects between whole and streamed responses; the stream
//! is binary (see [`frames`](crate::frames)).

pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
mod event_types;

use sabir_call::StopReason;

use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::stop_reason_names;
use crate::wire::WireSpec;

/// The wire's name, also used for its opaque state.
pub(crate) const NAME: &str = "bedrock";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["too long", "too many input tokens"],
    with_numbers: "Input is too long for requested model: {used} tokens, of {maximum}.",
    plain: "Input is too long for requested model.",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: [
        "/model/{segment}/converse",
        "/model/{segment}/converse-stream",
    ],
    // This is for API keys. Requests with AWS credentials are signed instead, which one header
    // cannot express.
    key_header: ("authorization", "Bearer "),
    required_headers: &[],
    stream_type: "application/vnd.amazon.eventstream",
    capabilities: &CAPABILITIES,
    history_member: "messages",
    accepts_inline_instructions: false,
    passthrough_members: None,
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    overflow_messages: OVERFLOW_WORDS,
    encode_error: encode_response::encode_error,
    new_decoder: || Box::new(decode_response::BedrockDecoder::default()),
    new_encoder: |head| Box::new(encode_response::BedrockEncoder::new(head)),
};

/// The parameters and features that the wire supports for every model.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "inferenceConfig.temperature"),
        (RequestParam::TopP, "inferenceConfig.topP"),
        (RequestParam::Stop, "inferenceConfig.stopSequences"),
    ],
    is_param_refused: |request, _, param| encode_request::is_param_refused(request, param),
    is_thinking_refused: encode_request::is_thinking_refused,
    unsupported: &[
        UnsupportedFeature::StrictArguments,
        UnsupportedFeature::ImageUrl,
        UnsupportedFeature::JsonFormat,
        UnsupportedFeature::SchemaFormat,
    ],
};

/// Stop words and reasons. The first row of a reason is the word that is written for it.
const STOP_REASONS: [(&str, StopReason); 7] = [
    ("end_turn", StopReason::End),
    ("tool_use", StopReason::Calls),
    ("max_tokens", StopReason::Length),
    ("model_context_window_exceeded", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("content_filtered", StopReason::Refused),
    ("guardrail_intervened", StopReason::Refused),
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
