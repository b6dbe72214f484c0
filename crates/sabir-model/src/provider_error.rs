//! Renders errors of providers as one sentence: what happened, where, and what to change.

use std::net::{Ipv4Addr, SocketAddrV4};

use sabir_call::{ModelError, ModelErrorKind, Request};
use sabir_wire::{MAX_MESSAGE_CHARS, ProviderError};

use crate::client_redaction::ClientRedactor;
use crate::provider::{Provider, strip_url_secrets};

/// The replacement of an address in a text for others.
const HIDDEN_ADDRESS: &str = "[address]";

/// The number of characters of a provider's own message that are shown.
const MAX_QUOTED_CHARS: usize = 300;

/// The provider and the model of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTarget<'a> {
    /// The provider, whose secrets are removed from messages.
    pub(crate) provider: &'a Provider,
    /// The model's name in the request.
    pub(crate) model: &'a str,
}

impl RequestTarget<'_> {
    /// Returns the name of provider and model, by which their opaque state is known.
    pub(crate) fn origin(self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }

    /// Makes an error of that kind, without the provider's secrets in its message.
    pub(crate) fn new_error(self, kind: ModelErrorKind, message: impl AsRef<str>) -> ModelError {
        ModelError {
            kind,
            message: self.provider.redact_secrets(message.as_ref()),
        }
    }

    /// Keeps the provider's own words about an error for the caller of a request.
    pub(crate) fn report_error(self, error: &ProviderError, request: &Request) {
        request.report.update(|report| {
            report.code.clone_from(&error.code);
            report.message = self.public_text(&error.message);
        });
    }

    /// Returns a text of the provider on one line, without its secrets and addresses. A page in markup is left out, since it does not
    /// explain the error.
    fn public_text(self, text: &str) -> String {
        if text.trim_start().starts_with('<') {
            return String::new();
        }
        let redacted = ClientRedactor::new(self.provider).redact_all(text.as_bytes());
        let redacted = redacted.as_deref().map(String::from_utf8_lossy);
        let text = redacted.as_deref().unwrap_or(text);
        single_line(&redact_ip_addresses(text), MAX_MESSAGE_CHARS)
    }

    /// Makes the error of an error response, from its status and content.
    pub(crate) fn status_error(self, status: u16, error: &ProviderError) -> ModelError {
        let Provider { name, .. } = self.provider;
        let url = self.endpoint_address();
        let model = self.model;
        let first = match (status, error.kind) {
            (_, ModelErrorKind::TooLong) => {
                format!("the history is longer than the context of `{model}`")
            }
            (401, _) => format!("{name} refused the key ({status}); set another key for {name}"),
            (402, _) => format!(
                "{name} requires payment ({status}); add credit to the account or use another key"
            ),
            (403, _) => format!(
                "the key for {name} may not use `{model}` ({status}); use another key or model"
            ),
            (404, _) => {
                format!(
                    "{name} knows no model `{model}` at {url} ({status}); check the model's name and the base URL"
                )
            }
            (413, _) => {
                format!(
                    "the request is too large for {name} ({status}); shorten the history or leave out images"
                )
            }
            // The kind comes from the error's code: OpenAI reports an empty account with the same
            // status as a rate limit.
            (429, ModelErrorKind::Rejected) => {
                format!("the quota of the key for {name} is used up ({status}); use another key")
            }
            (429, _) => {
                format!(
                    "{name} allows no more requests at present ({status}); wait, or use another key or model"
                )
            }
            (300..=399, _) => {
                format!("{url} sends requests elsewhere ({status}); change the base URL of {name}")
            }
            (500.., _) | (408, _) => {
                format!("{name} failed or is overloaded ({status}); try again later")
            }
            (_, ModelErrorKind::UnknownModel) => {
                format!("{name} knows no model `{model}` ({status}); check the model's name")
            }
            _ => format!(
                "{name} refused the request ({status}); another model or protocol may be needed"
            ),
        };
        // Another server may be set up correctly, and the client could change nothing about this
        // one.
        let kind = match status {
            300..=399 => ModelErrorKind::Format,
            _ => error.kind,
        };
        self.new_error(kind, self.with_details(&first, error))
    }

    /// Makes the error that came inside a response of status 200.
    pub(crate) fn stream_error(self, error: &ProviderError, delivered: bool) -> ModelError {
        let Provider { name, .. } = self.provider;
        let place = if delivered {
            "in the middle of its answer"
        } else {
            "in place of an answer"
        };
        let first = match error.kind {
            ModelErrorKind::TooLong => {
                format!("the history is longer than the context of `{}`", self.model)
            }
            ModelErrorKind::Key => format!("{name} refused the key; set another key for {name}"),
            _ => format!("{name} reported an error {place}"),
        };
        self.new_error(error.kind, self.with_details(&first, error))
    }

    /// Makes the error of a body that is not in the wire's format.
    pub(crate) fn format_error(self, content_type: &str, opening: &str) -> ModelError {
        let Provider { name, .. } = self.provider;
        let markup = content_type.contains("html") || opening.trim_start().starts_with('<');
        let suspect = if markup {
            "a proxy or a sign-in page probably intercepts the requests; check the network and the base URL"
        } else {
            "check the base URL and the wire"
        };
        let kind = if content_type.is_empty() {
            "no content type"
        } else {
            content_type
        };
        let message = format!(
            "{name} answered with {kind} instead of the {} wire at {}; {suspect}{}",
            self.provider.wire,
            self.endpoint_address(),
            quote_text(&self.provider.redact_opening(opening))
        );
        self.new_error(ModelErrorKind::Format, message)
    }

    /// Makes the error of an answer that is compressed, although nothing asked for that.
    pub(crate) fn compression_error(self, compression: &str, request: &Request) -> ModelError {
        request
            .report
            .update(|report| report.message = describe_compressed_answer(compression));
        let message = format!(
            "{} answered with the content encoding `{compression}`, which was not asked for, at {}; check the proxies in front of it",
            self.provider.name,
            self.endpoint_address()
        );
        self.new_error(ModelErrorKind::Format, message)
    }

    /// Appends the provider's code and message to a sentence. Secrets are removed before the message is cut, since half of a secret would
    /// not be found.
    fn with_details(self, first: &str, error: &ProviderError) -> String {
        let redacted = |text: &str| self.provider.redact_secrets(text);
        let code = if error.code.is_empty() {
            String::new()
        } else {
            format!(" [{}]", single_line(&redacted(&error.code), 60))
        };
        format!("{first}{code}{}", quote_text(&redacted(&error.message)))
    }

    /// Returns the endpoint's address without its secrets.
    pub(crate) fn endpoint_address(self) -> String {
        strip_url_secrets(&self.provider.endpoint_url(self.model))
    }
}

/// Reads an error response. The text of a body that is not JSON becomes the message, since it may explain the error.
pub(crate) fn status_error(status: u16, body: &[u8]) -> ProviderError {
    ProviderError::from_body(body)
        .unwrap_or_else(|| ProviderError::reported("", String::from_utf8_lossy(body)))
        .with_status(status)
}

/// Describes an answer that is compressed, although nothing asked for that, to a client.
pub fn describe_compressed_answer(compression: &str) -> String {
    format!(
        "the model's server, or a proxy in front of it, compressed its answer (`{compression}`), which was not asked for"
    )
}

/// Replaces IPv4 addresses with a port, and those of private networks, in a text. Others may be versions.
fn redact_ip_addresses(text: &str) -> String {
    let is_part = |sign: char| sign.is_ascii_digit() || matches!(sign, '.' | ':');
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|sign: char| sign.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let (run, after) = from.split_at(from.find(|sign| !is_part(sign)).unwrap_or(from.len()));
        let address = run.trim_end_matches(['.', ':']);
        shown.push_str(before);
        let is_private = |ip: Ipv4Addr| ip.is_private() || ip.is_loopback() || ip.is_link_local();
        if address.parse::<SocketAddrV4>().is_ok() || address.parse().is_ok_and(is_private) {
            shown.push_str(HIDDEN_ADDRESS);
            shown.push_str(run.strip_prefix(address).unwrap_or_default());
        } else {
            shown.push_str(run);
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Returns true if a provider rejects its own opaque state: a signature of another model, or
/// thoughts that it cannot decrypt.
pub(crate) fn is_expired_state(error: &ModelError) -> bool {
    // There is no code for this error. Anthropic and Gemini mention the `signature`, OpenAI the
    // `encrypted_content`.
    let words = error.message.to_ascii_lowercase();
    let names = ["signature", "encrypted content", "encrypted_content"];
    error.kind == ModelErrorKind::Rejected && names.iter().any(|name| words.contains(name))
}

/// Returns a colon and the text on one line; nothing for an empty text.
fn quote_text(words: &str) -> String {
    let words = single_line(words, MAX_QUOTED_CHARS);
    if words.is_empty() {
        String::new()
    } else {
        format!(": {words}")
    }
}

/// Returns the text on one line, without control characters, cut to `length` characters.
fn single_line(words: &str, length: usize) -> String {
    let line = words
        // A provider's text ends up in a terminal, so no control character may stay in it.
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().take(length).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use sabir_wire::Wire;

    use super::*;
    use crate::secret::Secret;

    #[test]
    fn messages_name_the_remedy_and_no_secret() {
        let base = "https://me:pass-word@host.example/v1?token=x";
        let provider = Provider::new(
            "acme",
            Wire::OpenAiChat,
            base,
            Some(Secret::new("sk-123456")),
        );
        let asked = RequestTarget {
            provider: &provider,
            model: "m-1",
        };
        let check = |status: u16, body: &str, kind: ModelErrorKind, words: &[&str]| {
            let reported = super::status_error(status, body.as_bytes());
            let error = asked.status_error(status, &reported);
            assert_eq!(error.kind, kind, "{error}");
            for word in words {
                assert!(error.message.contains(word), "{word} in {error}");
            }
            for secret in ["123456", "pass-word", "token=x", "\u{1b}", "\n"] {
                assert!(!error.message.contains(secret), "{secret} in {error}");
            }
        };
        use ModelErrorKind as K;
        check(
            401,
            r#"{"error":{"message":"bad key sk-123456\u001b[31m\n"}}"#,
            K::Key,
            &["key for acme"],
        );
        check(403, "", K::Key, &["m-1", "key"]);
        check(404, "nope", K::UnknownModel, &["m-1", "base URL", "nope"]);
        check(413, "", K::Rejected, &["shorten"]);
        check(
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            K::TooLong,
            &["context of `m-1`"],
        );
        check(400, &"x".repeat(9999), K::Rejected, &["…"]);
        check(
            429,
            r#"{"error":{"code":"insufficient_quota","message":"x"}}"#,
            K::Rejected,
            &["quota"],
        );
        check(429, "", K::RateLimited, &["wait"]);
        check(529, "", K::Unavailable, &["overloaded"]);
        for status in [302, 307] {
            check(status, "", K::Format, &["base URL"]);
        }
    }

    #[test]
    fn a_key_across_the_cut_of_a_message_is_not_shown_in_part() {
        let key = "short-key-12";
        let provider = Provider::new(
            "acme",
            Wire::OpenAiChat,
            "https://host.example",
            Some(Secret::new(key)),
        );
        let asked = RequestTarget {
            provider: &provider,
            model: "m",
        };
        let message = format!("{}{key}", "x".repeat(MAX_QUOTED_CHARS - 6));
        let error = asked.status_error(400, &ProviderError::new("", message));
        assert!(!error.message.contains("short-"), "{error}");
    }

    #[test]
    fn public_texts_show_neither_address_nor_key() {
        let key = Secret::new("sk-123456");
        let base = "http://user:pass-word@vllm.internal:8000/v1";
        let provider = Provider::new("box", Wire::OpenAiChat, base, Some(key));
        let asked = RequestTarget {
            provider: &provider,
            model: "m",
        };
        let rows = [
            (
                "no route to http://vllm.internal:8000/v1 with sk-123456",
                "no route to http://[address]/v1 with [secret]",
            ),
            ("vllm.internal is down", "[address] is down"),
            (
                "10.1.2.3:8080: refused, and 10.1.2.4.",
                "[address]: refused, and [address].",
            ),
            (
                "version 1.2.3 takes 8192 tokens at 12:30",
                "version 1.2.3 takes 8192 tokens at 12:30",
            ),
            (
                "driver 1.2.3.4 at 1.2.3.4:80",
                "driver 1.2.3.4 at [address]",
            ),
            (
                r#"{"m":"{\"k\":\"\\u0073k-123456\",\"h\":\"VLLM\\u002einternal\"}"}"#,
                r#"{"m":"{\"k\":\"[secret]\",\"h\":\"[address]\"}"}"#,
            ),
            ("my-vllm.internal", "my-vllm.internal"),
            ("<html>oops", ""),
        ];
        for (text, expected) in rows {
            assert_eq!(asked.public_text(text), expected);
        }
        let long = format!("{}sk-123456", "x".repeat(MAX_MESSAGE_CHARS - 4));
        let text = asked.public_text(&long);
        assert!(text.ends_with("x[sec…"), "{text}");
    }
}
