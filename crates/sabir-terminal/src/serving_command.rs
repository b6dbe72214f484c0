//! Commands for people who serve models: their arguments, and what they do.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sabir_session::call::ParallelCalls;
use sabir_session::call::dialect::DialectSet;
use sabir_session::{SessionError, built_in_tools, config};
use sabir_toolbox::ToolboxError;
use sabir_toolbox::grammar::{GrammarOptions, derive_grammar};
use sabir_toolbox::parse::{find_dialect, parse_tools};
use sabir_toolbox::report::Report;

use crate::print;
use crate::report_output::ReportOutput;

/// A command for people who serve models.
#[derive(Debug, Subcommand)]
pub enum ServingCommand {
    /// Print a grammar for constrained decoding: a model that is held to it writes only valid calls of these tools.
    ///
    /// The grammar describes a message of calls in the dialect. What it cannot express of a schema is named on standard error. See
    /// `sabir help grammars`.
    Grammar(GrammarArguments),
}

/// Options of `sabir grammar`.
#[derive(Debug, Args)]
pub struct GrammarArguments {
    /// The dialect of the calls. `sabir dialects` lists them.
    #[arg(long)]
    dialect: String,
    /// A JSON array of `{name, description, parameters}`, or another API's list, as for `sabir parse`; by default the built-in tools.
    #[arg(long)]
    tools: Option<PathBuf>,
    /// The format: `gbnf` for llama.cpp, `lark` for llguidance, `json-schema`, `structural-tag` for XGrammar, or `regex`.
    #[arg(long, value_name = "FORMAT", default_value = "gbnf")]
    format: String,
    /// Accept several calls in a message.
    #[arg(long)]
    many: bool,
    /// Print a JSON object with the grammar and what it leaves to the check.
    #[arg(long)]
    json: bool,
}

/// A reason why a command for people who serve models has no result.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// A file cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The options or the input cannot be used.
    #[error(transparent)]
    Toolbox(#[from] ToolboxError),
    /// A format's name is not known.
    #[error(transparent)]
    Format(#[from] sabir_toolbox::grammar::UnknownFormat),
}

/// Runs a command. `dialects` are the known ones, with those of the user.
///
/// # Errors
/// When a file cannot be read, or the command has no result.
pub fn run_serving_command(
    command: &ServingCommand,
    dialects: &DialectSet,
) -> Result<(), ServingError> {
    match command {
        ServingCommand::Grammar(arguments) => run_grammar(arguments, dialects),
    }
}

fn run_grammar(arguments: &GrammarArguments, dialects: &DialectSet) -> Result<(), ServingError> {
    let tools = match &arguments.tools {
        None => built_in_tools(),
        Some(path) => parse_tools(&config::read_text(path)?, &path.display().to_string())?,
    };
    let report = derive_grammar(&GrammarOptions {
        dialect: find_dialect(dialects, &arguments.dialect, "")?,
        tools,
        format: arguments.format.parse()?,
        parallel_calls: if arguments.many {
            ParallelCalls::Many
        } else {
            ParallelCalls::One
        },
    })?;
    let written = if arguments.json {
        report.write_json(&mut ReportOutput::json())
    } else {
        print::write_stderr(&print::sanitize_text(&report.relaxation_text()));
        report.write_text(&mut ReportOutput::exact())
    };
    Ok(written.map_err(ToolboxError::from)?)
}
