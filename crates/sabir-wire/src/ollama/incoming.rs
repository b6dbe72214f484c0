//! Ollama: a client's body to a request.
//!
//! # Supported
//! The roles system, user, assistant and tool; pictures, whose kind shows in their first bytes; thoughts; calls and results
//! with ids or without, which are paired by id, name and order. Formats, `keep_alive` and options beyond the limit, the
//! temperature and the stop sequences are ignored.
//!
//! # Unsupported
//! Tools that are no functions: an error that names its place.

use sabir_call::{CallResult, Effort, Ending, Image, Part, Request, Role, Thinking, ToolSpec};
use serde_json::{Map, Value};

use crate::field::{Field, History, call, function, tool_set};
use crate::pairing::Pairing;
use crate::wire::{Incoming, RequestError};

/// How base64 of a picture begins, and its media type.
const PICTURES: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut history = History::default();
    let mut pairing = Pairing::default();
    let mut system = Vec::new();
    for message in body.get("messages").items()? {
        match message.get("role").text()? {
            "system" => system.push(message.get("content").text_or_empty()?),
            "user" => {
                pairing.user_speaks();
                history.push(Role::User, user(&message)?);
            }
            "assistant" => history.push(Role::Assistant, assistant(&message, &mut pairing)?),
            "tool" => {
                pairing.user_speaks();
                history.push(Role::User, vec![result(&message, &mut pairing)?]);
            }
            _ => return Err(message.get("role").wrong("system, user, assistant or tool")),
        }
    }
    let tools = body.get("tools").items()?.iter().map(tool).collect::<Result<_, _>>()?;
    let options = body.get("options");
    let limit = options.get("num_predict");
    // A negative limit is none.
    let unlimited = limit.number()?.is_some_and(|limit| limit < 0.0);
    let request = Request {
        model: body.get("model").text()?.to_owned(),
        system: system.join("\n\n"),
        messages: history.messages,
        tools: tool_set(tools)?,
        max_output: if unlimited { None } else { limit.count()? },
        temperature: options.get("temperature").number()?,
        stop: options.get("stop").texts()?,
        thinking: thinking(&body.get("think"))?,
        ..Request::default()
    };
    let streamed = body.get("stream").value != &Value::Bool(false);
    Ok(Incoming { request, streamed })
}

fn user(message: &Field<'_>) -> Result<Vec<Part>, RequestError> {
    let mut parts: Vec<_> = pictures(message)?.into_iter().map(Part::Image).collect();
    let words = message.get("content").text_or_empty()?;
    if !words.is_empty() {
        parts.push(Part::text(words));
    }
    Ok(parts)
}

fn pictures(message: &Field<'_>) -> Result<Vec<Image>, RequestError> {
    let picture = |picture: &Field<'_>| {
        let data = picture.text()?;
        let kind = PICTURES.iter().find(|(start, _)| data.starts_with(start));
        let media_type = kind.map_or("image/png", |(_, kind)| *kind).to_owned();
        Ok(Image { media_type, data: data.to_owned() })
    };
    message.get("images").items()?.iter().map(picture).collect()
}

fn assistant(message: &Field<'_>, pairing: &mut Pairing) -> Result<Vec<Part>, RequestError> {
    let mut parts = Vec::new();
    let (thoughts, words) = (message.get("thinking").text_or_empty()?, message.get("content").text_or_empty()?);
    if !thoughts.is_empty() {
        parts.push(Part::Thought { text: thoughts.to_owned(), opaque: None });
    }
    if !words.is_empty() {
        parts.push(Part::text(words));
    }
    for item in message.get("tool_calls").items()? {
        let function = item.get("function");
        let name = function.get("name").text()?;
        let id = pairing.call(item.get("id").text_or_empty()?, name);
        parts.push(call(id.as_str(), name, arguments(&function.get("arguments"))?));
    }
    Ok(parts)
}

/// An object, or its text as other APIs have it.
fn arguments(field: &Field<'_>) -> Result<Map<String, Value>, RequestError> {
    match field.value.as_str().map(serde_json::from_str) {
        Some(Ok(Value::Object(arguments))) => Ok(arguments),
        _ => field.object(),
    }
}

fn result(message: &Field<'_>, pairing: &mut Pairing) -> Result<Part, RequestError> {
    let native = message.get("tool_call_id").text_or_empty()?;
    let (id, name) = pairing.result(native, message.get("tool_name").text_or_empty()?);
    let content = message.get("content").text_or_empty()?.to_owned();
    Ok(Part::Result(CallResult { id, name, ending: Ending::Done, content, images: pictures(message)? }))
}

fn tool(tool: &Field<'_>) -> Result<ToolSpec, RequestError> {
    let kind = tool.get("type");
    if !kind.is_absent() && kind.text()? != "function" {
        return Err(kind.wrong("`function`"));
    }
    function(&tool.get("function"))
}

fn thinking(think: &Field<'_>) -> Result<Thinking, RequestError> {
    Ok(match think.value {
        Value::Null => Thinking::Default,
        Value::Bool(false) => Thinking::Off,
        Value::Bool(true) => Thinking::Effort(Effort::Medium),
        _ => Thinking::Effort(match think.value.as_str() {
            Some("low") => Effort::Low,
            Some("medium") => Effort::Medium,
            Some("high" | "max") => Effort::High,
            _ => return Err(think.wrong("a boolean, `low`, `medium` or `high`")),
        }),
    })
}
