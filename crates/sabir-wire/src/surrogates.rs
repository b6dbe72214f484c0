//! Mends escapes of lone surrogates in JSON, such as `"\ud83d"` without the `\ude00` that makes it
//! a character.
//!
//! A program whose texts are UTF-16 (JavaScript, Java) or may hold surrogates (Python) can cut a
//! character in two and write the halves as escapes. No Rust text can hold them, so `serde_json`
//! refuses the whole value, or silently skips the member that has them if it is read late.
//!
//! # Supported
//! A lone surrogate becomes U+FFFD, as with Python's `errors="replace"`. A character whose halves
//! end one event and begin the next, in members of one name, is joined ([`SurrogateMender`]).
//!
//! # Unsupported
//! Raw surrogates in UTF-8 (`ED A0 80`), which are invalid bytes, and halves of one character with
//! another event between them.
//!
//! All replacements are as long as what they replace, so offsets do not change. An event without
//! `\ud8` to `\udf` costs one search for `\u`.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The length of an escape of one UTF-16 unit.
const ESCAPE_BYTES: usize = "\\ud83d".len();

/// The escape of U+FFFD.
const REPLACEMENT: &str = "\\ufffd";

/// An escape of a surrogate without its partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoneSurrogate {
    /// The offset of its backslash.
    at: usize,
    /// The offset of the quote that opens its string.
    opening: usize,
    /// True for the first half of a character.
    is_high: bool,
}

/// Parses JSON; lone surrogates in it become U+FFFD. They are looked for only if the text cannot be
/// parsed as it is.
///
/// # Errors
/// The text is not JSON.
pub fn parse_lossy<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|error| {
        let text = String::from_utf8_lossy(json);
        let mended = replace_all(&text, &find_lone_surrogates(&text));
        match mended {
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(mended) => serde_json::from_str(&mended),
        }
    })
}

/// Returns the path of the first value with a lone surrogate and the position of its escape in
/// bytes, or `None` if there is none in the text. The path is `None` for a name of a member, and for
/// a text that is no JSON besides.
pub(crate) fn locate_lone_surrogate(json: &[u8]) -> Option<(Option<String>, usize)> {
    // Noncharacters mark the place: nobody may interchange them.
    const MARK: &str = "\u{fdd0}\u{fdd1}";
    let text = std::str::from_utf8(json).ok()?;
    let lone = find_lone_surrogates(text);
    let first = *lone.first()?;
    let mended = replace_all(text, &lone).into_owned();
    let before = mended.get(..first.at).unwrap_or_default();
    let behind = mended.get(first.at + ESCAPE_BYTES..).unwrap_or_default();
    let value = serde_json::from_str::<Value>(&format!("{before}{MARK}{behind}")).ok();
    let mut path = String::new();
    let found = value.is_some_and(|value| find_text(&value, MARK, &mut path));
    Some((found.then_some(path), first.at))
}

/// Extends the path by that of the first string that contains a text. Returns false if there is none.
fn find_text(value: &Value, part: &str, path: &mut String) -> bool {
    let length = path.len();
    let mut find_in = |step: &str, value: &Value| {
        path.push_str(step);
        let found = find_text(value, part, path);
        if !found {
            path.truncate(length);
        }
        found
    };
    match value {
        Value::String(text) => text.contains(part),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .any(|(index, item)| find_in(&format!("[{index}]"), item)),
        Value::Object(members) => members.iter().any(|(name, member)| {
            let step = match length {
                0 => name.clone(),
                _ => format!(".{name}"),
            };
            find_in(&step, member)
        }),
        _ => false,
    }
}

/// Finds all escapes of lone surrogates in a JSON text, in order.
fn find_lone_surrogates(json: &str) -> Vec<LoneSurrogate> {
    let bytes = json.as_bytes();
    let mut lone = Vec::new();
    let mut opening = None;
    let mut at = 0;
    while let Some(next) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        let found = at + next;
        if bytes.get(found) == Some(&b'"') {
            opening = match opening {
                None => Some(found),
                Some(_) => None,
            };
            at = found + 1;
            continue;
        }
        // The character after any other backslash is escaped, also if it is a quote.
        at = found + 2;
        let Some(unit) = surrogate_at(bytes, found) else {
            continue;
        };
        let is_high = unit < 0xdc00;
        let partner = surrogate_at(bytes, found + ESCAPE_BYTES).filter(|unit| *unit >= 0xdc00);
        at = found + ESCAPE_BYTES;
        if is_high && partner.is_some() {
            at += ESCAPE_BYTES;
        } else {
            lone.push(LoneSurrogate {
                at: found,
                opening: opening.unwrap_or_default(),
                is_high,
            });
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

/// Replaces escapes of lone surrogates by U+FFFD.
fn replace_all<'t>(json: &'t str, lone: &[LoneSurrogate]) -> Cow<'t, str> {
    if lone.is_empty() {
        return Cow::Borrowed(json);
    }
    let mut mended = json.to_owned();
    for surrogate in lone {
        mended.replace_range(surrogate.at..surrogate.at + ESCAPE_BYTES, REPLACEMENT);
    }
    Cow::Owned(mended)
}

/// Returns the name of the member whose string is opened by the quote at an offset.
fn member_name(json: &str, opening: usize) -> Option<&str> {
    let before = json.get(..opening)?.trim_end().strip_suffix(':')?;
    let name = before.trim_end().strip_suffix('"')?;
    name.rfind('"').and_then(|start| name.get(start + 1..))
}

/// An event without lone surrogates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MendedEvent {
    /// The name of the event.
    pub(crate) name: String,
    /// Its JSON.
    pub(crate) data: String,
    /// True if U+FFFD replaced something.
    pub(crate) is_changed: bool,
}

/// An event whose last character may be completed by the next one.
#[derive(Debug)]
struct HeldEvent {
    /// The event, which has no other lone surrogate.
    event: MendedEvent,
    /// The first half of a character, at the end of a string.
    half: LoneSurrogate,
}

/// Mends the events of one answer.
#[derive(Debug)]
pub(crate) struct SurrogateMender {
    /// Finds escapes of UTF-16 units.
    escapes: Finder<'static>,
    /// The event that waits for the other half of its last character.
    held: Option<HeldEvent>,
}

impl Default for SurrogateMender {
    fn default() -> Self {
        Self {
            escapes: Finder::new("\\u"),
            held: None,
        }
    }
}

impl SurrogateMender {
    /// Returns true if the event can be read as it is, which holds for almost all.
    pub(crate) fn is_plain(&self, data: &str) -> bool {
        let bytes = data.as_bytes();
        let mut escapes = self.escapes.find_iter(bytes);
        let is_surrogate = |at: usize| {
            let digits = bytes.get(at + 2..at + 4).unwrap_or_default();
            matches!(
                digits,
                [b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F']
            )
        };
        self.held.is_none() && !escapes.any(is_surrogate)
    }

    /// Mends an event. Returns the events that can be read now: one that waited for this one, and
    /// this one, unless it waits itself.
    pub(crate) fn mend_event(&mut self, name: &str, data: &str) -> Vec<MendedEvent> {
        let mut mended = Vec::new();
        let mut data = Cow::Borrowed(data);
        if let Some(mut held) = self.held.take() {
            let is_joined = held.event.name == name && held.take_half(&mut data);
            mended.push(held.release(is_joined));
        }
        let mut lone = find_lone_surrogates(&data);
        let may_continue = |half: &LoneSurrogate| {
            half.is_high && data.as_bytes().get(half.at + ESCAPE_BYTES) == Some(&b'"')
        };
        let half = lone
            .iter()
            .rposition(may_continue)
            .map(|position| lone.remove(position));
        let event = MendedEvent {
            name: name.to_owned(),
            data: replace_all(&data, &lone).into_owned(),
            is_changed: !lone.is_empty(),
        };
        match half {
            Some(half) => self.held = Some(HeldEvent { event, half }),
            None => mended.push(event),
        }
        mended
    }

    /// Returns the event that waits, since no other one follows.
    pub(crate) fn take_held(&mut self) -> Option<MendedEvent> {
        self.held.take().map(|held| held.release(false))
    }
}

impl HeldEvent {
    /// Moves the second half of the last character from the next event to this one. Returns false if
    /// no string of that event begins with it.
    fn take_half(&mut self, next: &mut Cow<'_, str>) -> bool {
        let data = &mut self.event.data;
        let member = member_name(data, self.half.opening);
        let continues = |second: &LoneSurrogate| {
            !second.is_high
                && second.at == second.opening + 1
                && member_name(next, second.opening) == member
        };
        let Some(second) = find_lone_surrogates(next).into_iter().find(continues) else {
            return false;
        };
        let range = second.at..second.at + ESCAPE_BYTES;
        let escape = next.get(range.clone()).unwrap_or_default();
        data.insert_str(self.half.at + ESCAPE_BYTES, escape);
        next.to_mut().replace_range(range, "");
        true
    }

    /// Returns the event for reading.
    fn release(self, is_joined: bool) -> MendedEvent {
        let Self { mut event, half } = self;
        if !is_joined {
            event.data = replace_all(&event.data, &[half]).into_owned();
            event.is_changed = true;
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the JSON of all events after mending, and how many of them were changed.
    fn mend_all(events: &[&str]) -> (Vec<String>, usize) {
        let mut mender = SurrogateMender::default();
        let mut mended = Vec::new();
        for data in events {
            if mender.is_plain(data) {
                mended.push(MendedEvent {
                    name: String::new(),
                    data: (*data).to_owned(),
                    is_changed: false,
                });
            } else {
                mended.extend(mender.mend_event("", data));
            }
        }
        mended.extend(mender.take_held());
        let changed = mended.iter().filter(|event| event.is_changed).count();
        (
            mended.into_iter().map(|event| event.data).collect(),
            changed,
        )
    }

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
            let (mended, changed) = mend_all(&[json]);
            assert_eq!(mended, [expected], "{json}");
            assert_eq!(changed, usize::from(json != expected));
            let parsed: Value = parse_lossy(json.as_bytes()).unwrap();
            assert_eq!(parsed, serde_json::from_str::<Value>(expected).unwrap());
        }
        for json in [r#"["\ud83d"#, r#"["\ud8"#, "\\ud83d", r#"{"a":"\ud83"#] {
            mend_all(&[json]);
            assert!(parse_lossy::<Value>(json.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_character_in_two_events_is_joined() {
        let rows: [(&[&str], &[&str]); 6] = [
            (
                &[r#"{"a":"x\ud83d"}"#, r#"{"a":"\ude00y"}"#],
                &[r#"{"a":"x\ud83d\ude00"}"#, r#"{"a":"y"}"#],
            ),
            // The second one ends in the midst of a character too.
            (
                &[r#"["\ud83d"]"#, r#"["\ude00\ud83d"]"#, r#"["\ude01"]"#],
                &[r#"["\ud83d\ude00"]"#, r#"["\ud83d\ude01"]"#, r#"[""]"#],
            ),
            // Another member, another event between, no other event.
            (
                &[r#"{"a":"\ud83d"}"#, r#"{"b":"\ude00"}"#],
                &[r#"{"a":"\ufffd"}"#, r#"{"b":"\ufffd"}"#],
            ),
            (
                &[r#"{"a":"\ud83d"}"#, "{}", r#"{"a":"\ude00"}"#],
                &[r#"{"a":"\ufffd"}"#, "{}", r#"{"a":"\ufffd"}"#],
            ),
            (&[r#"{"a":"\ud83d"}"#], &[r#"{"a":"\ufffd"}"#]),
            // The half is not at the beginning of a string.
            (
                &[r#"{"a":"\ud83d"}"#, r#"{"a":"\"\ude00"}"#],
                &[r#"{"a":"\ufffd"}"#, r#"{"a":"\"\ufffd"}"#],
            ),
        ];
        for (events, expected) in rows {
            assert_eq!(mend_all(events).0, expected, "{events:?}");
        }
        assert_eq!(mend_all(rows[0].0).1, 0);
        assert_eq!(mend_all(rows[2].0).1, 2);
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
    }
}
