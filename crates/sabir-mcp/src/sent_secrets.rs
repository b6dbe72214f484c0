//! Removes the secrets that a server has received from everything that it sends back.
//!
//! A server may repeat a token in the name of a tool, a description, a result, an error or a
//! question. All of these reach models, logs and screens, so messages are cleaned when they arrive,
//! before any other code sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpPostResponse};
use serde_json::Value;
use sse_stream::Sse;

/// The text in place of a secret.
pub(crate) const MARKER: &str = "[redacted: secret of the server]";

/// The shortest text that counts as a secret. Shorter ones occur in ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// The parts of names of headers, variables and options whose values are secrets. Underscores count as hyphens.
const SECRET_NAMES: [&str; 9] = [
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "-key",
    "passphrase",
    "password",
    "secret",
    "token",
];

type ServerMessage = RxJsonRpcMessage<RoleClient>;

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
            secrets.add_header(name, value);
        }
        secrets
    }

    fn add_header(&self, name: &str, value: &str) {
        if names_secret(name) {
            // Without schemes such as `Bearer` and the names of cookies, which occur in ordinary
            // text.
            for part in value.split([';', ' ']) {
                let value = match name.to_ascii_lowercase().contains("cookie") {
                    true => part.split_once('=').map_or(part, |pair| pair.1),
                    false => part,
                };
                self.add_secret(value);
            }
        }
    }

    /// Creates the secrets of a program with these variables and arguments: values of variables and options with names such as
    /// `API_KEY` and `--token`, passwords in addresses, and headers with such names, as `mcp-remote` takes them in arguments and
    /// others as JSON in a variable.
    pub(crate) fn of_program(env: &BTreeMap<String, String>, args: &[String]) -> Self {
        let secrets = Self::default();
        for (name, value) in env {
            secrets.add_named_value(name, value);
        }
        let mut option = "";
        for argument in args {
            secrets.add_written_header(argument);
            match argument.split_once('=') {
                Some((name, value)) => secrets.add_named_value(name, value),
                None => secrets.add_named_value(option, argument),
            }
            option = match argument.starts_with('-') && !argument.contains('=') {
                true => argument,
                false => "",
            };
        }
        secrets
    }

    fn add_named_value(&self, name: &str, value: &str) {
        if names_secret(name) {
            self.add_secret(value.trim());
        }
        let address = url::Url::parse(value).ok();
        if let Some(password) = address.as_ref().and_then(url::Url::password) {
            self.add_secret(password);
        }
        self.add_written_header(value);
        if let Ok(Value::Object(members)) = serde_json::from_str(value) {
            for (name, value) in &members {
                if let Some(value) = value.as_str() {
                    self.add_header(name, value);
                }
            }
        }
    }

    /// Adds the secret of a text such as `Authorization: Bearer TOKEN`.
    fn add_written_header(&self, text: &str) {
        if let Some((name, value)) = text.split_once(':')
            && !name.contains(|sign: char| sign.is_whitespace() || matches!(sign, '=' | '/'))
        {
            self.add_header(name, value.trim());
        }
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
    pub(crate) fn redact_text(&self, text: String) -> String {
        replace_secrets(&self.sorted_secrets(), &text).unwrap_or(text)
    }

    /// Removes the secrets from a message in JSON. Escapes in it do not hide them. What is not JSON is cleaned as text.
    fn redact_json(&self, text: String) -> String {
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
    pub(crate) fn redact_answer(
        &self,
        answer: StreamableHttpPostResponse,
    ) -> StreamableHttpPostResponse {
        match answer {
            StreamableHttpPostResponse::Json(message, session) => {
                let text = serde_json::to_string(&message).unwrap_or_default();
                let hidden = self.redact_json(text.clone());
                // If redaction changed the name of a member, this may no longer be a message; it is
                // then left out.
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
                StreamableHttpPostResponse::Sse(self.redact_stream(stream), session)
            }
            // An unknown kind of answer cannot be cleaned.
            _ => StreamableHttpPostResponse::Accepted,
        }
    }

    /// Removes the secrets from a message; `None` if it is none without them.
    fn redact_message(&self, message: ServerMessage) -> Option<ServerMessage> {
        let secrets = self.sorted_secrets();
        let mut value = match secrets.is_empty() {
            true => return Some(message),
            false => serde_json::to_value(&message).ok()?,
        };
        match replace_in_value(&secrets, &mut value) {
            true => serde_json::from_value(value).ok(),
            false => Some(message),
        }
    }

    /// Removes the secrets from the messages of a stream.
    pub(crate) fn redact_stream(
        &self,
        stream: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let secrets = self.clone();
        stream
            .map(move |event| {
                event.map(|event| Sse {
                    data: event.data.map(|data| secrets.redact_json(data)),
                    ..event
                })
            })
            .boxed()
    }
}

/// Returns true if the value of a header, a variable or an option with this name is a secret.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Replaces the secrets in a text by the marker; `None` if there are none.
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

/// Replaces the secrets in all texts and names of a value by the marker. Returns true if there were any.
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

/// Receives the messages of a program without the secrets that it was started with.
pub(crate) struct SecretFilter<T> {
    pub(crate) transport: T,
    pub(crate) secrets: SentSecrets,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for SecretFilter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            let message = self.transport.receive().await?;
            if let Some(message) = self.secrets.redact_message(message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
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
        let secrets = SentSecrets::of_headers(&BTreeMap::from([
            ("Authorization".to_owned(), "Bearer tok/en-12345".to_owned()),
            ("X-Team".to_owned(), "engineering".to_owned()),
            ("X-Api-Key".to_owned(), "short".to_owned()),
            ("X-Author".to_owned(), "engineering".to_owned()),
            ("Cookie".to_owned(), "sid=cookie-secret; a=b".to_owned()),
        ]));
        secrets.add_secret("tok/en-12345-longer");
        let hide = |text: &str| secrets.redact_json(text.to_owned());
        assert_eq!(
            hide(r#"{"name":"a tok\/en-12345","\u0074ok/en-12345":[1,"x tok/en-12345-longer."]}"#),
            r#"{"name":"a [redacted: secret of the server]","[redacted: secret of the server]":[1,"x [redacted: secret of the server]."]}"#
        );
        let plain = r#"{ "team": "engineering", "a": "short" }"#;
        assert_eq!(hide(plain), plain);
        assert_eq!(
            hide("data tok/en-12345"),
            "data [redacted: secret of the server]"
        );
        assert_eq!(
            hide("sid=cookie-secret"),
            "sid=[redacted: secret of the server]"
        );
        assert!(!format!("{secrets:?}").contains("tok"));
    }

    #[test]
    fn secrets_of_a_program_are_its_variables_and_options_with_such_names() {
        let env = BTreeMap::from([
            (
                "GITHUB_PERSONAL_ACCESS_TOKEN".to_owned(),
                "ghp-1234".to_owned(),
            ),
            ("SERVICE_KEY".to_owned(), "key-12345".to_owned()),
            (
                "DATABASE".to_owned(),
                "postgres://me:pass-1234@db/x".to_owned(),
            ),
            ("KEYBOARD".to_owned(), "german-layout".to_owned()),
            (
                "OPENAPI_MCP_HEADERS".to_owned(),
                r#"{"Authorization": "Bearer ntn-12345", "Notion-Version": "2022-06-28"}"#
                    .to_owned(),
            ),
            ("TOKEN".to_owned(), "short".to_owned()),
        ]);
        let args = [
            "serve",
            "--api-key=opt-12345",
            "--token",
            "opt-67890",
            "--verbose",
            "https://a:addr-1234@b/",
            "--header",
            "Authorization: Bearer head-1234==",
            "--header=X-Api-Key:head-5678",
        ];
        let secrets = SentSecrets::of_program(&env, &args.map(str::to_owned));
        let said = "ghp-1234 key-12345 pass-1234 german-layout short serve opt-12345 opt-67890 --verbose addr-1234 ntn-12345 2022-06-28 head-1234== head-5678";
        assert_eq!(
            secrets.redact_text(said.to_owned()).replace(MARKER, "*"),
            "* * * german-layout short serve * * --verbose * * 2022-06-28 * *"
        );
    }
}
