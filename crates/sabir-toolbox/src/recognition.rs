//! Tracks how each call of a text was recognised.

use std::collections::BTreeMap;

use sabir_call::{Certainty, Event, MarkupRole, MarkupSpan};
use serde::Serialize;

/// The way in which a call was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CallRecognition {
    /// The certainty of the reader.
    pub sure: Certainty,
    /// The rule that applied.
    pub rule: &'static str,
}

/// Tracks how each call was recognised: by the marker right before it, or else by the last wrapper around calls of its
/// dialect. A call in text without either has no marker at all.
#[derive(Debug, Default)]
pub(crate) struct RecognitionTracker {
    /// True if the user chose one dialect.
    chosen: bool,
    by_call: BTreeMap<u32, CallRecognition>,
    /// The marker of a call that has not begun yet.
    marker: Option<CallRecognition>,
    wrapper: Option<WrapperMark>,
}

/// The last wrapper around calls.
#[derive(Debug)]
struct WrapperMark {
    dialect: Option<String>,
    recognition: CallRecognition,
}

impl RecognitionTracker {
    /// Creates a tracker; `chosen` is true if the reader listens for one dialect only.
    pub(crate) fn new(chosen: bool) -> Self {
        Self {
            chosen,
            ..Self::default()
        }
    }

    /// Updates the tracker with the next event.
    pub(crate) fn note_event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(MarkupSpan {
                role,
                dialect,
                sure,
                rule,
                ..
            }) => {
                // Other marks (thoughts, mentions) say nothing about the call that follows them.
                let recognition = CallRecognition { sure, rule };
                match role {
                    MarkupRole::Call => self.marker = Some(recognition),
                    MarkupRole::Wrapper => {
                        self.wrapper = Some(WrapperMark {
                            dialect: dialect.map(str::to_owned),
                            recognition,
                        });
                    }
                    _ => {}
                }
            }
            Event::CallStart { index, dialect, .. } => self.note_call(index, dialect),
            _ => {}
        }
    }

    /// Returns the recognition of a call.
    pub(crate) fn recognition_of(&self, index: u32) -> Option<CallRecognition> {
        self.by_call.get(&index).copied()
    }

    /// Decides how the call that begins was recognised. A native call has no recognition.
    fn note_call(&mut self, index: u32, dialect: Option<&str>) {
        let wrapper = self
            .wrapper
            .as_ref()
            .filter(|wrapper| wrapper.dialect.as_deref() == dialect)
            .map(|wrapper| wrapper.recognition);
        // If the user chose one dialect, a call without a marker is not a guess.
        let sure = if self.chosen {
            Certainty::Certain
        } else {
            Certainty::Guess
        };
        // Without a dialect the call is native: the provider said that it is one.
        let bare = dialect.map(|_| CallRecognition {
            sure,
            rule: "no marker: its shape and its place say that it is a call",
        });
        let recognition = self.marker.take().or(wrapper).or(bare);
        // Taking the marker makes sure that the next call of a run falls back on the wrapper.
        self.by_call
            .extend(recognition.map(|recognition| (index, recognition)));
    }
}
