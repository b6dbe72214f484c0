//! Gemini: a request to its body.
//!
//! The API insists on: roles in turn, one result for each call, first in the content behind them, and the signature of
//! each call of its newer models in the part of that call. Thoughts go back only where they are signed. Pictures of a result
//! are parts within it for models since the third, and stand right behind the results, after a line that names their call, for
//! those before, which know no such parts.
//!
//! Tools are described with `parametersJsonSchema`, which takes JSON Schema as it is. The older `parameters` knows a subset
//! of OpenAPI and refuses the whole request for a `$schema`, an `additionalProperties` or a `const` anywhere in it.

use std::borrow::Cow;

use sabir_call::{CallResult, Effort, Format, Image, Message, Part, Request, Role, Thinking, ToolChoice, ToolSpec};
use serde_json::{Map, Value, json};

use super::parts::{self, SIGNATURE};
use super::{JSON, NAME, SAID, effort_word};
use crate::anthropic::request::closed;
use crate::identifier::short;
use crate::turns::{belonging, unseen};
use crate::wire::Form;
use crate::wishes;

/// What the API takes in place of a signature for a call that its own models did not write.
pub(super) const UNSIGNED: &str = "skip_thought_signature_validator";

pub(crate) fn encode(request: &Request, form: &Form) -> Value {
    let mut body = Map::new();
    if !request.system.trim().is_empty() {
        body.insert("systemInstruction".to_owned(), json!({"parts": [parts::text(&request.system, false)]}));
    }
    body.insert("contents".to_owned(), Value::Array(contents(request)));
    if !request.tools.is_empty() {
        let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
        body.insert("tools".to_owned(), json!([{"functionDeclarations": declarations}]));
        if let Some(calling) = calling(&request.choice) {
            body.insert("toolConfig".to_owned(), json!({"functionCallingConfig": calling}));
        }
    }
    let generation = generation(request);
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(generation));
    }
    wishes::write(request, form, &SAID, &mut body);
    Value::Object(body)
}

fn generation(request: &Request) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(limit) = request.max_output {
        config.insert("maxOutputTokens".to_owned(), json!(limit));
    }
    if request.wishes.format != Format::Text {
        config.insert("responseMimeType".to_owned(), json!(JSON));
    }
    if let Format::Schema { schema, .. } = &request.wishes.format {
        config.insert("responseJsonSchema".to_owned(), schema.clone());
    }
    if let Some(thinking) = thinking(&request.model, request.thinking) {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    config
}

/// Efforts have words since Gemini 3; before, only budgets are understood. What the words stand for there is Google's own
/// table, which differs from the one that other wires count by.
fn thinking(model: &str, thinking: Thinking) -> Option<Value> {
    let budget = match thinking {
        Thinking::Default => return None,
        Thinking::Off => return Some(json!({"thinkingBudget": 0})),
        Thinking::Effort(effort) if !is_old(model) => {
            return Some(json!({"includeThoughts": true, "thinkingLevel": effort_word(effort)}));
        }
        Thinking::Effort(Effort::Minimal) => 512,
        Thinking::Effort(Effort::Low) => 1024,
        Thinking::Effort(Effort::Medium) => 8192,
        Thinking::Effort(Effort::High) => 24576,
        Thinking::Tokens(tokens) => tokens,
    };
    Some(json!({"includeThoughts": true, "thinkingBudget": budget}))
}

/// Whether it is a Gemini before the third.
fn is_old(model: &str) -> bool {
    version(model).is_some_and(|version| version.starts_with("1.") || version.starts_with("2."))
}

fn version(model: &str) -> Option<&str> {
    model.rsplit('/').next()?.strip_prefix("gemini-")
}

/// Messages of one role that follow each other become one; contents without a part vanish.
fn contents(request: &Request) -> Vec<Value> {
    let mut merged: Vec<(Role, Vec<&Message>)> = Vec::new();
    for message in &request.messages {
        match merged.last_mut() {
            Some((role, messages)) if *role == message.role => messages.push(message),
            _ => merged.push((message.role, vec![message])),
        }
    }
    // Only newer models want a signature and know of parts in a result, and other models of the same API may not know the
    // stand-in.
    let newer = version(&request.model).is_some() && !is_old(&request.model);
    let contents = merged.into_iter().map(|(role, messages)| match role {
        Role::User => ("user", user(&messages, newer)),
        Role::Assistant => ("model", assistant(&messages, newer)),
    });
    let full = contents.filter(|(_, parts)| !parts.is_empty());
    full.map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn user(messages: &[&Message], nested: bool) -> Vec<Value> {
    let (mut results, mut pictures, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Result(known) => {
                results.push(result(known, nested));
                if !nested && !known.images.is_empty() {
                    pictures.push(parts::text(&belonging(known, &short(known.id.as_str())), false));
                    pictures.extend(known.images.iter().map(image));
                }
            }
            Part::Text { text } if !text.is_empty() => others.push(parts::text(text, false)),
            Part::Image(picture) => others.push(image(picture)),
            Part::ImageUrl { url } => others.push(parts::text(&unseen(url), false)),
            _ => {}
        }
    }
    results.append(&mut pictures);
    results.append(&mut others);
    results
}

fn assistant(messages: &[&Message], signed: bool) -> Vec<Value> {
    let mut found = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } if !text.is_empty() => found.push(parts::text(text, false)),
            Part::Thought { text, opaque: Some(opaque) } if opaque.wire == NAME => {
                if !text.is_empty() {
                    found.push(parts::text(text, true));
                }
                parts::place(&opaque.data, &mut found);
            }
            Part::Call(call) => found.push(parts::call(&short(call.id.as_str()), &call.name, call.arguments.clone())),
            Part::Opaque(opaque) if opaque.wire == NAME => parts::place(&opaque.data, &mut found),
            _ => {}
        }
    }
    let mut calls = found.iter_mut().filter(|part| part.get("functionCall").is_some()).peekable();
    // Of calls that were made at once only the first is signed.
    if let Some(Value::Object(first)) = calls.next()
        && signed
        && !first.contains_key(SIGNATURE)
        && calls.all(|call| call.get(SIGNATURE).is_none())
    {
        first.insert(SIGNATURE.to_owned(), json!(UNSIGNED));
    }
    found
}

fn image(Image { media_type, data }: &Image) -> Value {
    json!({"inlineData": {"mimeType": media_type, "data": data}})
}

fn result(result: &CallResult, nested: bool) -> Value {
    let key = if result.ending.is_error() { "error" } else { "output" };
    let id: Cow<'_, str> = short(result.id.as_str());
    let mut inside = json!({"id": id, "name": result.name, "response": {key: result.content}});
    if let Some(inside) = inside.as_object_mut().filter(|_| nested && !result.images.is_empty()) {
        inside.insert("parts".to_owned(), result.images.iter().map(image).collect());
    }
    json!({"functionResponse": inside})
}

fn declaration(tool: &ToolSpec) -> Value {
    let mut schema = closed(&tool.parameters);
    if let Some(schema) = schema.as_object_mut() {
        schema.shift_remove("$schema");
    }
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": schema})
}

fn calling(choice: &ToolChoice) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    })
}
