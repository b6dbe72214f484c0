//! Telemetry: what a task did, as spans for a collector of the user's. Off unless `[telemetry]` in `config.toml` names one.
//!
//! A task's records are made into spans as they are kept, by a pure function (`spans.rs`), and sent by a thread of their own
//! (`send.rs`). Nothing that happens there reaches the task: a collector that is slow or gone costs spans, never a turn.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use sabir_agent::{Record, RecordStore, StoreError};
use sabir_model::Secret;
use serde::Deserialize;

use crate::config::{Config, ResolvedModel};
use crate::setup::{OpenedTask, TaskSetup};

use send::SpanSender;
pub(crate) use spans::AskedModel;
use spans::{RunTracer, TraceIds};

mod otlp;
mod send;
mod spans;

/// `[telemetry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryKeys {
    /// The collector's base URL.
    endpoint: Option<String>,
    /// What is sent besides, a key for instance.
    headers: BTreeMap<String, Secret>,
    /// Whether words, arguments and results are sent too.
    content: bool,
}

/// Keeps records, and has them traced.
struct TracedStore {
    store: Box<dyn RecordStore>,
    tracer: RunTracer,
    sender: SpanSender,
    clock: fn() -> SystemTime,
}

impl TelemetryKeys {
    /// Whether the file holds what may be a key.
    pub(crate) fn has_key(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Finds what cannot be meant, without showing the value of a header.
    pub(crate) fn check_keys(&self) -> Result<(), String> {
        let Some(endpoint) = &self.endpoint else {
            let set = !self.headers.is_empty() || self.content;
            return if set { Err("[telemetry] has no endpoint: nothing would be sent".to_owned()) } else { Ok(()) };
        };
        let sent = send::traces_url(endpoint).and_then(|_| send::parse_headers(&self.headers));
        sent.map(drop).map_err(|why| format!("[telemetry]: {why}"))
    }
}

/// Has what happens to a task on that bench traced, if the configuration says so.
pub(crate) fn trace_session(
    open: OpenedTask,
    config: &Config,
    setup: &TaskSetup,
    chosen: &ResolvedModel,
) -> OpenedTask {
    let keys = config.telemetry_keys();
    let url = keys.endpoint.as_deref().and_then(|endpoint| send::traces_url(endpoint).ok());
    let (Some(url), Ok(headers)) = (url, send::parse_headers(&keys.headers)) else { return open };
    let [trace, base] = [config.environment.unique_id(), config.environment.unique_id()].map(|id| id.as_u128());
    let ids = TraceIds { trace, base: u64::try_from(base & u128::from(u64::MAX)).unwrap_or(1) };
    let usual = AskedModel { provider: chosen.reached.provider.name.clone(), model: chosen.id.clone() };
    let tracer = RunTracer::new(
        ids,
        &open.task.start_record().task,
        (usual, setup.modes.asked_models()),
        keys.content,
        nanoseconds(config.environment.clock),
    );
    let tracer = tracer.with_history(open.task.mode_history().clone());
    let clock = config.environment.clock;
    let store = Box::new(TracedStore { store: open.store, tracer, sender: SpanSender::new(url, headers), clock });
    OpenedTask { store, ..open }
}

impl RecordStore for TracedStore {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record)?;
        for span in self.tracer.note_record(nanoseconds(self.clock), record) {
            self.sender.send(span);
        }
        Ok(())
    }
}

/// Nanoseconds since 1970.
fn nanoseconds(clock: fn() -> SystemTime) -> u64 {
    let since = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
