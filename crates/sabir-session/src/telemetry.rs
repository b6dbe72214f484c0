//! Telemetry: sends spans of a task to the user's collector. It is off unless `[telemetry]` in `config.toml` names one.
//!
//! As records are appended, a pure function turns them into spans (`spans.rs`), and a separate thread sends them (`send.rs`). No
//! failure there affects the task: a collector that is slow or gone loses spans and never delays a turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sabir_agent::{DriverObserver, Record};
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

/// The table `[telemetry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryKeys {
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

impl TelemetryKeys {
    /// Reports whether the table may contain a key: any header can be one.
    pub(crate) fn has_key(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Checks the settings. The message never shows the value of a header.
    pub(crate) fn check_keys(&self) -> Result<(), String> {
        let Some(endpoint) = &self.endpoint else {
            let set = !self.headers.is_empty() || self.content;
            return if set {
                Err("[telemetry] has no endpoint: nothing would be sent".to_owned())
            } else {
                Ok(())
            };
        };
        let sent = send::traces_url(endpoint).and_then(|_| send::parse_headers(&self.headers));
        sent.map(drop).map_err(|why| format!("[telemetry]: {why}"))
    }
}

/// Adds tracing to the store of a task, if the configuration names a collector.
pub(crate) fn task_observer(
    open: &OpenedTask,
    config: &Config,
    setup: &TaskSetup,
    chosen: &ResolvedModel,
) -> Option<Arc<dyn DriverObserver>> {
    let keys = config.telemetry_keys();
    let url = keys
        .endpoint
        .as_deref()
        .and_then(|endpoint| send::traces_url(endpoint).ok())?;
    let headers = send::parse_headers(&keys.headers).ok()?;
    let [trace, base] = [
        config.environment.unique_id(),
        config.environment.unique_id(),
    ]
    .map(|id| id.as_u128());
    // A trace has 128 bits, a span 64: the low half of a version 7 UUID is the random one.
    let ids = TraceIds {
        trace,
        base: u64::try_from(base & u128::from(u64::MAX)).unwrap_or(1),
    };
    let usual = AskedModel {
        provider: chosen.reached.provider.name.clone(),
        model: chosen.id.clone(),
    };
    let tracer = RunTracer::new(
        ids,
        &open.task.start_record().task,
        (usual, setup.modes.asked_models()),
        keys.content,
        nanoseconds(config.environment.clock),
    );
    let tracer = tracer.with_history(open.task.mode_history().clone());
    let clock = config.environment.clock;
    let trace = Mutex::new((tracer, SpanSender::new(url, headers)));
    Some(Arc::new(TelemetryObserver { trace, clock }))
}

impl DriverObserver for TelemetryObserver {
    fn on_record_kept(&self, record: &Record) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let (tracer, sender) = &mut *trace;
        for span in tracer.note_record(nanoseconds(self.clock), record) {
            sender.send(span);
        }
    }
}

/// Returns the nanoseconds since 1970; 0 for a clock before that.
fn nanoseconds(clock: fn() -> SystemTime) -> u64 {
    let since = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
