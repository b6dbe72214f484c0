//! Implements `security`: tries each wall of the sandbox on this machine.

use std::path::Path;

use sabir_session::sandbox::{configured_sandbox, sandbox_report_json};
use sabir_workspace::check_security;

use crate::cli::{ReportFormat, SecurityArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;

/// Runs `sabir security`. The exit code is 1 if a wall is open.
pub(crate) fn run_security(arguments: &SecurityArguments) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let level = configured_sandbox(arguments.level.as_deref(), &config)?.level();
    let environment = process_environment::environment();
    let variables = environment.command_variables();
    let helper = &environment.helper_program;
    let report = process_environment::runtime()?
        .block_on(check_security(helper, level, &variables, Path::new("/tmp")))
        .map_err(|error| CommandError::usage(error.to_string()))?;
    print::write_stdout(&match arguments.output {
        ReportFormat::Text => report.to_string(),
        ReportFormat::Json => format!("{}\n", sandbox_report_json(&report)),
    });
    Ok(match report.has_unenforced_restriction() {
        true => ExitStatus::Passed(1),
        false => ExitStatus::Completed,
    })
}
