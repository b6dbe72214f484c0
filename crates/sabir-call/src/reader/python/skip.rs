//! The rest of a region in which a mistake stands: what is passed over, and where it ends.
//!
//! Behind a mistake nothing is read any more: a string with a quote too many would make calls out of its content. Where a
//! marker closes the region, that marker ends it. Elsewhere its brackets do, with strings left out: a double quote opens
//! one, and a single quote does where it is no apostrophe.

use super::text::starts_with_marker;

/// Passes over the rest.
#[derive(Debug)]
pub(in crate::reader) struct RegionSkipper {
    close: &'static str,
    /// Brackets that are still open.
    depth: usize,
    /// Inside a string: its quote, and whether three of them end it.
    quote: Option<(u8, bool)>,
    /// Behind a backslash.
    escaped: bool,
    /// The byte before.
    before: u8,
}

impl RegionSkipper {
    /// Up to the marker, or where there is none up to the end of so many brackets. Whether a word stands before it says
    /// what a single quote right there means.
    pub(in crate::reader) fn new(close: &'static str, depth: usize, word: bool) -> Self {
        Self { close, depth, quote: None, escaped: false, before: if word { b'w' } else { b' ' } }
    }

    /// How many bytes to take, and whether the region is over there.
    pub(in crate::reader) fn skip_text(&mut self, text: &str) -> (usize, bool) {
        if self.close.is_empty() { self.skip_brackets(text) } else { self.skip_to_marker(text) }
    }

    fn skip_to_marker(&self, text: &str) -> (usize, bool) {
        if let Some(at) = text.find(self.close) {
            return (at + self.close.len(), true);
        }
        let held = (1..self.close.len()).rev().find(|len| text.ends_with(self.close.get(..*len).unwrap_or_default()));
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
                Some((quote, triple)) if byte == quote => match closing_quote_len(rest, quote, triple) {
                    None => return (at, false),
                    Some(0) => {}
                    Some(whole) => (self.quote, len) = (None, whole),
                },
                Some(_) => {}
                None if byte == b'"'
                    || (byte == b'\'' && !self.before.is_ascii_alphanumeric() && self.before < 0x80) =>
                {
                    match closing_quote_len(rest, byte, true) {
                        None => return (at, false),
                        Some(0) => self.quote = Some((byte, false)),
                        Some(whole) => (self.quote, len) = (Some((byte, true)), whole),
                    }
                }
                None if matches!(byte, b'(' | b'[' | b'{') => self.depth = self.depth.saturating_add(1),
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
            // Only whole characters are looked at.
            while !text.is_char_boundary(at) {
                at += 1;
            }
        }
        (at, false)
    }
}

/// The length of the quote that ends a string here; 0: none does.
fn closing_quote_len(rest: &str, quote: u8, triple: bool) -> Option<usize> {
    let marker = match (triple, quote) {
        (false, _) => return Some(1),
        (true, b'"') => "\"\"\"",
        (true, _) => "'''",
    };
    starts_with_marker(rest, marker).map(|yes| if yes { marker.len() } else { 0 })
}
