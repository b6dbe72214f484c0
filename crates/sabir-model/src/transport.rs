//! Defines the interface that carries requests: the network, a recorder around it, or a replayed
//! recording.
//!
//! It also provides the clock. Times are counted from the start of the transport, so that a replay
//! can have a clock of its own and does not really wait.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use serde::{Deserialize, Serialize};

/// The names of compressions in the header `content-encoding`.
const COMPRESSIONS: [&str; 7] = [
    "gzip",
    "x-gzip",
    "deflate",
    "compress",
    "x-compress",
    "br",
    "zstd",
];

/// A boxed future that can be sent between threads.
pub(crate) type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A carrier of requests, with a clock.
pub(crate) trait Transport: Send + Sync {
    /// Returns the time since the transport's start.
    fn now(&self) -> Duration;

    /// Waits for that time.
    fn wait(&self, time: Duration) -> TransportFuture<'_, ()>;

    /// Sends a request and receives the head of the response, until the moment `until` of the
    /// transport's clock.
    fn send<'a>(
        &'a self,
        post: &'a HttpRequest,
        until: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>>;
}

/// The body of a response as it arrives.
pub(crate) trait ResponseBody: Send {
    /// Receives the next piece, as the network delivers it, until the moment `until`; `None` at the
    /// end. Nothing follows an error.
    fn next_chunk(
        &mut self,
        until: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>>;
}

/// A request with the method POST.
#[derive(Debug)]
pub(crate) struct HttpRequest {
    /// The whole address, which may contain a password.
    pub(crate) url: String,
    /// The headers; those with secrets are marked sensitive.
    pub(crate) headers: HeaderMap,
    /// The body, which every attempt sends again.
    pub(crate) body: Vec<u8>,
}

/// A response whose head has arrived.
pub(crate) struct HttpResponse {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body. Dropping it closes the connection.
    pub(crate) body: Box<dyn ResponseBody>,
}

/// A failure to get a response, or the rest of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransportError {
    /// The kind, which decides about a retry.
    pub(crate) kind: TransportErrorKind,
    /// The cause in words, for the user; empty if the kind says it all.
    pub(crate) cause: String,
}

/// The kinds of [`TransportError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransportErrorKind {
    /// The deadline passed.
    Silent,
    /// The transport cannot be set up: its certificates or its proxy are unusable.
    Setup,
    /// The address is invalid.
    Address,
    /// The other side's certificate cannot be trusted.
    Certificate,
    /// There is no connection.
    Connect,
    /// The connection broke.
    Broken,
    /// The recording has a different request, or none.
    Cassette,
}

impl HttpResponse {
    /// Returns a header's value.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    }

    /// Returns the compression of the body, such as `gzip`; `None` for a plain one. None is asked for, and none is decoded.
    pub(crate) fn compression(&self) -> Option<String> {
        compression_in(&self.headers)
    }

    /// Returns the headers about limits and retries.
    pub(crate) fn limit_headers(&self) -> Vec<(String, String)> {
        self.headers
            .iter()
            .filter(|(name, _)| sabir_wire::is_limit_header(name))
            .cloned()
            .collect()
    }
}

/// Returns the compression that the header `content-encoding` names; `None` for a plain body.
pub(crate) fn compression_in(headers: &[(String, String)]) -> Option<String> {
    let values = headers
        .iter()
        .filter(|(name, _)| name == CONTENT_ENCODING.as_str())
        .map(|(_, value)| value);
    // Some servers write words there that name no compression, such as `utf-8`.
    let is_compression = |name: &&str| {
        let mut known = COMPRESSIONS.iter();
        known.any(|known| known.eq_ignore_ascii_case(name))
    };
    let mut names = values
        .flat_map(|value| value.split(','))
        .map(|name| name.split(';').next().unwrap_or_default().trim());
    names.find(is_compression).map(str::to_ascii_lowercase)
}

impl TransportError {
    /// Makes an error with a cause.
    pub(crate) fn new(kind: TransportErrorKind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }

    /// Makes the error of a passed deadline.
    pub(crate) fn timed_out() -> Self {
        Self::new(TransportErrorKind::Silent, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_is_found_in_any_line_of_the_header() {
        let compression = |values: &[&str]| {
            let line = |value: &&str| ("content-encoding".to_owned(), (*value).to_owned());
            compression_in(&values.iter().map(line).collect::<Vec<_>>())
        };
        for (values, expected) in [
            (&["identity", "GZIP"][..], Some("gzip")),
            (&["utf-8, br"], Some("br")),
            (&["gzip;q=1"], Some("gzip")),
            (&["identity", "utf-8"], None),
            (&[], None),
        ] {
            assert_eq!(compression(values).as_deref(), expected, "{values:?}");
        }
    }
}
