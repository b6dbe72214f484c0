//! Finds calls that a text only mentions, by the words around them.
//!
//! Most mentions are recognized before the call begins (`reader/prose.rs`). These are recognized
//! only after it: a quotation that began in an earlier paragraph, a call in the middle of a
//! sentence that continues after it, and lines of a ReAct prompt that more prose follows. Such a
//! call has been emitted already, so it is rejected by a fault. So is a call inside a string of
//! JSON or Python, which is part of a value whose own call has lost its opening markup.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;
use super::markers::GEMMA;
use super::pending_open::PendingOpen;

/// The words with which a ReAct transcript continues behind a call.
const REACT_LABELS: [&str; 5] = [
    "Observation:",
    "Thought:",
    "Action:",
    "Final Answer:",
    "PAUSE",
];

/// The maximum length of a closing tag and the blanks behind it, in bytes.
const CLOSE_CAP: usize = 64;

/// The words before a run of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrecedingWords {
    /// The last byte before the run that is not white space.
    before: u8,
    start: RunStart,
}

/// The place at which a run of calls begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunStart {
    /// In the middle of a sentence.
    Sentence,
    /// Behind markup of a dialect that is not read, in the middle of a sentence about that dialect.
    Foreign,
    /// At the label of a ReAct prompt, while other dialects are read too.
    Label,
    /// Inside a string of JSON or Python.
    String,
    /// Anywhere else.
    Other,
}

impl CallReader {
    /// Records the words before a marker or tag that may open a call.
    pub(super) fn note_preceding_words(&mut self, opening: &PendingOpen) {
        let is_label = opening.tag.ends_with(':') && opening.tag != GEMMA;
        match is_label && !self.vocabulary.chosen {
            true => self.begin_run(RunStart::Label),
            false => self.note_words_before_bare_call(),
        }
    }

    /// Records the words before a call without a marker, or before a marker that is not a word.
    pub(super) fn note_words_before_bare_call(&mut self) {
        self.begin_run(if self.prose.is_after_foreign_markup() {
            RunStart::Foreign
        } else if self.prose.is_in_sentence() {
            RunStart::Sentence
        } else {
            RunStart::Other
        });
    }

    fn begin_run(&mut self, start: RunStart) {
        // Directly behind another call the words before the first one count.
        if self.inside.is_none() && self.preceding_words.is_none() {
            self.diagnostics.calls_before_run = self.diagnostics.calls;
            self.preceding_words = Some(PrecedingWords {
                before: self.prose.last_non_whitespace(),
                start: match self.prose.is_in_string() {
                    true => RunStart::String,
                    false => start,
                },
            });
        }
    }

    /// Rejects the calls before this place if the text here shows that they were only mentioned. `blank` is the white space behind them.
    /// Returns false if more text is needed.
    pub(super) fn reject_mentioned_calls(
        &mut self,
        rest: &str,
        blank: &str,
        last: bool,
        at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let Some(around) = self.preceding_words else {
            return true;
        };
        self.reject_run_in_string(at);
        let is_foreign = around.start == RunStart::Foreign;
        let is_markup =
            |next: &char| *next == '<' || self.vocabulary.marked.map(char::from) == Some(*next);
        let Some(next) = rest
            .chars()
            .next()
            .filter(|next| is_foreign || !is_markup(next))
        else {
            // More markup may follow, such as the end of a block.
            if around.start == RunStart::Sentence && !blank.contains(['\n', '\r']) {
                match continues_after_tag(rest, last) {
                    None => return false,
                    Some(true) => self.reject_run("in the middle of a sentence", at, out),
                    Some(false) => {}
                }
            }
            return true;
        };
        let is_same_line = !blank.contains(['\n', '\r']);
        let goes_on = continues_sentence(next);
        let ends_quotation = matches!(around.before, b'`' | b'"' | b'\'')
            && blank.is_empty()
            && next == char::from(around.before);
        let why = if is_foreign {
            Some("in the middle of a sentence")
        } else if ends_quotation {
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
        match why {
            Some(why) => self.reject_run(why, at, out),
            None => self.preceding_words = None,
        }
        true
    }

    /// Rejects the calls of the run if it began inside a string: that is a value of a call which was not understood.
    pub(super) fn reject_run_in_string(&mut self, at: usize) {
        let is_in_string = |around: PrecedingWords| around.start == RunStart::String;
        if self.preceding_words.is_some_and(is_in_string) {
            self.reject_calls_from(self.diagnostics.calls_before_run, Span::new(at, at));
        }
    }

    /// Rejects the calls of the run, which are only mentioned.
    fn reject_run(&mut self, why: &str, at: usize, out: &mut dyn EventSink) {
        self.preceding_words = None;
        self.reject_mentions(self.diagnostics.calls_before_run, why, at, out);
    }

    /// Rejects the calls from that number on, which are only mentioned.
    pub(super) fn reject_mentions(
        &self,
        first: u32,
        why: &str,
        at: usize,
        out: &mut dyn EventSink,
    ) {
        for index in first..self.diagnostics.calls {
            let message = format!("the call is {why}, where it is only mentioned; it was not run");
            let fault = Fault::error(FaultKind::Mentioned, Span::new(at, at), message);
            let hint = "write a call on lines of its own";
            out.push_event(Event::Fault(&fault.in_call(index).with_hint(hint)));
        }
    }
}

/// Returns true if a sentence continues with this character. A new sentence may follow a call; if
/// the same sentence continues behind it, the call was only mentioned.
fn continues_sentence(next: char) -> bool {
    let is_word = next.is_alphabetic() && !next.is_uppercase();
    is_word || matches!(next, ',' | ';' | '.' | ':' | '!' | '?' | ')' | ']')
}

/// Returns true if a sentence continues behind the closing tag at the start of `rest`, on the same line. `None` means that more text is
/// needed.
fn continues_after_tag(rest: &str, last: bool) -> Option<bool> {
    let is_possible = rest.starts_with("</") || "</".starts_with(rest);
    if !is_possible {
        return Some(false);
    }
    let head = rest.get(..rest.floor_char_boundary(CLOSE_CAP));
    let head = head.unwrap_or_default();
    let behind = head
        .split_once('>')
        .map_or("", |(_, behind)| behind.trim_start_matches(' '));
    match behind.chars().next() {
        Some(next) => Some(continues_sentence(next)),
        None if last || head.len() >= CLOSE_CAP => Some(false),
        None => None,
    }
}
