//! Inside a call: its arguments.

use crate::event::Sink;
use crate::fault::{Fault, FaultKind, Span};

use super::literal::{Reached, Scope};
use super::word::in_name;
use super::{Python, State, rest};
use crate::reader::region::{Next, View};

impl Python {
    /// Between names and values.
    pub(super) fn inside(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let text = rest(view, at);
        let byte = text.as_bytes().first().copied().unwrap_or_default();
        let close = if self.call.spread { b'}' } else { b')' };
        let next = match (self.state, byte) {
            (State::Argument | State::Comma, b')') if !self.call.spread => {
                self.call.end = view.offset + at + 1;
                State::Closed
            }
            (State::Key | State::Comma, b'}') if self.call.spread => {
                self.call.spread = false;
                State::Comma
            }
            (State::Comma, b',') if self.call.spread => State::Key,
            (State::Comma, b',') => State::Argument,
            (State::Argument, b'*') => {
                if text.len() == 1 {
                    return Next::Wait(at);
                }
                if !text.starts_with("**") {
                    return self.positional(view, at, 1, out);
                }
                self.state = State::Spread;
                return Next::To(at + 2);
            }
            (State::Argument, _) if in_name(byte) => {
                self.word.clear();
                self.state = State::ArgumentName;
                return Next::To(at);
            }
            (State::Argument, _) => {
                let len = text.chars().next().map_or(0, char::len_utf8);
                return self.positional(view, at, len, out);
            }
            (State::Equals, b'=') | (State::Colon, b':') => return self.begin_value(view, at, out),
            (State::Spread, b'{') => {
                self.call.spread = true;
                State::Key
            }
            (State::Key, _) => {
                self.literal.begin_name();
                self.state = State::KeyText;
                return Next::To(at);
            }
            (State::Equals, _) => {
                let end = self.call.end;
                let span = Span::new(end.saturating_sub(self.word.len()), end);
                return self.unnamed(span, view, at, out);
            }
            (State::Colon, _) => return self.wrong(view, at, "`:` was expected behind the name", out),
            (State::Spread, _) => return self.wrong(view, at, "`{` was expected behind `**`", out),
            _ => {
                let expected = format!("`,` or `{}` was expected behind the value", char::from(close));
                return self.wrong(view, at, &expected, out);
            }
        };
        self.state = next;
        Next::To(at + 1)
    }

    /// The name of an argument is known, and its value begins behind that byte.
    fn begin_value(&mut self, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let span = Span::new(view.offset + at, view.offset + at + 1);
        let name = if self.state == State::Colon { self.literal.name() } else { self.word.as_str() };
        if !self.call.given.add(name, self.call.index, span, out) {
            return self.give_up(view.offset, at, out);
        }
        self.word.free();
        self.literal.begin_value();
        self.state = State::Value;
        Next::To(at + 1)
    }

    /// Inside a value or a quoted name.
    pub(super) fn value(&mut self, view: View<'_>, from: usize, out: &mut dyn Sink) -> Next {
        let name = if self.state == State::KeyText { "**" } else { self.call.given.last() };
        let scope = Scope { view, index: self.call.index, name };
        match self.literal.read(scope, from, out) {
            Reached::More(at) => Next::Wait(at),
            Reached::End(at) => {
                self.state = if self.state == State::KeyText { State::Colon } else { State::Comma };
                Next::To(at)
            }
            Reached::Wrong(at) => self.give_up(view.offset, at, out),
        }
    }

    /// A value without a name.
    fn positional(&mut self, view: View<'_>, at: usize, len: usize, out: &mut dyn Sink) -> Next {
        let start = view.offset + at;
        self.unnamed(Span::new(start, start + len), view, at, out)
    }

    fn unnamed(&mut self, span: Span, view: View<'_>, at: usize, out: &mut dyn Sink) -> Next {
        let fault = Fault::error(FaultKind::StrayText, span, "an argument has no name");
        self.report(fault.hint("write `name=value`"), view, at, out)
    }
}
