//! What the reader remembers of what it read, to say at the end what was wrong although nothing was a call.

use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan};
use crate::fault::{Fault, FaultKind, Span};

use super::prose::IN_FENCE;
use super::tag::names_match;
use super::thought::ThoughtBlock;

/// How many tags in prose are noted that were meant to open calls.
const SLIPS_CAP: u8 = 16;

/// How many markers without a call are told of.
const STRAYS: u8 = 16;

/// What was read before.
#[derive(Debug, Default)]
pub(super) struct ReaderDiagnostics {
    /// Calls opened so far.
    pub(super) calls: u32,
    /// Tags noted that were meant to open calls.
    slips: u8,
    /// How many markers had no call behind them.
    strays: u8,
    /// Calls without a marker stood where more followed.
    pub(super) shown: bool,
    /// If the last call stood outside of its wrapper: how far the prose had come before it.
    pub(super) unopened: Option<u32>,
    /// The first call that closed with each pair of tags, to notice when its end could be read in two places.
    closed: Option<Box<ClosedCalls>>,
    odd: Option<Box<DiagnosticNotes>>,
}

/// With what tags calls closed.
#[derive(Debug, Default)]
struct ClosedCalls {
    all: Vec<ClosedCall>,
}

/// What there is nothing of in most texts, and nothing of inside a call.
#[derive(Debug, Default)]
struct DiagnosticNotes {
    /// Where markup of a call was only mentioned, while there is no call.
    mention: Option<CallMention>,
    /// Markup of a dialect that is not listened for, and that dialect, while there is no call.
    unheard: Option<(&'static str, Span)>,
    /// The last tag that words followed instead of arguments.
    bare: Option<BareCall>,
    /// The tag of a call that was over as soon as it began, whose close may still come.
    malformed: Option<String>,
    /// A wrapper that words followed, and how many calls there were before it.
    words: Option<(String, Span, u32)>,
    /// What was found by looking ahead, which waits for the prose before it.
    notes: Vec<PendingNote>,
}

#[derive(Debug)]
enum PendingNote {
    Mark(MarkupSpan<'static>),
    Fault(Fault),
}

#[derive(Debug)]
struct CallMention {
    why: &'static str,
    name: String,
    span: Span,
}

/// A call's tag with words behind it.
#[derive(Debug)]
pub(super) struct BareCall {
    /// The tag's name, and the tool's.
    pub(super) tag: String,
    pub(super) name: String,
    pub(super) span: Span,
    /// How the call should be spelled.
    pub(super) right: String,
    /// The words are JSON.
    pub(super) json: bool,
}

/// The tags with which a call closed.
#[derive(Debug)]
pub(super) struct ClosedCall {
    pub(super) index: u32,
    pub(super) argument: Box<str>,
    pub(super) argument_close: Box<str>,
    pub(super) call_close: Box<str>,
    /// Where in the prose the argument's closing tag was seen again.
    pub(super) noted: Option<u32>,
}

impl ReaderDiagnostics {
    /// Whether something waits to be told.
    pub(super) fn has_notes(&self) -> bool {
        self.odd.as_ref().is_some_and(|odd| !odd.notes.is_empty())
    }

    /// Tells what waited.
    pub(super) fn emit_notes(&mut self, out: &mut dyn EventSink) {
        let Some(odd) = &mut self.odd else { return };
        for note in odd.notes.drain(..) {
            match note {
                PendingNote::Mark(mark) => out.push_event(Event::Mark(mark)),
                PendingNote::Fault(fault) => out.push_event(Event::Fault(&fault)),
            }
        }
        self.free_if_empty();
    }

    /// A call begins: what only a message without calls would be told is forgotten.
    pub(super) fn begin_call(&mut self) {
        self.calls = self.calls.saturating_add(1);
        self.unopened = None;
        if let Some(odd) = &mut self.odd {
            (odd.mention, odd.unheard, odd.malformed, odd.words) = (None, None, None, None);
            self.free_if_empty();
        }
    }

    fn notes_mut(&mut self) -> &mut DiagnosticNotes {
        self.odd.get_or_insert_default()
    }

    /// Gives the memory of odd things back where there are none.
    fn free_if_empty(&mut self) {
        self.odd.take_if(|odd| {
            let told = odd.notes.is_empty() && odd.mention.is_none() && odd.unheard.is_none();
            told && odd.bare.is_none() && odd.malformed.is_none() && odd.words.is_none()
        });
    }

    /// The first call that closed with each pair of tags.
    pub(super) fn closed_calls(&self) -> &[ClosedCall] {
        self.closed.as_ref().map_or(&[], |ends| &ends.all)
    }

    /// The same, to add to and to take from.
    pub(super) fn closed_calls_mut(&mut self) -> &mut Vec<ClosedCall> {
        &mut self.closed.get_or_insert_default().all
    }

    /// Notes the tag that words followed instead of arguments.
    pub(super) fn note_bare_call(&mut self, bare: BareCall) {
        self.notes_mut().bare = Some(bare);
    }

    /// Takes that note, if the tag was this one.
    pub(super) fn take_bare_call(&mut self, tag: &str) -> Option<BareCall> {
        self.odd.as_mut()?.bare.take_if(|bare| bare.tag == tag)
    }

    /// Notes the tag of a call that was over as soon as it began.
    pub(super) fn note_malformed(&mut self, tag: &str) {
        self.notes_mut().malformed = Some(tag.to_owned());
    }

    /// Whether a closing tag of this name belongs to such a call; it does so once.
    pub(super) fn closes_malformed(&mut self, tag: &str) -> bool {
        self.odd.as_mut().is_some_and(|odd| odd.malformed.take_if(|name| names_match(name, tag)).is_some())
    }

    /// Notes that a tag in prose was meant to open a call. A few of these say all that there is to say.
    pub(super) fn note_failed_open(&mut self, fault: Fault) {
        if self.slips < SLIPS_CAP {
            self.slips += 1;
            self.note_fault(fault);
        }
    }

    /// Counts a marker without a call. False: enough has been said of them.
    pub(super) fn count_stray_marker(&mut self) -> bool {
        self.strays = self.strays.saturating_add(1);
        self.strays <= STRAYS
    }

    /// Notes a fault.
    pub(super) fn note_fault(&mut self, fault: Fault) {
        self.notes_mut().notes.push(PendingNote::Fault(fault));
    }

    /// Notes a wrapper that words follow instead of a call.
    pub(super) fn note_wrapper_words(&mut self, wrapper: &str, at: usize, len: usize) {
        let calls = self.calls;
        self.notes_mut().words = Some((wrapper.to_owned(), Span::new(at, at + len), calls));
    }

    /// The wrapper ends: without a call in it, one was meant.
    pub(super) fn end_wrapper_words(&mut self) {
        let Some((wrapper, span, calls)) = self.odd.as_mut().and_then(|odd| odd.words.take()) else { return };
        if calls == self.calls {
            let message = format!("`{wrapper}` holds words but no call");
            let fault = Fault::error(FaultKind::StrayText, span, message);
            self.note_fault(fault.with_hint("write a call into it, or leave it out"));
        }
    }

    /// Notes markup that belongs to no call.
    pub(super) fn note_mark(&mut self, role: MarkupRole, at: usize, len: usize, rule: &'static str) {
        let span = Span::new(at, at + len);
        self.notes_mut().notes.push(PendingNote::Mark(MarkupSpan {
            role,
            dialect: None,
            span,
            sure: Certainty::Certain,
            rule,
        }));
    }

    /// Notes markup of a call where a call is only mentioned.
    pub(super) fn note_mention(&mut self, why: &'static str, name: &str, at: usize, len: usize) {
        self.note_mark(MarkupRole::Mention, at, len, why);
        let mention = || CallMention { why, name: name.to_owned(), span: Span::new(at, at + len) };
        if self.calls == 0 {
            self.notes_mut().mention.get_or_insert_with(mention);
        }
    }

    /// Notes markup of a dialect that is not listened for.
    pub(super) fn note_other_dialect(&mut self, dialect: &'static str, at: usize, len: usize) {
        if self.calls == 0 {
            self.notes_mut().unheard.get_or_insert((dialect, Span::new(at, at + len)));
        }
    }

    /// A thought that never ended.
    pub(super) fn report_unclosed_thought(&self, thought: ThoughtBlock, out: &mut dyn EventSink) {
        let Some((open, close, start)) = thought.unclosed_parts() else { return };
        let message = format!("`{open}` was opened here and never closed, so all that follows was read as a thought");
        let span = Span::new(start, start + open.len());
        let hint = format!("write `{close}` before calling a tool");
        let fault = Fault::warning(FaultKind::WrongClose, span, message.clone()).with_hint(hint.clone());
        out.push_event(Event::Fault(&fault));
        // What was swallowed may have been the rest of a value whose closing tags were taken for its end. Only raw values
        // have such tags.
        let first = self.closed_calls().iter().map(|closed| closed.index).min().unwrap_or(self.calls);
        for index in first..self.calls {
            let fault = Fault::error(FaultKind::WrongClose, span, message.clone()).in_call(index);
            out.push_event(Event::Fault(&fault.with_hint(hint.clone())));
        }
    }

    /// A message without calls that holds something like one: perhaps a call was meant.
    pub(super) fn report_missed_calls(&mut self, out: &mut dyn EventSink) {
        self.end_wrapper_words();
        self.emit_notes(out);
        let Some(DiagnosticNotes { mention, unheard, .. }) =
            self.odd.take().map(|odd| *odd).filter(|_| self.calls == 0)
        else {
            return;
        };
        if let Some(CallMention { why, name, span }) = mention {
            let message = format!("`{name}` stands {why}, where a call is only mentioned; nothing was run");
            let kind = if why == IN_FENCE { FaultKind::FencedCall } else { FaultKind::Mentioned };
            let fault = Fault::warning(kind, span, message);
            let hint = "if a call was meant, write it outside of fences, quotations and thoughts";
            out.push_event(Event::Fault(&fault.with_hint(hint)));
        }
        if let Some((dialect, span)) = unheard {
            let message =
                format!("this is markup of the dialect `{dialect}`, which is not listened for; nothing was run");
            let fault = Fault::warning(FaultKind::OtherDialect, span, message);
            out.push_event(Event::Fault(&fault.with_hint("write the call in the dialect that was taught")));
        }
    }
}
