//! Implements `prompt`: prints the system prompt that describes the tools, exactly as it would be sent.

use sabir_session::config;
use sabir_toolbox::parse::find_dialect;
use sabir_toolbox::prompt::{PromptOptions, parse_servers, render_prompt};

use crate::cli::{OutputFormat, PromptArguments};
use crate::commands::parse;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::print_exact_report;

/// Runs `sabir prompt`.
pub(crate) fn run_prompt(arguments: &PromptArguments) -> Result<ExitStatus, CommandError> {
    let dialect = find_dialect(process_environment::dialects(), &arguments.dialect, "")?;
    let tools = parse::load_tools(arguments.tools.as_deref())?;
    let servers = match &arguments.servers {
        None => Vec::new(),
        Some(path) => parse_servers(&config::read_text(path)?, &path.display().to_string())?,
    };
    let report = render_prompt(&PromptOptions {
        dialect,
        tools,
        servers,
        parallel_calls: parse::parallel_calls(arguments.one),
    });
    print_exact_report(&report, arguments.output)?;
    if arguments.output == OutputFormat::Text {
        print::write_stderr(&report.size_text());
    }
    Ok(ExitStatus::Completed)
}
