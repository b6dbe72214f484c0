//! A model behind HTTP.
//!
//! One attempt sends the request and reads the answer; around it stands the loop that retries. Deadlines, each on its
//! own: to connect; from sending to the first byte of the answer; between two pieces of the body; and between two events,
//! so that pings alone do not keep a dead answer alive.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use sabir_call::dialect::{dialect, dialects};
use sabir_call::{Answer, Cut, Model, ModelError, ModelErrorKind, Protocol, Request, Sink, render_request};
use sabir_wire::{BodyForm, Close, Decoder};
use tokio::time::{Instant, timeout, timeout_at};

use crate::catalogue::Catalogue;
use crate::front::Front;
use crate::provider::Provider;
use crate::refusal::Asked;
use crate::retry::{Retries, Retry};

/// The most bytes of an error response that are read.
const MAX_ERROR: usize = 64 << 10;

/// The output limit asked for when the request names none and the catalogue knows a higher one.
const MAX_DEFAULT_OUTPUT: u64 = 32_000;

/// How long each phase may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// To connect, TLS included.
    pub connect: Duration,
    /// From sending the request to the first byte of the body. Local servers read the whole prompt before it.
    pub first_byte: Duration,
    /// Between two pieces of the body; pings and comments count.
    pub idle: Duration,
    /// Between two events; pings and comments do not count.
    pub progress: Duration,
    /// For the rest of the body, usually a line, once the answer has ended: then the connection can be used again.
    pub linger: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            progress: Duration::from_secs(600),
            linger: Duration::from_secs(2),
        }
    }
}

type OnRetry = Box<dyn Fn(&Retry<'_>) + Send + Sync>;

/// A model behind HTTP. Connections are kept between requests.
pub struct HttpModel {
    provider: Provider,
    deadlines: Deadlines,
    retries: Retries,
    catalogue: Catalogue,
    on_retry: Option<OnRetry>,
    client: OnceLock<Client>,
}

/// Why an attempt failed.
struct Failure {
    error: ModelError,
    /// Whether the same may be sent again, and how long the provider asked to wait.
    again: Option<Option<Duration>>,
}

impl std::fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpModel").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Model for HttpModel {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        Box::pin(self.ask(request, sink))
    }
}

impl HttpModel {
    /// A model of that provider. Nothing is opened before the first request.
    pub fn new(provider: Provider) -> Self {
        Self {
            provider,
            deadlines: Deadlines::default(),
            retries: Retries::default(),
            catalogue: Catalogue::default(),
            on_retry: None,
            client: OnceLock::new(),
        }
    }

    /// Sets the deadlines.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets how to retry.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Sets what is known of models; their output limit is asked for where a request names none.
    #[must_use]
    pub fn catalogue(mut self, catalogue: Catalogue) -> Self {
        self.catalogue = catalogue;
        self
    }

    /// Calls `tell` before each wait.
    #[must_use]
    pub fn on_retry(mut self, tell: impl Fn(&Retry<'_>) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Box::new(tell));
        self
    }

    async fn ask(&self, request: &Request, sink: &mut (dyn Sink + Send)) -> Result<(), ModelError> {
        let asked = Asked { provider: &self.provider, model: &request.model };
        let body = self.body(request, asked)?;
        let headers = self.headers(asked)?;
        let client = self.client(asked)?;
        let seed = body.iter().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let attempts = self.retries.limit.saturating_add(1);
        let mut attempt = 1;
        loop {
            let sending = client.post(self.provider.url(&request.model)).headers(headers.clone()).body(body.clone());
            let sending = sending.headers(asked.signature(&body)?);
            let failure = match self.attempt(sending, request, asked, sink).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let Some(wish) = failure.again.filter(|_| attempt < attempts) else { return Err(failure.error) };
            let wait = self.retries.wait(attempt, wish, seed);
            if let Some(tell) = &self.on_retry {
                tell(&Retry { attempt, attempts, wait, error: &failure.error });
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// The request as bytes, rendered for its protocol.
    fn body(&self, request: &Request, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let rendered = match &request.protocol {
            Protocol::Native => None,
            Protocol::Prompted(name) => {
                let dialect = dialect(name).ok_or_else(|| {
                    let known: Vec<_> = dialects().iter().map(|dialect| dialect.name).collect();
                    let message = format!("there is no dialect `{name}`; known are native, {}", known.join(", "));
                    asked.error(ModelErrorKind::Rejected, message)
                })?;
                Some(render_request(request, dialect))
            }
        };
        let request = rendered.as_ref().unwrap_or(request);
        let value = if request.max_output.is_none()
            && let Some(limit) = self.catalogue.find(&request.model).and_then(|entry| entry.output)
        {
            let limited = Request { max_output: Some(limit.min(MAX_DEFAULT_OUTPUT)), ..request.clone() };
            self.provider.wire.encode_request(&limited, &self.provider.form)
        } else {
            self.provider.wire.encode_request(request, &self.provider.form)
        };
        Ok(value.to_string().into_bytes())
    }

    fn headers(&self, asked: Asked<'_>) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.provider.wire.headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let (key_name, prefix) = self.provider.wire.key_header();
        let key = self.provider.key.iter().filter(|key| !key.is_empty());
        let key = key.map(|key| (key_name, format!("{prefix}{}", key.expose())));
        let own = self.provider.headers.iter().map(|(name, value)| (name.as_str(), value.expose().to_owned()));
        for (name, value) in key.chain(own) {
            let refuse = |what: &str| {
                asked.error(ModelErrorKind::Key, format!("the header `{name}` for {} {what}", self.provider.name))
            };
            let name = HeaderName::try_from(name).map_err(|_| refuse("has a name that HTTP does not allow"))?;
            let mut value =
                HeaderValue::try_from(value).map_err(|_| refuse("holds characters that HTTP does not allow"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// The client, built once. Without TLS no certificates are read, so that asking a local server starts at once.
    fn client(&self, asked: Asked<'_>) -> Result<&Client, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // An error says that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(self.deadlines.connect)
            // A redirect could carry the key elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("sabir/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if !self.provider.is_secure() && self.provider.proxy.is_none() {
            builder = builder.tls_certs_only([]);
        }
        let unusable = |what: &str, error: &reqwest::Error| {
            asked.error(
                ModelErrorKind::Rejected,
                format!("{what} for {} cannot be used: {}", self.provider.name, root(error)),
            )
        };
        if let Some(proxy) = &self.provider.proxy {
            builder =
                builder.proxy(reqwest::Proxy::all(proxy.expose()).map_err(|error| unusable("the proxy", &error))?);
        }
        let client = builder.build().map_err(|error| unusable("TLS", &error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn attempt(
        &self,
        sending: reqwest::RequestBuilder,
        request: &Request,
        asked: Asked<'_>,
        sink: &mut (dyn Sink + Send),
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.deadlines.first_byte;
        let response = match timeout_at(deadline, sending.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unsent(asked, &error)),
            Err(_) => return Err(self.silent(asked)),
        };
        if !response.status().is_success() {
            return Err(self.refused(response, asked).await);
        }
        let content_type = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default();
        if content_type.contains("html") {
            let opening = self.error_body(response).await;
            return Err(last(asked.foreign(&content_type, &String::from_utf8_lossy(&opening))));
        }
        let mut reading = Reading { front: Front::new(request, sink), decoder: Decoder::new(self.provider.wire) };
        let broken = self.read(response, deadline, &mut reading).await.err();
        let Reading { mut front, decoder } = reading;
        let how = if broken.is_some() { Close::Broken } else { Close::Clean };
        let report = decoder.finish(how, &mut front);
        let why = if broken.is_none() && report.ended && report.error.is_none() { Cut::Ended } else { Cut::Broken };
        let mut opening = front.finish(why);
        let delivered = opening.has_delivered();
        let name = &self.provider.name;
        let broke = |words: String| {
            let error = asked.error(ModelErrorKind::Broken, words);
            Failure { error, again: (!delivered).then_some(None) }
        };
        Err(match (&report.error, broken) {
            (_, Some(cause)) => broke(format!("{name} {cause}")),
            _ if report.form == BodyForm::Empty => broke(format!("{name} answered with nothing")),
            (Some(error), None) if error.kind == ModelErrorKind::Format => {
                last(asked.foreign(&content_type, &report.opening))
            }
            (Some(error), None) => {
                let error = asked.inside(error, delivered);
                let again = (error.kind.is_transient() && !delivered).then_some(None);
                Failure { error, again }
            }
            (None, None) if !report.ended => {
                broke(format!("{name} closed the connection before it had ended its answer"))
            }
            (None, None) if report.unreadable > 0 => {
                broke(format!("{} events of the answer of {name} could not be read", report.unreadable))
            }
            (None, None) => {
                opening.release();
                return Ok(());
            }
        })
    }

    /// Reads the body to its end, so that the connection can be used again.
    async fn read(&self, mut response: Response, first: Instant, reading: &mut Reading<'_>) -> Result<(), String> {
        let mut deadline = first;
        let mut progress = Instant::now() + self.deadlines.progress.max(self.deadlines.first_byte);
        let mut begun = false;
        loop {
            let chunk = match timeout_at(deadline.min(progress), response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok(()),
                // What the provider ended is whole, even if it never closes the connection or closes it rudely.
                _ if reading.decoder.is_ended() => return Ok(()),
                Ok(Err(error)) => {
                    return Err(format!("broke the connection off ({})", root(&error)));
                }
                Err(_) if !begun => return Err(format!("sent no byte within {:?}", self.deadlines.first_byte)),
                Err(_) if deadline <= progress => {
                    return Err(format!("fell silent for {:?}", self.deadlines.idle));
                }
                Err(_) => {
                    return Err(format!("sent no event for {:?}, only signs of life", self.deadlines.progress));
                }
            };
            let (events, ended) = (reading.decoder.events(), reading.decoder.is_ended());
            reading.decoder.push(&chunk, &mut reading.front);
            let now = Instant::now();
            begun = true;
            if reading.decoder.events() > events {
                progress = now + self.deadlines.progress;
            }
            if !reading.decoder.is_ended() {
                deadline = now + self.deadlines.idle;
            } else if !ended {
                deadline = now + self.deadlines.linger;
            }
        }
    }

    fn silent(&self, asked: Asked<'_>) -> Failure {
        let (name, limit) = (&self.provider.name, self.deadlines.first_byte);
        let message = format!("{name} at {} did not answer within {limit:?}", asked.address());
        Failure { error: asked.error(ModelErrorKind::Unavailable, message), again: Some(None) }
    }

    async fn refused(&self, response: Response, asked: Asked<'_>) -> Failure {
        let status = response.status().as_u16();
        let wish = crate::retry::asked(|name| header(&response, name));
        let body = self.error_body(response).await;
        let error = asked.status(status, &body);
        let again = matches!(status, 408 | 429 | 500..) && error.kind.is_transient();
        Failure { error, again: again.then_some(wish) }
    }

    /// As much of an error's body as comes in time.
    async fn error_body(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < MAX_ERROR {
            match timeout(self.deadlines.idle, response.chunk()).await {
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
                _ => break,
            }
        }
        body.truncate(MAX_ERROR);
        body
    }
}

/// An answer while it is read.
struct Reading<'a> {
    front: Front<'a>,
    decoder: Decoder,
}

/// A failure that sending again cannot mend.
fn last(error: ModelError) -> Failure {
    Failure { error, again: None }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// A request that got no response.
fn unsent(asked: Asked<'_>, error: &reqwest::Error) -> Failure {
    let (address, cause) = (asked.address(), root(error));
    if error.is_builder() {
        let message = format!("{address} is no usable address; check the base URL of {}: {cause}", asked.provider.name);
        return last(asked.error(ModelErrorKind::Rejected, message));
    }
    if cause.contains("certificate") {
        let message = format!("the certificate of {address} cannot be trusted: {cause}; the connection was refused");
        return last(asked.error(ModelErrorKind::Unreachable, message));
    }
    let message = if error.is_connect() {
        format!("no connection to {address}: {cause}; check that the server runs and that the base URL is right")
    } else {
        format!("the connection to {address} broke before an answer: {cause}")
    };
    Failure { error: asked.error(ModelErrorKind::Unreachable, message), again: Some(None) }
}

/// The innermost cause, which says what really happened.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
