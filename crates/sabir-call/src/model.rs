//! Defines the `Model` trait: a request in, a stream of events out.
//!
//! The trait depends on no runtime and no network: an implementation may be an HTTP client, a
//! script or a recording. Dropping the future cancels the request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::DialectSet;
use crate::escaping::ContentEscaping;
use crate::event::EventSink;
use crate::history::History;
use crate::message::OpaqueState;
use crate::provider_report::ProviderReportSlot;
use crate::tool::{ToolSet, ToolSpec};

/// The way in which the model is asked to call tools. Resolved once when a task starts, then fixed
/// for the task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolProtocol {
    /// The provider's own tool calling.
    #[default]
    Native,
    /// Tools are described in the prompt; calls arrive as text in the named dialect.
    Prompted(String),
}

impl ToolProtocol {
    /// Returns `native`, or the dialect's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Prompted(dialect) => dialect,
        }
    }
}

/// The constraint on calling tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must make at least one call.
    Required,
    /// The model must not call.
    None,
    /// The model must call this tool.
    Tool(String),
}

/// A request to a model, independent of wire and dialect.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt, without tool instructions: the protocol adds those.
    pub system: String,
    /// The messages.
    pub messages: History,
    /// The offered tools.
    pub tools: ToolSet,
    /// MCP servers whose tools are called through other tools; prompted protocols describe them.
    pub servers: Vec<McpServerInfo>,
    /// The constraint on calling tools.
    pub tool_choice: ToolChoice,
    /// The number of calls that one response may hold.
    pub parallel_calls: ParallelCalls,
    /// The way in which the model is asked to call tools.
    pub protocol: ToolProtocol,
    /// The dialects that the session knows. The protocol names one of them, and the response may hold calls in any.
    pub dialects: DialectSet,
    /// The maximum number of output tokens; `None` means the provider's default, or the wire's
    /// where the API requires a number.
    pub max_output_tokens: Option<u64>,
    /// Sampling parameters and stop sequences.
    pub sampling: SamplingParams,
    /// The amount of reasoning before the answer.
    pub reasoning: ReasoningConfig,
    /// Further options for the response.
    pub options: RequestOptions,
    /// The treatment of calls that a native response writes as text. [`TextRecovery::Off`] leaves the
    /// text alone; the caller decides about the rest.
    pub recovery: TextRecovery,
    /// The escaping of foreign text in what is sent; by default none.
    pub escaping: ContentEscaping,
    /// Instructions in the middle of the history, in order, for wires that can express them.
    /// [`system`](Self::system) does not repeat them.
    pub instructions: Vec<InlineInstruction>,
    /// The body that a client sent, for a provider of the same wire; `None` for a request of our own.
    pub client_body: Option<ClientBody>,
    /// The slot for the report about the provider's response; by default none is kept.
    pub report: ProviderReportSlot,
}

/// An instruction in the middle of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineInstruction {
    /// The number of messages before it.
    pub after: usize,
    /// The text.
    pub text: String,
}

/// The body of a request as a client sent it, which may contain more than the common form can
/// express.
///
/// A provider of the same wire gets it unchanged but for what had to be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientBody {
    /// The name of the client's wire.
    pub wire: String,
    /// The body.
    pub body: Arc<Value>,
    /// Headers of the client that belong to the body, such as `anthropic-beta`; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The number of messages of the common form that the body contains. Later ones are added to
    /// it.
    pub messages: usize,
    /// True if tools and history stay as the client wrote them. In a prompted protocol they become
    /// text, and only members without a place in the common form are taken from the body.
    pub keeps_history: bool,
}

/// The treatment of calls that a model writes as text although it was offered native calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextRecovery {
    /// Text is never read for calls.
    Off,
    /// Such calls are read, and asked about even where their kind is approved.
    #[default]
    Ask,
    /// Such calls are read and treated like native ones.
    On,
}

impl std::str::FromStr for TextRecovery {
    type Err = ParseTextRecoveryError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "off" => Ok(Self::Off),
            "ask" => Ok(Self::Ask),
            "on" => Ok(Self::On),
            _ => Err(ParseTextRecoveryError(name.to_owned())),
        }
    }
}

/// The name of no [`TextRecovery`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of recovery: use off, ask or on")]
pub struct ParseTextRecoveryError(pub String);

/// Sampling parameters and stop sequences. `None` means the provider's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The probability mass of the likeliest tokens to sample from, from 0 to 1.
    pub top_p: Option<f64>,
    /// The number of likeliest tokens to sample from.
    pub top_k: Option<u64>,
    /// The seed for reproducible sampling, as far as the provider supports it.
    pub seed: Option<i64>,
    /// The penalty for tokens that already occurred, from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// The penalty for each earlier occurrence of a token, from -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Sequences that end the response.
    pub stop: Vec<String>,
}

/// Further options for the response. A wire without such an option ignores it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestOptions {
    /// The format of the response text.
    pub format: ResponseFormat,
    /// The verbosity, in the provider's terms (`low`, `medium`, `high`).
    pub verbosity: Option<String>,
    /// A stable identifier of the end user that reveals nothing about the person.
    pub user: Option<String>,
    /// The service tier (latency and price), in the provider's terms.
    pub tier: Option<String>,
    /// The key that routes requests with a common prefix to the same cache.
    pub cache_key: Option<String>,
    /// The client's cache markers.
    pub cache: CacheControl,
    /// The tools for which the provider must enforce the argument schema.
    pub strict: Vec<String>,
    /// Provider-defined tools, in the form of their wire. One with the name of an offered tool
    /// replaces that tool's definition on its wire.
    pub native: Vec<OpaqueState>,
}

/// The format of the response text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// JSON that is valid for a schema.
    Schema {
        /// The name of the schema; empty if it has none.
        name: String,
        /// The JSON Schema.
        schema: Value,
        /// True if the provider must guarantee validity.
        strict: bool,
    },
}

/// The presence of cache markers from the client. The wire decides where to put them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheControl {
    /// No markers.
    #[default]
    Unmarked,
    /// The client set markers.
    Marked,
}

/// The amount of reasoning before the answer. A wire without an exact equivalent uses the nearest
/// setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningConfig {
    /// The provider's default: the request does not mention reasoning.
    #[default]
    Default,
    /// No reasoning, where the model allows that.
    Off,
    /// An effort level.
    Effort(ReasoningEffort),
    /// A maximum number of reasoning tokens.
    Tokens(u64),
}

/// The reasoning effort levels that most wires support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// The least possible.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
}

/// A connected MCP server, for the description in a prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpServerInfo {
    /// The name under which its tools are called.
    pub name: String,
    /// The server's own instructions.
    pub instructions: String,
    /// The server's tools.
    pub tools: Vec<ToolSpec>,
    /// The server's resources: address and description.
    pub resources: Vec<(String, String)>,
}

/// The number of calls that one response may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParallelCalls {
    /// Any number.
    #[default]
    Many,
    /// At most one.
    One,
}

impl std::str::FromStr for ParallelCalls {
    type Err = ParseParallelCallsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1" => Ok(Self::One),
            "many" => Ok(Self::Many),
            _ => Err(ParseParallelCallsError(text.to_owned())),
        }
    }
}

/// A text that is not a [`ParallelCalls`] value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of calls for a message: use 1, or many")]
pub struct ParseParallelCallsError(pub String);

/// A failure of a request as a whole. A broken call is not such an error; it is a fault among the
/// events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// One sentence for the user: the problem, its place, and a remedy. Never contains a key.
    pub message: String,
}

/// The kinds of [`ModelError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// No key, or the key was refused.
    Key,
    /// The provider does not know the model.
    UnknownModel,
    /// The provider rejected the request itself; a retry is useless.
    Rejected,
    /// The history exceeds the model's context.
    TooLong,
    /// The rate limit was hit, even after the retries.
    RateLimited,
    /// The provider is overloaded or failed, even after the retries.
    Unavailable,
    /// The connection failed, even after the retries.
    Unreachable,
    /// The stream went silent or closed before its end. Events before that point were delivered.
    Broken,
    /// The response has a format that the wire does not know.
    Format,
    /// A recording is being replayed and does not contain this request. Nothing was sent.
    Cassette,
}

impl ModelErrorKind {
    /// Returns true if a retry of the same request may succeed.
    pub fn is_transient(self) -> bool {
        // The other kinds describe the request itself, and would recur.
        matches!(
            self,
            Self::RateLimited | Self::Unavailable | Self::Unreachable | Self::Broken
        )
    }
}

/// The future that [`Model::stream_response`] returns.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<(), ModelError>> + Send + 'a>>;

/// A language model, or anything that answers like one.
pub trait Model: Send + Sync {
    /// Sends the request and delivers the response as events while it arrives.
    ///
    /// Text, thoughts, calls and faults are in their final form: prompted dialects are already
    /// parsed. When the future ends, successfully or with an error, every opened call has been
    /// closed or cut. An implementation may retry a request that fails before its first event, but
    /// never after it, because the sink would see events twice.
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a>;
}
