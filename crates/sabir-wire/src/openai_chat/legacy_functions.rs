//! Translates the older form of functions, `functions` and `function_call`, to tools.
//!
//! Clients that were written before tools existed still send it, while most servers know only tools. A
//! call of the older form has no id, and an answer holds at most one: ids are generated from the
//! positions of the calls, and the request allows one call. The answer gets the older form again
//! ([`ResponsePreferences::legacy_functions`]).
//!
//! With tools, every call needs a result directly behind it, and every result a call. The older form
//! asks for neither: a call without a result gets one that says so, and a result without a call
//! becomes a message of the user.

use std::collections::{HashMap, HashSet, VecDeque};

use sabir_call::{ParallelCalls, Request};
use serde_json::{Map, Value, json};

use crate::client_request::{DecodedRequest, RequestError, ResponsePreferences};
use crate::wire::WireOptions;

/// The member with the functions.
const FUNCTIONS: &str = "functions";

/// The member with a call, and in a request with the choice of a function.
pub(crate) const FUNCTION_CALL: &str = "function_call";

/// The member that allows several calls, or only one.
const PARALLEL_CALLS: &str = "parallel_tool_calls";

/// The member with the history.
const MESSAGES: &str = "messages";

/// The content of the generated result of an unanswered call.
const NO_RESULT: &str = "(The call has no result.)";

/// Returns true if a body uses the older form.
pub(crate) fn has_legacy_functions(body: &Value) -> bool {
    let is_given = |value: &Value, key: &str| value.get(key).is_some_and(|value| !value.is_null());
    let messages = body.get(MESSAGES).and_then(Value::as_array);
    is_given(body, FUNCTIONS)
        || is_given(body, FUNCTION_CALL)
        || messages.into_iter().flatten().any(|message| {
            is_given(message, FUNCTION_CALL)
                || message.get("role").and_then(Value::as_str) == Some("function")
        })
}

/// Translates a body that uses the older form to tools.
///
/// Functions beside tools are added to them. Such a client knows the newer form, so the answer uses it.
///
/// # Errors
/// A member of the older form with a wrong type, or a choice in both forms.
pub(crate) fn translate_legacy_functions(
    body: &mut Value,
    preferences: &mut ResponsePreferences,
) -> Result<(), RequestError> {
    if !has_legacy_functions(body) {
        return Ok(());
    }
    let Some(members) = body.as_object_mut() else {
        return Ok(());
    };
    let functions = take_non_null(members, FUNCTIONS);
    let choice = take_non_null(members, FUNCTION_CALL);
    if let Some(functions) = functions {
        let functions = to_tools(functions)?;
        match members.get_mut("tools") {
            Some(Value::Array(tools)) if !tools.is_empty() => tools.extend(functions),
            _ => {
                preferences.legacy_functions = true;
                members.insert("tools".to_owned(), Value::Array(functions));
            }
        }
    }
    if let Some(choice) = choice {
        if members
            .get("tool_choice")
            .is_some_and(|value| !value.is_null())
        {
            let message = "cannot be combined with `tool_choice`, which replaces it";
            return Err(RequestError::new(FUNCTION_CALL, message));
        }
        members.insert("tool_choice".to_owned(), to_tool_choice(choice)?);
    }
    if let Some(Value::Array(messages)) = members.get_mut(MESSAGES) {
        translate_messages(messages)?;
    }
    Ok(())
}

/// Expects an answer with one call, since the older form has room for no other. `body` is the client's.
pub(crate) fn expect_one_call(decoded: &mut DecodedRequest, body: &Value) {
    decoded.preferences.legacy_functions = true;
    if body.get(PARALLEL_CALLS).is_none_or(Value::is_null) {
        decoded.request.parallel_calls = ParallelCalls::One;
    }
}

/// Tells a provider of the same wire to make one call, if the client may get only one and has not requested that itself. Many servers
/// refuse the member, so only OpenAI's own API gets it.
pub(crate) fn ask_for_one_call(
    body: &mut Map<String, Value>,
    request: &Request,
    options: &WireOptions,
) {
    let has_tools = matches!(body.get("tools"), Some(Value::Array(tools)) if !tools.is_empty());
    let is_given = body
        .get(PARALLEL_CALLS)
        .is_some_and(|value| !value.is_null());
    let is_wanted = request.parallel_calls == ParallelCalls::One && options.completion_limit;
    if is_wanted && has_tools && !is_given {
        body.insert(PARALLEL_CALLS.to_owned(), Value::Bool(false));
    }
}

/// Removes a member and returns it; `None` for one that is missing or null.
fn take_non_null(members: &mut Map<String, Value>, key: &str) -> Option<Value> {
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

/// The pairs of calls and results of a history in the older form.
#[derive(Debug, Default)]
struct ResultPairs {
    /// The ids of the calls since the last message of the user that have no result yet, by name.
    open: HashMap<String, VecDeque<String>>,
    /// The results, by the ids of their calls.
    results: HashMap<String, Value>,
    /// The positions of the results in the history.
    paired: HashSet<usize>,
}

impl ResultPairs {
    /// Pairs the result at a position with the first open call of its function, if there is one.
    fn take_result(&mut self, position: usize, message: &Value) {
        let id = self
            .open
            .get_mut(text_member(message, "name"))
            .and_then(VecDeque::pop_front);
        if let Some(id) = id {
            let result = to_tool_result(&id, message.get("content"));
            self.results.insert(id, result);
            self.paired.insert(position);
        }
    }
}

/// Translates the calls of a history, and the results of functions.
fn translate_messages(messages: &mut Vec<Value>) -> Result<(), RequestError> {
    // These calls have results in the newer form.
    let answered: HashSet<String> = messages
        .iter()
        .map(|message| text_member(message, "tool_call_id").to_owned())
        .collect();
    let mut pairs = ResultPairs::default();
    // The ids of the calls that need a result of the older form, by the positions of their
    // messages.
    let mut called: HashMap<usize, String> = HashMap::new();
    for (position, message) in messages.iter_mut().enumerate() {
        match text_member(message, "role") {
            "user" => pairs.open.clear(),
            "function" => pairs.take_result(position, message),
            _ => {}
        }
        let Some(members) = message.as_object_mut() else {
            continue;
        };
        let Some(call) = take_non_null(members, FUNCTION_CALL) else {
            continue;
        };
        let Some(name) = call.get("name").and_then(Value::as_str).map(str::to_owned) else {
            let path = format!("{MESSAGES}[{position}].{FUNCTION_CALL}.name");
            return Err(RequestError::new(path, "must be a text"));
        };
        let id = add_call(members, call, position);
        if !answered.contains(&id) {
            pairs.open.entry(name).or_default().push_back(id.clone());
            called.insert(position, id);
        }
    }
    let old = std::mem::take(messages);
    for (position, mut message) in old.into_iter().enumerate() {
        if text_member(&message, "role") == "function" {
            if pairs.paired.contains(&position) {
                continue;
            }
            let name = text_member(&message, "name");
            let content = result_text(message.get("content"));
            message = json!({"role": "user", "content": format!("Result of {name}: {content}")});
        }
        messages.push(message);
        if let Some(id) = called.remove(&position) {
            let result = pairs.results.remove(&id);
            messages.push(result.unwrap_or_else(|| to_tool_result(&id, Some(&json!(NO_RESULT)))));
        }
    }
    Ok(())
}

/// Adds a call of the older form to the calls of its message, and returns its id. Does not add a call that the message also has in the
/// newer form: some servers answer in both forms, and clients send both back.
fn add_call(members: &mut Map<String, Value>, call: Value, position: usize) -> String {
    let generated = format!("call_of_message_{position}");
    let added = json!({"id": generated, "type": "function", "function": call});
    let Some(Value::Array(calls)) = members.get_mut("tool_calls") else {
        members.insert("tool_calls".to_owned(), Value::Array(vec![added]));
        return generated;
    };
    let repeated = calls.iter().find(|known| {
        let function = known.get("function");
        ["name", "arguments"]
            .iter()
            .all(|key| function.and_then(|function| function.get(*key)) == call_member(&added, key))
    });
    match repeated
        .and_then(|known| known.get("id"))
        .and_then(Value::as_str)
    {
        Some(id) => id.to_owned(),
        None => {
            calls.push(added);
            generated
        }
    }
}

/// Returns a member of a call's function.
fn call_member<'c>(call: &'c Value, key: &str) -> Option<&'c Value> {
    call.get("function")?.get(key)
}

/// Returns a member that is a text; an empty text if there is none.
fn text_member<'m>(message: &'m Value, key: &str) -> &'m str {
    message.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Makes the result of a call.
fn to_tool_result(id: &str, content: Option<&Value>) -> Value {
    let content = content.filter(|content| !content.is_null());
    let content = content.cloned().unwrap_or_else(|| json!(""));
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// Returns the content of a result as text.
fn result_text(content: Option<&Value>) -> String {
    match content {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(mut body: Value) -> Value {
        let mut preferences = ResponsePreferences::default();
        translate_legacy_functions(&mut body, &mut preferences).unwrap();
        body
    }

    /// Returns the messages of a translated history: calls as `+id`, results as `-id content`, other
    /// messages as their role and content.
    fn history(messages: Value) -> Vec<String> {
        let body = translated(json!({"messages": messages, "functions": [{"name": "a"}]}));
        let text = |value: Option<&Value>| value.map_or(String::new(), Value::to_string);
        body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| match message["tool_calls"].as_array() {
                Some(calls) => {
                    let ids = calls
                        .iter()
                        .map(|call| format!("+{}", text_member(call, "id")));
                    ids.collect()
                }
                None if message["role"] == "tool" => {
                    let id = text_member(message, "tool_call_id");
                    format!("-{id} {}", text(message.get("content")))
                }
                None => format!(
                    "{} {}",
                    text_member(message, "role"),
                    text(message.get("content"))
                ),
            })
            .collect()
    }

    fn call(name: &str) -> Value {
        json!({"role": "assistant", "content": null, "function_call": {"name": name, "arguments": "{}"}})
    }

    fn result(name: &str, content: &str) -> Value {
        json!({"role": "function", "name": name, "content": content})
    }

    #[test]
    fn calls_are_answered_by_name_in_their_order() {
        let messages = json!([
            call("a"),
            call("a"),
            call("b"),
            result("b", "B"),
            result("a", "1"),
            result("a", "2")
        ]);
        assert_eq!(
            history(messages),
            [
                "+call_of_message_0",
                "-call_of_message_0 \"1\"",
                "+call_of_message_1",
                "-call_of_message_1 \"2\"",
                "+call_of_message_2",
                "-call_of_message_2 \"B\"",
            ]
        );
    }

    #[test]
    fn every_call_gets_a_result_and_every_result_a_call() {
        let user = json!({"role": "user", "content": "Go on."});
        let messages = json!([
            result("c", "C"),
            call("a"),
            user,
            result("a", "late"),
            call("b")
        ]);
        assert_eq!(
            history(messages),
            [
                "user \"Result of c: C\"",
                "+call_of_message_1",
                "-call_of_message_1 \"(The call has no result.)\"",
                "user \"Go on.\"",
                "user \"Result of a: late\"",
                "+call_of_message_4",
                "-call_of_message_4 \"(The call has no result.)\"",
            ]
        );
    }

    #[test]
    fn a_call_in_both_forms_is_one() {
        let both = json!({
            "role": "assistant",
            "function_call": {"name": "a", "arguments": "{}"},
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
        });
        let answer = json!({"role": "tool", "tool_call_id": "c1", "content": "new"});
        assert_eq!(history(json!([both, answer])), ["+c1", "-c1 \"new\""]);
        assert_eq!(
            history(json!([both, result("a", "old")])),
            ["+c1", "-c1 \"old\""]
        );
    }

    #[test]
    fn many_open_calls_are_paired_in_linear_time() {
        let count = 20_000;
        let mut messages: Vec<Value> = (0..count).map(|_| call("a")).collect();
        messages.extend((0..count).map(|_| result("b", "")));
        assert_eq!(history(Value::Array(messages)).len(), 3 * count);
    }

    #[test]
    fn the_choice_and_the_functions_are_translated() {
        let body = translated(
            json!({"functions": [{"name": "a"}], "function_call": {"name": "a"}, "tools": []}),
        );
        assert_eq!(body["tool_choice"]["function"]["name"], "a");
        assert_eq!(body["tools"][0]["function"]["name"], "a");
        assert_eq!(body.get("parallel_tool_calls"), None);
        assert!(!has_legacy_functions(&body));
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
        translate_legacy_functions(&mut body, &mut preferences).unwrap();
        let names = body["tools"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(!preferences.legacy_functions);
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
            let error = translate_legacy_functions(&mut changed, &mut preferences).unwrap_err();
            assert_eq!(error.path, path, "{body}");
        }
    }
}
