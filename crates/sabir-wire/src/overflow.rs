//! Writes the error for a history that is too long in the text that the clients of a wire look for.
//!
//! Clients start their compaction when they find a certain phrase, and some of them read the
//! numbers in it: Claude Code `prompt is too long: N tokens > M maximum`, clients of OpenAI
//! `maximum context length` or the code `context_length_exceeded`. Every provider and every server
//! has an error text of its own.

use sabir_call::ModelErrorKind;

use crate::provider_error::ProviderError;

/// The words of a wire for a history that is too long.
pub(crate) struct OverflowMessages {
    /// Phrases that its clients understand. A message with one of them stays as it is.
    pub(crate) phrases: &'static [&'static str],
    /// The message if the numbers are known; `{used}` and `{maximum}` are replaced by them.
    pub(crate) with_numbers: &'static str,
    /// The message without numbers.
    pub(crate) plain: &'static str,
}

/// The size of a request and of a context, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OverflowNumbers {
    /// The tokens of the request.
    used: u64,
    /// The most that the model takes.
    maximum: u64,
}

/// Phrases that come right before the largest number of tokens, in lower case. The first one that
/// is found with a number decides.
const MAXIMUM_PHRASES: [&str; 18] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum number of tokens allowed (",
    "maximum prompt length is ",
    "maximum model length of ",
    "max input tokens: ",
    "available context size (",
    "context size of ",
    "context window of ",
    "context length of ",
    "context length is ",
    "context limit of ",
    "too large for model with ",
    "token limit: ",
    "limit of ",
    "limit is ",
    "n_ctx=",
    "> ",
];

/// Returns an error with a message that clients of the wire understand. Errors of other kinds stay
/// as they are.
pub(crate) fn adapt_overflow_error(
    error: &ProviderError,
    words: &OverflowMessages,
) -> ProviderError {
    let mut error = error.clone();
    if error.kind != ModelErrorKind::TooLong {
        return error;
    }
    let message = error.message.to_ascii_lowercase();
    if !words.phrases.iter().any(|phrase| message.contains(phrase)) {
        error.message = match read_numbers(&message) {
            Some(numbers) => words
                .with_numbers
                .replace("{used}", &numbers.used.to_string())
                .replace("{maximum}", &numbers.maximum.to_string()),
            None => words.plain.to_owned(),
        };
    }
    error
}

/// Finds both numbers in a message in lower case. Both must be there, since half of them would
/// mislead a client that computes with them.
fn read_numbers(message: &str) -> Option<OverflowNumbers> {
    let maximum = MAXIMUM_PHRASES.iter().find_map(|phrase| {
        let (_, rest) = message.split_once(phrase)?;
        parse_numbers(rest.split(' ').next().unwrap_or_default()).next()
    })?;
    let used = parse_numbers(message)
        .filter(|count| *count > maximum)
        .max()?;
    Some(OverflowNumbers { used, maximum })
}

/// Returns the numbers of a text, which may have commas between thousands. Digits inside of names
/// such as `gpt-4` are none.
fn parse_numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|sign: char| !(sign.is_alphanumeric() || matches!(sign, ',' | '-' | '_' | '.')))
        .map(|word| word.trim_matches([',', '.', '-']))
        .filter_map(|word| word.replace(',', "").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, used: u64, maximum: u64) {
        assert_eq!(
            read_numbers(&message.to_ascii_lowercase()),
            Some(OverflowNumbers { used, maximum }),
            "{message}"
        );
    }

    #[test]
    fn numbers_are_read_from_the_words_of_providers() {
        check(
            "prompt is too long: 209353 tokens > 199999 maximum",
            209_353,
            199_999,
        );
        check(
            "This model's maximum context length is 128,000 tokens. However, your messages resulted in 204,308 tokens.",
            204_308,
            128_000,
        );
        check(
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).",
            5000,
            4096,
        );
        check(
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            1_196_265,
            1_048_575,
        );
        check(
            "Prompt contains 40961 tokens and 0 draft tokens, too large for model with 40960 maximum context length",
            40_961,
            40_960,
        );
        check(
            "Too many input tokens. Max input tokens: 8192, request input token count: 9279 ",
            9279,
            8192,
        );
    }

    #[test]
    fn half_of_the_numbers_is_none() {
        for message in [
            "input is too long for requested model.",
            "the context window of 8192 tokens is exceeded",
            "model-99999 has a context window of 8192 tokens",
            "",
        ] {
            assert_eq!(read_numbers(message), None, "{message}");
        }
    }
}
