//! Changes the body of each request as the user configured it for a model.

use serde_json::{Map, Value};

/// Members of request bodies that the user sets for a model, in the form of its wire.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BodyChanges {
    /// Values for members that a request does not have.
    pub defaults: Map<String, Value>,
    /// Values that replace those of a request.
    pub overrides: Map<String, Value>,
}

impl BodyChanges {
    /// Applies the changes to a body. Objects are merged, other values are set as a whole.
    pub(super) fn apply(&self, body: &mut Value) {
        if let Some(body) = body.as_object_mut() {
            merge(body, &self.defaults, false);
            merge(body, &self.overrides, true);
        }
    }
}

/// Merges members into an object; `replaces` says if they win over known values.
fn merge(into: &mut Map<String, Value>, members: &Map<String, Value>, replaces: bool) {
    for (key, value) in members {
        match (into.get_mut(key), value) {
            (Some(Value::Object(inside)), Value::Object(members)) => {
                merge(inside, members, replaces)
            }
            (Some(known), _) if !replaces && !known.is_null() => {}
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_fill_gaps_and_overrides_win() {
        let members = |value: Value| value.as_object().cloned().unwrap();
        let changes = BodyChanges {
            defaults: members(json!({"temperature": 0.2, "top_k": 5, "x": {"a": 1, "b": 2}})),
            overrides: members(json!({"seed": 7, "y": {"c": [1]}})),
        };
        let mut body = json!({"temperature": 1, "top_k": null, "x": {"a": 9}, "seed": 1, "y": {"c": [2], "d": 3}});
        changes.apply(&mut body);
        assert_eq!(
            body,
            json!({"temperature": 1, "top_k": 5, "x": {"a": 9, "b": 2}, "seed": 7, "y": {"c": [1], "d": 3}})
        );
    }
}
