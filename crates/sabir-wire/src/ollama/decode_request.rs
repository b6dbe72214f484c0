//! Decodes a client's Ollama body into a request.
//!
//! # Supported
//! The roles system, user, assistant and tool; images, recognized by their first bytes; thoughts;
//! calls and results with ids or without, paired by id, name and order; response formats.
//!
//! # Unsupported
//! Tools other than functions, and token probabilities: each is an error that names its path.

use sabir_call::{
    CallResult, Image, MessagePart, ReasoningConfig, ReasoningEffort, Request, RequestOptions,
    ResponseFormat, Role, ToolResultStatus, ToolSpec,
};
use serde_json::{Map, Value};

use super::CAPABILITIES;
use crate::call_pairing::CallPairing;
use crate::client_request::{DecodedRequest, LossNote, RequestError};
use crate::field::{HistoryBuilder, JsonField, build_call, build_tool_set, decode_function_tool};
use crate::field_disposition::{FieldDisposition, MemberDispositions, check_members};
use crate::params;
use crate::read_tracker::ReadTracker;
use crate::surrogates::parse_lossy;

/// The treatment of each member of a body.
pub(crate) const MEMBERS: &MemberDispositions = &[
    ("model", FieldDisposition::Read),
    ("messages", FieldDisposition::Read),
    ("tools", FieldDisposition::Read),
    ("stream", FieldDisposition::Read),
    ("think", FieldDisposition::Read),
    ("format", FieldDisposition::Read),
    ("options", FieldDisposition::Read),
    (
        "keep_alive",
        FieldDisposition::LeftOut("another provider does not load models on demand"),
    ),
    (
        "truncate",
        FieldDisposition::LeftOut("a history that is too long is an error"),
    ),
    (
        "shift",
        FieldDisposition::LeftOut("a history that is too long is an error"),
    ),
    (
        "logprobs",
        FieldDisposition::Refused("probabilities of tokens are not known here"),
    ),
    (
        "top_logprobs",
        FieldDisposition::Refused("probabilities of tokens are not known here"),
    ),
];

/// The start of a base64 image, and its media type.
const IMAGE_PREFIXES: [(&str, &str); 4] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
];

/// Decodes a body into a request.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    let tracker = ReadTracker::default();
    let body = JsonField::tracked(body, &tracker);
    let mut history = HistoryBuilder::default();
    let mut pairing = CallPairing::default();
    let mut system = Vec::new();
    for message in body.get("messages").list_items()? {
        match message.get("role").required_text()? {
            "system" => {
                let text = message.get("content").text_or_empty()?;
                history.note_instruction(text);
                system.push(text);
            }
            "user" => {
                pairing.begin_user_turn();
                history.push_parts(Role::User, decode_user_parts(&message)?);
            }
            "assistant" => history.push_parts(
                Role::Assistant,
                decode_assistant_parts(&message, &mut pairing)?,
            ),
            "tool" => {
                pairing.begin_user_turn();
                history.push_parts(Role::User, vec![decode_result(&message, &mut pairing)?]);
            }
            _ => {
                return Err(message
                    .get("role")
                    .mismatch_error("system, user, assistant or tool"));
            }
        }
    }
    let mut notes = Vec::new();
    check_members(&body, MEMBERS, &mut notes)?;
    let mut options = RequestOptions {
        format: decode_format(&body.get("format"))?,
        ..RequestOptions::default()
    };
    let mut tools = Vec::new();
    for described in body.get("tools").list_items()? {
        tools.push(decode_tool(&described, &mut options)?);
    }
    let model_options = body.get("options");
    let limit = model_options.get("num_predict");
    // A negative limit means no limit.
    let unlimited = limit.optional_number()?.is_some_and(|limit| limit < 0.0);
    let whole_system = system.join("\n\n");
    system.truncate(system.len() - history.instructions.len());
    let mut request = Request {
        model: body.get("model").required_text()?.to_owned(),
        system: whole_system,
        messages: history.messages.into(),
        tools: build_tool_set(tools)?,
        max_output_tokens: if unlimited {
            None
        } else {
            limit.optional_count()?
        },
        reasoning: decode_thinking(&body.get("think"))?,
        options,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    notes.extend(note_ignored_options(&model_options)?);
    notes.extend(tracker.unread_members(body.value));
    // A missing `stream` means a stream on this wire.
    Ok(DecodedRequest {
        notes,
        instructions: history.instructions,
        leading_system: system.join("\n\n"),
        ..DecodedRequest::new(request, body.get("stream").value != &Value::Bool(false))
    })
}

/// Notes options that only concern Ollama's own models.
fn note_ignored_options(model_options: &JsonField<'_>) -> Result<Vec<LossNote>, RequestError> {
    let known = |key: &str| {
        key == "num_predict"
            || CAPABILITIES
                .param_paths
                .iter()
                .any(|(_, place)| place.strip_prefix("options.") == Some(key))
    };
    let model_options = model_options.object_or_empty()?;
    // Options of the model runner, such as `num_ctx`, mean nothing to other providers.
    let unread = model_options.keys().filter(|key| !known(key));
    Ok(unread
        .map(|key| {
            LossNote::new(
                format!("options.{key}"),
                "left out: it is about Ollama's own models",
            )
        })
        .collect())
}

/// Decodes the response format.
fn decode_format(format: &JsonField<'_>) -> Result<ResponseFormat, RequestError> {
    Ok(match format.value {
        Value::Null => ResponseFormat::Text,
        Value::Object(schema) => ResponseFormat::Schema {
            name: String::new(),
            schema: schema.clone().into(),
            strict: true,
        },
        value if value == "" => ResponseFormat::Text,
        value if value == "json" => ResponseFormat::Json,
        _ => return Err(format.mismatch_error("`json` or a JSON Schema")),
    })
}

/// Decodes the parts of a user message.
fn decode_user_parts(message: &JsonField<'_>) -> Result<Vec<MessagePart>, RequestError> {
    let mut parts: Vec<_> = decode_images(message)?
        .into_iter()
        .map(MessagePart::Image)
        .collect();
    let words = message.get("content").text_or_empty()?;
    if !words.is_empty() {
        parts.push(MessagePart::text(words));
    }
    Ok(parts)
}

/// Decodes the images of a message. An unknown type is taken for PNG.
fn decode_images(message: &JsonField<'_>) -> Result<Vec<Image>, RequestError> {
    let picture = |picture: &JsonField<'_>| {
        let data = picture.required_text()?;
        let kind = IMAGE_PREFIXES
            .iter()
            .find(|(start, _)| data.starts_with(start));
        let media_type = kind.map_or("image/png", |(_, kind)| *kind).to_owned();
        Ok(Image {
            media_type,
            data: data.to_owned(),
        })
    };
    message
        .get("images")
        .list_items()?
        .iter()
        .map(picture)
        .collect()
}

/// Decodes the parts of an assistant message.
fn decode_assistant_parts(
    message: &JsonField<'_>,
    pairing: &mut CallPairing,
) -> Result<Vec<MessagePart>, RequestError> {
    let mut parts = Vec::new();
    let thoughts = message.get("thinking").text_or_empty()?;
    let words = message.get("content").text_or_empty()?;
    if !thoughts.is_empty() {
        parts.push(MessagePart::Thought {
            text: thoughts.to_owned(),
            opaque: None,
        });
    }
    if !words.is_empty() {
        parts.push(MessagePart::text(words));
    }
    for item in message.get("tool_calls").list_items()? {
        let function = item.get("function");
        let name = function.get("name").required_text()?;
        let id = pairing.assign_call_id(item.get("id").text_or_empty()?, name);
        parts.push(build_call(
            id.as_str(),
            name,
            decode_arguments(&function.get("arguments"))?,
        ));
    }
    Ok(parts)
}

/// Decodes arguments given as an object, or as its JSON text like on other wires.
fn decode_arguments(field: &JsonField<'_>) -> Result<Map<String, Value>, RequestError> {
    match field
        .value
        .as_str()
        .map(|text| parse_lossy(text.as_bytes()))
    {
        // Clients that were written for OpenAI send a string.
        Some(Ok(Value::Object(arguments))) => Ok(arguments),
        _ => field.object_or_empty(),
    }
}

/// Decodes the result of a call.
fn decode_result(
    message: &JsonField<'_>,
    pairing: &mut CallPairing,
) -> Result<MessagePart, RequestError> {
    let native = message.get("tool_call_id").text_or_empty()?;
    let (id, name) = pairing.match_result(native, message.get("tool_name").text_or_empty()?);
    let content = message.get("content").text_or_empty()?.to_owned();
    Ok(MessagePart::Result(CallResult {
        id,
        name,
        ending: ToolResultStatus::Done,
        content,
        images: decode_images(message)?,
    }))
}

/// Decodes a tool.
fn decode_tool(
    tool: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<ToolSpec, RequestError> {
    let kind = tool.get("type");
    if !kind.is_absent() && kind.required_text()? != "function" {
        return Err(kind.mismatch_error("`function`"));
    }
    decode_function_tool(&tool.get("function"), options)
}

/// Decodes the reasoning setting.
fn decode_thinking(think: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    Ok(match think.value {
        Value::Null => ReasoningConfig::Default,
        Value::Bool(false) => ReasoningConfig::Off,
        // `true` leaves the amount to the model; medium is the common default.
        Value::Bool(true) => ReasoningConfig::Effort(ReasoningEffort::Medium),
        _ => ReasoningConfig::Effort(match think.value.as_str() {
            Some("low") => ReasoningEffort::Low,
            Some("medium") => ReasoningEffort::Medium,
            Some("high" | "max") => ReasoningEffort::High,
            _ => return Err(think.mismatch_error("a boolean, `low`, `medium` or `high`")),
        }),
    })
}
