//! One call while its JSON is read: what is known of it, and when it can begin.
//!
//! Supported: name, arguments and id in any order. Arguments that come before the name are held until the call's end, at
//! most 1 MiB of them; with the name known before, nothing is held.
//!
//! Unsupported: names and ids longer than 1 KiB, which count as none.
//!
//! Grammar as implemented: the keys of [`key_meaning`].

use crate::event::{Event, EventSink, MarkupRole, MarkupSpan};
use crate::fault::{Fault, FaultKind, Span};
use crate::json::ArgumentScanner;
use crate::json::balance::UNGUARDED;

use super::{ParsedHeader, RegionMarkers, single_quotes};

/// The longest key, name or id, in bytes of its source.
const WORD_CAP: usize = 1024;

/// The most bytes of arguments that wait for a name.
const HELD_CAP: usize = 1 << 20;

/// What a key in a call's object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyMeaning {
    /// The tool's name; `true`: or an object that holds the call.
    Name(bool),
    /// An object that holds the call.
    Inner,
    Arguments,
    Id,
    /// An array of calls.
    Calls,
    /// Says nothing of the call, and is known to.
    Idle,
    Unknown,
}

/// Source text of a value that is kept.
#[derive(Debug, Default)]
pub(super) struct HeldSource {
    source: String,
    /// Offset of its first byte.
    pub(super) start: usize,
    /// It holds arguments.
    long: bool,
    /// There was more than may be kept.
    over: bool,
}

/// A call whose JSON is read.
#[derive(Debug)]
pub(super) struct JsonCallState {
    pub(super) index: u32,
    /// Its arguments have been seen.
    pub(super) arguments: bool,
    /// It is not strict JSON.
    pub(super) relaxed: bool,
    pub(super) name: Option<Box<str>>,
    /// What is needed until it begins.
    early: Option<Box<UnstartedCall>>,
    /// Its arguments, where they came before the name.
    held: Option<Box<HeldSource>>,
    /// The first key that means nothing, and where it stands.
    stray: Option<Box<(String, Span)>>,
}

/// What is needed of a call until it begins.
#[derive(Debug)]
struct UnstartedCall {
    /// Offset of its first byte.
    at: usize,
    /// It is the region's first.
    first: bool,
    /// Offset of the name's first byte.
    name_at: usize,
    id: Option<String>,
    /// Faults that wait for the call to begin.
    faults: Vec<Fault>,
}

/// What a key means.
pub(super) fn key_meaning(key: &str) -> KeyMeaning {
    match key {
        "function" | "tool" => KeyMeaning::Name(true),
        "name" | "tool_name" | "function_name" | "recipient_name" => KeyMeaning::Name(false),
        "function_call" | "tool_call" => KeyMeaning::Inner,
        "arguments" | "parameters" | "args" | "input" | "tool_input" | "params" | "kwargs" => KeyMeaning::Arguments,
        "id" | "tool_call_id" | "call_id" => KeyMeaning::Id,
        "tool_calls" | "calls" | "tool_uses" => KeyMeaning::Calls,
        "type" | "thought" | "thoughts" | "reasoning" | "index" => KeyMeaning::Idle,
        _ => KeyMeaning::Unknown,
    }
}

impl HeldSource {
    /// Begins a word at that offset; a `long` one holds arguments.
    pub(super) fn begin_at(&mut self, start: usize, long: bool) {
        self.source.clear();
        (self.start, self.long, self.over) = (start, long, false);
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &str) {
        let cap = if self.long { HELD_CAP } else { WORD_CAP };
        self.over |= self.source.len() + piece.len() > cap;
        if self.over {
            self.source.clear();
        } else {
            self.source.push_str(piece);
        }
    }

    /// Whether it is a string in single quotes.
    pub(super) fn is_single_quoted(&self) -> bool {
        self.source.starts_with('\'')
    }

    /// What it says: the inside of a string, else the source.
    pub(super) fn decoded_text(&self) -> String {
        if let Ok(text) = serde_json::from_str(&self.source) {
            return text;
        }
        let inside = |quote: char| self.source.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        inside('"').or_else(|| inside('\'')).unwrap_or(&self.source).to_owned()
    }
}

impl JsonCallState {
    pub(super) fn new(index: u32, at: usize, first: bool) -> Self {
        let early = UnstartedCall { at, first, name_at: at, id: None, faults: Vec::new() };
        let early = Some(Box::new(early));
        Self { index, arguments: false, relaxed: false, name: None, early, held: None, stray: None }
    }

    /// A call whose name stands before its JSON.
    pub(super) fn with_header(head: &ParsedHeader<'_>) -> Self {
        let id = head.id.map(str::to_owned);
        let early = UnstartedCall { at: head.at, first: true, name_at: head.name_at, id, faults: Vec::new() };
        let (name, early) = (Some(head.name.into()), Some(Box::new(early)));
        Self { arguments: true, name, early, ..Self::new(head.index, head.at, true) }
    }

    /// Whether its beginning has been told.
    pub(super) fn has_started(&self) -> bool {
        self.early.is_none()
    }

    /// The offset of its first byte, if it is the region's first and has not begun.
    pub(super) fn region_start(&self) -> Option<usize> {
        self.early.as_ref().filter(|early| early.first).map(|early| early.at)
    }

    /// Tells a fault of the call, as soon as the call has begun.
    pub(super) fn queue_fault(&mut self, fault: Fault, out: &mut dyn EventSink) {
        let fault = fault.in_call(self.index);
        match &mut self.early {
            None => out.push_event(Event::Fault(&fault)),
            Some(early) if early.faults.len() < 16 => early.faults.push(fault),
            Some(_) => {}
        }
    }

    /// Takes a key that ended before that offset.
    pub(super) fn record_key(&mut self, key: &HeldSource, end: usize, out: &mut dyn EventSink) {
        self.report_single_quotes(key, out);
        self.relaxed |= key.is_single_quoted();
        let text = key.decoded_text();
        if key_meaning(&text) == KeyMeaning::Unknown && self.stray.is_none() {
            self.stray = Some(Box::new((text, Span::new(key.start, end))));
        }
    }

    /// The string in single quotes of which the call has not told yet.
    pub(super) fn single_quote_span(&self) -> Option<Span> {
        self.early.as_ref()?.faults.iter().find(|fault| fault.kind == FaultKind::SingleQuotes).map(|fault| fault.span)
    }

    /// Tells a string in single quotes, the first one of those that make the call relaxed.
    fn report_single_quotes(&mut self, word: &HeldSource, out: &mut dyn EventSink) {
        if word.is_single_quoted() && !self.relaxed {
            self.queue_fault(single_quotes(Span::new(word.start, word.start + word.source.len())), out);
        }
    }

    /// Takes a value that was kept.
    pub(super) fn record_value(&mut self, key: KeyMeaning, word: &mut HeldSource, out: &mut dyn EventSink) {
        if key != KeyMeaning::Arguments {
            self.report_single_quotes(word, out);
        }
        match key {
            KeyMeaning::Arguments => self.held = Some(Box::new(std::mem::take(word))),
            KeyMeaning::Id => {
                if let Some(early) = self.early.as_mut().filter(|early| early.id.is_none()) {
                    early.id = Some(word.decoded_text()).filter(|id| !id.is_empty());
                }
            }
            _ => self.record_name(word, out),
        }
    }

    fn record_name(&mut self, word: &HeldSource, out: &mut dyn EventSink) {
        self.relaxed |= word.is_single_quoted();
        let name = word.decoded_text();
        match &self.name {
            Some(known) if **known == *name => {}
            Some(known) => {
                let message = format!("the call names two tools, `{known}` and `{name}`");
                let span = Span::new(word.start, word.start + 1);
                self.queue_fault(
                    Fault::error(FaultKind::DoubledArgument, span, message).with_hint("name one tool in each call"),
                    out,
                );
            }
            None if !name.is_empty() => {
                self.name = Some(name.into());
                if let Some(early) = &mut self.early {
                    early.name_at = word.start + 1;
                }
            }
            None => {}
        }
    }

    /// Begins the call.
    pub(super) fn emit_start(&mut self, markers: &RegionMarkers, out: &mut dyn EventSink) {
        let Some(early) = self.early.take() else { return };
        let UnstartedCall { at, first, name_at, id, faults } = *early;
        let name = self.name.as_deref().unwrap_or_default();
        let dialect = Some(markers.dialect);
        if !first {
            let span = Span::new(at, at + 1);
            let (sure, rule) = (markers.sure, "another call in the same JSON");
            out.push_event(Event::Mark(MarkupSpan { role: MarkupRole::Call, dialect, span, sure, rule }));
        }
        out.push_event(Event::CallStart { index: self.index, id: id.as_deref(), name, dialect, at, name_at });
        if name.is_empty() {
            let message = "the call does not say which tool: it has no name";
            let fault = Fault::error(FaultKind::MissingName, Span::new(at, at + 1), message);
            self.queue_fault(fault.with_hint("give the tool's name as `\"name\"`"), out);
        }
        for fault in faults {
            out.push_event(Event::Fault(&fault));
        }
    }

    /// The call's JSON is over, and the call has begun.
    pub(super) fn finish_call(&mut self, out: &mut dyn EventSink) {
        if let Some(held) = self.held.take() {
            self.emit_held_arguments(&held, out);
        }
        if let Some((key, span)) = self.stray.take().filter(|_| !self.arguments).map(|stray| *stray) {
            let message = format!("`{key}` stands beside the tool's name; arguments belong into `\"arguments\"`");
            let hint = "put all arguments into one object under `\"arguments\"`";
            self.queue_fault(Fault::error(FaultKind::StrayText, span, message).with_hint(hint), out);
        }
    }

    /// Emits arguments that had to wait for the name.
    fn emit_held_arguments(&mut self, held: &HeldSource, out: &mut dyn EventSink) {
        if held.over {
            let message = format!("more than {HELD_CAP} bytes of arguments came before the name of their tool");
            let fault = Fault::error(FaultKind::Limit, Span::new(held.start, held.start + 1), message);
            return self.queue_fault(fault.with_hint("give the name first"), out);
        }
        let mut scanner = ArgumentScanner::embedded_in_text(self.index, UNGUARDED);
        if self.relaxed {
            scanner.begin_lenient(held.start, out);
        }
        scanner.read_value((&held.source, held.start), false, out);
        scanner.abandon_value(held.start + held.source.len(), out);
    }
}
