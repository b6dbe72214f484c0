//! The OpenAI Chat Completions API, and the many servers that speak something like it.

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
pub(crate) mod stream;

use sabir_call::{Request, StopReason};

use crate::stop;
use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "openai-chat";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/chat/completions", "/chat/completions"],
    key_header: ("authorization", "Bearer "),
    headers: &[],
    stream_type: "text/event-stream",
    said: &SAID,
    history: "messages",
    encode_request: request::encode,
    decode_request: incoming::decode,
    encode_whole: answer::whole,
    encode_error: answer::error_body,
    reader: || Box::new(stream::Stream::default()),
    writer: |head| Box::new(answer::Answer::new(head)),
};

/// What it has words for. OpenAI calls the user by another name since 2025, which other servers do not know.
const SAID: Said = Said {
    places: &[
        (Wish::Temperature, "temperature"),
        (Wish::TopP, "top_p"),
        (Wish::Seed, "seed"),
        (Wish::PresencePenalty, "presence_penalty"),
        (Wish::FrequencyPenalty, "frequency_penalty"),
        (Wish::Stop, "stop"),
        (Wish::Verbosity, "verbosity"),
        (Wish::User, "user"),
        (Wish::User, "safety_identifier"),
        (Wish::Tier, "service_tier"),
        (Wish::CacheKey, "prompt_cache_key"),
    ],
    mute: |request, form, wish| match wish {
        // OpenAI alone is known to take them, and others refuse the request.
        Wish::Verbosity | Wish::CacheKey => !form.completion_limit,
        wish => is_mute(request, wish),
    },
    lacks: &[Lack::Marks, Lack::Failed],
};

/// The longest name of a user that OpenAI takes.
const LONGEST_USER: usize = 64;

/// Whether OpenAI refuses a wish of this request.
pub(crate) fn is_mute(request: &Request, wish: Wish) -> bool {
    match wish {
        Wish::User => request.wishes.user.as_ref().is_some_and(|user| user.chars().count() > LONGEST_USER),
        // Anthropic's word.
        Wish::Tier => request.wishes.tier.as_ref().is_some_and(|tier| tier == "standard_only"),
        _ => false,
    }
}

/// Words and reasons. The first row of a reason is the word that is written for it.
const REASONS: [(&str, StopReason); 14] = [
    ("stop", StopReason::End),
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

pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop::reason(&REASONS, word)
}

/// The words that clients know. Others of the list are read from servers that have them, and not written.
const WORDS: [&str; 5] = ["stop", "tool_calls", "function_call", "length", "content_filter"];

/// The word for a reason: the provider's own if it is one that clients know, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other || WORDS.contains(&raw) && REASONS.contains(&(raw, reason)) {
        return raw;
    }
    match reason {
        StopReason::Sequence => "stop",
        _ => stop::word(&REASONS, reason).unwrap_or("stop"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_clients_know_are_written() {
        let check = |reason, raw: &str, expected: &str| assert_eq!(stop_word(reason, raw), expected, "{raw}");
        check(StopReason::End, "end_turn", "stop");
        check(StopReason::Calls, "tool_use", "tool_calls");
        check(StopReason::Calls, "function_call", "function_call");
        check(StopReason::Length, "MAX_TOKENS", "length");
        check(StopReason::Refused, "refusal", "content_filter");
        check(StopReason::Other, "insufficient_system_resource", "insufficient_system_resource");
    }
}
