//! Finds the end of a JSON-like value by brackets and strings alone, for values that are emitted as
//! source text.
//!
//! Supported: objects, arrays, words and numbers, strings in double quotes, and in single quotes
//! where a key or value may start. Any closing bracket closes any opening one; validity is checked
//! by the parser of the value.
//!
//! Unsupported: comments. They count as words, and a quote or bracket in them has its usual effect.
//!
//! Grammar as implemented: `value = ws* (balanced | string | word)`, where `balanced` opens with
//! `{` or `[` and ends where as many brackets are closed as were opened. Each byte is examined
//! once; the state is a depth and the position relative to values and strings.

use super::string::plain_end;

/// The bytes at which a scan must stop outside of strings, because a marker may begin there.
pub(crate) type GuardBytes = [u8; 2];

/// No guarded bytes: 0xff never occurs in UTF-8 text.
pub(crate) const UNGUARDED: GuardBytes = [0xff; 2];

/// The progress within a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BalanceScanner {
    depth: u32,
    state: ScanState,
}

/// The reason for the end of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanStop {
    /// The value ended before this byte.
    End(usize),
    /// A guarded byte was found at this position.
    Guard(usize),
    /// The text ended inside the value.
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before a key or a value.
    Fresh,
    /// In a word, or after a value.
    Word,
    Double,
    DoubleEscape,
    Single,
    SingleEscape,
}

impl BalanceScanner {
    /// Creates a scanner for a position before a value.
    pub(crate) fn at_value() -> Self {
        Self {
            depth: 0,
            state: ScanState::Fresh,
        }
    }

    /// Creates a scanner for a position inside that many brackets; `fresh` means a key or value may
    /// start there.
    pub(crate) fn inside_brackets(depth: u32, fresh: bool) -> Self {
        Self {
            depth,
            state: if fresh {
                ScanState::Fresh
            } else {
                ScanState::Word
            },
        }
    }

    /// Scans the text from `from` on. If `pass` is set, the first byte does not count as guarded.
    pub(crate) fn scan(
        &mut self,
        bytes: &[u8],
        from: usize,
        guard: GuardBytes,
        pass: bool,
    ) -> ScanStop {
        let mut at = from;
        loop {
            // Long strings are by far the most common content, so their plain text is skipped a
            // register at a time.
            if self.state == ScanState::Double {
                at = plain_end(bytes, at);
            }
            let Some(&byte) = bytes.get(at) else {
                return ScanStop::More;
            };
            self.state = match (self.state, byte) {
                (ScanState::Double, b'"') | (ScanState::Single, b'\'') => {
                    self.state = ScanState::Word;
                    if self.depth == 0 {
                        return ScanStop::End(at + 1);
                    }
                    ScanState::Word
                }
                (ScanState::Double, b'\\') => ScanState::DoubleEscape,
                (ScanState::Single, b'\\') => ScanState::SingleEscape,
                (ScanState::Double | ScanState::DoubleEscape, _) => ScanState::Double,
                (ScanState::Single | ScanState::SingleEscape, _) => ScanState::Single,
                // Strings are matched above, so guarded bytes count only outside of them.
                (_, byte) if guard.contains(&byte) && !(pass && at == from) => {
                    return ScanStop::Guard(at);
                }
                (state, byte) => match self.step_outside(state, byte) {
                    Ok(state) => state,
                    Err(past) => return ScanStop::End(at + past),
                },
            };
            at += 1;
        }
    }

    /// Processes one byte outside of strings. Returns the new state, or the number of its bytes
    /// that still belong to the value that ends here.
    fn step_outside(&mut self, state: ScanState, byte: u8) -> Result<ScanState, usize> {
        let bare = self.depth == 0;
        Ok(match byte {
            b' ' | b'\t' | b'\n' | b'\r' if bare && state == ScanState::Word => return Err(0),
            b' ' | b'\t' | b'\n' | b'\r' => state,
            b'"' if bare && state == ScanState::Word => return Err(0),
            b'"' => ScanState::Double,
            // In a word a single quote is an apostrophe.
            b'\'' if state == ScanState::Fresh => ScanState::Single,
            // These belong to the object or array around this value.
            b',' | b'}' | b']' if bare => return Err(0),
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                ScanState::Fresh
            }
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Err(1);
                }
                ScanState::Word
            }
            b',' | b':' => ScanState::Fresh,
            _ => ScanState::Word,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BalanceScanner, GuardBytes, ScanStop, UNGUARDED};

    /// Checks that the scan stops at the `|` in the text; a text without `|` must not end.
    fn check_guarded(marked: &str, guard: GuardBytes) {
        let text = marked.replace('|', "");
        for size in 1..=text.len() {
            let mut balance = BalanceScanner::at_value();
            let mut from = 0;
            let mut found = None;
            for piece in text.as_bytes().chunks(size) {
                if let ScanStop::End(at) | ScanStop::Guard(at) =
                    balance.scan(piece, 0, guard, false)
                {
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
