//! Implements a text buffer that takes one pointer while it is empty.

use std::ops::Deref;

/// A rarely used text buffer.
#[derive(Debug, Default)]
pub(super) struct LazyBuffer(Option<Box<BufferText>>);

#[derive(Debug, Default)]
struct BufferText {
    text: String,
}

impl LazyBuffer {
    pub(super) fn push_str(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.get_or_insert_default().text.push_str(text);
        }
    }

    /// Clears the text and keeps its memory for reuse.
    pub(super) fn clear(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.text.clear();
        }
    }

    /// Clears the text and releases its memory.
    pub(super) fn release_memory(&mut self) {
        self.0 = None;
    }
}

impl Deref for LazyBuffer {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_ref().map_or("", |kept| &kept.text)
    }
}
