//! Gemini: a client's body to a request.
//!
//! # Supported
//! Contents with text, pictures, calls and results; signatures, and whatever else a model's content holds, as opaque state
//! of this wire (see [`parts`](super::parts)); tools by `parametersJsonSchema` or `parameters`; members spelt as in the
//! documentation or with underscores. Safety settings are ignored. Calls
//! without an id, or with one that was there before, get one of their own; results are paired with them by id, name and
//! order.
//!
//! # Unsupported
//! Files by address, and server tools in `tools`: each is an error that names its place.

use sabir_call::{
    CallResult, Ending, Format, Image, Opaque, Part, Request, Role, Thinking, ToolChoice, ToolSpec, Wishes,
};
use serde_json::{Map, Value};

use super::parts::{self, SIGNATURE};
use super::request::UNSIGNED;
use super::{JSON, NAME, SAID, effort_of};
use crate::client::{Incoming, RequestError};
use crate::field::{Field, History, call, tool_set};
use crate::pairing::Pairing;
use crate::wishes;

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut history = History::default();
    let mut pairing = Pairing::default();
    for content in member(&body, "contents").items()? {
        let parts = content.get("parts").items()?;
        match content.get("role").text_or_empty()? {
            "" | "user" | "function" => {
                pairing.user_speaks();
                let mut found = Vec::new();
                for part in &parts {
                    user(part, &mut pairing, &mut found)?;
                }
                history.push(Role::User, found);
            }
            "model" => {
                let mut found = Vec::new();
                for part in &parts {
                    model(part, &mut pairing, &mut found)?;
                }
                history.push(Role::Assistant, found);
            }
            _ => return Err(content.get("role").wrong("`user` or `model`")),
        }
    }
    let generation = member(&body, "generationConfig");
    let mut request = Request {
        model: body.get("model").text_or_empty()?.to_owned(),
        system: system(&member(&body, "systemInstruction"))?,
        messages: history.messages.into(),
        tools: tool_set(tools(&body.get("tools"))?)?,
        choice: choice(&member(&member(&body, "toolConfig"), "functionCallingConfig"))?,
        max_output: member(&generation, "maxOutputTokens").count()?,
        thinking: thinking(&member(&generation, "thinkingConfig"))?,
        wishes: Wishes { format: format(&generation)?, ..Wishes::default() },
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    Ok(Incoming::new(request, false))
}

fn format(generation: &Field<'_>) -> Result<Format, RequestError> {
    if member(generation, "responseMimeType").text_or_empty()? != JSON {
        return Ok(Format::Text);
    }
    let (schema, older) = (member(generation, "responseJsonSchema"), member(generation, "responseSchema"));
    Ok(match (schema.is_absent(), older.is_absent()) {
        (true, true) => Format::Json,
        (false, _) => Format::Schema { name: String::new(), schema: schema.object()?.into(), strict: true },
        (true, false) => {
            Format::Schema { name: String::new(), schema: json_schema(older.object()?.into()), strict: true }
        }
    })
}

/// A member in either spelling.
fn member<'a>(field: &Field<'a>, name: &str) -> Field<'a> {
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

fn system(system: &Field<'_>) -> Result<String, RequestError> {
    if system.value.is_string() {
        return system.text().map(str::to_owned);
    }
    let texts: Result<Vec<_>, _> = system.get("parts").items()?.iter().map(|part| part.get("text").text()).collect();
    Ok(texts?.join("\n\n"))
}

fn user(part: &Field<'_>, pairing: &mut Pairing, found: &mut Vec<Part>) -> Result<(), RequestError> {
    let (text, response) = (part.get("text"), member(part, "functionResponse"));
    let picture = member(part, "inlineData");
    if !response.is_absent() {
        let (content, ending) = outcome(&response.get("response"))?;
        let (id, name) = pairing.result(response.get("id").text_or_empty()?, response.get("name").text_or_empty()?);
        let images = response.get("parts").items()?;
        let images = images.iter().map(|part| image(&member(part, "inlineData"))).collect::<Result<_, _>>()?;
        found.push(Part::Result(CallResult { id, name, ending, content, images }));
    } else if !picture.is_absent() {
        found.push(Part::Image(image(&picture)?));
    } else if !text.is_absent() {
        found.push(Part::text(text.text()?));
    } else {
        return Err(part.wrong("text, inline data or the result of a call"));
    }
    Ok(())
}

fn image(picture: &Field<'_>) -> Result<Image, RequestError> {
    let (media_type, data) = (member(picture, "mimeType").text()?, picture.get("data").text()?);
    Ok(Image { media_type: media_type.to_owned(), data: data.to_owned() })
}

/// What a tool answered: `output` or `error` by convention, any other object as its JSON text.
fn outcome(response: &Field<'_>) -> Result<(String, Ending), RequestError> {
    let object = response.object()?;
    let only = object.iter().next().filter(|_| object.len() == 1);
    let words = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(match only {
        Some((key, value)) if key == "output" || key == "result" => (words(value), Ending::Done),
        Some((key, value)) if key == "error" => (words(value), Ending::Failed),
        _ => (Value::Object(object).to_string(), Ending::Done),
    })
}

fn model(part: &Field<'_>, pairing: &mut Pairing, found: &mut Vec<Part>) -> Result<(), RequestError> {
    let called = member(part, "functionCall");
    let signature = member(part, SIGNATURE).text_or_empty()?;
    let opaque = |data: Value| Opaque { wire: NAME.to_owned(), data };
    if !called.is_absent() {
        let name = called.get("name").text()?;
        let id = pairing.call(called.get("id").text_or_empty()?, name);
        found.push(call(id.as_str(), name, called.get("args").object()?));
        if !signature.is_empty() && signature != UNSIGNED {
            found.push(Part::Opaque(opaque(parts::signed_call(signature))));
        }
        return Ok(());
    }
    let text = part.get("text").text_or_empty()?;
    let thought = part.get("thought").is_true();
    if text.is_empty() {
        found.extend(parts::kept(part.object()?).map(|data| Part::Opaque(opaque(data))));
        return Ok(());
    }
    let state = Some(signature).filter(|signature| !signature.is_empty());
    let state = state.map(|signature| opaque(parts::signed_text(text, thought, signature)));
    if thought {
        found.push(Part::Thought { text: text.to_owned(), opaque: state });
    } else {
        found.push(Part::text(text));
        found.extend(state.map(Part::Opaque));
    }
    Ok(())
}

fn tools(tools: &Field<'_>) -> Result<Vec<ToolSpec>, RequestError> {
    let mut specs = Vec::new();
    for tool in tools.items()? {
        let declarations = member(&tool, "functionDeclarations");
        if declarations.is_absent() {
            return Err(tool.wrong("`functionDeclarations`"));
        }
        for declaration in declarations.items()? {
            let schema = member(&declaration, "parametersJsonSchema");
            let schema = if schema.is_absent() {
                json_schema(Value::Object(declaration.get("parameters").object()?))
            } else {
                Value::Object(schema.object()?)
            };
            let description = declaration.get("description").text_or_empty()?;
            specs.push(ToolSpec::new(declaration.get("name").text()?, description, schema));
        }
    }
    Ok(specs)
}

/// The API's own schemas as JSON Schema: types in capitals, and `nullable`.
fn json_schema(schema: Value) -> Value {
    match schema {
        Value::Object(members) => {
            let nullable = members.get("nullable") == Some(&Value::Bool(true));
            let convert = |(key, value): (String, Value)| match value {
                Value::String(kind) if key == "type" => {
                    let kind = Value::from(kind.to_ascii_lowercase());
                    (key, if nullable { Value::Array(vec![kind, Value::from("null")]) } else { kind })
                }
                // A property may be called like a keyword.
                Value::Object(properties) if key == "properties" => {
                    (key, properties.into_iter().map(|(name, value)| (name, json_schema(value))).collect())
                }
                value => (key, json_schema(value)),
            };
            let kept = members.clone().into_iter().filter(|(key, value)| key != "nullable" || !value.is_boolean());
            Value::Object(kept.map(convert).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(json_schema).collect(),
        other => other,
    }
}

fn choice(calling: &Field<'_>) -> Result<ToolChoice, RequestError> {
    let mut allowed = member(calling, "allowedFunctionNames").texts()?;
    Ok(match calling.get("mode").text_or_empty()?.to_ascii_uppercase().as_str() {
        "" | "AUTO" | "VALIDATED" | "MODE_UNSPECIFIED" => ToolChoice::Auto,
        "NONE" => ToolChoice::None,
        "ANY" if allowed.len() == 1 => ToolChoice::Tool(allowed.remove(0)),
        "ANY" => ToolChoice::Required,
        _ => return Err(calling.get("mode").wrong("`AUTO`, `ANY`, `NONE` or `VALIDATED`")),
    })
}

fn thinking(config: &Field<'_>) -> Result<Thinking, RequestError> {
    let level = member(config, "thinkingLevel");
    if !level.is_absent() {
        let effort = effort_of(&level.text()?.to_ascii_uppercase());
        return effort.map(Thinking::Effort).ok_or_else(|| level.wrong("`MINIMAL`, `LOW`, `MEDIUM` or `HIGH`"));
    }
    let budget = member(config, "thinkingBudget");
    // -1 leaves it to the model.
    if budget.number()?.is_none_or(|budget| budget < 0.0) {
        return Ok(Thinking::Default);
    }
    Ok(match budget.count()? {
        Some(0) => Thinking::Off,
        tokens => tokens.map_or(Thinking::Default, Thinking::Tokens),
    })
}
