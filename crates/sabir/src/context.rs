//! `context`: what fills a task's context, what a compaction would make of it, and the compaction itself, with its undo.
//!
//! The task does not go on here: nothing is run, and but for a summary nobody is asked.

use sabir_agent::{
    Attended, Author, Compacted, Effect, Filling, Input, Outcome, Preview, Record, Shift, Start, Store, Task, TaskId,
    Trail,
};
use sabir_call::{Event, Model};
use sabir_journal::Journal;
use sabir_workspace::{Level, Sandbox};
use serde_json::{Value, json};

use crate::cli::{ContextArguments, TaskOptions, Whole};
use crate::config::{self, Chosen, Config};
use crate::exit::{Exit, Failure};
use crate::modes::Begun;
use crate::task::{self, Bench, Means};
use crate::{modes, print, spent};

/// `sabir context`.
pub(crate) fn context(arguments: &ContextArguments) -> Result<Exit, Failure> {
    let config = Config::load(arguments.config.as_deref())?;
    let folder = config::tasks_folder()?;
    let id = task::find(&folder, &arguments.task)?;
    let unreadable = |error: sabir_journal::JournalError| Failure::usage(error.to_string());
    if !arguments.compact && !arguments.undo {
        let (entries, _) = sabir_journal::read(&folder, &id).map_err(unreadable)?;
        let mut records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
        // What fills a completed task can be looked at all the same.
        records.pop_if(|last| matches!(last, Record::Ended { outcome: Outcome::Completed, .. }));
        let task = replayed(records, &config, arguments)?;
        show(&id, &task, arguments);
        return Ok(Exit::Completed);
    }
    let (mut journal, entries, _) = Journal::open(&folder, &id, task::clock()).map_err(unreadable)?;
    let mut task = replayed(entries.into_iter().map(|entry| entry.record).collect(), &config, arguments)?;
    let input = match (arguments.undo, arguments.plain) {
        (true, _) => Input::Restore,
        (_, true) => Input::Compact(Author::Sabir),
        _ => Input::Compact(Author::Model),
    };
    match change(&mut task, input, &mut journal, &config, arguments)? {
        Some(shift) => told(&id, &shift, arguments.output),
        None if arguments.undo => return Err(Failure::usage(format!("{id}: there is no compaction to go back on"))),
        None => return Err(Failure::usage(format!("{id}: there is nothing that could be left out"))),
    }
    Ok(Exit::Completed)
}

/// The task of these records, in the context that it would be resumed in.
fn replayed(records: Vec<Record>, config: &Config, arguments: &ContextArguments) -> Result<Task, Failure> {
    let Some(Record::Started(start)) = records.first() else {
        return Err(Failure::usage("the journal does not begin with the start of a task"));
    };
    let options = TaskOptions { no_checkpoints: true, sandbox: Some("off".to_owned()), ..TaskOptions::default() };
    let options = task::kept_mode(&records, &options);
    let means = Means {
        edit_tool: task::kept_edit_tool(start, &options)?,
        jobs: task::passing_jobs(),
        keeper: None,
        sandbox: Sandbox::new(Level::Off),
        household: None,
    };
    let place = task::workspace_of(start);
    let bench = Bench::new(&options, config, Some(&place), means)?;
    // How much there is room for is good to know, and no more.
    let chosen = present(start, Trail::of(&records).mode(), config, arguments).ok();
    let (bench, model) = match chosen {
        Some(chosen) => (bench.priced(&chosen)?, chosen.id),
        None => (bench, start.model.clone()),
    };
    let settings = bench.settings(&model, Attended::No);
    let id = start.task.clone();
    let task = Task::replay(records, settings).map_err(|error| Failure::usage(format!("{id}: {error}")))?;
    Ok(task.within(bench.context))
}

/// The model of a task that is in that mode.
fn present(start: &Start, mode: &str, config: &Config, arguments: &ContextArguments) -> Result<Chosen, Failure> {
    let options = TaskOptions { model: arguments.model.clone(), ..TaskOptions::default() };
    let begun = Begun { mode: task::begun_mode(start), model: &start.model, protocol: &start.protocol };
    modes::chosen(mode, begun, config, &options).map(|(chosen, _)| chosen)
}

/// Carries a change out, as far as a record of it; `None`: there was nothing to change.
fn change(
    task: &mut Task,
    input: Input<'_>,
    journal: &mut Journal,
    config: &Config,
    arguments: &ContextArguments,
) -> Result<Option<Shift>, Failure> {
    let (mut changed, mut effects) = (None, task.step(input));
    while !effects.is_empty() {
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::Keep(record) => {
                    journal.append(&record).map_err(|error| Failure::internal(error.to_string()))?;
                    changed = if let Record::Context(shift) = record { Some(shift) } else { changed };
                }
                Effect::Ask => effects = summarise(task, config, arguments)?,
                _ => {}
            }
        }
    }
    Ok(changed)
}

fn summarise(task: &mut Task, config: &Config, arguments: &ContextArguments) -> Result<Vec<Effect>, Failure> {
    let chosen = present(task.start(), task.trail().mode(), config, arguments)?;
    let (model, request) = (chosen.model(|model| model), task.request());
    let mut sink = |event: Event<'_>| _ = task.step(Input::Event(event));
    let answer = task::runtime()?.block_on(model.answer(&request, &mut sink));
    Ok(task.step(answer.map_or_else(Input::Failed, |()| Input::Answered)))
}

fn show(id: &TaskId, task: &Task, arguments: &ContextArguments) {
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
