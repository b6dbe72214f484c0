//! What the reader remembers of what it read, to say at the end what was wrong although nothing was a call.

use crate::event::{Certainty, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::prose::IN_FENCE;
use super::tag::alike;
use super::thought::Thought;

/// How many tags in prose are noted that were meant to open calls.
const SLIPS_CAP: u8 = 16;

/// How many markers without a call are told of.
const STRAYS: u8 = 16;

/// What was read before.
#[derive(Debug, Default)]
pub(super) struct Past {
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
    closed: Option<Box<Ends>>,
    odd: Option<Box<Odd>>,
}

/// With what tags calls closed.
#[derive(Debug, Default)]
struct Ends {
    all: Vec<Closed>,
}

/// What there is nothing of in most texts, and nothing of inside a call.
#[derive(Debug, Default)]
struct Odd {
    /// Where markup of a call was only mentioned, while there is no call.
    mention: Option<Mention>,
    /// Markup of a dialect that is not listened for, and that dialect, while there is no call.
    unheard: Option<(&'static str, Span)>,
    /// The last tag that words followed instead of arguments.
    bare: Option<Bare>,
    /// The tag of a call that was over as soon as it began, whose close may still come.
    malformed: Option<String>,
    /// A wrapper that words followed, and how many calls there were before it.
    words: Option<(String, Span, u32)>,
    /// What was found by looking ahead, which waits for the prose before it.
    notes: Vec<Note>,
}

#[derive(Debug)]
enum Note {
    Mark(Mark<'static>),
    Fault(Fault),
}

#[derive(Debug)]
struct Mention {
    why: &'static str,
    name: String,
    span: Span,
}

/// A call's tag with words behind it.
#[derive(Debug)]
pub(super) struct Bare {
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
pub(super) struct Closed {
    pub(super) index: u32,
    pub(super) argument: Box<str>,
    pub(super) argument_close: Box<str>,
    pub(super) call_close: Box<str>,
    /// Where in the prose the argument's closing tag was seen again.
    pub(super) noted: Option<u32>,
}

impl Past {
    /// Whether something waits to be told.
    pub(super) fn has_notes(&self) -> bool {
        self.odd.as_ref().is_some_and(|odd| !odd.notes.is_empty())
    }

    /// Tells what waited.
    pub(super) fn tell(&mut self, out: &mut dyn Sink) {
        let Some(odd) = &mut self.odd else { return };
        for note in odd.notes.drain(..) {
            match note {
                Note::Mark(mark) => out.event(Event::Mark(mark)),
                Note::Fault(fault) => out.event(Event::Fault(&fault)),
            }
        }
        self.tidy();
    }

    /// A call begins: what only a message without calls would be told is forgotten.
    pub(super) fn begin_call(&mut self) {
        self.calls = self.calls.saturating_add(1);
        self.unopened = None;
        if let Some(odd) = &mut self.odd {
            (odd.mention, odd.unheard, odd.malformed, odd.words) = (None, None, None, None);
            self.tidy();
        }
    }

    fn odd(&mut self) -> &mut Odd {
        self.odd.get_or_insert_default()
    }

    /// Gives the memory of odd things back where there are none.
    fn tidy(&mut self) {
        self.odd.take_if(|odd| {
            let told = odd.notes.is_empty() && odd.mention.is_none() && odd.unheard.is_none();
            told && odd.bare.is_none() && odd.malformed.is_none() && odd.words.is_none()
        });
    }

    /// The first call that closed with each pair of tags.
    pub(super) fn closed(&self) -> &[Closed] {
        self.closed.as_ref().map_or(&[], |ends| &ends.all)
    }

    /// The same, to add to and to take from.
    pub(super) fn closed_mut(&mut self) -> &mut Vec<Closed> {
        &mut self.closed.get_or_insert_default().all
    }

    /// Notes the tag that words followed instead of arguments.
    pub(super) fn bare(&mut self, bare: Bare) {
        self.odd().bare = Some(bare);
    }

    /// Takes that note, if the tag was this one.
    pub(super) fn take_bare(&mut self, tag: &str) -> Option<Bare> {
        self.odd.as_mut()?.bare.take_if(|bare| bare.tag == tag)
    }

    /// Notes the tag of a call that was over as soon as it began.
    pub(super) fn malformed(&mut self, tag: &str) {
        self.odd().malformed = Some(tag.to_owned());
    }

    /// Whether a closing tag of this name belongs to such a call; it does so once.
    pub(super) fn closes_malformed(&mut self, tag: &str) -> bool {
        self.odd.as_mut().is_some_and(|odd| odd.malformed.take_if(|name| alike(name, tag)).is_some())
    }

    /// Notes that a tag in prose was meant to open a call. A few of these say all that there is to say.
    pub(super) fn slip(&mut self, fault: Fault) {
        if self.slips < SLIPS_CAP {
            self.slips += 1;
            self.note(fault);
        }
    }

    /// Counts a marker without a call. False: enough has been said of them.
    pub(super) fn stray(&mut self) -> bool {
        self.strays = self.strays.saturating_add(1);
        self.strays <= STRAYS
    }

    /// Notes a fault.
    pub(super) fn note(&mut self, fault: Fault) {
        self.odd().notes.push(Note::Fault(fault));
    }

    /// Notes a wrapper that words follow instead of a call.
    pub(super) fn words(&mut self, wrapper: &str, at: usize, len: usize) {
        let calls = self.calls;
        self.odd().words = Some((wrapper.to_owned(), Span::new(at, at + len), calls));
    }

    /// The wrapper ends: without a call in it, one was meant.
    pub(super) fn end_words(&mut self) {
        let Some((wrapper, span, calls)) = self.odd.as_mut().and_then(|odd| odd.words.take()) else { return };
        if calls == self.calls {
            let message = format!("`{wrapper}` holds words but no call");
            let fault = Fault::error(FaultKind::StrayText, span, message);
            self.note(fault.hint("write a call into it, or leave it out"));
        }
    }

    /// Notes markup that belongs to no call.
    pub(super) fn mark(&mut self, role: MarkRole, at: usize, len: usize, rule: &'static str) {
        let span = Span::new(at, at + len);
        self.odd().notes.push(Note::Mark(Mark { role, dialect: None, span, sure: Certainty::Certain, rule }));
    }

    /// Notes markup of a call where a call is only mentioned.
    pub(super) fn mention(&mut self, why: &'static str, name: &str, at: usize, len: usize) {
        self.mark(MarkRole::Mention, at, len, why);
        let mention = || Mention { why, name: name.to_owned(), span: Span::new(at, at + len) };
        if self.calls == 0 {
            self.odd().mention.get_or_insert_with(mention);
        }
    }

    /// Notes markup of a dialect that is not listened for.
    pub(super) fn unheard(&mut self, dialect: &'static str, at: usize, len: usize) {
        if self.calls == 0 {
            self.odd().unheard.get_or_insert((dialect, Span::new(at, at + len)));
        }
    }

    /// A thought that never ended.
    pub(super) fn unclosed_thought(&self, thought: Thought, out: &mut dyn Sink) {
        let Some((open, close, start)) = thought.unclosed() else { return };
        let message = format!("`{open}` was opened here and never closed, so all that follows was read as a thought");
        let span = Span::new(start, start + open.len());
        let hint = format!("write `{close}` before calling a tool");
        let fault = Fault::warning(FaultKind::WrongClose, span, message.clone()).hint(hint.clone());
        out.event(Event::Fault(&fault));
        // What was swallowed may have been the rest of a value whose closing tags were taken for its end. Only raw values
        // have such tags.
        let first = self.closed().iter().map(|closed| closed.index).min().unwrap_or(self.calls);
        for index in first..self.calls {
            let fault = Fault::error(FaultKind::WrongClose, span, message.clone()).in_call(index);
            out.event(Event::Fault(&fault.hint(hint.clone())));
        }
    }

    /// A message without calls that holds something like one: perhaps a call was meant.
    pub(super) fn report(&mut self, out: &mut dyn Sink) {
        self.end_words();
        self.tell(out);
        let Some(Odd { mention, unheard, .. }) = self.odd.take().map(|odd| *odd).filter(|_| self.calls == 0) else {
            return;
        };
        if let Some(Mention { why, name, span }) = mention {
            let message = format!("`{name}` stands {why}, where a call is only mentioned; nothing was run");
            let kind = if why == IN_FENCE { FaultKind::FencedCall } else { FaultKind::Mentioned };
            let fault = Fault::warning(kind, span, message);
            let hint = "if a call was meant, write it outside of fences, quotations and thoughts";
            out.event(Event::Fault(&fault.hint(hint)));
        }
        if let Some((dialect, span)) = unheard {
            let message =
                format!("this is markup of the dialect `{dialect}`, which is not listened for; nothing was run");
            let fault = Fault::warning(FaultKind::OtherDialect, span, message);
            out.event(Event::Fault(&fault.hint("write the call in the dialect that was taught")));
        }
    }
}
