//! Encodes a request as a Converse body.
//!
//! The API requires alternating roles, results first in the message after their calls, ids of one
//! alphabet, no blank text, and a declaration of tools wherever the history holds calls. Options
//! that only some models have (thinking, one call at a time, no call at all) go into
//! `additionalModelRequestFields` in the form of the model's maker. A model refuses fields it does
//! not know, so other options are left out. Thoughts go back only with their signature.

use std::collections::{HashMap, HashSet};

use sabir_call::{
    CacheControl, Call, CallResult, Image, Message, MessagePart, OpaqueState, ParallelCalls,
    ReasoningConfig, ReasoningEffort, Request, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{CAPABILITIES, NAME};
use crate::anthropic::encode_request::closed_object_schema;
use crate::anthropic::thinking;
use crate::documents::encode_user_state;
use crate::identifier::portable_id;
use crate::json_object::json_object;
use crate::params::{self, RequestParam};
use crate::role_turns::{merge_by_role, unfetchable_image_text};
use crate::thinking::effort_for_budget;
use crate::wire::WireOptions;

/// The maker of a model, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelVendor {
    /// Claude models, which take Anthropic's own members.
    Anthropic,
    /// Amazon's Nova models.
    Nova,
    /// The open models of OpenAI.
    OpenAi,
    /// Unknown: an application inference profile hides the model.
    Other,
}

impl ModelVendor {
    /// Finds the maker by substrings of the model's name.
    fn from_model(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let table = [
            ("anthropic", Self::Anthropic),
            ("claude", Self::Anthropic),
            ("amazon.nova", Self::Nova),
            ("openai.", Self::OpenAi),
        ];
        table
            .iter()
            .find(|(word, _)| model.contains(word))
            .map_or(Self::Other, |(_, maker)| *maker)
    }
}

/// The output limit in tokens for planning the thinking budget when the request has none. The
/// model's own limit applies then.
const USUAL_LIMIT: u64 = 8192;

/// Models of Anthropic and Nova that refuse cache marks, by substrings of their names.
const UNCACHED_MODELS: [&str; 6] = [
    "claude-3-haiku",
    "claude-3-sonnet",
    "claude-3-opus",
    "claude-3-5-sonnet-20240620",
    "claude-v2",
    "claude-instant",
];

/// Encodes the body of a request.
pub(crate) fn encode_request(request: &Request, options: &WireOptions) -> Value {
    let maker = ModelVendor::from_model(&request.model);
    // Other models refuse cache points, and unknown ones may.
    let known = matches!(maker, ModelVendor::Anthropic | ModelVendor::Nova)
        && !is_model_named(&request.model, &UNCACHED_MODELS);
    let cached = (options.cached || request.options.cache == CacheControl::Marked) && known;
    let mut body = Map::new();
    if !request.system.trim().is_empty() {
        let mut system = vec![json!({"text": request.system})];
        system.extend(cached.then(cache_point));
        body.insert("system".to_owned(), Value::Array(system));
    }
    let mut messages = merge_by_role(&request.messages, encode_block, encode_result);
    complete_documents(&mut messages);
    let last = messages
        .last_mut()
        .and_then(|message| message.pointer_mut("/content")?.as_array_mut());
    // The history is the prefix of the next request, so its end is marked.
    if let (Some(last), true) = (last, cached) {
        last.push(cache_point());
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    let (mut more, conflict) = encode_thinking(request, maker);
    // Nova refuses an output limit at the highest effort.
    if let Some(limit) = request
        .max_output_tokens
        .filter(|_| conflict != ThinkingConflict::TemperatureAndLimit)
    {
        params::insert_at_path(&mut body, "inferenceConfig.maxTokens", json!(limit));
    }
    params::encode_params(request, options, &CAPABILITIES, &mut body);
    if let Some(tools) = encode_tools(request, maker, &mut more) {
        body.insert("toolConfig".to_owned(), tools);
    }
    if !more.is_empty() {
        body.insert(
            "additionalModelRequestFields".to_owned(),
            Value::Object(more),
        );
    }
    Value::Object(body)
}

/// Returns true if the model refuses a parameter for this request.
pub(crate) fn is_param_refused(request: &Request, wish: RequestParam) -> bool {
    let steers = matches!(wish, RequestParam::Temperature | RequestParam::TopP);
    steers
        && encode_thinking(request, ModelVendor::from_model(&request.model)).1
            != ThinkingConflict::Nothing
}

/// Returns true if the request asks for thoughts, and the model would refuse them.
pub(crate) fn is_thinking_refused(request: &Request) -> bool {
    match ModelVendor::from_model(&request.model) {
        ModelVendor::Anthropic | ModelVendor::Other => {
            let plan = thinking::plan_thinking(request, USUAL_LIMIT, is_thought_state);
            plan.is_impossible(request)
        }
        ModelVendor::Nova | ModelVendor::OpenAi => false,
    }
}

/// Returns true if the model's name contains one of the names.
fn is_model_named(model: &str, names: &[&str]) -> bool {
    names.iter().any(|name| model.contains(name))
}

/// Returns the mark for the end of a cacheable prefix.
fn cache_point() -> Value {
    json!({"cachePoint": {"type": "default"}})
}

/// Encodes a part as a content block. Blank text is dropped because the API refuses it.
fn encode_block(role: Role, part: &MessagePart) -> Option<Value> {
    match part {
        MessagePart::Text { text } if text.trim().is_empty() => None,
        MessagePart::Text { text } => Some(json!({"text": text})),
        MessagePart::Thought {
            text,
            opaque: Some(opaque),
        } => encode_opaque(opaque, text),
        MessagePart::Image(picture) if role == Role::User => Some(encode_image(picture)),
        MessagePart::ImageUrl { url } if role == Role::User => {
            Some(json!({"text": unfetchable_image_text(url)}))
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
    let Some(signature) = opaque
        .data
        .pointer("/reasoningContent/reasoningText/signature")
    else {
        return Some(opaque.data.clone());
    };
    Some(json!({"reasoningContent": {"reasoningText": {"text": thought, "signature": signature}}}))
}

/// Gives each document a unique name, and adds a text to messages with documents only. Otherwise the API refuses them.
fn complete_documents(messages: &mut [Value]) {
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut used: HashSet<String> = HashSet::new();
    for message in messages {
        let Some(Value::Array(content)) = message.get_mut("content") else {
            continue;
        };
        let mut last_name = None;
        for block in content.iter_mut() {
            if let Some(Value::String(name)) = block.pointer_mut("/document/name") {
                let count = counts.entry(name.clone()).or_insert(1);
                let mut own_name = name.clone();
                // A client may have used the next name as well. The count continues from the last
                // one, so many equal names do not retry the same candidates.
                while !used.insert(own_name.clone()) {
                    *count += 1;
                    own_name = format!("{name} ({count})");
                }
                name.clone_from(&own_name);
                last_name = Some(own_name);
            }
        }
        let has_text = content.iter().any(|block| block.get("text").is_some());
        if let Some(name) = last_name.filter(|_| !has_text) {
            content.push(json!({"text": name}));
        }
    }
}

/// Encodes a call.
fn encode_call(call: &Call) -> Value {
    let id = portable_id(call.id.as_str());
    json!({"toolUse": {"toolUseId": id, "name": call.name, "input": call.arguments}})
}

/// Encodes an image. The API names the format `jpeg`, never `jpg`.
fn encode_image(Image { media_type, data }: &Image) -> Value {
    let format = media_type.strip_prefix("image/").unwrap_or(media_type);
    // Some clients write the file extension as the media type.
    let format = if format == "jpg" { "jpeg" } else { format };
    json!({"image": {"format": format, "source": {"bytes": data}}})
}

/// Encodes the result of a call.
fn encode_result(result: &CallResult) -> Value {
    let mut content: Vec<Value> = match result.content.as_str() {
        "" => Vec::new(),
        text => vec![json!({"text": text})],
    };
    content.extend(result.images.iter().map(encode_image));
    let mut inside = json!({"toolUseId": portable_id(result.id.as_str()), "content": content});
    if let Some(inside) = inside.as_object_mut().filter(|_| result.ending.is_error()) {
        inside.insert("status".to_owned(), json!("error"));
    }
    json!({"toolResult": inside})
}

/// Encodes the tools and the tool choice. Converse cannot express some choices. For Anthropic's models, `more` then gets all tools and the
/// choice in Anthropic's form, because the two forms must not contradict each other.
fn encode_tools(
    request: &Request,
    maker: ModelVendor,
    more: &mut Map<String, Value>,
) -> Option<Value> {
    let calls = request.messages.iter().flat_map(Message::calls);
    let mut tools: Vec<Value> = request.tools.iter().map(encode_tool).collect();
    if tools.is_empty() {
        // The API refuses a history with calls but without tools, so the called tools are declared
        // and calls are forbidden.
        let mut names: Vec<&str> = calls.map(|call| call.name.as_str()).collect();
        // Sorted, so that the same history always gives the same body.
        names.sort_unstable();
        names.dedup();
        tools.extend(
            names
                .into_iter()
                .map(|name| encode_tool(&ToolSpec::new(name, "", json!({})))),
        );
        if tools.is_empty() {
            return None;
        }
    }
    let none = request.tools.is_empty() || request.tool_choice == ToolChoice::None;
    let one = request.parallel_calls == ParallelCalls::One && !none;
    let mut config = json!({"tools": tools});
    let choice = match &request.tool_choice {
        _ if none => ("none", None),
        ToolChoice::Required => ("any", None),
        ToolChoice::Tool(name) => ("tool", Some(name)),
        _ => ("auto", None),
    };
    // Converse has neither `none` nor a limit of one call.
    if maker == ModelVendor::Anthropic && (none || one) {
        let mut native = json!({"type": choice.0});
        if let Some(native) = native.as_object_mut() {
            native.extend(choice.1.map(|name| ("name".to_owned(), json!(name))));
            native.extend(one.then(|| ("disable_parallel_tool_use".to_owned(), json!(true))));
        }
        more.insert("tool_choice".to_owned(), native);
    } else if let ("any" | "tool", Some(config)) = (choice.0, config.as_object_mut()) {
        let inside = choice.1.map_or(json!({}), |name| json!({"name": name}));
        config.insert("toolChoice".to_owned(), json!({choice.0: inside}));
    }
    Some(config)
}

/// Encodes a tool. The API refuses an empty description.
fn encode_tool(tool: &ToolSpec) -> Value {
    let mut spec = Map::new();
    spec.insert("name".to_owned(), json!(tool.name));
    if !tool.description.is_empty() {
        spec.insert("description".to_owned(), json!(tool.description));
    }
    spec.insert(
        "inputSchema".to_owned(),
        json_object([("json", closed_object_schema(&tool.parameters))]),
    );
    json_object([("toolSpec", Value::Object(spec))])
}

/// The request options that a thinking model refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkingConflict {
    /// Nothing.
    Nothing,
    /// A temperature.
    Temperature,
    /// A temperature and an output limit.
    TemperatureAndLimit,
}

/// Encodes the reasoning setting in the form of the model's maker. For an unknown maker, Anthropic's form is used: if the model cannot
/// think, the user gets an error.
fn encode_thinking(
    request: &Request,
    maker: ModelVendor,
) -> (Map<String, Value>, ThinkingConflict) {
    let wish = request.reasoning;
    let (value, conflict) = match (maker, wish) {
        (_, ReasoningConfig::Default) => (json!({}), ThinkingConflict::Nothing),
        (ModelVendor::Nova, ReasoningConfig::Off) => (
            json!({"reasoningConfig": {"type": "disabled"}}),
            ThinkingConflict::Nothing,
        ),
        (ModelVendor::Nova, wish) => {
            // Nova's members differ from those of other makers.
            let word = effort_level(wish);
            let conflict = if word == "high" {
                ThinkingConflict::TemperatureAndLimit
            } else {
                ThinkingConflict::Nothing
            };
            (
                json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}}),
                conflict,
            )
        }
        (ModelVendor::OpenAi, wish) => (
            json!({"reasoning_effort": effort_level(wish)}),
            ThinkingConflict::Nothing,
        ),
        (ModelVendor::Anthropic | ModelVendor::Other, _) => {
            let plan = thinking::plan_thinking(request, USUAL_LIMIT, is_thought_state);
            let conflict = if plan.is_thinking() {
                ThinkingConflict::Temperature
            } else {
                ThinkingConflict::Nothing
            };
            (plan.body_members().into_iter().collect(), conflict)
        }
    };
    (value.as_object().cloned().unwrap_or_default(), conflict)
}

/// Returns true if opaque state of this wire is a thought.
fn is_thought_state(opaque: &OpaqueState) -> bool {
    opaque.wire == NAME && opaque.data.get("reasoningContent").is_some()
}

/// Returns the effort's word. These models know three words and cannot switch thinking off.
fn effort_level(wish: ReasoningConfig) -> &'static str {
    let effort = match wish {
        ReasoningConfig::Off => ReasoningEffort::Minimal,
        ReasoningConfig::Default => ReasoningEffort::Medium,
        ReasoningConfig::Effort(effort) => effort,
        ReasoningConfig::Tokens(tokens) => effort_for_budget(tokens),
    };
    match effort {
        ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
    }
}
