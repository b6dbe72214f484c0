//! Describes providers: address, wire, key, and special requirements.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sabir_wire::{Wire, WireOptions, percent_decode};

use crate::client_redaction::ClientRedactor;
use crate::secret::Secret;
use crate::signing::SigningCredentials;

/// A provider of models: its address, its wire and its key.
#[derive(Debug, Clone)]
pub struct Provider {
    /// The name used in messages.
    pub name: String,
    /// The wire, which is the format of its API.
    pub wire: Wire,
    /// The URL before the wire's path, such as `https://api.openai.com/v1` or
    /// `https://api.anthropic.com`.
    pub base_url: String,
    /// The key; `None` for servers that need none.
    ///
    /// It is sent in the wire's own header and only to `base_url`: no redirect is followed.
    pub key: Option<Secret>,
    /// The credentials that sign requests to Bedrock; ignored if there is a key.
    pub signing: Option<SigningCredentials>,
    /// Additional headers. Their values are treated as secrets.
    pub headers: Vec<(String, Secret)>,
    /// The URL of a proxy. This crate reads no variables of the environment.
    pub proxy: Option<Secret>,
    /// The hosts that are reached without the proxy, in the format of the variable `NO_PROXY`:
    /// names, domains (`.example.org`), addresses and networks, separated by commas; `*` is all.
    pub proxy_exceptions: String,
    /// The options of its requests beyond the wire.
    pub form: WireOptions,
}

/// A header of a provider that HTTP does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header `{name}` for {provider} {what}")]
pub(crate) struct InvalidHeader {
    /// The name of the header.
    name: String,
    /// The name of the provider.
    provider: String,
    /// The problem.
    what: &'static str,
}

/// A well-known provider with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProvider {
    /// The provider's name.
    pub name: &'static str,
    /// The name of its wire.
    pub wire: &'static str,
    /// The provider's address.
    pub base_url: &'static str,
    /// The environment variables for its key, by convention; the first one that is set is used.
    /// Empty for servers on this machine.
    pub key_names: &'static [&'static str],
    /// The message field in which its models expect their thoughts in later requests.
    thought_field: Option<&'static str>,
}

/// The well-known providers. Addresses and variables are from each provider's API documentation.
pub const KNOWN_PROVIDERS: [KnownProvider; 14] = [
    known_provider(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        &["ANTHROPIC_API_KEY"],
    ),
    known_provider(
        "openai",
        CHAT,
        "https://api.openai.com/v1",
        &["OPENAI_API_KEY"],
    ),
    known_provider(
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    ),
    known_provider(
        "openrouter",
        CHAT,
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_KEY"],
    )
    .with_thought_field("reasoning"),
    known_provider(
        "groq",
        CHAT,
        "https://api.groq.com/openai/v1",
        &["GROQ_API_KEY"],
    ),
    known_provider(
        "mistral",
        CHAT,
        "https://api.mistral.ai/v1",
        &["MISTRAL_API_KEY"],
    ),
    known_provider(
        "deepseek",
        CHAT,
        "https://api.deepseek.com/v1",
        &["DEEPSEEK_API_KEY"],
    )
    .with_thought_field("reasoning_content"),
    known_provider("xai", CHAT, "https://api.x.ai/v1", &["XAI_API_KEY"]),
    known_provider(
        "bedrock",
        "bedrock",
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        &["AWS_BEARER_TOKEN_BEDROCK"],
    ),
    known_provider(
        "together",
        CHAT,
        "https://api.together.xyz/v1",
        &["TOGETHER_API_KEY"],
    ),
    known_provider("ollama", CHAT, "http://127.0.0.1:11434/v1", &[]),
    known_provider("llama.cpp", CHAT, "http://127.0.0.1:8080/v1", &[]),
    known_provider("lmstudio", CHAT, "http://127.0.0.1:1234/v1", &[]),
    known_provider("vllm", CHAT, "http://127.0.0.1:8000/v1", &[]),
];

/// The name of the wire that most providers share.
const CHAT: &str = "openai-chat";

/// The words in the names of headers and parameters that hold a credential.
const CREDENTIAL_WORDS: [&str; 7] = [
    "auth",
    "cookie",
    "credential",
    "key",
    "password",
    "secret",
    "token",
];

/// Makes an entry of the table.
const fn known_provider(
    name: &'static str,
    wire: &'static str,
    base_url: &'static str,
    key_names: &'static [&'static str],
) -> KnownProvider {
    KnownProvider {
        name,
        wire,
        base_url,
        key_names,
        thought_field: None,
    }
}

impl KnownProvider {
    /// Returns the known provider of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        KNOWN_PROVIDERS.iter().find(|known| known.name == name)
    }

    /// Adds the field for thoughts.
    const fn with_thought_field(mut self, field: &'static str) -> Self {
        self.thought_field = Some(field);
        self
    }

    /// Returns true if it is a server on the user's own machine.
    pub fn is_local(&self) -> bool {
        self.key_names.is_empty()
    }

    /// Makes a provider with the usual settings. `wire` replaces the default wire of a provider
    /// that has several. Returns `None` if its default wire is not supported.
    pub fn to_provider(&self, wire: Option<Wire>) -> Option<Provider> {
        let wire = wire.or_else(|| Wire::from_name(self.wire))?;
        let mut provider = Provider::new(self.name, wire, self.base_url, None);
        provider.form.thought_field = self.thought_field.map(str::to_owned);
        // OpenAI's newer models reject `max_tokens` and demand `max_completion_tokens`.
        provider.form.completion_limit = self.name == "openai";
        provider.apply_address_options();
        Some(provider)
    }
}

impl Provider {
    /// Sets the options of the wire that follow from the address, after the address was set.
    pub fn apply_address_options(&mut self) {
        self.form.custom_tools = host_of(&self.base_url) == "api.openai.com";
    }
}

/// Returns true if a provider is a well-known local server and its address is on this machine.
pub(crate) fn is_local(provider: &Provider) -> bool {
    let known = KnownProvider::from_name(&provider.name).is_some_and(KnownProvider::is_local);
    // The name alone proves nothing: a user may point `ollama` at another machine.
    known && is_loopback(&provider.base_url)
}

/// Returns true if an address is on this machine.
///
/// Names other than `localhost` are not resolved, because their address may change between the
/// check and the use.
pub fn is_loopback(base_url: &str) -> bool {
    let host = host_of(base_url);
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Returns true if a header or parameter of this name holds a credential.
fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

/// Removes the parts of an address that may be secret: user, password and query.
///
/// An `@` in the path is kept, because some models have one in their name.
pub fn strip_url_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = place.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Returns the host of an address, in lower case and without its port.
pub(crate) fn host_of(base_url: &str) -> String {
    let plain = strip_url_secrets(base_url);
    let rest = plain
        .split_once("://")
        .map_or(plain.as_str(), |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or_default();
    let host = match place.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => place,
    };
    host.to_ascii_lowercase()
}

impl Provider {
    /// Makes a provider that streams, and that uses prompt caching if the wire supports it.
    pub fn new(
        name: impl Into<String>,
        wire: Wire,
        base_url: impl Into<String>,
        key: Option<Secret>,
    ) -> Self {
        let form = WireOptions {
            streamed: true,
            cached: true,
            ..WireOptions::default()
        };
        let base_url = base_url.into().trim().trim_end_matches('/').to_owned();
        Self {
            name: name.into(),
            wire,
            base_url,
            key,
            signing: None,
            headers: Vec::new(),
            proxy: None,
            proxy_exceptions: String::new(),
            form,
        }
    }

    /// Returns the address of the endpoint for a model.
    ///
    /// A base URL may already end in the wire's path or in its version, and may end in `/v1` if the
    /// wire's path begins with `/api`. The query of the base URL is kept.
    pub fn endpoint_url(&self, model: &str) -> String {
        let endpoint = self.wire.endpoint_path(model, self.form.streamed);
        let Some((base, query)) = self.base_url.split_once('?') else {
            return join_url(&self.base_url, &endpoint);
        };
        let url = join_url(base, &endpoint);
        // Gemini's path for streams has a query of its own (`alt=sse`).
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}{query}")
    }

    /// Adds the key and the provider's own headers, marked as secret. The provider's own headers come last, so that they can replace the
    /// key's.
    ///
    /// # Errors
    /// A header that HTTP does not allow.
    pub(crate) fn insert_own_headers(&self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        let (key_name, prefix) = self.wire.key_header();
        // An empty key would be sent as a malformed header, so it counts as none.
        let key = self.key.iter().filter(|key| !key.is_empty());
        let key = key.map(|key| (key_name, format!("{prefix}{}", key.expose())));
        let own = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose().to_owned()));
        for (name, value) in key.chain(own) {
            let refuse = |what| InvalidHeader {
                name: name.to_owned(),
                provider: self.name.clone(),
                what,
            };
            let header = HeaderName::try_from(name)
                .map_err(|_| refuse("has a name that HTTP does not allow"))?;
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| refuse("holds characters that HTTP does not allow"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(())
    }

    /// Returns the address of another path of the provider's API, such as `/v1/embeddings`. If the
    /// path and the base URL have a parameter of one name, that of the base URL is used.
    pub(crate) fn path_url(&self, path: &str) -> String {
        let Some((base, own)) = self.base_url.split_once('?') else {
            return join_url(&self.base_url, path);
        };
        let mut parts = path.splitn(2, '?');
        let path = parts.next().unwrap_or_default();
        let query = parts.next().unwrap_or_default();
        let name_of = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let own_names: Vec<String> = own.split('&').map(name_of).collect();
        let others = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !own_names.contains(&name_of(pair)));
        let pairs: Vec<&str> = others.chain([own]).collect();
        format!("{}?{}", join_url(base, path), pairs.join("&"))
    }

    /// Returns the address of a path at the root of the provider's server.
    pub(crate) fn root_url(&self, path: &str) -> String {
        let base = self.base_url.split('?').next().unwrap_or_default();
        let begin = base.find("://").map_or(0, |at| at + 3);
        let rest = base.get(begin..).unwrap_or_default();
        let end = begin + rest.find('/').unwrap_or(rest.len());
        format!("{}{path}", base.get(..end).unwrap_or(base))
    }

    /// Returns true if the address uses TLS.
    pub fn is_secure(&self) -> bool {
        self.base_url
            .get(..6)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }

    /// Returns all secrets of the provider, which must not be shown.
    ///
    /// Redaction depends on this list: a new field with a secret must be added in [`Self::secrets_with`].
    pub(crate) fn all_secrets(&self) -> Vec<Secret> {
        self.secrets_with(|_| true)
    }

    /// Returns the secrets that are no ordinary words: values of headers count only if their name
    /// speaks of a credential.
    pub(crate) fn credentials(&self) -> Vec<Secret> {
        self.secrets_with(is_credential_name)
    }

    /// Returns the secrets of the provider, with the values of the headers whose names satisfy a condition.
    fn secrets_with(&self, is_secret: impl Fn(&str) -> bool) -> Vec<Secret> {
        let signing = self
            .signing
            .iter()
            .flat_map(|signing| signing.token.iter().chain([&signing.secret_key]));
        let own = self.headers.iter().filter(|(name, _)| is_secret(name));
        let own = own.map(|(_, value)| value);
        // An address without a password is not a secret, and messages name it.
        let proxy = self
            .proxy
            .iter()
            .filter(|proxy| strip_url_secrets(proxy.expose()) != proxy.expose());
        let mut all: Vec<_> = self
            .key
            .iter()
            .chain(own)
            .chain(proxy)
            .chain(signing)
            .cloned()
            .collect();
        all.extend(self.url_password());
        all.extend(self.url_parameters());
        all
    }

    /// Returns the values of the parameters of the address that hold a credential, such as `?api-key=…`, as written there and
    /// without escapes. Others are no secrets: `api-version=2025-01-01`.
    fn url_parameters(&self) -> Vec<Secret> {
        let address = self.base_url.split('#').next().unwrap_or_default();
        let query = address.split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .filter_map(|parameter| parameter.split_once('='))
            .filter(|(name, value)| !value.is_empty() && is_credential_name(&percent_decode(name)))
            .flat_map(|(_, value)| [value.to_owned(), percent_decode(value)])
            .map(Secret::new)
            .collect()
    }

    /// Returns the password in the address, as written there and as sent in the header for basic
    /// authentication.
    fn url_password(&self) -> Vec<Secret> {
        let place = self
            .base_url
            .split_once("://")
            .map_or(self.base_url.as_str(), |(_, rest)| rest);
        let place = place.split(['/', '?', '#']).next().unwrap_or_default();
        let Some((user, password)) = place
            .rsplit_once('@')
            .and_then(|(info, _)| info.split_once(':'))
        else {
            return Vec::new();
        };
        // reqwest sends the password of an address as basic authentication, without its escapes.
        let decoded_user = percent_decode(user);
        let decoded_password = percent_decode(password);
        let secrets = [
            BASE64_STANDARD.encode(format!("{user}:{password}")),
            BASE64_STANDARD.encode(format!("{decoded_user}:{decoded_password}")),
            password.to_owned(),
            decoded_password,
        ];
        secrets
            .into_iter()
            .filter(|_| !password.is_empty())
            .map(Secret::new)
            .collect()
    }

    /// Replaces the provider's secrets in a text, also where they are escaped or broken into lines.
    pub(crate) fn redact_secrets(&self, text: &str) -> String {
        let redacted = ClientRedactor::new(self).redact_secrets(text.as_bytes());
        let redacted = redacted.as_deref().map(String::from_utf8_lossy);
        redacted.map_or_else(|| text.to_owned(), Cow::into_owned)
    }

    /// Replaces the provider's secrets in the beginning of a text, and the part of one at its end.
    pub(crate) fn redact_opening(&self, opening: &str) -> String {
        let redactor = ClientRedactor::new(self);
        let whole = redactor.redact_secrets(opening.as_bytes());
        let whole = whole.as_deref().unwrap_or(opening.as_bytes());
        let cut = redactor.redact_cut_end(whole);
        String::from_utf8_lossy(cut.as_deref().unwrap_or(whole)).into_owned()
    }
}

/// Joins a base URL and an endpoint's path, without repeating what both contain.
fn join_url(base: &str, endpoint: &str) -> String {
    let base = base.trim_end_matches('/');
    let path = endpoint.split('?').next().unwrap_or_default();
    if base.ends_with(path) {
        return base.to_owned();
    }
    let first = path.split('/').nth(1).unwrap_or_default();
    let last = base.rsplit('/').next().unwrap_or_default();
    // Ollama's own API is at `/api`, but users often give the address of its OpenAI-compatible one,
    // `/v1`.
    if first == "api" {
        let base = if last == "v1" {
            base.trim_end_matches("/v1")
        } else {
            base.trim_end_matches("/api")
        };
        return format!("{base}{endpoint}");
    }
    // A version at the end of the base URL (`/v1`) is not repeated.
    let known = first.starts_with('v') && first == last;
    let rest = endpoint
        .get(1 + first.len()..)
        .filter(|_| known)
        .unwrap_or(endpoint);
    format!("{base}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_kind_of_endpoint() {
        let gemini = "/v1beta/models/m:generateContent";
        for (base, endpoint, url) in [
            (
                "https://g.x",
                gemini,
                "https://g.x/v1beta/models/m:generateContent",
            ),
            (
                "https://g.x/v1beta",
                gemini,
                "https://g.x/v1beta/models/m:generateContent",
            ),
            ("http://o:1/v1", "/api/chat", "http://o:1/api/chat"),
            ("http://o:1/api/", "/api/chat", "http://o:1/api/chat"),
            ("http://o:1", "/api/chat", "http://o:1/api/chat"),
            ("https://x.y/v1", "/responses", "https://x.y/v1/responses"),
        ] {
            assert_eq!(join_url(base, endpoint), url, "{base}");
        }
    }

    #[test]
    fn hosts_and_plain_addresses() {
        for (url, expected, local) in [
            ("https://API.x.ai/v1", "api.x.ai", false),
            ("http://127.0.0.1:11434/v1", "127.0.0.1", true),
            ("http://127.3.2.1", "127.3.2.1", true),
            ("http://localhost:8080", "localhost", true),
            ("http://[::1]:8080/v1", "[::1]", true),
            (
                "http://127.0.0.1.evil.example/v1",
                "127.0.0.1.evil.example",
                false,
            ),
            ("http://localhost@evil.example/v1", "evil.example", false),
            ("http://evil.example/@localhost", "evil.example", false),
            ("nonsense", "nonsense", false),
            ("", "", false),
        ] {
            assert_eq!(
                (host_of(url).as_str(), is_loopback(url)),
                (expected, local),
                "{url}"
            );
        }
        for (url, expected) in [
            ("https://me:pass@x.y/v1?key=z#w", "https://x.y/v1"),
            ("https://me:pass@h:1/v1?token=x", "https://h:1/v1"),
            ("https://me:p@ss@h", "https://h"),
            ("https://h/models/m@001:go", "https://h/models/m@001:go"),
            (
                "http://evil.example/@localhost",
                "http://evil.example/@localhost",
            ),
            ("nonsense?x", "nonsense"),
        ] {
            assert_eq!(strip_url_secrets(url), expected);
        }
    }

    #[test]
    fn known_providers_are_complete() {
        for known in KNOWN_PROVIDERS {
            assert!(known.is_local() == is_loopback(known.base_url), "{known:?}");
            assert_eq!(
                KNOWN_PROVIDERS
                    .iter()
                    .filter(|other| other.name == known.name)
                    .count(),
                1,
                "{known:?}"
            );
            assert!(known.to_provider(None).is_some(), "{known:?}");
        }
    }

    #[test]
    fn base_urls_are_understood() {
        let url = |wire, base: &str| Provider::new("p", wire, base, None).endpoint_url("m");
        for base in [
            "https://x.y",
            "https://x.y/",
            "https://x.y/v1",
            "https://x.y/v1/messages",
        ] {
            assert_eq!(url(Wire::Anthropic, base), "https://x.y/v1/messages");
        }
        for base in [
            "http://x:1/v1",
            " http://x:1/v1/ ",
            "http://x:1/v1/chat/completions",
        ] {
            assert_eq!(
                url(Wire::OpenAiChat, base),
                "http://x:1/v1/chat/completions"
            );
        }
        for base in [
            "https://x.y/v1?api-version=1",
            "https://x.y/v1/chat/completions?api-version=1",
        ] {
            assert_eq!(
                url(Wire::OpenAiChat, base),
                "https://x.y/v1/chat/completions?api-version=1"
            );
        }
        let gemini = url(Wire::Gemini, "https://g.x/v1beta?beta=1");
        assert!(
            gemini.ends_with(":streamGenerateContent?alt=sse&beta=1"),
            "{gemini}"
        );
    }

    #[test]
    fn no_secret_is_shown() {
        let mut provider = Provider::new(
            "p",
            Wire::Anthropic,
            "https://x.y",
            Some(Secret::new("sk-12345")),
        );
        provider
            .headers
            .push(("x-token".into(), Secret::new("token-9876")));
        provider.signing = Some(SigningCredentials {
            access_key: "AKID".into(),
            secret_key: Secret::new("key-5555"),
            token: Some(Secret::new("temporary-7777")),
            region: "eu-west-1".into(),
            clock: || std::time::UNIX_EPOCH,
        });
        let shown = format!(
            "{provider:?} {}",
            provider.redact_secrets("sk-12345 token-9876 key-5555 temporary-7777")
        );
        assert!(
            ["12345", "9876", "5555", "7777"]
                .iter()
                .all(|secret| !shown.contains(secret)),
            "{shown}"
        );
        // Only the decoded password is sent.
        provider.base_url = "http://user:pa%40ssword@x.y".to_owned();
        assert_eq!(
            provider.redact_secrets("pa%40ssword pa@ssword dXNlcjpwYUBzc3dvcmQ="),
            "[secret] [secret] [secret]"
        );
        let escaped = r#"{"k":"pa\u0040ss\u0077ord"} pa@ss
word"#;
        assert_eq!(
            provider.redact_secrets(escaped),
            r#"{"k":"[secret]"} [secret]"#
        );
        assert_eq!(
            provider.redact_opening("a pa@ssword pa@sswor"),
            "a [secret] [secret]"
        );
    }
}
