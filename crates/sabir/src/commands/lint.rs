//! Implements `lint`: finds mistakes in tool definitions before a model has to work with them.

use std::path::Path;

use sabir_session::config;
use sabir_toolbox::lint::{LintOptions, lint_text};
use sabir_toolbox::parse::select_dialect;

use crate::cli::{DenyLevel, LintArguments};
use crate::commands::parse::read_stdin;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::print_report;

/// Runs `sabir lint`.
pub(crate) fn run_lint(arguments: &LintArguments) -> Result<ExitStatus, CommandError> {
    let dialects = process_environment::dialects();
    let dialect = select_dialect(dialects, &arguments.dialect)?;
    let (source_name, text) = read_tools(arguments)?;
    let options = LintOptions {
        dialects,
        dialect,
        deny_warnings: arguments.deny == Some(DenyLevel::Warnings),
        source_name,
    };
    let report = lint_text(&text, &options)?;
    if arguments.sarif {
        print::print_json(&report.to_sarif(&text));
    } else {
        print_report(&report, arguments.output)?;
    }
    Ok(if report.is_refused {
        ExitStatus::NotUnderstood
    } else {
        ExitStatus::Completed
    })
}

/// Reads the tools, and returns the name of the source and its text.
fn read_tools(arguments: &LintArguments) -> Result<(String, String), CommandError> {
    if let Some(target) = &arguments.mcp {
        let config = process_environment::load_config()?;
        let listed = sabir_session::mcp::lint_source(target, &config, Path::new("."));
        return Ok((
            target.clone(),
            process_environment::runtime()?.block_on(listed)?,
        ));
    }
    if let Some(file) = arguments
        .tools
        .as_ref()
        .filter(|file| file.as_os_str() != "-")
    {
        return Ok((file.display().to_string(), config::read_text(file)?));
    }
    let text = String::from_utf8(read_stdin()?)
        .map_err(|error| CommandError::usage(format!("standard input cannot be read: {error}")))?;
    Ok(("standard input".to_owned(), text))
}
