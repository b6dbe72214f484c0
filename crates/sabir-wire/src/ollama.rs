//! The Ollama chat API: `POST /api/chat`, which answers with one JSON object per line.

pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;

use sabir_call::StopReason;

use crate::client_body::PassthroughMembers;
use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::wire::WireSpec;

/// The wire's name. It has no opaque state.
pub(crate) const NAME: &str = "ollama";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["context length", "context size"],
    with_numbers: "the input length exceeds the context length: {used} tokens, of {maximum}",
    plain: "the input length exceeds the context length",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: ["/api/chat", "/api/chat"],
    key_header: ("authorization", "Bearer "),
    required_headers: &[],
    stream_type: "application/x-ndjson",
    capabilities: &CAPABILITIES,
    history_member: "messages",
    accepts_inline_instructions: true,
    passthrough_members: Some(PassthroughMembers {
        known: decode_request::MEMBERS,
        own: &["model", "stream"],
        limits: &["options.num_predict"],
        reasoning: &["think"],
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
    new_decoder: || Box::new(decode_response::OllamaDecoder::default()),
    new_encoder: |head| Box::new(encode_response::OllamaEncoder::new(head)),
};

/// The parameters and features that the wire supports.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "options.temperature"),
        (RequestParam::TopP, "options.top_p"),
        (RequestParam::TopK, "options.top_k"),
        (RequestParam::Seed, "options.seed"),
        (RequestParam::PresencePenalty, "options.presence_penalty"),
        (RequestParam::FrequencyPenalty, "options.frequency_penalty"),
        (RequestParam::Stop, "options.stop"),
    ],
    is_param_refused: |_, _, _| false,
    is_thinking_refused: |_| false,
    unsupported: &[
        UnsupportedFeature::ForcedCall,
        UnsupportedFeature::SingleCall,
        UnsupportedFeature::StrictArguments,
        UnsupportedFeature::ImageUrl,
        UnsupportedFeature::Documents,
        UnsupportedFeature::CacheMarks,
        UnsupportedFeature::FailedResult,
    ],
};

/// Returns the meaning of a stop word.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    match word {
        "" | "stop" => StopReason::End,
        "length" => StopReason::Length,
        _ => StopReason::Other,
    }
}

/// Returns the word for a reason. The wire has two words; other words of a provider are passed on.
pub(crate) fn stop_reason_name(reason: StopReason, raw: &str) -> &str {
    match reason {
        StopReason::Length => "length",
        StopReason::Other if !raw.is_empty() => raw,
        _ => "stop",
    }
}
