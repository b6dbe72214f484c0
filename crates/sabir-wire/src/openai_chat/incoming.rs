//! OpenAI Chat Completions: a client's body to a request.
//!
//! # Supported
//! The roles system, developer, user, assistant and tool; text and image parts (of tools as well, though OpenAI has only
//! text there); `tool_calls`; reasoning fields. A client
//! may send a history whose arguments are not a JSON object: they are kept as one argument with an empty name, as the
//! decoder would deliver them. How much to think is read from `reasoning_effort`, or from `reasoning` as OpenRouter writes
//! it. Files are kept as opaque state of this wire. A custom tool, whose input is text, is a function of one argument, and a tool
//! of the Responses wire as well, which can hold its input to a grammar.
//!
//! # Unsupported
//! Several answers, probabilities of tokens, audio, the old `functions`: each is an error that names its place.

use sabir_call::{Opaque, Parallel, Part, Request, Role, Thinking, ToolChoice, ToolSpec, Wishes};
use serde_json::{Map, Value, json};

use super::{NAME, SAID};
use crate::arguments::parsed;
use crate::client::{Counts, Incoming, RequestError, Wants};
use crate::fate::{Fate, Members, survey};
use crate::field::{Field, History, allowed, call, form, function, only_words, picture, split, tool_set};
use crate::wishes::{self, Places, Wish};
use crate::{native, openai_responses, thinking};

/// Where wishes are read: beside the places that are written, one that servers other than OpenAI know.
const READ: &Places = &[(Wish::TopK, "top_k")];

/// What becomes of the members of a body.
pub(crate) const MEMBERS: &Members = &[
    ("model", Fate::Read),
    ("messages", Fate::Read),
    ("tools", Fate::Read),
    ("tool_choice", Fate::Read),
    ("parallel_tool_calls", Fate::Read),
    ("max_tokens", Fate::Read),
    ("max_completion_tokens", Fate::Read),
    ("temperature", Fate::Read),
    ("top_p", Fate::Read),
    ("top_k", Fate::Read),
    ("seed", Fate::Read),
    ("presence_penalty", Fate::Read),
    ("frequency_penalty", Fate::Read),
    ("stop", Fate::Read),
    ("stream", Fate::Read),
    ("stream_options", Fate::Read),
    ("reasoning_effort", Fate::Read),
    ("reasoning", Fate::Read),
    ("response_format", Fate::Read),
    ("verbosity", Fate::Read),
    ("user", Fate::Read),
    ("safety_identifier", Fate::Read),
    ("service_tier", Fate::Read),
    ("prompt_cache_key", Fate::Read),
    ("n", Fate::Read),
    ("modalities", Fate::Read),
    ("usage", Fate::Harmless),
    ("include_reasoning", Fate::Harmless),
    ("prompt_cache_retention", Fate::Harmless),
    ("metadata", Fate::LeftOut("nothing is stored")),
    ("store", Fate::LeftOut("nothing is stored")),
    ("prediction", Fate::LeftOut("it only makes an answer faster")),
    ("logit_bias", Fate::LeftOut("tokens are another provider's affair")),
    ("web_search_options", Fate::LeftOut("a search that the provider runs")),
    ("functions", Fate::Refused("use `tools`")),
    ("function_call", Fate::Refused("use `tool_choice`")),
    ("logprobs", Fate::Refused("probabilities of tokens are not known here")),
    ("top_logprobs", Fate::Refused("probabilities of tokens are not known here")),
    ("audio", Fate::Refused("only text is answered")),
];

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
                let said = split(&content, parts(&content)?)?;
                let result = history.result(message.get("tool_call_id").text()?, false, said);
                history.push(Role::User, vec![result]);
            }
            _ => return Err(message.get("role").wrong("system, developer, user, assistant or tool")),
        }
    }
    let mut notes = Vec::new();
    survey(&body, MEMBERS, &mut notes)?;
    refuse(&body)?;
    let mut wishes = Wishes { format: format(&body.get("response_format"))?, ..Wishes::default() };
    let mut tools = Vec::new();
    for described in body.get("tools").items()? {
        tools.push(tool(&described, &mut wishes)?);
    }
    let choice = self::choice(&body.get("tool_choice"), &mut tools)?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let limit = body.get("max_completion_tokens").count()?;
    let mut request = Request {
        model: body.get("model").text()?.to_owned(),
        system: system.join("\n\n"),
        messages: history.messages.into(),
        tools: tool_set(tools)?,
        choice,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: if limit.is_some() { limit } else { body.get("max_tokens").count()? },
        thinking: self::thinking(&body)?,
        wishes,
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    wishes::read(&body, READ, &mut request)?;
    let freeform = native::freeform(&request, openai_responses::NAME);
    let wants = Wants { counts: counts(&body), freeform, ..Wants::default() };
    Incoming { wants, notes, ..Incoming::new(request, body.get("stream").is_true()) }.agreed()
}

/// What can be seen only in the value.
fn refuse(body: &Field<'_>) -> Result<(), RequestError> {
    let count = body.get("n");
    if count.count()?.is_some_and(|count| count > 1) {
        return Err(count.wrong("1 (ask several times for several answers)"));
    }
    let kinds = body.get("modalities");
    if kinds.texts()?.iter().any(|kind| kind != "text") {
        return Err(kinds.wrong("`text` only"));
    }
    Ok(())
}

fn counts(body: &Field<'_>) -> Counts {
    let asked = body.get("stream_options").get("include_usage").is_true();
    if asked || !body.get("stream").is_true() { Counts::Told } else { Counts::Hidden }
}

fn format(format: &Field<'_>) -> Result<sabir_call::Format, RequestError> {
    form(format, &format.get("json_schema"))
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
    only_words(content, parts(content)?)
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
        "image_url" => {
            let address = part.get("image_url");
            // Some clients write the address alone.
            picture(&if address.value.is_string() { address } else { address.get("url") })
        }
        "file" => Ok(Part::Opaque(Opaque { wire: NAME.to_owned(), data: part.value.clone() })),
        _ => Err(part.get("type").wrong("`text`, `image_url` or `file`")),
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
        if item.get("type").value == "custom" {
            let custom = item.get("custom");
            let given = Map::from_iter([(native::INPUT.to_owned(), Value::from(custom.get("input").text()?))]);
            found.push(call(item.get("id").text()?, custom.get("name").text()?, given));
            continue;
        }
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

fn tool(tool: &Field<'_>, wishes: &mut Wishes) -> Result<ToolSpec, RequestError> {
    match tool.get("type").text()? {
        "function" => function(&tool.get("function"), wishes),
        "custom" => custom(&tool.get("custom"), wishes),
        _ => Err(tool.get("type").wrong("`function` or `custom`")),
    }
}

/// A tool whose input is text.
fn custom(tool: &Field<'_>, wishes: &mut Wishes) -> Result<ToolSpec, RequestError> {
    let (name, description) = (tool.get("name").text()?, tool.get("description").text_or_empty()?);
    let mut format = tool.get("format").object()?;
    // The other wire has the grammar's members one level higher.
    if let Some(Value::Object(grammar)) = format.shift_remove("grammar") {
        format.extend(grammar);
    }
    let mut data = json!({"type": "custom", "name": name, "description": description});
    if let Some(data) = data.as_object_mut().filter(|_| !format.is_empty()) {
        data.insert("format".to_owned(), Value::Object(format));
    }
    let spec = openai_responses::freeform(&Field::root(&data))?;
    wishes.native.push(Opaque { wire: openai_responses::NAME.to_owned(), data });
    Ok(spec)
}

/// The name of a tool, whichever its type.
fn named<'f>(tool: &Field<'f>) -> Field<'f> {
    tool.get(if tool.get("type").value == "custom" { "custom" } else { "function" }).get("name")
}

/// The choice. A list of those that may be called takes the others away.
fn choice(choice: &Field<'_>, tools: &mut Vec<ToolSpec>) -> Result<ToolChoice, RequestError> {
    if choice.get("type").value == "allowed_tools" {
        let list = choice.get("allowed_tools");
        return allowed(&list, tools, named);
    }
    if choice.value.is_object() {
        return Ok(ToolChoice::Tool(named(choice).text()?.to_owned()));
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.wrong("`auto`, `required`, `none` or a function")),
    })
}
