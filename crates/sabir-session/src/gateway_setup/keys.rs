//! Opens the store of client keys, and runs the commands about keys.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use sabir_gateway::{ClientKey, DailyUsage, KEY_PREFIX, KeyHash, KeyStore, ModelLimit, StoreError};
use sabir_gateway_store::open_store;
use sabir_model::Secret;

use super::random_bytes;
use crate::config::Config;
use crate::error::SessionError;

/// The random bytes of a key, too many to be guessed.
const KEY_BYTES: usize = 24;

/// The beginning of every id.
const ID_PREFIX: &str = "key_";

/// A command about keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStoreCommand {
    /// Adds a key.
    Add {
        /// The name.
        name: String,
        /// The limits.
        limits: Vec<ModelLimit>,
    },
    /// Lists the keys.
    List,
    /// Revokes a key.
    Revoke {
        /// The name or id.
        key: String,
    },
    /// Shows the usage of a key.
    Usage {
        /// The name or id.
        key: String,
        /// The number of days.
        days: u32,
    },
}

/// The result of a command about keys.
#[derive(Debug, Clone)]
pub enum KeyStoreReport {
    /// A key was added.
    Added {
        /// The key.
        key: ClientKey,
        /// The secret that the client sends. It is not stored.
        secret: Secret,
        /// The models of its limits that could not be checked, because the configuration names none.
        unchecked_models: Vec<String>,
    },
    /// The keys.
    Listed(Vec<ClientKey>),
    /// A key was revoked.
    Revoked(ClientKey),
    /// The usage of a key.
    Usage {
        /// The key.
        key: ClientKey,
        /// The usage by day and model.
        days: Vec<DailyUsage>,
    },
}

/// The limits of a key as text: `requests=60 dollars=5`, or `MODEL: tokens=1000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLimitText(pub ModelLimit);

/// A text that describes no limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a limit: write `requests=60 tokens=100000 concurrent=4 dollars=5`, or some of them, each once, perhaps after `MODEL: `"
)]
pub struct InvalidLimit(String);

impl FromStr for KeyLimitText {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let invalid = || InvalidLimit(text.to_owned());
        let mut limit = ModelLimit::default();
        let mut rest = text;
        // A model's name may have a colon of its own, so the space after it counts.
        if let Some((model, limits)) = text.split_once(": ") {
            limit.model = Some(model.trim().to_owned());
            rest = limits;
        }
        let mut has_limit = false;
        for part in rest.split([' ', ',']).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(invalid)?;
            let count = || value.parse::<u64>().map_err(|_| invalid());
            let member = match name {
                "requests" => &mut limit.requests_per_minute,
                "tokens" => &mut limit.tokens_per_minute,
                "concurrent" => &mut limit.concurrent,
                "dollars" => &mut limit.nano_usd_per_day,
                _ => return Err(invalid()),
            };
            let number = match name {
                "dollars" => {
                    let dollars: sabir_call::Dollars = value.parse().map_err(|_| invalid())?;
                    dollars.as_nanos()
                }
                _ => count()?,
            };
            // If two values are given, it is unclear which one was meant.
            if member.replace(number).is_some() {
                return Err(invalid());
            }
            has_limit = true;
        }
        has_limit.then_some(Self(limit)).ok_or_else(invalid)
    }
}

/// Converts a failure of a store.
fn store_failure(error: StoreError) -> SessionError {
    match error {
        StoreError::UnknownKey(_) | StoreError::NameTaken(_) => {
            SessionError::invalid(error.to_string())
        }
        error => SessionError::internal(error.to_string()),
    }
}

/// Opens the store of keys that the configuration names, if it names one.
///
/// # Errors
/// The store cannot be opened, or its variable is not set.
pub async fn open_key_store(config: &Config) -> Result<Option<Arc<dyn KeyStore>>, SessionError> {
    let keys = config.gateway_config();
    let (key, address) = match (&keys.keys, &keys.keys_env) {
        (Some(address), _) => ("keys", address.expose().to_owned()),
        (None, Some(variable)) => {
            let address = config.environment.variable(variable).ok_or_else(|| {
                let why = format!(
                    "{variable} holds no address of a store of keys: set it, or leave `keys_env` out"
                );
                config.error_at(&["gateway", "keys_env"], why)
            })?;
            ("keys_env", address.to_owned())
        }
        (None, None) => return Ok(None),
    };
    let unusable = |why: String| config.error_at(&["gateway", key], why);
    if !address.contains("://") {
        create_private_file(Path::new(&address))
            .map_err(|error| unusable(format!("{address} cannot be created: {error}")))?;
    }
    let store = open_store(&address).await;
    store.map(Some).map_err(|error| unusable(error.to_string()))
}

/// Creates a file that only its owner may read, unless it exists. SQLite copies its permissions to
/// the files that it creates beside it.
fn create_private_file(path: &Path) -> io::Result<()> {
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match created {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Runs a command about keys.
///
/// # Errors
/// The configuration names no store, the store fails, or the key does not exist.
pub async fn run_key_store_command(
    config: &Config,
    command: KeyStoreCommand,
) -> Result<KeyStoreReport, SessionError> {
    let store = open_key_store(config).await?.ok_or_else(|| {
        SessionError::invalid(
            "there is no store of keys: write `keys = \"/path/of/keys.db\"` or `keys = \"postgres://…\"` or `keys = \"redis://…\"` under [gateway]",
        )
    })?;
    let since = (config.environment.clock)().duration_since(UNIX_EPOCH);
    let now_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
    match command {
        KeyStoreCommand::Add { name, limits } => {
            check_name(&name)?;
            let limits = resolve_limit_models(config, limits)?;
            let has_models = !config.gateway_config().models.is_empty();
            let unchecked_models = match has_models {
                true => Vec::new(),
                false => limits
                    .iter()
                    .filter_map(|limit| limit.model.clone())
                    .collect(),
            };
            let secret = new_secret()?;
            let key = ClientKey {
                // Short, because people type it. The store refuses one that is taken.
                id: format!("{ID_PREFIX}{}", hex(&random_bytes::<4>()?)),
                name,
                created_ms: now_ms,
                revoked_ms: None,
                limits,
            };
            let hash = KeyHash::of_key(secret.expose());
            store.add_key(&key, &hash).await.map_err(store_failure)?;
            Ok(KeyStoreReport::Added {
                key,
                secret,
                unchecked_models,
            })
        }
        KeyStoreCommand::List => Ok(KeyStoreReport::Listed(
            store.list_keys().await.map_err(store_failure)?,
        )),
        KeyStoreCommand::Revoke { key } => Ok(KeyStoreReport::Revoked(
            store
                .revoke_key(&key, now_ms)
                .await
                .map_err(store_failure)?,
        )),
        KeyStoreCommand::Usage { key, days } => {
            let all = store.list_keys().await.map_err(store_failure)?;
            let fits = |known: &&ClientKey| known.id == key || known.name == key;
            // A revoked key may have left its name to another one.
            let active = all.iter().filter(fits).find(|key| key.revoked_ms.is_none());
            let found = active.or_else(|| all.iter().find(fits)).cloned();
            let key = found.ok_or_else(|| store_failure(StoreError::UnknownKey(key)))?;
            let days = store
                .daily_usage(&key.id, days)
                .await
                .map_err(store_failure)?;
            Ok(KeyStoreReport::Usage { key, days })
        }
    }
}

/// Replaces aliases in limits by the names of their models, by which requests are counted.
///
/// # Errors
/// The configuration names models, and none of that name.
fn resolve_limit_models(
    config: &Config,
    mut limits: Vec<ModelLimit>,
) -> Result<Vec<ModelLimit>, SessionError> {
    let models = &config.gateway_config().models;
    // The models are given by flags of the gateway then.
    if models.is_empty() {
        return Ok(limits);
    }
    for limit in &mut limits {
        let Some(wanted) = &mut limit.model else {
            continue;
        };
        // Like the names of requests.
        let plain = wanted.strip_suffix(":latest").unwrap_or(wanted);
        let is_named = |name: &str| {
            let model = models.get_key_value(name);
            let with_alias = || {
                models
                    .iter()
                    .find(|(_, keys)| keys.aliases.iter().any(|alias| alias == name))
            };
            model.or_else(with_alias).map(|(name, _)| name.clone())
        };
        let found = is_named(wanted).or_else(|| is_named(plain));
        *wanted = found.ok_or_else(|| {
            let known: Vec<&str> = models.keys().map(String::as_str).collect();
            SessionError::invalid(format!(
                "a limit names the model `{wanted}`, which the configuration does not have; its models are {}",
                known.join(", ")
            ))
        })?;
    }
    Ok(limits)
}

/// Refuses a name that could be the id of another key, since commands take either.
fn check_name(name: &str) -> Result<(), SessionError> {
    if name.starts_with(ID_PREFIX) {
        return Err(SessionError::invalid(format!(
            "the name `{name}` begins with `{ID_PREFIX}` like an id; choose another name"
        )));
    }
    Ok(())
}

/// Makes a new key.
fn new_secret() -> Result<Secret, SessionError> {
    let bytes = random_bytes::<KEY_BYTES>()?;
    Ok(Secret::new(format!("{KEY_PREFIX}{}", hex(&bytes))))
}

/// Writes bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_text() {
        let limit = |text: &str| text.parse::<KeyLimitText>().map(|limit| limit.0);
        assert_eq!(
            limit("requests=60 tokens=5,concurrent=2 dollars=1.5"),
            Ok(ModelLimit {
                model: None,
                requests_per_minute: Some(60),
                tokens_per_minute: Some(5),
                concurrent: Some(2),
                nano_usd_per_day: Some(1_500_000_000),
            })
        );
        let for_model = limit("qwen:30b: requests=1").unwrap();
        assert_eq!(for_model.model.as_deref(), Some("qwen:30b"));
        for wrong in [
            "",
            "requests",
            "requests=x",
            "speed=1",
            "qwen: ",
            "dollars=-1",
            "dollars=1 dollars=3",
        ] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_cannot_be_an_id() {
        assert!(check_name("key_0a1b2c3d").is_err());
        for name in ["key", "keys", "my_key_1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
