//! Implements the functions on whole texts. Their results are JSON texts in the public shapes of Sabir's commands.

use std::collections::BTreeMap;

use sabir_call::{
    Call, CallId, CallResult, Event, ParallelCalls, SourceLines, ToolResultStatus, ToolSet,
    ToolSpec, render_result,
};
use sabir_check::CheckedCall;
use sabir_edit::EditSyntax;
use sabir_toolbox::dialects::list_dialects;
use sabir_toolbox::edit::{AppliedEdit, edit_text};
use sabir_toolbox::explain::explain_text;
use sabir_toolbox::lint::{LintOptions, lint_text};
use sabir_toolbox::parse::{FaultReport, parse_text};
use sabir_toolbox::prompt::{PromptOptions, render_prompt};
use sabir_toolbox::wire::{DecodeOptions, decode_body, detect_response_wire, find_wire};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{BindingError, json_error_span};
use crate::reader_options::{ReaderOptions, find_dialect};

/// The result of [`check_message`].
#[derive(Debug, Serialize)]
struct MessageCheck<'p> {
    /// True if every call may run and nothing else is an error.
    ok: bool,
    calls: &'p [CheckedCall],
    /// All faults in text order.
    faults: Vec<FaultDiagnostic>,
    /// The text that tells the model what to correct.
    feedback: Option<&'p str>,
}

/// A fault and its text for people.
#[derive(Debug, Serialize)]
struct FaultDiagnostic {
    #[serde(flatten)]
    report: FaultReport,
    /// The fault with the line of the text and a caret.
    diagnostic: String,
}

/// A call to render, in the shape of Sabir, OpenAI or Anthropic. Other members would be lost, so they are an error.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenCall {
    /// `{name, arguments}`, also with an id.
    Own(NamedCall),
    /// `{id, type: "function", function: {name, arguments}}`.
    OpenAi(FunctionCall),
    /// `{type: "tool_use", id, name, input}`.
    Anthropic(ToolUse),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedCall {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    arguments: WrittenArguments,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionCall {
    #[serde(default)]
    id: String,
    #[serde(default, rename = "type")]
    _kind: String,
    /// The position in a delta.
    #[serde(default, rename = "index")]
    _index: u32,
    function: NamedCall,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolUse {
    #[serde(default)]
    id: String,
    #[serde(default, rename = "type")]
    _kind: String,
    name: String,
    input: Map<String, Value>,
}

/// The arguments of a call: an object, or its JSON text as in OpenAI's API.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenArguments {
    Object(Map<String, Value>),
    Text(String),
}

impl Default for WrittenArguments {
    fn default() -> Self {
        Self::Object(Map::new())
    }
}

impl WrittenArguments {
    fn into_object(self) -> Result<Map<String, Value>, serde_json::Error> {
        match self {
            Self::Object(object) => Ok(object),
            Self::Text(text) if text.trim().is_empty() => Ok(Map::new()),
            Self::Text(text) => serde_json::from_str(&text),
        }
    }
}

impl WrittenCall {
    fn into_call(self) -> Result<Call, serde_json::Error> {
        let (id, name, arguments) = match self {
            Self::Own(call) => (call.id, call.name, call.arguments.into_object()?),
            Self::OpenAi(call) => {
                let inner = call.function;
                (call.id, inner.name, inner.arguments.into_object()?)
            }
            Self::Anthropic(call) => (call.id, call.name, call.input),
        };
        Ok(Call {
            id: CallId::new(id),
            name,
            arguments,
            dialect: None,
        })
    }
}

/// A dialect found in a text.
#[derive(Debug, Serialize)]
struct DetectedDialect<'p> {
    dialect: &'p str,
    calls: usize,
    /// The certainty of the first call: `certain`, `likely` or `guess`.
    sure: Value,
}

/// Parses a whole message and checks its calls: the report of `sabir parse --output json`.
pub fn parse_message(text: &[u8], options: &ReaderOptions) -> String {
    let parsed = parse_text(text, &options.parse_options(), &mut |_: Event<'_>| {});
    to_json(&parsed.report())
}

/// Checks the calls of a whole message: `{ok, calls, faults, feedback}`. Each fault has its position as line, column and bytes,
/// and its `diagnostic` for people.
pub fn check_message(text: &[u8], options: &ReaderOptions) -> String {
    let parsed = parse_text(text, &options.parse_options(), &mut |_: Event<'_>| {});
    let mut lines = SourceLines::new(&parsed.source);
    let faults = parsed.all_faults();
    let faults = faults
        .iter()
        .map(|fault| FaultDiagnostic {
            report: FaultReport::new(fault, &mut lines),
            diagnostic: fault.render_diagnostic(&parsed.source),
        })
        .collect();
    to_json(&MessageCheck {
        ok: parsed.is_understood(),
        calls: &parsed.checked,
        faults,
        feedback: parsed.feedback.as_deref(),
    })
}

/// Explains the role of each piece of a text: the report of `sabir explain --output json`.
pub fn explain_message(text: &[u8], options: &ReaderOptions) -> String {
    to_json(&explain_text(text, &options.parse_options()).report())
}

/// Decodes a response body of a provider, whole or streamed, and checks its calls: the report of `sabir wire decode --output json`.
/// `wire` is the name of the API, or `auto`. Calls of a body are accepted as they are unless the options have tools.
///
/// # Errors
/// The wire is unknown, or the body has no form that is recognised.
pub fn decode_response(
    body: &[u8],
    wire: &str,
    options: &ReaderOptions,
) -> Result<String, BindingError> {
    let wire = match wire {
        "auto" => detect_response_wire(body).ok_or(BindingError::UnknownBody)?,
        name => find_wire(name).map_err(BindingError::UnknownWire)?,
    };
    let decode = DecodeOptions {
        wire,
        dialects: &options.dialects,
        tools: (!options.tools.is_empty()).then(|| options.tools.clone()),
        chunk_bytes: 0,
    };
    let decoded = decode_body(body, &decode, &mut |_: Event<'_>| {});
    // The report leaves out which API it was.
    let mut report = serde_json::to_value(decoded.report()).unwrap_or_default();
    if let Some(members) = report.as_object_mut() {
        members.insert("failed".to_owned(), decoded.is_failed.into());
    }
    Ok(report.to_string())
}

/// Finds the dialects in a text: `{dialects: [{dialect, calls, sure}], wire}`. The wire is the API of a response body, if the text is
/// one. Without tools in the options, those that the text calls are assumed.
pub fn detect_dialects(text: &[u8], options: &ReaderOptions) -> String {
    let guessed;
    let options = if options.tools.is_empty() {
        guessed = options.with_tools(infer_tools(text, options));
        &guessed
    } else {
        options
    };
    let parsed = parse_text(text, &options.parse_options(), &mut |_: Event<'_>| {});
    let mut found: Vec<DetectedDialect<'_>> = Vec::new();
    for call in parsed.draft.calls() {
        let Some(name) = call.dialect.as_deref() else {
            continue;
        };
        match found.iter_mut().find(|found| found.dialect == name) {
            Some(found) => found.calls += 1,
            None => found.push(DetectedDialect {
                dialect: name,
                calls: 1,
                sure: json!(parsed.recognition_of(call.index).map(|how| how.sure)),
            }),
        }
    }
    let wire = detect_response_wire(text).map(|wire| wire.name());
    json!({"dialects": found, "wire": wire}).to_string()
}

/// Infers tools from the calls of a text: an array of `{name, parameters}` in which every argument may have any value.
pub fn guess_tools(text: &[u8], options: &ReaderOptions) -> String {
    let tools = infer_tools(text, options);
    let specs: Vec<_> = tools.iter().collect();
    to_json(&specs)
}

/// Infers the tools that a text calls. Markup of unknown tools is read as calls where it can be nothing else.
fn infer_tools(text: &[u8], options: &ReaderOptions) -> ToolSet {
    // Without any tool nothing is a call, so the reader gets one that no text calls.
    let unlikely = ToolSpec::new("sabir-guesses-tools", "", json!({"type": "object"}));
    let probe = options.with_tools(ToolSet::new(vec![unlikely]).unwrap_or_default());
    let parsed = parse_text(text, &probe.parse_options(), &mut |_: Event<'_>| {});
    let mut found: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for call in parsed.draft.calls() {
        let arguments = found.entry(&call.name).or_default();
        for argument in &call.arguments {
            // A nameless argument holds what could not be read, and is no argument of the tool.
            if !argument.name.is_empty() {
                arguments.insert(argument.name.clone(), json!({}));
            }
        }
    }
    let specs = found.into_iter().filter_map(|(name, properties)| {
        let parameters = json!({"type": "object", "properties": properties});
        let spec = ToolSpec::new(name, "", parameters);
        // A name that no tool can have is a mistake of the model, not a tool.
        ToolSet::new(vec![spec.clone()]).is_ok().then_some(spec)
    });
    ToolSet::new(specs.collect()).unwrap_or_default()
}

/// Writes calls as a model would write them in the dialect of the options. The calls are a JSON array of `{name, arguments}`, or of the
/// calls of OpenAI's or Anthropic's API.
///
/// # Errors
/// The text is no such array, the options name no dialect, or the dialect cannot express a name.
pub fn render_calls(calls: &str, options: &ReaderOptions) -> Result<String, BindingError> {
    let dialect = options.written_dialect()?;
    let invalid = |error: serde_json::Error| BindingError::InvalidCalls {
        span: json_error_span(&error, calls),
        message: error.to_string(),
    };
    let written: Vec<Value> = serde_json::from_str(calls).map_err(invalid)?;
    let written = written
        .into_iter()
        .enumerate()
        .map(|(index, call)| read_written_call(index, call))
        .collect::<Result<Vec<_>, _>>()?;
    let text = dialect.render_calls(&written, &options.tools);
    match find_unwritable_call(&text, &written, options) {
        Some((call, problem)) => Err(BindingError::UnwritableCall {
            tool: call.name.clone(),
            dialect: dialect.name.to_owned(),
            problem,
        }),
        None => Ok(text),
    }
}

/// Reads a call to render; `index` is its position in the array.
fn read_written_call(index: usize, call: Value) -> Result<Call, BindingError> {
    let invalid = |message: String| BindingError::InvalidCalls {
        message,
        span: None,
    };
    serde_json::from_value::<WrittenCall>(call)
        .map_err(|_| {
            invalid(format!(
                "call {index} has none of the known shapes, or members that would be lost"
            ))
        })?
        .into_call()
        .map_err(|error| invalid(format!("the arguments of call {index}: {error}")))
}

/// Returns the first call whose name or arguments' names are not read back from the text, and the reason.
fn find_unwritable_call<'c>(
    text: &str,
    calls: &'c [Call],
    options: &ReaderOptions,
) -> Option<(&'c Call, String)> {
    let mut specs: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for call in calls {
        let properties = specs.entry(&call.name).or_default();
        properties.extend(call.arguments.keys().map(|name| (name.clone(), json!({}))));
    }
    let specs = specs.into_iter().map(|(name, properties)| {
        // Any value fits: only the names are compared, and a schema may need a validator that this
        // build lacks.
        ToolSpec::new(
            name,
            "",
            json!({"type": "object", "properties": properties}),
        )
    });
    let tools = match ToolSet::new(specs.collect()) {
        Ok(tools) => tools,
        Err(error) => return calls.first().map(|call| (call, error.to_string())),
    };
    let mut parse = options.parse_options();
    parse.tools = tools;
    parse.parallel_calls = ParallelCalls::Many;
    parse.prefill = String::new();
    let parsed = parse_text(text.as_bytes(), &parse, &mut |_: Event<'_>| {});
    let mut found = parsed.checked.iter();
    for call in calls {
        let Some(read) = found.next().filter(|read| read.name == call.name) else {
            return Some((call, "no call of this name is read".to_owned()));
        };
        if let Some(lost) = call
            .arguments
            .keys()
            .find(|name| !read.arguments.contains_key(*name))
        {
            return Some((call, format!("the argument `{lost}` is not read")));
        }
    }
    None
}

/// Writes the result of a call as text for a model that cannot receive results natively. No content can close the markup around it.
pub fn render_tool_result(name: &str, content: &str, is_error: bool) -> String {
    render_result(&CallResult {
        id: CallId::new(""),
        name: name.to_owned(),
        ending: if is_error {
            ToolResultStatus::Failed
        } else {
            ToolResultStatus::Done
        },
        content: content.to_owned(),
        images: Vec::new(),
    })
}

/// Renders the text that teaches the tools in the dialect of the options.
///
/// # Errors
/// The options name no dialect.
pub fn render_tool_prompt(options: &ReaderOptions) -> Result<String, BindingError> {
    let report = render_prompt(&PromptOptions {
        dialect: options.written_dialect()?,
        tools: options.tools.clone(),
        servers: Vec::new(),
        parallel_calls: options.parallel_calls(),
    });
    Ok(report.prompt)
}

/// Finds mistakes in definitions of tools: the report of `sabir lint --output json`. Without a dialect it checks for all of them and for
/// the providers' APIs.
///
/// # Errors
/// The text is no list of tools, or the dialect is unknown.
pub fn lint_definitions(tools: &str, dialect: Option<&str>) -> Result<String, BindingError> {
    let dialects = sabir_call::dialect::DialectSet::built_in();
    let options = LintOptions {
        dialects,
        dialect: dialect
            .filter(|name| *name != "auto")
            .map(|name| find_dialect(dialects, name))
            .transpose()?,
        deny_warnings: false,
        source_name: "tools".to_owned(),
    };
    let report = lint_text(tools, &options).map_err(|error| {
        let syntax = serde_json::from_str::<serde::de::IgnoredAny>(tools).err();
        BindingError::InvalidTools {
            message: error.to_string(),
            span: syntax.and_then(|error| json_error_span(&error, tools)),
        }
    })?;
    Ok(to_json(&report))
}

/// Applies an edit to a text: the report of `sabir edit --output json`. `format` is `search-replace`, `patch`, `string-replace`, `whole`, or
/// `auto`, which recognises all but a whole new content.
///
/// # Errors
/// The edit cannot be applied, with all problems and their lines; or the format is unknown.
pub fn apply_edit(text: &str, edit: &str, format: &str) -> Result<String, BindingError> {
    let format = match format {
        "auto" => None,
        "search-replace" => Some(EditSyntax::SearchReplace),
        "patch" => Some(EditSyntax::ApplyPatch),
        "string-replace" => Some(EditSyntax::StringReplace),
        "whole" => Some(EditSyntax::WholeFile),
        _ => {
            return Err(BindingError::UnknownWord {
                what: "a format of edits",
                found: format.to_owned(),
                known: "auto, search-replace, patch, string-replace or whole",
            });
        }
    };
    let edited = edit_text(text, edit, format).map_err(BindingError::EditFailed)?;
    Ok(to_json(&AppliedEdit::new(edited.content, &edited.hunks)))
}

/// Lists the built-in dialects: the report of `sabir dialects --output json`.
pub fn list_known_dialects() -> String {
    to_json(&list_dialects(sabir_call::dialect::DialectSet::built_in()))
}

/// Serializes a report. Reports have only string keys and no fallible parts, so this cannot fail.
fn to_json(report: &impl Serialize) -> String {
    serde_json::to_string(report).unwrap_or_default()
}
