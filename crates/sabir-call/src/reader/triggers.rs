//! Sets of bytes: at which bytes prose must be looked at, and what names begin with.
//!
//! They are asked for nearly every byte of a text, so each is a table or one number.

/// At which bytes prose must be looked at, by byte.
#[derive(Debug, Clone)]
pub(crate) struct TriggerTable([u8; 256]);

/// Anywhere.
const ANYWHERE: u8 = 1;
/// At the start of a word.
const WORD: u8 = 2;
/// At the start of a line or of what follows a call or a thought.
const LINE: u8 = 4;
/// Prose itself wants to see it: backticks, backslashes, the ends of lines.
const OWN: u8 = 8;

impl Default for TriggerTable {
    fn default() -> Self {
        let mut made = Self([0; 256]);
        b"`\\\n".iter().for_each(|byte| made.add_class(*byte, OWN));
        made
    }
}

impl TriggerTable {
    /// Whether prose must be looked at here; `before` is the byte before.
    pub(crate) fn is_trigger(&self, byte: u8, before: u8, fresh: bool) -> bool {
        let class = self.byte_class(byte);
        class & ANYWHERE != 0 || (class & LINE != 0 && fresh) || (class & WORD != 0 && !before.is_ascii_alphanumeric())
    }

    /// Whether the byte means nothing in the middle of a line.
    pub(crate) fn is_plain(&self, byte: u8) -> bool {
        self.byte_class(byte) & !LINE == 0
    }

    /// Whether prose itself wants to see the byte.
    pub(crate) fn is_prose_byte(&self, byte: u8) -> bool {
        self.byte_class(byte) & OWN != 0
    }

    fn byte_class(&self, byte: u8) -> u8 {
        self.0.get(usize::from(byte)).copied().unwrap_or(0)
    }

    fn add_class(&mut self, byte: u8, class: u8) {
        if let Some(known) = self.0.get_mut(usize::from(byte)) {
            *known |= class;
        }
    }

    pub(crate) fn add_byte(&mut self, byte: u8) {
        self.add_class(byte, if byte.is_ascii_alphanumeric() { WORD } else { ANYWHERE });
    }

    pub(crate) fn add_at_line_start(&mut self, byte: u8) {
        self.add_class(byte, LINE);
    }
}

/// A set of bytes, in which all beyond ASCII count as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstLetters(u128);

impl FirstLetters {
    pub(crate) fn add_first_letter(&mut self, text: &str) {
        if let Some(byte) = text.as_bytes().first() {
            self.0 |= 1 << byte.min(&127);
        }
    }

    pub(crate) fn has_letter(self, byte: u8) -> bool {
        self.0 >> byte.min(127) & 1 == 1
    }
}
