//! Replaces escapes of lone surrogates in JSON, such as `"\ud83d"` without the `\ude00` that makes it
//! a character, by U+FFFD, as Python's `errors="replace"` does.
//!
//! A program whose texts are UTF-16 (JavaScript, Java) or may hold surrogates (Python) can cut a
//! character in two and write the halves as escapes. No Rust text can hold them, so `serde_json`
//! refuses the whole value, or silently skips the member that has them if it is read late.
//!
//! # Unsupported
//! The halves of a character in two events are not joined: an event would have to wait for the next
//! one, which may never come. Raw surrogates in UTF-8 (`ED A0 80`) are invalid bytes, and replaced
//! as such.
//!
//! A replacement is as long as what it replaces, so offsets do not change. An event without
//! `\ud8` to `\udf` costs one search for `\u`.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The length of an escape of one UTF-16 unit.
const ESCAPE_BYTES: usize = "\\ud83d".len();

/// The escape of U+FFFD.
const REPLACEMENT: &str = "\\ufffd";

/// Finds escapes of UTF-16 units.
static UNIT_ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u"));

/// Parses JSON; lone surrogates in it become U+FFFD. They are replaced only if the unchanged text cannot be parsed.
///
/// # Errors
/// The text is not JSON.
pub fn parse_lossy<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|error| {
        let text = String::from_utf8_lossy(json);
        match replace_lone_surrogates(&text) {
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(replaced) => serde_json::from_str(&replaced),
        }
    })
}

/// Returns a JSON text with U+FFFD for each lone surrogate; the text itself if it has none.
pub(crate) fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    if !has_surrogate(json) {
        return Cow::Borrowed(json);
    }
    replace_escapes(json, &find_lone_surrogates(json))
}

/// Returns true if a text has escapes of surrogates, lone or not.
fn has_surrogate(json: &str) -> bool {
    let bytes = json.as_bytes();
    UNIT_ESCAPES.find_iter(bytes).any(|at| {
        matches!(
            bytes.get(at + 2..at + 4).unwrap_or_default(),
            [b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F']
        )
    })
}

/// Returns the path of the first value with a lone surrogate and the position of its escape in
/// bytes, or `None` if there is none, or the text is not JSON even without it. The path is `None` for
/// the name of a member.
pub(crate) fn locate_lone_surrogate(json: &[u8]) -> Option<(Option<String>, usize)> {
    /// Another character, of the same length as the replacement.
    const OTHER_REPLACEMENT: &str = "\\ufffe";
    let text = std::str::from_utf8(json).ok()?;
    let lone = find_lone_surrogates(text);
    let first = *lone.first()?;
    let mut replaced = replace_escapes(text, &lone).into_owned();
    let value: Value = serde_json::from_str(&replaced).ok()?;
    replaced.replace_range(first..first + ESCAPE_BYTES, OTHER_REPLACEMENT);
    let other: Value = serde_json::from_str(&replaced).ok()?;
    let mut path = String::new();
    let found = find_difference(&value, &other, &mut path);
    Some((found.then_some(path), first))
}

/// Extends the path by that of the first string that differs. Returns false if there is none.
fn find_difference(one: &Value, other: &Value, path: &mut String) -> bool {
    let length = path.len();
    let mut differs_at = |step: &str, one: &Value, other: &Value| {
        path.push_str(step);
        let found = find_difference(one, other, path);
        if !found {
            path.truncate(length);
        }
        found
    };
    match (one, other) {
        (Value::String(one), Value::String(other)) => one != other,
        (Value::Array(ones), Value::Array(others)) => {
            let mut pairs = ones.iter().zip(others).enumerate();
            pairs.any(|(index, (one, other))| differs_at(&format!("[{index}]"), one, other))
        }
        (Value::Object(ones), Value::Object(others)) => ones.iter().any(|(name, one)| {
            let step = match length {
                0 => name.clone(),
                _ => format!(".{name}"),
            };
            others
                .get(name)
                .is_some_and(|other| differs_at(&step, one, other))
        }),
        _ => false,
    }
}

/// Finds the offsets of all escapes of lone surrogates in a JSON text, in order.
fn find_lone_surrogates(json: &str) -> Vec<usize> {
    let bytes = json.as_bytes();
    let mut lone = Vec::new();
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        let found = at + next;
        // The character after any other backslash is escaped, also if it is one.
        at = found + 2;
        let Some(unit) = surrogate_at(bytes, found) else {
            continue;
        };
        let partner = surrogate_at(bytes, found + ESCAPE_BYTES).filter(|unit| *unit >= 0xdc00);
        at = found + ESCAPE_BYTES;
        if unit < 0xdc00 && partner.is_some() {
            at += ESCAPE_BYTES;
        } else {
            lone.push(found);
        }
    }
    lone
}

/// Returns the surrogate whose escape is at an offset.
fn surrogate_at(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xd800..0xe000).contains(&unit).then_some(unit)
}

/// Replaces the escapes at these offsets by U+FFFD.
fn replace_escapes<'t>(json: &'t str, offsets: &[usize]) -> Cow<'t, str> {
    if offsets.is_empty() {
        return Cow::Borrowed(json);
    }
    let mut replaced = json.to_owned();
    for &at in offsets {
        replaced.replace_range(at..at + ESCAPE_BYTES, REPLACEMENT);
    }
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (json, expected) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"x\uDE00y"}"#, r#"{"a":"x\ufffdy"}"#),
            (r#"["\ud83d\ude00"]"#, r#"["\ud83d\ude00"]"#),
            (r#"["\ud83d\ud83d\ude00"]"#, r#"["\ufffd\ud83d\ude00"]"#),
            (r#"["\ude00\ud83d!"]"#, r#"["\ufffd\ufffd!"]"#),
            (r#"["\\ud83d"]"#, r#"["\\ud83d"]"#),
            (r#"["\\\ud83d"]"#, r#"["\\\ufffd"]"#),
            (r#"["\ud7ff\ue000\u00e9"]"#, r#"["\ud7ff\ue000\u00e9"]"#),
            (r#"{"\ud83d":"\"\ud83d\""}"#, r#"{"\ufffd":"\"\ufffd\""}"#),
        ] {
            let replaced = replace_lone_surrogates(json);
            assert_eq!(replaced, expected, "{json}");
            assert_eq!(
                matches!(replaced, Cow::Owned(_)),
                json != expected,
                "{json}"
            );
            let parsed: Value = parse_lossy(json.as_bytes()).unwrap();
            assert_eq!(parsed, serde_json::from_str::<Value>(expected).unwrap());
        }
        for json in [r#"["\ud83d"#, r#"["\ud8"#, "\\ud83d", r#"{"a":"\ud83"#] {
            replace_lone_surrogates(json);
            assert!(parse_lossy::<Value>(json.as_bytes()).is_err());
        }
    }

    #[test]
    fn the_place_of_a_lone_surrogate_is_named() {
        let body = r#"{"messages": [{"a": 1}, {"content": [{"text": "x\ud83d"}]}], "b": "\ud83d"}"#;
        let place = locate_lone_surrogate(body.as_bytes()).unwrap();
        assert_eq!(place.0.as_deref(), Some("messages[1].content[0].text"));
        assert_eq!(place.1, body.find("\\ud").unwrap());
        let name = json!({"a": 1}).to_string().replace('a', "\\ude00");
        assert_eq!(locate_lone_surrogate(name.as_bytes()), Some((None, 2)));
        assert_eq!(locate_lone_surrogate(b"{\"a\": 1}"), None);
        // Another mistake has to be fixed.
        assert_eq!(locate_lone_surrogate(br#"{"a": "\ud83d",}"#), None);
    }
}
