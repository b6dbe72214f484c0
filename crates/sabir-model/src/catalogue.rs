//! Looks up the limits, abilities and prices of models by name.
//!
//! Names are matched by pattern, because providers add dates, sizes and owners to them:
//! `claude-sonnet-4-5` matches `anthropic/claude-sonnet-4-5-20250929`. An unknown version
//! (`gpt-5.9` if the table ends at `gpt-5.5`) inherits the abilities of its family, but no figures.
//! A price applies only to the exact model at its vendor's own address, because resellers have
//! their own prices.
//!
//! Source of the facts: the vendors' model and price lists, as published by them and collected in
//! the public catalogue models.dev, read in 2026. Facts that are contradictory there, change by the
//! hour or could not be read are left out: unknown is `None`, never zero. The user's own entries
//! take precedence.

mod table;

use sabir_call::{TextRecovery, TokenPrices};
use serde::{Deserialize, Serialize};

use crate::provider::{Provider, is_local};

pub(crate) use table::builtin_entries;

/// The known facts about the models that a pattern matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelEntry {
    /// The prefix of the names that match. It is compared to the part after the last `/`, to the
    /// whole name, and to `PROVIDER/` and the whole name, ignoring case. The longest matching
    /// pattern wins.
    pub pattern: String,
    /// The vendor that makes and sells it; `None` for open weights that anyone may serve.
    #[serde(skip_deserializing)]
    pub vendor: Option<String>,
    /// The context in tokens, input and output together.
    pub context: Option<u64>,
    /// The largest output of one response in tokens.
    pub output: Option<u64>,
    /// True if it was trained for its provider's native calls.
    pub native: Option<bool>,
    /// The dialect for prompted calls.
    pub dialect: Option<String>,
    /// True if it reads images.
    pub images: Option<bool>,
    /// True if it can think before it answers.
    pub thinking: Option<bool>,
    /// The tool that it is offered for editing parts of files.
    pub edit_tool: Option<String>,
    /// The treatment of calls that it writes as text in a native session; only in a user's entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<TextRecovery>,
    /// True if its server renders a chat template, so that special tokens in files must be broken;
    /// only in a user's entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape_tokens: Option<bool>,
    /// The end of the prompt that its answers continue, such as `<think>`: the thought that it opens continues in
    /// the answer; only in a user's entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// The repairs of its calls that are off by default and on for it: names of rules such as `missing_last_close`; only
    /// in a user's entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_on: Option<Vec<String>>,
    /// The vendor's prices for a million tokens; in a user's own entry, the provider's prices.
    pub prices: Option<TokenPrices>,
}

/// The built-in table, preceded by the user's own entries.
#[derive(Debug, Clone, Default)]
pub struct ModelCatalogue {
    /// The user's entries, in any order.
    own: Vec<ModelEntry>,
}

/// The relation of a name to a pattern with which it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternMatch {
    /// The exact model: the same name, or followed by a date or `-latest`.
    Same,
    /// A size, a tuning or another name of the same version.
    Variant,
    /// Another version.
    Version,
}

impl ModelCatalogue {
    /// Makes a catalogue of the built-in table and the user's entries, which take precedence.
    pub fn new(own: Vec<ModelEntry>) -> Self {
        Self { own }
    }

    /// Returns all entries: the user's, then the table's.
    pub fn all_entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.own.iter().chain(builtin_entries())
    }

    /// Returns the known facts about a model of a provider, whose name a user's pattern may contain. Missing fields of the user's entry
    /// come from the table, whose prices are the vendor's; see [`ModelCatalogue::resolve_prices`] for the price at a provider.
    pub fn find_model(&self, provider: &str, model: &str) -> Option<ModelEntry> {
        let own = self.find_user_entry(|entry| matches_pattern(&entry.pattern, provider, model));
        // A row is trusted less the further the name is from its pattern.
        let known = find_known_entry(model).map(|(entry, kin)| match kin {
            PatternMatch::Same => entry,
            // Variants share the limits of their version, but `-fast` or `-mini` may have other
            // prices.
            PatternMatch::Variant => ModelEntry {
                prices: None,
                ..entry
            },
            PatternMatch::Version => ModelEntry {
                context: None,
                output: None,
                prices: None,
                ..entry
            },
        });
        match (own.cloned(), known) {
            (Some(own), Some(known)) => Some(ModelEntry {
                vendor: known.vendor,
                context: own.context.or(known.context),
                output: own.output.or(known.output),
                // If the user's entry names a dialect, the model should be prompted.
                native: own.native.or(if own.dialect.is_some() {
                    Some(false)
                } else {
                    known.native
                }),
                images: own.images.or(known.images),
                thinking: own.thinking.or(known.thinking),
                edit_tool: own.edit_tool.or(known.edit_tool),
                prices: own.prices.or(known.prices),
                ..own
            }),
            (own, known) => own.or(known),
        }
    }

    /// Returns the output limit of a model that the user set.
    pub fn user_output_limit(&self, provider: &str, model: &str) -> Option<u64> {
        let has_limit = |entry: &ModelEntry| {
            entry.output.is_some() && matches_pattern(&entry.pattern, provider, model)
        };
        self.find_user_entry(has_limit)?.output
    }

    /// Returns the prices of a model at a provider: the prices in the user's entry; zero on a server on this machine; the
    /// vendor's at the vendor's own address. Any other price is unknown.
    pub fn resolve_prices(&self, provider: &Provider, model: &str) -> TokenPrices {
        let has_price = |entry: &ModelEntry| {
            entry.prices.is_some() && matches_pattern(&entry.pattern, &provider.name, model)
        };
        if let Some(prices) = self
            .find_user_entry(has_price)
            .and_then(|entry| entry.prices)
        {
            return prices;
        }
        // Ollama forwards models with such names to its paid cloud.
        let hosted = model.ends_with("-cloud") || model.ends_with(":cloud");
        if is_local(provider) && !hosted {
            return TokenPrices::FREE;
        }
        let known = find_known_entry(model)
            // A variant of a model may have another price.
            .filter(|(_, kin)| *kin == PatternMatch::Same)
            .map(|(entry, _)| entry);
        let own = known.filter(|entry: &ModelEntry| {
            entry
                .vendor
                .as_deref()
                .is_some_and(|vendor| table::is_vendor_address(vendor, provider))
        });
        own.and_then(|entry| entry.prices).unwrap_or_default()
    }

    /// Returns the user's entry with the longest pattern that fits.
    fn find_user_entry(&self, fits: impl Fn(&ModelEntry) -> bool) -> Option<&ModelEntry> {
        self.own
            .iter()
            // An empty pattern would match every model.
            .filter(|entry| !entry.pattern.is_empty() && fits(entry))
            .max_by_key(|entry| entry.pattern.len())
    }
}

/// Returns true if a user's pattern matches this model of this provider.
fn matches_pattern(pattern: &str, provider: &str, model: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    let whole = format!("{provider}/{model}").to_ascii_lowercase();
    let names = [
        Some(whole.as_str()),
        whole.split_once('/').map(|(_, id)| id),
        whole.rsplit('/').next(),
    ];
    names
        .into_iter()
        .flatten()
        .any(|name| name.starts_with(&pattern))
}

/// Finds the row with the longest pattern that matches a model, and how well it matches.
fn find_known_entry(model: &str) -> Option<(ModelEntry, PatternMatch)> {
    let name = model
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let entry = table::find_longest_prefix(&name)?;
    let kin = classify_suffix(name.get(entry.pattern.len()..).unwrap_or_default());
    Some((entry, kin))
}

/// Classifies the rest of a name after the pattern.
fn classify_suffix(rest: &str) -> PatternMatch {
    // `-9` and `-9-mini` count versions; `-70b` is a size, `-2507` a date.
    let number = rest.strip_prefix('-').unwrap_or(rest);
    let length = number.bytes().take_while(u8::is_ascii_digit).count();
    let behind = number.as_bytes().get(length);
    let counts = (1..=2).contains(&length) && matches!(behind, None | Some(b'-' | b'.'));
    if counts || rest.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
        return PatternMatch::Version;
    }
    // `-20250929`, `-2024-08-06` and `-preview-09-2025` are dates of the same model.
    let dated = ["-latest", "-preview"]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .unwrap_or(rest);
    let digits = dated.bytes().filter(u8::is_ascii_digit).count();
    let date = dated.starts_with('-')
        && digits >= 4
        && dated
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if dated.is_empty() || date {
        PatternMatch::Same
    } else {
        PatternMatch::Variant
    }
}

#[cfg(test)]
mod tests;
