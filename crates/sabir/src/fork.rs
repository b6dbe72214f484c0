//! `fork`: a new task that begins with the records of another.
//!
//! The new journal is written whole and then resumed like any other, so that nothing goes on in a fork that would not in a resumed task.
//! An end at the last record is left out: it is the other task's.

use std::path::Path;

use sabir_agent::{Origin, Record, TaskId};
use sabir_checkpoint::{Goal, Mark, What, name};
use sabir_journal::Entry;
use sabir_session::Interactivity;

use crate::cli::{ControlOptions, ForkArguments, PictureOptions, ResumeArguments, TapeOptions};
use crate::exit::{Exit, Failure};
use crate::history::{Place, failure};
use crate::surroundings::{self, host};
use crate::{journal, print, run};

/// `sabir fork`.
pub(crate) fn fork(arguments: &ForkArguments) -> Result<Exit, Failure> {
    let (name, number) = split(&arguments.from)?;
    let (from, mut entries) = journal::entries(name)?;
    let spec = arguments.task.session_spec(&TapeOptions::default(), Interactivity::Headless)?;
    if arguments.restore {
        entries.truncate(number.unwrap_or(entries.len()));
        let workspace = spec.workspace.clone();
        let folder = workspace.unwrap_or_else(|| {
            journal::start(&from, &entries).map(|start| start.workspace.clone().into()).unwrap_or_default()
        });
        restore(&folder, &from, &entries)?;
    }
    let id = host().fork(&from, number, &spec)?;
    let (forked, _) = sabir_journal::read(&surroundings::tasks_folder()?, &id)
        .map_err(|error| Failure::internal(error.to_string()))?;
    let record = match forked.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => match &start.from {
            Some(Origin::Fork { record, .. }) => *record,
            _ => 0,
        },
        _ => 0,
    };
    print::err(&format!("sabir: task {id} goes on from record {record} of {from}\n"));
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

/// Brings back what the other task's calls changed that have no result among these entries. All of it, or nothing.
fn restore(folder: &Path, from: &TaskId, entries: &[Entry]) -> Result<(), Failure> {
    let place = Place::open(Some(folder))?;
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
        time_ms: surroundings::environment().now_milliseconds(),
        ..Mark::default()
    };
    let restored = place.checkpoints.restore(&plan, &goal, mark, false).map_err(failure)?;
    print::err(&format!("sabir: {} brought back\n", print::counted(restored.done, "path")));
    Ok(())
}
