//! Implements `import`: converts another program's history into the journal of a task.

use sabir_toolbox::import::read_history;

use crate::cli::{ImportArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::report_output::print_exact_report;
use crate::surroundings;

/// Runs `sabir import`.
pub(crate) fn run_import(arguments: &ImportArguments) -> Result<ExitStatus, CommandError> {
    let history = read_history(&arguments.path, surroundings::dialects())?;
    let task = history.into_task(surroundings::host().new_task_id());
    let folder = surroundings::tasks_folder()?;
    sabir_journal::write_journal(&folder, &task.id, &task.entries).map_err(|error| {
        CommandError::usage(format!(
            "{} cannot be imported: {error}",
            arguments.path.display()
        ))
    })?;
    let report = task.report();
    if arguments.output == ReportFormat::Text {
        for notice in report.notices() {
            print::write_stderr(&print::sanitize_text(&format!("sabir: {notice}\n")));
        }
    }
    print_exact_report(&report, arguments.output)?;
    Ok(ExitStatus::Completed)
}
