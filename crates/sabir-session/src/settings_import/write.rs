//! Writes the settings of a plan into the user's configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sabir_mcp::McpTransport;
use toml_edit::{Array, DocumentMut, Item, value};

use super::{ImportPlan, ImportedSetting};
use crate::config::{self, Config};
use crate::error::SessionError;
use crate::mcp::{server_table, server_tables};
use crate::remember;

/// Writes all settings of a plan into the user's configuration at once, and returns the path of the file. If it cannot be used
/// afterwards, it is left as it is.
///
/// # Errors
/// When the file cannot be read, changed or written.
pub fn apply_import(
    plan: &ImportPlan,
    config: &Config,
    named: Option<&Path>,
) -> Result<PathBuf, SessionError> {
    let environment = &config.environment;
    let path = environment.config_file(named).ok_or_else(|| {
        SessionError::invalid(
            "there is no home folder to keep a configuration in: use --config FILE",
        )
    })?;
    // Held until the file is written, so that two imports do not lose each other's settings.
    let _alone = remember::lock_folder(&path)?;
    let text = match path.exists() {
        true => config::read_text(&path)?,
        false => String::new(),
    };
    let kept =
        |why: String| SessionError::invalid(format!("{} is left as it is: {why}", path.display()));
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| kept(format!("it is no TOML: {error}")))?;
    for item in &plan.items {
        match &item.setting {
            ImportedSetting::Model(model) => {
                document.insert("model", value(model.as_str()));
            }
            ImportedSetting::Rule { list, rule } => {
                let entry = document
                    .entry(list.key())
                    .or_insert_with(|| value(Array::new()));
                let rules = entry
                    .as_array_mut()
                    .ok_or_else(|| kept(format!("its `{}` is no list", list.key())))?;
                rules.push(rule.as_str());
            }
            ImportedSetting::Server(spec) => {
                let servers = server_tables(&mut document)
                    .ok_or_else(|| kept("its `mcp.servers` are not tables".to_owned()))?;
                servers.insert(&spec.name, Item::Table(server_table(spec)));
            }
        }
    }
    // Checked as a whole before it is written: a configuration that cannot be loaded would stop every command.
    let changed = document.to_string();
    if let Some(problem) = config::check::check_text(environment, &changed).first() {
        return Err(kept(problem.message.clone()));
    }
    remember::replace_file(environment, &path, &changed)
        .map_err(|error| kept(format!("it cannot be written: {error}")))?;
    if plan.has_values() {
        // A value of a variable or a header is often a secret: a configuration with one must be the user's alone.
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only)
            .map_err(|error| kept(format!("its permissions cannot be changed: {error}")))?;
    }
    Ok(path)
}

impl ImportPlan {
    /// Returns true if a server brings values of variables or headers.
    pub fn has_values(&self) -> bool {
        self.items.iter().any(|item| match &item.setting {
            ImportedSetting::Server(spec) => match &spec.transport {
                McpTransport::Stdio { env, .. } => !env.is_empty(),
                McpTransport::Http { headers, .. } => !headers.is_empty(),
            },
            _ => false,
        })
    }
}
