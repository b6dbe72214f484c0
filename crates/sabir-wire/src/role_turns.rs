//! Merges a history into alternating roles, for wires that require it and put results first in a
//! user message.

use sabir_call::{CallResult, Message, MessagePart, Role};
use serde_json::{Value, json};

/// Returns the caption before images of a result that the wire cannot put into the result. `id` is
/// the call's id on the wire.
pub(crate) fn image_caption(result: &CallResult, id: &str) -> String {
    let noun = if result.images.len() == 1 {
        "picture"
    } else {
        "pictures"
    };
    format!(
        "[The {noun} of the result of `{}`, call {id}:]",
        result.name
    )
}

/// Returns the text that replaces an image that the provider cannot fetch.
pub(crate) fn unfetchable_image_text(url: &str) -> String {
    format!("[A picture that cannot be shown here: {url}]")
}

/// Merges adjacent messages of one role into one message with its results first, then its other
/// blocks. Messages without a block are dropped.
///
/// Results come first because Anthropic and Bedrock refuse a user message in which text precedes
/// the results of the calls before it.
pub(crate) fn merge_by_role(
    history: &[Message],
    block: fn(Role, &MessagePart) -> Option<Value>,
    result: fn(&CallResult) -> Value,
) -> Vec<Value> {
    let mut merged: Vec<(Role, Vec<Value>, Vec<Value>)> = Vec::new();
    for message in history {
        if merged.last().is_none_or(|(role, ..)| *role != message.role) {
            merged.push((message.role, Vec::new(), Vec::new()));
        }
        let Some((_, results, blocks)) = merged.last_mut() else {
            continue;
        };
        for part in &message.parts {
            match part {
                MessagePart::Result(known) => results.push(result(known)),
                part => blocks.extend(block(message.role, part)),
            }
        }
    }
    // A message of which every part was left out would be refused as empty.
    let full = merged
        .into_iter()
        .filter(|(_, results, blocks)| !results.is_empty() || !blocks.is_empty());
    full.map(|(role, mut results, blocks)| {
        results.extend(blocks);
        let role = if role == Role::User {
            "user"
        } else {
            "assistant"
        };
        json!({"role": role, "content": results})
    })
    .collect()
}
