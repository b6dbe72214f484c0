//! `log` and `tasks`: what the journals say. Secrets leave here as well: journals of earlier versions hold them.

use sabir_agent::{TaskEvent, Totals};
use sabir_call::redact;
use serde_json::json;

use crate::cli::Output;
use crate::exit::{Exit, Failure};
use crate::screen::Painter;
use crate::{config, print, spent, task};

/// `sabir log`.
pub(crate) fn log(name: &str, output: Output) -> Result<Exit, Failure> {
    let folder = config::tasks_folder()?;
    let id = task::find(&folder, name)?;
    let (entries, recovery) = sabir_journal::read(&folder, &id).map_err(|error| Failure::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::err(&format!("sabir: {recovery}\n"));
    }
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.note(&entry.record));
    match output {
        Output::Events => entries.iter().for_each(print::redacted),
        Output::Json => print::redacted(&json!({
            "task": id, "records": entries,
            "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        })),
        Output::Text => {
            let mut painter = Painter::default();
            for entry in &entries {
                let mut text = painter.paint(TaskEvent::Record(&entry.record));
                text.push_str(&words(&entry.record));
                print::out(&redact::text(&text));
            }
            print::out(&format!("in all: {}\n", spent::words(&totals)));
        }
    }
    Ok(Exit::Completed)
}

/// What a log says beyond what a live task shows, whose deltas are gone.
fn words(record: &sabir_agent::Record) -> String {
    use sabir_agent::Record;
    use sabir_call::Part;
    let text = match record {
        Record::Started(start) => format!("in {}\n> {}\n", start.workspace, start.prompt),
        Record::Said { by: sabir_agent::Speaker::User, text, .. } => format!("> {text}\n"),
        Record::Answered(answered) => {
            let texts = answered.parts.iter().filter_map(|part| match part {
                Part::Text { text } => Some(format!("{}\n", text.trim_end())),
                _ => None,
            });
            texts.chain([told(record)]).collect()
        }
        Record::Failed(_) => told(record),
        Record::Ended { outcome, message } => format!("ended ({}): {message}\n", self::outcome(*outcome)),
        _ => String::new(),
    };
    print::visible(&text)
}

/// What one answer took.
fn told(record: &sabir_agent::Record) -> String {
    let mut totals = Totals::default();
    totals.note(record);
    if totals == Totals::default() { String::new() } else { format!("  {}\n", spent::words(&totals)) }
}

/// `sabir tasks`.
pub(crate) fn tasks(output: Output) -> Result<Exit, Failure> {
    let folder = config::tasks_folder()?;
    let all = sabir_journal::list(&folder).map_err(|error| Failure::internal(error.to_string()))?;
    match output {
        Output::Json => print::redacted(&all.iter().map(describe).collect::<Vec<_>>()),
        Output::Events => all.iter().for_each(|listed| print::redacted(&describe(listed))),
        Output::Text => {
            for listed in &all {
                let (end, prompt) = match &listed.summary {
                    Err(error) => ("unreadable".to_owned(), error.to_string()),
                    Ok(summary) => (summary.ended.map_or("open".to_owned(), outcome), summary.prompt.clone()),
                };
                let prompt: String =
                    redact::text(&prompt).lines().next().unwrap_or_default().chars().take(80).collect();
                print::out(&print::visible(&format!("{}  {end:<15}  {prompt}\n", listed.id)));
            }
        }
    }
    Ok(Exit::Completed)
}

fn describe(listed: &sabir_journal::Listed) -> serde_json::Value {
    match &listed.summary {
        Err(error) => json!({"task": listed.id, "error": error.to_string()}),
        Ok(summary) => json!({
            "task": listed.id, "prompt": summary.prompt, "model": summary.model, "protocol": summary.protocol,
            "workspace": summary.workspace, "started_at": summary.started_at, "last_at": summary.last_at,
            "ended": summary.ended, "records": summary.records,
        }),
    }
}

/// An outcome as JSON writes it.
fn outcome(outcome: sabir_agent::Outcome) -> String {
    serde_json::to_value(outcome).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
