//! The OpenAI Chat Completions API, and the many servers that speak something like it.

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
pub(crate) mod stream;

use sabir_call::StopReason;

use crate::stop;
use crate::wire::Row;

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "openai-chat";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/chat/completions", "/chat/completions"],
    key_header: ("authorization", "Bearer "),
    headers: &[],
    stream_type: "text/event-stream",
    encode_request: request::encode,
    decode_request: incoming::decode,
    encode_whole: answer::whole,
    encode_error: answer::error_body,
    reader: || Box::new(stream::Stream::default()),
    writer: |head| Box::new(answer::Answer::new(head)),
};

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

/// The word for a reason: the provider's own if it is one of this wire's, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other || REASONS.contains(&(raw, reason)) {
        return raw;
    }
    match reason {
        StopReason::Sequence => "stop",
        _ => stop::word(&REASONS, reason).unwrap_or("stop"),
    }
}
