//! OpenAI Chat Completions: a client's body to a request.
//!
//! # Supported
//! The roles system, developer, user, assistant and tool; text and image parts (of tools as well, though OpenAI has only
//! text there); `tool_calls`; reasoning fields. A client
//! may send a history whose arguments are not a JSON object: they are kept as one argument with an empty name, as the
//! decoder would deliver them. How much to think is read from `reasoning_effort`, or from `reasoning` as OpenRouter writes
//! it. Sampling beyond temperature and stop is ignored.
//!
//! # Unsupported
//! Images by URL, audio, files, custom tools, the old `functions`: each is an error that names its place.

use sabir_call::{Opaque, Parallel, Part, Request, Role, Thinking, ToolChoice, ToolSpec};
use serde_json::{Map, Value};

use super::NAME;
use crate::arguments::parsed;
use crate::field::{Field, History, call, function, image, split, tool_set};
use crate::thinking;
use crate::wire::{Incoming, RequestError};

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut history = History::default();
    let mut system = Vec::new();
    for message in body.get("messages").items()? {
        let content = message.get("content");
        match message.get("role").text()? {
            "system" | "developer" => system.push(words(&content)?),
            "user" => history.push(Role::User, parts(&content)?),
            "assistant" => history.push(Role::Assistant, assistant(&message)?),
            "tool" => {
                let said = split(parts(&content)?);
                let result = history.result(message.get("tool_call_id").text()?, false, said);
                history.push(Role::User, vec![result]);
            }
            _ => return Err(message.get("role").wrong("system, developer, user, assistant or tool")),
        }
    }
    if !body.get("functions").is_absent() {
        return Err(body.get("functions").wrong("nothing (use `tools`)"));
    }
    let tools = body.get("tools").items()?.iter().map(tool).collect::<Result<_, _>>()?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let limit = body.get("max_completion_tokens").count()?;
    let request = Request {
        model: body.get("model").text()?.to_owned(),
        system: system.join("\n\n"),
        messages: history.messages,
        tools: tool_set(tools)?,
        choice: choice(&body.get("tool_choice"))?,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: if limit.is_some() { limit } else { body.get("max_tokens").count()? },
        temperature: body.get("temperature").number()?,
        stop: body.get("stop").texts()?,
        thinking: self::thinking(&body)?,
        ..Request::default()
    };
    Ok(Incoming { request, streamed: body.get("stream").is_true() })
}

fn thinking(body: &Field<'_>) -> Result<Thinking, RequestError> {
    let reasoning = body.get("reasoning");
    if reasoning.get("enabled").value == &Value::Bool(false) {
        return Ok(Thinking::Off);
    }
    if let Some(tokens) = reasoning.get("max_tokens").count()? {
        return Ok(Thinking::Tokens(tokens));
    }
    match thinking::of_word(&body.get("reasoning_effort"))? {
        Thinking::Default => thinking::of_word(&reasoning.get("effort")),
        wish => Ok(wish),
    }
}

/// Content of which only the words count.
fn words(content: &Field<'_>) -> Result<String, RequestError> {
    let (words, pictures) = split(parts(content)?);
    if pictures.is_empty() { Ok(words) } else { Err(content.wrong("text only")) }
}

fn parts(content: &Field<'_>) -> Result<Vec<Part>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![Part::text(content.text()?)]);
    }
    content.items()?.iter().map(part).collect()
}

fn part(part: &Field<'_>) -> Result<Part, RequestError> {
    match part.get("type").text()? {
        "text" => Ok(Part::text(part.get("text").text()?)),
        "refusal" => Ok(Part::text(part.get("refusal").text()?)),
        "image_url" => image(&part.get("image_url").get("url")).map(Part::Image),
        _ => Err(part.get("type").wrong("`text` or `image_url`")),
    }
}

fn assistant(message: &Field<'_>) -> Result<Vec<Part>, RequestError> {
    let mut found = Vec::new();
    let thought =
        ["reasoning_content", "reasoning"].iter().map(|key| message.get(key)).find(|field| !field.is_absent());
    if let Some(thought) = thought {
        found.push(Part::Thought { text: thought.text()?.to_owned(), opaque: None });
    }
    for detail in message.get("reasoning_details").items()? {
        found.push(reasoning(detail.object()?));
    }
    let content = parts(&message.get("content"))?;
    found.extend(content.into_iter().filter(|part| !matches!(part, Part::Text { text } if text.is_empty())));
    for item in message.get("tool_calls").items()? {
        let function = item.get("function");
        let text = function.get("arguments").text_or_empty()?;
        found.push(call(item.get("id").text()?, function.get("name").text()?, parsed(text)));
    }
    Ok(found)
}

fn reasoning(mut detail: Map<String, Value>) -> Part {
    let text = detail.shift_remove("text").or_else(|| detail.shift_remove("summary"));
    let opaque = Opaque { wire: NAME.to_owned(), data: Value::Object(detail) };
    match text {
        Some(Value::String(text)) if !text.is_empty() => Part::Thought { text, opaque: Some(opaque) },
        _ => Part::Opaque(opaque),
    }
}

fn tool(tool: &Field<'_>) -> Result<ToolSpec, RequestError> {
    if tool.get("type").text()? != "function" {
        return Err(tool.get("type").wrong("`function`"));
    }
    function(&tool.get("function"))
}

fn choice(choice: &Field<'_>) -> Result<ToolChoice, RequestError> {
    if choice.value.is_object() {
        return Ok(ToolChoice::Tool(choice.get("function").get("name").text()?.to_owned()));
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.wrong("`auto`, `required`, `none` or a function")),
    })
}
