//! Implements the transport over the network.

use std::error::Error;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::HeaderMap;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::plain_http::{PlainHttpClient, PlainHttpTarget};
use crate::provider::Provider;
use crate::transport::{
    HttpRequest, HttpResponse, ResponseBody, Transport, TransportError, TransportErrorKind,
    TransportFuture,
};

/// The name and version that servers are told.
pub(crate) const PRODUCT: &str = concat!("sabir/", env!("CARGO_PKG_VERSION"));

/// A transport over HTTP. Connections are reused between requests.
pub(crate) struct NetworkTransport {
    /// The deadline to connect, TLS included.
    connect: Duration,
    /// The proxy's URL, with its password.
    proxy: Option<String>,
    /// The hosts that are reached without it, separated by commas.
    proxy_exceptions: String,
    /// True if the provider's address uses TLS.
    secure: bool,
    /// The start of the transport's clock, at its first use.
    begun: OnceLock<Instant>,
    /// The client with its open connections.
    client: OnceLock<Client>,
    /// The client for addresses without TLS, if many connections are open at once.
    plain: Option<OnceLock<PlainHttpClient>>,
}

/// A body that arrives from the network.
struct NetworkBody {
    /// The response with the rest of its body.
    response: reqwest::Response,
    /// The start of the transport's clock.
    begun: Instant,
    /// The timer of the deadline for the next piece. Moving a timer to a later time, as each piece
    /// does, costs far less than making one.
    timer: Option<Pin<Box<Sleep>>>,
}

impl NetworkTransport {
    /// Makes the transport for a provider, with a deadline to connect. No connection is opened
    /// before the first request.
    pub(crate) fn new(provider: &Provider, connect: Duration) -> Self {
        let proxy = provider
            .proxy
            .as_ref()
            .map(|proxy| proxy.expose().to_owned());
        Self {
            connect,
            proxy,
            proxy_exceptions: provider.proxy_exceptions.clone(),
            secure: provider.is_secure(),
            begun: OnceLock::new(),
            client: OnceLock::new(),
            plain: None,
        }
    }

    /// Saves memory for each connection without TLS, since there may be thousands.
    #[must_use]
    pub(crate) fn with_many_connections(mut self) -> Self {
        self.plain = self.proxy.is_none().then(OnceLock::new);
        self
    }

    /// Returns the start of the clock.
    fn start_time(&self) -> Instant {
        *self.begun.get_or_init(Instant::now)
    }

    /// Returns the client for addresses without TLS, if this transport has one.
    pub(crate) fn plain_http_client(&self) -> Option<&PlainHttpClient> {
        let client = || PlainHttpClient::new(self.connect, self.start_time());
        self.plain.as_ref().map(|plain| plain.get_or_init(client))
    }

    /// Returns the client, which is built once. Without TLS no certificates are loaded, so that
    /// local servers start faster.
    pub(crate) fn http_client(&self) -> Result<&Client, TransportError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // An error means that a default provider is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(self.connect)
            // A redirect could send the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(PRODUCT)
            // Who builds the provider reads the variables of the environment, not this library.
            .no_proxy();
        if !self.secure && self.proxy.is_none() {
            builder = builder.tls_certs_only([]);
        }
        let unusable = |what: &str, error: &reqwest::Error| {
            TransportError::new(
                TransportErrorKind::Setup,
                format!("{what} cannot be used: {}", root_cause(error)),
            )
        };
        if let Some(proxy) = &self.proxy {
            let proxy =
                reqwest::Proxy::all(proxy).map_err(|error| unusable("the proxy", &error))?;
            let exceptions = reqwest::NoProxy::from_string(&self.proxy_exceptions);
            builder = builder.proxy(proxy.no_proxy(exceptions));
        }
        let client = builder.build().map_err(|error| unusable("TLS", &error))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Sends a request and receives the head of its response.
    ///
    /// # Errors
    /// A passed deadline, or the classified error of the connection.
    async fn send_request(
        &self,
        post: &HttpRequest,
        until: Duration,
    ) -> Result<HttpResponse, TransportError> {
        let begun = self.start_time();
        if let Some(client) = self.plain_http_client()
            && let Some(target) = PlainHttpTarget::from_url(&post.url)
        {
            let response = client.send(&target, post, until).await?;
            return Ok(HttpResponse {
                status: response.status.as_u16(),
                headers: copy_headers(&response.headers),
                body: Box::new(response.body),
            });
        }
        let sending = self
            .http_client()?
            .post(&post.url)
            .headers(post.headers.clone())
            .body(post.body.clone())
            .send();
        let mut response = match timeout_at(begun + until, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(classify_error(&error)),
            Err(_) => return Err(TransportError::timed_out()),
        };
        // The values share the buffer that was read from the connection (8 KB), which is free for
        // the body once they are dropped.
        let headers = copy_headers(&std::mem::take(response.headers_mut()));
        let status = response.status().as_u16();
        Ok(HttpResponse {
            status,
            headers,
            body: Box::new(NetworkBody {
                response,
                begun,
                timer: None,
            }),
        })
    }
}

impl Transport for NetworkTransport {
    fn now(&self) -> Duration {
        self.start_time().elapsed()
    }

    fn wait(&self, time: Duration) -> TransportFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn send<'a>(
        &'a self,
        post: &'a HttpRequest,
        until: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>> {
        Box::pin(self.send_request(post, until))
    }
}

impl ResponseBody for NetworkBody {
    fn next_chunk(
        &mut self,
        until: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>> {
        Box::pin(async move {
            let deadline = self.begun + until;
            let timer = move_timer(&mut self.timer, deadline);
            tokio::select! {
                biased;
                chunk = self.response.chunk() => match chunk {
                    Ok(chunk) => Ok(chunk.map(Vec::from)),
                    Err(error) => Err(TransportError::new(
                        TransportErrorKind::Broken,
                        root_cause(&error),
                    )),
                },
                () = timer => Err(TransportError::timed_out()),
            }
        })
    }
}

/// Moves a timer to a deadline, and makes it at the first call.
pub(crate) fn move_timer(
    timer: &mut Option<Pin<Box<Sleep>>>,
    deadline: Instant,
) -> Pin<&mut Sleep> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() != deadline {
        timer.as_mut().reset(deadline);
    }
    timer.as_mut()
}

/// Copies headers, with names in lower case. HTTP allows bytes in a value that are not UTF-8.
fn copy_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect()
}

/// Classifies the error of a request that got no response.
pub(crate) fn classify_error(error: &reqwest::Error) -> TransportError {
    let cause = root_cause(error);
    let kind = if error.is_builder() {
        TransportErrorKind::Address
    } else if cause.contains("certificate") {
        // reqwest has no method for this kind of error, but the text of rustls always contains
        // `certificate`.
        TransportErrorKind::Certificate
    } else if error.is_connect() {
        TransportErrorKind::Connect
    } else {
        TransportErrorKind::Broken
    };
    TransportError { kind, cause }
}

/// Returns the text of the innermost cause, the only one with details.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
