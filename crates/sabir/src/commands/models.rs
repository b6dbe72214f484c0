//! Implements `models`: lists providers with the sources of their keys, servers on this machine,
//! and the catalogue of models.
//!
//! No key is shown, no command that prints a key is run, and no other machine is contacted.

use std::time::Duration;

use sabir_call::{Dollars, ToolProtocol};
use sabir_model::{LocalServer, ModelEntry, probe_servers, resolve_protocol};
use serde_json::{Value, json};

use crate::cli::{ModelsArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::cost_text::group_digits;
use crate::output::print;
use crate::surroundings;
use sabir_session::config::Config;
use sabir_session::providers::{KeySource, ProviderRow};

/// The time to wait for a server on this machine.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The lists to print.
struct ModelLists {
    providers: Vec<ProviderRow>,
    local: Vec<LocalServer>,
    models: Vec<ModelEntry>,
}

/// Runs `sabir models`.
pub(crate) fn run_models(arguments: &ModelsArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let filter = arguments
        .filter
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    let fits = |name: &str| name.to_lowercase().contains(&filter);
    let mut lists = ModelLists {
        providers: Vec::new(),
        local: probe_local_servers(&config)?,
        models: Vec::new(),
    };
    if !arguments.local {
        lists.providers = config
            .provider_rows()
            .into_iter()
            .filter(|row| fits(&row.name))
            .collect();
        let vendor = |entry: &ModelEntry| entry.vendor.as_deref().is_some_and(fits);
        lists.models = config
            .model_catalogue()
            .all_entries()
            .filter(|it| fits(&it.pattern) || vendor(it))
            .cloned()
            .collect();
    }
    for server in &mut lists.local {
        if !fits(&server.provider) {
            server.models.retain(|model| fits(&model.id));
        }
    }
    lists
        .local
        .retain(|server| fits(&server.provider) || !server.models.is_empty());
    match arguments.output {
        ReportFormat::Json => print::print_json(&to_json(&lists, arguments.local)),
        ReportFormat::Text => {
            print::write_stdout(&print::sanitize_text(&render_text(&lists, arguments.local)))
        }
    }
    Ok(ExitStatus::Completed)
}

/// Returns the servers on this machine that answer.
pub(crate) fn probe_local_servers(config: &Config) -> Result<Vec<LocalServer>, CommandError> {
    Ok(surroundings::runtime()?.block_on(probe_servers(&config.local_places(), PROBE_TIMEOUT)))
}

fn to_json(lists: &ModelLists, local: bool) -> Value {
    if local {
        return json!({"local": lists.local});
    }
    let models = lists.models.iter().map(|entry| {
        let mut model = json!(entry);
        if let Some(model) = model.as_object_mut() {
            model.insert("protocol".to_owned(), json!(protocol_name(entry)));
        }
        model
    });
    json!({"providers": lists.providers, "local": lists.local, "models": models.collect::<Vec<_>>()})
}

/// Returns the protocol that a task with such a model would use.
fn protocol_name(entry: &ModelEntry) -> String {
    match resolve_protocol(None, None, Some(entry)).0 {
        ToolProtocol::Native => "native".to_owned(),
        ToolProtocol::Prompted(dialect) => dialect,
    }
}

fn render_text(lists: &ModelLists, local: bool) -> String {
    let mut text = String::new();
    if !lists.providers.is_empty() {
        text.push_str("providers\n");
        text.extend(lists.providers.iter().map(provider_line));
        text.push('\n');
    }
    if !lists.local.is_empty() || local {
        text.push_str("servers on this machine\n");
        text.extend(lists.local.iter().map(server_lines));
        text.push_str(if lists.local.is_empty() {
            "  none answered\n"
        } else {
            ""
        });
        text.push('\n');
    }
    if !lists.models.is_empty() {
        text.push_str(
            "models (US dollars for a million tokens, at their vendor's; - is unknown, + more for long input)\n",
        );
        let titles = [
            "model", "vendor", "context", "output", "input", "cached", "stored", "output",
            "protocol",
        ];
        text.push_str(&table_line(titles.map(str::to_owned), ""));
        text.extend(lists.models.iter().map(model_line));
    }
    let text = text.trim_end();
    if text.is_empty() {
        "nothing has such a name\n".to_owned()
    } else {
        format!("{text}\n")
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
    let locked = if server.locked { ", wants a key" } else { "" };
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
fn model_line(entry: &ModelEntry) -> String {
    let number = |count: Option<u64>| count.map_or("-".to_owned(), format_thousands);
    let prices = entry.prices.unwrap_or_default();
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
            protocol_name(entry),
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
        format!("{}k", group_digits(count.saturating_add(500) / 1000))
    }
}

/// Cuts a text to `width` characters.
fn truncate_width(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}
