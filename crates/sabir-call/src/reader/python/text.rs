//! Strings: how they are quoted, what in them is more than itself, and how JSON writes them.

use crate::dialect::grammar::GemmaCalls;
use crate::lanes::{LANES, below, first, lanes};

/// How a string is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum Quote {
    /// As Python does.
    Python {
        /// `'` or `"`.
        byte: u8,
        /// Three of them.
        triple: bool,
        /// Without escapes.
        raw: bool,
    },
    /// As JSON does.
    Json,
    /// Between markers, without escapes.
    Marker(&'static GemmaCalls),
}

/// What a backslash and what follows it stand for. Numbers are lengths in bytes, the backslash included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum Escape {
    /// More text must come.
    Wait,
    /// A character.
    Char(char, usize),
    /// Nothing at all: a line that goes on.
    Nothing(usize),
    /// No escape: so many bytes stand for themselves.
    Itself(usize),
    /// Half of a surrogate pair.
    Lone(usize),
    /// A mistake.
    Wrong(usize),
}

impl Quote {
    /// The same without escapes.
    pub(in crate::reader) fn raw(self) -> Self {
        match self {
            Self::Python { byte, triple, .. } => Self::Python { byte, triple, raw: true },
            other => other,
        }
    }

    /// The first byte of what ends the string.
    pub(in crate::reader) fn byte(self) -> u8 {
        match self {
            Self::Python { byte, .. } => byte,
            Self::Json => b'"',
            Self::Marker(table) => table.quote.bytes().next().unwrap_or_default(),
        }
    }

    /// Whether and how far `rest`, which starts with [`Self::byte`], ends the string. `None`: more text must come.
    pub(in crate::reader) fn ends(self, rest: &str) -> Option<Option<usize>> {
        let marker = match self {
            Self::Python { triple: false, .. } | Self::Json => return Some(Some(1)),
            Self::Python { byte: b'"', .. } => "\"\"\"",
            Self::Python { .. } => "'''",
            Self::Marker(table) => table.quote,
        };
        starts(rest, marker).map(|yes| yes.then_some(marker.len()))
    }

    /// Whether a line may end inside the string.
    pub(in crate::reader) fn takes_lines(self) -> bool {
        match self {
            Self::Python { triple, .. } => triple,
            Self::Json => false,
            Self::Marker(_) => true,
        }
    }

    /// What the backslash at the start of `rest` means.
    pub(in crate::reader) fn escape(self, rest: &str) -> Escape {
        let bytes = rest.as_bytes();
        let Some(&letter) = bytes.get(1) else {
            return if matches!(self, Self::Marker(_)) { Escape::Itself(1) } else { Escape::Wait };
        };
        match self {
            Self::Marker(_) => Escape::Itself(1),
            // The backslash stays, and so does what it protects.
            Self::Python { raw: true, byte, .. } if letter == byte || letter == b'\\' => Escape::Itself(2),
            Self::Python { raw: true, .. } => Escape::Itself(1),
            Self::Python { .. } => python(rest, letter),
            Self::Json => json(rest, letter),
        }
    }
}

/// Whether `rest` starts with the marker. `None`: it may, when more has come.
pub(in crate::reader) fn starts(rest: &str, marker: &str) -> Option<bool> {
    if rest.len() < marker.len() && marker.starts_with(rest) { None } else { Some(rest.starts_with(marker)) }
}

fn python(rest: &str, letter: u8) -> Escape {
    let c = match letter {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'v' => '\u{b}',
        b'\\' | b'\'' | b'"' => char::from(letter),
        b'\n' => return Escape::Nothing(2),
        b'\r' => match rest.as_bytes().get(2) {
            None => return Escape::Wait,
            Some(b'\n') => return Escape::Nothing(3),
            Some(_) => return Escape::Nothing(2),
        },
        b'0'..=b'7' => return octal(rest),
        b'x' => return hexadecimal(rest, 2),
        b'u' => return hexadecimal(rest, 4),
        b'U' => return hexadecimal(rest, 8),
        _ => return Escape::Itself(1),
    };
    Escape::Char(c, 2)
}

fn json(rest: &str, letter: u8) -> Escape {
    let c = match letter {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'\\' | b'/' | b'"' => char::from(letter),
        b'u' => return hexadecimal(rest, 4),
        _ => return Escape::Wrong(1),
    };
    Escape::Char(c, 2)
}

/// Up to three digits.
fn octal(rest: &str) -> Escape {
    let digits = rest.bytes().skip(1).take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits < 3 && rest.len() == 1 + digits {
        return Escape::Wait;
    }
    let value = number(rest, 1, digits, 8);
    value.and_then(char::from_u32).map_or(Escape::Wrong(1), |c| Escape::Char(c, 1 + digits))
}

/// So many digits behind a letter; two halves of a surrogate pair are one character.
fn hexadecimal(rest: &str, count: usize) -> Escape {
    let digits = rest.bytes().skip(2).take(count).take_while(u8::is_ascii_hexdigit).count();
    let len = 2 + count;
    if digits < count {
        return if rest.len() == 2 + digits { Escape::Wait } else { Escape::Wrong(2) };
    }
    let Some(value) = number(rest, 2, count, 16) else { return Escape::Wrong(2) };
    if let Some(c) = char::from_u32(value) {
        return Escape::Char(c, len);
    }
    if value > 0x10_ffff {
        return Escape::Wrong(len);
    }
    if value >= 0xdc00 || count != 4 {
        return Escape::Lone(len);
    }
    let second = rest.get(len..).unwrap_or_default();
    let shown = second.bytes().skip(2).take(4).take_while(u8::is_ascii_hexdigit).count();
    if second.len() < 6 && ("\\u".starts_with(second) || (second.starts_with("\\u") && second.len() == 2 + shown)) {
        return Escape::Wait;
    }
    let low = if second.starts_with("\\u") && shown == 4 { number(second, 2, 4, 16) } else { None };
    match low.filter(|low| (0xdc00..0xe000).contains(low)) {
        Some(low) => {
            let c = char::from_u32(0x1_0000 + ((value - 0xd800) << 10) + (low - 0xdc00));
            c.map_or(Escape::Lone(len), |c| Escape::Char(c, len + 6))
        }
        None => Escape::Lone(len),
    }
}

fn number(rest: &str, from: usize, count: usize, base: u32) -> Option<u32> {
    u32::from_str_radix(rest.get(from..from + count)?, base).ok()
}

/// Bytes that are more than themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) struct Special {
    bytes: [u8; 3],
    /// Control characters too, if this is 32.
    below: u8,
}

impl Special {
    /// In a string that is quoted like this, and written as JSON or not.
    pub(in crate::reader) fn new(quote: Quote, json: bool) -> Self {
        let end = quote.byte();
        let slash = if json || !matches!(quote, Quote::Marker(_)) { b'\\' } else { end };
        let bytes = [end, slash, if json { b'"' } else { end }];
        Self { bytes, below: if json || !quote.takes_lines() { 0x20 } else { 0 } }
    }

    /// Where it first finds one behind `from`; else the length of the text.
    pub(in crate::reader) fn find(self, bytes: &[u8], from: usize) -> usize {
        let ([a, b, c], limit) = (self.bytes, self.below);
        let (words, tail) = bytes.get(from..).unwrap_or_default().as_chunks::<LANES>();
        let mut at = from;
        for word in words {
            let word = u64::from_le_bytes(*word);
            let marks = lanes(word, a) | lanes(word, b) | lanes(word, c) | below(word, limit);
            if marks != 0 {
                return at + first(marks);
            }
            at += LANES;
        }
        at + tail.iter().position(|byte| self.bytes.contains(byte) || *byte < limit).unwrap_or(tail.len())
    }
}

/// Writes text into a JSON string.
pub(in crate::reader) fn escape_json(text: &str, json: &mut String) {
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\u{1f}' => {
                json.push_str("\\u00");
                for shift in [4, 0] {
                    json.extend(char::from_digit(u32::from(c) >> shift & 0xf, 16));
                }
            }
            _ => json.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Escape, GemmaCalls, Quote, Special};

    #[test]
    fn escapes() {
        let python = Quote::Python { byte: b'"', triple: false, raw: false };
        let raw = Quote::Python { byte: b'"', triple: false, raw: true };
        for (quote, text, expected) in [
            (python, "\\n", Escape::Char('\n', 2)),
            (python, "\\", Escape::Wait),
            (python, "\\d", Escape::Itself(1)),
            (python, "\\é", Escape::Itself(1)),
            (python, "\\N{DIGIT ONE}", Escape::Itself(1)),
            (python, "\\/", Escape::Itself(1)),
            (python, "\\\nx", Escape::Nothing(2)),
            (python, "\\\r", Escape::Wait),
            (python, "\\\r\nx", Escape::Nothing(3)),
            (python, "\\0", Escape::Wait),
            (python, "\\0x", Escape::Char('\0', 2)),
            (python, "\\1012", Escape::Char('A', 4)),
            (python, "\\777", Escape::Char('\u{1ff}', 4)),
            (python, "\\x4", Escape::Wait),
            (python, "\\x41", Escape::Char('A', 4)),
            (python, "\\x4g", Escape::Wrong(2)),
            (python, "\\u00e9", Escape::Char('é', 6)),
            (python, "\\ud83c", Escape::Wait),
            (python, "\\ud83c\\", Escape::Wait),
            (python, "\\ud83c\\udf0", Escape::Wait),
            (python, "\\ud83c\\udf0d", Escape::Char('🌍', 12)),
            (python, "\\ud83cx", Escape::Lone(6)),
            (python, "\\ud83c\\n", Escape::Lone(6)),
            (python, "\\ud83c\\u0041", Escape::Lone(6)),
            (python, "\\udf0d", Escape::Lone(6)),
            (python, "\\U0001f30d", Escape::Char('🌍', 10)),
            (python, "\\U00110000", Escape::Wrong(10)),
            (raw, "\\n", Escape::Itself(1)),
            (raw, "\\\"", Escape::Itself(2)),
            (Quote::Json, "\\/", Escape::Char('/', 2)),
            (Quote::Json, "\\x41", Escape::Wrong(1)),
            (Quote::Marker(&GemmaCalls { open: "", close: "", quote: "<q>" }), "\\", Escape::Itself(1)),
        ] {
            assert_eq!(quote.escape(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_text_ends_at_the_first_special_byte() {
        let single = Quote::Python { byte: b'\'', triple: false, raw: false };
        let triple = Quote::Python { byte: b'\'', triple: true, raw: false };
        let marker = Quote::Marker(&GemmaCalls { open: "", close: "", quote: "'>" });
        for (quote, json, expected) in [
            (single, false, &b"'\\\n"[..]),
            (single, true, b"'\\\"\n"),
            (triple, false, b"'\\"),
            (triple, true, b"'\\\"\n"),
            (marker, false, b"'"),
            (marker, true, b"'\\\"\n"),
        ] {
            for (special, at, length) in
                b"'\\\"\n".iter().flat_map(|b| (0..20).flat_map(move |n| (0..n).map(move |at| (b, at, n))))
            {
                let mut bytes = vec![0xc3; length];
                bytes[at] = *special;
                let found = if expected.contains(special) { at } else { length };
                assert_eq!(Special::new(quote, json).find(&bytes, 0), found, "{quote:?} {json} {special} {at}");
            }
        }
    }
}
