//! Reads lists of tools in the shapes that other programs use: OpenAI's, Anthropic's, Gemini's, Bedrock's and MCP's.
//!
//! The shapes are those of the providers' API references and of the result of `tools/list` in the Model Context Protocol. A list may
//! be an array, or an object that holds one: a request body (`tools`), a result of MCP, or a JSON-RPC response with such a result.

use sabir_call::{ToolError, ToolSet, ToolSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ToolboxError;

/// A list of tools, converted to an array of `{name, description, parameters}`.
#[derive(Debug)]
pub(crate) struct ToolList {
    /// The converted tools. An element that has no known shape is kept as it is, so that an error can name it.
    pub(crate) tools: Value,
    /// The position of each tool in the source.
    positions: Vec<ToolPosition>,
    /// True if the source already had Sabir's own shape.
    is_own: bool,
}

/// The position of a tool in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolPosition {
    /// The JSON pointer of the object with the tool's name.
    tool: String,
    /// The pointer of the schema below it.
    parameters: &'static str,
}

/// A tool and its position.
struct FoundTool {
    tool: Value,
    position: ToolPosition,
    is_own: bool,
}

/// Parses a list of tools in any known shape. `source_name` appears in the error.
///
/// # Errors
/// The text is no such list, or two tools share a name.
pub fn parse_tools(text: &str, source_name: &str) -> Result<ToolSet, ToolboxError> {
    let list = ToolList::parse(text, source_name)?;
    let named = |error: ToolError, position: &str| ToolboxError::Tools {
        source_name: format!("{source_name}{position}"),
        error,
    };
    // From the text where that is possible, so that an error has its line and column.
    if list.is_own {
        return ToolSet::from_json(text).map_err(|error| named(error, ""));
    }
    let items = list.tools.as_array().map_or(&[][..], Vec::as_slice);
    let specs = items
        .iter()
        .zip(&list.positions)
        .map(|(item, position)| {
            ToolSpec::deserialize(item)
                .map_err(|error| named(error.into(), &format!(" at {}", position.tool)))
        })
        .collect::<Result<Vec<_>, _>>()?;
    ToolSet::new(specs).map_err(|error| named(error, ""))
}

impl ToolList {
    /// Parses a list; elements that are not tools are kept.
    ///
    /// # Errors
    /// The text is not JSON, or holds no list.
    pub(crate) fn parse(text: &str, source_name: &str) -> Result<Self, ToolboxError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ToolboxError::ToolsNotJson {
                source_name: source_name.to_owned(),
                error,
            })?;
        let is_array = value.is_array();
        let (prefix, items) = find_items(&value).ok_or_else(|| ToolboxError::ToolsNotArray {
            source_name: source_name.to_owned(),
            found: sabir_call::json_type_name(&value),
        })?;
        let found: Vec<_> = items
            .iter()
            .enumerate()
            .filter(|(_, item)| !is_native_tool(item))
            .flat_map(|(index, item)| convert_item(item, &format!("{prefix}/{index}")))
            .collect();
        let is_own =
            is_array && found.iter().all(|found| found.is_own) && !items.iter().any(is_native_tool);
        let (tools, positions) = found
            .into_iter()
            .map(|found| (found.tool, found.position))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Ok(Self {
            tools: Value::Array(tools),
            positions,
            is_own,
        })
    }

    /// Translates a JSON pointer into the converted list to one into the source.
    pub(crate) fn source_pointer(&self, pointer: &str) -> String {
        let Some((index, rest)) = pointer.strip_prefix('/').map(|path| {
            let (index, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
            (index.parse::<usize>().ok(), rest)
        }) else {
            return pointer.to_owned();
        };
        let Some(position) = index.and_then(|index| self.positions.get(index)) else {
            return pointer.to_owned();
        };
        match rest.strip_prefix("/parameters") {
            Some(below) if below.is_empty() || below.starts_with('/') => {
                format!("{}/{}{below}", position.tool, position.parameters)
            }
            _ => format!("{}{rest}", position.tool),
        }
    }
}

/// Finds the array of tools in a value, and its JSON pointer.
fn find_items(value: &Value) -> Option<(&'static str, &[Value])> {
    if let Value::Array(items) = value {
        return Some(("", items));
    }
    ["/tools", "/result/tools", "/toolConfig/tools"]
        .into_iter()
        .find_map(|pointer| Some((pointer, value.pointer(pointer)?.as_array()?.as_slice())))
}

/// The members of Gemini's tools that the provider runs itself.
const GEMINI_NATIVE: [&str; 14] = [
    "googleSearch",
    "google_search",
    "googleSearchRetrieval",
    "google_search_retrieval",
    "googleMaps",
    "google_maps",
    "codeExecution",
    "code_execution",
    "urlContext",
    "url_context",
    "computerUse",
    "computer_use",
    "fileSearch",
    "file_search",
];

/// Reports whether an element is a tool that a model cannot call as text: one that the provider runs itself (`web_search`, `mcp`), or
/// whose input is no JSON object (`custom`). Such a tool has a type of its own and no schema.
fn is_native_tool(item: &Value) -> bool {
    let Some(members) = item.as_object() else {
        return false;
    };
    let has_any = |names: &[&str]| names.iter().any(|name| members.contains_key(*name));
    let has_own_type = members
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind != "function");
    has_own_type && !has_any(&["parameters", "input_schema", "inputSchema", "function"])
        || has_any(&GEMINI_NATIVE) && !has_any(&["functionDeclarations", "function_declarations"])
}

/// Converts an element of the array: one tool, or several of a Gemini declaration.
fn convert_item(item: &Value, pointer: &str) -> Vec<FoundTool> {
    let function = item.get("function").filter(|inner| inner.is_object());
    let spec = item.get("toolSpec").filter(|inner| inner.is_object());
    let declarations = ["functionDeclarations", "function_declarations"]
        .into_iter()
        .find_map(|key| Some((key, item.get(key)?.as_array()?)));
    if let Some((key, declarations)) = declarations {
        return declarations
            .iter()
            .enumerate()
            .map(|(index, declaration)| {
                convert_declaration(declaration, format!("{pointer}/{key}/{index}"))
            })
            .collect();
    }
    let (tool, position, schema) = if let Some(inner) = function {
        (inner, format!("{pointer}/function"), "parameters")
    } else if let Some(inner) = spec {
        (inner, format!("{pointer}/toolSpec"), "inputSchema/json")
    } else if item.get("input_schema").is_some() {
        (item, pointer.to_owned(), "input_schema")
    } else if item.get("inputSchema").is_some() {
        (item, pointer.to_owned(), "inputSchema")
    } else {
        (item, pointer.to_owned(), "parameters")
    };
    // The Responses API differs from Sabir's own shape only by members that say nothing about the
    // tool.
    let is_own = schema == "parameters" && function.is_none() && item.get("type").is_none();
    let tool = if is_own {
        tool.clone()
    } else {
        convert_tool(tool, schema)
    };
    vec![FoundTool {
        tool,
        position: ToolPosition {
            tool: position,
            parameters: schema,
        },
        is_own,
    }]
}

/// Returns a tool with the members of Sabir's own shape. Members that are missing or null stay away.
fn convert_tool(tool: &Value, schema: &str) -> Value {
    let schema = tool.pointer(&format!("/{schema}"));
    let members = [
        ("name", tool.get("name")),
        ("description", tool.get("description")),
        ("parameters", schema),
    ];
    let members = members.into_iter().filter_map(|(key, value)| {
        Some((
            key.to_owned(),
            value.filter(|value| !value.is_null())?.clone(),
        ))
    });
    Value::Object(members.collect::<Map<_, _>>())
}

/// Converts a declaration of Gemini, whose schemas have a dialect of their own.
fn convert_declaration(declaration: &Value, position: String) -> FoundTool {
    let spec = sabir_wire::decode_gemini_declaration(declaration).ok();
    let key = if declaration.get("parametersJsonSchema").is_some() {
        "parametersJsonSchema"
    } else {
        "parameters"
    };
    FoundTool {
        tool: spec
            .and_then(|spec| serde_json::to_value(spec).ok())
            .unwrap_or_else(|| declaration.clone()),
        position: ToolPosition {
            tool: position,
            parameters: key,
        },
        is_own: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str =
        r#"{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}"#;

    fn list(text: &str) -> ToolList {
        ToolList::parse(&text.replace("SCHEMA", SCHEMA), "tools.json").unwrap()
    }

    #[test]
    fn tools_that_the_provider_runs_are_left_out() {
        let own = r#"{"name": "look", "description": "Looks.", "parameters": SCHEMA}"#;
        for native in [
            r#"{"type": "web_search"}"#,
            r#"{"type": "mcp", "server_label": "files", "server_url": "http://127.0.0.1"}"#,
            r#"{"type": "computer_use_preview", "display_width": 800}"#,
            r#"{"type": "bash_20250124", "name": "bash"}"#,
            r#"{"type": "custom", "custom": {"name": "code", "format": {"type": "text"}}}"#,
            r#"{"googleSearch": {}}"#,
        ] {
            let text = format!("[{native}, {own}]").replace("SCHEMA", SCHEMA);
            let tools = parse_tools(&text, "tools.json").unwrap();
            let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(names, ["look"], "{native}");
            let list = ToolList::parse(&text, "tools.json").unwrap();
            assert_eq!(list.source_pointer("/0/name"), "/1/name");
        }
        // Anthropic's type of a tool of the client.
        let custom = r#"[{"type": "custom", "name": "look", "input_schema": SCHEMA}]"#;
        assert_eq!(list(custom).tools.as_array().map(Vec::len), Some(1));
        assert!(parse_tools("[{}]", "tools.json").is_err());
    }

    #[test]
    fn every_shape_gives_the_same_tool() {
        let own = list(r#"[{"name": "look", "description": "Looks.", "parameters": SCHEMA}]"#);
        assert!(own.is_own);
        for (text, pointer) in [
            (
                r#"[{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}]"#,
                "/0/function/parameters/properties/path",
            ),
            (
                r#"[{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": null}]"#,
                "/0/parameters/properties/path",
            ),
            (
                r#"{"model": "m", "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]}"#,
                "/tools/0/input_schema/properties/path",
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "look", "title": "Look", "description": "Looks.", "inputSchema": SCHEMA}]}}"#,
                "/result/tools/0/inputSchema/properties/path",
            ),
            (
                r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": SCHEMA}}}]}}"#,
                "/toolConfig/tools/0/toolSpec/inputSchema/json/properties/path",
            ),
            (
                r#"[{"functionDeclarations": [{"name": "look", "description": "Looks.", "parametersJsonSchema": SCHEMA}]}]"#,
                "/0/functionDeclarations/0/parametersJsonSchema/properties/path",
            ),
            (
                r#"{"tools": [{"function_declarations": [{"name": "look", "description": "Looks.", "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}, "required": ["path"]}}]}]}"#,
                "/tools/0/function_declarations/0/parameters/properties/path",
            ),
        ] {
            let read = list(text);
            assert!(!read.is_own, "{text}");
            assert_eq!(read.tools, own.tools, "{text}");
            assert_eq!(
                read.source_pointer("/0/parameters/properties/path"),
                pointer,
                "{text}"
            );
            let set = parse_tools(&text.replace("SCHEMA", SCHEMA), "tools.json").unwrap();
            assert_eq!(set.iter().next().unwrap().name, "look");
        }
    }

    #[test]
    fn errors_name_the_source() {
        let message = |text: &str| parse_tools(text, "tools.json").unwrap_err().to_string();
        assert!(message("[").starts_with("tools.json: not JSON: "));
        assert!(message(r#"{"a": 1}"#).starts_with("tools.json: a list of tools was expected"));
        assert!(message(r#"[{"parameters": {}}]"#).contains("missing field `name` at line 1"));
        assert_eq!(
            message(r#"[{"type": "web_search"}, {"type": "function"}]"#),
            "tools.json at /1: the tools are not a JSON array of {name, description, parameters}: missing field `name`"
        );
    }
}
