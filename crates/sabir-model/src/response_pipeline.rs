//! What stands between a wire's decoder and the caller's sink.
//!
//! * Usage and faults are held until something that cannot be taken back has been delivered: as long as nothing has,
//!   a failed request may be sent again.
//! * Text is read for calls when tools were offered, in whatever dialect: prompted models write them there, and
//!   native ones leak them there.

use sabir_call::{Event, EventSink, Fault, PromptedSink, Request, ToolChoice, ToolProtocol, Truncation, Usage};

use crate::http::TextParsing;

/// The front of one attempt.
pub(crate) enum ResponsePipeline<'a> {
    /// Events as they are.
    Plain(HoldUntilFirstDelta<'a>),
    /// Text is read for calls.
    Reading(Box<PromptedSink<HoldUntilFirstDelta<'a>>>),
}

/// Holds back what could be taken back, then passes everything on.
pub(crate) struct HoldUntilFirstDelta<'a> {
    out: &'a mut (dyn EventSink + Send),
    open: bool,
    usage: Usage,
    faults: Vec<Fault>,
}

impl<'a> ResponsePipeline<'a> {
    /// The front for a request, before it was rendered for its protocol.
    pub(crate) fn new(request: &Request, reads: TextParsing, out: &'a mut (dyn EventSink + Send)) -> Self {
        let opening = HoldUntilFirstDelta { out, open: false, usage: Usage::default(), faults: Vec::new() };
        let untouched = reads == TextParsing::Nothing && request.protocol == ToolProtocol::Native;
        if untouched || request.tools.is_empty() || request.tool_choice == ToolChoice::None {
            Self::Plain(opening)
        } else {
            Self::Reading(Box::new(PromptedSink::new(request.dialects.all(), &request.tools, opening)))
        }
    }

    /// Ends the answer: a call that is open in the text is cut.
    pub(crate) fn finish(self, why: Truncation) -> HoldUntilFirstDelta<'a> {
        match self {
            Self::Plain(opening) => opening,
            Self::Reading(reading) => reading.finish(why),
        }
    }
}

impl EventSink for ResponsePipeline<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        match self {
            Self::Plain(opening) => opening.push_event(event),
            Self::Reading(reading) => reading.push_event(event),
        }
    }
}

impl HoldUntilFirstDelta<'_> {
    /// Whether anything has been delivered that cannot be taken back.
    pub(crate) fn has_delivered(&self) -> bool {
        self.open
    }

    /// Delivers what is held.
    pub(crate) fn deliver_held(&mut self) {
        self.open = true;
        if self.usage != Usage::default() {
            self.out.push_event(Event::Usage(self.usage));
            self.usage = Usage::default();
        }
        for fault in self.faults.drain(..) {
            self.out.push_event(Event::Fault(&fault));
        }
    }
}

impl EventSink for HoldUntilFirstDelta<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        if !self.open {
            match event {
                Event::Usage(usage) => return self.usage.update(usage),
                Event::Fault(fault) => return self.faults.push(fault.clone()),
                _ => self.deliver_held(),
            }
        }
        self.out.push_event(event);
    }
}
