//! Anthropic Messages: a request to its body.
//!
//! The API insists on: a limit for the output, alternating roles, results first in the message that follows their
//! calls, ids of one alphabet, and no blank text. Thoughts go back only with their signature; plain ones are left out.
//! A model that thinks takes no temperature, and one that is given a temperature no `top_p`.

use sabir_call::{Cache, Call, CallResult, Format, Image, Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec};
use serde_json::{Map, Value, json};

use super::thinking;
use super::{NAME, SAID};
use crate::identifier::portable;
use crate::native;
use crate::turns::by_role;
use crate::wire::Form;
use crate::wishes::{self, Wish};

/// The output limit of a request that names none: every current model allows it.
const DEFAULT_LIMIT: u64 = 8192;

pub(crate) fn encode(request: &Request, form: &Form) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    let plan = plan(request);
    let cached = form.cached || request.wishes.cache == Cache::Marked;
    body.insert("max_tokens".to_owned(), json!(plan.limit));
    if !request.system.trim().is_empty() {
        let mut block = json!({"type": "text", "text": request.system});
        mark(cached, &mut block);
        body.insert("system".to_owned(), Value::Array(vec![block]));
    }
    let mut messages = by_role(&request.messages, block, result);
    if let Some(last) =
        messages.last_mut().and_then(|message| message.pointer_mut("/content")?.as_array_mut()?.last_mut())
    {
        mark(cached, last);
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    let tools = tools(request);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
        if let Some(choice) = choice(&request.choice, request.parallel) {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    body.extend(plan.members());
    wishes::write(request, form, &SAID, &mut body);
    if let Format::Schema { schema, .. } = &request.wishes.format {
        wishes::put(&mut body, "output_config.format", json!({"type": "json_schema", "schema": schema}));
    }
    if form.streamed {
        body.insert("stream".to_owned(), json!(true));
    }
    Value::Object(body)
}

fn plan(request: &Request) -> thinking::Plan {
    thinking::plan(request, DEFAULT_LIMIT, thinking::signs)
}

/// Whether the API refuses a wish of this request: a model that thinks is not to be steered, and one that is steered in one way
/// not in another.
pub(crate) fn is_mute(request: &Request, _: &Form, wish: Wish) -> bool {
    match wish {
        Wish::Temperature | Wish::TopK => plan(request).thinks(),
        Wish::TopP => plan(request).thinks() || request.sampling.temperature.is_some(),
        Wish::Tier => request.wishes.tier.as_ref().is_some_and(|tier| tier != "auto" && tier != "standard_only"),
        _ => false,
    }
}

/// The tools on offer and those of the provider's own, which replace one of their name.
fn tools(request: &Request) -> Vec<Value> {
    let own = |name: &str| native::of(request, NAME).any(|tool| native::name(tool) == Some(name));
    let mut tools: Vec<_> =
        request.tools.iter().filter(|spec| !own(&spec.name)).map(|spec| tool(spec, is_strict(request, spec))).collect();
    tools.extend(native::of(request, NAME).map(|tool| tool.data.clone()));
    tools
}

/// Whether the provider is to hold the tool's arguments to their schema.
pub(crate) fn is_strict(request: &Request, tool: &ToolSpec) -> bool {
    request.wishes.strict.contains(&tool.name)
}

/// Marks a block as the end of a prefix that may be cached. Thinking blocks cannot be marked.
fn mark(cached: bool, block: &mut Value) {
    let thinking = block.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("thinking"));
    if let Some(block) = block.as_object_mut().filter(|_| cached && !thinking) {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
}

fn block(role: Role, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(json!({"type": "text", "text": text})),
        Part::Thought { text, opaque: Some(opaque) } => kept(opaque, text),
        Part::Image(picture) if role == Role::User => Some(image(picture)),
        Part::ImageUrl { url } if role == Role::User => {
            Some(json!({"type": "image", "source": {"type": "url", "url": url}}))
        }
        Part::Call(call) => Some(tool_use(call)),
        Part::Opaque(opaque) => kept(opaque, ""),
        _ => None,
    }
}

/// State that this wire understands, with the thought that belongs to it in its place.
fn kept(opaque: &Opaque, thought: &str) -> Option<Value> {
    if opaque.wire != NAME {
        return None;
    }
    let Some(state) = opaque.data.as_object().filter(|state| state.get("type").is_some_and(|kind| kind == "thinking"))
    else {
        return Some(opaque.data.clone());
    };
    let mut block = Map::new();
    block.insert("type".to_owned(), json!("thinking"));
    block.insert("thinking".to_owned(), json!(thought));
    block.extend(state.iter().filter(|(key, _)| *key != "thinking").map(|(key, value)| (key.clone(), value.clone())));
    Some(Value::Object(block))
}

fn tool_use(call: &Call) -> Value {
    json!({"type": "tool_use", "id": portable(call.id.as_str()), "name": call.name, "input": call.arguments})
}

fn image(Image { media_type, data }: &Image) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
}

/// Words alone stay a string, which servers that speak this wire all know.
fn result(result: &CallResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": portable(result.id.as_str())});
    if let Some(block) = block.as_object_mut() {
        if !result.images.is_empty() {
            let words = Some(&result.content).filter(|words| !words.trim().is_empty());
            let words = words.map(|words| json!({"type": "text", "text": words}));
            block.insert("content".to_owned(), words.into_iter().chain(result.images.iter().map(image)).collect());
        } else if !result.content.is_empty() {
            block.insert("content".to_owned(), json!(result.content));
        }
        if result.ending.is_error() {
            block.insert("is_error".to_owned(), json!(true));
        }
    }
    block
}

fn tool(tool: &ToolSpec, strict: bool) -> Value {
    let mut body =
        json!({"name": tool.name, "description": tool.description, "input_schema": closed(&tool.parameters)});
    if let Some(body) = body.as_object_mut().filter(|_| strict) {
        body.insert("strict".to_owned(), json!(true));
    }
    body
}

/// An object schema that says so, and that allows no argument beyond its own unless it says otherwise.
pub(crate) fn closed(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    schema.entry("additionalProperties").or_insert(Value::Bool(false));
    Value::Object(schema)
}

fn choice(choice: &ToolChoice, parallel: Parallel) -> Option<Value> {
    let mut value = match choice {
        ToolChoice::Auto if parallel == Parallel::Many => return None,
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if let Some(object) = value.as_object_mut().filter(|_| parallel == Parallel::One) {
        object.insert("disable_parallel_tool_use".to_owned(), json!(true));
    }
    Some(value)
}
