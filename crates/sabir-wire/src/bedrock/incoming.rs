//! Amazon Bedrock: a client's body to a request.
//!
//! # Supported
//! Text, pictures as bytes, calls, results, reasoning with its signature; redacted reasoning and blocks of any other kind
//! are kept as opaque state of this wire. Of `additionalModelRequestFields`: thinking and the choice of tools. That
//! there are cache points is kept, not where. Guardrails and `performanceConfig` are ignored.
//!
//! # Unsupported
//! Pictures in S3, documents, videos, and tools of the provider in `toolConfig`: each is an error that names its place.

use sabir_call::{Cache, Image, Opaque, Parallel, Part, Request, Role, Thinking, ToolChoice, ToolSpec};
use serde_json::{Value, json};

use super::{NAME, SAID};
use crate::anthropic::thinking;
use crate::client::{Incoming, RequestError};
use crate::field::{Field, History, call, tool_set};
use crate::thinking::of_word;
use crate::wishes;

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
    let (tools, inference) = (body.get("toolConfig"), body.get("inferenceConfig"));
    let more = body.get("additionalModelRequestFields");
    let specs: Result<Vec<_>, _> = tools.get("tools").items()?.iter().map(tool).collect();
    let one = more.get("tool_choice").get("disable_parallel_tool_use").is_true();
    let mut request = Request {
        system: system(&body.get("system"))?,
        messages: history.messages.into(),
        tools: tool_set(specs?.into_iter().flatten().collect())?,
        choice: choice(&tools.get("toolChoice"), &more.get("tool_choice"))?,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: inference.get("maxTokens").count()?,
        thinking: thinking(&more)?,
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    if is_marked(&body)? {
        request.wishes.cache = Cache::Marked;
    }
    Ok(Incoming::new(request, false))
}

/// Whether there is a cache point.
fn is_marked(body: &Field<'_>) -> Result<bool, RequestError> {
    let mut lists = vec![body.get("system"), body.get("toolConfig").get("tools")];
    lists.extend(body.get("messages").items()?.iter().map(|message| message.get("content")));
    for list in lists {
        if list.items()?.iter().any(|block| !block.get("cachePoint").is_absent()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn system(system: &Field<'_>) -> Result<String, RequestError> {
    let blocks = system.items()?;
    let texts = blocks.iter().map(|block| block.get("text")).filter(|text| !text.is_absent());
    let texts: Result<Vec<_>, _> = texts.map(|text| text.text()).collect();
    Ok(texts?.join("\n\n"))
}

fn content(content: &Field<'_>, history: &History) -> Result<Vec<Part>, RequestError> {
    let mut parts = Vec::new();
    for block in content.items()? {
        let (inside, kind) = member(&block)?;
        match kind {
            "text" => parts.push(Part::text(inside.text()?)),
            "image" => parts.push(Part::Image(image(&inside)?)),
            "toolUse" if inside.get("type").value != "server_tool_use" => {
                let arguments = inside.get("input").object()?;
                parts.push(call(inside.get("toolUseId").text()?, inside.get("name").text()?, arguments));
            }
            "toolResult" if inside.get("type").is_absent() => parts.push(result(&inside, history)?),
            "reasoningContent" if !inside.get("reasoningText").is_absent() => {
                parts.push(thought(&inside.get("reasoningText"))?);
            }
            "cachePoint" => {}
            "document" | "video" => return Err(block.wrong("a block that a history can hold")),
            _ => parts.push(Part::Opaque(Opaque { wire: NAME.to_owned(), data: block.value.clone() })),
        }
    }
    Ok(parts)
}

/// The one member of a block, which says what kind of block it is.
fn member<'a>(block: &Field<'a>) -> Result<(Field<'a>, &'a str), RequestError> {
    let kind = block.value.as_object().and_then(|block| block.keys().next());
    let kind = kind.ok_or_else(|| block.wrong("an object with one member"))?;
    Ok((block.get(kind), kind))
}

fn thought(reasoning: &Field<'_>) -> Result<Part, RequestError> {
    let signature = reasoning.get("signature").text_or_empty()?;
    let data = json!({"reasoningContent": {"reasoningText": {"signature": signature}}});
    let opaque = (!signature.is_empty()).then(|| Opaque { wire: NAME.to_owned(), data });
    Ok(Part::Thought { text: reasoning.get("text").text()?.to_owned(), opaque })
}

fn image(image: &Field<'_>) -> Result<Image, RequestError> {
    let data = image.get("source").get("bytes").text()?.to_owned();
    Ok(Image { media_type: format!("image/{}", image.get("format").text()?), data })
}

fn result(result: &Field<'_>, history: &History) -> Result<Part, RequestError> {
    let (mut words, mut pictures) = (Vec::new(), Vec::new());
    for item in result.get("content").items()? {
        let (inside, kind) = member(&item)?;
        match kind {
            "text" => words.push(inside.text()?.to_owned()),
            "json" => words.push(inside.value.to_string()),
            "image" => pictures.push(image(&inside)?),
            _ => return Err(item.wrong("`text`, `json` or `image`")),
        }
    }
    let failed = result.get("status").value == "error";
    Ok(history.result(result.get("toolUseId").text()?, failed, (words.join("\n"), pictures)))
}

/// `None`: a cache point among the tools.
fn tool(tool: &Field<'_>) -> Result<Option<ToolSpec>, RequestError> {
    let (spec, kind) = member(tool)?;
    match kind {
        "toolSpec" => {
            let schema = Value::Object(spec.get("inputSchema").get("json").object()?);
            let description = spec.get("description").text_or_empty()?;
            Ok(Some(ToolSpec::new(spec.get("name").text()?, description, schema)))
        }
        "cachePoint" => Ok(None),
        _ => Err(tool.wrong("a tool of the client (`toolSpec`)")),
    }
}

/// The choice, in the words of Anthropic where they are given.
fn choice(choice: &Field<'_>, native: &Field<'_>) -> Result<ToolChoice, RequestError> {
    let (inside, kind) = match (native.is_absent(), choice.is_absent()) {
        (false, _) => (native.clone(), native.get("type").text()?),
        (true, false) => member(choice)?,
        (true, true) => return Ok(ToolChoice::Auto),
    };
    Ok(match kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(inside.get("name").text()?.to_owned()),
        _ => return Err(inside.wrong("`auto`, `any`, `none` or `tool`")),
    })
}

/// How much to think, in the words of any maker.
fn thinking(more: &Field<'_>) -> Result<Thinking, RequestError> {
    let nova = more.get("reasoningConfig");
    if nova.get("type").value == "disabled" {
        return Ok(Thinking::Off);
    }
    for word in [nova.get("maxReasoningEffort"), more.get("reasoning_effort")] {
        if !word.is_absent() {
            return of_word(&word);
        }
    }
    thinking::read(more)
}
