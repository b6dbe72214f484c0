//! Renders calls in Gemma's notation: `call:f{k:<|"|>v<|"|>}`. `reader/gemma.rs` parses it.

use serde_json::{Map, Value};

/// Renders one call, without the markers around it.
///
/// A string is written unescaped between quote markers. A string that contains the marker, or ends
/// with the marker's beginning, is written as JSON, and so is an argument name that is not a plain
/// word. The tool's name is written unchanged.
pub(crate) fn render_gemma(name: &str, arguments: &Map<String, Value>, quote: &str) -> String {
    let mut text = format!("call:{name}");
    render_map(arguments, quote, &mut text);
    text
}

fn render_map(map: &Map<String, Value>, quote: &str, text: &mut String) {
    text.push('{');
    for (at, (name, value)) in map.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        if is_bare_name(name) {
            text.push_str(name)
        } else {
            render_json_string(name, text)
        }
        text.push(':');
        render_literal(value, quote, text);
    }
    text.push('}');
}

fn render_literal(value: &Value, quote: &str, text: &mut String) {
    match value {
        Value::String(content) if has_early_quote(content, quote) => {
            render_json_string(content, text)
        }
        Value::String(content) => text.extend([quote, content, quote]),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { "," });
                render_literal(item, quote, text);
            }
            text.push(']');
        }
        Value::Object(inner) => render_map(inner, quote, text),
        plain => text.push_str(&plain.to_string()),
    }
}

/// Returns true if a reader would find a quote marker in this text before the one that closes it.
fn has_early_quote(content: &str, quote: &str) -> bool {
    // Also catches a text whose end and the closing marker together form an earlier marker.
    format!("{content}{quote}").find(quote) != Some(content.len())
}

/// Writes a string as JSON with `<` escaped, so that it contains no marker.
fn render_json_string(content: &str, text: &mut String) {
    text.push_str(&Value::from(content).to_string().replace('<', "\\u003c"));
}

fn is_bare_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        // Safely below the longest name that `reader/gemma.rs` accepts.
        && name.len() <= 64
}
