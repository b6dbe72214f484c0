//! Tools with arguments of every kind.

use sabir_call::ToolSet;

/// Tools whose grammars are regular.
pub(crate) const PLAIN_TOOLS: &str = r#"[
  {"name": "write_to_file", "parameters": {"type": "object", "required": ["path", "content"], "additionalProperties": false,
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"enum": ["append", "truncate", "</content>"]}}}},
  {"name": "read_file", "parameters": {"type": "object", "required": ["path"],
    "properties": {"path": {"type": "string"}, "start_line": {"type": "integer", "minimum": 1, "maximum": 99999}, "quick": {"type": "boolean"}}}},
  {"name": "set_limits", "parameters": {"type": "object", "required": ["ratio"],
    "properties": {"label": {"type": ["string", "null"]}, "ratio": {"type": "number"}, "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
      "range": {"type": "object", "required": ["from"], "additionalProperties": false, "properties": {"from": {"type": "integer"}, "to": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "note": {"type": "string"}}}}}},
  {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
]"#;

/// A tool whose arguments are nested without a limit.
const NESTED_TOOL: &str = r##"{"name": "apply_changes", "parameters": {"type": "object", "required": ["tree"],
  "properties": {"tree": {"$ref": "#/$defs/node"}, "extra": {}, "options": {"type": "object"}},
  "$defs": {"node": {"type": "object", "required": ["name"], "additionalProperties": false,
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}}"##;

/// A tool whose strings are restricted.
const BOUNDED_TOOLS: &str = r#"[
  {"name": "file_issue", "parameters": {"type": "object", "required": ["title", "kind"], "additionalProperties": false,
    "properties": {"title": {"type": "string", "maxLength": 200}, "label": {"type": "string", "minLength": 1, "maxLength": 40},
      "due": {"type": "string", "format": "date-time"}, "owner": {"type": "string", "pattern": "^[a-z <>\"]*$"},
      "kind": {"oneOf": [{"const": "bug"}, {"const": "wish"}]}}}}
]"#;

pub(crate) fn bounded_tools() -> ToolSet {
    ToolSet::from_json(BOUNDED_TOOLS).unwrap()
}

pub(crate) fn plain_tools() -> ToolSet {
    ToolSet::from_json(PLAIN_TOOLS).unwrap()
}

pub(crate) fn all_tools() -> ToolSet {
    let list = PLAIN_TOOLS.trim_end().trim_end_matches(']');
    ToolSet::from_json(&format!("{list}, {NESTED_TOOL}]")).unwrap()
}
