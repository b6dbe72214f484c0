//! Decodes a client's Gemini body into a request.
//!
//! # Supported
//! Contents with text, images, calls and results; signatures, and anything else in a model's
//! content, as opaque state of this wire (see [`parts`](super::parts)); tools by
//! `parametersJsonSchema` or `parameters`; members spelled as in the documentation or with
//! underscores. A call without an id, or with an id that was used before, gets a generated one;
//! results are paired by id, name and order. The provider's own tools are kept unchanged.
//!
//! # Unsupported
//! Files by address; several candidates, log probabilities and answers that are not text, except for a
//! provider of the same wire: each is an error that names its path.

use sabir_call::{
    CallResult, Image, MessagePart, OpaqueState, ReasoningConfig, Request, RequestOptions,
    ResponseFormat, Role, ToolChoice, ToolResultStatus, ToolSpec,
};
use serde_json::{Map, Value};

use super::encode_request::PLACEHOLDER_SIGNATURE;
use super::parts::{self, SIGNATURE};
use super::{CAPABILITIES, JSON_MEDIA_TYPE, NAME, decode_effort_level};
use crate::call_pairing::CallPairing;
use crate::client_request::{DecodedRequest, RequestError, ResponsePreferences};
use crate::documents::decode_text_document;
use crate::field::{
    HistoryBuilder, JsonField, ResultContent, build_call, build_tool_set, result_with_files,
};
use crate::field_disposition::{
    FieldDisposition, MemberDispositions, check_members, is_empty_value,
};
use crate::params;
use crate::read_tracker::ReadTracker;

/// The member with the settings of the answer.
const GENERATION: &str = "generationConfig";

/// The members of these settings that the API has. Each may be written with underscores.
const GENERATION_MEMBERS: [&str; 28] = [
    "maxOutputTokens",
    "candidateCount",
    "temperature",
    "topP",
    "topK",
    "seed",
    "stopSequences",
    "presencePenalty",
    "frequencyPenalty",
    "thinkingConfig",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseFormat",
    "responseModalities",
    "responseLogprobs",
    "logprobs",
    "imageConfig",
    "speechConfig",
    "mediaResolution",
    "audioTimestamp",
    "audioTranscriptionConfig",
    "routingConfig",
    "modelSelectionConfig",
    "modelConfig",
    "translationConfig",
    "enableAffectiveDialog",
    "enableEnhancedCivicAnswers",
];

/// The reason for leaving out settings of filters.
const OWN_FILTERS: &str = "every provider filters by its own rules";

/// The treatment of each member of a body, in both spellings.
pub(crate) const MEMBERS: &MemberDispositions = &[
    ("model", FieldDisposition::Read),
    ("contents", FieldDisposition::Read),
    ("systemInstruction", FieldDisposition::Read),
    ("system_instruction", FieldDisposition::Read),
    ("tools", FieldDisposition::Read),
    ("toolConfig", FieldDisposition::Read),
    ("tool_config", FieldDisposition::Read),
    ("generationConfig", FieldDisposition::Read),
    ("generation_config", FieldDisposition::Read),
    (
        "generationConfig.responseModalities",
        FieldDisposition::CheckedElsewhere,
    ),
    (
        "generationConfig.candidateCount",
        FieldDisposition::CheckedElsewhere,
    ),
    (
        "generationConfig.responseLogprobs",
        FieldDisposition::CheckedElsewhere,
    ),
    (
        "generationConfig.logprobs",
        FieldDisposition::CheckedElsewhere,
    ),
    ("safetySettings", FieldDisposition::LeftOut(OWN_FILTERS)),
    ("safety_settings", FieldDisposition::LeftOut(OWN_FILTERS)),
    ("labels", FieldDisposition::LeftOut("nothing is stored")),
    ("store", FieldDisposition::LeftOut("nothing is stored")),
    (
        "serviceTier",
        FieldDisposition::LeftOut("other providers have other tiers"),
    ),
    (
        "cachedContent",
        FieldDisposition::RefusedElsewhere(SEND_CONTENT),
    ),
    (
        "cached_content",
        FieldDisposition::RefusedElsewhere(SEND_CONTENT),
    ),
    (
        "continuationToken",
        FieldDisposition::RefusedElsewhere(SEND_CONTENT),
    ),
];

/// The advice for members that refer to content which the provider has.
const SEND_CONTENT: &str = "only its provider has it: send the content itself in `contents`";

/// Renames known members of a body, and of its generation config, from the spelling with underscores to
/// camel case. Other members, which may be a server's own, keep their names.
///
/// # Errors
/// A member in both spellings: the provider would choose one of them.
pub(crate) fn unify_spellings(
    body: &mut Value,
    _: &mut ResponsePreferences,
) -> Result<(), RequestError> {
    let Some(members) = body.as_object_mut() else {
        return Ok(());
    };
    let known: Vec<&str> = MEMBERS.iter().map(|(name, _)| *name).collect();
    rename_to_camel_case(members, "", &known)?;
    match members.get_mut(GENERATION) {
        Some(Value::Object(generation)) => {
            let path = format!("{GENERATION}.");
            rename_to_camel_case(generation, &path, &GENERATION_MEMBERS)
        }
        _ => Ok(()),
    }
}

/// Renames members to camel case if that is a known name. `path` precedes their names in errors.
fn rename_to_camel_case(
    members: &mut Map<String, Value>,
    path: &str,
    known: &[&str],
) -> Result<(), RequestError> {
    let new_name = |key: &str| {
        let name = to_camel_case(key);
        (name != key && known.contains(&name.as_str())).then_some(name)
    };
    // Most bodies need no change.
    if members.keys().all(|key| new_name(key).is_none()) {
        return Ok(());
    }
    let mut renamed = Map::new();
    for (key, value) in std::mem::take(members) {
        let name = new_name(&key).unwrap_or(key);
        if renamed.contains_key(&name) {
            return Err(RequestError::new(
                format!("{path}{name}"),
                "is in the body in two spellings: send one of them",
            ));
        }
        renamed.insert(name, value);
    }
    *members = renamed;
    Ok(())
}

/// Returns a name without its underscores, with a capital after each. A name that begins with an underscore is returned unchanged.
fn to_camel_case(name: &str) -> String {
    if name.starts_with('_') {
        return name.to_owned();
    }
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut spelt = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        spelt.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        spelt.push_str(letters.as_str());
    }
    spelt
}

/// Decodes a body into a request.
pub(crate) fn decode_request(body: &Value) -> Result<DecodedRequest, RequestError> {
    let tracker = ReadTracker::default();
    let body = JsonField::tracked(body, &tracker);
    let mut notes = Vec::new();
    check_members(&body, MEMBERS, &mut notes)?;
    let mut history = HistoryBuilder::default();
    let mut pairing = CallPairing::default();
    for content in member_any_case(&body, "contents").list_items()? {
        let parts = content.get("parts").list_items()?;
        match content.get("role").text_or_empty()? {
            // A missing role means the user. `function` is an old role for results.
            "" | "user" | "function" => {
                pairing.begin_user_turn();
                let mut found = Vec::new();
                for part in &parts {
                    decode_user_part(part, &mut pairing, &mut found)?;
                }
                history.push_parts(Role::User, found);
            }
            "model" => {
                let mut found = Vec::new();
                for part in &parts {
                    decode_model_part(part, &mut pairing, &mut found)?;
                }
                history.push_parts(Role::Assistant, found);
            }
            _ => return Err(content.get("role").mismatch_error("`user` or `model`")),
        }
    }
    let generation = member_any_case(&body, GENERATION);
    reject_unsupported_values(&generation)?;
    let mut options = RequestOptions {
        format: decode_format(&generation)?,
        ..RequestOptions::default()
    };
    let mut tools = decode_tools(&body.get("tools"), &mut options)?;
    let choice = decode_tool_choice(
        &member_any_case(
            &member_any_case(&body, "toolConfig"),
            "functionCallingConfig",
        ),
        &mut tools,
    )?;
    let mut request = Request {
        model: body.get("model").text_or_empty()?.to_owned(),
        system: decode_system(&member_any_case(&body, "systemInstruction"))?,
        messages: history.messages.into(),
        tools: build_tool_set(tools)?,
        tool_choice: choice,
        max_output_tokens: member_any_case(&generation, "maxOutputTokens").optional_count()?,
        reasoning: decode_thinking(&member_any_case(&generation, "thinkingConfig"))?,
        options,
        ..Request::default()
    };
    params::decode_params(&body, CAPABILITIES.param_paths, &mut request)?;
    notes.extend(tracker.unread_members(body.value));
    Ok(DecodedRequest {
        notes,
        ..DecodedRequest::new(request, false)
    })
}

/// Refuses options that would change the answer.
fn reject_unsupported_values(generation: &JsonField<'_>) -> Result<(), RequestError> {
    let count = member_any_case(generation, "candidateCount");
    if count.optional_count()?.is_some_and(|count| count > 1) {
        return Err(count.mismatch_error("1 (ask several times for several answers)"));
    }
    let kinds = member_any_case(generation, "responseModalities");
    if kinds
        .text_list()?
        .iter()
        .any(|kind| !kind.eq_ignore_ascii_case("text"))
    {
        return Err(kinds.mismatch_error("`TEXT` only"));
    }
    for name in ["responseLogprobs", "logprobs"] {
        let probabilities = member_any_case(generation, name);
        if !is_empty_value(probabilities.value) {
            return Err(probabilities
                .mismatch_error("nothing (probabilities of tokens are not known here)"));
        }
    }
    Ok(())
}

/// Decodes the response format.
fn decode_format(generation: &JsonField<'_>) -> Result<ResponseFormat, RequestError> {
    if member_any_case(generation, "responseMimeType").text_or_empty()? != JSON_MEDIA_TYPE {
        return Ok(ResponseFormat::Text);
    }
    let schema = member_any_case(generation, "responseJsonSchema");
    let older = member_any_case(generation, "responseSchema");
    Ok(match (schema.is_absent(), older.is_absent()) {
        (true, true) => ResponseFormat::Json,
        (false, _) => ResponseFormat::Schema {
            name: String::new(),
            schema: schema.object_or_empty()?.into(),
            strict: true,
        },
        (true, false) => ResponseFormat::Schema {
            name: String::new(),
            schema: to_json_schema(older.object_or_empty()?.into()),
            strict: true,
        },
    })
}

/// Returns a member in camel case or with underscores: the API accepts both.
fn member_any_case<'a>(field: &JsonField<'a>, name: &str) -> JsonField<'a> {
    let found = field.get(name);
    if !found.is_absent() {
        return found;
    }
    let spelt = name.chars().fold(String::new(), |mut spelt, c| {
        if c.is_ascii_uppercase() {
            spelt.push('_');
        }
        spelt.push(c.to_ascii_lowercase());
        spelt
    });
    let other = field.get(&spelt);
    if other.is_absent() { found } else { other }
}

/// Decodes the system prompt.
fn decode_system(system: &JsonField<'_>) -> Result<String, RequestError> {
    if system.value.is_string() {
        return system.required_text().map(str::to_owned);
    }
    let texts: Result<Vec<_>, _> = system
        .get("parts")
        .list_items()?
        .iter()
        .map(|part| part.get("text").required_text())
        .collect();
    Ok(texts?.join("\n\n"))
}

/// Decodes a part of a user's content.
fn decode_user_part(
    part: &JsonField<'_>,
    pairing: &mut CallPairing,
    found: &mut Vec<MessagePart>,
) -> Result<(), RequestError> {
    let text = part.get("text");
    let response = member_any_case(part, "functionResponse");
    let picture = member_any_case(part, "inlineData");
    if !response.is_absent() {
        let (content, ending) = decode_tool_output(&response.get("response"))?;
        let (id, name) = pairing.match_result(
            response.get("id").text_or_empty()?,
            response.get("name").text_or_empty()?,
        );
        let inside = response.get("parts").list_items()?;
        let inside: Result<_, _> = inside.iter().map(decode_inline_part).collect();
        let inside = ResultContent::from_parts(inside?);
        let texts = [content, inside.text];
        let texts = texts.iter().filter(|text| !text.is_empty());
        let result = CallResult {
            id,
            name,
            ending,
            content: texts.cloned().collect::<Vec<_>>().join("\n"),
            images: inside.images,
        };
        found.extend(result_with_files(result, inside.files));
    } else if !picture.is_absent() {
        found.push(decode_inline_part(part)?);
    } else if !text.is_absent() {
        found.push(MessagePart::text(text.required_text()?));
    } else {
        return Err(part.mismatch_error("text, inline data or the result of a call"));
    }
    Ok(())
}

/// Decodes a part with data: an image, a document of text, or another file.
fn decode_inline_part(part: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    let data = member_any_case(part, "inlineData");
    let image = decode_image(&data)?;
    if image.media_type.starts_with("image/") {
        return Ok(MessagePart::Image(image));
    }
    let name = member_any_case(&data, "displayName").text_or_empty()?;
    let text = decode_text_document(&image.media_type, &image.data, name);
    Ok(text.map_or_else(
        // Documents, audio and videos are no pictures.
        || {
            MessagePart::Opaque(OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: part.whole_value().clone(),
            })
        },
        MessagePart::text,
    ))
}

/// Decodes an image.
fn decode_image(picture: &JsonField<'_>) -> Result<Image, RequestError> {
    let media_type = member_any_case(picture, "mimeType").required_text()?;
    let data = picture.get("data").required_text()?;
    Ok(Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

/// Decodes the output of a tool: `output` or `error` by convention, any other object as its JSON
/// text.
fn decode_tool_output(
    response: &JsonField<'_>,
) -> Result<(String, ToolResultStatus), RequestError> {
    let object = response.object_or_empty()?;
    let only = object.iter().next().filter(|_| object.len() == 1);
    let words = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    Ok(match only {
        Some((key, value)) if key == "output" || key == "result" => {
            (words(value), ToolResultStatus::Done)
        }
        Some((key, value)) if key == "error" => (words(value), ToolResultStatus::Failed),
        _ => (Value::Object(object).to_string(), ToolResultStatus::Done),
    })
}

/// Decodes a part of a model's content.
fn decode_model_part(
    part: &JsonField<'_>,
    pairing: &mut CallPairing,
    found: &mut Vec<MessagePart>,
) -> Result<(), RequestError> {
    let called = member_any_case(part, "functionCall");
    let signature = member_any_case(part, SIGNATURE).text_or_empty()?;
    let opaque = |data: Value| OpaqueState {
        wire: NAME.to_owned(),
        origin: None,
        data,
    };
    if !called.is_absent() {
        let name = called.get("name").required_text()?;
        let id = pairing.assign_call_id(called.get("id").text_or_empty()?, name);
        found.push(build_call(
            id.as_str(),
            name,
            called.get("args").object_or_empty()?,
        ));
        // The placeholder is not a signature: it is added again when the request is encoded.
        if !signature.is_empty() && signature != PLACEHOLDER_SIGNATURE {
            found.push(MessagePart::Opaque(opaque(parts::call_signature_state(
                signature,
            ))));
        }
        return Ok(());
    }
    let text = part.get("text").text_or_empty()?;
    let thought = part.get("thought").is_true();
    // A part without text may still be code, an image or a bare signature.
    if text.is_empty() {
        found.extend(
            parts::opaque_part(part.object_or_empty()?)
                .map(|data| MessagePart::Opaque(opaque(data))),
        );
        return Ok(());
    }
    let state = Some(signature).filter(|signature| !signature.is_empty());
    let state =
        state.map(|signature| opaque(parts::text_signature_state(text, thought, signature)));
    if thought {
        found.push(MessagePart::Thought {
            text: text.to_owned(),
            opaque: state,
        });
    } else {
        found.push(MessagePart::text(text));
        found.extend(state.map(MessagePart::Opaque));
    }
    Ok(())
}

/// Decodes the functions. The provider's own tools are kept in `options.native`, each alone.
fn decode_tools(
    tools: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<Vec<ToolSpec>, RequestError> {
    let mut specs = Vec::new();
    for tool in tools.list_items()? {
        let declarations = member_any_case(&tool, "functionDeclarations");
        for (key, value) in tool.value.as_object().into_iter().flatten() {
            let is_functions =
                ["functionDeclarations", "function_declarations"].contains(&key.as_str());
            if is_functions || value.is_null() {
                continue;
            }
            tool.get(key).whole_value();
            options.native.push(OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data: Value::Object(Map::from_iter([(key.clone(), value.clone())])),
            });
        }
        for declaration in declarations.list_items()? {
            specs.push(decode_declaration(&declaration)?);
        }
    }
    Ok(specs)
}

fn decode_declaration(declaration: &JsonField<'_>) -> Result<ToolSpec, RequestError> {
    let schema = member_any_case(declaration, "parametersJsonSchema");
    let schema = if schema.is_absent() {
        to_json_schema(Value::Object(
            declaration.get("parameters").object_or_empty()?,
        ))
    } else {
        Value::Object(schema.object_or_empty()?)
    };
    let description = declaration.get("description").text_or_empty()?;
    let name = declaration.get("name").required_text()?;
    Ok(ToolSpec::new(name, description, schema))
}

/// Decodes one function of Gemini's `functionDeclarations`, for programs that have only a list of tools.
///
/// # Errors
/// A member is missing, or has the wrong type.
pub fn decode_gemini_declaration(declaration: &Value) -> Result<ToolSpec, RequestError> {
    decode_declaration(&JsonField::root(declaration))
}

/// Converts the API's own schemas to JSON Schema: types in capitals, and `nullable`.
fn to_json_schema(schema: Value) -> Value {
    match schema {
        Value::Object(members) => {
            let nullable = members.get("nullable") == Some(&Value::Bool(true));
            let convert = |(key, value): (String, Value)| match value {
                Value::String(kind) if key == "type" => {
                    let kind = Value::from(kind.to_ascii_lowercase());
                    (
                        key,
                        if nullable {
                            Value::Array(vec![kind, Value::from("null")])
                        } else {
                            kind
                        },
                    )
                }
                // A property may have the name of a keyword, so property names are not converted.
                Value::Object(properties) if key == "properties" => (
                    key,
                    properties
                        .into_iter()
                        .map(|(name, value)| (name, to_json_schema(value)))
                        .collect(),
                ),
                value => (key, to_json_schema(value)),
            };
            // `nullable` moved into the type. A property of that name is an object and stays.
            let kept = members
                .clone()
                .into_iter()
                .filter(|(key, value)| key != "nullable" || !value.is_boolean());
            Value::Object(kept.map(convert).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(to_json_schema).collect(),
        other => other,
    }
}

/// Decodes the tool choice. A list of allowed functions removes the others.
fn decode_tool_choice(
    calling: &JsonField<'_>,
    tools: &mut Vec<ToolSpec>,
) -> Result<ToolChoice, RequestError> {
    let mut allowed = member_any_case(calling, "allowedFunctionNames").text_list()?;
    let mode = calling.get("mode").text_or_empty()?.to_ascii_uppercase();
    // The list means nothing in the other modes.
    if !allowed.is_empty() && ["ANY", "VALIDATED"].contains(&mode.as_str()) {
        tools.retain(|tool| allowed.contains(&tool.name));
    }
    Ok(match mode.as_str() {
        // `VALIDATED` constrains arguments but leaves the choice to the model.
        "" | "AUTO" | "VALIDATED" | "MODE_UNSPECIFIED" => ToolChoice::Auto,
        "NONE" => ToolChoice::None,
        "ANY" if allowed.len() == 1 => ToolChoice::Tool(allowed.remove(0)),
        "ANY" => ToolChoice::Required,
        _ => {
            return Err(calling
                .get("mode")
                .mismatch_error("`AUTO`, `ANY`, `NONE` or `VALIDATED`"));
        }
    })
}

/// Decodes the reasoning setting.
fn decode_thinking(config: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    let level = member_any_case(config, "thinkingLevel");
    if !level.is_absent() {
        let effort = decode_effort_level(&level.required_text()?.to_ascii_uppercase());
        return effort
            .map(ReasoningConfig::Effort)
            .ok_or_else(|| level.mismatch_error("`MINIMAL`, `LOW`, `MEDIUM` or `HIGH`"));
    }
    let budget = member_any_case(config, "thinkingBudget");
    // -1 leaves the budget to the model.
    if budget.optional_number()?.is_none_or(|budget| budget < 0.0) {
        return Ok(ReasoningConfig::Default);
    }
    Ok(match budget.optional_count()? {
        Some(0) => ReasoningConfig::Off,
        tokens => tokens.map_or(ReasoningConfig::Default, ReasoningConfig::Tokens),
    })
}
