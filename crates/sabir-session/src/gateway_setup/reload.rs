//! Reads the configuration again while the gateway serves.
//!
//! A reload applies the whole file or nothing. An invalid file changes nothing, and a change that needs a restart (of the address, the
//! socket, the store of keys, or the number of connections and answers, or the removal of a certificate) is reported and ignored.

use std::path::PathBuf;

use sabir_gateway::{
    Gateway, GatewayLimits, GatewaySettings, LogOptions, RouteTable, SharedLogOptions, TlsIdentity,
};
use sabir_model::Secret;

use super::{GatewaySpec, GatewayToken, build_routes, load_tls};
use crate::config::Config;
use crate::error::SessionError;

/// A running gateway and the settings that it was started with, which a reload cannot change. Clones share the gateway.
#[derive(Debug, Clone)]
pub struct ReloadableGateway {
    spec: GatewaySpec,
    gateway: Gateway,
    log_options: SharedLogOptions,
    /// The address that it listens on.
    listen: String,
    /// The random token made at the start, which stays valid, because clients were set up with it.
    generated_token: Option<Secret>,
    capacity: ListeningLimits,
    /// The store of keys, if there is one.
    key_store: Option<Secret>,
    /// The Unix socket, if there is one.
    socket: Option<PathBuf>,
}

/// The limits that are fixed when the gateway starts to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListeningLimits {
    connections: usize,
    answers: usize,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadedGateway {
    /// The names of the models that are served now.
    pub models: Vec<String>,
    /// The changes that were ignored.
    pub ignored: Vec<RestartNeeded>,
}

/// A change of the configuration that a running gateway cannot apply. It displays as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestartNeeded {
    /// The address changed.
    #[error("it still listens on {current}: `listen = {wanted:?}` needs a restart")]
    Address {
        /// The address that it listens on.
        current: String,
        /// The address in the configuration.
        wanted: String,
    },
    /// The number of connections or of concurrent answers changed.
    #[error("`connections` and `answers` under [gateway.limits] need a restart")]
    Capacity,
    /// The store of keys changed, was added or removed.
    #[error(
        "it still uses the store of keys that it was started with: `keys` and `keys_env` need a restart"
    )]
    KeyStore,
    /// The Unix socket changed, was added or removed.
    #[error("it still listens on the same Unix sockets: `socket` needs a restart")]
    Socket,
    /// The certificate was removed.
    #[error(
        "it still serves its certificate: the removal of `tls_cert` and `tls_key` needs a restart"
    )]
    Tls,
}

/// The settings read from a file, none of which is applied yet.
struct LoadedSettings {
    routes: RouteTable,
    settings: GatewaySettings,
    log_options: LogOptions,
    tls: Option<TlsIdentity>,
    ignored: Vec<RestartNeeded>,
}

impl ReloadableGateway {
    /// Remembers the settings that a gateway was started with.
    pub fn new(
        spec: GatewaySpec,
        config: &Config,
        gateway: &Gateway,
        log_options: &SharedLogOptions,
        token: &GatewayToken,
    ) -> Self {
        let generated_token = match token {
            GatewayToken::Generated(token) => Some(token.clone()),
            GatewayToken::Given(..) | GatewayToken::None => None,
        };
        Self {
            listen: spec.listen_address(config).to_owned(),
            capacity: ListeningLimits::of_limits(&config.gateway_config().gateway_limits()),
            key_store: key_store_address(config),
            socket: config.gateway_config().socket.clone(),
            spec,
            gateway: gateway.clone(),
            log_options: log_options.clone(),
            generated_token,
        }
    }

    /// Applies a configuration to the running gateway. Blocks where a key is printed by a command.
    ///
    /// # Errors
    /// When some part of the configuration cannot be used; then nothing has changed.
    pub fn apply_config(&self, config: &Config) -> Result<ReloadedGateway, SessionError> {
        let loaded = self.load_settings(config)?;
        let models = loaded.routes.model_names().map(str::to_owned).collect();
        self.gateway.replace_routes(loaded.routes);
        self.gateway.replace_settings(loaded.settings);
        if let Some(identity) = loaded.tls {
            self.gateway.use_tls(identity);
        }
        self.log_options.set(loaded.log_options);
        Ok(ReloadedGateway {
            models,
            ignored: loaded.ignored,
        })
    }

    /// Reads all settings before any is applied, so that an invalid one changes nothing.
    fn load_settings(&self, config: &Config) -> Result<LoadedSettings, SessionError> {
        let token = self.spec.resolve_token(config, || {
            // A new random token would lock out every client, and nobody would see it.
            self.generated_token.clone().ok_or_else(|| {
                SessionError::invalid(
                    "the token was removed: write a new one, or restart the gateway to generate one",
                )
            })
        })?;
        // The running gateway keeps the seed that it was started with, so this one is ignored.
        let settings = self.spec.gateway_settings(config, token.secret(), 0);
        let mut ignored = Vec::new();
        let wanted = self.spec.listen_address(config);
        if wanted != self.listen {
            ignored.push(RestartNeeded::Address {
                current: self.listen.clone(),
                wanted: wanted.to_owned(),
            });
        }
        if ListeningLimits::of_limits(&settings.limits) != self.capacity {
            ignored.push(RestartNeeded::Capacity);
        }
        if key_store_address(config) != self.key_store {
            ignored.push(RestartNeeded::KeyStore);
        }
        if config.gateway_config().socket != self.socket {
            ignored.push(RestartNeeded::Socket);
        }
        let tls = load_tls(config)?;
        if tls.is_none() && self.gateway.serves_tls() {
            ignored.push(RestartNeeded::Tls);
        }
        Ok(LoadedSettings {
            routes: build_routes(&self.spec, config)?,
            settings,
            log_options: self.spec.log_options(config),
            tls,
            ignored,
        })
    }
}

/// Returns the address of the store of keys, if the configuration names one that is set.
fn key_store_address(config: &Config) -> Option<Secret> {
    let keys = config.gateway_config();
    let from_variable = || {
        let variable = keys.keys_env.as_deref()?;
        config.environment.variable(variable).map(Secret::new)
    };
    keys.keys.clone().or_else(from_variable)
}

impl ListeningLimits {
    fn of_limits(limits: &GatewayLimits) -> Self {
        Self {
            connections: limits.connections,
            answers: limits.answers,
        }
    }
}
