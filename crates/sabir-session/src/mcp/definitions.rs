//! Keeps the definitions of tools that the user has approved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_mcp::{ApprovedDefinition, DefinitionStore};

use super::store::{McpStore, change_store, read_store};
use crate::environment::Environment;
use crate::notice::{NoticeSink, NoticeTopic};

/// The approved definitions of one session's servers.
pub(super) struct SessionDefinitions {
    environment: Arc<Environment>,
    notices: NoticeSink,
    /// The scope of each server by its name: a server of a repository is not the one of the same name in another.
    scopes: BTreeMap<String, String>,
    /// The file as it was last read or written; `None` if it cannot be read.
    known: Mutex<Option<McpStore>>,
}

impl SessionDefinitions {
    pub(super) fn new(
        environment: Arc<Environment>,
        notices: NoticeSink,
        scopes: BTreeMap<String, String>,
    ) -> Self {
        let known = read_store(&environment)
            .inspect_err(|error| notices.send(NoticeTopic::Mcp, error.to_string()))
            .ok();
        Self {
            environment,
            notices,
            scopes,
            known: Mutex::new(known),
        }
    }

    fn scope(&self, server: &str) -> String {
        self.scopes.get(server).cloned().unwrap_or_default()
    }
}

impl DefinitionStore for SessionDefinitions {
    fn approved_definition(&self, server: &str, tool: &str) -> Option<ApprovedDefinition> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = known.as_ref() else {
            // Fails closed: what was approved is not known, so every tool counts as changed and is
            // asked about.
            return Some(ApprovedDefinition {
                sha256: String::new(),
                text: String::new(),
            });
        };
        let servers = store.definitions.get(&self.scope(server))?;
        servers.get(server)?.get(tool).cloned()
    }

    fn approve_definition(&self, server: &str, tool: &str, definition: ApprovedDefinition) {
        let changed = change_store(&self.environment, |store| {
            store
                .definitions
                .entry(self.scope(server))
                .or_default()
                .entry(server.to_owned())
                .or_default()
                .insert(tool.to_owned(), definition);
        });
        match changed {
            Ok(store) => {
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
            }
            Err(error) => self.notices.send(
                NoticeTopic::Mcp,
                format!("the approval of {server}/{tool} is not kept: {error}"),
            ),
        }
    }
}
