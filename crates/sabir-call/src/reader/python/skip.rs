//! Skips the rest of a region after a mistake.
//!
//! After a mistake nothing is parsed any more: a string with an extra quote would make calls out of
//! its content. If a marker closes the region, that marker ends it. Otherwise its brackets do,
//! ignoring strings: a double quote opens a string, and a single quote does unless it is an
//! apostrophe.

use super::text::starts_with_marker;

/// The state of skipping.
#[derive(Debug)]
pub(in crate::reader) struct RegionSkipper {
    close: &'static str,
    /// The number of open brackets.
    depth: usize,
    /// The open string's quote, and whether it is triple-quoted.
    quote: Option<(u8, bool)>,
    /// True after a backslash.
    escaped: bool,
    /// The preceding byte.
    before: u8,
}

impl RegionSkipper {
    /// Creates a skipper that stops at the marker, or without one at the end of that many brackets. `word` is true if a word precedes,
    /// after which a single quote is an apostrophe.
    pub(in crate::reader) fn new(close: &'static str, depth: usize, word: bool) -> Self {
        Self {
            close,
            depth,
            quote: None,
            escaped: false,
            before: if word { b'w' } else { b' ' },
        }
    }

    /// Returns the number of bytes to skip, and whether the region ends there.
    pub(in crate::reader) fn skip_text(&mut self, text: &str) -> (usize, bool) {
        if self.close.is_empty() {
            self.skip_brackets(text)
        } else {
            self.skip_to_marker(text)
        }
    }

    fn skip_to_marker(&self, text: &str) -> (usize, bool) {
        if let Some(at) = text.find(self.close) {
            return (at + self.close.len(), true);
        }
        // The text may end inside the marker; that part is not skipped yet.
        let held = (1..self.close.len())
            .rev()
            .find(|len| text.ends_with(self.close.get(..*len).unwrap_or_default()));
        (text.len() - held.unwrap_or(0), false)
    }

    fn skip_brackets(&mut self, text: &str) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let rest = text.get(at..).unwrap_or_default();
            let mut len = 1;
            match self.quote {
                Some(_) if self.escaped => self.escaped = false,
                Some(_) if byte == b'\\' => self.escaped = true,
                Some((quote, triple)) if byte == quote => {
                    match closing_quote_len(rest, quote, triple) {
                        None => return (at, false),
                        Some(0) => {}
                        Some(whole) => {
                            self.quote = None;
                            len = whole;
                        }
                    }
                }
                Some(_) => {}
                // A single quote after a letter or digit is an apostrophe.
                None if byte == b'"'
                    || (byte == b'\''
                        && !self.before.is_ascii_alphanumeric()
                        && self.before < 0x80) =>
                {
                    match closing_quote_len(rest, byte, true) {
                        None => return (at, false),
                        Some(0) => self.quote = Some((byte, false)),
                        Some(whole) => {
                            self.quote = Some((byte, true));
                            len = whole;
                        }
                    }
                }
                None if matches!(byte, b'(' | b'[' | b'{') => {
                    self.depth = self.depth.saturating_add(1)
                }
                None if matches!(byte, b')' | b']' | b'}') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                None => {}
            }
            self.before = byte;
            at += len;
            // `text.get` needs character boundaries.
            while !text.is_char_boundary(at) {
                at += 1;
            }
        }
        (at, false)
    }
}

/// Returns the length of the quote that ends a string here, or 0 if none does. `None` means that
/// more text is needed.
fn closing_quote_len(rest: &str, quote: u8, triple: bool) -> Option<usize> {
    let marker = match (triple, quote) {
        (false, _) => return Some(1),
        (true, b'"') => "\"\"\"",
        (true, _) => "'''",
    };
    starts_with_marker(rest, marker).map(|yes| if yes { marker.len() } else { 0 })
}
