//! Joins arguments that arrive in pieces, each with the JSON path of its value, to one JSON text.
//!
//! # Supported
//! `{"jsonPath": "$.a.b[0].c", "stringValue": "…"}` and the same with numbers, booleans and null.
//! Adjacent strings with the same path are one string. Values of one object or list arrive
//! together, and list elements in order.
//!
//! # Unsupported
//! A value for an object that was left for another one. The call is then truncated, because the
//! value cannot be inserted any more.
//!
//! # Grammar as implemented
//! ```text
//! path    = "$" 1*segment
//! segment = "." name / "[" digits "]" / "[" quote name quote "]"   ; a name ends before "." or "["
//! ```

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::delta_template::escape_json;
use crate::lenient::LenientText;

/// The maximum number of bytes of member names that are remembered for one call, to find duplicates.
const MAX_NAMES: usize = 1 << 20;

/// One piece of the arguments.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArgumentFragment<'a> {
    /// The path from the arguments to the value: `$.path`, `$.edits[0].text`.
    #[serde(borrow, default)]
    json_path: LenientText<'a>,
    /// A string, or the next piece of one.
    #[serde(borrow, default)]
    string_value: LenientText<'a>,
    /// A number, kept as written, since a float would change large integers.
    #[serde(borrow, default)]
    number_value: Option<&'a RawValue>,
    /// A boolean.
    #[serde(borrow, default)]
    bool_value: Option<&'a RawValue>,
    /// Present for `null`; the member's own value is an enum constant.
    #[serde(borrow, default)]
    null_value: Option<&'a RawValue>,
}

/// The open end of a call's JSON text.
#[derive(Debug, Default)]
pub(super) struct PartialArguments {
    /// The open objects and lists, the outermost first.
    levels: Vec<OpenLevel>,
    /// The position of each open level within the one around it; the outermost has none.
    path: Vec<PathSegment>,
    /// The position of the open string within the innermost level.
    string: Option<PathSegment>,
    /// The bytes of member names so far.
    names: usize,
}

/// An open object with its member names, or an open list with its next index.
#[derive(Debug)]
enum OpenLevel {
    /// An object and the names of its members so far.
    Object(HashSet<String>),
    /// A list and the index of its next element.
    List(u64),
}

/// A step of a JSON path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    /// A member of an object.
    Name(String),
    /// An element of a list, counted from 0.
    Index(u64),
}

impl PartialArguments {
    /// Appends a piece to the text. Returns `None` if it cannot be added any more.
    pub(super) fn append_fragment(
        &mut self,
        piece: &ArgumentFragment<'_>,
        out: &mut String,
    ) -> Option<()> {
        let raw = piece.number_value.or(piece.bool_value).map(RawValue::get);
        let scalar = raw.or(piece.null_value.map(|_| "null"));
        if piece.string_value.0.is_none() && scalar.is_none() {
            return Some(());
        }
        let mut place = parse_json_path(piece.json_path.as_str())?;
        let last = place.pop()?;
        // A string with the path of the open string continues it.
        let goes_on = self.string.as_ref() == Some(&last)
            && self.path == place
            && piece.string_value.0.is_some();
        if !goes_on {
            self.open_path(&place, &last, out)?;
            self.write_key(&last, out)?;
            if piece.string_value.0.is_some() {
                out.push('"');
                self.string = Some(last);
            }
        }
        match scalar {
            Some(value) if piece.string_value.0.is_none() => out.push_str(value),
            _ => escape_json(piece.string_value.as_str(), out),
        }
        Some(())
    }

    /// Closes everything that is open.
    pub(super) fn close_all(&mut self, out: &mut String) {
        if self.levels.is_empty() {
            out.push('{');
            self.levels.push(OpenLevel::Object(HashSet::new()));
        }
        self.close_levels(0, out);
    }

    /// Closes the open string, and all levels except the first `kept`.
    fn close_levels(&mut self, kept: usize, out: &mut String) {
        if self.string.take().is_some() {
            out.push('"');
        }
        while self.levels.len() > kept {
            match self.levels.pop() {
                Some(OpenLevel::List(_)) => out.push(']'),
                _ => out.push('}'),
            }
        }
        self.path.truncate(kept.saturating_sub(1));
    }

    /// Closes and opens levels until the innermost one is the container of a value.
    fn open_path(
        &mut self,
        place: &[PathSegment],
        last: &PathSegment,
        out: &mut String,
    ) -> Option<()> {
        // The levels that both paths share stay open.
        let common = place
            .iter()
            .zip(&self.path)
            .take_while(|(a, b)| a == b)
            .count();
        self.close_levels(common + 1, out);
        if self.levels.is_empty() {
            self.open_container(place.first().unwrap_or(last), out);
        }
        for (position, segment) in place.iter().enumerate().skip(common) {
            self.write_key(segment, out)?;
            self.path.push(segment.clone());
            self.open_container(place.get(position + 1).unwrap_or(last), out);
        }
        Some(())
    }

    /// Opens the container for a value with this path step.
    fn open_container(&mut self, inner: &PathSegment, out: &mut String) {
        match inner {
            PathSegment::Name(_) => {
                out.push('{');
                self.levels.push(OpenLevel::Object(HashSet::new()));
            }
            PathSegment::Index(_) => {
                out.push('[');
                self.levels.push(OpenLevel::List(0));
            }
        }
    }

    /// Writes the comma and the key before a value in the innermost level. Returns `None` for a
    /// duplicate or a wrong index.
    fn write_key(&mut self, segment: &PathSegment, out: &mut String) -> Option<()> {
        let first = match (self.levels.last_mut()?, segment) {
            (OpenLevel::Object(names), PathSegment::Name(name)) => {
                self.names += name.len();
                let first = names.is_empty();
                // A duplicate name means that the object was closed and opened again, which JSON
                // text cannot express.
                if self.names > MAX_NAMES || !names.insert(name.clone()) {
                    return None;
                }
                first
            }
            // List elements must arrive in order, without gaps.
            (OpenLevel::List(next), PathSegment::Index(index)) if next == index => {
                *next += 1;
                *index == 0
            }
            _ => return None,
        };
        if !first {
            out.push(',');
        }
        if let PathSegment::Name(name) = segment {
            out.push('"');
            escape_json(name, out);
            out.push_str("\":");
        }
        Some(())
    }
}

/// Parses a JSON path of the grammar above.
fn parse_json_path(path: &str) -> Option<Vec<PathSegment>> {
    let mut rest = path.strip_prefix('$')?;
    let mut segments = Vec::new();
    while !rest.is_empty() {
        if let Some(name) = rest.strip_prefix('.') {
            let (name, tail) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
            segments.push(PathSegment::Name(name.to_owned()));
            rest = tail;
            continue;
        }
        let inside = rest.strip_prefix('[')?;
        // Names with special characters are quoted: `$['a.b']`.
        let quote = inside.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let (inside, tail) = match quote {
            Some(quote) => inside
                .get(1..)?
                .split_once(&[quote, ']'].iter().collect::<String>())?,
            None => inside.split_once(']')?,
        };
        segments.push(match quote {
            Some(_) => PathSegment::Name(inside.to_owned()),
            None => PathSegment::Index(inside.parse().ok()?),
        });
        rest = tail;
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the text of these pieces, each a path and the rest of its object. It ends with `!` if a piece could not be added.
    fn check(pieces: &[(&str, &str)], expected: &str) {
        let mut arguments = PartialArguments::default();
        let mut out = String::new();
        for (path, value) in pieces {
            let piece = format!("{{\"jsonPath\":{path:?},{value}}}");
            if arguments
                .append_fragment(&serde_json::from_str(&piece).unwrap(), &mut out)
                .is_none()
            {
                out.push('!');
                return assert_eq!(out, expected);
            }
        }
        arguments.close_all(&mut out);
        assert_eq!(out, expected);
        serde_json::from_str::<serde_json::Value>(&out).unwrap();
    }

    #[test]
    fn pieces_become_one_text() {
        check(&[], "{}");
        check(
            &[
                ("$.a", r#""stringValue":"New ","willContinue":true"#),
                ("$.a", r#""stringValue":"\"York""#),
                ("$.b", r#""numberValue":1.50"#),
                ("$.c", r#""boolValue":false"#),
                ("$.d", r#""nullValue":"NULL_VALUE""#),
            ],
            r#"{"a":"New \"York","b":1.50,"c":false,"d":null}"#,
        );
        check(
            &[
                ("$.a.x[0].y", r#""stringValue":"1""#),
                ("$.a.x[0].z", r#""stringValue":"2""#),
                ("$.a.x[1]", r#""numberValue":3"#),
                ("$.a.w", r#""stringValue":"""#),
                ("$['b c'][0][0]", r#""boolValue":true"#),
                ("$.a2", r#""willContinue":true"#),
            ],
            r#"{"a":{"x":[{"y":"1","z":"2"},3],"w":""},"b c":[[true]]}"#,
        );
    }

    #[test]
    fn late_fragments_are_refused() {
        let one = r#""numberValue":1"#;
        check(
            &[("$.a.b", one), ("$.c", one), ("$.a.d", one)],
            r#"{"a":{"b":1},"c":1!"#,
        );
        check(&[("$.a", one), ("$.a", one)], r#"{"a":1!"#);
        check(&[("$.a[1]", one)], r#"{"a":[!"#);
        check(&[("$.a[0]", one), ("$.a.b", one)], r#"{"a":[1!"#);
        for path in ["", "$", "a", "$[x]", "$['a", "$.a]"] {
            let piece = format!("{{\"jsonPath\":{path:?},{one}}}");
            let mut arguments = PartialArguments::default();
            let added = arguments
                .append_fragment(&serde_json::from_str(&piece).unwrap(), &mut String::new());
            assert_eq!(added.is_some(), path == "$.a]", "{path}");
        }
    }
}
