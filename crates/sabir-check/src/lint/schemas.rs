//! Schemas: what is no schema, what a wire refuses, and what a dialect carries only by convention.

use sabir_call::dialect::Machine;
use sabir_call::{Severity, ToolSpec, type_of};
use serde_json::Value;

use super::{About, Findings, Tools, argument_path, part};
use crate::schema::{Compiled, Shape, Types};

/// Keywords whose values are schemas, lists of schemas, or schemas by name.
const ONE: [&str; 7] = ["items", "additionalProperties", "not", "if", "then", "else", "contains"];
const MANY: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const NAMED: [&str; 5] = ["properties", "$defs", "definitions", "patternProperties", "dependentSchemas"];
const UNIONS: [&str; 3] = ["oneOf", "anyOf", "allOf"];

pub(super) fn no_object(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        let kind = spec.parameters.get("type");
        let wrong = if !spec.parameters.is_object() {
            Some(("/parameters", format!("the parameters of `{}` are {}", spec.name, type_of(&spec.parameters))))
        } else if spec.parameters.get("properties").is_some_and(|properties| !properties.is_object()) {
            Some(("/parameters/properties", format!("the properties of `{}` are no object", spec.name)))
        } else if kind.is_some_and(|kind| kind != "object") {
            Some((
                "/parameters/type",
                format!("the parameters of `{}` are no object, but arguments have names", spec.name),
            ))
        } else {
            None
        };
        if let Some((path, message)) = wrong {
            let hint = "write {\"type\": \"object\", \"properties\": {…}}";
            found.push(at, &spec.name, path, About::error(message, hint));
        }
    }
}

pub(super) fn invalid(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs().filter(|(_, spec)| spec.parameters.is_object()) {
        let complaint = Compiled::new(&spec.parameters).complaint().map(str::to_owned);
        if let Some(complaint) = complaint.filter(|_| outside(spec).is_empty()) {
            let message = format!("the schema of `{}` is invalid, so nothing is checked by it: {complaint}", spec.name);
            found.push(at, &spec.name, "/parameters", About::error(message, "mend the schema"));
        }
    }
}

pub(super) fn outside_reference(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        for (path, reference) in outside(spec) {
            let message = format!("`$ref` leads to another document (`{reference}`), and nothing is fetched");
            found.push(
                at,
                &spec.name,
                &path,
                About::error(message, "put that schema under `$defs` and refer to it there"),
            );
        }
    }
}

fn outside(spec: &ToolSpec) -> Vec<(String, String)> {
    let mut all = Vec::new();
    walk(&spec.parameters, "/parameters", &mut |path, schema| {
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(reference) = reference.filter(|reference| !reference.starts_with('#')) {
            all.push((format!("{path}/$ref"), reference.to_owned()));
        }
    });
    all
}

pub(super) fn missing_type(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        if spec.parameters.is_object() && spec.parameters.get("type").is_none() && tools.scope.wires {
            let message =
                format!("the parameters of `{}` do not say that they are an object, and Anthropic insists", spec.name);
            found.push(at, &spec.name, "/parameters", About::warning(message, "add \"type\": \"object\""));
        }
        for argument in spec.arguments() {
            if argument.schema.get("type").is_none() && shape(spec, argument.name).types().is_none() {
                let message = format!(
                    "the argument `{}` of `{}` may be of any type, so that text stays text",
                    argument.name, spec.name
                );
                found.push(at, &spec.name, &argument_path(argument.name), About::warning(message, "say its `type`"));
            }
        }
    }
}

pub(super) fn top_level_union(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs().filter(|_| tools.scope.wires) {
        for key in UNIONS.into_iter().filter(|key| spec.parameters.get(key).is_some()) {
            let message = format!(
                "`{key}` stands at the top of the parameters of `{}`; Anthropic and OpenAI refuse that",
                spec.name
            );
            let hint = "declare all arguments under `properties`, and say in their descriptions which go together";
            found.push(at, &spec.name, &format!("/parameters/{key}"), About::error(message, hint));
        }
    }
}

pub(super) fn patterns(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        walk(&spec.parameters, "/parameters", &mut |path, schema| {
            if schema.get("patternProperties").is_some() {
                let message = format!(
                    "`{}` takes arguments by pattern, which no prompt names and strict wires refuse",
                    spec.name
                );
                let hint = "declare the names, or take an array of {name, value}";
                found.push(at, &spec.name, &format!("{path}/patternProperties"), About::warning(message, hint));
            }
        });
    }
}

pub(super) fn untyped_array(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        walk(&spec.parameters, "/parameters", &mut |path, schema| {
            // At the top it is no object, which another rule tells.
            let inside = path != "/parameters";
            let array = inside && schema.get("type").is_some_and(|kind| names(kind).contains(&"array"));
            if array && schema.get("items").is_none() && schema.get("prefixItems").is_none() {
                let about = About::error("an array does not say what it holds; OpenAI refuses it", "add `items`");
                let severity = if tools.scope.wires { Severity::Error } else { Severity::Warning };
                found.push(at, &spec.name, path, About { severity, ..about });
            }
        });
    }
}

pub(super) fn hard_in_tags(tools: &Tools<'_>, found: &mut Findings) {
    let dialects = tools.scope.names(|dialect| dialect.machine() == Machine::Tagged);
    for (at, spec) in tools.specs().filter(|_| !dialects.is_empty()) {
        for argument in spec.arguments() {
            let shape = shape(spec, argument.name);
            let Some(types) = shape.types() else { continue };
            let holds = |types: Types| types.has(Types::OBJECT);
            let name = argument.name;
            let about = if holds(types) || (types.has(Types::ARRAY) && shape.items().types().is_some_and(holds)) {
                let message = format!(
                    "`{name}` of `{}` holds objects, which raw tags carry as JSON or as nested tags",
                    spec.name
                );
                About::warning(message, "take plain arguments, or show one in an example")
            } else if types.has(Types::STRING) && !types.without(Types::STRING).without(Types::NULL).is_empty() {
                let message =
                    format!("`{name}` of `{}` may be {}; in raw tags `10` stays a string", spec.name, types.words());
                About::warning(message, "allow one type")
            } else {
                continue;
            };
            found.push(at, &spec.name, &argument_path(name), about.within(dialects.clone()));
        }
    }
}

pub(super) fn undeclared_required(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        let shape = Shape::new(&spec.parameters);
        let declared = shape.names();
        for name in shape.required().into_iter().filter(|name| !declared.contains(name)) {
            let message = format!("`{}` requires `{name}`, which it does not declare", spec.name);
            let about = if shape.closed() {
                About::error(format!("{message}: no call can ever be right"), "declare it under `properties`")
            } else {
                About::warning(message, "declare it under `properties`")
            };
            found.push(at, &spec.name, "/parameters/required", about);
        }
    }
}

pub(super) fn contradiction(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        walk(&spec.parameters, "/parameters", &mut |path, schema| {
            for (key, value, about) in refused(schema) {
                let message = format!("{about} {value} is none that the schema beside it allows");
                let whole = key == "enum" && !listed(schema).iter().any(|value| allows(schema, value));
                let about = if whole {
                    About::error(
                        format!("{message}, like all others: no value can ever be right"),
                        "mend `enum` or `type`",
                    )
                } else {
                    About::warning(message, format!("mend `{key}` or `type`"))
                };
                found.push(at, &spec.name, &format!("{path}/{key}"), about);
            }
        });
        let compiled = Compiled::new(&spec.parameters);
        let Some(validator) = compiled.validator() else { continue };
        for (place, example) in spec.examples.iter().enumerate() {
            if let Some(error) = validator.iter_errors(&Value::Object(example.clone())).next() {
                let message =
                    format!("an example of `{}` is no correct call, and it is what models imitate: {error}", spec.name);
                let about = About::warning(message, "mend the example or the schema");
                found.push(at, &spec.name, &format!("/examples/{place}"), about);
            }
        }
    }
}

/// Values beside a schema that it refuses: the key, the value, and what it is.
fn refused(schema: &Value) -> Vec<(&'static str, String, &'static str)> {
    let listed = listed(schema).iter().find(|value| !allows(schema, value)).map(|value| ("enum", value, "the listed"));
    let default = schema.get("default").map(|value| ("default", value, "the default"));
    let default = default.filter(|(_, value, _)| {
        let values = self::listed(schema);
        !allows(schema, value) || (!values.is_empty() && !values.contains(value))
    });
    listed.into_iter().chain(default).map(|(key, value, what)| (key, value.to_string(), what)).collect()
}

fn listed(schema: &Value) -> &[Value] {
    schema.get("enum").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the schema's `type` allows the value.
fn allows(schema: &Value, value: &Value) -> bool {
    let Some(kind) = schema.get("type") else { return true };
    let is = type_of(value);
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    names(kind)
        .iter()
        .any(|name| *name == is || (*name == "number" && is == "integer") || (*name == "integer" && whole))
}

/// The names of a `type`.
fn names(kind: &Value) -> Vec<&str> {
    match kind {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    }
}

fn shape<'s>(spec: &'s ToolSpec, argument: &str) -> Shape<'s> {
    Shape::new(&spec.parameters).property(argument)
}

/// Shows every schema in a schema, itself first, with its pointer.
fn walk(schema: &Value, path: &str, show: &mut dyn FnMut(&str, &Value)) {
    show(path, schema);
    for key in ONE {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            walk(inner, &format!("{path}/{key}"), show);
        }
    }
    for key in MANY {
        for (at, inner) in schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            walk(inner, &format!("{path}/{key}/{at}"), show);
        }
    }
    for key in NAMED {
        for (name, inner) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
            walk(inner, &format!("{path}/{key}{}", part(name)), show);
        }
    }
}
