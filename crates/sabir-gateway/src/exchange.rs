//! One exchange: a client's request, asked of the model that it names, and its answer on the client's wire.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use sabir_call::{
    DraftResponse, Event, EventSink, ModelError, Request, ResponseFuture as ModelAnswer, ToolProtocol, render_request,
};
use sabir_wire::{DecodedRequest, ResponseEncoder, ResponseMetadata, Wire};

use crate::call_repair::{CallDelivery, CallRepairer, NextStep, RepairLog};
use crate::error::Refusal;
use crate::exchange_log::ExchangeLog;
use crate::gateway_event::GatewayEvent;
use crate::response_body::{BodyBuffer, BodyTask, StreamingBody};
use crate::route::{ModelRoute, ProviderWire};
use crate::serve::Gateway;

/// The header with which a client asks for a report of what was done about its answer, and in which it gets one.
pub(crate) const REPORT_HEADER: &str = "sabir-report";

/// What is known of an exchange from its start.
pub(crate) struct Exchange {
    pub(crate) gateway: Gateway,
    pub(crate) front: Wire,
    pub(crate) ledger: ExchangeLog,
    /// Whether the client wants to be told what was done about the answer.
    pub(crate) report: bool,
}

/// A request that was understood, and who is to answer it.
struct ResolvedRequest {
    request: Request,
    route: Arc<ModelRoute>,
    head: ResponseMetadata,
}

impl Exchange {
    /// Answers a request that came to this path.
    pub(crate) async fn answer_request(self, path: &str, body: Bytes) -> Result<Response, Refusal> {
        let (asking, streamed) = self.resolve_request(path, &body)?;
        drop(body);
        self.start_response(asking, streamed).await
    }

    fn resolve_request(&self, path: &str, body: &[u8]) -> Result<(ResolvedRequest, bool), Refusal> {
        let incoming = self.front.decode_request(path, body).map_err(Refusal::Request)?;
        self.ledger.set_model(&incoming.request.model);
        let routes = self.gateway.routes();
        let route =
            routes.find_route(&incoming.request.model).ok_or_else(|| routes.unknown_model(&incoming.request.model))?;
        let created = (self.gateway.settings().clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let head = incoming.response_metadata(self.ledger.id(), created);
        let DecodedRequest { mut request, streamed, notes, .. } = incoming;
        for note in &notes {
            self.ledger.emit_event(GatewayEvent::LeftOut { path: &note.path, what: &note.message });
        }
        request.model.clone_from(&route.id);
        request.protocol = route.protocol.clone();
        request.dialects = self.gateway.settings().dialects.clone();
        self.report_prompt(&request);
        self.check_support(&request, &route)?;
        Ok((ResolvedRequest { request, route, head }, streamed))
    }

    fn report_prompt(&self, request: &Request) {
        if let ToolProtocol::Prompted(name) = &request.protocol
            && let Some(dialect) = request.dialects.find(name)
        {
            let prompt = render_request(&Request { messages: Vec::new().into(), ..request.clone() }, dialect).system;
            // Without tools there is nothing to teach.
            if prompt != request.system.trim_end() {
                self.ledger.emit_event(GatewayEvent::ToolsInPrompt { dialect: name, prompt: &prompt });
            }
        }
    }

    /// Tells what the provider has no words for, or refuses what may not be left out.
    fn check_support(&self, request: &Request, route: &ModelRoute) -> Result<(), Refusal> {
        let Some(ProviderWire { wire, form }) = &route.provider_wire else { return Ok(()) };
        let rendered = match &request.protocol {
            ToolProtocol::Prompted(name) => request.dialects.find(name).map(|dialect| render_request(request, dialect)),
            ToolProtocol::Native => None,
        };
        let notes = wire.check_support(rendered.as_ref().unwrap_or(request), form).map_err(Refusal::Request)?;
        for note in &notes {
            self.ledger.emit_event(GatewayEvent::LeftOut { path: &note.path, what: &note.message });
        }
        Ok(())
    }

    async fn start_response(self, asking: ResolvedRequest, streamed: bool) -> Result<Response, Refusal> {
        let page = BodyBuffer::default();
        let (front, limits) = (self.front, self.gateway.settings().limits);
        let work: BodyTask = if streamed {
            Box::pin(self.stream_answer(asking, page.clone()))
        } else {
            Box::pin(self.buffer_answer(asking, page.clone()))
        };
        let answer = StreamingBody::new(page, work).wait_for_start().await?;
        let (kind, ping) =
            if streamed { (front.stream_type(), keep_alive_text(front)) } else { ("application/json", "") };
        let mut response = Response::new(Body::new(answer.with_keep_alive(ping, limits.ping)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if streamed {
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        Ok(response)
    }

    async fn stream_answer(self, asking: ResolvedRequest, page: BodyBuffer) {
        let ResolvedRequest { request, route, head } = asking;
        let encoder = ResponseEncoder::new(self.front, head);
        let mut written = StreamingSink { encoder, page: page.clone(), ledger: self.ledger.clone(), begun: None };
        let tell = |note: GatewayEvent<'_>| self.ledger.emit_event(note);
        // A line of JSON holds a call, whether more lines follow or not.
        let taken =
            if self.front.stream_type() == "text/event-stream" { CallDelivery::InPieces } else { CallDelivery::Whole };
        let (result, report) = run_with_repairs(&request, &route, taken, RepairLog::new(&tell), &mut written).await;
        let failure = result.err().map(Refusal::Failed);
        let StreamingSink { mut encoder, begun, .. } = written;
        if self.report && (begun.is_some() || failure.is_none()) {
            page.write_with(|out| encoder.encode_comment(REPORT_HEADER, &report, out));
        } else if self.report {
            self.ledger.set_report(report);
        }
        match failure {
            Some(refusal) if begun.is_none() => page.set_refusal(refusal),
            Some(refusal) => {
                self.ledger.set_error(&refusal);
                page.write_with(|out| encoder.encode_error_event(&refusal.to_provider_error(), out));
            }
            None => {
                let took = self.ledger.elapsed();
                encoder.set_durations(took, begun.map_or(Duration::ZERO, |begun| took.saturating_sub(begun)));
                page.write_with(|out| encoder.finish(out));
                self.ledger.mark_done();
            }
        }
    }

    async fn buffer_answer(self, asking: ResolvedRequest, page: BodyBuffer) {
        let ResolvedRequest { request, route, mut head } = asking;
        let mut drafted = BufferingSink { draft: DraftResponse::default(), ledger: self.ledger.clone(), begun: None };
        let tell = |note: GatewayEvent<'_>| self.ledger.emit_event(note);
        let (result, report) =
            run_with_repairs(&request, &route, CallDelivery::Whole, RepairLog::new(&tell), &mut drafted).await;
        if self.report {
            self.ledger.set_report(report);
        }
        if let Err(error) = result {
            return page.set_refusal(Refusal::Failed(error));
        }
        head.total_duration = self.ledger.elapsed();
        head.generation_duration =
            drafted.begun.map_or(Duration::ZERO, |begun| head.total_duration.saturating_sub(begun));
        let body = self.front.encode_response(&head, &drafted.draft).to_string();
        page.write_with(|out| out.extend_from_slice(body.as_bytes()));
        self.ledger.mark_done();
    }
}

/// Asks, as often as the route's mending says, and mends what comes. Gives back what was done, for the client's report.
async fn run_with_repairs<S: EventSink + Send>(
    request: &Request,
    route: &ModelRoute,
    taken: CallDelivery,
    diary: RepairLog<'_>,
    out: &mut S,
) -> (Result<(), ModelError>, String) {
    let mut mender =
        CallRepairer::new(request, route.repair_mode, taken, diary, |event: Event<'_>| out.push_event(event));
    let mut asked = Cow::Borrowed(request);
    let result = loop {
        let over = mender.stop_flag();
        let result = read_answer(route.model.stream_response(&asked, &mut mender), &over).await;
        match mender.finish_attempt(&asked, result) {
            NextStep::Done => break Ok(()),
            NextStep::Failed(error) => break Err(error),
            NextStep::Ask(next) => asked = Cow::Owned(*next),
        }
    };
    (result, mender.render_report())
}

/// Takes an answer, up to where nothing more of it is wanted: the rest is not waited for.
async fn read_answer(mut answer: ModelAnswer<'_>, over: &AtomicBool) -> Result<(), ModelError> {
    std::future::poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        if over.load(Ordering::Relaxed) { Poll::Ready(Ok(())) } else { polled }
    })
    .await
}

/// A sink that writes a stream.
struct StreamingSink {
    encoder: ResponseEncoder,
    page: BodyBuffer,
    ledger: ExchangeLog,
    /// When the first of it was written, from the start of the exchange.
    begun: Option<Duration>,
}

impl EventSink for StreamingSink {
    fn push_event(&mut self, event: Event<'_>) {
        let Self { encoder, page, ledger, begun } = self;
        ledger.count_event(&event);
        page.write_with(|out| {
            let before = out.len();
            encoder.encode_event(event, out);
            if begun.is_none() && out.len() > before {
                *begun = Some(ledger.elapsed());
            }
        });
    }
}

/// A sink that keeps everything until the end.
struct BufferingSink {
    draft: DraftResponse,
    ledger: ExchangeLog,
    /// When the first of it came, from the start of the exchange.
    begun: Option<Duration>,
}

impl EventSink for BufferingSink {
    fn push_event(&mut self, event: Event<'_>) {
        self.ledger.count_event(&event);
        let says = matches!(event, Event::Text { .. } | Event::Thought { .. } | Event::CallStart { .. });
        if says && self.begun.is_none() {
            self.begun = Some(self.ledger.elapsed());
        }
        self.draft.push_event(event);
    }
}

/// A sign of life that clients of that wire skip; lines of JSON have none.
fn keep_alive_text(front: Wire) -> &'static str {
    match front.stream_type() {
        "text/event-stream" if front == Wire::Anthropic => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "text/event-stream" => ": ping\n\n",
        _ => "",
    }
}
