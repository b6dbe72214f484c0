//! Parses the built-in table of models from its text, once.

use std::sync::OnceLock;

use sabir_call::{Dollars, TokenPrices};

use super::ModelEntry;
use crate::provider::{Provider, host_of};

/// The table as text: one row for each pattern. Numbers are tokens, prices are dollars for a
/// million tokens, and `-` is unknown.
const TABLE_TEXT: &str = include_str!("table.txt");

/// The host of each vendor's own API. The table's prices apply at these hosts only.
const VENDOR_HOSTS: [(&str, &str); 10] = [
    ("anthropic", "api.anthropic.com"),
    ("openai", "api.openai.com"),
    ("gemini", "generativelanguage.googleapis.com"),
    ("xai", "api.x.ai"),
    ("mistral", "api.mistral.ai"),
    ("alibaba", "dashscope-intl.aliyuncs.com"),
    ("moonshot", "api.moonshot.ai"),
    ("zai", "api.z.ai"),
    ("minimax", "api.minimax.io"),
    ("cohere", "api.cohere.ai"),
];

/// Returns the rows. A malformed row is left out here, and a test fails for it.
pub(crate) fn builtin_entries() -> &'static [ModelEntry] {
    static TABLE: OnceLock<Vec<ModelEntry>> = OnceLock::new();
    TABLE.get_or_init(|| {
        table_lines()
            .iter()
            .filter_map(|line| parse_row(line))
            .collect()
    })
}

/// Returns the row with the longest pattern with which a name, in lower case, begins. Only candidate rows are parsed: most tasks use one
/// model, and parsing the whole table takes a tenth of the computing time of a short task.
pub(super) fn find_longest_prefix(name: &str) -> Option<ModelEntry> {
    let first = name.as_bytes().first();
    table_lines()
        .iter()
        // Few rows are left to split.
        .filter(|line| line.as_bytes().first() == first)
        .filter(|line| {
            let pattern = line.split_ascii_whitespace().next();
            pattern.is_some_and(|pattern| name.starts_with(pattern))
        })
        .filter_map(|line| parse_row(line))
        .max_by_key(|entry| entry.pattern.len())
}

/// Returns true if the provider's address is the vendor's own.
pub(super) fn is_vendor_address(vendor: &str, provider: &Provider) -> bool {
    VENDOR_HOSTS.iter().any(|(name, address)| {
        *name == vendor && provider.is_secure() && host_of(&provider.base_url) == *address
    })
}

/// Returns the rows as text, without comments and blank lines. They are kept: each mode of a task
/// looks up its model.
fn table_lines() -> &'static [&'static str] {
    static LINES: OnceLock<Vec<&'static str>> = OnceLock::new();
    LINES.get_or_init(|| {
        TABLE_TEXT
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect()
    })
}

/// Parses a row of twelve columns; the comment at the top of `table.txt` names them.
fn parse_row(line: &str) -> Option<ModelEntry> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [
        pattern,
        vendor,
        context,
        output,
        fresh,
        read,
        written,
        priced,
        up_to,
        can,
        dialect,
        edits,
    ] = *fields
    else {
        return None;
    };
    let text = |field: &str| (field != "-").then(|| field.to_owned());
    let can: Vec<_> = can.chars().map(parse_ability).collect::<Option<_>>()?;
    let [native, images, thinking] = *can else {
        return None;
    };
    let prices = TokenPrices {
        input: parse_price(fresh)?,
        output: parse_price(priced)?,
        cache_read: parse_price(read)?,
        cache_write: parse_price(written)?,
        up_to: parse_count(up_to)?,
    };
    Some(ModelEntry {
        pattern: pattern.to_owned(),
        vendor: text(vendor),
        context: parse_count(context)?,
        output: parse_count(output)?,
        native,
        dialect: text(dialect),
        images,
        thinking,
        edit_tool: text(edits),
        recovery: None,
        escape_tokens: None,
        prefill: None,
        repairs_on: None,
        // No price at all is unknown, never free.
        prices: (prices != TokenPrices::default()).then_some(prices),
    })
}

/// Parses a number or `-` for unknown; `None` if the field is malformed.
fn parse_count(field: &str) -> Option<Option<u64>> {
    if field == "-" {
        Some(None)
    } else {
        field.parse().ok().map(Some)
    }
}

/// Parses a price in dollars or `-` for unknown; `None` if the field is malformed.
fn parse_price(field: &str) -> Option<Option<Dollars>> {
    if field == "-" {
        Some(None)
    } else {
        field.parse().ok().map(Some)
    }
}

/// Parses an ability: `y`, `n`, or `?` for unknown; `None` for another character.
fn parse_ability(c: char) -> Option<Option<bool>> {
    match c {
        'y' => Some(Some(true)),
        'n' => Some(Some(false)),
        '?' => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_parsed_and_plausible() {
        assert_eq!(
            table_lines().iter().find(|line| parse_row(line).is_none()),
            None
        );
        let mut patterns: Vec<_> = builtin_entries()
            .iter()
            .map(|entry| entry.pattern.as_str())
            .collect();
        patterns.sort_unstable();
        assert!(
            patterns.windows(2).all(|pair| pair[0] != pair[1]),
            "a pattern occurs twice"
        );
        for entry in builtin_entries() {
            assert_eq!(entry.pattern, entry.pattern.to_ascii_lowercase());
            assert!(
                entry
                    .output
                    .zip(entry.context)
                    .is_none_or(|(output, context)| output <= context),
                "{entry:?}"
            );
            assert!(entry.vendor.as_deref().is_none_or(
                |vendor| vendor == "deepseek" || VENDOR_HOSTS.iter().any(|it| it.0 == vendor)
            ));
            let Some(prices) = entry.prices else { continue };
            // A price of zero would be a mistake in the table: no vendor in it is free.
            let all = [
                prices.input,
                prices.output,
                prices.cache_read,
                prices.cache_write,
            ];
            assert!(
                all.iter()
                    .flatten()
                    .all(|price| *price > Dollars::default()),
                "{entry:?}"
            );
            assert!(
                prices.is_known()
                    && prices.cache_read < prices.input
                    && prices.input < prices.output,
                "{entry:?}"
            );
        }
    }
}
