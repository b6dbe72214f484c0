//! Parses the content of messages: blocks of the Anthropic API, and of later Roo Code versions,
//! which have other names.

use sabir_call::{Image, OpaqueState};
use serde_json::{Map, Value};

use super::record_builder::ImportNotes;
use super::string_field;

/// A piece of a message's content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ContentBlock {
    Text(String),
    Thought {
        text: String,
        opaque: Option<OpaqueState>,
    },
    Image(Image),
    Call {
        id: String,
        name: String,
        arguments: Map<String, Value>,
    },
    Result {
        /// The id of the call.
        id: String,
        content: String,
        failed: bool,
        images: Vec<Image>,
    },
    /// An unknown block, unchanged.
    Other(Value),
}

/// Parses the content of a message: an array of blocks, or a single string.
pub(super) fn parse_blocks(content: &Value, notes: &mut ImportNotes) -> Vec<ContentBlock> {
    match content {
        Value::String(text) => vec![ContentBlock::Text(text.clone())],
        Value::Array(items) => items.iter().map(|item| parse_block(item, notes)).collect(),
        Value::Null => Vec::new(),
        other => vec![unknown_block(other, notes)],
    }
}

/// Parses one block. Names with a hyphen are those of later Roo Code versions.
fn parse_block(item: &Value, notes: &mut ImportNotes) -> ContentBlock {
    let text = |name: &str| string_field(item, name).unwrap_or_default().to_owned();
    match item.get("type").and_then(Value::as_str).unwrap_or_default() {
        "text" => ContentBlock::Text(text("text")),
        "thinking" => {
            // The provider verifies a signed thought, so the whole block is kept beside its text.
            let opaque = item
                .get("signature")
                .is_some()
                .then(|| anthropic_opaque(item));
            ContentBlock::Thought {
                text: text("thinking"),
                opaque,
            }
        }
        // Its content is encrypted: there is nothing to show, but the provider wants it back.
        "redacted_thinking" => ContentBlock::Thought {
            text: String::new(),
            opaque: Some(anthropic_opaque(item)),
        },
        "reasoning" => ContentBlock::Thought {
            text: text("text"),
            opaque: None,
        },
        "image" => {
            parse_image(item).map_or_else(|| unknown_block(item, notes), ContentBlock::Image)
        }
        "tool_use" => call_block(text("id"), text("name"), item.get("input"), notes),
        "tool-call" => call_block(
            text("toolCallId"),
            text("toolName"),
            item.get("input").or(item.get("args")),
            notes,
        ),
        "tool_result" => {
            let (content, images) = result_content(item.get("content"), notes);
            let failed = item
                .get("is_error")
                .and_then(Value::as_bool)
                .unwrap_or(false);
            ContentBlock::Result {
                id: text("tool_use_id"),
                content,
                failed,
                images,
            }
        }
        "tool-result" => {
            let output = item.get("output").or(item.get("result"));
            // The type begins with `error` for every form of a failure.
            let failed = output
                .and_then(|output| string_field(output, "type"))
                .is_some_and(|kind| kind.starts_with("error"));
            let (content, images) = result_content(
                output.and_then(|output| output.get("value")).or(output),
                notes,
            );
            ContentBlock::Result {
                id: text("toolCallId"),
                content,
                failed,
                images,
            }
        }
        _ => unknown_block(item, notes),
    }
}

fn unknown_block(item: &Value, notes: &mut ImportNotes) -> ContentBlock {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("none");
    notes.add_count(
        &format!(
            "blocks of the unknown type `{}`, which are kept as they are",
            super::record_builder::short_name(kind)
        ),
        1,
    );
    ContentBlock::Other(item.clone())
}

/// Keeps a block as it is, because its signature is only valid for the unchanged block.
fn anthropic_opaque(item: &Value) -> OpaqueState {
    OpaqueState {
        wire: "anthropic".to_owned(),
        origin: None,
        data: item.clone(),
    }
}

fn call_block(
    id: String,
    name: String,
    input: Option<&Value>,
    notes: &mut ImportNotes,
) -> ContentBlock {
    let arguments = match input {
        Some(Value::Object(arguments)) => arguments.clone(),
        None | Some(Value::Null) => Map::new(),
        Some(other) => {
            notes.add_count(
                "calls whose arguments are not an object; they are kept as `input`",
                1,
            );
            Map::from_iter([("input".to_owned(), other.clone())])
        }
    };
    ContentBlock::Call {
        id,
        name,
        arguments,
    }
}

/// Returns the text of a result, and its pictures.
fn result_content(value: Option<&Value>, notes: &mut ImportNotes) -> (String, Vec<Image>) {
    let mut words = Vec::new();
    let mut images = Vec::new();
    match value {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => words.push(text.clone()),
        Some(Value::Array(items)) => {
            for item in items {
                match parse_block(item, notes) {
                    ContentBlock::Text(text) => words.push(text),
                    ContentBlock::Image(image) => images.push(image),
                    // Kept as text: a result has no other place for it.
                    ContentBlock::Other(value) => words.push(value.to_string()),
                    _ => notes.add_count(
                        "blocks in results that are neither text nor pictures, which are left out",
                        1,
                    ),
                }
            }
        }
        Some(other) => words.push(other.to_string()),
    }
    (words.join("\n"), images)
}

fn parse_image(item: &Value) -> Option<Image> {
    let source = item.get("source")?;
    let media_type = string_field(source, "media_type")?.to_owned();
    let data = string_field(source, "data")?.to_owned();
    // A picture behind an address may be gone, and is not fetched.
    (string_field(source, "type")? == "base64").then_some(Image { media_type, data })
}
