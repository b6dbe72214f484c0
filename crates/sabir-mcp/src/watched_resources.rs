//! Remembers which resources of a server the model has read, and which of them have changed since.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::MAX_WATCHED_RESOURCES;
use crate::result_content::one_line;
use crate::servers::McpNotice;

/// The resources that the model has read on one connection.
pub(crate) struct WatchedResources {
    server: String,
    notify: Arc<dyn Fn(McpNotice) + Send + Sync>,
    state: Mutex<WatchedState>,
    /// Woken when another resource is watched.
    added: Notify,
}

#[derive(Default)]
struct WatchedState {
    watched: BTreeSet<String>,
    /// The resources that have changed since the last note to the model.
    changed: BTreeSet<String>,
}

impl WatchedResources {
    /// Creates the resources of a server; `notify` receives notices for the user.
    pub(crate) fn new(server: &str, notify: Arc<dyn Fn(McpNotice) + Send + Sync>) -> Self {
        Self {
            server: server.to_owned(),
            notify,
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, WatchedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a resource. Returns false if it was watched already, or too many are.
    pub(crate) fn watch_resource(&self, uri: &str) -> bool {
        let mut state = self.lock_state();
        // It is about to be read, so an earlier change is not news.
        state.changed.remove(uri);
        let is_new =
            state.watched.len() < MAX_WATCHED_RESOURCES && state.watched.insert(uri.to_owned());
        drop(state);
        if is_new {
            self.added.notify_one();
        }
        is_new
    }

    /// Returns the watched resources.
    pub(crate) fn watched_uris(&self) -> Vec<String> {
        self.lock_state().watched.iter().cloned().collect()
    }

    /// Waits until another resource is watched.
    pub(crate) async fn wait_added(&self) {
        self.added.notified().await;
    }

    /// Notes that a resource has changed, or a part of it. Notifies the user once, until the model was notified.
    pub(crate) fn note_change(&self, uri: &str) {
        let mut state = self.lock_state();
        let is_part = |watched: &&String| {
            let rest = uri.strip_prefix(watched.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // The address that the model has used, not one that only the server knows.
        let Some(known) = state.watched.iter().rev().find(is_part).cloned() else {
            return;
        };
        if !state.changed.insert(known.clone()) {
            return;
        }
        drop(state);
        (self.notify)(McpNotice {
            server: self.server.clone(),
            text: format!("its resource {} has changed", one_line(&known)),
        });
    }

    /// Returns the resources that have changed since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.lock_state().changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_is_reported_once() {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&notices);
        let notify = move |notice: McpNotice| kept.lock().unwrap().push(notice.text);
        let resources = WatchedResources::new("s", Arc::new(notify));
        assert!(resources.watch_resource("memo://a"));
        assert!(!resources.watch_resource("memo://a"));
        for uri in ["memo://b", "memo://ab", "memo://a", "memo://a/1"] {
            resources.note_change(uri);
        }
        let expected = BTreeSet::from(["memo://a".to_owned()]);
        assert_eq!(resources.take_changed(), expected);
        assert_eq!(resources.take_changed(), BTreeSet::new());
        assert_eq!(
            *notices.lock().unwrap(),
            ["its resource memo://a has changed"]
        );
        // A change that the next read shows is not news.
        resources.note_change("memo://a");
        resources.watch_resource("memo://a");
        assert_eq!(resources.take_changed(), BTreeSet::new());
        for number in 0..2 * MAX_WATCHED_RESOURCES {
            resources.watch_resource(&format!("memo://{number}"));
        }
        assert_eq!(resources.watched_uris().len(), MAX_WATCHED_RESOURCES);
    }
}
