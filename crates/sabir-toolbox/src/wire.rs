//! Decodes a recorded response body, and encodes the request that would be sent: the commands `wire decode` and `wire encode`.

use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{
    DraftResponse, Event, EventSink, McpServerInfo, Message, MessagePart, ParallelCalls,
    ReasoningConfig, Request, Role, SamplingParams, StopReason, ToolChoice, ToolProtocol, ToolSet,
    ToolSpec, Usage, render_request,
};
use sabir_check::CallChecker;
use sabir_wire::{BodyEnd, LossNote, ResponseDecoder, Wire, WireOptions};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::error::ToolboxError;
use crate::parse::{DraftCollector, ParseReport, ParsedText, split_chunks};
use crate::report::Report;

/// Finds a wire by its name.
///
/// # Errors
/// No wire has this name; the message lists all wires.
pub fn find_wire(name: &str) -> Result<Wire, ToolboxError> {
    Wire::from_name(name).ok_or_else(|| ToolboxError::UnknownWire(name.to_owned()))
}

/// Returns the names of all wires, separated by commas.
pub fn wire_names() -> String {
    crate::error::wire_names()
}

/// Recognises the wire of a response body, whole or streamed; `None` if it looks like none.
///
/// Only the first event of a stream counts, and of a whole body the names of its members.
pub fn detect_response_wire(body: &[u8]) -> Option<Wire> {
    // A frame of Bedrock's binary stream begins with its length and names its event in a header.
    if body
        .get(..200.min(body.len()))?
        .windows(11)
        .any(|part| part == b":event-type")
    {
        return Some(Wire::Bedrock);
    }
    let text = std::str::from_utf8(body).ok()?;
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        // Gemini's streams are arrays unless server-sent events are asked for.
        let first = value.as_array().and_then(|items| items.first());
        return wire_of_object(first.unwrap_or(&value));
    }
    text.lines()
        .filter_map(|line| {
            // Ollama writes one object a line.
            let data = line.strip_prefix("data:").unwrap_or(line);
            serde_json::from_str::<Value>(data.trim()).ok()
        })
        .find(Value::is_object)
        .and_then(|value| wire_of_object(&value))
}

/// Recognises the wire of a whole response or of a stream's first event.
fn wire_of_object(value: &Value) -> Option<Wire> {
    let has = |pointer: &str| value.pointer(pointer).is_some();
    let kind = value
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let object = value
        .get("object")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if has("/choices") {
        Some(Wire::OpenAiChat)
    } else if object == "response" || kind.starts_with("response.") {
        Some(Wire::OpenAiResponses)
    } else if kind == "message_start" || (kind == "message" && has("/content")) {
        Some(Wire::Anthropic)
    } else if has("/candidates") || has("/promptFeedback") {
        Some(Wire::Gemini)
    } else if has("/output/message") {
        Some(Wire::Bedrock)
    } else if has("/done") && has("/message") {
        Some(Wire::Ollama)
    } else {
        None
    }
}

/// The settings of a decoding.
#[derive(Debug, Clone)]
pub struct DecodeOptions<'d> {
    /// The wire of the body.
    pub wire: Wire,
    /// The known dialects, including the user's.
    pub dialects: &'d DialectSet,
    /// The tools that calls are checked against; `None` accepts the calls of the body as they are.
    pub tools: Option<ToolSet>,
    /// The size in bytes of the pieces in which the body is fed to the decoder; 0 feeds it whole. The result is the same.
    pub chunk_bytes: usize,
}

/// Decodes a response body. `observer` gets every event while it is decoded; a closure that does nothing will do.
pub fn decode_body(
    body: &[u8],
    options: &DecodeOptions<'_>,
    observer: &mut dyn EventSink,
) -> DecodedBody {
    // A wire is always a choice: its calls are never guesses.
    let mut collector = DraftCollector::new(true);
    let mut sink = |event: Event<'_>| {
        observer.push_event(event);
        collector.push_event(event);
    };
    let mut decoder = ResponseDecoder::new(options.wire);
    for chunk in split_chunks(body, options.chunk_bytes) {
        decoder.push(chunk, &mut sink);
    }
    // A recording has no connection that could break: it is complete if its last frame is.
    let report = decoder.finish(BodyEnd::Clean, &mut sink);
    let draft = collector.draft();
    let facts = BodyReport {
        usage: draft.usage,
        stop: draft.stop.as_ref().map(|(reason, raw)| StopReport {
            reason: *reason,
            raw: raw.clone(),
        }),
        ended: report.ended,
        error: report.error.as_ref().map(|error| {
            // Either of them may be empty, and then leaves a blank that is trimmed.
            format!("{} {}", error.code, error.message)
                .trim()
                .to_owned()
        }),
        skipped: report.skipped,
    };
    let tools = options.tools.clone().unwrap_or_else(|| tools_of(draft));
    let checker = CallChecker::new(tools);
    // Faults of a body count in no text that the user has, so there is no source to quote.
    let parsed = collector.into_parsed(options.wire.name(), None, &checker, options.dialects);
    DecodedBody {
        is_failed: facts.error.is_some() || !report.ended || report.unreadable > 0,
        facts,
        parsed,
    }
}

/// A response body, decoded and checked.
#[derive(Debug)]
pub struct DecodedBody {
    /// The parts of the response and their checks.
    pub parsed: ParsedText,
    /// The facts of the body besides its parts.
    pub facts: BodyReport,
    /// True if the provider failed, or the body has no regular end: it is then incomplete, even if no call was cut.
    pub is_failed: bool,
}

impl DecodedBody {
    /// Returns the report of `wire decode`: the report of `parse`, with facts about the body.
    pub fn report(&self) -> ParseReport<'_> {
        self.parsed.report_with_body(Some(&self.facts))
    }
}

/// The facts of a recorded body besides its parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BodyReport {
    /// The tokens that the provider reported.
    pub usage: Usage,
    /// The stop reason, if the body has one.
    pub stop: Option<StopReport>,
    /// True if the body ended as its wire prescribes.
    pub ended: bool,
    /// The provider's error, if it reported one.
    pub error: Option<String>,
    /// The number of unknown events, which were skipped.
    pub skipped: u64,
}

/// The reason why a provider stopped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StopReport {
    /// The neutral reason.
    pub reason: StopReason,
    /// The provider's own word.
    pub raw: String,
}

impl BodyReport {
    /// Renders the facts for people.
    pub(crate) fn render_text(&self) -> String {
        let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        let stop = self.stop.as_ref().map_or("none", |stop| stop.raw.as_str());
        let mut text = format!(
            "stop: {stop}; tokens in {}, out {}; {} unknown events skipped\n",
            count(self.usage.input),
            count(self.usage.output),
            self.skipped
        );
        if let Some(error) = &self.error {
            text.push_str(&format!("the provider failed: {error}\n"));
        }
        text
    }
}

/// The settings of an encoding.
#[derive(Debug, Clone)]
pub struct EncodeOptions<'d> {
    /// The wire to write.
    pub wire: Wire,
    /// The model, in place of the request's own.
    pub model: Option<String>,
    /// The dialect to teach the tools in; `None` declares them natively.
    pub prompted: Option<&'d Dialect>,
    /// The options of the wire.
    pub form: WireOptions,
}

/// A request that was read, independent of wire and dialect.
#[derive(Debug, Clone)]
pub struct ParsedRequest {
    /// The request.
    pub request: Request,
    /// Notes on what was lost in the conversion.
    pub notes: Vec<LossNote>,
}

/// Encodes a request for a wire.
///
/// # Errors
/// The wire cannot express the request. What it only expresses in part is a note in the report.
pub fn encode_request(
    read: ParsedRequest,
    options: &EncodeOptions<'_>,
) -> Result<EncodedRequest, ToolboxError> {
    let wire = options.wire;
    let mut request = read.request;
    let mut notes = read.notes;
    // The path of some wires holds the model, so it is replaced before anything is encoded.
    if let Some(model) = &options.model {
        request.model.clone_from(model);
    }
    if let Some(dialect) = options.prompted {
        request.protocol = ToolProtocol::Prompted(dialect.name.to_owned());
    }
    // Checked before the tools become text, since afterwards the request has no tools that a wire
    // could refuse.
    let more = wire
        .check_support(&request, &options.form)
        .map_err(|error| ToolboxError::Unsupported {
            wire: wire.name(),
            error,
        })?;
    notes.extend(more);
    if let Some(dialect) = options.prompted {
        request = render_request(&request, dialect);
    }
    Ok(EncodedRequest {
        wire: wire.name(),
        path: wire.endpoint_path(&request.model, options.form.streamed),
        headers: RequiredHeaders(wire),
        // Only the name of the header: a report never holds a key.
        key_header: wire.key_header().0,
        body: wire.encode_request(&request, &options.form),
        notes,
    })
}

/// The report of `wire encode`. Its text is the body alone; see [`EncodedRequest::head_text`] for the rest.
#[derive(Debug, Serialize)]
pub struct EncodedRequest {
    /// The name of the wire.
    pub wire: &'static str,
    /// The path of the endpoint.
    pub path: String,
    /// The headers that the wire requires besides the key.
    pub headers: RequiredHeaders,
    /// The name of the header with the key.
    pub key_header: &'static str,
    /// The body.
    pub body: Value,
    /// Notes on what was lost or changed on the way.
    #[serde(skip)]
    pub notes: Vec<LossNote>,
}

/// The headers that a wire requires besides the key. Serialized as an object.
#[derive(Debug, Clone, Copy)]
pub struct RequiredHeaders(Wire);

impl Serialize for RequiredHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.required_headers().iter().copied())
    }
}

impl EncodedRequest {
    /// Renders the request line and the headers for people, with a placeholder for the key.
    pub fn head_text(&self) -> String {
        let wire = self.headers.0;
        // The order of the lines is that of a real request, ready to be pasted.
        let (key, prefix) = wire.key_header();
        let mut text = format!("POST {}\n{key}: {prefix}KEY\n", self.path);
        for (name, value) in wire.required_headers() {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text + "\n"
    }
}

impl Report for EncodedRequest {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:#}", self.body)
    }
}

/// The request that `wire encode` reads, independent of wire and dialect. Only `messages` is
/// required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeutralRequest {
    #[serde(default = "placeholder_model")]
    model: String,
    #[serde(default)]
    system: String,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<ToolSpec>,
    #[serde(default)]
    servers: Vec<McpServerInfo>,
    #[serde(default)]
    choice: ToolChoice,
    #[serde(default)]
    parallel: ParallelCalls,
    max_output: Option<u64>,
    temperature: Option<f64>,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    thinking: ReasoningConfig,
}

/// Returns the placeholder for a missing model name.
fn placeholder_model() -> String {
    "MODEL".to_owned()
}

/// Reads a neutral request, or a client's request of the wire `from`. `source_name` appears in errors.
///
/// # Errors
/// The input is no such request.
pub fn read_request(
    input: &[u8],
    from: Option<Wire>,
    source_name: &str,
) -> Result<ParsedRequest, ToolboxError> {
    // A client's request already passed through a wire, which reports what it lost.
    if let Some(from) = from {
        // Without a path the body itself must name the model.
        let decoded =
            from.decode_request("", input)
                .map_err(|error| ToolboxError::ClientRequest {
                    source_name: source_name.to_owned(),
                    error,
                })?;
        return Ok(ParsedRequest {
            request: decoded.request,
            notes: decoded.notes,
        });
    }
    let neutral: NeutralRequest =
        serde_json::from_slice(input).map_err(|error| ToolboxError::NeutralRequest {
            source_name: source_name.to_owned(),
            error,
        })?;
    // Checked here, because the neutral form can say what no provider's form can.
    check_parts(&neutral.messages, source_name)?;
    let tools = ToolSet::new(neutral.tools).map_err(ToolboxError::RequestTools)?;
    let request = Request {
        model: neutral.model,
        system: neutral.system,
        messages: neutral.messages.into(),
        tools,
        servers: neutral.servers,
        tool_choice: neutral.choice,
        parallel_calls: neutral.parallel,
        max_output_tokens: neutral.max_output,
        sampling: SamplingParams {
            temperature: neutral.temperature,
            stop: neutral.stop,
            ..SamplingParams::default()
        },
        reasoning: neutral.thinking,
        ..Request::default()
    };
    Ok(ParsedRequest {
        request,
        notes: Vec::new(),
    })
}

/// Refuses parts that no wire supports in a message of that role, because encoding would drop them silently.
fn check_parts(messages: &[Message], source_name: &str) -> Result<(), ToolboxError> {
    for (index, message) in messages.iter().enumerate() {
        for (at, part) in message.parts.iter().enumerate() {
            let (found, role) = match (part, message.role) {
                (MessagePart::Image(_), Role::Assistant) => ("an image", "user"),
                (MessagePart::Result(_), Role::Assistant) => ("a result", "user"),
                (MessagePart::Call(_), Role::User) => ("a call", "assistant"),
                (MessagePart::Thought { .. }, Role::User) => ("a thought", "assistant"),
                _ => continue,
            };
            return Err(ToolboxError::MisplacedPart {
                source_name: source_name.to_owned(),
                message: index,
                part: at,
                found,
                role,
            });
        }
    }
    Ok(())
}

/// Returns tools that accept exactly the arguments of the calls, for bodies whose request is
/// unknown.
fn tools_of(draft: &DraftResponse) -> ToolSet {
    let mut specs: Vec<ToolSpec> = Vec::new();
    for call in draft.calls() {
        if specs.iter().all(|spec| spec.name != call.name) && !call.name.is_empty() {
            let names = draft
                .calls()
                .filter(|other| other.name == call.name)
                .flat_map(|other| &other.arguments);
            let mut properties: Map<_, _> = names
                .map(|argument| (argument.name.clone(), json!({})))
                .collect();
            // Arguments that were encoded twice have an empty name until they are repaired.
            let open = properties.remove("").is_some();
            let schema =
                json!({"type": "object", "properties": properties, "additionalProperties": open});
            let spec = ToolSpec::new(call.name.clone(), "", schema);
            // An invalid tool name is left out, and the call is rejected for it.
            if ToolSet::new(vec![spec.clone()]).is_ok() {
                specs.push(spec);
            }
        }
    }
    ToolSet::new(specs).unwrap_or_default()
}
