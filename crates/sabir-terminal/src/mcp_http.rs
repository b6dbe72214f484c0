//! Serves Sabir's tools over HTTP: the token, the address, and the text for the operator.

use std::net::SocketAddr;

use clap::Args;
use sabir_session::SessionError;
use sabir_session::config::Config;
use sabir_session::gateway_setup::GatewayToken;
use sabir_session::mcp::protocol::{
    HTTP_PATH, HttpServeError, HttpServerLimits, HttpServerSettings, ToolServer, serve_over_http,
};
use sabir_session::mcp::served_token;
use serde_json::json;
use tokio::net::TcpListener;

use crate::interrupts::shutdown_signal;
use crate::print;
use crate::screen::ExitBySignal;

/// Options of `sabir mcp serve` over HTTP.
#[derive(Debug, Args)]
pub(crate) struct HttpOptions {
    /// Serve over HTTP at this address, such as `127.0.0.1:4848`. Clients need the token in SABIR_MCP_TOKEN, or the random one that is
    /// printed.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    /// Serve without a token. Then every program of this machine may use the server; other machines cannot reach it.
    #[arg(long, requires = "http")]
    no_token: bool,
    /// Another name by which clients reach the server, with its port. May be given several times.
    #[arg(long, value_name = "HOST:PORT", requires = "http")]
    host: Vec<String>,
}

/// Serves until the first SIGINT or SIGTERM, then lets running calls end. The second signal ends the process at once.
pub(crate) async fn serve_http(
    server: ToolServer,
    address: &str,
    options: &HttpOptions,
    config: &Config,
    exit: ExitBySignal,
) -> Result<(), SessionError> {
    let token = match options.no_token {
        true => GatewayToken::None,
        false => served_token(config)?,
    };
    let unusable = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::InvalidInput => "; write HOST:PORT, for example 127.0.0.1:4748",
            _ => "",
        };
        SessionError::invalid(format!(
            "the server cannot listen on {address}: {error}{hint}"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(unusable)?;
    let bound = listener.local_addr().map_err(unusable)?;
    let end = shutdown_signal(exit)
        .map_err(|error| SessionError::internal(format!("signals cannot be received: {error}")))?;
    let is_served = token.secret().is_some() || bound.ip().is_loopback();
    if is_served {
        print::write_stdout(&print::sanitize_text(&startup_text(bound, &token)));
    }
    if is_served && !bound.ip().is_loopback() {
        print::write_stderr(&format!(
            "sabir: {bound} can be reached from other machines, and is not encrypted\n"
        ));
    }
    let settings = HttpServerSettings {
        token: token.secret().map(|token| token.expose().to_owned()),
        hosts: options.host.clone(),
        limits: HttpServerLimits::default(),
    };
    serve_over_http(listener, settings, server, end)
        .await
        .map_err(|error| match error {
            HttpServeError::MissingToken(_) => {
                SessionError::invalid(format!("{error}; leave --no-token out"))
            }
            error => SessionError::internal(error.to_string()),
        })
}

/// Returns the text for the operator: the address, and an entry for clients with the same shape of settings as `.mcp.json`.
fn startup_text(address: SocketAddr, token: &GatewayToken) -> String {
    let url = format!("http://{address}{HTTP_PATH}");
    let bearer = match token {
        GatewayToken::None => None,
        // A token that the user gave is not printed.
        GatewayToken::Given(_, variable) => Some(format!(
            "Bearer ${{{}}}",
            variable.as_deref().unwrap_or("TOKEN")
        )),
        GatewayToken::Generated(token) => Some(format!("Bearer {}", token.expose())),
    };
    let entry = match bearer {
        None => json!({"type": "http", "url": url}),
        Some(bearer) => {
            json!({"type": "http", "url": url, "headers": {"Authorization": bearer}})
        }
    };
    let settings = json!({"mcpServers": {"sabir": entry}});
    format!("listening on {url}\n{settings}\n")
}
