//! The seam between a model and whatever carries its requests: the network, a recorder around it, or a recording.
//!
//! All time that matters goes through it. Moments are counted from when the transport was made, so that a recording can keep
//! a clock of its own, on which nothing really waits.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

/// A future that may cross threads.
pub(crate) type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Carries requests, and keeps the time.
pub(crate) trait Transport: Send + Sync {
    /// The time since it was made.
    fn now(&self) -> Duration;

    /// Waits.
    fn wait(&self, time: Duration) -> TransportFuture<'_, ()>;

    /// Sends a request, and hears the head of the response, until a moment.
    fn send<'a>(
        &'a self,
        post: &'a HttpRequest,
        until: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>>;
}

/// The body of a response while it comes.
pub(crate) trait ResponseBody: Send {
    /// The next piece, as the network delivers it, until a moment; `None` at the end. After an error nothing more comes.
    fn next_chunk(&mut self, until: Duration) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>>;
}

/// A request. Its method is always POST.
#[derive(Debug)]
pub(crate) struct HttpRequest {
    pub(crate) url: String,
    /// Those that hold secrets are marked sensitive.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A response whose head has come.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Box<dyn ResponseBody>,
}

/// Why nothing comes, or nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransportError {
    pub(crate) kind: TransportErrorKind,
    /// In words, for the user; empty where the kind says it all.
    pub(crate) cause: String,
}

/// Kinds of [`TransportError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransportErrorKind {
    /// The moment came before anything else.
    Silent,
    /// The transport cannot be set up: its certificates or its proxy are unusable.
    Setup,
    /// The address is none.
    Address,
    /// The other side's certificate cannot be trusted.
    Certificate,
    /// There is no connection.
    Connect,
    /// The connection broke.
    Broken,
    /// The recording holds something else, or nothing.
    Cassette,
}

impl HttpResponse {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
}

impl TransportError {
    pub(crate) fn new(kind: TransportErrorKind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into() }
    }

    /// The moment came.
    pub(crate) fn timed_out() -> Self {
        Self::new(TransportErrorKind::Silent, "")
    }
}
