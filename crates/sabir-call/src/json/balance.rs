//! Where a value ends, by brackets and strings alone: for values that are passed on as source text, strict or not.
//!
//! Supported: objects, arrays, words and numbers, strings in double quotes, and in single quotes where a key or a value
//! may start. Any bracket closes any other; whether the text is valid is for whoever parses it.
//!
//! Unsupported: comments; they count as words, and a quote or bracket in them as one.
//!
//! Grammar as implemented: `value = ws* (balanced | string | word)`, where `balanced` opens with `{` or `[` and ends where
//! as many brackets are closed as were opened. Each byte is looked at once; a depth and a place are all that is kept.

use super::string::plain_end;

/// Bytes that a value must not run over without asking: outside of strings they may begin a marker.
pub(crate) type Guard = [u8; 2];

/// Asks for nothing: no UTF-8 text holds this byte.
pub(crate) const UNGUARDED: Guard = [0xff; 2];

/// How far a value has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Balance {
    depth: u32,
    place: Place,
}

/// Where a scan stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The value ended before this byte.
    End(usize),
    /// A guarded byte stands here.
    Guard(usize),
    /// At the end of the text.
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where a key or a value may start.
    Fresh,
    /// In a word or behind a value.
    Word,
    Double,
    DoubleEscape,
    Single,
    SingleEscape,
}

impl Balance {
    /// Before a value.
    pub(crate) fn value() -> Self {
        Self { depth: 0, place: Place::Fresh }
    }

    /// Inside that many brackets; `fresh`: where a key or a value may start.
    pub(crate) fn inside(depth: u32, fresh: bool) -> Self {
        Self { depth, place: if fresh { Place::Fresh } else { Place::Word } }
    }

    /// Follows the text from `from` on. With `pass` the first byte is no guarded one.
    pub(crate) fn scan(&mut self, bytes: &[u8], from: usize, guard: Guard, pass: bool) -> Stop {
        let mut at = from;
        loop {
            if self.place == Place::Double {
                at = plain_end(bytes, at);
            }
            let Some(&byte) = bytes.get(at) else { return Stop::More };
            self.place = match (self.place, byte) {
                (Place::Double, b'"') | (Place::Single, b'\'') => {
                    self.place = Place::Word;
                    if self.depth == 0 {
                        return Stop::End(at + 1);
                    }
                    Place::Word
                }
                (Place::Double, b'\\') => Place::DoubleEscape,
                (Place::Single, b'\\') => Place::SingleEscape,
                (Place::Double | Place::DoubleEscape, _) => Place::Double,
                (Place::Single | Place::SingleEscape, _) => Place::Single,
                (_, byte) if guard.contains(&byte) && !(pass && at == from) => return Stop::Guard(at),
                (place, byte) => match self.outside(place, byte) {
                    Ok(place) => place,
                    Err(past) => return Stop::End(at + past),
                },
            };
            at += 1;
        }
    }

    /// One byte outside of strings: the new place, or how many bytes of it still belong to the value that ends here.
    fn outside(&mut self, place: Place, byte: u8) -> Result<Place, usize> {
        let bare = self.depth == 0;
        Ok(match byte {
            b' ' | b'\t' | b'\n' | b'\r' if bare && place == Place::Word => return Err(0),
            b' ' | b'\t' | b'\n' | b'\r' => place,
            b'"' if bare && place == Place::Word => return Err(0),
            b'"' => Place::Double,
            b'\'' if place == Place::Fresh => Place::Single,
            b',' | b'}' | b']' if bare => return Err(0),
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                Place::Fresh
            }
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Err(1);
                }
                Place::Word
            }
            b',' | b':' => Place::Fresh,
            _ => Place::Word,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Balance, Guard, Stop, UNGUARDED};

    /// `|` stands where the scan must stop; a text without it must not end.
    fn check_guarded(marked: &str, guard: Guard) {
        let text = marked.replace('|', "");
        for size in 1..=text.len() {
            let (mut balance, mut from, mut found) = (Balance::value(), 0, None);
            for piece in text.as_bytes().chunks(size) {
                if let Stop::End(at) | Stop::Guard(at) = balance.scan(piece, 0, guard, false) {
                    found = Some(from + at);
                    break;
                }
                from += piece.len();
            }
            assert_eq!(found, marked.find('|'), "in chunks of {size}: {marked}");
        }
    }

    #[test]
    fn values_end_where_their_brackets_do() {
        for marked in [
            "{}|",
            " {\"a\": \"}\\\"}\"}| x",
            "{'a': '}\\'}', \"b\": [1, {'c': \"'\"}]}|}",
            "{'it's': 1}|",
            "{a: it's}|",
            "[[], {}]|]",
            "\"a\\\\\"|",
            " 'a\"b'|\"",
            "12|, 3",
            "null|}",
            "true| false",
            "|}",
            "|, 1",
            "{\"a\": \"}",
            "[[]",
            "12",
            "'a",
        ] {
            check_guarded(marked, UNGUARDED);
        }
    }

    #[test]
    fn guarded_bytes_stop_only_outside_of_strings() {
        check_guarded("{\"a<\": '<', |<}", *b"<<");
        check_guarded("12|<", *b"<<");
        check_guarded("{\"a\": [1|`", *b"<`");
    }
}
