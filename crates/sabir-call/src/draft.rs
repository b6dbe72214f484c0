//! Drafts: the message so far, built from events.
//!
//! A draft is a snapshot for whoever wants one: the live preview, the gates, the history. It is built by feeding it
//! every event; it never looks at text again, so building it is linear.

use serde::{Deserialize, Serialize};

use crate::event::{ArgForm, Event, EventSink, StopReason, Truncation, Usage};
use crate::fault::{Fault, Severity, Span};
use crate::message::OpaqueState;

/// A response as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DraftResponse {
    /// Its parts in the order in which they began.
    pub parts: Vec<DraftPart>,
    /// The raw assistant text, where a dialect was read.
    pub source: String,
    /// All faults, in the order in which they were found.
    pub faults: Vec<Fault>,
    /// Tokens so far.
    pub usage: Usage,
    /// Why the provider says it stopped, with its own word.
    pub stop: Option<(StopReason, String)>,
}

/// One part of a draft.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftPart {
    /// Words.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// A call.
    Call(DraftCall),
    /// Provider state; where it follows a thought it signs that thought.
    Opaque(OpaqueState),
}

/// A call as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftCall {
    /// Its index in the response.
    pub index: u32,
    /// The provider's id.
    pub id: Option<String>,
    /// The tool's name as written.
    pub name: String,
    /// The dialect; `None` for a native call.
    pub dialect: Option<String>,
    /// The arguments so far, in order; a doubled name stands twice.
    pub arguments: Vec<DraftArgument>,
    /// Open, closed or cut.
    pub state: DraftState,
    /// From the first byte to the last one so far.
    pub span: Span,
    /// Where the tool's name stands; empty in a native call, whose name stands outside of the text.
    pub name_span: Span,
}

/// An argument as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftArgument {
    /// The name as written.
    pub name: String,
    /// How `text` is to be read.
    pub form: ArgForm,
    /// The value so far.
    pub text: String,
    /// Whether more may come.
    pub partial: bool,
    /// Where the value stands: in the assistant text, or in the argument text of a native call.
    pub span: Span,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftState {
    /// More may come.
    Open,
    /// Properly closed.
    Closed,
    /// Never to be closed.
    Cut(Truncation),
}

impl DraftResponse {
    /// The calls, in the order in which they began.
    pub fn calls(&self) -> impl Iterator<Item = &DraftCall> {
        self.parts.iter().filter_map(|part| match part {
            DraftPart::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The call of that index.
    pub fn call_by_index(&self, index: u32) -> Option<&DraftCall> {
        self.calls().find(|call| call.index == index)
    }

    /// Whether any call is still open.
    pub fn has_open_calls(&self) -> bool {
        self.calls().any(|call| call.state == DraftState::Open)
    }

    /// The errors that stop the call of that index.
    pub fn errors_of(&self, index: u32) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.call == Some(index) && fault.severity == Severity::Error)
    }

    /// All prose, joined.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Drops text parts of white space alone, which only separate calls.
    pub fn drop_blank_text(&mut self) {
        self.parts.retain(|part| !matches!(part, DraftPart::Text(text) if text.trim().is_empty()));
    }

    fn call_mut(&mut self, index: u32) -> Option<&mut DraftCall> {
        self.parts.iter_mut().rev().find_map(|part| match part {
            DraftPart::Call(call) if call.index == index => Some(call),
            _ => None,
        })
    }

    fn argument_mut(&mut self, index: u32) -> Option<&mut DraftArgument> {
        self.call_mut(index)?.arguments.last_mut()
    }

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
            Event::Source { text } => self.source.push_str(text),
            Event::Text { text } => match self.parts.last_mut() {
                Some(DraftPart::Text(known)) => known.push_str(text),
                _ => self.parts.push(DraftPart::Text(text.to_owned())),
            },
            Event::Thought { text } => match self.parts.last_mut() {
                Some(DraftPart::Thought(known)) => known.push_str(text),
                _ => self.parts.push(DraftPart::Thought(text.to_owned())),
            },
            Event::CallStart { index, id, name, dialect, at, name_at } => self.parts.push(DraftPart::Call(DraftCall {
                index,
                id: id.map(str::to_owned),
                name: name.to_owned(),
                dialect: dialect.map(str::to_owned),
                arguments: Vec::new(),
                state: DraftState::Open,
                span: Span::new(at, at),
                name_span: Span::new(name_at, if dialect.is_some() { name_at + name.len() } else { name_at }),
            })),
            Event::ArgStart { index, name, form, at } => {
                if let Some(call) = self.call_mut(index) {
                    let (name, span) = (name.to_owned(), Span::new(at, at));
                    call.arguments.push(DraftArgument { name, form, text: String::new(), partial: true, span });
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
                    argument.text.insert_str(0, lead);
                }
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
