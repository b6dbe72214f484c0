//! Formats counts, quotations and foreign text for reports.

/// Formats a count with its noun: `1 call`, `2 calls`.
pub fn count_noun(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Indents every line, so that foreign text cannot be mistaken for Sabir's own.
pub fn indent_lines(text: &str) -> String {
    // `lines` drops the last line feed, which the caller writes.
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Formats a number with a comma between groups of three digits: `1,234,567`.
pub fn group_digits(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        // Digits are ASCII, so bytes and characters count alike.
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Quotes foreign text in backticks on one line: escapes control characters and invisible marks, and leaves out the middle of
/// a long text.
pub fn quote_short(text: &str) -> String {
    const HEAD: usize = 40;
    const TAIL: usize = 16;
    // Positions come from `char_indices`, so that no cut falls into a character.
    let head = text
        .char_indices()
        .nth(HEAD)
        .map_or(text.len(), |(at, _)| at);
    let tail = text
        .char_indices()
        .rev()
        .nth(TAIL - 1)
        .map_or(0, |(at, _)| at);
    // A text that is only a little longer is shown whole: the ellipsis would save nothing.
    if tail <= head + TAIL {
        return format!("`{}`", quote_text(text));
    }
    let head = text.get(..head).unwrap_or_default();
    let tail = text.get(tail..).unwrap_or_default();
    format!("`{}…{}`", quote_text(head), quote_text(tail))
}

/// Writes foreign text on one line: escapes control characters and invisible marks.
pub fn quote_text(text: &str) -> String {
    let show = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        // U+FFFD is escaped too, because a terminal shows it for characters that were removed.
        c if c.is_control() || is_invisible_char(c) || c == '\u{fffd}' => {
            format!("\\u{{{:x}}}", u32::from(c))
        }
        c => c.to_string(),
    };
    text.chars().map(show).collect()
}

/// Returns true for invisible characters and those that change the direction of the text around them, which can make a
/// command or a name look different from what it is. A terminal's sanitizer lets the joiners among them through after a
/// character that is not ASCII, since emoji and Indic and Persian scripts need them.
pub fn is_invisible_char(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the JSON name of a unit variant, such as that of an outcome or a verdict; empty for anything else.
#[cfg(feature = "tasks")]
pub fn json_variant_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Formats totals as `12,345 tokens in (9,000 cached), 678 out (120 reasoning), $0.0123`. Estimated counts start with `~`.
#[cfg(feature = "tasks")]
pub fn usage_text(totals: &sabir_agent::UsageTotals) -> String {
    let reported = totals.usage;
    let estimate = totals.estimate;
    // Reported and estimated counts are added per column: a provider may report only one of them.
    let input = token_count_text(reported.input, estimate.input);
    let output = token_count_text(reported.output, estimate.output);
    let cached = breakdown_text(&[
        (reported.cache_read, "cached"),
        (reported.cache_write, "written to the cache"),
    ]);
    let reasoning = breakdown_text(&[(reported.reasoning, "reasoning")]);
    // An unknown cost is not a cost of zero, which a free model has.
    let cost = if totals.cost.is_unknown() {
        "cost unknown".to_owned()
    } else {
        totals.cost.to_string()
    };
    format!("{input} in{cached}, {output} out{reasoning}, {cost}")
}

/// Formats a count of tokens that was reported, estimated, or in part both.
#[cfg(feature = "tasks")]
fn token_count_text(reported: Option<u64>, estimate: Option<u64>) -> String {
    let counted = |count: u64| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{} token{plural}", group_digits(count))
    };
    match (reported, estimate) {
        (None, None) => "? tokens".to_owned(),
        (Some(count), None) => counted(count),
        // Some requests of the task reported usage and some did not, so the sum is an estimate.
        (reported, Some(estimate)) => {
            format!(
                "~{}",
                counted(reported.unwrap_or(0).saturating_add(estimate))
            )
        }
    }
}

/// Formats the parts of a count in brackets; parts that are zero or unknown are left out.
#[cfg(feature = "tasks")]
fn breakdown_text(parts: &[(Option<u64>, &str)]) -> String {
    let parts: Vec<_> = parts
        .iter()
        .filter_map(|(count, name)| Some((count.filter(|count| *count > 0)?, name)))
        .map(|(count, name)| format!("{} {name}", group_digits(count)))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_short_and_safe() {
        assert_eq!(quote_short("<a>\n\tx\r"), "`<a>\\n\\tx\\r`");
        assert_eq!(
            quote_short("\u{1b}[2J\u{202e}\u{fffd}"),
            "`\\u{1b}[2J\\u{202e}\\u{fffd}`"
        );
        assert_eq!(
            quote_short(&"é".repeat(60)),
            format!("`{}`", "é".repeat(60))
        );
        assert_eq!(
            quote_short(&"é".repeat(1000)),
            format!("`{}…{}`", "é".repeat(40), "é".repeat(16))
        );
        assert_eq!(quote_short(""), "``");
    }

    #[cfg(feature = "tasks")]
    #[test]
    fn usage_is_reported_or_estimated() {
        let check = |usage: &str, estimate: &str, cost: &str, expected: &str| {
            let totals = sabir_agent::UsageTotals {
                usage: serde_json::from_str(usage).unwrap(),
                estimate: serde_json::from_str(estimate).unwrap(),
                cost: serde_json::from_str(cost).unwrap(),
            };
            assert_eq!(usage_text(&totals), expected);
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
