//! Text that is kept now and then: a pointer while there is none.

use std::ops::Deref;

/// Text that is kept.
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

    /// Forgets the text and keeps its memory, for the next.
    pub(super) fn clear(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.text.clear();
        }
    }

    /// Forgets the text and gives its memory back.
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
