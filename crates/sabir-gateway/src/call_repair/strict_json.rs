//! Checks incrementally that a value is strict JSON.
//!
//! Supported: the JSON of RFC 8259, in any split. Unsupported: duplicate keys, which the grammar
//! allows.
//!
//! Every byte is visited once. The state is one byte for each open bracket, and a bare word of at
//! most [`MAX_WORD_BYTES`] bytes.

/// The longest number or literal in bytes.
const MAX_WORD_BYTES: usize = 1024;

/// The state of checking one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct StrictJson {
    /// The closing brackets of all open arrays and objects.
    open: Vec<u8>,
    /// The position in the text.
    state: JsonState,
    /// The number or literal so far.
    word: String,
    /// The number of hexadecimal digits that an escape still needs.
    digits: u8,
}

/// The position in a JSON text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JsonState {
    /// Before a value.
    #[default]
    Value,
    /// After `[`: before a value or `]`.
    First,
    /// After `{`: before a key or `}`.
    FirstKey,
    /// After a comma in an object: before a key.
    Key,
    /// After a key: before the colon.
    Colon,
    /// After a value.
    After,
    /// In a string; true for a key.
    Quoted(bool),
    /// After a backslash in a string; true for a key.
    Escaped(bool),
    /// In a number or a literal.
    Word,
    /// The text is not strict JSON.
    Broken,
}

impl StrictJson {
    /// Takes the next piece. Returns false if the text can no longer become a value.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        for byte in text.bytes() {
            if self.state == JsonState::Broken {
                return false;
            }
            self.state = self.next_state(byte);
        }
        self.state != JsonState::Broken
    }

    /// Returns true if the value is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_empty() && self.state == JsonState::After
    }

    /// Returns the state after a byte.
    fn next_state(&mut self, byte: u8) -> JsonState {
        let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match (self.state, byte) {
            (JsonState::Quoted(key), b'"') if self.digits == 0 => {
                if key {
                    JsonState::Colon
                } else {
                    JsonState::After
                }
            }
            (JsonState::Quoted(key), b'\\') if self.digits == 0 => JsonState::Escaped(key),
            (JsonState::Quoted(key), _) if self.digits > 0 => {
                self.digits -= 1;
                if byte.is_ascii_hexdigit() {
                    JsonState::Quoted(key)
                } else {
                    JsonState::Broken
                }
            }
            // Control characters must be escaped; many models write a raw line feed here.
            (JsonState::Quoted(_), ..0x20) => JsonState::Broken,
            (JsonState::Quoted(key), _) => JsonState::Quoted(key),
            (JsonState::Escaped(key), b'u') => {
                self.digits = 4;
                JsonState::Quoted(key)
            }
            (JsonState::Escaped(key), b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                JsonState::Quoted(key)
            }
            // A number has no closing character: the next byte ends it and is then handled again.
            (JsonState::Word, b',' | b']' | b'}') => {
                self.state = self.end_word();
                self.next_state(byte)
            }
            (JsonState::Word, _) if blank => self.end_word(),
            (JsonState::Word, b'+' | b'-' | b'.') => self.push_word_byte(byte),
            (JsonState::Word, _) if byte.is_ascii_alphanumeric() => self.push_word_byte(byte),
            // White space may separate tokens, but a backslash must be followed by the escaped
            // character.
            (JsonState::Escaped(_), _) => JsonState::Broken,
            (state, _) if blank => state,
            (JsonState::Value | JsonState::First, b'{') => {
                self.open_bracket(b'}', JsonState::FirstKey)
            }
            (JsonState::Value | JsonState::First, b'[') => {
                self.open_bracket(b']', JsonState::First)
            }
            (JsonState::Value | JsonState::First, b'"') => JsonState::Quoted(false),
            (JsonState::Value | JsonState::First, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.push_word_byte(byte)
            }
            (JsonState::FirstKey | JsonState::Key, b'"') => JsonState::Quoted(true),
            (JsonState::Colon, b':') => JsonState::Value,
            // A comma before a bracket is not JSON, so a key or a value must follow.
            (JsonState::After, b',') => match self.open.last() {
                Some(b'}') => JsonState::Key,
                Some(_) => JsonState::Value,
                None => JsonState::Broken,
            },
            (JsonState::After | JsonState::First | JsonState::FirstKey, b']' | b'}')
                if self.open.pop() == Some(byte) =>
            {
                JsonState::After
            }
            _ => JsonState::Broken,
        }
    }

    /// Opens an array or object that `close` ends.
    fn open_bracket(&mut self, close: u8, state: JsonState) -> JsonState {
        self.open.push(close);
        state
    }

    /// Adds a byte of a number or literal, up to the limit.
    fn push_word_byte(&mut self, byte: u8) -> JsonState {
        self.word.push(char::from(byte));
        if self.word.len() > MAX_WORD_BYTES {
            JsonState::Broken
        } else {
            JsonState::Word
        }
    }

    /// Checks a complete number or literal.
    fn end_word(&mut self) -> JsonState {
        let word = std::mem::take(&mut self.word);
        let known = matches!(word.as_str(), "true" | "false" | "null");
        if known || serde_json::from_str::<serde_json::Number>(&word).is_ok() {
            JsonState::After
        } else {
            JsonState::Broken
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn is_strict(text: &str) -> bool {
        let mut strict = StrictJson::default();
        text.chars().all(|c| strict.push(&c.to_string())) && strict.is_whole()
    }

    fn texts() -> impl Strategy<Value = String> {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\u00e9\"",
            "\"\\x\"",
            "\"\\ n\"",
            "1",
            "-1.5e3",
            "01",
            "true",
            "True",
            " ",
            "\n",
            "'",
        ];
        prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..12)
            .prop_map(|pieces| pieces.concat())
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "1",
            "-0.5",
            "null",
            "\"x \\n \\u12ab\"",
            "true",
            "{}",
            "[]",
        ]);
        let leaf = leaf.prop_map(str::to_owned);
        leaf.prop_recursive(4, 24, 4, |inner| {
            let list = prop::collection::vec(inner, 0..4);
            prop_oneof![
                list.clone()
                    .prop_map(|items| format!("[ {} ]", items.join(" ,"))),
                list.prop_map(|items| format!(
                    "{{{}}}",
                    items
                        .iter()
                        .map(|item| format!("\"k\": {item}"))
                        .collect::<Vec<_>>()
                        .join(",")
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_parser(text in prop_oneof![texts(), values()]) {
            // In brackets, since a bare number has no end. Parsed as a `Value`, which rejects
            // numbers out of range.
            let text = format!("[{text}]");
            prop_assert_eq!(is_strict(&text), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
        }
    }
}
