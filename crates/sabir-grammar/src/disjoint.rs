//! Decides that two schemas have no value in common, as far as their types and listed values show.

use sabir_call::{json_type_name, resolve_reference};
use serde_json::Value;

use crate::value::{listed_values, required_names, type_names};

/// Reports whether no value satisfies two of these branches. `root` is the schema in which their references are resolved.
pub(crate) fn are_branches_disjoint(root: &Value, branches: &[Value]) -> bool {
    let branches: Vec<&Value> = branches
        .iter()
        .map(|branch| resolve_reference(root, branch).unwrap_or(branch))
        .collect();
    let mut earlier: Vec<&Value> = Vec::new();
    for branch in branches {
        if !earlier.iter().all(|other| are_disjoint(other, branch)) {
            return false;
        }
        earlier.push(branch);
    }
    true
}

fn are_disjoint(a: &Value, b: &Value) -> bool {
    match (listed_values(a), listed_values(b)) {
        (Some(a), Some(b)) => !a
            .iter()
            .any(|value| b.iter().any(|other| may_equal(value, other))),
        (Some(values), None) => are_outside(&values, b),
        (None, Some(values)) => are_outside(&values, a),
        (None, None) => are_types_disjoint(a, b) || have_distinct_tags(a, b),
    }
}

/// Reports whether two values may be equal in JSON Schema, where 1 and 1.0 are.
fn may_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        // Numbers in them could differ in their notation only.
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => a == b,
    }
}

/// Reports whether none of these values has a type of the schema.
fn are_outside(values: &[&Value], schema: &Value) -> bool {
    let types = type_names(schema);
    let is_of = |value: &Value, name: &str| {
        json_type_name(value) == name || value.is_number() && name == "integer"
    };
    !types.is_empty()
        && values
            .iter()
            .all(|value| !types.iter().any(|name| is_of(value, name)))
}

fn are_types_disjoint(a: &Value, b: &Value) -> bool {
    let general = |name: &str| if name == "integer" { "number" } else { name }.to_owned();
    let types_of = |schema| -> Vec<String> {
        let names = type_names(schema);
        names.into_iter().map(general).collect()
    };
    let names = types_of(a);
    let others = types_of(b);
    !names.is_empty() && !others.is_empty() && !names.iter().any(|name| others.contains(name))
}

/// Reports whether two schemas of objects require the same member with different listed values, as tagged unions do.
fn have_distinct_tags(a: &Value, b: &Value) -> bool {
    let is_object = |schema: &Value| schema.get("type").is_some_and(|name| name == "object");
    if !is_object(a) || !is_object(b) {
        return false;
    }
    let values_of = |schema, name: &str| -> Option<Vec<Value>> {
        let member = Value::get(schema, "properties")?.get(name)?;
        Some(listed_values(member)?.into_iter().cloned().collect())
    };
    let others = required_names(b);
    required_names(a)
        .into_iter()
        .filter(|name| others.contains(name))
        .filter_map(|name| values_of(a, name).zip(values_of(b, name)))
        .any(|(values, others)| {
            !values
                .iter()
                .any(|value| others.iter().any(|other| may_equal(value, other)))
        })
}
