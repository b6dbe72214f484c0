//! Model Context Protocol: the tools of servers as Sabir's tools, and Sabir's tools as a server.
//!
//! # Client
//!
//! [`McpServers`] starts the servers of a list of [`McpServerSpec`]s in parallel, keeps them connected, and keeps a
//! [`ToolRegistry`](sabir_agent::ToolRegistry) up to date with their tools. It never blocks: a server that is slow or broken
//! delays nothing, and its tools appear when they are known.
//!
//! * A local server is a process under the supervisor of `sabir-workspace`, so neither it nor its
//!   children outlive this process. A remote one is reached over streamable HTTP.
//! * Everything that a server sends is untrusted and limited: lines, results, images, descriptions,
//!   schemas, standard error, the number of tools ([`limits`]).
//! * Models see one flat name for each tool ([`shown_tool_name`]), which is mapped back through a table and never parsed.
//! * The policy checks each call by the names of the server and the tool; hints of the server have
//!   no influence. A call of a tool whose definition differs from the approved one needs a new
//!   approval, whatever the rules allow ([`DefinitionStore`]).
//! * If the definitions of all tools exceed a budget, models get the names, and a tool that shows
//!   definitions on demand.
//!
//! # Server
//!
//! A [`ToolServer`] offers [`ServedTool`]s and texts: [`serve_over_streams`] to one client over standard input and output,
//! [`serve_over_http`] to many over streamable HTTP, with a token, checks of `Host` and `Origin`, and limits.
//!
//! # Configuration
//!
//! [`parse_server_file`] reads the files that other programs use for the same purpose, and [`McpServerSpec::expand`] replaces variables.
//! The crate reads no file, environment or clock: the caller provides them.

mod abandoned_call;
mod client_handler;
mod config_file;
mod connection;
mod connection_slots;
mod definition;
mod documentation_tool;
mod error;
mod find_tool;
pub mod limits;
mod line_guard;
mod login;
mod mcp_tool;
mod names;
mod prompts;
mod resource_tool;
mod result_content;
mod schema;
mod sent_secrets;
mod serve;
mod serve_http;
mod servers;
mod spec;
mod variables;
mod watched_resources;

pub use client_handler::{ElicitationAnswer, ElicitationForm, ElicitationRequest, UserElicitor};
pub use config_file::{ParsedServers, ServerFileError, parse_server_file, parse_settings_text};
pub use definition::{
    ApprovedDefinition, DefinitionState, DefinitionStore, NullDefinitionStore, ToolDefinition,
};
pub use documentation_tool::DocumentationTool;
pub use error::McpError;
pub use login::{
    IssuerMismatch, LoginAttempt, LoginError, LoginKey, LoginReport, LoginStore, LoginStoreError,
    NullLoginStore, OAuthGrant, OAuthSettings, Revocation, StoredLogin, revoke_login,
};
pub use names::{NameTable, shown_tool_name};
pub use prompts::{PromptArgument, PromptContent, ServerPrompt};
pub use schema::normalize_schema;
pub use serve::{
    ServedFuture, ServedResource, ServedResult, ServedTool, ToolServer, serve_over_streams,
};
pub use serve_http::{
    HTTP_PATH, HttpServeError, HttpServerLimits, HttpServerSettings, serve_over_http,
};
pub use servers::{
    ChangedResource, HttpClientFactory, McpNotice, McpServers, McpSettings, ServerState,
    ServerStatus, StartCheck, call_server_tool, list_server_tools,
};
pub use spec::{McpServerSpec, McpTransport, ToolSelection};
pub use variables::{UnsetVariable, expand_variables};
