//! What is known of an exchange while it goes on. Its end is told once, when nobody works on it any more.
//!
//! An exchange may end in many ways: answered, refused, given up in the middle, or left by its client, which drops whatever is
//! being done. All of them end in the last hold on the ledger being dropped, so that is where the end is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::{Event, Usage};
use sabir_wire::Wire;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::gateway_event::{ExchangeSummary, GatewayEvent};
use crate::serve::Gateway;

/// The book of one exchange. Clones are the same book.
#[derive(Clone)]
pub(crate) struct ExchangeLog(Arc<ExchangeState>);

struct ExchangeState {
    gateway: Gateway,
    id: String,
    front: Option<Wire>,
    start: Instant,
    entries: Mutex<ExchangeStats>,
}

#[derive(Default)]
struct ExchangeStats {
    model: String,
    status: u16,
    first: Option<Instant>,
    bytes: u64,
    calls: u32,
    usage: Usage,
    error: Option<String>,
    /// What was done about the answer, for a header.
    report: Option<String>,
    /// A place among the answers that are made at once.
    slot: Option<OwnedSemaphorePermit>,
    /// Whether the work came to its proper end, and whether the client took all of it.
    done: bool,
    taken: bool,
}

impl ExchangeLog {
    pub(crate) fn new(gateway: &Gateway, id: String, front: Option<Wire>) -> Self {
        let (gateway, start, entries) = (gateway.clone(), Instant::now(), Mutex::default());
        gateway.metrics().request_opened();
        Self(Arc::new(ExchangeState { gateway, id, front, start, entries }))
    }

    fn lock_stats(&self) -> MutexGuard<'_, ExchangeStats> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id that answers are given.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    /// Tells whoever watches, at once.
    pub(crate) fn emit_event(&self, note: GatewayEvent<'_>) {
        self.0.gateway.emit_event(&self.0.id, note);
    }

    /// The client named this model.
    pub(crate) fn set_model(&self, model: &str) {
        self.lock_stats().model = model.chars().take(100).collect();
    }

    /// Something that the client gets.
    pub(crate) fn count_event(&self, event: &Event<'_>) {
        match event {
            Event::CallStart { .. } => self.lock_stats().calls += 1,
            Event::Usage(usage) => self.lock_stats().usage.update(*usage),
            _ => {}
        }
    }

    /// Why the answer does not come to its proper end.
    pub(crate) fn set_error(&self, error: &impl ToString) {
        self.lock_stats().error = Some(error.to_string());
    }

    /// How long it has gone on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// What was done about an answer of which nothing has gone out yet.
    pub(crate) fn set_report(&self, report: String) {
        self.lock_stats().report = Some(report);
    }

    /// That, once, for whoever makes the response.
    pub(crate) fn take_report(&self) -> Option<String> {
        self.lock_stats().report.take()
    }

    /// Keeps a place until the exchange is over.
    pub(crate) fn hold_slot(&self, place: OwnedSemaphorePermit) {
        self.lock_stats().slot = Some(place);
    }

    /// Everything was answered that there was to answer.
    pub(crate) fn mark_done(&self) {
        self.lock_stats().done = true;
    }

    pub(crate) fn set_status(&self, status: u16) {
        self.lock_stats().status = status;
    }

    /// So many bytes went to the client.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        let mut entries = self.lock_stats();
        entries.first.get_or_insert_with(Instant::now);
        entries.bytes = entries.bytes.saturating_add(bytes as u64);
    }

    /// The client took the last of it.
    pub(crate) fn mark_taken(&self) {
        self.lock_stats().taken = true;
    }
}

impl Drop for ExchangeState {
    fn drop(&mut self) {
        let entries = std::mem::take(self.entries.get_mut().unwrap_or_else(PoisonError::into_inner));
        let ended = ExchangeSummary {
            front: self.front,
            model: &entries.model,
            status: entries.status,
            whole: entries.done && entries.taken,
            took: self.start.elapsed(),
            first: entries.first.map(|first| first.duration_since(self.start)),
            bytes: entries.bytes,
            calls: entries.calls,
            usage: entries.usage,
            error: entries.error.as_deref(),
        };
        self.gateway.emit_event(&self.id, GatewayEvent::Ended(&ended));
    }
}
