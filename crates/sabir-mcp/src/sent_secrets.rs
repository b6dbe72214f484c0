//! Removes the secrets that a server was sent from everything that it sends back.
//!
//! A server, or what it serves, may repeat a token in the name of a tool, a description, a result, an error or a question. All of these
//! reach models, logs and screens, so messages are cleaned when they arrive, before anything looks at them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpPostResponse};
use serde_json::Value;
use sse_stream::Sse;

/// The text in place of a secret.
pub(crate) const MARKER: &str = "[redacted: login token]";

/// The shortest text that counts as a secret. Shorter ones occur in ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// The parts of names of headers whose values are secrets.
const SECRET_HEADERS: [&str; 7] = [
    "apikey",
    "authorization",
    "cookie",
    "-key",
    "password",
    "secret",
    "token",
];

/// The secrets that one connection has sent to its server. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SentSecrets(Arc<Mutex<BTreeSet<String>>>);

impl SentSecrets {
    /// Creates the secrets of a connection with these headers of its configuration.
    pub(crate) fn of_headers<'a>(
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        let secrets = Self::default();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if SECRET_HEADERS.iter().any(|part| name.contains(part)) {
                // Without schemes such as `Bearer` and the names of cookies, which occur in ordinary text.
                for part in value.split([';', ' ']) {
                    let value = match name.contains("cookie") {
                        true => part.split_once('=').map_or(part, |pair| pair.1),
                        false => part,
                    };
                    secrets.add_secret(value);
                }
            }
        }
        secrets
    }

    fn lock_secrets(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a secret.
    pub(crate) fn add_secret(&self, secret: &str) {
        if secret.len() >= MIN_SECRET_BYTES {
            let mut known = self.lock_secrets();
            if !known.contains(secret) {
                known.insert(secret.to_owned());
            }
        }
    }

    /// Returns the secrets, the longest first: one may be a part of another.
    fn sorted_secrets(&self) -> Vec<String> {
        let mut secrets: Vec<String> = self.lock_secrets().iter().cloned().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }

    /// Removes the secrets from a text.
    pub(crate) fn hide_in_text(&self, text: String) -> String {
        replace_secrets(&self.sorted_secrets(), &text).unwrap_or(text)
    }

    /// Removes the secrets from a message in JSON. Escapes in it do not hide them. What is not JSON is cleaned as text.
    fn hide_in_json(&self, text: String) -> String {
        let secrets = self.sorted_secrets();
        if secrets.is_empty() {
            return text;
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(mut value) => match replace_in_value(&secrets, &mut value) {
                true => value.to_string(),
                false => text,
            },
            Err(_) => replace_secrets(&secrets, &text).unwrap_or(text),
        }
    }

    /// Removes the secrets from the answer to a message.
    pub(crate) fn hide_in_answer(
        &self,
        answer: StreamableHttpPostResponse,
    ) -> StreamableHttpPostResponse {
        match answer {
            StreamableHttpPostResponse::Json(message, session) => {
                let text = serde_json::to_string(&message).unwrap_or_default();
                let hidden = self.hide_in_json(text.clone());
                // A message whose names of members were changed may not be one any more. It is left out then.
                let cleaned = match hidden == text {
                    true => Some(message),
                    false => serde_json::from_str(&hidden).ok(),
                };
                match cleaned {
                    Some(message) => StreamableHttpPostResponse::Json(message, session),
                    None => StreamableHttpPostResponse::Accepted,
                }
            }
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(self.hide_in_stream(stream), session)
            }
            // An unknown kind of answer cannot be cleaned.
            _ => StreamableHttpPostResponse::Accepted,
        }
    }

    /// Removes the secrets from the messages of a stream.
    pub(crate) fn hide_in_stream(
        &self,
        stream: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let secrets = self.clone();
        stream
            .map(move |event| {
                event.map(|event| Sse {
                    data: event.data.map(|data| secrets.hide_in_json(data)),
                    ..event
                })
            })
            .boxed()
    }
}

/// Puts the marker in the place of secrets; `None` if the text has none.
fn replace_secrets(secrets: &[String], text: &str) -> Option<String> {
    let mut replaced = None;
    for secret in secrets {
        let present = replaced.as_deref().unwrap_or(text);
        if present.contains(secret) {
            replaced = Some(present.replace(secret, MARKER));
        }
    }
    replaced
}

/// Puts the marker in the place of secrets in all texts and names of a value. Returns true if there were any.
fn replace_in_value(secrets: &[String], value: &mut Value) -> bool {
    match value {
        Value::String(text) => match replace_secrets(secrets, text) {
            Some(replaced) => {
                *text = replaced;
                true
            }
            None => false,
        },
        Value::Array(items) => {
            let mut is_changed = false;
            for item in items {
                is_changed |= replace_in_value(secrets, item);
            }
            is_changed
        }
        Value::Object(members) => {
            let mut is_changed = false;
            // Rebuilt, because names cannot be changed in place. The order stays.
            for (name, mut member) in std::mem::take(members) {
                let replaced = replace_secrets(secrets, &name);
                is_changed |= replaced.is_some() | replace_in_value(secrets, &mut member);
                members.insert(replaced.unwrap_or(name), member);
            }
            is_changed
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl std::fmt::Debug for SentSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SentSecrets")
            .field("count", &self.lock_secrets().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_from_every_part_of_a_message() {
        let secrets = SentSecrets::of_headers(&std::collections::BTreeMap::from([
            ("Authorization".to_owned(), "Bearer tok/en-12345".to_owned()),
            ("X-Team".to_owned(), "engineering".to_owned()),
            ("X-Api-Key".to_owned(), "short".to_owned()),
            ("X-Author".to_owned(), "engineering".to_owned()),
            ("Cookie".to_owned(), "sid=cookie-secret; a=b".to_owned()),
        ]));
        secrets.add_secret("tok/en-12345-longer");
        let hide = |text: &str| secrets.hide_in_json(text.to_owned());
        assert_eq!(
            hide(r#"{"name":"a tok\/en-12345","\u0074ok/en-12345":[1,"x tok/en-12345-longer."]}"#),
            r#"{"name":"a [redacted: login token]","[redacted: login token]":[1,"x [redacted: login token]."]}"#
        );
        let plain = r#"{ "team": "engineering", "a": "short" }"#;
        assert_eq!(hide(plain), plain);
        assert_eq!(hide("data tok/en-12345"), "data [redacted: login token]");
        assert_eq!(hide("sid=cookie-secret"), "sid=[redacted: login token]");
        assert!(!format!("{secrets:?}").contains("tok"));
    }
}
