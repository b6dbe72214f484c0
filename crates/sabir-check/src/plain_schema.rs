//! Validates values against schemas that use only the common keywords, without compiling a
//! validator.
//!
//! Most tools have such schemas. Compiling the first validator costs a tenth of the CPU time of a
//! short task, because the meta-schema is compiled with it. Other schemas are left to the
//! validator, which the small build of the bindings leaves out. On plain schemas both report the
//! same errors with the same messages in the same order; a property test compares them.

use std::cell::Cell;
use std::ops::ControlFlow;

use serde_json::{Map, Number, Value};

use crate::schema_error::{ErrorSink, SchemaError, SchemaErrorKind};

/// The deepest nesting of a plain schema. The limit ends the walk of a schema that refers to itself.
const MAX_DEPTH: usize = 32;

/// The most nodes of a plain schema, counted once for each reference to them. It limits the work for one value.
const MAX_NODES: usize = 4096;

/// The longest `enum`, `type` or `required` of a plain schema.
const MAX_VALUES: usize = 64;

/// 2^53: up to here `f64` represents every whole number.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The longest `enum` that an error lists in full.
const MAX_SHOWN_VALUES: usize = 3;

/// The number of declared properties from which the validator looks them up by name instead of going through them.
const MAX_LISTED_PROPERTIES: usize = 15;

/// Decides whether a schema is plain.
struct PlainWalk<'s> {
    /// The whole schema, with the definitions.
    root: &'s Value,
    /// True if the draft that the schema names validates formats.
    validates_formats: bool,
    /// The number of nodes that were visited.
    nodes: Cell<usize>,
}

/// Reports whether a schema is valid in drafts 7 and later, means the same in all of them, and has only keywords that
/// [`find_errors`] knows.
pub(crate) fn is_plain(schema: &Value) -> bool {
    let draft = match schema.get("$schema") {
        None => "",
        Some(Value::String(name)) => name.trim_end_matches('#'),
        Some(_) => return false,
    };
    let validates_formats = match draft {
        ""
        | "https://json-schema.org/draft/2019-09/schema"
        | "https://json-schema.org/draft/2020-12/schema" => false,
        "http://json-schema.org/draft-07/schema" => true,
        _ => return false,
    };
    let walk = PlainWalk {
        root: schema,
        validates_formats,
        nodes: Cell::new(0),
    };
    walk.is_plain(schema, MAX_DEPTH)
}

impl PlainWalk<'_> {
    fn is_plain(&self, schema: &Value, depth: usize) -> bool {
        let Some(keywords) = schema.as_object() else {
            return schema.is_boolean();
        };
        self.nodes.set(self.nodes.get() + 1);
        let Some(depth) = depth
            .checked_sub(1)
            .filter(|_| self.nodes.get() <= MAX_NODES)
        else {
            return false;
        };
        keywords
            .iter()
            .all(|(keyword, value)| self.is_plain_keyword(keywords, keyword, value, depth))
    }

    fn is_plain_keyword(
        &self,
        keywords: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        depth: usize,
    ) -> bool {
        let inner = |schema: &Value| self.is_plain(schema, depth);
        let inner_map =
            |value: &Value| value.as_object().is_some_and(|all| all.values().all(inner));
        match keyword {
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
            "enum" => value
                .as_array()
                .is_some_and(|values| !values.is_empty() && are_distinct(values)),
            "const" | "default" => true,
            // Keywords of no draft, which are common in the schemas of tools.
            "example" | "nullable" | "strict" => true,
            "title" | "description" | "$comment" => value.is_string(),
            "format" => value.is_string() && !self.validates_formats,
            "examples" => value.is_array(),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                value.as_f64().is_some_and(|limit| limit.abs() < MAX_EXACT)
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => value.is_u64(),
            "readOnly" | "writeOnly" | "deprecated" => value.is_boolean(),
            "items" | "additionalProperties" | "not" => inner(value),
            "properties" => inner_map(value),
            "allOf" | "anyOf" | "oneOf" => value
                .as_array()
                .is_some_and(|schemas| !schemas.is_empty() && schemas.iter().all(inner)),
            "$schema" => std::ptr::eq(keywords, self.root.as_object().unwrap_or(keywords)),
            "$defs" | "definitions" => {
                std::ptr::eq(keywords, self.root.as_object().unwrap_or(keywords))
                    && inner_map(value)
            }
            // Draft 7 ignores what is beside a reference.
            "$ref" => {
                keywords.keys().all(|keyword| is_annotation(keyword))
                    && find_definition(self.root, value).is_some_and(inner)
            }
            _ => false,
        }
    }
}

/// Reports whether a keyword may be beside a reference, since it does not restrict values.
fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "$ref"
            | "$comment"
            | "title"
            | "description"
            | "default"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "examples"
            | "example"
    )
}

/// Returns the definition that a reference names; `None` if it names something else.
fn find_definition<'s>(root: &'s Value, reference: &Value) -> Option<&'s Value> {
    let location = reference.as_str()?.strip_prefix("#/")?;
    let (list, name) = location.split_once('/')?;
    let is_simple = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if is_simple && matches!(list, "$defs" | "definitions") {
        root.get(list)?.get(name)
    } else {
        None
    }
}

fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.contains(&name)
}

/// The names of types, in the order in which an error lists them.
const TYPE_NAMES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

fn are_distinct_strings(values: &[Value]) -> bool {
    values.iter().all(Value::is_string) && are_distinct(values)
}

/// Returns true if no two values are equal. Of lists longer than [`MAX_VALUES`] it returns false, because each value is compared with
/// each, and a client chooses the schema.
fn are_distinct(values: &[Value]) -> bool {
    values.len() <= MAX_VALUES
        && values.iter().enumerate().all(|(at, value)| {
            values
                .iter()
                .take(at)
                .all(|earlier| !are_equal(earlier, value))
        })
}

/// A location in the value that is validated.
#[derive(Clone, Copy)]
enum InstanceLocation<'p> {
    /// The value itself.
    Root,
    /// A member of an object, by its name.
    Member(&'p InstanceLocation<'p>, &'p str),
    /// An item of an array, by its index.
    Item(&'p InstanceLocation<'p>, usize),
}

impl InstanceLocation<'_> {
    /// Returns the location as a JSON pointer (RFC 6901).
    fn to_pointer(self) -> String {
        match self {
            InstanceLocation::Root => String::new(),
            InstanceLocation::Member(parent, name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                format!("{}/{name}", parent.to_pointer())
            }
            InstanceLocation::Item(parent, index) => format!("{}/{index}", parent.to_pointer()),
        }
    }
}

/// Passes the errors of a value to the sink until the sink stops the search. The schema must be plain.
pub(crate) fn find_errors(schema: &Value, value: &Value, sink: &mut ErrorSink<'_>) {
    // The sink may end the search early, which is no result.
    let _ = PlainValidator { root: schema }.validate(schema, value, InstanceLocation::Root, sink);
}

/// The keywords that restrict values, in the order in which the validator reports their errors.
const VALIDATED_KEYWORDS: [&str; 22] = [
    "type",
    "const",
    "enum",
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
    "required",
    "properties",
    "additionalProperties",
    "items",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "$ref",
];

/// Validates values against a plain schema.
#[derive(Clone, Copy)]
struct PlainValidator<'s> {
    /// The whole schema, with the definitions.
    root: &'s Value,
}

impl PlainValidator<'_> {
    /// Returns true if a value has no errors.
    fn accepts(self, schema: &Value, value: &Value) -> bool {
        let mut refuse = |_: &SchemaError<'_>| ControlFlow::Break(());
        self.validate(schema, value, InstanceLocation::Root, &mut refuse)
            .is_continue()
    }

    /// Validates a value against a schema or a part of one, keyword by keyword.
    fn validate(
        self,
        schema: &Value,
        value: &Value,
        location: InstanceLocation<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let Some(keywords) = schema.as_object() else {
            return if *schema == Value::Bool(false) {
                report_false_schema(value, location, sink)
            } else {
                ControlFlow::Continue(())
            };
        };
        for keyword in VALIDATED_KEYWORDS {
            let Some(expected) = keywords.get(keyword) else {
                continue;
            };
            match keyword {
                "properties" => {
                    self.validate_properties(keywords, expected, value, location, sink)?
                }
                "additionalProperties" => {
                    self.validate_members(keywords, expected, value, location, sink)?;
                    if reports_required_late(keywords)
                        && let Some(names) = keywords.get("required")
                    {
                        validate_keyword("required", names, value, location, sink)?;
                    }
                }
                "required" if reports_required_late(keywords) => {}
                "type" | "minItems" | "maxItems" if reports_arrays_late(keywords) => {}
                "items" => {
                    if reports_arrays_late(keywords) {
                        for keyword in ["type", "minItems", "maxItems"] {
                            if let Some(expected) = keywords.get(keyword) {
                                validate_keyword(keyword, expected, value, location, sink)?;
                            }
                        }
                    }
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.validate(
                            expected,
                            item,
                            InstanceLocation::Item(&location, index),
                            sink,
                        )?;
                    }
                }
                "$ref" => {
                    if let Some(definition) = find_definition(self.root, expected) {
                        self.validate(definition, value, location, sink)?;
                    }
                }
                "allOf" => {
                    for schema in expected.as_array().into_iter().flatten() {
                        self.validate(schema, value, location, sink)?;
                    }
                }
                "anyOf" | "oneOf" | "not" => {
                    self.validate_branches(keyword, expected, value, location, sink)?;
                }
                _ => validate_keyword(keyword, expected, value, location, sink)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Validates the declared properties, unless `additionalProperties` restricts the others: then
    /// [`validate_members`](Self::validate_members) validates all of them.
    fn validate_properties(
        self,
        keywords: &Map<String, Value>,
        declared: &Value,
        value: &Value,
        location: InstanceLocation<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let others = keywords.get("additionalProperties");
        if others.is_some_and(|others| *others != Value::Bool(true)) {
            return ControlFlow::Continue(());
        }
        let Some((object, declared)) = value.as_object().zip(declared.as_object()) else {
            return ControlFlow::Continue(());
        };
        // Errors come in the order of the validator, which iterates over the shorter list unless it
        // looks properties up by name.
        if declared.len() < object.len().min(MAX_LISTED_PROPERTIES) {
            for (name, schema) in declared {
                if let Some(member) = object.get(name) {
                    self.validate(
                        schema,
                        member,
                        InstanceLocation::Member(&location, name),
                        sink,
                    )?;
                }
            }
        } else {
            for (name, member) in object {
                if let Some(schema) = declared.get(name) {
                    self.validate(
                        schema,
                        member,
                        InstanceLocation::Member(&location, name),
                        sink,
                    )?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Validates all members of an object: the declared properties, and those that `additionalProperties` restricts.
    fn validate_members(
        self,
        keywords: &Map<String, Value>,
        others: &Value,
        value: &Value,
        location: InstanceLocation<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let Some(object) = value.as_object().filter(|_| *others != Value::Bool(true)) else {
            return ControlFlow::Continue(());
        };
        let declared = keywords.get("properties").and_then(Value::as_object);
        let mut unexpected = Vec::new();
        for (name, member) in object {
            match declared.and_then(|declared| declared.get(name)) {
                Some(schema) => self.validate(
                    schema,
                    member,
                    InstanceLocation::Member(&location, name),
                    sink,
                )?,
                None if *others == Value::Bool(false) => {
                    // Without `properties` the validator treats the keyword as the schema `false`,
                    // and reports the first member only.
                    if declared.is_none() {
                        return report_false_schema(member, location, sink);
                    }
                    unexpected.push(name.clone());
                }
                None => self.validate(
                    others,
                    member,
                    InstanceLocation::Member(&location, name),
                    sink,
                )?,
            }
        }
        if unexpected.is_empty() {
            return ControlFlow::Continue(());
        }
        let were = if unexpected.len() == 1 { "was" } else { "were" };
        sink(&SchemaError::new(
            &location.to_pointer(),
            value,
            SchemaErrorKind::AdditionalProperties(&unexpected),
            &|_| {
                format!(
                    "Additional properties are not allowed ('{}' {were} unexpected)",
                    unexpected.join("', '")
                )
            },
        ))
    }

    /// Validates `anyOf`, `oneOf` and `not`, which report one error for all of their schemas.
    fn validate_branches(
        self,
        keyword: &str,
        expected: &Value,
        value: &Value,
        location: InstanceLocation<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        if keyword == "not" {
            return if self.accepts(expected, value) {
                report_error(value, location, sink, &|found| {
                    format!("{expected} is not allowed for {found}")
                })
            } else {
                ControlFlow::Continue(())
            };
        }
        let branches = expected.as_array().map(Vec::as_slice).unwrap_or_default();
        let enough = if keyword == "anyOf" { 1 } else { 2 };
        let valid = branches
            .iter()
            .filter(|schema| self.accepts(schema, value))
            .take(enough)
            .count();
        match valid {
            0 => report_error(value, location, sink, &|found| {
                format!(
                    "{found} is not valid under any of the schemas listed in the '{keyword}' keyword"
                )
            }),
            1 => ControlFlow::Continue(()),
            _ => report_error(value, location, sink, &|found| {
                format!(
                    "{found} is valid under more than one of the schemas listed in the '{keyword}' keyword"
                )
            }),
        }
    }
}

/// Reports whether a missing member is reported after unexpected ones: the validator joins the keywords if no other members are allowed and
/// a single one is required.
fn reports_required_late(keywords: &Map<String, Value>) -> bool {
    keywords.contains_key("properties")
        && keywords.get("additionalProperties") == Some(&Value::Bool(false))
        && keywords
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.len() == 1)
}

/// Reports whether the type and the length of an array are reported just before its items: the validator joins the keywords unless the items
/// are unrestricted.
fn reports_arrays_late(keywords: &Map<String, Value>) -> bool {
    keywords.get("type").and_then(Value::as_str) == Some("array")
        && keywords
            .get("items")
            .is_some_and(|items| *items != Value::Bool(true))
}

/// Validates a value against a keyword that contains no schemas.
fn validate_keyword(
    keyword: &str,
    expected: &Value,
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    match keyword {
        "type" => return validate_type(expected, value, location, sink),
        "required" => {
            for name in expected.as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if value
                    .as_object()
                    .is_some_and(|object| !object.contains_key(name))
                {
                    sink(&SchemaError::new(
                        &location.to_pointer(),
                        value,
                        SchemaErrorKind::Required(name),
                        &|_| format!("{} is a required property", Value::from(name)),
                    ))?;
                }
            }
        }
        "enum" => {
            let options = expected.as_array().map(Vec::as_slice).unwrap_or_default();
            if !options.iter().any(|option| are_equal(option, value)) {
                return sink(&SchemaError::new(
                    &location.to_pointer(),
                    value,
                    SchemaErrorKind::Enum(expected),
                    &|found| format!("{found} is not one of {}", list_options(options)),
                ));
            }
        }
        "const" if !are_equal(expected, value) => {
            return report_error(value, location, sink, &|_| {
                format!("{expected} was expected")
            });
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
            return validate_number(keyword, expected, value, location, sink);
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            return validate_size(keyword, expected, value, location, sink);
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

fn validate_type(
    expected: &Value,
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    let is_named = |name: &str| match expected {
        Value::Array(names) => names.iter().any(|one| one == name),
        one => one == name,
    };
    if TYPE_NAMES
        .iter()
        .any(|name| is_named(name) && has_type(value, name))
    {
        return ControlFlow::Continue(());
    }
    let names: Vec<&'static str> = TYPE_NAMES
        .into_iter()
        .filter(|name| is_named(name))
        .collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    let list = names.join("\", \"");
    sink(&SchemaError::new(
        &location.to_pointer(),
        value,
        SchemaErrorKind::Type(names),
        &|found| format!("{found} is not of type{plural} \"{list}\""),
    ))
}

/// Validates a number against a limit, which is below [`MAX_EXACT`]. Comparing as `f64` is exact then: a number that needs rounding exceeds
/// every such limit before and after it.
fn validate_number(
    keyword: &str,
    limit: &Value,
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    let Some((number, most)) = value.as_f64().zip(limit.as_f64()) else {
        return ControlFlow::Continue(());
    };
    let rule = match keyword {
        "minimum" if number < most => "less than the minimum",
        "maximum" if number > most => "greater than the maximum",
        "exclusiveMinimum" if number <= most => "less than or equal to the minimum",
        "exclusiveMaximum" if number >= most => "greater than or equal to the maximum",
        _ => return ControlFlow::Continue(()),
    };
    report_error(value, location, sink, &|found| {
        format!("{found} is {rule} of {limit}")
    })
}

/// Validates the length of a string, of an array or of an object.
fn validate_size(
    keyword: &str,
    limit: &Value,
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    let Some(limit) = limit.as_u64() else {
        return ControlFlow::Continue(());
    };
    let size = match (value, keyword) {
        (Value::String(text), "minLength" | "maxLength") => text.chars().count(),
        (Value::Array(items), "minItems" | "maxItems") => items.len(),
        (Value::Object(object), "minProperties" | "maxProperties") => object.len(),
        _ => return ControlFlow::Continue(()),
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let is_within = if keyword.starts_with("min") {
        size >= limit
    } else {
        size <= limit
    };
    if is_within {
        return ControlFlow::Continue(());
    }
    let comparison = match keyword {
        "minLength" => "is shorter than",
        "maxLength" => "is longer than",
        "minItems" | "minProperties" => "has less than",
        _ => "has more than",
    };
    let unit = match (value, limit) {
        (Value::String(_), 1) => "character",
        (Value::String(_), _) => "characters",
        (Value::Array(_), 1) => "item",
        (Value::Array(_), _) => "items",
        (_, 1) => "property",
        _ => "properties",
    };
    report_error(value, location, sink, &|found| {
        format!("{found} {comparison} {limit} {unit}")
    })
}

/// Reports an error for which the checks have no message of their own.
fn report_error(
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
    build_message: &dyn Fn(&str) -> String,
) -> ControlFlow<()> {
    let pointer = location.to_pointer();
    sink(&SchemaError::new(
        &pointer,
        value,
        SchemaErrorKind::Other,
        build_message,
    ))
}

fn report_false_schema(
    value: &Value,
    location: InstanceLocation<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    report_error(value, location, sink, &|found| {
        format!("False schema does not allow {found}")
    })
}

/// Lists the values of an enumeration, the first ones of many.
fn list_options(options: &[Value]) -> String {
    let is_short = options.len() <= MAX_SHOWN_VALUES;
    let shown = options.len().min(if is_short {
        MAX_SHOWN_VALUES
    } else {
        MAX_SHOWN_VALUES - 1
    });
    let mut list = String::new();
    for (at, option) in options.iter().take(shown).enumerate() {
        let separator = match at {
            0 => "",
            _ if is_short && at + 1 == options.len() => " or ",
            _ => ", ",
        };
        list.push_str(separator);
        list.push_str(&option.to_string());
    }
    if !is_short {
        list.push_str(&format!(" or {} other candidates", options.len() - shown));
    }
    list
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        // `1.0` is an integer, too.
        "integer" => value
            .as_number()
            .is_some_and(|number| !number.is_f64() || to_whole(number).is_some()),
        _ => false,
    }
}

/// Returns a number without a fraction as an integer, saturated; `None` if it has a fraction.
fn to_whole(number: &Number) -> Option<i128> {
    let whole = number.as_i64().map(i128::from);
    whole
        .or_else(|| number.as_u64().map(i128::from))
        .or_else(|| {
            let number = number.as_f64().filter(|number| number.fract() == 0.0)?;
            // The conversion saturates, far beyond all numbers of 64 bits.
            #[allow(
                clippy::cast_possible_truncation,
                reason = "there is no fraction, and larger numbers are compared as they are"
            )]
            Some(number as i128)
        })
}

/// Returns true if two values are equal in JSON Schema, where `1` equals `1.0`.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            if one.is_f64() == other.is_f64() {
                one == other
            } else {
                to_whole(one).is_some_and(|whole| to_whole(other) == Some(whole))
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| are_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other.get(name).is_some_and(|other| are_equal(value, other))
                })
        }
        _ => one == other,
    }
}

#[cfg(all(test, feature = "validator"))]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::compiled_schema::CompiledSchema;

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
                members("[abc]", inner, 4),
            ]
        })
    }

    /// Generates objects with members in any order.
    fn members(
        names: &'static str,
        values: impl Strategy<Value = Value>,
        most: usize,
    ) -> impl Strategy<Value = Value> {
        prop::collection::vec((names, values), 0..most)
            .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())
    }

    /// Generates schemas, of which most are plain, and some of those that are not are invalid.
    fn schemas() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(&TYPES[..]);
        let leaf = prop_oneof![
            name.clone().prop_map(|name| json!({"type": name})),
            prop::collection::vec(name, 0..3).prop_map(|names| json!({"type": names})),
            any::<bool>().prop_map(Value::from),
            prop::collection::vec(values(), 0..6).prop_map(|values| json!({"enum": values})),
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
            let properties = members("[ab]", inner.clone(), 3).boxed();
            let others = prop_oneof![inner.clone(), any::<bool>().prop_map(Value::from)];
            prop_oneof![
                (properties.clone(), prop::collection::vec("[abc]", 0..3)).prop_map(|(properties, names)| {
                    json!({"properties": properties, "required": names})
                }),
                (properties.clone(), others.clone(), prop::collection::vec("[abc]", 0..3)).prop_map(
                    |(properties, others, names)| {
                        json!({"properties": properties, "additionalProperties": others, "required": names})
                    }
                ),
                inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
                (properties, others).prop_map(
                    |(properties, more)| json!({"properties": properties, "additionalProperties": more})
                ),
                prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({"anyOf": all})),
                (prop::sample::select(vec!["allOf", "oneOf"]), prop::collection::vec(inner.clone(), 0..3))
                    .prop_map(|(keyword, all)| json!({keyword: all})),
                inner.clone().prop_map(|schema| json!({"not": schema})),
                (prop::sample::select(vec!["#/$defs/a", "#/definitions/b", "#/$defs/none", "#"]), any::<bool>())
                    .prop_map(|(location, has_words)| if has_words {
                        json!({"$ref": location, "description": "d", "default": 1})
                    } else {
                        json!({"$ref": location})
                    }),
                prop::collection::vec(inner, 2).prop_map(|all| {
                    let mut merged = Map::new();
                    for schema in all {
                        merged.extend(schema.as_object().cloned().unwrap_or_default());
                    }
                    Value::Object(merged)
                }),
            ]
        })
    }

    /// Generates whole schemas, some with definitions and the name of a draft.
    fn roots() -> impl Strategy<Value = Value> {
        let drafts = vec![
            None,
            Some("http://json-schema.org/draft-07/schema#"),
            Some("https://json-schema.org/draft/2020-12/schema"),
            Some("https://json-schema.org/draft/2019-09/schema"),
            Some("http://json-schema.org/draft-04/schema#"),
        ];
        (
            schemas(),
            schemas(),
            schemas(),
            prop::sample::select(drafts),
        )
            .prop_map(|(mut root, one, other, draft)| {
                if let Some(keywords) = root.as_object_mut() {
                    if let Some(draft) = draft {
                        keywords.insert("$schema".to_owned(), draft.into());
                    }
                    keywords.insert("$defs".to_owned(), json!({"a": one}));
                    keywords.insert("definitions".to_owned(), json!({"b": other}));
                }
                root
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

    /// Returns the errors of plain schemas in order, each with its location and its message.
    fn plain_errors(schema: &Value, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        find_errors(schema, value, &mut |error| {
            errors.push(describe(error));
            ControlFlow::Continue(())
        });
        errors
    }

    /// Returns the errors that the validator finds, in order, without its false ones.
    ///
    /// If no other members are allowed, it reports a single required but undeclared name as missing even if the object has it. Such a value
    /// has another error anyway.
    fn validator_errors(validator: &jsonschema::Validator, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        crate::compiled_schema::find_errors(validator, value, &mut |error| {
            let is_false = matches!(&error.kind, SchemaErrorKind::Required(name) if error.instance.get(name).is_some());
            if !is_false {
                errors.push(describe(error));
            }
            ControlFlow::Continue(())
        });
        errors
    }

    fn describe(error: &SchemaError<'_>) -> String {
        let kind = match &error.kind {
            SchemaErrorKind::Type(names) => names.join(","),
            SchemaErrorKind::Enum(options) => options.to_string(),
            SchemaErrorKind::Required(name) => (*name).to_owned(),
            SchemaErrorKind::AdditionalProperties(names) => names.join(","),
            SchemaErrorKind::Other => String::new(),
        };
        format!(
            "{} {} {kind} {}",
            error.pointer,
            error.instance,
            error.to_message("it")
        )
    }

    proptest! {
        /// Every plain schema is valid, and has the errors that the validator finds.
        #[test]
        fn errors_are_those_of_the_validator(schema in roots(), values in prop::collection::vec(values(), 1..8)) {
            let validator = jsonschema::options().offline().build(&schema);
            if is_plain(&schema) {
                prop_assert!(validator.is_ok(), "{schema}");
            }
            if let Ok(validator) = validator && is_plain(&schema) {
                for value in values {
                    prop_assert_eq!(plain_errors(&schema, &value), validator_errors(&validator, &value), "{} {}", schema, value);
                    prop_assert_eq!(CompiledSchema::new(&schema).accepts(&value), validator.is_valid(&value), "{} {}", schema, value);
                }
            }
        }
    }

    #[test]
    fn a_single_missing_name_is_reported_after_unexpected_ones() {
        let alone = json!({"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        let value = json!({"b": 1});
        let mut two = alone.clone();
        two["required"] = json!(["a", "c"]);
        let unexpected =
            " {\"b\":1} b Additional properties are not allowed ('b' was unexpected)".to_owned();
        let missing = |name: &str| format!(" {{\"b\":1}} {name} \"{name}\" is a required property");
        assert_eq!(
            plain_errors(&alone, &value),
            [unexpected.clone(), missing("a")]
        );
        assert_eq!(
            plain_errors(&two, &value),
            [missing("a"), missing("c"), unexpected.clone()]
        );
        // The validator would also report that `b` is missing.
        let undeclared =
            json!({"properties": {}, "required": ["b"], "additionalProperties": false});
        assert_eq!(plain_errors(&undeclared, &value), [unexpected]);
        for schema in [alone, two, undeclared] {
            let validator = jsonschema::options().offline().build(&schema).unwrap();
            assert_eq!(
                plain_errors(&schema, &value),
                validator_errors(&validator, &value)
            );
        }
    }

    #[test]
    fn errors_of_properties_are_in_the_order_of_the_validator() {
        let names: Vec<String> = (0..20).map(|at| format!("p{at}")).collect();
        for (declared, given) in [(2, 2), (2, 3), (14, 14), (14, 20), (15, 15), (15, 20)] {
            let properties: Map<String, Value> = names
                .iter()
                .take(declared)
                .map(|name| (name.clone(), json!({"type": "string"})))
                .collect();
            let members: Map<String, Value> = names
                .iter()
                .take(given)
                .rev()
                .map(|name| (name.clone(), json!(1)))
                .collect();
            let value = Value::Object(members);
            for others in [json!(true), json!(false), json!({"type": "null"})] {
                for required in [json!([]), json!(["x"]), json!(["x", "y"])] {
                    let schema = json!({"properties": properties, "additionalProperties": others, "required": required});
                    let validator = jsonschema::options().offline().build(&schema).unwrap();
                    let errors = plain_errors(&schema, &value);
                    assert_eq!(
                        errors,
                        validator_errors(&validator, &value),
                        "{schema} {given}"
                    );
                    assert!(errors.len() >= declared);
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
        assert!(CompiledSchema::new(&schema).accepts(&good));
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
            assert!(!CompiledSchema::new(&schema).accepts(&bad), "{bad}");
        }
        assert!(!CompiledSchema::new(&schema).accepts(&json!({"line": 1})));
        let nested = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "object", "properties": {"b": {"type": "string", "format": "date"}}}}});
        assert!(is_plain(&nested));
    }

    #[test]
    fn other_schemas_are_left_to_the_validator() {
        let many: Vec<String> = (0..=MAX_VALUES).map(|at| at.to_string()).collect();
        for schema in [
            json!({"enum": many}),
            json!({"type": "strin"}),
            json!({"properties": {"a": {"$ref": "#/$defs/a"}}}),
            json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}),
            json!({"properties": {"a": {"pattern": "^a"}}}),
        ] {
            assert!(!is_plain(&schema), "{schema}");
        }
        // Each of 20 definitions refers twice to the next one, so that a walk would visit a million
        // nodes.
        let definitions: Map<String, Value> = (0..20)
            .map(|at| {
                let next = json!({"$ref": format!("#/$defs/{}", at + 1)});
                (at.to_string(), json!({"allOf": [next, next]}))
            })
            .chain([("20".to_owned(), json!({}))])
            .collect();
        assert!(!is_plain(
            &json!({"$ref": "#/$defs/0", "$defs": definitions})
        ));
    }
}
