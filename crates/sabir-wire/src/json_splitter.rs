//! JSON values one after the other: bytes in, values out, each as soon as it is whole.
//!
//! # Supported
//! Objects behind each other, with or without line feeds between them (NDJSON); a list, whose objects are given one by
//! one while it comes. What begins an object and cannot be one is noticed at once, so that a line of rubbish does not
//! swallow the line behind it.
//!
//! # Unsupported
//! Values that are no objects: no wire answers with one. Whether a value is valid JSON is for its reader to say; here
//! only brackets and strings are followed.
//!
//! # Grammar as implemented
//! ```text
//! body    = *(blank / object / stray)
//! blank   = white space / "[" / "," / "]"
//! object  = "{" *space (DQUOTE / "}") …            ; up to the bracket that closes it
//! stray   = any other byte, and all up to the next "{" ; told once, however much of it stands between two objects
//! ```
//! A list is known by its brackets alone: one that is never closed loses none of its elements, and lists in lists are
//! read like one. A line feed inside a string ends the object as stray, since no JSON has one there.
//!
//! Every byte is looked at once and copied at most once; an object that lies in one chunk is borrowed from it.

use crate::sse::{MAX_EVENT, lossy_text};

/// What stands in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonValue<'a> {
    /// One object, from its first bracket to its last.
    Object(&'a str),
    /// Something that is no object stands here. Told once between two objects.
    Stray,
    /// An object above [`MAX_EVENT`], which has been dropped.
    TooLong,
}

/// A splitter that does no I/O. Memory is bounded by [`MAX_EVENT`].
#[derive(Debug, Default)]
pub(crate) struct ValueSplitter {
    state: SplitterState,
    /// The object that the last chunk left unfinished.
    held: Vec<u8>,
    /// It has grown too long, and is followed without being kept.
    too_long: bool,
    /// Something stray has been told since the last object.
    strayed: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SplitterState {
    /// Between values.
    #[default]
    Between,
    /// In something that is no value.
    Stray,
    /// Behind the first bracket of an object.
    Opened,
    /// Inside an object, so deep.
    Inside(u32),
    /// In a string of an object, so deep.
    Quoted(u32),
    /// Behind a backslash in such a string.
    Escaped(u32),
}

/// What one byte means for the splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitAction {
    /// It goes on as before.
    On,
    /// An object begins with it.
    Begin,
    /// An object ends with it.
    End,
    /// What began before it, or begins with it, is no object.
    Stray,
}

impl ValueSplitter {
    /// Takes the next bytes and delivers every value that they complete.
    pub(crate) fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(JsonValue<'_>)) {
        let mut start = 0;
        let mut at = 0;
        while let Some(byte) = chunk.get(at) {
            if let SplitterState::Quoted(_) = self.state {
                // Most bytes of an answer stand in strings.
                let rest = chunk.get(at..).unwrap_or_default();
                let skip = memchr::memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
                if skip > 0 {
                    at += skip;
                    continue;
                }
            }
            at += 1;
            let (state, turn) = next_state(self.state, *byte);
            self.state = state;
            match turn {
                SplitAction::On => {}
                SplitAction::Begin => start = at - 1,
                SplitAction::Stray => {
                    self.drop_held();
                    start = at - 1;
                    if !std::mem::replace(&mut self.strayed, true) {
                        out(JsonValue::Stray);
                    }
                }
                SplitAction::End => self.deliver_object(chunk.get(start..at).unwrap_or_default(), out),
            }
        }
        if self.is_inside() {
            self.hold_bytes(chunk.get(start..).unwrap_or_default());
        }
    }

    /// Whether a value has begun that has not ended.
    pub(crate) fn is_inside(&self) -> bool {
        !matches!(self.state, SplitterState::Between | SplitterState::Stray)
    }

    fn deliver_object(&mut self, rest: &[u8], out: &mut impl FnMut(JsonValue<'_>)) {
        self.strayed = false;
        if self.held.is_empty() && !self.too_long && rest.len() <= MAX_EVENT {
            return out(JsonValue::Object(&lossy_text(rest)));
        }
        self.hold_bytes(rest);
        if self.too_long {
            out(JsonValue::TooLong);
        } else {
            out(JsonValue::Object(&lossy_text(&self.held)));
        }
        self.drop_held();
    }

    fn hold_bytes(&mut self, rest: &[u8]) {
        if self.too_long || self.held.len() + rest.len() > MAX_EVENT {
            self.too_long = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(rest);
        }
    }

    fn drop_held(&mut self) {
        self.held.clear();
        self.too_long = false;
    }
}

fn next_state(state: SplitterState, byte: u8) -> (SplitterState, SplitAction) {
    let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    match (state, byte) {
        (SplitterState::Between | SplitterState::Stray, b'{') => (SplitterState::Opened, SplitAction::Begin),
        (SplitterState::Between, b'[' | b',' | b']') => (SplitterState::Between, SplitAction::On),
        (SplitterState::Between, _) if space => (SplitterState::Between, SplitAction::On),
        (SplitterState::Between, _) => (SplitterState::Stray, SplitAction::Stray),
        (SplitterState::Stray, _) => (SplitterState::Stray, SplitAction::On),
        (SplitterState::Opened, b'"') => (SplitterState::Quoted(1), SplitAction::On),
        (SplitterState::Opened, b'}') | (SplitterState::Inside(1), b'}' | b']') => {
            (SplitterState::Between, SplitAction::End)
        }
        (SplitterState::Opened, _) if space => (SplitterState::Opened, SplitAction::On),
        (SplitterState::Opened, b'{') => (SplitterState::Opened, SplitAction::Stray),
        (SplitterState::Opened, _) | (SplitterState::Quoted(_) | SplitterState::Escaped(_), b'\n') => {
            (SplitterState::Stray, SplitAction::Stray)
        }
        (SplitterState::Inside(depth), b'{' | b'[') => {
            (SplitterState::Inside(depth.saturating_add(1)), SplitAction::On)
        }
        (SplitterState::Inside(depth), b'}' | b']') => (SplitterState::Inside(depth - 1), SplitAction::On),
        (SplitterState::Inside(depth), b'"') => (SplitterState::Quoted(depth), SplitAction::On),
        (SplitterState::Quoted(depth), b'"') | (SplitterState::Inside(depth), _) => {
            (SplitterState::Inside(depth), SplitAction::On)
        }
        (SplitterState::Quoted(depth), b'\\') => (SplitterState::Escaped(depth), SplitAction::On),
        (SplitterState::Quoted(depth) | SplitterState::Escaped(depth), _) => {
            (SplitterState::Quoted(depth), SplitAction::On)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
        let (mut splitter, mut found) = (ValueSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk, &mut |value| {
                found.push(match value {
                    JsonValue::Object(text) => text.to_owned(),
                    other => format!("{other:?}"),
                });
            });
        }
        (found, splitter.is_inside())
    }

    /// The values of a body, and whether it ends inside one, in every split and byte by byte.
    fn check(body: &str, expected: &[&str], inside: bool) {
        let expected: (Vec<_>, _) = (expected.iter().map(|text| (*text).to_owned()).collect(), inside);
        assert_eq!(values([body.as_bytes()]), expected, "{body:?}");
        assert_eq!(values(body.as_bytes().chunks(1)), expected, "{body:?} bytewise");
        for split in 0..=body.len() {
            let (head, tail) = body.as_bytes().split_at(split);
            assert_eq!(values([head, tail]), expected, "{body:?} split at {split}");
        }
    }

    #[test]
    fn values_follow_each_other() {
        check("", &[], false);
        check("{}\n{\"a\":1}\r\n", &["{}", "{\"a\":1}"], false);
        check("{}{ \"a\" : [ { } ] }", &["{}", "{ \"a\" : [ { } ] }"], false);
        check(r#"{"a":"}\"{\\"}{"b":"ü😀"}"#, &[r#"{"a":"}\"{\\"}"#, r#"{"b":"ü😀"}"#], false);
        check("{\"a\":", &[], true);
        check("{}{", &["{}"], true);
    }

    #[test]
    fn a_list_is_given_one_by_one() {
        check("[{\n  \"a\": 1\n}\n,\n{}]\n", &["{\n  \"a\": 1\n}", "{}"], false);
        check("[{\"a\":[{}]},{\"b\":", &["{\"a\":[{}]}"], true);
        check("[]", &[], false);
    }

    #[test]
    fn what_is_no_value_is_told_once() {
        check("{}oops, not {json\n{\"a\":1}", &["{}", "Stray", "{\"a\":1}"], false);
        check("[1,2,{}] x", &["Stray", "{}", "Stray"], false);
        check("{{\"a\":1}", &["Stray", "{\"a\":1}"], false);
        check("{\"a\":\"no end\n{\"b\":1}", &["Stray", "{\"b\":1}"], false);
        check("{\"a\":\"\\\n{\"b\":1}", &["Stray", "{\"b\":1}"], false);
    }

    #[test]
    fn a_value_above_the_cap_is_dropped_as_one() {
        let long = ["{\"a\":\"", &"x".repeat(MAX_EVENT), "\"}{\"b\":1}"].concat();
        let expected = (vec!["TooLong".to_owned(), "{\"b\":1}".to_owned()], false);
        assert_eq!(values([long.as_bytes()]), expected);
        assert_eq!(values(long.as_bytes().chunks(65_537)), expected);
    }
}
