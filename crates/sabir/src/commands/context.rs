//! Implements `context`: prints what fills a task's context, previews or makes a compaction, and
//! undoes it.

use sabir_agent::{
    CompactionPreview, CompactionRecord, ContextChange, ContextUsage, Record, SummaryAuthor, TaskId,
};
use sabir_session::TaskContext;
use serde_json::{Value, json};

use crate::cli::{ContextArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{cost_text, print};
use crate::surroundings::{self, host};

/// Runs `sabir context`.
pub(crate) fn run_context(arguments: &ContextArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let id = host().find_task(&arguments.task)?;
    let model = arguments.model.as_deref();
    if !arguments.compact && !arguments.undo {
        print_usage(
            &id,
            &TaskContext::read(host(), &id, config, model)?,
            arguments,
        );
        return Ok(ExitStatus::Completed);
    }
    let mut context = TaskContext::open(host(), &id, config, model)?;
    let runtime = surroundings::runtime()?;
    let changed = match (arguments.undo, arguments.plain) {
        (true, _) => runtime.block_on(context.restore())?,
        (_, true) => runtime.block_on(context.compact(SummaryAuthor::Sabir))?,
        _ => runtime.block_on(context.compact(SummaryAuthor::Model))?,
    };
    match changed {
        Some(shift) => print_change(&id, &shift, arguments.output),
        None if arguments.undo => {
            return Err(CommandError::usage(format!(
                "{id}: there is no compaction to undo"
            )));
        }
        None => {
            return Err(CommandError::usage(format!(
                "{id}: there is nothing that could be left out"
            )));
        }
    }
    Ok(ExitStatus::Completed)
}

/// Prints what fills the context, with a preview of a compaction if requested.
fn print_usage(id: &TaskId, task: &TaskContext, arguments: &ContextArguments) {
    let filling = task.filling();
    let preview = if arguments.preview {
        task.preview()
    } else {
        None
    };
    match arguments.output {
        ReportFormat::Json => print::print_redacted_json(&to_json(
            id,
            &filling,
            arguments.preview.then_some(preview.as_ref()),
        )),
        ReportFormat::Text => {
            let mut text = format!("task {id}: {}", render_usage(&filling));
            match &preview {
                Some(preview) => text.push_str(&render_preview(preview)),
                None if arguments.preview => {
                    text.push_str("There is nothing that a compaction could leave out.\n")
                }
                None => {}
            }
            print::write_stdout(&print::sanitize_text(&sabir_call::redact::redact_text(
                &text,
            )));
        }
    }
}

/// Renders what fills a context as a table.
pub(crate) fn render_usage(filling: &ContextUsage) -> String {
    let of = match (filling.window, filling.percent()) {
        (Some(window), Some(percent)) => {
            format!(
                " of {window} ({percent} %); it is compacted at {} %",
                filling.threshold
            )
        }
        _ => "; how many there is room for is not known (see context_window in docs/context.md)"
            .to_owned(),
    };
    let mut text = format!("about {} tokens{of}\n", filling.tokens);
    if let (left_out @ 1.., all) = filling.left_out {
        text.push_str(&format!(
            "{left_out} of {all} messages are left out; a summary stands for them\n"
        ));
    }
    text.push_str("\n   tokens   count\n");
    for (name, count, bytes) in &filling.breakdown {
        text.push_str(&format!(
            "{:>9} {count:>7}  {name}\n",
            ContextUsage::estimate_tokens(*bytes)
        ));
    }
    text
}

/// Renders the effect that a compaction would have.
fn render_preview(preview: &CompactionPreview) -> String {
    let CompactionPreview {
        messages,
        kept_messages: stay,
        before,
        after,
        head,
    } = preview;
    format!(
        "\nA compaction now would leave {messages} messages out and keep the last {stay}: about {after} tokens instead of {before}.\n\
         With a summary that no model wrote, the model would read instead:\n\n{}\n",
        print::indent_lines(&head.join("\n\n"))
    )
}

fn to_json(
    id: &TaskId,
    filling: &ContextUsage,
    preview: Option<Option<&CompactionPreview>>,
) -> Value {
    let row = |(name, count, bytes): &(String, usize, usize)| json!({"name": name, "count": count, "bytes": bytes, "tokens_estimated": ContextUsage::estimate_tokens(*bytes)});
    let (left_out, messages) = filling.left_out;
    let mut value = json!({
        "task": id, "tokens": filling.tokens, "window": filling.window, "percent": filling.percent(),
        "threshold": filling.threshold, "messages": messages, "left_out": left_out,
        "parts": filling.breakdown.iter().map(row).collect::<Vec<_>>(),
    });
    if let (Some(preview), Some(object)) = (preview, value.as_object_mut()) {
        let one = |one: &CompactionPreview| {
            json!({
                "messages": one.messages, "stay": one.kept_messages, "before": one.before, "after": one.after, "head": one.head,
            })
        };
        object.insert("preview".to_owned(), preview.map_or(Value::Null, one));
    }
    value
}

/// Prints a compaction, or its undoing.
fn print_change(id: &TaskId, shift: &ContextChange, output: ReportFormat) {
    if output == ReportFormat::Json {
        return print::print_redacted_json(&json!({"task": id, "context": shift}));
    }
    print::write_stdout(&print::sanitize_text(&match shift {
        ContextChange::Compacted(compacted) => {
            format!("task {id}: {}\n", compaction_text(compacted))
        }
        _ => format!("task {id}: the model sees again what it saw before the last compaction\n"),
    }));
}

/// Describes a compaction in a sentence.
pub(crate) fn compaction_text(compacted: &CompactionRecord) -> String {
    let CompactionRecord {
        by,
        failure,
        messages,
        before,
        after,
        ..
    } = compacted;
    let who = match (by, failure) {
        (SummaryAuthor::Model, _) => {
            // `UsageTotals` adds up records, so the compaction is wrapped into one.
            let mut totals = sabir_agent::UsageTotals::default();
            totals.add_record(&Record::Context(ContextChange::Compacted(Box::new(
                compacted.clone(),
            ))));
            format!("the model's summary ({})", cost_text::usage_text(&totals))
        }
        (SummaryAuthor::Sabir, Some(why)) => {
            format!("a line for each call, since the model did not help ({why})")
        }
        (SummaryAuthor::Sabir, None) => "a line for each call".to_owned(),
    };
    format!(
        "the context was compacted from about {before} to {after} tokens: for the first {messages} messages stands {who}"
    )
}
