//! Sends requests to a model over HTTP and streams the response, with deadlines and retries.
//!
//! One attempt sends the request and reads the response; a loop around it retries. There are
//! separate deadlines to connect; from sending to the first byte of the response; between two
//! pieces of the body; and between two events, so that pings alone do not keep a dead response
//! alive.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sabir_call::{
    Event, EventSink, Model, ModelError, ModelErrorKind, ProviderReport, Request, ResponseFuture,
    ToolProtocol, Truncation, render_request,
};
use sabir_wire::{BodyEnd, BodyForm, ChoiceChunk, DecodeReport, ResponseDecoder, WireOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::ModelCatalogue;
use crate::client_redaction::ClientRedactor;
use crate::network::NetworkTransport;
use crate::provider::{Provider, is_loopback, strip_url_secrets};
use crate::provider_error::{
    RequestTarget, describe_compressed_answer, is_expired_state, status_error,
};
use crate::reader_cache::ReaderCache;
use crate::response_pipeline::{AnswerBoundaries, ResponsePipeline};
use crate::retry::{ExhaustedAttempt, RetryBudget, RetryNotice, RetryPolicy, mix_seed};
use crate::strip_images::strip_images;
use crate::transport::{
    HttpRequest, HttpResponse, ResponseBody, Transport, TransportError, TransportErrorKind,
};

mod body_cache;
mod body_changes;
mod opaque_state;
mod options;
mod recording;
#[cfg(test)]
mod tests;

use body_cache::{BodyCache, BodyEncoder};
pub use body_changes::BodyChanges;
use opaque_state::{OriginSink, drop_unusable_state, has_opaque_state};
pub use options::{CallerScope, TextParsing};
use recording::RequestLimits;
pub use recording::UnknownWire;

/// The number of bytes of an error response that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The largest output of a model in one response. Far above the limit of any model; it ends a stream that never ends.
const MAX_OUTPUT_BYTES: usize = 32 << 20;
/// The largest body of a response, with everything that the wire adds to the output.
const MAX_BODY_BYTES: usize = 512 << 20;

/// The number of bytes that are decoded before the consumer of the events gets a turn. A fast
/// connection delivers some hundred kilobytes at once.
const MAX_PIECE_BYTES: usize = 16 << 10;

/// The time limits of each phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deadlines {
    /// The time to connect, TLS included.
    pub connect: Duration,
    /// The time from sending the request to the first byte of the body. Local servers process the
    /// whole prompt in it.
    pub first_byte: Duration,
    /// The time between two pieces of the body; pings and comments count.
    pub idle: Duration,
    /// The time between two events; pings and comments do not count.
    pub progress: Duration,
    /// The time for the rest of the body, usually one line, after the response has ended. Reading
    /// it to the end keeps the connection usable.
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

/// The function that is called before each wait for a retry.
type RetryCallback = Box<dyn Fn(&RetryNotice<'_>) + Send + Sync>;

/// A model that is reached over HTTP. Connections are reused between requests.
///
/// Dropping the future of a response closes its connection, which is how a response is cancelled.
pub struct HttpModel {
    /// The provider with its address, wire and key.
    provider: Provider,
    /// The time limits of each phase.
    deadlines: Deadlines,
    /// The limits for retries.
    retries: RetryPolicy,
    /// The limits that requests are adapted to.
    request_limits: RequestLimits,
    /// The function that reports waits to the user.
    on_retry: Option<RetryCallback>,
    /// The network, a recorder or a replay; made at the first request.
    transport: OnceLock<Arc<dyn Transport>>,
    /// The retries over all requests of a task.
    retry_budget: RetryBudget,
    /// The callers that share the model.
    callers: CallerScope,
    /// The text that is searched for calls.
    reads: TextParsing,
    /// The encoded beginning of the history in the last request.
    body_cache: BodyCache,
    /// The reader of the last response's text.
    reader_cache: ReaderCache,
    /// The user's changes of each body.
    body_changes: BodyChanges,
    /// Removes what independent callers must not see; made at the first response.
    redactor: OnceLock<Arc<ClientRedactor>>,
}

/// A failed attempt.
struct AttemptFailure {
    /// The error for the caller if no attempt follows.
    error: ModelError,
    /// `None` if a retry is useless; otherwise the wait that the provider requested, if any.
    retry_after: Option<Option<Duration>>,
}

/// A failed attempt that is followed by another one.
struct FailedAttempt {
    /// The attempt's number, from 1.
    attempt: u32,
    /// The wait before the next one.
    wait: Duration,
    /// The time in which the request is still retried after that; `None` where attempts are counted.
    patience_left: Option<Duration>,
    /// The error of the attempt, for the notice and for an empty budget.
    error: ModelError,
}

impl std::fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpModel")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

impl Model for HttpModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(self.send_with_retries(request, sink))
    }
}

impl HttpModel {
    /// Makes a model of that provider. No connection is opened before the first request.
    ///
    /// Deadlines, retries and catalogue have their defaults.
    pub fn new(provider: Provider) -> Self {
        Self {
            provider,
            deadlines: Deadlines::default(),
            retries: RetryPolicy::default(),
            request_limits: RequestLimits::Catalogue(ModelCatalogue::default()),
            on_retry: None,
            transport: OnceLock::new(),
            retry_budget: RetryBudget::default(),
            callers: CallerScope::default(),
            reads: TextParsing::default(),
            body_cache: BodyCache::default(),
            reader_cache: ReaderCache::default(),
            body_changes: BodyChanges::default(),
            redactor: OnceLock::new(),
        }
    }

    /// Sets the deadlines.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retries(mut self, retries: RetryPolicy) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the catalogue, whose output limit is used if a request names none.
    #[must_use]
    pub fn catalogue(mut self, catalogue: ModelCatalogue) -> Self {
        self.request_limits = RequestLimits::Catalogue(catalogue);
        self
    }

    /// Sets the callers that share this model; by default one task.
    #[must_use]
    pub fn caller_scope(mut self, callers: CallerScope) -> Self {
        self.callers = callers;
        self
    }

    /// Sets the changes that are made in the body of each request.
    #[must_use]
    pub fn body_changes(mut self, changes: BodyChanges) -> Self {
        self.body_changes = changes;
        self
    }

    /// Sets the part of the text that is searched for calls; by default all of it.
    #[must_use]
    pub fn text_parsing(mut self, reads: TextParsing) -> Self {
        self.reads = reads;
        self
    }

    /// Sets the function that is called before each wait.
    #[must_use]
    pub fn on_retry(mut self, tell: impl Fn(&RetryNotice<'_>) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Box::new(tell));
        self
    }

    /// Sends a request until a response is complete, a failure is final, or the retries are used
    /// up.
    ///
    /// # Errors
    /// The error of the last attempt.
    async fn send_with_retries(
        &self,
        request: &Request,
        sink: &mut (dyn EventSink + Send),
    ) -> Result<(), ModelError> {
        let asked = RequestTarget {
            provider: &self.provider,
            model: &request.model,
        };
        // Independent callers must not use up each other's retries.
        let own = RetryBudget::default();
        let retry_budget = if self.callers == CallerScope::Many {
            &own
        } else {
            &self.retry_budget
        };
        let url = self.provider.endpoint_url(&request.model);
        let mut headers = self.request_headers(asked)?;
        self.add_client_headers(request, &mut headers);
        let origin = asked.origin();
        let body = {
            let sendable = drop_unusable_state(request, &origin, retry_budget);
            self.encode_body(&sendable, asked)?
        };
        let mut post = HttpRequest { url, headers, body };
        // Counted over all callers: their requests may be equal, and must not retry in step either.
        let number = self.retry_budget.count_request();
        // Only for retries: hashing a long history takes as long as serializing it.
        let seed = |body: &[u8]| mix_seed(self.retries.seed ^ hash_body(body), number);
        // The last answer broke off, and this request repeats it, which is a retry too.
        if let Some((attempt, error)) = retry_budget
            .last_interruption()
            .filter(|_| self.retries.limit > 0)
        {
            let failed = FailedAttempt {
                attempt,
                wait: self.retries.wait_time(attempt, None, seed(&post.body)),
                patience_left: None,
                error,
            };
            Box::pin(self.wait_before_retry(retry_budget, failed)).await?;
        }
        let mut attempt = 1;
        let mut waited = Duration::ZERO;
        loop {
            // Each attempt is signed again: a signature holds the time.
            post.headers.extend(asked.signature_headers(&post.body)?);
            let AttemptFailure { error, retry_after } =
                match self.run_attempt(&post, request, asked, sink).await {
                    Ok(()) => {
                        retry_budget.record_success();
                        return Ok(());
                    }
                    Err(failure) => failure,
                };
            // The request is repeated without the expired state; `record_expired` returns true once
            // for each length of the history, so this cannot loop.
            if is_expired_state(&error)
                && has_opaque_state(request)
                && retry_budget.record_expired(request.messages.len())
            {
                let sendable = drop_unusable_state(request, &origin, retry_budget);
                post.body = self.encode_body(&sendable, asked)?;
                continue;
            }
            // No server listens on this machine, and none has answered before, so waiting is
            // useless. A server that has answered may be restarting.
            let is_absent = error.kind == ModelErrorKind::Unreachable
                && retry_after == Some(None)
                && is_loopback(&asked.provider.base_url)
                && !retry_budget.has_answered()
                && error.message.contains("refused");
            if is_absent {
                return Err(error);
            }
            // A break after a delivered part is not retried here: the caller keeps the part and
            // decides.
            let Some(wish) = retry_after else {
                if error.kind.is_transient() {
                    retry_budget.record_interruption(&error);
                }
                return Err(error);
            };
            if self.callers.declines_wait(wish, &self.retries) {
                return Err(error);
            }
            let seed = seed(&post.body);
            let mut wait = self.retries.wait_time(attempt, wish, seed);
            let mut patience_left = None;
            if attempt > self.retries.limit {
                let failed = ExhaustedAttempt {
                    attempt,
                    asked: wish,
                    seed,
                    error: &error,
                };
                let Some(longer) = self.retries.extended_wait(&failed, waited) else {
                    return Err(error);
                };
                wait = longer;
                patience_left = Some(self.retries.patience.saturating_sub(waited + wait));
            }
            waited = waited.saturating_add(wait);
            let failed = FailedAttempt {
                attempt,
                wait,
                patience_left,
                error,
            };
            Box::pin(self.wait_before_retry(retry_budget, failed)).await?;
            attempt += 1;
        }
    }

    /// Waits before an attempt, if the budget allows one.
    ///
    /// # Errors
    /// The attempt's error, if the budget of the task is used up.
    async fn wait_before_retry(
        &self,
        retry_budget: &RetryBudget,
        failed: FailedAttempt,
    ) -> Result<(), ModelError> {
        let FailedAttempt {
            attempt,
            wait,
            patience_left,
            error,
        } = failed;
        let error = retry_budget.take_retry(self.retries.budget, error)?;
        if let Some(tell) = &self.on_retry {
            tell(&RetryNotice {
                attempt,
                // After answers that broke off, the caller's attempts may exceed the limit of one
                // request.
                attempts: self.retries.limit.max(attempt).saturating_add(1),
                wait,
                patience_left,
                error: &error,
            });
        }
        self.transport().wait(wait).await;
        Ok(())
    }

    /// Returns the redactor of what independent callers see; `None` if a task is the caller, which
    /// may know the provider.
    fn client_redactor(&self) -> Option<&Arc<ClientRedactor>> {
        let redactor = || Arc::new(ClientRedactor::new(&self.provider));
        (self.callers == CallerScope::Many).then(|| self.redactor.get_or_init(redactor))
    }

    /// Returns the transport. The network is the default.
    fn transport(&self) -> &dyn Transport {
        let network = || {
            let network = NetworkTransport::new(&self.provider, self.deadlines.connect);
            let network = match self.callers {
                CallerScope::Task => network,
                CallerScope::Many => network.with_many_connections(),
            };
            Arc::new(network) as Arc<dyn Transport>
        };
        self.transport.get_or_init(network).as_ref()
    }

    /// Encodes the request body, rendered for its protocol.
    fn encode_body(
        &self,
        request: &Request,
        asked: RequestTarget<'_>,
    ) -> Result<Vec<u8>, ModelError> {
        let fit = self
            .request_limits
            .rejects_images(&self.provider.name, &request.model)
            .then(|| strip_images(request))
            .flatten();
        let request = fit.as_ref().unwrap_or(request);
        let key = self.provider.wire.history_member();
        let form = &self.provider.form;
        let encode =
            |request: &Request, form: &WireOptions| self.encode_value(request, form, asked);
        // Independent callers have nothing in common that could be cached.
        if self.callers == CallerScope::Task {
            return self.body_cache.encode_body(
                request,
                &BodyEncoder {
                    key,
                    form,
                    encode: &encode,
                },
            );
        }
        serde_json::to_vec(&encode(request, form)?)
            .map_err(|error| asked.new_error(ModelErrorKind::Rejected, error.to_string()))
    }

    /// Encodes the request body as a JSON value, with the catalogue's output limit if the request
    /// names none.
    fn encode_value(
        &self,
        request: &Request,
        form: &WireOptions,
        asked: RequestTarget<'_>,
    ) -> Result<Value, ModelError> {
        // Before the protocol is rendered: the markup of its own calls must stay whole.
        let escaped = request.escaping.escape_request(request);
        let request = escaped.as_ref().unwrap_or(request);
        let rendered = match &request.protocol {
            ToolProtocol::Native => None,
            ToolProtocol::Prompted(name) => {
                let dialect = request.dialects.find(name).ok_or_else(|| {
                    let known: Vec<_> = request
                        .dialects
                        .iter()
                        .map(|dialect| dialect.name)
                        .collect();
                    // In a resumed task, a dialect from the user's tables may no longer exist.
                    let message = format!(
                        "there is no dialect `{name}`; known are native, {}",
                        known.join(", ")
                    );
                    asked.new_error(ModelErrorKind::Rejected, message)
                })?;
                Some(render_request(request, dialect))
            }
        };
        let request = rendered.as_ref().unwrap_or(request);
        if request.max_output_tokens.is_none()
            && let Some(limit) = self
                .request_limits
                .output_limit(&self.provider.name, &request.model)
        {
            let limited = Request {
                max_output_tokens: Some(limit),
                ..request.clone()
            };
            return Ok(self.encode_changed(&limited, form));
        }
        Ok(self.encode_changed(request, form))
    }

    /// Adds the headers that belong to a client's body, besides those of the provider's configuration.
    fn add_client_headers(&self, request: &Request, headers: &mut HeaderMap) {
        let client = request.client_body.as_ref();
        let client = client.filter(|client| client.wire == self.provider.wire.name());
        for (name, value) in client.iter().flat_map(|client| &client.headers) {
            let Ok(name) = HeaderName::try_from(name) else {
                continue;
            };
            let own = headers.get(&name).and_then(|own| own.to_str().ok());
            let value = own.map_or_else(|| value.clone(), |own| format!("{own},{value}"));
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
    }

    /// Encodes a request on the provider's wire, with the user's changes.
    fn encode_changed(&self, request: &Request, form: &WireOptions) -> Value {
        let mut body = self.provider.wire.encode_request(request, form);
        self.body_changes.apply(&mut body);
        body
    }

    /// Returns the headers of every request; those with secrets are marked sensitive.
    fn request_headers(&self, asked: RequestTarget<'_>) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.provider.wire.required_headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        self.provider
            .insert_own_headers(&mut headers)
            .map_err(|error| asked.new_error(ModelErrorKind::Key, error.to_string()))?;
        Ok(headers)
    }

    /// Sends the request once and delivers the response's events to `sink`.
    ///
    /// # Errors
    /// The failure, which says if another attempt is useful. Once an event was delivered, it never
    /// is.
    async fn run_attempt(
        &self,
        post: &HttpRequest,
        request: &Request,
        asked: RequestTarget<'_>,
        sink: &mut (dyn EventSink + Send),
    ) -> Result<(), AttemptFailure> {
        let transport = self.transport();
        let deadline = transport.now() + self.deadlines.first_byte;
        request
            .report
            .update(|report| *report = ProviderReport::default());
        let response = match transport.send(post, deadline).await {
            Ok(response) => response,
            Err(loss) if loss.kind == TransportErrorKind::Silent => {
                return Err(self.timeout_failure(asked));
            }
            Err(loss) => return Err(connection_failure(asked, &loss)),
        };
        request.report.update(|report| {
            report.status = Some(response.status);
            // A proxy may name the key whose limits these are.
            let redactor = self.client_redactor();
            let limits = response.limit_headers().into_iter();
            let limits = limits
                .filter(|(name, _)| redactor.is_none_or(|redactor| redactor.is_header_public(name)))
                .map(|(name, value)| match redactor {
                    Some(redactor) => (name, redactor.redact_text(value)),
                    None => (name, self.provider.redact_secrets(&value)),
                });
            report.headers = limits.collect();
        });
        // Redirects count as errors: following one could send the key to another host.
        if !(200..300).contains(&response.status) {
            // Futures of rare cases are boxed, so that no stream holds memory for them.
            return Err(Box::pin(self.status_failure(response, request, asked)).await);
        }
        if let Some(compression) = response.compression() {
            return Err(permanent_failure(
                asked.compression_error(&compression, request),
            ));
        }
        let content_type = response.header(CONTENT_TYPE.as_str()).unwrap_or_default();
        // A captive portal or a proxy answers with a page and status 200.
        if content_type.contains("html") {
            let opening = Box::pin(self.read_error_body(response.body)).await;
            let opening = String::from_utf8_lossy(&opening.bytes);
            return Err(permanent_failure(
                asked.format_error(&content_type, &opening),
            ));
        }
        let mut stamped = OriginSink::new(sink, asked);
        // Independent callers have nothing in common.
        let readers = (self.callers == CallerScope::Task).then_some(&self.reader_cache);
        let prefill = self
            .request_limits
            .prefill(&self.provider.name, &request.model);
        let ends = AnswerBoundaries {
            prefill: &prefill,
            closes_last_call: self
                .request_limits
                .closes_last_call(&self.provider.name, &request.model),
        };
        let mut reading = ResponseReader {
            front: ResponsePipeline::new(request, self.reads, readers, ends, &mut stamped),
            decoder: self.response_decoder(request, ends),
            output_bytes: 0,
        };
        let broken = self
            .read_body(response.body, deadline, &mut reading)
            .await
            .err();
        let ResponseReader {
            mut front, decoder, ..
        } = reading;
        let how = if broken.is_some() {
            BodyEnd::Broken
        } else {
            BodyEnd::Clean
        };
        // Finished on every path, so that open calls are cut after an error as well.
        let report = decoder.finish(how, &mut front);
        let why = if broken.is_none() && report.ended && report.error.is_none() {
            Truncation::Ended
        } else {
            Truncation::Broken
        };
        let mut opening = front.finish(why);
        // Once an event was delivered, a retry would show the caller a second beginning of the
        // response.
        let delivered = opening.has_delivered();
        let name = &self.provider.name;
        let broke = |words: String| {
            let error = asked.new_error(ModelErrorKind::Broken, words);
            AttemptFailure {
                error,
                retry_after: (!delivered).then_some(None),
            }
        };
        Err(match (&report.error, broken) {
            // A replay that differs from its recording would differ again.
            (_, Some(loss)) if loss.kind == TransportErrorKind::Cassette => {
                permanent_failure(asked.new_error(ModelErrorKind::Cassette, loss.cause))
            }
            (_, Some(loss)) => broke(format!("{name} {}", loss.cause)),
            _ if report.form == BodyForm::Empty => broke(format!("{name} answered with nothing")),
            // The connection was closed without an error, but no event of the stream is complete.
            (Some(error), None)
                if error.kind == ModelErrorKind::Format
                    && is_cut_in_first_event(&report, &content_type) =>
            {
                let cause = match report.unreadable_cause.as_str() {
                    "" => String::new(),
                    cause => format!(": {cause}"),
                };
                broke(format!(
                    "{name} closed the connection inside the first event of its answer{cause}"
                ))
            }
            // Not the wire's format: wrong address or wire, which a retry cannot change.
            (Some(error), None) if error.kind == ModelErrorKind::Format => {
                permanent_failure(asked.format_error(&content_type, &report.opening))
            }
            (Some(error), None) => {
                asked.report_error(error, request);
                let error = asked.stream_error(error, delivered);
                let retry_after = (error.kind.is_transient() && !delivered).then_some(None);
                AttemptFailure { error, retry_after }
            }
            // Without an end, a short answer cannot be distinguished from a cut one.
            (None, None) if !report.ended => broke(format!(
                "{name} closed the connection before it had ended its answer"
            )),
            (None, None) if report.unreadable > 0 => broke(format!(
                "{} events of the answer of {name} could not be read: {}",
                report.unreadable, report.unreadable_cause
            )),
            (None, None) => {
                opening.deliver_held();
                return Ok(());
            }
        })
    }

    /// Makes the decoder of a response. A client of the same wire gets its details too.
    fn response_decoder(&self, request: &Request, ends: AnswerBoundaries<'_>) -> ResponseDecoder {
        let wire = self.provider.wire;
        let decoder = ResponseDecoder::new(wire);
        let decoder = match self.client_redactor() {
            Some(redactor) => {
                let redactor = Arc::clone(redactor);
                decoder.with_redaction(Arc::new(move |event| redactor.redact_credentials(event)))
            }
            None => decoder,
        };
        match &request.client_body {
            Some(client) if client.wire == wire.name() => decoder.with_details().with_choices(
                wire.choice_count(request),
                ends.prefill,
                ends.closes_last_call,
            ),
            _ => decoder,
        }
    }

    /// Reads the body to its end, so that the connection can be reused.
    ///
    /// # Errors
    /// The loss of the connection, a passed deadline, or a body that is too large.
    async fn read_body(
        &self,
        mut body: Box<dyn ResponseBody>,
        first: Duration,
        reading: &mut ResponseReader<'_>,
    ) -> Result<(), TransportError> {
        let transport = self.transport();
        let mut deadline = first;
        // A model may think before its first event as long as `first_byte` allows.
        let mut progress = transport.now() + self.deadlines.progress.max(self.deadlines.first_byte);
        let mut begun = false;
        let mut bytes = 0_usize;
        loop {
            let mut next = body.next_chunk(deadline.min(progress));
            // True if the consumer of the events has had a chance to run since the last piece was
            // decoded.
            let mut has_yielded = false;
            let received = std::future::poll_fn(|context| {
                let polled = next.as_mut().poll(context);
                has_yielded |= polled.is_pending();
                polled
            });
            let chunk = match received.await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                // The wire has marked the end of the response, so it is complete even if the
                // connection stays open or breaks.
                _ if reading.decoder.is_ended() => return Ok(()),
                Err(loss) if loss.kind == TransportErrorKind::Cassette => return Err(loss),
                Err(loss) => {
                    return Err(TransportError {
                        cause: self.describe_loss(&loss, begun, deadline <= progress),
                        ..loss
                    });
                }
            };
            let events = reading.decoder.event_count();
            let ended = reading.decoder.is_ended();
            let now = transport.now();
            bytes = bytes.saturating_add(chunk.len());
            begun = true;
            for piece in chunk.chunks(MAX_PIECE_BYTES) {
                // The consumer of the events may be slow: it runs before the next piece is decoded.
                if !has_yielded {
                    tokio::task::yield_now().await;
                }
                has_yielded = false;
                reading.push(piece);
            }
            // Only events extend the progress deadline; any bytes extend the idle one.
            if reading.decoder.event_count() > events {
                progress = now + self.deadlines.progress;
            }
            if !reading.decoder.is_ended() {
                check_answer_size(reading.output_bytes, bytes)?;
                deadline = now + self.deadlines.idle;
            } else if !ended {
                deadline = now + self.deadlines.linger;
            }
        }
    }

    /// Describes how the rest of a body was lost. `idle` is true if the deadline between two pieces
    /// came first.
    fn describe_loss(&self, loss: &TransportError, begun: bool, idle: bool) -> String {
        let Deadlines {
            first_byte,
            idle: between,
            progress,
            ..
        } = self.deadlines;
        match loss.kind {
            TransportErrorKind::Silent if !begun => format!("sent no byte within {first_byte:?}"),
            TransportErrorKind::Silent if idle => format!("sent nothing for {between:?}"),
            TransportErrorKind::Silent => {
                format!("sent no event for {progress:?}, only signs of life")
            }
            _ => format!("closed the connection too early ({})", loss.cause),
        }
    }

    /// Makes the failure of a request that got no head in time. Local servers may be busy with
    /// another request, so it is retried.
    fn timeout_failure(&self, asked: RequestTarget<'_>) -> AttemptFailure {
        let name = &self.provider.name;
        let limit = self.deadlines.first_byte;
        let message = format!(
            "{name} at {} did not answer within {limit:?}",
            asked.endpoint_address()
        );
        AttemptFailure {
            error: asked.new_error(ModelErrorKind::Unavailable, message),
            retry_after: Some(None),
        }
    }

    /// Makes the failure of an error response, with the wait that its headers ask for.
    async fn status_failure(
        &self,
        response: HttpResponse,
        request: &Request,
        asked: RequestTarget<'_>,
    ) -> AttemptFailure {
        let status = response.status;
        let wish = crate::retry::parse_retry_after(|name| response.header(name));
        request.report.update(|report| report.retry_after = wish);
        let reported = match response.compression() {
            Some(compression) => {
                status_error(status, describe_compressed_answer(&compression).as_bytes())
            }
            None => {
                let body = self.read_error_body(response.body).await;
                let shown = match body.is_cut {
                    true => ClientRedactor::new(&self.provider).redact_cut_end(&body.bytes),
                    false => None,
                };
                status_error(status, shown.as_deref().unwrap_or(&body.bytes))
            }
        };
        asked.report_error(&reported, request);
        let error = asked.status_error(status, &reported);
        // 429 also means an exhausted quota, which the kind of the error shows; waiting does not
        // help then.
        let may_retry = matches!(status, 408 | 429 | 500..) && error.kind.is_transient();
        AttemptFailure {
            error,
            retry_after: may_retry.then_some(wish),
        }
    }

    /// Reads as much of an error's body as arrives in time.
    async fn read_error_body(&self, mut body: Box<dyn ResponseBody>) -> ErrorBody {
        let mut bytes = Vec::new();
        let mut is_cut = true;
        // Each piece has its own deadline; the cap on bytes bounds a body that never ends.
        while bytes.len() < MAX_ERROR_BYTES {
            match body
                .next_chunk(self.transport().now() + self.deadlines.idle)
                .await
            {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                end => {
                    is_cut = end.is_err();
                    break;
                }
            }
        }
        bytes.truncate(MAX_ERROR_BYTES);
        ErrorBody { bytes, is_cut }
    }
}

/// The body of an error response.
struct ErrorBody {
    /// The bytes that were read.
    bytes: Vec<u8>,
    /// True if more may have followed.
    is_cut: bool,
}

/// The state of reading one response.
struct ResponseReader<'a> {
    /// The way of the events to the caller.
    front: ResponsePipeline<'a>,
    /// The decoder of the wire.
    decoder: ResponseDecoder,
    /// The bytes of the model's output so far.
    output_bytes: usize,
}

impl ResponseReader<'_> {
    /// Decodes a piece, and counts the bytes of the output in it.
    fn push(&mut self, chunk: &[u8]) {
        let front = &mut self.front;
        let output_bytes = &mut self.output_bytes;
        self.decoder.push(chunk, &mut |event: Event<'_>| {
            let bytes = match event {
                Event::Text { text } | Event::Thought { text } | Event::ArgDelta { text, .. } => {
                    text.len()
                }
                Event::CallStart { name, .. } | Event::ArgStart { name, .. } => name.len(),
                Event::Opaque(state) => {
                    ChoiceChunk::from_state(state).map_or(0, |choice| choice.output_bytes())
                }
                _ => 0,
            };
            *output_bytes = output_bytes.saturating_add(bytes);
            front.push_event(event);
        });
    }
}

/// Returns an error if an unfinished response is too large, by its output or by its body.
fn check_answer_size(output_bytes: usize, bytes: usize) -> Result<(), TransportError> {
    if output_bytes <= MAX_OUTPUT_BYTES && bytes <= MAX_BODY_BYTES {
        return Ok(());
    }
    let words = match output_bytes > MAX_OUTPUT_BYTES {
        true => format!(
            "sent more than {} MiB of output, the most that is read of an answer; limit the answer's tokens",
            MAX_OUTPUT_BYTES >> 20
        ),
        false => format!(
            "sent more than {} MiB without ending its answer, the most that is read; check that the server ends its lines and events",
            MAX_BODY_BYTES >> 20
        ),
    };
    Err(TransportError::new(TransportErrorKind::Broken, words))
}

/// Returns true if a body without a single readable event is a stream of the wire's kind that ended too early, rather than
/// another server's answer.
fn is_cut_in_first_event(report: &DecodeReport, content_type: &str) -> bool {
    // An event that is whole and unknown is skipped: then it is another API that answers.
    let is_cut = report.skipped == 0 && report.events <= report.unreadable;
    let is_stream = match report.form {
        BodyForm::Stream => {
            let opening = report.opening.trim_start();
            content_type.contains("event-stream")
                || ["data:", "event:", "id:", ":"]
                    .iter()
                    .any(|field| opening.starts_with(field))
        }
        BodyForm::Frames => true,
        BodyForm::Whole | BodyForm::Foreign | BodyForm::Empty => false,
    };
    is_cut && is_stream
}

/// Hashes a request body for the jitter of its retries.
fn hash_body(body: &[u8]) -> u64 {
    body.iter().fold(0, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

/// Makes a failure that sending again cannot repair.
fn permanent_failure(error: ModelError) -> AttemptFailure {
    AttemptFailure {
        error,
        retry_after: None,
    }
}

/// Makes the failure of a request that got no response.
fn connection_failure(asked: RequestTarget<'_>, loss: &TransportError) -> AttemptFailure {
    let address = asked.endpoint_address();
    let cause = &loss.cause;
    let name = &asked.provider.name;
    let (kind, message) = match loss.kind {
        TransportErrorKind::Setup => (
            ModelErrorKind::Rejected,
            format!("{name} cannot be asked: {cause}"),
        ),
        TransportErrorKind::Address => (
            ModelErrorKind::Rejected,
            format!("{address} is not a usable address; check the base URL of {name}: {cause}"),
        ),
        // Not retried: only the user can decide to trust a certificate.
        TransportErrorKind::Certificate => (
            ModelErrorKind::Unreachable,
            format!(
                "the certificate of {address} cannot be trusted: {cause}; the connection was refused"
            ),
        ),
        TransportErrorKind::Cassette => (ModelErrorKind::Cassette, cause.clone()),
        TransportErrorKind::Connect => {
            let advice = match &asked.provider.proxy {
                // The proxy is what cannot be reached, far more often than a server behind it.
                Some(proxy) => format!(
                    "it goes through the proxy {} unless `NO_PROXY` names the host: check that the proxy runs, and the variables \
                     `HTTPS_PROXY` and `ALL_PROXY`",
                    strip_url_secrets(proxy.expose())
                ),
                None => "check that the server runs and that the base URL is right".to_owned(),
            };
            let message = format!("no connection to {address}: {cause}; {advice}");
            return AttemptFailure {
                error: asked.new_error(ModelErrorKind::Unreachable, message),
                retry_after: Some(None),
            };
        }
        TransportErrorKind::Silent | TransportErrorKind::Broken => {
            let message = format!("the connection to {address} was lost before an answer: {cause}");
            return AttemptFailure {
                error: asked.new_error(ModelErrorKind::Unreachable, message),
                retry_after: Some(None),
            };
        }
    };
    permanent_failure(asked.new_error(kind, message))
}
