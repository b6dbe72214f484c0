//! Implements `dialects`: lists the dialects, including those defined in the user's tables.
//!
//! A table is written in `config.toml` as `[dialects.NAME]`, or in a file given with `--dialects`:
//! there in the same form, or alone with its keys at the top level and a `name` among them. For the
//! keys see [`sabir_call::dialect::DialectTable`].

use std::path::Path;
use std::process::ExitCode;

use sabir_session::chat_templates::{examine_templates, render_to_json};
use sabir_session::config;
use sabir_toolbox::dialects::{describe_dialect, list_dialects};
use sabir_toolbox::parse::find_dialect;
use sabir_toolbox::template::TemplateReports;

use crate::cli::OutputFormat;
use crate::commands::parse::read_stdin;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment::{self, runtime};
use crate::report_output::print_report;

/// Runs `sabir dialects` and `sabir help dialect`.
pub(crate) fn run_dialects(
    name: Option<&str>,
    output: OutputFormat,
) -> Result<ExitStatus, CommandError> {
    let dialects = process_environment::dialects();
    match name {
        None => print_report(&list_dialects(dialects), output)?,
        Some(name) => {
            let dialect = find_dialect(dialects, name, "")?;
            print_report(&describe_dialect(dialect), output)?;
        }
    }
    Ok(ExitStatus::Completed)
}

/// Runs `sabir dialects --from-template`.
pub(crate) fn run_from_template(
    file: &Path,
    output: OutputFormat,
) -> Result<ExitStatus, CommandError> {
    let is_standard_input = file.as_os_str() == "-";
    let text = match is_standard_input {
        true => String::from_utf8(read_stdin()?).map_err(|error| {
            CommandError::usage(format!("standard input cannot be read: {error}"))
        })?,
        false => config::read_text(file)?,
    };
    let examined =
        runtime()?.block_on(examine_templates(&text, process_environment::environment()));
    let reports = examined.map(TemplateReports).map_err(|error| {
        CommandError::usage(match is_standard_input {
            true => format!("standard input: {error}"),
            false => format!("{}: {error}", file.display()),
        })
    })?;
    print_report(&reports, output)?;
    Ok(match reports.is_recognized() {
        true => ExitStatus::Completed,
        false => ExitStatus::NotUnderstood,
    })
}

/// Renders the chat template on standard input, and prints the result for the process that started this one.
pub(crate) fn render_standard_input() -> ExitCode {
    match std::io::read_to_string(std::io::stdin()) {
        Ok(template) => {
            print::write_stdout_bytes(render_to_json(&template).as_bytes());
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}
