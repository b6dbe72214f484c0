//! Reads words: names, keys, and literals such as `True`, possibly split between chunks.

use crate::reader::buffer::LazyBuffer;

/// The maximum length of a word, in bytes.
pub(in crate::reader) const WORD_CAP: usize = 256;

/// The word that is being read.
#[derive(Debug, Default)]
pub(in crate::reader) struct WordBuffer {
    text: LazyBuffer,
}

/// The state of a word after reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum WordEnd {
    /// The word may continue.
    Open,
    /// The word ends here.
    Here,
    /// The word is longer than [`WORD_CAP`].
    TooLong,
}

impl WordBuffer {
    pub(in crate::reader) fn as_str(&self) -> &str {
        &self.text
    }

    pub(in crate::reader) fn len(&self) -> usize {
        self.text.len()
    }

    pub(in crate::reader) fn clear(&mut self) {
        self.text.clear();
    }

    /// Clears the word and releases its memory.
    pub(in crate::reader) fn release_memory(&mut self) {
        self.text.release_memory();
    }

    /// Appends text up to the limit. Returns the number of bytes appended, which does not depend on
    /// the chunks.
    pub(in crate::reader) fn push(&mut self, text: &str) -> usize {
        let fits = text.floor_char_boundary(WORD_CAP.saturating_sub(self.text.len()));
        self.text.push_str(text.get(..fits).unwrap_or_default());
        fits
    }

    /// Reads the part of `rest` that belongs to the word. Returns its length, and the state of the
    /// word.
    pub(in crate::reader) fn take_word(
        &mut self,
        rest: &str,
        belongs: impl Fn(u8) -> bool,
    ) -> (usize, WordEnd) {
        let taken = rest.bytes().take_while(|byte| belongs(*byte)).count();
        let room = WORD_CAP - self.text.len().min(WORD_CAP);
        if taken > room {
            // The limit is counted over all chunks, so the result does not depend on them.
            let taken = rest.floor_char_boundary(room);
            self.text.push_str(rest.get(..taken).unwrap_or_default());
            return (taken, WordEnd::TooLong);
        }
        self.text.push_str(rest.get(..taken).unwrap_or_default());
        (
            taken,
            if taken == rest.len() {
                WordEnd::Open
            } else {
                WordEnd::Here
            },
        )
    }
}

/// Returns true for bytes of a tool's or an argument's name. More than Python allows: tools have
/// names such as `server.tool-name`.
pub(in crate::reader) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80
}

/// Returns true for bytes of a literal or of a string's prefix.
pub(in crate::reader) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Describes the text at the start of `rest`, for messages, and returns its length.
pub(in crate::reader) fn describe_found(rest: &str) -> (String, usize) {
    let c = rest.chars().next().unwrap_or_default();
    let shown = if c.is_control() {
        c.escape_debug().to_string()
    } else {
        c.to_string()
    };
    (format!("found `{shown}`"), c.len_utf8())
}

/// Returns the length of white space at the start.
pub(in crate::reader) fn whitespace_len(rest: &str) -> usize {
    rest.bytes().take_while(u8::is_ascii_whitespace).count()
}
