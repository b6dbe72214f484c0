//! The inside of JSON strings: where plain text ends, and what escapes stand for.
//!
//! Supported: all escapes of JSON, broken off anywhere; a surrogate pair is one character.
//!
//! Unsupported: escapes that JSON does not know (`\d`, `\'`). They are told, and taken as they stand.
//!
//! Grammar as implemented: `\` and one of `"\/bfnrt`, or `\u` and four hexadecimal digits.

use crate::swar::{LANES, first_lane, lanes_below, lanes_equal};

/// What to write instead of half a surrogate pair.
pub(crate) const SURROGATE_HINT: &str = "write the character itself, or both halves of its escape";

/// An escape that may be broken off between two pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EscapeState {
    #[default]
    None,
    /// After the backslash.
    Open,
    /// After `\u`, inside its four digits: digits read, their value, the high surrogate before them.
    Unicode(u8, u16, u16),
    /// After a high surrogate.
    High(u16),
    /// After a high surrogate and a backslash.
    HighOpen(u16),
}

/// What one byte did to an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeStep {
    /// It belongs to the escape, which goes on or stands for this.
    Taken(Option<char>),
    /// A surrogate had no partner. `true`: the byte belongs to the escape all the same.
    Lone(bool),
    /// There is no such escape; the byte does not belong to it.
    Unknown,
}

impl EscapeState {
    /// Takes one byte behind a backslash.
    pub(super) fn push_byte(&mut self, byte: u8) -> EscapeStep {
        let before = *self;
        *self = match (before, byte) {
            (Self::Open, b'u') => Self::Unicode(0, 0, 0),
            (Self::HighOpen(high), b'u') => Self::Unicode(0, 0, high),
            (Self::High(high), b'\\') => Self::HighOpen(high),
            (Self::High(_), _) => {
                *self = Self::None;
                return EscapeStep::Lone(false);
            }
            (Self::HighOpen(_), _) => {
                *self = Self::Open;
                return EscapeStep::Lone(false);
            }
            (Self::Unicode(count, value, high), _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok()).unwrap_or(0);
                let value = value.wrapping_shl(4) | digit;
                if count == 3 {
                    return self.push_unit(value, high);
                }
                Self::Unicode(count + 1, value, high)
            }
            (Self::Open, _) => {
                let letter = unescape_letter(byte);
                if letter.is_some() {
                    *self = Self::None;
                    return EscapeStep::Taken(letter);
                }
                return EscapeStep::Unknown;
            }
            _ => return EscapeStep::Unknown,
        };
        EscapeStep::Taken(None)
    }

    /// A whole UTF-16 unit, perhaps after a high surrogate (0: none).
    fn push_unit(&mut self, value: u16, high: u16) -> EscapeStep {
        *self = Self::None;
        if high != 0 {
            if let Some(Ok(c)) = char::decode_utf16([high, value]).next() {
                return EscapeStep::Taken(Some(c));
            }
            // The unit behind the lone one is read anew, as the first of its own escape.
            *self = Self::Unicode(3, value >> 4, 0);
            return EscapeStep::Lone(false);
        }
        match char::decode_utf16([value]).next() {
            Some(Ok(c)) => EscapeStep::Taken(Some(c)),
            _ if value < 0xdc00 => {
                *self = Self::High(value);
                EscapeStep::Taken(None)
            }
            _ => EscapeStep::Lone(true),
        }
    }

    /// What was written of an escape that JSON does not know, which is over now.
    pub(super) fn write_unknown(&mut self, into: &mut String) {
        into.push('\\');
        if let Self::Unicode(count, value, _) = *self {
            into.push('u');
            for digit in (0..count).rev() {
                into.extend(char::from_digit(u32::from(value >> (4 * u16::from(digit)) & 0xf), 16));
            }
        }
        *self = Self::None;
    }
}

/// Where the plain text from `from` on ends: at a quote, a backslash, a control character, or with the text.
pub(super) fn plain_end(bytes: &[u8], from: usize) -> usize {
    let special = |word: u64| lanes_equal(word, b'"') | lanes_equal(word, b'\\') | lanes_below(word, 0x20);
    let mut at = from;
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((word, after)) = rest.split_first_chunk() {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + first_lane(marks);
        }
        (at, rest) = (at + LANES, after);
    }
    if rest.is_empty() {
        return at;
    }
    // Less than a register is left. Zeros stand in the lanes behind it, which count as special and so end it.
    at + first_lane(special(load_tail(bytes, rest.len())))
}

/// The longest piece that has a [`SpecialMask`].
pub(super) const PIECE: usize = 64;

/// The special characters of a short piece, one bit each. All of them are found before any is looked at: where one search
/// must wait for the end of the one before, most of the time goes by in waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpecialMask(u64);

impl SpecialMask {
    /// The marks of a piece of at most [`PIECE`] bytes.
    #[inline]
    pub(super) fn from_piece(piece: &[u8]) -> Self {
        let (mut marks, mut at, mut rest) = (0, 0, piece);
        while let Some((word, after)) = rest.split_first_chunk() {
            marks |= special_bits(u64::from_le_bytes(*word)) << at;
            (at, rest) = (at + LANES, after);
        }
        if !rest.is_empty() {
            // Zeros stand behind the last bytes, and the mark of the first one would be wrong.
            marks |= (special_bits(load_tail(piece, rest.len())) & !(u64::MAX << rest.len())) << at;
        }
        Self(marks)
    }

    /// Whether all of the piece is plain.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Decodes the piece that the marks belong to, which begins behind a backslash if `open`. Returns whether it ends behind
    /// one. `None`: it holds the end of the string, or something that must be looked at more closely.
    #[inline]
    pub(super) fn decode_piece(self, piece: &str, open: bool, decoded: &mut String) -> Option<bool> {
        let bytes = piece.as_bytes();
        let (mut marks, mut at) = (self.0, 0);
        if open {
            decoded.push(unescape_letter(*bytes.first()?)?);
            (marks, at) = (marks & !1, 1);
        }
        while marks != 0 {
            let mark = marks.trailing_zeros() as usize;
            decoded.push_str(piece.get(at..mark)?);
            if bytes.get(mark) != Some(&b'\\') {
                return None;
            }
            let Some(letter) = bytes.get(mark + 1) else { return Some(true) };
            decoded.push(unescape_letter(*letter)?);
            at = mark + 2;
            marks &= !(3 << mark);
        }
        decoded.push_str(piece.get(at..)?);
        Some(false)
    }
}

/// The special characters of a register, exactly, in its lowest bits.
#[inline]
fn special_bits(word: u64) -> u64 {
    const LOWS: u64 = u64::MAX / 0xff * 0x7f;
    let equal = |byte: u8| {
        let differs = word ^ (u64::MAX / 0xff * u64::from(byte));
        !(((differs & LOWS) + LOWS) | differs)
    };
    let control = !(((word & LOWS) + u64::MAX / 0xff * 0x60) | word);
    let marks = (equal(b'"') | equal(b'\\') | control) & !LOWS;
    (marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The last bytes of a piece in a register, with zeros in the lanes behind them.
#[inline]
fn load_tail(piece: &[u8], length: usize) -> u64 {
    match piece.last_chunk() {
        Some(word) => u64::from_le_bytes(*word).unbounded_shr(64 - 8 * length as u32),
        None => piece.iter().rev().take(length).fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// What a letter behind a backslash stands for; 0: nothing, or more than the letter.
#[expect(clippy::indexing_slicing, reason = "in a constant, where a wrong index does not compile")]
const LETTERS: [u8; 256] = {
    let mut letters = [0; 256];
    letters[b'n' as usize] = b'\n';
    letters[b't' as usize] = b'\t';
    letters[b'r' as usize] = b'\r';
    letters[b'b' as usize] = 8;
    letters[b'f' as usize] = 12;
    letters[b'"' as usize] = b'"';
    letters[b'\\' as usize] = b'\\';
    letters[b'/' as usize] = b'/';
    letters
};

/// A table and no `match`, because a jump would be foreseen wrongly every other time.
pub(super) fn unescape_letter(letter: u8) -> Option<char> {
    LETTERS.get(usize::from(letter)).filter(|c| **c != 0).map(|c| char::from(*c))
}

#[cfg(test)]
mod tests {
    use super::{SpecialMask, plain_end};

    #[test]
    fn marks_are_exact() {
        let odd = [b'"', b'\\', 0, 0x1f, 0x20, 0x21, 0x23, b'[', b']', 0x7f, 0x80, 0x9f, 0xa2, 0xdc, 0xff];
        for length in 0..=64_usize {
            for shift in 0..odd.len() {
                let piece: Vec<u8> = (0..length).map(|at| odd[(at * (shift + 1) + shift) % odd.len()]).collect();
                let special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..0x20);
                let naive =
                    piece.iter().enumerate().fold(0, |marks, (at, byte)| marks | u64::from(special(*byte)) << at);
                assert_eq!(SpecialMask::from_piece(&piece), SpecialMask(naive), "{piece:x?}");
                let end = piece.iter().position(|byte| special(*byte)).unwrap_or(length);
                assert_eq!(plain_end(&piece, 0), end, "{piece:x?}");
            }
        }
    }

    #[test]
    fn short_pieces() {
        let check = |piece: &str, open: bool, expected: Option<(&str, bool)>| {
            let mut decoded = String::new();
            let ends = SpecialMask::from_piece(piece.as_bytes()).decode_piece(piece, open, &mut decoded);
            assert_eq!(ends.map(|ends| (decoded.as_str(), ends)), expected, "{piece}");
        };
        check(r#"a\n\"b\\\\c\/"#, false, Some(("a\n\"b\\\\c/", false)));
        check(r"n\\", true, Some(("\n\\", false)));
        check(r"\a\", true, Some((r"\a", true)));
        check(r"\\\", true, Some((r"\\", false)));
        check(r"é\té\", false, Some(("é\té", true)));
        check(r"\u0020", false, None);
        check("a\nb", false, None);
        check("a\"", false, None);
        check("u0020", true, None);
        let long = r"\\".repeat(32);
        check(&long, false, Some((&r"\".repeat(32), false)));
    }
}
