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

use crate::note::{Ended, Note};
use crate::serve::Gateway;

/// The book of one exchange. Clones are the same book.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Book>);

struct Book {
    gateway: Gateway,
    id: String,
    front: Option<Wire>,
    start: Instant,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
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
    place: Option<OwnedSemaphorePermit>,
    /// Whether the work came to its proper end, and whether the client took all of it.
    done: bool,
    taken: bool,
}

impl Ledger {
    pub(crate) fn new(gateway: &Gateway, id: String, front: Option<Wire>) -> Self {
        let (gateway, start, entries) = (gateway.clone(), Instant::now(), Mutex::default());
        gateway.metrics().opened();
        Self(Arc::new(Book { gateway, id, front, start, entries }))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id that answers are given.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    /// Tells whoever watches, at once.
    pub(crate) fn note(&self, note: Note<'_>) {
        self.0.gateway.note(&self.0.id, note);
    }

    /// The client named this model.
    pub(crate) fn asked(&self, model: &str) {
        self.entries().model = model.chars().take(100).collect();
    }

    /// Something that the client gets.
    pub(crate) fn event(&self, event: &Event<'_>) {
        match event {
            Event::CallStart { .. } => self.entries().calls += 1,
            Event::Usage(usage) => self.entries().usage.update(*usage),
            _ => {}
        }
    }

    /// Why the answer does not come to its proper end.
    pub(crate) fn failed(&self, error: &impl ToString) {
        self.entries().error = Some(error.to_string());
    }

    /// How long it has gone on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// What was done about an answer of which nothing has gone out yet.
    pub(crate) fn report(&self, report: String) {
        self.entries().report = Some(report);
    }

    /// That, once, for whoever makes the response.
    pub(crate) fn reported(&self) -> Option<String> {
        self.entries().report.take()
    }

    /// Keeps a place until the exchange is over.
    pub(crate) fn hold(&self, place: OwnedSemaphorePermit) {
        self.entries().place = Some(place);
    }

    /// Everything was answered that there was to answer.
    pub(crate) fn done(&self) {
        self.entries().done = true;
    }

    pub(crate) fn status(&self, status: u16) {
        self.entries().status = status;
    }

    /// So many bytes went to the client.
    pub(crate) fn sent(&self, bytes: usize) {
        let mut entries = self.entries();
        entries.first.get_or_insert_with(Instant::now);
        entries.bytes = entries.bytes.saturating_add(bytes as u64);
    }

    /// The client took the last of it.
    pub(crate) fn taken(&self) {
        self.entries().taken = true;
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        let entries = std::mem::take(self.entries.get_mut().unwrap_or_else(PoisonError::into_inner));
        let ended = Ended {
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
        self.gateway.note(&self.id, Note::Ended(&ended));
    }
}
