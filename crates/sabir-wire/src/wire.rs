//! The list of wires, and every operation that callers use without knowing which wire it is.

use std::time::Duration;

use sabir_call::{DraftResponse, Event, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check_support::SupportChecker;
use crate::choice_chunk::ChoiceMembers;
use crate::client_body::{
    PassthroughMembers, decode_for_same_wire, encode_client_body, remove_members,
};
use crate::client_request::{
    DecodedRequest, LossNote, RequestError, ResponseMetadata, parse_request_body,
};
use crate::overflow::{OverflowMessages, adapt_overflow_error};
use crate::params::WireCapabilities;
use crate::provider_error::ProviderError;
use crate::response_decoder::WireDecoder;
use crate::{anthropic, bedrock, gemini, ollama, openai_chat, openai_responses};

/// The placeholder in an endpoint pattern for the model's name, with its slashes and colons kept.
const MODEL_PLACEHOLDER: &str = "{model}";

/// The placeholder for the model's name as one path segment, in which reserved characters are
/// escaped.
const SEGMENT_PLACEHOLDER: &str = "{segment}";

/// A provider API's format.
///
/// It names a format, not a vendor: dozens of servers speak `OpenAiChat`, and Bedrock serves models
/// of many makers. Differences between servers of one wire are in [`WireOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Anthropic Messages.
    ///
    /// Name `anthropic`; `POST /v1/messages`, server-sent events.
    Anthropic,
    /// OpenAI Chat Completions and compatible APIs.
    ///
    /// Name `openai-chat`; `POST /chat/completions` after a base URL that usually ends in `/v1`,
    /// server-sent events.
    OpenAiChat,
    /// OpenAI Responses.
    ///
    /// Name `openai-responses`; `POST /responses`, numbered server-sent events.
    OpenAiResponses,
    /// Google Gemini.
    ///
    /// Name `gemini`; `POST /v1beta/models/MODEL:generateContent`, for a stream
    /// `:streamGenerateContent`; server-sent events.
    Gemini,
    /// Ollama's own chat API.
    ///
    /// Name `ollama`; `POST /api/chat`, one JSON object per line.
    Ollama,
    /// Amazon Bedrock: Converse and ConverseStream.
    ///
    /// Name `bedrock`; `POST /model/MODEL/converse`, binary frames.
    Bedrock,
}

/// Options for encoding a request, where providers of one wire differ.
///
/// Missing members of its JSON have their defaults. A recording contains it, so that a replay sends
/// the same bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireOptions {
    /// Asks for a stream of events instead of one whole body.
    ///
    /// Gemini and Bedrock choose it by the path instead of the body.
    pub streamed: bool,
    /// OpenAI Chat: the message field that carries thoughts back to the provider
    /// (`reasoning_content`, `reasoning`). With `None`, thoughts are left out.
    pub thought_field: Option<String>,
    /// OpenAI Chat: writes the output limit as `max_completion_tokens`, which OpenAI's own API
    /// requires.
    pub completion_limit: bool,
    /// OpenAI Chat: the server has custom tools, whose input is text. OpenAI's own API has them; others
    /// get functions.
    pub custom_tools: bool,
    /// Anthropic and Bedrock: marks the end of the system prompt and of the history as cacheable.
    ///
    /// A marked prefix costs more when it is written and much less when it is read again.
    pub cached: bool,
}

/// Encodes events as the bytes of a streamed response.
///
/// Arguments are written as JSON: `String` and `Raw` values as strings, `Json` values unchanged. A
/// caller that knows the schema converts `Raw` values first. A `Raw` value is written in one piece
/// when it ends, because only then its beginning is known. A truncated call never gets its closing
/// bracket, so no client takes it for complete.
pub struct ResponseEncoder {
    /// The encoder of the wire.
    encoder: Box<dyn WireEncoder>,
    /// The words of the wire for a history that is too long.
    overflow_messages: &'static OverflowMessages,
}

/// The stream encoder that every wire implements.
///
/// Events come in the order in which a decoder emits them. Events that the wire cannot express,
/// such as another wire's opaque state, are ignored.
pub(crate) trait WireEncoder: Send {
    /// Encodes one event.
    fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>);
    /// Encodes an error in the middle of the stream.
    fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>);
    /// Writes bytes that carry no information.
    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }
    /// Sets how long the response took, and how long it took from its first piece on. Only some
    /// wires report it.
    fn set_durations(&mut self, _took: Duration, _spoke: Duration) {}
    /// Writes a note for people, which clients skip.
    fn encode_comment(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(": {name} {words}\n\n").as_bytes());
    }
    /// Ends the stream properly.
    fn finish(&mut self, out: &mut Vec<u8>);
    /// Ends one of several choices, on the wire that has them.
    fn finish_choice(&mut self, _out: &mut Vec<u8>) {}
    /// Ends a stream whose choices have ended.
    fn finish_choices(&mut self, _out: &mut Vec<u8>) {}
    /// Takes the items of the answer, on the wire where later requests may refer to them.
    fn take_output(&mut self) -> Vec<Value> {
        Vec::new()
    }
}

/// Everything that depends on the wire; each wire's folder provides one.
pub(crate) struct WireSpec {
    /// The name in flags, configuration and opaque state.
    pub(crate) name: &'static str,
    /// The endpoint after the base URL, for a whole body and for a stream. `{model}` is replaced by
    /// the model's name, `{segment}` by the name with its slashes and colons escaped.
    pub(crate) endpoint_patterns: [&'static str; 2],
    /// The name of the header that carries the key, and the prefix before the key in it.
    pub(crate) key_header: (&'static str, &'static str),
    /// Headers that every request must carry.
    pub(crate) required_headers: &'static [(&'static str, &'static str)],
    /// The content type of a streamed response.
    pub(crate) stream_type: &'static str,
    /// The request parameters and features that the wire supports beyond history and tools.
    pub(crate) capabilities: &'static WireCapabilities,
    /// The member of a request's body that holds the history as a list. The items of messages from an assistant message on do not depend on
    /// the messages before it.
    pub(crate) history_member: &'static str,
    /// True if an instruction is possible in the middle of a history.
    pub(crate) accepts_inline_instructions: bool,
    /// The members of bodies that are passed on to a provider of the same wire; `None` if no client
    /// of this wire is served.
    pub(crate) passthrough_members: Option<PassthroughMembers>,
    /// Encodes a request; cannot fail, because what the wire lacks is left out.
    pub(crate) encode_request: fn(&Request, &WireOptions) -> Value,
    /// Decodes a request's body. The caller then adds what the path says: the model's name and
    /// whether a stream is wanted.
    pub(crate) decode_request: fn(&Value) -> Result<DecodedRequest, RequestError>,
    /// Encodes a response that is not streamed.
    pub(crate) encode_response: fn(&ResponseMetadata, &DraftResponse) -> Value,
    /// The words for a history that is too long.
    pub(crate) overflow_messages: OverflowMessages,
    /// Encodes the body of an error response.
    pub(crate) encode_error: fn(&ProviderError) -> Value,
    /// Creates the decoder for one response.
    pub(crate) new_decoder: fn() -> Box<dyn WireDecoder>,
    /// Creates the encoder for one streamed response.
    pub(crate) new_encoder: fn(ResponseMetadata) -> Box<dyn WireEncoder>,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 6] = [
        Self::Anthropic,
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Gemini,
        Self::Ollama,
        Self::Bedrock,
    ];

    /// Returns the wire's entry. This and the name are the only places that distinguish the wires.
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

    /// Returns the name used in flags, configuration and opaque state.
    pub fn name(self) -> &'static str {
        // Not from the entry, which refers to all code of the wire: a program that only lists the
        // names should not contain it.
        match self {
            Self::Anthropic => anthropic::NAME,
            Self::OpenAiChat => openai_chat::NAME,
            Self::OpenAiResponses => openai_responses::NAME,
            Self::Gemini => gemini::NAME,
            Self::Ollama => ollama::NAME,
            Self::Bedrock => bedrock::NAME,
        }
    }

    /// Returns the wire with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// Returns the wire whose endpoint a path ends in. A query is ignored.
    ///
    /// Only the end of the path counts, because a base URL may have a path of its own.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|wire| wire.match_path(path).is_some())
    }

    /// Returns the endpoint's path after a base URL: `/v1/messages` after
    /// `https://api.anthropic.com`, `/chat/completions` after `https://api.openai.com/v1`. Some
    /// wires name the model, and choose streaming, in the path.
    ///
    /// Characters of the name that have a meaning in a URL, such as `?` and `#`, are escaped, so a
    /// name from a client cannot change the query.
    pub fn endpoint_path(self, model: &str, streamed: bool) -> String {
        let [whole, stream] = self.spec().endpoint_patterns;
        let pattern = if streamed { stream } else { whole };
        // A model list may return names with the folder `models/`, which the endpoint already has.
        let within = pattern
            .contains("models/{model}")
            .then(|| model.strip_prefix("models/"))
            .flatten();
        // `{model}` and `{segment}` never occur in one pattern, so the order of the replacements
        // does not matter.
        let model = within.unwrap_or(model);
        pattern
            .replace(MODEL_PLACEHOLDER, &percent_encode(model, b"-._~/:@"))
            .replace(SEGMENT_PLACEHOLDER, &percent_encode(model, b"-._~"))
    }

    /// Returns the name of the header that carries the key, and the prefix before the key in it.
    pub fn key_header(self) -> (&'static str, &'static str) {
        self.spec().key_header
    }

    /// Returns the headers that every request must carry.
    pub fn required_headers(self) -> &'static [(&'static str, &'static str)] {
        self.spec().required_headers
    }

    /// Returns the content type of a streamed response.
    pub fn stream_type(self) -> &'static str {
        self.spec().stream_type
    }

    /// Returns the member of a request's body that holds the history; some wires put the system
    /// prompt first in it. If a history is split before an assistant message, its items are those
    /// of both parts, except for cache marks.
    pub fn history_member(self) -> &'static str {
        self.spec().history_member
    }

    /// Encodes a request's body. Features that the wire does not support are left out;
    /// [`check_support`](Self::check_support) lists them. The request's protocol is ignored: a
    /// prompted request must be rendered to text before. If a client of this wire wrote the body, all
    /// of it is kept but for what belongs to the connection.
    ///
    /// The caller sends the body to [`endpoint_path`](Self::endpoint_path) with the headers of
    /// [`required_headers`](Self::required_headers).
    pub fn encode_request(self, request: &Request, options: &WireOptions) -> Value {
        let spec = self.spec();
        match (&request.client_body, &spec.passthrough_members) {
            (Some(client), Some(members)) if client.wire == spec.name => {
                encode_client_body(spec, members, client, request, options)
            }
            _ => (spec.encode_request)(request, options),
        }
    }

    /// Checks which features of a request this wire does not support, and returns a note on each
    /// one that is left out.
    ///
    /// # Errors
    /// Something that must not be left out: content from the user (a document in another provider's
    /// form, an image's address), or a tool that only another provider runs, if no other tool is
    /// left.
    pub fn check_support(
        self,
        request: &Request,
        options: &WireOptions,
    ) -> Result<Vec<LossNote>, RequestError> {
        self.support_checker(options).check_request(request)
    }

    /// Returns a note on each feature that is left out although the provider gets the client's own body
    /// ([`Request::client_body`]): grammars of custom tools, where a server has only functions.
    pub fn check_passthrough_body(self, request: &Request, options: &WireOptions) -> Vec<LossNote> {
        self.support_checker(options)
            .check_passthrough_tools(request)
    }

    /// Returns the checker of this wire's features.
    fn support_checker(self, options: &WireOptions) -> SupportChecker<'_> {
        SupportChecker {
            wire: self.name(),
            capabilities: self.spec().capabilities,
            options,
        }
    }

    /// Decodes a client's request that came to this path.
    ///
    /// # Errors
    /// The first value that is not valid on the wire or that a [`Request`] cannot hold.
    pub fn decode_request(self, path: &str, body: &[u8]) -> Result<DecodedRequest, RequestError> {
        // The whole body is parsed first, so that every error can name a path in it.
        self.decode_request_value(path, &parse_request_body(body)?)
    }

    /// Decodes a client's request whose body was parsed already.
    ///
    /// # Errors
    /// As [`decode_request`](Self::decode_request).
    pub fn decode_request_value(
        self,
        path: &str,
        body: &Value,
    ) -> Result<DecodedRequest, RequestError> {
        let incoming = (self.spec().decode_request)(body)?;
        Ok(self.with_path(path, incoming))
    }

    /// Decodes a client's request for a provider of the same wire, which gets the client's body
    /// ([`Request::client_body`]). Members that other wires have no place for are neither refused
    /// nor noted.
    ///
    /// # Errors
    /// As [`decode_request`](Self::decode_request), but not about the history: the provider itself
    /// answers one that it does not understand.
    pub fn decode_for_same_wire(
        self,
        path: &str,
        body: &Value,
    ) -> Result<DecodedRequest, RequestError> {
        let spec = self.spec();
        let incoming = match &spec.passthrough_members {
            Some(members) => decode_for_same_wire(spec, members, body)?,
            None => (spec.decode_request)(body)?,
        };
        Ok(self.with_path(path, incoming))
    }

    /// Returns the names of the members for several choices; `None` if a response of this wire has
    /// only one.
    pub fn choice_members(self) -> Option<ChoiceMembers> {
        self.spec().passthrough_members.as_ref()?.choices
    }

    /// Returns the number of choices that a request asks for. Only a client's own body can ask for
    /// several. Anything but a whole number counts as `u32::MAX`.
    pub fn choice_count(self, request: &Request) -> u32 {
        let body = request.client_body.as_ref();
        let body = body.filter(|client| client.wire == self.name());
        let count = body.and_then(|client| {
            let mut place = self.choice_members()?.count.split('.');
            place.try_fold(&*client.body, |value, key| value.get(key))
        });
        match count {
            None | Some(Value::Null) => 1,
            // Anything else than a whole number is too many: some servers take `"8"` or 8.0 for 8.
            Some(count) => count.as_u64().map_or(u32::MAX, |count| {
                u32::try_from(count.max(1)).unwrap_or(u32::MAX)
            }),
        }
    }

    /// Returns true if this wire can express an instruction in the middle of a history.
    pub fn accepts_inline_instructions(self) -> bool {
        self.spec().accepts_inline_instructions
    }

    /// Removes the thinking options from a client's body.
    pub fn remove_reasoning(self, body: &mut Value) {
        if let Some(members) = &self.spec().passthrough_members {
            remove_members(body, members.reasoning);
        }
    }

    /// Adds the parts of a request that are in its path.
    fn with_path(self, path: &str, mut incoming: DecodedRequest) -> DecodedRequest {
        if let Some((model, streamed)) = self.match_path(path) {
            if !model.is_empty() {
                incoming.request.model = percent_decode(model);
            }
            // A path that only streams outweighs the body, which then says nothing about it.
            incoming.streamed |= streamed;
        }
        incoming
    }

    /// Returns the model that a path names, if the wire names it there.
    pub fn model_of_path(self, path: &str) -> Option<String> {
        let (model, _) = self.match_path(path)?;
        (!model.is_empty()).then(|| percent_decode(model))
    }

    /// Matches a path against the wire's endpoints. Returns the model, or an empty text if the path
    /// does not name it, and true if only a stream is answered there. Returns `None` for other
    /// paths.
    fn match_path(self, path: &str) -> Option<(&str, bool)> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let [whole, stream] = self.spec().endpoint_patterns;
        // The stream's pattern is compared first. If both patterns are equal, the body decides.
        [(stream, stream != whole), (whole, false)]
            .into_iter()
            .find_map(|(pattern, streamed)| {
                // The query of the pattern (`alt=sse`) is not compared, since that of the path was
                // removed.
                let pattern = strip_beta_version(pattern.split('?').next().unwrap_or_default());
                match pattern
                    .split_once(MODEL_PLACEHOLDER)
                    .or_else(|| pattern.split_once(SEGMENT_PLACEHOLDER))
                {
                    None => path.ends_with(pattern).then_some(("", streamed)),
                    Some((before, after)) => {
                        let path = path.strip_suffix(after)?;
                        // The last occurrence counts, because a proxy's prefix may contain the same
                        // text.
                        let at = path.rfind(before)?;
                        path.get(at + before.len()..)
                            .filter(|model| !model.is_empty())
                            .map(|model| (model, streamed))
                    }
                }
            })
    }

    /// Encodes a response that is not streamed. Truncated calls are left out where the wire cannot
    /// show arguments as unfinished.
    ///
    /// `draft` must be finished, and its arguments typed: values of form `Raw` are written as
    /// strings.
    pub fn encode_response(self, metadata: &ResponseMetadata, draft: &DraftResponse) -> Value {
        (self.spec().encode_response)(metadata, draft)
    }

    /// Returns the HTTP status of an error response.
    pub fn error_status(self, error: &ProviderError) -> u16 {
        match error.http_status() {
            // Status 529 for an overloaded provider is known only to Anthropic's clients.
            503 if self == Self::Anthropic && error.is_overload() => 529,
            529 if self != Self::Anthropic => 503,
            status => status,
        }
    }

    /// Encodes the body of an error response. A history that is too long is reported in the words
    /// that the wire's clients look for.
    pub fn encode_error(self, error: &ProviderError) -> Value {
        let spec = self.spec();
        (spec.encode_error)(&adapt_overflow_error(error, &spec.overflow_messages))
    }

    /// Creates a decoder for one response.
    pub(crate) fn new_decoder(self) -> Box<dyn WireDecoder> {
        (self.spec().new_decoder)()
    }
}

impl ResponseEncoder {
    /// Creates an encoder for one response.
    pub fn new(wire: Wire, metadata: ResponseMetadata) -> Self {
        Self {
            encoder: (wire.spec().new_encoder)(metadata),
            overflow_messages: &wire.spec().overflow_messages,
        }
    }

    /// Appends the bytes of an event; there may be none yet.
    pub fn encode_event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        self.encoder.encode_event(event, out);
    }

    /// Appends an error that the client will report. Nothing should follow it.
    pub fn encode_error_event(&mut self, error: &ProviderError, out: &mut Vec<u8>) {
        let error = adapt_overflow_error(error, self.overflow_messages);
        self.encoder.encode_error_event(&error, out);
    }

    /// Appends bytes that clients skip, for proxies that close silent connections. Some wires have
    /// no such bytes.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        self.encoder.keep_alive(out);
    }

    /// Sets the duration of the response, and that from its first piece on. Some wires report both
    /// at the end.
    pub fn set_durations(&mut self, total: Duration, generation: Duration) {
        self.encoder.set_durations(total, generation);
    }

    /// Appends a note of one line that clients skip: a comment in server-sent events, an extra
    /// member in a line of JSON, nothing in binary frames.
    pub fn encode_comment(&mut self, name: &str, words: &str, out: &mut Vec<u8>) {
        self.encoder.encode_comment(name, words, out);
    }

    /// Appends the proper end of the stream. To break it off, drop the encoder instead.
    ///
    /// Without it clients report a broken stream, which is right after an error. Returns the items of the answer where later requests may
    /// refer to them (Responses), else nothing.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Vec<Value> {
        self.encoder.finish(out);
        self.encoder.take_output()
    }

    /// Appends the end of one of several choices ([`ResponseMetadata::choice`]), on the wire that
    /// has them. The stream continues.
    pub fn finish_choice(mut self, out: &mut Vec<u8>) {
        self.encoder.finish_choice(out);
    }

    /// Appends the end of a stream whose choices have ended, with the usage that this encoder got.
    pub fn finish_choices(mut self, out: &mut Vec<u8>) {
        self.encoder.finish_choices(out);
    }
}

impl std::fmt::Debug for ResponseEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseEncoder").finish_non_exhaustive()
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Escapes a model's name for a path. Letters, digits and `marks` stay unchanged.
fn percent_encode(model: &str, marks: &[u8]) -> String {
    // Names are escaped byte by byte, so a character outside of ASCII becomes several escapes.
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

/// Decodes percent escapes in a path or a query. Invalid escapes are not changed.
pub fn percent_decode(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    // A client may escape arbitrary bytes, which are not always UTF-8.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes a beta version from the start of a pattern: clients also request other versions, with
/// the same responses.
fn strip_beta_version(pattern: &str) -> &str {
    let version = pattern
        .get(1..)
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_default();
    let beta = version
        .strip_prefix('v')
        .is_some_and(|rest| rest.ends_with("beta"));
    pattern
        .get(1 + version.len()..)
        .filter(|_| beta)
        .unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_identify_the_wire() {
        let check =
            |path: &str, wire: Option<Wire>| assert_eq!(Wire::from_path(path), wire, "{path}");
        check("/v1/messages", Some(Wire::Anthropic));
        check("/anthropic/v1/messages?beta=true", Some(Wire::Anthropic));
        check("/api/v1/chat/completions", Some(Wire::OpenAiChat));
        check("/v1/responses", Some(Wire::OpenAiResponses));
        check(
            "/v1beta/models/gemini-x:generateContent",
            Some(Wire::Gemini),
        );
        check(
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
            Some(Wire::Gemini),
        );
        check("/v1/models/gemini-x:generateContent", Some(Wire::Gemini));
        check("/v1beta/models/:generateContent", None);
        check("/v1beta/models/gemini-x:countTokens", None);
        check("/api/chat", Some(Wire::Ollama));
        check("/api/generate", None);
        check(
            "/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse",
            Some(Wire::Bedrock),
        );
        check("/model/a:b/converse-stream", Some(Wire::Bedrock));
        check("/v1/models", None);
        check("", None);
    }

    #[test]
    fn an_endpoint_may_name_the_model() {
        let check = |model: &str, streamed: bool, expected: &str| {
            assert_eq!(
                Wire::Gemini.endpoint_path(model, streamed),
                expected,
                "{model}"
            );
        };
        check("gemini-x", false, "/v1beta/models/gemini-x:generateContent");
        check(
            "models/gemini-x",
            true,
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        );
        check("a b?", false, "/v1beta/models/a%20b%3F:generateContent");
        assert_eq!(Wire::Ollama.endpoint_path("models/x", true), "/api/chat");
    }

    #[test]
    fn a_name_is_one_segment_for_bedrock() {
        let arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.amazon.nova-lite-v1:0";
        let path = Wire::Bedrock.endpoint_path(arn, true);
        let name =
            "arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Feu.amazon.nova-lite-v1%3A0";
        assert_eq!(path, format!("/model/{name}/converse-stream"));
        let back = Wire::Bedrock.decode_request(&path, b"{}").unwrap();
        assert_eq!((back.request.model.as_str(), back.streamed), (arn, true));
        assert!(
            !Wire::Bedrock
                .decode_request("/model/m/converse", b"{}")
                .unwrap()
                .streamed
        );
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
