//! Sets up a gateway from command-line options and the configuration: its models, access rules, limits and log.
//!
//! `sabir-gateway` does not know files, providers and keys; this module builds its tables from
//! them. The same module reads the configuration again while the gateway serves
//! ([`ReloadableGateway`]).

use std::io::Read;

use sabir_gateway::GatewaySettings;
use sabir_model::Secret;

pub use sabir_gateway::{
    ClientKey, ClientSettingsInput, DailyUsage, ExchangeRecorder, Gateway, GatewayObserver,
    Listeners, LogFormat, LogLine, LogOptions, LogWriter, ModelLimit, RepairMode, RequestLog,
    ServeError, SharedLogOptions, format_dollars, render_client_settings,
};

pub use sabir_wire::format_timestamp;

pub use crate::telemetry::ExchangeTracer;

use crate::config::Config;
use crate::error::SessionError;

pub use keys::{
    KeyLimitText, KeyStoreCommand, KeyStoreReport, open_key_store, run_key_store_command,
};
pub use recording::{RecordReport, RecordWriter, RecordedModel, report_records};
pub use reload::{ReloadableGateway, ReloadedGateway, RestartNeeded};
pub use routes::build_routes;
pub(crate) use routes::{DEFAULT_HEALTH_SECONDS, DEFAULT_RETRIES};
#[cfg(test)]
pub(crate) use routes::{group_rules, upstream_weights};
pub use sockets::{load_tls, open_unix_socket};

mod keys;
mod recording;
mod reload;
mod routes;
mod sockets;

/// The default address; only this machine can reach it.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:4747";

/// The environment variable that holds the token, unless the configuration names another.
pub(crate) const TOKEN_VARIABLE: &str = "SABIR_GATEWAY_TOKEN";

/// Returns cryptographically secure random bytes from `/dev/urandom`.
///
/// # Errors
/// When they cannot be read.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| SessionError::internal(format!("/dev/urandom cannot be read: {error}")))?;
    Ok(bytes)
}

/// The options of a gateway, besides the configuration. Options that are not given leave the choice to the configuration.
#[derive(Debug, Clone, Default)]
pub struct GatewaySpec {
    /// The server or provider of the models.
    pub to: Option<String>,
    /// The models; where there are none, those of the configuration are served.
    pub models: Vec<String>,
    /// The API that the server speaks.
    pub wire: Option<String>,
    /// The environment variable with the key of the server.
    pub key_env: Option<String>,
    /// The protocol for tool calls.
    pub protocol: Option<String>,
    /// The handling of wrong calls.
    pub repair_mode: RepairMode,
    /// True if the first model also answers for names that no model has.
    pub any_model: bool,
    /// The address to listen on.
    pub listen: Option<String>,
    /// Further names under which clients may address the gateway.
    pub hosts: Vec<String>,
    /// The token that clients must send.
    pub token: Option<String>,
    /// True if clients need no token.
    pub no_token: bool,
    /// True if explanations are logged.
    pub explain: bool,
    /// The form of the log.
    pub log: Option<LogFormat>,
}

/// The token that clients must send.
#[derive(Debug, Clone)]
pub enum GatewayToken {
    /// A random token, which clients can only learn from the gateway's output.
    Generated(Secret),
    /// A token given by the user, with the name of its environment variable, if any.
    Given(Secret, Option<String>),
    /// No token.
    None,
}

impl GatewayToken {
    /// Returns the token, if clients need one.
    pub fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Generated(token) | Self::Given(token, _) => Some(token),
            Self::None => None,
        }
    }
}

impl GatewaySpec {
    /// Returns the address to listen on: that of the spec, of the configuration, or the default.
    pub fn listen_address<'a>(&'a self, config: &'a Config) -> &'a str {
        self.listen
            .as_deref()
            .or(config.gateway_config().listen.as_deref())
            .unwrap_or(DEFAULT_LISTEN)
    }

    /// Returns the error of an address that cannot be listened on, with the line of the configuration that has it.
    pub fn listen_error(&self, config: &Config, error: &std::io::Error) -> SessionError {
        let address = self.listen_address(config);
        let hint = match error.kind() {
            std::io::ErrorKind::InvalidInput => "; write HOST:PORT, for example 127.0.0.1:4747",
            _ => "",
        };
        let why = format!("the gateway cannot listen on {address}: {error}{hint}");
        match self.listen {
            Some(_) => SessionError::invalid(why),
            None => config.error_at(&["gateway", "listen"], why),
        }
    }

    /// Returns the options of the log.
    pub fn log_options(&self, config: &Config) -> LogOptions {
        let keys = config.gateway_config();
        LogOptions {
            format: self.log.or(keys.log).unwrap_or_default(),
            explain: self.explain || keys.explain.unwrap_or_default(),
        }
    }

    /// Collects the settings of the gateway: access rules and limits. `seed` must differ between processes.
    pub fn gateway_settings(
        &self,
        config: &Config,
        token: Option<&Secret>,
        seed: u64,
    ) -> GatewaySettings {
        let keys = config.gateway_config();
        GatewaySettings {
            token: token.cloned(),
            hosts: keys.hosts.iter().chain(&self.hosts).cloned().collect(),
            origins: keys.origins.clone(),
            limits: keys.gateway_limits(),
            dialects: config.dialects().clone(),
            seed,
            clock: config.environment.clock,
        }
    }

    /// Returns the token from the spec, the configuration or the environment, in this order. Where none of them has one, `generate`
    /// makes a random one.
    ///
    /// # Errors
    /// When the token is empty, the variable of the configuration is not set, or `generate` fails.
    pub fn resolve_token(
        &self,
        config: &Config,
        generate: impl FnOnce() -> Result<Secret, SessionError>,
    ) -> Result<GatewayToken, SessionError> {
        let keys = config.gateway_config();
        if self.no_token {
            return Ok(GatewayToken::None);
        }
        if let Some(token) = &self.token {
            return given_token(Secret::new(token), None);
        }
        if let Some(token) = &keys.token {
            return given_token(token.clone(), None);
        }
        if let Some(variable) = &keys.token_env {
            let token = config.environment.variable(variable).ok_or_else(|| {
                let why = format!("{variable} holds no token: set it, or leave `token_env` out");
                config.error_at(&["gateway", "token_env"], why)
            })?;
            return given_token(Secret::new(token), Some(variable));
        }
        if let Some(token) = config.environment.variable(TOKEN_VARIABLE) {
            return given_token(Secret::new(token), Some(TOKEN_VARIABLE));
        }
        Ok(GatewayToken::Generated(generate()?))
    }
}

/// Checks a token given by the user, which must not be empty: an empty one would admit every client.
pub(crate) fn given_token(
    token: Secret,
    variable: Option<&str>,
) -> Result<GatewayToken, SessionError> {
    if token.is_empty() {
        let source = variable.unwrap_or("--token");
        return Err(SessionError::invalid(format!(
            "the token in {source} is empty: without one a random token is made"
        )));
    }
    Ok(GatewayToken::Given(token, variable.map(str::to_owned)))
}

/// Writes random bytes as a token, such as `sabir-0f3a…`.
pub fn format_token(bytes: &[u8]) -> Secret {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Secret::new(format!("sabir-{hex}"))
}
