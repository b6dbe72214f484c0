//! How a raw value begins: whether a line feed was skipped behind its opening tag.
//!
//! Only such a value has something to wait for: the line feed is content if none stands before the closing tag, and the dialect's
//! wrapper if one does. Any other value is certain from its first byte on. The events of a value leave the line feed out; it is
//! found in the source, which comes ahead of them.

/// The text of an answer, as far as it tells how the value begins that was opened last.
#[derive(Debug, Default)]
pub(crate) struct ValueStart {
    /// Where the text ends so far.
    end: usize,
    /// Its last piece.
    piece: String,
    /// The call and the place of the value's first byte.
    value: Option<(u32, usize)>,
    first: Option<u8>,
}

impl ValueStart {
    /// Takes the next piece of the source.
    pub(crate) fn push(&mut self, text: &str) {
        if let (Some((_, at)), None) = (self.value, self.first) {
            self.first = at.checked_sub(self.end).and_then(|at| text.as_bytes().get(at)).copied();
        }
        self.end = self.end.saturating_add(text.len());
        self.piece.clear();
        self.piece.push_str(text);
    }

    /// A value opens in that call, whose first byte stands there.
    pub(crate) fn open_value(&mut self, index: u32, at: usize) {
        self.value = Some((index, at));
        let from = self.end.saturating_sub(self.piece.len());
        self.first = at.checked_sub(from).and_then(|at| self.piece.as_bytes().get(at)).copied();
    }

    /// Whether the value that is open in that call is known to begin with no line feed.
    pub(crate) fn starts_plain(&self, index: u32) -> bool {
        let open = self.value.is_some_and(|(open, _)| open == index);
        open && self.first.is_some_and(|first| !matches!(first, b'\n' | b'\r'))
    }
}
