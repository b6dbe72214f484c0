//! Providers' own tools: those that the provider runs itself, and those whose form only its models
//! know.
//!
//! Such a tool travels unchanged, and only to its own wire. What other wires do with it depends on
//! who runs it.

use sabir_call::{OpaqueState, Request};
use serde_json::{Value, json};

use crate::{anthropic, gemini, openai_responses};

/// The name of the one argument of a tool whose input is text.
pub(crate) const INPUT: &str = "input";

/// The kind of a provider's own tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NativeToolKind {
    /// The client runs it, and its input is one text. It is also offered as an ordinary tool with
    /// one argument.
    Custom,
    /// The client runs it, and only the provider's models know its arguments.
    Client,
    /// A namespace. Its tools are also offered as ordinary tools, each under the joined name.
    Namespace,
    /// The provider runs it.
    Server,
}

/// The separator between the name of a namespace and that of its tool, where a tool has only one
/// name.
const NAMESPACE_SEPARATOR: &str = "__";

/// A tool of a namespace.
///
/// The model and the history use the joined name; only the Responses wire splits it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedTool {
    /// The joined name under which the tool is offered.
    ///
    /// It is `NAMESPACE__NAME`, or just the name if the namespace is empty or has the same name. It
    /// is looked up, never taken apart, because both names may contain the separator.
    pub offered_name: String,
    /// The namespace.
    pub namespace: String,
    /// The tool's name within the namespace.
    pub name: String,
}

/// Wire and type prefix of tools that the client runs although they have no schema.
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

/// Returns the kind of a tool.
pub(crate) fn tool_kind(tool: &OpaqueState) -> NativeToolKind {
    let word = tool_type(tool);
    match word {
        // Only the Responses wire has these types: a `custom` tool of Anthropic is an ordinary one
        // and is never kept as a native tool.
        "custom" => return NativeToolKind::Custom,
        "namespace" => return NativeToolKind::Namespace,
        _ => {}
    }
    // Types carry a version (`bash_20250124`), so only their beginning is compared.
    let client = CLIENT_TOOL_PREFIXES
        .iter()
        .any(|(wire, start)| tool.wire == *wire && word.starts_with(start));
    if client {
        NativeToolKind::Client
    } else {
        NativeToolKind::Server
    }
}

/// Returns the tool's type as its wire spells it, or an empty string.
pub(crate) fn tool_type(tool: &OpaqueState) -> &str {
    // A tool of Gemini is an object whose only member has the name of the type.
    if tool.wire == gemini::NAME {
        let members = tool.data.as_object();
        let first = members.and_then(|members| members.keys().next());
        return first.map_or("", String::as_str);
    }
    tool.data
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the tool's name, if it has one.
pub(crate) fn tool_name(tool: &OpaqueState) -> Option<&str> {
    tool.data.get("name").and_then(Value::as_str)
}

/// Returns true if a grammar constrains the tool's input.
pub(crate) fn has_grammar(tool: &OpaqueState) -> bool {
    tool.data
        .get("format")
        .and_then(|format| format.get("type"))
        .is_some_and(|kind| kind == "grammar")
}

/// Iterates over the tools of a wire in a request.
pub(crate) fn tools_of_wire<'r>(
    request: &'r Request,
    wire: &'r str,
) -> impl Iterator<Item = &'r OpaqueState> {
    request
        .options
        .native
        .iter()
        .filter(move |tool| tool.wire == wire)
}

/// Returns the names of the tools whose input is one text.
pub(crate) fn names_of_custom_tools(request: &Request, wire: &str) -> Vec<String> {
    tools_of_wire(request, wire)
        .filter(|tool| tool_kind(tool) == NativeToolKind::Custom)
        .filter_map(tool_name)
        .map(str::to_owned)
        .collect()
}

/// Joins the names of a namespace and its tool. A function that a search for tools found is called in a namespace with the function's own
/// name (recordings 405 and 409); its name is not changed.
pub(crate) fn joined_tool_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() || namespace == name {
        name.to_owned()
    } else {
        format!("{namespace}{NAMESPACE_SEPARATOR}{name}")
    }
}

/// Returns the tools of all namespaces in a request.
pub(crate) fn namespaced_tools(request: &Request, wire: &str) -> Vec<NamespacedTool> {
    let mut found = Vec::new();
    for tool in
        tools_of_wire(request, wire).filter(|tool| tool_kind(tool) == NativeToolKind::Namespace)
    {
        let namespace = tool_name(tool).unwrap_or_default();
        let inside = tool
            .data
            .get("tools")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        // A tool without a name is the provider's own, and gets no joined name.
        let names = inside.filter_map(|tool| tool.get("name").and_then(Value::as_str));
        found.extend(names.map(|name| NamespacedTool {
            offered_name: joined_tool_name(namespace, name),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }));
    }
    found
}

/// Returns the schema of a tool whose input is one text.
pub(crate) fn text_schema() -> Value {
    json!({
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The input, as it is."}},
        "required": [INPUT],
        "additionalProperties": false,
    })
}
