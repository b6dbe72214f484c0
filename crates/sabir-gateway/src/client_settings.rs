//! Renders settings for common clients, ready to paste.
//!
//! The settings hold the token as the caller gives it: the token itself, or a reference such as `$VARIABLE` that a shell resolves.

use std::net::SocketAddr;

/// The facts that the settings are made of.
#[derive(Debug, Clone, Copy)]
pub struct ClientSettingsInput<'a> {
    /// The address that the gateway listens on.
    pub address: SocketAddr,
    /// True if it serves TLS.
    pub is_secure: bool,
    /// The token, or a reference to the variable that holds it.
    pub token: &'a str,
    /// The model that the settings select.
    pub model: &'a str,
    /// The names of all served models.
    pub names: &'a [String],
}

/// The clients and their settings, in which `{url}`, `{token}` and `{model}` are replaced.
const CLIENTS: [(&str, &str); 9] = [
    (
        "Claude Code",
        "export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_AUTH_TOKEN={token}
export ANTHROPIC_MODEL={model}
export ANTHROPIC_DEFAULT_OPUS_MODEL={model}
export ANTHROPIC_DEFAULT_SONNET_MODEL={model}
export ANTHROPIC_DEFAULT_HAIKU_MODEL={model}
unset ANTHROPIC_API_KEY
claude",
    ),
    (
        "Codex, in ~/.codex/config.toml, with SABIR_TOKEN={token} in the environment",
        "model = \"{model}\"
model_provider = \"sabir\"

[model_providers.sabir]
name = \"Sabir\"
base_url = \"{url}/v1\"
env_key = \"SABIR_TOKEN\"
wire_api = \"responses\"",
    ),
    (
        "Cline, in its settings",
        "API Provider  OpenAI Compatible
Base URL      {url}/v1
API Key       {token}
Model ID      {model}",
    ),
    (
        "Zed, in settings.json, with SABIR_API_KEY={token} in the environment",
        "\"language_models\": {
  \"openai_compatible\": {
    \"Sabir\": {
      \"api_url\": \"{url}/v1\",
      \"available_models\": [{\"name\": \"{model}\", \"max_tokens\": 128000}]
    }
  }
}",
    ),
    (
        "OpenAI SDKs: Chat Completions and Responses",
        "export OPENAI_BASE_URL={url}/v1
export OPENAI_API_KEY={token}",
    ),
    (
        "Anthropic SDKs",
        "export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_API_KEY={token}",
    ),
    (
        "Gemini CLI, with a Gemini API key as its way to authenticate, and the SDKs of Google",
        "export GOOGLE_GEMINI_BASE_URL={url}
export GEMINI_API_KEY={token}
export GEMINI_MODEL={model}",
    ),
    (
        "Ollama clients",
        "export OLLAMA_HOST={url}
export OLLAMA_API_KEY={token}",
    ),
    (
        "curl",
        "curl {url}/v1/chat/completions -H \"Authorization: Bearer {token}\" -H 'Content-Type: application/json' \\
  -d '{\"model\": \"{model}\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'",
    ),
];

/// Renders the settings of all clients, after a line with the names of the models. The names are foreign text, which must be sanitized
/// before it reaches a terminal.
pub fn render_client_settings(facts: &ClientSettingsInput<'_>) -> String {
    let scheme = if facts.is_secure { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable_address(facts.address));
    let lines: String = CLIENTS
        .iter()
        .map(|(client, lines)| format!("\n# {client}\n{lines}\n"))
        .collect();
    let lines = lines
        .replace("{url}", &url)
        .replace("{token}", facts.token)
        // Last, because the name is foreign: no placeholder within it is replaced.
        .replace("{model}", facts.model);
    format!("models: {}\n{lines}\n", facts.names.join(", "))
}

/// Returns the address under which a client on this machine reaches the gateway.
fn reachable_address(address: SocketAddr) -> String {
    // `0.0.0.0` is an address to listen on, not one to connect to.
    if address.ip().is_unspecified() {
        format!("127.0.0.1:{}", address.port())
    } else {
        address.to_string()
    }
}
