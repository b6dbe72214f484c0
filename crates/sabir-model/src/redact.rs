//! What a recording keeps of a request and a response, and what it never does.
//!
//! Headers and query values are kept by name: those of [`VISIBLE_HEADERS`] and its like, which hold no secrets. All others leave their name
//! and `[redacted]`. Bodies are kept whole, but for the provider's own secrets wherever they occur, and for whatever has the shape of
//! a secret ([`sabir_call::redact`]).

use sabir_call::redact;

use crate::provider::Provider;
use crate::secret::{MIN_SECRET_BYTES, Secret};

/// Stands where something was left out.
pub(crate) const REDACTED: &str = "[redacted]";

/// Stands where a secret was.
const SECRET_SIGN: &[u8] = b"[secret]";

/// Headers whose values are kept.
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

/// Beginnings of headers whose values are kept.
const VISIBLE_HEADER_PREFIXES: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];

/// Query parameters whose values are kept.
const VISIBLE_QUERY_KEYS: [&str; 3] = ["alt", "api-version", "beta"];

/// The secrets of a provider, to be taken out of bytes.
#[derive(Clone, Default)]
pub(crate) struct ProviderRedactor {
    secrets: Vec<Vec<u8>>,
}

impl ProviderRedactor {
    /// Knows all secrets of that provider, as they stand and as JSON writes them.
    pub(crate) fn new(provider: &Provider) -> Self {
        let mut secrets = Vec::new();
        for secret in
            provider.all_secrets().iter().map(Secret::expose).filter(|secret| secret.len() >= MIN_SECRET_BYTES)
        {
            let quoted = serde_json::Value::from(secret).to_string();
            secrets.push(secret.as_bytes().to_vec());
            let inner = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().as_bytes();
            if inner != secret.as_bytes() {
                secrets.push(inner.to_vec());
            }
        }
        Self { secrets }
    }

    /// These secrets and those.
    pub(crate) fn merged_with(&self, more: &Self) -> Self {
        let new = more.secrets.iter().filter(|secret| !self.secrets.contains(secret));
        Self { secrets: self.secrets.iter().chain(new).cloned().collect() }
    }

    /// The text without secrets.
    pub(crate) fn redact_text(&self, text: &str) -> String {
        redact::redact_text(&self.redact_known(text)).into_owned()
    }

    /// A JSON text without secrets in its strings.
    pub(crate) fn redact_json(&self, json: &str) -> String {
        redact::redact_json(&self.redact_known(json)).into_owned()
    }

    /// The text without the provider's secrets.
    pub(crate) fn redact_known(&self, text: &str) -> String {
        let mut pieces = vec![text.as_bytes().to_vec()];
        self.redact_pieces(&mut pieces);
        String::from_utf8_lossy(&pieces.concat()).into_owned()
    }

    /// Takes the provider's secrets out of bytes that came in pieces. What stands for one is in the piece where it began.
    pub(crate) fn redact_pieces(&self, pieces: &mut [Vec<u8>]) {
        for secret in &self.secrets {
            // From the last to the first: what stands for a secret may hold another one, or the same.
            for at in find_occurrences(&pieces.concat(), secret).into_iter().rev() {
                replace_secret(pieces, at, secret.len());
            }
        }
    }

    /// Whether the bytes end in what may be the beginning of a secret.
    pub(crate) fn ends_in_secret_prefix(&self, bytes: &[u8]) -> bool {
        self.secrets.iter().any(|secret| {
            (1..secret.len()).any(|length| secret.get(..length).is_some_and(|begin| bytes.ends_with(begin)))
        })
    }
}

/// The value of a header as it is recorded.
pub(crate) fn redact_header(name: &str, value: &str) -> String {
    let keep = VISIBLE_HEADERS.contains(&name) || VISIBLE_HEADER_PREFIXES.iter().any(|begin| name.starts_with(begin));
    if keep { value.to_owned() } else { REDACTED.to_owned() }
}

/// The path of an address, with the names of its query.
pub(crate) fn redact_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find(['/', '?', '#']).and_then(|at| rest.get(at..)).unwrap_or("/");
    let path = path.split('#').next().unwrap_or_default();
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if !VISIBLE_QUERY_KEYS.contains(&name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Where that part stands, from left to right, each behind the one before it.
fn find_occurrences(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    let (mut found, mut from) = (Vec::new(), 0);
    let next = |from: usize| bytes.get(from..)?.windows(part.len()).position(|window| window == part);
    while let Some(at) = next(from) {
        found.push(from + at);
        from += at + part.len();
    }
    found
}

/// Takes `length` bytes out from `at` on, and puts the sign for a secret in their place.
fn replace_secret(pieces: &mut [Vec<u8>], at: usize, length: usize) {
    let (mut begin, mut left, mut sign) = (at, length, SECRET_SIGN);
    for piece in pieces {
        if begin >= piece.len() {
            begin -= piece.len();
            continue;
        }
        let end = (begin + left).min(piece.len());
        left -= end - begin;
        piece.splice(begin..end, sign.iter().copied());
        (begin, sign) = (0, b"");
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
        let mut provider = Provider::new("p", Wire::Anthropic, "https://x.y", Some(Secret::new("sk-12345")));
        provider.headers.push(("x-token".to_owned(), Secret::new("to\"ken-9")));
        ProviderRedactor::new(&provider)
    }

    #[test]
    fn secrets_leave_whatever_the_pieces() {
        let check = |text: &str, expected: &str| {
            for size in 1..=text.len() {
                let mut pieces: Vec<Vec<u8>> = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
                let count = pieces.len();
                redactor().redact_pieces(&mut pieces);
                assert_eq!(String::from_utf8(pieces.concat()).unwrap(), expected, "pieces of {size}");
                assert_eq!(pieces.len(), count);
            }
        };
        check("a sk-12345 b sk-12345", "a [secret] b [secret]");
        check(r#"{"t":"to\"ken-9"}"#, r#"{"t":"[secret]"}"#);
        check("sk-1234 sk-sk-12345", "sk-1234 sk-[secret]");
        assert!(redactor().ends_in_secret_prefix(b"a sk-12") && !redactor().ends_in_secret_prefix(b"sk-12x"));
    }

    #[test]
    fn a_secret_may_be_a_part_of_what_stands_for_it() {
        let check = |key: &str, expected: &str| {
            let provider = Provider::new("p", Wire::OpenAiChat, "http://h", Some(Secret::new(key)));
            assert_eq!(ProviderRedactor::new(&provider).redact_text("a [secret] secret"), expected, "{key}");
        };
        check("secret", "a [[secret]] [secret]");
        check("[secret", "a [secret]] secret");
        check("[secret]", "a [secret] secret");
    }

    #[test]
    fn only_harmless_headers_and_queries_stay() {
        for name in ["authorization", "x-api-key", "x-goog-api-key", "cookie", "set-cookie", "x-amz-security-token"] {
            assert_eq!(redact_header(name, "v"), REDACTED, "{name}");
        }
        assert_eq!(redact_header("retry-after", "2"), "2");
        assert_eq!(redact_path("https://h/v1/m:go?alt=sse&key=k#f"), "/v1/m:go?alt=sse&key=[redacted]");
        assert_eq!(redact_path("http://h"), "/");
    }
}
