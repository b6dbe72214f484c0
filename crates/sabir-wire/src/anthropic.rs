//! The Anthropic Messages API, version 2023-06-01.

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
pub(crate) mod stream;
pub(crate) mod thinking;

use sabir_call::StopReason;

use crate::stop;
use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "anthropic";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/v1/messages", "/v1/messages"],
    key_header: ("x-api-key", ""),
    headers: &[("anthropic-version", "2023-06-01")],
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

/// What it has words for.
const SAID: Said = Said {
    places: &[
        (Wish::Temperature, "temperature"),
        (Wish::TopP, "top_p"),
        (Wish::TopK, "top_k"),
        (Wish::Stop, "stop_sequences"),
        (Wish::User, "metadata.user_id"),
        (Wish::Tier, "service_tier"),
    ],
    mute: request::is_mute,
    lacks: &[Lack::Json],
};

/// Words and reasons. The first row of a reason is the word that is written for it.
const REASONS: [(&str, StopReason); 8] = [
    ("end_turn", StopReason::End),
    ("tool_use", StopReason::Calls),
    ("max_tokens", StopReason::Length),
    ("model_context_window_exceeded", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("refusal", StopReason::Refused),
    ("pause_turn", StopReason::Paused),
    ("compaction", StopReason::Paused),
];

pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop::reason(&REASONS, word)
}

/// The word for a reason: the provider's own if it is one of this wire's, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other || REASONS.contains(&(raw, reason)) {
        return raw;
    }
    stop::word(&REASONS, reason).unwrap_or("end_turn")
}
