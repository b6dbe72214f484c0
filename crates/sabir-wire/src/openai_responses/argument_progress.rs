//! What has been told of one call's arguments, in pieces and once more as a whole.

use std::hash::{DefaultHasher, Hasher};

use sabir_call::EventSink;

use crate::delta_template::escape_json;
use crate::native_call::NativeCall;
use crate::native_tools::INPUT;

#[derive(Debug)]
pub(super) struct ArgumentProgress {
    /// Position among the calls of the response.
    pub(super) position: usize,
    /// Whether the arguments are one text.
    pub(super) custom: bool,
    /// Whether they were said to be complete.
    pub(super) complete: bool,
    progress: TextProgress,
}

/// A text that came in pieces, without the text: enough to know it again.
#[derive(Debug, Default)]
pub(super) struct TextProgress {
    length: usize,
    hash: DefaultHasher,
}

impl TextProgress {
    /// The next piece.
    pub(super) fn push_text(&mut self, text: &str) {
        self.length += text.len();
        self.hash.write(text.as_bytes());
    }

    /// What the whole text has beyond the pieces; `None`: it does not begin with them.
    pub(super) fn remaining_text<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let mut hash = DefaultHasher::new();
        hash.write(whole.as_bytes().get(..self.length)?);
        whole.get(self.length..).filter(|_| hash.finish() == self.hash.finish())
    }
}

impl ArgumentProgress {
    pub(super) fn new(position: usize, custom: bool) -> Self {
        Self { position, custom, complete: false, progress: TextProgress::default() }
    }

    /// The next piece.
    pub(super) fn push_arguments(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn EventSink) {
        if text.is_empty() {
            return;
        }
        if self.custom {
            let mut json = if self.progress.length == 0 { format!("{{\"{INPUT}\":\"") } else { String::new() };
            escape_json(text, &mut json);
            call.push_arguments(&json, out);
        } else {
            call.push_arguments(text, out);
        }
        self.progress.push_text(text);
    }

    /// The whole text: what it has beyond the pieces is taken. Where the pieces are whole already it is the same value once
    /// more, in whatever spelling.
    pub(super) fn complete_with(&mut self, call: &mut NativeCall, text: &str, out: &mut dyn EventSink) {
        if text.is_empty() || call.is_whole() || !call.is_open() {
            return;
        }
        match self.progress.remaining_text(text) {
            Some(rest) => self.push_arguments(call, rest, out),
            None => call.mark_contradicted(out),
        }
    }

    /// The end was seen.
    pub(super) fn end_arguments(&mut self, call: &mut NativeCall, next: &mut u32, out: &mut dyn EventSink) {
        if self.custom && call.is_open() {
            call.push_arguments(
                &if self.progress.length == 0 { format!("{{\"{INPUT}\":\"\"}}") } else { "\"}".to_owned() },
                out,
            );
        }
        call.mark_end_seen(next, out);
    }
}
