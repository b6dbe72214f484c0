//! Writes a JSON Schema of a whole message, for dialects whose calls are nothing but JSON.

use sabir_call::{ParallelCalls, ToolSet, resolve_reference};
use serde_json::{Map, Value, json};

use crate::builder::CallGrammar;
use crate::{GrammarError, GrammarFormat};

/// The most references that are followed to the object of a tool's parameters.
const MAX_REFERENCES: usize = 8;
/// Keywords that are left out: XGrammar applies those of strings to the escaped text between the quotes, and so forbids all escapes; and
/// below a negation, omitting a keyword changes the meaning.
const OMITTED_KEYWORDS: [&str; 6] = ["minLength", "maxLength", "pattern", "format", "not", "if"];
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
    let mut definitions = Map::new();
    for (number, tool) in built.tools.iter().enumerate() {
        let text = format!(
            // A string replaces the arguments here, so that the text is JSON if and only if
            // everything around them is JSON.
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
        // A number instead of the tool's name, which could need escapes in pointers.
        let name = format!("parameters-{number}");
        let closed = ClosedParameters::new(&parameters, &name);
        schemas.push(schema_of(call, &closed.schema));
        definitions.extend(closed.definitions.map(|schema| (name, schema)));
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
    if let Some(object) = schema.as_object_mut().filter(|_| !definitions.is_empty()) {
        object.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Ok(schema)
}

/// Returns the schema of values like this one, in which the placeholder stands for the arguments.
fn schema_of(value: &Value, parameters: &Value) -> Value {
    match value {
        Value::String(text) if text == ARGUMENTS => parameters.clone(),
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

/// A tool's parameters as a closed object: an undeclared argument would be a mistake of the model.
struct ClosedParameters {
    /// The schema of the arguments. Its references lead to `definitions` at [`ClosedParameters::pointer`].
    schema: Value,
    /// The whole parameters, if a reference leads to them.
    definitions: Option<Value>,
}

impl ClosedParameters {
    /// Closes parameters whose definitions will be below this name in the `$defs` of the document.
    fn new(parameters: &Value, name: &str) -> Self {
        let mut schema = parameters.clone();
        // Generators of schemas often leave only a reference at the top, which cannot be closed.
        for _ in 0..MAX_REFERENCES {
            match resolve_reference(parameters, &schema) {
                Some(target) => schema = target.clone(),
                None => break,
            }
        }
        close_object(&mut schema);
        let pointer = Self::pointer(name);
        let mut definitions = parameters.clone();
        for part in [&mut schema, &mut definitions] {
            if let Some(object) = part.as_object_mut() {
                // An identifier would make the part a document of its own, with its own pointers.
                object.remove("$id");
                object.remove("$schema");
            }
        }
        if let Some(object) = schema.as_object_mut() {
            object.remove("$defs");
            object.remove("definitions");
        }
        for part in [&mut schema, &mut definitions] {
            remove_string_limits(part);
        }
        let has_references = move_references(&mut schema, &pointer);
        move_references(&mut definitions, &pointer);
        Self {
            schema,
            definitions: has_references.then_some(definitions),
        }
    }

    /// Returns the pointer to the definitions of this name.
    fn pointer(name: &str) -> String {
        format!("#/$defs/{name}")
    }
}

/// Forbids undeclared properties, unless they may be declared in another part of the schema.
fn close_object(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    // `additionalProperties` considers only the properties beside it, so it would forbid those of the branches.
    let is_composed = [
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "dependentSchemas",
    ];
    if is_composed.iter().any(|key| object.contains_key(*key)) {
        return;
    }
    let required: Vec<String> = object
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    object
        .entry("type")
        .or_insert_with(|| Value::from("object"));
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        // A required name that is not declared would be forbidden too, and no call would be valid.
        for name in required {
            properties.entry(name).or_insert(Value::Bool(true));
        }
    }
    object.insert("additionalProperties".to_owned(), Value::Bool(false));
}

/// Removes the restrictions of strings, and what could become stricter without them.
fn remove_string_limits(schema: &mut Value) {
    visit_schemas(schema, &mut |object| {
        for keyword in OMITTED_KEYWORDS {
            object.remove(keyword);
        }
        // Branches that differed only in lengths or patterns overlap now.
        if !object.contains_key("anyOf")
            && let Some(branches) = object.remove("oneOf")
        {
            object.insert("anyOf".to_owned(), branches);
        }
    });
}

/// Calls a function for a schema and all schemas in it.
fn visit_schemas(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Array(items) => {
            for item in items {
                visit_schemas(item, visit);
            }
        }
        Value::Object(map) => {
            visit(map);
            for (key, value) in map {
                match (key.as_str(), value) {
                    // These hold values and no schemas.
                    ("const" | "enum" | "default" | "example" | "examples", _) => {}
                    // The keys of these are names and no keywords.
                    (
                        "properties" | "patternProperties" | "$defs" | "definitions"
                        | "dependentSchemas",
                        Value::Object(schemas),
                    ) => {
                        for schema in schemas.values_mut() {
                            visit_schemas(schema, visit);
                        }
                    }
                    (_, other) => visit_schemas(other, visit),
                }
            }
        }
        _ => {}
    }
}

/// Lets the references of a schema lead to a place in another document, and reports whether there are any.
fn move_references(schema: &mut Value, pointer: &str) -> bool {
    let mut is_moved = false;
    visit_schemas(schema, &mut |object| {
        if let Some(Value::String(target)) = object.get_mut("$ref") {
            let path = target.strip_prefix('#');
            let path = path.filter(|path| path.is_empty() || path.starts_with('/'));
            if let Some(path) = path {
                *target = format!("{pointer}{path}");
                is_moved = true;
            }
        }
    });
    is_moved
}
