//! Accepts values by schemas of a few common keywords, without compiling a validator.
//!
//! Most tools have such a schema and most calls are right, while the first validator costs a tenth of all that a short task computes, since
//! the schema of schemas is compiled for it. What is accepted here is valid; what is not may be valid all the same, and the validator
//! decides and says why.

use serde_json::Value;

/// The deepest schema that is looked into.
const MAX_DEPTH: usize = 32;

/// The most strings of an enumeration, of types, or of required names.
const MAX_STRINGS: usize = 64;

/// The largest whole number up to which `f64` has all of them.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reports whether a schema is valid in drafts 7 and later, and has only keywords that [`accepts`] knows.
pub(crate) fn is_plain(schema: &Value) -> bool {
    is_plain_within(schema, MAX_DEPTH)
}

fn is_plain_within(schema: &Value, depth: usize) -> bool {
    let Some(keywords) = schema.as_object() else {
        return schema.is_boolean();
    };
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    let inner = |schema: &Value| is_plain_within(schema, depth);
    keywords
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            "type" => match value {
                Value::String(name) => is_type_name(name),
                Value::Array(names) => {
                    are_distinct_strings(names)
                        && !names.is_empty()
                        && names.iter().filter_map(Value::as_str).all(is_type_name)
                }
                _ => false,
            },
            "required" => value
                .as_array()
                .is_some_and(|names| are_distinct_strings(names)),
            // Draft 7 and later ones differ about lists that are empty or have doubles.
            "enum" => value.as_array().is_some_and(|values| {
                !values.is_empty() && (are_distinct_strings(values) || values.len() == 1)
            }),
            "const" | "default" => true,
            "title" | "description" | "format" => value.is_string(),
            "examples" => value.is_array(),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                value.as_f64().is_some_and(|limit| limit.abs() < MAX_EXACT)
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => value.is_u64(),
            "readOnly" | "writeOnly" => value.is_boolean(),
            "items" | "additionalProperties" => inner(value),
            "properties" => value
                .as_object()
                .is_some_and(|properties| properties.values().all(inner)),
            "allOf" | "anyOf" => value
                .as_array()
                .is_some_and(|schemas| !schemas.is_empty() && schemas.iter().all(inner)),
            _ => false,
        })
}

fn is_type_name(name: &str) -> bool {
    matches!(
        name,
        "null" | "boolean" | "object" | "array" | "number" | "string" | "integer"
    )
}

/// Reports whether all values are strings, no two of them equal. Long lists are left to the validator: each string is compared with each, and a
/// client chooses the schema.
fn are_distinct_strings(values: &[Value]) -> bool {
    values.len() <= MAX_STRINGS
        && values.iter().enumerate().all(|(at, value)| {
            value.is_string() && values.iter().take(at).all(|earlier| earlier != value)
        })
}

/// Returns true if a value is valid by a schema, which is plain. Returns false if it is not, or if this is not clear.
pub(crate) fn accepts(schema: &Value, value: &Value) -> bool {
    let Some(keywords) = schema.as_object() else {
        return *schema == Value::Bool(true);
    };
    keywords.iter().all(|(keyword, expected)| {
        let count = || {
            expected
                .as_u64()
                .and_then(|count| usize::try_from(count).ok())
        };
        match keyword.as_str() {
            "type" => match expected {
                Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "required" => value.as_object().is_none_or(|object| {
                let names = expected.as_array().into_iter().flatten();
                names
                    .filter_map(Value::as_str)
                    .all(|name| object.contains_key(name))
            }),
            "enum" => expected
                .as_array()
                .is_some_and(|values| values.contains(value)),
            "const" => value == expected,
            "minimum" => compare_numbers(value, expected, |value, limit| value >= limit),
            "maximum" => compare_numbers(value, expected, |value, limit| value <= limit),
            "exclusiveMinimum" => compare_numbers(value, expected, |value, limit| value > limit),
            "exclusiveMaximum" => compare_numbers(value, expected, |value, limit| value < limit),
            "minLength" | "maxLength" => value.as_str().is_none_or(|text| {
                let length = text.chars().count();
                is_within(keyword, length, count())
            }),
            "minItems" | "maxItems" => value
                .as_array()
                .is_none_or(|items| is_within(keyword, items.len(), count())),
            "minProperties" | "maxProperties" => value
                .as_object()
                .is_none_or(|object| is_within(keyword, object.len(), count())),
            "items" => value
                .as_array()
                .is_none_or(|items| items.iter().all(|item| accepts(expected, item))),
            "properties" => value.as_object().is_none_or(|object| {
                let properties = expected.as_object().into_iter().flatten();
                properties
                    .filter_map(|(name, schema)| Some((schema, object.get(name)?)))
                    .all(|(schema, value)| accepts(schema, value))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let properties = keywords.get("properties").and_then(Value::as_object);
                object
                    .iter()
                    .filter(|(name, _)| properties.is_none_or(|known| !known.contains_key(*name)))
                    .all(|(_, value)| accepts(expected, value))
            }),
            "allOf" => expected
                .as_array()
                .is_some_and(|schemas| schemas.iter().all(|schema| accepts(schema, value))),
            "anyOf" => expected
                .as_array()
                .is_some_and(|schemas| schemas.iter().any(|schema| accepts(schema, value))),
            _ => true,
        }
    })
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        // `1.0` is an integer, too, which the validator may say.
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

/// Compares a number with a limit. Other values have none; numbers that `f64` does not have exactly are not clear.
fn compare_numbers(value: &Value, limit: &Value, holds: impl Fn(f64, f64) -> bool) -> bool {
    match (value.as_f64(), limit.as_f64()) {
        (None, _) => !value.is_number(),
        (Some(number), Some(limit)) => number.abs() < MAX_EXACT && holds(number, limit),
        (Some(_), None) => false,
    }
}

/// Reports whether a length is within the limit of a keyword that begins with `min` or `max`.
fn is_within(keyword: &str, length: usize, limit: Option<usize>) -> bool {
    limit.is_some_and(|limit| {
        if keyword.starts_with("min") {
            length >= limit
        } else {
            length <= limit
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Generates values of which many fit the schemas below.
    fn values() -> impl Strategy<Value = Value> {
        let leaves = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-3..4_i64).prop_map(Value::from),
            Just(json!(1.0)),
            Just(json!(2.5)),
            Just(json!(9_007_199_254_740_993_u64)),
            "[aä]{0,3}".prop_map(Value::from),
        ];
        leaves.prop_recursive(2, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    /// Generates schemas, of which most are plain, and some of those that are not are invalid.
    fn schemas() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(&TYPES[..]);
        let leaf = prop_oneof![
            name.clone().prop_map(|name| json!({"type": name})),
            prop::collection::vec(name, 0..3).prop_map(|names| json!({"type": names})),
            any::<bool>().prop_map(Value::from),
            prop::collection::vec(values(), 0..3).prop_map(|values| json!({"enum": values})),
            values().prop_map(|value| json!({"const": value})),
            (prop::sample::select(&LIMITS[..]), -1..4_i64)
                .prop_map(|(keyword, limit)| json!({keyword: limit})),
            (
                prop::sample::select(&LIMITS[..]),
                0..4_i64,
                prop::sample::select(&LIMITS[..]),
                0..4_i64
            )
                .prop_map(|(one, low, other, high)| json!({one: low, other: high, "title": "x"})),
            prop::collection::vec("[ab]", 0..3).prop_map(|names| json!({"required": names})),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let properties = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
            prop_oneof![
                inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
                (properties, inner.clone()).prop_map(
                    |(properties, more)| json!({"properties": properties, "additionalProperties": more})
                ),
                prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({"anyOf": all})),
                prop::collection::vec(inner, 0..3).prop_map(|all| json!({"allOf": all})),
            ]
        })
    }

    const TYPES: [&str; 7] = [
        "null", "boolean", "object", "array", "number", "string", "integer",
    ];

    const LIMITS: [&str; 10] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ];

    proptest! {
        /// What is plain is valid, and what is accepted is.
        #[test]
        fn nothing_wrong_is_accepted(schema in schemas(), values in prop::collection::vec(values(), 1..8)) {
            let validator = jsonschema::options().offline().build(&schema);
            if is_plain(&schema) {
                prop_assert!(validator.is_ok(), "{schema}");
            }
            if let Ok(validator) = validator && is_plain(&schema) {
                for value in values {
                    prop_assert!(!accepts(&schema, &value) || validator.is_valid(&value), "{schema} {value}");
                }
            }
        }
    }

    #[test]
    fn the_usual_schemas_of_tools_are_plain() {
        let schema = json!({"type": "object", "description": "d", "additionalProperties": false, "required": ["path"],
            "properties": {"path": {"type": "string", "minLength": 1}, "line": {"type": "integer", "minimum": 1},
                "kind": {"type": "string", "enum": ["a", "b"]}, "all": {"type": ["boolean", "null"], "default": null},
                "list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}}});
        assert!(is_plain(&schema));
        let good = json!({"path": "ä", "line": 1, "kind": "b", "all": null, "list": ["x", 2.5]});
        assert!(accepts(&schema, &good));
        for (name, wrong) in [
            ("path", json!("")),
            ("line", json!(0)),
            ("kind", json!("c")),
            ("all", json!("true")),
            ("list", json!([null])),
            ("more", json!(1)),
        ] {
            let mut bad = good.clone();
            bad[name] = wrong;
            assert!(!accepts(&schema, &bad), "{bad}");
        }
        assert!(!accepts(&schema, &json!({"line": 1})));
        let many: Vec<String> = (0..=MAX_STRINGS).map(|at| at.to_string()).collect();
        assert!(!is_plain(&json!({"enum": many})));
        assert!(!is_plain(&json!({"type": "strin"})));
        assert!(!is_plain(
            &json!({"properties": {"a": {"$ref": "#/$defs/a"}}})
        ));
    }
}
