//! Encodes a request as a Chat Completions body.
//!
//! Results become messages before the text of the same user message. A tool message can hold only
//! text, so images of results come in the user message after it, after a line that names their
//! call. Reasoning details go back unchanged and in order; plain thoughts go back only if the
//! provider has a field for them.

use sabir_call::{
    Image, InlineInstruction, Message, MessagePart, OpaqueState, ParallelCalls, Request,
    ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::custom_tools::{
    encode_custom_call, encode_custom_tool, find_custom_tools, has_custom_tools,
};
use super::{CAPABILITIES, NAME};
use crate::anthropic::encode_request::{closed_object_schema, is_strict};
use crate::documents::encode_user_state;
use crate::field::instructions_before;
use crate::identifier::visible_ascii_id;
use crate::json_object::json_object;
use crate::native_tools;
use crate::params;
use crate::role_turns::image_caption;
use crate::thinking;
use crate::wire::WireOptions;

/// The name of a response schema without one: the API requires a name.
pub(crate) const DEFAULT_SCHEMA_NAME: &str = "answer";

/// Encodes the body of a request.
///
/// `verbosity` and `prompt_cache_key` are written only with the option `completion_limit`, which is
/// set for OpenAI's own API: other servers refuse a request with unknown members. Custom tools, whose
/// input is text, are written as such for it, and as functions for other servers.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    let custom: Vec<&str> = find_custom_tools(request)
        .filter(|_| has_custom_tools(options))
        .filter_map(native_tools::tool_name)
        .collect();
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    let instruction =
        |instruction: &InlineInstruction| json!({"role": "system", "content": instruction.text});
    for (index, message) in request.messages.iter().enumerate() {
        messages.extend(instructions_before(request, index).map(instruction));
        match message.role {
            Role::User => encode_user_message(message, &mut messages),
            Role::Assistant => messages.extend(encode_assistant_message(message, options, &custom)),
        }
    }
    messages.extend(instructions_before(request, request.messages.len()).map(instruction));
    body.insert("messages".to_owned(), Value::Array(messages));
    if !request.tools.is_empty() {
        body.insert(
            "tools".to_owned(),
            request
                .tools
                .iter()
                .map(|spec| {
                    Some(spec.name.as_str())
                        .filter(|name| custom.contains(name))
                        .and_then(|name| encode_custom_tool(request, name))
                        .unwrap_or_else(|| encode_tool(spec, is_strict(request, spec)))
                })
                .collect(),
        );
        if let Some(choice) = encode_tool_choice(&request.tool_choice, &custom) {
            body.insert("tool_choice".to_owned(), choice);
        }
        if request.parallel_calls == ParallelCalls::One {
            body.insert("parallel_tool_calls".to_owned(), json!(false));
        }
    }
    if let Some(limit) = request.max_output_tokens {
        // Most servers know only the older name; OpenAI's reasoning models refuse it.
        let key = if options.completion_limit {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        body.insert(key.to_owned(), json!(limit));
    }
    if let Some(effort) = thinking::encode_effort(request.reasoning) {
        body.insert("reasoning_effort".to_owned(), json!(effort));
    }
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    if let Some(format) = encode_format(&request.options.format) {
        body.insert("response_format".to_owned(), format);
    }
    if options.streamed {
        body.insert("stream".to_owned(), json!(true));
        // Without it, a stream has no token counts.
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

/// Encodes a user message: its results as tool messages, then one message with everything else.
fn encode_user_message(message: &Message, messages: &mut Vec<Value>) {
    let mut content = Vec::new();
    let mut own = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Result(result) => {
                let id = visible_ascii_id(result.id.as_str());
                messages
                    .push(json!({"role": "tool", "tool_call_id": id, "content": result.content}));
                if !result.images.is_empty() {
                    content.push(json!({"type": "text", "text": image_caption(result, &id)}));
                    content.extend(result.images.iter().map(encode_image));
                }
            }
            MessagePart::Text { text } if !text.is_empty() => {
                own.push(json!({"type": "text", "text": text}))
            }
            MessagePart::Image(picture) => own.push(encode_image(picture)),
            MessagePart::ImageUrl { url } => {
                own.push(json!({"type": "image_url", "image_url": {"url": url}}))
            }
            MessagePart::Opaque(state) => own.extend(encode_user_state(state, NAME)),
            _ => {}
        }
    }
    content.append(&mut own);
    // Many servers accept only a string here, so a single text is not sent as a list of parts.
    let only_text = match content.as_slice() {
        [] => return,
        [one] => one.get("text").cloned(),
        _ => None,
    };
    let content = only_text.unwrap_or(Value::Array(content));
    messages.push(json_object([("role", json!("user")), ("content", content)]));
}

/// Encodes an image as a data URL.
fn encode_image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
}

/// Encodes an assistant message; `None` if it has neither text nor calls. `custom` names the custom
/// tools.
fn encode_assistant_message(
    message: &Message,
    options: &WireOptions,
    custom: &[&str],
) -> Option<Value> {
    let mut words = String::new();
    let mut thoughts = String::new();
    let mut details = Vec::new();
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text { text } => words.push_str(text),
            MessagePart::Thought { text, opaque: None } => thoughts.push_str(text),
            MessagePart::Thought {
                text,
                opaque: Some(opaque),
            } => details.extend(encode_reasoning_detail(opaque, text)),
            MessagePart::Opaque(opaque) => details.extend(encode_reasoning_detail(opaque, "")),
            MessagePart::Call(call) => {
                let is_custom = custom.contains(&call.name.as_str());
                if let Some(call) = encode_custom_call(call).filter(|_| is_custom) {
                    calls.push(call);
                    continue;
                }
                let arguments = Value::Object(call.arguments.clone()).to_string();
                let function = json!({"name": call.name, "arguments": arguments});
                calls.push(json_object([
                    ("id", json!(visible_ascii_id(call.id.as_str()))),
                    ("type", json!("function")),
                    ("function", function),
                ]));
            }
            _ => {}
        }
    }
    // The API refuses an assistant message with neither, so thoughts alone are left out.
    if words.is_empty() && calls.is_empty() {
        return None;
    }
    let mut body = Map::new();
    body.insert("role".to_owned(), json!("assistant"));
    // OpenAI itself writes `null` for a message that has only calls.
    body.insert(
        "content".to_owned(),
        if words.is_empty() {
            Value::Null
        } else {
            Value::String(words)
        },
    );
    if let Some(field) = options
        .thought_field
        .as_ref()
        .filter(|_| !thoughts.is_empty())
    {
        body.insert(field.clone(), Value::String(thoughts));
    }
    if !details.is_empty() {
        body.insert("reasoning_details".to_owned(), Value::Array(details));
    }
    if !calls.is_empty() {
        body.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Some(Value::Object(body))
}

/// Encodes opaque state of this wire, with the text of its thought restored.
fn encode_reasoning_detail(opaque: &OpaqueState, thought: &str) -> Option<Value> {
    if opaque.wire != NAME {
        return None;
    }
    let mut detail = opaque.data.clone();
    if let Some(detail) = detail.as_object_mut().filter(|_| !thought.is_empty()) {
        let summary = detail
            .get("type")
            .is_some_and(|kind| kind == "reasoning.summary");
        detail.insert(
            if summary { "summary" } else { "text" }.to_owned(),
            json!(thought),
        );
    }
    Some(detail)
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
            json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}})
        }
    })
}

/// Encodes a tool.
///
/// The shape is `{"type": "function", "function": {"name": …, "description": …, "parameters":
/// {…}}}`. Ollama's wire has the same one.
pub(crate) fn encode_tool(tool: &ToolSpec, strict: bool) -> Value {
    let mut function = json_object([
        ("name", json!(tool.name)),
        ("description", json!(tool.description)),
        ("parameters", closed_object_schema(&tool.parameters)),
    ]);
    if let Some(function) = function.as_object_mut().filter(|_| strict) {
        function.insert("strict".to_owned(), json!(true));
    }
    json_object([("type", json!("function")), ("function", function)])
}

/// Encodes the tool choice; `None` for the default. `custom` names the custom tools.
fn encode_tool_choice(choice: &ToolChoice, custom: &[&str]) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!("required"),
        ToolChoice::None => json!("none"),
        ToolChoice::Tool(name) if custom.contains(&name.as_str()) => {
            json!({"type": "custom", "custom": {"name": name}})
        }
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    })
}
