//! OpenAI Responses: a request to its body.
//!
//! Every part becomes an item of its own, in its order; only the results of a user message come before its words.
//! Reasoning goes back as it came, or not at all: the API refuses an item that lacks its encrypted content, and one that
//! nothing of the same answer follows. Assistant messages are written as strings, since servers other than OpenAI insist
//! on ids in the longer form. The wire has no stop sequences.

use sabir_call::{
    Call, CallResult, Format, Image, Message, Parallel, Part, Request, Role, Thinking, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{NAME, SAID};
use crate::anthropic::request::{closed, is_strict};
use crate::identifier::short;
use crate::native::{self, Spaced};
use crate::openai_chat::request::UNNAMED;
use crate::thinking;
use crate::wire::Form;
use crate::wishes;

/// In the names of OpenAI's models that do not think. They refuse to be asked for encrypted reasoning.
const THOUGHTLESS: [&str; 4] = ["gpt-3", "gpt-4", "chatgpt", "-chat"];

pub(crate) fn encode(request: &Request, form: &Form) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    if !request.system.trim().is_empty() {
        body.insert("instructions".to_owned(), json!(request.system));
    }
    let freeform = native::freeform(request, NAME);
    let mut items = input(&request.messages, &freeform);
    place(&mut items, &native::spaced(request, NAME));
    body.insert("input".to_owned(), Value::Array(items));
    let tools = tools(request);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
        if let Some(choice) = choice(&request.choice, &freeform) {
            body.insert("tool_choice".to_owned(), choice);
        }
        if request.parallel == Parallel::One {
            body.insert("parallel_tool_calls".to_owned(), json!(false));
        }
    }
    if let Some(limit) = request.max_output {
        body.insert("max_output_tokens".to_owned(), json!(limit));
    }
    wishes::write(request, form, &SAID, &mut body);
    if let Some(format) = format(&request.wishes.format) {
        wishes::put(&mut body, "text.format", format);
    }
    if let Some(effort) = thinking::word(request.thinking) {
        let mut reasoning = json!({"effort": effort});
        if let Some(reasoning) = reasoning.as_object_mut().filter(|_| request.thinking != Thinking::Off) {
            // Without it, nothing of the reasoning can be read.
            reasoning.insert("summary".to_owned(), json!("auto"));
        }
        body.insert("reasoning".to_owned(), reasoning);
    }
    body.insert("store".to_owned(), json!(false));
    if !THOUGHTLESS.iter().any(|part| request.model.contains(part)) {
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    if form.streamed {
        body.insert("stream".to_owned(), json!(true));
    }
    Value::Object(body)
}

fn format(format: &Format) -> Option<Value> {
    Some(match format {
        Format::Text => return None,
        Format::Json => json!({"type": "json_object"}),
        Format::Schema { name, schema, strict } => {
            let name = if name.is_empty() { UNNAMED } else { name };
            json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict})
        }
    })
}

/// The tools on offer and those of the provider's own, which replace one of their name.
fn tools(request: &Request) -> Vec<Value> {
    let spaced = native::spaced(request, NAME);
    let own = |name: &str| {
        native::of(request, NAME).any(|tool| native::name(tool) == Some(name))
            || spaced.iter().any(|tool| tool.offered == name)
    };
    let mut tools: Vec<_> =
        request.tools.iter().filter(|spec| !own(&spec.name)).map(|spec| tool(spec, is_strict(request, spec))).collect();
    tools.extend(native::of(request, NAME).map(|tool| tool.data.clone()));
    tools
}

/// `freeform`: the tools whose input is text.
fn input(history: &[Message], freeform: &[String]) -> Vec<Value> {
    let mut items = Vec::new();
    for message in history {
        match message.role {
            Role::User => user(message, freeform, &mut items),
            Role::Assistant => assistant(message, freeform, &mut items),
        }
    }
    items
}

/// Gives calls of tools of a namespace their two names.
fn place(items: &mut [Value], spaced: &[Spaced]) {
    for item in items.iter_mut().filter(|item| is(item, "function_call")) {
        let known = spaced.iter().find(|tool| item.get("name").is_some_and(|name| *name == tool.offered));
        if let (Some(known), Some(item)) = (known, item.as_object_mut()) {
            item.insert("name".to_owned(), json!(known.name));
            item.insert("namespace".to_owned(), json!(known.space));
        }
    }
}

fn user(message: &Message, freeform: &[String], items: &mut Vec<Value>) {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Result(result) => {
                let id = short(result.id.as_str());
                let kind =
                    if freeform.contains(&result.name) { "custom_tool_call_output" } else { "function_call_output" };
                items.push(json!({"type": kind, "call_id": id, "output": output(result)}));
            }
            Part::Text { text } if !text.is_empty() => content.push(json!({"type": "input_text", "text": text})),
            Part::Image(picture) => content.push(image(picture)),
            Part::ImageUrl { url } => {
                content.push(json!({"type": "input_image", "detail": "auto", "image_url": url}));
            }
            Part::Opaque(state) if state.wire == NAME => content.push(state.data.clone()),
            _ => {}
        }
    }
    if !content.is_empty() {
        items.push(json!({"type": "message", "role": "user", "content": content}));
    }
}

/// Words alone stay a string, which servers that speak this wire all know.
fn output(result: &CallResult) -> Value {
    if result.images.is_empty() {
        return json!(result.content);
    }
    let words = Some(&result.content).filter(|words| !words.is_empty());
    let words = words.map(|words| json!({"type": "input_text", "text": words}));
    words.into_iter().chain(result.images.iter().map(image)).collect()
}

fn image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "input_image", "detail": "auto", "image_url": format!("data:{media_type};base64,{data}")})
}

fn assistant(message: &Message, freeform: &[String], items: &mut Vec<Value>) {
    let before = items.len();
    let mut phase = None;
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => items.push(words(text, phase.take())),
            Part::Thought { opaque: Some(opaque), .. } | Part::Opaque(opaque) if opaque.wire == NAME => {
                match opaque.data.get("phase").filter(|_| is(&opaque.data, "message")) {
                    Some(known) => phase = Some(known),
                    None => items.push(opaque.data.clone()),
                }
            }
            Part::Call(call) => items.push(called(call, freeform)),
            _ => {}
        }
    }
    while items.len() > before && items.last().is_some_and(|item| is(item, "reasoning")) {
        items.pop();
    }
}

fn called(call: &Call, freeform: &[String]) -> Value {
    let id = short(call.id.as_str());
    let input = call.arguments.get(native::INPUT).and_then(Value::as_str).filter(|_| freeform.contains(&call.name));
    if let Some(input) = input {
        return json!({"type": "custom_tool_call", "call_id": id, "name": call.name, "input": input});
    }
    let arguments = Value::Object(call.arguments.clone()).to_string();
    json!({"type": "function_call", "call_id": id, "name": call.name, "arguments": arguments})
}

fn words(text: &str, phase: Option<&Value>) -> Value {
    let mut item = json!({"type": "message", "role": "assistant", "content": text});
    if let (Some(phase), Some(item)) = (phase, item.as_object_mut()) {
        item.insert("phase".to_owned(), phase.clone());
    }
    item
}

fn is(item: &Value, kind: &str) -> bool {
    item.get("type").is_some_and(|known| known == kind)
}

/// The wire makes schemas strict unless told not to, and then every argument is a required one.
fn tool(tool: &ToolSpec, strict: bool) -> Value {
    let (name, description, parameters) = (&tool.name, &tool.description, closed(&tool.parameters));
    json!({"type": "function", "name": name, "description": description, "parameters": parameters, "strict": strict})
}

fn choice(choice: &ToolChoice, freeform: &[String]) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!("required"),
        ToolChoice::None => json!("none"),
        ToolChoice::Tool(name) if freeform.contains(name) => json!({"type": "custom", "name": name}),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    })
}
