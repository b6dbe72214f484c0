//! Finds the members of an answer that events cannot express.

use serde_json::{Map, Value};

/// Returns the members of an object that have a value and are not among the known ones.
pub(crate) fn unknown_members(value: &Value, known: &[&str]) -> Map<String, Value> {
    let members = value.as_object().into_iter().flatten();
    members
        .filter(|(key, value)| !value.is_null() && !is_known_spelling(key, known))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns true if a client may read a member as one of the known ones.
///
/// Clients in Go match names without case, and others accept a name with underscores or without. A
/// known member in another spelling would bring them content that nobody has checked.
pub(crate) fn is_known_spelling(key: &str, known: &[&str]) -> bool {
    known.contains(&key)
        || known
            .iter()
            .any(|known| fold_name(key).eq(fold_name(known)))
}

/// Returns the characters of a name without underscores and case.
fn fold_name(name: &str) -> impl Iterator<Item = char> {
    // By way of capitals, because Go takes `ſ` for an `s`.
    name.chars()
        .filter(|c| *c != '_')
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_spellings_of_known_members_are_not_unknown() {
        let known = ["tool_calls", "finishReason"];
        for spelling in [
            "tool_calls",
            "tool_Calls",
            "ToolCalls",
            "TOOLCALLS",
            "tool_call\u{17f}",
            "_tool__calls",
            "finish_reason",
            "FinishReason",
            "fini\u{17f}hreason",
        ] {
            assert!(is_known_spelling(spelling, &known), "{spelling}");
        }
        assert!(is_known_spelling("Kind", &["\u{212a}ind"]));
        let members = json!({"tool_call": 1, "native_finish_reason": 2, "calls": null, "": 3, "Tool_Calls": 4});
        assert_eq!(
            Value::Object(unknown_members(&members, &known)),
            json!({"tool_call": 1, "native_finish_reason": 2, "": 3})
        );
    }
}
