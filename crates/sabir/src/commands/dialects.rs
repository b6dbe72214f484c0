//! Implements `dialects`: lists the dialects, including those defined in the user's tables.
//!
//! A table is written in `config.toml` as `[dialects.NAME]`, or in a file given with `--dialects`:
//! there in the same form, or alone with its keys at the top level and a `name` among them. For the
//! keys see [`sabir_call::dialect::DialectTable`].

use sabir_toolbox::dialects::{describe_dialect, list_dialects};
use sabir_toolbox::parse::find_dialect;

use crate::cli::OutputFormat;
use crate::exit::{CommandError, ExitStatus};
use crate::report_output::print_report;
use crate::surroundings;

/// Runs `sabir dialects` and `sabir help dialect`.
pub(crate) fn run_dialects(
    name: Option<&str>,
    output: OutputFormat,
) -> Result<ExitStatus, CommandError> {
    let dialects = surroundings::dialects();
    match name {
        None => print_report(&list_dialects(dialects), output)?,
        Some(name) => {
            let dialect = find_dialect(dialects, name, "")?;
            print_report(&describe_dialect(dialect), output)?;
        }
    }
    Ok(ExitStatus::Completed)
}
