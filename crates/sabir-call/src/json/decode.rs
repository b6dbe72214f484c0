//! Strings on their way through the scanner: plain text passes as it is, escapes make a copy.
//!
//! Supported: a chunk that is nothing but the inside of a string value goes out as one delta; whatever else a string holds
//! is read character by character.
//!
//! Unsupported: deltas that are merged over chunks; each goes out with the chunk that it came in.
//!
//! Grammar as implemented: see `json/string.rs`.

use crate::event::{Event, Sink};
use crate::fault::{Fault, FaultKind};

use super::string::{Escape, Marks, Unescaped, WHOLE, plain_end, unescape};
use super::{ArgumentScanner, State};

/// The string that is being decoded.
#[derive(Debug, Default)]
pub(super) struct Strings {
    pub(super) escape: Escape,
    /// Decoded text that has not gone out yet; empty between pushes.
    pub(super) decoded: String,
    /// What has been told of the string's mistakes: bits, so that the scanner stays small.
    told: u8,
}

/// A lone surrogate has been told.
const LONE: u8 = 1;
/// A raw control character has been told.
const RAW: u8 = 2;
/// An unknown escape has been told.
const UNKNOWN: u8 = 4;

impl Strings {
    /// Whether this mistake is the first of its kind.
    fn first(&mut self, kind: u8) -> bool {
        let first = self.told & kind == 0;
        self.told |= kind;
        first
    }
}

impl ArgumentScanner {
    pub(super) fn take_long(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        let plain = self.strings.escape == Escape::None && plain_end(chunk.as_bytes(), 0) == chunk.len();
        if plain {
            out.event(Event::ArgDelta { index: self.index, text: chunk });
        }
        plain
    }

    /// A key or a string value, up to its end, the chunk's, or an escape that is more than one letter.
    #[inline(never)]
    pub(super) fn string(&mut self, chunk: &str, from: usize, out: &mut dyn Sink) -> usize {
        let bytes = chunk.as_bytes();
        let (mut run, mut at) = (from, from);
        loop {
            at = plain_end(bytes, at);
            let text = chunk.get(run..at).unwrap_or_default();
            match bytes.get(at) {
                None => {
                    self.deliver(text, out);
                    return at;
                }
                Some(b'"') => {
                    self.deliver(text, out);
                    self.end_string(at, out);
                    return at + 1;
                }
                Some(b'\\') => {
                    self.strings.decoded.push_str(text);
                    let Some(c) = bytes.get(at + 1).copied().and_then(unescape) else {
                        self.strings.escape = Escape::Open;
                        return at + 1;
                    };
                    self.strings.decoded.push(c);
                    at += 2;
                    run = at;
                }
                Some(_) => {
                    self.strings.decoded.push_str(text);
                    self.tell_raw(at, out);
                    self.strings.decoded.push_str(chunk.get(at..=at).unwrap_or_default());
                    at += 1;
                    run = at;
                }
            }
        }
    }

    /// [`Self::take`] of a short chunk that holds escapes. Nothing goes out before the chunk is known to hold neither the
    /// string's end nor a mistake.
    #[inline(never)]
    pub(super) fn take_escaped(&mut self, chunk: &str, marks: Marks, out: &mut dyn Sink) -> bool {
        let Strings { escape, decoded, .. } = &mut self.strings;
        let open = match escape {
            Escape::None => false,
            Escape::Open => true,
            _ => return false,
        };
        decoded.reserve_exact(chunk.len());
        let ends = marks.decode(chunk, open, decoded);
        if let Some(open) = ends {
            *escape = if open { Escape::Open } else { Escape::None };
            if !decoded.is_empty() {
                out.event(Event::ArgDelta { index: self.index, text: decoded });
            }
        }
        decoded.clear();
        ends.is_some()
    }

    /// Hands on what has been decoded, and `tail` behind it.
    #[inline]
    pub(super) fn deliver(&mut self, tail: &str, out: &mut dyn Sink) {
        let decoded = &mut self.strings.decoded;
        if decoded.is_empty() && self.state != State::Key {
            if !tail.is_empty() {
                out.event(Event::ArgDelta { index: self.index, text: tail });
            }
            return;
        }
        decoded.push_str(tail);
        if self.state == State::Key {
            if let Some(head) = self.head.as_mut().filter(|head| !head.over) {
                head.key.push_str(decoded);
            }
        } else {
            out.event(Event::ArgDelta { index: self.index, text: decoded });
        }
        decoded.clear();
    }

    /// Tells the first raw control character.
    fn tell_raw(&mut self, at: usize, out: &mut dyn Sink) {
        if self.strings.first(RAW) {
            let message = "a raw control character in a string; JSON wants it escaped";
            let fault = Fault::warning(FaultKind::ControlCharacter, self.span(at), message);
            self.warn(fault.hint("write it escaped, a line feed as `\\n`"), out);
        }
    }

    /// Tells the first lone surrogate.
    fn tell_lone(&mut self, at: usize, out: &mut dyn Sink) {
        if self.strings.first(LONE) {
            let message = "a lone surrogate escape, which no text can hold";
            let fault = Fault::error(FaultKind::MalformedJson, self.span(at), message);
            self.warn(fault.hint(WHOLE), out);
        }
    }

    fn end_string(&mut self, at: usize, out: &mut dyn Sink) {
        self.state = match self.state {
            State::Key => State::Colon,
            State::Text(top) => {
                self.close(at, out);
                if top { State::End } else { State::Comma }
            }
            state => state,
        };
    }

    /// One byte of an escape. Returns where to go on: at the same byte where it does not belong to the escape.
    pub(super) fn escaped(&mut self, byte: u8, at: usize, out: &mut dyn Sink) -> usize {
        match self.strings.escape.take(byte) {
            Unescaped::Taken(c) => {
                self.strings.decoded.extend(c);
                at + 1
            }
            Unescaped::Lone(taken) => {
                self.tell_lone(at, out);
                self.strings.decoded.push(char::REPLACEMENT_CHARACTER);
                at + usize::from(taken)
            }
            Unescaped::Unknown => {
                self.deliver("", out);
                if self.strings.first(UNKNOWN) {
                    self.broken(at, "no such escape in a JSON string", out);
                }
                let Strings { escape, decoded, .. } = &mut self.strings;
                escape.written(decoded);
                at
            }
        }
    }
}
