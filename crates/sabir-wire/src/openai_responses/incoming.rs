//! OpenAI Responses: a client's body to a request.
//!
//! # Supported
//! `input` as a string or as items: messages of every role, function calls and custom tools' calls with their outputs,
//! reasoning. Encrypted reasoning and items of any other type are kept as opaque state of this wire. A custom tool's call
//! has one argument, `input`. `text.verbosity`, `metadata`, `store`, and sampling beyond the temperature are ignored.
//!
//! # Unsupported
//! Whatever lies with the provider (`previous_response_id`, `conversation`, `prompt`, `item_reference`), background
//! answers, output formats, images by URL or file, files, and server tools in `tools`: each is an error that names its
//! place.

use sabir_call::{Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec};
use serde_json::{Map, Value, json};

use super::NAME;
use crate::arguments::parsed;
use crate::field::{Field, History, call, function, image, split, tool_set};
use crate::thinking;
use crate::wire::{Incoming, RequestError};

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
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
    let tools = body.get("tools").items()?.iter().map(tool).collect::<Result<_, _>>()?;
    let one = body.get("parallel_tool_calls").value == &Value::Bool(false);
    let request = Request {
        model: body.get("model").text()?.to_owned(),
        system: reading.system.join("\n\n"),
        messages: reading.history.messages,
        tools: tool_set(tools)?,
        choice: choice(&body.get("tool_choice"))?,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: body.get("max_output_tokens").count()?,
        temperature: body.get("temperature").number()?,
        thinking: thinking::of_word(&body.get("reasoning").get("effort"))?,
        ..Request::default()
    };
    Ok(Incoming { request, streamed: body.get("stream").is_true() })
}

/// What a request cannot hold.
fn refuse(body: &Field<'_>) -> Result<(), RequestError> {
    for key in ["previous_response_id", "conversation", "prompt"] {
        if !body.get(key).is_absent() {
            return Err(body.get(key).wrong("nothing (send the whole history as `input`)"));
        }
    }
    if body.get("background").is_true() {
        return Err(body.get("background").wrong("`false`"));
    }
    let format = body.get("text").get("format").get("type");
    if !format.is_absent() && format.text()? != "text" {
        return Err(format.wrong("`text`"));
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
                let said = split(content(&item.get("output"))?);
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
                let (words, rest) = split(parts);
                if !rest.is_empty() {
                    return Err(item.get("content").wrong("text only"));
                }
                self.system.push(words);
            }
            _ => return Err(item.get("role").wrong("system, developer, user or assistant")),
        }
        Ok(())
    }

    fn call(&mut self, item: &Field<'_>, arguments: Map<String, Value>) -> Result<(), RequestError> {
        let part = call(item.get("call_id").text()?, item.get("name").text()?, arguments);
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
        "input_image" => image(&part.get("image_url")).map(Part::Image),
        _ => Err(part.get("type").wrong("`input_text`, `input_image`, `output_text` or `refusal`")),
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

fn tool(tool: &Field<'_>) -> Result<ToolSpec, RequestError> {
    if tool.get("type").text()? != "function" {
        return Err(tool.get("type").wrong("`function`"));
    }
    function(tool)
}

fn choice(choice: &Field<'_>) -> Result<ToolChoice, RequestError> {
    if choice.value.is_object() {
        if choice.get("type").text()? != "function" {
            return Err(choice.get("type").wrong("`function`"));
        }
        return Ok(ToolChoice::Tool(choice.get("name").text()?.to_owned()));
    }
    Ok(match choice.text_or_empty()? {
        "" | "auto" => ToolChoice::Auto,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        _ => return Err(choice.wrong("`auto`, `required`, `none` or a function")),
    })
}
