//! Stores the events of one chunk, so that they outlive the chunk.
//!
//! Events borrow from the chunk and from the reader. A binding first reads a chunk, perhaps without the lock of its interpreter,
//! and converts the events afterwards. The batch keeps all texts in one buffer, which the next chunk reuses: in a stream of small
//! chunks nothing is allocated.

use std::ops::Range;

use sabir_call::{
    ArgumentEncoding, Certainty, Event, EventSink, Fault, MarkupRole, MarkupSpan, OpaqueState,
    Span, StopReason, Truncation, Usage,
};

/// The events of one chunk, in order.
#[derive(Debug, Default)]
pub struct EventBatch {
    text: String,
    records: Vec<EventRecord>,
    keeps_marks: bool,
}

/// An event whose texts are in the buffer of its batch.
#[derive(Debug)]
enum EventRecord {
    Source(Range<usize>),
    Text(Range<usize>),
    Thought(Range<usize>),
    Mark {
        role: MarkupRole,
        dialect: Option<Range<usize>>,
        span: Span,
        sure: Certainty,
        rule: &'static str,
    },
    CallStart {
        index: u32,
        id: Option<Range<usize>>,
        name: Range<usize>,
        dialect: Option<Range<usize>>,
        at: usize,
        name_at: usize,
    },
    ArgStart {
        index: u32,
        name: Range<usize>,
        form: ArgumentEncoding,
        at: usize,
    },
    ArgDelta {
        index: u32,
        text: Range<usize>,
    },
    ArgEnd {
        index: u32,
        lead: Range<usize>,
        at: usize,
    },
    CallEnd {
        index: u32,
        at: usize,
    },
    CallCut {
        index: u32,
        why: Truncation,
        at: usize,
    },
    Fault(Box<Fault>),
    Usage(Usage),
    Stop {
        reason: StopReason,
        raw: Range<usize>,
    },
    Opaque(Box<OpaqueState>),
}

impl EventBatch {
    /// Creates an empty batch. Marks, which explain why markup was recognised, are dropped unless they are wanted.
    pub(crate) fn new(keeps_marks: bool) -> Self {
        Self {
            keeps_marks,
            ..Self::default()
        }
    }

    /// Returns true if marks are kept.
    pub(crate) fn keeps_marks(&self) -> bool {
        self.keeps_marks
    }

    /// Removes all events and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.records.clear();
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Iterates over the events.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.records.iter().map(|record| self.to_event(record))
    }

    /// Returns the events as a JSON array of the objects that `sabir parse --output events` prints.
    pub fn to_json(&self) -> String {
        if self.records.is_empty() {
            return "[]".to_owned();
        }
        let mut json = Vec::with_capacity(self.text.len() + 64 * self.records.len());
        json.push(b'[');
        for event in self.iter() {
            if json.len() > 1 {
                json.push(b',');
            }
            let before = json.len();
            // Writing to memory cannot fail, and an event has only string keys. If it failed, half
            // an object would make the whole array invalid.
            if serde_json::to_writer(&mut json, &event).is_err() {
                json.truncate(before);
                json.extend_from_slice(b"null");
            }
        }
        json.push(b']');
        String::from_utf8(json).unwrap_or_default()
    }

    /// Copies a text into the buffer.
    fn store_text(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    /// Returns a text of the buffer.
    fn stored(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    fn to_event<'a>(&'a self, record: &'a EventRecord) -> Event<'a> {
        match record {
            EventRecord::Source(text) => Event::Source {
                text: self.stored(text),
                is_thought: false,
            },
            EventRecord::Text(text) => Event::Text {
                text: self.stored(text),
            },
            EventRecord::Thought(text) => Event::Thought {
                text: self.stored(text),
            },
            EventRecord::Mark {
                role,
                dialect,
                span,
                sure,
                rule,
            } => Event::Mark(MarkupSpan {
                role: *role,
                dialect: dialect.as_ref().map(|dialect| self.stored(dialect)),
                span: *span,
                sure: *sure,
                rule,
            }),
            EventRecord::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => Event::CallStart {
                index: *index,
                id: id.as_ref().map(|id| self.stored(id)),
                name: self.stored(name),
                dialect: dialect.as_ref().map(|dialect| self.stored(dialect)),
                at: *at,
                name_at: *name_at,
            },
            EventRecord::ArgStart {
                index,
                name,
                form,
                at,
            } => Event::ArgStart {
                index: *index,
                name: self.stored(name),
                form: *form,
                at: *at,
            },
            EventRecord::ArgDelta { index, text } => Event::ArgDelta {
                index: *index,
                text: self.stored(text),
            },
            EventRecord::ArgEnd { index, lead, at } => Event::ArgEnd {
                index: *index,
                lead: self.stored(lead),
                at: *at,
            },
            EventRecord::CallEnd { index, at } => Event::CallEnd {
                index: *index,
                at: *at,
            },
            EventRecord::CallCut { index, why, at } => Event::CallCut {
                index: *index,
                why: *why,
                at: *at,
            },
            EventRecord::Fault(fault) => Event::Fault(fault),
            EventRecord::Usage(usage) => Event::Usage(*usage),
            EventRecord::Stop { reason, raw } => Event::Stop {
                reason: *reason,
                raw: self.stored(raw),
            },
            EventRecord::Opaque(state) => Event::Opaque(state),
        }
    }
}

impl EventSink for EventBatch {
    fn push_event(&mut self, event: Event<'_>) {
        let record = match event {
            Event::Source { text, .. } => EventRecord::Source(self.store_text(text)),
            Event::Text { text } => EventRecord::Text(self.store_text(text)),
            Event::Thought { text } => EventRecord::Thought(self.store_text(text)),
            Event::Mark(_) if !self.keeps_marks => return,
            Event::Mark(mark) => EventRecord::Mark {
                role: mark.role,
                dialect: mark.dialect.map(|dialect| self.store_text(dialect)),
                span: mark.span,
                sure: mark.sure,
                rule: mark.rule,
            },
            Event::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => EventRecord::CallStart {
                index,
                id: id.map(|id| self.store_text(id)),
                name: self.store_text(name),
                dialect: dialect.map(|dialect| self.store_text(dialect)),
                at,
                name_at,
            },
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => EventRecord::ArgStart {
                index,
                name: self.store_text(name),
                form,
                at,
            },
            Event::ArgDelta { index, text } => EventRecord::ArgDelta {
                index,
                text: self.store_text(text),
            },
            Event::ArgEnd { index, lead, at } => EventRecord::ArgEnd {
                index,
                lead: self.store_text(lead),
                at,
            },
            Event::CallEnd { index, at } => EventRecord::CallEnd { index, at },
            Event::CallCut { index, why, at } => EventRecord::CallCut { index, why, at },
            Event::Fault(fault) => EventRecord::Fault(Box::new(fault.clone())),
            Event::Usage(usage) => EventRecord::Usage(usage),
            Event::Stop { reason, raw } => EventRecord::Stop {
                reason,
                raw: self.store_text(raw),
            },
            Event::Opaque(state) => EventRecord::Opaque(Box::new(state.clone())),
        };
        self.records.push(record);
    }
}
