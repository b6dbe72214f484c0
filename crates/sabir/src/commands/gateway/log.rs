//! Logs the requests of a gateway on standard error.
//!
//! The access log has no contents and no secrets. `--explain` shows texts of models and clients,
//! and therefore passes through the sanitizer. A separate thread writes, since standard error may
//! block when nobody reads it. Lines that cannot be written in time are dropped, and their number
//! is reported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sabir_call::redact;
use sabir_gateway::{ExchangeSummary, GatewayEvent, GatewayObserver};
use serde_json::json;

use crate::cli::{GatewayArguments, LogFormat};
use crate::exit::CommandError;
use crate::output::print;
use sabir_session::config::GatewayKeys;

/// The maximum number of lines that wait to be written.
const MAX_WAITING: usize = 4096;

/// The time to wait for the last lines when the gateway ends.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// The options of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    format: LogFormat,
    explain: bool,
}

/// Log options shared with the running gateway, which a reload can change.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLogOptions(Arc<RwLock<LogOptions>>);

/// Logs the events of requests.
pub(super) struct RequestLog {
    options: SharedLogOptions,
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

/// A handle of the writing thread.
pub(super) struct LogWriter {
    /// The channel that closes when everything is written.
    done: Receiver<()>,
}

impl LogOptions {
    /// Takes the options from the flags, or else from the file.
    pub(super) fn from_flags(arguments: &GatewayArguments, keys: &GatewayKeys) -> Self {
        let form = arguments
            .log
            .or(keys.log.map(LogFormat::from))
            .unwrap_or_default();
        Self {
            format: form,
            explain: arguments.explain || keys.explain.unwrap_or_default(),
        }
    }
}

impl SharedLogOptions {
    fn get(&self) -> LogOptions {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the options.
    pub(super) fn set(&self, manner: LogOptions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

/// Starts the writing thread, and returns the log and a handle of the thread.
pub(super) fn start_log(dial: &SharedLogOptions) -> Result<(RequestLog, LogWriter), CommandError> {
    let (lines, waiting) = sync_channel::<String>(MAX_WAITING);
    let (writing, done) = sync_channel::<()>(0);
    let lost = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&lost);
    let write = move || {
        for text in waiting {
            match count.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => print::write_stderr(&format!(
                    "sabir: {lost} lines were left out: nobody read them in time\n"
                )),
            }
            print::write_stderr(&text);
        }
        drop(writing);
    };
    let started = std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(write);
    started
        .map_err(|error| CommandError::internal(format!("the log cannot be written: {error}")))?;
    Ok((
        RequestLog {
            options: dial.clone(),
            lines,
            lost,
        },
        LogWriter { done },
    ))
}

impl LogWriter {
    /// Waits up to [`FLUSH_TIMEOUT`] for the waiting lines to be written.
    pub(super) fn finish(self) {
        _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

impl RequestLog {
    /// Queues a line, or counts it as lost if the queue is full: a request must never wait for the
    /// log.
    fn write_line(&self, text: String) {
        if self.lines.try_send(text).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl GatewayObserver for RequestLog {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        let LogOptions {
            format: form,
            explain,
        } = self.options.get();
        match note {
            GatewayEvent::Ended(ended) => match form {
                LogFormat::Text => self.write_line(format!(
                    "{} {}\n",
                    now_utc(),
                    print::quote_text(&text_line(id, ended))
                )),
                LogFormat::Json => self.write_line(format!("{}\n", json_line(id, ended))),
                LogFormat::Off => {}
            },
            note if explain => {
                if let Some(words) = explain_note(note) {
                    self.write_line(print::sanitize_text(&format!("{id} {words}\n")));
                }
            }
            _ => {}
        }
    }
}

/// Renders the summary of an exchange on one line.
fn text_line(id: &str, ended: &ExchangeSummary<'_>) -> String {
    let front = ended.front.map_or("-", |wire| wire.name());
    let model = if ended.model.is_empty() {
        "-"
    } else {
        ended.model
    };
    let mut line = format!(
        "{id} {front} {model} {} {}",
        ended.status,
        format_milliseconds(ended.took)
    );
    if let Some(first) = ended.first {
        line.push_str(&format!(" first {}", format_milliseconds(first)));
    }
    line.push_str(&format!(
        " {} bytes {}",
        ended.bytes,
        print::count_noun(ended.calls as usize, "call")
    ));
    let tokens = |name: &str, count: Option<u64>| {
        count.map_or(String::new(), |count| format!(" {name} {count}"))
    };
    line.push_str(&tokens("in", ended.usage.input));
    line.push_str(&tokens("out", ended.usage.output));
    match ended.error {
        Some(error) => line.push_str(&format!(" error: {}", redact::redact_text(error))),
        None if !ended.whole => line.push_str(" left"),
        None => {}
    }
    line
}

/// Renders the summary of an exchange as JSON, with secrets redacted from errors.
fn json_line(id: &str, ended: &ExchangeSummary<'_>) -> serde_json::Value {
    json!({
        "time": now_utc(), "id": id, "front": ended.front.map(|wire| wire.name()), "model": ended.model, "status": ended.status,
        "whole": ended.whole, "took_ms": ended.took.as_millis(), "first_ms": ended.first.map(|first| first.as_millis()),
        "bytes": ended.bytes, "calls": ended.calls, "input_tokens": ended.usage.input,
        "output_tokens": ended.usage.output, "error": ended.error.map(redact::redact_text),
    })
}

/// Returns the current time in UTC with milliseconds, as RFC 3339 text.
fn now_utc() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let moment = sabir_wire::format_timestamp(since.as_secs());
    format!(
        "{}.{:03}Z",
        moment.trim_end_matches('Z'),
        since.subsec_millis()
    )
}

fn format_milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Describes an event within an exchange for `--explain`; `None` for others.
fn explain_note(note: GatewayEvent<'_>) -> Option<String> {
    Some(match note {
        GatewayEvent::ToolsInPrompt { dialect, prompt } => {
            format!("taught in {dialect}:\n{}", print::indent_lines(prompt))
        }
        GatewayEvent::LeftOut { path, what } => format!("left out {path}: {what}"),
        GatewayEvent::CallSent { name, dialect } => {
            format!("called {name} ({})", dialect.unwrap_or("natively"))
        }
        GatewayEvent::Repaired { rule, name } => format!("mended {name}: {rule}"),
        GatewayEvent::FaultFound(fault) => format!("at fault: {}", fault.message),
        GatewayEvent::Retried { attempt, feedback } => {
            format!("asked again, {attempt}:\n{}", print::indent_lines(feedback))
        }
        _ => return None,
    })
}
