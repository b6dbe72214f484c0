//! Builds a response snapshot from events.
//!
//! A draft serves the live preview, the checks and the history. It is built from events alone and
//! never parses text, so building it takes linear time.

use serde::{Deserialize, Serialize};

use crate::event::{ArgumentEncoding, Event, EventSink, MarkupRole, StopReason, Truncation, Usage};
use crate::fault::{Fault, Severity, Span};
use crate::message::OpaqueState;

/// A response as received so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DraftResponse {
    /// The parts, in the order in which they began.
    pub parts: Vec<DraftPart>,
    /// The raw assistant text, where a dialect was read.
    pub source: String,
    /// All faults, in the order in which they were emitted.
    pub faults: Vec<Fault>,
    /// Token counts so far.
    pub usage: Usage,
    /// The provider's reason for stopping, and the reason as the provider wrote it.
    pub stop: Option<(StopReason, String)>,
}

/// One part of a draft.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftPart {
    /// Plain text.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// A call.
    Call(DraftCall),
    /// Provider state; directly after a thought it is that thought's signature.
    Opaque(OpaqueState),
}

/// A call as received so far.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftCall {
    /// The index of the call in the response.
    pub index: u32,
    /// The provider's id.
    pub id: Option<String>,
    /// The tool's name as written.
    pub name: String,
    /// The dialect; `None` for a native call.
    pub dialect: Option<String>,
    /// The arguments so far, in order; an argument given twice occurs twice.
    pub arguments: Vec<DraftArgument>,
    /// The progress of the call.
    pub state: DraftState,
    /// The bytes of the call so far.
    pub span: Span,
    /// The bytes of the tool's name; empty in a native call, whose name is not part of the text.
    pub name_span: Span,
}

/// An argument as received so far.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftArgument {
    /// The name as written.
    pub name: String,
    /// The encoding of `text`.
    pub form: ArgumentEncoding,
    /// The value so far.
    pub text: String,
    /// True while more of the value may arrive.
    pub partial: bool,
    /// The bytes of the value: in the assistant text, or in the argument text of a native call.
    pub span: Span,
}

impl DraftArgument {
    /// Returns true if the value was written on lines of its own: its tags stood on other lines, and
    /// the pair of line feeds next to them is not part of it.
    pub fn is_on_own_lines(&self) -> bool {
        // The span begins after the tag, with the first line feed of the pair.
        self.form == ArgumentEncoding::Raw && self.span.end - self.span.start > self.text.len()
    }
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftState {
    /// More may arrive.
    Open,
    /// Properly closed.
    Closed,
    /// The call ended without being closed.
    Cut(Truncation),
}

impl DraftResponse {
    /// Returns the calls, in the order in which they began.
    pub fn calls(&self) -> impl Iterator<Item = &DraftCall> {
        self.parts.iter().filter_map(|part| match part {
            DraftPart::Call(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the call with that index.
    pub fn call_by_index(&self, index: u32) -> Option<&DraftCall> {
        self.calls().find(|call| call.index == index)
    }

    /// Returns true if any call is still open.
    pub fn has_open_calls(&self) -> bool {
        self.calls().any(|call| call.state == DraftState::Open)
    }

    /// Returns the errors that stop the call with that index.
    pub fn errors_of(&self, index: u32) -> impl Iterator<Item = &Fault> {
        self.faults
            .iter()
            .filter(move |fault| fault.call == Some(index) && fault.severity == Severity::Error)
    }

    /// Returns all text parts, joined.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Removes text parts that hold only white space, which merely separates calls.
    pub fn drop_blank_text(&mut self) {
        self.parts
            .retain(|part| !matches!(part, DraftPart::Text(text) if text.trim().is_empty()));
    }

    /// Returns the call with that index; `None` for an index that was never opened, whose events
    /// are ignored.
    fn call_mut(&mut self, index: u32) -> Option<&mut DraftCall> {
        // From the end, because most events concern the latest call.
        self.parts.iter_mut().rev().find_map(|part| match part {
            DraftPart::Call(call) if call.index == index => Some(call),
            _ => None,
        })
    }

    /// Returns the open argument of a call: always its last, since arguments never overlap.
    fn argument_mut(&mut self, index: u32) -> Option<&mut DraftArgument> {
        self.call_mut(index)?.arguments.last_mut()
    }

    /// Turns all text so far into thoughts.
    fn end_prompted_thought(&mut self) {
        for part in &mut self.parts {
            if let DraftPart::Text(text) = part {
                *part = DraftPart::Thought(std::mem::take(text));
            }
        }
    }

    /// Sets the final state of a call and the end of its span.
    fn close_call(&mut self, index: u32, state: DraftState, at: usize) {
        if let Some(call) = self.call_mut(index) {
            call.state = state;
            call.span = Span::new(call.span.start, at);
        }
    }
}

impl EventSink for DraftResponse {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Source { text, .. } => self.source.push_str(text),
            Event::Text { text } => match self.parts.last_mut() {
                Some(DraftPart::Text(known)) => known.push_str(text),
                _ => self.parts.push(DraftPart::Text(text.to_owned())),
            },
            Event::Thought { text } => match self.parts.last_mut() {
                Some(DraftPart::Thought(known)) => known.push_str(text),
                // A thought after text becomes a new part: providers require the original order.
                _ => self.parts.push(DraftPart::Thought(text.to_owned())),
            },
            Event::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => self.parts.push(DraftPart::Call(DraftCall {
                index,
                id: id.map(str::to_owned),
                name: name.to_owned(),
                dialect: dialect.map(str::to_owned),
                arguments: Vec::new(),
                state: DraftState::Open,
                span: Span::new(at, at),
                name_span: Span::new(
                    name_at,
                    // A native call has no name in the text, so its span stays empty.
                    if dialect.is_some() {
                        name_at + name.len()
                    } else {
                        name_at
                    },
                ),
            })),
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => {
                if let Some(call) = self.call_mut(index) {
                    let name = name.to_owned();
                    let span = Span::new(at, at);
                    call.arguments.push(DraftArgument {
                        name,
                        form,
                        text: String::new(),
                        partial: true,
                        span,
                    });
                }
            }
            Event::ArgDelta { index, text } => {
                if let Some(argument) = self.argument_mut(index) {
                    argument.text.push_str(text);
                }
            }
            Event::ArgEnd { index, lead, at } => {
                if let Some(argument) = self.argument_mut(index) {
                    argument.partial = false;
                    argument.span = Span::new(argument.span.start, at);
                    // Only the end of the value shows that its first line feed is content.
                    argument.text.insert_str(0, lead);
                }
            }
            // Marks explain the reader's decisions and are not part of the response.
            Event::Mark(mark) if mark.role == MarkupRole::PromptedThought => {
                self.end_prompted_thought()
            }
            Event::Mark(_) => {}
            Event::CallEnd { index, at } => self.close_call(index, DraftState::Closed, at),
            Event::CallCut { index, why, at } => self.close_call(index, DraftState::Cut(why), at),
            Event::Fault(fault) => self.faults.push(fault.clone()),
            Event::Usage(usage) => self.usage.update(usage),
            Event::Stop { reason, raw } => self.stop = Some((reason, raw.to_owned())),
            Event::Opaque(opaque) => self.parts.push(DraftPart::Opaque(opaque.clone())),
        }
    }
}
