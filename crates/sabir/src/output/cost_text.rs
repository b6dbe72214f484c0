//! Formats token counts and costs as text.

use sabir_agent::UsageTotals;

/// Formats totals as `12,345 tokens in (9,000 cached), 678 out (120 reasoning), $0.0123`. Estimated
/// counts start with `~`.
pub(crate) fn usage_text(totals: &UsageTotals) -> String {
    let told = totals.usage;
    let guessed = totals.estimate;
    let part = |told: Option<u64>, guessed: Option<u64>| match (told, guessed) {
        (None, None) => "? tokens".to_owned(),
        (Some(count), None) => count_tokens(count),
        // Some requests of the task reported usage and some did not, so the sum is an estimate.
        (told, Some(guess)) => {
            format!("~{}", count_tokens(told.unwrap_or(0).saturating_add(guess)))
        }
    };
    let among = |parts: &[(Option<u64>, &str)]| {
        let parts = parts.iter().filter_map(|(count, what)| {
            count
                .filter(|count| *count > 0)
                .map(|count| format!("{} {what}", group_digits(count)))
        });
        let parts: Vec<_> = parts.collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!(" ({})", parts.join(", "))
        }
    };
    let input = part(told.input, guessed.input);
    let output = part(told.output, guessed.output);
    let cached = among(&[
        (told.cache_read, "cached"),
        (told.cache_write, "written to the cache"),
    ]);
    let reasoning = among(&[(told.reasoning, "reasoning")]);
    let cost = match totals.cost.is_unknown() {
        true => "cost unknown".to_owned(),
        false => totals.cost.to_string(),
    };
    format!("{input} in{cached}, {output} out{reasoning}, {cost}")
}

fn count_tokens(count: u64) -> String {
    format!(
        "{} token{}",
        group_digits(count),
        if count == 1 { "" } else { "s" }
    )
}

/// Formats a number with a comma between groups of three digits.
pub(crate) fn group_digits(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use sabir_call::{Cost, Usage};

    use super::*;

    #[test]
    fn words_say_what_is_known_and_how() {
        let check = |usage: &str, estimate: &str, cost: &str, expected: &str| {
            let [usage, estimate]: [Usage; 2] =
                [usage, estimate].map(|text| serde_json::from_str(text).unwrap());
            let cost: Cost = serde_json::from_str(cost).unwrap();
            assert_eq!(
                usage_text(&UsageTotals {
                    usage,
                    estimate,
                    cost
                }),
                expected
            );
        };
        check(
            r#"{"input":1234567,"output":1,"cache_read":999,"cache_write":1000,"reasoning":1}"#,
            "{}",
            r#"{"nano_usd":12300000}"#,
            "1,234,567 tokens in (999 cached, 1,000 written to the cache), 1 token out (1 reasoning), $0.0123",
        );
        check(
            "{}",
            "{}",
            "null",
            "? tokens in, ? tokens out, cost unknown",
        );
        check(
            r#"{"input":10}"#,
            r#"{"input":5,"output":7}"#,
            r#"{"nano_usd":100000,"estimated":true}"#,
            "~15 tokens in, ~7 tokens out, about $0.0001",
        );
    }
}
