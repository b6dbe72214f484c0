//! `use_mcp_tool` and `access_mcp_resource`: call tools and read resources of servers in the form
//! of Cline and Roo.

use std::sync::Weak;

use rmcp::model::{Resource, ResourceTemplate};
use sabir_agent::{
    CallArguments, CallPermit, InvalidCall, PreparedCall, ProgressSink, Tool, ToolFuture,
    ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use serde_json::{Value, json};

use crate::result_content::{ResultContent, one_line};
use crate::servers::ServerPool;

/// The name of the tool that calls any tool of a server.
pub(crate) const USE_TOOL: &str = "use_mcp_tool";
/// The name of the tool that reads resources.
pub(crate) const ACCESS_RESOURCE: &str = "access_mcp_resource";
/// The most resources in one listing.
const MAX_LISTED: usize = 200;

/// Calls a tool by its server's name and its own. Models that were trained with Cline or Roo write such calls, so they are understood;
/// no model is taught them, because each tool has a name of its own.
pub(crate) struct UseMcpTool {
    pub(crate) pool: Weak<ServerPool>,
}

fn text_argument<'a>(arguments: &'a CallArguments, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str).map(str::trim)
}

impl Tool for UseMcpTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({
            "type": "object",
            "properties": {
                "server_name": {"type": "string", "description": "The server."},
                "tool_name": {"type": "string", "description": "The tool."},
                "arguments": {"type": "object", "description": "The arguments of the tool."},
            },
            "required": ["server_name", "tool_name"],
        });
        ToolSpec::new(USE_TOOL, "Calls a tool of an MCP server.", parameters)
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Server)
    }

    fn is_offered(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let server = text_argument(arguments, "server_name").unwrap_or_default();
        let tool = text_argument(arguments, "tool_name").unwrap_or_default();
        let inner = match arguments.get("arguments") {
            None | Some(Value::Null) => CallArguments::new(),
            Some(Value::Object(inner)) => inner.clone(),
            // Written as text, as prompted models do.
            Some(Value::String(text)) => match serde_json::from_str(text) {
                Ok(inner) => inner,
                Err(error) => {
                    return InvalidCall::boxed(format!("`arguments` is not JSON object: {error}"));
                }
            },
            Some(_) => return InvalidCall::boxed("`arguments` must be a JSON object"),
        };
        let Some(pool) = self.pool.upgrade() else {
            return InvalidCall::boxed("the servers of this task are stopped");
        };
        match pool.find_tool(server, tool) {
            Ok(tool) => Box::new(tool.prepare_call(&inner)),
            Err(error) => InvalidCall::boxed(error.to_string()),
        }
    }
}

/// Reads a resource of a server, or lists its resources.
pub(crate) struct ResourceTool {
    /// The names of the servers that have resources.
    pub(crate) servers: Vec<String>,
    pub(crate) pool: Weak<ServerPool>,
}

impl Tool for ResourceTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({
            "type": "object",
            "properties": {
                "server_name": {"type": "string", "description": "The server."},
                "uri": {"type": "string", "description": "The address of the resource. Without it, the server's resources are listed."},
            },
            "required": ["server_name"],
        });
        let description = format!(
            "Reads a resource of an MCP server, or lists its resources. Servers with resources: {}.",
            self.servers.join(", ")
        );
        ToolSpec::new(ACCESS_RESOURCE, description, parameters)
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Server)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let Some(server) = text_argument(arguments, "server_name") else {
            return InvalidCall::boxed("`server_name` is missing");
        };
        let uri = text_argument(arguments, "uri").filter(|uri| !uri.is_empty());
        Box::new(ResourceCall {
            server: server.to_owned(),
            uri: uri.map(str::to_owned),
            pool: self.pool.clone(),
        })
    }
}

struct ResourceCall {
    server: String,
    uri: Option<String>,
    pool: Weak<ServerPool>,
}

impl PreparedCall for ResourceCall {
    fn access(&self) -> Access {
        match &self.uri {
            // The list is known already.
            None => Access::Nothing,
            Some(uri) => Access::Server {
                server: self.server.clone(),
                tool: format!("{ACCESS_RESOURCE} {}", one_line(uri)),
                caution: None,
            },
        }
    }

    fn preview(&self) -> Option<String> {
        self.uri.clone()
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let Some(pool) = self.pool.upgrade() else {
                return ToolOutput::failed("the servers of this task are stopped");
            };
            let Some(uri) = &self.uri else {
                return match pool.list_resources(&self.server) {
                    Ok(lines) => ToolOutput::done(lines.join("\n")),
                    Err(error) => ToolOutput::failed(error.to_string()),
                };
            };
            let read = async { pool.connection(&self.server)?.read_resource(uri).await };
            match read.await {
                Ok(result) => {
                    let mut content = ResultContent::default();
                    for contents in &result.contents {
                        content.push_resource(contents);
                    }
                    content.into_output(false)
                }
                Err(error) => ToolOutput::failed(format!(
                    "the resource {} of the server {} cannot be read: {error}",
                    one_line(uri),
                    self.server
                )),
            }
        })
    }
}

/// Writes resources and the patterns of addresses as lines.
pub(crate) fn resource_lines(
    resources: &[Resource],
    templates: &[ResourceTemplate],
) -> Vec<String> {
    let describe = |uri: &str, name: &str, description: &Option<String>| {
        let line = format!("{}: {}", one_line(uri), one_line(name));
        match description.as_deref().map(one_line) {
            Some(text) if !text.is_empty() => format!("{line}: {text}"),
            _ => line,
        }
    };
    let mut lines: Vec<String> = resources
        .iter()
        .take(MAX_LISTED)
        .map(|resource| describe(&resource.uri, &resource.name, &resource.description))
        .collect();
    if resources.len() > MAX_LISTED {
        lines.push(format!("and {} more", resources.len() - MAX_LISTED));
    }
    if !templates.is_empty() {
        lines.push("Addresses with parts to fill in:".to_owned());
        let some = templates.iter().take(MAX_LISTED);
        lines.extend(some.map(|one| describe(&one.uri_template, &one.name, &one.description)));
        if templates.len() > MAX_LISTED {
            lines.push(format!("and {} more", templates.len() - MAX_LISTED));
        }
    }
    if lines.is_empty() {
        lines.push("(no resources)".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_addresses_are_listed_too() {
        let resource: Resource =
            serde_json::from_value(json!({"uri": "memo://1", "name": "one"})).unwrap();
        let template =
            json!({"uriTemplate": "memo://{id}", "name": "memo", "description": "A memo."});
        let template: ResourceTemplate = serde_json::from_value(template).unwrap();
        let lines = resource_lines(&[resource], &[template]);
        assert_eq!(
            lines,
            [
                "memo://1: one",
                "Addresses with parts to fill in:",
                "memo://{id}: memo: A memo."
            ]
        );
        assert_eq!(resource_lines(&[], &[]), ["(no resources)"]);
    }
}
