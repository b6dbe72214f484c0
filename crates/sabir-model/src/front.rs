//! What stands between a wire's decoder and the caller's sink.
//!
//! * Usage and faults are held until something that cannot be taken back has been delivered: as long as nothing has,
//!   a failed request may be sent again.
//! * Text is read for calls when tools were offered, in whatever dialect: prompted models write them there, and
//!   native ones leak them there.

use sabir_call::dialect::Selection;
use sabir_call::{Cut, Event, Fault, Prompted, Protocol, Request, Sink, ToolChoice, Usage};

use crate::http::Reads;

/// The front of one attempt.
pub(crate) enum Front<'a> {
    /// Events as they are.
    Plain(Opening<'a>),
    /// Text is read for calls.
    Reading(Box<Prompted<Opening<'a>>>),
}

/// Holds back what could be taken back, then passes everything on.
pub(crate) struct Opening<'a> {
    out: &'a mut (dyn Sink + Send),
    open: bool,
    usage: Usage,
    faults: Vec<Fault>,
}

impl<'a> Front<'a> {
    /// The front for a request, before it was rendered for its protocol.
    pub(crate) fn new(request: &Request, reads: Reads, out: &'a mut (dyn Sink + Send)) -> Self {
        let opening = Opening { out, open: false, usage: Usage::default(), faults: Vec::new() };
        let untouched = reads == Reads::Nothing && request.protocol == Protocol::Native;
        if untouched || request.tools.is_empty() || request.choice == ToolChoice::None {
            Self::Plain(opening)
        } else {
            Self::Reading(Box::new(Prompted::new(Selection::AUTO, &request.tools, opening)))
        }
    }

    /// Ends the answer: a call that is open in the text is cut.
    pub(crate) fn finish(self, why: Cut) -> Opening<'a> {
        match self {
            Self::Plain(opening) => opening,
            Self::Reading(reading) => reading.finish(why),
        }
    }
}

impl Sink for Front<'_> {
    fn event(&mut self, event: Event<'_>) {
        match self {
            Self::Plain(opening) => opening.event(event),
            Self::Reading(reading) => reading.event(event),
        }
    }
}

impl Opening<'_> {
    /// Whether anything has been delivered that cannot be taken back.
    pub(crate) fn has_delivered(&self) -> bool {
        self.open
    }

    /// Delivers what is held.
    pub(crate) fn release(&mut self) {
        self.open = true;
        if self.usage != Usage::default() {
            self.out.event(Event::Usage(self.usage));
            self.usage = Usage::default();
        }
        for fault in self.faults.drain(..) {
            self.out.event(Event::Fault(&fault));
        }
    }
}

impl Sink for Opening<'_> {
    fn event(&mut self, event: Event<'_>) {
        if !self.open {
            match event {
                Event::Usage(usage) => return self.usage.update(usage),
                Event::Fault(fault) => return self.faults.push(fault.clone()),
                _ => self.release(),
            }
        }
        self.out.event(event);
    }
}
