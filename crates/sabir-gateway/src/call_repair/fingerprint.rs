//! Twins: whether two calls say the same, without keeping what they say.
//!
//! A print is made while a call goes out. It does not depend on how the text was cut, on the order of the arguments, or on white
//! space in JSON. Two calls with one print are one call told twice; the prints are of 64 bits, and only calls of one tool that
//! already look like a repetition are compared.

use std::hash::{DefaultHasher, Hasher};

use serde_json::{Map, Value};

/// What the arguments of a call say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallFingerprint {
    sum: u64,
    count: u64,
}

/// What one argument says, while it comes.
#[derive(Debug, Clone)]
pub(crate) struct ArgumentFingerprint {
    hash: DefaultHasher,
    /// Where in the JSON the text stands; `None`: the argument is a string.
    json: Option<JsonPosition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonPosition {
    Between,
    Quoted,
    Escaped,
}

impl CallFingerprint {
    /// The print of arguments that are whole.
    pub(crate) fn of_arguments(arguments: &Map<String, Value>) -> Self {
        let mut print = Self::default();
        for (name, value) in arguments {
            print.add_argument(&ArgumentFingerprint::of_value(name, value));
        }
        print
    }

    /// Adds an argument.
    pub(crate) fn add_argument(&mut self, argument: &ArgumentFingerprint) {
        self.sum = self.sum.wrapping_add(argument.hash.finish());
        self.count += 1;
    }
}

impl ArgumentFingerprint {
    /// The print of a string of which nothing has come.
    pub(crate) fn for_string(name: &str) -> Self {
        Self::new(name, None)
    }

    /// The print of JSON of which nothing has come.
    pub(crate) fn for_json(name: &str) -> Self {
        Self::new(name, Some(JsonPosition::Between))
    }

    /// The print of a whole value.
    pub(crate) fn of_value(name: &str, value: &Value) -> Self {
        let mut print = if value.is_string() { Self::for_string(name) } else { Self::for_json(name) };
        match value {
            Value::String(text) => print.push(text),
            other => print.push(&other.to_string()),
        }
        print
    }

    fn new(name: &str, json: Option<JsonPosition>) -> Self {
        let mut hash = DefaultHasher::new();
        hash.write(name.as_bytes());
        hash.write(if json.is_some() { &[0xff, 1] } else { &[0xff, 0] });
        Self { hash, json }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, text: &str) {
        let Some(mut place) = self.json else { return self.hash.write(text.as_bytes()) };
        for byte in text.bytes() {
            let blank = place == JsonPosition::Between && byte.is_ascii_whitespace();
            place = match (place, byte) {
                (JsonPosition::Between, b'"') | (JsonPosition::Escaped, _) => JsonPosition::Quoted,
                (JsonPosition::Quoted, b'"') => JsonPosition::Between,
                (JsonPosition::Quoted, b'\\') => JsonPosition::Escaped,
                (place, _) => place,
            };
            if !blank {
                self.hash.write(&[byte]);
            }
        }
        self.json = Some(place);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print(value: Value) -> CallFingerprint {
        CallFingerprint::of_arguments(value.as_object().unwrap())
    }

    #[test]
    fn what_says_the_same_has_one_print() {
        assert_eq!(print(json!({"a": "x", "b": [1, 2]})), print(json!({"b": [1, 2], "a": "x"})));
        for other in [json!({"a": "x"}), json!({"a": "x", "b": "[1,2]"}), json!({"a": "x", "b": [2, 1]}), json!({})] {
            assert_ne!(print(json!({"a": "x", "b": [1, 2]})), print(other));
        }
    }

    #[test]
    fn pieces_and_white_space_make_no_difference() {
        let text = r#"[ {"a b": "x \" y"},
            2 ]"#;
        let mut pieces = ArgumentFingerprint::for_json("l");
        text.chars().for_each(|c| pieces.push(&c.to_string()));
        let mut print = CallFingerprint::default();
        print.add_argument(&pieces);
        assert_eq!(print, CallFingerprint::of_arguments(json!({"l": [{"a b": "x \" y"}, 2]}).as_object().unwrap()));
    }
}
