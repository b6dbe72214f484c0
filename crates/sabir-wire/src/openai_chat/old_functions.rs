//! Translates the older form of functions, `functions` and `function_call`, to tools.
//!
//! Clients that were written before tools existed still send it, while most servers know only tools. A
//! call of the older form has no id, and an answer holds at most one: ids are generated from the
//! positions of the calls, and parallel calls are switched off. The answer gets the older form again
//! ([`ResponsePreferences::old_functions`]).

use serde_json::{Map, Value, json};

use crate::client_request::{RequestError, ResponsePreferences};

/// The member with the functions.
const FUNCTIONS: &str = "functions";

/// The member with a call, and in a request with the choice of a function.
pub(crate) const FUNCTION_CALL: &str = "function_call";

/// The member with the history.
const MESSAGES: &str = "messages";

/// A call that has no result yet.
struct OpenCall {
    /// The name of the function.
    name: String,
    /// The generated id.
    id: String,
}

/// Returns true if a body has something of the older form.
pub(crate) fn has_old_functions(body: &Value) -> bool {
    let is_given = |value: &Value, key: &str| value.get(key).is_some_and(|value| !value.is_null());
    let messages = body.get(MESSAGES).and_then(Value::as_array);
    is_given(body, FUNCTIONS)
        || is_given(body, FUNCTION_CALL)
        || messages.into_iter().flatten().any(|message| {
            is_given(message, FUNCTION_CALL)
                || message.get("role").and_then(Value::as_str) == Some("function")
        })
}

/// Translates a body to tools, if it has something of the older form.
///
/// Functions beside tools are added to them; then the client knows the newer form, and gets it.
///
/// # Errors
/// A member of the older form with a wrong type, or a choice in both forms.
pub(crate) fn translate_old_functions(
    body: &mut Value,
    preferences: &mut ResponsePreferences,
) -> Result<(), RequestError> {
    if !has_old_functions(body) {
        return Ok(());
    }
    let Some(members) = body.as_object_mut() else {
        return Ok(());
    };
    let functions = take_given(members, FUNCTIONS);
    let choice = take_given(members, FUNCTION_CALL);
    if let Some(functions) = functions {
        let functions = to_tools(functions)?;
        match members.get_mut("tools") {
            Some(Value::Array(tools)) => tools.extend(functions),
            _ => {
                preferences.old_functions = true;
                members.insert("tools".to_owned(), Value::Array(functions));
                members
                    .entry("parallel_tool_calls")
                    .or_insert(Value::Bool(false));
            }
        }
    }
    if let Some(choice) = choice {
        if members
            .get("tool_choice")
            .is_some_and(|value| !value.is_null())
        {
            let message = "cannot stand beside `tool_choice`, which replaces it";
            return Err(RequestError::new(FUNCTION_CALL, message));
        }
        members.insert("tool_choice".to_owned(), to_tool_choice(choice)?);
    }
    if let Some(Value::Array(messages)) = members.get_mut(MESSAGES) {
        translate_messages(messages)?;
    }
    Ok(())
}

/// Removes a member and returns it; `None` for one that is missing or null.
fn take_given(members: &mut Map<String, Value>, key: &str) -> Option<Value> {
    members.shift_remove(key).filter(|value| !value.is_null())
}

/// Translates the list of functions.
fn to_tools(functions: Value) -> Result<Vec<Value>, RequestError> {
    let Value::Array(functions) = functions else {
        return Err(RequestError::new(FUNCTIONS, "must be a list"));
    };
    for (position, function) in functions.iter().enumerate() {
        if !function.get("name").is_some_and(Value::is_string) {
            let path = format!("{FUNCTIONS}[{position}].name");
            return Err(RequestError::new(path, "must be a text"));
        }
    }
    let tools = functions
        .into_iter()
        .map(|function| json!({"type": "function", "function": function}));
    Ok(tools.collect())
}

/// Translates the choice of a function.
fn to_tool_choice(choice: Value) -> Result<Value, RequestError> {
    match &choice {
        Value::String(word) if word == "auto" || word == "none" => Ok(choice),
        Value::Object(named) => match named.get("name") {
            Some(Value::String(name)) => {
                Ok(json!({"type": "function", "function": {"name": name}}))
            }
            _ => {
                let path = format!("{FUNCTION_CALL}.name");
                Err(RequestError::new(path, "must be a text"))
            }
        },
        _ => Err(RequestError::new(
            FUNCTION_CALL,
            "must be `auto`, `none` or the name of a function in an object",
        )),
    }
}

/// Translates the calls of a history, and the results of functions.
fn translate_messages(messages: &mut [Value]) -> Result<(), RequestError> {
    let mut open: Vec<OpenCall> = Vec::new();
    for (position, message) in messages.iter_mut().enumerate() {
        let Some(message) = message.as_object_mut() else {
            continue;
        };
        let generated = format!("call_of_message_{position}");
        if let Some(call) = take_given(message, FUNCTION_CALL) {
            let Some(name) = call.get("name").and_then(Value::as_str) else {
                let path = format!("{MESSAGES}[{position}].{FUNCTION_CALL}.name");
                return Err(RequestError::new(path, "must be a text"));
            };
            open.push(OpenCall {
                name: name.to_owned(),
                id: generated.clone(),
            });
            let call = json!({"id": generated, "type": "function", "function": call});
            match message.get_mut("tool_calls") {
                Some(Value::Array(calls)) => calls.push(call),
                _ => {
                    message.insert("tool_calls".to_owned(), Value::Array(vec![call]));
                }
            }
        }
        if message.get("role").and_then(Value::as_str) == Some("function") {
            let name = message.shift_remove("name");
            let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
            let found = open.iter().rposition(|call| call.name == name);
            // A result without its call keeps an id of its own.
            let id = found.map_or(generated, |found| open.remove(found).id);
            message.insert("role".to_owned(), json!("tool"));
            message.insert("tool_call_id".to_owned(), json!(id));
            if message.get("content").is_none_or(Value::is_null) {
                message.insert("content".to_owned(), json!(""));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(mut body: Value) -> Value {
        let mut preferences = ResponsePreferences::default();
        translate_old_functions(&mut body, &mut preferences).unwrap();
        body
    }

    #[test]
    fn calls_and_results_are_paired_by_name() {
        let called = |name: &str| json!({"role": "assistant", "content": null, "function_call": {"name": name, "arguments": "{}"}});
        let result = |name: &str| json!({"role": "function", "name": name, "content": "done"});
        let body = translated(json!({
            "messages": [called("a"), called("b"), result("a"), result("b"), result("c")],
            "functions": [{"name": "a"}], "function_call": {"name": "a"},
        }));
        let messages = body["messages"].as_array().unwrap();
        let ids: Vec<_> = messages
            .iter()
            .map(|message| {
                let call = message.pointer("/tool_calls/0/id");
                call.or(message.get("tool_call_id")).unwrap().clone()
            })
            .collect();
        assert_eq!((&ids[0], &ids[1]), (&ids[2], &ids[3]));
        assert!(!ids[..4].contains(&ids[4]));
        assert_eq!(messages[2]["role"], "tool");
        assert_eq!(messages[2].get("name"), None);
        assert_eq!(body["tool_choice"]["function"]["name"], "a");
        assert_eq!(body["tools"][0]["function"]["name"], "a");
        assert_eq!(body["parallel_tool_calls"], false);
        assert!(!has_old_functions(&body));
    }

    #[test]
    fn a_body_without_the_older_form_stays_as_it_is() {
        let body = json!({"functions": null, "messages": [{"role": "assistant", "content": "x", "function_call": null}]});
        assert_eq!(translated(body.clone()), body);
    }

    #[test]
    fn functions_beside_tools_are_added_to_them() {
        let mut body = json!({"functions": [{"name": "a"}], "tools": [{"type": "function", "function": {"name": "b"}}]});
        let mut preferences = ResponsePreferences::default();
        translate_old_functions(&mut body, &mut preferences).unwrap();
        let names = body["tools"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(!preferences.old_functions);
        assert_eq!(body.get("parallel_tool_calls"), None);
    }

    #[test]
    fn wrong_members_are_named() {
        for (body, path) in [
            (json!({"functions": {}}), "functions"),
            (json!({"functions": [{}]}), "functions[0].name"),
            (
                json!({"function_call": "auto", "tool_choice": "auto"}),
                "function_call",
            ),
            (json!({"function_call": "all"}), "function_call"),
            (json!({"function_call": {}}), "function_call.name"),
            (
                json!({"messages": [{"function_call": "x"}]}),
                "messages[0].function_call.name",
            ),
        ] {
            let mut changed = body.clone();
            let mut preferences = ResponsePreferences::default();
            let error = translate_old_functions(&mut changed, &mut preferences).unwrap_err();
            assert_eq!(error.path, path, "{body}");
        }
    }
}
