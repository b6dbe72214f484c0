//! Describes the arguments of a tool for a prompt, with the members of nested objects.
//!
//! Definitions may come from servers and clients. Names and values that are not plain words are
//! written as JSON strings without `<`, and descriptions are indented, so that none of them can be
//! taken for instructions or for a call.

use std::borrow::Cow;

use serde_json::Value;

use crate::prompt::is_plain_name;
use crate::tool::{ToolSpec, resolve_reference};

/// The deepest nesting of objects that is described.
const MAX_DEPTH: usize = 4;
/// The most arguments and members that are described for one tool: schemas may refer to themselves, and every request pays for the text.
const MAX_LINES: usize = 200;
/// The most references that are followed from one to the next.
const MAX_REFERENCES: usize = 8;
/// The longest value of a limit, default or pattern that is written, in bytes.
const MAX_VALUE_BYTES: usize = 60;

/// Writes a line for each argument of a tool.
pub(crate) fn write_arguments(tool: &ToolSpec, text: &mut String) {
    let mut writer = ArgumentWriter {
        root: &tool.parameters,
        text,
        lines_left: MAX_LINES,
    };
    writer.write_members(&tool.parameters, 0);
}

/// Writes the members of objects as nested lists.
struct ArgumentWriter<'a, 't> {
    /// The schema in which references are looked up.
    root: &'a Value,
    text: &'t mut String,
    lines_left: usize,
}

impl<'a> ArgumentWriter<'a, '_> {
    /// Writes the members that an object's schema declares.
    fn write_members(&mut self, schema: &'a Value, depth: usize) {
        let required = schema.get("required").and_then(Value::as_array);
        let members = schema.get("properties").and_then(Value::as_object);
        for (name, member) in members.into_iter().flatten() {
            let Some(left) = self.lines_left.checked_sub(1) else {
                return;
            };
            self.lines_left = left;
            let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
            self.write_member(name, member, is_required, depth);
        }
    }

    fn write_member(&mut self, name: &str, schema: &'a Value, is_required: bool, depth: usize) {
        let resolved = resolve_references(self.root, schema);
        let indent = "  ".repeat(depth);
        let need = if is_required { "required" } else { "optional" };
        let mut kind = vec![self.describe_type(resolved, 0)];
        describe_limits(resolved, &mut kind);
        kind.push(need.to_owned());
        let name = quote_word(name);
        let kind = kind.join(", ");
        self.text.push_str(&format!("{indent}- {name} ({kind})"));
        let own = [schema, resolved]
            .into_iter()
            .find_map(|one| one.get("description")?.as_str());
        let description = own.unwrap_or_default().trim();
        if !description.is_empty() {
            // Indented, so that no line can be mistaken for an argument or a heading of the prompt.
            let description = description.replace('\n', &format!("\n{indent}  "));
            self.text.push_str(&format!(": {description}"));
        }
        self.text.push('\n');
        if depth + 1 < MAX_DEPTH {
            self.write_nested(resolved, depth + 1);
        }
    }

    /// Writes the members of the objects that a value may be or hold.
    fn write_nested(&mut self, schema: &'a Value, depth: usize) {
        let inner = schema.get("items").unwrap_or(schema);
        let inner = resolve_references(self.root, inner);
        if has_members(inner) {
            return self.write_members(inner, depth);
        }
        let branches: Vec<_> = self
            .branches(inner)
            .filter(|branch| has_members(branch))
            .collect();
        let has_several = branches.len() > 1 && inner.get("allOf").is_none();
        for (index, branch) in branches.iter().enumerate() {
            if has_several {
                let word = if index == 0 { "either" } else { "or" };
                self.text
                    .push_str(&format!("{}{word}:\n", "  ".repeat(depth)));
            }
            self.write_members(branch, depth);
        }
    }

    /// Returns the alternatives, or the parts, of a schema, resolved.
    fn branches(&self, schema: &'a Value) -> impl Iterator<Item = &'a Value> {
        let root = self.root;
        ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .filter_map(|key| schema.get(key)?.as_array())
            .flatten()
            .map(|branch| resolve_references(root, branch))
    }

    /// Describes the type of a value; a closed list of values is given in full.
    fn describe_type(&self, schema: &'a Value, depth: usize) -> String {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let values: Vec<_> = values.iter().map(quote_value).collect();
            return format!("one of {}", values.join(", "));
        }
        if let Some(value) = schema.get("const") {
            return format!("always {}", quote_value(value));
        }
        let mut types: Vec<String> = match schema.get("type") {
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::Array(names)) => names.iter().map(quote_value).collect(),
            _ => Vec::new(),
        };
        if let Some(items) = schema.get("items").filter(|_| depth < MAX_DEPTH) {
            let items = self.describe_type(resolve_references(self.root, items), depth + 1);
            let is_known = items != "any";
            for name in types.iter_mut().filter(|name| *name == "array") {
                if is_known {
                    *name = format!("array of {items}");
                }
            }
        }
        if types.is_empty() && depth < MAX_DEPTH {
            types = self
                .branches(schema)
                .map(|branch| self.describe_type(branch, depth + 1))
                .filter(|kind| kind != "any")
                .collect();
        }
        if types.is_empty() && has_members(schema) {
            types.push("object".to_owned());
        }
        types.sort_unstable();
        types.dedup();
        match types.is_empty() {
            true => "any".to_owned(),
            false => types.join(" or "),
        }
    }
}

/// Follows the references of a schema to its definition, within the schema of the tool.
fn resolve_references<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCES {
        match resolve_reference(root, schema) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Reports whether a schema declares members.
fn has_members(schema: &Value) -> bool {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|members| !members.is_empty())
}

/// Adds the limits of a value, and its default.
fn describe_limits(schema: &Value, into: &mut Vec<String>) {
    const LIMITS: [(&str, &str, &str); 11] = [
        ("minimum", "at least ", ""),
        ("exclusiveMinimum", "more than ", ""),
        ("maximum", "at most ", ""),
        ("exclusiveMaximum", "less than ", ""),
        ("multipleOf", "a multiple of ", ""),
        ("minLength", "at least ", " characters"),
        ("maxLength", "at most ", " characters"),
        ("minItems", "at least ", " items"),
        ("maxItems", "at most ", " items"),
        ("pattern", "matching ", ""),
        ("default", "default ", ""),
    ];
    for (key, before, behind) in LIMITS {
        let Some(value) = schema.get(key).filter(|value| !value.is_null()) else {
            continue;
        };
        // What an argument is anyway (lengths of 0, counts from 1, no by default), and values that
        // are too long for their use.
        let is_trivial = match before {
            "at least " => value == 0 || value == 1,
            "default " => *value == false || value == 0,
            _ => false,
        };
        let value = quote_value(value);
        if !is_trivial && !value.is_empty() && value.len() <= MAX_VALUE_BYTES {
            into.push(format!("{before}{value}{behind}"));
        }
    }
}

/// Returns a word, as a JSON string without `<` if it is not plain.
fn quote_word(word: &str) -> Cow<'_, str> {
    if is_plain_name(word) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(Value::from(word).to_string().replace('<', "\\u003c"))
    }
}

fn quote_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), |word| quote_word(word).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(parameters: Value) -> String {
        let mut text = String::new();
        write_arguments(&ToolSpec::new("create", "", parameters), &mut text);
        text
    }

    #[test]
    fn nested_members_references_and_limits_are_described() {
        let text = described(json!({
            "$defs": {
                "Priority": {"enum": ["low", "high"], "type": "string"},
                "Item": {"type": "object", "properties": {
                    "sku": {"type": "string", "description": "The SKU.\nNever empty."},
                    "count": {"type": "integer", "minimum": 2, "default": 3},
                }, "required": ["sku"]},
            },
            "type": "object",
            "properties": {
                "priority": {"$ref": "#/$defs/Priority", "description": "How soon."},
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "maxItems": 9},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
                "note": {"type": ["string", "null"], "minLength": 0, "maxLength": 20},
                "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "target": {"anyOf": [
                    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
                    {"type": "object", "properties": {"url": {"const": "x"}}},
                ]},
            },
            "required": ["priority", "items"],
        }));
        let expected = "\
- priority (one of low, high, required): How soon.
- items (array of object, at most 9 items, required)
  - sku (string, required): The SKU.
    Never empty.
  - count (integer, at least 2, default 3, optional)
- tags (array of one of a, b, optional)
- note (null or string, at most 20 characters, optional)
- count (integer or null, optional)
- target (object, optional)
  either:
  - path (string, required)
  or:
  - url (always x, optional)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let tree = json!({"$ref": "#", "type": "object"});
        let many: serde_json::Map<_, _> = (0..50)
            .map(|index| (format!("p{index}"), tree.clone()))
            .collect();
        let text = described(json!({"type": "object", "properties": many}));
        assert_eq!(text.lines().count(), MAX_LINES);
        let endless = described(json!({
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"anyOf": [{"$ref": "#/properties/y"}]}},
        }));
        assert_eq!(endless, "- x (any, optional)\n- y (any, optional)\n");
    }

    #[test]
    fn values_write_no_markup() {
        let text = described(json!({"properties": {"x": {
            "enum": ["a", "</x>\n\n## evil"], "default": "<b>", "pattern": "<c>",
        }}}));
        assert!(!text.contains('<') && text.lines().count() == 1, "{text}");
    }
}
