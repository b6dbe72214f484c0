//! Sets of bytes: at which bytes prose must be looked at, and what names begin with.
//!
//! They are asked for nearly every byte of a text, so each is a table or one number.

/// At which bytes prose must be looked at, by byte.
#[derive(Debug, Clone)]
pub(crate) struct Triggers([u8; 256]);

/// Anywhere.
const ANYWHERE: u8 = 1;
/// At the start of a word.
const WORD: u8 = 2;
/// At the start of a line or of what follows a call or a thought.
const LINE: u8 = 4;
/// Prose itself wants to see it: backticks, backslashes, the ends of lines.
const OWN: u8 = 8;

impl Default for Triggers {
    fn default() -> Self {
        let mut made = Self([0; 256]);
        b"`\\\n".iter().for_each(|byte| made.set(*byte, OWN));
        made
    }
}

impl Triggers {
    /// Whether prose must be looked at here; `before` is the byte before.
    pub(crate) fn stop(&self, byte: u8, before: u8, fresh: bool) -> bool {
        let class = self.class(byte);
        class & ANYWHERE != 0 || (class & LINE != 0 && fresh) || (class & WORD != 0 && !before.is_ascii_alphanumeric())
    }

    /// Whether the byte means nothing in the middle of a line.
    pub(crate) fn is_plain(&self, byte: u8) -> bool {
        self.class(byte) & !LINE == 0
    }

    /// Whether prose itself wants to see the byte.
    pub(crate) fn is_own(&self, byte: u8) -> bool {
        self.class(byte) & OWN != 0
    }

    fn class(&self, byte: u8) -> u8 {
        self.0.get(usize::from(byte)).copied().unwrap_or(0)
    }

    fn set(&mut self, byte: u8, class: u8) {
        if let Some(known) = self.0.get_mut(usize::from(byte)) {
            *known |= class;
        }
    }

    pub(crate) fn add(&mut self, byte: u8) {
        self.set(byte, if byte.is_ascii_alphanumeric() { WORD } else { ANYWHERE });
    }

    pub(crate) fn add_at_line_start(&mut self, byte: u8) {
        self.set(byte, LINE);
    }
}

/// A set of bytes, in which all beyond ASCII count as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Letters(u128);

impl Letters {
    pub(crate) fn add(&mut self, text: &str) {
        if let Some(byte) = text.as_bytes().first() {
            self.0 |= 1 << byte.min(&127);
        }
    }

    pub(crate) fn has(self, byte: u8) -> bool {
        self.0 >> byte.min(127) & 1 == 1
    }
}
