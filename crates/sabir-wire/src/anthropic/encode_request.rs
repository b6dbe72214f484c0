//! Encodes a request as an Anthropic Messages body.
//!
//! The API requires an output limit, alternating roles, results first in the message after their
//! calls, ids of one alphabet, and no blank text. Thoughts go back only with their signature;
//! unsigned ones are left out. A model that thinks accepts no temperature, and with a temperature
//! the API accepts no `top_p`.

use sabir_call::{
    CacheControl, Call, CallResult, Image, MessagePart, OpaqueState, ParallelCalls, Request,
    ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::thinking;
use super::{CAPABILITIES, NAME};
use crate::documents::encode_user_state;
use crate::identifier::portable_id;
use crate::json_object::json_object;
use crate::native_tools;
use crate::params::{self, RequestParam};
use crate::role_turns::merge_by_role;
use crate::wire::WireOptions;

/// The output limit in tokens for a request without one; every current model accepts it.
const DEFAULT_LIMIT: u64 = 8192;

/// Encodes the body of a request.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    let plan = thinking_plan(request);
    let cached = options.cached || request.options.cache == CacheControl::Marked;
    body.insert("max_tokens".to_owned(), json!(plan.limit));
    if !request.system.trim().is_empty() {
        let mut block = json!({"type": "text", "text": request.system});
        // The provider's prefix begins with the tools, so this mark covers them as well.
        mark_cacheable(cached, &mut block);
        body.insert("system".to_owned(), Value::Array(vec![block]));
    }
    // The API refuses two messages of one role in a row.
    let mut messages = merge_by_role(&request.messages, encode_block, encode_result);
    if let Some(last) =
        // The second mark is at the end of the history, which is the prefix of the next request.
        messages
            .last_mut()
            .and_then(|message| message.pointer_mut("/content")?.as_array_mut()?.last_mut())
    {
        mark_cacheable(cached, last);
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    let tools = encode_tools(request);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
        if let Some(choice) = encode_tool_choice(&request.tool_choice, request.parallel_calls) {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    body.extend(plan.body_members());
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    if let ResponseFormat::Schema { schema, .. } = &request.options.format {
        // The path is shared with the effort, so the member is merged instead of replaced.
        params::insert_at_path(
            &mut body,
            "output_config.format",
            json!({"type": "json_schema", "schema": schema}),
        );
    }
    if options.streamed {
        body.insert("stream".to_owned(), json!(true));
    }
    Value::Object(body)
}

/// Plans the thinking options, which also determine the output limit.
fn thinking_plan(request: &Request) -> thinking::ThinkingPlan {
    thinking::plan_thinking(request, DEFAULT_LIMIT, thinking::is_thought_state)
}

/// Returns true if the request asks for thoughts, and the API would refuse them.
pub(crate) fn is_thinking_refused(request: &Request) -> bool {
    thinking_plan(request).is_impossible(request)
}

/// Returns true if the API refuses a parameter for this request: a thinking model accepts no
/// sampling parameters, and `temperature` excludes `top_p`.
pub(crate) fn is_param_refused(request: &Request, _: &WireOptions, param: RequestParam) -> bool {
    match param {
        RequestParam::Temperature | RequestParam::TopK => thinking_plan(request).is_thinking(),
        RequestParam::TopP => {
            thinking_plan(request).is_thinking() || request.sampling.temperature.is_some()
        }
        // Other tiers are OpenAI's words.
        RequestParam::Tier => request
            .options
            .tier
            .as_ref()
            .is_some_and(|tier| tier != "auto" && tier != "standard_only"),
        _ => false,
    }
}

/// Encodes the offered tools and the provider's own, which replace an offered tool with the same
/// name.
fn encode_tools(request: &Request) -> Vec<Value> {
    let own = |name: &str| {
        native_tools::tools_of_wire(request, NAME)
            .any(|tool| native_tools::tool_name(tool) == Some(name))
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

/// Returns true if the provider must hold the tool's arguments to their schema.
pub(crate) fn is_strict(request: &Request, tool: &ToolSpec) -> bool {
    request.options.strict.contains(&tool.name)
}

/// Marks a block as the end of a cacheable prefix. The API refuses marks on thinking blocks.
fn mark_cacheable(cached: bool, block: &mut Value) {
    // This covers `redacted_thinking` as well.
    let thinking = block
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("thinking"));
    if let Some(block) = block.as_object_mut().filter(|_| cached && !thinking) {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
}

/// Encodes a part as a content block. Blank text is dropped because the API refuses it.
fn encode_block(role: Role, part: &MessagePart) -> Option<Value> {
    match part {
        MessagePart::Text { text } if text.trim().is_empty() => None,
        MessagePart::Text { text } => Some(json!({"type": "text", "text": text})),
        MessagePart::Thought {
            text,
            opaque: Some(opaque),
        } => encode_opaque(opaque, text),
        MessagePart::Image(picture) if role == Role::User => Some(encode_image(picture)),
        MessagePart::ImageUrl { url } if role == Role::User => {
            Some(json!({"type": "image", "source": {"type": "url", "url": url}}))
        }
        MessagePart::Call(call) => Some(encode_call(call)),
        MessagePart::Opaque(opaque) if role == Role::User => encode_user_state(opaque, NAME),
        MessagePart::Opaque(opaque) => encode_opaque(opaque, ""),
        _ => None,
    }
}

/// Encodes opaque state of this wire, with the text of its thought restored.
fn encode_opaque(opaque: &OpaqueState, thought: &str) -> Option<Value> {
    if opaque.wire != NAME {
        return None;
    }
    // A signed thought must keep its member order: type, text, then the state.
    let Some(state) = opaque
        .data
        .as_object()
        .filter(|state| state.get("type").is_some_and(|kind| kind == "thinking"))
    else {
        return Some(opaque.data.clone());
    };
    let mut block = Map::new();
    block.insert("type".to_owned(), json!("thinking"));
    block.insert("thinking".to_owned(), json!(thought));
    block.extend(
        state
            .iter()
            .filter(|(key, _)| *key != "thinking")
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Some(Value::Object(block))
}

/// Encodes a call.
fn encode_call(call: &Call) -> Value {
    json!({"type": "tool_use", "id": portable_id(call.id.as_str()), "name": call.name, "input": call.arguments})
}

/// Encodes an image as base64.
fn encode_image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
}

/// Encodes the result of a call. Without images the content stays a plain string, which all servers
/// with this wire accept.
fn encode_result(result: &CallResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": portable_id(result.id.as_str())});
    if let Some(block) = block.as_object_mut() {
        if !result.images.is_empty() {
            // The API refuses blank text blocks.
            let words = Some(&result.content).filter(|words| !words.trim().is_empty());
            let words = words.map(|words| json!({"type": "text", "text": words}));
            block.insert(
                "content".to_owned(),
                words
                    .into_iter()
                    .chain(result.images.iter().map(encode_image))
                    .collect(),
            );
        } else if !result.content.is_empty() {
            block.insert("content".to_owned(), json!(result.content));
        }
        if result.ending.is_error() {
            block.insert("is_error".to_owned(), json!(true));
        }
    }
    block
}

/// Encodes an offered tool.
fn encode_tool(tool: &ToolSpec, strict: bool) -> Value {
    let mut body = json_object([
        ("name", json!(tool.name)),
        ("description", json!(tool.description)),
        ("input_schema", closed_object_schema(&tool.parameters)),
    ]);
    if let Some(body) = body.as_object_mut().filter(|_| strict) {
        body.insert("strict".to_owned(), json!(true));
    }
    body
}

/// Returns an object schema with an explicit type that allows no other properties unless it says
/// so.
pub(crate) fn closed_object_schema(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    schema
        .entry("additionalProperties")
        .or_insert(Value::Bool(false));
    Value::Object(schema)
}

/// Encodes the tool choice; `None` for the default.
fn encode_tool_choice(choice: &ToolChoice, parallel: ParallelCalls) -> Option<Value> {
    let mut value = match choice {
        ToolChoice::Auto if parallel == ParallelCalls::Many => return None,
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        // A limit of one call would contradict `none`.
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if let Some(object) = value
        .as_object_mut()
        .filter(|_| parallel == ParallelCalls::One)
    {
        object.insert("disable_parallel_tool_use".to_owned(), json!(true));
    }
    Some(value)
}
