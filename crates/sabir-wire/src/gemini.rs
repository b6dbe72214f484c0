//! The Google Gemini API: `generateContent` and `streamGenerateContent`, as AI Studio and Vertex
//! serve them.

mod answer_details;
pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
mod partial_arguments;
mod parts;

use sabir_call::{ReasoningEffort, StopReason};

use crate::choice_chunk::ChoiceMembers;
use crate::client_body::PassthroughMembers;
use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::stop_reason_names;
use crate::wire::WireSpec;

/// The wire's name, also used for its opaque state.
pub(crate) const NAME: &str = "gemini";

/// The media type of a JSON response.
const JSON_MEDIA_TYPE: &str = "application/json";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["input token count"],
    with_numbers: "The input token count ({used}) exceeds the maximum number of tokens allowed ({maximum}).",
    plain: "The input token count exceeds the maximum number of tokens allowed.",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: [
        "/v1beta/models/{model}:generateContent",
        "/v1beta/models/{model}:streamGenerateContent?alt=sse",
    ],
    key_header: ("x-goog-api-key", ""),
    required_headers: &[],
    stream_type: "text/event-stream",
    capabilities: &CAPABILITIES,
    history_member: "contents",
    accepts_inline_instructions: false,
    passthrough_members: Some(PassthroughMembers {
        known: decode_request::MEMBERS,
        // The path names the model.
        own: &["model"],
        limits: &["generationConfig.maxOutputTokens"],
        reasoning: &["generationConfig.thinkingConfig"],
        choices: Some(ChoiceMembers {
            count: "generationConfig.candidateCount",
            list: "candidates",
        }),
        adapt_body: |_, _, _| {},
        unify_spellings: decode_request::unify_spellings,
        clean_history: |_| {},
    }),
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    overflow_messages: OVERFLOW_WORDS,
    encode_error: encode_response::encode_error,
    new_decoder: || Box::new(decode_response::GeminiDecoder::default()),
    new_encoder: |head| Box::new(encode_response::GeminiEncoder::new(head)),
};

/// The parameters and features that the wire supports. Clients also use the spelling with
/// underscores for some of them.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "generationConfig.temperature"),
        (RequestParam::TopP, "generationConfig.topP"),
        (RequestParam::TopK, "generationConfig.topK"),
        (RequestParam::Seed, "generationConfig.seed"),
        (
            RequestParam::PresencePenalty,
            "generationConfig.presencePenalty",
        ),
        (
            RequestParam::FrequencyPenalty,
            "generationConfig.frequencyPenalty",
        ),
        (RequestParam::Stop, "generationConfig.stopSequences"),
        (RequestParam::Temperature, "generation_config.temperature"),
        (RequestParam::TopP, "generation_config.top_p"),
        (RequestParam::TopK, "generation_config.top_k"),
        (RequestParam::Seed, "generation_config.seed"),
        (RequestParam::Stop, "generation_config.stop_sequences"),
    ],
    is_param_refused: |_, _, _| false,
    is_thinking_refused: |_| false,
    unsupported: &[
        UnsupportedFeature::SingleCall,
        UnsupportedFeature::StrictArguments,
        UnsupportedFeature::ImageUrl,
        UnsupportedFeature::CacheMarks,
    ],
};

/// The finish reason for a call that the provider itself could not parse.
const MALFORMED: &str = "MALFORMED_FUNCTION_CALL";

/// Stop words and reasons. The first row of a reason is the word that is written for it. `STOP`
/// also ends responses with calls.
const STOP_REASONS: [(&str, StopReason); 14] = [
    ("STOP", StopReason::End),
    ("STOP", StopReason::Calls),
    ("STOP", StopReason::Sequence),
    ("STOP", StopReason::Paused),
    ("MAX_TOKENS", StopReason::Length),
    ("SAFETY", StopReason::Refused),
    ("RECITATION", StopReason::Refused),
    ("BLOCKLIST", StopReason::Refused),
    ("PROHIBITED_CONTENT", StopReason::Refused),
    ("SPII", StopReason::Refused),
    ("LANGUAGE", StopReason::Refused),
    ("IMAGE_SAFETY", StopReason::Refused),
    ("IMAGE_PROHIBITED_CONTENT", StopReason::Refused),
    ("IMAGE_RECITATION", StopReason::Refused),
];

/// Returns the meaning of a stop word.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop_reason_names::reason_from_name(&STOP_REASONS, word)
}

/// Returns the word for a reason: the provider's own word if it may be one of this wire's, else the
/// usual one.
pub(crate) fn stop_reason_name(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other {
        // The official clients parse the word as an enum constant. Words of other wires are in
        // lower case.
        let is_word = !raw.is_empty()
            && raw
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        return if is_word { raw } else { "OTHER" };
    }
    if STOP_REASONS.contains(&(raw, reason)) {
        return raw;
    }
    stop_reason_names::name_of_reason(&STOP_REASONS, reason).unwrap_or("STOP")
}

/// The words for reasoning efforts.
const EFFORTS: [(&str, ReasoningEffort); 4] = [
    ("MINIMAL", ReasoningEffort::Minimal),
    ("LOW", ReasoningEffort::Low),
    ("MEDIUM", ReasoningEffort::Medium),
    ("HIGH", ReasoningEffort::High),
];

/// Returns the word for an effort.
fn encode_effort_level(effort: ReasoningEffort) -> &'static str {
    EFFORTS
        .iter()
        .find(|(_, known)| *known == effort)
        .map_or("MEDIUM", |(word, _)| word)
}

/// Returns the effort of a word.
fn decode_effort_level(word: &str) -> Option<ReasoningEffort> {
    EFFORTS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, effort)| *effort)
}
