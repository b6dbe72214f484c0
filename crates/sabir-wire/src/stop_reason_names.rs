//! Looks up the words that a wire uses for stop reasons. The first row of a reason is the word that
//! is written for it.

use sabir_call::StopReason;

/// A wire's stop words and their meanings.
///
/// Several words may mean one reason, and one word several reasons; the order of the rows decides.
pub(crate) type StopReasonNames = [(&'static str, StopReason)];

/// Returns the meaning of a word.
///
/// A word that is not in the table means `Other`. The original word always travels with the reason,
/// so nothing is lost.
pub(crate) fn reason_from_name(words: &StopReasonNames, word: &str) -> StopReason {
    words
        .iter()
        .find(|(known, _)| *known == word)
        .map_or(StopReason::Other, |(_, reason)| *reason)
}

/// Returns the word for a reason.
pub(crate) fn name_of_reason(
    words: &'static StopReasonNames,
    reason: StopReason,
) -> Option<&'static str> {
    words
        .iter()
        .find(|(_, known)| *known == reason)
        .map(|(word, _)| *word)
}

/// Returns the word for a reason: the provider's own word if the table has it with this meaning,
/// else the usual one, else `default`.
pub(crate) fn stop_reason_name<'w>(
    words: &'static StopReasonNames,
    reason: StopReason,
    raw: &'w str,
    default: &'static str,
) -> &'w str {
    // A word without a known meaning is passed on: a client of the same wire may know it.
    if reason == StopReason::Other || words.contains(&(raw, reason)) {
        return raw;
    }
    name_of_reason(words, reason).unwrap_or(default)
}

/// Returns the stop reason and the provider's word, or the usual reason of a response without one.
///
/// A draft from a stream that broke off has no reason; clients nevertheless require one.
pub(crate) fn stop_or_default(
    stop: Option<&(StopReason, String)>,
    has_calls: bool,
) -> (StopReason, &str) {
    let usual = if has_calls {
        StopReason::Calls
    } else {
        StopReason::End
    };
    stop.map_or((usual, ""), |(reason, raw)| (*reason, raw.as_str()))
}
