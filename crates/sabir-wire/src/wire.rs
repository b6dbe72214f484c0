//! The list of wires, and everything that a caller does with one without knowing which it is.

use sabir_call::{Draft, Event, Request};
use serde_json::Value;

use crate::failure::ProviderError;
use crate::response::Reader;
use crate::{anthropic, openai_chat};

/// A provider API's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and what is compatible with it.
    OpenAiChat,
}

/// What a request may need beyond its own words: where providers of one wire differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    /// Ask for a stream of events; otherwise for one whole body.
    pub streamed: bool,
    /// OpenAI Chat: the message field in which thoughts go back (`reasoning_content`, `reasoning`). `None`: they do not.
    pub thought_field: Option<String>,
    /// OpenAI Chat: write the output limit as `max_completion_tokens`, which OpenAI itself insists on.
    pub completion_limit: bool,
    /// Anthropic: mark the end of the system prompt and of the history as cacheable.
    pub cached: bool,
}

/// A request that a client sent, read back.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// What is asked.
    pub request: Request,
    /// Whether the client wants a stream.
    pub streamed: bool,
}

/// Why a client's request cannot be read.
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
pub struct Head {
    /// The response's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970, as far as the caller knows.
    pub created: u64,
}

/// Turns events into the bytes of a streamed response.
///
/// Arguments are written as JSON: `String` and `Raw` values as strings, `Json` values as they are. Whoever knows the
/// schema re-forms `Raw` values before. A `Raw` value is written as a whole when it ends, because only then its
/// beginning is known. A call that was cut is never given its closing bracket, so that no reader takes it for whole.
pub struct Encoder {
    writer: Box<dyn Writer>,
}

/// What every wire's stream writer does. Private to the crate.
pub(crate) trait Writer: Send {
    /// Writes one event.
    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>);
    /// Reports an error in the stream.
    fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>);
    /// Ends the stream properly.
    fn finish(&mut self, out: &mut Vec<u8>);
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 2] = [Self::Anthropic, Self::OpenAiChat];

    /// The name used in flags, configuration and opaque state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::NAME,
            Self::OpenAiChat => openai_chat::NAME,
        }
    }

    /// The wire of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// The endpoint's path behind a base URL: `/v1/messages` behind `https://api.anthropic.com`, `/chat/completions`
    /// behind `https://api.openai.com/v1`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::PATH,
            Self::OpenAiChat => openai_chat::PATH,
        }
    }

    /// The header that carries the key, and what stands before the key in it.
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("x-api-key", ""),
            Self::OpenAiChat => ("authorization", "Bearer "),
        }
    }

    /// Headers that every request needs.
    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Anthropic => &[("anthropic-version", "2023-06-01")],
            Self::OpenAiChat => &[],
        }
    }

    /// Writes a request. The request's protocol is not looked at: a prompted one has been rendered to text before.
    pub fn encode_request(self, request: &Request, form: &Form) -> Value {
        match self {
            Self::Anthropic => anthropic::request::encode(request, form),
            Self::OpenAiChat => openai_chat::request::encode(request, form),
        }
    }

    /// Reads a client's request.
    ///
    /// # Errors
    /// The first place that is not what the wire says or what a [`Request`] can hold.
    pub fn decode_request(self, body: &[u8]) -> Result<Incoming, RequestError> {
        let body: Value = serde_json::from_slice(body).map_err(|error| RequestError::new("body", error.to_string()))?;
        match self {
            Self::Anthropic => anthropic::incoming::decode(&body),
            Self::OpenAiChat => openai_chat::incoming::decode(&body),
        }
    }

    /// Writes a response that is not streamed. Calls that were cut are left out where their arguments cannot be shown as
    /// unfinished.
    pub fn encode_whole(self, head: &Head, draft: &Draft) -> Value {
        match self {
            Self::Anthropic => anthropic::answer::whole(head, draft),
            Self::OpenAiChat => openai_chat::answer::whole(head, draft),
        }
    }

    /// Writes the body of an error response.
    pub fn encode_error(self, error: &ProviderError) -> Value {
        match self {
            Self::Anthropic => anthropic::answer::error_body(error),
            Self::OpenAiChat => openai_chat::answer::error_body(error),
        }
    }

    pub(crate) fn reader(self) -> Box<dyn Reader> {
        match self {
            Self::Anthropic => Box::new(anthropic::stream::Stream::default()),
            Self::OpenAiChat => Box::new(openai_chat::stream::Stream::default()),
        }
    }
}

impl Encoder {
    /// An encoder for one response of that wire.
    pub fn new(wire: Wire, head: Head) -> Self {
        let writer: Box<dyn Writer> = match wire {
            Wire::Anthropic => Box::new(anthropic::answer::Answer::new(head)),
            Wire::OpenAiChat => Box::new(openai_chat::answer::Answer::new(head)),
        };
        Self { writer }
    }

    /// Appends what the event is on the wire; that may be nothing yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        self.writer.event(event, out);
    }

    /// Appends an error that the client will report. Nothing should follow it.
    pub fn error(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        self.writer.error(error, out);
    }

    /// Appends the proper end of the stream. To break it off, drop the encoder instead.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.writer.finish(out);
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl RequestError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}
