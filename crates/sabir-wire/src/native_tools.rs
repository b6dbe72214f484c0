//! Tools of a provider's own: those that it runs itself, and those whose form only its models know.
//!
//! They travel as its wire wrote them, to that wire alone. What becomes of them elsewhere depends on who runs them.

use sabir_call::{OpaqueState, Request};
use serde_json::{Value, json};

use crate::{anthropic, openai_responses};

/// The name of the one argument of a tool whose input is text.
pub(crate) const INPUT: &str = "input";

/// What kind of tool it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NativeToolKind {
    /// The client runs it, and its input is one text. It is a tool on offer as well, with one argument.
    Freeform,
    /// The client runs it, and nobody but the provider's models knows its arguments.
    Client,
    /// A namespace: its tools are on offer as well, each under both names.
    Namespace,
    /// The provider runs it.
    Server,
}

/// Stands between the name of a namespace and that of a tool in it, where a tool has one name only.
const NAMESPACE_SEPARATOR: &str = "__";

/// A tool of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedTool {
    /// The one name under which it is offered.
    pub offered_name: String,
    /// The namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

/// How the types of tools begin that a client runs, though they have no schema.
const CLIENT_TOOL_PREFIXES: [(&str, &str); 8] = [
    (anthropic::NAME, "bash_"),
    (anthropic::NAME, "text_editor_"),
    (anthropic::NAME, "computer_"),
    (anthropic::NAME, "memory_"),
    (openai_responses::NAME, "computer"),
    (openai_responses::NAME, "local_shell"),
    (openai_responses::NAME, "shell"),
    (openai_responses::NAME, "apply_patch"),
];

/// What kind of tool that is.
pub(crate) fn tool_kind(tool: &OpaqueState) -> NativeToolKind {
    let word = tool_type(tool);
    match word {
        "custom" => return NativeToolKind::Freeform,
        "namespace" => return NativeToolKind::Namespace,
        _ => {}
    }
    let client = CLIENT_TOOL_PREFIXES.iter().any(|(wire, start)| tool.wire == *wire && word.starts_with(start));
    if client { NativeToolKind::Client } else { NativeToolKind::Server }
}

/// Its type, as its wire says it.
pub(crate) fn tool_type(tool: &OpaqueState) -> &str {
    tool.data.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Its name, if it has one.
pub(crate) fn tool_name(tool: &OpaqueState) -> Option<&str> {
    tool.data.get("name").and_then(Value::as_str)
}

/// Whether its input is held to a grammar.
pub(crate) fn has_grammar(tool: &OpaqueState) -> bool {
    tool.data.get("format").and_then(|format| format.get("type")).is_some_and(|kind| kind == "grammar")
}

/// The tools of that wire in a request.
pub(crate) fn tools_of_wire<'r>(request: &'r Request, wire: &'r str) -> impl Iterator<Item = &'r OpaqueState> {
    request.options.native.iter().filter(move |tool| tool.wire == wire)
}

/// The names of the tools whose input is text.
pub(crate) fn freeform_tool_names(request: &Request, wire: &str) -> Vec<String> {
    tools_of_wire(request, wire)
        .filter(|tool| tool_kind(tool) == NativeToolKind::Freeform)
        .filter_map(tool_name)
        .map(str::to_owned)
        .collect()
}

/// The one name of a tool of a namespace. A function that was found by a search for tools is called in a namespace of its own name
/// (recordings 405 and 409), and has one name all the same.
pub(crate) fn joined_tool_name(space: &str, name: &str) -> String {
    if space.is_empty() || space == name { name.to_owned() } else { format!("{space}{NAMESPACE_SEPARATOR}{name}") }
}

/// The tools of namespaces.
pub(crate) fn namespaced_tools(request: &Request, wire: &str) -> Vec<NamespacedTool> {
    let mut found = Vec::new();
    for tool in tools_of_wire(request, wire).filter(|tool| tool_kind(tool) == NativeToolKind::Namespace) {
        let space = tool_name(tool).unwrap_or_default();
        let inside = tool.data.get("tools").and_then(Value::as_array).into_iter().flatten();
        let names = inside.filter_map(|tool| tool.get("name").and_then(Value::as_str));
        found.extend(names.map(|name| NamespacedTool {
            offered_name: joined_tool_name(space, name),
            namespace: space.to_owned(),
            name: name.to_owned(),
        }));
    }
    found
}

/// The schema of a tool whose input is text.
pub(crate) fn text_schema() -> Value {
    json!({
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The input, as it is."}},
        "required": [INPUT],
        "additionalProperties": false,
    })
}
