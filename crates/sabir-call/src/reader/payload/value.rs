//! The values of a call's object: what belongs to the call, and what is passed over.
//!
//! Supported: arguments that stream because the name is known, arguments that wait for it, an object or an array that
//! holds calls itself.
//!
//! Unsupported: calls more than sixteen brackets deep; they are passed over.
//!
//! Grammar as implemented: see `payload.rs`.

use crate::event::Sink;
use crate::fault::{Fault, FaultKind, Span};
use crate::json::balance::{Balance, Stop};
use crate::json::{ArgumentScanner, Read};
use crate::reader::region::View;

use super::item::{Item, Key};
use super::{Commas, Edge, Frame, Go, Payload, State, Tail, single_quotes};

/// Brackets that calls may be wrapped in.
const DEPTH: usize = 16;

impl Payload {
    /// The first byte of a value. True: it was a bracket that opens what holds calls or what belongs to one.
    pub(super) fn value(&mut self, place: usize, byte: u8, key: Key, out: &mut dyn Sink) -> bool {
        self.balance = Balance::value();
        let roomy = self.frames.len() < DEPTH;
        let quoted = matches!(byte, b'"' | b'\'');
        self.state = match key {
            Key::Name(true) | Key::Inner if byte == b'{' && roomy && self.item.is_some() => {
                self.frames.push(Frame::Inner);
                self.state = State::FirstKey;
                return true;
            }
            Key::Calls if byte == b'[' && roomy && self.wrap() => {
                self.frames.push(Frame::List);
                self.state = State::Item(Commas::None);
                return true;
            }
            Key::Name(_) if quoted => self.begin_word(place, key, false),
            Key::Id if byte != b'n' => self.begin_word(place, key, false),
            Key::Arguments => self.begin_arguments(place, out),
            _ => State::Skip,
        };
        false
    }

    fn begin_word(&mut self, place: usize, key: Key, long: bool) -> State {
        self.word.get_or_insert_default().begin(place, long);
        State::Word(key)
    }

    /// Takes the object for a wrapper around calls, unless it has begun to be a call.
    fn wrap(&mut self) -> bool {
        if self.frames.last() != Some(Frame::Item) || self.item.as_ref().is_none_or(|item| item.arguments) {
            return self.frames.last() == Some(Frame::Wrapper);
        }
        let item = self.item.take();
        self.frames.pop();
        self.frames.wrap(item.as_ref().and_then(Item::slip));
        self.edge = item.and_then(|item| item.first_at()).map_or(Edge::None, Edge::First);
        true
    }

    /// The arguments: streamed where the name is known, else held until it is.
    fn begin_arguments(&mut self, place: usize, out: &mut dyn Sink) -> State {
        let Some(mut item) = self.item.take() else { return State::Skip };
        let state = if std::mem::replace(&mut item.arguments, true) {
            let message = "the arguments of the call are given twice";
            let fault = Fault::error(FaultKind::DoubledArgument, Span::new(place, place + 1), message);
            item.tell(fault.hint("give them once"), out);
            State::Skip
        } else if item.name.is_none() {
            self.begin_word(place, Key::Arguments, true)
        } else {
            self.start(&mut item, out);
            self.word = None;
            let mut scanner = ArgumentScanner::embedded(item.index, self.guard());
            if item.relaxed {
                scanner.relax(place, out);
            }
            self.scanner = Some(scanner);
            State::Arguments
        };
        self.item = Some(item);
        state
    }

    /// Text that brackets and strings alone lead through.
    pub(super) fn balanced(&mut self, view: View<'_>, at: usize, pass: bool, out: &mut dyn Sink) -> Go {
        let stop = self.balance.scan(view.text.as_bytes(), at, self.guard(), pass);
        let to = match stop {
            Stop::End(to) | Stop::Guard(to) => to,
            Stop::More => view.text.len(),
        };
        if let State::Key | State::Word(_) = self.state
            && let Some(word) = &mut self.word
        {
            word.push(view.text.get(at..to).unwrap_or_default());
        }
        match (stop, self.state) {
            (Stop::Guard(_), _) => return Go::Guard(to),
            (Stop::More, _) => return Go::Wait(to),
            (_, State::Broken) => {
                while let Some(Frame::Item | Frame::Inner | Frame::Wrapper) = self.frames.last() {
                    self.frames.pop();
                }
                self.finish(view.offset + to, out);
                return self.end_item(view, to, out);
            }
            (_, State::Key) => {
                let end = view.offset + to;
                match (&mut self.item, &self.word) {
                    (Some(item), Some(word)) => item.see_key(word, end, out),
                    (None, Some(word)) if word.single() => {
                        self.tell_last(single_quotes(Span::new(word.start, end)), out);
                    }
                    _ => {}
                }
                self.state = State::Colon;
            }
            (_, State::Word(key)) => {
                if let (Some(item), Some(word)) = (&mut self.item, &mut self.word) {
                    item.see_word(key, word, out);
                }
                self.state = State::Comma;
            }
            _ => self.state = State::Comma,
        }
        Go::To(to)
    }

    pub(super) fn read_arguments(&mut self, view: View<'_>, at: usize, pass: bool, out: &mut dyn Sink) -> Go {
        let Some(scanner) = &mut self.scanner else { return Go::Over(at) };
        let text = view.text.get(at..).unwrap_or_default();
        match scanner.read_value((text, view.offset + at), pass, out) {
            Read::More => Go::Wait(view.text.len()),
            Read::Guard(to) => Go::Guard(at + to),
            Read::Ended(to) => {
                let headed = self.headed();
                self.scanner = None;
                if !headed {
                    self.state = State::Comma;
                    return Go::To(at + to);
                }
                self.finish(view.offset + at + to, out);
                self.end_json(view, at + to, Tail::Nothing, out)
            }
        }
    }
}
