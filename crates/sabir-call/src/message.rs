//! Defines the dialect-neutral history: messages, their parts, calls and results.
//!
//! A history does not keep the notation of a call, except for the dialect's name. Each request
//! renders the history for its own protocol, so a task can change model or protocol without
//! rewriting its past.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The identifier of one call, unique within a history.
///
/// Providers repeat ids from turn to turn (Gemini, Ollama) or send none (prompted dialects,
/// Mistral). Code that adds a call to a history must make the id unique first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// Wraps an id. Any text is allowed; wires with a limited alphabet map it themselves.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The author of a message. The system prompt is not a message: a request carries it beside the
/// history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user; also carries the results of calls.
    User,
    /// The model.
    Assistant,
}

/// One message of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The parts, in the order in which they were written.
    pub parts: Vec<MessagePart>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessagePart {
    /// Plain text.
    Text {
        /// The text as written.
        text: String,
    },
    /// A model's reasoning, with the provider's signature if there is one.
    Thought {
        /// The readable part; empty where the provider hides it.
        text: String,
        /// Provider state that must go back unchanged for the reasoning to be accepted again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<OpaqueState>,
    },
    /// An image.
    Image(Image),
    /// An image given by its URL. Only some wires accept one.
    ImageUrl {
        /// The URL.
        url: String,
    },
    /// A call requested by the model.
    Call(Call),
    /// The result of a call.
    Result(CallResult),
    /// Provider state that is not reasoning, such as the block of a server-side tool.
    Opaque(OpaqueState),
}

/// An image with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// An IANA media type such as `image/png`.
    pub media_type: String,
    /// The image data, base64 without line breaks.
    pub data: String,
}

/// A tool call in a history: parsed, and independent of its notation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The identifier, unique within the history.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// The typed arguments, in the order in which the model wrote them.
    pub arguments: Map<String, Value>,
    /// The dialect in which the call was written; `None` for a native call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResultStatus {
    /// The tool ran and succeeded.
    Done,
    /// The tool ran and failed.
    Failed,
    /// A check stopped the call before it ran, or the call was cut off; the content is feedback for
    /// the model.
    Rejected,
    /// The user or the policy refused the call.
    Denied,
    /// The task was interrupted before the call ended; it may have run in part.
    Interrupted,
}

impl ToolResultStatus {
    /// Returns true if the model should read the content as an error.
    pub fn is_error(self) -> bool {
        self != Self::Done
    }
}

/// The result of a call. A history holds exactly one for each call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The identifier of the answered call.
    pub id: CallId,
    /// The tool's name, repeated because prompted protocols pair results by name and order.
    pub name: String,
    /// The outcome of the call.
    pub ending: ToolResultStatus,
    /// The text for the model.
    pub content: String,
    /// Images that belong to the result. A wire that cannot put images into a result sends them
    /// right after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Provider state that Sabir does not interpret and sends back unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpaqueState {
    /// The wire that produced it, for example `anthropic`. Other wires leave it out.
    pub wire: String,
    /// The provider and the model that produced it, for example `anthropic/claude-sonnet-4-5`; `None` if unknown. Other
    /// models do not get it: they could not read it, and it may hold what only its provider is to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The state, in the form of that wire.
    pub data: Value,
}

impl OpaqueState {
    /// The prefix of the types of state that only tells an encoder of the same wire more about an answer.
    pub const DETAIL_PREFIX: &str = "sabir.";

    /// Returns true for state that only an encoder of the same wire understands. It may come anywhere in an answer, also in the middle
    /// of a word, and must not be sent back to a provider.
    pub fn is_answer_detail(&self) -> bool {
        Self::is_detail_data(&self.data)
    }

    /// Returns true for the data of such state.
    pub fn is_detail_data(data: &Value) -> bool {
        let kind = data.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.starts_with(Self::DETAIL_PREFIX))
    }
}

impl Message {
    /// Creates a user message with one text part.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            parts: vec![MessagePart::text(text)],
        }
    }

    /// Creates an assistant message with one text part.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            parts: vec![MessagePart::text(text)],
        }
    }

    /// Returns the calls of this message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl MessagePart {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}
