//! Finds the end of plain text in JSON strings and decodes escapes.
//!
//! Supported: all JSON escapes, split between chunks at any byte; a surrogate pair is one
//! character.
//!
//! Unsupported: escapes that JSON does not define (`\d`, `\'`). They are reported and kept
//! unchanged.
//!
//! Grammar as implemented: `\` and one of `"\/bfnrt`, or `\u` and four hexadecimal digits.

use crate::swar::{LANES, first_lane, lanes_below, lanes_equal};

/// The hint for a lone surrogate escape.
pub(crate) const SURROGATE_HINT: &str = "write the character itself, or both halves of its escape";

/// An escape that may be split between two pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EscapeState {
    #[default]
    None,
    /// After the backslash.
    Open,
    /// After `\u`, inside its four digits: the number of digits read, their value, and the
    /// preceding high surrogate (0 if none).
    Unicode(u8, u16, u16),
    /// After a high surrogate.
    High(u16),
    /// After a high surrogate and a backslash.
    HighOpen(u16),
}

/// The effect of one byte on an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeStep {
    /// The byte belongs to the escape; the escape continues, or is complete and decodes to this
    /// character.
    Taken(Option<char>),
    /// A surrogate has no partner. `true` if the byte belongs to the escape anyway.
    Lone(bool),
    /// No such escape exists; the byte does not belong to it.
    Unknown,
}

impl EscapeState {
    /// Processes one byte after a backslash.
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
                // The backslash that was read begins an escape of its own.
                *self = Self::Open;
                return EscapeStep::Lone(false);
            }
            (Self::Unicode(count, value, high), _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte)
                    .to_digit(16)
                    .and_then(|digit| u16::try_from(digit).ok())
                    .unwrap_or(0);
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

    /// Processes a complete UTF-16 unit that may follow a high surrogate (0 if none).
    fn push_unit(&mut self, value: u16, high: u16) -> EscapeStep {
        *self = Self::None;
        if high != 0 {
            if let Some(Ok(c)) = char::decode_utf16([high, value]).next() {
                return EscapeStep::Taken(Some(c));
            }
            // The unit after the lone one may start a pair itself. Three of its digits are
            // restored, so that the next call, with the same last digit, reads it as the first unit
            // of a new escape.
            *self = Self::Unicode(3, value >> 4, 0);
            return EscapeStep::Lone(false);
        }
        match char::decode_utf16([value]).next() {
            Some(Ok(c)) => EscapeStep::Taken(Some(c)),
            // Failed to decode and below 0xdc00: a high surrogate, which waits for its partner.
            _ if value < 0xdc00 => {
                *self = Self::High(value);
                EscapeStep::Taken(None)
            }
            _ => EscapeStep::Lone(true),
        }
    }

    /// Ends an escape that JSON does not define, and appends its source text.
    pub(super) fn write_unknown(&mut self, into: &mut String) {
        into.push('\\');
        if let Self::Unicode(count, value, _) = *self {
            into.push('u');
            for digit in (0..count).rev() {
                into.extend(char::from_digit(
                    u32::from(value >> (4 * u16::from(digit)) & 0xf),
                    16,
                ));
            }
        }
        *self = Self::None;
    }
}

/// Returns the end of the plain text that starts at `from`: a quote, a backslash, a control
/// character, or the end.
pub(super) fn plain_end(bytes: &[u8], from: usize) -> usize {
    let special =
        |word: u64| lanes_equal(word, b'"') | lanes_equal(word, b'\\') | lanes_below(word, 0x20);
    let mut at = from;
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((word, after)) = rest.split_first_chunk() {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + first_lane(marks);
        }
        at += LANES;
        rest = after;
    }
    if rest.is_empty() {
        return at;
    }
    // Less than a register is left. The zeros that fill it count as control characters, so the
    // search ends there.
    at + first_lane(special(load_tail(bytes, rest.len())))
}

/// The maximum length of a piece for [`SpecialMask`], in bytes: one bit each.
pub(super) const PIECE: usize = 64;

/// The positions of special characters in a short piece, one bit per byte. All are found at once: if they were searched one by one, each
/// search would wait for the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpecialMask(u64);

impl SpecialMask {
    /// Computes the mask of a piece of at most [`PIECE`] bytes.
    #[inline]
    pub(super) fn from_piece(piece: &[u8]) -> Self {
        let mut marks = 0;
        let mut at = 0;
        let mut rest = piece;
        while let Some((word, after)) = rest.split_first_chunk() {
            marks |= special_bits(u64::from_le_bytes(*word)) << at;
            at += LANES;
            rest = after;
        }
        if !rest.is_empty() {
            // The zeros that fill the register would count as control characters, so bits past the
            // piece are cleared.
            marks |= (special_bits(load_tail(piece, rest.len())) & !(u64::MAX << rest.len())) << at;
        }
        Self(marks)
    }

    /// Returns true if the piece has no special characters.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Decodes the piece of this mask, which begins after a backslash if `open`. Returns true if it
    /// ends after a backslash, or `None` if it holds the end of the string or anything that needs
    /// the slow path.
    #[inline]
    pub(super) fn decode_piece(
        self,
        piece: &str,
        open: bool,
        decoded: &mut String,
    ) -> Option<bool> {
        let bytes = piece.as_bytes();
        let mut marks = self.0;
        let mut at = 0;
        if open {
            decoded.push(unescape_letter(*bytes.first()?)?);
            marks &= !1;
            at = 1;
        }
        while marks != 0 {
            let mark = marks.trailing_zeros() as usize;
            decoded.push_str(piece.get(at..mark)?);
            if bytes.get(mark) != Some(&b'\\') {
                return None;
            }
            let Some(letter) = bytes.get(mark + 1) else {
                return Some(true);
            };
            decoded.push(unescape_letter(*letter)?);
            at = mark + 2;
            // The escaped letter may be a quote or backslash, so its bit is cleared too.
            marks &= !(3 << mark);
        }
        decoded.push_str(piece.get(at..)?);
        Some(false)
    }
}

/// Returns the special characters of a register, exactly, as its lowest eight bits.
#[inline]
fn special_bits(word: u64) -> u64 {
    // The usual tests for zero lanes (`swar.rs`) are exact only for the lowest match. Here every
    // lane must be right, so
    // additions are kept from carrying into the next lane by masking the high bits first.
    const LOWS: u64 = u64::MAX / 0xff * 0x7f;
    let equal = |byte: u8| {
        let differs = word ^ (u64::MAX / 0xff * u64::from(byte));
        !(((differs & LOWS) + LOWS) | differs)
    };
    let control = !(((word & LOWS) + u64::MAX / 0xff * 0x60) | word);
    let marks = (equal(b'"') | equal(b'\\') | control) & !LOWS;
    // Moves the high bit of each lane into one byte: the multiplication adds the eight shifted
    // copies.
    (marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Loads the last `length` bytes of a piece into a register, filled up with zeros.
#[inline]
fn load_tail(piece: &[u8], length: usize) -> u64 {
    match piece.last_chunk() {
        Some(word) => u64::from_le_bytes(*word).unbounded_shr(64 - 8 * length as u32),
        None => piece
            .iter()
            .rev()
            .take(length)
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The character for each letter after a backslash; 0 if there is none or it needs more than the
/// letter.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a wrong index is a compile error"
)]
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

/// Decodes a one-letter escape. A table instead of a `match`, because a branch would be
/// mispredicted every other time.
pub(super) fn unescape_letter(letter: u8) -> Option<char> {
    LETTERS
        .get(usize::from(letter))
        .filter(|c| **c != 0)
        .map(|c| char::from(*c))
}

#[cfg(test)]
mod tests {
    use super::{SpecialMask, plain_end};

    #[test]
    fn special_bytes_are_found_in_pieces_of_any_length() {
        let odd = [
            b'"', b'\\', 0, 0x1f, 0x20, 0x21, 0x23, b'[', b']', 0x7f, 0x80, 0x9f, 0xa2, 0xdc, 0xff,
        ];
        for length in 0..=64_usize {
            for shift in 0..odd.len() {
                let piece: Vec<u8> = (0..length)
                    .map(|at| odd[(at * (shift + 1) + shift) % odd.len()])
                    .collect();
                let special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..0x20);
                let naive = piece.iter().enumerate().fold(0, |marks, (at, byte)| {
                    marks | u64::from(special(*byte)) << at
                });
                assert_eq!(
                    SpecialMask::from_piece(&piece),
                    SpecialMask(naive),
                    "{piece:x?}"
                );
                let end = piece
                    .iter()
                    .position(|byte| special(*byte))
                    .unwrap_or(length);
                assert_eq!(plain_end(&piece, 0), end, "{piece:x?}");
            }
        }
    }

    #[test]
    fn pieces_with_short_escapes_are_decoded() {
        let check = |piece: &str, open: bool, expected: Option<(&str, bool)>| {
            let mut decoded = String::new();
            let ends =
                SpecialMask::from_piece(piece.as_bytes()).decode_piece(piece, open, &mut decoded);
            assert_eq!(
                ends.map(|ends| (decoded.as_str(), ends)),
                expected,
                "{piece}"
            );
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
