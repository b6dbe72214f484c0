//! Rules about schemas: those that are invalid, that a provider rejects, or that a dialect can express only by convention.

use std::ops::ControlFlow;

use sabir_call::dialect::ParserKind;
use sabir_call::{Severity, ToolSpec, json_type_name};
use serde_json::Value;

use super::{FindingDetails, LintFindings, LintInput, argument_path, pointer_segment};
use crate::compiled_schema::CompiledSchema;
use crate::schema::{JsonTypes, SchemaView};

/// Keywords whose values are schemas, lists of schemas, or schemas by name.
const SCHEMA_KEYWORDS: [&str; 7] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
];
/// Keywords whose values are lists of schemas.
const SCHEMA_LIST_KEYWORDS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Keywords whose values are schemas by name. `definitions` is the name of `$defs` before draft
/// 2019-09.
const SCHEMA_MAP_KEYWORDS: [&str; 5] = [
    "properties",
    "$defs",
    "definitions",
    "patternProperties",
    "dependentSchemas",
];
/// Keywords that providers refuse at the top of a tool's parameters.
const UNION_KEYWORDS: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Reports parameters that are not an object schema. Every dialect and wire passes arguments by name,
/// so nothing else can be called.
pub(super) fn no_object_schema(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        let kind = spec.parameters.get("type");
        let wrong = if !spec.parameters.is_object() {
            Some((
                "/parameters",
                format!(
                    "the parameters of `{}` are {}",
                    spec.name,
                    json_type_name(&spec.parameters)
                ),
            ))
        } else if spec
            .parameters
            .get("properties")
            .is_some_and(|properties| !properties.is_object())
        {
            Some((
                "/parameters/properties",
                format!("the properties of `{}` are not an object", spec.name),
            ))
        } else if kind.is_some_and(|kind| kind != "object") {
            Some((
                "/parameters/type",
                format!(
                    "the parameters of `{}` are not an object, but arguments have names",
                    spec.name
                ),
            ))
        } else {
            None
        };
        if let Some((path, message)) = wrong {
            let hint = "write {\"type\": \"object\", \"properties\": {…}}";
            found.push(at, &spec.name, path, FindingDetails::error(message, hint));
        }
    }
}

/// Reports a schema that does not compile. References to other documents have a rule of their own,
/// so that the more precise finding is the only one.
pub(super) fn invalid_schema(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools
        .tool_specs()
        .filter(|(_, spec)| spec.parameters.is_object())
    {
        let complaint = CompiledSchema::new(&spec.parameters)
            .take_error()
            .map(str::to_owned);
        if let Some(complaint) = complaint.filter(|_| find_outside_references(spec).is_empty()) {
            let message = format!(
                "the schema of `{}` is invalid, so nothing is checked by it: {complaint}",
                spec.name
            );
            found.push(
                at,
                &spec.name,
                "/parameters",
                FindingDetails::error(message, "fix the schema"),
            );
        }
    }
}

/// Reports each `$ref` to another document: nothing is fetched while checking, so the schema cannot
/// be compiled.
pub(super) fn outside_reference(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        for (path, reference) in find_outside_references(spec) {
            let message =
                format!("`$ref` leads to another document (`{reference}`), and nothing is fetched");
            found.push(
                at,
                &spec.name,
                &path,
                FindingDetails::error(
                    message,
                    "put that schema under `$defs` and refer to it there",
                ),
            );
        }
    }
}

/// Returns the JSON pointer and the target of each `$ref` that does not begin with `#`.
fn find_outside_references(spec: &ToolSpec) -> Vec<(String, String)> {
    let mut all = Vec::new();
    visit_subschemas(&spec.parameters, "/parameters", &mut |path, schema| {
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(reference) = reference.filter(|reference| !reference.starts_with('#')) {
            all.push((format!("{path}/$ref"), reference.to_owned()));
        }
    });
    all
}

/// Reports parameters and arguments without a type.
///
/// Without one, `10` between tags stays the string `"10"`, since coercion changes nothing that the
/// schema does not ask for.
pub(super) fn missing_type(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        if spec.parameters.is_object() && spec.parameters.get("type").is_none() && tools.scope.wires
        {
            let message = format!(
                "the parameters of `{}` do not say that they are an object, and Anthropic insists",
                spec.name
            );
            found.push(
                at,
                &spec.name,
                "/parameters",
                FindingDetails::warning(message, "add \"type\": \"object\""),
            );
        }
        for argument in spec.declared_arguments() {
            if argument.schema.get("type").is_none()
                && argument_schema(spec, argument.name)
                    .allowed_types()
                    .is_none()
            {
                let message = format!(
                    "the argument `{}` of `{}` may be of any type, so that text stays text",
                    argument.name, spec.name
                );
                found.push(
                    at,
                    &spec.name,
                    &argument_path(argument.name),
                    FindingDetails::warning(message, "say its `type`"),
                );
            }
        }
    }
}

/// Reports unions over all arguments, with which both providers refuse the whole request.
pub(super) fn top_level_union(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs().filter(|_| tools.scope.wires) {
        for key in UNION_KEYWORDS
            .into_iter()
            .filter(|key| spec.parameters.get(key).is_some())
        {
            let message = format!(
                "`{key}` is at the top of the parameters of `{}`; Anthropic and OpenAI refuse that",
                spec.name
            );
            let hint = "declare all arguments under `properties`, and say in their descriptions which go together";
            found.push(
                at,
                &spec.name,
                &format!("/parameters/{key}"),
                FindingDetails::error(message, hint),
            );
        }
    }
}

/// Reports argument names given by pattern: the prompt cannot list them, and the object counts as
/// open, so misspelled names are not noticed.
pub(super) fn pattern_properties(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        visit_subschemas(&spec.parameters, "/parameters", &mut |path, schema| {
            if schema.get("patternProperties").is_some() {
                let message = format!(
                    "`{}` takes arguments by pattern, which no prompt names and strict wires refuse",
                    spec.name
                );
                let hint = "declare the names, or take an array of {name, value}";
                found.push(
                    at,
                    &spec.name,
                    &format!("{path}/patternProperties"),
                    FindingDetails::warning(message, hint),
                );
            }
        });
    }
}

/// Reports arrays without `items`: an error if wires are in the scope, because OpenAI refuses the
/// request, otherwise a warning.
pub(super) fn untyped_array(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        visit_subschemas(&spec.parameters, "/parameters", &mut |path, schema| {
            // An array at the top is reported by the rule `no_object_schema`.
            let inside = path != "/parameters";
            let array = inside
                && schema
                    .get("type")
                    .is_some_and(|kind| type_names(kind).contains(&"array"));
            if array && schema.get("items").is_none() && schema.get("prefixItems").is_none() {
                let about = FindingDetails::error(
                    "an array does not say what it holds; OpenAI refuses it",
                    "add `items`",
                );
                let severity = if tools.scope.wires {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                found.push(at, &spec.name, path, FindingDetails { severity, ..about });
            }
        });
    }
}

/// Reports arguments whose values have no natural form between tags: objects, and unions of a
/// string with another type, in which text always stays a string.
pub(super) fn hard_in_tags(tools: &LintInput<'_>, found: &mut LintFindings) {
    let dialects = tools
        .scope
        .dialect_names(|dialect| dialect.parser_kind() == ParserKind::Tagged);
    for (at, spec) in tools.tool_specs().filter(|_| !dialects.is_empty()) {
        for argument in spec.declared_arguments() {
            let shape = argument_schema(spec, argument.name);
            let Some(types) = shape.allowed_types() else {
                continue;
            };
            let holds = |types: JsonTypes| types.has(JsonTypes::OBJECT);
            let name = argument.name;
            let about = if holds(types)
                || (types.has(JsonTypes::ARRAY)
                    && shape.item_schema().allowed_types().is_some_and(holds))
            {
                let message = format!(
                    "`{name}` of `{}` holds objects, which raw tags carry as JSON or as nested tags",
                    spec.name
                );
                FindingDetails::warning(message, "take plain arguments, or show one in an example")
            } else if types.has(JsonTypes::STRING)
                && !types
                    .without(JsonTypes::STRING)
                    .without(JsonTypes::NULL)
                    .is_empty()
            {
                let message = format!(
                    "`{name}` of `{}` may be {}; in raw tags `10` stays a string",
                    spec.name,
                    types.describe_types()
                );
                FindingDetails::warning(message, "allow one type")
            } else {
                continue;
            };
            found.push(
                at,
                &spec.name,
                &argument_path(name),
                about.with_dialects(dialects.clone()),
            );
        }
    }
}

/// Reports required names without a declaration. In a closed schema that is an error: the argument is either missing or unknown in every
/// call.
pub(super) fn undeclared_required(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        let shape = SchemaView::new(&spec.parameters);
        let declared = shape.property_names();
        for name in shape
            .required_names()
            .into_iter()
            .filter(|name| !declared.contains(name))
        {
            let message = format!(
                "`{}` requires `{name}`, which it does not declare",
                spec.name
            );
            let about = if shape.is_closed() {
                FindingDetails::error(
                    format!("{message}: no call can ever be right"),
                    "declare it under `properties`",
                )
            } else {
                FindingDetails::warning(message, "declare it under `properties`")
            };
            found.push(at, &spec.name, "/parameters/required", about);
        }
    }
}

/// Reports listed values, defaults and examples that the schema itself rejects; an error only if
/// every value of an `enum` is rejected.
pub(super) fn contradiction(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        visit_subschemas(&spec.parameters, "/parameters", &mut |path, schema| {
            for (key, value, about) in find_refused_values(schema) {
                let message = format!("{about} {value} is none that the schema beside it allows");
                let whole = key == "enum"
                    && !enum_values(schema)
                        .iter()
                        .any(|value| allows_type(schema, value));
                let about = if whole {
                    FindingDetails::error(
                        format!("{message}, like all others: no value can ever be right"),
                        "fix `enum` or `type`",
                    )
                } else {
                    FindingDetails::warning(message, format!("fix `{key}` or `type`"))
                };
                found.push(at, &spec.name, &format!("{path}/{key}"), about);
            }
        });
        let compiled = CompiledSchema::new(&spec.parameters);
        for (place, example) in spec.examples.iter().enumerate() {
            let mut first = None;
            compiled.find_errors(&Value::Object(example.clone()), &mut |error| {
                first = Some(error.to_message(&error.instance.to_string()));
                ControlFlow::Break(())
            });
            if let Some(error) = first {
                let message = format!(
                    "an example of `{}` is not a correct call, and it is what models imitate: {error}",
                    spec.name
                );
                let about = FindingDetails::warning(message, "fix the example or the schema");
                found.push(at, &spec.name, &format!("/examples/{place}"), about);
            }
        }
    }
}

/// Finds values in a schema that the schema itself rejects; each with its keyword, its text and a description.
fn find_refused_values(schema: &Value) -> Vec<(&'static str, String, &'static str)> {
    let listed = enum_values(schema)
        .iter()
        .find(|value| !allows_type(schema, value))
        .map(|value| ("enum", value, "the listed"));
    let default = schema
        .get("default")
        .map(|value| ("default", value, "the default"));
    let default = default.filter(|(_, value, _)| {
        let values = self::enum_values(schema);
        !allows_type(schema, value) || (!values.is_empty() && !values.contains(value))
    });
    listed
        .into_iter()
        .chain(default)
        .map(|(key, value, what)| (key, value.to_string(), what))
        .collect()
}

/// Returns the values of `enum`; none if the keyword is missing or no array.
fn enum_values(schema: &Value) -> &[Value] {
    schema
        .get("enum")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns true if the schema's `type` allows the value.
/// `1.0` counts as an integer, as in JSON Schema.
fn allows_type(schema: &Value, value: &Value) -> bool {
    let Some(kind) = schema.get("type") else {
        return true;
    };
    let is = json_type_name(value);
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    type_names(kind).iter().any(|name| {
        *name == is || (*name == "number" && is == "integer") || (*name == "integer" && whole)
    })
}

/// Returns the names in a `type` keyword, which is a string or an array.
fn type_names(kind: &Value) -> Vec<&str> {
    match kind {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    }
}

/// Returns the view of an argument's schema; its root is the whole schema, so that `$ref` works.
fn argument_schema<'s>(spec: &'s ToolSpec, argument: &str) -> SchemaView<'s> {
    SchemaView::new(&spec.parameters).property_schema(argument)
}

/// Visits a schema and every schema in it, outermost first, with its JSON pointer.
///
/// Follows the document and not `$ref`, so it ends even for schemas that refer to themselves, and visits each schema once.
fn visit_subschemas(schema: &Value, path: &str, show: &mut dyn FnMut(&str, &Value)) {
    show(path, schema);
    for key in SCHEMA_KEYWORDS {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            visit_subschemas(inner, &format!("{path}/{key}"), show);
        }
    }
    for key in SCHEMA_LIST_KEYWORDS {
        for (at, inner) in schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            visit_subschemas(inner, &format!("{path}/{key}/{at}"), show);
        }
    }
    for key in SCHEMA_MAP_KEYWORDS {
        for (name, inner) in schema
            .get(key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            visit_subschemas(
                inner,
                &format!("{path}/{key}{}", pointer_segment(name)),
                show,
            );
        }
    }
}
