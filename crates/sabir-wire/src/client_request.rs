//! What a client asks and what it is told of the answer: a request that was read, what of it was left out, and the head of a
//! response.

use std::time::Duration;

use sabir_call::{Request, ToolChoice};
use serde_json::{Map, Value};

use crate::native_tools::{self, NamespacedTool};

/// A request that a client sent, read back.
#[derive(Debug, Clone)]
pub struct DecodedRequest {
    /// What is asked.
    pub request: Request,
    /// Whether the client wants a stream.
    pub streamed: bool,
    /// What it wants of the form of its answer.
    pub preferences: ResponsePreferences,
    /// What of the body is not in the request.
    pub notes: Vec<LossNote>,
}

/// What a client wants of the form of its answer, as far as its wire has words for that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsePreferences {
    /// Whether a stream tells the tokens.
    pub usage_reporting: UsageReporting,
    /// The tools whose calls hold one text and no JSON.
    pub freeform_tools: Vec<String>,
    /// The tools of namespaces, whose calls name both.
    pub namespaced_tools: Vec<NamespacedTool>,
    /// The text that ends the answer, where there is only one: then it is known which one did.
    pub only_stop_sequence: Option<String>,
    /// What the response repeats of the request.
    pub echoed_members: Map<String, Value>,
}

/// Whether a stream tells the tokens that an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageReporting {
    /// It does, where they are known.
    #[default]
    Reported,
    /// It does not: OpenAI Chat, unless the client asks for it.
    Hidden,
}

/// Something that a request says and that did not get to where it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossNote {
    /// Where it stands, such as `tools[3]`.
    pub path: String,
    /// What became of it.
    pub message: String,
}

/// Why a client's request cannot be read, or not be asked of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RequestError {
    /// Where, such as `messages[2].content[0].type`; `body` for the whole.
    pub path: String,
    /// What was expected, and what was found.
    pub message: String,
}

/// What a response says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseMetadata {
    /// The response's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970, as far as the caller knows.
    pub created: u64,
    /// How long the answer took, where the caller knows. Ollama tells it.
    pub total_duration: Duration,
    /// How much of that from its first piece on.
    pub generation_duration: Duration,
    /// What the client wants of the answer's form.
    pub preferences: ResponsePreferences,
}

impl DecodedRequest {
    /// A request of which everything was taken.
    pub fn new(request: Request, streamed: bool) -> Self {
        Self { request, streamed, preferences: ResponsePreferences::default(), notes: Vec::new() }
    }

    /// The head of the answer to this request. `id` is the response's own, `created` seconds since 1970.
    pub fn response_metadata(&self, id: impl Into<String>, created: u64) -> ResponseMetadata {
        let (model, wants) = (self.request.model.clone(), self.preferences.clone());
        ResponseMetadata {
            id: id.into(),
            model,
            created,
            total_duration: Duration::ZERO,
            generation_duration: Duration::ZERO,
            preferences: wants,
        }
    }
}

impl DecodedRequest {
    /// The same, if its choice of a tool can be met.
    ///
    /// # Errors
    /// A call is to be made of a tool that is not there.
    pub(crate) fn validate_tool_choice(self) -> Result<Self, RequestError> {
        let Request { tools, options: wishes, tool_choice: choice, .. } = &self.request;
        let own = |name: &str| {
            wishes
                .native
                .iter()
                .any(|tool| [native_tools::tool_name(tool), Some(native_tools::tool_type(tool))].contains(&Some(name)))
        };
        match choice {
            ToolChoice::Tool(name) if !tools.is_tool_offered(name) && !own(name) => Err(RequestError::new(
                "tool_choice",
                format!("`{name}` is not among the tools: offer it, or let the model choose"),
            )),
            ToolChoice::Required if tools.is_empty() && wishes.native.is_empty() => Err(RequestError::new(
                "tool_choice",
                "a call is to be made, and there are no tools: offer some in `tools`",
            )),
            _ => Ok(self),
        }
    }
}

impl ResponseMetadata {
    /// The id of a call: its own, or one made of the response's where it has none.
    pub(crate) fn call_id(&self, own: Option<&str>, index: u32) -> String {
        own.map_or_else(|| format!("{}_call_{index}", self.id), str::to_owned)
    }
}

impl LossNote {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl std::fmt::Display for LossNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl RequestError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}
