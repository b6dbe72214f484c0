//! Detects whether a raw value begins with a line feed.
//!
//! Only such a value must be held back: the line feed belongs to the dialect's wrapper if another
//! one comes before the closing tag, and to the value otherwise. Any other value is certain from
//! its first byte on. The events of a value leave the line feed out, but the source text, which
//! arrives before them, contains it.

/// The part of a response's source text that shows how the last opened value begins.
#[derive(Debug, Default)]
pub(crate) struct ValueStart {
    /// The length of the text so far.
    end: usize,
    /// The last piece of the text.
    piece: String,
    /// The value's call, and the offset of its first byte.
    value: Option<(u32, usize)>,
    /// The value's first byte, once it has arrived.
    first: Option<u8>,
}

impl ValueStart {
    /// Takes the next piece of the source.
    pub(crate) fn push(&mut self, text: &str) {
        if let (Some((_, at)), None) = (self.value, self.first) {
            self.first = at
                .checked_sub(self.end)
                .and_then(|at| text.as_bytes().get(at))
                .copied();
        }
        self.end = self.end.saturating_add(text.len());
        self.piece.clear();
        self.piece.push_str(text);
    }

    /// Records that a value opens in that call, with its first byte at offset `at`.
    pub(crate) fn open_value(&mut self, index: u32, at: usize) {
        self.value = Some((index, at));
        // The source comes before the events, so the first byte may be in the last piece already.
        let from = self.end.saturating_sub(self.piece.len());
        self.first = at
            .checked_sub(from)
            .and_then(|at| self.piece.as_bytes().get(at))
            .copied();
    }

    /// Returns true if the open value of that call certainly begins without a line feed.
    pub(crate) fn starts_without_line_feed(&self, index: u32) -> bool {
        let open = self.value.is_some_and(|(open, _)| open == index);
        open && self
            .first
            .is_some_and(|first| !matches!(first, b'\n' | b'\r'))
    }
}
