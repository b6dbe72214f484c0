//! Stores the trusted repositories, which may make git run programs such as hooks and filters.
//!
//! Trust holds for the reviewed content only: its hashes are stored, and any change ends the trust. The file is beside the tasks, never in
//! a repository.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sabir_workspace::Trust;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::notice::{NoticeSink, NoticeTopic};
use crate::remember;

/// The trusted repositories, by the folder of their work tree.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TrustFile {
    /// The entries, by the absolute path of the work tree.
    pub repositories: BTreeMap<PathBuf, TrustEntry>,
}

/// A trusted repository, with the hashes of everything in it that can make git run a program.
#[derive(Debug, Serialize, Deserialize)]
pub struct TrustEntry {
    /// The SHA-256 over the hashes of all things.
    pub sha256: String,
    /// The SHA-256 of each thing, by its name.
    pub things: BTreeMap<String, String>,
}

/// Loads the trusted repositories. A file that cannot be read trusts nothing, and a notice says so.
pub fn load_trust(environment: &Environment, notices: &NoticeSink) -> Trust {
    let mut trust = Trust::default();
    let file = read_trust_file(environment).unwrap_or_else(|error| {
        notices.send(
            NoticeTopic::Trust,
            format!("{error}; no repository is trusted"),
        );
        TrustFile::default()
    });
    for (top, entry) in file.repositories {
        // An entry that was edited by hand does not match its own hash, and is not trusted.
        if sabir_workspace::digest_hashes(&entry.things) == entry.sha256 {
            trust.trust_repository(top, entry.things);
        }
    }
    trust
}

/// Returns the path of the file with the trusted repositories.
///
/// # Errors
/// When there is no data folder.
pub fn trust_path(environment: &Environment) -> Result<PathBuf, SessionError> {
    Ok(environment.sabir_data_folder()?.join("trust.json"))
}

/// Reads the trusted repositories; there are none without a file.
///
/// # Errors
/// When the file cannot be read or parsed.
pub fn read_trust_file(environment: &Environment) -> Result<TrustFile, SessionError> {
    let Ok(path) = trust_path(environment) else {
        return Ok(TrustFile::default());
    };
    if !path.exists() {
        return Ok(TrustFile::default());
    }
    let text = config::read_text(&path)?;
    serde_json::from_str(&text).map_err(|error| {
        SessionError::invalid(format!("{} cannot be used: {error}", path.display()))
    })
}

/// Writes the trusted repositories.
///
/// # Errors
/// When the file cannot be written.
pub fn write_trust_file(environment: &Environment, file: &TrustFile) -> Result<(), SessionError> {
    let path = trust_path(environment)?;
    let text = serde_json::to_string_pretty(file)
        .map_err(|error| SessionError::internal(error.to_string()))?;
    // Replaced atomically: a torn file would end the trust in all repositories.
    let replaced = remember::replace_file(environment, &path, &format!("{text}\n"));
    replaced.map_err(|error| {
        SessionError::internal(format!("{} cannot be written: {error}", path.display()))
    })
}
