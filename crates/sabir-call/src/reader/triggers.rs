//! Implements the byte sets that find possible markup in prose.
//!
//! They are consulted for nearly every byte of a text, so each is a table or a single number.

/// The bytes at which prose may contain markup, as classes by byte.
#[derive(Debug, Clone)]
pub(crate) struct TriggerTable([u8; 256]);

/// A trigger anywhere.
const ANYWHERE: u8 = 1;
/// A trigger at the start of a word.
const WORD: u8 = 2;
/// A trigger at the start of a line, or directly after a call or a thought.
const LINE: u8 = 4;
/// A trigger behind white space or the end of a sentence, and at the start of a line.
const BETWEEN_WORDS: u8 = 16;
/// A byte that prose tracking needs to see: backticks, backslashes, line ends.
const OWN: u8 = 8;
/// A straight quotation mark, which may begin or end a string.
const QUOTE: u8 = 32;

impl Default for TriggerTable {
    fn default() -> Self {
        let mut made = Self([0; 256]);
        b"`\\\n".iter().for_each(|byte| made.add_class(*byte, OWN));
        b"\"'".iter().for_each(|byte| made.add_class(*byte, QUOTE));
        made
    }
}

impl TriggerTable {
    /// Returns true if markup may begin at this byte; `before` is the preceding byte.
    pub(crate) fn is_trigger(&self, byte: u8, before: u8, fresh: bool) -> bool {
        let class = self.byte_class(byte);
        // In the middle of a word or number, most triggers cannot begin markup.
        class & ANYWHERE != 0
            || (class & LINE != 0 && fresh)
            || (class & BETWEEN_WORDS != 0 && (fresh || is_between_words(before)))
            || (class & WORD != 0 && !before.is_ascii_alphanumeric())
    }

    /// Counts the bytes from the start up to one that may have a meaning in the middle of a line. Returns whether straight quotation
    /// marks are among them as well.
    pub(crate) fn count_plain(&self, bytes: &[u8]) -> (usize, bool) {
        let mut seen = 0;
        let is_stop = |byte: &u8| {
            let class = self.byte_class(*byte);
            seen |= class;
            class & !(LINE | QUOTE) != 0
        };
        let length = bytes.iter().position(is_stop).unwrap_or(bytes.len());
        (length, seen & QUOTE != 0)
    }

    /// Returns true if prose tracking needs to see the byte.
    pub(crate) fn is_prose_byte(&self, byte: u8) -> bool {
        self.byte_class(byte) & OWN != 0
    }

    /// Returns the classes of a byte as a set of bits.
    fn byte_class(&self, byte: u8) -> u8 {
        self.0.get(usize::from(byte)).copied().unwrap_or(0)
    }

    fn add_class(&mut self, byte: u8, class: u8) {
        if let Some(known) = self.0.get_mut(usize::from(byte)) {
            *known |= class;
        }
    }

    /// Adds all triggers of another table.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (class, more) in self.0.iter_mut().zip(other.0) {
            *class |= more;
        }
    }

    /// Makes a byte a trigger: a letter or digit only at the start of a word, anything else
    /// anywhere.
    pub(crate) fn add_byte(&mut self, byte: u8) {
        self.add_class(
            byte,
            if byte.is_ascii_alphanumeric() {
                WORD
            } else {
                ANYWHERE
            },
        );
    }

    /// Makes a byte a trigger at the start of a line only.
    pub(crate) fn add_at_line_start(&mut self, byte: u8) {
        self.add_class(byte, LINE);
    }

    /// Makes a byte a trigger behind white space or the end of a sentence, and at the start of a line.
    pub(crate) fn add_between_words(&mut self, byte: u8) {
        self.add_class(byte, BETWEEN_WORDS);
    }
}

/// Returns true if no word or code continues after this byte: white space, the end of a sentence or of inline code, or a letter beyond
/// ASCII, since Chinese and Japanese have no spaces.
pub(crate) fn is_between_words(before: u8) -> bool {
    before.is_ascii_whitespace()
        || !before.is_ascii()
        || matches!(before, b'.' | b'!' | b'?' | b':' | b')' | b'`')
}

/// A set of bytes in which all bytes beyond ASCII count as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstLetters(u128);

impl FirstLetters {
    /// Adds the first byte of a text. Bit 127 represents every byte beyond ASCII.
    pub(crate) fn add_first_letter(&mut self, text: &str) {
        if let Some(byte) = text.as_bytes().first() {
            self.add_letter(*byte);
        }
    }

    /// Adds a byte.
    pub(crate) fn add_letter(&mut self, byte: u8) {
        self.0 |= 1 << byte.min(127);
    }

    /// Returns true if a text with this first byte may be in the set: one shift instead of a
    /// search.
    pub(crate) fn has_letter(self, byte: u8) -> bool {
        self.0 >> byte.min(127) & 1 == 1
    }
}
