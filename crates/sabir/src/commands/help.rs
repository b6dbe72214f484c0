//! Implements `help`, which prints help on a command, a dialect, a tool, the configuration, the lints or
//! one of the documents, and `man`, which writes the help of all commands as man pages.

use std::path::Path;

use sabir_session::tool_help;
use sabir_terminal::command_names::command_help;
use sabir_terminal::config_text;
use sabir_terminal::shell_setup::{main_page, write_pages};
use sabir_toolbox::documents::{describe_lints, document_names, find_document};

use crate::cli::{Cli, OutputFormat};
use crate::commands::dialects;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

/// The topics that are neither a command nor a document.
const TOPICS: [&str; 5] = ["config", "dialect", "lints", "tool", "tools"];

/// Runs `sabir help`.
pub(crate) fn run_help(topic: &[String]) -> Result<ExitStatus, CommandError> {
    let words: Vec<_> = topic.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["config"] => {
            let width = print::terminal_width().unwrap_or(usize::MAX);
            print::write_stdout(&config_text::reference_text(width));
        }
        ["dialect", name] => return dialects::run_dialects(Some(name), OutputFormat::Text),
        ["dialect"] => return dialects::run_dialects(None, OutputFormat::Text),
        ["lints"] => print::write_stdout(&describe_lints()),
        ["tools" | "tool"] => print::write_stdout(&tool_help::list_tools()),
        ["tool", name] => print::write_stdout(tool_help::tool_manual(name)?),
        [name] if let Some(text) = find_document(name) => print::write_stdout(text),
        words => {
            let topics: Vec<_> = TOPICS.into_iter().chain(document_names()).collect();
            let help = command_help(Cli::grouped_command(), words, &topics);
            let help = help.map_err(|error| CommandError::usage(error.to_string()))?;
            print::write_stdout(&help);
        }
    }
    Ok(ExitStatus::Completed)
}

/// Runs `sabir man`.
pub(crate) fn run_man(folder: Option<&Path>) -> Result<ExitStatus, CommandError> {
    let command = Cli::grouped_command();
    let written = match folder {
        None => main_page(command).map(|page| print::write_stdout_bytes(&page)),
        Some(folder) => std::fs::create_dir_all(folder).and_then(|()| write_pages(command, folder)),
    };
    let failed = |error| CommandError::usage(format!("the man pages cannot be written: {error}"));
    written.map_err(failed)?;
    Ok(ExitStatus::Completed)
}
