//! Lists providers with the sources of their keys, servers on this machine, and the catalogue of models: the command `models`.
//!
//! No key is part of the list, and nothing is contacted here: the caller brings the servers that answered.

use std::io::{self, Write};

use sabir_call::{Dollars, ToolProtocol};
use sabir_model::{KeySource, LocalServer, ModelEntry, ProviderRow, resolve_protocol};
use serde::Serialize;
use serde_json::json;

use crate::report::Report;
use crate::text::group_digits;

/// The report of `models`.
#[derive(Debug, Serialize)]
pub struct ModelListing {
    /// The providers; `None` where only local servers were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<ProviderRow>>,
    /// The servers on this machine that answered.
    pub local: Vec<LocalServer>,
    /// The models of the catalogue; `None` where only local servers were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ListedModel>>,
}

/// A model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedModel {
    /// The facts of the catalogue, at the level of the protocol.
    #[serde(flatten)]
    pub entry: ModelEntry,
    /// The protocol that a task with such a model would use: `native`, or a dialect.
    pub protocol: String,
}

impl ListedModel {
    /// Resolves the protocol of a model.
    pub fn new(entry: ModelEntry) -> Self {
        Self {
            protocol: protocol_name(&entry),
            entry,
        }
    }
}

impl ModelListing {
    /// Keeps the entries that have `name` in their name, ignoring case. A model is also kept for its vendor, and a server of another name for
    /// its models.
    pub fn retain_matching(&mut self, name: &str) {
        let name = name.to_lowercase();
        let matches = |candidate: &str| candidate.to_lowercase().contains(&name);
        if let Some(providers) = &mut self.providers {
            providers.retain(|row| matches(&row.name));
        }
        for server in &mut self.local {
            // A server whose own name matches keeps all its models.
            if !matches(&server.provider) {
                server.models.retain(|model| matches(&model.id));
            }
        }
        self.local
            .retain(|server| matches(&server.provider) || !server.models.is_empty());
        if let Some(models) = &mut self.models {
            models.retain(|model| {
                matches(&model.entry.pattern) || model.entry.vendor.as_deref().is_some_and(matches)
            });
        }
    }
}

/// Returns the protocol that a task with such a model would use.
fn protocol_name(entry: &ModelEntry) -> String {
    match resolve_protocol(None, None, Some(entry)).0 {
        ToolProtocol::Native => "native".to_owned(),
        ToolProtocol::Prompted(dialect) => dialect,
    }
}

impl Report for ModelListing {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        let providers = self.providers.as_deref().unwrap_or_default();
        if !providers.is_empty() {
            text.push_str("providers\n");
            text.extend(providers.iter().map(provider_line));
            text.push('\n');
        }
        // Without any server the list says so only where servers were asked for.
        if !self.local.is_empty() || self.providers.is_none() {
            text.push_str("servers on this machine\n");
            text.extend(self.local.iter().map(server_lines));
            if self.local.is_empty() {
                text.push_str("  none answered\n");
            }
            text.push('\n');
        }
        let models = self.models.as_deref().unwrap_or_default();
        if !models.is_empty() {
            text.push_str(
                "models (US dollars for a million tokens at the vendor's prices; - is unknown, + more for long input)\n",
            );
            let titles = [
                "model", "vendor", "context", "output", "input", "cached", "stored", "output",
                "protocol",
            ];
            text.push_str(&table_line(titles.map(str::to_owned), ""));
            text.extend(models.iter().map(model_line));
        }
        // Each section ends with a blank line, which the last one does not need.
        let text = text.trim_end();
        if text.is_empty() {
            out.write_all(b"no name contains this text\n")
        } else {
            writeln!(out, "{text}")
        }
    }
}

/// Renders a provider on one line: its wire, address, and the source of its key.
fn provider_line(row: &ProviderRow) -> String {
    let key = match &row.key {
        KeySource::Nowhere => "no key".to_owned(),
        KeySource::File => "key in config.toml".to_owned(),
        KeySource::Command => "key from a command".to_owned(),
        KeySource::Environment { names, present } => match present {
            Some(name) => format!("{name} is set"),
            None => format!("{} is not set", names.first().map_or("", String::as_str)),
        },
    };
    // The scheme is left out where it is the usual one, so that `http` is noticed.
    let address = row
        .base_url
        .strip_prefix("https://")
        .unwrap_or(&row.base_url);
    format!(
        "  {}\n",
        truncate_width(
            &format!("{:<10} {:<16} {address:<40} {key}", row.name, row.wire),
            98
        )
    )
}

/// Renders a local server and its models.
fn server_lines(server: &LocalServer) -> String {
    let software = server.software.unwrap_or("unknown software");
    let locked = if server.locked { ", needs a key" } else { "" };
    let head = truncate_width(
        &format!(
            "{} at {} ({software}{locked})",
            server.provider, server.base_url
        ),
        98,
    );
    let models = server.models.iter().map(|model| {
        let context = model.context.map_or(String::new(), |context| {
            format!("  {} tokens", group_digits(context))
        });
        format!(
            "    {}{context}\n",
            truncate_width(&format!("{}/{}", server.provider, model.id), 70)
        )
    });
    format!("  {head}\n{}", models.collect::<String>())
}

/// Renders a model of the catalogue as a row of the table.
fn model_line(model: &ListedModel) -> String {
    let entry = &model.entry;
    // An unknown fact is a dash, since a zero would be a claim.
    let number = |count: Option<u64>| count.map_or("-".to_owned(), format_thousands);
    let prices = entry.prices.unwrap_or_default();
    // A table of prices by length would be too wide; the sign says that there is one.
    let more = if prices.up_to.is_some() { "+" } else { "" };
    let price = |price: Option<Dollars>| {
        price.map_or("-".to_owned(), |price| format!("{}{more}", json!(price)))
    };
    let vendor = entry.vendor.as_deref().unwrap_or("-");
    let can = [(entry.images, "images"), (entry.thinking, "thinks")];
    let can: Vec<_> = can
        .into_iter()
        .filter(|(can, _)| *can == Some(true))
        .map(|(_, word)| word)
        .collect();
    table_line(
        [
            truncate_width(&entry.pattern, 22),
            truncate_width(vendor, 9),
            number(entry.context),
            number(entry.output),
            price(prices.input),
            price(prices.cache_read),
            price(prices.cache_write),
            price(prices.output),
            model.protocol.clone(),
        ],
        &can.join(" "),
    )
}

/// Aligns the columns of a row.
fn table_line(
    [
        name,
        vendor,
        context,
        output,
        fresh,
        read,
        written,
        priced,
        protocol,
    ]: [String; 9],
    can: &str,
) -> String {
    let line = format!(
        "  {name:<22} {vendor:<9} {context:>7} {output:>6} {fresh:>5} {read:>6} {written:>6} {priced:>6} {protocol:<8} {can}"
    );
    format!("{}\n", truncate_width(line.trim_end(), 100))
}

/// Formats a count as `128k`; counts below ten thousand are exact.
fn format_thousands(count: u64) -> String {
    if count < 10_000 {
        count.to_string()
    } else {
        // Rounded to the nearest thousand.
        format!("{}k", group_digits(count.saturating_add(500) / 1000))
    }
}

/// Cuts a text to `width` characters.
fn truncate_width(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    // One character less, for the ellipsis.
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> ModelListing {
        let entry = |pattern: &str, vendor: &str| {
            ListedModel::new(ModelEntry {
                pattern: pattern.to_owned(),
                vendor: Some(vendor.to_owned()),
                context: Some(200_000),
                native: Some(true),
                ..ModelEntry::default()
            })
        };
        ModelListing {
            providers: Some(vec![ProviderRow {
                name: "acme".to_owned(),
                wire: "openai-chat".to_owned(),
                base_url: "https://acme.test/v1".to_owned(),
                key: KeySource::Nowhere,
            }]),
            local: Vec::new(),
            models: Some(vec![entry("one", "acme"), entry("two", "other")]),
        }
    }

    fn render(listing: &ModelListing) -> String {
        let mut text = Vec::new();
        listing.write_text(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_name_selects_by_name_and_vendor() {
        let mut listing = listing();
        listing.retain_matching("ACME");
        let text = render(&listing);
        assert!(text.starts_with("providers\n  acme "), "{text}");
        assert!(
            text.contains("  one ") && !text.contains("  two "),
            "{text}"
        );
        listing.retain_matching("nothing");
        assert_eq!(render(&listing), "no name contains this text\n");
    }

    #[test]
    fn only_local_servers_are_listed_if_asked() {
        let listing = ModelListing {
            providers: None,
            models: None,
            ..listing()
        };
        assert_eq!(
            render(&listing),
            "servers on this machine\n  none answered\n"
        );
        assert_eq!(serde_json::to_string(&listing).unwrap(), r#"{"local":[]}"#);
    }
}
