//! Encodes a request as an Ollama body.
//!
//! Results become messages with the tool's name, before the text of the same user message. The wire
//! has no tool choice: to forbid calls, no tool is offered; to demand one tool, only that one is.
//! The wire cannot mark failed results, and only one family of models accepts an effort. Images of
//! results come in the user message after them, after a line that names their call: whether a model
//! sees the images of a tool message depends on its template, and the server does not report it if
//! not.

use std::borrow::Cow;

use sabir_call::{
    Image, InlineInstruction, Message, MessagePart, ReasoningConfig, ReasoningEffort, Request,
    ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::CAPABILITIES;
use crate::field::instructions_before;
use crate::identifier::visible_ascii_id;
use crate::openai_chat::encode_request::encode_tool;
use crate::params;
use crate::role_turns::{image_caption, unfetchable_image_text};
use crate::thinking;
use crate::wire::WireOptions;

/// Encodes the body of a request.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
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
            Role::Assistant => messages.extend(encode_assistant_message(message)),
        }
    }
    messages.extend(instructions_before(request, request.messages.len()).map(instruction));
    body.insert("messages".to_owned(), Value::Array(messages));
    let tools: Vec<_> = request
        .tools
        .iter()
        .filter(|tool| is_offered(tool, &request.tool_choice))
        .map(|spec| encode_tool(spec, false))
        .collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if let Some(think) = encode_thinking(&request.model, request.reasoning) {
        body.insert("think".to_owned(), think);
    }
    if let Some(limit) = request.max_output_tokens {
        params::insert_at_path(&mut body, "options.num_predict", json!(limit));
    }
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    match &request.options.format {
        ResponseFormat::Text => {}
        ResponseFormat::Json => params::insert_at_path(&mut body, "format", json!("json")),
        ResponseFormat::Schema { schema, .. } => {
            params::insert_at_path(&mut body, "format", schema.clone())
        }
    }
    // Without the member, the server would stream.
    body.insert("stream".to_owned(), json!(options.streamed));
    Value::Object(body)
}

/// Encodes the reasoning setting. Many versions accept an effort only for the gpt-oss family, which
/// in turn accepts nothing else.
fn encode_thinking(model: &str, wish: ReasoningConfig) -> Option<Value> {
    let effort = match wish {
        ReasoningConfig::Default => return None,
        ReasoningConfig::Off => return Some(json!(false)),
        _ if !model.contains("gpt-oss") => return Some(json!(true)),
        ReasoningConfig::Effort(effort) => effort,
        ReasoningConfig::Tokens(tokens) => thinking::effort_for_budget(tokens),
    };
    Some(json!(match effort {
        ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
    }))
}

/// Returns true if the tool choice allows the tool.
fn is_offered(tool: &ToolSpec, choice: &ToolChoice) -> bool {
    match choice {
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::None => false,
        ToolChoice::Tool(name) => tool.name == *name,
    }
}

/// Encodes a user message: its results as messages, then one message with its text and images.
fn encode_user_message(message: &Message, messages: &mut Vec<Value>) {
    let mut words = Vec::new();
    let mut images = Vec::new();
    let mut own_words = Vec::new();
    let mut own_images = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Result(result) => {
                let id = visible_ascii_id(result.id.as_str());
                messages.push(json!({
                    "role": "tool", "content": result.content, "tool_name": result.name, "tool_call_id": id,
                }));
                if !result.images.is_empty() {
                    words.push(Cow::Owned(image_caption(result, &id)));
                    images.extend(result.images.iter().map(|picture| json!(picture.data)));
                }
            }
            MessagePart::Text { text } if !text.is_empty() => {
                own_words.push(Cow::Borrowed(text.as_str()))
            }
            MessagePart::Image(Image { data, .. }) => own_images.push(json!(data)),
            MessagePart::ImageUrl { url } => {
                own_words.push(Cow::Owned(unfetchable_image_text(url)))
            }
            _ => {}
        }
    }
    // The captions of result images come first, right after the results.
    words.append(&mut own_words);
    images.append(&mut own_images);
    if words.is_empty() && images.is_empty() {
        return;
    }
    let mut body = Map::new();
    body.insert("role".to_owned(), json!("user"));
    body.insert("content".to_owned(), json!(words.join("\n\n")));
    if !images.is_empty() {
        body.insert("images".to_owned(), Value::Array(images));
    }
    messages.push(Value::Object(body));
}

/// Encodes an assistant message; `None` if it has neither text nor calls.
fn encode_assistant_message(message: &Message) -> Option<Value> {
    let mut words = String::new();
    let mut thoughts = String::new();
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text { text } => words.push_str(text),
            MessagePart::Thought { text, opaque: None } => thoughts.push_str(text),
            MessagePart::Call(call) => {
                let function =
                    json!({"index": calls.len(), "name": call.name, "arguments": call.arguments});
                calls.push(json!({"id": visible_ascii_id(call.id.as_str()), "function": function}));
            }
            _ => {}
        }
    }
    if words.is_empty() && calls.is_empty() {
        return None;
    }
    let mut body = Map::new();
    body.insert("role".to_owned(), json!("assistant"));
    body.insert("content".to_owned(), json!(words));
    if !thoughts.is_empty() {
        body.insert("thinking".to_owned(), json!(thoughts));
    }
    if !calls.is_empty() {
        body.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Some(Value::Object(body))
}
