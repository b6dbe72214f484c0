//! Builds the conversations that a template has to render: one tool, and one call of it.

use minijinja::Value;
use sabir_call::{ToolError, ToolSet};
use serde::Serialize;
use serde_json::{Map, json};

/// The tool's name. No template has it as an example of its own.
pub(crate) const TOOL: &str = "get_sabir_forecast";
/// The question of the user.
pub(crate) const QUESTION: &str = "How is the weather in Oslo-7?";
/// The text that the assistant writes without a call.
pub(crate) const ANSWER: &str = "It-is-sunny-there.";

/// The form in which a template gets the arguments of an earlier call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentForm {
    /// An object, which is the convention of transformers.
    Object,
    /// JSON as a text, as in OpenAI's API.
    Text,
}

/// The details in which conversations differ between servers, and which templates depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallShape {
    pub(crate) arguments: ArgumentForm,
    /// The call's id.
    id: &'static str,
    /// True if the message with the call has an empty text, and false if it has none.
    has_text: bool,
    /// True if the text among the arguments begins and ends with a line feed.
    has_line_feeds: bool,
}

impl CallShape {
    /// Returns all shapes, the most usual first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        // Kimi's templates write the id, and models are meant to write the tool's name into it;
        // Mistral's accept only nine letters and digits.
        let ids = ["functions.get_sabir_forecast:0", "forecast1"];
        let forms = [ArgumentForm::Object, ArgumentForm::Text];
        forms.into_iter().flat_map(move |arguments| {
            ids.into_iter().flat_map(move |id| {
                [true, false].map(|has_text| Self {
                    arguments,
                    id,
                    has_text,
                    has_line_feeds: false,
                })
            })
        })
    }

    /// Returns the shape with line feeds around the text among the arguments.
    pub(crate) fn with_line_feeds(self) -> Self {
        Self {
            has_line_feeds: true,
            ..self
        }
    }
}

/// Returns the arguments of the call.
pub(crate) fn call_arguments(shape: CallShape) -> Map<String, serde_json::Value> {
    let city = match shape.has_line_feeds {
        true => "\nOslo-7\n",
        false => "Oslo-7",
    };
    Map::from_iter([
        ("city".to_owned(), json!(city)),
        ("days".to_owned(), json!(3)),
    ])
}

/// Returns the tool's definition, without the wrapping of OpenAI's API.
fn tool_definition() -> serde_json::Value {
    json!({
        "name": TOOL,
        "description": "Returns the weather of the next days.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The name of the city."},
                "days": {"type": "integer", "description": "The number of days."},
            },
            "required": ["city", "days"],
        },
    })
}

/// Returns the tool for the reader and the checks.
pub(crate) fn declared_tools() -> Result<ToolSet, ToolError> {
    ToolSet::from_json(&json!([tool_definition()]).to_string())
}

/// The end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastMessage {
    /// The question.
    Question,
    /// An answer in words.
    Answer,
    /// A call in this shape.
    Call(CallShape),
}

/// Builds the variables of a template.
pub(crate) fn build_context(last: LastMessage, offers_tool: bool) -> Value {
    let mut messages = vec![json!({"role": "user", "content": QUESTION})];
    match last {
        LastMessage::Question => {}
        LastMessage::Answer => messages.push(json!({"role": "assistant", "content": ANSWER})),
        LastMessage::Call(shape) => messages.push(call_message(shape)),
    }
    let mut context = json!({
        "messages": messages,
        "add_generation_prompt": false,
        "bos_token": "",
        "eos_token": "",
        "date_string": "15 Jan 2026",
        "datetime": "15 Jan 2026",
    });
    if offers_tool && let Some(context) = context.as_object_mut() {
        let tool = json!({"type": "function", "function": tool_definition()});
        context.insert("tools".to_owned(), json!([tool]));
    }
    to_engine_value(&context)
}

/// Converts JSON to a value of the template engine.
pub(crate) fn to_engine_value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::from(number),
            None => Value::from(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(to_engine_value).collect(),
        serde_json::Value::Object(map) => {
            let pairs = map.iter();
            Value::from_pairs(pairs.map(|(key, value)| (key.as_str(), to_engine_value(value))))
        }
    }
}

fn call_message(shape: CallShape) -> serde_json::Value {
    let arguments = serde_json::Value::Object(call_arguments(shape));
    let arguments = match shape.arguments {
        ArgumentForm::Object => arguments,
        ArgumentForm::Text => json!(arguments.to_string()),
    };
    json!({
        "role": "assistant",
        "content": if shape.has_text { json!("") } else { json!(null) },
        "tool_calls": [{
            "id": shape.id,
            "type": "function",
            "function": {"name": TOOL, "arguments": arguments},
        }],
    })
}
