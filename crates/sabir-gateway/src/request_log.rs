//! Turns the events of requests into log lines, and hands them to a writer on a separate thread.
//!
//! The access log has no contents and no secrets. Explanations show texts of models and clients. A separate thread writes, since
//! standard error may block when nobody reads it, and a request must never wait for the log. Lines that cannot be written in time
//! are dropped, and their number is reported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sabir_call::redact;
use serde::Deserialize;
use serde_json::json;

use crate::gateway_event::{ExchangeSummary, GatewayEvent, GatewayObserver};

/// The maximum number of lines that wait to be written.
const MAX_WAITING: usize = 4096;

/// The time to wait for the last lines when the gateway ends.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// The form in which requests are logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain lines for people.
    #[default]
    Text,
    /// JSON lines, one object for each request.
    Json,
    /// No log.
    Off,
}

/// The options of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The form of the lines about requests.
    pub format: LogFormat,
    /// True if explanations are logged too: system prompts, omitted fields, calls, repairs and retries.
    pub explain: bool,
}

/// Log options shared with the running gateway, which a reload can change.
#[derive(Debug, Clone, Default)]
pub struct SharedLogOptions(Arc<RwLock<LogOptions>>);

/// A line of the log, without its line feed.
///
/// `Summary` and `Explanation` contain names and texts of clients and models. The writer must make them safe for its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLine {
    /// The summary of a request as text, on one line as far as its parts are.
    Summary(String),
    /// The summary of a request as a JSON object, whose strings are escaped.
    Json(String),
    /// An explanation, which may have several lines.
    Explanation(String),
    /// The number of lines that were dropped before this one.
    Dropped(u64),
}

/// Logs the events of requests.
#[derive(Debug)]
pub struct RequestLog {
    options: SharedLogOptions,
    clock: fn() -> SystemTime,
    lines: SyncSender<LogLine>,
    dropped: Arc<AtomicU64>,
}

/// A handle of the writing thread.
#[derive(Debug)]
pub struct LogWriter {
    /// The channel that closes when everything is written.
    done: Receiver<()>,
}

impl SharedLogOptions {
    /// Creates shared options.
    pub fn new(options: LogOptions) -> Self {
        Self(Arc::new(RwLock::new(options)))
    }

    fn get(&self) -> LogOptions {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the options.
    pub fn set(&self, options: LogOptions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = options;
    }
}

impl LogWriter {
    /// Waits until the waiting lines are written, at most half a second. Drop the log first; otherwise no line is the last one.
    pub fn finish(self) {
        _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

impl RequestLog {
    /// Starts the writing thread, which calls `write` for each line, and returns the log and a handle of the thread.
    ///
    /// # Errors
    /// When the system allows no further thread.
    pub fn start(
        options: &SharedLogOptions,
        clock: fn() -> SystemTime,
        mut write: impl FnMut(LogLine) + Send + 'static,
    ) -> std::io::Result<(Self, LogWriter)> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (writing, done) = sync_channel::<()>(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        let write_lines = move || {
            for line in waiting {
                match count.swap(0, Ordering::Relaxed) {
                    0 => {}
                    dropped => write(LogLine::Dropped(dropped)),
                }
                write(line);
            }
            // Closes the channel that `LogWriter::finish` waits for.
            drop(writing);
        };
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(write_lines)?;
        let log = Self {
            options: options.clone(),
            clock,
            lines,
            dropped,
        };
        Ok((log, LogWriter { done }))
    }

    /// Queues a line, or counts it as dropped if the queue is full: a request must never wait for the log.
    fn queue_line(&self, line: LogLine) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl GatewayObserver for RequestLog {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        let LogOptions { format, explain } = self.options.get();
        match note {
            GatewayEvent::Ended(ended) => {
                let time = format_time((self.clock)());
                match format {
                    LogFormat::Text => self
                        .queue_line(LogLine::Summary(format!("{time} {}", text_line(id, ended)))),
                    LogFormat::Json => {
                        let line = json_line(&time, id, ended).to_string();
                        self.queue_line(LogLine::Json(line));
                    }
                    LogFormat::Off => {}
                }
            }
            note if explain => {
                if let Some(words) = explain_event(note) {
                    self.queue_line(LogLine::Explanation(format!("{id} {words}")));
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
        " {} bytes {} call{}",
        ended.bytes,
        ended.calls,
        if ended.calls == 1 { "" } else { "s" }
    ));
    if let Some(upstream) = ended.upstream {
        line.push_str(&format!(" by {upstream}"));
    }
    if let Some(key) = ended.key {
        line.push_str(&format!(" key {key}"));
    }
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
fn json_line(time: &str, id: &str, ended: &ExchangeSummary<'_>) -> serde_json::Value {
    json!({
        "time": time, "id": id, "front": ended.front.map(|wire| wire.name()), "model": ended.model, "status": ended.status,
        "whole": ended.whole, "took_ms": ended.took.as_millis(), "first_ms": ended.first.map(|first| first.as_millis()),
        "bytes": ended.bytes, "calls": ended.calls, "input_tokens": ended.usage.input,
        "output_tokens": ended.usage.output, "nano_usd": ended.nano_usd, "key": ended.key, "upstream": ended.upstream,
        "first_output_ms": ended.first_output.map(|first| first.as_millis()), "refusal": ended.refusal, "error": ended.error.map(redact::redact_text),
    })
}

/// Formats a time in UTC with milliseconds, as RFC 3339 text.
fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
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

/// Indents every line, so that foreign text cannot pass for the log's own.
fn indent_lines(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Describes an event within an exchange; `None` for an event that needs no explanation.
fn explain_event(event: GatewayEvent<'_>) -> Option<String> {
    Some(match event {
        GatewayEvent::ToolsInPrompt { dialect, prompt } => {
            format!("taught in {dialect}:\n{}", indent_lines(prompt))
        }
        GatewayEvent::LeftOut { path, what } => format!("left out {path}: {what}"),
        GatewayEvent::CallSent { name, dialect } => {
            format!("called {name} ({})", dialect.unwrap_or("natively"))
        }
        GatewayEvent::Repaired { rule, name } => format!("repaired {name}: {rule}"),
        GatewayEvent::FaultFound(fault) => format!("at fault: {}", fault.message),
        GatewayEvent::Retried { attempt, feedback } => {
            format!("asked again, {attempt}:\n{}", indent_lines(feedback))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn log_lines_follow_the_options() {
        let options = SharedLogOptions::default();
        let (sender, lines) = channel();
        let (log, writer) = RequestLog::start(
            &options,
            || UNIX_EPOCH,
            move |line| {
                _ = sender.send(line);
            },
        )
        .unwrap();
        let summary = ExchangeSummary {
            front: None,
            model: "",
            key: None,
            upstream: None,
            first_output: None,
            asks_model: true,
            nano_usd: None,
            refusal: None,
            status: 404,
            whole: true,
            took: Duration::from_millis(3),
            first: None,
            bytes: 9,
            calls: 1,
            usage: sabir_call::Usage::default(),
            counted: sabir_call::Usage::default(),
            error: None,
            trace_parent: None,
        };
        let repaired = GatewayEvent::Repaired {
            rule: "strict",
            name: "read",
        };
        for (format, explain) in [
            (LogFormat::Text, false),
            (LogFormat::Off, true),
            (LogFormat::Json, false),
        ] {
            options.set(LogOptions { format, explain });
            log.on_event("r1", repaired);
            log.on_event("r1", GatewayEvent::Ended(&summary));
        }
        drop(log);
        writer.finish();
        let lines: Vec<LogLine> = lines.iter().collect();
        let [
            LogLine::Summary(text),
            LogLine::Explanation(words),
            LogLine::Json(json),
        ] = &lines[..]
        else {
            panic!("{lines:?}");
        };
        assert_eq!(
            text,
            "1970-01-01T00:00:00.000Z r1 - - 404 3 ms 9 bytes 1 call"
        );
        assert_eq!(words, "r1 repaired read: strict");
        assert!(
            json.starts_with(r#"{"time":"1970-01-01T00:00:00.000Z","id":"r1","#),
            "{json}"
        );
    }
}
