//! The Ollama chat API: `POST /api/chat`, answered with one JSON object a line.

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
pub(crate) mod stream;

use sabir_call::StopReason;

use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name. It has no opaque state.
pub(crate) const NAME: &str = "ollama";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/api/chat", "/api/chat"],
    key_header: ("authorization", "Bearer "),
    headers: &[],
    stream_type: "application/x-ndjson",
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
        (Wish::Temperature, "options.temperature"),
        (Wish::TopP, "options.top_p"),
        (Wish::TopK, "options.top_k"),
        (Wish::Seed, "options.seed"),
        (Wish::PresencePenalty, "options.presence_penalty"),
        (Wish::FrequencyPenalty, "options.frequency_penalty"),
        (Wish::Stop, "options.stop"),
    ],
    mute: |_, _, _| false,
    lacks: &[Lack::Force, Lack::One, Lack::Strict, Lack::Address, Lack::Marks, Lack::Failed],
};

pub(crate) fn stop_reason(word: &str) -> StopReason {
    match word {
        "" | "stop" => StopReason::End,
        "length" => StopReason::Length,
        _ => StopReason::Other,
    }
}

/// The word for a reason: the wire has two, and those of other reasons it does not know.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    match reason {
        StopReason::Length => "length",
        StopReason::Other if !raw.is_empty() => raw,
        _ => "stop",
    }
}
