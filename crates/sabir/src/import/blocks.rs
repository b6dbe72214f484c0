//! Content of messages: blocks as the Anthropic API has them, and those of later Roo Code, whose names differ.

use sabir_call::{Image, Opaque};
use serde_json::{Map, Value};

use super::scribe::Notes;
use super::string;

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Block {
    Text(String),
    Thought {
        text: String,
        opaque: Option<Opaque>,
    },
    Image(Image),
    Call {
        id: String,
        name: String,
        arguments: Map<String, Value>,
    },
    Result {
        /// The call's.
        id: String,
        content: String,
        failed: bool,
        images: Vec<Image>,
    },
    /// What is not known, as it is.
    Other(Value),
}

/// The blocks of a message's content, which may also be a text alone.
pub(super) fn blocks(content: &Value, notes: &mut Notes) -> Vec<Block> {
    match content {
        Value::String(text) => vec![Block::Text(text.clone())],
        Value::Array(items) => items.iter().map(|item| block(item, notes)).collect(),
        Value::Null => Vec::new(),
        other => vec![unknown(other, notes)],
    }
}

fn block(item: &Value, notes: &mut Notes) -> Block {
    let text = |name: &str| string(item, name).unwrap_or_default().to_owned();
    match item.get("type").and_then(Value::as_str).unwrap_or_default() {
        "text" => Block::Text(text("text")),
        "thinking" => {
            let opaque = item.get("signature").is_some().then(|| anthropic(item));
            Block::Thought { text: text("thinking"), opaque }
        }
        "redacted_thinking" => Block::Thought { text: String::new(), opaque: Some(anthropic(item)) },
        "reasoning" => Block::Thought { text: text("text"), opaque: None },
        "image" => image(item).map_or_else(|| unknown(item, notes), Block::Image),
        "tool_use" => call(text("id"), text("name"), item.get("input"), notes),
        "tool-call" => call(text("toolCallId"), text("toolName"), item.get("input").or(item.get("args")), notes),
        "tool_result" => {
            let (content, images) = content(item.get("content"), notes);
            let failed = item.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            Block::Result { id: text("tool_use_id"), content, failed, images }
        }
        "tool-result" => {
            let output = item.get("output").or(item.get("result"));
            let failed = output.and_then(|output| string(output, "type")).is_some_and(|kind| kind.starts_with("error"));
            let (content, images) = content(output.and_then(|output| output.get("value")).or(output), notes);
            Block::Result { id: text("toolCallId"), content, failed, images }
        }
        _ => unknown(item, notes),
    }
}

fn unknown(item: &Value, notes: &mut Notes) -> Block {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("none");
    notes.add(&format!("blocks of the unknown type `{}`, which are kept as they are", super::scribe::short(kind)), 1);
    Block::Other(item.clone())
}

fn anthropic(item: &Value) -> Opaque {
    Opaque { wire: "anthropic".to_owned(), data: item.clone() }
}

fn call(id: String, name: String, input: Option<&Value>, notes: &mut Notes) -> Block {
    let arguments = match input {
        Some(Value::Object(arguments)) => arguments.clone(),
        None | Some(Value::Null) => Map::new(),
        Some(other) => {
            notes.add("calls whose arguments are no object; they are kept as `input`", 1);
            Map::from_iter([("input".to_owned(), other.clone())])
        }
    };
    Block::Call { id, name, arguments }
}

/// The text of a result, and its pictures.
fn content(value: Option<&Value>, notes: &mut Notes) -> (String, Vec<Image>) {
    let (mut words, mut images) = (Vec::new(), Vec::new());
    match value {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => words.push(text.clone()),
        Some(Value::Array(items)) => {
            for item in items {
                match block(item, notes) {
                    Block::Text(text) => words.push(text),
                    Block::Image(image) => images.push(image),
                    Block::Other(value) => words.push(value.to_string()),
                    _ => notes.add("blocks in results that are neither text nor pictures, which are left out", 1),
                }
            }
        }
        Some(other) => words.push(other.to_string()),
    }
    (words.join("\n"), images)
}

fn image(item: &Value) -> Option<Image> {
    let source = item.get("source")?;
    let (media_type, data) = (string(source, "media_type")?.to_owned(), string(source, "data")?.to_owned());
    (string(source, "type")? == "base64").then_some(Image { media_type, data })
}
