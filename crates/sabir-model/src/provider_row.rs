//! Describes a provider and the source of its key, without the key.

use serde::Serialize;

/// The source of a provider's key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum KeySource {
    /// No source: the provider is not known to need a key.
    Nowhere,
    /// The configuration file.
    File,
    /// A command, which runs when the key is needed.
    Command,
    /// Environment variables; the first one that is set counts.
    Environment {
        /// Their names.
        names: Vec<String>,
        /// The first name that is set, if any is.
        present: Option<String>,
    },
}

/// A provider as `sabir models` lists it.
#[derive(Debug, Serialize)]
pub struct ProviderRow {
    /// The provider's name.
    pub name: String,
    /// The API that it speaks, such as `openai-chat`.
    pub wire: String,
    /// Its base URL, without user name, password and query.
    pub base_url: String,
    /// The source of its key.
    pub key: KeySource,
}
