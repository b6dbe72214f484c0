//! Shows models the definitions of tools on demand, if all of them would make requests too large.

use std::sync::Weak;

use sabir_agent::{
    CallArguments, CallPermit, InvalidCall, PreparedCall, ProgressSink, Tool, ToolFuture,
    ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use serde_json::json;

use crate::mcp_tool::McpTool;
use crate::result_content::cut_text;
use crate::servers::ServerPool;

/// The name of the tool.
pub(crate) const FIND_TOOL: &str = "find_tool";
/// The most definitions in one result.
const MAX_FOUND: usize = 8;

/// The tool that finds others.
pub(crate) struct FindTool {
    /// The names of all tools that can be found, as the description lists them.
    pub(crate) name_list: String,
    pub(crate) pool: Weak<ServerPool>,
}

/// Lists the names of tools by server, in at most `max_bytes`.
pub(crate) fn list_names(tools: &[McpTool], max_bytes: usize) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    let mut server = None;
    for tool in tools {
        let separator = match server == Some(&tool.server) {
            true => " ".to_owned(),
            false => format!("\n{}: ", tool.server),
        };
        // The server's name once, not in each of its tools' names.
        if text.len() + separator.len() + tool.definition.name.len() > max_bytes {
            left_out += 1;
            continue;
        }
        server = Some(&tool.server);
        text.push_str(&separator);
        text.push_str(&tool.definition.name);
    }
    if left_out > 0 {
        text.push_str(&format!("\nand {left_out} more: search for them by words"));
    }
    text
}

/// Finds the tools that a query means: those that it names, otherwise those with most of its words in name or description.
pub(crate) fn find_matching<'a>(tools: &'a [McpTool], query: &str) -> Vec<&'a McpTool> {
    let words: Vec<String> = query
        .split(|c: char| c.is_whitespace() || ",;:/".contains(c))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let is_named = |tool: &&McpTool| {
        words.iter().any(|word| {
            *word == tool.shown_name.to_lowercase() || *word == tool.definition.name.to_lowercase()
        })
    };
    let named: Vec<_> = tools.iter().filter(is_named).take(MAX_FOUND).collect();
    if !named.is_empty() {
        return named;
    }
    let mut scored: Vec<(usize, &McpTool)> = tools
        .iter()
        .map(|tool| {
            let name = format!("{} {}", tool.server, tool.definition.name).to_lowercase();
            let description = tool.definition.description.to_lowercase();
            let score = words
                .iter()
                .map(|word| {
                    3 * usize::from(name.contains(word.as_str()))
                        + usize::from(description.contains(word.as_str()))
                })
                .sum();
            (score, tool)
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    // Stable: tools with the same score stay in the order of their servers.
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored
        .into_iter()
        .take(MAX_FOUND)
        .map(|(_, tool)| tool)
        .collect()
}

impl Tool for FindTool {
    fn spec(&self) -> ToolSpec {
        let description = format!(
            "Shows the definitions of tools of MCP servers, which can be called by the shown names afterwards. Name the tools, or describe \
             them in a few words. The tools by server:{}",
            self.name_list
        );
        let parameters = json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Names of tools, or words about them."}},
            "required": ["query"],
        });
        ToolSpec::new(FIND_TOOL, description, parameters)
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Server)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        match arguments.get("query").and_then(|query| query.as_str()) {
            Some(query) => Box::new(FindCall {
                query: query.to_owned(),
                pool: self.pool.clone(),
            }),
            None => InvalidCall::boxed("`query` is missing: name the tools to find"),
        }
    }
}

struct FindCall {
    query: String,
    pool: Weak<ServerPool>,
}

impl PreparedCall for FindCall {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let Some(pool) = self.pool.upgrade() else {
                return ToolOutput::failed("the servers of this task are stopped");
            };
            let found = pool.reveal_tools(&self.query);
            if found.is_empty() {
                return ToolOutput::failed(
                    "no tool fits; use words from the names in the description of this tool",
                );
            }
            let shown = found.iter().map(|spec| {
                format!(
                    "{}\n{}\narguments: {}\n",
                    spec.name, spec.description, spec.parameters
                )
            });
            ToolOutput::done(cut_text(
                &shown.collect::<Vec<_>>().join("\n"),
                crate::limits::MAX_RESULT_BYTES,
            ))
        })
    }
}
