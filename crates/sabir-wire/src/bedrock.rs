//! Amazon Bedrock: Converse and ConverseStream.
//!
//! Model and kind of answer stand in the path, not in the body; a stream is a binary one (see [`frames`](crate::frames)).

pub(crate) mod answer;
pub(crate) mod incoming;
pub(crate) mod request;
mod shape;
pub(crate) mod stream;

use sabir_call::StopReason;

use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "bedrock";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/model/{segment}/converse", "/model/{segment}/converse-stream"],
    // For an API key; other requests are signed, which is no matter of a header alone.
    key_header: ("authorization", "Bearer "),
    headers: &[],
    stream_type: "application/vnd.amazon.eventstream",
    said: &SAID,
    history: "messages",
    encode_request: request::encode,
    decode_request: incoming::decode,
    encode_whole: answer::whole,
    encode_error: answer::error_body,
    reader: || Box::new(stream::Stream::default()),
    writer: |head| Box::new(answer::Answer::new(head)),
};

/// What it has words for, whatever the model.
const SAID: Said = Said {
    places: &[
        (Wish::Temperature, "inferenceConfig.temperature"),
        (Wish::TopP, "inferenceConfig.topP"),
        (Wish::Stop, "inferenceConfig.stopSequences"),
    ],
    mute: |request, _, wish| request::is_mute(request, wish),
    lacks: &[Lack::Strict, Lack::Address, Lack::Json, Lack::Schema],
};

/// Words and reasons. The first row of a reason is the word that is written for it.
const REASONS: [(&str, StopReason); 7] = [
    ("end_turn", StopReason::End),
    ("tool_use", StopReason::Calls),
    ("max_tokens", StopReason::Length),
    ("model_context_window_exceeded", StopReason::Length),
    ("stop_sequence", StopReason::Sequence),
    ("content_filtered", StopReason::Refused),
    ("guardrail_intervened", StopReason::Refused),
];

pub(crate) fn stop_reason(word: &str) -> StopReason {
    REASONS.iter().find(|(known, _)| *known == word).map_or(StopReason::Other, |(_, reason)| *reason)
}

/// The word for a reason: the provider's own if it is one of this wire's, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other || REASONS.contains(&(raw, reason)) {
        return raw;
    }
    REASONS.iter().find(|(_, known)| *known == reason).map_or("end_turn", |(word, _)| word)
}
