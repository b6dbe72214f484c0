//! `context`: prints what fills a task's context and what a compaction would make of it; compacts it, or undoes that.

use sabir_agent::{Author, Compacted, Filling, Preview, Record, Shift, TaskId};
use sabir_session::{SummaryAuthor, TaskContext};
use serde_json::{Value, json};

use crate::cli::{ContextArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::surroundings::{self, host};
use crate::{print, spent};

/// `sabir context`.
pub(crate) fn context(arguments: &ContextArguments) -> Result<Exit, Failure> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let id = host().find_task(&arguments.task)?;
    let model = arguments.model.as_deref();
    if !arguments.compact && !arguments.undo {
        show(&id, &TaskContext::read(host(), &id, config, model)?, arguments);
        return Ok(Exit::Completed);
    }
    let mut context = TaskContext::open(host(), &id, config, model)?;
    let runtime = surroundings::runtime()?;
    let changed = match (arguments.undo, arguments.plain) {
        (true, _) => runtime.block_on(context.restore())?,
        (_, true) => runtime.block_on(context.compact(SummaryAuthor::Sabir))?,
        _ => runtime.block_on(context.compact(SummaryAuthor::Model))?,
    };
    match changed {
        Some(shift) => told(&id, &shift, arguments.output),
        None if arguments.undo => return Err(Failure::usage(format!("{id}: there is no compaction to undo"))),
        None => return Err(Failure::usage(format!("{id}: there is nothing that could be left out"))),
    }
    Ok(Exit::Completed)
}

fn show(id: &TaskId, task: &TaskContext, arguments: &ContextArguments) {
    let filling = task.filling();
    let preview = if arguments.preview { task.preview() } else { None };
    match arguments.output {
        Whole::Json => print::redacted(&described(id, &filling, arguments.preview.then_some(preview.as_ref()))),
        Whole::Text => {
            let mut text = format!("task {id}: {}", filled(&filling));
            match &preview {
                Some(preview) => text.push_str(&previewed(preview)),
                None if arguments.preview => text.push_str("There is nothing that a compaction could leave out.\n"),
                None => {}
            }
            print::out(&print::visible(&sabir_call::redact::text(&text)));
        }
    }
}

/// What fills a context, as a table.
pub(crate) fn filled(filling: &Filling) -> String {
    let of = match (filling.window, filling.percent()) {
        (Some(window), Some(percent)) => {
            format!(" of {window} ({percent} %); it is compacted at {} %", filling.threshold)
        }
        _ => "; how many there is room for is not known (see context_window in docs/context.md)".to_owned(),
    };
    let mut text = format!("about {} tokens{of}\n", filling.tokens);
    if let (left_out @ 1.., all) = filling.left_out {
        text.push_str(&format!("{left_out} of {all} messages are left out; a summary stands for them\n"));
    }
    text.push_str("\n   tokens   count\n");
    for (name, count, bytes) in &filling.rows {
        text.push_str(&format!("{:>9} {count:>7}  {name}\n", Filling::tokens_of(*bytes)));
    }
    text
}

fn previewed(preview: &Preview) -> String {
    let Preview { messages, stay, before, after, head } = preview;
    format!(
        "\nA compaction now would leave {messages} messages out and keep the last {stay}: about {after} tokens instead of {before}.\n\
         With a summary that no model wrote, the model would read instead:\n\n{}\n",
        print::indented(&head.join("\n\n"))
    )
}

fn described(id: &TaskId, filling: &Filling, preview: Option<Option<&Preview>>) -> Value {
    let row = |(name, count, bytes): &(String, usize, usize)| json!({"name": name, "count": count, "bytes": bytes, "tokens_estimated": Filling::tokens_of(*bytes)});
    let (left_out, messages) = filling.left_out;
    let mut value = json!({
        "task": id, "tokens": filling.tokens, "window": filling.window, "percent": filling.percent(),
        "threshold": filling.threshold, "messages": messages, "left_out": left_out,
        "parts": filling.rows.iter().map(row).collect::<Vec<_>>(),
    });
    if let (Some(preview), Some(object)) = (preview, value.as_object_mut()) {
        let one = |one: &Preview| {
            json!({
                "messages": one.messages, "stay": one.stay, "before": one.before, "after": one.after, "head": one.head,
            })
        };
        object.insert("preview".to_owned(), preview.map_or(Value::Null, one));
    }
    value
}

fn told(id: &TaskId, shift: &Shift, output: Whole) {
    if output == Whole::Json {
        return print::redacted(&json!({"task": id, "context": shift}));
    }
    print::out(&print::visible(&match shift {
        Shift::Compacted(compacted) => format!("task {id}: {}\n", words(compacted)),
        _ => format!("task {id}: the model sees again what it saw before the last compaction\n"),
    }));
}

/// A compaction in words.
pub(crate) fn words(compacted: &Compacted) -> String {
    let Compacted { by, failure, messages, before, after, .. } = compacted;
    let who = match (by, failure) {
        (Author::Model, _) => {
            let mut totals = sabir_agent::Totals::default();
            totals.note(&Record::Context(Shift::Compacted(Box::new(compacted.clone()))));
            format!("the model's summary ({})", spent::words(&totals))
        }
        (Author::Sabir, Some(why)) => format!("a line for each call, since the model did not help ({why})"),
        (Author::Sabir, None) => "a line for each call".to_owned(),
    };
    format!(
        "the context was compacted from about {before} to {after} tokens: for the first {messages} messages stands {who}"
    )
}
