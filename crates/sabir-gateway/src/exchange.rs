//! Runs one exchange: forwards a client's request to its model, and answers on the client's wire.

mod choices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use sabir_call::{
    DraftResponse, Event, EventSink, ModelError, ProviderReportSlot, ReasoningConfig, Request,
    ResponseFuture as ModelAnswer, ToolProtocol, Usage, render_request,
};
use sabir_wire::model_listing::estimate_tokens;
use sabir_wire::{
    DecodedRequest, RequestError, ResponseEncoder, ResponseMetadata, Wire, parse_request_body,
};
use serde_json::{Value, json};

use crate::call_repair::{CallDelivery, CallRepairer, NextStep, RepairLog};
use crate::error::Refusal;
use crate::exchange_log::ExchangeLog;
use crate::exchange_meter::RequestEnd;
use crate::gateway_event::GatewayEvent;
use crate::key_store::{ModelLimit, Spending};
use crate::request_body;
use crate::response_body::{BodyBuffer, BodyTask, StreamingBody};
use crate::response_store::{ReferenceScope, StoredInput};
use crate::route::{ModelRoute, ProviderWire};
use crate::serve::Gateway;
use crate::upstream_failure::{UpstreamFailure, write_limits};
use crate::web_socket::AnswerOptions;

/// The header with which a client requests a report about repairs, and in which it gets the report.
pub(crate) const REPORT_HEADER: &str = "sabir-report";

/// An exchange that is about to begin.
pub(crate) struct Exchange {
    /// The gateway, for its routes and settings.
    pub(crate) gateway: Gateway,
    /// The client's wire.
    pub(crate) front: Wire,
    /// The log of the exchange.
    pub(crate) ledger: ExchangeLog,
    /// True if the client requested a report about repairs.
    pub(crate) report: bool,
    /// The client's headers that belong to its body.
    pub(crate) beta_headers: Vec<(String, String)>,
    /// The options that only requests on a WebSocket have.
    pub(crate) options: Option<AnswerOptions>,
}

/// A decoded request with its route.
struct ResolvedRequest {
    /// The request in the common form, with the route's model and protocol.
    request: Box<Request>,
    /// The route. A reload does not change it for this request.
    route: Arc<ModelRoute>,
    /// The metadata of the response, with the model's name as the client gave it.
    head: ResponseMetadata,
    /// The input to store with the answer, if the client may refer to it later.
    stored: Option<StoredInput>,
}

/// The tokens that an answer may have if neither the client nor the configuration limits them.
pub(crate) const DEFAULT_OUTPUT_TOKENS: u64 = 4096;

impl Exchange {
    /// Answers a request to this path.
    ///
    /// # Errors
    /// A refusal, as long as no byte of the response was produced. Later errors are events in the
    /// stream.
    pub(crate) async fn answer_request(self, path: &str, body: Bytes) -> Result<Response, Refusal> {
        let (asking, streamed) = self.resolve_request(path, &body)?;
        let output = asking
            .request
            .max_output_tokens
            .or(asking.route.limits.output)
            .unwrap_or(DEFAULT_OUTPUT_TOKENS)
            .saturating_mul(self.front.choice_count(&asking.request).into());
        let input = estimate_tokens(&asking.request);
        if self.generates() {
            reserve_lease(&self.gateway, &self.ledger, &asking.route, input, output).await?;
        } else {
            reserve_stored_input(&self.gateway, &self.ledger, &asking.route, input).await?;
        }
        // The decoded request has a copy of everything; large bodies should not stay in memory
        // while the model answers.
        drop(body);
        self.start_response(asking, streamed).await
    }

    /// Returns false if the client wants an empty answer, which a later request continues.
    fn generates(&self) -> bool {
        self.options.is_none_or(|options| options.generates)
    }

    /// Decodes a request and finds its route. The flag is true if the client wants a stream.
    ///
    /// # Errors
    /// The body cannot be decoded, the model is unknown, or the provider cannot take the request.
    fn resolve_request(
        &self,
        path: &str,
        body: &[u8],
    ) -> Result<(Box<ResolvedRequest>, bool), Refusal> {
        let limits = self.gateway.settings().limits;
        let size = request_body::parsed_size(body, &limits).ok_or_else(|| {
            Refusal::Request(RequestError {
                path: "body".to_owned(),
                message: "it has too many values for its limit".to_owned(),
            })
        })?;
        if !self
            .ledger
            .extend_body_share(self.gateway.body_budget(), size - body.len())
        {
            return Err(Refusal::BodiesFull);
        }
        let mut body = parse_request_body(body).map_err(Refusal::Request)?;
        self.ledger.record_request(&body);
        let stored = self.resolve_references(&mut body)?;
        let routes = self.gateway.routes();
        let in_path = self.front.model_of_path(path);
        let name = body
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // The path outweighs the body, as it does for the provider.
        let name = in_path.as_deref().unwrap_or(name);
        // A provider of the client's own wire gets the client's own body.
        let is_same_wire = routes
            .find_route(name)
            .is_some_and(|route| route.has_only_wire(self.front));
        let mut incoming = if is_same_wire {
            self.front.decode_for_same_wire(path, &body)
        } else {
            self.front.decode_request_value(path, &body)
        }
        .map_err(Refusal::Request)?;
        if let Some(stored) = &stored {
            let echoed = &mut incoming.preferences.echoed_members;
            echoed.insert("store".to_owned(), json!(stored.is_shared()));
            echoed.insert("previous_response_id".to_owned(), json!(stored.previous));
        }
        let keeps_nothing = self.gateway.settings().limits.store == 0;
        if keeps_nothing
            && self.front == Wire::OpenAiResponses
            && body.get("store") == Some(&Value::Bool(true))
        {
            self.ledger
                .report_left_out("store", "no answers are kept here");
        }
        self.ledger.set_model(&incoming.request.model);
        if routes
            .find_route(name)
            .is_some_and(|route| route.accepts_inline_instructions())
        {
            incoming.restore_instruction_positions();
        }
        let route = routes
            .find_route(&incoming.request.model)
            .ok_or_else(|| routes.unknown_model(&incoming.request.model))?;
        // In a prompted protocol the history becomes text, so it must be known.
        if let Some(error) = incoming
            .unread_history
            .take_if(|_| route.protocol != ToolProtocol::Native)
        {
            return Err(Refusal::Request(error));
        }
        let created = self.gateway.now();
        let id = if self.front == Wire::OpenAiResponses {
            self.gateway.responses().secret_id(self.ledger.id())
        } else {
            self.ledger.id().to_owned()
        };
        let head = incoming.response_metadata(id, created);
        let DecodedRequest {
            mut request,
            streamed,
            mut notes,
            rewrite_notes,
            ..
        } = incoming;
        if route.protocol != ToolProtocol::Native {
            notes.extend(rewrite_notes);
        }
        for note in &notes {
            self.ledger.report_left_out(&note.path, &note.message);
        }
        if let Some(client) = &mut request.client_body {
            client.headers.clone_from(&self.beta_headers);
        }
        if self.front.choice_count(&request) > choices::MAX_CHOICES {
            let members = self.front.choice_members();
            let path = members.map_or("n", |members| members.count);
            return Err(Refusal::Request(RequestError {
                path: path.to_owned(),
                message: format!("must be a whole number from 1 to {}", choices::MAX_CHOICES),
            }));
        }
        // Ollama's clients mean no limit by it; every other API refuses it.
        if request.max_output_tokens == Some(0) && self.front != Wire::Ollama {
            return Err(Refusal::Request(RequestError {
                path: output_limit_path(self.front).to_owned(),
                message: "must be at least 1".to_owned(),
            }));
        }
        // From here on the request has the provider's name of the model.
        request.model.clone_from(&route.id);
        request.protocol = route.protocol.clone();
        request.report = ProviderReportSlot::new();
        request.dialects = self.gateway.settings().dialects.clone();
        self.apply_limits(&mut request, &route);
        self.report_prompt(&request);
        self.check_support(&request, &route)?;
        // Boxed, because every future that it is passed through would have room for a kilobyte.
        let resolved = Box::new(ResolvedRequest {
            request: Box::new(request),
            route,
            head,
            stored,
        });
        Ok((resolved, streamed))
    }

    /// Puts stored items in the places of references, on the wire that has them.
    fn resolve_references(&self, body: &mut Value) -> Result<Option<StoredInput>, Refusal> {
        let limits = self.gateway.settings().limits;
        if self.front != Wire::OpenAiResponses || limits.store == 0 {
            return Ok(None);
        }
        let key = self.ledger.key();
        let referrer = ReferenceScope {
            scope: self.options.map(|options| options.scope),
            key: key.as_ref().map(|key| key.id.as_str()),
        };
        let resolved = self
            .gateway
            .responses()
            .resolve_references(body, limits.body, referrer)?;
        // What was put in counts like a body that the client sent whole.
        if !self
            .ledger
            .extend_body_share(self.gateway.body_budget(), resolved.added)
        {
            return Err(Refusal::BodiesFull);
        }
        Ok(resolved.input)
    }

    /// Keeps a complete answer, if the client may refer to it later.
    fn store_response(&self, id: &str, stored: Option<StoredInput>, output: Vec<Value>) {
        if let Some(stored) = stored {
            let limit = self.gateway.settings().limits.store;
            self.gateway
                .responses()
                .store_response(id, stored, output, limit);
        }
    }

    /// Adapts a request to the limits of its model, and reports what was changed.
    fn apply_limits(&self, request: &mut Request, route: &ModelRoute) {
        let limits = &route.limits;
        if let Some(limit) = limits.output
            && request.max_output_tokens > Some(limit)
        {
            request.max_output_tokens = Some(limit);
            let what = format!("lowered to {limit}, the limit of the model");
            self.ledger.report_left_out("max_tokens", &what);
        }
        if limits.never_thinks && request.reasoning != ReasoningConfig::Default {
            request.reasoning = ReasoningConfig::Default;
            if let Some(client) = &mut request.client_body {
                self.front.remove_reasoning(Arc::make_mut(&mut client.body));
            }
            self.ledger
                .report_left_out("reasoning", "left out: the model does not think");
        }
    }

    /// Reports the system prompt if it teaches the tools to the model.
    fn report_prompt(&self, request: &Request) {
        if let ToolProtocol::Prompted(name) = &request.protocol
            && let Some(dialect) = request.dialects.find(name)
        {
            let prompt = render_request(
                &Request {
                    messages: Vec::new().into(),
                    ..request.clone()
                },
                dialect,
            )
            .system;
            // Without tools the prompt is unchanged.
            if prompt != request.system.trim_end() {
                self.ledger.emit_event(GatewayEvent::ToolsInPrompt {
                    dialect: name,
                    prompt: &prompt,
                });
            }
        }
    }

    /// Reports the parts of the request that the provider does not support, or refuses it if they
    /// must not be left out.
    fn check_support(&self, request: &Request, route: &ModelRoute) -> Result<(), Refusal> {
        let is_passed = request.protocol == ToolProtocol::Native
            && request
                .client_body
                .as_ref()
                .is_some_and(|client| client.keeps_history);
        // Any of the upstreams may get it.
        for ProviderWire { wire, form } in &route.provider_wires {
            let notes = if is_passed {
                wire.check_passthrough_body(request, form)
            } else {
                wire.check_support(request, form)
                    .map_err(Refusal::Request)?
            };
            for note in &notes {
                self.ledger.report_left_out(&note.path, &note.message);
            }
        }
        Ok(())
    }

    /// Starts the response, and waits for its first byte or its refusal.
    async fn start_response(
        self,
        asking: Box<ResolvedRequest>,
        streamed: bool,
    ) -> Result<Response, Refusal> {
        let buffer = BodyBuffer::default();
        let front = self.front;
        let now = self.gateway.now();
        let report = asking.request.report.clone();
        let limits = self.gateway.settings().limits;
        let has_choices = front.choice_count(&asking.request) > 1;
        let work: BodyTask = match (has_choices, streamed) {
            _ if !self.generates() => Box::pin(self.write_empty_answer(asking, buffer.clone())),
            (true, true) => Box::pin(self.stream_choices(asking, buffer.clone())),
            (true, false) => Box::pin(self.buffer_choices(asking, buffer.clone())),
            (false, true) => Box::pin(self.stream_answer(asking, buffer.clone())),
            (false, false) => Box::pin(self.buffer_answer(asking, buffer.clone())),
        };
        // The head is sent only now, because an error before the first byte sets its own status.
        let answer = StreamingBody::new(buffer, work).wait_for_start().await?;
        let (kind, ping) = if streamed {
            (front.stream_type(), keep_alive_text(front))
        } else {
            ("application/json", "")
        };
        let mut response = Response::new(Body::new(answer.with_keep_alive(ping, limits.ping)));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        write_limits(&report.report(), front, now, response.headers_mut());
        // Proxies must not hold a stream back to store it.
        if streamed {
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        Ok(response)
    }

    /// Adds what the provider said about a failure.
    fn describe_failure(&self, failure: AnswerFailure, request: &Request) -> Refusal {
        match failure {
            AnswerFailure::Call(error) => Refusal::BrokenCall(error),
            AnswerFailure::Model(error) => Refusal::Upstream(Box::new(UpstreamFailure {
                error,
                report: request.report.report(),
                at: self.gateway.now(),
            })),
        }
    }

    /// Writes a streamed response without output to the buffer. No model is asked.
    async fn write_empty_answer(self, asking: Box<ResolvedRequest>, buffer: BodyBuffer) {
        let ResolvedRequest { head, stored, .. } = *asking;
        let id = head.id.clone();
        let mut encoder = ResponseEncoder::new(self.front, head);
        buffer.write_with(|out| {
            // Clients add up what their answers used.
            let usage = Usage {
                input: Some(0),
                output: Some(0),
                ..Usage::default()
            };
            encoder.encode_event(Event::Usage(usage), out);
            let output = encoder.finish(out);
            self.store_response(&id, stored, output);
        });
        self.ledger.count_stored_input();
        self.ledger.mark_done();
    }

    /// Writes a streamed response to the buffer.
    async fn stream_answer(self, asking: Box<ResolvedRequest>, buffer: BodyBuffer) {
        let ResolvedRequest {
            request,
            route,
            head,
            stored,
        } = *asking;
        let id = head.id.clone();
        let encoder = ResponseEncoder::new(self.front, head);
        let mut written = StreamingSink {
            encoder,
            buffer: buffer.clone(),
            ledger: self.ledger.clone(),
            begun: None,
        };
        let report_event = |note: GatewayEvent<'_>| self.ledger.emit_event(note);
        // Wires of JSON lines (Ollama) send each call in one line, so sending its parts early gains
        // nothing.
        let delivery = if self.front.stream_type() == "text/event-stream" {
            CallDelivery::InPieces
        } else {
            CallDelivery::Whole
        };
        let (result, report) = run_with_repairs(
            &request,
            &route,
            delivery,
            RepairLog::new(&report_event),
            &self.ledger,
            &mut written,
        )
        .await;
        self.ledger.set_upstream(request.report.report().upstream);
        let report = self.ledger.complete_report(report);
        // Before the first byte, an error can still set the status and the headers; afterwards it
        // is an event.
        let failure = result
            .err()
            .map(|failure| self.describe_failure(failure, &request));
        let StreamingSink {
            mut encoder, begun, ..
        } = written;
        if self.report && (begun.is_some() || failure.is_none()) {
            buffer.write_with(|out| encoder.encode_comment(REPORT_HEADER, &report, out));
        } else if self.report {
            self.ledger.set_report(report);
        }
        match failure {
            Some(refusal) if begun.is_none() => buffer.set_refusal(refusal),
            Some(refusal) => {
                self.ledger.set_error(&refusal);
                buffer.write_with(|out| {
                    encoder.encode_error_event(&refusal.to_provider_error(), out)
                });
            }
            None => {
                let took = self.ledger.elapsed();
                encoder.set_durations(
                    took,
                    begun.map_or(Duration::ZERO, |begun| took.saturating_sub(begun)),
                );
                buffer.write_with(|out| {
                    let output = encoder.finish(out);
                    self.store_response(&id, stored, output);
                });
                self.ledger.mark_done();
            }
        }
    }

    /// Writes a whole response to the buffer, once the model has ended.
    async fn buffer_answer(self, asking: Box<ResolvedRequest>, buffer: BodyBuffer) {
        let ResolvedRequest {
            request,
            route,
            mut head,
            stored,
        } = *asking;
        let mut drafted = BufferingSink {
            draft: DraftResponse::default(),
            ledger: self.ledger.clone(),
            begun: None,
        };
        let report_event = |note: GatewayEvent<'_>| self.ledger.emit_event(note);
        let (result, report) = run_with_repairs(
            &request,
            &route,
            CallDelivery::Whole,
            RepairLog::new(&report_event),
            &self.ledger,
            &mut drafted,
        )
        .await;
        self.ledger.set_upstream(request.report.report().upstream);
        if self.report {
            self.ledger.set_report(self.ledger.complete_report(report));
        }
        if let Err(failure) = result {
            return buffer.set_refusal(self.describe_failure(failure, &request));
        }
        head.total_duration = self.ledger.elapsed();
        head.generation_duration = drafted.begun.map_or(Duration::ZERO, |begun| {
            head.total_duration.saturating_sub(begun)
        });
        let answer = self.front.encode_response(&head, &drafted.draft);
        if let Some(output) = answer.get("output").and_then(Value::as_array) {
            self.store_response(&head.id, stored, output.clone());
        }
        let body = answer.to_string();
        buffer.write_with(|out| out.extend_from_slice(body.as_bytes()));
        self.ledger.mark_done();
    }
}

/// Returns the member of a request that limits its output.
fn output_limit_path(front: Wire) -> &'static str {
    match front {
        Wire::OpenAiResponses => "max_output_tokens",
        Wire::Gemini => "generationConfig.maxOutputTokens",
        _ => "max_tokens",
    }
}

/// Reserves what a request may use, if its client has a key.
///
/// # Errors
/// A limit of the key is reached, or the store of keys fails.
pub(crate) async fn reserve_lease(
    gateway: &Gateway,
    ledger: &ExchangeLog,
    route: &Arc<ModelRoute>,
    input: u64,
    output: u64,
) -> Result<(), Refusal> {
    ledger.set_route(route, input);
    let (Some(_), Some(key)) = (gateway.keys(), ledger.key()) else {
        return Ok(());
    };
    let cost = route.highest_cost(Usage {
        input: Some(input),
        output: Some(output),
        ..Usage::default()
    });
    let has_budget = |limit: &ModelLimit| {
        limit.nano_usd_per_day.is_some()
            && limit
                .model
                .as_ref()
                .is_none_or(|model| *model == route.name)
    };
    if cost.is_none() && key.limits.iter().any(has_budget) {
        return Err(Refusal::UnknownPrice(route.name.clone()));
    }
    let most = Spending {
        tokens: input.saturating_add(output),
        nano_usd: cost.unwrap_or(0),
    }
    .clamped();
    hold_lease(gateway, ledger, route, most).await
}

/// Reserves a request that costs nothing here. Limits of requests hold, and no price need be known.
///
/// # Errors
/// The key has reached a limit.
pub(crate) async fn reserve_free_lease(
    gateway: &Gateway,
    ledger: &ExchangeLog,
    route: &Arc<ModelRoute>,
) -> Result<(), Refusal> {
    ledger.set_route(route, 0);
    hold_lease(gateway, ledger, route, Spending::default()).await
}

/// Reserves a request whose input is only stored, so that later requests can continue it. It costs no money, but its tokens count, since it
/// takes memory.
///
/// # Errors
/// The key has reached a limit.
async fn reserve_stored_input(
    gateway: &Gateway,
    ledger: &ExchangeLog,
    route: &Arc<ModelRoute>,
    input: u64,
) -> Result<(), Refusal> {
    ledger.set_route(route, input);
    let most = Spending {
        tokens: input,
        ..Spending::default()
    };
    hold_lease(gateway, ledger, route, most.clamped()).await
}

/// Reserves the most that a request may spend, if its client has a key.
///
/// # Errors
/// A limit of the key is reached, or the store of keys fails.
async fn hold_lease(
    gateway: &Gateway,
    ledger: &ExchangeLog,
    route: &Arc<ModelRoute>,
    most: Spending,
) -> Result<(), Refusal> {
    if let (Some(keys), Some(key)) = (gateway.keys(), ledger.key()) {
        let lease = keys.reserve(&key, &route.name, ledger.id(), most).await?;
        ledger.hold_lease(lease);
    }
    Ok(())
}

/// The reason why an answer cannot be completed.
enum AnswerFailure {
    /// The model failed.
    Model(ModelError),
    /// A call of the answer cannot be used.
    Call(ModelError),
}

/// Sends the request, repairs the response, and repeats that as often as the route's repair mode
/// allows. Returns the result and the report about repairs.
async fn run_with_repairs<S: EventSink + Send>(
    request: &Request,
    route: &ModelRoute,
    taken: CallDelivery,
    log: RepairLog<'_>,
    ledger: &ExchangeLog,
    out: &mut S,
) -> (Result<(), AnswerFailure>, String) {
    let mut repairer = CallRepairer::new(
        request,
        route.repair_mode,
        taken,
        log,
        |event: Event<'_>| out.push_event(event),
    );
    // The request that asks again.
    let mut repeated: Option<Box<Request>> = None;
    let result = loop {
        let asked = repeated.as_deref().unwrap_or(request);
        // Set as soon as nothing more of the response is wanted.
        let over = repairer.stop_flag();
        ledger.begin_request(&asked.report);
        let mut metered = MeteringSink {
            ledger,
            sink: &mut repairer,
        };
        let result = read_answer(route.model.stream_response(asked, &mut metered), &over).await;
        ledger.end_request(match &result {
            Ok(()) if over.load(Ordering::Relaxed) => RequestEnd::Abandoned,
            Ok(()) => RequestEnd::Complete,
            Err(_) => RequestEnd::Failed,
        });
        match repairer.finish_attempt(asked, result) {
            NextStep::Done => break Ok(()),
            NextStep::ModelFailed(error) => break Err(AnswerFailure::Model(error)),
            NextStep::CallFailed(error) => break Err(AnswerFailure::Call(error)),
            NextStep::Ask(next) => repeated = Some(next),
        }
    };
    let report = repairer.render_report();
    if result.is_ok()
        && let Some(usage) = ledger.missing_usage()
    {
        out.push_event(Event::Usage(usage));
    }
    (result, report)
}

/// A sink that meters a model's events before they are repaired.
struct MeteringSink<'a, S> {
    /// The log with the meter.
    ledger: &'a ExchangeLog,
    /// The sink that gets the events.
    sink: &'a mut S,
}

impl<S: EventSink> EventSink for MeteringSink<'_, S> {
    fn push_event(&mut self, event: Event<'_>) {
        self.ledger.meter_event(&event);
        self.sink.push_event(event);
    }
}

/// Reads a response up to its end, or to the point where `over` says that the rest is not wanted.
async fn read_answer(mut answer: ModelAnswer<'_>, over: &AtomicBool) -> Result<(), ModelError> {
    std::future::poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        // Checked after polling, since polling may set the flag.
        if over.load(Ordering::Relaxed) {
            Poll::Ready(Ok(()))
        } else {
            polled
        }
    })
    .await
}

/// A sink that encodes events as a stream.
struct StreamingSink {
    /// The encoder of the client's wire.
    encoder: ResponseEncoder,
    /// The bytes for the client.
    buffer: BodyBuffer,
    /// The log, which counts the calls.
    ledger: ExchangeLog,
    /// The time of the first byte, from the start of the exchange.
    begun: Option<Duration>,
}

impl EventSink for StreamingSink {
    fn push_event(&mut self, event: Event<'_>) {
        let Self {
            encoder,
            buffer,
            ledger,
            begun,
        } = self;
        ledger.count_event(&event);
        buffer.write_with(|out| {
            let before = out.len();
            encoder.encode_event(event, out);
            if begun.is_none() && out.len() > before {
                let time = ledger.elapsed();
                ledger.set_first_output(time);
                *begun = Some(time);
            }
        });
    }
}

/// A sink that collects the whole response.
struct BufferingSink {
    /// The response so far.
    draft: DraftResponse,
    /// The log, which counts the calls.
    ledger: ExchangeLog,
    /// The time of the first output, from the start of the exchange.
    begun: Option<Duration>,
}

impl EventSink for BufferingSink {
    fn push_event(&mut self, event: Event<'_>) {
        self.ledger.count_event(&event);
        // Usage and opaque state are not output yet.
        let says = matches!(
            event,
            Event::Text { .. } | Event::Thought { .. } | Event::CallStart { .. }
        );
        if says && self.begun.is_none() {
            let time = self.ledger.elapsed();
            self.ledger.set_first_output(time);
            self.begun = Some(time);
        }
        self.draft.push_event(event);
    }
}

/// Returns a keep-alive text that clients of that wire ignore; empty for wires of JSON lines, which
/// have none.
fn keep_alive_text(front: Wire) -> &'static str {
    match front.stream_type() {
        // Anthropic's clients know this event; those of other wires skip comments.
        "text/event-stream" if front == Wire::Anthropic => {
            "event: ping\ndata: {\"type\": \"ping\"}\n\n"
        }
        "text/event-stream" => ": ping\n\n",
        _ => "",
    }
}
