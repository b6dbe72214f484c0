//! Implements `parse` and `check` on standard input, and reads the input that other commands share with them.

use std::io::{IsTerminal, Read};
use std::path::Path;

use sabir_call::{Event, ParallelCalls, ToolSet};
use sabir_toolbox::ToolboxError;
use sabir_toolbox::parse::{
    EventLineWriter, ParseOptions, ParsedText, parse_text, parse_tools, select_dialect,
};
use sabir_toolbox::wire::detect_response_wire;

use crate::cli::{CheckArguments, OutputFormat, ParseArguments, RecognitionOptions};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{input_error, print};
use crate::process_environment;
use crate::report_output::{ReportOutput, print_report};

/// Runs `sabir parse`.
pub(crate) fn run_parse(arguments: &ParseArguments) -> Result<ExitStatus, CommandError> {
    let options = parse_options(&arguments.recognition)?;
    let input = read_text(&options)?;
    if arguments.output == OutputFormat::Events {
        let mut out = ReportOutput::json();
        let mut lines = EventLineWriter::new(&mut out);
        let parsed = parse_text(&input, &options, &mut lines);
        lines.finish().map_err(ToolboxError::from)?;
        return Ok(exit_status(&parsed));
    }
    let parsed = parse_text(&input, &options, &mut |_: Event<'_>| {});
    print_report(&parsed.report(), arguments.output)?;
    Ok(exit_status(&parsed))
}

/// Runs `sabir check` on standard input.
pub(crate) fn check_input(arguments: &CheckArguments) -> Result<ExitStatus, CommandError> {
    let options = parse_options(&arguments.recognition)?;
    let parsed = parse_text(&read_text(&options)?, &options, &mut |_: Event<'_>| {});
    print_report(&parsed.check_report(), arguments.output)?;
    Ok(exit_status(&parsed))
}

/// Returns the exit status for a text.
pub(crate) fn exit_status(parsed: &ParsedText) -> ExitStatus {
    if parsed.is_understood() {
        ExitStatus::Completed
    } else {
        ExitStatus::NotUnderstood
    }
}

/// Returns the options for the toolbox, which the flags and the configuration determine.
pub(crate) fn parse_options(
    flags: &RecognitionOptions,
) -> Result<ParseOptions<'static>, CommandError> {
    let dialects = process_environment::dialects();
    let dialect = select_dialect(dialects, &flags.dialect)?;
    let tools = load_tools(flags.reading.tools.as_deref())?;
    let config = process_environment::load_config()?;
    let disabled = config.disabled_repairs().iter().chain(&flags.no_repair);
    Ok(ParseOptions {
        dialects,
        dialect,
        tools,
        repairs: sabir_session::repairs_without(disabled)?,
        parallel_calls: parallel_calls(flags.one),
        chunk_bytes: flags.reading.chunk,
        prefill: flags.prefill.clone(),
        closes_last_call: sabir_session::closes_last_call(&flags.repair)?,
    })
}

/// Returns the number of calls that a message may have.
pub(crate) fn parallel_calls(one: bool) -> ParallelCalls {
    if one {
        ParallelCalls::One
    } else {
        ParallelCalls::Many
    }
}

/// Loads the tools of a file, or the built-in ones.
pub(crate) fn load_tools(path: Option<&Path>) -> Result<ToolSet, CommandError> {
    let Some(path) = path else {
        return Ok(sabir_session::built_in_tools());
    };
    let text = sabir_session::config::read_text(path)?;
    Ok(parse_tools(&text, &path.display().to_string())?)
}

/// Reads a model's text from standard input, and notes on standard error if it looks like a whole response of an API instead.
fn read_text(options: &ParseOptions<'_>) -> Result<Vec<u8>, CommandError> {
    let text = read_stdin()?;
    if options.dialect.is_none()
        && let Some(wire) = detect_response_wire(&text)
    {
        print::write_stderr(&format!(
            "note: this looks like a response of the wire {}; `sabir wire decode` reads it as one\n",
            wire.name()
        ));
    }
    Ok(text)
}

/// Reads all of standard input.
pub(crate) fn read_stdin() -> Result<Vec<u8>, CommandError> {
    if std::io::stdin().is_terminal() {
        print::write_stderr(
            "reading from the terminal; Ctrl-D on a line of its own ends the input\n",
        );
    }
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(input_error)?;
    Ok(bytes)
}
