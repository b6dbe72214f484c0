//! `load_mcp_documentation`: explains how an MCP server is created, under the name that Cline and
//! Roo use.

use sabir_agent::{
    CallArguments, CallPermit, PreparedCall, ProgressSink, Tool, ToolFuture, ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use serde_json::json;

/// Answers a call with an explanation of how to write and add a server. Models that were trained with Cline write such calls when the
/// user wants a new tool. The call is understood but not taught, because few tasks need it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DocumentationTool;

impl Tool for DocumentationTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        let description = "Explains how to create an MCP server.";
        ToolSpec::new("load_mcp_documentation", description, parameters)
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Read)
    }

    fn is_offered(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, _: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(DocumentationCall)
    }
}

struct DocumentationCall;

impl PreparedCall for DocumentationCall {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(ToolOutput::done(include_str!(
            "create_server.md"
        ))))
    }
}
