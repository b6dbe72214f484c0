//! Files as text, without loss: what a file's bytes say, and how to write other words in the same way.
//!
//! Supported: UTF-8, with or without a byte order mark.
//!
//! Unsupported: bytes that are not text; see [`NotText`].

/// The content of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// What it says, line endings as they are, the byte order mark left out.
    pub content: String,
    /// How it is written in bytes.
    pub encoding: Encoding,
}

/// How text is written in bytes. `decode` then `encode` gives the same bytes for every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 behind a byte order mark.
    Utf8Mark,
}

/// Why bytes are no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotText {
    /// They hold a NUL, or are in no encoding that is known.
    #[error("it is binary: byte {at} is none that text has")]
    Binary {
        /// The first byte that says so, counted from 0.
        at: usize,
    },
}

/// A character that an encoding does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{character:?} cannot be written in {encoding}, in which the file is")]
pub struct NotInEncoding {
    /// The character.
    pub character: char,
    /// The encoding's name.
    pub encoding: &'static str,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

impl Text {
    /// Reads bytes as text.
    ///
    /// # Errors
    /// [`NotText`] for bytes that no supported encoding gives back unchanged.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        let (bytes, encoding) = match bytes.strip_prefix(MARK) {
            Some(rest) => (rest, Encoding::Utf8Mark),
            None => (bytes, Encoding::Utf8),
        };
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return Err(NotText::Binary { at });
        }
        let content = std::str::from_utf8(bytes).map_err(|error| NotText::Binary { at: error.valid_up_to() })?;
        Ok(Self { content: content.to_owned(), encoding })
    }
}

impl Encoding {
    /// The name that people know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Mark => "UTF-8 with a byte order mark",
        }
    }

    /// Writes text in this encoding.
    ///
    /// # Errors
    /// The first character that it does not have.
    pub fn encode(self, content: &str) -> Result<Vec<u8>, NotInEncoding> {
        let mark = if self == Self::Utf8Mark { MARK } else { b"" };
        Ok([mark, content.as_bytes()].concat())
    }
}
