//! Defines keys that cannot be printed by accident.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A key or token. It has no `Serialize`, and neither `Debug` nor `Display` shows it. It can be deserialized, and an error of that does not
/// show it either.
///
/// ```
/// let key = sabir_model::Secret::new("sk-very-secret");
/// assert_eq!(format!("{key} {key:?}"), "[secret] [secret]");
/// assert_eq!(key.redact("wrong key sk-very-secret!"), "wrong key [secret]!");
/// ```
///
/// ```compile_fail
/// serde_json::to_string(&sabir_model::Secret::new("sk-very-secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The length in bytes below which a secret is not searched for in texts, because it would match by
/// chance.
pub(crate) const MIN_SECRET_BYTES: usize = 6;

impl Secret {
    /// Wraps a key, without the white space around it that copying often adds.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// Returns the key itself, for sending it.
    ///
    /// The result must not be logged, formatted into a message, or stored.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns true if the key is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the key in a text.
    ///
    /// A key shorter than six bytes is not replaced: it would match ordinary words by chance. Nor is a part of the key: a server that
    /// repeats the text of a client would then reveal how much of a guess was right.
    pub fn redact(&self, text: &str) -> String {
        if self.0.len() < MIN_SECRET_BYTES {
            text.to_owned()
        } else {
            text.replace(&self.0, "[secret]")
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde's own error would quote the value that it found.
        let key = String::deserialize(deserializer);
        key.map(Self::new)
            .map_err(|_| serde::de::Error::custom("a key must be a text in quotes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_and_a_wrong_guess_of_a_key_look_the_same() {
        let key = Secret::new("sk-proj-abcdefgh");
        for text in ["sk-proj-a~", "sk-proj-b~", "sk-proj-abcdefg~"] {
            assert_eq!(key.redact(text), text);
        }
        assert_eq!(key.redact("sk-proj-abcdefgh~"), "[secret]~");
    }

    #[test]
    fn no_formatting_shows_the_secret() {
        let key = Secret::new(" sk-hush-123 ");
        assert_eq!(key.expose(), "sk-hush-123");
        let holder = Some(vec![("x", key.clone())]);
        let panic = std::panic::catch_unwind(|| panic!("{:?}", Err::<(), _>(&key))).unwrap_err();
        let panic = panic.downcast_ref::<String>().cloned().unwrap();
        let wrong = serde_json::from_str::<Secret>("123456789")
            .unwrap_err()
            .to_string();
        for shown in [
            format!("{holder:?} {holder:#?}"),
            key.to_string(),
            format!("{key:>40}"),
            panic,
            wrong,
        ] {
            assert!(!shown.contains("hush") && !shown.contains("123"), "{shown}");
        }
    }
}
