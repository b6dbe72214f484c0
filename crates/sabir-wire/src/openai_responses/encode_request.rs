//! Encodes a request as a Responses body.
//!
//! Every part becomes an item in its order, but results of a user message come before its text.
//! Reasoning goes back unchanged or not at all: the API refuses a reasoning item without its
//! encrypted content, or without a later item of the same response. Assistant messages are written
//! as strings, since servers other than OpenAI require ids in the longer form. The wire has no stop
//! sequences.

use sabir_call::{
    Call, CallResult, Image, InlineInstruction, Message, MessagePart, ParallelCalls,
    ReasoningConfig, Request, ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{CAPABILITIES, NAME};
use crate::anthropic::encode_request::{closed_object_schema, is_strict};
use crate::documents::encode_user_state;
use crate::field::instructions_before;
use crate::identifier::visible_ascii_id;
use crate::json_object::json_object;
use crate::native_tools::{self, NamespacedTool};
use crate::openai_chat::encode_request::DEFAULT_SCHEMA_NAME;
use crate::params;
use crate::thinking;
use crate::wire::WireOptions;

/// Substrings of the names of OpenAI models without reasoning. They refuse a request for encrypted
/// reasoning.
const NON_REASONING_MODELS: [&str; 4] = ["gpt-3", "gpt-4", "chatgpt", "-chat"];

/// Encodes the body of a request.
///
/// `store` is always `false`: nothing about a task stays with the provider, and every request
/// carries the whole history.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    if !request.system.trim().is_empty() {
        body.insert("instructions".to_owned(), json!(request.system));
    }
    let freeform = native_tools::names_of_custom_tools(request, NAME);
    let mut items = encode_input(request, &freeform);
    // The history has joined names; the API expects the namespace in a member of its own.
    split_namespaces(&mut items, &native_tools::namespaced_tools(request, NAME));
    body.insert("input".to_owned(), Value::Array(items));
    let tools = encode_tools(request);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
        if let Some(choice) = encode_tool_choice(&request.tool_choice, &freeform) {
            body.insert("tool_choice".to_owned(), choice);
        }
        if request.parallel_calls == ParallelCalls::One {
            body.insert("parallel_tool_calls".to_owned(), json!(false));
        }
    }
    if let Some(limit) = request.max_output_tokens {
        body.insert("max_output_tokens".to_owned(), json!(limit));
    }
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    if let Some(format) = encode_format(&request.options.format) {
        params::insert_at_path(&mut body, "text.format", format);
    }
    if let Some(effort) = thinking::encode_effort(request.reasoning) {
        let mut reasoning = json!({"effort": effort});
        if let Some(reasoning) = reasoning
            .as_object_mut()
            .filter(|_| request.reasoning != ReasoningConfig::Off)
        {
            // Without this member the response has no readable reasoning.
            reasoning.insert("summary".to_owned(), json!("auto"));
        }
        body.insert("reasoning".to_owned(), reasoning);
    }
    body.insert("store".to_owned(), json!(false));
    if !NON_REASONING_MODELS
        .iter()
        .any(|part| request.model.contains(part))
    {
        // Nothing is stored, so the encrypted reasoning has to come with the response.
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    if options.streamed {
        body.insert("stream".to_owned(), json!(true));
    }
    Value::Object(body)
}

/// Encodes the response format; `None` for plain text.
fn encode_format(format: &ResponseFormat) -> Option<Value> {
    Some(match format {
        ResponseFormat::Text => return None,
        ResponseFormat::Json => json!({"type": "json_object"}),
        ResponseFormat::Schema {
            name,
            schema,
            strict,
        } => {
            let name = if name.is_empty() {
                DEFAULT_SCHEMA_NAME
            } else {
                name
            };
            json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict})
        }
    })
}

/// Encodes the offered tools and the provider's own, which replace an offered tool with the same
/// name.
fn encode_tools(request: &Request) -> Vec<Value> {
    let namespaced = native_tools::namespaced_tools(request, NAME);
    let own = |name: &str| {
        native_tools::tools_of_wire(request, NAME)
            .any(|tool| native_tools::tool_name(tool) == Some(name))
            || namespaced.iter().any(|tool| tool.offered_name == name)
    };
    let mut tools: Vec<_> = request
        .tools
        .iter()
        .filter(|spec| !own(&spec.name))
        .map(|spec| encode_tool(spec, is_strict(request, spec)))
        .collect();
    tools.extend(native_tools::tools_of_wire(request, NAME).map(|tool| tool.data.clone()));
    tools
}

/// Encodes the history. `freeform` names the tools whose input is text.
fn encode_input(request: &Request, freeform: &[String]) -> Vec<Value> {
    let mut items = Vec::new();
    let instruction = |instruction: &InlineInstruction| {
        let content = json!([{"type": "input_text", "text": instruction.text}]);
        json!({"type": "message", "role": "developer", "content": content})
    };
    for (index, message) in request.messages.iter().enumerate() {
        items.extend(instructions_before(request, index).map(instruction));
        match message.role {
            Role::User => encode_user_message(message, freeform, &mut items),
            Role::Assistant => encode_assistant_message(message, freeform, &mut items),
        }
    }
    items.extend(instructions_before(request, request.messages.len()).map(instruction));
    items
}

/// Splits the joined names of calls into namespace and tool.
fn split_namespaces(items: &mut [Value], namespaced: &[NamespacedTool]) {
    for item in items
        .iter_mut()
        .filter(|item| is_item_type(item, "function_call"))
    {
        let known = namespaced.iter().find(|tool| {
            item.get("name")
                .is_some_and(|name| *name == tool.offered_name)
        });
        if let (Some(known), Some(item)) = (known, item.as_object_mut()) {
            item.insert("name".to_owned(), json!(known.name));
            item.insert("namespace".to_owned(), json!(known.namespace));
        }
    }
}

/// Encodes a user message: its results as items, then one message with everything else.
fn encode_user_message(message: &Message, freeform: &[String], items: &mut Vec<Value>) {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Result(result) => {
                let id = visible_ascii_id(result.id.as_str());
                let kind = if freeform.contains(&result.name) {
                    "custom_tool_call_output"
                } else {
                    "function_call_output"
                };
                items.push(
                    json!({"type": kind, "call_id": id, "output": encode_result_output(result)}),
                );
            }
            MessagePart::Text { text } if !text.is_empty() => {
                content.push(json!({"type": "input_text", "text": text}))
            }
            MessagePart::Image(picture) => content.push(encode_image(picture)),
            MessagePart::ImageUrl { url } => {
                content.push(json!({"type": "input_image", "detail": "auto", "image_url": url}));
            }
            MessagePart::Opaque(state) => content.extend(encode_user_state(state, NAME)),
            _ => {}
        }
    }
    if !content.is_empty() {
        items.push(json_object([
            ("type", json!("message")),
            ("role", json!("user")),
            ("content", Value::Array(content)),
        ]));
    }
}

/// Encodes the output of a call. Without images it stays a plain string, which all servers with
/// this wire accept.
fn encode_result_output(result: &CallResult) -> Value {
    if result.images.is_empty() {
        return json!(result.content);
    }
    let words = Some(&result.content).filter(|words| !words.is_empty());
    let words = words.map(|words| json!({"type": "input_text", "text": words}));
    words
        .into_iter()
        .chain(result.images.iter().map(encode_image))
        .collect()
}

/// Encodes an image as a data URL.
fn encode_image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "input_image", "detail": "auto", "image_url": format!("data:{media_type};base64,{data}")})
}

/// Encodes the parts of an assistant message as items.
fn encode_assistant_message(message: &Message, freeform: &[String], items: &mut Vec<Value>) {
    let before = items.len();
    let mut phase = None;
    for part in &message.parts {
        match part {
            MessagePart::Text { text } if !text.is_empty() => {
                items.push(encode_text_message(text, phase.take()))
            }
            MessagePart::Thought {
                opaque: Some(opaque),
                ..
            }
            | MessagePart::Opaque(opaque)
                if opaque.wire == NAME =>
            {
                match opaque
                    .data
                    .get("phase")
                    .filter(|_| is_item_type(&opaque.data, "message"))
                {
                    // The phase is a member of the message that follows, not an item.
                    Some(known) => phase = Some(known),
                    None => items.push(opaque.data.clone()),
                }
            }
            MessagePart::Call(call) => items.push(encode_call(call, freeform)),
            _ => {}
        }
    }
    // The API refuses reasoning that no other item of the same response follows.
    while items.len() > before
        && items
            .last()
            .is_some_and(|item| is_item_type(item, "reasoning"))
    {
        items.pop();
    }
}

/// Encodes a call.
fn encode_call(call: &Call, freeform: &[String]) -> Value {
    let id = visible_ascii_id(call.id.as_str());
    let input = call
        .arguments
        .get(native_tools::INPUT)
        .and_then(Value::as_str)
        .filter(|_| freeform.contains(&call.name));
    if let Some(input) = input {
        return json!({"type": "custom_tool_call", "call_id": id, "name": call.name, "input": input});
    }
    let arguments = Value::Object(call.arguments.clone()).to_string();
    json!({"type": "function_call", "call_id": id, "name": call.name, "arguments": arguments})
}

/// Encodes a text of the assistant.
fn encode_text_message(text: &str, phase: Option<&Value>) -> Value {
    let mut item = json!({"type": "message", "role": "assistant", "content": text});
    if let (Some(phase), Some(item)) = (phase, item.as_object_mut()) {
        item.insert("phase".to_owned(), phase.clone());
    }
    item
}

/// Returns true if the item has this type.
fn is_item_type(item: &Value, kind: &str) -> bool {
    item.get("type").is_some_and(|known| known == kind)
}

/// Encodes a tool. `strict` is always written: the API's default is true, and then every argument
/// is required.
fn encode_tool(tool: &ToolSpec, strict: bool) -> Value {
    json_object([
        ("type", json!("function")),
        ("name", json!(tool.name)),
        ("description", json!(tool.description)),
        ("parameters", closed_object_schema(&tool.parameters)),
        ("strict", json!(strict)),
    ])
}

/// Encodes the tool choice; `None` for the default.
fn encode_tool_choice(choice: &ToolChoice, freeform: &[String]) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!("required"),
        ToolChoice::None => json!("none"),
        ToolChoice::Tool(name) if freeform.contains(name) => {
            json!({"type": "custom", "name": name})
        }
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    })
}
