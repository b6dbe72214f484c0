//! Implements `explain`: shows how a text was parsed, marker by marker.

use sabir_toolbox::explain::explain_text;

use crate::cli::CheckArguments;
use crate::commands::parse;
use crate::exit::{CommandError, ExitStatus};
use crate::report_output::print_report;

/// Runs `sabir explain`.
pub(crate) fn run_explain(arguments: &CheckArguments) -> Result<ExitStatus, CommandError> {
    let options = parse::parse_options(&arguments.recognition)?;
    let explained = explain_text(&parse::read_stdin()?, &options);
    print_report(&explained.report(), arguments.output)?;
    Ok(parse::exit_status(&explained.parsed))
}
