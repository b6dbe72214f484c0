//! JSON as models write it when they slip: the reader behind the repairs that concern JSON text.
//!
//! Supported: a comma before a closing bracket, strings in single quotes, the words `True`, `False` and `None`, raw control
//! characters inside strings. Each slip is allowed on its own, and what was used is reported.
//!
//! Unsupported on purpose: anything unterminated, missing commas or colons, bare words as keys or values, comments. There
//! the text can be read in more than one way, and a call is never guessed.

use serde_json::Value;

/// One way to slip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slip {
    /// `[1, 2,]`
    TrailingComma,
    /// `{'a': 'b'}`
    SingleQuotes,
    /// `True`, `False`, `None`
    PythonLiteral,
    /// A raw line feed or tab inside a string.
    ControlCharacter,
}

/// Strict JSON, and the slips that had to be forgiven for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relaxed {
    pub(crate) value: Value,
    /// The text itself, in which a doubled key still stands twice.
    pub(crate) text: String,
    pub(crate) slips: Vec<Slip>,
}

/// Reads `text`, forgiving the slips that are `allowed`. `None`: it is still no JSON.
pub(crate) fn read(text: &str, allowed: &[Slip]) -> Option<Relaxed> {
    let mut reader = Reader { rest: text, out: String::with_capacity(text.len()), allowed, slips: Vec::new() };
    while let Some(c) = reader.take() {
        match c {
            '"' | '\'' => reader.string(c)?,
            ',' if reader.trails() => reader.slip(Slip::TrailingComma)?,
            c if c.is_alphabetic() => reader.word(c)?,
            c => reader.out.push(c),
        }
    }
    let value = serde_json::from_str(&reader.out).ok()?;
    Some(Relaxed { value, text: reader.out, slips: reader.slips })
}

/// Rewrites relaxed text as strict JSON.
struct Reader<'t> {
    rest: &'t str,
    out: String,
    allowed: &'t [Slip],
    slips: Vec<Slip>,
}

impl Reader<'_> {
    fn take(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    /// Whether a comma here stands after a value and before a closing bracket.
    fn trails(&self) -> bool {
        let after_value = !self.out.trim_ascii_end().ends_with(['[', '{', ',', ':']);
        after_value && self.rest.trim_ascii_start().starts_with(['}', ']'])
    }

    fn slip(&mut self, slip: Slip) -> Option<()> {
        if !self.slips.contains(&slip) {
            self.allowed.contains(&slip).then(|| self.slips.push(slip))?;
        }
        Some(())
    }

    /// A string after its opening quote. One that never ends is no JSON.
    fn string(&mut self, quote: char) -> Option<()> {
        if quote == '\'' {
            self.slip(Slip::SingleQuotes)?;
        }
        self.out.push('"');
        loop {
            match self.take()? {
                '\\' => match self.take()? {
                    '\'' if quote == '\'' => self.out.push('\''),
                    c => self.out.extend(['\\', c]),
                },
                c if c == quote => break,
                '"' => self.out.push_str("\\\""),
                c if c < ' ' => {
                    self.slip(Slip::ControlCharacter)?;
                    self.out.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Some(())
    }

    fn word(&mut self, first: char) -> Option<()> {
        let mut word = String::from(first);
        while self.rest.starts_with(char::is_alphanumeric) {
            word.extend(self.take());
        }
        let strict = match word.as_str() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => {
                self.out.push_str(other);
                return Some(());
            }
        };
        self.out.push_str(strict);
        self.slip(Slip::PythonLiteral)
    }
}

#[cfg(test)]
mod tests {
    use super::{Slip, read};

    const ALL: [Slip; 4] = [Slip::TrailingComma, Slip::SingleQuotes, Slip::PythonLiteral, Slip::ControlCharacter];

    fn check(text: &str, expected: &str) {
        let found = read(text, &ALL).map(|found| format!("{} {:?}", found.value, found.slips));
        assert_eq!(found.as_deref().unwrap_or("none"), expected, "{text}");
    }

    #[test]
    fn slips() {
        check("{\"a\": [1, 2.5e+3, true, null]}", "{\"a\":[1,2500.0,true,null]} []");
        check("{\"a\": [1, 2, ], }", "{\"a\":[1,2]} [TrailingComma]");
        check("{'a': 'x \"y\" \\'z\\' \\n'}", "{\"a\":\"x \\\"y\\\" 'z' \\n\"} [SingleQuotes]");
        check("[True, False, None]", "[true,false,null] [PythonLiteral]");
        check("{\"a\": \"x\ny, ]'\"}", "{\"a\":\"x\\ny, ]'\"} [ControlCharacter]");
        check("{'a': \"it's, True\",}", "{\"a\":\"it's, True\"} [SingleQuotes, TrailingComma]");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read() {
        for text in ["", "{", "{'a': 'b", "[1 2]", "{a: 1}", "{'a': 'it's'}", "[,]", "[1,,]", "Nones", "{\"a\": 1} x"] {
            check(text, "none");
        }
    }

    #[test]
    fn a_slip_that_is_switched_off_is_a_mistake() {
        assert!(read("[1,]", &[Slip::SingleQuotes]).is_none());
        assert!(read("['a']", &[Slip::TrailingComma]).is_none());
    }
}
