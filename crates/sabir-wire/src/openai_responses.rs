//! The OpenAI Responses API, and what is compatible with it.
//!
//! State never stays with the provider: requests say `store: false` and carry the whole history. What a model must see
//! again travels as opaque state, each in the form of the item that it came in: `reasoning` items with their encrypted
//! content, items of server tools, `compaction`. State of type `message` is no item: it holds the `phase` of the message
//! whose words follow it.

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
mod shape;
pub(crate) mod stream;
mod told;
mod written;

pub(crate) use incoming::freeform;
pub(crate) use written::Written;

use sabir_call::StopReason;

use crate::openai_chat::is_mute;
use crate::stop;
use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "openai-responses";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/responses", "/responses"],
    key_header: ("authorization", "Bearer "),
    headers: &[],
    stream_type: "text/event-stream",
    said: &SAID,
    history: "input",
    encode_request: request::encode,
    decode_request: incoming::decode,
    encode_whole: answer::whole,
    encode_error: crate::openai_chat::answer::error_body,
    reader: || Box::new(stream::Stream::default()),
    writer: |head| Box::new(answer::Answer::new(head)),
};

/// What it has words for. It knows no text that ends the answer.
const SAID: Said = Said {
    places: &[
        (Wish::Temperature, "temperature"),
        (Wish::TopP, "top_p"),
        (Wish::Verbosity, "text.verbosity"),
        (Wish::User, "user"),
        (Wish::User, "safety_identifier"),
        (Wish::Tier, "service_tier"),
        (Wish::CacheKey, "prompt_cache_key"),
    ],
    mute: |request, _, wish| is_mute(request, wish),
    lacks: &[Lack::Marks, Lack::Failed],
};

/// Words for an answer that is not complete, and reasons. The first row of a reason is the word that is written for it.
const REASONS: [(&str, StopReason); 5] = [
    ("max_output_tokens", StopReason::Length),
    ("max_tokens", StopReason::Length),
    ("content_filter", StopReason::Refused),
    ("max_messages", StopReason::Other),
    ("steered", StopReason::Other),
];

/// The reason for the word of an incomplete answer; an answer that is complete ended or waits for calls.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop::reason(&REASONS, word)
}

/// The word that says why an answer is incomplete; `None` where it is complete.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> Option<&str> {
    if REASONS.contains(&(raw, reason)) {
        return Some(raw);
    }
    stop::word(&REASONS, reason).filter(|_| reason != StopReason::Other)
}
