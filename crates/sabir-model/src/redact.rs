//! Redacts the requests and responses of a recording.
//!
//! Headers and query values are recorded only if their names are on an allowlist such as
//! [`VISIBLE_HEADERS`]; of all others only the name and `[redacted]` is recorded. Bodies are
//! recorded in full, except the provider's own secrets wherever they occur, and known secret
//! formats ([`sabir_call::redact`]).

use sabir_call::redact;

use crate::provider::Provider;
use crate::secret::{MIN_SECRET_BYTES, Secret};

/// The replacement for an omitted value.
pub(crate) const REDACTED: &str = "[redacted]";

/// The replacement for a secret.
const SECRET_SIGN: &[u8] = b"[secret]";

/// The headers whose values are recorded.
const VISIBLE_HEADERS: [&str; 20] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "openai-beta",
    "openai-processing-ms",
    "openai-version",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "server",
    "transfer-encoding",
    "vary",
    "x-request-id",
    "x-should-retry",
];

/// The prefixes of headers whose values are recorded.
const VISIBLE_HEADER_PREFIXES: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];

/// The query parameters whose values are recorded.
const VISIBLE_QUERY_KEYS: [&str; 3] = ["alt", "api-version", "beta"];

/// The secrets of a provider, for removing them from bytes.
#[derive(Clone, Default)]
pub(crate) struct ProviderRedactor {
    /// The secrets as bytes; each at least `MIN_SECRET_BYTES` long.
    secrets: Vec<Vec<u8>>,
}

impl ProviderRedactor {
    /// Collects all secrets of a provider, each unchanged and with JSON escapes.
    pub(crate) fn new(provider: &Provider) -> Self {
        let mut secrets = Vec::new();
        for secret in provider
            .all_secrets()
            .iter()
            .map(Secret::expose)
            .filter(|secret| secret.len() >= MIN_SECRET_BYTES)
        {
            // In a body the secret is inside a JSON string, where a quote in it is escaped.
            let quoted = serde_json::Value::from(secret).to_string();
            secrets.push(secret.as_bytes().to_vec());
            let inner = quoted
                .trim_start_matches('"')
                .strip_suffix('"')
                .unwrap_or_default()
                .as_bytes();
            if inner != secret.as_bytes() {
                secrets.push(inner.to_vec());
            }
        }
        Self { secrets }
    }

    /// Returns a redactor for the secrets of both.
    pub(crate) fn merged_with(&self, more: &Self) -> Self {
        let new = more
            .secrets
            .iter()
            .filter(|secret| !self.secrets.contains(secret));
        Self {
            secrets: self.secrets.iter().chain(new).cloned().collect(),
        }
    }

    /// Redacts the provider's secrets and known secret formats in a text.
    pub(crate) fn redact_text(&self, text: &str) -> String {
        redact::redact_text(&self.redact_provider_secrets(text)).into_owned()
    }

    /// Redacts the provider's secrets and known secret formats in the strings of a JSON text.
    pub(crate) fn redact_json(&self, json: &str) -> String {
        redact::redact_json(&self.redact_provider_secrets(json)).into_owned()
    }

    /// Redacts the provider's secrets in a text.
    pub(crate) fn redact_provider_secrets(&self, text: &str) -> String {
        let mut pieces = vec![text.as_bytes().to_vec()];
        self.redact_pieces(&mut pieces);
        String::from_utf8_lossy(&pieces.concat()).into_owned()
    }

    /// Redacts the provider's secrets in bytes that came in pieces. The replacement of a secret is in the piece in which the secret began.
    pub(crate) fn redact_pieces(&self, pieces: &mut [Vec<u8>]) {
        for secret in &self.secrets {
            // From last to first, so that earlier offsets stay valid.
            for at in find_occurrences(&pieces.concat(), secret).into_iter().rev() {
                replace_secret(pieces, at, secret.len());
            }
        }
    }

    /// Returns true if the bytes end in the beginning of a secret.
    pub(crate) fn ends_in_secret_prefix(&self, bytes: &[u8]) -> bool {
        self.secrets.iter().any(|secret| {
            (1..secret.len()).any(|length| {
                secret
                    .get(..length)
                    .is_some_and(|begin| bytes.ends_with(begin))
            })
        })
    }
}

/// Returns the value of a header in its recorded form.
pub(crate) fn redact_header(name: &str, value: &str) -> String {
    // An allowlist, because a proxy may add headers with secrets of its own.
    let keep = VISIBLE_HEADERS.contains(&name)
        || VISIBLE_HEADER_PREFIXES
            .iter()
            .any(|begin| name.starts_with(begin));
    if keep {
        value.to_owned()
    } else {
        REDACTED.to_owned()
    }
}

/// Returns the path and query of an address in their recorded form.
pub(crate) fn redact_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest
        .find(['/', '?', '#'])
        .and_then(|at| rest.get(at..))
        .unwrap_or("/");
    let path = path.split('#').next().unwrap_or_default();
    let Some((path, query)) = path.split_once('?') else {
        return path.to_owned();
    };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        // Gemini, for example, accepts its key in the query.
        Some((name, _)) if !VISIBLE_QUERY_KEYS.contains(&name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Finds the offsets of all occurrences of a part, from left to right, without overlaps.
fn find_occurrences(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    let next = |from: usize| {
        bytes
            .get(from..)?
            .windows(part.len())
            .position(|window| window == part)
    };
    while let Some(at) = next(from) {
        found.push(from + at);
        from += at + part.len();
    }
    found
}

/// Replaces the `length` bytes from offset `at` on, counted over all pieces, by the mark for a
/// secret.
fn replace_secret(pieces: &mut [Vec<u8>], at: usize, length: usize) {
    let mut begin = at;
    let mut left = length;
    let mut sign = SECRET_SIGN;
    for piece in pieces {
        if begin >= piece.len() {
            begin -= piece.len();
            continue;
        }
        let end = (begin + left).min(piece.len());
        left -= end - begin;
        piece.splice(begin..end, sign.iter().copied());
        // In the following pieces the secret continues at their beginning, without a second mark.
        begin = 0;
        sign = b"";
        if left == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use sabir_wire::Wire;

    use super::*;
    use crate::secret::Secret;

    fn redactor() -> ProviderRedactor {
        let mut provider = Provider::new(
            "p",
            Wire::Anthropic,
            "https://x.y",
            Some(Secret::new("sk-12345")),
        );
        provider
            .headers
            .push(("x-token".to_owned(), Secret::new("to\"ken-9")));
        ProviderRedactor::new(&provider)
    }

    #[test]
    fn secrets_are_redacted_in_any_chunks() {
        let check = |text: &str, expected: &str| {
            for size in 1..=text.len() {
                let mut pieces: Vec<Vec<u8>> =
                    text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
                let count = pieces.len();
                redactor().redact_pieces(&mut pieces);
                assert_eq!(
                    String::from_utf8(pieces.concat()).unwrap(),
                    expected,
                    "pieces of {size}"
                );
                assert_eq!(pieces.len(), count);
            }
        };
        check("a sk-12345 b sk-12345", "a [secret] b [secret]");
        check(r#"{"t":"to\"ken-9"}"#, r#"{"t":"[secret]"}"#);
        check("sk-1234 sk-sk-12345", "sk-1234 sk-[secret]");
        assert!(
            redactor().ends_in_secret_prefix(b"a sk-12")
                && !redactor().ends_in_secret_prefix(b"sk-12x")
        );
    }

    #[test]
    fn a_secret_may_be_a_part_of_its_placeholder() {
        let check = |key: &str, expected: &str| {
            let provider = Provider::new("p", Wire::OpenAiChat, "http://h", Some(Secret::new(key)));
            assert_eq!(
                ProviderRedactor::new(&provider).redact_text("a [secret] secret"),
                expected,
                "{key}"
            );
        };
        check("secret", "a [[secret]] [secret]");
        check("[secret", "a [secret]] secret");
        check("[secret]", "a [secret] secret");
    }

    #[test]
    fn only_harmless_headers_and_queries_stay() {
        for name in [
            "authorization",
            "x-api-key",
            "x-goog-api-key",
            "cookie",
            "set-cookie",
            "x-amz-security-token",
        ] {
            assert_eq!(redact_header(name, "v"), REDACTED, "{name}");
        }
        assert_eq!(redact_header("retry-after", "2"), "2");
        assert_eq!(
            redact_path("https://h/v1/m:go?alt=sse&key=k#f"),
            "/v1/m:go?alt=sse&key=[redacted]"
        );
        assert_eq!(redact_path("http://h"), "/");
    }
}
