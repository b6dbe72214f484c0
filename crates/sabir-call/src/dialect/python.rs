//! Renders calls in Python syntax: `[f(a="x", b=1)]`. `reader/python.rs` parses it.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Renders calls as one list, without markers. Values are Python literals with double-quoted
/// strings.
///
/// An argument whose name is not a Python identifier goes into `**{"name": value}`. The names of
/// tools are written unchanged.
pub(crate) fn render_python(calls: &[(&str, &Map<String, Value>)]) -> String {
    format!("[{}]", join_calls(calls, ", "))
}

/// Renders each call on a line of its own, without a list around them.
pub(crate) fn render_python_lines(calls: &[(&str, &Map<String, Value>)]) -> String {
    join_calls(calls, "\n")
}

fn join_calls(calls: &[(&str, &Map<String, Value>)], separator: &str) -> String {
    let mut text = String::new();
    for (at, (name, arguments)) in calls.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { separator });
        text.push_str(name);
        text.push('(');
        for (at, (name, value)) in arguments.iter().enumerate() {
            text.push_str(if at == 0 { "" } else { ", " });
            if is_plain(name) {
                text.push_str(name);
                text.push('=');
                render_literal(value, &mut text);
            } else {
                text.push_str("**{");
                render_pair(name, value, &mut text);
                text.push('}');
            }
        }
        text.push(')');
    }
    text
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= 64
}

fn render_pair(name: &str, value: &Value, text: &mut String) {
    render_string(name, text);
    text.push_str(": ");
    render_literal(value, text);
}

fn render_literal(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(content) => render_string(content, text),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                render_literal(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            text.push('{');
            for (at, (name, value)) in map.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                render_pair(name, value, text);
            }
            text.push('}');
        }
    }
}

fn render_string(content: &str, text: &mut String) {
    text.push('"');
    for c in content.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // Writing to a string cannot fail.
            c if c.is_control() => drop(write!(text, "\\x{:02x}", u32::from(c))),
            // Editors and JavaScript treat these as line ends.
            '\u{2028}' | '\u{2029}' => drop(write!(text, "\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
}
