//! Computes fingerprints of calls, to find duplicates without keeping the calls.
//!
//! A fingerprint is computed while a call is sent. It does not depend on how the text was split, on
//! the order of the arguments, or on white space in JSON. Two calls with the same fingerprint are
//! duplicates. Its 64 bits are enough, because only calls of the same tool are compared that
//! already look like duplicates.

use std::hash::{DefaultHasher, Hasher};

use serde_json::{Map, Value};

/// The fingerprint of a call's arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallFingerprint {
    /// The wrapping sum of the arguments' hashes.
    sum: u64,
    /// The number of arguments.
    count: u64,
}

/// The fingerprint of one argument, computed while it arrives.
#[derive(Debug, Clone)]
pub(crate) struct ArgumentFingerprint {
    /// The hash of the name and of the value so far.
    hash: DefaultHasher,
    /// The position in the JSON text; `None` if the argument is a string.
    json: Option<JsonPosition>,
}

/// The position in a JSON text, as far as white space is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonPosition {
    /// Outside of strings, where white space means nothing.
    Between,
    /// In a string, where every byte counts.
    Quoted,
    /// After a backslash in a string.
    Escaped,
}

impl CallFingerprint {
    /// Computes the fingerprint of complete arguments.
    pub(crate) fn of_arguments(arguments: &Map<String, Value>) -> Self {
        let mut print = Self::default();
        for (name, value) in arguments {
            print.add_argument(&ArgumentFingerprint::of_value(name, value));
        }
        print
    }

    /// Adds an argument.
    pub(crate) fn add_argument(&mut self, argument: &ArgumentFingerprint) {
        // A sum does not depend on the order of the arguments.
        self.sum = self.sum.wrapping_add(argument.hash.finish());
        self.count += 1;
    }
}

impl ArgumentFingerprint {
    /// Begins the fingerprint of a string.
    pub(crate) fn for_string(name: &str) -> Self {
        Self::new(name, None)
    }

    /// Begins the fingerprint of a JSON value.
    pub(crate) fn for_json(name: &str) -> Self {
        Self::new(name, Some(JsonPosition::Between))
    }

    /// Computes the fingerprint of a complete value.
    pub(crate) fn of_value(name: &str, value: &Value) -> Self {
        let mut print = if value.is_string() {
            Self::for_string(name)
        } else {
            Self::for_json(name)
        };
        match value {
            Value::String(text) => print.push(text),
            other => print.push(&other.to_string()),
        }
        print
    }

    /// Begins a fingerprint with the name and the kind of the value.
    fn new(name: &str, json: Option<JsonPosition>) -> Self {
        let mut hash = DefaultHasher::new();
        hash.write(name.as_bytes());
        // The byte 0xff never occurs in a name, so it marks its end. The byte after it
        // distinguishes the string `10` from the number 10.
        hash.write(if json.is_some() {
            &[0xff, 1]
        } else {
            &[0xff, 0]
        });
        Self { hash, json }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, text: &str) {
        let Some(mut place) = self.json else {
            return self.hash.write(text.as_bytes());
        };
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
    fn equal_arguments_have_one_fingerprint() {
        assert_eq!(
            print(json!({"a": "x", "b": [1, 2]})),
            print(json!({"b": [1, 2], "a": "x"}))
        );
        for other in [
            json!({"a": "x"}),
            json!({"a": "x", "b": "[1,2]"}),
            json!({"a": "x", "b": [2, 1]}),
            json!({}),
        ] {
            assert_ne!(print(json!({"a": "x", "b": [1, 2]})), print(other));
        }
    }

    #[test]
    fn fingerprints_ignore_chunks_and_white_space() {
        let text = r#"[ {"a b": "x \" y"},
            2 ]"#;
        let mut pieces = ArgumentFingerprint::for_json("l");
        text.chars().for_each(|c| pieces.push(&c.to_string()));
        let mut print = CallFingerprint::default();
        print.add_argument(&pieces);
        assert_eq!(
            print,
            CallFingerprint::of_arguments(
                json!({"l": [{"a b": "x \" y"}, 2]}).as_object().unwrap()
            )
        );
    }
}
