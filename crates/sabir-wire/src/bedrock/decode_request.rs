//! Decodes a client's Converse body into a request.
//!
//! # Supported
//! Text, images as bytes, calls, results, reasoning with its signature; redacted reasoning and
//! blocks of any other kind are kept as opaque state of this wire. Of
//! `additionalModelRequestFields`: thinking and tool choice. Cache points are reduced to one
//! setting. Guardrails and `performanceConfig` are ignored.
//!
//! # Unsupported
//! Images in S3, documents, videos, and the provider's own tools in `toolConfig`: each is an error
//! that names its path.

use sabir_call::{
    CacheControl, Image, MessagePart, OpaqueState, ParallelCalls, ReasoningConfig, Request, Role,
    ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use super::{CAPABILITIES, NAME};
use crate::anthropic::thinking;
use crate::client_request::{DecodedRequest, RequestError};
use crate::field::{HistoryBuilder, JsonField, ResultContent, build_call, build_tool_set};
use crate::params;
use crate::thinking::decode_effort;

/// Decodes a body into a request.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    let body = JsonField::root(body);
    let mut history = HistoryBuilder::default();
    for message in body.get("messages").list_items()? {
        let role = match message.get("role").required_text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return Err(message.get("role").mismatch_error("`user` or `assistant`")),
        };
        let parts = decode_content(&message.get("content"), &history)?;
        history.push_parts(role, parts);
    }
    let tools = body.get("toolConfig");
    let inference = body.get("inferenceConfig");
    let more = body.get("additionalModelRequestFields");
    let specs: Result<Vec<_>, _> = tools
        .get("tools")
        .list_items()?
        .iter()
        .map(decode_tool)
        .collect();
    let one = more
        .get("tool_choice")
        .get("disable_parallel_tool_use")
        .is_true();
    let mut request = Request {
        system: decode_system(&body.get("system"))?,
        messages: history.messages.into(),
        tools: build_tool_set(specs?.into_iter().flatten().collect())?,
        tool_choice: decode_tool_choice(&tools.get("toolChoice"), &more.get("tool_choice"))?,
        parallel_calls: if one {
            ParallelCalls::One
        } else {
            ParallelCalls::Many
        },
        max_output_tokens: inference.get("maxTokens").optional_count()?,
        reasoning: decode_thinking(&more)?,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    if has_cache_point(&body)? {
        request.options.cache = CacheControl::Marked;
    }
    Ok(DecodedRequest::new(request, false))
}

/// Returns true if the body has a cache point anywhere.
fn has_cache_point(body: &JsonField<'_>) -> Result<bool, RequestError> {
    let mut lists = vec![body.get("system"), body.get("toolConfig").get("tools")];
    lists.extend(
        body.get("messages")
            .list_items()?
            .iter()
            .map(|message| message.get("content")),
    );
    for list in lists {
        if list
            .list_items()?
            .iter()
            .any(|block| !block.get("cachePoint").is_absent())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Decodes the system prompt.
fn decode_system(system: &JsonField<'_>) -> Result<String, RequestError> {
    let blocks = system.list_items()?;
    let texts = blocks
        .iter()
        .map(|block| block.get("text"))
        .filter(|text| !text.is_absent());
    let texts: Result<Vec<_>, _> = texts.map(|text| text.required_text()).collect();
    Ok(texts?.join("\n\n"))
}

/// Decodes the content of a message.
fn decode_content(
    content: &JsonField<'_>,
    history: &HistoryBuilder,
) -> Result<Vec<MessagePart>, RequestError> {
    let mut parts = Vec::new();
    for block in content.list_items()? {
        let (inside, kind) = sole_member(&block)?;
        match kind {
            "text" => parts.push(MessagePart::text(inside.required_text()?)),
            "image" => parts.push(MessagePart::Image(decode_image(&inside)?)),
            // Calls of server tools have no client result, so they stay opaque.
            "toolUse" if inside.get("type").value != "server_tool_use" => {
                let arguments = inside.get("input").object_or_empty()?;
                parts.push(build_call(
                    inside.get("toolUseId").required_text()?,
                    inside.get("name").required_text()?,
                    arguments,
                ));
            }
            "toolResult" if inside.get("type").is_absent() => {
                parts.extend(decode_result(&inside, history)?)
            }
            "reasoningContent" if !inside.get("reasoningText").is_absent() => {
                parts.push(decode_thought(&inside.get("reasoningText"))?);
            }
            // Counted by `has_cache_point`; the position is not kept.
            "cachePoint" => {}
            "document" | "video" => {
                return Err(block.mismatch_error("a block that a history can hold"));
            }
            _ => parts.push(MessagePart::Opaque(OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: block.value.clone(),
            })),
        }
    }
    Ok(parts)
}

/// Returns the only member of a block and its name, which is the kind of the block.
fn sole_member<'a>(block: &JsonField<'a>) -> Result<(JsonField<'a>, &'a str), RequestError> {
    let kind = block
        .value
        .as_object()
        .and_then(|block| block.keys().next());
    let kind = kind.ok_or_else(|| block.mismatch_error("an object with one member"))?;
    Ok((block.get(kind), kind))
}

/// Decodes a thought with its signature.
fn decode_thought(reasoning: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    let signature = reasoning.get("signature").text_or_empty()?;
    let data = json!({"reasoningContent": {"reasoningText": {"signature": signature}}});
    let opaque = (!signature.is_empty()).then(|| OpaqueState {
        wire: NAME.to_owned(),
        origin: None,
        data,
    });
    Ok(MessagePart::Thought {
        text: reasoning.get("text").required_text()?.to_owned(),
        opaque,
    })
}

/// Decodes an image.
fn decode_image(image: &JsonField<'_>) -> Result<Image, RequestError> {
    let data = image.get("source").get("bytes").required_text()?.to_owned();
    Ok(Image {
        media_type: format!("image/{}", image.get("format").required_text()?),
        data,
    })
}

/// Decodes the result of a call.
fn decode_result(
    result: &JsonField<'_>,
    history: &HistoryBuilder,
) -> Result<Vec<MessagePart>, RequestError> {
    let mut words = Vec::new();
    let mut images = Vec::new();
    for item in result.get("content").list_items()? {
        let (inside, kind) = sole_member(&item)?;
        match kind {
            "text" => words.push(inside.required_text()?.to_owned()),
            "json" => words.push(inside.value.to_string()),
            "image" => images.push(decode_image(&inside)?),
            _ => return Err(item.mismatch_error("`text`, `json` or `image`")),
        }
    }
    let failed = result.get("status").value == "error";
    Ok(history.build_result(
        result.get("toolUseId").required_text()?,
        failed,
        ResultContent {
            text: words.join("\n"),
            images,
            files: Vec::new(),
        },
    ))
}

/// Decodes a tool. Returns `None` for a cache point in the list of tools.
fn decode_tool(tool: &JsonField<'_>) -> Result<Option<ToolSpec>, RequestError> {
    let (spec, kind) = sole_member(tool)?;
    match kind {
        "toolSpec" => {
            let schema = Value::Object(spec.get("inputSchema").get("json").object_or_empty()?);
            let description = spec.get("description").text_or_empty()?;
            Ok(Some(ToolSpec::new(
                spec.get("name").required_text()?,
                description,
                schema,
            )))
        }
        "cachePoint" => Ok(None),
        _ => Err(tool.mismatch_error("a tool of the client (`toolSpec`)")),
    }
}

/// Decodes the tool choice. Anthropic's own form in the additional fields comes first, because it
/// can say more.
fn decode_tool_choice(
    choice: &JsonField<'_>,
    native: &JsonField<'_>,
) -> Result<ToolChoice, RequestError> {
    let (inside, kind) = match (native.is_absent(), choice.is_absent()) {
        (false, _) => (native.clone(), native.get("type").required_text()?),
        (true, false) => sole_member(choice)?,
        (true, true) => return Ok(ToolChoice::Auto),
    };
    Ok(match kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(inside.get("name").required_text()?.to_owned()),
        _ => return Err(inside.mismatch_error("`auto`, `any`, `none` or `tool`")),
    })
}

/// Decodes the reasoning setting in the form of any model maker.
fn decode_thinking(more: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    let nova = more.get("reasoningConfig");
    if nova.get("type").value == "disabled" {
        return Ok(ReasoningConfig::Off);
    }
    // Nova's member, then the one of OpenAI's models.
    for word in [nova.get("maxReasoningEffort"), more.get("reasoning_effort")] {
        if !word.is_absent() {
            return decode_effort(&word);
        }
    }
    thinking::decode_thinking(more)
}
