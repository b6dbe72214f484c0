//! Amazon Bedrock: a request to its body.
//!
//! The API insists on: alternating roles, results first in the message that follows their calls, ids of one alphabet, no
//! blank text, and a declaration of tools wherever the history holds calls. What only some models know (thinking, one
//! call at a time, no call at all) goes into `additionalModelRequestFields` in the words of the model's maker; a field
//! that a model does not know is refused, so the rest is left unsaid. Thoughts go back only with their signature.

use sabir_call::{
    Cache, Call, CallResult, Effort, Image, Message, Opaque, Parallel, Part, Request, Role, Thinking, ToolChoice,
    ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{NAME, SAID};
use crate::anthropic::request::closed;
use crate::anthropic::thinking;
use crate::identifier::portable;
use crate::thinking::effort;
use crate::turns::{by_role, unseen};
use crate::wire::Form;
use crate::wishes::{self, Wish};

/// Who made a model, as far as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Anthropic,
    Nova,
    OpenAi,
    /// Nothing is known: an application's inference profile hides the model.
    Other,
}

impl Maker {
    fn of(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let table = [
            ("anthropic", Self::Anthropic),
            ("claude", Self::Anthropic),
            ("amazon.nova", Self::Nova),
            ("openai.", Self::OpenAi),
        ];
        table.iter().find(|(word, _)| model.contains(word)).map_or(Self::Other, |(_, maker)| *maker)
    }
}

/// The limit that thinking is planned with where a request names none: then the model's own holds.
const USUAL_LIMIT: u64 = 8192;

/// Models of makers that cache, which refuse the marks for it.
const UNCACHED: [&str; 6] =
    ["claude-3-haiku", "claude-3-sonnet", "claude-3-opus", "claude-3-5-sonnet-20240620", "claude-v2", "claude-instant"];

pub(crate) fn encode(request: &Request, form: &Form) -> Value {
    let maker = Maker::of(&request.model);
    let known = matches!(maker, Maker::Anthropic | Maker::Nova) && !named(&request.model, &UNCACHED);
    let cached = (form.cached || request.wishes.cache == Cache::Marked) && known;
    let mut body = Map::new();
    if !request.system.trim().is_empty() {
        let mut system = vec![json!({"text": request.system})];
        system.extend(cached.then(cache_point));
        body.insert("system".to_owned(), Value::Array(system));
    }
    let mut messages = by_role(&request.messages, block, result);
    let last = messages.last_mut().and_then(|message| message.pointer_mut("/content")?.as_array_mut());
    if let (Some(last), true) = (last, cached) {
        last.push(cache_point());
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    let (mut more, cool) = thinking(request, maker);
    if let Some(limit) = request.max_output.filter(|_| cool != Cool::Unlimited) {
        wishes::put(&mut body, "inferenceConfig.maxTokens", json!(limit));
    }
    wishes::write(request, form, &SAID, &mut body);
    if let Some(tools) = tools(request, maker, &mut more) {
        body.insert("toolConfig".to_owned(), tools);
    }
    if !more.is_empty() {
        body.insert("additionalModelRequestFields".to_owned(), Value::Object(more));
    }
    Value::Object(body)
}

/// Whether the model takes no such wish now.
pub(crate) fn is_mute(request: &Request, wish: Wish) -> bool {
    let steers = matches!(wish, Wish::Temperature | Wish::TopP);
    steers && thinking(request, Maker::of(&request.model)).1 != Cool::No
}

fn named(model: &str, names: &[&str]) -> bool {
    names.iter().any(|name| model.contains(name))
}

/// Marks the end of a prefix that may be cached.
fn cache_point() -> Value {
    json!({"cachePoint": {"type": "default"}})
}

fn block(role: Role, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(json!({"text": text})),
        Part::Thought { text, opaque: Some(opaque) } => kept(opaque, text),
        Part::Image(picture) if role == Role::User => Some(image(picture)),
        Part::ImageUrl { url } if role == Role::User => Some(json!({"text": unseen(url)})),
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
    let Some(signature) = opaque.data.pointer("/reasoningContent/reasoningText/signature") else {
        return Some(opaque.data.clone());
    };
    Some(json!({"reasoningContent": {"reasoningText": {"text": thought, "signature": signature}}}))
}

fn tool_use(call: &Call) -> Value {
    let id = portable(call.id.as_str());
    json!({"toolUse": {"toolUseId": id, "name": call.name, "input": call.arguments}})
}

fn image(Image { media_type, data }: &Image) -> Value {
    let format = media_type.strip_prefix("image/").unwrap_or(media_type);
    let format = if format == "jpg" { "jpeg" } else { format };
    json!({"image": {"format": format, "source": {"bytes": data}}})
}

fn result(result: &CallResult) -> Value {
    let mut content: Vec<Value> = match result.content.as_str() {
        "" => Vec::new(),
        text => vec![json!({"text": text})],
    };
    content.extend(result.images.iter().map(image));
    let mut inside = json!({"toolUseId": portable(result.id.as_str()), "content": content});
    if let Some(inside) = inside.as_object_mut().filter(|_| result.ending.is_error()) {
        inside.insert("status".to_owned(), json!("error"));
    }
    json!({"toolResult": inside})
}

/// The tools and the choice among them. A model of Anthropic is told in its own words what Converse has none for, and then
/// the whole choice is told so, for the two may not contradict each other.
fn tools(request: &Request, maker: Maker, more: &mut Map<String, Value>) -> Option<Value> {
    let calls = request.messages.iter().flat_map(Message::calls);
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    if tools.is_empty() {
        // A history with calls is refused without tools: those that it names are declared, and none is to be called.
        let mut names: Vec<&str> = calls.map(|call| call.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        tools.extend(names.into_iter().map(|name| tool(&ToolSpec::new(name, "", json!({})))));
        if tools.is_empty() {
            return None;
        }
    }
    let none = request.tools.is_empty() || request.choice == ToolChoice::None;
    let one = request.parallel == Parallel::One && !none;
    let mut config = json!({"tools": tools});
    let choice = match &request.choice {
        _ if none => ("none", None),
        ToolChoice::Required => ("any", None),
        ToolChoice::Tool(name) => ("tool", Some(name)),
        _ => ("auto", None),
    };
    if maker == Maker::Anthropic && (none || one) {
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

fn tool(tool: &ToolSpec) -> Value {
    let mut spec = Map::new();
    spec.insert("name".to_owned(), json!(tool.name));
    if !tool.description.is_empty() {
        spec.insert("description".to_owned(), json!(tool.description));
    }
    spec.insert("inputSchema".to_owned(), json!({"json": closed(&tool.parameters)}));
    json!({"toolSpec": spec})
}

/// What a model that thinks refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cool {
    /// Nothing.
    No,
    /// A temperature.
    Yes,
    /// A temperature and a limit.
    Unlimited,
}

/// What the model's maker calls the wish. Where the maker is not known, Anthropic's words are taken: whoever asks a model
/// to think wants to hear that it cannot.
fn thinking(request: &Request, maker: Maker) -> (Map<String, Value>, Cool) {
    let wish = request.thinking;
    let (value, cool) = match (maker, wish) {
        (_, Thinking::Default) => (json!({}), Cool::No),
        (Maker::Nova, Thinking::Off) => (json!({"reasoningConfig": {"type": "disabled"}}), Cool::No),
        (Maker::Nova, wish) => {
            let word = word(wish);
            let cool = if word == "high" { Cool::Unlimited } else { Cool::No };
            (json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}}), cool)
        }
        (Maker::OpenAi, wish) => (json!({"reasoning_effort": word(wish)}), Cool::No),
        (Maker::Anthropic | Maker::Other, _) => {
            let plan = thinking::plan(request, USUAL_LIMIT, signs);
            let cool = if plan.thinks() { Cool::Yes } else { Cool::No };
            (plan.members().into_iter().collect(), cool)
        }
    };
    (value.as_object().cloned().unwrap_or_default(), cool)
}

/// Whether state of this wire is a thought.
fn signs(opaque: &Opaque) -> bool {
    opaque.wire == NAME && opaque.data.get("reasoningContent").is_some()
}

/// These models know three words, and none for no thinking at all.
fn word(wish: Thinking) -> &'static str {
    let effort = match wish {
        Thinking::Off => Effort::Minimal,
        Thinking::Default => Effort::Medium,
        Thinking::Effort(effort) => effort,
        Thinking::Tokens(tokens) => effort(tokens),
    };
    match effort {
        Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}
