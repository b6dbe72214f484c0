//! Translates the headers that tell a client how much it may still ask for.
//!
//! OpenAI and the servers that follow it write `x-ratelimit-remaining-tokens: 149984` and
//! `x-ratelimit-reset-tokens: 6m0s`
//! (<https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers>), Anthropic
//! `anthropic-ratelimit-tokens-remaining` and `anthropic-ratelimit-tokens-reset` with a time in RFC
//! 3339 (<https://docs.anthropic.com/en/api/rate-limits#response-headers>).

use std::time::Duration;

use crate::timestamp::{format_timestamp, parse_timestamp};
use crate::wire::Wire;

/// The prefix of OpenAI's headers.
const OPENAI_PREFIX: &str = "x-ratelimit-";

/// The prefix of Anthropic's headers.
const ANTHROPIC_PREFIX: &str = "anthropic-ratelimit-";

/// The values that both have for each kind of limit; `reset` differs in its form.
const VALUES: [&str; 3] = ["limit", "remaining", "reset"];

/// The kinds of limits that both have.
const KINDS: [&str; 2] = ["requests", "tokens"];

/// Returns true for a header about limits and retries, by its name in lower case. A gateway passes
/// such headers on.
pub fn is_limit_header(name: &str) -> bool {
    [OPENAI_PREFIX, ANTHROPIC_PREFIX]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || name == "x-should-retry"
}

/// Returns the prefix of a wire's headers; `None` for a wire without any.
fn header_prefix(wire: Wire) -> Option<&'static str> {
    match wire {
        Wire::Anthropic => Some(ANTHROPIC_PREFIX),
        Wire::OpenAiChat | Wire::OpenAiResponses => Some(OPENAI_PREFIX),
        Wire::Gemini | Wire::Ollama | Wire::Bedrock => None,
    }
}

/// Returns the headers about limits for clients of the wire `to`, from those of a response; names
/// are in lower case. `now` is in seconds since 1970.
///
/// Headers in the form of `to` are unchanged. Of the others, those that `to` has in another form
/// are translated, and the rest is left out.
pub fn translate_rate_limits(
    to: Wire,
    headers: &[(String, String)],
    now: u64,
) -> Vec<(String, String)> {
    let Some(prefix) = header_prefix(to) else {
        return Vec::new();
    };
    let mut translated: Vec<_> = headers
        .iter()
        .filter(|(name, _)| name.starts_with(prefix) || name == "x-should-retry")
        .cloned()
        .collect();
    let value_of = |name: String| {
        headers
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    };
    for kind in KINDS {
        for value in VALUES {
            let openai = format!("{OPENAI_PREFIX}{value}-{kind}");
            let anthropic = format!("{ANTHROPIC_PREFIX}{kind}-{value}");
            let (from, target) = if to == Wire::Anthropic {
                (openai, anthropic)
            } else {
                (anthropic, openai)
            };
            if translated.iter().any(|(name, _)| *name == target) {
                continue;
            }
            let Some(found) = value_of(from) else {
                continue;
            };
            let written = match value {
                "reset" if to == Wire::Anthropic => parse_go_duration(found).map(|wait| {
                    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                    format_timestamp(now.saturating_add(seconds))
                }),
                "reset" => parse_timestamp(found).map(|at| format!("{}s", at.saturating_sub(now))),
                _ => Some(found.to_owned()),
            };
            translated.extend(written.map(|written| (target, written)));
        }
    }
    translated
}

/// Parses a duration such as `6m0s`, `1h2m3.5s` or `20ms`. A number without a unit is in seconds.
fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|sign: char| !sign.is_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" | "" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(to: Wire, headers: &[(&str, &str)], expected: &[(&str, &str)]) {
        let owned = |rows: &[(&str, &str)]| -> Vec<(String, String)> {
            rows.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        assert_eq!(
            translate_rate_limits(to, &owned(headers), 1_775_827_199),
            owned(expected),
            "{to}"
        );
    }

    #[test]
    fn limits_are_written_as_the_client_knows_them() {
        let openai = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0.5s"),
            ("x-ratelimit-reset-other", "1s"),
            ("x-should-retry", "true"),
            ("date", "x"),
        ];
        check(
            Wire::Anthropic,
            &openai,
            &[
                ("x-should-retry", "true"),
                ("anthropic-ratelimit-requests-limit", "60"),
                ("anthropic-ratelimit-tokens-remaining", "149984"),
                ("anthropic-ratelimit-tokens-reset", "2026-04-10T13:26:00Z"),
            ],
        );
        check(Wire::OpenAiResponses, &openai, &openai[..5]);
        check(Wire::Ollama, &openai, &[]);
        let anthropic = [
            ("anthropic-ratelimit-input-tokens-limit", "9"),
            ("anthropic-ratelimit-tokens-limit", "80"),
            ("anthropic-ratelimit-tokens-reset", "2026-04-10T13:20:59Z"),
        ];
        check(Wire::Anthropic, &anthropic, &anthropic);
        check(
            Wire::OpenAiChat,
            &anthropic,
            &[
                ("x-ratelimit-limit-tokens", "80"),
                ("x-ratelimit-reset-tokens", "60s"),
            ],
        );
    }

    #[test]
    fn durations_are_parsed() {
        for (text, expected) in [
            ("20ms", Some(20)),
            ("1h0m1s", Some(3_601_000)),
            ("2m59.5s", Some(179_500)),
            ("7", Some(7000)),
            ("", None),
            ("soon", None),
            ("1y", None),
            ("1e999s", None),
        ] {
            assert_eq!(
                parse_go_duration(text),
                expected.map(Duration::from_millis),
                "{text}"
            );
        }
    }
}
