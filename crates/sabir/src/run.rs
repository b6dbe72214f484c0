//! `run`, `resume`, and the interactive task: the same machine with different watchers.

use std::path::Path;

use sabir_agent::{Attended, Outcome, Record, Task, TaskId};
use sabir_call::Model;
use sabir_journal::Journal;
use sabir_model::HttpModel;
use serde_json::json;

use crate::cli::{Output, ResumeArguments, RunArguments, TaskOptions};
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::screen::{EventLines, Progress, Silent};
use crate::task::{self, Bench, Open, Plan};
use crate::terminal::Terminal;
use crate::{print, spent};

/// `sabir run`.
pub(crate) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    begin(&arguments.task, arguments.words.join(" "), Some(arguments.output))
}

/// `sabir`, with or without words.
pub(crate) fn interactive(options: &TaskOptions, words: &[String]) -> Result<Exit, Failure> {
    let prompt = words.join(" ");
    if !prompt.trim().is_empty() {
        return begin(options, prompt, None);
    }
    // Whoever has no model should hear of it before he has typed anything.
    Config::load(options.config.as_deref())?.choose(options.model.as_deref())?;
    print::err("What is to be done? (one line, then Enter)\n> ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    if line.trim().is_empty() {
        return Err(Failure::usage("there is nothing to do: say what, or see `sabir --help`"));
    }
    begin(options, line.trim().to_owned(), None)
}

fn begin(options: &TaskOptions, prompt: String, output: Option<Output>) -> Result<Exit, Failure> {
    if prompt.trim().is_empty() {
        return Err(Failure::usage("there is nothing to do: say what"));
    }
    let config = Config::load(options.config.as_deref())?;
    let chosen = config.choose(options.model.as_deref())?;
    let bench = Bench::new(options, &config, None)?.priced(&chosen)?;
    let explicit = options.protocol.as_deref().or(config.protocol.as_deref());
    let protocol = task::protocol(explicit, None, &chosen)?;
    let attended = attended(output);
    let folder = config::tasks_folder()?;
    let plan = Plan { prompt, model: &chosen.name, model_id: &chosen.id, protocol };
    let mut open = task::start(&bench, plan, attended, &folder)?;
    watch(&bench, &mut open, &chosen.model(move |model| tell_retries(model, output)), output)
}

/// `sabir resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<Exit, Failure> {
    let options = &arguments.task;
    let config = Config::load(options.config.as_deref())?;
    let folder = config::tasks_folder()?;
    let id = match &arguments.id {
        Some(name) => task::find(&folder, name)?,
        None => newest(&folder, options.folder.as_deref().unwrap_or(Path::new(".")))?,
    };
    let (journal, entries, recovery) =
        Journal::open(&folder, &id, task::clock()).map_err(|error| Failure::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::err(&format!("sabir: {recovery}\n"));
    }
    let records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
    let Some(Record::Started(start)) = records.first() else {
        return Err(Failure::usage(format!("the journal of {id} does not begin with the start of a task")));
    };
    let locked = start.protocol.name();
    if locked != "native" && sabir_call::dialect::dialect(locked).is_none() {
        return Err(Failure::usage(format!(
            "this task is locked to the dialect `{locked}`, which is not defined here: give its table with --dialects FILE"
        )));
    }
    let wanted = options.protocol.as_deref().map(task::named_protocol).transpose()?;
    if wanted.is_some_and(|protocol| protocol != start.protocol) {
        return Err(Failure::usage(format!(
            "this task is locked to the protocol `{locked}`; a new task may use another"
        )));
    }
    let chosen = config.choose(options.model.as_deref().or(Some(&start.model)))?;
    let bench = Bench::new(options, &config, Some(&task::workspace_of(start)))?.priced(&chosen)?;
    let settings = bench.settings(&chosen.id, attended(arguments.output));
    let task = Task::replay(records, settings).map_err(|error| Failure::usage(format!("{id}: {error}")))?;
    let words = Some(arguments.words.join(" ")).filter(|words| !words.trim().is_empty());
    let mut open = Open { task, journal, first: None, words };
    let output = arguments.output;
    watch(&bench, &mut open, &chosen.model(move |model| tell_retries(model, output)), output)
}

/// The newest task of that workspace that did not complete.
fn newest(folder: &Path, workspace: &Path) -> Result<TaskId, Failure> {
    let here = std::fs::canonicalize(workspace)
        .map_err(|error| Failure::usage(format!("the folder {} cannot be opened: {error}", workspace.display())))?;
    let all = sabir_journal::list(folder).map_err(|error| Failure::internal(error.to_string()))?;
    let mut summaries = all.into_iter().filter_map(|listed| listed.summary.ok());
    let newest =
        summaries.find(|summary| summary.ended != Some(Outcome::Completed) && Path::new(&summary.workspace) == here);
    newest
        .map(|summary| summary.id)
        .ok_or_else(|| Failure::usage("there is no task that could be resumed in this folder; `sabir tasks` lists all"))
}

fn attended(output: Option<Output>) -> Attended {
    if output.is_none() { Attended::Yes } else { Attended::No }
}

fn tell_retries(model: HttpModel, output: Option<Output>) -> HttpModel {
    model.on_retry(move |retry| {
        let milliseconds = u64::try_from(retry.wait.as_millis()).unwrap_or(u64::MAX);
        let reason = &retry.error.message;
        if output == Some(Output::Events) {
            print::json(&sabir_agent::Moment::Waiting { reason, milliseconds });
        } else {
            let (attempt, attempts, wait) = (retry.attempt, retry.attempts, retry.wait.as_secs_f64());
            print::err(&print::visible(&format!(
                "attempt {attempt} of {attempts} failed: {reason}; again in {wait:.1} s\n"
            )));
        }
    })
}

/// Drives a task before the right eyes and says how it ended.
fn watch(bench: &Bench, open: &mut Open, model: &dyn Model, output: Option<Output>) -> Result<Exit, Failure> {
    let id = open.task.start().task.clone();
    let end = match output {
        Some(Output::Json) => bench.drive(open, model, &mut Silent)?,
        Some(Output::Events) => bench.drive(open, model, &mut EventLines)?,
        Some(Output::Text) => bench.drive(open, model, &mut Progress::default())?,
        None => bench.drive(open, model, &mut Terminal::new())?,
    };
    let exit = Exit::from(end.outcome);
    let completed = end.outcome == Outcome::Completed;
    if matches!(output, None | Some(Output::Text)) {
        print::err(&format!("{}: {}\n", print::counted(end.turns as usize, "turn"), spent::words(&end.totals)));
    }
    match output {
        Some(Output::Json) => print::json(&json!({
            "task": id, "outcome": end.outcome, "exit_code": exit.code(), "message": end.message, "turns": end.turns,
            "usage": end.totals.usage, "estimate": end.totals.estimate, "cost": end.totals.cost,
        })),
        Some(Output::Events) => {}
        Some(Output::Text) if completed => print::out(&print::visible(&format!("{}\n", end.message))),
        _ if completed => {}
        _ => print::err(&print::visible(&format!("sabir: {}\nGo on with: sabir resume {id}\n", end.message))),
    }
    Ok(exit)
}
