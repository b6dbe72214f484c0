//! Tracks the arguments of one call that arrive in pieces and then again as a whole.

use std::hash::{DefaultHasher, Hasher};

use sabir_call::EventSink;

use crate::delta_template::escape_json;
use crate::native_call::NativeCall;
use crate::native_tools::INPUT;

/// The arguments of one call so far.
#[derive(Debug)]
pub(super) struct ArgumentProgress {
    /// The position of the call in the response.
    pub(super) position: usize,
    /// True if the arguments are one text.
    pub(super) custom: bool,
    /// True if the provider declared them complete.
    pub(super) complete: bool,
    /// The fingerprint of the pieces so far, before any conversion to JSON.
    progress: TextProgress,
}

/// A fingerprint of a text that arrived in pieces: enough to recognize it without keeping it.
#[derive(Debug, Default)]
pub(super) struct TextProgress {
    /// The bytes so far.
    length: usize,
    /// The hash of these bytes. It is compared within one response only, so it need not be stable.
    hash: DefaultHasher,
}

impl TextProgress {
    /// Adds a piece.
    pub(super) fn push_text(&mut self, text: &str) {
        self.length += text.len();
        self.hash.write(text.as_bytes());
    }

    /// Returns the rest of the whole text after the pieces; `None` if it does not begin with them.
    pub(super) fn remaining_text<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let mut hash = DefaultHasher::new();
        // Comparing hashes of the prefix avoids keeping every text twice.
        hash.write(whole.as_bytes().get(..self.length)?);
        whole
            .get(self.length..)
            .filter(|_| hash.finish() == self.hash.finish())
    }
}

impl ArgumentProgress {
    /// Creates an empty state for the call at this position.
    pub(super) fn new(position: usize, custom: bool) -> Self {
        Self {
            position,
            custom,
            complete: false,
            progress: TextProgress::default(),
        }
    }

    /// Adds a piece.
    pub(super) fn push_arguments(
        &mut self,
        call: &mut NativeCall,
        text: &str,
        out: &mut dyn EventSink,
    ) {
        if text.is_empty() {
            return;
        }
        // A custom tool's text becomes the string value of its one argument.
        if self.custom {
            let mut json = if self.progress.length == 0 {
                format!("{{\"{INPUT}\":\"")
            } else {
                String::new()
            };
            escape_json(text, &mut json);
            call.push_arguments(&json, out);
        } else {
            call.push_arguments(text, out);
        }
        self.progress.push_text(text);
    }

    /// Adds the rest of the whole text. If the pieces are already complete, the text repeats the
    /// same value, in any spelling.
    pub(super) fn complete_with(
        &mut self,
        call: &mut NativeCall,
        text: &str,
        out: &mut dyn EventSink,
    ) {
        // An empty text adds nothing, and a complete or closed call takes no more.
        if text.is_empty() || call.is_whole() || !call.is_open() {
            return;
        }
        match self.progress.remaining_text(text) {
            Some(rest) => self.push_arguments(call, rest, out),
            None => call.mark_contradicted(out),
        }
    }

    /// Notes that the end was seen, and closes the JSON text of a custom tool.
    pub(super) fn end_arguments(
        &mut self,
        call: &mut NativeCall,
        next: &mut u32,
        out: &mut dyn EventSink,
    ) {
        // The string and the object of the one argument are still open.
        if self.custom && call.is_open() {
            call.push_arguments(
                &if self.progress.length == 0 {
                    format!("{{\"{INPUT}\":\"\"}}")
                } else {
                    "\"}".to_owned()
                },
                out,
            );
        }
        call.mark_end_seen(next, out);
    }
}
