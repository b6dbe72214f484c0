//! Keys that cannot be printed.

use std::fmt;

/// A key or token. It has no `Serialize`, and neither `Debug` nor `Display` shows it.
///
/// ```
/// let key = sabir_model::Secret::new("sk-very-secret");
/// assert_eq!(format!("{key} {key:?}"), "[secret] [secret]");
/// assert_eq!(key.redact("wrong key sk-very-secret!"), "wrong key [secret]!");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Secrets shorter than this are not searched for in other texts: they would match by chance.
const SHORTEST: usize = 6;

impl Secret {
    /// Takes a key; white space around it, which comes with copying, is dropped.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// The key itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without the key.
    pub fn redact(&self, text: &str) -> String {
        if self.0.len() < SHORTEST { text.to_owned() } else { text.replace(&self.0, "[secret]") }
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
