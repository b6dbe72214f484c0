//! `wire decode` and `wire encode`: what a recorded body says, and what would be sent.

use sabir_call::dialect::dialect;
use sabir_call::{
    Draft, Message, Parallel, Part, Protocol, Request, Role, Sampling, Server, Thinking, ToolChoice, ToolSet, ToolSpec,
    Usage, render_request,
};
use sabir_check::Checker;
use sabir_wire::{Close, Decoder, Form, Note, Wire};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cli::{DecodeArguments, EncodeArguments, Output, Whole};
use crate::exit::unknown_dialect;
use crate::exit::{Exit, Failure};
use crate::parse::{Listener, Reading, chunks, load_tools, standard_input};
use crate::print;

/// What a recorded body says beyond its calls.
#[derive(Debug, Serialize)]
pub(crate) struct Response {
    usage: Usage,
    stop: Option<Value>,
    ended: bool,
    error: Option<String>,
    skipped: u64,
}

/// A request as `wire encode` reads it: neutral to wire and dialect. Only `messages` must be there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Neutral {
    #[serde(default = "unnamed")]
    model: String,
    #[serde(default)]
    system: String,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<ToolSpec>,
    #[serde(default)]
    servers: Vec<Server>,
    #[serde(default)]
    choice: ToolChoice,
    #[serde(default)]
    parallel: Parallel,
    max_output: Option<u64>,
    temperature: Option<f64>,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    thinking: Thinking,
}

fn unnamed() -> String {
    "MODEL".to_owned()
}

/// The wire of that name.
pub(crate) fn wire_of(name: &str) -> Result<Wire, Failure> {
    Wire::from_name(name).ok_or_else(|| Failure::usage(format!("`{name}` is no wire: use {}", wires())))
}

/// The names of all wires.
pub(crate) fn wires() -> String {
    Wire::ALL.map(Wire::name).join(", ")
}

/// `sabir wire decode`.
pub(crate) fn decode(arguments: &DecodeArguments) -> Result<Exit, Failure> {
    let wire = wire_of(&arguments.wire)?;
    let declared = arguments.reading.tools.as_deref().map(|path| load_tools(Some(path))).transpose()?;
    let bytes = standard_input()?;
    let mut sink = Listener::new(arguments.output == Output::Events, wire.name());
    let mut decoder = Decoder::new(wire);
    for chunk in chunks(&bytes, arguments.reading.chunk) {
        decoder.push(chunk, &mut sink);
    }
    let report = decoder.finish(Close::Clean, &mut sink);
    let (draft, how) = sink.draft();
    let tools = declared.unwrap_or_else(|| tools_of(&draft));
    let checker = Checker::new(tools.clone());
    let (checked, loose) = (checker.check_all(&draft), checker.loose(&draft));
    let response = Response {
        usage: draft.usage,
        stop: draft.stop.as_ref().map(|(reason, raw)| json!({"reason": reason, "raw": raw})),
        ended: report.ended,
        error: report.error.as_ref().map(|error| format!("{} {}", error.code, error.message).trim().to_owned()),
        skipped: report.skipped,
    };
    let reading = Reading { selection: wire.name(), source: String::new(), draft, checked, how, loose, tools };
    // A body that the provider did not end may lack anything, even where no call was cut.
    let failed = response.error.is_some() || !report.ended || report.unreadable > 0;
    match arguments.output {
        Output::Json => print::json(&reading.understood(Some(&response))),
        Output::Text => {
            print::out(&reading.in_words());
            print::out(&response_in_words(&response));
        }
        Output::Events => {}
    }
    Ok(match reading.exit() {
        Exit::Completed if failed => Exit::Provider,
        exit => exit,
    })
}

/// `sabir wire encode`.
pub(crate) fn encode(arguments: &EncodeArguments) -> Result<Exit, Failure> {
    let wire = wire_of(&arguments.wire)?;
    let (mut request, mut notes) = read_request(arguments)?;
    if let Some(model) = &arguments.model {
        request.model.clone_from(model);
    }
    let form = Form {
        streamed: !arguments.whole,
        cached: arguments.cached,
        thought_field: arguments.thought_field.clone(),
        ..Form::default()
    };
    let protocol = arguments.protocol.as_deref().unwrap_or("native");
    let prompted = match protocol {
        "native" => None,
        name => Some(dialect(name).ok_or_else(|| unknown_dialect(name, "native, "))?),
    };
    if prompted.is_some() {
        request.protocol = Protocol::Prompted(protocol.to_owned());
    }
    notes.extend(wire.weigh(&request, &form).map_err(|error| Failure::usage(format!("{}, {error}", wire.name())))?);
    for note in &notes {
        print::err(&format!("note: {note}\n"));
    }
    if let Some(dialect) = prompted {
        request = render_request(&request, dialect);
    }
    let body = wire.encode_request(&request, &form);
    let path = wire.endpoint(&request.model, form.streamed);
    if arguments.output == Whole::Text {
        print::err(&head_in_words(wire, &path));
        print::out(&format!("{body:#}\n"));
    } else {
        let headers: Map<_, _> =
            wire.headers().iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let key = wire.key_header().0;
        print::json(&json!({"wire": wire.name(), "path": path, "headers": headers, "key_header": key, "body": body}));
    }
    Ok(Exit::Completed)
}

/// What stands before the body, for people: the key is named, never shown.
fn head_in_words(wire: Wire, path: &str) -> String {
    let (key, prefix) = wire.key_header();
    let mut text = format!("POST {path}\n{key}: {prefix}KEY\n");
    for (name, value) in wire.headers() {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + "\n"
}

/// The request on standard input: neutral, or as a client of another wire wrote it. What is not in it, as far as that was
/// written.
fn read_request(arguments: &EncodeArguments) -> Result<(Request, Vec<Note>), Failure> {
    let bytes = standard_input()?;
    if let Some(name) = &arguments.from {
        let from = wire_of(name)?;
        let incoming = from.decode_request("", &bytes);
        let incoming = incoming.map_err(|error| Failure::usage(format!("standard input, {error}")))?;
        return Ok((incoming.request, incoming.notes));
    }
    let neutral: Neutral = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::usage(format!(
            "standard input is no request: {error}; write {{\"model\": …, \"messages\": [{{\"role\": \"user\", \"parts\": \
             [{{\"type\": \"text\", \"text\": …}}]}}]}}, or name the wire of a client's request with --from"
        ))
    })?;
    misplaced(&neutral.messages).map_err(Failure::usage)?;
    let tools = ToolSet::new(neutral.tools).map_err(|error| Failure::usage(format!("tools: {error}")))?;
    let request = Request {
        model: neutral.model,
        system: neutral.system,
        messages: neutral.messages.into(),
        tools,
        servers: neutral.servers,
        choice: neutral.choice,
        parallel: neutral.parallel,
        max_output: neutral.max_output,
        sampling: Sampling { temperature: neutral.temperature, stop: neutral.stop, ..Sampling::default() },
        thinking: neutral.thinking,
        ..Request::default()
    };
    Ok((request, Vec::new()))
}

/// Finds parts that no wire has a place for in a message of that role: they would be left out without a word.
fn misplaced(messages: &[Message]) -> Result<(), String> {
    for (index, message) in messages.iter().enumerate() {
        for (at, part) in message.parts.iter().enumerate() {
            let (what, role) = match (part, message.role) {
                (Part::Image(_), Role::Assistant) => ("an image", "user"),
                (Part::Result(_), Role::Assistant) => ("a result", "user"),
                (Part::Call(_), Role::User) => ("a call", "assistant"),
                (Part::Thought { .. }, Role::User) => ("a thought", "assistant"),
                _ => continue,
            };
            return Err(format!(
                "standard input, messages[{index}].parts[{at}]: {what} belongs into a message of the {role}"
            ));
        }
    }
    Ok(())
}

fn response_in_words(response: &Response) -> String {
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let stop = response.stop.as_ref().and_then(|stop| stop.get("raw")).and_then(Value::as_str).unwrap_or("none");
    let mut text = format!(
        "stop: {stop}; tokens in {}, out {}; {} unknown events skipped\n",
        count(response.usage.input),
        count(response.usage.output),
        response.skipped
    );
    if let Some(error) = &response.error {
        text.push_str(&format!("the provider failed: {}\n", print::visible(error)));
    }
    text
}

/// Tools that accept exactly what the calls hold: for bodies whose request is not known.
fn tools_of(draft: &Draft) -> ToolSet {
    let mut specs: Vec<ToolSpec> = Vec::new();
    for call in draft.calls() {
        if specs.iter().all(|spec| spec.name != call.name) && !call.name.is_empty() {
            let names = draft.calls().filter(|other| other.name == call.name).flat_map(|other| &other.arguments);
            let mut properties: Map<_, _> = names.map(|argument| (argument.name.clone(), json!({}))).collect();
            // What was encoded twice has no names before it is repaired.
            let open = properties.remove("").is_some();
            let schema = json!({"type": "object", "properties": properties, "additionalProperties": open});
            let spec = ToolSpec::new(call.name.clone(), "", schema);
            // A name that no tool can have is left out, and the call is rejected for it.
            if ToolSet::new(vec![spec.clone()]).is_ok() {
                specs.push(spec);
            }
        }
    }
    ToolSet::new(specs).unwrap_or_default()
}
