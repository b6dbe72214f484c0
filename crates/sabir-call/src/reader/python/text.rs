//! Defines quoting styles, decodes escapes, and encodes text as JSON.

use crate::dialect::grammar::GemmaCalls;
use crate::swar::{LANES, first_lane, lanes_below, lanes_equal};

/// The quoting style of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum QuoteStyle {
    /// Python quotes.
    Python {
        /// The quote character, `'` or `"`.
        byte: u8,
        /// True for triple quotes.
        triple: bool,
        /// True if escapes are not decoded.
        raw: bool,
    },
    /// JSON quotes.
    Json,
    /// Gemma's markers, without escapes.
    Marker(&'static GemmaCalls),
}

/// The meaning of a backslash and the text after it. Numbers are lengths in bytes, including the
/// backslash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum EscapeMeaning {
    /// More text is needed.
    Wait,
    /// A character.
    Char(char, usize),
    /// Nothing: a line continuation.
    Nothing(usize),
    /// No escape: that many bytes are kept unchanged.
    Itself(usize),
    /// Half of a surrogate pair.
    Lone(usize),
    /// A mistake.
    Wrong(usize),
}

impl QuoteStyle {
    /// Returns the same style without escapes.
    pub(in crate::reader) fn without_escapes(self) -> Self {
        match self {
            Self::Python { byte, triple, .. } => Self::Python {
                byte,
                triple,
                raw: true,
            },
            other => other,
        }
    }

    /// Returns the first byte of the closing quote.
    pub(in crate::reader) fn closing_byte(self) -> u8 {
        match self {
            Self::Python { byte, .. } => byte,
            Self::Json => b'"',
            Self::Marker(table) => table.quote.bytes().next().unwrap_or_default(),
        }
    }

    /// Returns the length of the closing quote if `rest`, which starts with [`Self::closing_byte`],
    /// begins with it. `None` means that more text is needed.
    pub(in crate::reader) fn closing_len(self, rest: &str) -> Option<Option<usize>> {
        let marker = match self {
            Self::Python { triple: false, .. } | Self::Json => return Some(Some(1)),
            Self::Python { byte: b'"', .. } => "\"\"\"",
            Self::Python { .. } => "'''",
            Self::Marker(table) => table.quote,
        };
        starts_with_marker(rest, marker).map(|yes| yes.then_some(marker.len()))
    }

    /// Returns true if a line may end inside the string.
    pub(in crate::reader) fn allows_newlines(self) -> bool {
        match self {
            Self::Python { triple, .. } => triple,
            Self::Json => false,
            Self::Marker(_) => true,
        }
    }

    /// Decodes the backslash at the start of `rest`.
    pub(in crate::reader) fn decode_escape(self, rest: &str) -> EscapeMeaning {
        let bytes = rest.as_bytes();
        let Some(&letter) = bytes.get(1) else {
            return if matches!(self, Self::Marker(_)) {
                EscapeMeaning::Itself(1)
            } else {
                EscapeMeaning::Wait
            };
        };
        match self {
            Self::Marker(_) => EscapeMeaning::Itself(1),
            // In a raw string the backslash stays, but it still protects a quote.
            Self::Python {
                raw: true, byte, ..
            } if letter == byte || letter == b'\\' => EscapeMeaning::Itself(2),
            Self::Python { raw: true, .. } => EscapeMeaning::Itself(1),
            Self::Python { .. } => python_escape(rest, letter),
            Self::Json => json_escape(rest, letter),
        }
    }
}

/// Checks whether `rest` starts with the marker. `None` means that more text is needed.
pub(in crate::reader) fn starts_with_marker(rest: &str, marker: &str) -> Option<bool> {
    if rest.len() < marker.len() && marker.starts_with(rest) {
        None
    } else {
        Some(rest.starts_with(marker))
    }
}

fn python_escape(rest: &str, letter: u8) -> EscapeMeaning {
    let c = match letter {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'v' => '\u{b}',
        b'\\' | b'\'' | b'"' => char::from(letter),
        // A backslash at the end of a line joins it with the next one.
        b'\n' => return EscapeMeaning::Nothing(2),
        b'\r' => match rest.as_bytes().get(2) {
            None => return EscapeMeaning::Wait,
            Some(b'\n') => return EscapeMeaning::Nothing(3),
            Some(_) => return EscapeMeaning::Nothing(2),
        },
        b'0'..=b'7' => return octal_escape(rest),
        b'x' => return hex_escape(rest, 2),
        b'u' => return hex_escape(rest, 4),
        b'U' => return hex_escape(rest, 8),
        _ => return EscapeMeaning::Itself(1),
    };
    EscapeMeaning::Char(c, 2)
}

fn json_escape(rest: &str, letter: u8) -> EscapeMeaning {
    let c = match letter {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'\\' | b'/' | b'"' => char::from(letter),
        b'u' => return hex_escape(rest, 4),
        _ => return EscapeMeaning::Wrong(1),
    };
    EscapeMeaning::Char(c, 2)
}

/// Decodes up to three octal digits.
fn octal_escape(rest: &str) -> EscapeMeaning {
    let digits = rest
        .bytes()
        .skip(1)
        .take(3)
        .take_while(|byte| matches!(byte, b'0'..=b'7'))
        .count();
    if digits < 3 && rest.len() == 1 + digits {
        return EscapeMeaning::Wait;
    }
    let value = parse_digits(rest, 1, digits, 8);
    value
        .and_then(char::from_u32)
        .map_or(EscapeMeaning::Wrong(1), |c| {
            EscapeMeaning::Char(c, 1 + digits)
        })
}

/// Decodes `count` hexadecimal digits after a letter; two halves of a surrogate pair become one
/// character.
fn hex_escape(rest: &str, count: usize) -> EscapeMeaning {
    let digits = rest
        .bytes()
        .skip(2)
        .take(count)
        .take_while(u8::is_ascii_hexdigit)
        .count();
    let len = 2 + count;
    if digits < count {
        return if rest.len() == 2 + digits {
            EscapeMeaning::Wait
        } else {
            EscapeMeaning::Wrong(2)
        };
    }
    let Some(value) = parse_digits(rest, 2, count, 16) else {
        return EscapeMeaning::Wrong(2);
    };
    if let Some(c) = char::from_u32(value) {
        return EscapeMeaning::Char(c, len);
    }
    if value > 0x10_ffff {
        return EscapeMeaning::Wrong(len);
    }
    // A low surrogate without a high one, or a surrogate as `\U`, cannot be part of a pair.
    if value >= 0xdc00 || count != 4 {
        return EscapeMeaning::Lone(len);
    }
    let second = rest.get(len..).unwrap_or_default();
    // The low surrogate must be a complete escape, which may not have arrived yet.
    let shown = second
        .bytes()
        .skip(2)
        .take(4)
        .take_while(u8::is_ascii_hexdigit)
        .count();
    if second.len() < 6
        && ("\\u".starts_with(second) || (second.starts_with("\\u") && second.len() == 2 + shown))
    {
        return EscapeMeaning::Wait;
    }
    let low = if second.starts_with("\\u") && shown == 4 {
        parse_digits(second, 2, 4, 16)
    } else {
        None
    };
    match low.filter(|low| (0xdc00..0xe000).contains(low)) {
        Some(low) => {
            let c = char::from_u32(0x1_0000 + ((value - 0xd800) << 10) + (low - 0xdc00));
            c.map_or(EscapeMeaning::Lone(len), |c| {
                EscapeMeaning::Char(c, len + 6)
            })
        }
        None => EscapeMeaning::Lone(len),
    }
}

fn parse_digits(rest: &str, from: usize, count: usize, base: u32) -> Option<u32> {
    u32::from_str_radix(rest.get(from..from + count)?, base).ok()
}

/// A set of bytes that cannot be copied unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) struct SpecialBytes {
    bytes: [u8; 3],
    /// The byte value below which all bytes are special: 32 for control characters, or 0 for none.
    below: u8,
}

impl SpecialBytes {
    /// Creates the set for a string in this quoting style; `json` is true if its text is encoded as JSON.
    pub(in crate::reader) fn new(quote: QuoteStyle, json: bool) -> Self {
        let end = quote.closing_byte();
        // Raw text between markers has no escapes, unless it must be encoded as JSON.
        let slash = if json || !matches!(quote, QuoteStyle::Marker(_)) {
            b'\\'
        } else {
            end
        };
        let bytes = [end, slash, if json { b'"' } else { end }];
        Self {
            bytes,
            below: if json || !quote.allows_newlines() {
                0x20
            } else {
                0
            },
        }
    }

    /// Returns the position of the first such byte at or after `from`, or the length of the text.
    pub(in crate::reader) fn find_first(self, bytes: &[u8], from: usize) -> usize {
        let [a, b, c] = self.bytes;
        let limit = self.below;
        let (words, tail) = bytes.get(from..).unwrap_or_default().as_chunks::<LANES>();
        let mut at = from;
        for word in words {
            let word = u64::from_le_bytes(*word);
            let marks = lanes_equal(word, a)
                | lanes_equal(word, b)
                | lanes_equal(word, c)
                | lanes_below(word, limit);
            if marks != 0 {
                return at + first_lane(marks);
            }
            at += LANES;
        }
        at + tail
            .iter()
            .position(|byte| self.bytes.contains(byte) || *byte < limit)
            .unwrap_or(tail.len())
    }
}

/// Appends text to a JSON string, with escapes.
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
    use super::{EscapeMeaning, GemmaCalls, QuoteStyle, SpecialBytes};

    #[test]
    fn escapes() {
        let python = QuoteStyle::Python {
            byte: b'"',
            triple: false,
            raw: false,
        };
        let raw = QuoteStyle::Python {
            byte: b'"',
            triple: false,
            raw: true,
        };
        for (quote, text, expected) in [
            (python, "\\n", EscapeMeaning::Char('\n', 2)),
            (python, "\\", EscapeMeaning::Wait),
            (python, "\\d", EscapeMeaning::Itself(1)),
            (python, "\\é", EscapeMeaning::Itself(1)),
            (python, "\\N{DIGIT ONE}", EscapeMeaning::Itself(1)),
            (python, "\\/", EscapeMeaning::Itself(1)),
            (python, "\\\nx", EscapeMeaning::Nothing(2)),
            (python, "\\\r", EscapeMeaning::Wait),
            (python, "\\\r\nx", EscapeMeaning::Nothing(3)),
            (python, "\\0", EscapeMeaning::Wait),
            (python, "\\0x", EscapeMeaning::Char('\0', 2)),
            (python, "\\1012", EscapeMeaning::Char('A', 4)),
            (python, "\\777", EscapeMeaning::Char('\u{1ff}', 4)),
            (python, "\\x4", EscapeMeaning::Wait),
            (python, "\\x41", EscapeMeaning::Char('A', 4)),
            (python, "\\x4g", EscapeMeaning::Wrong(2)),
            (python, "\\u00e9", EscapeMeaning::Char('é', 6)),
            (python, "\\ud83c", EscapeMeaning::Wait),
            (python, "\\ud83c\\", EscapeMeaning::Wait),
            (python, "\\ud83c\\udf0", EscapeMeaning::Wait),
            (python, "\\ud83c\\udf0d", EscapeMeaning::Char('🌍', 12)),
            (python, "\\ud83cx", EscapeMeaning::Lone(6)),
            (python, "\\ud83c\\n", EscapeMeaning::Lone(6)),
            (python, "\\ud83c\\u0041", EscapeMeaning::Lone(6)),
            (python, "\\udf0d", EscapeMeaning::Lone(6)),
            (python, "\\U0001f30d", EscapeMeaning::Char('🌍', 10)),
            (python, "\\U00110000", EscapeMeaning::Wrong(10)),
            (raw, "\\n", EscapeMeaning::Itself(1)),
            (raw, "\\\"", EscapeMeaning::Itself(2)),
            (QuoteStyle::Json, "\\/", EscapeMeaning::Char('/', 2)),
            (QuoteStyle::Json, "\\x41", EscapeMeaning::Wrong(1)),
            (
                QuoteStyle::Marker(&GemmaCalls {
                    open: "",
                    close: "",
                    quote: "<q>",
                }),
                "\\",
                EscapeMeaning::Itself(1),
            ),
        ] {
            assert_eq!(quote.decode_escape(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_text_ends_at_the_first_special_byte() {
        let single = QuoteStyle::Python {
            byte: b'\'',
            triple: false,
            raw: false,
        };
        let triple = QuoteStyle::Python {
            byte: b'\'',
            triple: true,
            raw: false,
        };
        let marker = QuoteStyle::Marker(&GemmaCalls {
            open: "",
            close: "",
            quote: "'>",
        });
        for (quote, json, expected) in [
            (single, false, &b"'\\\n"[..]),
            (single, true, b"'\\\"\n"),
            (triple, false, b"'\\"),
            (triple, true, b"'\\\"\n"),
            (marker, false, b"'"),
            (marker, true, b"'\\\"\n"),
        ] {
            for (special, at, length) in b"'\\\"\n"
                .iter()
                .flat_map(|b| (0..20).flat_map(move |n| (0..n).map(move |at| (b, at, n))))
            {
                let mut bytes = vec![0xc3; length];
                bytes[at] = *special;
                let found = if expected.contains(special) {
                    at
                } else {
                    length
                };
                assert_eq!(
                    SpecialBytes::new(quote, json).find_first(&bytes, 0),
                    found,
                    "{quote:?} {json} {special} {at}"
                );
            }
        }
    }
}
