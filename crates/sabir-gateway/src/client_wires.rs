//! The wires that the gateway speaks to clients, and where.

use sabir_wire::Wire;

/// In front stand the wires that clients can be pointed at.
pub(crate) const CLIENT_WIRES: [Wire; 4] = [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses, Wire::Ollama];

/// The wire of a path, if it is one of those in front.
pub(crate) fn client_wire_of(path: &str) -> Option<Wire> {
    Wire::from_path(path).filter(|wire| CLIENT_WIRES.contains(wire))
}
