//! Stores the servers that the user trusts and the definitions that they approved, in a file beside
//! the tasks, never in a repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sabir_mcp::ApprovedDefinition;
use serde::{Deserialize, Serialize};

use super::sources::FoundServer;
use crate::config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::remember;

/// The content of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct McpStore {
    /// The trusted servers of repositories, by folder and name.
    pub(super) trusted: BTreeMap<PathBuf, BTreeMap<String, TrustedServer>>,
    /// The approved definitions, by the scope of the server, its name, and the name of the tool.
    pub(super) definitions:
        BTreeMap<String, BTreeMap<String, BTreeMap<String, ApprovedDefinition>>>,
}

/// A trusted server of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrustedServer {
    /// The hash of the server's command or address.
    pub(super) sha256: String,
    /// The same as text, to show what has changed.
    pub(super) launch: String,
    /// The files of the repository that are started or read at the start, each with what identifies its content.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
}

impl TrustedServer {
    pub(super) fn from_server(found: &FoundServer) -> Self {
        Self {
            sha256: found.spec.launch_digest(),
            launch: found.spec.launch_line(),
            files: found.files.clone(),
        }
    }

    /// Returns the names of the files that differ, or that only one of the two has.
    pub(super) fn changed_files(&self, now: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.files.keys().chain(now.files.keys()).collect();
        let differs = |name: &&String| self.files.get(*name) != now.files.get(*name);
        names.into_iter().filter(differs).cloned().collect()
    }
}

/// Returns the path of the file.
fn store_path(environment: &Environment) -> Result<PathBuf, SessionError> {
    Ok(environment.sabir_data_folder()?.join("mcp.json"))
}

/// Reads the file; without one nothing is trusted or approved.
pub(super) fn read_store(environment: &Environment) -> Result<McpStore, SessionError> {
    let Ok(path) = store_path(environment) else {
        return Ok(McpStore::default());
    };
    if !path.exists() {
        return Ok(McpStore::default());
    }
    let text = config::read_text(&path)?;
    serde_json::from_str(&text).map_err(|error| unusable_file(&path, &error))
}

fn unusable_file(path: &Path, error: &serde_json::Error) -> SessionError {
    SessionError::invalid(format!("{} cannot be used: {error}", path.display()))
}

/// Changes the file, while no other process does.
pub(super) fn change_store(
    environment: &Environment,
    change: impl FnOnce(&mut McpStore),
) -> Result<McpStore, SessionError> {
    let path = store_path(environment)?;
    let _alone = remember::lock_folder(&path)?;
    let mut store = read_store(environment)?;
    change(&mut store);
    let text = serde_json::to_string_pretty(&store)
        .map_err(|error| SessionError::internal(error.to_string()))?;
    // Replaced atomically: a torn file would end all trust.
    remember::replace_file(environment, &path, &format!("{text}\n")).map_err(|error| {
        SessionError::internal(format!("{} cannot be written: {error}", path.display()))
    })?;
    Ok(store)
}
