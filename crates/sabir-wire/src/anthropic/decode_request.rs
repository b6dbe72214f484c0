//! Decodes a client's Anthropic Messages body into a request.
//!
//! # Supported
//! Text, images as base64 or by address, calls, results, thinking with its signature. Blocks of any
//! other type are kept as opaque state of this wire: documents that are not text, results of server
//! tools, redacted thinking. The provider's own tools are kept unchanged. Cache marks are reduced
//! to one setting: the wire that sends the request marks its own places.
//!
//! # Unsupported
//! Images and documents by file, which only the provider has; images by address and non-text
//! documents within results: each is an error that names its path.

use sabir_call::{
    CacheControl, Image, MessagePart, OpaqueState, ParallelCalls, Request, RequestOptions,
    ResponseFormat, Role, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use super::thinking;
use super::{CAPABILITIES, NAME};
use crate::client_request::{DecodedRequest, LossNote, RequestError, ResponsePreferences};
use crate::documents::decode_text_document;
use crate::field::{HistoryBuilder, JsonField, ResultContent, build_call, build_tool_set};
use crate::field_disposition::{FieldDisposition, MemberDispositions, check_members};
use crate::native_tools::{self, NativeToolKind};
use crate::params;
use crate::read_tracker::ReadTracker;

/// The treatment of each member of a body.
pub(crate) const MEMBERS: &MemberDispositions = &[
    ("model", FieldDisposition::Read),
    ("messages", FieldDisposition::Read),
    ("system", FieldDisposition::Read),
    ("tools", FieldDisposition::Read),
    ("tool_choice", FieldDisposition::Read),
    ("max_tokens", FieldDisposition::Read),
    ("temperature", FieldDisposition::Read),
    ("top_p", FieldDisposition::Read),
    ("top_k", FieldDisposition::Read),
    ("stop_sequences", FieldDisposition::Read),
    ("stream", FieldDisposition::Read),
    ("thinking", FieldDisposition::Read),
    ("output_config", FieldDisposition::Read),
    ("output_format", FieldDisposition::Read),
    ("metadata", FieldDisposition::Read),
    ("service_tier", FieldDisposition::Read),
    ("cache_control", FieldDisposition::Read),
    ("anthropic_version", FieldDisposition::Harmless),
    (
        "anthropic_beta",
        FieldDisposition::LeftOut("it only names versions of the provider's own features"),
    ),
    (
        "betas",
        FieldDisposition::LeftOut("it only names versions of the provider's own features"),
    ),
    (
        "context_management",
        FieldDisposition::LeftOut("the provider's own edits of the history; it is sent unchanged"),
    ),
    (
        "inference_geo",
        FieldDisposition::LeftOut("where a provider computes is its configuration's affair"),
    ),
    (
        "speed",
        FieldDisposition::LeftOut("no other provider has it"),
    ),
    (
        "mcp_servers",
        FieldDisposition::LeftOut(
            "servers that the provider connects to; their tools are not there",
        ),
    ),
    (
        "container",
        FieldDisposition::RefusedElsewhere("nothing is kept between requests: send files as text"),
    ),
];

/// Decodes a body into a request.
///
/// # Errors
/// The first member that is refused, that has the wrong type, or that a request cannot hold, with
/// its path in the body.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    let tracker = ReadTracker::default();
    let body = JsonField::tracked(body, &tracker);
    let mut history = HistoryBuilder::default();
    let mut instructions = vec![decode_system(&body.get("system"))?];
    for message in body.get("messages").list_items()? {
        let role = match message.get("role").required_text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            // Claude Code sends system messages in the middle of a history. Other wires have only
            // the system prompt, so the text is added to it.
            "system" => {
                let text = decode_system(&message.get("content"))?;
                history.note_instruction(&text);
                instructions.push(text);
                continue;
            }
            _ => {
                return Err(message
                    .get("role")
                    .mismatch_error("`user`, `assistant` or `system`"));
            }
        };
        // Results are decoded with the history so far, which knows the names of their calls.
        let parts = decode_content(&message.get("content"), &history)?;
        history.push_parts(role, parts);
    }
    let mut notes = Vec::new();
    check_members(&body, MEMBERS, &mut notes)?;
    let choice = body.get("tool_choice");
    // The wire has this flag inside the tool choice.
    let one = choice.get("disable_parallel_tool_use").is_true();
    let mut options = RequestOptions {
        format: decode_format(&body)?,
        ..RequestOptions::default()
    };
    let marks = cache_marks(&body)?;
    if !marks.is_empty() {
        options.cache = CacheControl::Marked;
    }
    // The common form has no lifetime for marks.
    if marks.iter().any(|mark| mark.get("ttl").value == "1h") {
        notes.push(LossNote::new(
            "cache_control.ttl",
            "left out: marked parts are cached for the usual time, not for an hour",
        ));
    }
    let blocks = body.get("system").value.as_array().map_or(0, Vec::len);
    if blocks > 1 {
        let what =
            format!("its {blocks} blocks are joined by blank lines, and marked at their end alone");
        notes.push(LossNote::new("system", what));
    }
    let mut request = Request {
        model: body.get("model").required_text()?.to_owned(),
        system: join_texts(instructions.clone()),
        messages: history.messages.into(),
        tools: build_tool_set(decode_tools(&body.get("tools"), &mut options, &mut notes)?)?,
        tool_choice: self::decode_tool_choice(&choice)?,
        parallel_calls: if one {
            ParallelCalls::One
        } else {
            ParallelCalls::Many
        },
        max_output_tokens: body.get("max_tokens").optional_count()?,
        reasoning: thinking::decode_thinking(&body)?,
        options,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    let preferences = ResponsePreferences {
        only_stop_sequence: single_text(&request.sampling.stop),
        ..ResponsePreferences::default()
    };
    instructions.truncate(instructions.len() - history.instructions.len());
    notes.extend(tracker.unread_members(body.value));
    DecodedRequest {
        preferences,
        notes,
        instructions: history.instructions,
        leading_system: join_texts(instructions),
        ..DecodedRequest::new(request, body.get("stream").is_true())
    }
    .validate_tool_choice()
}

/// Joins the texts that are not empty with blank lines.
fn join_texts(mut texts: Vec<String>) -> String {
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}

/// Returns the only text of a list with one entry.
fn single_text(texts: &[String]) -> Option<String> {
    match texts {
        [text] => Some(text.clone()),
        _ => None,
    }
}

/// Decodes the response format.
fn decode_format(body: &JsonField<'_>) -> Result<ResponseFormat, RequestError> {
    let format = body.get("output_config").get("format");
    // The beta API had the format at this path.
    let format = if format.is_absent() {
        body.get("output_format")
    } else {
        format
    };
    if format.is_absent() {
        return Ok(ResponseFormat::Text);
    }
    if format.get("type").required_text()? != "json_schema" {
        return Err(format.get("type").mismatch_error("`json_schema`"));
    }
    Ok(ResponseFormat::Schema {
        name: String::new(),
        schema: format.get("schema").object_or_empty()?.into(),
        // Structured output of this API always follows the schema.
        strict: true,
    })
}

/// Collects the cache marks from everywhere in the body.
fn cache_marks<'f>(body: &JsonField<'f>) -> Result<Vec<JsonField<'f>>, RequestError> {
    let mut lists = vec![body.get("system"), body.get("tools")];
    lists.extend(
        body.get("messages")
            .list_items()?
            .iter()
            .map(|message| message.get("content")),
    );
    let mut marks = vec![body.get("cache_control")];
    for list in lists.iter().filter(|list| list.value.is_array()) {
        marks.extend(
            list.list_items()?
                .iter()
                .map(|block| block.get("cache_control")),
        );
    }
    marks.retain(|mark| !mark.is_absent());
    Ok(marks)
}

/// Decodes a system prompt given as text or blocks.
fn decode_system(system: &JsonField<'_>) -> Result<String, RequestError> {
    if system.value.is_string() {
        return system.required_text().map(str::to_owned);
    }
    let texts: Result<Vec<_>, _> = system
        .list_items()?
        .iter()
        .map(|block| block.get("text").required_text())
        .collect();
    Ok(texts?.join("\n\n"))
}

/// Decodes the content of a message.
fn decode_content(
    content: &JsonField<'_>,
    history: &HistoryBuilder,
) -> Result<Vec<MessagePart>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![MessagePart::text(content.required_text()?)]);
    }
    let mut parts = Vec::new();
    for block in content.list_items()? {
        match block.get("type").required_text()? {
            "text" => parts.push(MessagePart::text(block.get("text").required_text()?)),
            "image" => parts.push(decode_image_source(&block.get("source"))?),
            "tool_use" => {
                parts.push(build_call(
                    block.get("id").required_text()?,
                    block.get("name").required_text()?,
                    block.get("input").object_or_empty()?,
                ));
            }
            "tool_result" => parts.extend(decode_result(&block, history)?),
            "thinking" => {
                let signature = block.get("signature").text_or_empty()?;
                // A thought of another provider has no signature. Anthropic's API would refuse a
                // thought block without one, so no state is kept.
                let data = json!({"type": "thinking", "signature": signature});
                let opaque = (!signature.is_empty()).then(|| OpaqueState {
                    wire: NAME.to_owned(),
                    origin: None,
                    data,
                });
                parts.push(MessagePart::Thought {
                    text: block.get("thinking").required_text()?.to_owned(),
                    opaque,
                });
            }
            "document" => parts.push(decode_document(&block)?),
            "container_upload" => {
                return Err(block
                    .get("type")
                    .mismatch_error("a block that holds its content"));
            }
            _ => parts.push(MessagePart::Opaque(OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: block.whole_value().clone(),
            })),
        }
    }
    Ok(parts)
}

/// Decodes an image from the user, as data or by its address.
fn decode_image_source(source: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    match source.get("type").required_text()? {
        "url" => Ok(MessagePart::ImageUrl {
            url: source.get("url").required_text()?.to_owned(),
        }),
        _ => decode_image(source).map(MessagePart::Image),
    }
}

/// Decodes a document: to text if it is text, else to opaque state for this wire only.
fn decode_document(block: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    let source = block.get("source");
    let media_type = source.get("media_type").text_or_empty()?;
    let title = block.get("title").text_or_empty()?;
    let in_base64 = source.get("data").text_or_empty()?;
    let kind = source.get("type").required_text()?;
    if kind == "base64"
        && let Some(text) = decode_text_document(media_type, in_base64, title)
    {
        return Ok(MessagePart::text(text));
    }
    match kind {
        "text" => Ok(MessagePart::text(text_with_title(
            block,
            source.get("data").required_text()?,
        )?)),
        "file" => Err(source.get("type").mismatch_error(
            "`text`, `base64` or `url`: files that lie with a provider cannot be read here",
        )),
        _ => Ok(MessagePart::Opaque(OpaqueState {
            wire: NAME.to_owned(),
            origin: None,
            data: block.whole_value().clone(),
        })),
    }
}

/// Returns the text of a document or search result after its title.
fn text_with_title(block: &JsonField<'_>, words: &str) -> Result<String, RequestError> {
    let title = block.get("title").text_or_empty()?;
    Ok(if title.is_empty() {
        words.to_owned()
    } else {
        format!("{title}\n\n{words}")
    })
}

/// Decodes an image given as base64.
fn decode_image(source: &JsonField<'_>) -> Result<Image, RequestError> {
    if source.get("type").required_text()? != "base64" {
        return Err(source.get("type").mismatch_error("`base64`"));
    }
    let media_type = source.get("media_type").required_text()?;
    let data = source.get("data").required_text()?;
    Ok(Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

/// Decodes the result of a call.
///
/// Images stay images, other files follow the result, and the name of the tool is looked up in the
/// history, since the wire gives only the call's id.
fn decode_result(
    block: &JsonField<'_>,
    history: &HistoryBuilder,
) -> Result<Vec<MessagePart>, RequestError> {
    let content = block.get("content");
    let mut words = Vec::new();
    let mut images = Vec::new();
    let mut files = Vec::new();
    if content.value.is_string() {
        words.push(content.required_text()?.to_owned());
    } else {
        for item in content.list_items()? {
            match item.get("type").required_text()? {
                "text" => words.push(item.get("text").required_text()?.to_owned()),
                "image" => match decode_image_source(&item.get("source"))? {
                    MessagePart::Image(image) => images.push(image),
                    address => files.push(address),
                },
                "document" => match decode_document(&item)? {
                    MessagePart::Text { text } => words.push(text),
                    document => files.push(document),
                },
                // Search results have a title and text blocks, which become one text.
                "search_result" => {
                    let found = item.get("content").list_items()?;
                    let found: Result<Vec<_>, _> = found
                        .iter()
                        .map(|part| part.get("text").required_text())
                        .collect();
                    words.push(text_with_title(&item, &found?.join("\n"))?);
                }
                "tool_reference" => words.push(format!(
                    "[tool: {}]",
                    item.get("tool_name").required_text()?
                )),
                _ => {
                    return Err(item
                        .get("type")
                        .mismatch_error("`text`, `image`, `document` or `search_result`"));
                }
            }
        }
    }
    let failed = block.get("is_error").is_true();
    Ok(history.build_result(
        block.get("tool_use_id").required_text()?,
        failed,
        ResultContent {
            text: words.join("\n"),
            images,
            files,
        },
    ))
}

/// Decodes the client's tools. The provider's own tools are kept in `options.native`; those that the
/// client runs are also returned as ordinary tools, so that their calls are known.
fn decode_tools(
    list: &JsonField<'_>,
    options: &mut RequestOptions,
    notes: &mut Vec<LossNote>,
) -> Result<Vec<ToolSpec>, RequestError> {
    let mut specs = Vec::new();
    for tool in list.list_items()? {
        let kind = tool.get("type");
        if !kind.is_absent() && kind.required_text()? != "custom" {
            let own = OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: tool.whole_value().clone(),
            };
            if native_tools::tool_kind(&own) == NativeToolKind::Client {
                // Only the provider's models know its arguments, so any are accepted.
                specs.push(ToolSpec::new(
                    tool.get("name").required_text()?,
                    "",
                    json!({"additionalProperties": true}),
                ));
            }
            options.native.push(own);
            continue;
        }
        let name = tool.get("name").required_text()?;
        let schema = Value::Object(tool.get("input_schema").object_or_empty()?);
        if tool.get("strict").is_true() {
            options.strict.push(name.to_owned());
        }
        // These control how the provider's own models find and call the tool.
        for key in ["defer_loading", "allowed_callers"] {
            let said = tool.get(key);
            if !said.is_absent() && said.value != &Value::Bool(false) {
                notes.push(LossNote::new(
                    said.path,
                    "left out: the tool is offered as any other",
                ));
            }
        }
        let examples: Result<Vec<_>, _> = tool
            .get("input_examples")
            .list_items()?
            .iter()
            .map(JsonField::object_or_empty)
            .collect();
        let spec = ToolSpec::new(name, tool.get("description").text_or_empty()?, schema);
        specs.push(ToolSpec {
            examples: examples?,
            ..spec
        });
    }
    Ok(specs)
}

/// Decodes the tool choice.
fn decode_tool_choice(choice: &JsonField<'_>) -> Result<ToolChoice, RequestError> {
    if choice.is_absent() {
        return Ok(ToolChoice::Auto);
    }
    Ok(match choice.get("type").required_text()? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(choice.get("name").required_text()?.to_owned()),
        _ => {
            return Err(choice
                .get("type")
                .mismatch_error("`auto`, `any`, `none` or `tool`"));
        }
    })
}
