//! What stands between a wire's decoder and the caller's sink.
//!
//! * Usage and faults are held until something that cannot be taken back has been delivered: as long as nothing has,
//!   a failed request may be sent again.
//! * Text is read for calls when tools were offered, in whatever dialect: prompted models write them there, and
//!   native ones leak them there.
//! * The same call written as text *and* natively (mistral.rs did so) must not run twice: the later one gets a fault.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

use sabir_call::dialect::Selection;
use sabir_call::{Cut, Event, Fault, FaultKind, Prompted, Request, Sink, Span, ToolChoice, Usage};

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
    twins: Twins,
}

impl<'a> Front<'a> {
    /// The front for a request, before it was rendered for its protocol.
    pub(crate) fn new(request: &Request, out: &'a mut (dyn Sink + Send)) -> Self {
        let opening =
            Opening { out, open: false, usage: Usage::default(), faults: Vec::new(), twins: Twins::default() };
        if request.tools.is_empty() || request.choice == ToolChoice::None {
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
        if let Some(index) = self.twins.see(event) {
            let message = "the same call came twice, as text and natively; it runs once";
            let fault = Fault::error(FaultKind::Provider, Span::default(), message).in_call(index);
            self.out.event(Event::Fault(&fault));
        }
        self.out.event(event);
    }
}

/// Recognises a call that ended before in the other spelling, by a hash of its name and arguments.
#[derive(Debug, Default)]
struct Twins {
    /// Index, whether it is native, and the hash so far of every open call.
    open: Vec<(u32, bool, DefaultHasher)>,
    ended: HashSet<(bool, u64)>,
}

impl Twins {
    /// Takes an event; returns the call that is about to end as a twin.
    fn see(&mut self, event: Event<'_>) -> Option<u32> {
        match event {
            Event::CallStart { index, name, dialect, .. } => {
                let mut hash = DefaultHasher::new();
                hash.write(name.as_bytes());
                self.open.push((index, dialect.is_none(), hash));
            }
            Event::ArgStart { index, name, .. } => {
                self.write(index, b"\0");
                self.write(index, name.as_bytes());
                self.write(index, b"\0");
            }
            Event::ArgDelta { index, text } => self.write(index, text.as_bytes()),
            Event::CallCut { index, .. } => self.open.retain(|(known, ..)| *known != index),
            Event::CallEnd { index, .. } => {
                let position = self.open.iter().position(|(known, ..)| *known == index)?;
                let (_, native, hash) = self.open.swap_remove(position);
                let hash = hash.finish();
                if self.ended.contains(&(!native, hash)) {
                    return Some(index);
                }
                self.ended.insert((native, hash));
            }
            _ => {}
        }
        None
    }

    fn write(&mut self, index: u32, bytes: &[u8]) {
        if let Some((_, _, hash)) = self.open.iter_mut().find(|(known, ..)| *known == index) {
            hash.write(bytes);
        }
    }
}
