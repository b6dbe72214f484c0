//! Finds the keys, the servers on this machine, the instruction files and the configuration of a
//! user who has not chosen a model. A usable model is chosen from these, and `sabir init` writes
//! the choice into the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sabir_model::{KeySource, LocalServer, ProviderRow, probe_servers};
use sabir_workspace::Workspace;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::config::{self, Config};
use crate::doctor;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::host::Host;
use crate::instructions::{InstructionState, find_instructions};
use crate::remember::{lock_folder, replace_file};
use crate::setup;
use crate::spec::SessionSpec;

/// The time to wait for the servers on this machine. The first screen must not be late, and a server that runs answers in less.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
/// The model that is used where a provider has a key and the user has named no model, best first.
const USUAL_MODELS: [(&str, &str); 6] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5.1"),
    ("gemini", "gemini-2.5-pro"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
    ("xai", "grok-4"),
    ("deepseek", "deepseek-chat"),
];
/// The beginnings of keys that tell their provider.
const KEY_PREFIXES: [(&str, &str); 7] = [
    ("sk-ant-", "anthropic"),
    ("sk-or-", "openrouter"),
    ("sk-proj-", "openai"),
    ("sk-svcacct-", "openai"),
    ("sk-admin-", "openai"),
    ("AIza", "gemini"),
    ("xai-", "xai"),
];
/// The configuration that `sabir init` writes, with all lines commented.
const TEMPLATE: &str = include_str!("config_template.toml");

/// The findings for a user who has not chosen a model.
#[derive(Debug)]
pub struct FirstRunReport {
    /// The configuration file; `None` without a home folder.
    pub config: Option<PathBuf>,
    /// True if that file exists.
    pub has_config: bool,
    /// The providers with a key.
    pub keys: Vec<ProviderRow>,
    /// The servers on this machine that answered.
    pub servers: Vec<LocalServer>,
    /// The files with instructions for models, as they are named.
    pub instructions: Vec<String>,
    /// The model that can be used.
    pub model: Option<ChosenModel>,
}

/// A model that was chosen for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenModel {
    /// The name, as for `--model`.
    pub name: String,
    /// The reason, as a phrase.
    pub reason: String,
}

impl FirstRunReport {
    /// Returns true if a task needs a model that nobody has named yet.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn is_needed(host: &Host, spec: &SessionSpec) -> Result<bool, SessionError> {
        let config = host.load_config(spec.config.as_deref())?;
        let of_mode =
            || crate::modes::model_of(&config, setup::initial_mode(spec, &config)).is_some();
        Ok(spec.model.is_none() && config.model.is_none() && !of_mode())
    }

    /// Gathers the findings concurrently. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub async fn gather(
        host: &Host,
        named: Option<&Path>,
        folder: &Path,
    ) -> Result<Self, SessionError> {
        let config = host.load_config(named)?;
        let environment = host.environment();
        let servers = probe_servers(&config.local_server_addresses(), PROBE_TIMEOUT).await;
        let has_key = |row: &ProviderRow| {
            !matches!(
                row.key,
                KeySource::Nowhere | KeySource::Environment { present: None, .. }
            )
        };
        let keys: Vec<_> = config.provider_rows().into_iter().filter(has_key).collect();
        let path = environment.config_file(named);
        Ok(Self {
            has_config: path.as_ref().is_some_and(|path| path.exists()),
            model: choose_model(&keys, &servers),
            instructions: instruction_files(&config, folder),
            config: path,
            keys,
            servers,
        })
    }
}

/// Returns the usual model of the first provider with a key, else the first model of a server.
fn choose_model(keys: &[ProviderRow], servers: &[LocalServer]) -> Option<ChosenModel> {
    let keyed = USUAL_MODELS
        .iter()
        .find(|(name, _)| keys.iter().any(|row| row.name == *name))
        .map(|(provider, model)| ChosenModel {
            name: format!("{provider}/{model}"),
            reason: format!("your key for {provider}"),
        });
    let served = || {
        let server = servers.iter().find(|server| !server.models.is_empty())?;
        Some(ChosenModel {
            name: format!("{}/{}", server.provider, server.models.first()?.id),
            reason: format!("served at {}", server.base_url),
        })
    };
    keyed.or_else(served)
}

/// Returns the usual model of a provider.
pub fn default_model(provider: &str) -> Option<String> {
    let (provider, model) = USUAL_MODELS.iter().find(|(name, _)| *name == provider)?;
    Some(format!("{provider}/{model}"))
}

/// Returns the provider whose keys begin as this text does; `None` for other texts.
pub fn provider_of_key(text: &str) -> Option<&'static str> {
    let (_, provider) = KEY_PREFIXES
        .iter()
        .find(|(prefix, _)| text.starts_with(prefix))?;
    Some(*provider).filter(|provider| default_model(provider).is_some())
}

/// Returns the providers for which a key alone is enough.
pub fn key_only_providers() -> impl Iterator<Item = &'static str> {
    USUAL_MODELS.iter().map(|(provider, _)| *provider)
}

/// Returns the files of rules that go into a request, unless the configuration switches them off.
fn instruction_files(config: &Config, folder: &Path) -> Vec<String> {
    if config.limits.instructions == Some(false) {
        return Vec::new();
    }
    let Ok(workspace) = Workspace::open(folder) else {
        return Vec::new();
    };
    let rules = find_instructions(&Arc::new(workspace), config).into_iter();
    rules
        .filter(|rule| rule.state == InstructionState::Sent)
        .map(|rule| rule.path)
        .collect()
}

/// Returns the models of a server, as `URL#NAME`; of an address with a name, that one. There is at least one.
///
/// # Errors
/// When it is not an address, or no list of models comes from there.
pub async fn models_at(url: &str) -> Result<Vec<String>, SessionError> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(SessionError::invalid(format!(
            "`{url}` is not an address: it begins with http:// or https://"
        )));
    }
    if url.contains('#') {
        return Ok(vec![url.to_owned()]);
    }
    let names = doctor::list_models_at(url).await?;
    Ok(names.iter().map(|name| format!("{url}#{name}")).collect())
}

/// Checks that there is no configuration file yet. The error for an unusable file includes the
/// mistake in it.
///
/// # Errors
/// When there is a file.
pub fn check_no_config(host: &Host, named: Option<&Path>) -> Result<(), SessionError> {
    let path = host
        .environment()
        .config_file(named)
        .ok_or_else(no_folder)?;
    if !path.exists() {
        return Ok(());
    }
    let exists = exists_already(&path);
    Err(SessionError::invalid(match host.load_config(named) {
        Ok(_) => format!("{exists}; `sabir config set KEY VALUE` changes one key"),
        Err(error) => format!("{exists}; it cannot be used as it is: {error}"),
    }))
}

fn exists_already(path: &Path) -> String {
    format!("{} exists already, and was not changed", path.display())
}

/// Writes a commented configuration, with a model if one was chosen. Returns its path.
///
/// # Errors
/// When there is a file already, or it cannot be written.
pub fn write_config(screen: &FirstRunReport) -> Result<PathBuf, SessionError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = screen.config.clone().ok_or_else(no_folder)?;
    let failed = |error: std::io::Error| {
        let shown = path.display();
        SessionError::invalid(match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists_already(&path),
            _ => format!("{shown} cannot be written: {error}"),
        })
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    file.write_all(config_text(screen.model.as_ref()).as_bytes())
        .map_err(failed)?;
    Ok(path)
}

/// Returns the commented configuration.
fn config_text(model: Option<&ChosenModel>) -> String {
    let Some(model) = model else {
        return TEMPLATE.to_owned();
    };
    let line = format!("model = {}", value(model.name.as_str()).to_string().trim());
    let mut lines: Vec<&str> = TEMPLATE.lines().collect();
    if let Some(known) = lines.iter_mut().find(|line| line.starts_with("# model = ")) {
        *known = &line;
    }
    lines.join("\n") + "\n"
}

/// A key that the user entered.
#[derive(Clone, Copy)]
pub struct ProviderKey<'a> {
    /// The name of the provider.
    pub provider: &'a str,
    /// The key.
    pub key: &'a str,
}

impl std::fmt::Debug for ProviderKey<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ProviderKey({})", self.provider)
    }
}

/// Writes a model, and the key of its provider if one is given, into the configuration. The rest of
/// the file keeps its content and comments.
///
/// # Errors
/// When the file cannot be parsed or written.
pub fn store_model_choice(
    environment: &Environment,
    named: Option<&Path>,
    model: &str,
    key: Option<ProviderKey<'_>>,
) -> Result<PathBuf, SessionError> {
    let path = environment.config_file(named).ok_or_else(no_folder)?;
    let _alone = lock_folder(&path)?;
    let text = if path.exists() {
        config::read_text(&path)?
    } else {
        String::new()
    };
    let left =
        |why: String| SessionError::invalid(format!("{} is left as it is: {why}", path.display()));
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| left(format!("it is not TOML: {error}")))?;
    if let Some(ProviderKey { provider, key }) = key {
        let mut tables = Table::new();
        tables.set_implicit(true);
        let providers = document
            .entry("providers")
            .or_insert(Item::Table(tables))
            .as_table_mut()
            .ok_or_else(|| left("its `providers` are not a table".to_owned()))?;
        let table = providers
            .entry(provider)
            .or_insert(Item::Table(Table::new()))
            .as_table_like_mut()
            .ok_or_else(|| left(format!("its `providers.{provider}` is not a table")))?;
        table.insert("key", value(key));
    }
    document.insert("model", value(model));
    replace_file(environment, &path, &document.to_string()).map_err(|error| {
        SessionError::invalid(format!("{} cannot be written: {error}", path.display()))
    })?;
    Ok(path)
}

fn no_folder() -> SessionError {
    SessionError::invalid("there is no home folder to keep a configuration in: use --config FILE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_template_is_a_setting_that_is_known() {
        let uncommented: String = TEMPLATE
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| {
                let is_setting = |(key, _): (&str, &str)| !key.contains(' ');
                line.starts_with('[') || line.split_once(" = ").is_some_and(is_setting)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let environment = Environment::default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, &uncommented).unwrap();
        let notices = crate::NoticeSink::new(|_| {});
        let environment = std::sync::Arc::new(environment);
        let loaded = Config::load(&environment, Some(&file), &notices);
        assert!(loaded.is_ok(), "{:?}\n{uncommented}", loaded.err());
    }

    #[test]
    fn the_chosen_model_is_the_only_setting() {
        let model = ChosenModel {
            name: "ollama/a \"b\"".to_owned(),
            reason: String::new(),
        };
        let document: DocumentMut = config_text(Some(&model)).parse().unwrap();
        assert_eq!(document["model"].as_str(), Some("ollama/a \"b\""));
        assert_eq!(document.as_table().len(), 1);
        let empty: DocumentMut = config_text(None).parse().unwrap();
        assert!(empty.as_table().is_empty());
    }
}
