//! What a gateway says of each request, on standard error.
//!
//! The access log has no contents and no secrets. `--explain` shows what models write and clients ask, and so passes through the
//! sanitizer.

use std::time::Duration;

use sabir_gateway::{Ended, Note, Watch};
use serde_json::json;

use crate::cli::{GatewayArguments, LogForm};
use crate::print;

/// Tells of requests.
pub(super) struct Log {
    form: LogForm,
    explain: bool,
}

impl Log {
    pub(super) fn new(arguments: &GatewayArguments) -> Self {
        Self { form: arguments.log, explain: arguments.explain }
    }
}

impl Watch for Log {
    fn note(&self, id: &str, note: Note<'_>) {
        match note {
            Note::Ended(ended) => match self.form {
                LogForm::Text => print::err(&format!("{}\n", print::quoted_whole(&line(id, ended)))),
                LogForm::Json => print::err(&format!("{}\n", object(id, ended))),
                LogForm::Off => {}
            },
            note if self.explain => {
                if let Some(words) = explained(note) {
                    print::err(&print::visible(&format!("{id} {words}\n")));
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
    line.push_str(&format!(" {} bytes {} calls", ended.bytes, ended.calls));
    let tokens = |name: &str, count: Option<u64>| count.map_or(String::new(), |count| format!(" {name} {count}"));
    line.push_str(&tokens("in", ended.usage.input));
    line.push_str(&tokens("out", ended.usage.output));
    match ended.error {
        Some(error) => line.push_str(&format!(" error: {error}")),
        None if !ended.whole => line.push_str(" left"),
        None => {}
    }
    line
}

fn object(id: &str, ended: &Ended<'_>) -> serde_json::Value {
    json!({
        "id": id, "front": ended.front.map(|wire| wire.name()), "model": ended.model, "status": ended.status,
        "whole": ended.whole, "took_ms": ended.took.as_millis(), "first_ms": ended.first.map(|first| first.as_millis()),
        "bytes": ended.bytes, "calls": ended.calls, "input_tokens": ended.usage.input,
        "output_tokens": ended.usage.output, "error": ended.error,
    })
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
