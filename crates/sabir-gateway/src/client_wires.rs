//! Lists the wires that the gateway serves to clients.

use sabir_wire::Wire;

/// The wires that the gateway serves.
///
/// Bedrock is used only for providers.
pub(crate) const CLIENT_WIRES: [Wire; 5] = [
    Wire::Anthropic,
    Wire::OpenAiChat,
    Wire::OpenAiResponses,
    Wire::Ollama,
    Wire::Gemini,
];

/// Returns the wire of a path, if the gateway serves it.
pub(crate) fn client_wire_of(path: &str) -> Option<Wire> {
    Wire::from_path(path).filter(|wire| CLIENT_WIRES.contains(wire))
}
