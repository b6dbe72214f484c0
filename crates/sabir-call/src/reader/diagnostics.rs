//! Collects observations that explain, at the end of a message, why some text was not a call.

use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan};
use crate::fault::{Fault, FaultKind, Span};

use super::outer_call::OuterCallSigns;
use super::prose::IN_FENCE;
use super::tag::names_match;
use super::thought::{IN_THOUGHT, ThoughtBlock};

/// The maximum number of failed openings that are reported.
const SLIPS_CAP: u8 = 16;

/// The maximum number of markers without a call that are reported.
const STRAYS: u8 = 16;

/// The observations of a reader.
#[derive(Debug, Default)]
pub(super) struct ReaderDiagnostics {
    /// The number of calls so far.
    pub(super) calls: u32,
    /// The number of reported failed openings.
    slips: u8,
    /// The number of markers without a call.
    strays: u8,
    /// The number of elements that had begun like a call and were prose.
    missed_elements: u8,
    /// True if calls without a marker were followed by more text.
    pub(super) shown: bool,
    /// The prose position before the last call, if that call was outside of its wrapper.
    pub(super) unopened: Option<u32>,
    /// True after the last call, until its block ends.
    is_after_call: bool,
    /// The number of calls before the current block.
    calls_before_block: u32,
    /// The number of calls before the current run of calls, which the same words surround.
    pub(super) calls_before_run: u32,
    /// The first call closed by each pair of tags, to detect a second possible end.
    closed: Option<Box<ClosedCalls>>,
    /// The prose position after the last call, once there is one.
    last_call_end: u32,
    /// True once a thought began.
    has_thought: bool,
    /// True if the current thought holds markup of a call.
    thought_has_call: bool,
    /// True once HTML that strikes text out began.
    pub(super) has_strikethrough: bool,
    rare_notes: Option<Box<DiagnosticNotes>>,
}

/// The closed calls by their closing tags.
#[derive(Debug, Default)]
struct ClosedCalls {
    all: Vec<ClosedCall>,
    /// Signs that calls are inside a value of another one.
    outer: OuterCallSigns,
}

/// Observations that most texts do not cause, and no text inside a call.
#[derive(Debug, Default)]
struct DiagnosticNotes {
    /// The first place where markup of a call was only mentioned, while there is no call.
    mention: Option<CallMention>,
    /// The first markup of an inactive dialect, while there is no call.
    inactive: Option<(&'static str, Span)>,
    /// The last tag followed by words instead of arguments.
    bare: Option<BareCall>,
    /// The tag of a call that ended directly after its start, and whose close may still follow.
    malformed: Option<String>,
    /// A wrapper followed by words, and the number of calls before it.
    words: Option<(String, Span, u32)>,
    /// A wrapper at the start of a line that was not followed by a call, and the number of calls
    /// before it.
    without_call: Option<(String, Span, u32)>,
    /// Observations that must follow the prose before them.
    notes: Vec<PendingNote>,
}

#[derive(Debug)]
enum PendingNote {
    Mark(MarkupSpan<'static>),
    Fault(Fault),
}

/// Markup that is only mentioned, with the reason.
#[derive(Debug)]
struct CallMention {
    why: &'static str,
    name: String,
    span: Span,
}

/// A call's tag followed by words.
#[derive(Debug)]
pub(super) struct BareCall {
    /// The tag's name.
    pub(super) tag: String,
    /// The tool's name.
    pub(super) name: String,
    pub(super) span: Span,
    /// The correct form of the call.
    pub(super) right: String,
    /// True if the words are JSON.
    pub(super) json: bool,
    /// The number of calls before it.
    pub(super) calls: u32,
}

/// The tags that closed a call.
#[derive(Debug)]
pub(super) struct ClosedCall {
    pub(super) index: u32,
    pub(super) argument: Box<str>,
    pub(super) argument_close: Box<str>,
    pub(super) call_close: Box<str>,
    /// The prose position after the argument's closing tag was seen again.
    pub(super) noted: Option<u32>,
}

impl ReaderDiagnostics {
    /// Returns true if nothing was noted of the message, apart from calls without tags that ran.
    pub(super) fn is_empty(&self) -> bool {
        self.rare_notes.is_none()
            && self.closed.is_none()
            && self.slips == 0
            && self.strays == 0
            && self.missed_elements == 0
    }

    /// Returns true if notes wait to be emitted.
    pub(super) fn has_notes(&self) -> bool {
        self.rare_notes
            .as_ref()
            .is_some_and(|rare_notes| !rare_notes.notes.is_empty())
    }

    /// Emits the waiting notes.
    pub(super) fn emit_notes(&mut self, out: &mut dyn EventSink) {
        let Some(rare_notes) = &mut self.rare_notes else {
            return;
        };
        for note in rare_notes.notes.drain(..) {
            match note {
                PendingNote::Mark(mark) => out.push_event(Event::Mark(mark)),
                PendingNote::Fault(fault) => out.push_event(Event::Fault(&fault)),
            }
        }
        self.free_if_empty();
    }

    /// Records that a call begins, and drops observations that matter only without calls.
    pub(super) fn begin_call(&mut self) {
        self.calls = self.calls.saturating_add(1);
        // The wrapper's end can only follow the last call.
        self.unopened = None;
        if let Some(rare_notes) = &mut self.rare_notes {
            rare_notes.mention = None;
            rare_notes.inactive = None;
            rare_notes.malformed = None;
            rare_notes.words = None;
            rare_notes.without_call = None;
            self.free_if_empty();
        }
    }

    fn notes_mut(&mut self) -> &mut DiagnosticNotes {
        self.rare_notes.get_or_insert_default()
    }

    /// Releases the memory of rare observations when there are none.
    fn free_if_empty(&mut self) {
        self.rare_notes.take_if(|rare_notes| {
            let has_no_notes = rare_notes.notes.is_empty()
                && rare_notes.mention.is_none()
                && rare_notes.inactive.is_none();
            has_no_notes
                && rare_notes.bare.is_none()
                && rare_notes.malformed.is_none()
                && rare_notes.words.is_none()
                && rare_notes.without_call.is_none()
        });
    }

    /// Returns the first call closed by each pair of tags.
    pub(super) fn closed_calls(&self) -> &[ClosedCall] {
        self.closed.as_ref().map_or(&[], |ends| &ends.all)
    }

    /// Returns the same list for changes.
    pub(super) fn closed_calls_mut(&mut self) -> &mut Vec<ClosedCall> {
        &mut self.closed.get_or_insert_default().all
    }

    /// Records a tag followed by words instead of arguments.
    pub(super) fn note_bare_call(&mut self, mut bare: BareCall) {
        // The closing tag may belong to the first of two such tags, so the calls between them stay
        // in doubt.
        match self.notes_mut().bare.take() {
            Some(earlier) if earlier.tag == bare.tag => bare.calls = bare.calls.min(earlier.calls),
            Some(earlier) => self.outer_signs_mut().note_failed_open(earlier.calls),
            None => {}
        }
        self.notes_mut().bare = Some(bare);
    }

    /// Returns the number of calls before the last such tag, which may not have ended.
    pub(super) fn calls_before_bare_call(&self) -> Option<u32> {
        let bare = self.rare_notes.as_ref()?.bare.as_ref();
        bare.map(|bare| bare.calls)
    }

    /// Returns the number of calls before the last such tag and its span, if JSON follows it.
    pub(super) fn open_json_in_tag(&self) -> Option<(u32, Span)> {
        let bare = self.rare_notes.as_ref()?.bare.as_ref();
        bare.filter(|bare| bare.json)
            .map(|bare| (bare.calls, bare.span))
    }

    /// Takes that record, if it is about this tag.
    pub(super) fn take_bare_call(&mut self, tag: &str) -> Option<BareCall> {
        self.rare_notes
            .as_mut()?
            .bare
            .take_if(|bare| bare.tag == tag)
    }

    /// Records the tag of a call that ended directly after its start.
    pub(super) fn note_malformed(&mut self, tag: &str) {
        self.notes_mut().malformed = Some(tag.to_owned());
    }

    /// Returns true, once, if a closing tag of this name belongs to such a call.
    pub(super) fn closes_malformed(&mut self, tag: &str) -> bool {
        self.rare_notes.as_mut().is_some_and(|rare_notes| {
            rare_notes
                .malformed
                .take_if(|name| names_match(name, tag))
                .is_some()
        })
    }

    /// Records a tag in prose that was meant to open a call. A few of these faults are enough.
    pub(super) fn note_failed_open(&mut self, fault: Fault) {
        if self.slips < SLIPS_CAP {
            self.slips += 1;
            // The reason why the block holds no call.
            if let Some(rare_notes) = &mut self.rare_notes {
                rare_notes.without_call = None;
            }
            self.note_fault(fault);
        }
    }

    /// Returns true if a tag in prose was reported that was meant to open a call.
    pub(super) fn has_failed_open(&self) -> bool {
        self.slips > 0
    }

    /// Counts a marker without a call. Returns false once enough were reported.
    pub(super) fn count_stray_marker(&mut self) -> bool {
        self.strays = self.strays.saturating_add(1);
        self.strays <= STRAYS
    }

    /// Counts an element that had begun like a call and was prose.
    pub(super) fn count_missed_element(&mut self) {
        self.missed_elements = self.missed_elements.saturating_add(1);
    }

    /// Returns the number of such elements.
    pub(super) fn missed_elements(&self) -> u8 {
        self.missed_elements
    }

    /// Queues a fault.
    pub(super) fn note_fault(&mut self, fault: Fault) {
        self.notes_mut().notes.push(PendingNote::Fault(fault));
    }

    /// Records a wrapper followed by words instead of a call.
    pub(super) fn note_wrapper_words(&mut self, wrapper: &str, at: usize, len: usize) {
        let calls = self.calls;
        self.notes_mut().words = Some((wrapper.to_owned(), Span::new(at, at + len), calls));
    }

    /// Ends that wrapper, and reports it if it contained no call.
    pub(super) fn end_wrapper_words(&mut self) {
        let Some((wrapper, span, calls)) = self
            .rare_notes
            .as_mut()
            .and_then(|rare_notes| rare_notes.words.take())
        else {
            return;
        };
        if calls == self.calls {
            let message = format!("`{wrapper}` holds words but no call");
            let fault = Fault::error(FaultKind::StrayText, span, message);
            self.note_fault(fault.with_hint("write a call into it, or leave it out"));
        }
    }

    /// Records a wrapper that was not followed by a call. Its closing tag makes it a fault.
    pub(super) fn note_wrapper_without_call(&mut self, wrapper: &str, at: usize, len: usize) {
        let calls = self.calls;
        self.notes_mut().without_call = Some((wrapper.to_owned(), Span::new(at, at + len), calls));
    }

    /// Reports that wrapper if this tag closes it and no call came between.
    pub(super) fn end_wrapper_without_call(&mut self, tag: &str, close: Span) {
        let calls = self.calls;
        let Some((wrapper, open, _)) = self.rare_notes.as_mut().and_then(|rare_notes| {
            rare_notes
                .without_call
                .take_if(|(wrapper, _, before)| names_match(wrapper, tag) && *before == calls)
        }) else {
            return;
        };
        let message = format!("`{wrapper}` holds no call");
        let fault = Fault::error(FaultKind::NoCall, Span::new(open.start, close.end), message);
        self.note_fault(fault.with_hint("write a call into it, or leave it out"));
    }

    /// Records that a wrapper begins.
    pub(super) fn begin_block(&mut self) {
        self.is_after_call = false;
        self.calls_before_block = self.calls;
    }

    /// Records that a call ends, at this position of the prose.
    pub(super) fn note_call_end(&mut self, position: u32) {
        self.is_after_call = true;
        self.last_call_end = position;
    }

    /// Records that a thought begins.
    pub(super) fn note_thought(&mut self) {
        self.has_thought = true;
        self.thought_has_call = false;
    }

    /// Records that the thought holds a call.
    pub(super) fn note_call_in_thought(&mut self) {
        self.thought_has_call = true;
    }

    /// Records that the thought ends.
    pub(super) fn end_thought(&mut self) {
        self.thought_has_call = false;
    }

    /// Returns true once a thought began.
    pub(super) fn has_thought(&self) -> bool {
        self.has_thought
    }

    /// Returns the position of the prose after the last call, if there was one.
    pub(super) fn last_call_end(&self) -> Option<u32> {
        (self.calls > 0).then_some(self.last_call_end)
    }

    /// Returns the signs of a call that was not understood, if there are any.
    pub(super) fn outer_signs(&self) -> Option<&OuterCallSigns> {
        self.closed.as_ref().map(|closed| &closed.outer)
    }

    /// Returns the same signs for changes.
    pub(super) fn outer_signs_mut(&mut self) -> &mut OuterCallSigns {
        &mut self.closed.get_or_insert_default().outer
    }

    /// Returns the position of the prose after the last call of the block, once.
    pub(super) fn take_call_end(&mut self) -> Option<u32> {
        std::mem::take(&mut self.is_after_call).then_some(self.last_call_end)
    }

    /// Reports, at the end of the text, that the closing tag of a block with calls is missing.
    pub(super) fn note_unclosed_wrapper(&mut self, close: &str, at: usize) {
        let Some(last) = self
            .calls
            .checked_sub(1)
            .filter(|last| *last >= self.calls_before_block)
        else {
            return;
        };
        let message = format!("`{close}` is missing; the calls before it are whole");
        let fault = Fault::warning(FaultKind::WrongClose, Span::new(at, at), message).in_call(last);
        self.note_fault(fault.with_hint(format!("end the block of calls with `{close}`")));
    }

    /// Queues a mark for markup that belongs to no call.
    pub(super) fn note_mark(
        &mut self,
        role: MarkupRole,
        at: usize,
        len: usize,
        rule: &'static str,
    ) {
        let span = Span::new(at, at + len);
        self.notes_mut().notes.push(PendingNote::Mark(MarkupSpan {
            role,
            dialect: None,
            span,
            sure: Certainty::Certain,
            rule,
        }));
    }

    /// Records markup of a call at a place where it is only mentioned.
    pub(super) fn note_mention(&mut self, why: &'static str, name: &str, at: usize, len: usize) {
        self.note_mark(MarkupRole::Mention, at, len, why);
        self.thought_has_call |= why == IN_THOUGHT;
        let mention = || CallMention {
            why,
            name: name.to_owned(),
            span: Span::new(at, at + len),
        };
        if self.calls == 0 {
            self.notes_mut().mention.get_or_insert_with(mention);
        }
    }

    /// Records markup of an inactive dialect.
    pub(super) fn note_other_dialect(&mut self, dialect: &'static str, at: usize, len: usize) {
        if self.calls == 0 {
            self.notes_mut()
                .inactive
                .get_or_insert((dialect, Span::new(at, at + len)));
        }
    }

    /// Reports a thought that was never closed.
    pub(super) fn report_unclosed_thought(&self, thought: ThoughtBlock, out: &mut dyn EventSink) {
        let Some((open, close, start)) = thought.unclosed_parts() else {
            return;
        };
        let message = format!(
            "`{open}` was opened here and never closed, so all that follows was read as a thought"
        );
        let length = if thought.is_prompted() { 0 } else { open.len() };
        let span = Span::new(start, start + length);
        let hint = format!("write `{close}` before calling a tool");
        let fault = match self.thought_has_call {
            // A call was lost with the rest, or a call in special tokens ran and the answer behind
            // it was lost: the message was not understood.
            true => Fault::error(FaultKind::WrongClose, span, message.clone()),
            false => Fault::warning(FaultKind::WrongClose, span, message.clone()),
        };
        out.push_event(Event::Fault(&fault.with_hint(hint.clone())));
        // The thought may have swallowed the rest of a value whose closing tags seemed to end it.
        // Only raw values have such
        // tags.
        let closed = self.closed_calls().iter().map(|closed| closed.index);
        // The same holds for a value whose call was not understood.
        let bare = self
            .rare_notes
            .as_ref()
            .and_then(|rare_notes| rare_notes.bare.as_ref());
        let doubtful = self.outer_signs().and_then(OuterCallSigns::first_doubtful);
        let first = closed
            .chain(bare.map(|bare| bare.calls))
            .chain(doubtful)
            .min()
            .unwrap_or(self.calls);
        for index in first..self.calls {
            let fault = Fault::error(FaultKind::WrongClose, span, message.clone()).in_call(index);
            out.push_event(Event::Fault(&fault.with_hint(hint.clone())));
        }
    }

    /// Ends a message, and reports text that resembles a call if there was no call.
    pub(super) fn report_missed_calls(&mut self, out: &mut dyn EventSink) {
        self.end_wrapper_words();
        self.emit_notes(out);
        let Some(DiagnosticNotes {
            mention, inactive, ..
        }) = self
            .rare_notes
            .take()
            .map(|rare_notes| *rare_notes)
            .filter(|_| self.calls == 0)
        else {
            return;
        };
        if let Some(CallMention { why, name, span }) = mention {
            let message =
                format!("`{name}` is {why}, where a call is only mentioned; nothing was run");
            let kind = if why == IN_FENCE {
                FaultKind::FencedCall
            } else {
                FaultKind::Mentioned
            };
            let fault = Fault::warning(kind, span, message);
            // Only a warning: showing a call in a message is legitimate.
            let hint = "if a call was meant, write it outside of fences, quotations and thoughts";
            out.push_event(Event::Fault(&fault.with_hint(hint)));
        }
        if let Some((dialect, span)) = inactive {
            let message = format!(
                "this is markup of the dialect `{dialect}`, which is not listened for; nothing was run"
            );
            let fault = Fault::warning(FaultKind::OtherDialect, span, message);
            out.push_event(Event::Fault(
                &fault.with_hint("write the call in the dialect that was taught"),
            ));
        }
    }
}
