//! Implements `fork`: starts a new task that begins with the records of another.
//!
//! The new journal is written completely and then resumed like any other, so a fork behaves exactly
//! like a resumed task. A final end record is left out, because it belongs to the other task.

use std::path::PathBuf;

use sabir_session::Interactivity;
use sabir_session::agent::{Record, TaskOrigin};
use sabir_session::checkpoint_history::CheckpointFolder;

use sabir_session::policy_review::entries_start;

use crate::cli::{ControlOptions, ForkArguments, ImageOptions, RecordingOptions, ResumeArguments};
use crate::commands::{journal, run};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment::{self, host};

/// Runs `sabir fork`.
pub(crate) fn run_fork(arguments: &ForkArguments) -> Result<ExitStatus, CommandError> {
    let (name, number) = parse_fork_point(&arguments.from)?;
    let (from, mut entries) = journal::read_entries(Some(name))?;
    let spec = arguments
        .task
        .session_spec(&RecordingOptions::default(), Interactivity::Headless)?;
    if arguments.restore {
        entries.truncate(number.unwrap_or(entries.len()));
        let folder: PathBuf = spec.workspace.clone().unwrap_or_else(|| {
            entries_start(&from, &entries)
                .map(|start| start.workspace.clone().into())
                .unwrap_or_default()
        });
        let restored =
            CheckpointFolder::open(host(), Some(&folder))?.restore_for_fork(&from, &entries)?;
        print::write_stderr(&match restored {
            Some(outcome) => {
                let paths = print::count_noun(outcome.restored, "path");
                format!("sabir: {paths} restored\n")
            }
            None => {
                "sabir: no call after that record has changed anything that could be restored\n"
                    .to_owned()
            }
        });
    }
    let id = host().fork(&from, number, &spec)?;
    let (forked, _) = sabir_journal::read_journal(&process_environment::tasks_folder()?, &id)
        .map_err(|error| CommandError::internal(error.to_string()))?;
    let record = match forked.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => match &start.from {
            Some(TaskOrigin::Fork { record, .. }) => *record,
            _ => 0,
        },
        _ => 0,
    };
    print::write_stderr(&format!(
        "sabir: task {id} continues from record {record} of {from}\n"
    ));
    run::run_resume(&ResumeArguments {
        task: arguments.task.clone(),
        output: arguments.output,
        tape: RecordingOptions::default(),
        control: ControlOptions::default(),
        pictures: ImageOptions::default(),
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
        // `@1` is the name of a task.
        Ok(number) if name.is_empty() && number > 0 => Ok((text, None)),
        Ok(number) if number > 0 => Ok((name, Some(number))),
        _ => Err(CommandError::usage(format!(
            "`{text}` names no record: write TASK@N with N from 1, as `sabir log` counts them, or TASK for all"
        ))),
    }
}
