//! Writes custom tools of Chat Completions, whose input is text, in the form that a server takes.
//!
//! OpenAI's own API has them; other servers refuse a request with one. They get a function with one
//! text argument instead, and the rest of a client's body stays as the client wrote it.

use sabir_call::{Call, OpaqueState, Request, ToolSpec};
use serde_json::{Map, Value, json};

use super::encode_request::encode_tool;
use crate::identifier::visible_ascii_id;
use crate::native_tools::{self, INPUT};
use crate::openai_responses;
use crate::wire::WireOptions;

/// The type of a custom tool, and the name of the member with its content.
const CUSTOM: &str = "custom";

/// Returns true if the server has custom tools.
pub(crate) fn has_custom_tools(options: &WireOptions) -> bool {
    options.custom_tools
}

/// Returns the custom tools of a request, of which it keeps the form of the Responses wire.
pub(crate) fn find_custom_tools(request: &Request) -> impl Iterator<Item = &OpaqueState> {
    native_tools::tools_of_wire(request, openai_responses::NAME)
        .filter(|tool| native_tools::tool_kind(tool) == native_tools::NativeToolKind::Custom)
}

/// Encodes a custom tool, if the tool of this name is one.
pub(crate) fn encode_custom_tool(request: &Request, name: &str) -> Option<Value> {
    let tool =
        find_custom_tools(request).find(|tool| native_tools::tool_name(tool) == Some(name))?;
    let mut custom = tool.data.as_object()?.clone();
    custom.shift_remove("type");
    // This wire has the grammar's members one level deeper.
    if native_tools::has_grammar(tool)
        && let Some(Value::Object(format)) = custom.get_mut("format")
    {
        format.shift_remove("type");
        *format = Map::from_iter([
            ("type".to_owned(), json!("grammar")),
            ("grammar".to_owned(), Value::Object(std::mem::take(format))),
        ]);
    }
    Some(json!({"type": CUSTOM, CUSTOM: custom}))
}

/// Encodes a call of a custom tool; `None` if its arguments are not those of one.
pub(crate) fn encode_custom_call(call: &Call) -> Option<Value> {
    let input = call.arguments.get(INPUT)?.as_str()?;
    let custom = json!({"name": call.name, "input": input});
    Some(json!({"id": visible_ascii_id(call.id.as_str()), "type": CUSTOM, CUSTOM: custom}))
}

/// Replaces the custom tools of a client's body by functions, with the calls of them and the choice
/// among them, if the server has no custom tools.
pub(crate) fn replace_custom_tools(
    body: &mut Map<String, Value>,
    request: &Request,
    options: &WireOptions,
) {
    if has_custom_tools(options) {
        return;
    }
    let tools = body.get_mut("tools").and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten() {
        if let Some(custom) = take_custom(tool) {
            *tool = function_for(&custom, request);
        }
    }
    if let Some(choice) = body.get_mut("tool_choice") {
        replace_choice(choice);
        let allowed = choice.pointer_mut("/allowed_tools/tools");
        let allowed = allowed.and_then(Value::as_array_mut);
        allowed.into_iter().flatten().for_each(replace_choice);
    }
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        calls.into_iter().flatten().for_each(replace_call);
    }
}

/// Takes the content out of a tool, a choice or a call, if it is a custom one.
fn take_custom(item: &mut Value) -> Option<Value> {
    let item = item.as_object_mut()?;
    if item.get("type")? != CUSTOM {
        return None;
    }
    item.shift_remove(CUSTOM).filter(Value::is_object)
}

/// Makes a function from the content of a custom tool.
fn function_for(custom: &Value, request: &Request) -> Value {
    let text = |key: &str| custom.get(key).and_then(Value::as_str).unwrap_or_default();
    // The description of the request's tool includes the grammar. A list of allowed tools may have
    // removed the tool.
    match request.tools.get(text("name")) {
        Some(spec) => encode_tool(spec, false),
        None => {
            let schema = native_tools::text_schema();
            encode_tool(
                &ToolSpec::new(text("name"), text("description"), schema),
                false,
            )
        }
    }
}

/// Makes the choice of a function from that of a custom tool.
fn replace_choice(choice: &mut Value) {
    if let Some(custom) = take_custom(choice) {
        *choice = json!({"type": "function", "function": {"name": custom.get("name")}});
    }
}

/// Makes a call of a function from that of a custom tool. Other members of the call stay.
fn replace_call(call: &mut Value) {
    let Some(custom) = take_custom(call) else {
        return;
    };
    let arguments = json!({INPUT: custom.get("input")}).to_string();
    if let Some(call) = call.as_object_mut() {
        call.insert("type".to_owned(), json!("function"));
        let function = json!({"name": custom.get("name"), "arguments": arguments});
        call.insert("function".to_owned(), function);
    }
}
