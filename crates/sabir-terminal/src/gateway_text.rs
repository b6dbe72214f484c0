//! Renders the gateway's output for its operator: address and settings, log lines, reloads.

use std::net::SocketAddr;

use sabir_session::gateway_setup::{
    ClientKey, ClientSettingsInput, DailyUsage, GatewayToken, KeyStoreReport, LogLine, ModelLimit,
    RecordReport, RecordedModel, ReloadedGateway, format_dollars, render_client_settings,
};

use crate::print;

/// Writes a line of the request log to standard error, made safe for a terminal.
pub fn write_log_line(line: LogLine) {
    print::write_stderr(&match line {
        LogLine::Summary(text) => format!("{}\n", print::quote_text(&text)),
        LogLine::Json(text) => format!("{text}\n"),
        LogLine::Explanation(text) => print::sanitize_text(&format!("{text}\n")),
        LogLine::Dropped(count) => {
            format!("sabir: {count} lines were left out: nobody read them in time\n")
        }
    });
}

/// Returns the text printed at the start, clean: the address, then the settings for clients.
///
/// A `quiet` gateway prints only its address, and a generated token, which is known nowhere else.
#[must_use]
pub fn startup_text(
    address: SocketAddr,
    is_secure: bool,
    token: &GatewayToken,
    names: &[String],
    quiet: bool,
) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    let line = format!("listening on {scheme}://{address}\n");
    if quiet {
        return match token {
            GatewayToken::Generated(token) => format!("{line}token {}\n", token.expose()),
            _ => line,
        };
    }
    let token = match token {
        GatewayToken::Generated(token) => token.expose().to_owned(),
        // A token given by the user is not printed: the settings name its variable.
        GatewayToken::Given(_, variable) => format!("${}", variable.as_deref().unwrap_or("TOKEN")),
        GatewayToken::None => "none".to_owned(),
    };
    let facts = ClientSettingsInput {
        address,
        is_secure,
        token: &token,
        model: names.first().map_or("MODEL", String::as_str),
        names,
    };
    line + &print::sanitize_text(&render_client_settings(&facts))
}

/// Describes a reload of the configuration, one line for each notice.
#[must_use]
pub fn reload_text(reloaded: &ReloadedGateway) -> String {
    let ignored: String = reloaded
        .ignored
        .iter()
        .map(|one| format!("sabir: {one}\n"))
        .collect();
    let models = reloaded.models.join(", ");
    format!("sabir: the configuration was reloaded; models: {models}\n{ignored}")
}

/// Describes the result of a command about keys.
#[must_use]
pub fn key_report_text(report: &KeyStoreReport) -> String {
    match report {
        KeyStoreReport::Added {
            key,
            secret,
            unchecked_models,
        } => {
            let unchecked: String = unchecked_models
                .iter()
                .map(|model| {
                    format!(
                        "The configuration names no models, so nothing checks that a gateway serves a model `{model}`.\n"
                    )
                })
                .collect();
            format!(
                "{}\nThe key of `{}` (id {}) is shown only now. Clients send it in place of the token.\n{unchecked}",
                secret.expose(),
                key.name,
                key.id
            )
        }
        KeyStoreReport::Listed(keys) if keys.is_empty() => {
            "there are no keys; add one with `sabir gateway keys add NAME`\n".to_owned()
        }
        KeyStoreReport::Listed(keys) => keys.iter().map(key_line).collect(),
        KeyStoreReport::Revoked(key) => {
            format!("the key of `{}` (id {}) is revoked\n", key.name, key.id)
        }
        KeyStoreReport::Usage { key, days } if days.is_empty() => {
            format!("the key of `{}` was not used\n", key.name)
        }
        KeyStoreReport::Usage { days, .. } => days.iter().map(usage_line).collect(),
    }
}

/// Describes a key on one line.
fn key_line(key: &ClientKey) -> String {
    let limits: Vec<String> = key.limits.iter().map(limit_words).collect();
    let limits = if limits.is_empty() {
        "no limits".to_owned()
    } else {
        limits.join("; ")
    };
    let revoked = if key.revoked_ms.is_some() {
        ", revoked"
    } else {
        ""
    };
    format!("{}  {}  {limits}{revoked}\n", key.id, key.name)
}

/// Describes a limit in the words in which it is given.
fn limit_words(limit: &ModelLimit) -> String {
    let parts = [
        limit
            .requests_per_minute
            .map(|most| format!("requests={most}")),
        limit.tokens_per_minute.map(|most| format!("tokens={most}")),
        limit.concurrent.map(|most| format!("concurrent={most}")),
        limit
            .nano_usd_per_day
            .map(|most| format!("dollars={}", format_dollars(most))),
    ];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    let model = limit.model.as_ref().map(|model| format!("{model}: "));
    model.unwrap_or_default() + &words.join(" ")
}

/// Describes the usage of a model on a day.
fn usage_line(day: &DailyUsage) -> String {
    let time = sabir_session::gateway_setup::format_timestamp(day.day_ms / 1000);
    let date = time.split('T').next().unwrap_or_default();
    let usage = &day.usage;
    format!(
        "{date}  {}  {} requests  {} tokens  ${}\n",
        usage.model,
        usage.requests,
        usage.tokens,
        format_dollars(usage.nano_usd)
    )
}

/// Describes the summary of records: a block for each model.
#[must_use]
pub fn record_report_text(report: &RecordReport) -> String {
    if report.models.is_empty() {
        return "there are no records\n".to_owned();
    }
    let mut text = String::new();
    for (name, model) in &report.models {
        text.push_str(&recorded_model_text(name, model));
    }
    if report.unreadable > 0 {
        text.push_str(&format!("{} lines cannot be read\n", report.unreadable));
    }
    text
}

/// Describes what records say about a model.
fn recorded_model_text(name: &str, model: &RecordedModel) -> String {
    let share = model.repaired_exchanges as f64 * 100.0 / model.exchanges.max(1) as f64;
    let estimated = match model.estimated_tokens {
        0 => String::new(),
        estimated => format!(" ({estimated} of them estimated)"),
    };
    let left = match model.left {
        0 => String::new(),
        left => format!(" {left} left by their clients,"),
    };
    let mut text = format!(
        "{name}\n  {} exchanges, {} failed,{left} {} calls, {} tokens{estimated}, ${}\n",
        model.exchanges,
        model.failed,
        model.calls,
        model.tokens,
        format_dollars(model.nano_usd)
    );
    text.push_str(&format!(
        "  {} exchanges repaired ({share:.1} %), which cost ${}; asked again {} times, {} faults\n",
        model.repaired_exchanges,
        format_dollars(model.repaired_nano_usd),
        model.retries,
        model.faults
    ));
    for (rule, count) in &model.repairs {
        text.push_str(&format!("    {count:>6}  {rule}\n"));
    }
    text
}
