//! What has been told of one call's arguments, in pieces and once more as a whole.

use std::hash::{DefaultHasher, Hasher};

use sabir_call::Sink;

use crate::calls::NativeCall;
use crate::mould::escape;
use crate::native::INPUT;

#[derive(Debug)]
pub(super) struct Told {
    /// Position among the calls of the response.
    pub(super) position: usize,
    /// Whether the arguments are one text.
    pub(super) custom: bool,
    /// Whether they were said to be complete.
    pub(super) complete: bool,
    heard: Heard,
}

/// A text that came in pieces, without the text: enough to know it again.
#[derive(Debug, Default)]
pub(super) struct Heard {
    length: usize,
    hash: DefaultHasher,
}

impl Heard {
    /// The next piece.
    pub(super) fn push(&mut self, text: &str) {
        self.length += text.len();
        self.hash.write(text.as_bytes());
    }

    /// What the whole text has beyond the pieces; `None`: it does not begin with them.
    pub(super) fn rest<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let mut hash = DefaultHasher::new();
        hash.write(whole.as_bytes().get(..self.length)?);
        whole.get(self.length..).filter(|_| hash.finish() == self.hash.finish())
    }
}

impl Told {
    pub(super) fn new(position: usize, custom: bool) -> Self {
        Self { position, custom, complete: false, heard: Heard::default() }
    }

    /// The next piece.
    pub(super) fn push(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        if self.custom {
            let mut json = if self.heard.length == 0 { format!("{{\"{INPUT}\":\"") } else { String::new() };
            escape(text, &mut json);
            call.push(&json, out);
        } else {
            call.push(text, out);
        }
        self.heard.push(text);
    }

    /// The whole text: what it has beyond the pieces is taken. Where the pieces are whole already it is the same value once
    /// more, in whatever spelling.
    pub(super) fn all(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn Sink) {
        if text.is_empty() || call.is_whole() || !call.is_open() {
            return;
        }
        match self.heard.rest(text) {
            Some(rest) => self.push(call, rest, out),
            None => call.contradict(out),
        }
    }

    /// The end was seen.
    pub(super) fn end(&mut self, call: &mut NativeCall, next: &mut u32, out: &mut dyn Sink) {
        if self.custom && call.is_open() {
            call.push(&if self.heard.length == 0 { format!("{{\"{INPUT}\":\"\"}}") } else { "\"}".to_owned() }, out);
        }
        call.end_seen(next, out);
    }
}
