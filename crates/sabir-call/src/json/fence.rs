//! A code fence around the whole argument text of a native call, or around the arguments in a longer text.
//!
//! Supported: three or more backticks, a word, an object, as many backticks. The whole text, fence and all, is passed on as
//! one argument with an empty name, because what to make of it is for the gates to say.
//!
//! Unsupported: anything but white space between the object and the fences, which ends in a `malformed_json` fault.
//!
//! Grammar as implemented: "```" "`"* word? ws* balanced ws* "```" "`"*, with `balanced` as in `json/balance.rs`.

use crate::event::{ArgForm, Event, Sink};

use super::balance::{Balance, Stop, UNGUARDED};
use super::{ArgumentScanner, State};

/// How far a fence has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// In the backticks before the object.
    Ticks,
    /// Behind them.
    Word,
    Object,
    /// Behind the object, with so many backticks still to come.
    Close(u32),
}

impl ArgumentScanner {
    /// The first backtick.
    pub(super) fn begin_fence(&mut self, at: usize, out: &mut dyn Sink) -> usize {
        out.event(Event::ArgStart { index: self.index, name: "", form: ArgForm::Json, at: self.offset + at });
        self.state = State::Fenced(Fence::Ticks, 0);
        at
    }

    /// Goes on in a fenced text, of which so many backticks have been read.
    pub(super) fn fenced(
        &mut self,
        chunk: &str,
        from: usize,
        (fence, ticks): (Fence, u32),
        out: &mut dyn Sink,
    ) -> usize {
        let bytes = chunk.as_bytes();
        let Some(&byte) = bytes.get(from) else { return from };
        let next = match (fence, byte) {
            (Fence::Ticks, b'`') => State::Fenced(Fence::Ticks, ticks.saturating_add(1)),
            (Fence::Ticks, _) if ticks >= 3 => {
                self.state = State::Fenced(Fence::Word, ticks);
                return from;
            }
            (Fence::Word, b'{') => {
                self.balance = Balance::value();
                self.state = State::Fenced(Fence::Object, ticks);
                return from;
            }
            (Fence::Word, _) if byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() => self.state,
            (Fence::Object, _) => {
                let (to, state) = match self.balance.scan(bytes, from, UNGUARDED, false) {
                    Stop::End(to) => (to, State::Fenced(Fence::Close(ticks), ticks)),
                    Stop::Guard(to) => (to, self.state),
                    Stop::More => (bytes.len(), self.state),
                };
                self.state = state;
                return self.pass(chunk, from, to, out);
            }
            (Fence::Close(left), _) if left == ticks && byte.is_ascii_whitespace() => self.state,
            (Fence::Close(1), b'`') => State::End,
            (Fence::Close(left), b'`') => State::Fenced(Fence::Close(left - 1), ticks),
            _ => {
                self.close(from, out);
                self.broken(from, "an object `{…}` was expected in the code fence, and nothing else", out);
                self.state = State::Broken;
                return from;
            }
        };
        self.pass(chunk, from, from + 1, out);
        self.state = next;
        if next == State::End {
            self.close(from + 1, out);
        }
        from + 1
    }

    fn pass(&self, chunk: &str, from: usize, to: usize, out: &mut dyn Sink) -> usize {
        if let Some(text) = chunk.get(from..to).filter(|text| !text.is_empty()) {
            out.event(Event::ArgDelta { index: self.index, text });
        }
        to
    }
}
