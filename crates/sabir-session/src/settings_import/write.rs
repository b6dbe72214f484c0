//! Writes the settings of a plan into the user's configuration.

use std::path::{Path, PathBuf};

use sabir_mcp::McpTransport;
use toml_edit::{Array, Item, value};

use super::{ImportPlan, ImportedSetting};
use crate::config::Config;
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
    // Values of variables and headers are often secret, so only the owner may read the
    // configuration.
    let owner_only = plan.has_values();
    remember::edit_config(&config.environment, named, owner_only, |document, kept| {
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
                        .ok_or_else(|| kept(format!("its `{}` is not a list", list.key())))?;
                    rules.push(rule.as_str());
                }
                ImportedSetting::Server(spec) => {
                    let servers = server_tables(document)
                        .ok_or_else(|| kept("its `mcp.servers` are not tables".to_owned()))?;
                    servers.insert(&spec.name, Item::Table(server_table(spec)));
                }
            }
        }
        Ok(())
    })
}

impl ImportPlan {
    /// Returns true if a server has values of variables or headers.
    pub fn has_values(&self) -> bool {
        self.items.iter().any(|item| match &item.setting {
            ImportedSetting::Server(spec) => match &spec.transport {
                McpTransport::Stdio { env, .. } => !env.is_empty(),
                McpTransport::Http { headers, oauth, .. } => {
                    let secret = oauth.as_ref().map(|oauth| oauth.client_secret.is_some());
                    !headers.is_empty() || secret == Some(true)
                }
            },
            _ => false,
        })
    }
}
