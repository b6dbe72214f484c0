//! Validates typed arguments against the tool's JSON Schema, and reports the errors as faults.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sabir_call::{Fault, FaultKind, json_type_name};
use serde_json::{Map, Value};

use crate::arguments::{TypedArgument, json_excerpt, truncate_excerpt};
use crate::call_diagnostics::{CallDiagnostics, quote_names};
use crate::compiled_schema::CompiledSchema;
use crate::repair::shorten_text;
use crate::schema_error::{SchemaError, SchemaErrorKind};

/// The largest number of faults that validation adds to one call; a long array can be wrong in every item.
const MAX_FAULTS: usize = 16;

/// Validates typed arguments, tries the alternative readings of rejected strings, and records the remaining errors.
///
/// Each union argument is decided separately, in order, with the values chosen so far. Only the chosen reading records its repair.
pub(crate) fn validate_arguments(
    schema: &CompiledSchema,
    given: &[TypedArgument<'_>],
    arguments: &mut Map<String, Value>,
    notes: &mut CallDiagnostics<'_>,
) {
    // Moved out and back instead of cloned, because an argument may be a whole file.
    let mut value = Value::Object(std::mem::take(arguments));
    validate_value(schema, given, &mut value, notes);
    if let Value::Object(object) = value {
        *arguments = object;
    }
}

fn validate_value(
    schema: &CompiledSchema,
    given: &[TypedArgument<'_>],
    value: &mut Value,
    notes: &mut CallDiagnostics<'_>,
) {
    for given in given {
        let Some(other) = given
            .alternative
            .as_ref()
            .filter(|_| is_argument_refused(schema, value, &given.name))
        else {
            continue;
        };
        let Some(place) = value.get_mut(&given.name) else {
            continue;
        };
        let string = std::mem::replace(place, other.value.clone());
        // If neither reading is valid, the text as written stays: the fault should show it.
        if is_argument_refused(schema, value, &given.name) {
            if let Some(place) = value.get_mut(&given.name) {
                *place = string;
            }
            continue;
        }
        for rule in &other.rules {
            notes.push_repair(
                rule,
                given.written.span,
                &given.written.text,
                &other.value.to_string(),
            );
        }
    }
    let mut errors = 0;
    schema.find_errors(value, &mut |error| {
        if let Some(fault) = validation_fault(error, given, notes) {
            notes.faults.push(fault);
        }
        errors += 1;
        if errors < MAX_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
}

/// Returns true if the schema rejects the argument of that name.
///
/// `value` is the object of all arguments: a `$ref` or an `allOf` at the top may restrict an
/// argument that its own schema leaves free.
pub(crate) fn is_argument_refused(schema: &CompiledSchema, value: &Value, name: &str) -> bool {
    let mut is_refused = false;
    schema.find_errors(value, &mut |error| {
        if split_pointer(error.pointer).0 == name {
            is_refused = true;
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_refused
}

/// Splits a JSON pointer into the argument's name and the pointer inside its value.
/// The name is unescaped (RFC 6901), the rest stays a pointer for the message.
fn split_pointer(pointer: &str) -> (String, &str) {
    let rest = pointer.strip_prefix('/').unwrap_or(pointer);
    let end = rest.find('/').unwrap_or(rest.len());
    let (name, inside) = rest.split_at_checked(end).unwrap_or((rest, ""));
    // In this order: `~01` is the escape of the text `~1`, not of `/`.
    (name.replace("~1", "/").replace("~0", "~"), inside)
}

/// Converts a validation error to a fault; `None` if an earlier check has reported it.
///
/// The validator's messages require knowledge of JSON Schema. The four frequent kinds get messages like those of the other checks; the
/// others keep the validator's message with values masked.
fn validation_fault(
    error: &SchemaError<'_>,
    given: &[TypedArgument<'_>],
    notes: &CallDiagnostics<'_>,
) -> Option<Fault> {
    let pointer = error.pointer;
    let found = json_excerpt(error.instance);
    if pointer.is_empty() {
        return arguments_fault(error, notes);
    }
    let (name, inside) = split_pointer(pointer);
    // A value of the wrong type was reported by coercion, in better words.
    if notes.has_error_for(&name) && inside.is_empty() {
        return None;
    }
    let span = given
        .iter()
        .find(|given| given.name == name)
        .map_or(notes.call.span, |given| given.written.span);
    let place = if inside.is_empty() {
        format!("`{name}`")
    } else {
        format!("`{name}` at `{}`", shorten_text(inside))
    };
    let (kind, message, hint) = match &error.kind {
        SchemaErrorKind::Type(names) => {
            let expected = names.join(" or ");
            let kind = json_type_name(error.instance);
            let found = if kind == found {
                found
            } else {
                format!("{kind} {found}")
            };
            let message = format!(
                "{place} must be {}, but is {found}",
                with_article(&expected)
            );
            (
                FaultKind::WrongType,
                message,
                Some(format!("write {} there", with_article(&expected))),
            )
        }
        SchemaErrorKind::Enum(options) => {
            let message = format!(
                "{place} must be one of {}, but is {found}",
                json_excerpt(options)
            );
            let options = options
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let near = error
                .instance
                .as_str()
                .and_then(|value| sabir_call::nearest_candidate(value, options));
            (
                FaultKind::InvalidValue,
                message,
                near.map(|near| format!("did you mean `{near}`?")),
            )
        }
        SchemaErrorKind::Required(property) => {
            let message = format!("{place} needs `{}`, but is {found}", shorten_text(property));
            (
                FaultKind::InvalidValue,
                message,
                Some(format!("add `{}`", shorten_text(property))),
            )
        }
        SchemaErrorKind::AdditionalProperties(unexpected) => {
            let message = format!(
                "{place} must not have {}",
                quote_names(unexpected.iter().map(String::as_str))
            );
            (
                FaultKind::InvalidValue,
                message,
                Some("leave out what is not declared".to_owned()),
            )
        }
        SchemaErrorKind::Other => (
            FaultKind::InvalidValue,
            format!(
                "{place}: {}; found {found}",
                truncate_excerpt(&error.to_message("value"))
            ),
            None,
        ),
    };
    let mut fault = notes.new_fault(kind, span, message).in_argument(name);
    fault.hint = hint;
    Some(fault)
}

/// Converts an error about the arguments as a whole; `None` if an earlier check has reported it.
///
/// Such an error has an empty path: a missing or unexpected property at the top, or a union over
/// all arguments.
fn arguments_fault(error: &SchemaError<'_>, notes: &CallDiagnostics<'_>) -> Option<Fault> {
    let is_reported = match &error.kind {
        SchemaErrorKind::Required(property) => {
            notes.has_json_in_tag() || notes.has_error_for(property)
        }
        SchemaErrorKind::AdditionalProperties(unexpected) => {
            let wrong: HashSet<&str> = notes
                .errors()
                .filter_map(|fault| fault.argument.as_deref())
                .collect();
            unexpected.iter().all(|name| wrong.contains(name.as_str()))
        }
        _ => false,
    };
    let message = format!(
        "the arguments: {}",
        truncate_excerpt(&error.to_message("they"))
    );
    (!is_reported).then(|| notes.new_fault(FaultKind::InvalidValue, notes.name_span(), message))
}

/// Puts an article before the name of a type: `an integer`, `a string or null`, but plain `null`.
fn with_article(word: &str) -> String {
    match word {
        "null" => word.to_owned(),
        _ if word.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {word}"),
        _ => format!("a {word}"),
    }
}
