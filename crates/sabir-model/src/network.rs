//! The transport that is the network.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use tokio::time::{Instant, timeout_at};

use crate::provider::Provider;
use crate::transport::{Body, Loss, LossKind, Post, Response, Transport, Work};

/// HTTP over TCP and TLS. Connections are kept between requests.
pub(crate) struct Network {
    connect: Duration,
    proxy: Option<String>,
    secure: bool,
    begun: OnceLock<Instant>,
    client: OnceLock<Client>,
}

struct NetworkBody {
    response: reqwest::Response,
    begun: Instant,
}

impl Network {
    /// The network as that provider is reached, with a deadline to connect. Nothing is opened before the first request.
    pub(crate) fn new(provider: &Provider, connect: Duration) -> Self {
        let proxy = provider.proxy.as_ref().map(|proxy| proxy.expose().to_owned());
        Self { connect, proxy, secure: provider.is_secure(), begun: OnceLock::new(), client: OnceLock::new() }
    }

    fn begun(&self) -> Instant {
        *self.begun.get_or_init(Instant::now)
    }

    /// The client, built once. Without TLS no certificates are read, so that asking a local server starts at once.
    fn client(&self) -> Result<&Client, Loss> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // An error says that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(self.connect)
            // A redirect could carry the key elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("sabir/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if !self.secure && self.proxy.is_none() {
            builder = builder.tls_certs_only([]);
        }
        let unusable = |what: &str, error: &reqwest::Error| {
            Loss::new(LossKind::Setup, format!("{what} cannot be used: {}", root(error)))
        };
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|error| unusable("the proxy", &error))?);
        }
        let client = builder.build().map_err(|error| unusable("TLS", &error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn post(&self, post: &Post, until: Duration) -> Result<Response, Loss> {
        let begun = self.begun();
        let sending = self.client()?.post(&post.url).headers(post.headers.clone()).body(post.body.clone()).send();
        let response = match timeout_at(begun + until, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unsent(&error)),
            Err(_) => return Err(Loss::silent()),
        };
        let headers = response.headers().iter();
        let headers = headers
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let (status, headers) = (response.status().as_u16(), headers.collect());
        Ok(Response { status, headers, body: Box::new(NetworkBody { response, begun }) })
    }
}

impl Transport for Network {
    fn now(&self) -> Duration {
        self.begun().elapsed()
    }

    fn wait(&self, time: Duration) -> Work<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn send<'a>(&'a self, post: &'a Post, until: Duration) -> Work<'a, Result<Response, Loss>> {
        Box::pin(self.post(post, until))
    }
}

impl Body for NetworkBody {
    fn chunk(&mut self, until: Duration) -> Work<'_, Result<Option<Vec<u8>>, Loss>> {
        Box::pin(async move {
            match timeout_at(self.begun + until, self.response.chunk()).await {
                Ok(Ok(chunk)) => Ok(chunk.map(Vec::from)),
                Ok(Err(error)) => Err(Loss::new(LossKind::Broken, root(&error))),
                Err(_) => Err(Loss::silent()),
            }
        })
    }
}

/// Why a request got no response.
fn unsent(error: &reqwest::Error) -> Loss {
    let cause = root(error);
    let kind = if error.is_builder() {
        LossKind::Address
    } else if cause.contains("certificate") {
        LossKind::Certificate
    } else if error.is_connect() {
        LossKind::Connect
    } else {
        LossKind::Broken
    };
    Loss { kind, cause }
}

/// The innermost cause, which says what really happened.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
