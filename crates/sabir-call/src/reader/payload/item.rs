//! One call while its JSON is read: what is known of it, and when it can begin.
//!
//! Supported: name, arguments and id in any order. Arguments that come before the name are held until the call's end, at
//! most 1 MiB of them; with the name known before, nothing is held.
//!
//! Unsupported: names and ids longer than 1 KiB, which count as none.
//!
//! Grammar as implemented: the keys of [`meaning`].

use crate::event::{Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::json::ArgumentScanner;
use crate::json::balance::UNGUARDED;

use super::{Head, Markers, single_quotes};

/// The longest key, name or id, in bytes of its source.
const WORD_CAP: usize = 1024;

/// The most bytes of arguments that wait for a name.
const HELD_CAP: usize = 1 << 20;

/// What a key in a call's object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
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
pub(super) struct Word {
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
pub(super) struct Item {
    pub(super) index: u32,
    /// Its arguments have been seen.
    pub(super) arguments: bool,
    /// It is not strict JSON.
    pub(super) relaxed: bool,
    pub(super) name: Option<Box<str>>,
    /// What is needed until it begins.
    early: Option<Box<Early>>,
    /// Its arguments, where they came before the name.
    held: Option<Box<Word>>,
    /// The first key that means nothing, and where it stands.
    stray: Option<Box<(String, Span)>>,
}

/// What is needed of a call until it begins.
#[derive(Debug)]
struct Early {
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
pub(super) fn meaning(key: &str) -> Key {
    match key {
        "function" | "tool" => Key::Name(true),
        "name" | "tool_name" | "function_name" | "recipient_name" => Key::Name(false),
        "function_call" | "tool_call" => Key::Inner,
        "arguments" | "parameters" | "args" | "input" | "tool_input" | "params" | "kwargs" => Key::Arguments,
        "id" | "tool_call_id" | "call_id" => Key::Id,
        "tool_calls" | "calls" | "tool_uses" => Key::Calls,
        "type" | "thought" | "thoughts" | "reasoning" | "index" => Key::Idle,
        _ => Key::Unknown,
    }
}

impl Word {
    /// Begins a word at that offset; a `long` one holds arguments.
    pub(super) fn begin(&mut self, start: usize, long: bool) {
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
    pub(super) fn single(&self) -> bool {
        self.source.starts_with('\'')
    }

    /// What it says: the inside of a string, else the source.
    pub(super) fn text(&self) -> String {
        if let Ok(text) = serde_json::from_str(&self.source) {
            return text;
        }
        let inside = |quote: char| self.source.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        inside('"').or_else(|| inside('\'')).unwrap_or(&self.source).to_owned()
    }
}

impl Item {
    pub(super) fn new(index: u32, at: usize, first: bool) -> Self {
        let early = Early { at, first, name_at: at, id: None, faults: Vec::new() };
        let early = Some(Box::new(early));
        Self { index, arguments: false, relaxed: false, name: None, early, held: None, stray: None }
    }

    /// A call whose name stands before its JSON.
    pub(super) fn headed(head: &Head<'_>) -> Self {
        let id = head.id.map(str::to_owned);
        let early = Early { at: head.at, first: true, name_at: head.name_at, id, faults: Vec::new() };
        let (name, early) = (Some(head.name.into()), Some(Box::new(early)));
        Self { arguments: true, name, early, ..Self::new(head.index, head.at, true) }
    }

    /// Whether its beginning has been told.
    pub(super) fn started(&self) -> bool {
        self.early.is_none()
    }

    /// The offset of its first byte, if it is the region's first and has not begun.
    pub(super) fn first_at(&self) -> Option<usize> {
        self.early.as_ref().filter(|early| early.first).map(|early| early.at)
    }

    /// Tells a fault of the call, as soon as the call has begun.
    pub(super) fn tell(&mut self, fault: Fault, out: &mut dyn Sink) {
        let fault = fault.in_call(self.index);
        match &mut self.early {
            None => out.event(Event::Fault(&fault)),
            Some(early) if early.faults.len() < 16 => early.faults.push(fault),
            Some(_) => {}
        }
    }

    /// Takes a key that ended before that offset.
    pub(super) fn see_key(&mut self, key: &Word, end: usize, out: &mut dyn Sink) {
        self.see_quotes(key, out);
        self.relaxed |= key.single();
        let text = key.text();
        if meaning(&text) == Key::Unknown && self.stray.is_none() {
            self.stray = Some(Box::new((text, Span::new(key.start, end))));
        }
    }

    /// The string in single quotes of which the call has not told yet.
    pub(super) fn slip(&self) -> Option<Span> {
        self.early.as_ref()?.faults.iter().find(|fault| fault.kind == FaultKind::SingleQuotes).map(|fault| fault.span)
    }

    /// Tells a string in single quotes, the first one of those that make the call relaxed.
    fn see_quotes(&mut self, word: &Word, out: &mut dyn Sink) {
        if word.single() && !self.relaxed {
            self.tell(single_quotes(Span::new(word.start, word.start + word.source.len())), out);
        }
    }

    /// Takes a value that was kept.
    pub(super) fn see_word(&mut self, key: Key, word: &mut Word, out: &mut dyn Sink) {
        if key != Key::Arguments {
            self.see_quotes(word, out);
        }
        match key {
            Key::Arguments => self.held = Some(Box::new(std::mem::take(word))),
            Key::Id => {
                if let Some(early) = self.early.as_mut().filter(|early| early.id.is_none()) {
                    early.id = Some(word.text()).filter(|id| !id.is_empty());
                }
            }
            _ => self.see_name(word, out),
        }
    }

    fn see_name(&mut self, word: &Word, out: &mut dyn Sink) {
        self.relaxed |= word.single();
        let name = word.text();
        match &self.name {
            Some(known) if **known == *name => {}
            Some(known) => {
                let message = format!("the call names two tools, `{known}` and `{name}`");
                let span = Span::new(word.start, word.start + 1);
                self.tell(
                    Fault::error(FaultKind::DoubledArgument, span, message).hint("name one tool in each call"),
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
    pub(super) fn start(&mut self, markers: &Markers, out: &mut dyn Sink) {
        let Some(early) = self.early.take() else { return };
        let Early { at, first, name_at, id, faults } = *early;
        let name = self.name.as_deref().unwrap_or_default();
        let dialect = Some(markers.dialect);
        if !first {
            let span = Span::new(at, at + 1);
            let (sure, rule) = (markers.sure, "another call in the same JSON");
            out.event(Event::Mark(Mark { role: MarkRole::Call, dialect, span, sure, rule }));
        }
        out.event(Event::CallStart { index: self.index, id: id.as_deref(), name, dialect, at, name_at });
        if name.is_empty() {
            let message = "the call does not say which tool: it has no name";
            let fault = Fault::error(FaultKind::MissingName, Span::new(at, at + 1), message);
            self.tell(fault.hint("give the tool's name as `\"name\"`"), out);
        }
        for fault in faults {
            out.event(Event::Fault(&fault));
        }
    }

    /// The call's JSON is over, and the call has begun.
    pub(super) fn finish(&mut self, out: &mut dyn Sink) {
        if let Some(held) = self.held.take() {
            self.deliver(&held, out);
        }
        if let Some((key, span)) = self.stray.take().filter(|_| !self.arguments).map(|stray| *stray) {
            let message = format!("`{key}` stands beside the tool's name; arguments belong into `\"arguments\"`");
            let hint = "put all arguments into one object under `\"arguments\"`";
            self.tell(Fault::error(FaultKind::StrayText, span, message).hint(hint), out);
        }
    }

    /// Emits arguments that had to wait for the name.
    fn deliver(&mut self, held: &Word, out: &mut dyn Sink) {
        if held.over {
            let message = format!("more than {HELD_CAP} bytes of arguments came before the name of their tool");
            let fault = Fault::error(FaultKind::Limit, Span::new(held.start, held.start + 1), message);
            return self.tell(fault.hint("give the name first"), out);
        }
        let mut scanner = ArgumentScanner::embedded(self.index, UNGUARDED);
        if self.relaxed {
            scanner.relax(held.start, out);
        }
        scanner.read_value((&held.source, held.start), false, out);
        scanner.abandon(held.start + held.source.len(), out);
    }
}
