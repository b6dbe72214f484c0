//! Builds Gemini's parts and puts opaque state back among them.
//!
//! A `thoughtSignature` must go back in the same part that it came with; newer models refuse a call
//! without its own. In a history, state follows what it signs:
//!
//! | data of the state | meaning | how it goes back |
//! | --- | --- | --- |
//! | `{"signs": "call", "thoughtSignature": …}` | the signature of the call before it | in the part of that call |
//! | `{"signs": "text", "bytes": n, "thoughtSignature": …}` | the signature of a part that was the last n bytes of the text before it | with these bytes, as a part of their own |
//! | `{"signs": "thought", "bytes": n, "thoughtSignature": …}` | the same of a thought | the same, with `thought` |
//! | any other object | a whole part: executed code and its result, searches, images, an empty text that only carries a signature | unchanged |
//!
//! `bytes` is needed because the deltas of a text are joined if there is no state between them:
//! unsigned text before a signed part must not be sent back as signed.

use serde_json::{Map, Value, json};

/// The member of a part that holds its signature.
pub(super) const SIGNATURE: &str = "thoughtSignature";

/// Builds a part of text or of a thought.
pub(super) fn text_part(text: &str, thought: bool) -> Value {
    let mut part = Map::new();
    part.insert("text".to_owned(), json!(text));
    if thought {
        part.insert("thought".to_owned(), json!(true));
    }
    Value::Object(part)
}

/// Builds a part with a call.
pub(super) fn call_part(id: &str, name: &str, arguments: Map<String, Value>) -> Value {
    json!({"functionCall": {"id": id, "name": name, "args": arguments}})
}

/// Builds state that signs the call before it.
pub(super) fn call_signature_state(signature: &str) -> Value {
    json!({"signs": "call", SIGNATURE: signature})
}

/// Builds state that signs the end of the text or thought before it.
pub(super) fn text_signature_state(text: &str, thought: bool, signature: &str) -> Value {
    json!({"signs": if thought { "thought" } else { "text" }, "bytes": text.len(), SIGNATURE: signature})
}

/// Returns the signature if state signs the call before it.
pub(super) fn call_signature(data: &Value) -> Option<&Value> {
    data.get(SIGNATURE)
        .filter(|_| data.get("signs").is_some_and(|signs| signs == "call"))
}

/// Returns a part that is kept whole, or `None` if it has no content.
pub(super) fn opaque_part(mut part: Map<String, Value>) -> Option<Value> {
    // Such a part carries at most a signature.
    let bare = part
        .keys()
        .all(|key| key == "thought" || key == SIGNATURE || key == "text");
    if bare {
        part.get(SIGNATURE)
            .and_then(Value::as_str)
            .filter(|signature| !signature.is_empty())?;
        // The API refuses a part without any data.
        part.shift_insert(0, "text".to_owned(), json!(""));
    }
    Some(Value::Object(part))
}

/// Places state after, or into, the parts before it.
pub(super) fn insert_opaque(data: &Value, parts: &mut Vec<Value>) {
    let Some(signs) = data.get("signs").and_then(Value::as_str) else {
        return parts.push(data.clone());
    };
    let signature = data.get(SIGNATURE).cloned().unwrap_or_default();
    if signs == "call" {
        // A signature without its call is worthless.
        if let Some(call) = parts
            .last_mut()
            .filter(|part| part.get("functionCall").is_some())
        {
            attach_signature(call, signature);
        }
        return;
    }
    let thought = signs == "thought";
    let bytes = data
        .get("bytes")
        .and_then(Value::as_u64)
        .and_then(|bytes| usize::try_from(bytes).ok());
    // The signature covers only the end of the joined text, which becomes a part of its own again.
    let signed = parts
        .last_mut()
        .and_then(|part| split_signed_text(part, thought, bytes.unwrap_or_default()));
    let mut part = text_part(signed.as_deref().unwrap_or_default(), thought);
    if parts
        .last()
        .is_some_and(|part| signed.is_some() && part.get("text").is_some_and(|rest| rest == ""))
    {
        parts.pop();
    }
    attach_signature(&mut part, signature);
    parts.push(part);
}

/// Adds a signature unless the part has one.
fn attach_signature(part: &mut Value, signature: Value) {
    if let Some(part) = part.as_object_mut() {
        part.entry(SIGNATURE).or_insert(signature);
    }
}

/// Takes the last `bytes` off an unsigned text, or all of a shorter one.
fn split_signed_text(part: &mut Value, thought: bool, bytes: usize) -> Option<String> {
    let is_thought = part.get("thought").is_some_and(|thought| thought == true);
    if is_thought != thought || part.get(SIGNATURE).is_some() || bytes == 0 {
        return None;
    }
    let Value::String(text) = part.get_mut("text")? else {
        return None;
    };
    let from = text.len().saturating_sub(bytes);
    // A count from another client may point into a character.
    let at = (0..=from)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    Some(text.split_off(at))
}
