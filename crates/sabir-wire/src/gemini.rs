//! The Google Gemini API: `generateContent` and `streamGenerateContent`, as AI Studio and Vertex serve them.

pub(crate) mod answer;
pub(crate) mod incoming;
mod partial;
mod parts;
pub(crate) mod request;
pub(crate) mod stream;

use sabir_call::{Effort, StopReason};

use crate::stop;
use crate::wire::Row;
use crate::wishes::{Lack, Said, Wish};

/// The wire's name, also of its opaque state.
pub(crate) const NAME: &str = "gemini";

/// The type of an answer in JSON.
const JSON: &str = "application/json";

/// The wire, for the list.
pub(crate) const ROW: Row = Row {
    name: NAME,
    endpoint: ["/v1beta/models/{model}:generateContent", "/v1beta/models/{model}:streamGenerateContent?alt=sse"],
    key_header: ("x-goog-api-key", ""),
    headers: &[],
    stream_type: "text/event-stream",
    said: &SAID,
    history: "contents",
    encode_request: request::encode,
    decode_request: incoming::decode,
    encode_whole: answer::whole,
    encode_error: answer::error_body,
    reader: || Box::new(stream::Stream::default()),
    writer: |head| Box::new(answer::Answer::new(head)),
};

/// What it has words for; clients write some of them with underscores.
const SAID: Said = Said {
    places: &[
        (Wish::Temperature, "generationConfig.temperature"),
        (Wish::TopP, "generationConfig.topP"),
        (Wish::TopK, "generationConfig.topK"),
        (Wish::Seed, "generationConfig.seed"),
        (Wish::PresencePenalty, "generationConfig.presencePenalty"),
        (Wish::FrequencyPenalty, "generationConfig.frequencyPenalty"),
        (Wish::Stop, "generationConfig.stopSequences"),
        (Wish::Temperature, "generation_config.temperature"),
        (Wish::TopP, "generation_config.top_p"),
        (Wish::TopK, "generation_config.top_k"),
        (Wish::Seed, "generation_config.seed"),
        (Wish::Stop, "generation_config.stop_sequences"),
    ],
    mute: |_, _, _| false,
    lacks: &[Lack::One, Lack::Strict, Lack::Address, Lack::Marks],
};

/// The provider could not read the call that its model wrote.
const MALFORMED: &str = "MALFORMED_FUNCTION_CALL";

/// Words and reasons. The first row of a reason is the word that is written for it. `STOP` ends answers with calls too.
const REASONS: [(&str, StopReason); 14] = [
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

pub(crate) fn stop_reason(word: &str) -> StopReason {
    stop::reason(&REASONS, word)
}

/// The word for a reason: the provider's own if it may be one of this wire's, else the usual one.
pub(crate) fn stop_word(reason: StopReason, raw: &str) -> &str {
    if reason == StopReason::Other {
        let is_word = !raw.is_empty() && raw.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        return if is_word { raw } else { "OTHER" };
    }
    if REASONS.contains(&(raw, reason)) {
        return raw;
    }
    stop::word(&REASONS, reason).unwrap_or("STOP")
}

/// Words for efforts.
const EFFORTS: [(&str, Effort); 4] =
    [("MINIMAL", Effort::Minimal), ("LOW", Effort::Low), ("MEDIUM", Effort::Medium), ("HIGH", Effort::High)];

fn effort_word(effort: Effort) -> &'static str {
    EFFORTS.iter().find(|(_, known)| *known == effort).map_or("MEDIUM", |(word, _)| word)
}

fn effort_of(word: &str) -> Option<Effort> {
    EFFORTS.iter().find(|(known, _)| *known == word).map(|(_, effort)| *effort)
}
