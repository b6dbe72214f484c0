//! Implements `import`: converts another program's history into the journal of a task, or carries its settings over.

use std::path::Path;

use sabir_terminal::settings_import::import_settings;
use sabir_toolbox::import::read_history;

use crate::cli::{ImportArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::print_exact_report;

/// Runs `sabir import`.
pub(crate) fn run_import(arguments: &ImportArguments) -> Result<ExitStatus, CommandError> {
    if arguments.path == Path::new("settings") {
        let config = process_environment::load_config()?;
        let named = process_environment::named_config();
        let as_json = arguments.output == ReportFormat::Json;
        let done = import_settings(&arguments.programs, arguments.yes, as_json, &config, named);
        return Ok(ExitStatus::from_confirmation(done?));
    }
    let history = read_history(&arguments.path, process_environment::dialects())?;
    let task = history.into_task(process_environment::host().new_task_id());
    let folder = process_environment::tasks_folder()?;
    let shown = arguments.path.display();
    sabir_journal::write_journal(&folder, &task.id, &task.entries)
        .map_err(|error| CommandError::usage(format!("{shown} cannot be imported: {error}")))?;
    let report = task.report();
    if arguments.output == ReportFormat::Text {
        for notice in report.notices() {
            print::write_stderr(&print::sanitize_text(&format!("sabir: {notice}\n")));
        }
    }
    print_exact_report(&report, arguments.output)?;
    Ok(ExitStatus::Completed)
}
