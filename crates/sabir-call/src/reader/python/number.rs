//! Converts Python numbers to JSON, one byte at a time.
//!
//! Supported: integers, also hexadecimal, octal and binary ones up to 128 bits; fractions and
//! exponents; `_` between digits; a sign. `.5` and `5.` get the zero that JSON requires. Decimal
//! digits are emitted as they arrive, so such a number may have any length and value.
//!
//! Unsupported: leading zeros, which Python forbids too; complex numbers.
//!
//! Grammar as implemented, with `digits = digit ("_"? digit)*`:
//!
//! ```text
//! number = ("-" | "+")? (decimal | "0x" hex | "0o" octal | "0b" binary)
//! decimal = ("0" | digits) ("." digits?)? exponent? | "." digits exponent?
//! exponent = ("e" | "E") ("-" | "+")? digits
//! ```

/// The state of the number that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum NumberState {
    /// Before the sign.
    Start,
    /// After the sign.
    Signed,
    /// After a first zero, which has not been emitted yet.
    Zero,
    Whole(DigitPosition),
    /// After the point; `true` if digits precede it.
    Point(bool),
    Fraction(DigitPosition),
    Exponent,
    ExponentSigned,
    ExponentDigits(DigitPosition),
    /// In a number of that base, with its value so far, or `None` if it is too large.
    Radix(u8, DigitPosition, Option<PackedU128>),
}

/// A 128-bit integer with an alignment of 4 bytes, which keeps [`NumberState`] small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::reader) struct PackedU128([u32; 4]);

impl PackedU128 {
    fn to_u128(self) -> u128 {
        self.0
            .iter()
            .fold(0, |value, word| value << 32 | u128::from(*word))
    }

    fn new(value: u128) -> Self {
        let word =
            |at: u32| u32::try_from(value >> (32 * at) & u128::from(u32::MAX)).unwrap_or_default();
        Self([word(3), word(2), word(1), word(0)])
    }
}

/// The kind of the preceding byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum DigitPosition {
    None,
    Digit,
    Underscore,
}

/// The effect of one byte on a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum NumberStep {
    /// The byte belongs to the number.
    Yes,
    /// The number ended before the byte.
    End,
    /// The byte makes the number invalid.
    Wrong,
}

impl NumberState {
    /// Returns true if a number may start with this byte.
    pub(in crate::reader) fn can_start(byte: u8) -> bool {
        byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.')
    }

    /// Processes the next byte and appends JSON.
    pub(in crate::reader) fn push_byte(&mut self, byte: u8, json: &mut String) -> NumberStep {
        let lower = byte.to_ascii_lowercase();
        let next = match (*self, lower) {
            (Self::Start, b'-') => {
                json.push('-');
                Self::Signed
            }
            (Self::Start, b'+') => Self::Signed,
            // JSON allows no digit after a leading zero, and `0x` is not decimal, so a first zero
            // must wait.
            (Self::Start | Self::Signed, b'0') => Self::Zero,
            (Self::Start | Self::Signed, b'1'..=b'9') => Self::Whole(push_digit(byte, json)),
            (Self::Start | Self::Signed, b'.') => push_point("0.", false, json),
            (Self::Zero, b'x') => Self::Radix(16, DigitPosition::None, Some(PackedU128::default())),
            (Self::Zero, b'o') => Self::Radix(8, DigitPosition::None, Some(PackedU128::default())),
            (Self::Zero, b'b') => Self::Radix(2, DigitPosition::None, Some(PackedU128::default())),
            (Self::Zero, b'.') => push_point("0.", true, json),
            (Self::Zero, b'e') => push_exponent("0e", json),
            (Self::Zero, b'0'..=b'9' | b'_') => return NumberStep::Wrong,
            (Self::Whole(_), b'0'..=b'9') => Self::Whole(push_digit(byte, json)),
            (Self::Whole(DigitPosition::Digit), b'_') => Self::Whole(DigitPosition::Underscore),
            (Self::Whole(DigitPosition::Digit), b'.') => push_point(".", true, json),
            (Self::Whole(DigitPosition::Digit) | Self::Fraction(DigitPosition::Digit), b'e') => {
                push_exponent("e", json)
            }
            (Self::Point(_) | Self::Fraction(_), b'0'..=b'9') => {
                Self::Fraction(push_digit(byte, json))
            }
            (Self::Point(true), b'e') => push_exponent("0e", json),
            (Self::Fraction(DigitPosition::Digit), b'_') => {
                Self::Fraction(DigitPosition::Underscore)
            }
            (Self::Exponent, b'-' | b'+') => {
                json.push(char::from(byte));
                Self::ExponentSigned
            }
            (Self::Exponent | Self::ExponentSigned | Self::ExponentDigits(_), b'0'..=b'9') => {
                Self::ExponentDigits(push_digit(byte, json))
            }
            (Self::ExponentDigits(DigitPosition::Digit), b'_') => {
                Self::ExponentDigits(DigitPosition::Underscore)
            }
            (Self::Radix(base, before, value), _) => {
                match push_radix_digit(base, before, value, lower) {
                    Some(next) => next,
                    None => return self.finish_number(json),
                }
            }
            _ => return self.finish_number(json),
        };
        *self = next;
        NumberStep::Yes
    }

    /// Ends the number, and appends what JSON still requires.
    fn finish_number(self, json: &mut String) -> NumberStep {
        match self {
            Self::Zero => json.push('0'),
            Self::Point(true) => json.push('0'),
            Self::Whole(DigitPosition::Digit)
            | Self::Fraction(DigitPosition::Digit)
            | Self::ExponentDigits(DigitPosition::Digit) => {}
            Self::Radix(_, DigitPosition::Digit, Some(value)) => {
                json.push_str(&value.to_u128().to_string())
            }
            _ => return NumberStep::Wrong,
        }
        NumberStep::End
    }
}

fn push_digit(byte: u8, json: &mut String) -> DigitPosition {
    json.push(char::from(byte));
    DigitPosition::Digit
}

fn push_point(text: &str, whole: bool, json: &mut String) -> NumberState {
    json.push_str(text);
    NumberState::Point(whole)
}

fn push_exponent(text: &str, json: &mut String) -> NumberState {
    json.push_str(text);
    NumberState::Exponent
}

fn push_radix_digit(
    base: u8,
    before: DigitPosition,
    value: Option<PackedU128>,
    byte: u8,
) -> Option<NumberState> {
    if byte == b'_' && before != DigitPosition::Underscore {
        return Some(NumberState::Radix(base, DigitPosition::Underscore, value));
    }
    let digit = char::from(byte).to_digit(base.into())?;
    let value = value
        // `None` after an overflow; such a number is rejected at its end.
        .and_then(|value| {
            value
                .to_u128()
                .checked_mul(base.into())?
                .checked_add(digit.into())
        })
        .map(PackedU128::new);
    Some(NumberState::Radix(base, DigitPosition::Digit, value))
}

#[cfg(test)]
mod tests {
    use super::{NumberState, NumberStep};

    /// Converts a number to JSON, up to a `,` that ends it.
    fn json(text: &str) -> Option<String> {
        let mut number = NumberState::Start;
        let mut json = String::new();
        for (at, byte) in text.bytes().chain([b',']).enumerate() {
            match number.push_byte(byte, &mut json) {
                NumberStep::Yes => {}
                NumberStep::End => return (at == text.len()).then_some(json),
                NumberStep::Wrong => return None,
            }
        }
        None
    }

    #[test]
    fn valid_numbers() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "-0"),
            ("+7", "7"),
            ("1_000_000", "1000000"),
            ("-1.5e3", "-1.5e3"),
            (".5", "0.5"),
            ("-.5e-1", "-0.5e-1"),
            ("5.", "5.0"),
            ("0.", "0.0"),
            ("5.E+1_0", "5.0e+10"),
            ("0e0", "0e0"),
            ("0x1F", "31"),
            ("-0Xff_ff", "-65535"),
            ("0o17", "15"),
            ("0b101", "5"),
            (
                "0xffffffffffffffffffffffffffffffff",
                "340282366920938463463374607431768211455",
            ),
            (
                "123456789012345678901234567890123456789012345",
                "123456789012345678901234567890123456789012345",
            ),
        ] {
            assert_eq!(json(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_numbers() {
        for text in [
            "",
            "-",
            "--1",
            ".",
            "-.",
            "007",
            "1_",
            "1__0",
            "_1",
            "1e",
            "1e+",
            "1._5",
            "1.5_",
            "0x",
            "0xg",
            "0x1_",
            "0b2",
            "1j",
            "1.2.3",
            "0xfffffffffffffffffffffffffffffffff",
            "0_1",
        ] {
            assert_eq!(json(text), None, "{text}");
        }
    }
}
