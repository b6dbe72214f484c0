//! OpenAI Responses: a client's body to a request.
//!
//! # Supported
//! `input` as a string or as items: messages of every role, function calls and custom tools' calls with their outputs,
//! reasoning. Encrypted reasoning and items of any other type are kept as opaque state of this wire. A custom tool's call
//! has one argument, `input`. The functions of a namespace are tools with both names in one. Tools of the provider's own are kept as this wire has them, and files as opaque state.
//!
//! # Unsupported
//! Whatever lies with the provider (`previous_response_id`, `conversation`, `prompt`, `item_reference`, images by their
//! file), background answers, and probabilities of tokens: each is an error that names its place.

use sabir_call::{Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec, Wishes};
use serde_json::{Map, Value, json};

use super::{NAME, SAID};
use crate::arguments::parsed;
use crate::client::{Incoming, RequestError, Wants};
use crate::fate::{Fate, Members, survey};
use crate::field::{Field, History, allowed, call, form, function, only_words, picture, split, tool_set};
use crate::native;
use crate::thinking;
use crate::wishes;

/// What to do where a member stands for something that lies with the provider.
const STATELESS: Fate = Fate::Refused("nothing is kept between requests: send the whole history as `input`");

/// What becomes of the members of a body.
pub(crate) const MEMBERS: &Members = &[
    ("model", Fate::Read),
    ("input", Fate::Read),
    ("instructions", Fate::Read),
    ("tools", Fate::Read),
    ("tool_choice", Fate::Read),
    ("parallel_tool_calls", Fate::Read),
    ("max_output_tokens", Fate::Read),
    ("temperature", Fate::Read),
    ("top_p", Fate::Read),
    ("stream", Fate::Read),
    ("reasoning", Fate::Read),
    ("text", Fate::Read),
    ("user", Fate::Read),
    ("safety_identifier", Fate::Read),
    ("service_tier", Fate::Read),
    ("prompt_cache_key", Fate::Read),
    ("metadata", Fate::Read),
    ("truncation", Fate::Read),
    ("include", Fate::Read),
    ("stream_options", Fate::Harmless),
    ("prompt_cache_retention", Fate::Harmless),
    ("client_metadata", Fate::Harmless),
    ("store", Fate::LeftOut("nothing is stored")),
    ("max_tool_calls", Fate::LeftOut("it counts calls of tools that the provider runs")),
    ("context_management", Fate::LeftOut("the provider's own edits of the history; it goes on as it was sent")),
    ("previous_response_id", STATELESS),
    ("conversation", STATELESS),
    ("prompt", STATELESS),
    ("background", Fate::Refused("wait for the answer, or stream it")),
    ("top_logprobs", Fate::Refused("probabilities of tokens are not known here")),
];

/// The members that a response repeats.
const ECHOED: [&str; 9] = [
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

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut notes = Vec::new();
    survey(&body, MEMBERS, &mut notes)?;
    refuse(&body)?;
    let mut reading = Reading::default();
    let instructions = body.get("instructions");
    if !instructions.is_absent() {
        reading.system.push(instructions.text()?.to_owned());
    }
    let input = body.get("input");
    if input.value.is_string() {
        reading.history.push(Role::User, vec![Part::text(input.text()?)]);
    } else {
        for item in input.items()? {
            reading.item(&item)?;
        }
    }
    let mut wishes =
        Wishes { format: form(&body.get("text").get("format"), &body.get("text").get("format"))?, ..Wishes::default() };
    let mut tools = Vec::new();
    for described in body.get("tools").items()? {
        tools.extend(tool(&described, &mut wishes)?);
    }
    let choice = self::choice(&body.get("tool_choice"), &mut tools)?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let mut request = Request {
        model: body.get("model").text()?.to_owned(),
        system: reading.system.join("\n\n"),
        messages: reading.history.messages.into(),
        tools: tool_set(tools)?,
        choice,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: body.get("max_output_tokens").count()?,
        thinking: thinking::of_word(&body.get("reasoning").get("effort"))?,
        wishes,
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    let echo = ECHOED.iter().map(|key| ((*key).to_owned(), body.get(key).value.clone()));
    let echo = echo.filter(|(_, value)| !value.is_null()).collect();
    let wants = Wants {
        freeform: native::freeform(&request, NAME),
        spaced: native::spaced(&request, NAME),
        echo,
        ..Wants::default()
    };
    Incoming { wants, notes, ..Incoming::new(request, body.get("stream").is_true()) }.agreed()
}

/// What can be seen only in the value.
fn refuse(body: &Field<'_>) -> Result<(), RequestError> {
    if let Some(asked) = body.get("include").items()?.iter().find(|item| item.value == "message.output_text.logprobs") {
        return Err(asked.wrong("nothing of tokens' probabilities, which are not known here"));
    }
    let truncation = body.get("truncation");
    if !matches!(truncation.text_or_empty()?, "" | "disabled" | "auto") {
        return Err(truncation.wrong("`disabled` or `auto`"));
    }
    Ok(())
}

#[derive(Default)]
struct Reading {
    system: Vec<String>,
    history: History,
}

impl Reading {
    fn item(&mut self, item: &Field<'_>) -> Result<(), RequestError> {
        let kind = item.get("type");
        match if kind.is_absent() { "message" } else { kind.text()? } {
            "message" => self.message(item)?,
            "function_call" => {
                let given = parsed(item.get("arguments").text_or_empty()?);
                self.call(item, given)?;
            }
            "custom_tool_call" => {
                let given = Map::from_iter([("input".to_owned(), Value::from(item.get("input").text()?))]);
                self.call(item, given)?;
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = item.get("output");
                let said = split(&output, content(&output)?)?;
                let result = self.history.result(item.get("call_id").text()?, false, said);
                self.history.push(Role::User, vec![result]);
            }
            "reasoning" => {
                let thought = reasoning(item)?;
                self.history.push(Role::Assistant, vec![thought]);
            }
            "item_reference" => return Err(kind.wrong("the item itself")),
            _ => self.history.push(Role::Assistant, vec![Part::Opaque(kept(item.value.clone()))]),
        }
        Ok(())
    }

    fn message(&mut self, item: &Field<'_>) -> Result<(), RequestError> {
        let parts = content(&item.get("content"))?;
        match item.get("role").text()? {
            "user" => self.history.push(Role::User, parts),
            "assistant" => {
                let phase = item.get("phase");
                if !phase.is_absent() {
                    let state = kept(json!({"type": "message", "phase": phase.text()?}));
                    self.history.push(Role::Assistant, vec![Part::Opaque(state)]);
                }
                self.history.push(Role::Assistant, parts);
            }
            "system" | "developer" => {
                self.system.push(only_words(&item.get("content"), parts)?);
            }
            _ => return Err(item.get("role").wrong("system, developer, user or assistant")),
        }
        Ok(())
    }

    fn call(&mut self, item: &Field<'_>, arguments: Map<String, Value>) -> Result<(), RequestError> {
        let name = native::joined(item.get("namespace").text_or_empty()?, item.get("name").text()?);
        let part = call(item.get("call_id").text()?, &name, arguments);
        self.history.push(Role::Assistant, vec![part]);
        Ok(())
    }
}

fn content(content: &Field<'_>) -> Result<Vec<Part>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![Part::text(content.text()?)]);
    }
    content.items()?.iter().map(part).collect()
}

fn part(part: &Field<'_>) -> Result<Part, RequestError> {
    match part.get("type").text()? {
        "input_text" | "output_text" | "text" => Ok(Part::text(part.get("text").text()?)),
        "refusal" => Ok(Part::text(part.get("refusal").text()?)),
        "input_image" => picture(&part.get("image_url")),
        "input_file" => Ok(Part::Opaque(kept(part.value.clone()))),
        _ => Err(part.get("type").wrong("`input_text`, `input_image`, `input_file`, `output_text` or `refusal`")),
    }
}

fn reasoning(item: &Field<'_>) -> Result<Part, RequestError> {
    let mut texts = Vec::new();
    for part in item.get("summary").items()?.iter().chain(&item.get("content").items()?) {
        texts.push(part.get("text").text()?);
    }
    let text = texts.join("\n\n");
    let opaque = super::shape::must_go_back(item.value).then(|| kept(item.value.clone()));
    Ok(match opaque {
        Some(opaque) if text.is_empty() => Part::Opaque(opaque),
        opaque => Part::Thought { text, opaque },
    })
}

fn kept(data: Value) -> Opaque {
    Opaque { wire: NAME.to_owned(), data }
}

/// A function, the functions of a namespace, a tool whose input is text, or one of the provider's own, of which no function
/// is made.
fn tool(tool: &Field<'_>, wishes: &mut Wishes) -> Result<Vec<ToolSpec>, RequestError> {
    let kind = tool.get("type").text()?;
    if kind == "function" {
        return Ok(vec![function(tool, wishes)?]);
    }
    wishes.native.push(kept(tool.value.clone()));
    match kind {
        "custom" => Ok(vec![freeform(tool)?]),
        "namespace" => {
            let space = tool.get("name").text()?;
            let inside = tool.get("tools").items()?;
            let functions = inside.iter().filter(|tool| tool.get("type").value == "function");
            // Whether one is strict is told with its namespace.
            let spec = |tool: &Field<'_>| function(tool, &mut Wishes::default());
            let spaced = |spec: ToolSpec| ToolSpec { name: native::joined(space, &spec.name), ..spec };
            functions.map(|tool| spec(tool).map(spaced)).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// A tool whose input is text: a function of one argument, with its grammar told in words.
pub(crate) fn freeform(tool: &Field<'_>) -> Result<ToolSpec, RequestError> {
    let mut description = tool.get("description").text_or_empty()?.to_owned();
    let format = tool.get("format");
    if format.get("type").value == "grammar" {
        let (syntax, definition) = (format.get("syntax").text_or_empty()?, format.get("definition").text_or_empty()?);
        description.push_str(&format!("\n\nThe input follows this grammar ({syntax}):\n{definition}"));
    }
    Ok(ToolSpec::new(tool.get("name").text()?, description, native::text_schema()))
}

/// The choice. A list of those that may be called takes the others away.
fn choice(choice: &Field<'_>, tools: &mut Vec<ToolSpec>) -> Result<ToolChoice, RequestError> {
    if choice.value.is_object() {
        return match choice.get("type").text()? {
            "allowed_tools" => allowed(choice, tools, |tool| tool.get("name")),
            "function" | "custom" => Ok(ToolChoice::Tool(choice.get("name").text()?.to_owned())),
            // A tool of the provider's own is chosen by its type.
            own => Ok(ToolChoice::Tool(own.to_owned())),
        };
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.wrong("`auto`, `required`, `none` or a function")),
    })
}
