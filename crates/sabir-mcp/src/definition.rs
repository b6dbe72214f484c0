//! Describes a server's tool, and remembers the approved description.
//!
//! A server can change the description of a tool after the user has approved the tool. So the
//! definition that a tool had when it was first called is kept, and a call under another definition
//! needs a new approval, whatever the rules allow.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::limits::MAX_DESCRIPTION_BYTES;
use crate::result_content::cut_text;

/// The definition of a tool as its server gives it, cleaned and bounded.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name at the server.
    pub name: String,
    /// The description, without control characters and invisible ones.
    pub description: String,
    /// The schema of the arguments, as the server gives it.
    pub schema: Map<String, Value>,
    /// True if the server claims that the tool only reads. Shown to the user, and used for nothing.
    pub claims_read_only: bool,
}

/// A definition that the user has approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedDefinition {
    /// The SHA-256 of the definition.
    pub sha256: String,
    /// Its text, for a comparison with a later one.
    pub text: String,
}

/// The relation of a tool's definition to the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefinitionState {
    /// None was approved yet.
    New,
    /// The definition is the approved one.
    Approved,
    /// The definition differs from the approved one, whose text this is.
    Changed(String),
}

/// Keeps approved definitions. Its methods may be called from any thread, and must be quick.
pub trait DefinitionStore: Send + Sync {
    /// Returns the approved definition of a tool.
    fn approved_definition(&self, server: &str, tool: &str) -> Option<ApprovedDefinition>;

    /// Keeps a definition as approved. A store that cannot keep it asks again next time.
    fn approve_definition(&self, server: &str, tool: &str, definition: ApprovedDefinition);
}

/// A store that keeps nothing: every definition is new.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullDefinitionStore;

impl DefinitionStore for NullDefinitionStore {
    fn approved_definition(&self, _: &str, _: &str) -> Option<ApprovedDefinition> {
        None
    }

    fn approve_definition(&self, _: &str, _: &str, _: ApprovedDefinition) {}
}

impl ToolDefinition {
    /// Creates a definition from a server's message.
    pub(crate) fn from_server(tool: &rmcp::model::Tool) -> Self {
        let description = tool.description.as_deref().unwrap_or_default();
        Self {
            name: tool.name.to_string(),
            description: clean_description(description),
            schema: tool.input_schema.as_ref().clone(),
            claims_read_only: tool
                .annotations
                .as_ref()
                .and_then(|hints| hints.read_only_hint)
                .unwrap_or(false),
        }
    }

    /// Writes the definition as text, which differs for every other definition.
    pub fn to_text(&self) -> String {
        let schema = serde_json::to_string_pretty(&self.schema).unwrap_or_default();
        format!("{}\n\n{}\n\n{schema}\n", self.name, self.description)
    }

    /// Returns the definition as one to keep.
    pub fn to_approved(&self) -> ApprovedDefinition {
        let text = self.to_text();
        ApprovedDefinition {
            sha256: hex_digest(Sha256::digest(text.as_bytes()).as_slice()),
            text,
        }
    }

    /// Compares the definition with the approved one.
    pub(crate) fn compare(&self, server: &str, store: &dyn DefinitionStore) -> DefinitionState {
        match store.approved_definition(server, &self.name) {
            None => DefinitionState::New,
            Some(known) if known.sha256 == self.to_approved().sha256 => DefinitionState::Approved,
            Some(known) => DefinitionState::Changed(known.text),
        }
    }
}

/// Removes control characters and invisible ones from a description, and shortens it. A person must be able to read all that the
/// model reads.
pub(crate) fn clean_description(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter(|&c| {
            matches!(c, '\n' | '\t') || !(c.is_control() || sabir_policy::is_deceptive_char(c))
        })
        .collect();
    cut_text(plain.trim(), MAX_DESCRIPTION_BYTES)
}

/// Writes bytes in hexadecimal.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_cleaned_and_cut() {
        assert_eq!(clean_description("a\u{1b}[31mb\u{200b}c\r\n"), "a[31mbc");
        let long = clean_description(&"x".repeat(200_000));
        assert!(long.len() < MAX_DESCRIPTION_BYTES + 100, "{}", long.len());
        assert!(long.contains("195904 bytes more"), "{long}");
    }

    #[test]
    fn every_part_of_a_definition_counts() {
        let definition = |description: &str, schema: Value| ToolDefinition {
            name: "t".to_owned(),
            description: description.to_owned(),
            schema: schema.as_object().cloned().unwrap_or_default(),
            claims_read_only: false,
        };
        let first = definition("a", serde_json::json!({"type": "object"}));
        let other_text = definition("b", serde_json::json!({"type": "object"}));
        let other_schema = definition("a", serde_json::json!({"type": "object", "title": "x"}));
        let hashes: std::collections::BTreeSet<_> = [&first, &other_text, &other_schema]
            .map(|definition| definition.to_approved().sha256)
            .into();
        assert_eq!(hashes.len(), 3);
    }
}
