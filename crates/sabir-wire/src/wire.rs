//! The list of wires, and everything that a caller does with one without knowing which it is.

use std::time::Duration;

use sabir_call::{DraftResponse, Event, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check_support::SupportChecker;
use crate::client_request::{DecodedRequest, LossNote, RequestError, ResponseMetadata};
use crate::params::WireCapabilities;
use crate::provider_error::ProviderError;
use crate::response_decoder::WireDecoder;
use crate::{anthropic, bedrock, gemini, ollama, openai_chat, openai_responses};

/// Stands for the model's name in an endpoint; its slashes and colons stay.
const MODEL_PLACEHOLDER: &str = "{model}";

/// Stands for the model's name as one segment of a path, in which everything is escaped that may be.
const SEGMENT_PLACEHOLDER: &str = "{segment}";

/// A provider API's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and what is compatible with it.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Google Gemini.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
    /// Amazon Bedrock: Converse and ConverseStream.
    Bedrock,
}

/// What a request may need beyond its own words: where providers of one wire differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireOptions {
    /// Ask for a stream of events; otherwise for one whole body.
    pub streamed: bool,
    /// OpenAI Chat: the message field in which thoughts go back (`reasoning_content`, `reasoning`). `None`: they do not.
    pub thought_field: Option<String>,
    /// OpenAI Chat: write the output limit as `max_completion_tokens`, which OpenAI itself insists on.
    pub completion_limit: bool,
    /// Anthropic, Bedrock: mark the end of the system prompt and of the history as cacheable.
    pub cached: bool,
}

/// Turns events into the bytes of a streamed response.
///
/// Arguments are written as JSON: `String` and `Raw` values as strings, `Json` values as they are. Whoever knows the
/// schema re-forms `Raw` values before. A `Raw` value is written as a whole when it ends, because only then its
/// beginning is known. A call that was cut is never given its closing bracket, so that no reader takes it for whole.
pub struct ResponseEncoder {
    encoder: Box<dyn WireEncoder>,
}

/// What every wire's stream writer does. Private to the crate.
pub(crate) trait WireEncoder: Send {
    /// Writes one event.
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>);
    /// Reports an error in the stream.
    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>);
    /// Writes something that says nothing.
    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }
    /// How long the answer took, and how much of that from its first piece on; only some wires tell it.
    fn set_durations(&mut self, _took: Duration, _spoke: Duration) {}
    /// Something that clients skip and people read.
    fn encode_comment(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(": {name} {words}\n\n").as_bytes());
    }
    /// Ends the stream properly.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Everything that depends on which wire it is: what a wire's folder gives to the list.
pub(crate) struct WireSpec {
    /// The name used in flags, configuration and opaque state.
    pub(crate) name: &'static str,
    /// The endpoint behind the base URL, for a whole body and for a stream. `{model}` stands for the model's name,
    /// `{segment}` for the name with its slashes and colons escaped.
    pub(crate) endpoint_patterns: [&'static str; 2],
    /// The header that carries the key, and what stands before the key in it.
    pub(crate) key_header: (&'static str, &'static str),
    /// Headers that every request needs.
    pub(crate) required_headers: &'static [(&'static str, &'static str)],
    /// The content type of a streamed response.
    pub(crate) stream_type: &'static str,
    /// What it has words for beside the history and the tools.
    pub(crate) capabilities: &'static WireCapabilities,
    /// The member of a request's body whose items are the history. Items of messages of which the first begins an answer are the same
    /// whatever stands before it.
    pub(crate) history_member: &'static str,
    pub(crate) encode_request: fn(&Request, &WireOptions) -> Value,
    /// Reads a body. What the endpoint says, the model's name and whether a stream is wanted, is filled in afterwards.
    pub(crate) decode_request: fn(&Value) -> Result<DecodedRequest, RequestError>,
    pub(crate) encode_response: fn(&ResponseMetadata, &DraftResponse) -> Value,
    pub(crate) encode_error: fn(&ProviderError) -> Value,
    pub(crate) new_decoder: fn() -> Box<dyn WireDecoder>,
    pub(crate) new_encoder: fn(ResponseMetadata) -> Box<dyn WireEncoder>,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini, Self::Ollama, Self::Bedrock];

    fn spec(self) -> &'static WireSpec {
        match self {
            Self::Anthropic => &anthropic::SPEC,
            Self::OpenAiChat => &openai_chat::SPEC,
            Self::OpenAiResponses => &openai_responses::SPEC,
            Self::Gemini => &gemini::SPEC,
            Self::Ollama => &ollama::SPEC,
            Self::Bedrock => &bedrock::SPEC,
        }
    }

    /// The name used in flags, configuration and opaque state.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The wire of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// The wire whose endpoint a path ends in; a query behind it does not count.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.match_path(path).is_some())
    }

    /// The endpoint's path behind a base URL: `/v1/messages` behind `https://api.anthropic.com`, `/chat/completions`
    /// behind `https://api.openai.com/v1`. Some wires name the model and the kind of answer in it.
    pub fn endpoint_path(self, model: &str, streamed: bool) -> String {
        let [whole, stream] = self.spec().endpoint_patterns;
        let pattern = if streamed { stream } else { whole };
        // A list of models may name them with the folder that the endpoint has already.
        let within = pattern.contains("models/{model}").then(|| model.strip_prefix("models/")).flatten();
        let model = within.unwrap_or(model);
        pattern
            .replace(MODEL_PLACEHOLDER, &percent_encode(model, b"-._~/:@"))
            .replace(SEGMENT_PLACEHOLDER, &percent_encode(model, b"-._~"))
    }

    /// The header that carries the key, and what stands before the key in it.
    pub fn key_header(self) -> (&'static str, &'static str) {
        self.spec().key_header
    }

    /// Headers that every request needs.
    pub fn required_headers(self) -> &'static [(&'static str, &'static str)] {
        self.spec().required_headers
    }

    /// The content type of a streamed response.
    pub fn stream_type(self) -> &'static str {
        self.spec().stream_type
    }

    /// The member of a request's body whose items are the history; some wires have the system prompt before it. The items of a history
    /// that is cut where an answer begins are those of both parts, but for the marks of what may be cached.
    pub fn history_member(self) -> &'static str {
        self.spec().history_member
    }

    /// Writes a request. What the wire has no word for is left out; [`check_support`](Self::check_support) says what. The request's protocol is not looked at: a prompted one has been rendered to text before.
    pub fn encode_request(self, request: &Request, form: &WireOptions) -> Value {
        (self.spec().encode_request)(request, form)
    }

    /// What this wire cannot say of a request: each wish that is left out of it, with its place.
    ///
    /// # Errors
    /// Something that may not be left out: what the user showed (a document of another provider's form, a picture's
    /// address), or tools that only another provider runs where no other is left.
    pub fn check_support(self, request: &Request, form: &WireOptions) -> Result<Vec<LossNote>, RequestError> {
        SupportChecker { wire: self.name(), capabilities: self.spec().capabilities, options: form }
            .check_request(request)
    }

    /// Reads a client's request that came to this path.
    ///
    /// # Errors
    /// The first place that is not what the wire says or what a [`Request`] can hold.
    pub fn decode_request(self, path: &str, body: &[u8]) -> Result<DecodedRequest, RequestError> {
        let body: Value = serde_json::from_slice(body).map_err(|error| RequestError::new("body", error.to_string()))?;
        let mut incoming = (self.spec().decode_request)(&body)?;
        if let Some((model, streamed)) = self.match_path(path) {
            if !model.is_empty() {
                incoming.request.model = percent_decode(model);
            }
            incoming.streamed |= streamed;
        }
        Ok(incoming)
    }

    /// What a path says: the model, empty where it does not name one, and whether only a stream is answered there.
    /// `None`: it is no endpoint of this wire.
    fn match_path(self, path: &str) -> Option<(&str, bool)> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let [whole, stream] = self.spec().endpoint_patterns;
        [(stream, stream != whole), (whole, false)].into_iter().find_map(|(pattern, streamed)| {
            let pattern = strip_beta_version(pattern.split('?').next().unwrap_or_default());
            match pattern.split_once(MODEL_PLACEHOLDER).or_else(|| pattern.split_once(SEGMENT_PLACEHOLDER)) {
                None => path.ends_with(pattern).then_some(("", streamed)),
                Some((before, behind)) => {
                    let path = path.strip_suffix(behind)?;
                    let at = path.rfind(before)?;
                    path.get(at + before.len()..).filter(|model| !model.is_empty()).map(|model| (model, streamed))
                }
            }
        })
    }

    /// Writes a response that is not streamed. Calls that were cut are left out where their arguments cannot be shown as
    /// unfinished.
    pub fn encode_response(self, head: &ResponseMetadata, draft: &DraftResponse) -> Value {
        (self.spec().encode_response)(head, draft)
    }

    /// The HTTP status of an error response.
    pub fn error_status(self, error: &ProviderError) -> u16 {
        match error.http_status() {
            // Only this wire's clients know the status of a provider that is overloaded.
            503 if self == Self::Anthropic && error.is_overload() => 529,
            529 if self != Self::Anthropic => 503,
            status => status,
        }
    }

    /// Writes the body of an error response.
    pub fn encode_error(self, error: &ProviderError) -> Value {
        (self.spec().encode_error)(error)
    }

    pub(crate) fn new_decoder(self) -> Box<dyn WireDecoder> {
        (self.spec().new_decoder)()
    }
}

impl ResponseEncoder {
    /// An encoder for one response of that wire.
    pub fn new(wire: Wire, head: ResponseMetadata) -> Self {
        Self { encoder: (wire.spec().new_encoder)(head) }
    }

    /// Appends what the event is on the wire; that may be nothing yet.
    pub fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        self.encoder.encode_event(event, out);
    }

    /// Appends an error that the client will report. Nothing should follow it.
    pub fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        self.encoder.encode_error_event(error, out);
    }

    /// Appends something that clients skip, for proxies that close what is silent. Nothing on a wire that has no such thing.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        self.encoder.keep_alive(out);
    }

    /// How long the answer took, and how much of that from its first piece on, for wires that tell it at the end.
    pub fn set_durations(&mut self, took: Duration, spoke: Duration) {
        self.encoder.set_durations(took, spoke);
    }

    /// Appends words of one line that clients skip: a comment of server-sent events, a member of that name in a
    /// line of JSON, nothing in binary frames.
    pub fn encode_comment(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        self.encoder.encode_comment(name, words, out);
    }

    /// Appends the proper end of the stream. To break it off, drop the encoder instead.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.encoder.finish(out);
    }
}

impl std::fmt::Debug for ResponseEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A model's name as a part of a path; `marks` are kept beside letters and digits.
fn percent_encode(model: &str, marks: &[u8]) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || marks.contains(&byte);
    model.bytes().fold(String::new(), |mut path, byte| {
        if keep(byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
        path
    })
}

/// The text that was written as a part of a path. What is no escape stays as it is.
pub(crate) fn percent_decode(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let code = behind.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A pattern without the version that it begins with: clients ask for another one where the answers are the same.
fn strip_beta_version(pattern: &str) -> &str {
    let version = pattern.get(1..).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let beta = version.strip_prefix('v').is_some_and(|rest| rest.ends_with("beta"));
    pattern.get(1 + version.len()..).filter(|_| beta).unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_the_wire() {
        let check = |path: &str, wire: Option<Wire>| assert_eq!(Wire::from_path(path), wire, "{path}");
        check("/v1/messages", Some(Wire::Anthropic));
        check("/anthropic/v1/messages?beta=true", Some(Wire::Anthropic));
        check("/api/v1/chat/completions", Some(Wire::OpenAiChat));
        check("/v1/responses", Some(Wire::OpenAiResponses));
        check("/v1beta/models/gemini-x:generateContent", Some(Wire::Gemini));
        check("/v1beta/models/gemini-x:streamGenerateContent?alt=sse", Some(Wire::Gemini));
        check("/v1/models/gemini-x:generateContent", Some(Wire::Gemini));
        check("/v1beta/models/:generateContent", None);
        check("/v1beta/models/gemini-x:countTokens", None);
        check("/api/chat", Some(Wire::Ollama));
        check("/api/generate", None);
        check("/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse", Some(Wire::Bedrock));
        check("/model/a:b/converse-stream", Some(Wire::Bedrock));
        check("/v1/models", None);
        check("", None);
    }

    #[test]
    fn an_endpoint_may_name_the_model() {
        let check = |model: &str, streamed: bool, expected: &str| {
            assert_eq!(Wire::Gemini.endpoint_path(model, streamed), expected, "{model}");
        };
        check("gemini-x", false, "/v1beta/models/gemini-x:generateContent");
        check("models/gemini-x", true, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse");
        check("a b?", false, "/v1beta/models/a%20b%3F:generateContent");
        assert_eq!(Wire::Ollama.endpoint_path("models/x", true), "/api/chat");
    }

    #[test]
    fn a_name_is_one_segment_for_bedrock() {
        let arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.amazon.nova-lite-v1:0";
        let path = Wire::Bedrock.endpoint_path(arn, true);
        let name = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.amazon.nova-lite-v1%3A0";
        assert_eq!(path, format!("/model/{name}/converse-stream"));
        let back = Wire::Bedrock.decode_request(&path, b"{}").unwrap();
        assert_eq!((back.request.model.as_str(), back.streamed), (arn, true));
        assert!(!Wire::Bedrock.decode_request("/model/m/converse", b"{}").unwrap().streamed);
    }

    #[test]
    fn names_survive_a_path() {
        for name in ["gpt-5", "models/a:b", "a b?c#d%e", "ü", "%zz%4"] {
            for marks in [&b"-._~/:@"[..], b"-._~"] {
                assert_eq!(percent_decode(&percent_encode(name, marks)), name);
            }
        }
    }
}
