//! Words for how an answer stopped, as a wire's table has them. The first row of a reason is the word that is written for it.

use sabir_call::StopReason;

/// A wire's words and what they mean.
pub(crate) type StopWords = [(&'static str, StopReason)];

/// What a word means.
pub(crate) fn reason_of_word(words: &StopWords, word: &str) -> StopReason {
    words.iter().find(|(known, _)| *known == word).map_or(StopReason::Other, |(_, reason)| *reason)
}

/// The word for a reason.
pub(crate) fn word_of_reason(words: &'static StopWords, reason: StopReason) -> Option<&'static str> {
    words.iter().find(|(_, known)| *known == reason).map(|(word, _)| *word)
}
