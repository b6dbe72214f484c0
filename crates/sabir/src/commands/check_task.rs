//! Implements `check`, on standard input or on the calls of a past task.

use sabir_agent::TaskId;
use sabir_toolbox::task_check::{TaskJournal, TaskWithSubtasks};

use crate::cli::CheckTaskArguments;
use crate::commands::{journal, parse};
use crate::exit::{CommandError, ExitStatus};
use crate::report_output::print_report;

/// Runs `sabir check` on standard input or on a task.
pub(crate) fn run_check(arguments: &CheckTaskArguments) -> Result<ExitStatus, CommandError> {
    let Some(name) = &arguments.task else {
        return parse::check_input(&arguments.check);
    };
    let family =
        TaskWithSubtasks::collect(read_task(name)?, |id: &TaskId| read_task(id.as_str()).ok());
    let report = family.check_report();
    print_report(&report, arguments.check.output)?;
    Ok(if report.has_errors() {
        ExitStatus::NotUnderstood
    } else {
        ExitStatus::Completed
    })
}

fn read_task(name: &str) -> Result<TaskJournal, CommandError> {
    let (id, entries) = journal::read_entries(Some(name))?;
    Ok(TaskJournal { id, entries })
}
