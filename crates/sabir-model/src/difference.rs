//! Finds the differences between two JSON values, to explain why a request is not the recorded one.

use serde_json::Value;

/// The number of characters of a string that are shown from the first difference on.
const SHOWN: usize = 60;
/// The number of characters of a string that are shown before the first difference.
const BEFORE: usize = 20;

/// The number of characters of any other value that are shown.
const SHOWN_WHOLE: usize = 200;

/// One difference between two values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonDifference {
    /// The path, such as `messages[2].content[0].text`; empty for the whole value.
    pub(crate) path: String,
    /// The expected value, shortened.
    pub(crate) expected: String,
    /// The value that was found, shortened.
    pub(crate) found: String,
}

/// Finds all differences, in order. The order of an object's fields does not matter.
pub(crate) fn find_differences(expected: &Value, found: &Value) -> Vec<JsonDifference> {
    let mut all = Vec::new();
    compare_values(String::new(), Some(expected), Some(found), &mut all);
    all
}

/// Adds the differences at and below a path. A missing value differs from `null`.
fn compare_values(
    path: String,
    expected: Option<&Value>,
    found: Option<&Value>,
    all: &mut Vec<JsonDifference>,
) {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            // Members in the order of the expected value, then those that only the found one has.
            let added = found.keys().filter(|name| !expected.contains_key(*name));
            for name in expected.keys().chain(added) {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                compare_values(path, expected.get(name), found.get(name), all);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) => {
            for at in 0..expected.len().max(found.len()) {
                compare_values(
                    format!("{path}[{at}]"),
                    expected.get(at),
                    found.get(at),
                    all,
                );
            }
        }
        (Some(Value::String(expected)), Some(Value::String(found))) if expected != found => {
            // In characters, so that an excerpt never cuts one.
            let same = expected
                .chars()
                .zip(found.chars())
                .take_while(|(one, other)| one == other)
                .count();
            all.push(JsonDifference {
                path,
                expected: excerpt_around(expected, same),
                found: excerpt_around(found, same),
            });
        }
        (expected, found) if expected != found => {
            all.push(JsonDifference {
                path,
                expected: shorten_value(expected),
                found: shorten_value(found),
            });
        }
        _ => {}
    }
}

/// Returns an excerpt of a text around character number `at`, as a JSON string.
fn excerpt_around(text: &str, at: usize) -> String {
    let begin = at.saturating_sub(BEFORE);
    let shown: String = text.chars().skip(begin).take(at - begin + SHOWN).collect();
    let before = if begin > 0 { "…" } else { "" };
    let behind = if text.chars().nth(at + SHOWN).is_some() {
        "…"
    } else {
        ""
    };
    format!("{}", Value::from(format!("{before}{shown}{behind}")))
}

/// Returns a value as JSON, cut to its first characters; `nothing` if it is missing.
fn shorten_value(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    let shown: String = text.chars().take(SHOWN_WHOLE).collect();
    if shown.len() < text.len() {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_found_with_their_paths() {
        let check = |one: Value, other: Value, expected: &[(&str, &str, &str)]| {
            let found = find_differences(&one, &other);
            let found: Vec<_> = found
                .iter()
                .map(|d| (d.path.as_str(), d.expected.as_str(), d.found.as_str()))
                .collect();
            assert_eq!(found, expected);
        };
        check(
            json!({"a": 1, "b": [true]}),
            json!({"b": [true], "a": 1}),
            &[],
        );
        check(
            json!({"m": [{"t": "one two"}]}),
            json!({"m": [{"t": "one three"}]}),
            &[("m[0].t", "\"one two\"", "\"one three\"")],
        );
        check(json!([1, 2]), json!([1]), &[("[1]", "2", "nothing")]);
        check(
            json!({"a": 1}),
            json!({"b": 1}),
            &[("a", "1", "nothing"), ("b", "nothing", "1")],
        );
        check(json!("x"), json!(["x"]), &[("", "\"x\"", "[\"x\"]")]);
        let long = |end: &str| format!("{}{end}{}", "é".repeat(100), "y".repeat(100));
        let (one, other) = (long("A"), long("B"));
        let found = find_differences(&json!(one), &json!(other));
        assert!(
            found[0].expected.starts_with("\"…é") && found[0].expected.contains('A'),
            "{found:?}"
        );
        assert!(found[0].found.ends_with("…\""), "{found:?}");
    }
}
