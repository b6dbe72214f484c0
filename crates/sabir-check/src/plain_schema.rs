//! Judges values by schemas of the common keywords, without compiling a validator.
//!
//! Most tools have such a schema, while the first validator costs a tenth of all that a short task computes, since the schema of schemas is
//! compiled for it. Schemas with other keywords are left to the validator, which a small build of the bindings does not have. On plain schemas the
//! two find the same errors, and word them alike; a property test compares them.

use std::cell::Cell;
use std::ops::ControlFlow;

use serde_json::{Map, Number, Value};

use crate::schema_error::{ErrorSink, SchemaError, SchemaErrorKind};

/// The deepest schema that is looked into. Ends the walk of one that refers to itself, which is not plain.
const MAX_DEPTH: usize = 32;

/// The most nodes of a schema, counted once for each reference to them: a value is compared with each of them at most once.
const MAX_NODES: usize = 4096;

/// The most values of an enumeration, of types, or of required names.
const MAX_VALUES: usize = 64;

/// The largest whole number up to which `f64` has all of them.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The most values of an enumeration that an error shows in full.
const MAX_SHOWN_VALUES: usize = 3;

/// The number of declared properties from which on the validator looks their names up.
const MAX_LISTED_PROPERTIES: usize = 15;

/// A schema that [`find_errors`] can judge by, as far as it is known.
struct PlainWalk<'s> {
    root: &'s Value,
    /// The draft that the schema names validates formats.
    judges_formats: bool,
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
    let judges_formats = match draft {
        ""
        | "https://json-schema.org/draft/2019-09/schema"
        | "https://json-schema.org/draft/2020-12/schema" => false,
        "http://json-schema.org/draft-07/schema" => true,
        _ => return false,
    };
    let walk = PlainWalk {
        root: schema,
        judges_formats,
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
            "format" => value.is_string() && !self.judges_formats,
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
    let place = reference.as_str()?.strip_prefix("#/")?;
    let (list, name) = place.split_once('/')?;
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

/// Reports whether no two of a few values are equal. Long lists are left to the validator: each value is compared with each, and a
/// client chooses the schema.
fn are_distinct(values: &[Value]) -> bool {
    values.len() <= MAX_VALUES
        && values.iter().enumerate().all(|(at, value)| {
            values
                .iter()
                .take(at)
                .all(|earlier| !are_equal(earlier, value))
        })
}

/// A place in a judged value.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Member(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    /// Returns the place as a JSON pointer (RFC 6901).
    fn to_pointer(self) -> String {
        match self {
            Place::Root => String::new(),
            Place::Member(parent, name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                format!("{}/{name}", parent.to_pointer())
            }
            Place::Item(parent, index) => format!("{}/{index}", parent.to_pointer()),
        }
    }
}

/// Passes the errors of a value by a schema, which is plain, to the sink until that has enough.
pub(crate) fn find_errors(schema: &Value, value: &Value, sink: &mut ErrorSink<'_>) {
    // The sink may end the search early, which is no result.
    let _ = Judge { root: schema }.judge(schema, value, Place::Root, sink);
}

/// The keywords that restrict values, in the order in which the validator reports their errors.
const JUDGED_KEYWORDS: [&str; 22] = [
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

/// A schema by which values are judged.
#[derive(Clone, Copy)]
struct Judge<'s> {
    root: &'s Value,
}

impl Judge<'_> {
    fn accepts(self, schema: &Value, value: &Value) -> bool {
        let mut refuse = |_: &SchemaError<'_>| ControlFlow::Break(());
        self.judge(schema, value, Place::Root, &mut refuse)
            .is_continue()
    }

    /// Judges a value by one schema, keyword by keyword.
    fn judge(
        self,
        schema: &Value,
        value: &Value,
        place: Place<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let Some(keywords) = schema.as_object() else {
            return if *schema == Value::Bool(false) {
                report_false_schema(value, place, sink)
            } else {
                ControlFlow::Continue(())
            };
        };
        for keyword in JUDGED_KEYWORDS {
            let Some(expected) = keywords.get(keyword) else {
                continue;
            };
            match keyword {
                "properties" => self.judge_properties(keywords, expected, value, place, sink)?,
                "additionalProperties" => {
                    self.judge_members(keywords, expected, value, place, sink)?;
                    if reports_required_late(keywords)
                        && let Some(names) = keywords.get("required")
                    {
                        judge_keyword("required", names, value, place, sink)?;
                    }
                }
                "required" if reports_required_late(keywords) => {}
                "type" | "minItems" | "maxItems" if reports_arrays_late(keywords) => {}
                "items" => {
                    if reports_arrays_late(keywords) {
                        for keyword in ["type", "minItems", "maxItems"] {
                            if let Some(expected) = keywords.get(keyword) {
                                judge_keyword(keyword, expected, value, place, sink)?;
                            }
                        }
                    }
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.judge(expected, item, Place::Item(&place, index), sink)?;
                    }
                }
                "$ref" => {
                    if let Some(definition) = find_definition(self.root, expected) {
                        self.judge(definition, value, place, sink)?;
                    }
                }
                "allOf" => {
                    for schema in expected.as_array().into_iter().flatten() {
                        self.judge(schema, value, place, sink)?;
                    }
                }
                "anyOf" | "oneOf" | "not" => {
                    self.judge_branches(keyword, expected, value, place, sink)?;
                }
                _ => judge_keyword(keyword, expected, value, place, sink)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Judges the declared properties, unless `additionalProperties` does so because it restricts the others.
    fn judge_properties(
        self,
        keywords: &Map<String, Value>,
        declared: &Value,
        value: &Value,
        place: Place<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let others = keywords.get("additionalProperties");
        if others.is_some_and(|others| *others != Value::Bool(true)) {
            return ControlFlow::Continue(());
        }
        let Some((object, declared)) = value.as_object().zip(declared.as_object()) else {
            return ControlFlow::Continue(());
        };
        // The validator goes through the shorter list, unless it looks names up.
        if declared.len() < object.len().min(MAX_LISTED_PROPERTIES) {
            for (name, schema) in declared {
                if let Some(member) = object.get(name) {
                    self.judge(schema, member, Place::Member(&place, name), sink)?;
                }
            }
        } else {
            for (name, member) in object {
                if let Some(schema) = declared.get(name) {
                    self.judge(schema, member, Place::Member(&place, name), sink)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Judges all members of an object: the declared ones, and the others, which `additionalProperties` restricts.
    fn judge_members(
        self,
        keywords: &Map<String, Value>,
        others: &Value,
        value: &Value,
        place: Place<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        let Some(object) = value.as_object().filter(|_| *others != Value::Bool(true)) else {
            return ControlFlow::Continue(());
        };
        let declared = keywords.get("properties").and_then(Value::as_object);
        let mut unexpected = Vec::new();
        for (name, member) in object {
            match declared.and_then(|declared| declared.get(name)) {
                Some(schema) => self.judge(schema, member, Place::Member(&place, name), sink)?,
                None if *others == Value::Bool(false) => {
                    // Without `properties` the keyword means the schema `false`, of which one error is enough.
                    if declared.is_none() {
                        return report_false_schema(member, place, sink);
                    }
                    unexpected.push(name.clone());
                }
                None => self.judge(others, member, Place::Member(&place, name), sink)?,
            }
        }
        if unexpected.is_empty() {
            return ControlFlow::Continue(());
        }
        let were = if unexpected.len() == 1 { "was" } else { "were" };
        sink(&SchemaError::new(
            &place.to_pointer(),
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

    /// Judges by the keywords of which one error stands for all of their schemas.
    fn judge_branches(
        self,
        keyword: &str,
        expected: &Value,
        value: &Value,
        place: Place<'_>,
        sink: &mut ErrorSink<'_>,
    ) -> ControlFlow<()> {
        if keyword == "not" {
            return if self.accepts(expected, value) {
                report(value, place, sink, &|found| {
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
            0 => report(value, place, sink, &|found| {
                format!(
                    "{found} is not valid under any of the schemas listed in the '{keyword}' keyword"
                )
            }),
            1 => ControlFlow::Continue(()),
            _ => report(value, place, sink, &|found| {
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

/// Judges a value by a keyword that has no schemas in it.
fn judge_keyword(
    keyword: &str,
    expected: &Value,
    value: &Value,
    place: Place<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    match keyword {
        "type" => return judge_type(expected, value, place, sink),
        "required" => {
            for name in expected.as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if value
                    .as_object()
                    .is_some_and(|object| !object.contains_key(name))
                {
                    sink(&SchemaError::new(
                        &place.to_pointer(),
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
                    &place.to_pointer(),
                    value,
                    SchemaErrorKind::Enum(expected),
                    &|found| format!("{found} is not one of {}", list_options(options)),
                ));
            }
        }
        "const" if !are_equal(expected, value) => {
            return report(value, place, sink, &|_| format!("{expected} was expected"));
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
            return judge_number(keyword, expected, value, place, sink);
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            return judge_size(keyword, expected, value, place, sink);
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

fn judge_type(
    expected: &Value,
    value: &Value,
    place: Place<'_>,
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
        &place.to_pointer(),
        value,
        SchemaErrorKind::Type(names),
        &|found| format!("{found} is not of type{plural} \"{list}\""),
    ))
}

/// Judges a number by a limit, which `f64` has exactly. Numbers that it does not have are beyond every such limit, and are rounded to one that is, too.
fn judge_number(
    keyword: &str,
    limit: &Value,
    value: &Value,
    place: Place<'_>,
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
    report(value, place, sink, &|found| {
        format!("{found} is {rule} of {limit}")
    })
}

/// Judges a string, an array or an object by the limit of its length.
fn judge_size(
    keyword: &str,
    limit: &Value,
    value: &Value,
    place: Place<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    let (size, verb, unit, units) = match (value, keyword.get(3..)) {
        (Value::String(text), Some("Length")) => {
            (text.chars().count(), "is", "character", "characters")
        }
        (Value::Array(items), Some("Items")) => (items.len(), "has", "item", "items"),
        (Value::Object(object), Some("Properties")) => {
            (object.len(), "has", "property", "properties")
        }
        _ => return ControlFlow::Continue(()),
    };
    let Some(limit) = limit.as_u64() else {
        return ControlFlow::Continue(());
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let comparison = match (keyword.starts_with("min"), verb) {
        (true, _) if size >= limit => return ControlFlow::Continue(()),
        (false, _) if size <= limit => return ControlFlow::Continue(()),
        (true, "is") => "shorter",
        (false, "is") => "longer",
        (true, _) => "less",
        (false, _) => "more",
    };
    let unit = if limit == 1 { unit } else { units };
    report(value, place, sink, &|found| {
        format!("{found} {verb} {comparison} than {limit} {unit}")
    })
}

/// Passes on an error that the gates do not word themselves.
fn report(
    value: &Value,
    place: Place<'_>,
    sink: &mut ErrorSink<'_>,
    words: &dyn Fn(&str) -> String,
) -> ControlFlow<()> {
    let pointer = place.to_pointer();
    sink(&SchemaError::new(
        &pointer,
        value,
        SchemaErrorKind::Other,
        words,
    ))
}

fn report_false_schema(
    value: &Value,
    place: Place<'_>,
    sink: &mut ErrorSink<'_>,
) -> ControlFlow<()> {
    report(value, place, sink, &|found| {
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

/// Returns a number without a fraction, as far as it is needed to compare it with one of 64 bits.
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

/// Reports whether two values are equal as JSON Schema has it: `1` equals `1.0`.
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
                    .prop_map(|(place, has_words)| if has_words {
                        json!({"$ref": place, "description": "d", "default": 1})
                    } else {
                        json!({"$ref": place})
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

    /// Returns the errors of plain schemas in order, each with its place and its words.
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
    /// It calls a single required name missing that is there but not declared, where no other members are allowed. Such a value has an error
    /// anyway.
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
            error.to_words("it")
        )
    }

    proptest! {
        /// What is plain is valid, and has the errors that the validator finds.
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
        // The validator would say that `b` is missing, too.
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
        // Each of 20 definitions refers twice to the next one, so that a walk would visit a million nodes.
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
