//! Writes a JSON Schema of a whole message, for dialects whose calls are nothing but JSON.

use sabir_call::{ParallelCalls, ToolSet};
use serde_json::{Value, json};

use crate::builder::CallGrammar;
use crate::{GrammarError, GrammarFormat};

/// Stands for the arguments in a call's text.
const ARGUMENTS: &str = "\u{e004}";

/// Writes a JSON Schema that a message of calls satisfies.
///
/// # Errors
/// The calls of the dialect are not JSON, or there are markers around them.
pub fn write_json_schema(
    built: &CallGrammar,
    tools: &ToolSet,
    calls: ParallelCalls,
) -> Result<Value, GrammarError> {
    let layout = &built.layout;
    let inexpressible = || {
        GrammarError::Inexpressible {
        format: GrammarFormat::JsonSchema.name(),
        dialect: built.dialect.clone(),
        reason: "a message is not one JSON value, because there are markers around the JSON or other notations in it; \
                 use structural-tag, which puts a schema between markers, or gbnf or lark"
            .to_owned(),
    }
    };
    let mut schemas = Vec::new();
    for tool in &built.tools {
        let text = format!(
            // The arguments are a string here, so that the text is JSON if, and only if, there is
            // nothing but JSON around them.
            "{}{}\"{ARGUMENTS}\"{}{}",
            layout.run_open, tool.open, tool.close, layout.run_close
        );
        let value: Value = serde_json::from_str(&text).map_err(|_| inexpressible())?;
        let Some([call]) = value.as_array().map(Vec::as_slice) else {
            return Err(inexpressible());
        };
        let parameters = tools
            .get(&tool.name)
            .map_or(Value::Bool(true), |spec| spec.parameters.clone());
        schemas.push(schema_of(call, &parameters));
    }
    let most = match calls {
        ParallelCalls::One => json!(1),
        ParallelCalls::Many => Value::Null,
    };
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": schemas},
    });
    if let Some(object) = schema.as_object_mut().filter(|_| !most.is_null()) {
        object.insert("maxItems".to_owned(), most);
    }
    Ok(schema)
}

/// Returns the schema of values like this one, in which the placeholder stands for the arguments.
fn schema_of(value: &Value, parameters: &Value) -> Value {
    match value {
        Value::String(text) if text == ARGUMENTS => closed_parameters(parameters),
        Value::Object(map) => {
            let properties: serde_json::Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), schema_of(value, parameters)))
                .collect();
            let required: Vec<&String> = map.keys().collect();
            json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            })
        }
        other => json!({"const": other}),
    }
}

/// Returns the parameters of a tool as a closed object: an undeclared argument would be a mistake of the model.
pub(super) fn closed_parameters(parameters: &Value) -> Value {
    let mut closed = parameters.clone();
    if let Some(object) = closed.as_object_mut() {
        object
            .entry("type")
            .or_insert_with(|| Value::from("object"));
        object.entry("properties").or_insert_with(|| json!({}));
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    closed
}
