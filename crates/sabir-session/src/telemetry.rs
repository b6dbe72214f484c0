//! Sends spans of tasks and of the gateway's exchanges to the user's telemetry collector. It is off unless `[telemetry]` in
//! `config.toml` names one.
//!
//! As records are appended, a pure function turns them into spans (`spans.rs`); an exchange of the gateway becomes one when it is
//! over (`exchange_spans.rs`). A separate thread sends them (`send.rs`). No failure there affects the task or the exchange: a
//! collector that is slow or gone loses spans and never delays anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sabir_agent::{DriverObserver, Record};
use sabir_model::Secret;
use serde::Deserialize;

use crate::config::{Config, ResolvedModel};
use crate::setup::{OpenedTask, TaskSetup};

use send::SpanSender;
pub(crate) use send::TelemetryError;
pub(crate) use spans::TargetModel;
use spans::{RunTracer, TraceIds};

pub use exchange_spans::ExchangeTracer;

mod exchange_spans;
mod otlp;
mod send;
mod spans;

/// The table `[telemetry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// The collector's base URL.
    endpoint: Option<String>,
    /// Additional headers of each request, for example with a key.
    headers: BTreeMap<String, Secret>,
    /// Sends messages, arguments and results too.
    content: bool,
}

/// Makes spans of the records of a task and sends them.
struct TelemetryObserver {
    trace: Mutex<(RunTracer, SpanSender)>,
    clock: fn() -> SystemTime,
}

impl TelemetryConfig {
    /// Reports whether the table may contain a key: any header can be one.
    pub(crate) fn has_key(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Returns true if messages, arguments and results are sent too.
    pub(crate) fn sends_content(&self) -> bool {
        self.content
    }

    /// Checks the settings. The message never shows the value of a header.
    pub(crate) fn check_settings(&self) -> Result<(), TelemetryError> {
        let Some(endpoint) = &self.endpoint else {
            let set = !self.headers.is_empty() || self.content;
            return if set {
                Err(TelemetryError::NoEndpoint)
            } else {
                Ok(())
            };
        };
        send::traces_url(endpoint)?;
        send::parse_headers(&self.headers).map(drop)
    }
}

/// Adds tracing to the store of a task, if the configuration names a collector.
pub(crate) fn task_observer(
    open: &OpenedTask,
    config: &Config,
    setup: &TaskSetup,
    chosen: &ResolvedModel,
) -> Option<Arc<dyn DriverObserver>> {
    let sender = open_sender(config)?;
    let [trace, base] = [
        config.environment.unique_id(),
        config.environment.unique_id(),
    ]
    .map(|id| id.as_u128());
    let ids = TraceIds {
        trace,
        base: span_id(base),
    };
    let usual = TargetModel {
        provider: chosen.reached.provider.name.clone(),
        model: chosen.id.clone(),
    };
    let tracer = RunTracer::new(
        ids,
        &open.task.start_record().task,
        (usual, setup.modes.target_models()),
        config.telemetry_config().sends_content(),
        unix_nanoseconds(config.environment.clock),
    );
    let tracer = tracer.with_history(open.task.mode_history().clone());
    let clock = config.environment.clock;
    let trace = Mutex::new((tracer, sender));
    Some(Arc::new(TelemetryObserver { trace, clock }))
}

/// Returns the id of a span from a version 7 UUID.
fn span_id(unique: u128) -> u64 {
    // A trace has 128 bits, a span 64: the low half of such a UUID is the random one.
    u64::try_from(unique & u128::from(u64::MAX)).unwrap_or(1)
}

/// Starts the thread that sends spans, if the configuration names a collector.
fn open_sender(config: &Config) -> Option<SpanSender> {
    let keys = config.telemetry_config();
    let url = keys
        .endpoint
        .as_deref()
        .and_then(|endpoint| send::traces_url(endpoint).ok())?;
    // Both were checked when the configuration was loaded. An error here only means no telemetry.
    let headers = send::parse_headers(&keys.headers).ok()?;
    Some(SpanSender::new(url, headers))
}

impl DriverObserver for TelemetryObserver {
    fn on_record_stored(&self, record: &Record) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        // One lock for both, so that spans are queued in the order of their records.
        let (tracer, sender) = &mut *trace;
        for span in tracer.note_record(unix_nanoseconds(self.clock), record) {
            sender.queue_span(span);
        }
    }
}

/// Returns the nanoseconds since 1970; 0 for a clock before that.
fn unix_nanoseconds(clock: fn() -> SystemTime) -> u64 {
    let since = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
