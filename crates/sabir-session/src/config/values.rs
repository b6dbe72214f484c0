//! Looks up single values of the configuration, with the place that each comes from. Keys and tokens are never shown.

use std::path::Path;
use std::sync::Arc;

use sabir_call::nearest_candidate;
use sabir_model::KeySource;
use serde::Serialize;
use toml_edit::Key;

use super::check::{format_path, unknown_key};
use super::reference::{ConfigKey, KeyDefault, all_keys, config_shape, describe_key};
use super::shape::{ITEM, KeyShape, NAME, ValueKind};
use super::{Config, keys, line_and_column, text};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::gateway_setup::TOKEN_VARIABLE;
use crate::notice::NoticeSink;
use crate::providers::{base_url_of, base_url_variable};

/// A key with its value. Its JSON is an item of the output of `sabir config get --output json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigValue {
    /// The key with its tables.
    pub key: String,
    /// The value as TOML; `None` if nothing is set and there is no default. That of a secret is `"(hidden)"`.
    pub value: Option<String>,
    /// The place that the value comes from.
    #[serde(flatten)]
    pub source: ValueSource,
    /// The option of the command line that sets the same for one run.
    pub option: Option<&'static str>,
}

/// The place that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum ValueSource {
    /// The configuration file.
    File {
        /// The path of the file.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The value is not set; the default applies.
    Default {
        /// The words for a default that is not a single value.
        #[serde(skip_serializing_if = "Option::is_none")]
        meaning: Option<&'static str>,
    },
}

/// The value that is shown in place of a key or token.
const HIDDEN: &str = "\"(hidden)\"";

/// The configuration with the text of its file.
#[derive(Debug)]
pub struct ConfigValues {
    config: Config,
    path: Option<String>,
    content: String,
}

impl ConfigValues {
    /// Loads the named file, or the user's.
    ///
    /// # Errors
    /// When the file cannot be used: `sabir config check` reports why.
    pub fn load(
        environment: &Arc<Environment>,
        named: Option<&Path>,
    ) -> Result<Self, SessionError> {
        let config = Config::load(environment, named, &NoticeSink::default())?;
        let path = environment.config_file(named);
        let content = match path.as_ref().filter(|path| path.exists()) {
            Some(path) => text::read_regular_file(path)?.0,
            None => String::new(),
        };
        Ok(Self {
            config,
            path: path.map(|path| path.display().to_string()),
            content,
        })
    }

    /// Returns the value of a key; of a table, those of all its keys.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn find(&self, key: &str) -> Result<Vec<ConfigValue>, SessionError> {
        let path = parse_path(key)?;
        match find_shape(&path)? {
            KeyShape::Value(_) => Ok(vec![self.value_at(&path)]),
            shape => Ok(self.values_below(&path, shape)),
        }
    }

    /// Returns all values that the file or the environment sets.
    pub fn find_all_set(&self) -> Vec<ConfigValue> {
        let is_set = |value: &ConfigValue| !matches!(value.source, ValueSource::Default { .. });
        let all = self.values_below(&[], config_shape());
        let providers = self.config.provider_rows().into_iter();
        let mut from_environment: Vec<_> = providers
            .flat_map(|row| {
                ["base_url", "key"]
                    .map(|key| vec!["providers".to_owned(), row.name.clone(), key.to_owned()])
            })
            .map(|path| self.value_at(&path))
            .filter(|value| matches!(value.source, ValueSource::Environment { .. }))
            .collect();
        let mut set: Vec<_> = all.into_iter().filter(is_set).collect();
        from_environment.retain(|value| !set.contains(value));
        set.extend(from_environment);
        set
    }

    /// Returns the values below a table: all keys of known tables, and of named ones those that the file has.
    fn values_below(&self, path: &[String], shape: &KeyShape) -> Vec<ConfigValue> {
        let below = |key: &str, shape: &KeyShape| {
            let path = [path, &[key.to_owned()]].concat();
            match shape {
                KeyShape::Value(_) => vec![self.value_at(&path)],
                shape => self.values_below(&path, shape),
            }
        };
        match shape {
            KeyShape::Table(keys) => keys
                .iter()
                .flat_map(|(key, shape)| below(key, shape))
                .collect(),
            KeyShape::Named(shape) | KeyShape::Tables(shape) => {
                keys::names_below(&self.content, path)
                    .iter()
                    .flat_map(|name| below(name, shape))
                    .collect()
            }
            KeyShape::Value(_) => vec![self.value_at(path)],
        }
    }

    /// Returns the value of a known key.
    fn value_at(&self, path: &[String]) -> ConfigValue {
        let known = describe_key(path);
        let written = keys::written_value(&self.content, path);
        let is_secret = is_secret(path);
        let hide = |value: String| if is_secret { HIDDEN.to_owned() } else { value };
        let file = written.map(|(at, value)| {
            let source = ValueSource::File {
                path: self.path.clone().unwrap_or_default(),
                line: line_and_column(&self.content, at).0,
            };
            (Some(hide(value)), source)
        });
        let (value, source) = self
            .environment_value(path, file.is_some())
            .or(file)
            .unwrap_or_else(|| default_value(known));
        ConfigValue {
            key: format_path(path),
            value,
            source,
            option: known.and_then(|known| known.option),
        }
    }

    /// Returns the value that a variable sets, where it takes effect. `is_in_file` says that the file sets one too.
    fn environment_value(
        &self,
        path: &[String],
        is_in_file: bool,
    ) -> Option<(Option<String>, ValueSource)> {
        let environment = &self.config.environment;
        let from = |variable: &str| ValueSource::Environment {
            variable: variable.to_owned(),
        };
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["providers", name, "base_url"] => {
                let url = base_url_of(name, environment)?;
                Some((Some(format!("{url:?}")), from(base_url_variable(name)?)))
            }
            ["providers", name, "key"] if !is_in_file => {
                let rows = self.config.provider_rows();
                let row = rows.into_iter().find(|row| row.name == *name)?;
                match row.key {
                    KeySource::Environment {
                        present: Some(variable),
                        ..
                    } => Some((Some(HIDDEN.to_owned()), from(&variable))),
                    _ => None,
                }
            }
            ["gateway", "token"] if !is_in_file => {
                let named = self.config.own.gateway.token_env.as_deref();
                let variable = named.unwrap_or(TOKEN_VARIABLE);
                environment.variable(variable)?;
                Some((Some(HIDDEN.to_owned()), from(variable)))
            }
            _ => None,
        }
    }
}

/// Returns the default of a key.
fn default_value(known: Option<&ConfigKey>) -> (Option<String>, ValueSource) {
    let (value, meaning) = match known.map(|known| &known.default) {
        Some(KeyDefault::Value(value)) => (Some(value.clone()), None),
        Some(KeyDefault::Words(words)) => (None, Some(*words)),
        None => (None, None),
    };
    (value, ValueSource::Default { meaning })
}

/// Returns true if the value at a path is a key or a token.
pub(super) fn is_secret(path: &[String]) -> bool {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        words.as_slice(),
        ["providers", _, "key"]
            | ["gateway", "token"]
            | ["telemetry", "headers", ..]
            | ["mcp", "servers", _, "env" | "headers", ..]
    )
}

/// Parses a key with dots, as in TOML: `a.b."c.d"`.
pub(super) fn parse_path(key: &str) -> Result<Vec<String>, SessionError> {
    let path = Key::parse(key).map_err(|_| {
        SessionError::invalid(format!(
            "`{key}` is not a key: write it with dots, as in subtasks.at_once, and other characters in quotes"
        ))
    })?;
    Ok(path.into_iter().map(|key| key.get().to_owned()).collect())
}

/// Returns the shape at a path.
///
/// # Errors
/// When there is no such key. The message says which was probably meant.
pub(super) fn find_shape(path: &[String]) -> Result<&'static KeyShape, SessionError> {
    let known = (1..=path.len()).find_map(|end| {
        let part = path.get(..end)?;
        config_shape().at(part).is_none().then_some(part)
    });
    let Some(part) = known else {
        return config_shape()
            .at(path)
            .ok_or_else(|| SessionError::invalid(unknown_key(path).why));
    };
    // The known key with the most similar spelling, wherever it is.
    let wanted = format_path(part);
    let all: Vec<String> = all_keys()
        .map(|known| known.path.replace(ITEM, "0"))
        .collect();
    let near = nearest_candidate(&wanted, all.iter().map(String::as_str));
    let problem = unknown_key(part);
    let is_helpful = problem.why.contains("did you mean");
    let message = match near.filter(|near| !near.contains(NAME)) {
        _ if is_helpful => problem.why,
        Some(near) => format!("unknown key `{wanted}`: did you mean `{near}`?"),
        None => format!("unknown key `{wanted}`:"),
    };
    Err(SessionError::invalid(format!(
        "{message} `sabir help config` lists all keys"
    )))
}

/// Returns true if values of this kind are lists.
pub(super) fn is_list(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::List(_))
}
