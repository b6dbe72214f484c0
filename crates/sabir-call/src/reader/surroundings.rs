//! Finds calls that a text only mentions, by the words around them.
//!
//! Most mentions are known before the call begins (`reader/prose.rs`). These are known only behind it:
//! a quotation that began in an earlier paragraph, a call in the middle of a sentence that continues
//! behind it, and lines of a ReAct prompt that more prose follows. Such a call has been emitted
//! already, so it is rejected by a fault.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;
use super::markers::{GEMMA, is_special};
use super::pending_open::PendingOpen;

/// The words with which a ReAct transcript continues behind a call.
const REACT_LABELS: [&str; 5] = [
    "Observation:",
    "Thought:",
    "Action:",
    "Final Answer:",
    "PAUSE",
];

/// The words before a run of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallSurroundings {
    /// The last byte before the run that is not white space.
    before: u8,
    start: RunStart,
}

/// The place at which a run of calls begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunStart {
    /// In the middle of a sentence.
    Sentence,
    /// At the label of a ReAct prompt, while other dialects are read too.
    Label,
    /// Anywhere else.
    Other,
}

impl CallReader {
    /// Records the words before a marker or tag that may open a call.
    pub(super) fn note_surroundings(&mut self, opening: &PendingOpen) {
        // Directly behind another call the words before the first one count.
        if self.inside.is_none() && self.surroundings.is_none() {
            self.diagnostics.calls_before_run = self.diagnostics.calls;
            self.surroundings = Some(CallSurroundings {
                before: self.prose.last_solid_byte(),
                start: self.run_start(opening),
            });
        }
    }

    /// Returns the place at which a call with this opening begins.
    fn run_start(&self, opening: &PendingOpen) -> RunStart {
        let is_label = opening.tag.ends_with(':') && opening.tag != GEMMA;
        if is_label && !self.vocabulary.chosen {
            RunStart::Label
        } else if !is_special(&opening.tag) && self.prose.is_in_sentence() {
            // Special tokens are no words of a sentence.
            RunStart::Sentence
        } else {
            RunStart::Other
        }
    }

    /// Rejects the calls before this place if the text at it shows that they were only mentioned.
    /// `blank` is the white space behind them. Returns false if more text is needed.
    pub(super) fn judge_surroundings(
        &mut self,
        rest: &str,
        blank: &str,
        last: bool,
        at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let Some(around) = self.surroundings else {
            return true;
        };
        let Some(next) = rest.chars().next().filter(|next| *next != '<') else {
            // More markup may follow, such as the end of a block.
            return true;
        };
        let is_same_line = !blank.contains(['\n', '\r']);
        let goes_on = next.is_lowercase() || matches!(next, ',' | ';');
        let ends_quotation = matches!(around.before, b'`' | b'"' | b'\'')
            && blank.is_empty()
            && next == char::from(around.before);
        let why = if ends_quotation {
            Some("in a quotation")
        } else if around.start == RunStart::Sentence && is_same_line && goes_on {
            Some("in the middle of a sentence")
        } else if around.start == RunStart::Label {
            let begins = |label: &str| label.starts_with(rest) && rest.len() < label.len();
            if !last && REACT_LABELS.iter().any(|label| begins(label)) {
                return false;
            }
            let is_label = REACT_LABELS.iter().any(|label| rest.starts_with(label));
            (!is_label).then_some("in the middle of a text")
        } else {
            None
        };
        self.surroundings = None;
        let Some(why) = why else { return true };
        for index in self.diagnostics.calls_before_run..self.diagnostics.calls {
            let message = format!("the call is {why}, where it is only mentioned; it was not run");
            let fault = Fault::error(FaultKind::Mentioned, Span::new(at, at), message);
            let hint = "write a call on lines of its own";
            out.push_event(Event::Fault(&fault.in_call(index).with_hint(hint)));
        }
        true
    }
}
