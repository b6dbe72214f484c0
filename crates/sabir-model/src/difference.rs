//! Where two JSON values differ: for requests that are not the recorded ones.

use serde_json::Value;

/// How many characters of a text are shown from where it differs, and how many before.
const SHOWN: usize = 60;
const BEFORE: usize = 20;

/// How many characters of anything else are shown.
const SHOWN_WHOLE: usize = 200;

/// One place where two values differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonDifference {
    /// Such as `messages[2].content[0].text`; empty for the whole.
    pub(crate) path: String,
    /// What was expected there, shortened.
    pub(crate) expected: String,
    /// What was found.
    pub(crate) found: String,
}

/// All places where the values differ, in order. The order of an object's fields is no difference.
pub(crate) fn find_differences(expected: &Value, found: &Value) -> Vec<JsonDifference> {
    let mut all = Vec::new();
    compare_values(String::new(), Some(expected), Some(found), &mut all);
    all
}

fn compare_values(path: String, expected: Option<&Value>, found: Option<&Value>, all: &mut Vec<JsonDifference>) {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let added = found.keys().filter(|name| !expected.contains_key(*name));
            for name in expected.keys().chain(added) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare_values(path, expected.get(name), found.get(name), all);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) => {
            for at in 0..expected.len().max(found.len()) {
                compare_values(format!("{path}[{at}]"), expected.get(at), found.get(at), all);
            }
        }
        (Some(Value::String(expected)), Some(Value::String(found))) if expected != found => {
            let same = expected.chars().zip(found.chars()).take_while(|(one, other)| one == other).count();
            let (expected, found) = (excerpt_around(expected, same), excerpt_around(found, same));
            all.push(JsonDifference { path, expected, found });
        }
        (expected, found) if expected != found => {
            all.push(JsonDifference { path, expected: shorten_value(expected), found: shorten_value(found) });
        }
        _ => {}
    }
}

/// A text around its character `at`.
fn excerpt_around(text: &str, at: usize) -> String {
    let begin = at.saturating_sub(BEFORE);
    let shown: String = text.chars().skip(begin).take(at - begin + SHOWN).collect();
    let before = if begin > 0 { "…" } else { "" };
    let behind = if text.chars().nth(at + SHOWN).is_some() { "…" } else { "" };
    format!("{}", Value::from(format!("{before}{shown}{behind}")))
}

fn shorten_value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    let shown: String = text.chars().take(SHOWN_WHOLE).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_found() {
        let check = |one: Value, other: Value, expected: &[(&str, &str, &str)]| {
            let found = find_differences(&one, &other);
            let found: Vec<_> =
                found.iter().map(|d| (d.path.as_str(), d.expected.as_str(), d.found.as_str())).collect();
            assert_eq!(found, expected);
        };
        check(json!({"a": 1, "b": [true]}), json!({"b": [true], "a": 1}), &[]);
        check(
            json!({"m": [{"t": "one two"}]}),
            json!({"m": [{"t": "one three"}]}),
            &[("m[0].t", "\"one two\"", "\"one three\"")],
        );
        check(json!([1, 2]), json!([1]), &[("[1]", "2", "nothing")]);
        check(json!({"a": 1}), json!({"b": 1}), &[("a", "1", "nothing"), ("b", "nothing", "1")]);
        check(json!("x"), json!(["x"]), &[("", "\"x\"", "[\"x\"]")]);
        let long = |end: &str| format!("{}{end}{}", "é".repeat(100), "y".repeat(100));
        let (one, other) = (long("A"), long("B"));
        let found = find_differences(&json!(one), &json!(other));
        assert!(found[0].expected.starts_with("\"…é") && found[0].expected.contains('A'), "{found:?}");
        assert!(found[0].found.ends_with("…\""), "{found:?}");
    }
}
