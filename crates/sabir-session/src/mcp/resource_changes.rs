//! Tells the model which resources of servers have changed since it read them.

use sabir_agent::{DriverObserver, ObserverFuture};

use crate::hub::EventHub;

/// Adds a note to the next request when resources that the model has read have changed.
pub(crate) struct ResourceChangeNotifier(pub(crate) EventHub);

impl DriverObserver for ResourceChangeNotifier {
    fn before_request(&self) -> ObserverFuture<'_, Option<String>> {
        let servers = self.0.servers();
        let changed = servers.map(|servers| servers.take_changed_resources());
        let lines: Vec<String> = changed
            .unwrap_or_default()
            .into_iter()
            // The address is the one that the model has used.
            .map(|resource| format!("- {} of the server {}", resource.uri, resource.server))
            .collect();
        let note = (!lines.is_empty()).then(|| {
            format!(
                "These resources of MCP servers have changed since you read them:\n{}",
                lines.join("\n")
            )
        });
        Box::pin(std::future::ready(note))
    }
}
