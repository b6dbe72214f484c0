//! What a gateway says of each request, on standard error.
//!
//! The access log has no contents and no secrets. `--explain` shows what models write and clients ask, and so passes through the
//! sanitizer. A thread of its own writes, since nobody may ever read standard error: what it cannot write in time is left out, and
//! that is said.

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

/// How many pieces of text may wait to be written.
const MAX_WAITING: usize = 4096;

/// How long the last of them are waited for.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// What is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    format: LogFormat,
    explain: bool,
}

/// Where what is told can be changed.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLogOptions(Arc<RwLock<LogOptions>>);

/// Tells of requests.
pub(super) struct RequestLog {
    options: SharedLogOptions,
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

/// What writes.
pub(super) struct LogWriter {
    /// Closed when everything is written.
    done: Receiver<()>,
}

impl LogOptions {
    /// As the flags say, else the file.
    pub(super) fn from_flags(arguments: &GatewayArguments, keys: &GatewayKeys) -> Self {
        let form = arguments.log.or(keys.log.map(LogFormat::from)).unwrap_or_default();
        Self { format: form, explain: arguments.explain || keys.explain.unwrap_or_default() }
    }
}

impl SharedLogOptions {
    fn get(&self) -> LogOptions {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told from now on.
    pub(super) fn set(&self, manner: LogOptions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

/// A log that tells what the dial says, and what writes it.
pub(super) fn start_log(dial: &SharedLogOptions) -> Result<(RequestLog, LogWriter), CommandError> {
    let (lines, waiting) = sync_channel::<String>(MAX_WAITING);
    let (writing, done) = sync_channel::<()>(0);
    let lost = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&lost);
    let write = move || {
        for text in waiting {
            match count.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => print::write_stderr(&format!("sabir: {lost} lines were left out: nobody read them in time\n")),
            }
            print::write_stderr(&text);
        }
        drop(writing);
    };
    let started = std::thread::Builder::new().name("log".to_owned()).spawn(write);
    started.map_err(|error| CommandError::internal(format!("the log cannot be written: {error}")))?;
    Ok((RequestLog { options: dial.clone(), lines, lost }, LogWriter { done }))
}

impl LogWriter {
    /// Lets it write what waits, for a moment.
    pub(super) fn finish(self) {
        _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

impl RequestLog {
    fn write_line(&self, text: String) {
        if self.lines.try_send(text).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl GatewayObserver for RequestLog {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        let LogOptions { format: form, explain } = self.options.get();
        match note {
            GatewayEvent::Ended(ended) => match form {
                LogFormat::Text => {
                    self.write_line(format!("{} {}\n", now_utc(), print::quote_text(&text_line(id, ended))))
                }
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

/// An exchange on one line.
fn text_line(id: &str, ended: &ExchangeSummary<'_>) -> String {
    let front = ended.front.map_or("-", |wire| wire.name());
    let model = if ended.model.is_empty() { "-" } else { ended.model };
    let mut line = format!("{id} {front} {model} {} {}", ended.status, format_milliseconds(ended.took));
    if let Some(first) = ended.first {
        line.push_str(&format!(" first {}", format_milliseconds(first)));
    }
    line.push_str(&format!(" {} bytes {}", ended.bytes, print::count_noun(ended.calls as usize, "call")));
    let tokens = |name: &str, count: Option<u64>| count.map_or(String::new(), |count| format!(" {name} {count}"));
    line.push_str(&tokens("in", ended.usage.input));
    line.push_str(&tokens("out", ended.usage.output));
    match ended.error {
        Some(error) => line.push_str(&format!(" error: {}", redact::redact_text(error))),
        None if !ended.whole => line.push_str(" left"),
        None => {}
    }
    line
}

fn json_line(id: &str, ended: &ExchangeSummary<'_>) -> serde_json::Value {
    json!({
        "time": now_utc(), "id": id, "front": ended.front.map(|wire| wire.name()), "model": ended.model, "status": ended.status,
        "whole": ended.whole, "took_ms": ended.took.as_millis(), "first_ms": ended.first.map(|first| first.as_millis()),
        "bytes": ended.bytes, "calls": ended.calls, "input_tokens": ended.usage.input,
        "output_tokens": ended.usage.output, "error": ended.error.map(redact::redact_text),
    })
}

/// Now, in UTC, to the millisecond, as RFC 3339 has it.
fn now_utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = sabir_wire::format_timestamp(since.as_secs());
    format!("{}.{:03}Z", moment.trim_end_matches('Z'), since.subsec_millis())
}

fn format_milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// What happened within an exchange. The end has a line of its own.
fn explain_note(note: GatewayEvent<'_>) -> Option<String> {
    Some(match note {
        GatewayEvent::ToolsInPrompt { dialect, prompt } => {
            format!("taught in {dialect}:\n{}", print::indent_lines(prompt))
        }
        GatewayEvent::LeftOut { path, what } => format!("left out {path}: {what}"),
        GatewayEvent::CallSent { name, dialect } => format!("called {name} ({})", dialect.unwrap_or("natively")),
        GatewayEvent::Repaired { rule, name } => format!("mended {name}: {rule}"),
        GatewayEvent::FaultFound(fault) => format!("at fault: {}", fault.message),
        GatewayEvent::Retried { attempt, feedback } => {
            format!("asked again, {attempt}:\n{}", print::indent_lines(feedback))
        }
        _ => return None,
    })
}
