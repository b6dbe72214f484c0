//! Converts the schemas of servers' tools to the form of Sabir's tools.

use serde_json::{Map, Value, json};

use crate::limits::MAX_SCHEMA_BYTES;

/// Returns the schema of a tool's arguments as an object schema with `properties`. This establishes only what every reader of a schema
/// relies on; the encoder of each wire reshapes what the wire cannot express.
///
/// A schema that is too large is replaced by one that allows any arguments: the server checks them itself.
pub fn normalize_schema(schema: &Map<String, Value>) -> Value {
    let size = serde_json::to_string(schema).map_or(usize::MAX, |text| text.len());
    if size > MAX_SCHEMA_BYTES {
        return json!({"type": "object", "properties": {}, "additionalProperties": true});
    }
    let mut normal = schema.clone();
    // The identity of the schema is of no use to a model, and some providers reject it.
    normal.remove("$schema");
    normal.remove("$id");
    normal.insert("type".to_owned(), json!("object"));
    if !normal.get("properties").is_some_and(Value::is_object) {
        normal.insert("properties".to_owned(), json!({}));
    }
    // `required: null` and names that are not properties come from code generators, and providers
    // reject both.
    let known: Vec<Value> = match (normal.get("required"), normal.get("properties")) {
        (Some(Value::Array(names)), Some(Value::Object(properties))) => names
            .iter()
            .filter(|name| {
                name.as_str()
                    .is_some_and(|name| properties.contains_key(name))
            })
            .cloned()
            .collect(),
        _ => Vec::new(),
    };
    if known.is_empty() {
        normal.remove("required");
    } else {
        normal.insert("required".to_owned(), Value::Array(known));
    }
    Value::Object(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(schema: Value) -> Value {
        normalize_schema(schema.as_object().unwrap())
    }

    #[test]
    fn schemas_become_object_schemas() {
        assert_eq!(
            normalize(json!({})),
            json!({"type": "object", "properties": {}})
        );
        let full = json!({"$schema": "x", "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]});
        assert_eq!(
            normalize(full),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
        );
        assert_eq!(
            normalize(json!({"required": null, "properties": []})),
            json!({"properties": {}, "type": "object"})
        );
    }

    #[test]
    fn a_huge_schema_allows_anything() {
        let huge = json!({"properties": {"a": {"description": "x".repeat(MAX_SCHEMA_BYTES)}}});
        assert_eq!(normalize(huge)["additionalProperties"], json!(true));
    }
}
