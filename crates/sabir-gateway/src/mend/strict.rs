//! Whether a JSON value is strict JSON, while it comes.
//!
//! Supported: the JSON of RFC 8259, in any split. Unsupported: whether a key is given twice, which no syntax forbids.
//!
//! Every byte is looked at once; what is kept is one mark for each bracket that is open, and a bare word of at most [`WORD`] bytes.

/// The longest number that is read.
const WORD: usize = 1024;

/// A value so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strict {
    /// The closing brackets that are owed.
    open: Vec<u8>,
    place: Place,
    /// A number or a literal so far.
    word: String,
    /// Hexadecimal digits that an escape still needs.
    digits: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// A value must come.
    #[default]
    Value,
    /// A value or `]`.
    First,
    /// A key or `}`.
    FirstKey,
    Key,
    Colon,
    /// A value has ended.
    After,
    /// In a string, a key or not.
    Quoted(bool),
    Escaped(bool),
    Word,
    /// It is none.
    Broken,
}

impl Strict {
    /// Takes the next piece. Whether it may still become a value.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        for byte in text.bytes() {
            if self.place == Place::Broken {
                return false;
            }
            self.place = self.next(byte);
        }
        self.place != Place::Broken
    }

    /// Whether the value has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_empty() && self.place == Place::After
    }

    fn next(&mut self, byte: u8) -> Place {
        let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match (self.place, byte) {
            (Place::Quoted(key), b'"') if self.digits == 0 => {
                if key {
                    Place::Colon
                } else {
                    Place::After
                }
            }
            (Place::Quoted(key), b'\\') if self.digits == 0 => Place::Escaped(key),
            (Place::Quoted(key), _) if self.digits > 0 => {
                self.digits -= 1;
                if byte.is_ascii_hexdigit() { Place::Quoted(key) } else { Place::Broken }
            }
            (Place::Quoted(_), ..0x20) => Place::Broken,
            (Place::Quoted(key), _) => Place::Quoted(key),
            (Place::Escaped(key), b'u') => {
                self.digits = 4;
                Place::Quoted(key)
            }
            (Place::Escaped(key), b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Place::Quoted(key),
            (Place::Word, b',' | b']' | b'}') => {
                self.place = self.end_word();
                self.next(byte)
            }
            (Place::Word, _) if blank => self.end_word(),
            (Place::Word, b'+' | b'-' | b'.') => self.letter(byte),
            (Place::Word, _) if byte.is_ascii_alphanumeric() => self.letter(byte),
            (place, _) if blank && place != Place::Word => place,
            (Place::Value | Place::First, b'{') => self.enter(b'}', Place::FirstKey),
            (Place::Value | Place::First, b'[') => self.enter(b']', Place::First),
            (Place::Value | Place::First, b'"') => Place::Quoted(false),
            (Place::Value | Place::First, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => self.letter(byte),
            (Place::FirstKey | Place::Key, b'"') => Place::Quoted(true),
            (Place::Colon, b':') => Place::Value,
            (Place::After, b',') => match self.open.last() {
                Some(b'}') => Place::Key,
                Some(_) => Place::Value,
                None => Place::Broken,
            },
            (Place::After | Place::First | Place::FirstKey, b']' | b'}') if self.open.pop() == Some(byte) => {
                Place::After
            }
            _ => Place::Broken,
        }
    }

    fn enter(&mut self, close: u8, place: Place) -> Place {
        self.open.push(close);
        place
    }

    fn letter(&mut self, byte: u8) -> Place {
        self.word.push(char::from(byte));
        if self.word.len() > WORD { Place::Broken } else { Place::Word }
    }

    fn end_word(&mut self) -> Place {
        let word = std::mem::take(&mut self.word);
        let known = matches!(word.as_str(), "true" | "false" | "null");
        if known || serde_json::from_str::<serde_json::Number>(&word).is_ok() { Place::After } else { Place::Broken }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_strict(text: &str) -> bool {
        let mut strict = Strict::default();
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
            "1",
            "-1.5e3",
            "01",
            "true",
            "True",
            " ",
            "\n",
            "'",
        ];
        prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..12).prop_map(|pieces| pieces.concat())
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["1", "-0.5", "null", "\"x \\n \\u12ab\"", "true", "{}", "[]"]);
        let leaf = leaf.prop_map(str::to_owned);
        leaf.prop_recursive(4, 24, 4, |inner| {
            let list = prop::collection::vec(inner, 0..4);
            prop_oneof![
                list.clone().prop_map(|items| format!("[ {} ]", items.join(" ,"))),
                list.prop_map(|items| format!(
                    "{{{}}}",
                    items.iter().map(|item| format!("\"k\": {item}")).collect::<Vec<_>>().join(",")
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_says_what_a_parser_says(text in prop_oneof![texts(), values()]) {
            // Between brackets alone: a bare number has no end.
            let text = format!("[{text}]");
            prop_assert_eq!(is_strict(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
