//! Implements `wire decode` and `wire encode`: decodes a recorded response body, and prints the
//! request that would be sent.

use sabir_call::{
    DraftResponse, McpServerInfo, Message, MessagePart, ParallelCalls, ReasoningConfig, Request,
    Role, SamplingParams, ToolChoice, ToolProtocol, ToolSet, ToolSpec, Usage, render_request,
};
use sabir_check::CallChecker;
use sabir_wire::{BodyEnd, LossNote, ResponseDecoder, Wire, WireOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cli::{DecodeArguments, EncodeArguments, OutputFormat, ReportFormat};
use crate::commands::parse::{DraftCollector, ParsedText, load_tools, read_stdin, split_chunks};
use crate::exit::unknown_dialect;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;

/// The facts of a recorded body besides its calls.
#[derive(Debug, Serialize)]
pub(crate) struct BodyReport {
    usage: Usage,
    stop: Option<Value>,
    ended: bool,
    error: Option<String>,
    skipped: u64,
}

/// The request that `wire encode` reads, independent of wire and dialect. Only `messages` is
/// required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeutralRequest {
    #[serde(default = "unnamed")]
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
fn unnamed() -> String {
    "MODEL".to_owned()
}

/// Returns the wire of that name, or an error that lists all wires.
pub(crate) fn find_wire(name: &str) -> Result<Wire, CommandError> {
    Wire::from_name(name)
        .ok_or_else(|| CommandError::usage(format!("`{name}` is no wire: use {}", wire_names())))
}

/// Returns the names of all wires.
pub(crate) fn wire_names() -> String {
    Wire::ALL.map(Wire::name).join(", ")
}

/// Runs `sabir wire decode`.
pub(crate) fn run_decode(arguments: &DecodeArguments) -> Result<ExitStatus, CommandError> {
    let wire = find_wire(&arguments.wire)?;
    let declared = arguments
        .reading
        .tools
        .as_deref()
        .map(|path| load_tools(Some(path)))
        .transpose()?;
    let bytes = read_stdin()?;
    let mut sink = DraftCollector::new(arguments.output == OutputFormat::Events, wire.name());
    let mut decoder = ResponseDecoder::new(wire);
    for chunk in split_chunks(&bytes, arguments.reading.chunk) {
        decoder.push(chunk, &mut sink);
    }
    let report = decoder.finish(BodyEnd::Clean, &mut sink);
    let (draft, how) = sink.into_draft();
    let tools = declared.unwrap_or_else(|| tools_of(&draft));
    let checker = CallChecker::new(tools.clone());
    let checked = checker.check_all(&draft);
    let loose = checker.unattached_faults(&draft);
    let response = BodyReport {
        usage: draft.usage,
        stop: draft
            .stop
            .as_ref()
            .map(|(reason, raw)| json!({"reason": reason, "raw": raw})),
        ended: report.ended,
        error: report.error.as_ref().map(|error| {
            format!("{} {}", error.code, error.message)
                .trim()
                .to_owned()
        }),
        skipped: report.skipped,
    };
    let reading = ParsedText {
        selection: wire.name(),
        source: String::new(),
        draft,
        checked,
        recognitions: how,
        loose_faults: loose,
        tools,
    };
    // A body without a regular end is incomplete, even if no call was cut.
    let failed = response.error.is_some() || !report.ended || report.unreadable > 0;
    match arguments.output {
        OutputFormat::Json => print::print_json(&reading.to_report(Some(&response))),
        OutputFormat::Text => {
            print::write_stdout(&reading.render_text());
            print::write_stdout(&render_report(&response));
        }
        OutputFormat::Events => {}
    }
    Ok(match reading.exit_status() {
        ExitStatus::Completed if failed => ExitStatus::Provider,
        exit => exit,
    })
}

/// Runs `sabir wire encode`.
pub(crate) fn run_encode(arguments: &EncodeArguments) -> Result<ExitStatus, CommandError> {
    let wire = find_wire(&arguments.wire)?;
    let (mut request, mut notes) = read_request(arguments)?;
    if let Some(model) = &arguments.model {
        request.model.clone_from(model);
    }
    let form = WireOptions {
        streamed: !arguments.whole,
        cached: arguments.cached,
        thought_field: arguments.thought_field.clone(),
        ..WireOptions::default()
    };
    let protocol = arguments.protocol.as_deref().unwrap_or("native");
    let prompted = match protocol {
        "native" => None,
        name => Some(
            surroundings::dialects()
                .find(name)
                .ok_or_else(|| unknown_dialect(name, "native, "))?,
        ),
    };
    if prompted.is_some() {
        request.protocol = ToolProtocol::Prompted(protocol.to_owned());
    }
    notes.extend(
        wire.check_support(&request, &form)
            .map_err(|error| CommandError::usage(format!("{}, {error}", wire.name())))?,
    );
    for note in &notes {
        print::write_stderr(&format!("note: {note}\n"));
    }
    if let Some(dialect) = prompted {
        request = render_request(&request, dialect);
    }
    let body = wire.encode_request(&request, &form);
    let path = wire.endpoint_path(&request.model, form.streamed);
    if arguments.output == ReportFormat::Text {
        print::write_stderr(&render_head(wire, &path));
        print::write_stdout(&format!("{body:#}\n"));
    } else {
        let headers: Map<_, _> = wire
            .required_headers()
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let key = wire.key_header().0;
        print::print_json(
            &json!({"wire": wire.name(), "path": path, "headers": headers, "key_header": key, "body": body}),
        );
    }
    Ok(ExitStatus::Completed)
}

/// Renders the request line and headers for people, with a placeholder for the key.
fn render_head(wire: Wire, path: &str) -> String {
    let (key, prefix) = wire.key_header();
    let mut text = format!("POST {path}\n{key}: {prefix}KEY\n");
    for (name, value) in wire.required_headers() {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + "\n"
}

/// Reads the request on standard input: neutral, or in the form of another wire (`--from`). Also
/// returns notes about what was lost in the conversion.
fn read_request(arguments: &EncodeArguments) -> Result<(Request, Vec<LossNote>), CommandError> {
    let bytes = read_stdin()?;
    if let Some(name) = &arguments.from {
        let from = find_wire(name)?;
        let incoming = from.decode_request("", &bytes);
        let incoming =
            incoming.map_err(|error| CommandError::usage(format!("standard input, {error}")))?;
        return Ok((incoming.request, incoming.notes));
    }
    let neutral: NeutralRequest = serde_json::from_slice(&bytes).map_err(|error| {
        CommandError::usage(format!(
            "standard input is no request: {error}; write {{\"model\": …, \"messages\": [{{\"role\": \"user\", \"parts\": \
             [{{\"type\": \"text\", \"text\": …}}]}}]}}, or name the wire of a client's request with --from"
        ))
    })?;
    check_parts(&neutral.messages).map_err(CommandError::usage)?;
    let tools = ToolSet::new(neutral.tools)
        .map_err(|error| CommandError::usage(format!("tools: {error}")))?;
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
    Ok((request, Vec::new()))
}

/// Refuses parts that no wire supports in a message of that role, because encoding would drop them
/// silently.
fn check_parts(messages: &[Message]) -> Result<(), String> {
    for (index, message) in messages.iter().enumerate() {
        for (at, part) in message.parts.iter().enumerate() {
            let (what, role) = match (part, message.role) {
                (MessagePart::Image(_), Role::Assistant) => ("an image", "user"),
                (MessagePart::Result(_), Role::Assistant) => ("a result", "user"),
                (MessagePart::Call(_), Role::User) => ("a call", "assistant"),
                (MessagePart::Thought { .. }, Role::User) => ("a thought", "assistant"),
                _ => continue,
            };
            return Err(format!(
                "standard input, messages[{index}].parts[{at}]: {what} belongs into a message of the {role}"
            ));
        }
    }
    Ok(())
}

/// Renders the facts of a body for people.
fn render_report(response: &BodyReport) -> String {
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let stop = response
        .stop
        .as_ref()
        .and_then(|stop| stop.get("raw"))
        .and_then(Value::as_str)
        .unwrap_or("none");
    let mut text = format!(
        "stop: {stop}; tokens in {}, out {}; {} unknown events skipped\n",
        count(response.usage.input),
        count(response.usage.output),
        response.skipped
    );
    if let Some(error) = &response.error {
        text.push_str(&format!(
            "the provider failed: {}\n",
            print::sanitize_text(error)
        ));
    }
    text
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
