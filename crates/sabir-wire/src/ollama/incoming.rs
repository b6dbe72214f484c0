//! Ollama: a client's body to a request.
//!
//! # Supported
//! The roles system, user, assistant and tool; pictures, whose kind shows in their first bytes; thoughts; calls and results
//! with ids or without, which are paired by id, name and order; formats.
//!
//! # Unsupported
//! Tools that are no functions, and probabilities of tokens: each is an error that names its place.

use sabir_call::{CallResult, Effort, Ending, Format, Image, Part, Request, Role, Thinking, ToolSpec, Wishes};
use serde_json::{Map, Value};

use super::SAID;
use crate::client::{Incoming, Note, RequestError};
use crate::fate::{Fate, Members, survey};
use crate::field::{Field, History, call, function, tool_set};
use crate::pairing::Pairing;
use crate::wishes;

/// What becomes of the members of a body.
pub(crate) const MEMBERS: &Members = &[
    ("model", Fate::Read),
    ("messages", Fate::Read),
    ("tools", Fate::Read),
    ("stream", Fate::Read),
    ("think", Fate::Read),
    ("format", Fate::Read),
    ("options", Fate::Read),
    ("keep_alive", Fate::Harmless),
    ("truncate", Fate::Harmless),
    ("shift", Fate::Harmless),
    ("logprobs", Fate::Refused("probabilities of tokens are not known here")),
    ("top_logprobs", Fate::Refused("probabilities of tokens are not known here")),
];

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
    let mut notes = Vec::new();
    survey(&body, MEMBERS, &mut notes)?;
    let mut wishes = Wishes { format: format(&body.get("format"))?, ..Wishes::default() };
    let mut tools = Vec::new();
    for described in body.get("tools").items()? {
        tools.push(tool(&described, &mut wishes)?);
    }
    let options = body.get("options");
    let limit = options.get("num_predict");
    // A negative limit is none.
    let unlimited = limit.number()?.is_some_and(|limit| limit < 0.0);
    let mut request = Request {
        model: body.get("model").text()?.to_owned(),
        system: system.join("\n\n"),
        messages: history.messages.into(),
        tools: tool_set(tools)?,
        max_output: if unlimited { None } else { limit.count()? },
        thinking: thinking(&body.get("think"))?,
        wishes,
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    notes.extend(unread(&options)?);
    Ok(Incoming { notes, ..Incoming::new(request, body.get("stream").value != &Value::Bool(false)) })
}

/// Options that only Ollama itself has a use for.
fn unread(options: &Field<'_>) -> Result<Vec<Note>, RequestError> {
    let known = |key: &str| {
        key == "num_predict" || SAID.places.iter().any(|(_, place)| place.strip_prefix("options.") == Some(key))
    };
    let options = options.object()?;
    let unread = options.keys().filter(|key| !known(key));
    Ok(unread.map(|key| Note::new(format!("options.{key}"), "left out: it is about Ollama's own models")).collect())
}

fn format(format: &Field<'_>) -> Result<Format, RequestError> {
    Ok(match format.value {
        Value::Null => Format::Text,
        Value::Object(schema) => Format::Schema { name: String::new(), schema: schema.clone().into(), strict: true },
        value if value == "" => Format::Text,
        value if value == "json" => Format::Json,
        _ => return Err(format.wrong("`json` or a JSON Schema")),
    })
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

fn tool(tool: &Field<'_>, wishes: &mut Wishes) -> Result<ToolSpec, RequestError> {
    let kind = tool.get("type");
    if !kind.is_absent() && kind.text()? != "function" {
        return Err(kind.wrong("`function`"));
    }
    function(&tool.get("function"), wishes)
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
