//! Tracks one call while its JSON is read, and decides when the call can begin.
//!
//! Supported: name, arguments and id in any order. Arguments before the name are held until the
//! call's end, up to 1 MiB; if the name comes first, nothing is held.
//!
//! Unsupported: names and ids longer than 1 KiB; they are ignored.
//!
//! Grammar as implemented: the keys of [`key_meaning`].

use crate::event::{Event, EventSink, MarkupRole, MarkupSpan};
use crate::fault::{Fault, FaultKind, Span};
use crate::json::ArgumentScanner;
use crate::json::balance::UNGUARDED;

use super::{ParsedHeader, RegionMarkers, single_quotes};

/// The maximum source length of a key, name or id, in bytes.
const WORD_CAP: usize = 1024;

/// The maximum length of arguments that wait for a name, in bytes.
const HELD_CAP: usize = 1 << 20;

/// The meaning of a key in a call's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyMeaning {
    /// The tool's name; with `true`, the value may instead be an object that contains the call.
    Name(bool),
    /// An object that contains the call.
    Inner,
    Arguments,
    Id,
    /// An array of calls.
    Calls,
    /// Known to be irrelevant to the call.
    Ignored,
    Unknown,
}

/// The source text of a value.
#[derive(Debug, Default)]
pub(super) struct HeldSource {
    source: String,
    /// The offset of its first byte.
    pub(super) start: usize,
    /// True if it contains arguments, which have a higher limit.
    long: bool,
    /// True if the source exceeded its limit and was dropped.
    over: bool,
}

/// A call whose JSON is being read.
#[derive(Debug)]
pub(super) struct JsonCallState {
    pub(super) index: u32,
    /// True once its arguments have been found.
    pub(super) arguments: bool,
    /// True if it is not strict JSON.
    pub(super) relaxed: bool,
    pub(super) name: Option<Box<str>>,
    /// The data for the call's start, until the start is emitted.
    early: Option<Box<UnstartedCall>>,
    /// The arguments, if they came before the name.
    held: Option<Box<HeldSource>>,
    /// The first unknown key and its position.
    stray: Option<Box<(String, Span)>>,
}

/// The data for the start of a call.
#[derive(Debug)]
struct UnstartedCall {
    /// The offset of the call's first byte.
    at: usize,
    /// True for the region's first call.
    first: bool,
    /// The offset of the name's first byte.
    name_at: usize,
    id: Option<String>,
    /// Faults that must follow the start of the call.
    faults: Vec<Fault>,
}

/// Returns the meaning of a key. Models mix the key names of all dialects, so all are known
/// everywhere.
pub(super) fn key_meaning(key: &str) -> KeyMeaning {
    match key {
        "function" | "tool" => KeyMeaning::Name(true),
        "name" | "tool_name" | "function_name" | "recipient_name" => KeyMeaning::Name(false),
        "function_call" | "tool_call" => KeyMeaning::Inner,
        "arguments" | "parameters" | "args" | "input" | "tool_input" | "params" | "kwargs" => {
            KeyMeaning::Arguments
        }
        "id" | "tool_call_id" | "call_id" => KeyMeaning::Id,
        "tool_calls" | "calls" | "tool_uses" => KeyMeaning::Calls,
        "type" | "thought" | "thoughts" | "reasoning" | "index" => KeyMeaning::Ignored,
        _ => KeyMeaning::Unknown,
    }
}

impl HeldSource {
    /// Begins a value at that offset; a `long` one contains arguments.
    pub(super) fn begin_at(&mut self, start: usize, long: bool) {
        self.source.clear();
        self.start = start;
        self.long = long;
        self.over = false;
    }

    /// Appends the next piece.
    pub(super) fn push(&mut self, piece: &str) {
        let cap = if self.long { HELD_CAP } else { WORD_CAP };
        self.over |= self.source.len() + piece.len() > cap;
        if self.over {
            self.source.clear();
        } else {
            self.source.push_str(piece);
        }
    }

    /// Returns true for a string in single quotes.
    pub(super) fn is_single_quoted(&self) -> bool {
        self.source.starts_with('\'')
    }

    /// Returns the content of a string, or the source of anything else.
    pub(super) fn decoded_text(&self) -> String {
        if let Ok(text) = serde_json::from_str(&self.source) {
            return text;
        }
        let inside = |quote: char| {
            self.source
                .strip_prefix(quote)
                .and_then(|rest| rest.strip_suffix(quote))
        };
        inside('"')
            .or_else(|| inside('\''))
            .unwrap_or(&self.source)
            .to_owned()
    }
}

impl JsonCallState {
    pub(super) fn new(index: u32, at: usize, first: bool) -> Self {
        let early = UnstartedCall {
            at,
            first,
            name_at: at,
            id: None,
            faults: Vec::new(),
        };
        let early = Some(Box::new(early));
        Self {
            index,
            arguments: false,
            relaxed: false,
            name: None,
            early,
            held: None,
            stray: None,
        }
    }

    /// Creates a call whose name precedes its JSON.
    pub(super) fn with_header(head: &ParsedHeader<'_>) -> Self {
        let id = head.id.map(str::to_owned);
        let early = UnstartedCall {
            at: head.at,
            first: true,
            name_at: head.name_at,
            id,
            faults: Vec::new(),
        };
        Self {
            arguments: true,
            name: Some(head.name.into()),
            early: Some(Box::new(early)),
            ..Self::new(head.index, head.at, true)
        }
    }

    /// Returns true if the call's start was emitted.
    pub(super) fn has_started(&self) -> bool {
        self.early.is_none()
    }

    /// Returns the offset of the call's first byte if it is the region's first call and has not
    /// begun.
    pub(super) fn region_start(&self) -> Option<usize> {
        self.early
            .as_ref()
            .filter(|early| early.first)
            .map(|early| early.at)
    }

    /// Emits a fault of the call, after the call's start.
    pub(super) fn queue_fault(&mut self, fault: Fault, out: &mut dyn EventSink) {
        let fault = fault.in_call(self.index);
        match &mut self.early {
            None => out.push_event(Event::Fault(&fault)),
            // More than 16 faults before a call's start come only from hostile text.
            Some(early) if early.faults.len() < 16 => early.faults.push(fault),
            Some(_) => {}
        }
    }

    /// Processes a key that ended before that offset.
    pub(super) fn record_key(&mut self, key: &HeldSource, end: usize, out: &mut dyn EventSink) {
        self.report_single_quotes(key, out);
        self.relaxed |= key.is_single_quoted();
        let text = key.decoded_text();
        if key_meaning(&text) == KeyMeaning::Unknown && self.stray.is_none() {
            self.stray = Some(Box::new((text, Span::new(key.start, end))));
        }
    }

    /// Processes a key that is the tool's name.
    pub(super) fn record_name_key(&mut self, key: &HeldSource, out: &mut dyn EventSink) {
        self.report_single_quotes(key, out);
        self.record_name(key, out);
    }

    /// Returns the position of a string in single quotes that was not reported yet.
    pub(super) fn single_quote_span(&self) -> Option<Span> {
        self.early
            .as_ref()?
            .faults
            .iter()
            .find(|fault| fault.kind == FaultKind::SingleQuotes)
            .map(|fault| fault.span)
    }

    /// Reports the first string in single quotes among those that make the call lenient.
    fn report_single_quotes(&mut self, word: &HeldSource, out: &mut dyn EventSink) {
        if word.is_single_quoted() && !self.relaxed {
            self.queue_fault(
                single_quotes(Span::new(word.start, word.start + word.source.len())),
                out,
            );
        }
    }

    /// Processes a value whose source was recorded.
    pub(super) fn record_value(
        &mut self,
        key: KeyMeaning,
        word: &mut HeldSource,
        out: &mut dyn EventSink,
    ) {
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
            // The same name under two keys is harmless.
            Some(known) if **known == *name => {}
            Some(known) => {
                let message = format!("the call names two tools, `{known}` and `{name}`");
                let span = Span::new(word.start, word.start + 1);
                self.queue_fault(
                    Fault::error(FaultKind::DoubledArgument, span, message)
                        .with_hint("name one tool in each call"),
                    out,
                );
            }
            None if !name.is_empty() => {
                self.name = Some(name.into());
                if let Some(early) = &mut self.early {
                    // The name begins after its opening quote.
                    early.name_at = word.start + 1;
                }
            }
            None => {}
        }
    }

    /// Emits the start of the call, and the faults that waited for it.
    pub(super) fn emit_start(&mut self, markers: &RegionMarkers, out: &mut dyn EventSink) {
        let Some(early) = self.early.take() else {
            return;
        };
        let UnstartedCall {
            at,
            first,
            name_at,
            id,
            faults,
        } = *early;
        // A call without a name is emitted too, so that the fault below has a call to stop.
        let name = self.name.as_deref().unwrap_or_default();
        let dialect = Some(markers.dialect);
        if !first {
            let span = Span::new(at, at + 1);
            let sure = markers.sure;
            let rule = "another call in the same JSON";
            out.push_event(Event::Mark(MarkupSpan {
                role: MarkupRole::Call,
                dialect,
                span,
                sure,
                rule,
            }));
        }
        out.push_event(Event::CallStart {
            index: self.index,
            id: id.as_deref(),
            name,
            dialect,
            at,
            name_at,
        });
        if name.is_empty() {
            let message = "the call does not say which tool: it has no name";
            let fault = Fault::error(FaultKind::MissingName, Span::new(at, at + 1), message);
            self.queue_fault(fault.with_hint("give the tool's name as `\"name\"`"), out);
        }
        for fault in faults {
            out.push_event(Event::Fault(&fault));
        }
    }

    /// Emits what remains after the call's JSON has ended.
    pub(super) fn finish_call(&mut self, out: &mut dyn EventSink) {
        if let Some(held) = self.held.take() {
            self.emit_held_arguments(&held, out);
        }
        // An unknown key matters only without arguments: then it was probably one itself.
        if let Some((key, span)) = self
            .stray
            .take()
            .filter(|_| !self.arguments)
            .map(|stray| *stray)
        {
            let message =
                format!("`{key}` is beside the tool's name; arguments belong in `\"arguments\"`");
            let hint = "put all arguments into one object under `\"arguments\"`";
            self.queue_fault(
                Fault::error(FaultKind::StrayText, span, message).with_hint(hint),
                out,
            );
        }
    }

    /// Emits arguments that waited for the name.
    fn emit_held_arguments(&mut self, held: &HeldSource, out: &mut dyn EventSink) {
        if held.over {
            let message = format!(
                "more than {HELD_CAP} bytes of arguments came before the name of their tool"
            );
            let fault = Fault::error(
                FaultKind::Limit,
                Span::new(held.start, held.start + 1),
                message,
            );
            return self.queue_fault(fault.with_hint("give the name first"), out);
        }
        let mut scanner = ArgumentScanner::embedded_in_text(self.index, UNGUARDED);
        if self.relaxed {
            scanner.begin_lenient(held.start, out);
        }
        scanner.read_value(&held.source, held.start, false, out);
        // Closes an argument that the held text left open.
        scanner.abandon_value(held.start + held.source.len(), out);
    }
}
