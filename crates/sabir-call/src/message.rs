//! The dialect-neutral history: messages, their parts, calls and results.
//!
//! A history never remembers how a call was spelled beyond a mark: it is rendered for whatever the protocol of the
//! next request is. That is what lets a task change model or protocol without rewriting its past.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The name of one call, unique within a history.
///
/// Providers repeat ids from turn to turn (Gemini, Ollama) or send none (prompted dialects, Mistral); whoever takes a
/// call into a history makes the id unique first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// Wraps an id. Any text is allowed; wires that limit the alphabet map it on their own.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who wrote a message. The system prompt is not a message: it travels beside the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user's words and the results of calls.
    User,
    /// What a model answered.
    Assistant,
}

/// One message of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Its parts, in the order in which they were written.
    pub parts: Vec<MessagePart>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessagePart {
    /// Words.
    Text {
        /// The words, as written.
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
    /// A picture.
    Image(Image),
    /// A picture that lies elsewhere. Only some wires take one.
    ImageUrl {
        /// Its address.
        url: String,
    },
    /// A call that the model asked for.
    Call(Call),
    /// The one result of a call.
    Result(CallResult),
    /// Provider state that is no thought (a server-side tool's block, say).
    Opaque(OpaqueState),
}

/// A picture, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// An IANA media type such as `image/png`.
    pub media_type: String,
    /// The picture, base64 without line breaks.
    pub data: String,
}

/// A tool call as history keeps it: understood, and neutral to its spelling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Unique within the history.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// Typed arguments, in the order in which the model wrote them.
    pub arguments: Map<String, Value>,
    /// The dialect in which the call was written; `None` for a native call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResultStatus {
    /// The tool ran and succeeded.
    Done,
    /// The tool ran and failed.
    Failed,
    /// A gate stopped the call before it ran, or it was cut; the content is the feedback.
    Rejected,
    /// The user or the policy said no.
    Denied,
    /// The task was interrupted before the call ended; it may have run in part.
    Interrupted,
}

impl ToolResultStatus {
    /// Whether the model should read the content as an error.
    pub fn is_error(self) -> bool {
        self != Self::Done
    }
}

/// The result of a call: exactly one exists for each call in a history (law 7).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call that this answers.
    pub id: CallId,
    /// The tool's name, repeated because prompted protocols pair results by name and order.
    pub name: String,
    /// How it ended.
    pub ending: ToolResultStatus,
    /// What the model reads.
    pub content: String,
    /// Pictures that belong to it. A wire that has no room for them in a result puts them right behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Provider state that Sabir does not interpret and sends back unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpaqueState {
    /// The wire that understands it, for example `anthropic`. Other wires leave it out.
    pub wire: String,
    /// The state itself, in that wire's own form.
    pub data: Value,
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![MessagePart::text(text)] }
    }

    /// An assistant message of one text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, parts: vec![MessagePart::text(text)] }
    }

    /// The calls of this message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl MessagePart {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}
