//! What is known of models by their names.
//!
//! Names are matched by pattern, since providers add dates, sizes and owners to them: `anthropic/claude-sonnet-4-5-20250929`
//! is matched by `claude-sonnet-4-5`. Another version (`gpt-5.9` where the table ends at `gpt-5.5`) takes over what its family
//! can do, and no figure. A price holds only for the very model, at its vendor's own address: resellers have their own.
//!
//! Source of the facts: the vendors' model and price lists, as published by them and collected in the public catalogue
//! models.dev, read in 2026. What is contradictory there, changes by the hour or could not be read is left out: unknown is
//! `None`, never zero. A user's own entries come first.

mod table;

use sabir_call::TokenPrices;
use serde::{Deserialize, Serialize};

use crate::provider::{Provider, is_local};

pub(crate) use table::builtin_entries;

/// What is known of the models that a pattern matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelEntry {
    /// What the name begins with: behind its last `/`, or the whole of it, or `PROVIDER/` and the whole; letter case does
    /// not count. The longest pattern wins.
    pub pattern: String,
    /// Who makes it and sells it; `None` for open weights that anybody serves.
    #[serde(skip_deserializing)]
    pub vendor: Option<String>,
    /// The context in tokens, input and output together.
    pub context: Option<u64>,
    /// The most output tokens of one response.
    pub output: Option<u64>,
    /// Whether it has been trained for its provider's native calls.
    pub native: Option<bool>,
    /// The dialect to prompt it in, if it is prompted.
    pub dialect: Option<String>,
    /// Whether it reads images.
    pub images: Option<bool>,
    /// Whether it can think before it answers.
    pub thinking: Option<bool>,
    /// The tool that it is offered to change parts of files.
    pub edit_tool: Option<String>,
    /// What its vendor wants for a million tokens; of a user's own entry, what its provider wants.
    pub prices: Option<TokenPrices>,
}

/// The table with a user's own entries before it.
#[derive(Debug, Clone, Default)]
pub struct ModelCatalogue {
    own: Vec<ModelEntry>,
}

/// How a name lies to a pattern that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternMatch {
    /// The very model: the same name, or with a date or `-latest` behind it.
    Same,
    /// A size, a tuning or another name of the same version.
    Variant,
    /// Another version.
    Version,
}

impl ModelCatalogue {
    /// The table, with a user's entries that win over it.
    pub fn new(own: Vec<ModelEntry>) -> Self {
        Self { own }
    }

    /// All entries: the user's, then the table's.
    pub fn all_entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.own.iter().chain(builtin_entries())
    }

    /// What is known of a model. Fields that the user's entry leaves open are filled from the table; the table's prices are
    /// its vendor's, see [`ModelCatalogue::resolve_prices`] for what is paid somewhere.
    pub fn find_model(&self, model: &str) -> Option<ModelEntry> {
        let own = self.find_own_entry(|entry| matches_pattern(&entry.pattern, "", model));
        let known = find_known_entry(model).map(|(entry, kin)| match kin {
            PatternMatch::Same => entry.clone(),
            PatternMatch::Variant => ModelEntry { prices: None, ..entry.clone() },
            PatternMatch::Version => ModelEntry { context: None, output: None, prices: None, ..entry.clone() },
        });
        match (own.cloned(), known) {
            (Some(own), Some(known)) => Some(ModelEntry {
                vendor: known.vendor,
                context: own.context.or(known.context),
                output: own.output.or(known.output),
                // A dialect of the user's own says that the model is to be prompted.
                native: own.native.or(if own.dialect.is_some() { Some(false) } else { known.native }),
                images: own.images.or(known.images),
                thinking: own.thinking.or(known.thinking),
                edit_tool: own.edit_tool.or(known.edit_tool),
                prices: own.prices.or(known.prices),
                ..own
            }),
            (own, known) => own.or(known),
        }
    }

    /// What a model costs at a provider: what the user says; nothing on a server of this machine; the vendor's prices at the
    /// vendor's own address. Anything else is unknown.
    pub fn resolve_prices(&self, provider: &Provider, model: &str) -> TokenPrices {
        let told =
            |entry: &ModelEntry| entry.prices.is_some() && matches_pattern(&entry.pattern, &provider.name, model);
        if let Some(prices) = self.find_own_entry(told).and_then(|entry| entry.prices) {
            return prices;
        }
        let hosted = model.ends_with("-cloud") || model.ends_with(":cloud");
        if is_local(provider) && !hosted {
            return TokenPrices::FREE;
        }
        let known = find_known_entry(model).filter(|(_, kin)| *kin == PatternMatch::Same).map(|(entry, _)| entry);
        let own = known
            .filter(|entry| entry.vendor.as_deref().is_some_and(|vendor| table::is_vendor_address(vendor, provider)));
        own.and_then(|entry| entry.prices).unwrap_or_default()
    }

    fn find_own_entry(&self, fits: impl Fn(&ModelEntry) -> bool) -> Option<&ModelEntry> {
        self.own.iter().filter(|entry| !entry.pattern.is_empty() && fits(entry)).max_by_key(|entry| entry.pattern.len())
    }
}

/// Whether a user's pattern speaks of that model of that provider.
fn matches_pattern(pattern: &str, provider: &str, model: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    let whole = format!("{provider}/{model}").to_ascii_lowercase();
    let names = [Some(whole.as_str()), whole.split_once('/').map(|(_, id)| id), whole.rsplit('/').next()];
    names.into_iter().flatten().any(|name| name.starts_with(&pattern))
}

/// The row of a model, the longest pattern first, and how near it is.
fn find_known_entry(model: &str) -> Option<(&'static ModelEntry, PatternMatch)> {
    let name = model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let rows = builtin_entries().iter().filter(|entry| name.starts_with(&entry.pattern));
    let entry = rows.max_by_key(|entry| entry.pattern.len())?;
    Some((entry, classify_suffix(name.get(entry.pattern.len()..).unwrap_or_default())))
}

/// What the rest of a name behind its pattern says.
fn classify_suffix(rest: &str) -> PatternMatch {
    // `-9` and `-9-mini` count versions; `-70b` is a size, `-2507` a date.
    let number = rest.strip_prefix('-').unwrap_or(rest);
    let length = number.bytes().take_while(u8::is_ascii_digit).count();
    let behind = number.as_bytes().get(length);
    let counts = (1..=2).contains(&length) && matches!(behind, None | Some(b'-' | b'.'));
    if counts || rest.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
        return PatternMatch::Version;
    }
    let dated = ["-latest", "-preview"].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
    let digits = dated.bytes().filter(u8::is_ascii_digit).count();
    let date = dated.starts_with('-') && digits >= 4 && dated.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if dated.is_empty() || date { PatternMatch::Same } else { PatternMatch::Variant }
}

#[cfg(test)]
mod tests;
