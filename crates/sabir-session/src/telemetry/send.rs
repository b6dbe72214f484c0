//! Sends spans to a collector, in batches, from a thread of its own.
//!
//! The task hands spans over and never waits: where too many lie there, the newest are dropped. At the end there are three seconds for
//! what is left. A batch that the collector does not take is dropped as well; it is not worth a task's time to ask again.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use sabir_model::Secret;

use super::otlp;
use super::spans::Span;

/// How many spans may wait.
const MAX_WAITING: usize = 2048;
/// How many are sent at once.
const MAX_BATCH: usize = 256;
/// How long a span waits for others.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a task waits for the last of them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The task's end of the channel.
pub(super) struct SpanSender {
    spans: Option<SyncSender<Span>>,
    done: Receiver<()>,
}

/// Where spans go below that base URL.
///
/// # Errors
/// In words, if it is no address of a collector.
pub(super) fn traces_url(endpoint: &str) -> Result<Url, String> {
    let base = endpoint.trim().trim_end_matches('/');
    let full = if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
    let url = Url::parse(&full).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.filter(|url| url.username().is_empty() && url.password().is_none())
        .ok_or_else(|| "endpoint has to be an address such as http://127.0.0.1:4318, without a password".to_owned())
}

/// The headers of every request.
///
/// # Errors
/// In words, with the name of one that is no header; its value is not shown.
pub(super) fn parse_headers(given: &BTreeMap<String, Secret>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in given {
        let wrong = || format!("`{name}` under headers cannot be sent as a header");
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

impl SpanSender {
    /// Begins the thread. Nothing is connected before there is a span.
    pub(super) fn new(url: Url, headers: HeaderMap) -> Self {
        let (spans, waiting) = sync_channel(MAX_WAITING);
        let (ended, done) = sync_channel(1);
        std::thread::spawn(move || {
            deliver_spans(&waiting, &url, &headers);
            _ = ended.send(());
        });
        Self { spans: Some(spans), done }
    }

    /// Hands a span over.
    pub(super) fn send(&self, span: Span) {
        if let Some(spans) = &self.spans {
            _ = spans.try_send(span);
        }
    }
}

impl Drop for SpanSender {
    fn drop(&mut self) {
        self.spans = None;
        // Whoever is not there by then is not waited for.
        _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Gathers and sends until the task is over.
fn deliver_spans(waiting: &Receiver<Span>, url: &Url, headers: &HeaderMap) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    // Made while the task works, so that its end need not wait for that.
    let Some(client) = build_client(headers, url) else { return };
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
        // What became of it changes nothing.
        _ = runtime.block_on(async { request.send().await?.bytes().await });
    }
}

/// What sends. Without TLS no certificates are read. Nothing is connected here.
fn build_client(headers: &HeaderMap, url: &Url) -> Option<Client> {
    // An error says that there is one already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent = concat!("sabir/", env!("CARGO_PKG_VERSION"));
    // A redirect could carry a key elsewhere.
    let redirect = reqwest::redirect::Policy::none();
    let client = Client::builder().default_headers(headers.clone()).user_agent(agent).redirect(redirect).no_proxy();
    let client = if url.scheme() == "https" { client } else { client.tls_certs_only([]) };
    client.timeout(REQUEST_TIMEOUT).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        let check = |endpoint: &str, expected: Option<&str>| {
            assert_eq!(traces_url(endpoint).ok().as_ref().map(Url::as_str), expected, "{endpoint}");
        };
        check("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces"));
        check("https://otel.example.org/x/", Some("https://otel.example.org/x/v1/traces"));
        check("https://otel.example.org/v1/traces", Some("https://otel.example.org/v1/traces"));
        for wrong in ["", "127.0.0.1:4318", "ftp://a", "http://a:b@c"] {
            check(wrong, None);
        }
    }
}
