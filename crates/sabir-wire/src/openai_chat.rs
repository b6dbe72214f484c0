//! The OpenAI Chat Completions API, and the many servers that implement a variant of it.

mod answer_details;
pub(crate) mod custom_tools;
pub(crate) mod decode_request;
pub(crate) mod decode_response;
pub(crate) mod encode_request;
pub(crate) mod encode_response;
pub(crate) mod legacy_functions;

use sabir_call::{Request, StopReason};

use crate::choice_chunk::ChoiceMembers;
use crate::client_body::PassthroughMembers;
use crate::overflow::OverflowMessages;
use crate::params::{RequestParam, UnsupportedFeature, WireCapabilities};
use crate::stop_reason_names;
use crate::wire::WireSpec;

/// The wire's name, also used for its opaque state.
pub(crate) const NAME: &str = "openai-chat";

/// The words for a history that is too long.
const OVERFLOW_WORDS: OverflowMessages = OverflowMessages {
    phrases: &["maximum context length", "context window"],
    with_numbers: "This model's maximum context length is {maximum} tokens. However, your messages resulted in {used} tokens. Please reduce the length of the messages.",
    plain: "Your messages exceed this model's maximum context length. Please reduce the length of the messages.",
};

/// The wire's entry in the list of wires.
pub(crate) const SPEC: WireSpec = WireSpec {
    name: NAME,
    endpoint_patterns: ["/chat/completions", "/chat/completions"],
    key_header: ("authorization", "Bearer "),
    required_headers: &[],
    stream_type: "text/event-stream",
    capabilities: &CAPABILITIES,
    history_member: "messages",
    accepts_inline_instructions: true,
    passthrough_members: Some(PassthroughMembers {
        known: decode_request::MEMBERS,
        own: &["model", "stream", "stream_options"],
        limits: &["max_tokens", "max_completion_tokens"],
        reasoning: &["reasoning_effort", "reasoning"],
        choices: Some(ChoiceMembers {
            count: "n",
            list: "choices",
        }),
        adapt_body: |body, request, options| {
            custom_tools::replace_custom_tools(body, request, options);
            legacy_functions::ask_for_one_call(body, request, options);
        },
        unify_spellings: legacy_functions::translate_legacy_functions,
        clean_history: |_| {},
    }),
    encode_request: encode_request::encode_request,
    decode_request: decode_request::decode_request,
    encode_response: encode_response::encode_response,
    overflow_messages: OVERFLOW_WORDS,
    encode_error: encode_response::encode_error,
    new_decoder: || Box::new(decode_response::OpenAiChatDecoder::default()),
    new_encoder: |head| Box::new(encode_response::OpenAiChatEncoder::new(head)),
};

/// The parameters and features that the wire supports. OpenAI renamed `user` to `safety_identifier`
/// in 2025; other servers know only `user`.
const CAPABILITIES: WireCapabilities = WireCapabilities {
    param_paths: &[
        (RequestParam::Temperature, "temperature"),
        (RequestParam::TopP, "top_p"),
        (RequestParam::Seed, "seed"),
        (RequestParam::PresencePenalty, "presence_penalty"),
        (RequestParam::FrequencyPenalty, "frequency_penalty"),
        (RequestParam::Stop, "stop"),
        (RequestParam::Verbosity, "verbosity"),
        (RequestParam::User, "user"),
        (RequestParam::User, "safety_identifier"),
        (RequestParam::Tier, "service_tier"),
        (RequestParam::CacheKey, "prompt_cache_key"),
    ],
    is_param_refused: |request, options, param| match param {
        // Only OpenAI is known to accept these; other servers refuse the request.
        RequestParam::Verbosity | RequestParam::CacheKey => !options.completion_limit,
        param => is_param_refused(request, param),
    },
    is_thinking_refused: |_| false,
    unsupported: &[
        UnsupportedFeature::CacheMarks,
        UnsupportedFeature::FailedResult,
    ],
};

/// The longest user identifier that OpenAI accepts, in characters.
const MAX_USER_CHARS: usize = 64;

/// Returns true if OpenAI refuses a parameter for this request.
///
/// The Responses wire shares these rules.
pub(crate) fn is_param_refused(request: &Request, param: RequestParam) -> bool {
    match param {
        RequestParam::User => request
            .options
            .user
            .as_ref()
            .is_some_and(|user| user.chars().count() > MAX_USER_CHARS),
        // `standard_only` is Anthropic's word.
        RequestParam::Tier => request
            .options
            .tier
            .as_ref()
            .is_some_and(|tier| tier == "standard_only"),
        _ => false,
    }
}

/// Stop words and reasons. The first row of a reason is the word that is written for it.
const STOP_REASONS: [(&str, StopReason); 14] = [
    ("stop", StopReason::End),
    // Words of other APIs come from gateways that pass them on untranslated.
    ("end_turn", StopReason::End),
    ("eos", StopReason::End),
    ("tool_calls", StopReason::Calls),
    ("function_call", StopReason::Calls),
    ("tool_use", StopReason::Calls),
    ("length", StopReason::Length),
    ("max_tokens", StopReason::Length),
    ("MAX_TOKENS", StopReason::Length),
    ("max_output_tokens", StopReason::Length),
    ("model_length", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("content_filter", StopReason::Refused),
    ("refusal", StopReason::Refused),
];

/// Returns the meaning of a stop word.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop_reason_names::reason_from_name(&STOP_REASONS, word)
}

/// The stop words that clients know. Other words of the table are only read, from servers that use them.
const WRITTEN_STOP_WORDS: [&str; 5] = [
    "stop",
    "tool_calls",
    "function_call",
    "length",
    "content_filter",
];

/// Returns the word for a reason: the provider's own if clients know it, else the usual one.
pub(crate) fn stop_reason_name(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other
        || WRITTEN_STOP_WORDS.contains(&raw) && STOP_REASONS.contains(&(raw, reason))
    {
        return raw;
    }
    match reason {
        // OpenAI's own word for both a natural end and a stop sequence.
        StopReason::Sequence => "stop",
        _ => stop_reason_names::name_of_reason(&STOP_REASONS, reason).unwrap_or("stop"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stop_reasons_that_clients_know_are_written() {
        let check = |reason, raw: &str, expected: &str| {
            assert_eq!(stop_reason_name(reason, raw), expected, "{raw}")
        };
        check(StopReason::End, "end_turn", "stop");
        check(StopReason::Calls, "tool_use", "tool_calls");
        check(StopReason::Calls, "function_call", "function_call");
        check(StopReason::Length, "MAX_TOKENS", "length");
        check(StopReason::Refused, "refusal", "content_filter");
        check(
            StopReason::Other,
            "insufficient_system_resource",
            "insufficient_system_resource",
        );
    }
}
