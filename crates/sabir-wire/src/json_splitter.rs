//! Splits a byte stream into JSON objects and delivers each as soon as it is complete.
//!
//! # Supported
//! Objects in a row, with or without line feeds between them (NDJSON); a list, whose objects are
//! delivered one by one as it arrives. Text that begins like an object and cannot be one is
//! reported at once, so that a damaged line does not swallow the line after it.
//!
//! # Unsupported
//! Values other than objects: no wire answers with one. The splitter follows only brackets and
//! strings; its caller checks that an object is valid JSON.
//!
//! # Grammar as implemented
//! ```text
//! body    = *(blank / object / stray)
//! blank   = white space / "[" / "," / "]"
//! object  = "{" *space (DQUOTE / "}") …            ; up to the bracket that closes it
//! stray   = any other byte, and all up to the next "{" ; reported once between two objects
//! ```
//! A list is recognized by its brackets alone: an unclosed one loses none of its elements, and
//! nested lists are read like one. A line feed inside a string ends the object as stray, since JSON
//! does not allow one there.
//!
//! Every byte is looked at once and copied at most once; an object that lies in one chunk is
//! borrowed from it.

use crate::sse::{MAX_EVENT, lossy_text};

/// A piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SplitValue<'a> {
    /// One object, from its first bracket to its last.
    Object(&'a str),
    /// Something that is not an object. Reported once between two objects.
    Stray,
    /// An object above [`MAX_EVENT`], which was dropped.
    TooLong,
}

/// An incremental splitter without I/O. Memory is bounded by [`MAX_EVENT`].
#[derive(Debug, Default)]
pub(crate) struct ValueSplitter {
    /// The position in the current value.
    state: SplitterState,
    /// The unfinished object of the last chunk.
    held: Vec<u8>,
    /// True if the object is too long: its end is still searched, but no bytes are kept.
    too_long: bool,
    /// True if stray bytes were reported since the last object.
    strayed: bool,
}

/// The position of the splitter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SplitterState {
    /// Between values.
    #[default]
    Between,
    /// Inside bytes that are not a value.
    Stray,
    /// After the first bracket of an object.
    Opened,
    /// Inside an object at this depth.
    Inside(u32),
    /// In a string of an object at this depth.
    Quoted(u32),
    /// After a backslash in such a string.
    Escaped(u32),
}

/// The effect of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitAction {
    /// No effect.
    On,
    /// An object begins with this byte.
    Begin,
    /// An object ends with this byte.
    End,
    /// The bytes before it, or this byte, are not an object.
    Stray,
}

impl ValueSplitter {
    /// Reads the next bytes and delivers every value that they complete.
    pub(crate) fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(SplitValue<'_>)) {
        let mut start = 0;
        let mut at = 0;
        // `start` is the offset of the open object in this chunk: 0 if it began in an earlier one.
        while let Some(byte) = chunk.get(at) {
            if let SplitterState::Quoted(_) = self.state {
                // Most bytes of a response are inside strings: skip to the next byte that matters.
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
                    // The byte itself may begin an object.
                    start = at - 1;
                    if !std::mem::replace(&mut self.strayed, true) {
                        out(SplitValue::Stray);
                    }
                }
                SplitAction::End => {
                    self.deliver_object(chunk.get(start..at).unwrap_or_default(), out)
                }
            }
        }
        if self.is_inside() {
            self.hold_bytes(chunk.get(start..).unwrap_or_default());
        }
    }

    /// Returns true if a value has begun and not ended.
    pub(crate) fn is_inside(&self) -> bool {
        !matches!(self.state, SplitterState::Between | SplitterState::Stray)
    }

    /// Delivers the object that ends with `rest`.
    fn deliver_object(&mut self, rest: &[u8], out: &mut impl FnMut(SplitValue<'_>)) {
        self.strayed = false;
        // The common case: the object lies in one chunk, and nothing is copied.
        if self.held.is_empty() && !self.too_long && rest.len() <= MAX_EVENT {
            return out(SplitValue::Object(&lossy_text(rest)));
        }
        self.hold_bytes(rest);
        if self.too_long {
            out(SplitValue::TooLong);
        } else {
            out(SplitValue::Object(&lossy_text(&self.held)));
        }
        self.drop_held();
    }

    /// Keeps a piece of an unfinished object.
    fn hold_bytes(&mut self, rest: &[u8]) {
        if self.too_long || self.held.len() + rest.len() > MAX_EVENT {
            self.too_long = true;
            // Frees the memory as well; a cleared vector would keep its capacity.
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(rest);
        }
    }

    /// Forgets the unfinished object. Its memory is kept for the next one.
    fn drop_held(&mut self) {
        self.held.clear();
        self.too_long = false;
    }
}

/// Returns the state after a byte, and the byte's effect.
fn next_state(state: SplitterState, byte: u8) -> (SplitterState, SplitAction) {
    let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    match (state, byte) {
        (SplitterState::Between | SplitterState::Stray, b'{') => {
            (SplitterState::Opened, SplitAction::Begin)
        }
        (SplitterState::Between, b'[' | b',' | b']') => (SplitterState::Between, SplitAction::On),
        (SplitterState::Between, _) if space => (SplitterState::Between, SplitAction::On),
        (SplitterState::Between, _) => (SplitterState::Stray, SplitAction::Stray),
        (SplitterState::Stray, _) => (SplitterState::Stray, SplitAction::On),
        (SplitterState::Opened, b'"') => (SplitterState::Quoted(1), SplitAction::On),
        // The kinds of brackets are not compared: the caller's parser finds a wrong pair.
        (SplitterState::Opened, b'}') | (SplitterState::Inside(1), b'}' | b']') => {
            (SplitterState::Between, SplitAction::End)
        }
        (SplitterState::Opened, _) if space => (SplitterState::Opened, SplitAction::On),
        // The second bracket may begin a real object, so it starts over there.
        (SplitterState::Opened, b'{') => (SplitterState::Opened, SplitAction::Stray),
        (SplitterState::Opened, _)
        | (SplitterState::Quoted(_) | SplitterState::Escaped(_), b'\n') => {
            (SplitterState::Stray, SplitAction::Stray)
        }
        (SplitterState::Inside(depth), b'{' | b'[') => (
            SplitterState::Inside(depth.saturating_add(1)),
            SplitAction::On,
        ),
        (SplitterState::Inside(depth), b'}' | b']') => {
            (SplitterState::Inside(depth - 1), SplitAction::On)
        }
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
        let mut splitter = ValueSplitter::default();
        let mut found = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, &mut |value| {
                found.push(match value {
                    SplitValue::Object(text) => text.to_owned(),
                    other => format!("{other:?}"),
                });
            });
        }
        (found, splitter.is_inside())
    }

    /// The values of a body, and whether it ends inside one, in every split and byte by byte.
    fn check(body: &str, expected: &[&str], inside: bool) {
        let expected: (Vec<_>, _) = (
            expected.iter().map(|text| (*text).to_owned()).collect(),
            inside,
        );
        assert_eq!(values([body.as_bytes()]), expected, "{body:?}");
        assert_eq!(
            values(body.as_bytes().chunks(1)),
            expected,
            "{body:?} bytewise"
        );
        for split in 0..=body.len() {
            let (head, tail) = body.as_bytes().split_at(split);
            assert_eq!(values([head, tail]), expected, "{body:?} split at {split}");
        }
    }

    #[test]
    fn objects_in_a_row_are_split() {
        check("", &[], false);
        check("{}\n{\"a\":1}\r\n", &["{}", "{\"a\":1}"], false);
        check(
            "{}{ \"a\" : [ { } ] }",
            &["{}", "{ \"a\" : [ { } ] }"],
            false,
        );
        check(
            r#"{"a":"}\"{\\"}{"b":"ü😀"}"#,
            &[r#"{"a":"}\"{\\"}"#, r#"{"b":"ü😀"}"#],
            false,
        );
        check("{\"a\":", &[], true);
        check("{}{", &["{}"], true);
    }

    #[test]
    fn lists_are_split_into_objects() {
        check(
            "[{\n  \"a\": 1\n}\n,\n{}]\n",
            &["{\n  \"a\": 1\n}", "{}"],
            false,
        );
        check("[{\"a\":[{}]},{\"b\":", &["{\"a\":[{}]}"], true);
        check("[]", &[], false);
    }

    #[test]
    fn stray_bytes_are_reported_once() {
        check(
            "{}oops, not {json\n{\"a\":1}",
            &["{}", "Stray", "{\"a\":1}"],
            false,
        );
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
