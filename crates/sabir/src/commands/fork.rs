//! Implements `fork`: starts a new task that begins with the records of another.
//!
//! The new journal is written completely and then resumed like any other, so a fork behaves exactly
//! like a resumed task. A final end record is left out, because it belongs to the other task.

use std::path::Path;

use sabir_agent::{Record, TaskId, TaskOrigin};
use sabir_checkpoint::{CheckpointCall, CheckpointKind, RestorePoint, display_path};
use sabir_journal::JournalEntry;
use sabir_session::Interactivity;

use crate::cli::{
    ControlOptions, ForkArguments, PictureOptions, RecordingOptions, ResumeArguments,
};
use crate::commands::checkpoint_history::{CheckpointFolder, checkpoint_error};
use crate::commands::{journal, run};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings::{self, host};

/// Runs `sabir fork`.
pub(crate) fn run_fork(arguments: &ForkArguments) -> Result<ExitStatus, CommandError> {
    let (name, number) = parse_fork_point(&arguments.from)?;
    let (from, mut entries) = journal::read_entries(name)?;
    let spec = arguments
        .task
        .session_spec(&RecordingOptions::default(), Interactivity::Headless)?;
    if arguments.restore {
        entries.truncate(number.unwrap_or(entries.len()));
        let workspace = spec.workspace.clone();
        let folder = workspace.unwrap_or_else(|| {
            journal::task_start(&from, &entries)
                .map(|start| start.workspace.clone().into())
                .unwrap_or_default()
        });
        restore_files(&folder, &from, &entries)?;
    }
    let id = host().fork(&from, number, &spec)?;
    let (forked, _) = sabir_journal::read_journal(&surroundings::tasks_folder()?, &id)
        .map_err(|error| CommandError::internal(error.to_string()))?;
    let record = match forked.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => match &start.from {
            Some(TaskOrigin::Fork { record, .. }) => *record,
            _ => 0,
        },
        _ => 0,
    };
    print::write_stderr(&format!(
        "sabir: task {id} goes on from record {record} of {from}\n"
    ));
    run::run_resume(&ResumeArguments {
        task: arguments.task.clone(),
        output: arguments.output,
        tape: RecordingOptions::default(),
        control: ControlOptions::default(),
        pictures: PictureOptions::default(),
        id: Some(id.to_string()),
        words: arguments.words.clone(),
    })
}

/// Parses `TASK@N` into the task's name and the number of records to take; `None` means all.
fn parse_fork_point(text: &str) -> Result<(&str, Option<usize>), CommandError> {
    let Some((name, number)) = text.rsplit_once('@') else {
        return Ok((text, None));
    };
    match number.parse() {
        Ok(number) if number > 0 => Ok((name, Some(number))),
        _ => Err(CommandError::usage(format!(
            "`{text}` names no record: write TASK@N with N from 1, as `sabir log` counts them, or TASK for all"
        ))),
    }
}

/// Undoes the file changes of those calls of the other task that have no result among these
/// entries. Restores everything or nothing.
fn restore_files(
    folder: &Path,
    from: &TaskId,
    entries: &[JournalEntry],
) -> Result<(), CommandError> {
    let place = CheckpointFolder::open(Some(folder))?;
    let done: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Result(result) => Some(result.id.as_str()),
            _ => None,
        })
        .collect();
    let standing = place
        .checkpoints
        .active_calls(from.as_str())
        .map_err(checkpoint_error)?;
    let list = place
        .checkpoints
        .list_checkpoints(Some(from.as_str()))
        .map_err(checkpoint_error)?;
    let first = list.iter().find(|checkpoint| {
        let later = !done.contains(&checkpoint.mark.call.as_str());
        checkpoint.kind == CheckpointKind::Call && later && standing.contains(&checkpoint.number)
    });
    let Some(first) = first else {
        print::write_stderr(
            "sabir: no call after that record has changed anything that could be brought back\n",
        );
        return Ok(());
    };
    let goal = RestorePoint::Before(first.number, Vec::new());
    let plan = place
        .checkpoints
        .plan_restore(from.as_str(), &goal)
        .map_err(checkpoint_error)?;
    if let Some(item) = plan.items.iter().find(|item| !item.is_restored(false)) {
        let why = item
            .conflict
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        return Err(CommandError::usage(format!(
            "{} cannot be brought back ({why}), so nothing was changed; `sabir restore {from}@{}` shows all of it, and a fork without \
             --restore leaves files as they are",
            display_path(&item.path),
            first.number
        )));
    }
    let mark = CheckpointCall {
        task: from.to_string(),
        tool: "sabir".to_owned(),
        label: format!("fork {from}"),
        time_ms: surroundings::environment().now_milliseconds(),
        ..CheckpointCall::default()
    };
    let restored = place
        .checkpoints
        .restore(&plan, &goal, mark, false)
        .map_err(checkpoint_error)?;
    print::write_stderr(&format!(
        "sabir: {} brought back\n",
        print::count_noun(restored.restored, "path")
    ));
    Ok(())
}
