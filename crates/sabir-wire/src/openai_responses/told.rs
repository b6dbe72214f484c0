//! What has been told of one call's arguments, in pieces and once more as a whole.

use std::hash::{DefaultHasher, Hasher};

use sabir_call::Sink;

use crate::calls::NativeCall;
use crate::mould::escape;

/// The name of the one argument of a custom tool, whose input is text.
const INPUT: &str = "input";

#[derive(Debug)]
pub(super) struct Told {
    /// Position among the calls of the response.
    pub(super) position: usize,
    /// Whether the arguments are one text.
    pub(super) custom: bool,
    /// Whether they were said to be complete.
    pub(super) complete: bool,
    /// Their bytes so far, and a hash of them: tells a repetition without keeping the text.
    length: usize,
    hash: DefaultHasher,
}

impl Told {
    pub(super) fn new(position: usize, custom: bool) -> Self {
        Self { position, custom, complete: false, length: 0, hash: DefaultHasher::new() }
    }

    /// The next piece.
    pub(super) fn push(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        if self.custom {
            let mut json = if self.length == 0 { format!("{{\"{INPUT}\":\"") } else { String::new() };
            escape(text, &mut json);
            call.push(&json, out);
        } else {
            call.push(text, out);
        }
        self.length += text.len();
        self.hash.write(text.as_bytes());
    }

    /// The whole text: what it has beyond the pieces is taken. Where the pieces are whole already it is the same value once
    /// more, in whatever spelling.
    pub(super) fn all(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn Sink) {
        if text.is_empty() || call.is_whole() || !call.is_open() {
            return;
        }
        let mut hash = DefaultHasher::new();
        let known = text.as_bytes().get(..self.length).inspect(|known| hash.write(known));
        match text.get(self.length..) {
            Some(rest) if known.is_some() && hash.finish() == self.hash.finish() => self.push(call, rest, out),
            _ => call.contradict(out),
        }
    }

    /// The end was seen.
    pub(super) fn end(&mut self, call: &mut NativeCall, next: &mut u32, out: &mut dyn Sink) {
        if self.custom && call.is_open() {
            call.push(&if self.length == 0 { format!("{{\"{INPUT}\":\"\"}}") } else { "\"}".to_owned() }, out);
        }
        call.end_seen(next, out);
    }
}
