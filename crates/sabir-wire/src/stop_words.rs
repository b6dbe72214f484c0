//! Looks up the words that a wire uses for stop reasons. The first row of a reason is the word that
//! is written for it.

use sabir_call::StopReason;

/// A wire's stop words and their meanings.
pub(crate) type StopWords = [(&'static str, StopReason)];

/// Returns the meaning of a word.
pub(crate) fn reason_of_word(words: &StopWords, word: &str) -> StopReason {
    words.iter().find(|(known, _)| *known == word).map_or(StopReason::Other, |(_, reason)| *reason)
}

/// Returns the word for a reason.
pub(crate) fn word_of_reason(words: &'static StopWords, reason: StopReason) -> Option<&'static str> {
    words.iter().find(|(_, known)| *known == reason).map(|(word, _)| *word)
}
