//! Renders the system prompt that describes the tools, exactly as it would be sent: the command `prompt`.

use std::io::{self, Write};

use sabir_call::dialect::Dialect;
use sabir_call::{McpServerInfo, ParallelCalls, ToolChoice, ToolInstructions, ToolSet};
use serde::Serialize;

use crate::error::ToolboxError;
use crate::report::Report;

/// The content of a prompt.
#[derive(Debug, Clone)]
pub struct PromptOptions<'d> {
    /// The dialect to teach.
    pub dialect: &'d Dialect,
    /// The tools.
    pub tools: ToolSet,
    /// The connected MCP servers.
    pub servers: Vec<McpServerInfo>,
    /// The number of calls that a message may have.
    pub parallel_calls: ParallelCalls,
}

/// Parses a JSON array of MCP servers: `{name, instructions, tools, resources}`. `source_name` appears in the error.
///
/// # Errors
/// The text is no such array.
pub fn parse_servers(text: &str, source_name: &str) -> Result<Vec<McpServerInfo>, ToolboxError> {
    serde_json::from_str(text).map_err(|error| ToolboxError::Servers {
        source_name: source_name.to_owned(),
        error,
    })
}

/// Renders the prompt.
pub fn render_prompt(options: &PromptOptions<'_>) -> PromptReport {
    let prompt = ToolInstructions {
        tools: &options.tools,
        servers: &options.servers,
        parallel_calls: options.parallel_calls,
        tool_choice: &ToolChoice::Auto,
    }
    .render_prompt(options.dialect);
    PromptReport {
        dialect: options.dialect.name,
        bytes: prompt.len(),
        // Four bytes per token is a rule of thumb for English; each model counts differently.
        tokens_estimated: prompt.len().div_ceil(4),
        prompt,
    }
}

/// The report of `prompt`. Its text is the prompt alone, so that it can be piped into a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptReport {
    /// The name of the dialect.
    pub dialect: &'static str,
    /// The prompt.
    pub prompt: String,
    /// Its size.
    pub bytes: usize,
    /// Its size in tokens, as bytes / 4.
    pub tokens_estimated: usize,
}

impl PromptReport {
    /// Renders the size for people, as one line.
    pub fn size_text(&self) -> String {
        format!(
            "{} bytes, about {} tokens (bytes / 4)\n",
            self.bytes, self.tokens_estimated
        )
    }
}

impl Report for PromptReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        // Not even a line feed is added: the text must be what a model would receive.
        out.write_all(self.prompt.as_bytes())
    }
}
