//! JSON between markers: whole calls, or the arguments behind a name that the reader has read.
//!
//! Supported, in any dialect: one object; objects one after another, between white space, `;` or `,`; an array of objects;
//! a fence around all that. In an object: the name, the arguments and the id under any of their usual keys, in any order;
//! an object under `function`, `tool` or `function_call`, which then holds them; an array under `tool_calls`, `calls` or
//! `tool_uses`, which then holds calls. Single quotes around names and keys: the arguments then go to the gates as they
//! stand. A fence around the arguments goes there too. One closing brace too many right before what closes or separates calls is
//! a warning. Other keys are passed over.
//!
//! Unsupported: arguments beside the name instead of under `arguments` (a fault says so), bare words as keys, comments,
//! and a missing bracket or comma. The call is rejected, and where its brackets end it is over.
//!
//! Grammar as implemented, `ws` between all tokens, `close` the dialect's closing marker (there may be none):
//!
//! ```text
//! calls     = fence? (item ((";" | ",")* item)* | "[" (item ("," item)* ","?)? "]") fence? close
//! arguments = fence? value? fence? close                             value: see `json.rs`
//! item      = "{" (pair ("," pair)* ","?)? "}"
//! pair      = key ":" (name | id | value | item | "[" items "]")
//! ```
//!
//! A marker inside a string is content. Outside of strings no JSON holds a `<`, so that the closing marker, or any other,
//! ends unfinished JSON there: the fault names the bracket that is missing (`payload/end.rs`).

mod end;
mod frames;
mod item;
mod slips;
#[cfg(test)]
mod tests;
mod value;

use crate::event::{Certainty, Cut, Event, Sink};
use crate::fault::Fault;
use crate::json::ArgumentScanner;
use crate::json::balance::{Balance, Guard};

use super::region::{Region, Taken, View};
use end::Marker;
use frames::{Frame, Frames};
use item::{Item, Key, Word, meaning};
use slips::{extra_comma, malformed, nothing, single_quotes, trailing_comma};

/// What a dialect says of the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Markers {
    pub(super) dialect: &'static str,
    /// The closing marker; `""`: the region ends with the JSON.
    pub(super) close: &'static str,
    /// Servers strip that marker, because it ends the message.
    pub(super) stop: bool,
    /// How sure the reader is of the region.
    pub(super) sure: Certainty,
}

/// A call whose name stands before its JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'h> {
    pub(super) index: u32,
    pub(super) id: Option<&'h str>,
    pub(super) name: &'h str,
    /// Offset of the call's first byte.
    pub(super) at: usize,
    /// Offset of the name's first byte.
    pub(super) name_at: usize,
}

/// Reads calls as JSON.
#[derive(Debug)]
pub(super) struct Payload {
    markers: Markers,
    state: State,
    /// The brackets that are open around and in the call.
    frames: Frames,
    /// The JSON stands in a fence that has not been closed.
    fenced: bool,
    /// Index of the next call.
    next: u32,
    edge: Edge,
    item: Option<Item>,
    /// The key or value of which the source is wanted.
    word: Option<Box<Word>>,
    balance: Balance,
    scanner: Option<ArgumentScanner>,
    /// Bytes behind the JSON that have been looked at and not taken.
    seen: usize,
}

/// What is known before and behind a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    None,
    /// Before the first call: the offset of its first byte.
    First(usize),
    /// Behind a call that is whole but for whatever closes it: its index, and where its JSON ended.
    Pending(u32, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the JSON.
    Before,
    /// In the word behind a fence.
    Language,
    /// Where a call may begin, behind so many commas.
    Item(Commas),
    /// Behind a call in an array.
    Next,
    /// After `{`.
    FirstKey,
    /// After `,`.
    NextKey,
    /// In a key.
    Key,
    /// After a key.
    Colon,
    /// After `:`.
    Value(Key),
    /// In a value of which the source is wanted.
    Word(Key),
    /// In a value that is passed over.
    Skip,
    /// After a value.
    Comma,
    /// In the arguments.
    Arguments,
    /// In a call that cannot be read, up to its end.
    Broken,
    /// Behind the JSON.
    After(Tail),
}

/// Commas before a call in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commas {
    None,
    One,
    /// Too many, of which has been told.
    Many,
}

/// What may stand behind the JSON, beside the closing marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Another call.
    Calls,
    /// Nothing.
    Nothing,
    /// Brackets too many, of which a fault has told; or the text ended in the marker.
    Brackets,
}

/// What a state did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    /// Went on to this byte.
    To(usize),
    /// Went as far as this byte and needs more text.
    Wait(usize),
    /// The region ended before this byte.
    Over(usize),
    /// A byte stands here that a marker may begin with.
    Guard(usize),
}

impl Payload {
    /// The JSON holds the calls. `index` is the first one's, `at` the offset of its first byte, the opening marker's.
    pub(super) fn calls(markers: Markers, index: u32, at: usize) -> Self {
        Self {
            markers,
            state: State::Before,
            frames: Frames::default(),
            fenced: false,
            next: index,
            edge: Edge::First(at),
            item: None,
            word: None,
            balance: Balance::value(),
            scanner: None,
            seen: 0,
        }
    }

    /// The JSON holds the arguments of this call, which begins here.
    pub(super) fn arguments(markers: Markers, head: Head<'_>, out: &mut dyn Sink) -> Self {
        let mut payload = Self::calls(markers, head.index, head.at);
        let mut item = Item::headed(&head);
        payload.start(&mut item, out);
        payload.edge = Edge::None;
        payload.item = Some(item);
        payload.scanner = Some(ArgumentScanner::embedded(head.index, payload.guard()));
        payload
    }

    /// What a marker may begin with.
    fn guard(&self) -> Guard {
        [b'<', self.markers.close.as_bytes().first().copied().unwrap_or(b'<')]
    }

    /// Whether the name stands before the JSON.
    fn headed(&self) -> bool {
        self.frames.is_empty() && self.scanner.is_some()
    }

    fn step(&mut self, view: View<'_>, at: usize, pass: bool, out: &mut dyn Sink) -> Go {
        let Some(&byte) = view.text.as_bytes().get(at) else { return Go::Wait(at) };
        match self.state {
            State::Key | State::Word(_) | State::Skip | State::Broken => return self.balanced(view, at, pass, out),
            State::Arguments => return self.read_arguments(view, at, pass, out),
            _ if self.guard().contains(&byte) && !pass => return Go::Guard(at),
            State::Language if byte.is_ascii_alphanumeric() => return Go::To(at + 1),
            State::Language => self.state = State::Before,
            _ if byte.is_ascii_whitespace() => return Go::To(at + 1),
            State::Before => return self.begin(view, at, byte, out),
            State::Item(commas) => return self.item(view, at, (byte, commas), out),
            State::Next => return self.next(view, at, byte, out),
            State::FirstKey | State::NextKey => return self.key(view, at, byte, out),
            State::Colon if byte == b':' => {
                self.state = State::Value(self.word.as_ref().map_or(Key::Unknown, |word| meaning(&word.text())));
                return Go::To(at + 1);
            }
            State::Value(key) => {
                let opened = self.value(view.offset + at, byte, key, out);
                return Go::To(at + usize::from(opened));
            }
            State::Comma if byte == b',' => {
                self.state = State::NextKey;
                return Go::To(at + 1);
            }
            State::Comma if byte == b'}' => return self.end_object(view, at, out),
            State::Colon => self.broken(view.offset + at, "`:` was expected after a key", out),
            State::Comma => self.broken(view.offset + at, "`,` or `}` was expected after a value", out),
            State::After(_) => {}
        }
        Go::To(at)
    }

    /// The first byte that is no white space.
    fn begin(&mut self, view: View<'_>, at: usize, byte: u8, out: &mut dyn Sink) -> Go {
        let rest = view.text.get(at..).unwrap_or_default();
        if rest.starts_with(FENCE) && !self.fenced {
            self.fenced = true;
            self.state = State::Language;
            return Go::To(at + FENCE.len());
        }
        if FENCE.starts_with(rest) && !self.fenced && !view.last {
            return Go::Wait(at);
        }
        if self.headed() {
            self.state = State::Arguments;
            return Go::To(at);
        }
        match byte {
            b'{' => {
                self.state = State::Item(Commas::None);
                Go::To(at)
            }
            b'[' => {
                self.frames.push(Frame::List);
                self.state = State::Item(Commas::None);
                Go::To(at + 1)
            }
            _ => {
                nothing(view.offset + at, out);
                Go::Over(at)
            }
        }
    }

    /// Where a call may begin.
    fn item(&mut self, view: View<'_>, at: usize, (byte, commas): (u8, Commas), out: &mut dyn Sink) -> Go {
        let place = view.offset + at;
        if byte == b']' && self.frames.last() == Some(Frame::List) {
            if commas == Commas::One {
                self.tell_last(trailing_comma(place), out);
            }
            return self.end_list(view, at, out);
        }
        // However many there are, they say nothing, and are told once.
        if byte == b',' && commas != Commas::None {
            if commas == Commas::One {
                self.tell_last(extra_comma(place), out);
            }
            self.state = State::Item(Commas::Many);
            return Go::To(at + 1);
        }
        self.close_pending(None, out);
        let first = match std::mem::replace(&mut self.edge, Edge::None) {
            Edge::First(at) => Some(at),
            Edge::None | Edge::Pending(..) => None,
        };
        let mut item = Item::new(self.next, first.unwrap_or(place), first.is_some());
        self.frames.take_slips().for_each(|slip| item.tell(single_quotes(slip), out));
        self.item = Some(item);
        if byte == b'{' {
            self.frames.push(Frame::Item);
            self.state = State::FirstKey;
            return Go::To(at + 1);
        }
        self.broken(place, "an object with a call was expected", out);
        Go::To(at)
    }

    /// Behind a call in an array.
    fn next(&mut self, view: View<'_>, at: usize, byte: u8, out: &mut dyn Sink) -> Go {
        match byte {
            b']' => self.end_list(view, at, out),
            b',' => {
                self.close_pending(None, out);
                self.state = State::Item(Commas::One);
                Go::To(at + 1)
            }
            _ => {
                if byte == b'}' {
                    match self.extra(view.text.get(at..).unwrap_or_default(), &["]", ","], view.last) {
                        None => return Go::Wait(at),
                        Some(true) => {
                            self.complain(end::extra_bracket(view.offset + at), out);
                            return Go::To(at + 1);
                        }
                        Some(false) => {}
                    }
                }
                self.complain(malformed(view.offset + at, "`,` or `]` was expected after a call"), out);
                if byte == b'{' {
                    self.state = State::Item(Commas::None);
                    return Go::To(at);
                }
                self.close_pending(None, out);
                self.frames.clear();
                self.end_json(view, at, Tail::Brackets, out)
            }
        }
    }

    /// A key, or the end of the object.
    fn key(&mut self, view: View<'_>, at: usize, byte: u8, out: &mut dyn Sink) -> Go {
        let place = view.offset + at;
        match byte {
            b'"' | b'\'' => {
                self.word.get_or_insert_default().begin(place, false);
                self.balance = Balance::value();
                self.state = State::Key;
            }
            b'}' => {
                if self.state == State::NextKey {
                    match &mut self.item {
                        Some(item) => item.tell(trailing_comma(place), out),
                        None => self.tell_last(trailing_comma(place), out),
                    }
                }
                return self.end_object(view, at, out);
            }
            _ => self.broken(place, "a key in double quotes was expected", out),
        }
        Go::To(at)
    }

    /// A closing brace.
    fn end_object(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Go {
        if self.frames.pop() == Some(Frame::Inner) {
            self.state = State::Comma;
            return Go::To(at + 1);
        }
        self.finish(view.offset + at + 1, out);
        self.end_item(view, at + 1, out)
    }

    /// A closing bracket of an array of calls.
    fn end_list(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Go {
        self.frames.pop();
        if self.frames.is_empty() {
            return self.end_json(view, at + 1, Tail::Nothing, out);
        }
        self.state = State::Comma;
        Go::To(at + 1)
    }

    /// Behind an object that stands for itself.
    fn end_item(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Go {
        if self.frames.is_empty() {
            return self.end_json(view, at, Tail::Calls, out);
        }
        self.state = State::Next;
        Go::To(at)
    }

    /// The call cannot be read: passes over it, up to where its brackets end.
    fn broken(&mut self, place: usize, message: &str, out: &mut dyn Sink) {
        let fault = malformed(place, message);
        match &mut self.item {
            Some(item) => item.tell(fault, out),
            None => self.complain(fault, out),
        }
        let inner = self.frames.outward().take_while(|frame| *frame == Frame::Inner).count();
        let object = matches!(self.frames.outward().nth(inner), Some(Frame::Item | Frame::Wrapper));
        let depth = u32::try_from(inner + usize::from(object)).unwrap_or(u32::MAX);
        self.balance = Balance::inside(depth, true);
        self.state = State::Broken;
    }

    /// Begins the call.
    fn start(&mut self, item: &mut Item, out: &mut dyn Sink) {
        if !item.started() {
            item.start(&self.markers, out);
            self.next = item.index.saturating_add(1);
        }
    }

    /// The call's JSON ended before that offset. What closes it is still to come.
    fn finish(&mut self, end: usize, out: &mut dyn Sink) {
        let Some(mut item) = self.item.take() else { return };
        self.start(&mut item, out);
        item.finish(out);
        self.edge = Edge::Pending(item.index, end);
    }

    /// Tells a fault behind the last call that began, which is its own as far as anything is.
    fn tell_last(&self, fault: Fault, out: &mut dyn Sink) {
        out.event(Event::Fault(&match self.next.checked_sub(1) {
            Some(index) => fault.in_call(index),
            None => fault,
        }));
    }

    /// Tells a fault of the call that waits for its end, or of none.
    fn complain(&self, fault: Fault, out: &mut dyn Sink) {
        out.event(Event::Fault(&match self.edge {
            Edge::Pending(index, _) => fault.in_call(index),
            Edge::None | Edge::First(_) => fault,
        }));
    }
}

impl Region for Payload {
    fn read(&mut self, view: View<'_>, out: &mut dyn Sink) -> Taken {
        let (mut at, mut pass) = (0, None);
        loop {
            let go = match self.state {
                State::After(tail) => self.after(view, at, tail, out),
                _ => match self.step(view, at, pass == Some(at), out) {
                    Go::Guard(to) => match self.marker(view.text.get(to..).unwrap_or_default(), view.last) {
                        Marker::No => {
                            pass = Some(to);
                            Go::To(to)
                        }
                        Marker::Wait => Go::Wait(to),
                        Marker::Close => self.unfinished(view, to, self.markers.close.len(), out),
                        Marker::Other => self.unfinished(view, to, 0, out),
                    },
                    go => go,
                },
            };
            match go {
                Go::To(to) | Go::Guard(to) => at = to,
                Go::Wait(to) => return Taken::More(to),
                Go::Over(to) => return Taken::Over(to),
            }
        }
    }

    #[inline]
    fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        match &mut self.scanner {
            Some(scanner) => scanner.take(chunk, out),
            None => false,
        }
    }

    fn cut(&mut self, why: Cut, at: usize, out: &mut dyn Sink) {
        self.cut_short(why, at, out);
    }

    fn next_index(&self) -> u32 {
        self.next
    }
}

/// A fence of Markdown.
const FENCE: &str = "```";
