//! Resolves providers and their keys: the well-known providers, as changed by the user's file, and those that the user defined.
//!
//! `docs/models.md` describes the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sabir_model::{
    Deadlines, KNOWN_PROVIDERS, KnownProvider, ProbeTarget, Provider, RetryPolicy, Secret,
    is_loopback, strip_url_secrets,
};
pub use sabir_model::{KeySource, ProviderRow};
use sabir_wire::Wire;
use serde::Deserialize;

use crate::amazon;
use crate::config::ConfigProblem;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::key_command::KeyCommand;
use crate::notice::NoticeSink;

/// The longest duration that the configuration accepts, in seconds: 30 days.
pub const MAX_SECONDS: u64 = 30 * 24 * 3600;

/// The table `[providers.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    wire: Option<String>,
    base_url: Option<String>,
    /// The key, written in the file itself.
    pub key: Option<Secret>,
    key_env: Option<String>,
    api_key_command: Option<Vec<String>>,
    api_key_seconds: Option<u64>,
    first_byte_seconds: Option<u64>,
    idle_seconds: Option<u64>,
    retries: Option<u32>,
    retry_budget: Option<u32>,
    retry_seconds: Option<u64>,
}

/// The tables of providers in the configuration, by name. Lookups also find the well-known providers.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ProviderConfigs(BTreeMap<String, ProviderConfig>);

/// A provider with everything that requests to it need.
#[derive(Debug, Clone)]
pub struct ProviderConnection {
    /// The address, the API and the key of the provider.
    pub provider: Provider,
    /// The time limits of a request.
    pub deadlines: Deadlines,
    /// The number and pace of retries.
    pub retries: RetryPolicy,
    /// The command that printed the key, if one did.
    pub(crate) command: Option<KeyCommand>,
}

/// A table `[providers.NAME]` that contradicts itself. It never shows a value, which may be a key in the wrong place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[providers.{name}]: {problem}")]
pub struct ProviderConfigError {
    /// The provider's name.
    pub name: String,
    /// The contradiction.
    pub problem: ProviderProblem,
}

/// A contradiction in the table of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderProblem {
    /// The key has more than one source.
    #[error("give one of key, key_env and api_key_command")]
    TwoKeys,
    /// The key is empty.
    #[error("`key` is empty; leave it out if no key is needed")]
    EmptyKey,
    /// The name of the variable cannot be one. It is probably the key itself.
    #[error(
        "`key_env` is the name of an environment variable, such as MY_KEY; a key itself is `key`"
    )]
    NoVariableName,
    /// The command has no program.
    #[error("api_key_command names no program: write [\"pass\", \"show\", \"x\"]")]
    NoProgram,
}

impl ProviderConfig {
    /// Returns the first contradiction in the table, if there is one.
    fn find_problem(&self) -> Option<ProviderProblem> {
        let sources = [
            self.key.is_some(),
            self.key_env.is_some(),
            self.api_key_command.is_some(),
        ];
        if sources.iter().filter(|given| **given).count() > 1 {
            return Some(ProviderProblem::TwoKeys);
        }
        if self.key.as_ref().is_some_and(Secret::is_empty) {
            return Some(ProviderProblem::EmptyKey);
        }
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_name = |text: &str| {
            text.starts_with(first) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if self.key_env.as_deref().is_some_and(|text| !is_name(text)) {
            return Some(ProviderProblem::NoVariableName);
        }
        self.api_key_command
            .as_ref()
            .is_some_and(|words| words.first().is_none_or(String::is_empty))
            .then_some(ProviderProblem::NoProgram)
    }
}

impl ProviderConfigs {
    /// Reports whether the user has set how often, or how long, requests to a provider are retried.
    pub(crate) fn sets_retries(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|own| own.retries.is_some() || own.retry_seconds.is_some())
    }

    /// Reports whether the file itself contains a key.
    pub fn has_key(&self) -> bool {
        self.0.values().any(|own| own.key.is_some())
    }

    /// Finds the tables that contradict themselves.
    pub(crate) fn find_problems(&self) -> Vec<ConfigProblem> {
        let problem = |(name, own): (&String, &ProviderConfig)| {
            let error = ProviderConfigError {
                name: name.clone(),
                problem: own.find_problem()?,
            };
            Some(ConfigProblem::new(&["providers", name], error.to_string()))
        };
        self.0.iter().filter_map(problem).collect()
    }

    /// Finds the tables that no provider can be built from: an unknown wire, or no address.
    pub(crate) fn find_incomplete(&self, environment: &Environment) -> Vec<ConfigProblem> {
        let problem = |name: &String| {
            let error = self.build_provider(name, environment).err()?;
            Some(ConfigProblem::new(&["providers", name], error.to_string()))
        };
        self.0.keys().filter_map(problem).collect()
    }

    /// Returns the time that the command may take which prints a provider's key.
    pub(crate) fn key_seconds(&self, name: &str) -> Duration {
        let seconds = self.0.get(name).and_then(|own| own.api_key_seconds);
        // A user may have to unlock a password manager first, so an hour is possible.
        Duration::from_secs(seconds.unwrap_or(DEFAULT_KEY_SECONDS).clamp(1, 3600))
    }

    /// Reports whether a provider with this name is well known or configured.
    pub fn has_provider(&self, name: &str) -> bool {
        self.0.contains_key(name) || KnownProvider::from_name(name).is_some()
    }

    /// Returns the names of all providers, the user's own first.
    pub fn provider_names(&self) -> Vec<&str> {
        let own = self
            .0
            .keys()
            .map(String::as_str)
            .filter(|name| KnownProvider::from_name(name).is_none());
        own.chain(KNOWN_PROVIDERS.iter().map(|known| known.name))
            .collect()
    }

    /// Returns a provider with its key. A command that prints the key runs here, once in the life of the process.
    ///
    /// # Errors
    /// When the provider is unknown or incomplete, its command fails, or it needs a key and there is none.
    pub fn connect_provider(
        &self,
        name: &str,
        environment: &Arc<Environment>,
        notices: &NoticeSink,
    ) -> Result<ProviderConnection, SessionError> {
        let provider = self.build_provider(name, environment)?;
        let default = ProviderConfig::default();
        let own = self.0.get(name).unwrap_or(&default);
        let mut deadlines = Deadlines::default();
        let mut retries = RetryPolicy::default();
        // At least a second and at most 30 days: 0 would end every response at once.
        if let Some(seconds) = own.idle_seconds {
            deadlines.idle = Duration::from_secs(seconds.clamp(1, MAX_SECONDS));
        }
        if let Some(seconds) = own.first_byte_seconds {
            deadlines.first_byte = Duration::from_secs(seconds.clamp(1, MAX_SECONDS));
        }
        if let Some(limit) = own.retries {
            retries.limit = limit;
        }
        if let Some(budget) = own.retry_budget {
            retries.budget = budget;
        }
        if let Some(seconds) = own.retry_seconds {
            retries.patience = Duration::from_secs(seconds.min(MAX_SECONDS));
        }
        let command = own.api_key_command.as_ref().map(|words| KeyCommand {
            provider: name.to_owned(),
            words: words.clone(),
            limit: self.key_seconds(name),
            environment: Arc::clone(environment),
            notices: notices.clone(),
        });
        let key = match &command {
            Some(command) => Some(
                command
                    .cached_key()
                    .map_err(|error| SessionError::invalid(error.to_string()))?,
            ),
            None => self.resolve_key(name, environment)?,
        };
        let mut provider = Provider { key, ..provider };
        // Bedrock takes either a bearer key or credentials that sign each request.
        if provider.wire == Wire::Bedrock {
            let usual = KnownProvider::from_name(name)
                .is_some_and(|known| known.base_url == provider.base_url);
            let variable = |name: &str| trimmed_variable(environment, name);
            amazon::apply_aws_environment(&mut provider, usual, environment.clock, variable);
        }
        if provider.key.is_none() && provider.signing.is_none() && self.needs_key(name, environment)
        {
            return Err(SessionError::invalid(format!(
                "no key for {name}: set {}, or `key` or `api_key_command` under [providers.{name}] in config.toml",
                self.key_variables(name)
                    .first()
                    .map_or("its key", String::as_str)
            )));
        }
        Ok(ProviderConnection {
            provider,
            deadlines,
            retries,
            command,
        })
    }

    /// Lists all providers, the user's own first.
    pub fn provider_rows(&self, environment: &Environment) -> Vec<ProviderRow> {
        let row = |name: &str| {
            let own = self.0.get(name);
            let known = KnownProvider::from_name(name);
            let wire = own
                .and_then(|own| own.wire.as_deref())
                .or(known.map(|known| known.wire));
            let url = own
                .and_then(|own| own.base_url.as_deref())
                .or(known.map(|known| known.base_url));
            // A variable wins over the file, as it does when the provider is connected.
            let moved = base_url_of(name, environment);
            let url = moved.as_deref().or(url).unwrap_or_default();
            ProviderRow {
                name: name.to_owned(),
                wire: wire.unwrap_or(DEFAULT_WIRE).to_owned(),
                base_url: strip_url_secrets(url),
                key: self.key_source(name, environment),
            }
        };
        self.provider_names().into_iter().map(row).collect()
    }

    /// Returns the addresses on this machine where model servers may run: those of well-known local servers, with the changes of
    /// the file, and those of the user's own providers.
    pub fn local_server_addresses(&self, environment: &Environment) -> Vec<ProbeTarget> {
        let wanted = |row: &ProviderRow| {
            let known = KnownProvider::from_name(&row.name);
            // Only this machine is probed: asking another host would tell it that Sabir is here.
            is_loopback(&row.base_url) && known.is_none_or(KnownProvider::is_local)
        };
        let rows = self.provider_rows(environment).into_iter().filter(wanted);
        rows.map(|row| ProbeTarget {
            provider: row.name,
            base_url: row.base_url,
        })
        .collect()
    }

    /// Builds the provider without its key.
    fn build_provider(
        &self,
        name: &str,
        environment: &Environment,
    ) -> Result<Provider, SessionError> {
        let own = self.0.get(name);
        let wire = own
            .and_then(|own| own.wire.as_deref())
            .map(|wire| wire_of(wire, name))
            .transpose()?;
        let url = own.and_then(|own| own.base_url.as_deref());
        let mut provider = match KnownProvider::from_name(name) {
            Some(known) => known.to_provider(wire).ok_or_else(|| {
                let wire = known.wire;
                SessionError::invalid(format!(
                    "{name} speaks the wire `{wire}`, which this build does not know: {}",
                    wire_hint(name)
                ))
            })?,
            None => {
                let url = url.ok_or_else(|| {
                    SessionError::invalid(format!("[providers.{name}] has no base_url"))
                })?;
                Provider::new(
                    name,
                    wire.or(Wire::from_name(DEFAULT_WIRE))
                        .unwrap_or(Wire::OpenAiChat),
                    url,
                    None,
                )
            }
        };
        // An environment variable overrides the file.
        if let Some(url) = base_url_of(name, environment).as_deref().or(url) {
            provider.base_url = url.trim().trim_end_matches('/').to_owned();
        }
        provider.apply_address_options();
        Ok(provider)
    }

    fn resolve_key(
        &self,
        name: &str,
        environment: &Environment,
    ) -> Result<Option<Secret>, SessionError> {
        // A key in the file takes precedence over variables, which may be set for other programs.
        if let Some(key) = self.0.get(name).and_then(|own| own.key.clone()) {
            return Ok(Some(key));
        }
        for variable in self.key_variables(name) {
            // An error, and no silent step to the next variable: that might hold the key of another
            // account.
            if environment.is_undecodable(&variable) {
                return Err(SessionError::invalid(format!(
                    "{variable} is not UTF-8 text"
                )));
            }
            if let Some(key) = environment
                .variable(&variable)
                .filter(|key| !key.trim().is_empty())
            {
                return Ok(Some(Secret::new(key)));
            }
        }
        Ok(None)
    }

    fn key_source(&self, name: &str, environment: &Environment) -> KeySource {
        match self.0.get(name) {
            Some(own) if own.key.is_some() => return KeySource::File,
            Some(own) if own.api_key_command.is_some() => return KeySource::Command,
            _ => {}
        }
        let names = self.key_variables(name);
        if names.is_empty() {
            return KeySource::Nowhere;
        }
        let is_set = |name: &&String| {
            environment
                .variable(name)
                .is_some_and(|value| !value.trim().is_empty())
        };
        let present = names.iter().find(is_set).cloned();
        KeySource::Environment { names, present }
    }

    /// Returns the environment variables that may hold the key: the one that the file names, else the conventional ones.
    fn key_variables(&self, name: &str) -> Vec<String> {
        if let Some(named) = self.0.get(name).and_then(|own| own.key_env.clone()) {
            return vec![named];
        }
        let names = KnownProvider::from_name(name).map_or(&[][..], |known| known.key_names);
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Reports whether a provider is known to need a key. With another address it may be a server that needs none.
    fn needs_key(&self, name: &str, environment: &Environment) -> bool {
        let own = self.0.get(name);
        let by_file = own.is_some_and(|own| own.key_env.is_some());
        let moved = base_url_of(name, environment).is_some();
        let by_name = KnownProvider::from_name(name).is_some_and(|known| !known.is_local());
        !moved && (by_file || by_name && own.is_none_or(|own| own.base_url.is_none()))
    }
}

/// The time that a command which prints a key may take, in seconds.
pub(crate) const DEFAULT_KEY_SECONDS: u64 = 30;

/// The API of providers that name none.
pub(crate) const DEFAULT_WIRE: &str = "openai-chat";

/// Returns a provider that is only an address, as in `--model http://127.0.0.1:8000/v1#NAME`. It never gets a key.
///
/// # Errors
/// When the URL has no host, or has a user name, password or query.
pub fn connect_address(url: &str) -> Result<ProviderConnection, SessionError> {
    let plain = url.trim().trim_end_matches('/');
    // Looked at as text. A password in it would end up in journals, with the name of the model.
    let place = plain
        .split_once("://")
        .map_or("", |(_, rest)| rest)
        .split('/')
        .next()
        .unwrap_or_default();
    if place.is_empty() || place.contains('@') || plain.contains('?') {
        return Err(SessionError::invalid(
            "the address of a model is http://HOST:PORT/v1#NAME, without a password and a query; \
             what needs a key is a provider of your own in config.toml",
        ));
    }
    let wire = Wire::from_name(DEFAULT_WIRE).unwrap_or(Wire::OpenAiChat);
    let deadlines = Deadlines::default();
    let retries = RetryPolicy::default();
    Ok(ProviderConnection {
        provider: Provider::new(place, wire, plain, None),
        deadlines,
        retries,
        command: None,
    })
}

fn wire_of(wire: &str, provider: &str) -> Result<Wire, SessionError> {
    Wire::from_name(wire).ok_or_else(|| {
        SessionError::invalid(format!(
            "[providers.{provider}]: `{wire}` is not a wire: {}",
            wire_hint(provider)
        ))
    })
}

fn wire_hint(provider: &str) -> String {
    format!(
        "set `wire` under [providers.{provider}] to one of {}",
        Wire::ALL.map(Wire::name).join(", ")
    )
}

/// Returns the base URL that a conventional variable sets for a provider: `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`.
pub fn base_url_of(provider: &str, environment: &Environment) -> Option<String> {
    let variable = base_url_variable(provider)?;
    let url = environment.variable(variable)?.trim().trim_end_matches('/');
    (!url.is_empty()).then(|| url.to_owned())
}

/// Returns the conventional variable that sets the base URL of a provider.
pub(crate) fn base_url_variable(provider: &str) -> Option<&'static str> {
    match provider {
        "openai" => Some("OPENAI_BASE_URL"),
        "anthropic" => Some("ANTHROPIC_BASE_URL"),
        _ => None,
    }
}

/// Returns the trimmed value of a variable, if it is not empty.
pub(crate) fn trimmed_variable(environment: &Environment, name: &str) -> Option<String> {
    let value = environment.variable(name)?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}
