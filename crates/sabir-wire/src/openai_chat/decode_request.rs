//! Decodes a client's Chat Completions body into a request.
//!
//! # Supported
//! The roles system, developer, user, assistant and tool; text and image parts (also in tool
//! messages, where OpenAI has only text); `tool_calls`; reasoning fields. Arguments in the history
//! that are not a JSON object are kept as one argument with an empty name, as the response decoder
//! delivers them. The effort is read from `reasoning_effort`, or from `reasoning` as OpenRouter
//! writes it. Files of text become text, others are kept as opaque state of this wire. A custom tool,
//! whose input is text, becomes a tool with one argument, and also a tool of the Responses wire, which can constrain its
//! input by a grammar. The older form of functions is translated first, see
//! [`legacy_functions`](super::legacy_functions).
//!
//! # Unsupported
//! Several choices, log probabilities and audio, except for a provider of the same wire: each is an error
//! that names its path.

use sabir_call::{
    MessagePart, OpaqueState, ParallelCalls, ReasoningConfig, Request, RequestOptions, Role,
    ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{CAPABILITIES, NAME, legacy_functions};
use crate::arguments::parse_arguments;
use crate::client_request::{DecodedRequest, RequestError, ResponsePreferences, UsageReporting};
use crate::documents::decode_text_url;
use crate::field::{
    HistoryBuilder, JsonField, ResultContent, build_call, build_tool_set, decode_function_tool,
    decode_image_url, decode_openai_format, require_text_only, restrict_allowed_tools,
};
use crate::field_disposition::{FieldDisposition, MemberDispositions, check_members};
use crate::params::{self, ParamPaths, RequestParam};
use crate::read_tracker::ReadTracker;
use crate::{native_tools, openai_responses, thinking};

/// Additional paths of parameters that are only read: servers other than OpenAI accept them.
const EXTRA_PARAM_PATHS: &ParamPaths = &[(RequestParam::TopK, "top_k")];

/// The treatment of each member of a body.
pub(crate) const MEMBERS: &MemberDispositions = &[
    ("model", FieldDisposition::Read),
    ("messages", FieldDisposition::Read),
    ("tools", FieldDisposition::Read),
    ("tool_choice", FieldDisposition::Read),
    ("parallel_tool_calls", FieldDisposition::Read),
    ("max_tokens", FieldDisposition::Read),
    ("max_completion_tokens", FieldDisposition::Read),
    ("temperature", FieldDisposition::Read),
    ("top_p", FieldDisposition::Read),
    ("top_k", FieldDisposition::Read),
    ("seed", FieldDisposition::Read),
    ("presence_penalty", FieldDisposition::Read),
    ("frequency_penalty", FieldDisposition::Read),
    ("stop", FieldDisposition::Read),
    ("stream", FieldDisposition::Read),
    ("stream_options", FieldDisposition::Read),
    ("reasoning_effort", FieldDisposition::Read),
    ("reasoning", FieldDisposition::Read),
    ("response_format", FieldDisposition::Read),
    ("verbosity", FieldDisposition::Read),
    ("user", FieldDisposition::Read),
    ("safety_identifier", FieldDisposition::Read),
    ("service_tier", FieldDisposition::Read),
    ("prompt_cache_key", FieldDisposition::Read),
    ("n", FieldDisposition::CheckedElsewhere),
    ("modalities", FieldDisposition::CheckedElsewhere),
    ("usage", FieldDisposition::Harmless),
    ("include_reasoning", FieldDisposition::Harmless),
    (
        "prompt_cache_retention",
        FieldDisposition::LeftOut("how long a cache is kept is the provider's affair"),
    ),
    ("metadata", FieldDisposition::LeftOut("nothing is stored")),
    ("store", FieldDisposition::LeftOut("nothing is stored")),
    (
        "prediction",
        FieldDisposition::LeftOut("it only makes an answer faster"),
    ),
    (
        "logit_bias",
        FieldDisposition::LeftOut("tokens are another provider's affair"),
    ),
    (
        "web_search_options",
        FieldDisposition::LeftOut("a search that the provider runs"),
    ),
    ("functions", FieldDisposition::Read),
    ("function_call", FieldDisposition::Read),
    (
        "logprobs",
        FieldDisposition::RefusedElsewhere("probabilities of tokens are not known here"),
    ),
    (
        "top_logprobs",
        FieldDisposition::RefusedElsewhere("probabilities of tokens are not known here"),
    ),
    (
        "audio",
        FieldDisposition::RefusedElsewhere("only text is answered"),
    ),
];

/// Decodes a body into a request.
///
/// # Errors
/// The first member that is refused, that has the wrong type, or that a request cannot hold, with
/// its path in the body.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    if !legacy_functions::has_legacy_functions(body) {
        return decode_current_form(body);
    }
    let mut translated = body.clone();
    let mut spelling = ResponsePreferences::default();
    legacy_functions::translate_legacy_functions(&mut translated, &mut spelling)?;
    let mut decoded = decode_current_form(&translated)?;
    if spelling.legacy_functions {
        legacy_functions::expect_one_call(&mut decoded, body);
    }
    Ok(decoded)
}

/// Decodes a body whose functions are tools.
fn decode_current_form(body: &Value) -> Result<DecodedRequest, RequestError> {
    let tracker = ReadTracker::default();
    let body = JsonField::tracked(body, &tracker);
    let mut history = HistoryBuilder::default();
    let mut system = Vec::new();
    for message in body.get("messages").list_items()? {
        let content = message.get("content");
        match message.get("role").required_text()? {
            "system" | "developer" => {
                system.push(decode_text_content(&content)?);
                history.note_instruction(system.last().map_or("", String::as_str));
            }
            "user" => history.push_parts(Role::User, decode_parts(&content)?),
            "assistant" => history.push_parts(Role::Assistant, decode_assistant_parts(&message)?),
            "tool" => {
                let content = ResultContent::from_parts(decode_parts(&content)?);
                let id = message.get("tool_call_id").required_text()?;
                let result = history.build_result(id, false, content);
                history.push_parts(Role::User, result);
            }
            _ => {
                return Err(message
                    .get("role")
                    .mismatch_error("system, developer, user, assistant or tool"));
            }
        }
    }
    let mut notes = Vec::new();
    check_members(&body, MEMBERS, &mut notes)?;
    reject_unsupported_values(&body)?;
    let mut options = RequestOptions {
        format: decode_format(&body.get("response_format"))?,
        ..RequestOptions::default()
    };
    let mut tools = Vec::new();
    for described in body.get("tools").list_items()? {
        tools.push(decode_tool(&described, &mut options)?);
    }
    let choice = self::decode_tool_choice(&body.get("tool_choice"), &mut tools)?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let limit = body.get("max_completion_tokens").optional_count()?;
    let whole_system = system.join("\n\n");
    system.truncate(system.len() - history.instructions.len());
    let leading_system = system.join("\n\n");
    let mut request = Request {
        model: body.get("model").required_text()?.to_owned(),
        system: whole_system,
        messages: history.messages.into(),
        tools: build_tool_set(tools)?,
        tool_choice: choice,
        parallel_calls: if one {
            ParallelCalls::One
        } else {
            ParallelCalls::Many
        },
        max_output_tokens: if limit.is_some() {
            limit
        } else {
            body.get("max_tokens").optional_count()?
        },
        reasoning: self::decode_thinking(&body)?,
        options,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    // Decoded separately, because the wire never writes these.
    params::decode_params(&body, EXTRA_PARAM_PATHS, &mut request)?;
    let freeform = native_tools::names_of_custom_tools(&request, openai_responses::NAME);
    let preferences = ResponsePreferences {
        usage_reporting: decode_usage_reporting(&body),
        custom_tool_names: freeform,
        ..ResponsePreferences::default()
    };
    notes.extend(tracker.unread_members(body.value));
    DecodedRequest {
        preferences,
        notes,
        instructions: history.instructions,
        leading_system,
        ..DecodedRequest::new(request, body.get("stream").is_true())
    }
    .validate_tool_choice()
}

/// Refuses members whose name is supported but whose value is not.
fn reject_unsupported_values(body: &JsonField<'_>) -> Result<(), RequestError> {
    let count = body.get("n");
    if count.optional_count()?.is_some_and(|count| count > 1) {
        return Err(count.mismatch_error("1 (ask several times for several answers)"));
    }
    let kinds = body.get("modalities");
    if kinds.text_list()?.iter().any(|kind| kind != "text") {
        return Err(kinds.mismatch_error("`text` only"));
    }
    Ok(())
}

/// Decodes the setting for token counts in a stream. Without a stream they are always reported.
fn decode_usage_reporting(body: &JsonField<'_>) -> UsageReporting {
    let asked = body.get("stream_options").get("include_usage").is_true();
    if asked || !body.get("stream").is_true() {
        UsageReporting::Reported
    } else {
        UsageReporting::Hidden
    }
}

/// Decodes the response format.
fn decode_format(format: &JsonField<'_>) -> Result<sabir_call::ResponseFormat, RequestError> {
    decode_openai_format(format, &format.get("json_schema"))
}

/// Decodes the reasoning setting.
///
/// `reasoning_effort` is OpenAI's member; `reasoning` is OpenRouter's, with `enabled`, `max_tokens`
/// and `effort`.
fn decode_thinking(body: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    let reasoning = body.get("reasoning");
    if reasoning.get("enabled").value == &Value::Bool(false) {
        return Ok(ReasoningConfig::Off);
    }
    if let Some(tokens) = reasoning.get("max_tokens").optional_count()? {
        return Ok(ReasoningConfig::Tokens(tokens));
    }
    match thinking::decode_effort(&body.get("reasoning_effort"))? {
        // OpenAI's member wins over OpenRouter's object.
        ReasoningConfig::Default => thinking::decode_effort(&reasoning.get("effort")),
        wish => Ok(wish),
    }
}

/// Decodes content that must be text.
fn decode_text_content(content: &JsonField<'_>) -> Result<String, RequestError> {
    require_text_only(content, decode_parts(content)?)
}

/// Decodes the content of a message.
fn decode_parts(content: &JsonField<'_>) -> Result<Vec<MessagePart>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![MessagePart::text(content.required_text()?)]);
    }
    content.list_items()?.iter().map(decode_part).collect()
}

/// Decodes a part of a message's content.
fn decode_part(part: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    match part.get("type").required_text()? {
        "text" => Ok(MessagePart::text(part.get("text").required_text()?)),
        "refusal" => Ok(MessagePart::text(part.get("refusal").required_text()?)),
        "image_url" => {
            let address = part.get("image_url");
            // Some clients send the address as a string instead of an object.
            decode_image_url(&if address.value.is_string() {
                address
            } else {
                address.get("url")
            })
        }
        "file" => {
            let file = part.get("file");
            let url = file.get("file_data").text_or_empty()?;
            let name = file.get("filename").text_or_empty()?;
            Ok(match decode_text_url(url, name) {
                Some(text) => MessagePart::text(text),
                None => MessagePart::Opaque(OpaqueState {
                    wire: NAME.to_owned(),
                    origin: None,
                    data: part.whole_value().clone(),
                }),
            })
        }
        _ => Err(part
            .get("type")
            .mismatch_error("`text`, `image_url` or `file`")),
    }
}

/// Decodes an assistant message: its thoughts first, then its text and calls.
fn decode_assistant_parts(message: &JsonField<'_>) -> Result<Vec<MessagePart>, RequestError> {
    let mut found = Vec::new();
    let thought =
        // DeepSeek's name and OpenRouter's name for the same text. Clients that send both repeat
        // it.
        ["reasoning_content", "reasoning"].map(|key| message.get(key)).into_iter().find(|field| !field.is_absent());
    if let Some(thought) = thought {
        found.push(MessagePart::Thought {
            text: thought.required_text()?.to_owned(),
            opaque: None,
        });
    }
    for detail in message.get("reasoning_details").list_items()? {
        found.push(decode_reasoning_detail(detail.object_or_empty()?));
    }
    let content = decode_parts(&message.get("content"))?;
    found.extend(
        content
            .into_iter()
            .filter(|part| !matches!(part, MessagePart::Text { text } if text.is_empty())),
    );
    for item in message.get("tool_calls").list_items()? {
        if item.get("type").value == "custom" {
            let custom = item.get("custom");
            let given = Map::from_iter([(
                native_tools::INPUT.to_owned(),
                Value::from(custom.get("input").required_text()?),
            )]);
            found.push(build_call(
                item.get("id").required_text()?,
                custom.get("name").required_text()?,
                given,
            ));
            continue;
        }
        let function = item.get("function");
        let text = function.get("arguments").text_or_empty()?;
        found.push(build_call(
            item.get("id").required_text()?,
            function.get("name").required_text()?,
            parse_arguments(text),
        ));
    }
    Ok(found)
}

/// Decodes a reasoning detail; its text becomes a thought.
fn decode_reasoning_detail(mut detail: Map<String, Value>) -> MessagePart {
    // The text becomes the thought's; the rest, with its signature, is the opaque state.
    let text = detail
        .shift_remove("text")
        .or_else(|| detail.shift_remove("summary"));
    let opaque = OpaqueState {
        wire: NAME.to_owned(),
        origin: None,
        data: Value::Object(detail),
    };
    match text {
        Some(Value::String(text)) if !text.is_empty() => MessagePart::Thought {
            text,
            opaque: Some(opaque),
        },
        _ => MessagePart::Opaque(opaque),
    }
}

/// Decodes a tool.
fn decode_tool(
    tool: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<ToolSpec, RequestError> {
    match tool.get("type").required_text()? {
        "function" => decode_function_tool(&tool.get("function"), options),
        "custom" => decode_custom_tool(&tool.get("custom"), options),
        _ => Err(tool.get("type").mismatch_error("`function` or `custom`")),
    }
}

/// Decodes a custom tool, whose input is one text.
fn decode_custom_tool(
    tool: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<ToolSpec, RequestError> {
    let name = tool.get("name").required_text()?;
    let description = tool.get("description").text_or_empty()?;
    let mut format = tool.get("format").object_or_empty()?;
    // The Responses wire has the grammar's members one level higher.
    if let Some(Value::Object(grammar)) = format.shift_remove("grammar") {
        format.extend(grammar);
    }
    let mut data = json!({"type": "custom", "name": name, "description": description});
    if let Some(data) = data.as_object_mut().filter(|_| !format.is_empty()) {
        data.insert("format".to_owned(), Value::Object(format));
    }
    let spec = openai_responses::decode_custom_tool_spec(&JsonField::root(&data))?;
    options.native.push(OpaqueState {
        wire: openai_responses::NAME.to_owned(),
        origin: None,
        data,
    });
    Ok(spec)
}

/// Returns the field with the name of a tool or of a choice of either type.
fn tool_name_field<'f>(tool: &JsonField<'f>) -> JsonField<'f> {
    tool.get(if tool.get("type").value == "custom" {
        "custom"
    } else {
        "function"
    })
    .get("name")
}

/// Decodes the tool choice. A list of allowed tools removes the others.
fn decode_tool_choice(
    choice: &JsonField<'_>,
    tools: &mut Vec<ToolSpec>,
) -> Result<ToolChoice, RequestError> {
    if choice.get("type").value == "allowed_tools" {
        let list = choice.get("allowed_tools");
        return restrict_allowed_tools(&list, tools, tool_name_field);
    }
    if choice.value.is_object() {
        return Ok(ToolChoice::Tool(
            tool_name_field(choice).required_text()?.to_owned(),
        ));
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.mismatch_error("`auto`, `required`, `none` or a function")),
    })
}
