//! Encodes a request as a Gemini body.
//!
//! The API requires alternating roles, one result for each call, first in the content after the
//! calls, and for newer models the signature of each call in its part. Thoughts go back only if
//! they are signed. Gemini 3 and later accept images of a result as parts within it. For earlier
//! models the images follow the results, after a line that names their call.
//!
//! Tools are described with `parametersJsonSchema`, which accepts JSON Schema unchanged. The older
//! `parameters` accepts a subset of OpenAPI and refuses the whole request for a `$schema`, an
//! `additionalProperties` or a `const` anywhere in it.

use std::borrow::Cow;

use sabir_call::{
    CallResult, Image, Message, MessagePart, ReasoningConfig, ReasoningEffort, Request,
    ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::parts::{self, SIGNATURE};
use super::{CAPABILITIES, JSON_MEDIA_TYPE, NAME, encode_effort_level};
use crate::anthropic::encode_request::closed_object_schema;
use crate::documents::encode_user_state;
use crate::identifier::visible_ascii_id;
use crate::json_object::json_object;
use crate::native_tools;
use crate::params;
use crate::role_turns::{image_caption, unfetchable_image_text};
use crate::wire::WireOptions;

/// The value that the API accepts in place of a signature for a call that its own models did not
/// write.
pub(super) const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

/// Encodes the body of a request.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let mut body = Map::new();
    if !request.system.trim().is_empty() {
        body.insert(
            "systemInstruction".to_owned(),
            json!({"parts": [parts::text_part(&request.system, false)]}),
        );
    }
    body.insert(
        "contents".to_owned(),
        Value::Array(encode_contents(request)),
    );
    let own_tools = native_tools::tools_of_wire(request, NAME).map(|tool| tool.data.clone());
    let mut tools: Vec<Value> = own_tools.collect();
    if !request.tools.is_empty() {
        let declarations: Vec<_> = request.tools.iter().map(encode_declaration).collect();
        tools.insert(0, json!({"functionDeclarations": declarations}));
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if !request.tools.is_empty()
        && let Some(calling) = encode_tool_choice(&request.tool_choice)
    {
        body.insert(
            "toolConfig".to_owned(),
            json!({"functionCallingConfig": calling}),
        );
    }
    let generation = encode_generation_config(request);
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(generation));
    }
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    Value::Object(body)
}

/// Encodes the generation options.
fn encode_generation_config(request: &Request) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(limit) = request.max_output_tokens {
        config.insert("maxOutputTokens".to_owned(), json!(limit));
    }
    if request.options.format != ResponseFormat::Text {
        config.insert("responseMimeType".to_owned(), json!(JSON_MEDIA_TYPE));
    }
    if let ResponseFormat::Schema { schema, .. } = &request.options.format {
        config.insert("responseJsonSchema".to_owned(), schema.clone());
    }
    if let Some(thinking) = encode_thinking(&request.model, request.reasoning) {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    config
}

/// Encodes the reasoning setting. Gemini 3 and later accept effort words; earlier models only
/// budgets. The budgets are Google's own for these words, which differ from those of other wires.
fn encode_thinking(model: &str, thinking: ReasoningConfig) -> Option<Value> {
    let budget = match thinking {
        ReasoningConfig::Default => return None,
        // A budget of 0 switches thinking off where the model allows it.
        ReasoningConfig::Off => return Some(json!({"thinkingBudget": 0})),
        ReasoningConfig::Effort(effort) if !is_before_gemini_3(model) => {
            return Some(
                json!({"includeThoughts": true, "thinkingLevel": encode_effort_level(effort)}),
            );
        }
        ReasoningConfig::Effort(ReasoningEffort::Minimal) => 512,
        ReasoningConfig::Effort(ReasoningEffort::Low) => 1024,
        ReasoningConfig::Effort(ReasoningEffort::Medium) => 8192,
        ReasoningConfig::Effort(ReasoningEffort::High) => 24576,
        ReasoningConfig::Tokens(tokens) => tokens,
    };
    Some(json!({"includeThoughts": true, "thinkingBudget": budget}))
}

/// Returns true for Gemini models before version 3.
fn is_before_gemini_3(model: &str) -> bool {
    gemini_version(model)
        .is_some_and(|version| version.starts_with("1.") || version.starts_with("2."))
}

/// Returns the part of a Gemini model's name that starts with its version; `None` for other models.
fn gemini_version(model: &str) -> Option<&str> {
    model.rsplit('/').next()?.strip_prefix("gemini-")
}

/// Encodes the history. Adjacent messages of one role become one; contents without parts are
/// dropped.
fn encode_contents(request: &Request) -> Vec<Value> {
    let mut merged: Vec<(Role, Vec<&Message>)> = Vec::new();
    for message in &request.messages {
        match merged.last_mut() {
            Some((role, messages)) if *role == message.role => messages.push(message),
            _ => merged.push((message.role, vec![message])),
        }
    }
    // Only newer models require a signature and accept parts in a result. Other models behind the
    // same API may not accept the placeholder signature.
    let newer = gemini_version(&request.model).is_some() && !is_before_gemini_3(&request.model);
    let contents = merged.into_iter().map(|(role, messages)| match role {
        Role::User => ("user", encode_user_parts(&messages, newer)),
        Role::Assistant => ("model", encode_model_parts(&messages, newer)),
    });
    let full = contents.filter(|(_, parts)| !parts.is_empty());
    full.map(|(role, parts)| json_object([("role", json!(role)), ("parts", Value::Array(parts))]))
        .collect()
}

/// Encodes the parts of user messages: results, then their images, then everything else.
fn encode_user_parts(messages: &[&Message], nested: bool) -> Vec<Value> {
    let mut results = Vec::new();
    let mut images = Vec::new();
    let mut others = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            MessagePart::Result(known) => {
                results.push(encode_result(known, nested));
                if !nested && !known.images.is_empty() {
                    images.push(parts::text_part(
                        &image_caption(known, &visible_ascii_id(known.id.as_str())),
                        false,
                    ));
                    images.extend(known.images.iter().map(encode_image));
                }
            }
            MessagePart::Text { text } if !text.is_empty() => {
                others.push(parts::text_part(text, false))
            }
            MessagePart::Image(picture) => others.push(encode_image(picture)),
            MessagePart::ImageUrl { url } => {
                others.push(parts::text_part(&unfetchable_image_text(url), false))
            }
            MessagePart::Opaque(state) => others.extend(encode_user_state(state, NAME)),
            _ => {}
        }
    }
    // The API requires the results first.
    results.append(&mut images);
    results.append(&mut others);
    results
}

/// Encodes the parts of assistant messages.
fn encode_model_parts(messages: &[&Message], signed: bool) -> Vec<Value> {
    let mut found = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            MessagePart::Text { text } if !text.is_empty() => {
                found.push(parts::text_part(text, false))
            }
            MessagePart::Thought {
                text,
                opaque: Some(opaque),
            } if opaque.wire == NAME => {
                if !text.is_empty() {
                    found.push(parts::text_part(text, true));
                }
                parts::insert_opaque(&opaque.data, &mut found);
            }
            MessagePart::Call(call) => found.push(parts::call_part(
                &visible_ascii_id(call.id.as_str()),
                &call.name,
                call.arguments.clone(),
            )),
            MessagePart::Opaque(opaque) if opaque.wire == NAME => {
                parts::insert_opaque(&opaque.data, &mut found)
            }
            _ => {}
        }
    }
    let mut calls = found
        .iter_mut()
        .filter(|part| part.get("functionCall").is_some())
        .peekable();
    // Of parallel calls only the first is signed.
    if let Some(Value::Object(first)) = calls.next()
        && signed
        && !first.contains_key(SIGNATURE)
        && calls.all(|call| call.get(SIGNATURE).is_none())
    {
        first.insert(SIGNATURE.to_owned(), json!(PLACEHOLDER_SIGNATURE));
    }
    found
}

/// Encodes an image.
fn encode_image(Image { media_type, data }: &Image) -> Value {
    json!({"inlineData": {"mimeType": media_type, "data": data}})
}

/// Encodes the result of a call.
fn encode_result(result: &CallResult, nested: bool) -> Value {
    // The API documents these two members; the model recognizes a failure by the name.
    let key = if result.ending.is_error() {
        "error"
    } else {
        "output"
    };
    let id: Cow<'_, str> = visible_ascii_id(result.id.as_str());
    let mut inside = json!({"id": id, "name": result.name, "response": {key: result.content}});
    if let Some(inside) = inside
        .as_object_mut()
        .filter(|_| nested && !result.images.is_empty())
    {
        inside.insert(
            "parts".to_owned(),
            result.images.iter().map(encode_image).collect(),
        );
    }
    json!({"functionResponse": inside})
}

/// Encodes a tool.
fn encode_declaration(tool: &ToolSpec) -> Value {
    let mut schema = closed_object_schema(&tool.parameters);
    if let Some(schema) = schema.as_object_mut() {
        // The dialect of the schema says nothing to the model.
        schema.shift_remove("$schema");
    }
    json_object([
        ("name", json!(tool.name)),
        ("description", json!(tool.description)),
        ("parametersJsonSchema", schema),
    ])
}

/// Encodes the tool choice; `None` for the default.
fn encode_tool_choice(choice: &ToolChoice) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    })
}
