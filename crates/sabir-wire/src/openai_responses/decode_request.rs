//! Decodes a client's Responses body into a request.
//!
//! # Supported
//! `input` as a string or as items: messages of every role, function calls and custom tools' calls
//! with their outputs, reasoning. Encrypted reasoning and items of any other type are kept as
//! opaque state of this wire. A custom tool's call has one argument, `input`. The functions of a
//! namespace become tools with joined names. The provider's own tools are kept unchanged, and files
//! become opaque state.
//!
//! # Unsupported
//! Anything stored by the provider (`previous_response_id`, `conversation`, `prompt`,
//! `item_reference`, images by file), background responses, and log probabilities: each is an error
//! that names its path.

use sabir_call::{
    MessagePart, OpaqueState, ParallelCalls, Request, RequestOptions, Role, ToolChoice, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{CAPABILITIES, NAME};
use crate::arguments::parse_arguments;
use crate::client_request::{DecodedRequest, LossNote, RequestError, ResponsePreferences};
use crate::documents::decode_text_url;
use crate::field::{
    HistoryBuilder, JsonField, ResultContent, build_call, build_tool_set, decode_function_tool,
    decode_image_url, decode_openai_format, require_text_only, restrict_allowed_tools,
};
use crate::field_disposition::{FieldDisposition, MemberDispositions, check_members};
use crate::native_tools;
use crate::params;
use crate::read_tracker::ReadTracker;
use crate::thinking;

/// The treatment of members that refer to state stored by the provider.
const STATELESS: FieldDisposition = FieldDisposition::RefusedElsewhere(
    "nothing is kept between requests: send the whole history as `input`",
);

/// The treatment of each member of a body.
pub(crate) const MEMBERS: &MemberDispositions = &[
    ("model", FieldDisposition::Read),
    ("input", FieldDisposition::Read),
    ("instructions", FieldDisposition::Read),
    ("tools", FieldDisposition::Read),
    ("tool_choice", FieldDisposition::Read),
    ("parallel_tool_calls", FieldDisposition::Read),
    ("max_output_tokens", FieldDisposition::Read),
    ("temperature", FieldDisposition::Read),
    ("top_p", FieldDisposition::Read),
    ("stream", FieldDisposition::Read),
    ("reasoning", FieldDisposition::Read),
    ("text", FieldDisposition::Read),
    ("user", FieldDisposition::Read),
    ("safety_identifier", FieldDisposition::Read),
    ("service_tier", FieldDisposition::Read),
    ("prompt_cache_key", FieldDisposition::Read),
    ("metadata", FieldDisposition::Read),
    ("truncation", FieldDisposition::Read),
    ("include", FieldDisposition::CheckedElsewhere),
    (
        "stream_options",
        FieldDisposition::LeftOut("the form of a stream here has no options"),
    ),
    (
        "prompt_cache_retention",
        FieldDisposition::LeftOut("how long a cache is kept is the provider's affair"),
    ),
    (
        "client_metadata",
        FieldDisposition::LeftOut("it only tells the provider about the client"),
    ),
    ("store", FieldDisposition::Harmless),
    (
        "max_tool_calls",
        FieldDisposition::LeftOut("it counts calls of tools that the provider runs"),
    ),
    (
        "context_management",
        FieldDisposition::LeftOut("the provider's own edits of the history; it is sent unchanged"),
    ),
    (
        "previous_response_id",
        FieldDisposition::Refused("send the whole history as `input`"),
    ),
    ("conversation", STATELESS),
    ("prompt", STATELESS),
    (
        "background",
        FieldDisposition::Refused("wait for the answer, or stream it"),
    ),
    (
        "top_logprobs",
        FieldDisposition::RefusedElsewhere("probabilities of tokens are not known here"),
    ),
];

/// The request members that a response repeats.
const ECHOED_MEMBERS: [&str; 9] = [
    "metadata",
    "temperature",
    "top_p",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "reasoning",
    "text",
    "user",
];

/// Decodes a body into a request.
///
/// # Errors
/// The first member that is refused, that has the wrong type, or that a request cannot hold, with
/// its path in the body.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    let tracker = ReadTracker::default();
    let body = JsonField::tracked(body, &tracker);
    let mut notes = Vec::new();
    check_members(&body, MEMBERS, &mut notes)?;
    reject_unsupported_values(&body)?;
    let mut decoder = InputDecoder::default();
    let instructions = body.get("instructions");
    if !instructions.is_absent() {
        decoder
            .system
            .push(instructions.required_text()?.to_owned());
    }
    let input = body.get("input");
    if input.value.is_string() {
        decoder
            .history
            .push_parts(Role::User, vec![MessagePart::text(input.required_text()?)]);
    } else {
        for item in input.list_items()? {
            decoder.decode_item(&item)?;
        }
    }
    let mut options = RequestOptions {
        format: decode_openai_format(
            &body.get("text").get("format"),
            &body.get("text").get("format"),
        )?,
        ..RequestOptions::default()
    };
    let mut tools = Vec::new();
    for described in body.get("tools").list_items()? {
        tools.extend(decode_tool(&described, &mut options)?);
    }
    let choice = self::decode_tool_choice(&body.get("tool_choice"), &mut tools)?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let mut leading = decoder.system;
    let whole_system = leading.join("\n\n");
    leading.truncate(leading.len() - decoder.history.instructions.len());
    let mut request = Request {
        model: body.get("model").required_text()?.to_owned(),
        system: whole_system,
        messages: decoder.history.messages.into(),
        tools: build_tool_set(tools)?,
        tool_choice: choice,
        parallel_calls: if one {
            ParallelCalls::One
        } else {
            ParallelCalls::Many
        },
        max_output_tokens: body.get("max_output_tokens").optional_count()?,
        reasoning: thinking::decode_effort(&body.get("reasoning").get("effort"))?,
        options,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    // Members without a value keep the defaults of the response.
    let echo = ECHOED_MEMBERS
        .iter()
        .map(|key| ((*key).to_owned(), body.get(key).value.clone()));
    let echo = echo.filter(|(_, value)| !value.is_null()).collect();
    note_unsupported_preferences(&body, &mut notes)?;
    notes.extend(tracker.unread_members(body.value));
    let preferences = ResponsePreferences {
        custom_tool_names: native_tools::names_of_custom_tools(&request, NAME),
        namespaced_tools: native_tools::namespaced_tools(&request, NAME),
        echoed_members: echo,
        ..ResponsePreferences::default()
    };
    DecodedRequest {
        preferences,
        notes,
        instructions: decoder.history.instructions,
        leading_system: leading.join("\n\n"),
        ..DecodedRequest::new(request, body.get("stream").is_true())
    }
    .validate_tool_choice()
}

/// Refuses members whose name is supported but whose value is not.
fn reject_unsupported_values(body: &JsonField<'_>) -> Result<(), RequestError> {
    if let Some(asked) = body
        .get("include")
        .list_items()?
        .iter()
        .find(|item| item.value == "message.output_text.logprobs")
    {
        return Err(asked.mismatch_error(
            "no `message.output_text.logprobs`, because log probabilities are not available",
        ));
    }
    let truncation = body.get("truncation");
    if !matches!(truncation.text_or_empty()?, "" | "disabled" | "auto") {
        return Err(truncation.mismatch_error("`disabled` or `auto`"));
    }
    Ok(())
}

/// Notes wishes about the answer that no other provider can meet.
fn note_unsupported_preferences(
    body: &JsonField<'_>,
    notes: &mut Vec<LossNote>,
) -> Result<(), RequestError> {
    for wish in body.get("include").list_items()? {
        let name = wish.required_text()?;
        let what = format!("left out: only the provider can add `{name}` to its answer");
        notes.push(LossNote::new(format!("include.{name}"), what));
    }
    let truncation = body.get("truncation");
    if truncation.value == "auto" {
        let what = "left out: a history that is too long is an error";
        notes.push(LossNote::new(truncation.path, what));
    }
    Ok(())
}

/// Collects the system prompt and the history from the input items.
#[derive(Default)]
struct InputDecoder {
    /// The instructions, and every system and developer message, which are joined to one system
    /// prompt.
    system: Vec<String>,
    /// The messages of user and assistant.
    history: HistoryBuilder,
}

impl InputDecoder {
    /// Decodes an input item. An item without a type is a message.
    fn decode_item(&mut self, item: &JsonField<'_>) -> Result<(), RequestError> {
        let kind = item.get("type");
        // The short form of an item has a role and content only.
        match if kind.is_absent() {
            "message"
        } else {
            kind.required_text()?
        } {
            "message" => self.decode_message(item)?,
            "function_call" => {
                let given = parse_arguments(item.get("arguments").text_or_empty()?);
                self.push_call(item, given)?;
            }
            "custom_tool_call" => {
                let given = Map::from_iter([(
                    "input".to_owned(),
                    Value::from(item.get("input").required_text()?),
                )]);
                self.push_call(item, given)?;
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = item.get("output");
                let content = ResultContent::from_parts(decode_content(&output)?);
                let id = item.get("call_id").required_text()?;
                let result = self.history.build_result(id, false, content);
                self.history.push_parts(Role::User, result);
            }
            "reasoning" => {
                let thought = decode_reasoning(item)?;
                self.history.push_parts(Role::Assistant, vec![thought]);
            }
            "item_reference" => return Err(kind.mismatch_error("the item itself")),
            // Server tool calls, compaction and future item types.
            _ => self.history.push_parts(
                Role::Assistant,
                vec![MessagePart::Opaque(opaque_state(
                    item.whole_value().clone(),
                ))],
            ),
        }
        Ok(())
    }

    /// Decodes a message.
    fn decode_message(&mut self, item: &JsonField<'_>) -> Result<(), RequestError> {
        let parts = decode_content(&item.get("content"))?;
        match item.get("role").required_text()? {
            "user" => self.history.push_parts(Role::User, parts),
            "assistant" => {
                let phase = item.get("phase");
                if !phase.is_absent() {
                    let state =
                        opaque_state(json!({"type": "message", "phase": phase.required_text()?}));
                    self.history
                        .push_parts(Role::Assistant, vec![MessagePart::Opaque(state)]);
                }
                self.history.push_parts(Role::Assistant, parts);
            }
            "system" | "developer" => {
                let text = require_text_only(&item.get("content"), parts)?;
                self.history.note_instruction(&text);
                self.system.push(text);
            }
            _ => {
                return Err(item
                    .get("role")
                    .mismatch_error("system, developer, user or assistant"));
            }
        }
        Ok(())
    }

    /// Adds a call to the history.
    fn push_call(
        &mut self,
        item: &JsonField<'_>,
        arguments: Map<String, Value>,
    ) -> Result<(), RequestError> {
        let name = native_tools::joined_tool_name(
            item.get("namespace").text_or_empty()?,
            item.get("name").required_text()?,
        );
        let part = build_call(item.get("call_id").required_text()?, &name, arguments);
        self.history.push_parts(Role::Assistant, vec![part]);
        Ok(())
    }
}

/// Decodes the content of a message or of an output.
fn decode_content(content: &JsonField<'_>) -> Result<Vec<MessagePart>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![MessagePart::text(content.required_text()?)]);
    }
    content.list_items()?.iter().map(decode_part).collect()
}

/// Decodes a part of a content.
fn decode_part(part: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    match part.get("type").required_text()? {
        "input_text" | "output_text" | "text" => {
            Ok(MessagePart::text(part.get("text").required_text()?))
        }
        "refusal" => Ok(MessagePart::text(part.get("refusal").required_text()?)),
        "input_image" => decode_image_url(&part.get("image_url")),
        "input_file" => {
            let url = part.get("file_data").text_or_empty()?;
            let name = part.get("filename").text_or_empty()?;
            Ok(match decode_text_url(url, name) {
                Some(text) => MessagePart::text(text),
                None => MessagePart::Opaque(opaque_state(part.whole_value().clone())),
            })
        }
        _ => Err(part.get("type").mismatch_error(
            "`input_text`, `input_image`, `input_file`, `output_text` or `refusal`",
        )),
    }
}

/// Decodes a reasoning item to a thought with its state.
fn decode_reasoning(item: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    let mut texts = Vec::new();
    for part in item
        .get("summary")
        .list_items()?
        .iter()
        .chain(&item.get("content").list_items()?)
    {
        texts.push(part.get("text").required_text()?);
    }
    let text = texts.join("\n\n");
    let opaque = super::event_types::must_be_resent(item.value)
        .then(|| opaque_state(item.whole_value().clone()));
    Ok(match opaque {
        Some(opaque) if text.is_empty() => MessagePart::Opaque(opaque),
        opaque => MessagePart::Thought { text, opaque },
    })
}

/// Wraps an item as opaque state of this wire.
fn opaque_state(data: Value) -> OpaqueState {
    OpaqueState {
        wire: NAME.to_owned(),
        origin: None,
        data,
    }
}

/// Decodes a function, the functions of a namespace, a custom tool, or a tool of the provider's
/// own, which yields no function.
fn decode_tool(
    tool: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<Vec<ToolSpec>, RequestError> {
    let kind = tool.get("type").required_text()?;
    if kind == "function" {
        return Ok(vec![decode_function_tool(tool, options)?]);
    }
    options
        .native
        .push(opaque_state(tool.whole_value().clone()));
    match kind {
        "custom" => Ok(vec![decode_custom_tool_spec(tool)?]),
        "namespace" => {
            let space = tool.get("name").required_text()?;
            let inside = tool.get("tools").list_items()?;
            let functions = inside
                .iter()
                .filter(|tool| tool.get("type").value == "function");
            // The namespace itself is kept as a native tool, which carries the `strict` flags.
            let spec =
                |tool: &JsonField<'_>| decode_function_tool(tool, &mut RequestOptions::default());
            let spaced = |spec: ToolSpec| ToolSpec {
                name: native_tools::joined_tool_name(space, &spec.name),
                ..spec
            };
            functions.map(|tool| spec(tool).map(spaced)).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// Decodes a custom tool to a tool with one text argument. Its grammar is added to the description.
pub(crate) fn decode_custom_tool_spec(tool: &JsonField<'_>) -> Result<ToolSpec, RequestError> {
    let mut description = tool.get("description").text_or_empty()?.to_owned();
    let format = tool.get("format");
    if format.get("type").value == "grammar" {
        let syntax = format.get("syntax").text_or_empty()?;
        let definition = format.get("definition").text_or_empty()?;
        description.push_str(&format!(
            "\n\nThe input follows this grammar ({syntax}):\n{definition}"
        ));
    }
    Ok(ToolSpec::new(
        tool.get("name").required_text()?,
        description,
        native_tools::text_schema(),
    ))
}

/// Decodes the tool choice. A list of allowed tools removes the others.
fn decode_tool_choice(
    choice: &JsonField<'_>,
    tools: &mut Vec<ToolSpec>,
) -> Result<ToolChoice, RequestError> {
    if choice.value.is_object() {
        return match choice.get("type").required_text()? {
            "allowed_tools" => restrict_allowed_tools(choice, tools, |tool| tool.get("name")),
            "function" | "custom" => Ok(ToolChoice::Tool(
                choice.get("name").required_text()?.to_owned(),
            )),
            // The provider's own tools are chosen by their type.
            own => Ok(ToolChoice::Tool(own.to_owned())),
        };
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.mismatch_error("`auto`, `required`, `none` or a function")),
    })
}
