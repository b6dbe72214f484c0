//! Collects the facts about an exchange, and reports its end exactly once.
//!
//! An exchange may be answered, refused, broken off in the middle, or abandoned by its client,
//! which drops all its futures. In every case the last clone of the log is dropped, so that is
//! where the end is reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::{Event, ProviderReportSlot, Usage};
use sabir_wire::Wire;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::exchange_meter::{ExchangeMeter, RequestEnd};
use crate::exchange_record::RecordDraft;
use crate::gateway_event::{ExchangeSummary, GatewayEvent};
use crate::key_ledger::KeyLease;
use crate::key_store::ClientKey;
use crate::request_body::{BodyBudget, BodyShare};
use crate::route::ModelRoute;
use crate::serve::Gateway;

/// The most parts of a request that a client's report names.
const MAX_LEFT_OUT: usize = 32;

/// The most characters of such a part's name.
const MAX_LEFT_OUT_CHARS: usize = 60;

/// The log of one exchange. Clones share it.
#[derive(Clone)]
pub(crate) struct ExchangeLog(Arc<ExchangeState>);

/// The state that all clones of a log share.
struct ExchangeState {
    /// The gateway, for its observer and metrics.
    gateway: Gateway,
    /// The id of the exchange.
    id: String,
    /// The client's wire; `None` for a request that is for none.
    front: Option<Wire>,
    /// The start of the exchange.
    start: Instant,
    /// The facts so far.
    entries: Mutex<ExchangeStats>,
}

/// The facts about an exchange. Nothing of the conversation is among them.
#[derive(Default)]
struct ExchangeStats {
    /// The model's name as the client gave it, cut to 100 characters.
    model: String,
    /// The HTTP status of the response; 0 before its head.
    status: u16,
    /// The time of the first byte that the client took.
    first: Option<Instant>,
    /// The bytes of the body that the client took.
    bytes: u64,
    /// The number of calls that were sent.
    calls: u32,
    /// The key of the client.
    key: Option<ClientKey>,
    /// The lease of the request.
    lease: Option<KeyLease>,
    /// The meter of the requests to the model.
    meter: ExchangeMeter,
    /// The report of the requests to the model, which names the upstream.
    report_slot: ProviderReportSlot,
    /// The upstream that answered.
    upstream: Option<String>,
    /// The client's `traceparent` header.
    trace_parent: Option<String>,
    /// The time of the model's first output, from the start.
    first_output: Option<Duration>,
    /// The short name of the gateway's reason for a refusal.
    refusal: Option<&'static str>,
    /// The recorded exchange; `None` if exchanges are not recorded or no model was asked.
    record: Option<Box<RecordDraft>>,
    /// The error, without secrets.
    error: Option<String>,
    /// The report about repairs, for a header.
    report: Option<String>,
    /// The parts of the request that were left out, with their numbers.
    left_out: BTreeMap<String, u32>,
    /// The slot among the concurrent responses.
    slot: Option<OwnedSemaphorePermit>,
    /// The share of the body in the memory for bodies.
    body_share: Option<BodyShare>,
    /// True if the response was produced to its proper end.
    done: bool,
    /// True if the client read all of it.
    taken: bool,
}

impl ExchangeLog {
    /// Begins the log of a request. The metrics count it as open until the log is dropped.
    pub(crate) fn new(gateway: &Gateway, id: String, front: Option<Wire>) -> Self {
        gateway.metrics().request_opened();
        Self(Arc::new(ExchangeState {
            gateway: gateway.clone(),
            id,
            front,
            start: Instant::now(),
            entries: Mutex::default(),
        }))
    }

    /// Locks the facts. No lock is held while the observer is called.
    fn lock_stats(&self) -> MutexGuard<'_, ExchangeStats> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of the exchange, which its responses carry.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    /// Passes an event to the observer and the metrics, at once.
    pub(crate) fn emit_event(&self, note: GatewayEvent<'_>) {
        let model = {
            let mut stats = self.lock_stats();
            if let Some(record) = &mut stats.record {
                record.note_event(&note);
            }
            stats.model.clone()
        };
        self.0.gateway.emit_event(&self.0.id, &model, note);
    }

    /// Begins to record the exchange, if the gateway records.
    pub(crate) fn record_request(&self, request: &Value) {
        if self.0.gateway.recorder().is_some() {
            let draft = RecordDraft::new(request.clone());
            self.lock_stats().record = Some(Box::new(draft));
        }
    }

    /// Sets the key of the client.
    pub(crate) fn set_key(&self, key: ClientKey) {
        self.lock_stats().key = Some(key);
    }

    /// Returns the key of the client.
    pub(crate) fn key(&self) -> Option<ClientKey> {
        self.lock_stats().key.clone()
    }

    /// Sets the route of the request, and the estimate of its input in tokens.
    pub(crate) fn set_route(&self, route: &Arc<ModelRoute>, estimated_input: u64) {
        self.lock_stats().meter.set_route(route, estimated_input);
    }

    /// Holds the lease until the exchange is over.
    pub(crate) fn hold_lease(&self, lease: KeyLease) {
        self.lock_stats().lease = Some(lease);
    }

    /// Sets the client's `traceparent` header.
    pub(crate) fn set_trace_parent(&self, header: &str) {
        // A valid one of the present version has 55 characters.
        let header = header.chars().take(100).collect();
        self.lock_stats().trace_parent = Some(header);
    }

    /// Sets the upstream that answers.
    pub(crate) fn set_upstream(&self, upstream: Option<String>) {
        self.lock_stats().upstream = upstream;
    }

    /// Sets the time of the model's first output.
    pub(crate) fn set_first_output(&self, time: Duration) {
        self.lock_stats().first_output.get_or_insert(time);
    }

    /// Sets the gateway's reason for a refusal.
    pub(crate) fn set_refusal(&self, reason: &'static str) {
        self.lock_stats().refusal = Some(reason);
    }

    /// Reports a part of the request that was left out, to the observer and in the client's report.
    pub(crate) fn report_left_out(&self, path: &str, what: &str) {
        let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "._[]-".contains(sign);
        let name: String = path
            .chars()
            .take(MAX_LEFT_OUT_CHARS)
            .map(|sign| if is_plain(sign) { sign } else { '?' })
            .collect();
        {
            let mut entries = self.lock_stats();
            if entries.left_out.len() < MAX_LEFT_OUT || entries.left_out.contains_key(&name) {
                *entries.left_out.entry(name).or_default() += 1;
            }
        }
        self.emit_event(GatewayEvent::LeftOut { path, what });
    }

    /// Adds what was left out of the request to a report about repairs.
    pub(crate) fn complete_report(&self, repairs: String) -> String {
        let entries = self.lock_stats();
        let left_out = entries
            .left_out
            .iter()
            .map(|(name, count)| format!("left_out:{name}={count}"));
        let repairs =
            Some(repairs).filter(|repairs| repairs != "none" || entries.left_out.is_empty());
        repairs
            .into_iter()
            .chain(left_out)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Sets the model's name as given by the client, shortened.
    pub(crate) fn set_model(&self, model: &str) {
        // A client may send a name of any length, and it ends up in logs.
        self.lock_stats().model = model.chars().take(100).collect();
    }

    /// Counts an event that is sent to the client.
    pub(crate) fn count_event(&self, event: &Event<'_>) {
        if self.0.gateway.recorder().is_some()
            && let Some(record) = &mut self.lock_stats().record
        {
            record.push_event(event);
        }
        if let Event::CallStart { .. } = event {
            self.lock_stats().calls += 1;
        }
    }

    /// Begins to meter a request to the model that is being sent. `report` names its upstream.
    pub(crate) fn begin_request(&self, report: &ProviderReportSlot) {
        let mut stats = self.lock_stats();
        stats.report_slot = report.clone();
        stats.meter.begin_request(report);
    }

    /// Meters an event of the model's answer.
    pub(crate) fn meter_event(&self, event: &Event<'_>) {
        self.lock_stats().meter.push_event(event);
    }

    /// Meters the tokens of an answer that is not one of a chat model.
    pub(crate) fn meter_usage(&self, usage: Usage) {
        self.lock_stats().meter.push_usage(usage);
    }

    /// Ends the request to the model.
    pub(crate) fn end_request(&self, end: RequestEnd) {
        self.lock_stats().meter.end_request(end);
    }

    /// Returns the estimate of the tokens, if no provider reported any.
    pub(crate) fn missing_usage(&self) -> Option<Usage> {
        let total = self.lock_stats().meter.total();
        Some(total.counted).filter(|_| total.reported == Usage::default())
    }

    /// Counts the estimated tokens of the input, which was only kept.
    pub(crate) fn count_stored_input(&self) {
        self.lock_stats().meter.count_stored_input();
    }

    /// Sets the reason why the response does not end properly.
    pub(crate) fn set_error(&self, error: &impl ToString) {
        self.lock_stats().error = Some(error.to_string());
    }

    /// Returns the time since the start of the exchange.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Sets the report about repairs of a response whose headers were not sent yet.
    pub(crate) fn set_report(&self, report: String) {
        self.lock_stats().report = Some(report);
    }

    /// Takes the report out, for the response's header.
    pub(crate) fn take_report(&self) -> Option<String> {
        self.lock_stats().report.take()
    }

    /// Holds a slot until the exchange is over.
    pub(crate) fn hold_slot(&self, permit: OwnedSemaphorePermit) {
        self.lock_stats().slot = Some(permit);
    }

    /// Holds the body's share of the memory budget until the exchange is over, because the decoded request lives as long.
    pub(crate) fn hold_body_share(&self, share: BodyShare) {
        self.lock_stats().body_share = Some(share);
    }

    /// Grows the share of the body by so many bytes. Returns false if there is not so much left.
    pub(crate) fn extend_body_share(&self, budget: &BodyBudget, bytes: usize) -> bool {
        let mut stats = self.lock_stats();
        budget.grow_share_by(stats.body_share.get_or_insert_default(), bytes)
    }

    /// Marks the response as complete.
    pub(crate) fn mark_done(&self) {
        self.lock_stats().done = true;
    }

    /// Sets the HTTP status of the response.
    pub(crate) fn set_status(&self, status: u16) {
        self.lock_stats().status = status;
    }

    /// Adds bytes that were sent to the client.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        let mut entries = self.lock_stats();
        entries.first.get_or_insert_with(Instant::now);
        entries.bytes = entries.bytes.saturating_add(bytes as u64);
    }

    /// Marks the response as read to its end by the client.
    pub(crate) fn mark_read(&self) {
        self.lock_stats().taken = true;
    }
}

impl Drop for ExchangeState {
    fn drop(&mut self) {
        // Dropping the facts releases the slot among the concurrent responses as well.
        let mut entries = std::mem::take(
            self.entries
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        // The client left before the end of a request that is still open.
        entries.meter.end_request(RequestEnd::Abandoned);
        let used = entries.meter.total();
        let asked = entries.report_slot.report().upstream;
        let record = entries.record.take();
        if let Some(lease) = &mut entries.lease {
            lease.used = used.spending();
        }
        let ended = ExchangeSummary {
            front: self.front,
            key: entries.key.as_ref().map(|key| key.name.as_str()),
            upstream: entries.upstream.as_deref().or(asked.as_deref()),
            first_output: entries.first_output,
            asks_model: entries.meter.has_route(),
            nano_usd: used.nano_usd,
            refusal: entries.refusal,
            model: &entries.model,
            status: entries.status,
            whole: entries.done && entries.taken,
            took: self.start.elapsed(),
            first: entries.first.map(|first| first.duration_since(self.start)),
            bytes: entries.bytes,
            calls: entries.calls,
            usage: used.reported,
            counted: used.counted,
            error: entries.error.as_deref(),
            trace_parent: entries.trace_parent.as_deref(),
        };
        self.gateway
            .emit_event(&self.id, ended.model, GatewayEvent::Ended(&ended));
        if let (Some(record), Some(recorder)) = (record, self.gateway.recorder()) {
            let time = self.gateway.now();
            recorder.record_exchange(record.finish(&self.id, time, &ended));
        }
    }
}
