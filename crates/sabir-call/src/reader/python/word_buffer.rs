//! Words: names, keys and literals such as `True`, which may come a byte at a time.

use crate::reader::buffer::LazyBuffer;

/// The longest word in bytes.
pub(in crate::reader) const WORD_CAP: usize = 256;

/// A word that is being read.
#[derive(Debug, Default)]
pub(in crate::reader) struct WordBuffer {
    text: LazyBuffer,
}

/// How a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum WordEnd {
    /// It may go on.
    Open,
    /// Something else follows.
    Here,
    /// It is longer than [`WORD_CAP`].
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

    /// Forgets the word and gives its memory back.
    pub(in crate::reader) fn release_memory(&mut self) {
        self.text.release_memory();
    }

    /// Adds as much of a text to the word as it holds: how many bytes, wherever the text was cut into chunks.
    pub(in crate::reader) fn push(&mut self, text: &str) -> usize {
        let fits = text.floor_char_boundary(WORD_CAP.saturating_sub(self.text.len()));
        self.text.push_str(text.get(..fits).unwrap_or_default());
        fits
    }

    /// Takes what belongs to the word from the start of `rest`: how many bytes, and whether that is its end.
    pub(in crate::reader) fn take_word(&mut self, rest: &str, belongs: impl Fn(u8) -> bool) -> (usize, WordEnd) {
        let taken = rest.bytes().take_while(|byte| belongs(*byte)).count();
        let room = WORD_CAP - self.text.len().min(WORD_CAP);
        if taken > room {
            // The same bytes wherever the text was cut into chunks.
            let taken = rest.floor_char_boundary(room);
            self.text.push_str(rest.get(..taken).unwrap_or_default());
            return (taken, WordEnd::TooLong);
        }
        self.text.push_str(rest.get(..taken).unwrap_or_default());
        (taken, if taken == rest.len() { WordEnd::Open } else { WordEnd::Here })
    }
}

/// What a tool's or an argument's name is made of. More than Python allows: tools have names such as `server.tool-name`.
pub(in crate::reader) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80
}

/// What a literal or the prefix of a string is made of.
pub(in crate::reader) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// What stands at the start of `rest` in place of what was expected, in words, and its length.
pub(in crate::reader) fn describe_found(rest: &str) -> (String, usize) {
    let c = rest.chars().next().unwrap_or_default();
    let shown = if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    (format!("found `{shown}`"), c.len_utf8())
}

/// White space between things.
pub(in crate::reader) fn whitespace_len(rest: &str) -> usize {
    rest.bytes().take_while(u8::is_ascii_whitespace).count()
}
