//! A client's decoded request, the notes on what was left out of it, and the metadata of the
//! response to it.

use std::time::Duration;

use sabir_call::{Request, ToolChoice};
use serde_json::{Map, Value};

use crate::field::{InstructionPosition, place_instructions};
use crate::native_tools::{self, NamespacedTool};
use crate::surrogates::locate_lone_surrogate;

/// A decoded request from a client.
///
/// It does not contain its original wire: the request can be sent to any provider, and the response
/// comes back in the form that `preferences` asks for.
#[derive(Debug, Clone)]
pub struct DecodedRequest {
    /// The request in the common form.
    pub request: Request,
    /// True if the client wants a stream.
    pub streamed: bool,
    /// The client's preferences for the form of the response.
    pub preferences: ResponsePreferences,
    /// Parts of the body that are not in the request.
    pub notes: Vec<LossNote>,
    /// Parts of a body for a provider of the same wire that are lost if its tools and its history
    /// are rewritten, as in a prompted protocol.
    pub rewrite_notes: Vec<LossNote>,
    /// The reason why the history could not be read, of a body that goes to a provider of the same
    /// wire. Then the request has no messages, and only the body may be sent.
    pub unread_history: Option<RequestError>,
    /// The places of instructions in the middle of the history.
    pub(crate) instructions: Vec<InstructionPosition>,
    /// The system prompt without those instructions.
    pub(crate) leading_system: String,
}

/// A client's preferences for the form of its response, as far as its wire can express them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponsePreferences {
    /// The client's choice whether a stream reports token counts.
    pub usage_reporting: UsageReporting,
    /// The tools whose calls carry one plain text instead of JSON.
    ///
    /// In the common form such a tool has one string argument, `input`. OpenAI calls it a custom
    /// tool.
    pub custom_tool_names: Vec<String>,
    /// The tools of namespaces; their calls name the namespace and the tool.
    pub namespaced_tools: Vec<NamespacedTool>,
    /// The stop sequence, if the client set exactly one: only then a response can say which one
    /// matched.
    pub only_stop_sequence: Option<String>,
    /// True if the client knows only the older form of functions (OpenAI Chat): a call is a
    /// `function_call`, and an answer has one at most.
    pub legacy_functions: bool,
    /// Request members that the response repeats.
    pub echoed_members: Map<String, Value>,
}

/// The client's choice whether a stream reports the tokens that the response took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageReporting {
    /// Token counts are reported where they are known.
    #[default]
    Reported,
    /// Token counts are left out: the default of OpenAI Chat.
    Hidden,
}

/// A note on something in a request that was lost or changed on its way.
///
/// Notes do not stop a request. The gateway shows them to its operator, because a client would
/// otherwise never learn why an option had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossNote {
    /// The path in the request, such as `tools[3]`.
    pub path: String,
    /// The reason or the effect of the loss.
    pub message: String,
}

/// A client's request that cannot be decoded, or cannot be sent to a provider.
///
/// It displays as `path: message`, and becomes an error with HTTP status 400 on every wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RequestError {
    /// The path in the request, such as `messages[2].content[0].type`; `body` for the whole.
    pub path: String,
    /// The expected and the found value.
    pub message: String,
}

/// The metadata that a response carries about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseMetadata {
    /// The response's id.
    ///
    /// Clients see it, and call ids that the provider did not give are derived from it, so it must
    /// be unique in a conversation.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The creation time in seconds since 1970, as far as the caller knows.
    ///
    /// OpenAI's and Ollama's wires write it; the crate itself reads no clock.
    pub created: u64,
    /// The time that the response took, where the caller knows. Only Ollama's wire reports it.
    pub total_duration: Duration,
    /// The part of that time from the first piece of the response on.
    pub generation_duration: Duration,
    /// The number of this choice, of a response with several. Only Chat Completions has them.
    pub choice: u64,
    /// The client's preferences for the form of the response.
    pub preferences: ResponsePreferences,
}

impl DecodedRequest {
    /// Creates a decoded request of which nothing was left out.
    pub fn new(request: Request, streamed: bool) -> Self {
        Self {
            request,
            streamed,
            preferences: ResponsePreferences::default(),
            notes: Vec::new(),
            rewrite_notes: Vec::new(),
            unread_history: None,
            instructions: Vec::new(),
            leading_system: String::new(),
        }
    }

    /// Moves instructions from the system prompt back to their places in the history, for a wire
    /// that can express them ([`Wire::accepts_inline_instructions`](crate::Wire)).
    pub fn restore_instruction_positions(&mut self) {
        let places = std::mem::take(&mut self.instructions);
        if !places.is_empty() {
            self.request.system = std::mem::take(&mut self.leading_system);
            place_instructions(&mut self.request, places);
            // Messages were split at the instructions; all of them are in the client's body.
            if let Some(client) = &mut self.request.client_body {
                client.messages = self.request.messages.len();
            }
        }
    }

    /// Builds the metadata of the response to this request. `id` is the response's own, `created`
    /// is in seconds since 1970.
    pub fn response_metadata(&self, id: impl Into<String>, created: u64) -> ResponseMetadata {
        let model = self.request.model.clone();
        ResponseMetadata {
            id: id.into(),
            model,
            created,
            total_duration: Duration::ZERO,
            generation_duration: Duration::ZERO,
            choice: 0,
            preferences: self.preferences.clone(),
        }
    }
}

impl DecodedRequest {
    /// Returns the request unchanged if its tool choice can be met.
    ///
    /// # Errors
    /// The tool choice demands a call of a tool that is not offered, or of any tool where none is.
    pub(crate) fn validate_tool_choice(self) -> Result<Self, RequestError> {
        let Request {
            tools,
            options,
            tool_choice: choice,
            ..
        } = &self.request;
        // A native tool is chosen by its name or, if it has none, by its type.
        let own = |name: &str| {
            options.native.iter().any(|tool| {
                [
                    native_tools::tool_name(tool),
                    Some(native_tools::tool_type(tool)),
                ]
                .contains(&Some(name))
            })
        };
        match choice {
            // Providers disagree here: some refuse the request, others ignore the choice.
            ToolChoice::Tool(name) if !tools.is_tool_offered(name) && !own(name) => {
                Err(RequestError::new(
                    "tool_choice",
                    format!("`{name}` is not among the tools: offer it, or let the model choose"),
                ))
            }
            ToolChoice::Required if tools.is_empty() && options.native.is_empty() => {
                Err(RequestError::new(
                    "tool_choice",
                    "a call is required, and there are no tools: offer some in `tools`",
                ))
            }
            _ => Ok(self),
        }
    }
}

impl ResponseMetadata {
    /// Returns the call's own id, or one derived from the response's id and the call's index.
    pub(crate) fn call_id(&self, own: Option<&str>, index: u32) -> String {
        // The response's id makes it unique in a conversation, and the index within the response.
        let choice = match self.choice {
            0 => String::new(),
            choice => format!("_{choice}"),
        };
        own.map_or_else(
            || format!("{}{choice}_call_{index}", self.id),
            str::to_owned,
        )
    }
}

impl LossNote {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for LossNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl RequestError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Parses the body of a client's request.
///
/// # Errors
/// The body is not JSON, or has half of a character: the error names the member.
pub fn parse_request_body(body: &[u8]) -> Result<Value, RequestError> {
    serde_json::from_slice(body).map_err(|error| match locate_lone_surrogate(body) {
        Some((path, at)) => {
            let escape = String::from_utf8_lossy(body.get(at..at + 6).unwrap_or_default());
            let place = match &path {
                Some(_) => String::new(),
                None => format!(" at byte {at} of the body"),
            };
            RequestError::new(
                path.unwrap_or_else(|| "body".to_owned()),
                format!(
                    "it has half of a character, the lone surrogate `{escape}`{place}: send both halves, or U+FFFD \
                     instead, as `text.toWellFormed()` does in JavaScript and \
                     `text.encode(\"utf-16\", \"surrogatepass\").decode(\"utf-16\", \"replace\")` in Python"
                ),
            )
        }
        None => RequestError::new("body", error.to_string()),
    })
}
