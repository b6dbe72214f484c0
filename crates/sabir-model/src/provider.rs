//! Where a provider is, and what it insists on.

use sabir_wire::{Form, Wire};

use crate::secret::Secret;
use crate::signing::Signing;

/// A provider: an address, a wire, a key.
#[derive(Debug, Clone)]
pub struct Provider {
    /// The name used in messages.
    pub name: String,
    /// What it speaks.
    pub wire: Wire,
    /// What stands before the wire's path, such as `https://api.openai.com/v1` or `https://api.anthropic.com`.
    pub base_url: String,
    /// The key; `None` for servers that want none.
    pub key: Option<Secret>,
    /// What signs requests instead of a key, for Bedrock; it does not count where there is a key.
    pub signing: Option<Signing>,
    /// Further headers. Their values are taken for secrets.
    pub headers: Vec<(String, Secret)>,
    /// A proxy's URL. The environment is not asked.
    pub proxy: Option<Secret>,
    /// What its requests need beyond the wire.
    pub form: Form,
}

/// A provider that everybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it speaks.
    pub wire: Wire,
    /// Its address.
    pub base_url: &'static str,
    /// The environment variable that holds its key by convention; `None` for servers on this machine.
    pub key_name: Option<&'static str>,
    /// The message field in which its models want their thoughts back.
    thought_field: Option<&'static str>,
}

/// The providers that everybody knows.
pub const KNOWN: [Known; 11] = [
    row("anthropic", Wire::Anthropic, "https://api.anthropic.com", Some("ANTHROPIC_API_KEY"), None),
    row("openai", Wire::OpenAiChat, "https://api.openai.com/v1", Some("OPENAI_API_KEY"), None),
    row("openrouter", Wire::OpenAiChat, "https://openrouter.ai/api/v1", Some("OPENROUTER_API_KEY"), Some("reasoning")),
    row("groq", Wire::OpenAiChat, "https://api.groq.com/openai/v1", Some("GROQ_API_KEY"), None),
    row("mistral", Wire::OpenAiChat, "https://api.mistral.ai/v1", Some("MISTRAL_API_KEY"), None),
    row(
        "deepseek",
        Wire::OpenAiChat,
        "https://api.deepseek.com/v1",
        Some("DEEPSEEK_API_KEY"),
        Some("reasoning_content"),
    ),
    row(
        "bedrock",
        Wire::Bedrock,
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        Some("AWS_BEARER_TOKEN_BEDROCK"),
        None,
    ),
    row("xai", Wire::OpenAiChat, "https://api.x.ai/v1", Some("XAI_API_KEY"), None),
    row("ollama", Wire::OpenAiChat, "http://127.0.0.1:11434/v1", None, None),
    row("llama.cpp", Wire::OpenAiChat, "http://127.0.0.1:8080/v1", None, None),
    row("vllm", Wire::OpenAiChat, "http://127.0.0.1:8000/v1", None, None),
];

const fn row(
    name: &'static str,
    wire: Wire,
    base_url: &'static str,
    key_name: Option<&'static str>,
    thought_field: Option<&'static str>,
) -> Known {
    Known { name, wire, base_url, key_name, thought_field }
}

impl Known {
    /// The provider of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// The provider with a key, as it is usually asked.
    pub fn provider(&self, key: Option<Secret>) -> Provider {
        let mut provider = Provider::new(self.name, self.wire, self.base_url, key);
        provider.form.thought_field = self.thought_field.map(str::to_owned);
        provider.form.completion_limit = self.name == "openai";
        provider
    }
}

impl Provider {
    /// A provider that streams, and caches where the wire can.
    pub fn new(name: impl Into<String>, wire: Wire, base_url: impl Into<String>, key: Option<Secret>) -> Self {
        let form = Form { streamed: true, cached: true, ..Form::default() };
        let base_url = base_url.into().trim().trim_end_matches('/').to_owned();
        Self { name: name.into(), wire, base_url, key, signing: None, headers: Vec::new(), proxy: None, form }
    }

    /// The address of its endpoint for a model. A base URL that already ends in the wire's path, or in its version, is
    /// understood.
    pub fn url(&self, model: &str) -> String {
        let base = self.base_url.trim_end_matches('/');
        let endpoint = self.wire.endpoint(model, self.form.streamed);
        let path = endpoint.split('?').next().unwrap_or_default();
        if base.ends_with(path) {
            return base.to_owned();
        }
        let version = path.split('/').nth(1).filter(|part| part.starts_with('v')).unwrap_or_default();
        let known = !version.is_empty() && base.rsplit('/').next() == Some(version);
        let rest = endpoint.get(1 + version.len()..).filter(|_| known).unwrap_or(&endpoint);
        format!("{base}{rest}")
    }

    /// Whether it is asked over TLS.
    pub fn is_secure(&self) -> bool {
        self.base_url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }

    /// A text without any of the provider's secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let signing = self.signing.iter().flat_map(|signing| signing.token.iter().chain([&signing.secret_key]));
        let secrets = self.key.iter().chain(self.headers.iter().map(|(_, value)| value)).chain(&self.proxy);
        let secrets = secrets.chain(signing);
        secrets.fold(text.to_owned(), |text, secret| secret.redact(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_understood() {
        let url = |wire, base: &str| Provider::new("p", wire, base, None).url("m");
        for base in ["https://x.y", "https://x.y/", "https://x.y/v1", "https://x.y/v1/messages"] {
            assert_eq!(url(Wire::Anthropic, base), "https://x.y/v1/messages");
        }
        for base in ["http://x:1/v1", " http://x:1/v1/ ", "http://x:1/v1/chat/completions"] {
            assert_eq!(url(Wire::OpenAiChat, base), "http://x:1/v1/chat/completions");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let mut provider = Provider::new("p", Wire::Anthropic, "https://x.y", Some(Secret::new("sk-12345")));
        provider.headers.push(("x-token".into(), Secret::new("token-9876")));
        provider.signing = Some(Signing {
            access_key: "AKID".into(),
            secret_key: Secret::new("key-5555"),
            token: Some(Secret::new("temporary-7777")),
            region: "eu-west-1".into(),
            clock: || std::time::UNIX_EPOCH,
        });
        let shown = format!("{provider:?} {}", provider.redact("sk-12345 token-9876 key-5555 temporary-7777"));
        assert!(["12345", "9876", "5555", "7777"].iter().all(|secret| !shown.contains(secret)), "{shown}");
    }
}
