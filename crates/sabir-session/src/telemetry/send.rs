//! Sends spans to a collector, in batches, from a separate thread.
//!
//! The task never waits: when the queue is full, new spans are dropped. At the end of the task the queue gets three seconds to drain.
//! A batch that the collector refuses is dropped too; a retry would only delay later spans.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use sabir_model::Secret;

use super::otlp;
use super::spans::TraceSpan;

/// The capacity of the queue, in spans.
const MAX_WAITING: usize = 2048;
/// The most spans in one request.
const MAX_BATCH: usize = 256;
/// The longest time that a span waits for others.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time that the end of a task waits for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The task's end of the channel to the sending thread.
pub(super) struct SpanSender {
    spans: Option<SyncSender<TraceSpan>>,
    done: Receiver<()>,
}

/// A setting of telemetry that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// Other keys of the table are set, and the one that they need is not.
    #[error("[telemetry] has no endpoint: nothing would be sent")]
    NoEndpoint,
    /// The endpoint is not an HTTP address, or has a user name or a password.
    #[error(
        "[telemetry]: endpoint has to be an address such as http://127.0.0.1:4318, without a password"
    )]
    Endpoint,
    /// The header with this name has a name or a value that HTTP does not allow. The value may be a key, so it is not part of the error.
    #[error("[telemetry]: `{0}` under headers cannot be sent as a header")]
    Header(String),
}

/// Returns the URL for traces below a collector's base URL, as OTLP/HTTP defines it.
///
/// # Errors
/// When the text is no such URL, or has a password.
pub(super) fn traces_url(endpoint: &str) -> Result<Url, TelemetryError> {
    let base = endpoint.trim().trim_end_matches('/');
    let full = if base.ends_with("/v1/traces") {
        base.to_owned()
    } else {
        format!("{base}/v1/traces")
    };
    let url = Url::parse(&full)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.filter(|url| url.username().is_empty() && url.password().is_none())
        .ok_or(TelemetryError::Endpoint)
}

/// Returns the headers of every request.
///
/// # Errors
/// When a header cannot be sent.
pub(super) fn parse_headers(given: &BTreeMap<String, Secret>) -> Result<HeaderMap, TelemetryError> {
    let mut headers = HeaderMap::new();
    headers.insert(
        reqwest::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    for (name, value) in given {
        let wrong = || TelemetryError::Header(name.clone());
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        // Keeps the value out of `Debug` output and out of HTTP/2 compression tables.
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

impl SpanSender {
    /// Starts the thread. It connects when there is a first span.
    pub(super) fn new(url: Url, headers: HeaderMap) -> Self {
        let (spans, waiting) = sync_channel(MAX_WAITING);
        let (ended, done) = sync_channel(1);
        std::thread::spawn(move || {
            deliver_spans(&waiting, &url, &headers);
            _ = ended.send(());
        });
        Self {
            spans: Some(spans),
            done,
        }
    }

    /// Queues a span, or drops it if the queue is full.
    pub(super) fn queue_span(&self, span: TraceSpan) {
        if let Some(spans) = &self.spans {
            // Never `send`, which would wait for the collector in the middle of a turn.
            _ = spans.try_send(span);
        }
    }
}

impl Drop for SpanSender {
    fn drop(&mut self) {
        // The closed channel tells the thread to send the rest and to end.
        self.spans = None;
        // A thread that needs longer is abandoned, with its spans.
        _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Collects spans into batches and sends them, until the channel is closed.
fn deliver_spans(waiting: &Receiver<TraceSpan>, url: &Url, headers: &HeaderMap) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return;
    };
    // Built before the first span arrives: this takes a while, and would delay the end of a short
    // task.
    let Some(client) = build_client(headers, url) else {
        return;
    };
    while let Ok(first) = waiting.recv() {
        let mut batch = vec![first];
        let until = Instant::now() + BATCH_INTERVAL;
        while batch.len() < MAX_BATCH {
            match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(span) => batch.push(span),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let request = client.post(url.clone()).body(otlp::request_body(&batch));
        // Telemetry is best effort: the result is ignored.
        _ = runtime.block_on(async { request.send().await?.bytes().await });
    }
}

/// Builds the HTTP client, without a connection yet. For plain HTTP it loads no certificates, which would take time.
fn build_client(headers: &HeaderMap, url: &Url) -> Option<Client> {
    // An error means that a provider was installed before, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent = concat!("sabir/", env!("CARGO_PKG_VERSION"));
    // A redirect could carry the key in a header to another host.
    let redirect = reqwest::redirect::Policy::none();
    let client = Client::builder()
        .default_headers(headers.clone())
        .user_agent(agent)
        .redirect(redirect)
        // The endpoint is the user's own choice, and a proxy of the environment would see the
        // spans.
        .no_proxy();
    let client = if url.scheme() == "https" {
        client
    } else {
        client.tls_certs_only([])
    };
    client.timeout(REQUEST_TIMEOUT).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_addresses_are_parsed() {
        let check = |endpoint: &str, expected: Option<&str>| {
            assert_eq!(
                traces_url(endpoint).ok().as_ref().map(Url::as_str),
                expected,
                "{endpoint}"
            );
        };
        check(
            "http://127.0.0.1:4318",
            Some("http://127.0.0.1:4318/v1/traces"),
        );
        check(
            "https://otel.example.org/x/",
            Some("https://otel.example.org/x/v1/traces"),
        );
        check(
            "https://otel.example.org/v1/traces",
            Some("https://otel.example.org/v1/traces"),
        );
        for wrong in ["", "127.0.0.1:4318", "ftp://a", "http://a:b@c"] {
            check(wrong, None);
        }
    }
}
