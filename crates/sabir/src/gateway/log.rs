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
use sabir_gateway::{Ended, Note, Watch};
use serde_json::json;

use crate::cli::{GatewayArguments, LogForm};
use crate::exit::Failure;
use crate::print;
use sabir_session::config::GatewayKeys;

/// How many pieces of text may wait to be written.
const WAITING: usize = 4096;

/// How long the last of them are waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Manner {
    form: LogForm,
    explain: bool,
}

/// Where what is told can be changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Dial(Arc<RwLock<Manner>>);

/// Tells of requests.
pub(super) struct Log {
    dial: Dial,
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

/// What writes.
pub(super) struct Pen {
    /// Closed when everything is written.
    done: Receiver<()>,
}

impl Manner {
    /// As the flags say, else the file.
    pub(super) fn of(arguments: &GatewayArguments, keys: &GatewayKeys) -> Self {
        let form = arguments.log.or(keys.log.map(LogForm::from)).unwrap_or_default();
        Self { form, explain: arguments.explain || keys.explain.unwrap_or_default() }
    }
}

impl Dial {
    fn get(&self) -> Manner {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told from now on.
    pub(super) fn set(&self, manner: Manner) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

/// A log that tells what the dial says, and what writes it.
pub(super) fn start(dial: &Dial) -> Result<(Log, Pen), Failure> {
    let (lines, waiting) = sync_channel::<String>(WAITING);
    let (writing, done) = sync_channel::<()>(0);
    let lost = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&lost);
    let write = move || {
        for text in waiting {
            match count.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => print::err(&format!("sabir: {lost} lines were left out: nobody read them in time\n")),
            }
            print::err(&text);
        }
        drop(writing);
    };
    let started = std::thread::Builder::new().name("log".to_owned()).spawn(write);
    started.map_err(|error| Failure::internal(format!("the log cannot be written: {error}")))?;
    Ok((Log { dial: dial.clone(), lines, lost }, Pen { done }))
}

impl Pen {
    /// Lets it write what waits, for a moment.
    pub(super) fn put_down(self) {
        _ = self.done.recv_timeout(PATIENCE);
    }
}

impl Log {
    fn write(&self, text: String) {
        if self.lines.try_send(text).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Watch for Log {
    fn note(&self, id: &str, note: Note<'_>) {
        let Manner { form, explain } = self.dial.get();
        match note {
            Note::Ended(ended) => match form {
                LogForm::Text => self.write(format!("{} {}\n", now(), print::quoted_whole(&line(id, ended)))),
                LogForm::Json => self.write(format!("{}\n", object(id, ended))),
                LogForm::Off => {}
            },
            note if explain => {
                if let Some(words) = explained(note) {
                    self.write(print::visible(&format!("{id} {words}\n")));
                }
            }
            _ => {}
        }
    }
}

/// An exchange on one line.
fn line(id: &str, ended: &Ended<'_>) -> String {
    let front = ended.front.map_or("-", |wire| wire.name());
    let model = if ended.model.is_empty() { "-" } else { ended.model };
    let mut line = format!("{id} {front} {model} {} {}", ended.status, milliseconds(ended.took));
    if let Some(first) = ended.first {
        line.push_str(&format!(" first {}", milliseconds(first)));
    }
    line.push_str(&format!(" {} bytes {}", ended.bytes, print::counted(ended.calls as usize, "call")));
    let tokens = |name: &str, count: Option<u64>| count.map_or(String::new(), |count| format!(" {name} {count}"));
    line.push_str(&tokens("in", ended.usage.input));
    line.push_str(&tokens("out", ended.usage.output));
    match ended.error {
        Some(error) => line.push_str(&format!(" error: {}", redact::text(error))),
        None if !ended.whole => line.push_str(" left"),
        None => {}
    }
    line
}

fn object(id: &str, ended: &Ended<'_>) -> serde_json::Value {
    json!({
        "time": now(), "id": id, "front": ended.front.map(|wire| wire.name()), "model": ended.model, "status": ended.status,
        "whole": ended.whole, "took_ms": ended.took.as_millis(), "first_ms": ended.first.map(|first| first.as_millis()),
        "bytes": ended.bytes, "calls": ended.calls, "input_tokens": ended.usage.input,
        "output_tokens": ended.usage.output, "error": ended.error.map(redact::text),
    })
}

/// Now, in UTC, to the millisecond, as RFC 3339 has it.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = sabir_wire::moment(since.as_secs());
    format!("{}.{:03}Z", moment.trim_end_matches('Z'), since.subsec_millis())
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// What happened within an exchange. The end has a line of its own.
fn explained(note: Note<'_>) -> Option<String> {
    Some(match note {
        Note::Taught { dialect, prompt } => format!("taught in {dialect}:\n{}", print::indented(prompt)),
        Note::LeftOut { path, what } => format!("left out {path}: {what}"),
        Note::Called { name, dialect } => format!("called {name} ({})", dialect.unwrap_or("natively")),
        Note::Mended { rule, name } => format!("mended {name}: {rule}"),
        Note::Faulty(fault) => format!("at fault: {}", fault.message),
        Note::Again { attempt, feedback } => format!("asked again, {attempt}:\n{}", print::indented(feedback)),
        _ => return None,
    })
}
