//! The `Model` trait: a request in, events out.
//!
//! The trait knows no runtime and no network: an implementation may be an HTTP client, a script or a recording. Dropping
//! the future cancels the request.

use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::DialectSet;
use crate::event::EventSink;
use crate::history::History;
use crate::message::OpaqueState;
use crate::tool::{ToolSet, ToolSpec};

/// How calls are asked for. Resolved once when a task starts, then locked for the task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolProtocol {
    /// The provider's own tool calling.
    #[default]
    Native,
    /// Tools are taught in the prompt; calls come as text in this dialect.
    Prompted(String),
}

impl ToolProtocol {
    /// `native`, or the dialect's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Prompted(dialect) => dialect,
        }
    }
}

/// Whether the model may, must or must not call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// No call.
    None,
    /// A call of this tool.
    Tool(String),
}

/// What is asked of a model. Neutral to wire and dialect.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt, without any teaching of tools: the protocol adds that.
    pub system: String,
    /// The history.
    pub messages: History,
    /// The tools on offer.
    pub tools: ToolSet,
    /// Servers whose tools are reached through other tools; prompted protocols describe them.
    pub servers: Vec<McpServerInfo>,
    /// Whether to call.
    pub tool_choice: ToolChoice,
    /// Whether one response may hold several calls.
    pub parallel_calls: ParallelCalls,
    /// How calls are asked for.
    pub protocol: ToolProtocol,
    /// The dialects that the session knows: the protocol names one of them, and the answer may hold calls in any.
    pub dialects: DialectSet,
    /// The most tokens to answer with; `None`: the provider's default, or the wire's if it insists on one.
    pub max_output_tokens: Option<u64>,
    /// How tokens are chosen, and where the answer ends.
    pub sampling: SamplingParams,
    /// How much to think before answering.
    pub reasoning: ReasoningConfig,
    /// What else is wished of the answer.
    pub options: RequestOptions,
}

/// How tokens are chosen, and where the answer ends. `None`: the provider's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// The temperature.
    pub temperature: Option<f64>,
    /// The share of the likeliest tokens that is chosen from, from 0 to 1.
    pub top_p: Option<f64>,
    /// How many of the likeliest tokens are chosen from.
    pub top_k: Option<u64>,
    /// What makes the same request give the same answer, as far as the provider can.
    pub seed: Option<i64>,
    /// How much a token is avoided that occurred at all, from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// How much a token is avoided each time that it occurred, from -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Text that ends the answer.
    pub stop: Vec<String>,
}

/// What else a request wishes of its answer. A wire that has no word for a wish leaves it out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestOptions {
    /// The form of the answer's words.
    pub format: ResponseFormat,
    /// How long the answer's words should be, in the provider's words (`low`, `medium`, `high`).
    pub verbosity: Option<String>,
    /// Who asks: a stable name that says nothing of the person.
    pub user: Option<String>,
    /// How soon to answer and at which price, in the provider's words.
    pub tier: Option<String>,
    /// What requests with the same beginning share, so that one provider's machine has it cached.
    pub cache_key: Option<String>,
    /// Whether the client marked what may be cached.
    pub cache: CacheControl,
    /// The tools whose arguments the provider is to hold to their schema.
    pub strict: Vec<String>,
    /// Tools of a provider's own, in its wire's form. One with the name of a tool on offer is that tool, as its wire says it.
    pub native: Vec<OpaqueState>,
}

/// The form of an answer's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any words.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// JSON that is valid for a schema.
    Schema {
        /// What the form is called; empty where nobody named it.
        name: String,
        /// The JSON Schema.
        schema: Value,
        /// Whether the provider is to guarantee it.
        strict: bool,
    },
}

/// Whether a client marked what may be cached. Where the marks stand is the wire's affair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheControl {
    /// No mark.
    #[default]
    Unmarked,
    /// There are marks.
    Marked,
}

/// How much a model thinks before it answers. A wire that has no word for a wish takes its nearest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningConfig {
    /// As the provider likes: nothing is said of it.
    #[default]
    Default,
    /// Not at all, where the model can be told so.
    Off,
    /// So much.
    Effort(ReasoningEffort),
    /// At most so many tokens.
    Tokens(u64),
}

/// How much to think, in the words that most wires have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// As little as can be.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
}

/// A connected MCP server, as a prompt describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpServerInfo {
    /// The name under which its tools are called.
    pub name: String,
    /// What the server says about itself.
    pub instructions: String,
    /// Its tools.
    pub tools: Vec<ToolSpec>,
    /// Its resources: address and description.
    pub resources: Vec<(String, String)>,
}

/// How many calls one response may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParallelCalls {
    /// Several.
    #[default]
    Many,
    /// One.
    One,
}

/// What went wrong with a request as a whole. A broken call is no such error: it is a fault among the events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind.
    pub kind: ModelErrorKind,
    /// One sentence for the user: what, where, what to do. Never holds a key.
    pub message: String,
}

/// Kinds of [`ModelError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// No key, or the key was refused.
    Key,
    /// The provider does not know the model.
    UnknownModel,
    /// The provider refused the request as it is; asking again is useless.
    Rejected,
    /// The history is longer than the model's context.
    TooLong,
    /// Too many requests, even after the retries.
    RateLimited,
    /// The provider is overloaded or failed, even after the retries.
    Unavailable,
    /// No connection, even after the retries.
    Unreachable,
    /// The stream fell silent or closed before the provider ended it. What came before it has been delivered.
    Broken,
    /// The answer is in no format that the wire knows.
    Format,
    /// A recording is played, and it does not hold what was asked. Nothing was sent.
    Cassette,
}

impl ModelErrorKind {
    /// Whether asking the same again may help.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::Unreachable | Self::Broken)
    }
}

/// The future that [`Model::stream_response`] returns.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<(), ModelError>> + Send + 'a>>;

/// A source of tokens.
pub trait Model: Send + Sync {
    /// Asks, and delivers the answer as events while it comes.
    ///
    /// Text, thoughts, calls and faults are in their final form: prompted dialects have been parsed. Every call that was
    /// opened has been closed or cut when the future ends, whether with success or an error. A request that fails before
    /// its first event may be retried inside; after the first event it is not.
    fn stream_response<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn EventSink + Send)) -> ResponseFuture<'a>;
}
