//! Parses the arguments of a Python call.

use crate::event::EventSink;
use crate::fault::{Fault, FaultKind, Span};

use super::literal::{LiteralProgress, ValueScope};
use super::word_buffer::is_name_byte;
use super::{PythonRegionParser, PythonState, rest_from};
use crate::reader::region::{StepOutcome, TextView};

impl PythonRegionParser {
    /// Processes a byte between names and values.
    pub(super) fn parse_arguments(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let text = rest_from(view, at);
        let byte = text.as_bytes().first().copied().unwrap_or_default();
        let close = if self.call.spread { b'}' } else { b')' };
        let next = match (self.state, byte) {
            (PythonState::Argument | PythonState::Comma, b')') if !self.call.spread => {
                self.call.end = view.offset + at + 1;
                PythonState::Closed
            }
            (PythonState::Key | PythonState::Comma, b'}') if self.call.spread => {
                self.call.spread = false;
                PythonState::Comma
            }
            (PythonState::Comma, b',') if self.call.spread => PythonState::Key,
            (PythonState::Comma, b',') => PythonState::Argument,
            (PythonState::Argument, b'*') => {
                // The second `*` may still arrive.
                if text.len() == 1 {
                    return StepOutcome::Wait(at);
                }
                if !text.starts_with("**") {
                    return self.reject_positional(view, at, 1, out);
                }
                self.state = PythonState::Spread;
                return StepOutcome::To(at + 2);
            }
            (PythonState::Argument, _) if is_name_byte(byte) => {
                self.word.clear();
                self.state = PythonState::ArgumentName;
                return StepOutcome::To(at);
            }
            (PythonState::Argument, _) => {
                let len = text.chars().next().map_or(0, char::len_utf8);
                return self.reject_positional(view, at, len, out);
            }
            (PythonState::Equals, b'=') | (PythonState::Colon, b':') => {
                return self.begin_value(view, at, out);
            }
            (PythonState::Spread, b'{') => {
                self.call.spread = true;
                PythonState::Key
            }
            (PythonState::Key, _) => {
                self.literal.begin_name();
                self.state = PythonState::KeyText;
                return StepOutcome::To(at);
            }
            (PythonState::Equals, _) => {
                let end = self.call.end;
                // The word was not followed by `=`, so it is a value without a name.
                let span = Span::new(end.saturating_sub(self.word.len()), end);
                return self.reject_unnamed(span, view, at, out);
            }
            (PythonState::Colon, _) => {
                return self.report_unexpected(view, at, "`:` was expected behind the name", out);
            }
            (PythonState::Spread, _) => {
                return self.report_unexpected(view, at, "`{` was expected behind `**`", out);
            }
            _ => {
                let expected = format!(
                    "`,` or `{}` was expected behind the value",
                    char::from(close)
                );
                return self.report_unexpected(view, at, &expected, out);
            }
        };
        self.state = next;
        StepOutcome::To(at + 1)
    }

    /// Begins the value of an argument, after its name and the byte at `at`.
    fn begin_value(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let span = Span::new(view.offset + at, view.offset + at + 1);
        let name = if self.state == PythonState::Colon {
            self.literal.name()
        } else {
            self.word.as_str()
        };
        if !self.call.given.add_name(name, self.call.index, span, out) {
            return self.give_up(view.offset, at, out);
        }
        self.word.release_memory();
        self.literal.begin_value();
        self.state = PythonState::Value;
        StepOutcome::To(at + 1)
    }

    /// Reads a value or a quoted name.
    pub(super) fn read_value(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        // The name is used in messages only; a key has no argument name yet.
        let name = if self.state == PythonState::KeyText {
            "**"
        } else {
            self.call.given.current_name()
        };
        let scope = ValueScope {
            view,
            index: self.call.index,
            name,
        };
        match self.literal.read_value(scope, from, out) {
            LiteralProgress::More(at) => StepOutcome::Wait(at),
            LiteralProgress::End(at) => {
                self.state = if self.state == PythonState::KeyText {
                    PythonState::Colon
                } else {
                    PythonState::Comma
                };
                StepOutcome::To(at)
            }
            LiteralProgress::Wrong(at) => self.give_up(view.offset, at, out),
        }
    }

    /// Reports a value without a name.
    fn reject_positional(
        &mut self,
        view: TextView<'_>,
        at: usize,
        len: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let start = view.offset + at;
        self.reject_unnamed(Span::new(start, start + len), view, at, out)
    }

    fn reject_unnamed(
        &mut self,
        span: Span,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let fault = Fault::error(FaultKind::StrayText, span, "an argument has no name");
        self.report_and_skip(fault.with_hint("write `name=value`"), view, at, out)
    }
}
