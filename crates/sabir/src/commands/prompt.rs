//! Implements `prompt`: prints the system prompt that describes the tools, exactly as it would be
//! sent.

use sabir_call::{McpServerInfo, ParallelCalls, ToolChoice, ToolInstructions};
use serde_json::json;

use crate::cli::{OutputFormat, PromptArguments};
use crate::commands::parse;
use crate::exit::unknown_dialect;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::config;

/// Runs `sabir prompt`.
pub(crate) fn run_prompt(arguments: &PromptArguments) -> Result<ExitStatus, CommandError> {
    let dialect = surroundings::dialects()
        .find(&arguments.dialect)
        .ok_or_else(|| unknown_dialect(&arguments.dialect, ""))?;
    let tools = parse::load_tools(arguments.tools.as_deref())?;
    let servers: Vec<McpServerInfo> = match &arguments.servers {
        None => Vec::new(),
        Some(path) => serde_json::from_str(&config::read_text(path)?).map_err(|error| {
            CommandError::usage(format!(
                "{}: no JSON array of servers: {error}",
                path.display()
            ))
        })?,
    };
    let parallel = if arguments.one {
        ParallelCalls::One
    } else {
        ParallelCalls::Many
    };
    let text = ToolInstructions {
        tools: &tools,
        servers: &servers,
        parallel_calls: parallel,
        tool_choice: &ToolChoice::Auto,
    }
    .render_prompt(dialect);
    let bytes = text.len();
    let tokens = text.len().div_ceil(4);
    match arguments.output {
        OutputFormat::Text => {
            print::write_stdout(&text);
            print::write_stderr(&format!(
                "{bytes} bytes, about {tokens} tokens (bytes / 4)\n"
            ));
        }
        _ => print::print_json(
            &json!({"dialect": dialect.name, "prompt": text, "bytes": bytes, "tokens_estimated": tokens}),
        ),
    }
    Ok(ExitStatus::Completed)
}
