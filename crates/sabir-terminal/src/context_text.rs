//! Renders the contents and sizes of a task's context, and the effect of a compaction.

use sabir_session::agent::{
    CompactionPreview, CompactionRecord, ContextChange, ContextUsage, Record, SummaryAuthor,
    TaskId, UsageTotals,
};
use serde_json::{Value, json};

use crate::print;

/// Renders the contents of a context as a table.
pub fn render_usage(usage: &ContextUsage) -> String {
    let of = match (usage.window, usage.percent()) {
        (Some(window), Some(percent)) => {
            format!(
                " of {window} ({percent} %); it is compacted at {} %",
                usage.threshold
            )
        }
        _ => {
            "; the size of the context window is not known (see context_window in docs/context.md)"
                .to_owned()
        }
    };
    let mut text = format!("about {} tokens{of}\n", usage.tokens);
    if let (left_out @ 1.., all) = usage.left_out {
        text.push_str(&format!(
            "{left_out} of {all} messages are left out; a summary replaces them\n"
        ));
    }
    // Tokens of the parts are estimated from bytes, so they do not add up to the total exactly.
    text.push_str("\n   tokens   count\n");
    for (name, count, bytes) in &usage.breakdown {
        text.push_str(&format!(
            "{:>9} {count:>7}  {name}\n",
            ContextUsage::estimate_tokens(*bytes)
        ));
    }
    text
}

/// Renders the effect that a compaction would have; `None` if it could leave nothing out.
pub fn render_preview(preview: Option<&CompactionPreview>) -> String {
    let Some(CompactionPreview {
        messages,
        kept_messages,
        before,
        after,
        head,
    }) = preview
    else {
        return "There is nothing that a compaction could leave out.\n".to_owned();
    };
    format!(
        "\nA compaction now would leave {messages} messages out and keep the last {kept_messages}: about {after} tokens instead of \
         {before}.\n\
         With a summary that no model wrote, the model would read instead:\n\n{}\n",
        print::indent_lines(&head.join("\n\n"))
    )
}

/// Renders what fills a context as the JSON of `sabir context`. With `preview`, it has the key `preview`, which is null if a compaction
/// could leave nothing out.
pub fn usage_json(
    task: &TaskId,
    usage: &ContextUsage,
    preview: Option<Option<&CompactionPreview>>,
) -> Value {
    let parts: Vec<_> = usage
        .breakdown
        .iter()
        .map(|(name, count, bytes)| {
            let tokens = ContextUsage::estimate_tokens(*bytes);
            json!({"name": name, "count": count, "bytes": bytes, "tokens_estimated": tokens})
        })
        .collect();
    let (left_out, messages) = usage.left_out;
    let mut value = json!({
        "task": task, "tokens": usage.tokens, "window": usage.window, "percent": usage.percent(),
        "threshold": usage.threshold, "messages": messages, "left_out": left_out, "parts": parts,
    });
    if let (Some(preview), Some(object)) = (preview, value.as_object_mut()) {
        let preview = preview.map(|preview| {
            json!({
                "messages": preview.messages, "stay": preview.kept_messages, "before": preview.before, "after": preview.after,
                "head": preview.head,
            })
        });
        object.insert("preview".to_owned(), preview.unwrap_or_default());
    }
    value
}

/// Describes a compaction, or its undoing, on one line.
pub fn change_text(task: &TaskId, change: &ContextChange) -> String {
    match change {
        ContextChange::Compacted(compacted) => {
            format!("task {task}: {}\n", compaction_text(compacted))
        }
        _ => format!("task {task}: the model sees again what it saw before the last compaction\n"),
    }
}

/// Describes a compaction in a sentence, without its full stop.
pub fn compaction_text(compacted: &CompactionRecord) -> String {
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
            let mut totals = UsageTotals::default();
            totals.add_record(&Record::Context(ContextChange::Compacted(Box::new(
                compacted.clone(),
            ))));
            format!("the model's summary ({})", print::usage_text(&totals))
        }
        (SummaryAuthor::Sabir, Some(why)) => {
            format!("a line for each call, since the model gave no summary ({why})")
        }
        (SummaryAuthor::Sabir, None) => "a line for each call".to_owned(),
    };
    format!(
        "the context was compacted from about {before} to {after} tokens; the first {messages} messages are replaced by {who}"
    )
}
