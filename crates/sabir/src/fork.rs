//! `fork`: a new task that begins with the records of another.
//!
//! The new journal is written whole and then resumed like any other, so that nothing goes on in a fork that would not in a resumed task.
//! An end at the last record is left out: it is the other task's.

use std::path::Path;

use sabir_agent::{Origin, Record, Start, TaskId};
use sabir_checkpoint::{Goal, Mark, What, name};
use sabir_journal::Entry;

use crate::cli::{ControlOptions, ForkArguments, PictureOptions, ResumeArguments, TapeOptions, TaskOptions};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::history::{Place, failure};
use crate::{config, journal, print, run, task};

/// `sabir fork`.
pub(crate) fn fork(arguments: &ForkArguments) -> Result<Exit, Failure> {
    let (name, number) = split(&arguments.from)?;
    let (from, mut entries) = journal::entries(name)?;
    let start = journal::start(&from, &entries)?.clone();
    let number = number.unwrap_or(entries.len());
    if number > entries.len() {
        let count = print::counted(entries.len(), "record");
        return Err(Failure::usage(format!("the task {from} has {count}; `sabir log {from}` shows them")));
    }
    entries.truncate(number);
    let id = task::new_id();
    let start = Start {
        task: id.clone(),
        from: Some(Origin::Fork { task: from.clone(), record: number as u64 }),
        ..changed(start, &arguments.task)?
    };
    if arguments.restore {
        restore(&start, &from, &entries)?;
    }
    if entries.last().is_some_and(|last| matches!(last.record, Record::Ended { .. })) {
        entries.pop();
    }
    let first = Entry { at: (task::clock())(), record: Record::Started(start) };
    entries.splice(..1, [first]);
    let folder = config::tasks_folder()?;
    sabir_journal::write(&folder, &id, &entries).map_err(|error| Failure::internal(error.to_string()))?;
    print::err(&format!("sabir: task {id} goes on from record {number} of {from}\n"));
    run::resume(&ResumeArguments {
        task: arguments.task.clone(),
        output: arguments.output,
        tape: TapeOptions::default(),
        control: ControlOptions::default(),
        pictures: PictureOptions::default(),
        id: Some(id.to_string()),
        words: arguments.words.clone(),
    })
}

/// The task's name and the number of records that are taken; `None`: all.
fn split(text: &str) -> Result<(&str, Option<usize>), Failure> {
    let Some((name, number)) = text.rsplit_once('@') else { return Ok((text, None)) };
    match number.parse() {
        Ok(number) if number > 0 => Ok((name, Some(number))),
        _ => Err(Failure::usage(format!(
            "`{text}` names no record: write TASK@N with N from 1, as `sabir log` counts them, or TASK for all"
        ))),
    }
}

/// The start of a fork: what the options do not change stays.
fn changed(start: Start, options: &TaskOptions) -> Result<Start, Failure> {
    let config = Config::load(options.config.as_deref())?;
    let chosen = config.choose(options.model.as_deref().or(Some(&start.model)))?;
    let protocol = task::protocol(options.protocol.as_deref(), Some(start.protocol), &chosen)?;
    let edit_tool = match &options.edit_tool {
        Some(wanted) => Some(task::edit_tool(Some(wanted), &chosen)?.name().to_owned()),
        None => start.edit_tool,
    };
    let folder = options.folder.as_deref().unwrap_or(Path::new(&start.workspace));
    let workspace = std::fs::canonicalize(folder).map_err(|error| {
        let shown = folder.display();
        Failure::usage(format!("the folder {shown} cannot be opened: {error}; give the one to work in with -C"))
    })?;
    Ok(Start {
        workspace: workspace.display().to_string(),
        model: chosen.name,
        protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool,
        mode: options.mode.clone().or(start.mode),
        ..start
    })
}

/// Brings back what the other task's calls changed that have no result among these entries. All of it, or nothing.
fn restore(start: &Start, from: &TaskId, entries: &[Entry]) -> Result<(), Failure> {
    let place = Place::open(Some(Path::new(&start.workspace)))?;
    let done: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Result(result) => Some(result.id.as_str()),
            _ => None,
        })
        .collect();
    let standing = place.checkpoints.standing(from.as_str()).map_err(failure)?;
    let list = place.checkpoints.list(Some(from.as_str())).map_err(failure)?;
    let first = list.iter().find(|checkpoint| {
        let later = !done.contains(&checkpoint.mark.call.as_str());
        checkpoint.what == What::Call && later && standing.contains(&checkpoint.number)
    });
    let Some(first) = first else {
        print::err("sabir: no call after that record has changed anything that could be brought back\n");
        return Ok(());
    };
    let goal = Goal::Before(first.number, Vec::new());
    let plan = place.checkpoints.plan(from.as_str(), &goal).map_err(failure)?;
    if let Some(item) = plan.items.iter().find(|item| !item.goes(false)) {
        let why = item.hindrance.as_ref().map(ToString::to_string).unwrap_or_default();
        return Err(Failure::usage(format!(
            "{} cannot be brought back ({why}), so nothing was changed; `sabir restore {from}@{}` shows all of it, and a fork without \
             --restore leaves files as they are",
            name(&item.path),
            first.number
        )));
    }
    let mark = Mark {
        task: from.to_string(),
        tool: "sabir".to_owned(),
        label: format!("fork {from}"),
        time_ms: (task::clock())(),
        ..Mark::default()
    };
    let restored = place.checkpoints.restore(&plan, &goal, mark, false).map_err(failure)?;
    print::err(&format!("sabir: {} brought back\n", print::counted(restored.done, "path")));
    Ok(())
}
