//! OpenAI Chat Completions: a request to its body.
//!
//! Results become messages of their own, before the words of the same user message. Such a message holds text only, so
//! pictures of results come in the user message right behind, after a line that names their call. Reasoning details go back
//! unchanged and in order; plain thoughts go back only where the provider has a field for them.

use sabir_call::{Format, Image, Message, Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec};
use serde_json::{Map, Value, json};

use super::{NAME, SAID};
use crate::anthropic::request::{closed, is_strict};
use crate::identifier::short;
use crate::thinking;
use crate::turns::belonging;
use crate::wire::Form;
use crate::wishes;

/// What a form is called that nobody named: the API insists on a name.
pub(crate) const UNNAMED: &str = "answer";

pub(crate) fn encode(request: &Request, form: &Form) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message.role {
            Role::User => user(message, &mut messages),
            Role::Assistant => messages.extend(assistant(message, form)),
        }
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    if !request.tools.is_empty() {
        body.insert(
            "tools".to_owned(),
            request.tools.iter().map(|spec| tool(spec, is_strict(request, spec))).collect(),
        );
        if let Some(choice) = choice(&request.choice) {
            body.insert("tool_choice".to_owned(), choice);
        }
        if request.parallel == Parallel::One {
            body.insert("parallel_tool_calls".to_owned(), json!(false));
        }
    }
    if let Some(limit) = request.max_output {
        let key = if form.completion_limit { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.to_owned(), json!(limit));
    }
    if let Some(effort) = thinking::word(request.thinking) {
        body.insert("reasoning_effort".to_owned(), json!(effort));
    }
    wishes::write(request, form, &SAID, &mut body);
    if let Some(format) = format(&request.wishes.format) {
        body.insert("response_format".to_owned(), format);
    }
    if form.streamed {
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

fn user(message: &Message, messages: &mut Vec<Value>) {
    let (mut content, mut own) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Result(result) => {
                let id = short(result.id.as_str());
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": result.content}));
                if !result.images.is_empty() {
                    content.push(json!({"type": "text", "text": belonging(result, &id)}));
                    content.extend(result.images.iter().map(image));
                }
            }
            Part::Text { text } if !text.is_empty() => own.push(json!({"type": "text", "text": text})),
            Part::Image(picture) => own.push(image(picture)),
            Part::ImageUrl { url } => own.push(json!({"type": "image_url", "image_url": {"url": url}})),
            Part::Opaque(state) if state.wire == NAME => own.push(state.data.clone()),
            _ => {}
        }
    }
    content.append(&mut own);
    match content.as_slice() {
        [] => {}
        // Many servers know a string only.
        [one] if one.get("text").is_some() => messages.push(json!({"role": "user", "content": one.get("text")})),
        _ => messages.push(json!({"role": "user", "content": content})),
    }
}

fn image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
}

fn assistant(message: &Message, form: &Form) -> Option<Value> {
    let (mut words, mut thoughts) = (String::new(), String::new());
    let (mut details, mut calls) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text } => words.push_str(text),
            Part::Thought { text, opaque: None } => thoughts.push_str(text),
            Part::Thought { text, opaque: Some(opaque) } => details.extend(detail(opaque, text)),
            Part::Opaque(opaque) => details.extend(detail(opaque, "")),
            Part::Call(call) => {
                let arguments = Value::Object(call.arguments.clone()).to_string();
                let function = json!({"name": call.name, "arguments": arguments});
                calls.push(json!({"id": short(call.id.as_str()), "type": "function", "function": function}));
            }
            _ => {}
        }
    }
    if words.is_empty() && calls.is_empty() {
        return None;
    }
    let mut body = Map::new();
    body.insert("role".to_owned(), json!("assistant"));
    body.insert("content".to_owned(), if words.is_empty() { Value::Null } else { Value::String(words) });
    if let Some(field) = form.thought_field.as_ref().filter(|_| !thoughts.is_empty()) {
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

/// State that this wire understands, with the thought that belongs to it in its place.
fn detail(opaque: &Opaque, thought: &str) -> Option<Value> {
    if opaque.wire != NAME {
        return None;
    }
    let mut detail = opaque.data.clone();
    if let Some(detail) = detail.as_object_mut().filter(|_| !thought.is_empty()) {
        let summary = detail.get("type").is_some_and(|kind| kind == "reasoning.summary");
        detail.insert(if summary { "summary" } else { "text" }.to_owned(), json!(thought));
    }
    Some(detail)
}

fn format(format: &Format) -> Option<Value> {
    Some(match format {
        Format::Text => return None,
        Format::Json => json!({"type": "json_object"}),
        Format::Schema { name, schema, strict } => {
            let name = if name.is_empty() { UNNAMED } else { name };
            json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}})
        }
    })
}

pub(crate) fn tool(tool: &ToolSpec, strict: bool) -> Value {
    let mut function =
        json!({"name": tool.name, "description": tool.description, "parameters": closed(&tool.parameters)});
    if let Some(function) = function.as_object_mut().filter(|_| strict) {
        function.insert("strict".to_owned(), json!(true));
    }
    json!({"type": "function", "function": function})
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!("required"),
        ToolChoice::None => json!("none"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    })
}
