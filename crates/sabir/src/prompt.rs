//! `prompt`: the system prompt that teaches the tools, as it would be sent.

use sabir_call::dialect::dialect;
use sabir_call::{Lesson, Parallel, Server, ToolChoice};
use serde_json::json;

use crate::cli::{Output, PromptArguments};
use crate::exit::unknown_dialect;
use crate::exit::{Exit, Failure};
use crate::{parse, print};
use sabir_session::config;

/// `sabir prompt`.
pub(crate) fn prompt(arguments: &PromptArguments) -> Result<Exit, Failure> {
    let dialect = dialect(&arguments.dialect).ok_or_else(|| unknown_dialect(&arguments.dialect, ""))?;
    let tools = parse::load_tools(arguments.tools.as_deref())?;
    let servers: Vec<Server> = match &arguments.servers {
        None => Vec::new(),
        Some(path) => serde_json::from_str(&config::read_text(path)?)
            .map_err(|error| Failure::usage(format!("{}: no JSON array of servers: {error}", path.display())))?,
    };
    let parallel = if arguments.one { Parallel::One } else { Parallel::Many };
    let text = Lesson { tools: &tools, servers: &servers, parallel, choice: &ToolChoice::Auto }.teach(dialect);
    let (bytes, tokens) = (text.len(), text.len().div_ceil(4));
    match arguments.output {
        Output::Text => {
            print::out(&text);
            print::err(&format!("{bytes} bytes, about {tokens} tokens (bytes / 4)\n"));
        }
        _ => print::json(&json!({"dialect": dialect.name, "prompt": text, "bytes": bytes, "tokens_estimated": tokens})),
    }
    Ok(Exit::Completed)
}
