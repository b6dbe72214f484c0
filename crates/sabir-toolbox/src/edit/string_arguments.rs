//! Parses the JSON object of a string replacement; accepts the field names of common edit tools.

use sabir_call::json_type_name;
use sabir_edit::StringReplacement;
use serde_json::{Map, Value};

use super::EditProblem;

/// The accepted names of the text to replace.
const OLD: [&str; 8] = [
    "old_string",
    "old_str",
    "old_text",
    "old",
    "search",
    "oldString",
    "oldStr",
    "oldText",
];
/// The accepted names of the new text.
const NEW: [&str; 8] = [
    "new_string",
    "new_str",
    "new_text",
    "new",
    "replace",
    "newString",
    "newStr",
    "newText",
];
/// The accepted names of the number of replacements.
const COUNT: [&str; 3] = ["expected_replacements", "count", "expectedReplacements"];
/// The accepted names of the flag that replaces all occurrences.
const ALL: [&str; 3] = ["replace_all", "replaceAll", "allow_multiple"];

/// Returns true if a text is a JSON object with a text to replace or a new text.
pub(super) fn is_object(text: &str) -> bool {
    let object = serde_json::from_str::<Map<String, Value>>(text);
    object.is_ok_and(|object| {
        OLD.iter()
            .chain(&NEW)
            .any(|name| object.contains_key(*name))
    })
}

/// Parses the object, and reports all its problems at once.
pub(super) fn parse_replacement(text: &str) -> Result<StringReplacement, Vec<EditProblem>> {
    let object = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => object,
        Ok(other) => {
            let message = format!(
                "a JSON object was expected, but this is {}",
                json_type_name(&other)
            );
            return Err(vec![EditProblem::new(
                "wrong_type",
                message,
                "give `old_string` and `new_string` in an object",
            )]);
        }
        Err(error) => {
            let message = format!("this is not JSON: {error}");
            return Err(vec![EditProblem::new(
                "not_json",
                message,
                "give an object with `old_string` and `new_string`",
            )]);
        }
    };
    // Nothing returns early here: all problems of the object are reported together.
    let old = string_field(&object, &OLD);
    let new = string_field(&object, &NEW);
    let count = find_field(&object, &COUNT).and_then(|found| match found {
        None => Ok(None),
        Some((name, value)) => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => Err(wrong_type(name, "a number from 1 on", value)),
        },
    });
    let all = find_field(&object, &ALL).and_then(|found| match found {
        None => Ok(false),
        Some((name, value)) => value
            .as_bool()
            .ok_or_else(|| wrong_type(name, "true or false", value)),
    });
    match (old, new, count, all) {
        (Ok(old), Ok(new), Ok(count), Ok(all)) => {
            // Without a count the text must occur exactly once.
            let count = count.or(if all { None } else { Some(1) });
            Ok(StringReplacement { old, new, count })
        }
        (old, new, count, all) => Err([old.err(), new.err(), count.err(), all.err()]
            .into_iter()
            .flatten()
            .map(|fault| *fault)
            .collect()),
    }
}

/// Returns the string in the field with one of these names.
fn string_field(
    object: &Map<String, Value>,
    names: &[&'static str],
) -> Result<String, Box<EditProblem>> {
    match find_field(object, names)? {
        Some((_, Value::String(text))) => Ok(text.clone()),
        Some((name, value)) => Err(wrong_type(name, "a string", value)),
        None => {
            let name = names.first().copied().unwrap_or_default();
            let hint = if names == NEW {
                "give the text instead, \"\" to delete"
            } else {
                "give the text to replace"
            };
            Err(Box::new(EditProblem::new(
                "missing_field",
                format!("the field `{name}` is missing"),
                hint,
            )))
        }
    }
}

/// Returns the field with one of these names. `null` counts as absent; two different values are an
/// error.
fn find_field<'a>(
    object: &'a Map<String, Value>,
    names: &[&'static str],
) -> Result<Option<(&'static str, &'a Value)>, Box<EditProblem>> {
    let mut found = names
        .iter()
        .filter_map(|name| object.get(*name).map(|value| (*name, value)))
        // Models fill optional fields that they do not mean with `null`.
        .filter(|(_, value)| !value.is_null());
    match (found.next(), found.next()) {
        (Some((first, one)), Some((second, other))) if one != other => {
            let message = format!("`{first}` and `{second}` are the same field, with two values");
            Err(Box::new(EditProblem::new(
                "field_twice",
                message,
                "give one of them",
            )))
        }
        (first, _) => Ok(first),
    }
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> Box<EditProblem> {
    let message = format!(
        "the field `{name}` must be {expected}, but is {}",
        json_type_name(found)
    );
    Box::new(EditProblem::new(
        "wrong_type",
        message,
        "send it in that form",
    ))
}
