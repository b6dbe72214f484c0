//! Finds keywords in a schema that a grammar cannot express or understand in any notation.

use std::collections::{BTreeSet, VecDeque};

use sabir_call::resolve_reference;
use serde_json::Value;

use crate::value::{is_type_name, type_names};

/// A keyword at its place in a tool's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeywordLocation {
    pub(crate) place: String,
    pub(crate) keyword: &'static str,
}

/// A schema at its place.
struct PlacedSchema<'s> {
    place: String,
    schema: &'s Value,
}

/// Returns the places with these keywords, with a `type` that is none, and with a `$ref` that leads nowhere.
pub(crate) fn find_keywords(root: &Value, keywords: &[&'static str]) -> Vec<KeywordLocation> {
    let mut notes = Vec::new();
    let mut followed = BTreeSet::new();
    // No recursion: a chain of references may be longer than the stack.
    let mut open = VecDeque::from([PlacedSchema {
        place: String::new(),
        schema: root,
    }]);
    while let Some(PlacedSchema { place, schema }) = open.pop_front() {
        let mut note = |keyword| {
            notes.push(KeywordLocation {
                place: place.clone(),
                keyword,
            });
        };
        for keyword in keywords {
            if schema.get(*keyword).is_some() {
                note(keyword);
            }
        }
        if has_unknown_type(schema) {
            note("type");
        }
        if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
            match resolve_reference(root, schema) {
                None => note("$ref"),
                Some(target) if followed.insert(pointer) => open.push_back(PlacedSchema {
                    place: place.clone(),
                    schema: target,
                }),
                Some(_) => {}
            }
        }
        open.extend(parts_of(&place, schema));
    }
    notes
}

fn has_unknown_type(schema: &Value) -> bool {
    match schema.get("type") {
        None => false,
        Some(Value::String(_) | Value::Array(_)) => {
            !type_names(schema).iter().all(|name| is_type_name(name))
        }
        Some(_) => true,
    }
}

/// Returns the schemas in a schema, with the places that relaxations name.
fn parts_of<'s>(place: &str, schema: &'s Value) -> Vec<PlacedSchema<'s>> {
    let behind = |name: &str| match place.is_empty() {
        true => name.to_owned(),
        false => format!("{place}.{name}"),
    };
    let mut parts = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let place = behind(name);
        parts.push(PlacedSchema { place, schema });
    }
    for (keyword, name) in [("items", "items"), ("additionalProperties", "*")] {
        if let Some(schema) = schema.get(keyword) {
            let place = behind(name);
            parts.push(PlacedSchema { place, schema });
        }
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let branches = schema.get(keyword).and_then(Value::as_array);
        parts.extend(branches.into_iter().flatten().map(|schema| PlacedSchema {
            place: place.to_owned(),
            schema,
        }));
    }
    parts
}
