//! Reloads the configuration while the gateway serves.
//!
//! A reload applies the whole file or nothing. An invalid file changes nothing, and a change that
//! needs a restart (of the address, or of the number of connections and answers) is reported and
//! ignored.

use sabir_gateway::{Gateway, GatewayLimits, RouteTable};
use sabir_model::Secret;
use tokio::signal::unix::SignalKind;

use super::log::{LogOptions, SharedLogOptions};
use super::{GatewayToken, gateway_settings, listen_address, resolve_token, routes};
use crate::cli::GatewayArguments;
use crate::exit::CommandError;
use crate::output::print;
use crate::surroundings;
use sabir_session::config::GatewayKeys;

/// A running gateway and the settings that it was started with.
#[derive(Clone)]
pub(super) struct RunningGateway {
    arguments: GatewayArguments,
    gateway: Gateway,
    log_options: SharedLogOptions,
    /// The address that it listens on.
    listen: String,
    /// The random token made at the start, which stays valid, because clients were set up with it.
    generated_token: Option<Secret>,
    /// The maximum numbers of connections and of answers at the same time.
    capacity: (usize, usize),
}

/// The settings read from a file.
struct ReloadedConfig {
    routes: RouteTable,
    settings: sabir_gateway::GatewaySettings,
    log_options: LogOptions,
    /// Messages about changes that need a restart.
    unchanged_settings: Vec<String>,
}

impl RunningGateway {
    /// Remembers the settings that a reload cannot change.
    pub(super) fn new(
        arguments: &GatewayArguments,
        keys: &GatewayKeys,
        gateway: &Gateway,
        dial: &SharedLogOptions,
        token: &GatewayToken,
    ) -> Self {
        let listen = listen_address(arguments, keys).to_owned();
        let room = capacity_of(&keys.gateway_limits());
        let made = if let GatewayToken::Generated(token) = token {
            Some(token.clone())
        } else {
            None
        };
        Self {
            arguments: arguments.clone(),
            gateway: gateway.clone(),
            log_options: dial.clone(),
            listen,
            generated_token: made,
            capacity: room,
        }
    }

    /// Reads the configuration without applying any of it.
    fn read_config(&self) -> Result<ReloadedConfig, CommandError> {
        let arguments = &self.arguments;
        let config = surroundings::load_config(arguments.config.as_deref())?;
        let keys = config.gateway_keys();
        let token = match (resolve_token(arguments, keys)?, &self.generated_token) {
            (GatewayToken::Generated(_), Some(made)) => Some(made.clone()),
            (GatewayToken::Generated(_), None) => {
                return Err(CommandError::usage(
                    "there is no token any more: write the new one, or start the gateway anew to have one made",
                ));
            }
            (token, _) => token.secret().cloned(),
        };
        // The running gateway keeps the seed that it was started with, so this one is ignored.
        let settings = gateway_settings(arguments, &config, token.as_ref(), 0);
        let mut kept = Vec::new();
        let listen = listen_address(arguments, keys);
        if listen != self.listen {
            kept.push(format!(
                "it still listens on {}: `listen = {listen:?}` needs a restart",
                self.listen
            ));
        }
        if capacity_of(&settings.limits) != self.capacity {
            kept.push(
                "`connections` and `answers` under [gateway.limits] need a restart".to_owned(),
            );
        }
        let manner = LogOptions::from_flags(arguments, keys);
        Ok(ReloadedConfig {
            routes: routes::build_routes(arguments, &config)?,
            settings,
            log_options: manner,
            unchanged_settings: kept,
        })
    }

    /// Applies the file, and returns messages about it.
    fn apply_config(&self) -> Vec<String> {
        let ReloadedConfig {
            routes,
            settings,
            log_options: manner,
            unchanged_settings: kept,
        } = match self.read_config() {
            Ok(read) => read,
            Err(failure) => {
                return vec![format!(
                    "models and settings stay as they are: {}",
                    failure.message
                )];
            }
        };
        let names = routes.model_names().collect::<Vec<_>>().join(", ");
        self.gateway.replace_routes(routes);
        self.gateway.replace_settings(settings);
        self.log_options.set(manner);
        let mut words = vec![format!("the configuration was read again; models: {names}")];
        words.extend(kept);
        words
    }
}

fn capacity_of(limits: &GatewayLimits) -> (usize, usize) {
    (limits.connections, limits.answers)
}

/// Reloads the configuration whenever the process receives SIGHUP.
pub(super) fn reload_on_signal(serving: RunningGateway) -> Result<(), CommandError> {
    let mut signals = super::signal_stream(SignalKind::hangup())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            let serving = serving.clone();
            let words = tokio::task::spawn_blocking(move || serving.apply_config()).await;
            let words = words
                .unwrap_or_else(|_| vec!["the configuration could not be read again".to_owned()]);
            for words in words {
                print::write_stderr(&print::sanitize_text(&format!("sabir: {words}\n")));
            }
        }
    });
    Ok(())
}
