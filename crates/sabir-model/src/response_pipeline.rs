//! Processes the events between a wire's decoder and the caller's sink.
//!
//! * Usage and faults are held back until an event is delivered that cannot be taken back. Until
//!   then a failed request can be sent again without a trace.
//! * If tools were offered, text is parsed for calls in all dialects: prompted models write calls
//!   there, and native ones leak them.

use sabir_call::{
    Event, EventSink, Fault, PromptedSink, Request, TextRecovery, ToolChoice, ToolProtocol,
    ToolSet, Truncation, Usage,
};

use crate::http::TextParsing;
use crate::reader_cache::{ReaderCache, compile_reader};

/// The event pipeline of one attempt.
pub(crate) enum ResponsePipeline<'a> {
    /// Passes events on unchanged.
    Plain(HoldUntilFirstDelta<'a>),
    /// Parses text for calls.
    Reading(Box<PromptedSink<HoldUntilFirstDelta<'a>>>),
}

/// A sink that holds back usage and faults until the first other event, and then passes everything
/// on.
pub(crate) struct HoldUntilFirstDelta<'a> {
    /// The caller's sink.
    out: &'a mut (dyn EventSink + Send),
    /// True once an event was delivered; from then on nothing is held back.
    open: bool,
    /// The merged usage that is held back.
    usage: Usage,
    /// The faults that are held.
    faults: Vec<Fault>,
}

/// The settings of a model that decide how the beginning and the end of its answers are read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerBoundaries<'p> {
    /// The end of the prompt that the answer continues.
    pub(crate) prefill: &'p str,
    /// True if a last call without its closing markup is accepted.
    pub(crate) closes_last_call: bool,
}

impl<'a> ResponsePipeline<'a> {
    /// Makes the pipeline for a request, which must not be rendered for its protocol yet. `readers` has the reader of the last
    /// request of the same task.
    pub(crate) fn new(
        request: &Request,
        reads: TextParsing,
        readers: Option<&ReaderCache>,
        ends: AnswerBoundaries<'_>,
        out: &'a mut (dyn EventSink + Send),
    ) -> Self {
        let opening = HoldUntilFirstDelta {
            out,
            open: false,
            usage: Usage::default(),
            faults: Vec::new(),
        };
        let ignores_text = reads == TextParsing::Nothing || request.recovery == TextRecovery::Off;
        let untouched = ignores_text && request.protocol == ToolProtocol::Native;
        // Where no tool is offered, call markup in a text can only be a mention.
        let has_calls =
            !untouched && !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
        let prefill = ends.prefill;
        if !has_calls && prefill.is_empty() {
            Self::Plain(opening)
        } else {
            let reader = match readers {
                Some(readers) if has_calls && prefill.is_empty() => readers.reader_for(request),
                // Without tools only thoughts are read.
                _ if !has_calls => compile_reader(request, &ToolSet::default(), prefill),
                _ => compile_reader(request, &request.tools, prefill),
            };
            let reader = reader.with_missing_last_close(ends.closes_last_call);
            Self::Reading(Box::new(PromptedSink::with_reader(reader, opening)))
        }
    }

    /// Ends the response. A call that is still open in the text is cut.
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
    /// Returns true if an event was delivered, so that the request must not be sent again.
    pub(crate) fn has_delivered(&self) -> bool {
        self.open
    }

    /// Delivers the held usage and faults.
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
                // The held events come first, in front of the event that opens the way.
                _ => self.deliver_held(),
            }
        }
        self.out.push_event(event);
    }
}
