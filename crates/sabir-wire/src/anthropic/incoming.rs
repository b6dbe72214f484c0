//! Anthropic Messages: a client's body to a request.
//!
//! # Supported
//! Text, base64 images, calls, results, thinking with its signature; blocks of any other type are kept as opaque state of
//! this wire. `cache_control`, `metadata` and sampling beyond the temperature are ignored.
//!
//! # Unsupported
//! Images by URL or file, documents, and server tools in `tools`: each is an error that names its place.

use sabir_call::{Image, Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec};
use serde_json::{Value, json};

use super::NAME;
use super::thinking;
use crate::field::{Field, History, call, tool_set};
use crate::wire::{Incoming, RequestError};

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut history = History::default();
    for message in body.get("messages").items()? {
        let role = match message.get("role").text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return Err(message.get("role").wrong("`user` or `assistant`")),
        };
        let parts = content(&message.get("content"), &history)?;
        history.push(role, parts);
    }
    let tools = body.get("tools").items()?.iter().map(tool).collect::<Result<_, _>>()?;
    let choice = body.get("tool_choice");
    let one = choice.get("disable_parallel_tool_use").is_true();
    let request = Request {
        model: body.get("model").text()?.to_owned(),
        system: system(&body.get("system"))?,
        messages: history.messages,
        tools: tool_set(tools)?,
        choice: self::choice(&choice)?,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: body.get("max_tokens").count()?,
        temperature: body.get("temperature").number()?,
        stop: body.get("stop_sequences").texts()?,
        thinking: thinking::read(&body)?,
        ..Request::default()
    };
    Ok(Incoming { request, streamed: body.get("stream").is_true() })
}

fn system(system: &Field<'_>) -> Result<String, RequestError> {
    if system.value.is_string() {
        return system.text().map(str::to_owned);
    }
    let texts: Result<Vec<_>, _> = system.items()?.iter().map(|block| block.get("text").text()).collect();
    Ok(texts?.join("\n\n"))
}

fn content(content: &Field<'_>, history: &History) -> Result<Vec<Part>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![Part::text(content.text()?)]);
    }
    let mut parts = Vec::new();
    for block in content.items()? {
        match block.get("type").text()? {
            "text" => parts.push(Part::text(block.get("text").text()?)),
            "image" => parts.push(Part::Image(image(&block.get("source"))?)),
            "tool_use" => {
                parts.push(call(block.get("id").text()?, block.get("name").text()?, block.get("input").object()?));
            }
            "tool_result" => parts.push(result(&block, history)?),
            "thinking" => {
                let data = json!({"type": "thinking", "signature": block.get("signature").text_or_empty()?});
                let text = block.get("thinking").text()?.to_owned();
                parts.push(Part::Thought { text, opaque: Some(Opaque { wire: NAME.to_owned(), data }) });
            }
            "document" => return Err(block.get("type").wrong("a block that a history can hold")),
            _ => parts.push(Part::Opaque(Opaque { wire: NAME.to_owned(), data: block.value.clone() })),
        }
    }
    Ok(parts)
}

fn image(source: &Field<'_>) -> Result<Image, RequestError> {
    if source.get("type").text()? != "base64" {
        return Err(source.get("type").wrong("`base64`"));
    }
    let (media_type, data) = (source.get("media_type").text()?, source.get("data").text()?);
    Ok(Image { media_type: media_type.to_owned(), data: data.to_owned() })
}

fn result(block: &Field<'_>, history: &History) -> Result<Part, RequestError> {
    let content = block.get("content");
    let (mut words, mut pictures) = (Vec::new(), Vec::new());
    if content.value.is_string() {
        words.push(content.text()?);
    } else {
        for item in content.items()? {
            match item.get("type").text()? {
                "text" => words.push(item.get("text").text()?),
                "image" => pictures.push(image(&item.get("source"))?),
                _ => return Err(item.get("type").wrong("`text` or `image`")),
            }
        }
    }
    let failed = block.get("is_error").is_true();
    Ok(history.result(block.get("tool_use_id").text()?, failed, (words.join("\n"), pictures)))
}

fn tool(tool: &Field<'_>) -> Result<ToolSpec, RequestError> {
    let kind = tool.get("type");
    if !kind.is_absent() && kind.text()? != "custom" {
        return Err(kind.wrong("a tool of the client (`custom`)"));
    }
    let schema = Value::Object(tool.get("input_schema").object()?);
    Ok(ToolSpec::new(tool.get("name").text()?, tool.get("description").text_or_empty()?, schema))
}

fn choice(choice: &Field<'_>) -> Result<ToolChoice, RequestError> {
    if choice.is_absent() {
        return Ok(ToolChoice::Auto);
    }
    Ok(match choice.get("type").text()? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(choice.get("name").text()?.to_owned()),
        _ => return Err(choice.get("type").wrong("`auto`, `any`, `none` or `tool`")),
    })
}
