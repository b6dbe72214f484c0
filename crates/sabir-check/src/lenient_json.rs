//! Parses JSON with the mistakes that models make, for the repairs that concern JSON text.
//!
//! Supported: a comma before a closing bracket, strings in single quotes, the words `True`, `False` and `None`, raw control
//! characters inside strings. Each mistake is allowed separately, and those that occurred are reported.
//!
//! Unsupported on purpose: anything unterminated, missing commas or colons, bare words as keys or values, comments, and for
//! a value ([`parse_strict`], [`LenientJson::reject_duplicate_keys`]) a duplicate key. Such a text has more than one
//! reading, and a call is never guessed.
//!
//! The text is rewritten as strict JSON, which `serde_json` then parses. Where the two texts differ in length the offsets are
//! recorded, so that an error points at the byte that the model wrote.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

/// A kind of mistake in JSON that can be allowed.
///
/// Each is unambiguous, because the mistake is in the punctuation and the value is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonMistake {
    /// `[1, 2,]`
    TrailingComma,
    /// `{'a': 'b'}`
    SingleQuotes,
    /// `True`, `False`, `None`
    PythonLiteral,
    /// A raw line feed or tab inside a string.
    ControlCharacter,
}

/// A parsed value, and the mistakes that had to be allowed for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LenientJson {
    pub(crate) value: Value,
    /// The value as strict JSON text.
    pub(crate) text: String,
    pub(crate) slips: Vec<JsonMistake>,
    marks: OffsetMap,
}

/// An error in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonSyntaxError {
    /// The offset of the first wrong byte.
    pub(crate) at: usize,
    /// The expected input, or the problem at that position.
    pub(crate) message: String,
    /// True if the text is JSON and only has a duplicate key.
    pub(crate) is_duplicate_key: bool,
}

/// A map from offsets in the rewritten text to offsets in the written one.
///
/// It holds a pair of both offsets for each place at which their difference changes.
#[derive(Debug, Clone, Default, PartialEq)]
struct OffsetMap(Vec<(usize, usize)>);

/// Parses strict JSON without duplicate keys and without integers of more than 64 bits.
///
/// serde_json silently keeps the last of two equal keys and rounds wide integers to floats. Either would run a call with a value that the
/// model did not write.
///
/// # Errors
/// Returns the offset of the first wrong byte, of the wide integer, or of the second key.
pub(crate) fn parse_strict(text: &str) -> Result<Value, JsonSyntaxError> {
    let value =
        serde_json::from_str(text).map_err(|error| JsonSyntaxError::from_serde(text, &error))?;
    if let Some(at) = find_wide_integer(text) {
        return Err(JsonSyntaxError::new(at, WIDE_INTEGER_MESSAGE));
    }
    match find_duplicate_key(text) {
        Some((key, at)) => Err(JsonSyntaxError::duplicate_key(&key, at)),
        None => Ok(value),
    }
}

/// Parses JSON with the `allowed` mistakes. Duplicate keys are not checked here.
///
/// # Errors
/// Returns the first byte that no allowed mistake explains, as an offset in `text`.
pub(crate) fn parse_lenient(
    text: &str,
    allowed: &[JsonMistake],
) -> Result<LenientJson, JsonSyntaxError> {
    let mut reader = LenientRewriter {
        text,
        rest: text,
        out: String::with_capacity(text.len()),
        allowed,
        slips: Vec::new(),
        marks: OffsetMap::default(),
    };
    // One pass: each character is taken once, and strings and words are consumed whole.
    // Structure is not checked here, since serde_json does that on the result.
    while let Some(c) = reader.next_char() {
        match c {
            '"' | '\'' => reader.rewrite_string(c)?,
            ',' if reader.is_trailing_comma() => reader.allow_mistake(
                JsonMistake::TrailingComma,
                "no comma before a closing bracket",
            )?,
            c if c.is_alphabetic() => reader.rewrite_word(c)?,
            c => reader.out.push(c),
        }
    }
    let LenientRewriter {
        out, slips, marks, ..
    } = reader;
    if let Some(at) = find_wide_integer(&out) {
        return Err(JsonSyntaxError::new(
            marks.source_offset(at).min(text.len()),
            WIDE_INTEGER_MESSAGE,
        ));
    }
    match serde_json::from_str(&out) {
        Ok(value) => Ok(LenientJson {
            value,
            text: out,
            slips,
            marks,
        }),
        Err(error) => {
            let broken = JsonSyntaxError::from_serde(&out, &error);
            Err(JsonSyntaxError {
                at: marks.source_offset(broken.at).min(text.len()),
                ..broken
            })
        }
    }
}

/// The error message for an integer that would lose its last digits.
const WIDE_INTEGER_MESSAGE: &str = "a whole number of more than 64 bits was found, which cannot be kept exactly; write it as a string";

/// Finds the offset of the first integer of more than 64 bits. serde_json would round it to a float silently. `text` need not be valid
/// JSON; strings are skipped. Floats of any length are ignored, because JSON readers round them anyway.
pub(crate) fn find_wide_integer(text: &str) -> Option<usize> {
    // No number with fewer digits can exceed 64 bits, so most are skipped without being parsed.
    const MIN_DIGITS: usize = "9223372036854775808".len();
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => find_string_end(bytes, at),
            b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E' => {
                let number =
                    |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E');
                let end = at
                    + bytes
                        .get(at..)
                        .unwrap_or_default()
                        .iter()
                        .take_while(number)
                        .count();
                let word = text.get(at..end).unwrap_or_default();
                let whole = word.len() >= MIN_DIGITS && !word.contains(['.', 'e', 'E']);
                if whole && word.parse::<i64>().is_err() && word.parse::<u64>().is_err() {
                    return Some(at);
                }
                end
            }
            _ => at + 1,
        };
    }
    None
}

/// Finds the first duplicate key of an object at any depth, and the offset of its second occurrence. `text` must be valid JSON.
/// A set for each open object keeps the search linear.
fn find_duplicate_key(text: &str) -> Option<(Cow<'_, str>, usize)> {
    let bytes = text.as_bytes();
    // The keys of each open object; `None` for an array.
    let mut open: Vec<Option<HashSet<Cow<'_, str>>>> = Vec::new();
    let mut at = 0;
    // True where the next string is a key.
    let mut key_next = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => {
                open.push(Some(HashSet::new()));
                key_next = true;
            }
            b'[' => {
                open.push(None);
                key_next = false;
            }
            b'}' | b']' => {
                open.pop();
                key_next = false;
            }
            // After a comma comes a key in an object, and a value in an array.
            b',' => key_next = matches!(open.last(), Some(Some(_))),
            b'"' => {
                let end = find_string_end(bytes, at);
                if key_next && let Some(Some(keys)) = open.last_mut() {
                    let key = decode_key(text.get(at..end).unwrap_or_default());
                    if keys.contains(&key) {
                        return Some((key, at));
                    }
                    keys.insert(key);
                }
                key_next = false;
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the offset just past the closing quote of the string that begins at `at`.
/// The end of the text if there is no closing quote.
fn find_string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    bytes.len()
}

/// Decodes the escapes of a quoted key, so that `"a"` and `"\u0061"` compare equal.
fn decode_key(quoted: &str) -> Cow<'_, str> {
    let plain = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(quoted);
    match quoted.contains('\\').then(|| serde_json::from_str(quoted)) {
        Some(Ok(decoded)) => Cow::Owned(decoded),
        _ => Cow::Borrowed(plain),
    }
}

impl JsonSyntaxError {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            is_duplicate_key: false,
        }
    }

    fn duplicate_key(key: &str, at: usize) -> Self {
        let message = format!(
            "the key `{}` is given twice",
            crate::repair::shorten_text(key)
        );
        Self {
            is_duplicate_key: true,
            ..Self::new(at, message)
        }
    }

    /// Converts an error of serde_json, with its line and column as an offset.
    /// serde_json counts columns in bytes from 1, and reports the end of the text as an error of
    /// its own category.
    pub(crate) fn from_serde(text: &str, error: &serde_json::Error) -> Self {
        let before: usize = text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let at = before
            .saturating_add(error.column().saturating_sub(1))
            .min(text.len());
        let message = error.to_string();
        // Line and column are cut off: they refer to the rewritten text.
        match message.split(" at line ").next() {
            Some("key must be a string") => Self::new(at, "a key in double quotes was expected"),
            Some(message) if !error.is_eof() => Self::new(at, message),
            _ => Self::new(text.len(), "the text ends too early"),
        }
    }
}

impl LenientJson {
    /// Returns the value if no object in it has a duplicate key.
    pub(crate) fn reject_duplicate_keys(self) -> Result<Value, JsonSyntaxError> {
        match find_duplicate_key(&self.text) {
            Some((key, at)) => Err(JsonSyntaxError::duplicate_key(&key, self.source_offset(at))),
            None => Ok(self.value),
        }
    }

    /// Maps an offset in [`LenientJson::text`] to an offset in the text as written.
    pub(crate) fn source_offset(&self, at: usize) -> usize {
        self.marks.source_offset(at)
    }
}

impl OffsetMap {
    /// Records that the two offsets correspond, if that does not follow from the last pair.
    fn add_mark(&mut self, out: usize, written: usize) {
        // Wrapping, because the rewritten text may be longer or shorter than the source.
        let known = self
            .0
            .last()
            .map_or(0, |(out, written)| written.wrapping_sub(*out));
        if written.wrapping_sub(out) != known {
            self.0.push((out, written));
        }
    }

    /// Maps an offset in the rewritten text back, by binary search among the recorded pairs.
    fn source_offset(&self, out: usize) -> usize {
        let next = self.0.partition_point(|(from, _)| *from <= out);
        let (from, written) = next
            .checked_sub(1)
            .and_then(|at| self.0.get(at))
            .copied()
            .unwrap_or_default();
        written + (out - from)
    }
}

/// The state of rewriting lenient JSON as strict JSON.
struct LenientRewriter<'t> {
    text: &'t str,
    rest: &'t str,
    out: String,
    allowed: &'t [JsonMistake],
    slips: Vec<JsonMistake>,
    marks: OffsetMap,
}

impl LenientRewriter<'_> {
    /// Takes the next character, and records the offset at which its replacement will be written.
    fn next_char(&mut self) -> Option<char> {
        self.marks.add_mark(self.out.len(), self.current_offset());
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    /// Returns the offset of the next character in the source.
    fn current_offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// Returns true if the comma just taken comes after a value and before a closing bracket. False for `[,]` and `[1,,]`, where a value
    /// may be missing.
    fn is_trailing_comma(&self) -> bool {
        let after_value = !self.out.trim_ascii_end().ends_with(['[', '{', ',', ':']);
        after_value && self.rest.trim_ascii_start().starts_with(['}', ']'])
    }

    /// Records the mistake at the character just taken, or returns an error if it is not allowed.
    /// Each kind is recorded once, however often it occurs.
    fn allow_mistake(&mut self, slip: JsonMistake, expected: &str) -> Result<(), JsonSyntaxError> {
        if !self.slips.contains(&slip) {
            if !self.allowed.contains(&slip) {
                return Err(JsonSyntaxError::new(
                    self.current_offset() - 1,
                    format!("{expected} was expected"),
                ));
            }
            self.slips.push(slip);
        }
        Ok(())
    }

    /// Rewrites a string after its opening quote. An unterminated string is an error.
    ///
    /// An apostrophe inside single quotes (`'it's'`) ends the string, and the rest is then invalid. That is intended: a guess of the real
    /// end could move bytes from one argument to another.
    fn rewrite_string(&mut self, quote: char) -> Result<(), JsonSyntaxError> {
        let start = self.current_offset() - 1;
        if quote == '\'' {
            self.allow_mistake(JsonMistake::SingleQuotes, "a string in double quotes")?;
        }
        self.out.push('"');
        loop {
            let unterminated = || {
                JsonSyntaxError::new(
                    start,
                    format!("the string that begins here has no closing `{quote}`"),
                )
            };
            match self.next_char().ok_or_else(unterminated)? {
                '\\' => match self.next_char().ok_or_else(unterminated)? {
                    // `\'` is not an escape of JSON; inside double quotes it is left for serde_json
                    // to reject.
                    '\'' if quote == '\'' => self.out.push('\''),
                    c => self.out.extend(['\\', c]),
                },
                c if c == quote => break,
                '"' => self.out.push_str("\\\""),
                // Escaped by number: `\u000a` is valid for every control character, without a
                // table.
                c if c < ' ' => {
                    self.allow_mistake(
                        JsonMistake::ControlCharacter,
                        "an escaped control character, such as `\\n`,",
                    )?;
                    self.out.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }

    /// Rewrites a bare word; words other than Python's literals are left to serde_json.
    fn rewrite_word(&mut self, first: char) -> Result<(), JsonSyntaxError> {
        let start = self.current_offset() - first.len_utf8();
        let mut word = String::from(first);
        let end = self
            .rest
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(self.rest.len());
        let (more, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        word.push_str(more);
        self.rest = rest;
        let strict = match word.as_str() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => {
                self.out.push_str(other);
                return Ok(());
            }
        };
        self.out.push_str(strict);
        let slip = self.allow_mistake(JsonMistake::PythonLiteral, &format!("`{strict}`"));
        slip.map_err(|broken| JsonSyntaxError {
            at: start,
            ..broken
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonMistake, parse_lenient};

    const ALL: [JsonMistake; 4] = [
        JsonMistake::TrailingComma,
        JsonMistake::SingleQuotes,
        JsonMistake::PythonLiteral,
        JsonMistake::ControlCharacter,
    ];

    fn check(text: &str, allowed: &[JsonMistake], expected: &str) {
        let found = parse_lenient(text, allowed)
            .and_then(|found| Ok((found.slips.clone(), found.reject_duplicate_keys()?)));
        let found = match found {
            Ok((slips, value)) => format!("{value} {slips:?}"),
            Err(broken) => format!("@{} {}", broken.at, broken.message),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn slips() {
        let rows = [
            (
                "{\"a\": [1, 2.5e+3, true, null]}",
                "{\"a\":[1,2500.0,true,null]} []",
            ),
            ("{\"a\": [1, 2, ], }", "{\"a\":[1,2]} [TrailingComma]"),
            (
                "{'a': 'x \"y\" \\'z\\' \\n'}",
                "{\"a\":\"x \\\"y\\\" 'z' \\n\"} [SingleQuotes]",
            ),
            ("[True, False, None]", "[true,false,null] [PythonLiteral]"),
            (
                "{\"a\": \"x\ny, ]'\"}",
                "{\"a\":\"x\\ny, ]'\"} [ControlCharacter]",
            ),
            (
                "{'a': \"it's, True\",}",
                "{\"a\":\"it's, True\"} [SingleQuotes, TrailingComma]",
            ),
        ];
        for (text, expected) in rows {
            check(text, &ALL, expected);
        }
    }

    #[test]
    fn ambiguous_or_incomplete_json_is_refused() {
        let rows = [
            ("", "@0 the text ends too early"),
            ("{", "@1 the text ends too early"),
            (
                "{'a': 'b",
                "@6 the string that begins here has no closing `'`",
            ),
            (
                "{'a': 'b}\\",
                "@6 the string that begins here has no closing `'`",
            ),
            ("[1 2]", "@3 expected `,` or `]`"),
            ("{a: 1}", "@1 a key in double quotes was expected"),
            (
                "{'a': 'it's'}",
                "@11 the string that begins here has no closing `'`",
            ),
            ("[,]", "@1 expected value"),
            ("[1,,]", "@3 expected value"),
            ("Nones", "@0 expected value"),
            ("{\"a\": 1} x", "@9 trailing characters"),
            ("['a', 'b\tc', True, 'd' x]", "@23 expected `,` or `]`"),
            ("['\n\n\n', None, é]", "@14 expected value"),
        ];
        for (text, expected) in rows {
            check(text, &ALL, expected);
        }
    }

    #[test]
    fn a_slip_that_is_switched_off_is_a_mistake() {
        check(
            "[1,]",
            &[JsonMistake::SingleQuotes],
            "@2 no comma before a closing bracket was expected",
        );
        check(
            "[ 'a']",
            &[JsonMistake::TrailingComma],
            "@2 a string in double quotes was expected",
        );
        check("[ None]", &[], "@2 `null` was expected");
        check(
            "[\"a\n\"]",
            &[],
            "@3 an escaped control character, such as `\\n`, was expected",
        );
    }

    #[test]
    fn a_key_given_twice_is_seen_at_any_depth() {
        let rows = [
            ("{\"a\": 1, \"a\": 2}", "@9 the key `a` is given twice"),
            (
                "[{\"b\": {\"a\": [1, \"a\", \"a\"], \"\\u0061\": 2}}]",
                "@28 the key `a` is given twice",
            ),
            (
                "{'a': 1, 'c': {'a': 'a', \"a\": 2}}",
                "@25 the key `a` is given twice",
            ),
            (
                "{\"a,\": \"}\\\"\", \"a\": [\"a\", {\"a\": {}}]}",
                "{\"a,\":\"}\\\"\",\"a\":[\"a\",{\"a\":{}}]} []",
            ),
        ];
        for (text, expected) in rows {
            check(text, &ALL, expected);
        }
        let many: String = (0..200_000)
            .map(|n| format!("\"k{n}\":[{{\"x\":0}}],"))
            .collect();
        check(
            &format!("{{{many}\"k7\":0}}"),
            &[],
            &format!("@{} the key `k7` is given twice", many.len() + 1),
        );
    }
}
