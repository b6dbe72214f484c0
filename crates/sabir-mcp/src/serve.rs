//! Offers tools and texts to other programs, as an MCP server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Resource, ResourceContents, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServerHandler, serve_server};
use sabir_agent::ProgressSink;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::error::McpError;
use crate::limits::{MAX_FRAME_BYTES, MAX_SERVED_CALLS, PROGRESS_INTERVAL};

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

    /// Runs a call. Its output so far goes to `progress`. Dropping the future stops it.
    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        progress: ProgressSink<'a>,
    ) -> ServedFuture<'a>;
}

/// A text that is offered to other programs, as a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// Its address, such as `sabir://help/policy`.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// A sentence about it.
    pub description: String,
    /// The text, in Markdown.
    pub text: &'static str,
}

/// Serves one client over two streams, until it closes them. Writes nothing else to the output.
///
/// # Errors
/// When the handshake fails.
pub async fn serve_over_streams(
    server: ToolServer,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), McpError> {
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(input, output)
        .with_max_line_length(MAX_FRAME_BYTES);
    let service = serve_server(server, transport)
        .await
        .map_err(|error| McpError::Handshake(error.to_string()))?;
    match service.waiting().await {
        Ok(_) => Ok(()),
        Err(error) => Err(McpError::Closed(error.to_string())),
    }
}

/// Answers the requests of clients with tools and texts. Clones share them, and the limit of concurrent calls.
#[derive(Clone)]
pub struct ToolServer {
    tools: Arc<[Arc<dyn ServedTool>]>,
    texts: Arc<[ServedResource]>,
    instructions: Arc<str>,
    /// The slots for calls that run. A client that does not wait for its answers cannot start more.
    calls: Arc<Semaphore>,
}

impl ToolServer {
    /// Creates a server of these tools and texts.
    pub fn new(
        tools: Vec<Arc<dyn ServedTool>>,
        texts: Vec<ServedResource>,
        instructions: &str,
    ) -> Self {
        Self {
            tools: tools.into(),
            texts: texts.into(),
            instructions: instructions.into(),
            calls: Arc::new(Semaphore::new(MAX_SERVED_CALLS)),
        }
    }

    /// Runs a call, and reports its output as progress if the client asked for that.
    async fn run_call(
        &self,
        tool: &dyn ServedTool,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> ServedResult {
        let Ok(_slot) = self.calls.acquire().await else {
            return ServedResult::failed("the server has ended");
        };
        let Some(token) = context.meta.get_progress_token() else {
            return tool.run(arguments, &mut |_| {}).await;
        };
        // Only the newest piece is kept, so that output for a slow client does not pile up.
        let newest = watch::Sender::new(String::new());
        let mut pieces = newest.subscribe();
        let mut note = |piece: &str| {
            newest.send_replace(piece.trim_end().to_owned());
        };
        let mut run = std::pin::pin!(tool.run(arguments, &mut note));
        let mut next = Instant::now();
        let mut count = 0.0;
        loop {
            tokio::select! {
                result = &mut run => return result,
                Ok(()) = async { sleep_until(next).await; pieces.changed().await } => {
                    count += 1.0;
                    next = Instant::now() + PROGRESS_INTERVAL;
                    let message = pieces.borrow_and_update().clone();
                    let progress = ProgressNotificationParam::new(token.clone(), count);
                    // A client that is gone is noticed by the transport, which cancels the call.
                    let _ = context.peer.notify_progress(progress.with_message(message)).await;
                }
            }
        }
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools();
        let capabilities = match self.texts.is_empty() {
            true => capabilities.build(),
            false => capabilities.enable_resources().build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("sabir", env!("CARGO_PKG_VERSION")))
            .with_instructions(&*self.instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(|tool| tool_definition(&**tool));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    /// Returns a tool's definition, against which the transport checks headers that repeat arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tools = self.tools.iter();
        let tool = tools.find(|tool| tool.spec().name == name)?;
        Some(tool_definition(&**tool))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let texts = self.texts.iter().map(|text| {
            Resource::new(&text.uri, &text.name)
                .with_description(&text.description)
                .with_mime_type("text/markdown")
                .with_size(text.text.len() as u64)
        });
        Ok(ListResourcesResult::with_all_items(texts.collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mut texts = self.texts.iter();
        let Some(text) = texts.find(|text| text.uri == request.uri) else {
            return Err(ErrorData::resource_not_found(
                format!("there is no resource `{}`", request.uri),
                Some(json!({"uri": request.uri})),
            ));
        };
        let contents = ResourceContents::text(text.text, &text.uri).with_mime_type("text/markdown");
        Ok(ReadResourceResult::new(vec![contents]).into())
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
            result = self.run_call(&**tool, arguments, &context) => result,
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

/// Returns the definition of a tool for clients.
fn tool_definition(tool: &dyn ServedTool) -> Tool {
    let spec = tool.spec();
    let schema = match spec.parameters {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    Tool::new(spec.name, spec.description, schema)
        .with_annotations(ToolAnnotations::new().read_only(tool.is_read_only()))
}
