//! A model behind HTTP.
//!
//! One attempt sends the request and reads the answer; around it stands the loop that retries. Deadlines, each on its
//! own: to connect; from sending to the first byte of the answer; between two pieces of the body; and between two events,
//! so that pings alone do not keep a dead answer alive.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sabir_call::dialect::{dialect, dialects};
use sabir_call::{Answer, Cut, Event, Model, ModelError, ModelErrorKind, Protocol, Request, Sink, render_request};
use sabir_wire::{BodyForm, Close, Decoder, Form};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blind::without_pictures;
use crate::catalogue::Catalogue;
use crate::front::Front;
use crate::network::Network;
use crate::provider::Provider;
use crate::refusal::{Asked, is_stale};
use crate::retry::{Patience, Retries, Retry};
use crate::transport::{Body, Loss, LossKind, Post, Response, Transport};

mod manner;
mod stale;
mod taped;
mod written;

pub use manner::{Callers, Reads};
use stale::{fresh, has_opaque};
use taped::Output;
use written::{Manner, Written};

/// The most bytes of an error response that are read.
const MAX_ERROR: usize = 64 << 10;

/// The most bytes that a model may say in one answer, and the most that a provider may take for saying them. No model has a limit of
/// output anywhere near; a stream without an end has to have one.
const MAX_SAID: usize = 32 << 20;
const MAX_BODY: usize = 512 << 20;

/// The most bytes that become events before whoever takes them may do so. A fast connection gives some hundred kilobytes at once.
const PIECE: usize = 16 << 10;

/// How long each phase may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    output: Output,
    on_retry: Option<OnRetry>,
    transport: OnceLock<Arc<dyn Transport>>,
    patience: Patience,
    callers: Callers,
    reads: Reads,
    /// What the last request had of the history.
    written: Written,
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
            output: Output::Catalogue(Catalogue::default()),
            on_retry: None,
            transport: OnceLock::new(),
            patience: Patience::default(),
            callers: Callers::default(),
            reads: Reads::default(),
            written: Written::default(),
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
        self.output = Output::Catalogue(catalogue);
        self
    }

    /// Says who asks. By default it is one task.
    #[must_use]
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// Says which text is read for calls. By default it is all.
    #[must_use]
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
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
        let own = Patience::default();
        let patience = if self.callers == Callers::Many { &own } else { &self.patience };
        let (url, headers) = (self.provider.url(&request.model), self.headers(asked)?);
        let mut post = Post { url, headers, body: self.body(&fresh(request, patience), asked)? };
        if let Some((count, error)) = patience.broken().filter(|_| self.retries.limit > 0) {
            self.pause(patience, (count, None), (error, seed(&post.body))).await?;
        }
        let mut attempt = 1;
        loop {
            post.headers.extend(asked.signature(&post.body)?);
            let Failure { error, again } = match self.attempt(&post, request, asked, sink).await {
                Ok(()) => {
                    patience.calm();
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if is_stale(&error) && has_opaque(request) && patience.note_stale(request.messages.len()) {
                post.body = self.body(&fresh(request, patience), asked)?;
                continue;
            }
            let Some(wish) = again else {
                if error.kind.is_transient() {
                    patience.broke(&error);
                }
                return Err(error);
            };
            if attempt > self.retries.limit || self.callers.decide(wish, &self.retries) {
                return Err(error);
            }
            self.pause(patience, (attempt, wish), (error, seed(&post.body))).await?;
            attempt += 1;
        }
    }

    /// Waits before an attempt, if the budget allows one.
    async fn pause(
        &self,
        patience: &Patience,
        (attempt, wish): (u32, Option<Duration>),
        (error, seed): (ModelError, u64),
    ) -> Result<(), ModelError> {
        let error = patience.spend(self.retries.budget, error)?;
        let wait = self.retries.wait(attempt, wish, seed);
        if let Some(tell) = &self.on_retry {
            tell(&Retry { attempt, attempts: self.retries.limit.saturating_add(1), wait, error: &error });
        }
        self.transport().wait(wait).await;
        Ok(())
    }

    fn transport(&self) -> &dyn Transport {
        let network = || Arc::new(Network::new(&self.provider, self.deadlines.connect)) as Arc<dyn Transport>;
        self.transport.get_or_init(network).as_ref()
    }

    /// The request as bytes, rendered for its protocol.
    fn body(&self, request: &Request, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let fit = self.output.is_blind(&request.model).then(|| without_pictures(request)).flatten();
        let request = fit.as_ref().unwrap_or(request);
        let (key, form) = (self.provider.wire.history(), &self.provider.form);
        let encode = |request: &Request, form: &Form| self.encode(request, form, asked);
        if self.callers == Callers::Task {
            return self.written.body(request, &Manner { key, form, encode: &encode });
        }
        serde_json::to_vec(&encode(request, form)?)
            .map_err(|error| asked.error(ModelErrorKind::Rejected, error.to_string()))
    }

    fn encode(&self, request: &Request, form: &Form, asked: Asked<'_>) -> Result<Value, ModelError> {
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
        if request.max_output.is_none()
            && let Some(limit) = self.output.limit(&request.model)
        {
            let limited = Request { max_output: Some(limit), ..request.clone() };
            return Ok(self.provider.wire.encode_request(&limited, form));
        }
        Ok(self.provider.wire.encode_request(request, form))
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

    async fn attempt(
        &self,
        post: &Post,
        request: &Request,
        asked: Asked<'_>,
        sink: &mut (dyn Sink + Send),
    ) -> Result<(), Failure> {
        let transport = self.transport();
        let deadline = transport.now() + self.deadlines.first_byte;
        let response = match transport.send(post, deadline).await {
            Ok(response) => response,
            Err(loss) if loss.kind == LossKind::Silent => return Err(self.silent(asked)),
            Err(loss) => return Err(unsent(asked, &loss)),
        };
        if !(200..300).contains(&response.status) {
            return Err(self.refused(response, asked).await);
        }
        let content_type = response.header(CONTENT_TYPE.as_str()).unwrap_or_default();
        if content_type.contains("html") {
            let opening = self.error_body(response.body).await;
            return Err(last(asked.foreign(&content_type, &String::from_utf8_lossy(&opening))));
        }
        let mut reading = Reading {
            front: Front::new(request, self.reads, sink),
            decoder: Decoder::new(self.provider.wire),
            said: 0,
        };
        let broken = self.read(response.body, deadline, &mut reading).await.err();
        let Reading { mut front, decoder, .. } = reading;
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
            (_, Some(loss)) if loss.kind == LossKind::Cassette => {
                last(asked.error(ModelErrorKind::Cassette, loss.cause))
            }
            (_, Some(loss)) => broke(format!("{name} {}", loss.cause)),
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
    async fn read(&self, mut body: Box<dyn Body>, first: Duration, reading: &mut Reading<'_>) -> Result<(), Loss> {
        let transport = self.transport();
        let mut deadline = first;
        let mut progress = transport.now() + self.deadlines.progress.max(self.deadlines.first_byte);
        let (mut begun, mut bytes) = (false, 0_usize);
        loop {
            let chunk = match body.chunk(deadline.min(progress)).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                // What the provider ended is whole, even if it never closes the connection or closes it rudely.
                _ if reading.decoder.is_ended() => return Ok(()),
                Err(loss) if loss.kind == LossKind::Cassette => return Err(loss),
                Err(loss) => return Err(Loss { cause: self.lost(&loss, begun, deadline <= progress), ..loss }),
            };
            let (events, ended) = (reading.decoder.events(), reading.decoder.is_ended());
            let now = transport.now();
            bytes = bytes.saturating_add(chunk.len());
            begun = true;
            for piece in chunk.chunks(PIECE) {
                reading.push(piece);
                // Whoever takes the events may do so before the next piece is read, and be slow.
                tokio::task::yield_now().await;
            }
            if reading.decoder.events() > events {
                progress = now + self.deadlines.progress;
            }
            if !reading.decoder.is_ended() {
                endless(reading.said, bytes)?;
                deadline = now + self.deadlines.idle;
            } else if !ended {
                deadline = now + self.deadlines.linger;
            }
        }
    }

    /// How the rest of a body was lost. `idle`: the deadline that came first was the one between two pieces.
    fn lost(&self, loss: &Loss, begun: bool, idle: bool) -> String {
        let Deadlines { first_byte, idle: between, progress, .. } = self.deadlines;
        match loss.kind {
            LossKind::Silent if !begun => format!("sent no byte within {first_byte:?}"),
            LossKind::Silent if idle => format!("fell silent for {between:?}"),
            LossKind::Silent => format!("sent no event for {progress:?}, only signs of life"),
            _ => format!("broke the connection off ({})", loss.cause),
        }
    }

    fn silent(&self, asked: Asked<'_>) -> Failure {
        let (name, limit) = (&self.provider.name, self.deadlines.first_byte);
        let message = format!("{name} at {} did not answer within {limit:?}", asked.address());
        Failure { error: asked.error(ModelErrorKind::Unavailable, message), again: Some(None) }
    }

    async fn refused(&self, response: Response, asked: Asked<'_>) -> Failure {
        let status = response.status;
        let wish = crate::retry::asked(|name| response.header(name));
        let body = self.error_body(response.body).await;
        let error = asked.status(status, &body);
        let again = matches!(status, 408 | 429 | 500..) && error.kind.is_transient();
        Failure { error, again: again.then_some(wish) }
    }

    /// As much of an error's body as comes in time.
    async fn error_body(&self, mut body: Box<dyn Body>) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < MAX_ERROR {
            match body.chunk(self.transport().now() + self.deadlines.idle).await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                _ => break,
            }
        }
        bytes.truncate(MAX_ERROR);
        bytes
    }
}

/// An answer while it is read.
struct Reading<'a> {
    front: Front<'a>,
    decoder: Decoder,
    /// The bytes that the model said.
    said: usize,
}

impl Reading<'_> {
    fn push(&mut self, chunk: &[u8]) {
        let (front, said) = (&mut self.front, &mut self.said);
        self.decoder.push(chunk, &mut |event: Event<'_>| {
            let bytes = match event {
                Event::Text { text } | Event::Thought { text } | Event::ArgDelta { text, .. } => text.len(),
                Event::CallStart { name, .. } | Event::ArgStart { name, .. } => name.len(),
                _ => 0,
            };
            *said = said.saturating_add(bytes);
            front.event(event);
        });
    }
}

/// Whether an answer that has not ended goes on for too long.
fn endless(said: usize, bytes: usize) -> Result<(), Loss> {
    if said <= MAX_SAID && bytes <= MAX_BODY {
        return Ok(());
    }
    let words = format!("sent {} MiB without ending its answer, and was not listened to any longer", bytes >> 20);
    Err(Loss::new(LossKind::Broken, words))
}

/// What the waits between attempts follow from: the same request waits alike.
fn seed(body: &[u8]) -> u64 {
    body.iter().fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// A failure that sending again cannot mend.
fn last(error: ModelError) -> Failure {
    Failure { error, again: None }
}

/// A request that got no response.
fn unsent(asked: Asked<'_>, loss: &Loss) -> Failure {
    let (address, cause, name) = (asked.address(), &loss.cause, &asked.provider.name);
    let (kind, message) = match loss.kind {
        LossKind::Setup => (ModelErrorKind::Rejected, format!("{name} cannot be asked: {cause}")),
        LossKind::Address => {
            (ModelErrorKind::Rejected, format!("{address} is no usable address; check the base URL of {name}: {cause}"))
        }
        LossKind::Certificate => (
            ModelErrorKind::Unreachable,
            format!("the certificate of {address} cannot be trusted: {cause}; the connection was refused"),
        ),
        LossKind::Cassette => (ModelErrorKind::Cassette, cause.clone()),
        LossKind::Connect => {
            let advice = "check that the server runs and that the base URL is right";
            let message = format!("no connection to {address}: {cause}; {advice}");
            return Failure { error: asked.error(ModelErrorKind::Unreachable, message), again: Some(None) };
        }
        LossKind::Silent | LossKind::Broken => {
            let message = format!("the connection to {address} broke before an answer: {cause}");
            return Failure { error: asked.error(ModelErrorKind::Unreachable, message), again: Some(None) };
        }
    };
    last(asked.error(kind, message))
}
