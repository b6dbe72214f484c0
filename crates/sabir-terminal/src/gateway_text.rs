//! Renders the gateway's output for its operator: address and settings, log lines, reloads.

use std::net::SocketAddr;

use sabir_session::gateway_setup::{
    ClientFacts, GatewayToken, LogLine, ReloadedGateway, render_client_settings,
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
    token: &GatewayToken,
    names: &[String],
    quiet: bool,
) -> String {
    let line = format!("listening on http://{address}\n");
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
    let facts = ClientFacts {
        address,
        token: &token,
        model: names.first().map_or("MODEL", String::as_str),
        names,
    };
    line + &print::sanitize_text(&render_client_settings(&facts))
}

/// Describes a reload of the configuration, one line for each thing to know.
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
