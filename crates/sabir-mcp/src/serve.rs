//! Offers tools to other programs, as an MCP server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServerHandler, serve_server};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::McpError;
use crate::limits::MAX_FRAME_BYTES;

/// The running work of a served tool.
pub type ServedFuture<'a> = Pin<Box<dyn Future<Output = ServedResult> + Send + 'a>>;

/// The result of a served tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResult {
    /// The text.
    pub text: String,
    /// Images: media type and base64 data.
    pub images: Vec<(String, String)>,
    /// True if the tool failed.
    pub failed: bool,
}

impl ServedResult {
    /// Creates the result of a success.
    pub fn done(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            images: Vec::new(),
            failed: false,
        }
    }

    /// Creates the result of a failure.
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            failed: true,
            ..Self::done(text)
        }
    }
}

/// A tool that is offered to other programs.
pub trait ServedTool: Send + Sync {
    /// Returns the name, the description and the schema of the arguments.
    fn spec(&self) -> sabir_call::ToolSpec;

    /// Reports whether the tool changes nothing.
    fn is_read_only(&self) -> bool;

    /// Runs a call. Dropping the future stops it.
    fn run(&self, arguments: Map<String, Value>) -> ServedFuture<'_>;
}

/// Serves one client over two streams, until it closes them. Writes nothing else to the output.
///
/// # Errors
/// When the handshake fails.
pub async fn serve_tools(
    tools: Vec<Arc<dyn ServedTool>>,
    instructions: &str,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), McpError> {
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(input, output)
        .with_max_line_length(MAX_FRAME_BYTES);
    let handler = ToolServer {
        tools,
        instructions: instructions.to_owned(),
    };
    let service = serve_server(handler, transport)
        .await
        .map_err(|error| McpError::Handshake(error.to_string()))?;
    match service.waiting().await {
        Ok(_) => Ok(()),
        Err(error) => Err(McpError::Closed(error.to_string())),
    }
}

/// Answers the requests of a client.
struct ToolServer {
    tools: Vec<Arc<dyn ServedTool>>,
    instructions: String,
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("sabir", env!("CARGO_PKG_VERSION")))
            .with_instructions(&self.instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(|tool| {
            let spec = tool.spec();
            let schema = match spec.parameters {
                Value::Object(schema) => schema,
                _ => Map::new(),
            };
            Tool::new(spec.name, spec.description, schema)
                .with_annotations(ToolAnnotations::new().read_only(tool.is_read_only()))
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut tools = self.tools.iter();
        let Some(tool) = tools.find(|tool| tool.spec().name == request.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool `{}`", request.name),
                None,
            ));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = tokio::select! {
            result = tool.run(arguments) => result,
            () = context.ct.cancelled() => ServedResult::failed("cancelled"),
        };
        let mut content = vec![ContentBlock::text(result.text)];
        let images = result.images.into_iter();
        content.extend(images.map(|(media_type, data)| ContentBlock::image(data, media_type)));
        Ok(match result.failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        }
        .into())
    }
}
