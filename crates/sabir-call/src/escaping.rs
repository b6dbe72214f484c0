//! Escapes foreign text in what is sent to a model, and reverses that in what the model sends back.
//!
//! Three kinds of text in a file, a result or a file name can be mistaken for something else:
//!
//! * A special token, such as `<|im_start|>`. A server that renders a chat template tokenizes the
//!   rendered text, and the token then ends a message or begins one. A zero-width space (U+200B)
//!   behind its first character breaks it. If there are such spaces already, there is one more, so
//!   the original can always be restored.
//! * A character that a model reads and a person does not see: tag characters (U+E0000 to U+E007F)
//!   and bidirectional controls. Each becomes its code point, as in `<U+202E>`.
//! * A control character in a name, which could begin a line of its own ([`escape_name`]).
//!
//! Files and histories keep their exact bytes: only the copy of a request that is sent changes. The user's own text is sent
//! unchanged.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Message, MessagePart, Role};
use crate::model::Request;

/// The character that breaks a token.
const BREAK: char = '\u{200b}';

/// The most characters between the ends of a token; no known one is near it.
const MAX_TOKEN_CHARS: usize = 80;

/// Names that are special tokens between `<` and `>`, or between `</` and `>`. They are from the
/// tokenizers of Llama, Mistral, Gemma, Qwen, GLM, MiniMax, Seed, LongCat and K2 Horizon models.
const TAG_TOKENS: [&str; 31] = [
    "s",
    "bos",
    "eos",
    "pad",
    "unk",
    "sop",
    "eop",
    "escape",
    "think",
    "arg_key",
    "arg_value",
    "tool_call",
    "tool_response",
    "function_call",
    "minimax:tool_call",
    "seed:tool_call",
    "seed:think",
    "start_of_turn",
    "end_of_turn",
    "start_function_call",
    "end_function_call",
    "start_function_response",
    "end_function_response",
    "start_function_declaration",
    "end_function_declaration",
    "longcat_tool_call",
    "ifm|tool_calls",
    "ifm|tool_call",
    "ifm|arg_key",
    "ifm|arg_type",
    "ifm|arg_value",
];

/// Names that are special tokens between `[` and `]`, or between `[/` and `]` (Mistral, GLM).
const BRACKET_TOKENS: [&str; 11] = [
    "ARGS",
    "CALL_ID",
    "TOOL_CALLS",
    "TOOL_CONTENT",
    "TOOL_RESULTS",
    "AVAILABLE_TOOLS",
    "SYSTEM_PROMPT",
    "INST",
    "THINK",
    "gMASK",
    "sMASK",
];

/// The escaping of foreign text in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentEscaping {
    /// Breaks special tokens.
    pub special_tokens: bool,
    /// Shows characters that a person would not see.
    pub hidden_characters: bool,
}

impl ContentEscaping {
    /// Escapes a text; `None` if that changes nothing.
    pub fn escape_text(self, text: &str) -> Option<String> {
        if !may_need_escaping(text) {
            return None;
        }
        let shown = self.hidden_characters.then(|| show_hidden(text)).flatten();
        let broken = self
            .special_tokens
            .then(|| break_tokens(shown.as_deref().unwrap_or(text)))
            .flatten();
        broken.or(shown)
    }

    /// Restores a text that a model sent; `None` if that changes nothing. The name of a code point
    /// is restored only if `was_read` says that the model had received the character.
    pub fn restore_text(self, text: &str, was_read: &dyn Fn(char) -> bool) -> Option<String> {
        let whole = self.special_tokens.then(|| restore_tokens(text)).flatten();
        let exact = self
            .hidden_characters
            .then(|| {
                restore_code_points(whole.as_deref().unwrap_or(text), &|c| {
                    is_hidden(c) && was_read(c)
                })
            })
            .flatten();
        exact.or(whole)
    }

    /// Restores the strings in a value, wherever they are.
    pub fn restore_value(self, value: &mut Value, was_read: &dyn Fn(char) -> bool) {
        match value {
            Value::String(text) => {
                if let Some(exact) = self.restore_text(text, was_read) {
                    *text = exact;
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.restore_value(item, was_read)),
            Value::Object(members) => members
                .values_mut()
                .for_each(|member| self.restore_value(member, was_read)),
            _ => {}
        }
    }

    /// Returns the request with foreign text escaped; `None` if nothing needs escaping.
    pub fn escape_request(self, request: &Request) -> Option<Request> {
        if self == Self::default() {
            return None;
        }
        let system = self.escape_text(&request.system);
        let changed: Vec<_> = request
            .messages
            .iter()
            .map(|message| self.escape_message(message))
            .collect();
        if system.is_none() && changed.iter().all(Option::is_none) {
            return None;
        }
        let mut escaped = request.clone();
        if let Some(system) = system {
            escaped.system = system;
        }
        for (message, changed) in escaped.messages.iter_mut().zip(changed) {
            if let Some(changed) = changed {
                *message = changed;
            }
        }
        Some(escaped)
    }

    fn escape_message(self, message: &Message) -> Option<Message> {
        // Most messages stay as they are, and need no copy.
        let is_touched = message.parts.iter().any(|part| match part {
            MessagePart::Result(result) => may_need_escaping(&result.content),
            MessagePart::Text { text } if message.role == Role::Assistant => {
                may_need_escaping(text)
            }
            MessagePart::Call(call) => call.arguments.values().any(value_may_need_escaping),
            _ => false,
        });
        if !is_touched {
            return None;
        }
        let mut any = false;
        let mut escaped = message.clone();
        let mut escape = |text: &mut String| {
            if let Some(changed) = self.escape_text(text) {
                any = true;
                *text = changed;
            }
        };
        for part in &mut escaped.parts {
            match part {
                MessagePart::Result(result) => escape(&mut result.content),
                // The user's words are sent unchanged.
                MessagePart::Text { text } if message.role == Role::Assistant => escape(text),
                MessagePart::Call(call) => call
                    .arguments
                    .values_mut()
                    .for_each(|value| for_each_string(value, &mut escape)),
                _ => {}
            }
        }
        any.then_some(escaped)
    }
}

/// Returns true if a text has a character that begins a special token, or one that is not ASCII.
fn may_need_escaping(text: &str) -> bool {
    memchr::memchr3(b'<', b'[', b']', text.as_bytes()).is_some() || !text.is_ascii()
}

fn value_may_need_escaping(value: &Value) -> bool {
    match value {
        Value::String(text) => may_need_escaping(text),
        Value::Array(items) => items.iter().any(value_may_need_escaping),
        Value::Object(members) => members.values().any(value_may_need_escaping),
        _ => false,
    }
}

fn for_each_string(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| for_each_string(item, change)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| for_each_string(member, change)),
        _ => {}
    }
}

/// Returns a name with its control characters and line separators shown as code points, as in
/// `a<U+000A>b`, so that it stays on one line.
pub fn escape_name(name: &str) -> Cow<'_, str> {
    let is_line_end = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if name.contains(is_line_end) {
        Cow::Owned(name.chars().map(|c| show_char(c, is_line_end(c))).collect())
    } else {
        Cow::Borrowed(name)
    }
}

/// Restores every code point that [`escape_name`] or [`ContentEscaping`] may have shown in a name;
/// `None` if there is none.
pub fn restore_name(name: &str) -> Option<String> {
    restore_code_points(name, &|c| {
        c.is_control() || is_hidden(c) || matches!(c, '\u{2028}' | '\u{2029}')
    })
}

/// Reports whether models read a character that people do not see: tag characters and bidirectional
/// embeddings, overrides and isolates.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e007f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn show_char(c: char, hidden: bool) -> String {
    if hidden {
        format!("<U+{:04X}>", u32::from(c))
    } else {
        c.to_string()
    }
}

fn show_hidden(text: &str) -> Option<String> {
    // ASCII text, which most is, needs no second look.
    if text.is_ascii() || !text.contains(is_hidden) {
        return None;
    }
    Some(text.chars().map(|c| show_char(c, is_hidden(c))).collect())
}

/// Replaces `<U+HEX>` by its character where `wanted` accepts it.
fn restore_code_points(text: &str, wanted: &dyn Fn(char) -> bool) -> Option<String> {
    const OPEN: &str = "<U+";
    let mut restored = String::new();
    let mut rest = text;
    let mut any = false;
    while let Some((before, after)) = rest.split_once(OPEN) {
        restored.push_str(before);
        // No code point has more than six digits.
        let digits = after
            .bytes()
            .take(7)
            .take_while(u8::is_ascii_hexdigit)
            .count();
        let found = after
            .get(..digits)
            .filter(|_| after.as_bytes().get(digits) == Some(&b'>'))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .and_then(char::from_u32)
            .filter(|c| wanted(*c));
        match found {
            Some(c) => {
                any = true;
                restored.push(c);
                rest = after.get(digits + 1..).unwrap_or_default();
            }
            None => {
                restored.push_str(OPEN);
                rest = after;
            }
        }
    }
    restored.push_str(rest);
    any.then_some(restored)
}

fn break_tokens(text: &str) -> Option<String> {
    rewrite_tokens(text, |out, breaks| {
        out.push(BREAK);
        out.push_str(breaks);
    })
}

fn restore_tokens(text: &str) -> Option<String> {
    // Without the character there is nothing to restore.
    text.contains(BREAK).then_some(())?;
    let mut any = false;
    let restored = rewrite_tokens(text, |out, breaks| {
        any |= !breaks.is_empty();
        out.push_str(breaks.strip_prefix(BREAK).unwrap_or_default());
    });
    restored.filter(|_| any)
}

/// Copies a text and rewrites the breaks after the first character of each special token; `None` if
/// there is no token.
fn rewrite_tokens(text: &str, mut write_breaks: impl FnMut(&mut String, &str)) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    for (at, first) in text.match_indices(['<', '[', ']']) {
        let rest = text.get(at + 1..).unwrap_or_default();
        let body = rest.trim_start_matches(BREAK);
        if !begins_token(first, body) {
            continue;
        }
        let end = at + 1 + (rest.len() - body.len());
        out.push_str(text.get(copied..=at).unwrap_or_default());
        write_breaks(&mut out, text.get(at + 1..end).unwrap_or_default());
        copied = end;
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Some(out)
}

/// Reports whether a special token begins with `first` and continues with `body`.
fn begins_token(first: &str, body: &str) -> bool {
    match first {
        "]" => body.starts_with("<]minimax[>["),
        "[" => is_named_token(body, &BRACKET_TOKENS, ']'),
        _ if body.starts_with(['|', '｜']) => is_bar_token(body),
        _ => is_named_token(body, &TAG_TOKENS, '>') || closes_with_bar(body),
    }
}

fn is_named_token(body: &str, names: &[&str], close: char) -> bool {
    let name = body.strip_prefix('/').unwrap_or(body);
    names.iter().any(|known| {
        name.strip_prefix(known)
            .is_some_and(|rest| rest.starts_with(close))
    })
}

/// Recognizes the rest of `<|name|>`, `<｜name｜>` and `<|name>`. Breaks of tokens in it do not count.
fn is_bar_token(body: &str) -> bool {
    let name = body.chars().filter(|c| *c != BREAK).skip(1);
    for (count, c) in name.take(MAX_TOKEN_CHARS).enumerate() {
        match c {
            // `<|>` is an operator.
            '>' => return count > 0,
            '<' => return false,
            _ if c.is_whitespace() => return false,
            _ => {}
        }
    }
    false
}

/// Recognizes the rest of `<name|>` (Gemma).
fn closes_with_bar(body: &str) -> bool {
    let name = body.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let length = body.len() - name.len();
    (1..=MAX_TOKEN_CHARS).contains(&length) && name.starts_with("|>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::DialectSet;

    const BOTH: ContentEscaping = ContentEscaping {
        special_tokens: true,
        hidden_characters: true,
    };

    fn escape(text: &str) -> String {
        BOTH.escape_text(text).unwrap_or_else(|| text.to_owned())
    }

    fn restore(text: &str) -> String {
        BOTH.restore_text(text, &|_| true)
            .unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn tokens_are_broken_and_restored() {
        for token in [
            "<|im_start|>",
            "<|im_end|>",
            "<|eot_id|>",
            "<｜tool▁calls▁begin｜>",
            "<|\"|>",
            "<|tool_call>",
            "<tool_call|>",
            "<tool_call>",
            "</tool_call>",
            "</s>",
            "[TOOL_CALLS]",
            "[/INST]",
            "]<]minimax[>[",
            "<|[INST]|>",
        ] {
            for text in [
                token.to_owned(),
                format!("a{token}{token}b\n{token}"),
                token.replacen(['<', '[', ']'], "<\u{200b}", 1),
            ] {
                let escaped = escape(&text);
                assert!(!escaped.contains(token), "{text}");
                assert_eq!(restore(&escaped), text);
                let twice = escape(&escaped);
                assert_eq!(restore(&restore(&twice)), text);
            }
            // A model that leaves the break out means the same.
            assert_eq!(restore(token), token);
        }
        for text in [
            "a <| b |> c",
            "f <|> g",
            "if a < b && [x] > y[0]",
            "<b>bold</b>",
            "zero\u{200b}width",
            "vec![INSTANCE]",
            "",
        ] {
            assert_eq!(BOTH.escape_text(text), None, "{text}");
        }
    }

    /// A marker that is not a plain tag is a token of some model.
    #[test]
    fn every_special_marker_of_a_dialect_is_broken() {
        for dialect in DialectSet::built_in().iter() {
            for marker in dialect
                .marker_texts()
                .into_iter()
                .chain(dialect.tokens.iter().copied())
            {
                if marker.contains(['|', '｜']) || marker.starts_with("[TOOL") {
                    assert_ne!(escape(marker), marker, "{}", dialect.name);
                }
            }
        }
    }

    #[test]
    fn hidden_characters_are_shown_and_restored_if_they_were_read() {
        let text = "a\u{e0049}\u{e0047}b \u{202e}c \u{2066}d";
        let escaped = escape(text);
        assert_eq!(escaped, "a<U+E0049><U+E0047>b <U+202E>c <U+2066>d");
        assert_eq!(restore(&escaped), text);
        assert_eq!(BOTH.restore_text(&escaped, &|_| false), None);
        assert_eq!(
            BOTH.restore_text("<U+0041> <U+> <U+12345678> <U+", &|_| true),
            None
        );
        assert_eq!(BOTH.escape_text("naïve \u{200f}ع"), None);
    }

    #[test]
    fn names_stay_on_one_line() {
        let name = "a\nFolder: /etc\r\u{2028}b";
        let shown = escape_name(name);
        assert_eq!(shown, "a<U+000A>Folder: /etc<U+000D><U+2028>b");
        assert_eq!(restore_name(&shown).as_deref(), Some(name));
        assert_eq!(escape_name("plain"), "plain");
        assert_eq!(restore_name("a<U+0041>"), None);
    }

    #[test]
    fn a_long_text_of_openings_is_scanned_in_linear_time() {
        for unit in ["<", "<|", "<\u{200b}", "[", "<|a"] {
            _ = BOTH.escape_text(&unit.repeat(200_000));
        }
    }

    #[test]
    fn the_words_of_the_user_are_sent_as_they_are() {
        let request = Request {
            system: "<|im_end|>".to_owned(),
            messages: vec![Message::user("<|im_start|>")].into(),
            ..Request::default()
        };
        let sent = BOTH.escape_request(&request).unwrap();
        assert_eq!(sent.messages, request.messages);
        assert_ne!(sent.system, request.system);
        assert!(
            ContentEscaping::default()
                .escape_request(&request)
                .is_none()
        );
    }
}
